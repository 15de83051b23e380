"""Words that came from elsewhere, as a terminal, a log or a page may show them."""

from __future__ import annotations

from typing import TypeVar
from unicodedata import category

from google.protobuf.message import Message

M = TypeVar("M", bound=Message)

# Control characters, halves of characters, ends of lines and of paragraphs, marks of direction.
OBEYED = frozenset({"Cc", "Cs", "Zl", "Zp", "Cf"})
TEXT_CHARS_MAX = 500  # of one line, unless more is expected


def printable(
    text: object, *, instead: str = "", keeps: str = "", most: int | None = TEXT_CHARS_MAX
) -> str:
    """The text without what a terminal obeys or what turns text around, and no more than `most`.

    What is in `keeps` stays.
    """
    short = str(text)[:most]
    if short.isascii() and short.isprintable():
        return short
    return "".join(c if category(c) not in OBEYED or c in keeps else instead for c in short)


def without_login(address: str) -> str:
    """Return an address as errors may show it: without what stands before its last ``@``."""
    before, at, host = address.rpartition("@")
    scheme, separator, _ = before.partition("://")
    return f"{scheme if separator else ''}{separator}…@{host}" if at else address


def printable_message(message: M) -> M:
    """Make a message's texts printable, line breaks aside; for what a daemon answers."""
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
