"""The candidate splits of one node at its host, in canonical order and in their secret order.

    canonical   [ candidate … | group … missing | group … | … ]
                  at thresholds   a categorical column each, by number, with a sum of missing rows
                                  if there are any
    as sent     the candidates shuffled, then the columns shuffled, each with its groups shuffled
                and its missing rows last

A guest sees sums in the secret order, and their `Shape`. A choice is a set of these sums, and their
total is the sum of the rows that go left: one candidate, or some categories of one column with or
without its missing rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray

from fedboost.core import categories
from fedboost.core.groups import Segments
from fedboost.core.split import Candidates
from fedboost.crypto.secrets import Secrets
from fedboost.ground import wire
from fedboost.ground.arrays import Indices
from fedboost.ground.errors import PeerError
from fedboost.messages.protocol import encrypted_pb2 as pb

Named = tuple[int, int, bool, bytes]  # column, its place there, missing left, left bins


@dataclass(frozen=True)
class Shape:
    """Arrangement of one node's sums; a guest learns nothing else of it."""

    candidates: int  # at thresholds
    categories: tuple[int, ...] = ()  # of each categorical column
    missing: tuple[bool, ...] = ()  # whether a sum of missing rows follows them

    @property
    def n_sums(self) -> int:
        """Number of all sums."""
        return self.candidates + sum(self.categories) + sum(self.missing)

    def columns(self) -> list[tuple[int, int, bool]]:
        """Return each categorical column's first index, its categories, and whether
        rows miss it.
        """
        runs, first = [], self.candidates
        for count, missing in zip(self.categories, self.missing, strict=True):
            runs.append((first, count, missing))
            first += count + missing
        return runs


@dataclass(frozen=True)
class CategoricalColumn:
    """A categorical column of a node: a sum for each group of its bins, and of missing rows."""

    column: int  # of the table
    groups: Segments
    missing: bool  # whether rows of the node lack a value, and they are a group apart

    @property
    def n_sums(self) -> int:
        """Number of sums of the column."""
        return len(self.groups) + self.missing

    def named(self, chosen: Indices, missing_left: bool) -> Named:
        """Return the split that sends the chosen groups left."""
        missing_left = missing_left or self.groups.holds_missing(chosen)
        bins = self.groups.members(chosen)
        return self.column, len(chosen), missing_left, categories.as_set(bins)


@dataclass(frozen=True, eq=False)
class NodeCandidates:
    """A node's candidates in canonical order, and the secret order of their sums."""

    listed: Candidates  # at thresholds
    categorical: tuple[CategoricalColumn, ...]  # columns rising
    order: Indices  # (n_sums,) the k-th sum that goes is number order[k] in canonical order

    @classmethod
    def shuffled(
        cls,
        listed: Candidates,
        categorical: Sequence[CategoricalColumn],
        secrets: Secrets,
        node: tuple[int, int],
    ) -> Self:
        """Return candidates in a fresh secret order; `node` is their tree and their heap id."""
        order = [secrets.permutation(len(listed), "candidates", *node)]
        ends = len(listed) + np.cumsum([offered.n_sums for offered in categorical], dtype=np.int64)
        for place in secrets.permutation(len(categorical), "columns", *node).tolist():
            column, end = categorical[place], ends[place]
            groups = secrets.permutation(len(column.groups), "categories", *node, column.column)
            order += [end - column.n_sums + groups, np.arange(end - column.missing, end)]
        return cls(listed, tuple(categorical), np.concatenate(order))

    @cached_property
    def shape(self) -> Shape:
        """The shape that the guest hears."""
        if not self.categorical:
            return Shape(len(self.listed))
        indices = self._column_of(self.order[len(self.listed) :])
        sent = [self.categorical[place] for place in dict.fromkeys(indices.tolist())]
        return Shape(
            len(self.listed),
            tuple(len(column.groups) for column in sent),
            tuple(column.missing for column in sent),
        )

    def columns_with_sums(self, columns: int) -> NDArray[np.bool_]:
        """Return which columns of the table have sums, bool (columns,)."""
        told = np.zeros(columns, np.bool_)
        told[self.listed.column] = True
        told[[entry.column for entry in self.categorical]] = True
        return told

    def named(self, node: int, choice: Indices) -> Named:
        """Return the split of a choice, the lowest of several in canonical order; a PeerError if
        the choice does not match the offered candidates.
        """
        wrong = PeerError(f"the guest chose a candidate of node {node} that was not offered")
        if not 0 <= choice.min() <= choice.max() < len(self.order):
            raise wrong
        chosen = np.unique(self.order[choice])
        if len(chosen) != len(choice):
            raise wrong
        if chosen[0] < len(self.listed):
            if len(chosen) != 1:
                raise wrong
            listed, place = self.listed, int(chosen[0])
            missing_left = bool(listed.missing_left[place])
            return int(listed.column[place]), int(listed.bin[place]), missing_left, b""
        indices = self._column_of(chosen)
        column = self.categorical[indices[0]]
        inside = chosen - self._column_starts[indices[0]]
        left = inside[inside < len(column.groups)]
        if indices[0] != indices[-1] or not len(left) or len(inside) == column.n_sums:
            raise wrong
        return column.named(left, missing_left=len(inside) > len(left))

    @cached_property
    def _column_starts(self) -> Indices:
        """First index of each categorical column's sums in canonical order."""
        counts = [len(self.listed), *(entry.n_sums for entry in self.categorical)]
        return np.cumsum(counts, dtype=np.int64)[:-1]

    def _column_of(self, sums: Indices) -> Indices:
        """Return the index of the categorical column that each sum belongs to."""
        return np.searchsorted(self._column_starts, sums, side="right") - 1


def read_choices(got: pb.WonSplits, offered: Mapping[int, NodeCandidates]) -> dict[int, Named]:
    """Return the split of each won node: of tied choices the first in canonical order."""
    nodes = wire.unpack(got.nodes, "i4", (None,), "the won nodes").tolist()
    tied = wire.unpack(got.tied, "i4", (len(nodes),), "the ties of the won nodes").astype(np.int64)
    if set(nodes) - set(offered) or len(set(nodes)) != len(nodes) or (tied < 1).any():
        raise PeerError("the guest chose splits of nodes that are not open")
    count, what = int(tied.sum()), "the chosen candidates"
    if got.HasField("sizes"):
        about = "the sizes of the choices"
        sizes = wire.unpack(got.sizes, "i4", (count,), about).astype(np.int64)
        if (sizes < 1).any():
            raise PeerError("the guest chose no candidate at all")
        indices = wire.unpack(got.candidates, "i4", (int(sizes.sum()),), what).astype(np.int64)
    else:
        indices = wire.unpack(got.candidates, "i4", (count,), what).astype(np.int64)
        sizes = np.ones(len(indices), np.int64)  # as many as arrived, not as `tied` announces
    choices = iter(np.split(indices, np.cumsum(sizes)[:-1]))
    return {
        node: min(offered[node].named(node, next(choices)) for _ in range(count))
        for node, count in zip(nodes, tied.tolist(), strict=True)
    }


def choices_bytes_max(offered: Mapping[int, NodeCandidates]) -> int:
    """Return the largest size of `WonSplits`: every candidate and every cut of
    every column tied.
    """
    most = 0
    for candidates in offered.values():
        shape = candidates.shape
        cuts = sum(2 * count * (count + 2) for count in shape.categories)
        most += 4 * shape.candidates + 8 * cuts + 8
    return most + 1024
