"""The disclosure meter: it counts a host's released sums as equations about any one bin, and the
bits that could place rows, for any behaviour of the guest.

The guest knows every g and h, so a sum over the rows of a bin is a linear equation about its
members, under any cipher. With enough of them about one bin a linear program finds its rows. Only
independent equations count: of two siblings whose parent has revealed the same column, one is the
parent minus the other.

    tree        root            every pair of siblings below it
    equations   2·outputs       2·outputs more, if both are revealed

The division of a won split's rows is one equation more, about the bins on either side. So a tree
whose candidates a host offers in `layers` layers reveals 2·outputs·2^(layers − 1) + 2^layers − 1
equations at most. Coarser sums, over groups of bins, are equations too and count as much; a host's
noise, which makes equations inexact, lowers nothing.

A guest that does not follow the protocol reads more from a sum than an equation. So the meter also
counts the bits that sums can carry: the content of their fields (`capacity`), and for divisions
their addition to earlier ones (`core.placement`).
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

SumCounts = NDArray[np.int64]

DRAWN_MAX = 2000  # trees or nodes whose columns are drawn for the count; beyond, all columns count


class Meter:
    """A host's disclosures in one attempt: of each column the sums about any bin of
    it, and bits.
    """

    def __init__(self, columns: Sequence[str], values: int, placement: NarrowedRows) -> None:
        """Begin at zero; a sum has so many `values`."""
        self.equations = np.zeros(len(columns), np.int64)
        self._names, self._values, self._placement = columns, values, placement
        self._n_bins = placement.binning.n_bins
        # bool (columns,): the columns that each node of the last layer revealed
        self._above: dict[int, Bits] = {}
        self._layer: dict[int, TellingNode] = {}

    @classmethod
    def of(cls, context: EncryptedContext, binning: Binning, bins: Bins) -> Meter:
        """Return the meter of a host."""
        placement = NarrowedRows.of(bins, binning, ~context.validation)
        return cls(context.data.columns, _n_values(context.params), placement)

    @property
    def most(self) -> int:
        """Number of sums about the most revealed column."""
        return int(self.equations.max(initial=0))

    def begin_trees(self) -> None:
        """Begin trees: the next nodes have no parents.

        The nodes of a resumed attempt have none either: their parents were revealed under gradients
        that may have been others.
        """
        self._above, self._layer = {}, {}

    def begin_layer(self) -> None:
        """Begin a layer: the next nodes are children of the last ones."""
        self._above = {number: node.columns for number, node in self._layer.items()}
        self._layer = {}

    def charge(
        self, offered: Mapping[int, NodeCandidates], fields: Mapping[int, NodeField]
    ) -> tuple[Charge, ...]:
        """Count the sums of some nodes of a layer, by the nodes' numbers, and the bits that these
        can reveal; a column without sums reveals none.
        """
        before, bits = self.equations.copy(), np.zeros(len(self.equations))
        for number, candidates in offered.items():
            node = TellingNode(
                candidates.columns_with_sums(len(before)), candidates, fields[number]
            )
            self._layer[number] = node
            follows = self._follows(number, node.columns)
            self.equations += self._values * (node.columns & ~follows)
            bits += self._bits_of_node(number, node, follows)
        return (*self._equation_charges(self.equations - before), *self._placing_charges(bits))

    def divided(
        self, won: Mapping[int, Named], rows: Mapping[int, Rows], rights: Mapping[int, Bits]
    ) -> tuple[Charge, ...]:
        """Count the divisions of won nodes' rows: the sum of the rows that go left, for any
        gradients, and the bits that narrow each row's possible bins.
        """
        columns = np.array([column for column, *_ in won.values()], np.int64)
        bits = self.narrowing_bits(won, rows, rights)
        equations = np.bincount(columns, minlength=len(self.equations))
        return (*self._equation_charges(equations), *self._placing_charges(bits))

    def charge_cuts(
        self, won: Mapping[int, Named], rows: Mapping[int, Rows], rights: Mapping[int, Bits]
    ) -> tuple[Charge, ...]:
        """Count the disclosure of random cuts of nodes: which rows share leaves.

        A cut of b − 1 that a column of b bins has puts a row on a side of it: all of them together
        reveal every row's bin, which is one equation by row about each bin.
        """
        cuts = np.zeros(len(self.equations))
        for node, (column, *_) in won.items():
            cuts[column] += len(rows[node]) / max(1, int(self._n_bins[column]) - 1)
        bits, n_rows = self.narrowing_bits(won, rows, rights), max(1, self._placement.n_rows)
        return (*self._charges(Spent.SUMS, cuts / n_rows), *self._placing_charges(bits))

    def narrowing_bits(
        self, won: Mapping[int, Named], rows: Mapping[int, Rows], rights: Mapping[int, Bits]
    ) -> Floats:
        """Return for each column how many bits its divisions reveal about the bins of rows."""
        bits = np.zeros(len(self.equations))
        for number, (column, place, missing_left, _) in won.items():
            division = rows[number], rights[number]
            bits[column] += self._placement.divide(column, place, missing_left, *division)
        return bits

    def _follows(self, number: int, columns: Bits) -> Bits:
        """Return the columns whose sums at a node are its parent's minus its sibling's, bool
        (columns,).
        """
        place, node = divmod(number, STRIDE)
        none = np.zeros_like(columns)
        if node == ROOT:
            return none
        beside = self._layer.get(place * STRIDE + sibling(node))
        above = self._above.get(place * STRIDE + parent(node))
        return none if beside is None or above is None else columns & beside.columns & above

    def _bits_of_node(self, number: int, node: TellingNode, follows: Bits) -> Floats:
        """Return the bits that a node's sums can reveal of each column, at most the entropy of its
        rows; for columns that follow from its sibling, the bits beyond these.
        """
        field, n_bins = node.field, self._n_bins
        told = field.bits_by_column(node.candidates, n_bins)
        if field.has_differences and follows.any():
            place, own = divmod(number, STRIDE)
            beside = self._layer[place * STRIDE + sibling(own)]
            told -= follows * field.following_bits(node.candidates, beside, n_bins)
        return np.minimum(told, field.rows * self._placement.shares.entropy)

    def _equation_charges(self, counted: SumCounts) -> Iterator[Charge]:
        return self._charges(Spent.SUMS, counted / self._placement.shares.rows)

    def _placing_charges(self, bits: Floats) -> Iterator[Charge]:
        return self._charges(Spent.PLACED, self._placement.shares.placed(bits))

    def _charges(self, kind: Spent, amounts: Floats) -> Iterator[Charge]:
        for column in np.flatnonzero(amounts).tolist():
            yield Charge(kind, float(amounts[column]), self._names[column])


@dataclass(frozen=True)
class Trees:
    """The trees of a job with a host's offers, all of one shape."""

    rounds: Sequence[range]  # their numbers, round by round
    layers: int  # with offers
    roots: int = 1  # nodes of the first of these


