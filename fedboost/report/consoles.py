"""Terminal output of texts as they are: brackets and colons in them are no markup."""

from __future__ import annotations

from typing import Any

from rich.console import Console


def plain_console(**options: Any) -> Console:
    """Return a console that prints every text unchanged; only `Text` objects have styles.

    With rich's markup an IPv6 address would lose parts: `[fe80::1]` is a style and `:b:` an emoji.
    """
    return Console(markup=False, emoji=False, **options)
