"""A tree while it grows, as a host sees it: encrypted histograms and the candidates in them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic

import numpy as np
from numpy.typing import NDArray

from fedboost.core import groups, split
from fedboost.core.groups import Minimum, MinimumState, Segments
from fedboost.core.partition import parent, sibling
from fedboost.core.split import Candidates
from fedboost.crypto.api import Adder, H, Pairs, joined
from fedboost.crypto.secrets import Secrets
from fedboost.encrypted.adding import AddingTree
from fedboost.encrypted.candidates import CategoricalColumn, Named, NodeCandidates
from fedboost.encrypted.cells import Cells, Rows
from fedboost.encrypted.ciphers import HostRows
from fedboost.encrypted.growth import Growth
from fedboost.encrypted.tree_batch import TreeBatch
from fedboost.state import state

Bits = NDArray[np.bool_]
Indices = NDArray[np.int64]

KEPT_BYTES_MAX = 1 << 29  # of a layer's cells of all trees, for the next layer to subtract from
CELLS_BYTES_MAX = 1 << 26  # of the nodes whose sums are made at once


@state
class HostTreeState:
    """What the layers so far have settled: where the rows stand, and which sums have left."""

    growth: Growth
    opened: list[int]
    # Of each node whose sums have left, the group of every cell, (columns, n_cells), of which
    # there is a sum; None: one of each cell.
    released: dict[int, NDArray[np.uint16] | None]
    minimum: MinimumState | None


@dataclass(frozen=True, eq=False)
class _Listing:
    """A node's candidates at thresholds, and the cells whose sums they are (`Pairs`)."""

    listed: Candidates
    first: Indices
    second: Indices
    missing: Bits  # (columns,) that rows of the node lack
    grouped: NDArray[np.uint16] | None  # groups of its cells, as `Cells.groups`


