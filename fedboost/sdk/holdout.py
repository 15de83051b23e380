"""Validation rows chosen by a program, for a job that holds rows out by their ids.

A job ranks ids by a hash and holds out the first ones. So rows get new numbers as ids: validation
rows from the held-out numbers, training rows from the others.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from fedboost.data.holdout import validation_rows_by_id
from fedboost.data.ids import encode_ids
from fedboost.ground.arrays import Indices
from fedboost.sdk.refusals import InvalidTableError

SEED = 0  # of the ranks


def fraction_of(parts: Sequence[tuple[int, int]]) -> float:
    """Return the share of rows that each party holds out, given its training and validation rows.

    Raise DataError if no share rounds to these counts.
    """
    low = max((held - 0.5) / (train + held) for train, held in parts)
    high = min((held + 0.5) / (train + held) for train, held in parts)
    if not sum(held for _, held in parts):
        raise InvalidTableError(
            "eval_set has no rows in common to all parties",
            todo="give eval_set the ids that all tables share",
        )
    if low >= high:
        raise InvalidTableError(
            "the shares of rows to validate on differ between the parties, and a job has one",
            todo="hold out the same share of each party's rows, or use validation={'fraction': …}",
        )
    exact = sum(held for _, held in parts) / sum(train + held for train, held in parts)
    return exact if low < exact < high else (low + high) / 2


def new_ids(train: int, held: int, fraction: float) -> tuple[Indices, Indices]:
    """Return new ids, int64 (train,) and (held,): a job holds out all of the second, none of the
    first.
    """
    free: list[Indices] = []
    out: list[Indices] = []
    first, step = 1, 0
    while sum(map(len, free)) < train or sum(map(len, out)) < held:
        lacking = max(train - sum(map(len, free)), held - sum(map(len, out)))
        share = min(fraction, 1.0 - fraction) if step else 1.0
        step = math.ceil(lacking / share) + 16
        drawn = np.arange(first, first + step)
        ids = encode_ids([pa.chunked_array([drawn])], ["id"])
        is_out = validation_rows_by_id(ids, fraction, SEED)
        out.append(drawn[is_out])
        free.append(drawn[~is_out])
        first += step
    return np.concatenate(free)[:train], np.concatenate(out)[:held]


def held_counts(train: Sequence[int], held: int) -> list[int]:
    """Return the number of `held` rows that each party validates on, so that `fraction_of` finds a
    share.

    Give each row to the party whose share would first need one more.
    """
    counts = [0] * len(train)
    next_at = [(0.5 / rows, place) for place, rows in enumerate(train)]
    heapq.heapify(next_at)
    for _ in range(held):
        place = next_at[0][1]
        counts[place] += 1
        beyond = (counts[place] + 0.5) / (train[place] + counts[place])
        heapq.heapreplace(next_at, (beyond, place))
    return counts
