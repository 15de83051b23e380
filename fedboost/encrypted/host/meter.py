"""The disclosure meter: how many equations the sums that a host releases are, about any one bin,
and how many rows could be placed by them, whatever the guest does.

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

A guest that does not follow the protocol reads more from a sum than an equation. So beside them
stand the bits that could be told: of sums what their fields hold (`capacity`), of divisions what
they add to earlier ones (`core.placement`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedboost.core.binning import Binning
from fedboost.core.bins import Bins
from fedboost.core.partition import ROOT, parent, sibling
from fedboost.core.placement import NarrowedRows
from fedboost.core.sampling import TreeColumns
from fedboost.encrypted.cells.candidates import Named, NodeCandidates
from fedboost.encrypted.scheme import capacity
from fedboost.encrypted.scheme.capacity import NodeField, TellingNode
from fedboost.encrypted.scheme.params import EncryptedContext, EncryptedTreeParams
from fedboost.encrypted.tree.batch import STRIDE
from fedboost.flow import Charge, Releases, Spent
from fedboost.ground.arrays import Bits, Floats, Rows

Counts = NDArray[np.int64]

DRAWN_MAX = 2000  # trees or nodes whose columns are drawn to be counted; of more all columns count


class Meter:
    """What a host tells in one attempt: of each column the sums about any bin of it, and bits."""

    def __init__(self, columns: Sequence[str], values: int, placement: NarrowedRows) -> None:
        """At zero; a sum has so many `values`."""
        self.equations = np.zeros(len(columns), np.int64)
        self._names, self._values, self._placement = columns, values, placement
        self._n_bins = placement.binning.n_bins
        # bool (columns,): which of them each node of the last layer told
        self._above: dict[int, Bits] = {}
        self._layer: dict[int, TellingNode] = {}

    @classmethod
    def of(cls, context: EncryptedContext, binning: Binning, bins: Bins) -> Meter:
        """Return the meter of a host."""
        placement = NarrowedRows.of(bins, binning, ~context.validation)
        return cls(context.data.columns, _values(context.params), placement)

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
        self._above = {number: node.columns for number, node in self._layer.items()}
        self._layer = {}

    def charge(
        self, offered: Mapping[int, NodeCandidates], fields: Mapping[int, NodeField]
    ) -> tuple[Charge, ...]:
        """Counts the sums of some nodes of a layer, by their numbers, and the bits that these can
        tell; a column without any tells none.
        """
        before, bits = self.equations.copy(), np.zeros(len(self.equations))
        for number, candidates in offered.items():
            node = TellingNode(candidates.tells(len(before)), candidates, fields[number])
            self._layer[number] = node
            follows = self._follows(number, node.columns)
            self.equations += self._values * (node.columns & ~follows)
            bits += self._bits(number, node, follows)
        return (*self._equations(self.equations - before), *self._placed(bits))

    def divided(
        self, won: Mapping[int, Named], rows: Mapping[int, Rows], rights: Mapping[int, Bits]
    ) -> tuple[Charge, ...]:
        """Counts how the rows of won nodes divide: the sum of what goes left, for any gradients,
        and what it adds to where each row may be.
        """
        columns = np.array([column for column, *_ in won.values()], np.int64)
        bits = self.narrowed(won, rows, rights)
        equations = np.bincount(columns, minlength=len(self.equations))
        return (*self._equations(equations), *self._placed(bits))

    def cut(
        self, won: Mapping[int, Named], rows: Mapping[int, Rows], rights: Mapping[int, Bits]
    ) -> tuple[Charge, ...]:
        """Counts what random cuts of nodes tell of rows, which share leaves or do not.

        A cut of b − 1 that a column of b bins has puts a row on a side of it: with all of them
        every row's bin is known, which is one equation by row about each bin.
        """
        cuts = np.zeros(len(self.equations))
        for node, (column, *_) in won.items():
            cuts[column] += len(rows[node]) / max(1, int(self._n_bins[column]) - 1)
        bits, n_rows = self.narrowed(won, rows, rights), max(1, self._placement.n_rows)
        return (*self._charges(Spent.SUMS, cuts / n_rows), *self._placed(bits))

    def narrowed(
        self, won: Mapping[int, Named], rows: Mapping[int, Rows], rights: Mapping[int, Bits]
    ) -> Floats:
        """Return the bits that divisions add to where the rows of each column may be."""
        bits = np.zeros(len(self.equations))
        for number, (column, place, missing_left, _) in won.items():
            division = rows[number], rights[number]
            bits[column] += self._placement.divide(column, place, missing_left, *division)
        return bits

    def _follows(self, number: int, columns: Bits) -> Bits:
        """bool (columns,): of which a node's sums are its parent's minus its sibling's."""
        place, node = divmod(number, STRIDE)
        none = np.zeros_like(columns)
        if node == ROOT:
            return none
        beside = self._layer.get(place * STRIDE + sibling(node))
        above = self._above.get(place * STRIDE + parent(node))
        return none if beside is None or above is None else columns & beside.columns & above

    def _bits(self, number: int, node: TellingNode, follows: Bits) -> Floats:
        """Return what a node's sums can tell of each column, and no more than its rows hold; of
        columns that follow from its sibling what it tells more than that.
        """
        field, n_bins = node.field, self._n_bins
        told = field.told(node.candidates, n_bins)
        if field.has_differences and follows.any():
            place, own = divmod(number, STRIDE)
            beside = self._layer[place * STRIDE + sibling(own)]
            told -= follows * field.follows(node.candidates, beside, n_bins)
        return np.minimum(told, field.rows * self._placement.shares.entropy)

    def _equations(self, counted: Counts) -> Iterator[Charge]:
        return self._charges(Spent.SUMS, counted / self._placement.shares.rows)

    def _placed(self, bits: Floats) -> Iterator[Charge]:
        return self._charges(Spent.PLACED, self._placement.shares.placed(bits))

    def _charges(self, kind: Spent, amounts: Floats) -> Iterator[Charge]:
        for column in np.flatnonzero(amounts).tolist():
            yield Charge(kind, float(amounts[column]), self._names[column])


@dataclass(frozen=True)
class Trees:
    """The trees of a job for which a host offers candidates, all of one shape."""

    rounds: Sequence[range]  # their numbers, round by round
    layers: int  # in which it offers any
    roots: int = 1  # nodes of the first of these


def expected(
    params: EncryptedTreeParams, trees: Trees, group: int, columns: int | None
) -> Releases:
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
    every = nodes * len(numbers)
    bits = capacity.forecast(params, every, min(every, told), columns)
    whole = _values(params) * told + math.ceil(nodes * used * share)
    return Releases(whole, sum_bits=bits, layers=trees.layers * len(numbers))


def _told(columns: TreeColumns, trees: Trees) -> Counts:
    """Return the sums about a bin of each of a tree's columns, as `Meter.charge` counts them."""
    first = trees.roots - 1
    told = columns.usable(range(first, (trees.roots << trees.layers) - 1))
    assert told is not None
    parents = told[: len(told) - (trees.roots << (trees.layers - 1))]
    pairs = told[trees.roots :].reshape(len(parents), 2, -1).all(axis=1)
    counts: Counts = told.sum(axis=0) - (pairs & parents).sum(axis=0)
    return counts


def _values(params: EncryptedTreeParams) -> int:
    """Return how many values a sum has: g and h of each output of a leaf."""
    return 2 * params.n_outputs // params.trees_per_round
