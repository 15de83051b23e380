"""What a policy says when it denies something: to the owner with figures, to others without."""

from __future__ import annotations

import math

from fedboost.errors import PolicyError


def listed(key: str, allowed: tuple[str, ...], name: str, what: str) -> None:
    """Raise a PolicyError unless a key of the policy names somebody, or something."""
    if name not in allowed:
        raise denied(key, f"does not allow {what} {name}")


def exceeds(total: float, most: float) -> bool:
    """Return whether a total is beyond a limit by more than adding up floats rounds."""
    return total > most * (1.0 + 1e-9)


def epsilon_of(value: float) -> str:
    """Say how much noise values have."""
    return "values without noise" if value == math.inf else f"epsilon {value:g}"


NOISE = "allows less of what is disclosed with noise than the job asks for"
PLACED = "allows fewer rows to be placed than the job could"
SUMS = "allows fewer released sums per bin and row than the job asks for"


def denied(
    key: str, sentence: str, remedy: str = "change the job", *, kind: str = ""
) -> PolicyError:
    """Return the error of a key.

    `kind`: what others read of a sentence with figures about the owner's table.
    """
    return PolicyError(
        f"the policy {sentence}",
        todo=f"{remedy}, or ask the party's owner",
        kind=f"the policy {kind}" if kind else "",
        key=f"policy.{key}",
    )
