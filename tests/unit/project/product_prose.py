"""The prose of fedboost: docstrings, comments, error texts, log lines and subjects of commits.

    python -m tests.unit.project.product_prose                    rates of all packages
    python -m tests.unit.project.product_prose runtime core       each finding in these packages
    python -m tests.unit.project.product_prose commits            each finding in commit subjects

The package `ground` holds the modules of the root as well. `messages` is left out: it is generated.
"""

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

from tests.conftest import ROOT

PRODUCT = ROOT / "fedboost"
DIRECTIVE = re.compile(r"(?:^|#)\s*(?:noqa|(?:type|pragma|fmt|mypy|ruff):).*")  # to a tool
COMMITS = 50  # whose subjects are read
COMMAND = "python -m tests.unit.project.product_prose"
DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
LOG_METHODS = {"debug", "info", "warning", "error", "exception", "critical"}
ERROR_TEXTS = {"what", "todo", "private", "kind"}  # keywords of our errors that hold sentences

PREPOSITIONS = (
    "of|by|in|on|to|for|from|with|under|at|after|over|behind|below|above|about|before|into|through"
    "|between|beside|beyond|without|within|inside|outside|around|against|among|until|since"
)
VERBS = (
    "return|returns|yield|yields|say|says|said|know|knows|tell|tells|told|name|names|show|shows"
    "|see|sees|learn|learns|hear|hears|ask|asks|check|checks|note|notes|decide|decides|is|are|was"
)
NOBODIES = "nobody|somebody|anybody|everybody|nothing|something|anything|everything|none|all|any"
OWNERS = "one's|its|their|our|his|her|your"
IT = "it|they|there|one|nobody|nothing|none|somebody|others?|ours|these|those|what|we"


@dataclass(frozen=True)
class Idiom:
    """One way to put a clause where a name belongs: its pattern, a sentence with it and the same
    sentence in plain words.
    """

    pattern: str
    example: str
    plain: str


IDIOMS = {
    "what X does": Idiom(
        r"\bwhat\b(?! to\b)",
        "What each bin adds up to.",
        "Return the sum of each bin.",
    ),
    "who has it": Idiom(
        rf"(?:^|[.:;(] |\b(?:and|or|but|than|not|whether|{VERBS}) )who(?:m|se)?\b",
        "Whose return jobs wait for.",
        "Names of the lost parties that paused jobs wait for.",
    ),
    "whoever": Idiom(
        r"\b(?:who|what|which|where|whom|how)(?:so)?ever\b",
        "Pickle runs code of whoever wrote the bytes.",
        "Pickle runs code of the sender.",
    ),
    "that which": Idiom(
        rf"\b(?:those|that|ones?|others?|{NOBODIES}) (?:who|that|which|whose)\b",
        "Return those that are lost.",
        "Return the lost parties.",
    ),
    "of which": Idiom(
        rf"\b(?:{PREPOSITIONS}) (?:which|whom|whose|who)\b",
        "Metric by which trials are compared.",
        "Metric that ranks the trials.",
    ),
    "where it is": Idiom(
        rf"\bwhere (?:{IT})\b",
        "A ConfigError where there is none.",
        "A ConfigError if the file is missing.",
    ),
    "the place where": Idiom(
        r"\b(?:place|point|side|moment)s? (?:where|in which|at which|from which)\b",
        "the place where the table lies refused our login",
        "the database refused our login",
    ),
    "nobody … what": Idiom(
        r"\bnobody\b[^.;:]*\b(?:what|who|whose|which)\b",
        "Nobody sees what a party adds.",
        "A party's vector stays hidden.",
    ),
    "of its own": Idiom(
        rf"\b(?:{PREPOSITIONS}) (?:{OWNERS}) own(?=\W*$|[.,;:)]| (?:{PREPOSITIONS}|and|or|that|is"
        r"|are|was|were|has|have|may|but|than|so|if|when|while|which|where|the|divides?)\b)",
        "Larger messages have a call of their own.",
        "Each larger message has a separate call.",
    ),
    "lets it not in": Idiom(
        r"\blets?\b[^.,;:]{1,40}\bnot\b",
        "the database lets its owner not in",
        "the database refused our login",
    ),
}
"""Relative clauses in place of names, and why each is a riddle to its reader:

    what X does        a clause stands for a thing that has a name; the reader has to find the name
    who has it         the same for a person or a party: nobody in the sentence is called anything
    whoever            any of several parties, none of them named: the reader has to list them
    that which         a pronoun is explained by a clause that comes after it: read twice
    of which           the clause begins with a preposition whose noun stands somewhere before it
    where it is        `where` can mean "if", "when" or "in the place": three sentences in one
    the place where    an empty noun, and the clause has to say which thing it is
    nobody … what      a negated subject and a clause as the object: two riddles in one sentence
    of its own         a possessive behind its noun: own as opposed to which other?
    lets it not in     the negation stands at the end and turns a finished sentence round

Most can be cured by a noun, or by subject, verb and object. The rate counts every match, in 1,000
words: a phrase that fits two of them counts twice.
"""
FOUND = {name: re.compile(idiom.pattern, re.IGNORECASE) for name, idiom in IDIOMS.items()}

