"""Charges of a host's answers about a model's splits, in rows placed.

An answer tells the sides of rows at a split. The model's thresholds divide each column into the
bins that answers can tell. A row known to lie between two thresholds is told no more by the others.
Bits are divided by the entropy of training's default bins, so that answers count as much as
divisions in training.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fedboost.core import binning
from fedboost.core.binning import Binning
from fedboost.core.categories import NO_THRESHOLD
from fedboost.core.params import TreeParams
from fedboost.core.placement import (
    ROWS_COUNTED,
    BinCounts,
    ColumnShares,
    NarrowedRows,
    counts_of,
    entropy_least,
    sample_rows,
)
from fedboost.data.columns import FLOAT32_MAX
from fedboost.data.frame import FrameValues
from fedboost.flow import Charge, Spent
from fedboost.ground.arrays import Bits, Floats, Indices

BINS = int(TreeParams.model_fields["max_bin"].default)


@dataclass(eq=False)
class AnsweredRows:
    """Sides of a host's splits that answers have told in one attempt."""

    arrays: Mapping[str, NDArray[np.generic]]  # of the shard
    names: Sequence[str]  # of the columns, as `feature` counts them
    placement: NarrowedRows
    bits: Floats  # (columns,) told since the last charge

    @classmethod
    def of(
        cls, arrays: Mapping[str, NDArray[np.generic]], names: Sequence[str], values: FrameValues
    ) -> AnsweredRows:
        """Return the state before the first answer about values (n, columns)."""
        cuts, by_category = [], []
        for column in range(values.shape[1]):
            threshold = arrays["threshold"][arrays["feature"] == column].astype(np.float32)
            cuts.append(np.unique(threshold[np.isfinite(threshold)]))
            if (threshold == NO_THRESHOLD).any():
                cuts[-1] = cuts[-1][:0]
                by_category.append(column)
        every = np.ones(values.shape[0], np.bool_)
        sampled = values[sample_rows(every)]
        if isinstance(sampled, np.ndarray):  # the lowest noisy bucket begins at −inf
            sampled = np.clip(sampled, -FLOAT32_MAX, FLOAT32_MAX)
        learnt = np.ones(sampled.shape[0], np.bool_)
        usual = binning.fit(sampled, BINS, by_category)
        shares = ColumnShares.of(usual.transform(sampled), usual.n_bins.astype(np.int64), learnt)
        most = max([1, *(len(column_cuts) + 1 for column_cuts in cuts)])
        own = Binning(most, tuple(cuts), {c: usual.categories[c] for c in by_category})
        held = ColumnShares.counted(_count_rows(own, values), values.shape[0])
        # The sample may miss bins with few rows.
        least = (held.entropy > 0.0) * entropy_least(held.rows)
        held = replace(held, entropy=np.maximum(shares.entropy, least))
        placement = NarrowedRows(values.shape[0], values, own, held)
        return cls(arrays, names, placement, np.zeros(values.shape[1]))

    def note(self, split: int, rows: Indices, goes_right: Bits) -> None:
        """Note the told sides of rows at the split with this index in the shard."""
        column = int(self.arrays["feature"][split])
        threshold = np.float32(self.arrays["threshold"][split])
        place = int(np.searchsorted(self.placement.binning.cuts[column], threshold))
        missing_left = bool(self.arrays["missing_left"][split])
        chosen = rows.astype(np.int32)
        division = place, missing_left, chosen, goes_right
        self.bits[column] += self.placement.divide(column, *division)

    def charges(self) -> tuple[Charge, ...]:
        """Return the charges for answers since the last call."""
        placed = self.placement.shares.placed(self.bits)
        self.bits = np.zeros_like(self.bits)
        told = np.flatnonzero(placed).tolist()
        return tuple(Charge(Spent.PLACED, float(placed[c]), self.names[c]) for c in told)


def _count_rows(own: Binning, values: FrameValues) -> list[BinCounts]:
    """Count the rows in each bin, without binning the whole table at once."""
    n_bins = own.n_bins.astype(np.int64)
    if not isinstance(values, np.ndarray):
        return counts_of(own.transform(values), n_bins)
    counts = [np.zeros(n_cells + 1, np.int64) for n_cells in n_bins.tolist()]
    for first in range(0, len(values), ROWS_COUNTED):
        block = own.transform(np.asarray(values[first : first + ROWS_COUNTED]))
        more = counts_of(block, n_bins)
        counts = [held + of_block for held, of_block in zip(counts, more, strict=True)]
    return counts
