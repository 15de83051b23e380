"""The names of fedboost: conflicting definitions, short names, and references in docstrings.

python -m tests.unit.project.product_names                    figures of all packages
python -m tests.unit.project.product_names runtime core       the names behind them, of these
"""

import ast
import builtins
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.conftest import ROOT
from tests.unit.project.product_prose import (
    DOCUMENTED,
    docstrings,
    nodes_of,
    package_of,
    product_files,
    tree_of,
)

COMMAND = "python -m tests.unit.project.product_names"
FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef
SHORT = re.compile(r"[a-z]{1,6}")  # one word of six letters at most
# Constants that each protocol, scheme or command has under the same name, by design.
BY_INTERFACE = {"FLOW", "PROTOCOL", "SCHEME", "CHECKPOINT", "SETTLED", "log"}
REFERENCE = re.compile(r"(?<!`)(`{1,2})([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)(?:\(\))?\1(?!`)")
PLACEHOLDER = re.compile(r"[A-Z]+|\d+")  # part of a name that differs from case to case


@dataclass(frozen=True)
class Definition:
    """A public name of a module: a type alias, a constant or a class, and how it is defined."""

    path: Path
    name: str
    text: str  # the value as Python writes it; of a class its head


def definitions() -> Iterator[Definition]:
    """Yield the public aliases, constants and classes of all modules.

    Functions are left out: protocols, schemes and commands are modules with the same functions, and
    a call names its module. So are type variables, which no other module imports.
    """
    for path in product_files():
        is_protocol = "protocols" in path.parts
        for node in tree_of(path).body:
            if isinstance(node, ast.ClassDef):
                name, text = node.name, "class"
                if is_protocol and name in {"Guest", "Host", "Aggregator", "Party"}:
                    continue
            elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                name, text = node.targets[0].id, ast.unparse(node.value)
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                name, text = node.target.id, ast.unparse(node.value) if node.value else ""
            else:
                continue
            if not name.startswith("_") and name not in BY_INTERFACE and "TypeVar(" not in text:
                yield Definition(path, name, text)


def conflicts() -> dict[str, list[Definition]]:
    """Return the names that two modules define differently, with their definitions."""
    found = defaultdict[str, list[Definition]](list)
    for definition in definitions():
        found[definition.name].append(definition)
    return {
        name: several
        for name, several in sorted(found.items())
        if len({one.text for one in several}) > 1 and len({one.path for one in several}) > 1
    }


def is_type(name: str) -> bool:
    """Return whether a public name is one of a class or a type alias, not of a constant."""
    return not name.isupper()


def conflicts_each(*, types: bool) -> dict[str, float]:
    """Return how many types, or constants, of each package have another definition elsewhere."""
    found = {
        (package_of(one.path), name)
        for name, several in conflicts().items()
        for one in several
        if is_type(name) == types
    }
    packages = {package_of(path) for path in product_files()}
    counts = Counter(package for package, _ in found)
    return {package: float(counts[package]) for package in sorted(packages)}


@cache
def functions() -> tuple[tuple[Path, int, str], ...]:
    """Return file, line and name of each function and method that we name."""
    return tuple(
        (path, node.lineno, node.name)
        for path in product_files()
        for node in nodes_of(path)
        if isinstance(node, FUNCTIONS) and not node.name.startswith("__")
    )


def is_short(name: str) -> bool:
    """Return whether a function's name is one word of six letters at most."""
    return SHORT.fullmatch(name.strip("_")) is not None


def short_each() -> dict[str, float]:
    """Return the share of short names among the functions of each package, in per cent."""
    named, short = Counter[str](), Counter[str]()
    for path, _, name in functions():
        named[package_of(path)] += 1
        short[package_of(path)] += is_short(name)
    return {package: 100 * short[package] / named[package] for package in sorted(named)}


# References in backticks


@dataclass(frozen=True)
class Known:
    """Names of the code base that a docstring may refer to."""

    modules: frozenset[str]  # dotted, from fedboost on
    members: dict[str, set[str]]  # by the name of a class or a module: what is defined in it
    bases: dict[str, set[str]]  # by the name of a class
    words: frozenset[str]  # every identifier of the code and of protos
    texts: frozenset[str]  # words of the code's texts, docstrings left out, and their dotted parts
    libraries: frozenset[str]  # packages of others that are imported
    settings: frozenset[str]  # fields of classes


