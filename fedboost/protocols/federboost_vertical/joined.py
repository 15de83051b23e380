"""The guest's columns and its hosts' buckets side by side, as if they were one table."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

import numpy as np

from fedboost.core.binning import Binning
from fedboost.core.bins import Dense, SparseBins, cell_type
from fedboost.data.frame import FrameValues
from fedboost.protocols.federboost_vertical.buckets import Buckets


@dataclass(frozen=True)
class Joined:
    """Columns in the order of their owners: the guest's, then host by host."""

    own: Binning
    told: tuple[Buckets, ...]  # by host

    @property
    def groups(self) -> tuple[int, ...]:
        """Number of columns of each party."""
        return (self.own.n_columns, *(len(buckets.count) for buckets in self.told))

    @cached_property
    def cuts(self) -> Binning:
        """Our columns with their cut points, hosts' columns with one for each bucket."""
        cuts, codes = list(self.own.cuts), dict(self.own.categories)
        for buckets in self.told:
            for present, by_category in zip(buckets.present, buckets.categorical, strict=True):
                if by_category:
                    codes[len(cuts)] = np.arange(present, dtype=np.int32)
                cuts.append(np.arange(1, 1 if by_category else present, dtype=np.float32))
        most = max([self.own.max_bin, *(int(n) for buckets in self.told for n in buckets.present)])
        return Binning(most, tuple(cuts), codes)

    def bins(self, values: FrameValues) -> Dense:
        """Return all parties' bins, (n, columns), row after row; `values` are the guest's own."""
        guest_bins = self.own.transform(values)
        guest_bins = guest_bins.dense() if isinstance(guest_bins, SparseBins) else guest_bins
        number = cell_type(self.cuts.n_cells)
        bins = np.empty((len(guest_bins), self.cuts.n_columns), number)
        missing, end = number(self.cuts.missing), guest_bins.shape[1]
        bins[:, :end] = np.where(guest_bins == self.own.missing, missing, guest_bins)
        for buckets in self.told:
            by_column = zip(buckets.ids.T, buckets.count, buckets.missing, strict=True)
            for column, count, lacks in by_column:
                bins[:, end] = np.where(lacks & (column == count - 1), missing, column)
                end += 1
        return bins

    def owner(self, column: int) -> tuple[int, int]:
        """Return the owner of a column (0 the guest, k the k-th host), and its number there."""
        owner = bisect_right(self._column_ends, column)
        return owner, column - (self._column_ends[owner - 1] if owner else 0)

    @cached_property
    def _column_ends(self) -> list[int]:
        """Index of the first column behind each party's columns."""
        return list(accumulate(self.groups))