class HostTree(HostTreeState, Generic[H]):
    """One tree. Every layer: divide as the guest says, set `opened`, then `candidates` of all the
    open nodes, some at a time.
    """

    def __init__(
        self,
        cells: Cells,
        growth: Growth,
        place: Indices,
        *,
        subtraction: bool,
        least: int,
        trees: int = 1,
    ) -> None:
        """Cells of the columns that the tree may use; `growth`: where rows begin, and which of
        them it learns from; place int64 (n,), rising: where each row's gradients are among the
        encrypted ones; `subtraction`: whether a node's sums may be its parent's minus its sibling's
        (SecureBoost+, section 4.3); `least`: rows of a group whose sum may leave (core.groups);
        `trees`: how many grow at once.
        """
        self.growth = growth
        self.opened, self.released = [], {}
        self.minimum: Minimum | None = cells.minimum(least)
        self._cells_of, self._place, self._subtraction = cells, place, subtraction
        self._columns, self._by_category = cells.columns, cells.by_category
        self._trees = trees
        self._numbers, self._n_bins, self._starts = (
            cells.numbers,
            cells.numbers.n_bins,
            cells.numbers.starts,
        )
        self._listings: dict[
            tuple[int, ...], _Listing
        ] = {}  # of ungrouped nodes, by the columns they miss
        self._adding: AddingTree[H] | None = None
        self._is_last = False  # layer
        self._parents: dict[int, H] = {}  # the cells of the layer above
        self._cells: dict[int, H] = {}  # of the open nodes, as far as they have been made and kept

    @property
    def columns(self) -> Rows:
        """The columns that the tree may use, rising."""
        return self._columns

    def begin_layer(self, *, is_last: bool) -> None:
        """The cells of the layer before become those that may be subtracted from; `is_last` says
        that none will be from this one's.
        """
        self._parents, self._cells, self._is_last = self._cells, {}, is_last
        if self.minimum is not None:
            self.minimum.open(self.opened, self.growth.training)

    def smallest_group(self, node: int) -> int | None:
        """Rows of the smallest group whose sum an open node lets go; None for no minimum."""
        return None if self.minimum is None else self.minimum.smallest(node)

    def note_split(self, node: int, won: Named) -> None:
        """Remembers how a split of our own divides a node, for the groups below it."""
        if self.minimum is not None:
            self.minimum.divide(node, *won)

    def n_bytes(self, rows: HostRows[H]) -> int:
        """Return what a node's cells take in memory."""
        return self._numbers.n_cells * rows.sizes.cell_bytes

    def candidates(
        self, rows: HostRows[H], nodes: Sequence[int], number: int, secrets: Secrets
    ) -> dict[int, tuple[NodeCandidates, Pairs[H]]]:
        """The candidates of some open nodes of tree `number`, none of fewer rows than the minimum
        on a side, and their sums in canonical order.
        """
        histograms = self._histograms(rows, nodes)
        self._keep(histograms, rows)
        listings = {node: self._listing(node) for node in nodes}
        offered = {node: self._offered(node, listings[node], secrets, number) for node in nodes}
        grouped, first_group = self._group_sums(rows.adds, histograms, offered), 0
        sums_of = {}
        for node, offer in offered.items():
            cells = sums = histograms[node]
            first, second = listings[node].first, listings[node].second
            n_groups = len(offer.order) - len(offer.listed)
            if grouped is not None and n_groups:
                sums = cells.joined([grouped[first_group : first_group + n_groups]])
                first_group += n_groups
                first = np.append(first, np.arange(len(cells), len(cells) + n_groups))
                second = np.append(second, np.full(n_groups, -1))
            sums_of[node] = offer, Pairs(sums, first, cells, second)
        return sums_of

    def note_released(self, node: int) -> None:
        """Remembers over which groups of cells the sums of an open node have left."""
        self.released[node] = self._cells_of.groups(node, self.minimum)

    def _running(self, rows: HostRows[H], cells: H) -> H:
        """Return the nodes' cells with the sum up to each bin in its place, where thresholds divide
        a column.

        A category, and the rows without a value, keep sums of their own.
        """
        begins = np.ones(int(self._starts[-1]), np.bool_)
        for c in np.flatnonzero(~self._by_category):
            begins[self._starts[c] + 1 : self._starts[c + 1] - 1] = False
        offsets = np.flatnonzero(np.tile(begins, len(cells) // len(begins)))
        return rows.running(cells, np.append(offsets, len(cells)))

    def _listing(self, node: int) -> _Listing:
        """A node's candidates at thresholds; nodes that miss the same columns share them."""
        missing = self._numbers.missing(self.growth.training.rows(node))
        grouped = self._cells_of.groups(node, self.minimum)
        lacking = tuple(np.flatnonzero(missing).tolist())
        known = self._listings.get(lacking) if grouped is None else None
        if known is not None:
            return known
        ordered = np.flatnonzero(~self._by_category).astype(np.int32)
        listed = split.candidates(self._n_bins.astype(np.int32), missing, ordered)
        chosen: slice | Bits = slice(None)
        if grouped is not None:
            (chosen,) = groups.released(grouped[None], listed, self._n_bins)
        column, left = listed.column[chosen], listed.missing_left[chosen]
        listed = Candidates(self._columns[column], listed.bin[chosen], left)
        first = (self._starts[column] + listed.bin).astype(np.int64)
        second = np.where(left, self._starts[column + 1] - 1, -1)
        listing = _Listing(listed, first, second, missing, grouped)
        if grouped is None:
            self._listings[lacking] = listing
        return listing

    def _offered(
        self, node: int, listing: _Listing, secrets: Secrets, number: int
    ) -> NodeCandidates:
        """A node's candidates: between cells or, where these are grouped, between groups."""
        usable, grouped = self._cells_of.drawn.usable([node]), listing.grouped
        by_category = self._by_category if usable is None else self._by_category & usable[0]
        categorical = []
        for c in np.flatnonzero(by_category):
            segments = Segments.finest(int(self._n_bins[c]))
            if grouped is not None:
                segments = Segments.of(grouped[c], int(self._n_bins[c]))
            lacks = bool(listing.missing[c]) and segments.apart
            categorical.append(CategoricalColumn(int(self._columns[c]), segments, lacks))
        return NodeCandidates.shuffled(listing.listed, categorical, secrets, (number, node))

    def _group_sums(
        self, adds: Adder[H], histograms: Mapping[int, H], offered: Mapping[int, NodeCandidates]
    ) -> H | None:
        """The sums of the groups of categorical columns, node after node; None without any."""
        parts, lengths = list[H](), list[Indices]()
        for node, candidates in offered.items():
            for column in candidates.categorical:
                c = np.searchsorted(self._columns, column.column)
                counts = np.append(column.groups.lengths, np.ones(int(column.missing), np.int64))
                parts.append(histograms[node][self._starts[c] : self._starts[c] + counts.sum()])
                lengths.append(counts)
        if not parts:
            return None
        length, held = np.concatenate(lengths), joined(parts)
        if (length == 1).all():
            return held
        ends = np.cumsum(length)
        return adds.prefix_sums(held, np.concatenate(([0], ends)))[ends - 1]

    def _histograms(self, rows: HostRows[H], nodes: Sequence[int]) -> dict[int, H]:
        """The encrypted histogram of each node with running sums: added up, or its parent's minus
        its sibling's.
        """
        made_of = {node: self._cells[node] for node in nodes if node in self._cells}
        added = self._to_add([node for node in nodes if node not in made_of])
        n_cells = int(self._starts[-1])
        if added:
            sums = self._running(rows, self._added_up(rows, added))
            for i, node in enumerate(added):
                made_of[node] = sums[i * n_cells : (i + 1) * n_cells]
        rest = [node for node in nodes if node not in made_of]
        if rest:
            beside = self._cells | made_of
            above = [self._parents.pop(parent(node)) for node in rest]
            made = rows.siblings(above, [beside[sibling(node)] for node in rest])
            made_of.update(zip(rest, made, strict=True))
        # A sibling whose turn comes later can be made no more: its parent has become this one.
        self._cells.update({n: made_of[n] for n in added if n not in nodes and n in self.opened})
        return {node: made_of[node] for node in nodes}

    def _to_add(self, nodes: Sequence[int]) -> list[int]:
        """Return the one of two siblings with fewer rows, whether or not it is open itself; none
        where one of them has been made before.
        """
        training, added = self.growth.training, set()
        for node in nodes:
            if self._subtraction and parent(node) in self._parents:
                if sibling(node) in self._cells:
                    continue
                pair = (node, sibling(node))
                added.add(min(pair, key=lambda child: (len(training.rows(child)), child)))
            else:
                added.add(node)
        return sorted(added)

    def _keep(self, histograms: dict[int, H], rows: HostRows[H]) -> None:
        """Keeps cells for the next layer, while there is room; of the last one those alone that
        siblings will be made of.
        """
        room = KEPT_BYTES_MAX // max(1, self._trees * self.n_bytes(rows))
        if self._subtraction:
            for node, cells in histograms.items():
                if self._is_last and parent(node) not in self._parents:  # the sibling is made, too
                    self._cells.pop(node, None)
                elif len(self._cells) < room or node in self._cells:
                    self._cells[node] = cells

    def _added_up(self, rows: HostRows[H], added: Sequence[int]) -> H:
        """The cells of these nodes, node after node, from their rows."""
        if self._adding is None or self._adding.rows is not rows.adding:
            self._adding = rows.adding.take(self._numbers, self._place)
        return self._adding.added_up([self.growth.training.rows(node) for node in added])


class HostTreeBatch(TreeBatch[HostTree[Any]]):
    """Trees that grow at once at a host; the nodes have numbers (TreeBatch)."""

    def __init__(self, trees: Sequence[HostTree[Any]] = (), first: int = -1) -> None:
        """`first` is the number of the first tree in the model; none, −1: before the first ones."""
        super().__init__(trees)
        self.first = first
        self.offered: dict[int, NodeCandidates] = {}  # this layer, by node

    def begins_with(self, number: int) -> bool:
        """Return whether there are trees, and the first is this one of the model."""
        return bool(self.trees) and self.first == number

    def begin_layer(self, *, is_last: bool) -> None:
        """No node of this layer, the trees' last or not, has been offered yet."""
        self.offered = {}
        for tree in self.trees:
            tree.begin_layer(is_last=is_last)

    def batches(self, rows: HostRows[Any]) -> Iterator[list[tuple[int, list[int]]]]:
        """The open nodes in batches whose cells fit into memory together: places of trees, and
        nodes of each. One batch at least, which may be empty.
        """
        batch: list[tuple[int, list[int]]] = []
        room = CELLS_BYTES_MAX
        for place, tree in enumerate(self.trees):
            each = max(1, tree.n_bytes(rows))
            left = list(tree.opened)
            while left:
                if each > room and batch:
                    yield batch
                    batch, room = [], CELLS_BYTES_MAX
                fits = max(1, room // each)
                batch.append((place, left[:fits]))
                room, left = room - each * len(left[:fits]), left[fits:]
        yield batch

    def smallest_group(self, numbers: Iterable[int]) -> int | None:
        """Rows of the smallest group whose sum some open nodes let go; None for no minimum."""
        sizes = [tree.smallest_group(node) for tree, node in map(self.at, numbers)]
        return min((rows for rows in sizes if rows is not None), default=None)

    def note_offered(self, offered: Mapping[int, NodeCandidates]) -> None:
        """Remembers what leaves: candidates to choose from, and for an audit their groups."""
        self.offered |= offered
        for tree, node in map(self.at, offered):
            tree.note_released(node)
