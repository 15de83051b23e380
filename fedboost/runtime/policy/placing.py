"""Upper bound of the rows of a table that a job could place, before any message is sent.

A row is placed when the bin of its value is known. The bound for sums is close to the effect of an
honest job, so a job is refused if its sums alone exceed the limit. The bound for divisions is
larger than the effect of an honest job: they are judged when they are sent.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fedboost.core import binning
from fedboost.core.placement import ColumnShares, entropy_least, sample_rows, varying_columns
from fedboost.flow import Releases

if TYPE_CHECKING:
    from fedboost.data.frame import Frame

FORECAST_ROWS_MOST = 1 << 14  # rows sampled to forecast bins


@dataclass(frozen=True, eq=False)
class Learnt:
    """The rows of a host's table that a job learns from."""

    frame: Frame
    held_out: NDArray[np.bool_]
    max_bin: int

    @property
    def columns(self) -> int:
        """Return the number of columns that are learnt from."""
        return len(self.frame.columns)

    @cached_property
    def rows(self) -> int:
        """Return the number of rows that are learnt from."""
        return int(np.count_nonzero(~self.held_out))

    def share_placed_by_sums(self, releases: Releases) -> float:
        """Return the share of rows that a job's sums could place in one column, at most."""
        if releases.sum_bits is None:
            return 0.0
        of_bins = {bins: releases.sum_bits(bins, self.rows) for bins in set(self._n_bins.tolist())}
        bits = np.array([of_bins[bins] for bins in self._n_bins.tolist()])
        shares = bits / np.maximum(1, self.rows) / self._entropy
        # A layer tells no more of a row than its bin.
        return float(min(1.0, releases.layers, shares.max(initial=0.0)))

    def placed(self, releases: Releases) -> float:
        """Return the share that sums and divisions could place together, at most."""
        if not releases.layers:
            return 0.0
        if releases.layers >= np.log2(self.max_bin + 1):  # no row holds more bits
            return 1.0
        divisions = releases.layers / self._entropy.min(initial=np.inf)
        return min(1.0, self.share_placed_by_sums(releases) + float(divisions))

    @cached_property
    def _column_shares(self) -> tuple[NDArray[np.int64], ColumnShares]:
        sampled = sample_rows(~self.held_out, FORECAST_ROWS_MOST)
        values = self.frame.values[sampled]
        cuts = binning.fit(values, self.max_bin, self.frame.categorical)
        n_bins, learnt = cuts.n_bins.astype(np.int64), np.ones(len(sampled), np.bool_)
        shares = ColumnShares.of(cuts.transform(values), n_bins, learnt)
        # Of values that few rows have the sample may have none.
        told = varying_columns(self.frame.values)
        least = told * entropy_least(max(1, self.frame.n_rows))
        entropy = np.maximum(shares.entropy, least)
        return np.maximum(n_bins, 1 + told), replace(shares, entropy=entropy)

    @property
    def _revealable_columns(self) -> NDArray[np.bool_]:
        """Return the columns that can be revealed at all, bool (columns,)."""
        return self._column_shares[1].entropy > 0.0

    @property
    def _n_bins(self) -> NDArray[np.int64]:
        return self._column_shares[0][self._revealable_columns]

    @property
    def _entropy(self) -> NDArray[np.float64]:
        return self._column_shares[1].entropy[self._revealable_columns]