@cache
def known() -> Known:
    """Return the names of the code base."""
    members, bases = defaultdict[str, set[str]](set), defaultdict[str, set[str]](set)
    modules, words, texts, libraries = set[str](), set[str](), list[str](), set[str]()
    settings = set[str]()
    for path in sorted((ROOT / "fedboost").rglob("*.py")):
        tree = tree_of(path)
        dotted = path.relative_to(ROOT).with_suffix("").as_posix().replace("/", ".")
        modules.add(dotted.removesuffix(".__init__"))
        members[dotted.removesuffix(".__init__")].update(defined_in(tree.body))
        words |= variables_of(path)
        for node in nodes_of(path):
            if isinstance(node, ast.ClassDef):
                members[node.name].update(defined_in(node.body), attributes_set(node))
                heads = [re.findall(r"\w+", ast.unparse(base)) for base in node.bases]
                bases[node.name] |= {word for head in heads for word in head}
                settings |= {
                    one.target.id
                    for one in node.body
                    if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)
                }
            elif isinstance(node, ast.Import | ast.ImportFrom):
                named = [one.name for one in node.names] if isinstance(node, ast.Import) else []
                libraries.update((one or "").partition(".")[0] for one in [*named, *_from(node)])
        texts += _texts(path)
    for path in (ROOT / "protos").rglob("*.proto"):
        text = re.sub(r"//.*", "", path.read_text(encoding="utf-8"))
        words.update(re.findall(r"[A-Za-z_]\w*", text))
        for service, body in re.findall(r"(?s)\b(?:service|message|enum) (\w+) \{(.*?)\n\}", text):
            members[service] |= set(re.findall(r"\w+", body))
    words.update(part for module in modules for part in module.split("."))
    return Known(
        frozenset(modules),
        members,
        bases,
        frozenset(words),
        frozenset(_parts(texts)),
        frozenset(libraries) - {"fedboost", ""},
        frozenset(settings),
    )


def _from(node: ast.Import | ast.ImportFrom) -> list[str]:
    return [node.module or ""] if isinstance(node, ast.ImportFrom) else []


def identifiers(node: ast.AST) -> list[str]:
    """Return the names that a node of a syntax tree itself says."""
    if isinstance(node, ast.Name):
        return [node.id]
    if isinstance(node, ast.Attribute):
        return [node.attr]
    if isinstance(node, FUNCTIONS | ast.ClassDef):
        return [node.name]
    if isinstance(node, ast.arg | ast.keyword):
        return [node.arg or ""]
    if isinstance(node, ast.alias):
        return [*node.name.split("."), node.asname or ""]
    return []


def defined_in(body: Iterable[ast.stmt]) -> Iterator[str]:
    """Yield the names that the body of a module or a class defines."""
    for statement in body:
        if isinstance(statement, FUNCTIONS | ast.ClassDef):
            yield statement.name
        elif isinstance(statement, ast.Import | ast.ImportFrom):
            yield from (one.asname or one.name for one in statement.names)
        elif isinstance(statement, ast.If | ast.Try | ast.With | ast.For):
            yield from defined_in([*statement.body, *getattr(statement, "orelse", [])])
        else:
            for node in ast.walk(statement):
                if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                    yield node.id


def attributes_set(methods: ast.ClassDef) -> Iterator[str]:
    """Yield the attributes that the methods of a class set."""
    for node in ast.walk(methods):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr


def _texts(path: Path) -> list[str]:
    """Return the texts of a module that are no docstrings."""
    skipped = {
        id(node.body[0].value)
        for node in nodes_of(path)
        if isinstance(node, DOCUMENTED) and node.body and isinstance(node.body[0], ast.Expr)
    }
    nodes = (node for node in nodes_of(path) if isinstance(node, ast.Constant))
    return [node.value for node in nodes if isinstance(node.value, str) and id(node) not in skipped]


def _parts(texts: Iterable[str]) -> Iterator[str]:
    """Yield the words of texts; of dotted ones the parts that follow one another, too."""
    for word in {word for text in texts for word in re.findall(r"[\w.]+", text)}:
        parts = word.split(".")
        for first in range(len(parts)):
            for last in range(first, len(parts)):
                yield ".".join(parts[first : last + 1])


