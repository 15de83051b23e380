"""Cut points of columns whose rows lie at several parties, found by counting.

`Search` names the values to count below and reads the sums over all parties; `Ranked` counts one
party's own rows. A protocol adds the counts up. Every party runs the same search on the same sums
and so ends with the same cut points (FederBoost, Protocol 3, for all quantiles of all columns at
once).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedboost.core.binning import Cuts, FeatureValues, present_values
from fedboost.ground.errors import JobError
from fedboost.ground.settings import Settings

ColumnCounts = NDArray[np.int64]
Keys = NDArray[np.int64]

# A float's key is its bit pattern as a whole number with a sign: keys are in the order of floats,
# neighbouring floats have neighbouring keys, and both zeros have key 0.
_KEY_END = 0x7F80_0000  # of +inf: all values are below it
_MAGNITUDE = 0x7FFF_FFFF  # a float32's bits without the sign

SEARCH_ROUNDS_MAX = 32  # halving 2 * _KEY_END - 1 < 2^32 keys until one is left
GROUP_MIN = 20  # rows of a bucket at least, in a search without a tolerance


class SearchParams(Settings):
    """Settings of a job about its search for cut points."""

    quantile_tolerance: int | None = Field(None, ge=0)  # rows; None: max(20, n/4q), 0: exact search


@dataclass(frozen=True)
class Probes:
    """Values to count below, in rising order of column, then of value."""

    column: NDArray[np.int32]  # (m,)
    value: Cuts  # float32 (m,), finite

    def __len__(self) -> int:
        return len(self.column)


@dataclass(frozen=True)
class _Targets:
    """Ranks to find: one entry for each of a column's quantiles, rising within the column."""

    column: NDArray[np.int32]
    rank: ColumnCounts  # number of values that should be below the cut
    tolerance: ColumnCounts  # greatest distance of the cut's count


class Search:
    """State of a search for the columns' cut points; `take` narrows it in place.

    Target j of a column is the rank j·present/q to the nearest whole number, j = 1..q−1, q the
    column's buckets. With `tolerance` None a target may be missed by max(20, present/(4q)) rows,
    otherwise by `tolerance` rows; 0 is the paper's exact search, which may leave a single row
    between two cuts. With any other tolerance, a column has at most present/(4t) buckets (t the
    tolerance, 20 for None), so that two targets' counts stay 2t apart, and no bucket gets fewer
    than t rows.

    All parties see the counts of the probes, too: a value far from all others of its column (an
    outlier, or one very close to 0) may lie alone between two of them. Of 1,000 rows of the credit
    tables that was 0.3 rows a column by default and 120 in the exact search.
    """

    def __init__(self, present: ColumnCounts, buckets: int, tolerance: int | None) -> None:
        """`present` int64 (columns,): rows that have a value in each column, over all parties.

        A JobError if one is negative.
        """
        assert buckets >= 1
        assert tolerance is None or tolerance >= 0
        if (present < 0).any():
            raise _impossible_counts(
                f"{np.count_nonzero(present < 0)} of {len(present)} are negative"
            )
        self._present = present
        self._group = GROUP_MIN if tolerance is None else tolerance
        self._targets = _targets(present, buckets, tolerance)
        n = len(self._targets.rank)
        # Fewer values than rank - tolerance are below `low`, more than rank + tolerance below
        # `high`; the values below each of the two have been counted.
        self._low = np.full(n, 1 - _KEY_END)  # the least float: no value is below it
        self._high = np.full(n, _KEY_END)
        self._low_count = np.zeros(n, np.int64)
        self._high_count = present[self._targets.column]
        self._cut = np.zeros(n, np.int64)  # the key of the cut, once the target is done
        self._cut_count = np.zeros(n, np.int64)
        self._open = np.ones(n, np.bool_)

    @property
    def is_over(self) -> bool:
        """Return whether every target is found, after at most `SEARCH_ROUNDS_MAX` rounds of
        counting.
        """
        return not self._open.any()

    def next_probes(self) -> Probes:
        """Return the next values to count below, each once; none when the search is over."""
        column, middle = self._next_keys()
        first = _is_new_probe(column, middle)
        return Probes(column[first], _floats_of_keys(middle[first]))

    def take(self, below: ColumnCounts) -> None:
        """Use the number of values of all parties below each of `next_probes()`; int64 (m,).

        A JobError if these cannot be counts: negative, more than there are values, or falling while
        probes rise, in this round or since earlier ones.
        """
        column, middle = self._next_keys()
        first = _is_new_probe(column, middle)
        if below.shape != (np.count_nonzero(first),):
            raise _impossible_counts(f"{below.size} sums came for {np.count_nonzero(first)} probes")
        (place,) = np.nonzero(self._open)
        count = below[np.cumsum(first) - 1]
        # No two probes of a round lie between the same two of earlier rounds, so counts that fit
        # between theirs rise within this round, too.
        misfits = (count < self._low_count[place]) | (count > self._high_count[place])
        if misfits.any():
            raise _impossible_counts(
                f"{np.count_nonzero(misfits[first])} of {len(below)} sums do not fit"
            )
        rank, tolerance = self._targets.rank[place], self._targets.tolerance[place]
        is_close = np.abs(count - rank) <= tolerance
        self._close_targets(place[is_close], middle[is_close], count[is_close])
        short = ~is_close & (count < rank)
        self._low[place[short]], self._low_count[place[short]] = middle[short], count[short]
        over = ~is_close & (count > rank)
        self._high[place[over]], self._high_count[place[over]] = middle[over], count[over]
        self._close_ties()

    def cuts(self) -> tuple[Cuts, ...]:
        """Return the cut points of each column, float32, rising; `x < cut` goes left.

        Cuts with too few values on one side are left out: none for an exact search, otherwise fewer
        than t (see the class), counted from the cut kept before. A value that fills more than a
        bucket's share is cut off from its neighbours, rarer ones may share a bucket.
        """
        assert self.is_over
        bounds = np.searchsorted(self._targets.column, np.arange(len(self._present) + 1))
        least = max(1, self._group)
        cuts = []
        for column, total in enumerate(self._present.tolist()):
            span = slice(bounds[column], bounds[column + 1])
            kept = _far_apart(self._cut_count[span].tolist(), total, least)
            cuts.append(_floats_of_keys(self._cut[span][kept]))
        return tuple(cuts)

    def _next_keys(self) -> tuple[NDArray[np.int32], Keys]:
        """Return column and next probe's key of each open target; keys rise within a column."""
        low, high = self._low[self._open], self._high[self._open]
        return self._targets.column[self._open], low + (high - low) // 2

    def _close_targets(self, place: ColumnCounts, cut: Keys, count: ColumnCounts) -> None:
        self._cut[place], self._cut_count[place] = cut, count
        self._open[place] = False

    def _close_ties(self) -> None:
        """End targets without a float between their bounds: all values between are equal."""
        (place,) = np.nonzero(self._open & (self._high - self._low == 1))
        rank, low, high = self._targets.rank[place], self._low[place], self._high[place]
        low_count, high_count = self._low_count[place], self._high_count[place]
        up = high_count - rank < rank - low_count
        self._close_targets(place, np.where(up, high, low), np.where(up, high_count, low_count))


