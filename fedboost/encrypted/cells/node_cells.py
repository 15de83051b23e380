"""Cells of a tree's open nodes with running sums, as whoever holds them makes and keeps them.

A node's cells come from its rows, or are its parent's minus the other child's (SecureBoost+,
section 4.3). Either way they are the same, so whoever has lost them makes them again from rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic

import numpy as np
from numpy.typing import NDArray

from fedboost.core.partition import parent
from fedboost.crypto.api import Adder, H, Pairs, joined
from fedboost.ground.arrays import Bits, Indices

Add = Callable[[Sequence[int]], H]  # the cells of nodes from their rows, node after node


class RowSums(ABC, Generic[H]):
    """Encrypted rows, or a part of them, as they are added up, and what is done with their sums."""

    @property
    @abstractmethod
    def adds(self) -> Adder[H]:
        """Return what adds up cells."""

    @abstractmethod
    def sums(self, rows: NDArray[np.integer], cells: NDArray[np.int32], n_cells: int) -> H:
        """Adds row `rows[i]` into each cell of `cells[i]`; see `api.Adder.segment_sum`."""

    def plus(self, cells: H, others: H) -> H:
        """Return the sums of both, cell by cell. `cells` may become them."""
        return self.adds.add(cells, others)

    def running(self, cells: H, offsets: NDArray[np.integer]) -> H:
        """Running sums within segments; see `api.Adder.prefix_sums`. `cells` may become them."""
        return self.adds.prefix_sums(cells, offsets)

    def siblings(self, parents: Sequence[H], others: Sequence[H]) -> list[H]:
        """Return the cells of each parent minus those of the other child; `parents` may become
        them.
        """
        minus = self.adds.subtract(joined(parents), joined(others))
        ends = np.cumsum([len(parent) for parent in parents]).tolist()
        return [minus[end - len(parent) : end] for end, parent in zip(ends, parents, strict=True)]


@dataclass(frozen=True)
class Making:
    """What to make of open nodes' cells, and what to keep."""

    nodes: Sequence[int]  # those that are to be there: from rows, unless
    others: Mapping[int, int]  # they are their parents' minus these, the other children
    kept: Collection[int] | None  # nodes whose cells stay; None: all


@dataclass(frozen=True)
class Chosen:
    """Sums of a node's candidates that are not made yet, by places of its cells."""

    first: Indices  # (n,) a cell or, behind the cells, a group
    second: Indices  # (n,) the cell added to it, −1 for none
    groups: Sequence[tuple[int, Indices]]  # of a column: its first cell, the cells of each group

    def part(self, chosen: slice | Indices) -> Chosen:
        """Return those at some places."""
        return Chosen(self.first[chosen], self.second[chosen], self.groups)


class NodeCells(Generic[H]):
    """The cells of some columns of a tree's nodes."""

    def __init__(self, begins: Bits) -> None:
        """`begins` says of each cell of a node whether its sum begins anew there."""
        self._begins = begins
        self._starts = np.flatnonzero(begins)
        self._held: dict[int, H] = {}

    def make(self, making: Making, rows: RowSums[H], add: Add[H]) -> None:
        """Make what is not there yet, or no more."""
        held, size = self._held, len(self._begins)
        if not size:
            return
        missing = [node for node in making.nodes if node not in held]
        there = held.keys() | {*missing} - making.others.keys()
        rest = [node for node in missing if {parent(node), making.others.get(node)} <= there]
        added = [node for node in missing if node not in rest]
        if added:
            cells = add(added)
            firsts = size * np.arange(len(added))[:, None]
            offsets = np.append((firsts + self._starts).ravel(), len(cells))
            sums = rows.running(cells, offsets)
            held |= {node: sums[i * size : (i + 1) * size] for i, node in enumerate(added)}
        if rest:
            above = [held.pop(parent(node)) for node in rest]
            made = rows.siblings(above, [held[making.others[node]] for node in rest])
            held |= zip(rest, made, strict=True)

    def pairs(self, adds: Adder[H], chosen: Mapping[int, Chosen]) -> dict[int, Pairs[H]]:
        """The chosen sums of nodes whose cells are there."""
        pairs, grouped, first_group = {}, self._group_sums(adds, chosen), 0
        for node, of in chosen.items():
            cells = sums = self._held[node]
            n_groups = sum(len(lengths) for _, lengths in of.groups)
            if grouped is not None and n_groups:
                sums = cells.joined([grouped[first_group : first_group + n_groups]])
                first_group += n_groups
            pairs[node] = Pairs(sums, of.first, cells, of.second)
        return pairs

    def keep(self, nodes: Collection[int] | None) -> None:
        """Let go of the cells of all other nodes; None keeps all."""
        if nodes is not None:
            self._held = {node: cells for node, cells in self._held.items() if node in nodes}

    def _group_sums(self, adds: Adder[H], chosen: Mapping[int, Chosen]) -> H | None:
        """The sums of the groups of columns, node after node; None without any."""
        parts, lengths = list[H](), list[Indices]()
        for node, of in chosen.items():
            for start, counts in of.groups:
                parts.append(self._held[node][start : start + int(counts.sum())])
                lengths.append(counts)
        if not parts:
            return None
        length, held = np.concatenate(lengths), joined(parts)
        if (length == 1).all():
            return held
        ends = np.cumsum(length)
        return adds.prefix_sums(held, np.concatenate(([0], ends)))[ends - 1]