NOT_OPENINGS = set(
    f"{PREPOSITIONS}|what|whatever|who|whoever|whom|whose|which|whichever|where|wherever|when|why"
    "|how|whether|that|those|it|they|he|she|we|you|nobody|somebody|everybody|anybody|nothing|if"
    "|while|because|and|or|but|as|so|then|there|not|only|also|than|true|false".split("|")
)
"""First words of docstrings that are neither a verb nor the subject of a sentence.

The heuristic reads one word, so it misses a clause behind a noun. `This`, `One` and `All` may open
a docstring, as in "All trees of a round".
"""


@dataclass(frozen=True)
class Passage:
    """Some prose of one file: where it stands, and its text with code replaced by a word."""

    package: str
    place: str
    kind: str  # docstring, comment, error, log, commit
    text: str

    @cached_property
    def words(self) -> int:
        """Number of words."""
        return len(re.findall(r"[^\W\d_][\w'’-]*", self.text))

    @cached_property
    def idioms(self) -> tuple[tuple[str, str], ...]:
        """Name of each idiom that occurs, with the words around it."""
        return tuple(
            (name, self.text[max(0, found.start() - 30) : found.end() + 30].strip())
            for name, pattern in FOUND.items()
            for found in pattern.finditer(self.text)
        )


@dataclass(frozen=True)
class Opening:
    """The first words of a docstring of several lines, which no reader takes for a sentence."""

    package: str
    place: str
    text: str


def package_of(path: Path) -> str:
    """Return the package below fedboost that a file belongs to; `ground` for files of the root."""
    inside = path.relative_to(PRODUCT).parts
    return inside[0] if len(inside) > 1 else "ground"


@cache
def product_files() -> tuple[Path, ...]:
    """Return the modules of fedboost that people write."""
    paths = sorted(PRODUCT.rglob("*.py"))
    return tuple(path for path in paths if path.relative_to(PRODUCT).parts[0] != "messages")


@cache
def tree_of(path: Path) -> ast.Module:
    """Return the syntax tree of a module."""
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def nodes_of(path: Path) -> tuple[ast.AST, ...]:
    """Return all nodes of the syntax tree of a module."""
    return tuple(ast.walk(tree_of(path)))


def plain_text(text: str) -> str:
    """Return prose on one line, in which code in backticks is the word `code`."""
    return " ".join(re.sub(r"``[^`]+``|`[^`]+`", "code", text).split())


@cache
def docstrings() -> tuple[tuple[Path, int, str], ...]:
    """Return file, line and text of each docstring of the product."""
    found = []
    for path in product_files():
        for node in nodes_of(path):
            if isinstance(node, DOCUMENTED) and (text := ast.get_docstring(node)):
                found.append((path, node.body[0].lineno, text))
    return tuple(found)


@cache
def passages() -> tuple[Passage, ...]:
    """Return all prose of the product."""
    found = []
    for path, line, text in docstrings():
        found += [_passage(path, line, "docstring", part) for part in text.split("\n\n")]
    errors = error_classes()
    for path in product_files():
        source = path.read_text(encoding="utf-8")
        found += [_passage(path, line, "comment", text) for line, text in comments_in(source)]
        for line, kind, text in sentences_in(nodes_of(path), errors):
            found.append(_passage(path, line, kind, text))
    return tuple(found)


def error_classes() -> frozenset[str]:
    """Return the names of the error classes of the product."""
    texts = [path.read_text(encoding="utf-8") for path in product_files()]
    return frozenset(re.findall(r"(?m)^class (\w+Error)\(", "\n".join(texts)))


def comments_in(source: str) -> Iterator[tuple[int, str]]:
    """Yield line and text of each comment of a module; lines that follow one another are one."""
    begin, last, texts = 0, -1, list[str]()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        text = DIRECTIVE.sub("", token.string.removeprefix("#"))
        is_alone = not token.line[: token.start[1]].strip()
        if texts and is_alone and token.start[0] == last + 1:
            texts.append(text)
        else:
            if texts:
                yield begin, " ".join(texts)
            begin, texts = token.start[0], [text]
        last = token.start[0] if is_alone else -1
    if texts:
        yield begin, " ".join(texts)


