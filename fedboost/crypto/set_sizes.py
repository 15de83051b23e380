"""Sizes of sets of ids: padding that hides them, their limits, and the
fewest common ids to open.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fedboost.ground.errors import ConfigError, DataError, PolicyError

if TYPE_CHECKING:
    from fedboost.crypto.intersection import Points
    from fedboost.ground.workers import Workers

SET_IDS_MAX = 1 << 30  # ids of a set, padding included
CURVE_IDS_MAX = 1 << 24  # ids on the curve: 512 MiB of points, which each party shuffles whole
NOBODY_BYTES = 32  # bytes of an id that nobody has, drawn at random: none is drawn twice or guessed


def padded_points(
    ids: Sequence[bytes], domain: bytes, size: int | None, workers: Workers
) -> Points:
    """Return the ids as points, uint8 (n, 32), and behind them those of nobody's ids, `size` in
    all.

    Multiplied by an exponent and shuffled, they cannot be told apart. No padding if `size` is None;
    a PolicyError if there are more ids than it, a ConfigError if the curve takes fewer.
    """
    check_curve(padded_size(len(ids), size))
    from fedboost.crypto.intersection import hash_to_points

    nobody = [os.urandom(NOBODY_BYTES) for _ in range(padded_size(len(ids), size) - len(ids))]
    return hash_to_points([*ids, *nobody], domain, workers)


def padded_size(count: int, size: int | None) -> int:
    """Return the size that peers see of a set of `count` ids; `size` is its padded size.

    A PolicyError if there are more ids than that; a DataError for more than any set has.
    """
    if size is not None and count > size:
        raise PolicyError(
            "the table has more ids than its set is to be padded to",
            todo="raise ids_padded_to in the party's policy, or leave it out",
            private=f"{count} ids",
            key="policy.ids_padded_to",
        )
    if count > SET_IDS_MAX:
        raise DataError(
            f"a set of more than {SET_IDS_MAX} ids cannot be aligned",
            todo="leave rows out of the table, or cut it into several and train on one of them",
        )
    return count if size is None else size


def check_curve(ids: int) -> None:
    """Raise a ConfigError for a set of more ids than are aligned on the curve."""
    if ids > CURVE_IDS_MAX:
        raise ConfigError(
            f"on the curve at most {CURVE_IDS_MAX} ids of a party are aligned",
            todo=f"say `method: oprf` in the job's alignment, which takes {SET_IDS_MAX}",
        )


def check_common(common: int, least: int) -> None:
    """Raise a PolicyError, which everybody may read, if too few ids are in common."""
    if common < least:
        raise PolicyError(
            f"fewer ids are in common than the {least} that a party requires before it opens them",
            todo="align with more rows, or ask the party's owner for a lower intersection_min",
            private=f"{common} ids are in common",
            key="policy.intersection_min",
        )