def has_member(owner: str, name: str, seen: frozenset[str] = frozenset()) -> bool:
    """Return whether a class, or one that it is derived from, has such a member."""
    if owner in seen:
        return False
    bases = known().bases.get(owner, set())
    return name in known().members.get(owner, set()) or any(
        has_member(base, name, seen | {owner}) for base in bases
    )


def exists(reference: str, variables: Iterable[str] = ()) -> bool:
    """Return whether a name in backticks is one of the code base.

    A dotted one is a module, a member of a module or a class, an attribute of one of the file's
    `variables`, a name of a library, or a text such as a file's name.
    """
    code = known()
    parts = reference.split(".")
    if all(PLACEHOLDER.fullmatch(part) for part in parts) or reference in code.texts:
        return True
    if len(parts) == 1:
        stem = PLACEHOLDER.split(reference)[0]
        is_stem = stem != reference and stem.endswith("_") and stem in code.texts
        return reference in code.words or is_stem
    if parts[0] in code.libraries or _modules(reference):
        return True
    for k in range(1, len(parts)):
        if any(parts[k] in code.members[one] for one in _modules(".".join(parts[:k]))):
            return k == len(parts) - 1 or has_member(parts[k], parts[k + 1])
    if parts[-2] in code.bases:
        return has_member(parts[-2], parts[-1])
    is_setting = not _modules(parts[0]) and all(part in code.settings for part in parts)
    return is_setting or (parts[0] in variables and all(part in code.words for part in parts))


@cache
def _modules(name: str) -> list[str]:
    """Return the modules of which the dotted path ends so."""
    return [module for module in known().modules if f".{module}".endswith(f".{name}")]


def is_reference(name: str) -> bool:
    """Return whether a name in backticks looks like code: dotted, or of several words."""
    return name not in dir(builtins) and ("." in name or "_" in name.strip("_"))


@cache
def variables_of(path: Path) -> frozenset[str]:
    """Return the identifiers of a module."""
    return frozenset(word for node in nodes_of(path) for word in identifiers(node))


def unknown_references() -> list[str]:
    """Return file, line and name of each reference in a docstring that nothing defines."""
    found = []
    for path, line, text in docstrings():
        for reference in REFERENCE.finditer(text):
            name = reference[2]
            if (
                is_reference(name)
                and not name.endswith(".py")
                and not exists(name, variables_of(path))
            ):
                found.append(f"{path.relative_to(ROOT)}:{line}: {name}")
    return found


def table() -> str:
    """Return a line for each package: functions, short names, types and constants in conflict."""
    named = Counter(package_of(path) for path, _, _ in functions())
    short, types, constants = short_each(), conflicts_each(types=True), conflicts_each(types=False)
    rows = [("package", "functions", "short, %", "types", "constants")]
    for package, share in short.items():
        counts = f"{types[package]:g}", f"{constants[package]:g}"
        rows.append((package, f"{named[package]:,}", f"{share:.1f}", *counts))
    share = 100 * sum(is_short(name) for _, _, name in functions()) / len(functions())
    n_types = sum(is_type(name) for name in conflicts())
    counts = f"{n_types}", f"{len(conflicts()) - n_types}"
    rows.append(("all", f"{len(functions()):,}", f"{share:.1f}", *counts))
    return "\n".join("".join(f"{cell:>12}" for cell in row) for row in rows)


def findings(packages: Iterable[str]) -> Iterator[str]:
    """Yield a line for each conflicting definition and each short name in these packages."""
    wanted = set(packages)
    for name, several in conflicts().items():
        if wanted & {package_of(one.path) for one in several}:
            told = (f"{one.path.relative_to(ROOT)} {one.text[:60]}" for one in several)
            yield f"conflict: {name}: {'; '.join(told)}"
    for path, line, name in functions():
        if package_of(path) in wanted and is_short(name):
            yield f"{path.relative_to(ROOT)}:{line}: short: {name}"


def main(packages: list[str]) -> int:
    """Print the figures, or the names of some packages; return the exit status."""
    lines = list(findings(packages)) if packages else [table()]
    lines += [f"unknown reference: {reference}" for reference in unknown_references()]
    sys.stdout.write("\n".join([*lines, ""]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