def sentences_in(
    nodes: Iterable[ast.AST], errors: Container[str]
) -> Iterator[tuple[int, str, str]]:
    """Yield line, kind and text of the error texts and log lines among the nodes of a module."""
    for node in nodes:
        if not isinstance(node, ast.Call):
            continue
        called = node.func
        if isinstance(called, ast.Attribute) and _is_log(called):
            for text in texts_of(node.args[0] if node.args else node):
                yield node.lineno, "log", re.sub(r"%[sdrgf]|%\(\w+\)s", "N", text)
        elif (called.id if isinstance(called, ast.Name) else getattr(called, "attr", "")) in errors:
            said = [key.value for key in node.keywords if key.arg in ERROR_TEXTS]
            for argument in [*node.args[:1], *said]:
                for text in texts_of(argument):
                    yield node.lineno, "error", text


def _is_log(called: ast.Attribute) -> bool:
    """Return whether a call writes a line to a log."""
    owner = called.value
    name = owner.id if isinstance(owner, ast.Name) else getattr(owner, "attr", "")
    return called.attr in LOG_METHODS and re.fullmatch(r"_?log(?:ger)?", name) is not None


def texts_of(node: ast.AST) -> Iterator[str]:
    """Yield the texts of an expression; what an f-string fills in is `N`."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.JoinedStr):
        parts = (str(part.value) if isinstance(part, ast.Constant) else "N" for part in node.values)
        yield "".join(parts)
    elif not isinstance(node, ast.Call):
        for child in ast.iter_child_nodes(node):
            yield from texts_of(child)


def _passage(path: Path, line: int, kind: str, text: str) -> Passage:
    place = f"{path.relative_to(ROOT)}:{line}"
    return Passage(package_of(path), place, kind, plain_text(text))


def commits() -> list[Passage]:
    """Return the subjects of the last commits, without merges; none outside a repository."""
    if not (ROOT / ".git").exists():
        return []
    command = ["git", "log", f"-{COMMITS}", "--no-merges", "--format=%h %s"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    lines = [line.partition(" ") for line in listed.stdout.splitlines()]
    return [Passage("commits", hash_, "commit", plain_text(text)) for hash_, _, text in lines]


def idioms_each(found: Iterable[Passage]) -> dict[str, float]:
    """Return the idioms in 1,000 words of each package."""
    words, idioms = Counter[str](), Counter[str]()
    for passage in found:
        words[passage.package] += passage.words
        idioms[passage.package] += len(passage.idioms)
    return {package: 1000 * idioms[package] / words[package] for package in sorted(words)}


def has_opening(text: str) -> bool:
    """Return whether a docstring opens with a verb or a noun, or has one line alone."""
    first = re.match(r"[^\w`]*([\w'’-]+)", text)
    return "\n" not in text or not first or first[1].lower() not in NOT_OPENINGS


def openings_each() -> dict[str, float]:
    """Return how many docstrings of each package open with another word than a verb or a noun."""
    counts = Counter(opening.package for opening in openings())
    packages = {package_of(path) for path in product_files()}
    return {package: float(counts[package]) for package in sorted(packages)}


def openings() -> list[Opening]:
    """Return the docstrings of several lines that open with another word."""
    return [
        Opening(package_of(path), f"{path.relative_to(ROOT)}:{line}", text.partition("\n")[0])
        for path, line, text in docstrings()
        if not has_opening(text)
    ]


def table() -> str:
    """Return a line for each package: words, idioms in 1,000 words in all and by kind, openings."""
    kinds = ("docstring", "comment", "error", "log")
    opened = Counter(one.package for one in openings())
    by_package = defaultdict[str, list[Passage]](list)
    for passage in passages():
        by_package[passage.package].append(passage)
        by_package["all"].append(passage)
    by_package["commits"] = commits()
    opened["all"] = sum(opened.values())
    heads = ("package", "words", "idioms", *(f"{kind}s" for kind in kinds), "openings")
    rows = [heads]
    for package, found in sorted(by_package.items(), key=lambda one: one[0] == "all"):
        rates = [_rate(found), *(_rate(one for one in found if one.kind == kind) for kind in kinds)]
        words = sum(passage.words for passage in found)
        rows.append((package, f"{words:,}", *rates, str(opened[package])))
    return "\n".join("".join(f"{cell:>12}" for cell in row) for row in rows)


def _rate(found: Iterable[Passage]) -> str:
    kept = list(found)
    words = sum(passage.words for passage in kept)
    return f"{1000 * sum(len(passage.idioms) for passage in kept) / words:.1f}" if words else "-"


def findings(packages: Iterable[str]) -> Iterator[str]:
    """Yield a line for each idiom and each opening in these packages."""
    wanted = set(packages)
    for passage in [*passages(), *commits()]:
        if passage.package in wanted:
            for name, around in passage.idioms:
                yield f"{passage.place}: {passage.kind}: {name}: … {around} …"
    for opening in openings():
        if opening.package in wanted:
            yield f"{opening.place}: opening: {opening.text}"


def main(packages: list[str]) -> int:
    """Print the table, or the findings of some packages; return the exit status."""
    lines = findings(packages) if packages else [table()]
    sys.stdout.write("\n".join([*lines, ""]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
