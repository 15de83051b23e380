"""What checkpoints between two layers say of trees that grow, as arrays by name.

Each part of a tree gives its own (`halfway`) and takes them up in another attempt (`take_up`).
Gradients are not among them: they are worked out, or come, anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Arrays = dict[str, NDArray[np.generic]]


class Part(Protocol):
    """What can be left halfway, and taken up again."""

    def halfway(self) -> Arrays:
        """What it has settled so far."""

    def take_up(self, kept: Mapping[str, NDArray[np.generic]]) -> None:
        """Goes on where `halfway` has found it."""


def of_all(parts: Iterable[Part]) -> Arrays:
    """What several parts have settled so far, each under its place."""
    found: Arrays = {}
    for place, part in enumerate(parts):
        found |= under(f"{place}", part.halfway())
    return found


def take_up_all(parts: Iterable[Part], kept: Mapping[str, NDArray[np.generic]]) -> None:
    """Every part goes on where `of_all` has found it."""
    for place, part in enumerate(parts):
        part.take_up(found_under(f"{place}", kept))


def under(name: str, arrays: Mapping[str, NDArray[np.generic]]) -> Arrays:
    """The arrays of one part among those of a whole."""
    return {f"{name}.{own}": array for own, array in arrays.items()}


def found_under(name: str, arrays: Mapping[str, NDArray[np.generic]]) -> Arrays:
    """What `under` has named so; nothing where it has named none."""
    first = f"{name}."
    return {own.removeprefix(first): held for own, held in arrays.items() if own.startswith(first)}


def divisions(divided: Mapping[int, NDArray[np.bool_]]) -> Arrays:
    """How the rows of some nodes divide."""
    bits = np.concatenate([np.empty(0, np.bool_), *divided.values()])
    rows = np.array([len(own) for own in divided.values()], np.int64)
    return {"nodes": np.array(list(divided), np.int32), "rows": rows, "goes_right": bits}


def divisions_from(arrays: Mapping[str, NDArray[np.generic]]) -> dict[int, NDArray[np.bool_]]:
    """What `divisions` wrote."""
    ends = np.cumsum(arrays["rows"].astype(np.int64))[:-1]
    bits = np.split(arrays["goes_right"].astype(np.bool_), ends) if len(arrays["nodes"]) else []
    return dict(zip(arrays["nodes"].tolist(), bits, strict=True))
