"""Rules that all trees of a job share: settings, bins, minimums, bounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from fedboost.core import gains, monotone
from fedboost.core.binning import Binning
from fedboost.core.bins import Bins
from fedboost.core.fixed_point import FixedPoint
from fedboost.core.monotone import Bounds, Directions
from fedboost.core.own_rows import OwnRows
from fedboost.core.params import TreeParams
from fedboost.core.partition import left_child, right_child
from fedboost.core.row_parts import SharedTable
from fedboost.core.threads import Threads
from fedboost.ground.arrays import Floats, Rows, Sums


@dataclass(frozen=True)
class Rules:
    """Rules for the growth of a job's trees, for any rows."""

    params: TreeParams
    binning: Binning
    fixed: FixedPoint
    least: Rows | None = None  # (all columns,): rows of a group of cells (groups); None: one
    # own_rows_min of each party (core.own_rows), and its number of rows, one party after the other.
    # Empty: all columns see the same rows. A single party needs no row_groups.
    own_rows_min: tuple[int, ...] = ()
    row_groups: tuple[int, ...] = ()
    directions: Directions | None = None  # (all columns,) of predictions; None: any (monotone)
    threads: Threads | None = field(default=None, compare=False)  # for parallel work
    # Workers that add up the training rows (core.row_parts); None: the tree does.
    elsewhere: SharedTable | None = field(default=None, compare=False)

    def own_rows(self, bins: Bins, gh: Sums, rows: Rows, columns: Rows) -> list[OwnRows]:
        """Return the rows of each party as columns see them; empty if no party has a minimum."""
        if max(self.own_rows_min, default=1) == 1:
            return []
        ends = np.cumsum(self.row_groups or (len(gh),))[:-1]
        parts = np.split(rows, np.searchsorted(rows, ends))
        return [
            OwnRows(self.binning, bins, gh, party_rows, (columns, 0), least)
            for party_rows, least in zip(parts, self.own_rows_min, strict=True)
        ]

    def bounds(self, nodes: Sequence[int], known: Mapping[int, Bounds]) -> Floats | None:
        """Return bounds of weights below some nodes, float64 (nodes, 2); None without any."""
        if self.directions is None:
            return None
        return np.array([known.get(node, monotone.ANY) for node in nodes]).reshape(-1, 2)

    def bound(
        self, known: dict[int, Bounds], node: int, at: tuple[int, int] | None, sums: Sums
    ) -> None:
        """Set the bounds below the children of a node that is divided `at` a column and bin; None
        for a host's column. `sums` (2, 2) are those of either side.
        """
        if self.directions is None:
            return
        direction = 0 if at is None else int(self.directions[at[0]])
        if at is not None and at[1] == self.binning.n_bins[at[0]] - 1:
            direction = direction and monotone.BY_WEIGHT
        interval = known.get(node, monotone.ANY)
        below = monotone.child_bounds(sums, direction, interval, self.params, self.fixed)
        known[left_child(node)], known[right_child(node)] = below

    def candidate_gains(self, left: Sums, total: Sums, bounds: Floats | None) -> Floats:
        """Return the gains of candidates int64 (n, 2·outputs) of a node, total (2·outputs,), in
        columns without a direction; bounds (2,) of its weights.
        """
        limits = gains.NO_BOUNDS if bounds is None else bounds[None]
        return gains.split_gains(left, total, self.params, self.fixed, limits)
