"""The points of a module at which it can be made wrong, and the module with one of them changed.

Not changed, because no test should depend on them: texts (strings, docstrings, `__repr__`,
`__str__`), arguments of `raise` and of log calls, asserts, annotations and decorators.
"""

from __future__ import annotations

import ast
import random
from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path.cwd()  # of the project whose `fedboost` is changed and whose `tests` judge it
TEXT_CHARS = 90  # of a changed expression, in tables
UNCHANGED_FIELDS = {"annotation", "returns", "decorator_list"}
UNCHANGED_FUNCTIONS = {"__repr__", "__str__"}
FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
COMPARED: dict[type, type] = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Lt: ast.LtE, ast.LtE: ast.Lt,
    ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.In: ast.NotIn, ast.NotIn: ast.In,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
COMPUTED: dict[type, type] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult, ast.Mod: ast.FloorDiv, ast.Pow: ast.Mult,
    ast.LShift: ast.RShift, ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.BitXor: ast.BitAnd,
}  # fmt: skip
NEGATED_BY_ITS_OPERATOR = ast.Eq | ast.NotEq | ast.In | ast.NotIn | ast.Is | ast.IsNot


@dataclass(frozen=True)
class Mutant:
    """One change of one module."""

    path: str  # under ROOT
    nth: int  # of the module's points
    first: int  # line of the statement, or of the part of it before its body
    last: int
    line: int
    before: str
    after: str
    live: bool  # inside a function: it can be changed in a process that has imported the module

    @property
    def key(self) -> str:
        """Name of the mutant in the book of results."""
        return f"{self.path}:{self.line}#{self.nth}: {self.before} → {self.after}"


@dataclass
class _Point:
    parent: ast.AST
    field: str
    place: int | None  # in a field that is a list
    new: ast.AST
    statement: ast.stmt | None
    inside: bool

    @property
    def old(self) -> ast.AST:
        value: Any = getattr(self.parent, self.field)
        old: ast.AST = value if self.place is None else value[self.place]
        return old

    def change(self) -> None:
        """Put the new node into the tree."""
        ast.copy_location(self.new, self.old)
        if self.place is None:
            setattr(self.parent, self.field, self.new)
        else:
            getattr(self.parent, self.field)[self.place] = self.new


def _points(
    node: ast.AST, inside: bool = False, statement: ast.stmt | None = None
) -> Iterator[_Point]:
    """Walk a tree in its order; a function's defaults are outside it, its body is inside."""
    for field, value in ast.iter_fields(node):
        if field in UNCHANGED_FIELDS:
            continue
        within = inside or (field == "body" and isinstance(node, FUNCTIONS))
        children = list(enumerate(value)) if isinstance(value, list) else [(None, value)]
        for place, child in children:
            if not isinstance(child, ast.AST) or _is_text(child):
                continue
            held = child if isinstance(child, ast.stmt) else statement
            for new in (*_changed(child), *_negated(node, field, child)):
                yield _Point(node, field, place, new, held, within)
            if not isinstance(child, ast.Raise):
                yield from _points(child, within, held)


def _is_text(node: ast.AST) -> bool:
    """Whether a node only speaks to people or to the type checker."""
    match node:
        case ast.FunctionDef(name=name):
            return name in UNCHANGED_FUNCTIONS
        case ast.Expr(value=ast.Constant()) | ast.JoinedStr() | ast.Assert():
            return True
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id=name)))):
            return name in ("log", "logging", "warnings")
        case ast.If(test=ast.Name(id="TYPE_CHECKING")):
            return True
    return False


def _changed(node: ast.AST) -> Iterator[ast.AST]:
    """Yield a node's wrong versions, each a new node."""
    match node:
        case ast.Compare(ops=ops):
            for place, op in enumerate(ops):
                yield _with(node, ops=[*ops[:place], COMPARED[type(op)](), *ops[place + 1 :]])
        case ast.BinOp(left=left, op=op, right=right) if type(op) in COMPUTED:
            if not any(map(_is_string, (left, right))):
                yield _with(node, op=COMPUTED[type(op)]())
        case ast.AugAssign(op=op):
            if type(op) in COMPUTED and not _is_string(node.value):
                yield _with(node, op=COMPUTED[type(op)]())
            yield ast.Pass()
        case ast.BoolOp(op=op):
            yield _with(node, op=ast.And() if isinstance(op, ast.Or) else ast.Or())
        case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=operand):
            yield operand
        case ast.Constant(value=bool() as value):
            yield _with(node, value=not value)
        case ast.Constant(value=int() | float() as value):
            yield _with(node, value=value + 1)
        case ast.Return(value=ast.expr() as value):
            if not (isinstance(value, ast.Constant) and value.value is None):
                yield _with(node, value=ast.Constant(None))
        case ast.Expr(value=ast.Call() | ast.Await()) | ast.Raise():
            yield ast.Pass()
        case ast.Continue():
            yield ast.Break()
        case ast.Break():
            yield ast.Continue()


def _negated(parent: ast.AST, field: str, node: ast.AST) -> Iterator[ast.AST]:
    """Yield the contrary of a condition, unless a change of its operator is the same."""
    if not (field == "ifs" or (field == "test" and isinstance(node, ast.expr))):
        return
    match node:
        case ast.UnaryOp(op=ast.Not()):
            return
        case ast.Compare(ops=[op]) if isinstance(op, NEGATED_BY_ITS_OPERATOR):
            return
        case ast.expr():
            yield ast.UnaryOp(ast.Not(), node)


def _is_string(node: ast.AST) -> bool:
    is_string = isinstance(node, ast.Constant) and isinstance(node.value, str)
    return is_string or isinstance(node, ast.JoinedStr)


def _with(node: ast.AST, **fields: object) -> ast.AST:
    new = copy(node)
    for name, value in fields.items():
        setattr(new, name, value)
    return new


def mutants_of(path: Path) -> list[Mutant]:
    """Return every mutant of a module that is still a Python program."""
    found = []
    name = str(path.relative_to(ROOT))
    for nth, point in enumerate(_points(ast.parse(path.read_bytes()))):
        first, last = _lines(point)
        line = getattr(point.old, "lineno", first)
        before, after = (_shown(node) for node in (point.old, point.new))
        found.append(Mutant(name, nth, first, last, line, before, after, point.inside))
    return found


def _lines(point: _Point) -> tuple[int, int]:
    held = point.statement
    assert held is not None
    body = getattr(held, "body", None)
    last = max(held.lineno, body[0].lineno - 1) if body else held.end_lineno
    return held.lineno, last or held.lineno


def _shown(node: ast.AST) -> str:
    return ast.unparse(node).splitlines()[0][:TEXT_CHARS]


def changed_tree(mutant: Mutant, source: bytes) -> ast.Module:
    """Return the module's syntax with the mutant's change."""
    tree = ast.parse(source)
    for nth, point in enumerate(_points(tree)):
        if nth == mutant.nth:
            point.change()
            break
    return ast.fix_missing_locations(tree)


def sample(package: str, count: int, seed: int) -> list[Mutant]:
    """Draw mutants of a package, every point equally likely; a larger count draws more of them."""
    folder = ROOT / "fedboost" / package
    every = [m for path in sorted(folder.rglob("*.py")) for m in mutants_of(path)]
    random.Random(seed).shuffle(every)
    return every[:count]
