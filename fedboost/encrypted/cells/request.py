"""A host's request for the sums of its candidates, as it passes from the choice of candidates to
the cells that are added up and to the answers.

    host       chooses candidates and gives each node noise and a secret order
    scheme     draws the randomness of answers if it needs some
    workers    get the part of their columns, make cells, and add up the requested sums

The same object passes all of them: it is cut by candidates (`terms[cut]`) and by columns (`part`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from fedboost.ground.arrays import Indices, Sums

if TYPE_CHECKING:
    from fedboost.crypto.lattice.answers import AnswerRandomness


@dataclass(frozen=True, repr=False, eq=False)
class CandidateTerms:
    """Sums of one node's candidates: the cells of each, and the noise and randomness of its
    answer.
    """

    tree: int  # its number in the model
    node: int  # its heap id
    rows: int  # that its tree learns from
    first: Indices  # (n,) a cell of the node or, behind the cells, a group
    second: Indices  # (n,) the cell added to it, −1 for none
    groups: Sequence[tuple[int, Indices]]  # of a column: its first cell, the cells of each group
    numbers: Indices  # (n,) in canonical order
    places: Indices  # (n,) rising: among all sums that leave together
    noise: Sums | None = None  # (n, 2·outputs) the host's noise, if any
    randomness: AnswerRandomness | None = None  # of a lattice's answers

    @classmethod
    def of_cells(
        cls, tree: int, node: int, rows: int, count: int, noise: Sums | None = None
    ) -> CandidateTerms:
        """Return the first `count` cells themselves, as the sums of that node."""
        every = np.arange(count)
        return cls(tree, node, rows, every, np.full(count, -1), (), every, every, noise)

    def __len__(self) -> int:
        return len(self.first)

    def __getitem__(self, cut: slice | Indices) -> CandidateTerms:
        """Return some of the sums, which leave without the others."""
        first = self.first[cut]
        return replace(
            self,
            first=first,
            second=self.second[cut],
            numbers=self.numbers[cut],
            places=np.arange(len(first)),
            noise=None if self.noise is None else self.noise[cut],
            randomness=None if self.randomness is None else self.randomness[cut],
        )

    def columns(self, starts: Indices) -> Indices:
        """Return the column of each sum; `starts` are the first cells of the columns, and their
        end.
        """
        column = np.searchsorted(starts, self.first, "right") - 1
        if self.groups:
            is_group = self.first >= starts[-1]
            group = np.searchsorted(self._first_groups(starts), self.first[is_group], "right") - 1
            column[is_group] = self._grouped_columns(starts)[group]
        return column

    def part(self, starts: Indices, columns: slice) -> CandidateTerms:
        """Return the sums of some columns only, counted by these columns' cells, without the host's
        noise.
        """
        column = self.columns(starts)
        chosen = np.flatnonzero((column >= columns.start) & (column < columns.stop))
        low, high = starts[columns.start], starts[columns.stop]
        grouped = self._grouped_columns(starts)
        inside = np.flatnonzero((grouped >= columns.start) & (grouped < columns.stop)).tolist()
        behind = self._first_groups(starts)[inside[0]] if inside else 0
        first, second = self.first[chosen], self.second[chosen]
        randomness = None if self.randomness is None else self.randomness[chosen]
        return replace(
            self,
            first=np.where(first >= starts[-1], first - behind + high - low, first - low),
            second=np.where(second < 0, -1, second - low),
            groups=[(self.groups[n][0] - int(low), self.groups[n][1]) for n in inside],
            numbers=self.numbers[chosen] if randomness is None else randomness.numbers,
            places=self.places[chosen],
            noise=None,
            randomness=randomness,
        )

    def _first_groups(self, starts: Indices) -> Indices:
        """Return the first index of the groups of each grouped column, behind all cells, and their
        end.
        """
        lengths = [len(counts) for _, counts in self.groups]
        return np.asarray(starts[-1] + np.cumsum([0, *lengths]), np.int64)

    def _grouped_columns(self, starts: Indices) -> Indices:
        begins = np.array([begin for begin, _ in self.groups], np.int64)
        return np.searchsorted(starts, begins, "right") - 1


@dataclass(frozen=True, repr=False, eq=False)
class CellRequest:
    """The requested sums of one tree's candidates, and the way to make the cells for them."""

    nodes: Sequence[int]  # nodes that need cells: made from rows, unless
    siblings: Mapping[int, int]  # made as their parents' minus these, the other children
    kept: Collection[int] | None  # nodes whose cells stay; None: all
    sums: Sequence[CandidateTerms]  # node after node, as they leave

    def part(self, starts: Indices, columns: slice) -> CellRequest:
        """Return the request for some columns; see `CandidateTerms.part`."""
        parts = [terms.part(starts, columns) for terms in self.sums]
        return replace(self, sums=[terms for terms in parts if len(terms)])
