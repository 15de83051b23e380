"""Foreign texts made safe for a terminal, a log or a page."""

from __future__ import annotations

from typing import TypeVar
from unicodedata import category

from google.protobuf.message import Message

M = TypeVar("M", bound=Message)

# Control characters, halves of characters, ends of lines and of paragraphs, marks of direction.
OBEYED = frozenset({"Cc", "Cs", "Zl", "Zp", "Cf"})
LINE_CHARS_MAX = 500  # of one line, unless more is expected


def printable(
    text: object, *, instead: str = "", keeps: str = "", most: int | None = LINE_CHARS_MAX
) -> str:
    """Return the first `most` characters of a text without control and direction characters.

    Characters in `keeps` stay; `instead` replaces the others.
    """
    short = str(text)[:most]
    if short.isascii() and short.isprintable():
        return short
    return "".join(c if category(c) not in OBEYED or c in keeps else instead for c in short)


def without_login(address: str) -> str:
    """Return an address for errors, without the user and password before its last ``@``."""
    before, at, host = address.rpartition("@")
    scheme, separator, _ = before.partition("://")
    return f"{scheme if separator else ''}{separator}…@{host}" if at else address


def printable_message(message: M) -> M:
    """Make a message's texts printable, except for line breaks; for answers of a daemon."""
    for field, value in message.ListFields():
        if field.type == field.TYPE_STRING:
            if isinstance(value, str):
                setattr(message, field.name, printable(value, keeps="\n", most=None))
            else:
                value[:] = [printable(text, keeps="\n", most=None) for text in value]
        elif field.type == field.TYPE_MESSAGE:
            for inner in (value,) if isinstance(value, Message) else value:
                printable_message(inner)
    return message