def forecast_releases(
    params: EncryptedTreeParams, trees: Trees, group: int, columns: int | None
) -> Releases:
    """Return a forecast of the disclosure of these trees' sums about any of a host's `columns`.

    Every node of every layer reveals every column that its tree may use, and early stopping leaves
    out no round: an honest job reveals a little less. The forecast assumes that the most used of
    `columns` divides nodes twice as often as each other column and one of the guest's; None, for
    unknown columns: it divides all nodes, the maximum. The columns that a tree and its nodes may
    use are public (`TreeColumns`, of party number `group`), so sampling counts as it is drawn.
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
            of_tree = TreeColumns.draw_columns(params, number, (columns,), first=group)
            times[of_tree.all] += 1
            of_bins[of_tree.all] += _sums_by_column(of_tree, trees) if within else sums
        told, used = int(of_bins.max()), int(times.max())
    elif within:  # at most: if every other layer reveals a column, all of its sums count
        told = math.ceil(4 / 3 * told)
    every = nodes * len(numbers)
    bits = capacity.forecast(params, every, min(every, told), columns)
    whole = _n_values(params) * told + math.ceil(nodes * used * share)
    return Releases(whole, sum_bits=bits, layers=trees.layers * len(numbers))


def _sums_by_column(columns: TreeColumns, trees: Trees) -> SumCounts:
    """Return the sums about a bin of each of a tree's columns, as `Meter.charge` counts them."""
    first = trees.roots - 1
    told = columns.usable_masks(range(first, (trees.roots << trees.layers) - 1))
    assert told is not None
    parents = told[: len(told) - (trees.roots << (trees.layers - 1))]
    pairs = told[trees.roots :].reshape(len(parents), 2, told.shape[1]).all(axis=1)
    counts: SumCounts = told.sum(axis=0) - (pairs & parents).sum(axis=0)
    return counts


def _n_values(params: EncryptedTreeParams) -> int:
    """Return the number of values in a sum: g and h of each output of a leaf."""
    return 2 * params.n_outputs // params.trees_per_round