@dataclass(frozen=True)
class Ranked:
    """Values of one party, sorted so that counting takes no pass over the rows."""

    columns: tuple[Cuts, ...] = field(repr=False)  # each rising, without missing values
    zeros: ColumnCounts = field(repr=False)  # (columns,) zeros that a sparse table does not store

    @classmethod
    def of(cls, values: FeatureValues) -> Ranked:
        """Return the ranked values of float32 (n, columns), NaN where missing, dense or sparse.

        A DataError names a column with infinite values.
        """
        parts = [present_values(values, number) for number in range(values.shape[1])]
        return cls(
            tuple(np.sort(column) for column, _ in parts),
            np.array([zeros for _, zeros in parts], np.int64),
        )

    def at(self, indices: ColumnCounts) -> Ranked:
        """Return some of the columns, numbered in the order of `indices`, int64 (k,)."""
        return Ranked(tuple(self.columns[c] for c in indices.tolist()), self.zeros[indices])

    def present(self) -> ColumnCounts:
        """Return the number of rows with a value in each column; int64 (columns,)."""
        return np.array([len(column) for column in self.columns], np.int64) + self.zeros

    def count_below(self, probes: Probes) -> ColumnCounts:
        """Return the number of own values less than each probe of their column; int64 (m,)."""
        counts = np.where(probes.value > 0.0, self.zeros[probes.column], 0)
        bounds = np.searchsorted(probes.column, np.arange(len(self.columns) + 1))
        for number in np.unique(probes.column).tolist():
            asked = slice(bounds[number], bounds[number + 1])
            counts[asked] += np.searchsorted(self.columns[number], probes.value[asked])
        return counts


def _targets(present: ColumnCounts, buckets: int, tolerance: int | None) -> _Targets:
    least = GROUP_MIN if tolerance is None else tolerance
    q = np.full(len(present), buckets, np.int64)
    if least:
        q = np.clip(present // (4 * least), 1, buckets)
    allowed = np.full_like(q, least)
    if tolerance is None:
        allowed = np.maximum(least, present // (4 * q))
    column = np.repeat(np.arange(len(q), dtype=np.int32), q - 1)
    j = np.arange(1, len(column) + 1) - np.repeat(np.cumsum(q - 1) - (q - 1), q - 1)
    rank = (2 * j * present[column] + q[column]) // (2 * q[column])
    # A rank that no or every value is below asks for no cut.
    used = (rank > 0) & (rank < present[column])
    return _Targets(column[used], rank[used], allowed[column[used]])


def _floats_of_keys(keys: Keys) -> Cuts:
    """Return the floats with these keys, float32."""
    bits = np.abs(keys).astype(np.uint32) | np.where(keys < 0, _MAGNITUDE + 1, 0).astype(np.uint32)
    return bits.view(np.float32)


def _is_new_probe(column: NDArray[np.int32], key: Keys) -> NDArray[np.bool_]:
    """Return a mask of the probes that differ from the one before."""
    first = np.ones(len(key), np.bool_)
    first[1:] = (np.diff(column) != 0) | (np.diff(key) != 0)
    return first


def _far_apart(counts: list[int], total: int, least: int) -> list[int]:
    """Return indices of rising counts that stay `least` from 0, `total` and one another."""
    kept, last = [], 0
    for place, count in enumerate(counts):
        if count - last >= least and total - count >= least:
            kept.append(place)
            last = count
    return kept


def _impossible_counts(what: str) -> JobError:
    return JobError(
        f"the counts of the quantile search are impossible: {what}",
        todo="run the job again; if it recurs, a party counts other rows or masks otherwise",
    )
