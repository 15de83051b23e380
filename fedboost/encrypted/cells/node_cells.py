"""Cells of a tree's open nodes with running sums, which their holder makes and keeps.

A node's cells come from its rows, or are its parent's minus the other child's (SecureBoost+,
section 4.3). Both give the same cells, so a holder that has lost them makes them again from rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Generic

import numpy as np
from numpy.typing import NDArray

from fedboost.core.partition import parent
from fedboost.crypto.api import Adder, H, Pairs, join_parts
from fedboost.encrypted.cells.request import CandidateTerms, CellRequest
from fedboost.ground.arrays import Bits, Indices

Add = Callable[[Sequence[int]], H]  # returns the cells of nodes from their rows, node after node


class RowSums(ABC, Generic[H]):
    """Encrypted rows, or a part of them, and the operations that add them up and use their sums."""

    @property
    @abstractmethod
    def adds(self) -> Adder[H]:
        """The adder of cells."""

    @abstractmethod
    def sums(self, rows: NDArray[np.integer], cells: NDArray[np.int32], n_cells: int) -> H:
        """Add row `rows[i]` into each cell of `cells[i]`; see `api.Adder.segment_sum`."""

    def add_cells(self, cells: H, others: H) -> H:
        """Return the sums of both, cell by cell. The result may reuse `cells`."""
        return self.adds.add(cells, others)

    def running_sums(self, cells: H, offsets: NDArray[np.integer]) -> H:
        """Return running sums within segments; see `api.Adder.prefix_sums`. The result may reuse
        `cells`.
        """
        return self.adds.prefix_sums(cells, offsets)

    def siblings(self, parents: Sequence[H], others: Sequence[H]) -> list[H]:
        """Return the cells of each parent minus those of the other child; the result may reuse
        `parents`.
        """
        minus = self.adds.subtract(join_parts(parents), join_parts(others))
        ends = np.cumsum([len(parent) for parent in parents]).tolist()
        return [minus[end - len(parent) : end] for end, parent in zip(ends, parents, strict=True)]


class NodeCells(Generic[H]):
    """The cells of some columns of a tree's nodes."""

    def __init__(self, begins: Bits, held: Mapping[int, H] | None = None) -> None:
        """Begin with the cells of `held`; `begins` says of each cell of a node whether a new
        running sum starts there.
        """
        self._begins = begins
        self._starts = np.flatnonzero(begins)
        self._held: dict[int, H] = dict(held or {})

    def sums(self, request: CellRequest, rows: RowSums[H], add: Add[H]) -> list[Pairs[H]]:
        """Return the requested sums, node after node; drop the cells that the request does not
        keep.
        """
        self._make_missing(request, rows, add)
        sums = self._pairs_of_nodes(rows.adds, request.sums)
        if request.kept is not None:
            self._held = {node: self._held[node] for node in self._held if node in request.kept}
        return sums

    def _make_missing(self, request: CellRequest, rows: RowSums[H], add: Add[H]) -> None:
        """Make the cells that are missing, or were dropped."""
        held, size = self._held, len(self._begins)
        if not size:
            return
        siblings = request.siblings
        missing = [node for node in request.nodes if node not in held]
        there = held.keys() | {*missing} - siblings.keys()
        rest = [node for node in missing if {parent(node), siblings.get(node)} <= there]
        added = [node for node in missing if node not in rest]
        if added:
            cells = add(added)
            firsts = size * np.arange(len(added))[:, None]
            offsets = np.append((firsts + self._starts).ravel(), len(cells))
            sums = rows.running_sums(cells, offsets)
            held |= {node: sums[i * size : (i + 1) * size] for i, node in enumerate(added)}
        if rest:
            above = [held.pop(parent(node)) for node in rest]
            made = rows.siblings(above, [held[siblings[node]] for node in rest])
            held |= zip(rest, made, strict=True)

    def _pairs_of_nodes(self, adds: Adder[H], asked: Sequence[CandidateTerms]) -> list[Pairs[H]]:
        """Return the sums of nodes whose cells are present."""
        pairs, grouped, first_group = [], self._group_sums(adds, asked), 0
        for terms in asked:
            cells = sums = self._held[terms.node]
            n_groups = sum(len(lengths) for _, lengths in terms.groups)
            if grouped is not None and n_groups:
                sums = cells.joined([grouped[first_group : first_group + n_groups]])
                first_group += n_groups
            pairs.append(Pairs(sums, terms.first, cells, terms.second))
        return pairs

    def _group_sums(self, adds: Adder[H], asked: Sequence[CandidateTerms]) -> H | None:
        """Return the sums of the groups of columns, node after node; None without any."""
        parts, lengths = list[H](), list[Indices]()
        for terms in asked:
            for start, counts in terms.groups:
                parts.append(self._held[terms.node][start : start + int(counts.sum())])
                lengths.append(counts)
        if not parts:
            return None
        length, held = np.concatenate(lengths), join_parts(parts)
        if (length == 1).all():
            return held
        ends = np.cumsum(length)
        return adds.prefix_sums(held, np.concatenate(([0], ends)))[ends - 1]
