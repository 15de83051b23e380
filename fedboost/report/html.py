"""HTML that cannot be injected: text is escaped unless it is already `Html`."""

from __future__ import annotations

from importlib import resources
from typing import TypeAlias

from markupsafe import Markup, escape

from fedboost.ground.printable import printable

_VOID = frozenset({"meta", "link", "br", "input", "rect", "line", "circle", "polyline", "path"})

Attribute = str | float | None


Html: TypeAlias = Markup  # text that is HTML already; made only here


def to_html(value: object) -> Html:
    """Return `value` as HTML: itself if it is `Html`, else escaped and unprintable characters
    replaced.
    """
    if isinstance(value, Html):
        return value
    return escape(printable(value, instead="\ufffd", keeps="\n\t", most=None))


def join(*parts: object) -> Html:
    """Return the parts one after the other, each escaped unless it is `Html`."""
    return Html("".join(to_html(part) for part in parts))


def tag(name: str, /, *content: object, **attributes: Attribute) -> Html:
    """Return an element; attributes that are None are left out.

    In an attribute's name `_` becomes `-`; a final `_` is removed.
    """
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{to_html(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in _VOID and not content:
        return Html(f"<{name}{written}/>")
    return Html(f"<{name}{written}>{join(*content)}</{name}>")


def verbatim(trusted: str) -> Html:
    """Return our own text, such as our style sheet, unescaped; never for text from outside."""
    return Html(trusted)


def style_sheet(file: str) -> Html:
    """Return the element with a style sheet of this package."""
    text = resources.files(__package__).joinpath(file).read_text(encoding="utf-8")
    return tag("style", verbatim(text))
