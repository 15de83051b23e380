"""Cells of a tree's open nodes with running sums, as whoever holds them makes and keeps them.

A node's cells come from its rows, or are its parent's minus the other child's (SecureBoost+,
section 4.3). Either way they are the same, so whoever has lost them makes them again from rows.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic

import numpy as np

from fedboost.arrays import Bits, Indices, Rows
from fedboost.core.partition import parent
from fedboost.crypto.api import Adder, H, Pairs, joined
from fedboost.encrypted.adding import RowSums

Add = Callable[[Sequence[Rows]], H]  # the cells of nodes with these rows, node after node


@dataclass(frozen=True)
class Making:
    """What to make of open nodes' cells, and what to keep."""

    rows: Mapping[int, Rows]  # of each node that is added up
    others: Mapping[int, int]  # of each node that is its parent's minus it: the other child
    rows_of_others: Mapping[int, Rows]  # of these nodes, for whoever has lost cells
    kept: Collection[int] | None  # nodes whose cells stay; None: all

    @property
    def from_rows(self) -> Making:
        """Return the same with nothing but rows."""
        return replace(self, rows={**self.rows, **self.rows_of_others}, others={})


NOTHING = Making({}, {}, {}, None)


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
    """The cells of some columns of a tree's nodes; sent elsewhere it has none."""

    def __init__(self, begins: Bits) -> None:
        """`begins` says of each cell of a node whether its sum begins anew there."""
        self._begins = begins
        self._starts = np.flatnonzero(begins)
        self._held: dict[int, H] = {}
        self.lock = threading.RLock()  # a task that counts as lost may still run beside another

    def __contains__(self, node: int) -> bool:
        """Return whether a node's cells are there, or it has none."""
        return node in self._held or not len(self._begins)

    def make(self, making: Making, rows: RowSums[H], add: Add[H]) -> list[int]:
        """Make what is not there yet; return the nodes for which others lack."""
        held, size = self._held, len(self._begins)
        if not size:
            return []
        added = [node for node in making.rows if node not in held]
        if added:
            cells = add([making.rows[node] for node in added])
            firsts = size * np.arange(len(added))[:, None]
            offsets = np.append((firsts + self._starts).ravel(), len(cells))
            sums = rows.running(cells, offsets)
            held |= {node: sums[i * size : (i + 1) * size] for i, node in enumerate(added)}
        rest = [(node, other) for node, other in making.others.items() if node not in held]
        lacking = [node for node, other in rest if not {parent(node), other} <= held.keys()]
        rest = [(node, other) for node, other in rest if node not in lacking]
        if rest:
            above = [held.pop(parent(node)) for node, _ in rest]
            made = rows.siblings(above, [held[other] for _, other in rest])
            held |= zip([node for node, _ in rest], made, strict=True)
        return lacking

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

    def __reduce__(self) -> tuple[Any, ...]:
        return NodeCells, (self._begins,)  # cells are made again, not carried
