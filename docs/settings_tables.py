"""Tables of settings in Markdown: key, default, what is allowed, and the comment in the source."""

from __future__ import annotations

import ast
import inspect
import io
import re
import textwrap
import tokenize
import types
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeGuard, Union, get_args, get_origin

from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from fedboost.ground.settings import NameIn, Settings

BOUNDS = {
    "ge": "≥ {}",
    "gt": "> {}",
    "le": "≤ {}",
    "lt": "< {}",
    "min_length": "at least {}",
    "max_length": "at most {}",
}
PLAIN = {
    types.NoneType: "nothing",
    str: "text",
    int: "whole number",
    float: "number",
    bool: "`true`, `false`",
    Path: "path",
}
SETTINGS_HEAD = ["| key | default | allowed | meaning |", "| --- | --- | --- | --- |"]


def tables(
    kind: type[Settings],
    seen: dict[type[Settings], str],
    *,
    above: tuple[type[Settings], ...] | None = None,
) -> Iterator[str]:
    """The keys of a class of settings, but for those of the classes `above`, its bases if absent,
    and of the settings that these keys hold. A key with another default than above is listed again.
    """
    said = comments(kind)
    bases = [one for one in kind.__mro__[1:] if is_settings(one)] if above is None else above
    ordered = [one for one in kind.__mro__[::-1] if one in bases]
    known = {name: field for one in ordered for name, field in one.model_fields.items()}
    own = {
        name: field
        for name, field in kind.model_fields.items()
        if name not in known or default_cell(field) != default_cell(known[name])
    }
    yield from SETTINGS_HEAD
    for name, field in own.items():
        cells = (f"`{name}`", default_cell(field), _allowed(field), cell(said.get(name, "")))
        yield f"| {' | '.join(cells)} |"
    yield ""
    for name, field in own.items():
        for inner in _inner(field.annotation):
            if inner in seen:
                continue
            seen[inner] = name
            yield from (f"**`{name}`**: {first_paragraph(inner)}", "")
            yield from tables(inner, seen)


def comments(kind: type[Settings]) -> dict[str, str]:
    """What the source says of each field: the comment on its lines, else the one right above."""
    found: dict[str, str] = {}
    for one in kind.__mro__[::-1]:
        if is_settings(one):
            found |= _comments(inspect.getsource(one))
    return found


def _comments(source: str) -> dict[str, str]:
    source = textwrap.dedent(source)
    said = {
        token.start[0]: (
            token.string.removeprefix("#").strip(),
            not token.line[: token.start[1]].strip(),
        )
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT
    }
    (body,) = (node.body for node in ast.parse(source).body if isinstance(node, ast.ClassDef))
    found = {}
    for node in body:
        if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
            continue
        beside = [said[n][0] for n in range(node.lineno, (node.end_lineno or 0) + 1) if n in said]
        above: list[str] = []
        while (line := node.lineno - 1 - len(above)) in said and said[line][1]:
            above.insert(0, said[line][0])
        found[node.target.id] = " ".join(beside or above).removesuffix(".")
    return found


def default_cell(field: FieldInfo) -> str:
    """Return a field's default in the form of a table's cell."""
    if field.is_required():
        return "required"
    if field.default is PydanticUndefined:
        made: Any = field.default_factory
        found = made()  # a number that is made, not said, is this machine's
        return "" if isinstance(found, int) else _value(found)
    return _value(field.default)


def _value(value: object) -> str:
    if isinstance(value, Settings):
        return "see below"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if value is None or (isinstance(value, tuple | list | Mapping) and not value):
        return "none"
    if isinstance(value, float):
        return f"`{value:g}`"
    if isinstance(value, tuple | list):
        return f"`[{', '.join(str(one) for one in value)}]`"
    return f"`{value}`"


def _allowed(field: FieldInfo) -> str:
    return _bounded(_type(field.annotation), field.metadata).replace("|", "\\|")


def _bounded(kind: str, metadata: Collection[Any]) -> str:
    """A type in words, and between what its values lie, or how many of them there may be."""
    kind = next(
        (
            _names([*filter(None, [one.also]), *one.known])
            for one in metadata
            if isinstance(one, NameIn)
        ),
        kind,
    )
    found = {
        name: getattr(one, name, None) for one in metadata for name in BOUNDS if hasattr(one, name)
    }
    found = {name: bound for name, bound in found.items() if bound is not None}
    if found.get("max_length") is None and found.get("min_length") == 1:
        return f"{kind}, not empty"
    said = [
        BOUNDS[name].format(
            f"{bound:,}" if isinstance(bound, int) and bound < 2**40 else f"{bound:.3g}"
        )
        for name, bound in found.items()
    ]
    return ", ".join([kind, *said])


def _names(known: Collection[object]) -> str:
    return ", ".join(f"`{name}`" for name in known)


def _type(annotation: Any) -> str:
    """What may stand there, in words; the rest of a union with None is what counts."""
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _bounded(
            _type(parts[0]), [f for p in parts[1:] for f in getattr(p, "metadata", [p])]
        )
    if origin in (Union, types.UnionType, Literal):
        said = (one for one in map(_type, parts) if one != "nothing")
        return _names(parts) if origin is Literal else " or ".join(said)
    if origin in (tuple, list):
        inner = dict.fromkeys(_type(part) for part in parts if part is not Ellipsis)
        return f"list of {', '.join(inner)}"
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return f"by name: {_type(parts[1])}"
    if isinstance(annotation, type) and issubclass(annotation, Settings):
        return "keys"
    return PLAIN.get(annotation, "anything")


def _inner(annotation: Any) -> Iterator[type[Settings]]:
    if isinstance(annotation, type) and issubclass(annotation, Settings):
        yield annotation
    for part in get_args(annotation):
        yield from _inner(part)


def is_settings(kind: Any) -> TypeGuard[type[Settings]]:
    return isinstance(kind, type) and issubclass(kind, Settings) and kind is not Settings


def first_paragraph(kind: type) -> str:
    return escaped(" ".join((inspect.getdoc(kind) or "").split("\n\n")[0].split()))


def anchor(head: str) -> str:
    return re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-")


def cell(text: str) -> str:
    return escaped(" ".join(text.split())).replace("|", "\\|")


def escaped(text: str) -> str:
    """Text in which nothing but `code` is markup."""
    parts = re.split(r"(`[^`]*`)", text.replace("``", "`"))
    return "".join(
        part if part.startswith("`") else re.sub(r"([<>*_\[\]])", r"\\\1", part) for part in parts
    )
