"""Releases of a host about its rows: their node in each tree, and the groups with released sums."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedboost.core.bins import Dense
from fedboost.ground.arrays import Bits

ColumnCells = Dense
Nodes = NDArray[np.int32]
Counts = NDArray[np.int64]


@dataclass(frozen=True)
class ReleasedTree:
    """A tree's releases: rows stand in nodes by heap id, children of i at 2i + 1 and 2i + 2."""

    at: NDArray[np.int16]  # (rows,) the deepest node of each, −1 where the tree does not learn it
    nodes: Nodes  # (opened,) nodes with released sums, rising
    columns: Nodes  # (used,) places among the releases' columns that the tree could use
    groups: ColumnCells  # (opened, used, cells) the group of each cell; one sum left for each group

    def place_of(self, column: int) -> int | None:
        """Return the index of a column's groups; None where the tree could not use it."""
        (places,) = np.nonzero(self.columns == column)
        return int(places[0]) if len(places) else None


@dataclass(frozen=True)
class KnownReleases:
    """All known trees of a job."""

    cells: (
        ColumnCells  # (rows, columns) the cell of each row: its bin, or the cell of missing values
    )
    values: int  # numbers of a sum: a gradient and a hessian for each output
    trees: Sequence[ReleasedTree]
    noise: float = 0.0  # the host's noise σ on each sum, in greatest gradients of a row

    @property
    def n_rows(self) -> int:
        """Rows that the job learnt from."""
        return len(self.cells)

    def trees_using(self, column: int) -> list[int]:
        """Return the trees with a released cut of a column."""
        return [number for number in range(len(self.trees)) if self.cut_nodes(number, column).any()]

    def cut_nodes(self, number: int, column: int) -> Bits:
        """Return the nodes of a tree with a released cut between cells that hold rows, bool
        (opened,).
        """
        tree = self.trees[number]
        place = tree.place_of(column)
        if place is None:
            return np.zeros(len(tree.nodes), np.bool_)
        groups = tree.groups[:, place][:, np.unique(self.cells[:, column])]
        apart: Bits = groups != groups[:, :1]
        return np.any(apart, axis=1)

    def equations_per_row(self) -> float:
        """Return the equations about one bin of the most released column, divided by rows."""
        most = 0
        for column in range(self.cells.shape[1]):
            equations = 0
            for number in self.trees_using(column):
                nodes = self.trees[number].nodes[self.cut_nodes(number, column)]
                equations += len(independent_nodes(nodes.tolist()))
            most = max(most, equations)
        return self.values * most / max(1, self.n_rows)


def cell_counts(tree: ReleasedTree, column_cells: ColumnCells, n_cells: int) -> Counts:
    """Return the number of each opened node's rows in each cell, int64 (opened, cells).

    column_cells (rows,): the rows' cells in one column.
    """
    (rows,) = np.nonzero(tree.at >= 0)
    totals = np.zeros(len(tree.nodes) * n_cells, np.int64)
    at, cell = tree.at[rows].astype(np.int64), column_cells[rows].astype(np.int64)
    while len(at):
        place = np.minimum(np.searchsorted(tree.nodes, at), max(0, len(tree.nodes) - 1))
        hit = tree.nodes[place] == at if len(tree.nodes) else np.zeros(len(at), np.bool_)
        totals += np.bincount(place[hit] * n_cells + cell[hit], minlength=len(totals))
        below = at > 0
        at, cell = (at[below] - 1) // 2, cell[below]
    return totals.reshape(len(tree.nodes), n_cells)


def known_nodes(groups: ColumnCells, held: Counts, target: Bits) -> Bits:
    """Return the nodes whose released sums give the sum of the target's rows alone, bool (opened,).

    groups and held int64 (opened, cells), target bool (cells,). In such a node a union of groups
    holds the target's cells, and no other cell with rows of the node.
    """
    touched = np.zeros(groups.shape, np.bool_)
    for cell in np.flatnonzero(target).tolist():
        touched |= groups == groups[:, cell : cell + 1]
    others: Bits = touched & ~target & (held > 0)
    return ~np.any(others, axis=1)


def independent_nodes(nodes: Sequence[int]) -> list[int]:
    """Return independent nodes whose sums determine the sums of all `nodes`, rising.

    A child's sum is its parent's minus its sibling's, whether or not that sibling was open.
    """
    known, before = set(nodes), 0
    while len(known) > before:
        before = len(known)
        for node in sorted(known - {0}):
            other = node + 1 if node % 2 else node - 1
            if (node - 1) // 2 in known:
                known.add(other)
            elif other in known:
                known.add((node - 1) // 2)
    return sorted(node for node in known if not {2 * node + 1, 2 * node + 2} <= known)
