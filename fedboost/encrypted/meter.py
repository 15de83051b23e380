"""The disclosure meter: how many equations the sums that a host releases are, about any one bin.

The guest knows every g and h, so a sum over the rows of a bin is a linear equation on who is in it,
whatever the cipher. With enough of them about one bin a linear program finds its rows. What counts
is how many are independent: of two siblings whose parent has told the same column, one is the
parent minus the other.

    tree        root            every pair of siblings below it
    equations   2·outputs       2·outputs more, where both are told

How the rows of a won split divide is one equation more, about the bins on either side. So a tree
whose candidates a host offers in `layers` layers tells 2·outputs·2^(layers − 1) + 2^layers − 1 at
most. Coarser sums, over groups of bins, are equations too and count as much; a host's noise, which
makes equations inexact, lowers nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedboost.arrays import Bits
from fedboost.core.params import TreeParams
from fedboost.core.partition import ROOT, parent, sibling
from fedboost.core.sampling import TreeColumns
from fedboost.data.frame import Frame
from fedboost.encrypted.candidates import Named, NodeCandidates
from fedboost.encrypted.tree_batch import STRIDE
from fedboost.flow import Charge, Releases, Spent, StageContext

Counts = NDArray[np.int64]

DRAWN_MAX = 2000  # trees or nodes whose columns are drawn to be counted; of more all columns count


class Meter:
    """What a host tells in one attempt: of each column the sums about any bin of it."""

    def __init__(self, columns: Sequence[str], values: int, rows: int) -> None:
        """At zero; a sum has so many `values`, and `rows` are learnt from."""
        self.equations = np.zeros(len(columns), np.int64)
        self._names, self._values, self._rows = columns, values, max(1, rows)
        # bool (columns,): which of them each node of the last layer told, and of this one
        self._above: dict[int, Bits] = {}
        self._layer: dict[int, Bits] = {}

    @classmethod
    def of(cls, context: StageContext) -> Meter:
        """Return the meter of a host."""
        return cls(context.data.columns, _values(context.params), len(context.parts["train"]))

    @property
    def most(self) -> int:
        """Number of sums about the most told column."""
        return int(self.equations.max(initial=0))

    def begin_trees(self) -> None:
        """The nodes that come next have no parents.

        Nor do those with which an attempt goes on: their parents were told under gradients that
        may have been others.
        """
        self._above, self._layer = {}, {}

    def begin_layer(self) -> None:
        """The nodes that come next are children of the last ones."""
        self._above, self._layer = self._layer, {}

    def charge(self, offered: Mapping[int, NodeCandidates]) -> tuple[Charge, ...]:
        """Counts the sums of some nodes of a layer, by their numbers; a column without any tells
        none.
        """
        before = self.equations.copy()
        for number, candidates in offered.items():
            columns = self._layer[number] = candidates.tells(len(before))
            self.equations += self._values * columns
            place, node = divmod(number, STRIDE)
            if node == ROOT:
                continue
            beside = self._layer.get(place * STRIDE + sibling(node))
            above = self._above.get(place * STRIDE + parent(node))
            if beside is not None and above is not None:
                self.equations -= self._values * (columns & beside & above)
        return self._charges(self.equations - before)

    def divided(self, won: Mapping[int, Named]) -> tuple[Charge, ...]:
        """Counts how rows divide at the won nodes: the sum of what goes left, for any gradients."""
        columns = np.array([column for column, *_ in won.values()], np.int64)
        return self._charges(np.bincount(columns, minlength=len(self.equations)))

    def _charges(self, more: Counts) -> tuple[Charge, ...]:
        told = np.flatnonzero(more)
        amounts = (more[told] / self._rows).tolist()
        names = [self._names[column] for column in told.tolist()]
        return tuple(Charge(Spent.SUMS, *charged) for charged in zip(amounts, names, strict=True))


def ordered(
    frame: Frame, cuts: Mapping[int, Named], n_bins: Sequence[int], sizes: Mapping[int, int]
) -> tuple[Charge, ...]:
    """Return what random cuts of nodes with `sizes` rows tell of the order of a column's rows.

    A cut of b − 1 that a column of b bins has puts a row on a side of it: with all of them every
    row's bin is known, which is one equation by row about each bin.
    """
    told: dict[int, float] = {}
    for node, (column, *_) in cuts.items():
        cut = sizes[node] / max(1, n_bins[column] - 1) / max(1, frame.n_rows)
        told[column] = told.get(column, 0.0) + cut
    return tuple(Charge(Spent.SUMS, told[number], frame.columns[number]) for number in sorted(told))


@dataclass(frozen=True)
class Trees:
    """The trees of a job for which a host offers candidates, all of one shape."""

    rounds: Sequence[range]  # their numbers, round by round
    layers: int  # in which it offers any
    roots: int = 1  # nodes of the first of these


def expected(params: TreeParams, trees: Trees, group: int, columns: int | None) -> Releases:
    """Return what the sums of these trees tell of any of a host's `columns`, by a forecast.

    Every node of every layer tells every column that its tree may use, and no round is left out by
    early stopping: an honest job tells a little less. Of the nodes the most used of `columns`
    divides as many as it does where it is used twice as often as the others and one of the guest's;
    None, for columns that are not known: all of them, the most that there can be. Which columns a
    tree and its nodes may use is public (`TreeColumns`, of party number `group`), so that sampling
    is counted as it is drawn.
    """
    nodes = trees.roots * ((1 << trees.layers) - 1)
    sums = trees.roots * (1 << (trees.layers - 1))
    numbers = [number for of_round in trees.rounds for number in of_round]
    share = min(1.0, 2.0 / (1 + columns)) if columns else 1.0
    within = params.draws_within_trees
    told, used = sums * len(numbers), len(numbers)
    drawn = len(numbers) * (nodes if within else 1)
    if columns and (within or params.column_rate < 1.0) and drawn <= DRAWN_MAX:
        times, of_bins = np.zeros(columns, np.int64), np.zeros(columns, np.int64)
        for number in numbers:
            of_tree = TreeColumns.drawn(params, number, (columns,), first=group)
            times[of_tree.all] += 1
            of_bins[of_tree.all] += _told(of_tree, trees) if within else sums
        told, used = int(of_bins.max()), int(times.max())
    elif within:  # at most: where every other layer tells a column, all of its sums count
        told = math.ceil(4 / 3 * told)
    return Releases(_values(params) * told + math.ceil(nodes * used * share))


def _told(columns: TreeColumns, trees: Trees) -> Counts:
    """Return the sums about a bin of each of a tree's columns, as `Meter.charge` counts them."""
    first = trees.roots - 1
    told = columns.usable(range(first, (trees.roots << trees.layers) - 1))
    assert told is not None
    parents = told[: len(told) - (trees.roots << (trees.layers - 1))]
    pairs = told[trees.roots :].reshape(len(parents), 2, -1).all(axis=1)
    counts: Counts = told.sum(axis=0) - (pairs & parents).sum(axis=0)
    return counts


def _values(params: TreeParams) -> int:
    """Return how many values a sum has: g and h of each output of a leaf."""
    return 2 * params.n_outputs // params.trees_per_round
