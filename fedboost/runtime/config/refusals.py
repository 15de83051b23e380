"""Refusals of a policy: the key, the text for the owner, the text for other parties."""

from __future__ import annotations

import math

from fedboost.ground.errors import FedboostError, PolicyError

# Text for other parties if the sentence has figures.
NOISE = "allows less of what is disclosed with noise than the job asks for"
PLACED = "allows fewer rows to be placed than the job could"
SUMS = "allows fewer released sums per bin and row than the job asks for"


def key_refusal(
    key: str, sentence: str, remedy: str = "change the job", *, kind: str = "", asks: str = ""
) -> PolicyError:
    """Return the refusal of a key; other parties read `kind` instead of a sentence with figures
    about the owner's table, `asks` completes the request to the owner.
    """
    return PolicyError(
        f"the policy {sentence}",
        todo=f"{remedy}, or ask the party's owner{asks}",
        kind=f"the policy {kind}" if kind else "",
        key=f"policy.{key}",
    )


def is_want_of_place(error: FedboostError) -> bool:
    """Return whether a party refuses a job only because it has as many as it allows at once."""
    return isinstance(error, PolicyError) and error.where.get("key") == "policy.jobs_open_max"


def check_allowed(key: str, allowed: tuple[str, ...], name: str, what: str) -> None:
    """Raise PolicyError unless the key allows `name`."""
    if name not in allowed:
        raise key_refusal(key, f"does not allow {what} {name}")


def exceeds(total: float, most: float) -> bool:
    """Return whether a total exceeds a limit by more than rounding errors of floats."""
    return total > most * (1.0 + 1e-9)


def epsilon_in_words(value: float) -> str:
    """Return an ε as a refusal names it."""
    return "values without noise" if value == math.inf else f"epsilon {value:g}"
