"""A tree while it grows, as a host sees it: encrypted histograms and the candidates in them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedboost.core import groups, split
from fedboost.core.groups import Minimum, MinimumState, Segments
from fedboost.core.partition import parent, sibling
from fedboost.core.split import Candidates
from fedboost.crypto.secrets import Secrets
from fedboost.encrypted.cells.adding import PlacedTree
from fedboost.encrypted.cells.candidates import CategoricalColumn, Named, NodeCandidates
from fedboost.encrypted.cells.request import CandidateTerms, CellRequest
from fedboost.encrypted.cells.row_cells import TreeCells
from fedboost.encrypted.scheme.ciphers import HostRows
from fedboost.encrypted.tree.batch import TreeBatch
from fedboost.encrypted.tree.growth import Division, Growth
from fedboost.ground.arrays import Bits, Indices, Rows
from fedboost.ground.state import state_class

KEPT_BYTES_MAX = 1 << 29  # memory of a layer's cells of all trees, kept to subtract from
CELLS_BYTES_MAX = 1 << 26  # memory of the nodes whose sums are made at once


@state_class
class HostTreeState:
    """Results of the layers so far: the nodes of the rows, and the released sums."""

    growth: Growth
    opened: list[int]
    # For each node whose sums have left, the group of every cell, (columns, n_cells); None: each
    # cell is a group.
    released: dict[int, NDArray[np.uint16] | None]
    minimum: MinimumState | None


class HostTree(HostTreeState):
    """One tree. Every layer: `divide` as the guest says, set `opened`, then `candidates` of all the
    open nodes, some at a time.
    """

    def __init__(
        self,
        cells: TreeCells,
        growth: Growth,
        place: Indices,
        *,
        subtraction: bool,
        least: int,
        trees: int = 1,
    ) -> None:
        """Begin with the cells of the columns that the tree may use. `growth`: the first nodes of
        the rows, and the rows to learn from; place int64 (n,), rising: the index of each row's
        gradients among the encrypted ones; `subtraction`: whether a node's sums may be its parent's
        minus its sibling's (SecureBoost+, section 4.3); `least`: the fewest rows of a group whose
        sum may leave (core.groups); `trees`: the number of trees that grow at once.
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
        # Candidates at thresholds of ungrouped nodes, by the columns they miss.
        self._listed: dict[tuple[int, ...], tuple[Candidates, Indices, Indices]] = {}
        # The rows, and the tree of their cells at workers.
        self._at: tuple[HostRows[Any], PlacedTree[Any]] | None = None
        self._is_last = False  # layer
        self._parents = set[int]()  # nodes of the layer above that have cells
        self._cells = set[int]()  # open nodes that have cells

    @property
    def columns(self) -> Rows:
        """The columns that the tree may use, rising."""
        return self._columns

    def divide(self, divisions: Sequence[Division]) -> None:
        """Move the rows of a layer's divided nodes into their children, at the workers too."""
        of_training = self.growth.divide(divisions)
        if self._at is not None:
            self._at[1].divide(of_training)

    def begin_layer(self, *, is_last: bool) -> None:
        """Begin a layer: cells of the layer before may now be subtracted from; `is_last` says that
        no layer will subtract from this one's.
        """
        self._parents, self._cells, self._is_last = self._cells, set(), is_last
        if self.minimum is not None:
            self.minimum.open(self.opened, self.growth.training)

    def smallest_group(self, node: int) -> int | None:
        """Return the rows of the smallest group whose sum an open node releases; None for no
        minimum.
        """
        return None if self.minimum is None else self.minimum.smallest_group(node)

    def note_split(self, node: int, won: Named) -> None:
        """Note how one of our splits divides a node, for the groups below it."""
        if self.minimum is not None:
            self.minimum.divide(node, *won)

    def n_bytes(self, rows: HostRows[Any]) -> int:
        """Return the memory that a node's cells take."""
        return self._numbers.n_cells * rows.sizes.cell_bytes

    def candidates(
        self, rows: HostRows[Any], nodes: Sequence[int], number: int, secrets: Secrets
    ) -> tuple[list[NodeCandidates], CellRequest]:
        """Return the candidates of some open nodes of tree `number`, none of fewer rows than the
        minimum on a side, and the request for their sums in canonical order, of `placed` cells.
        """
        self.placed(rows)
        added, siblings = self._plan_cells(nodes, rows)
        offered = [self._offer_of_node((number, node), secrets) for node in nodes]
        return [candidates for candidates, _ in offered], CellRequest(
            nodes=sorted({*added, *nodes}),
            siblings=siblings,
            kept=frozenset(self._parents | self._cells),
            sums=[terms for _, terms in offered],
        )

    def note_released(self, node: int) -> None:
        """Note the groups of cells whose sums of an open node have left."""
        self.released[node] = self._cells_of.groups(node, self.minimum)

    def placed(self, rows: HostRows[Any]) -> PlacedTree[Any]:
        """Return the tree as workers have it. A cell at a threshold holds the sum up to its bin; a
        category, and the rows without a value, keep separate sums.
        """
        if self._at is None or self._at[0] is not rows:
            begins = np.ones(self._numbers.n_cells, np.bool_)
            for c in np.flatnonzero(~self._by_category):
                begins[self._starts[c] + 1 : self._starts[c + 1] - 1] = False
            tree = rows.placed_rows.take(self._cells_of, self.growth.training, begins, self._place)
            self._at = rows, tree
            self._parents, self._cells = set(), set()
        return self._at[1]

    def _offer_of_node(
        self, node: tuple[int, int], secrets: Secrets
    ) -> tuple[NodeCandidates, CandidateTerms]:
        """Return a node's candidates, between cells or between their groups, and the cells of their
        sums. `node`: its tree and its heap id.
        """
        rows = self.growth.training.rows(node[1])
        missing, grouped = self._numbers.missing(rows), self._cells_of.groups(node[1], self.minimum)
        listed, first, second = self._at_thresholds(missing, grouped)
        usable = self._cells_of.drawn.usable_masks([node[1]])
        by_category = self._by_category if usable is None else self._by_category & usable[0]
        categorical, cells = [], []
        for c in np.flatnonzero(by_category):
            segments = Segments.one_per_bin(int(self._n_bins[c]))
            if grouped is not None:
                segments = Segments.of(grouped[c], int(self._n_bins[c]))
            lacks = bool(missing[c]) and segments.apart
            categorical.append(CategoricalColumn(int(self._columns[c]), segments, lacks))
            lengths = np.append(segments.lengths, np.ones(int(lacks), np.int64))
            cells.append((int(self._starts[c]), lengths))
        candidates = NodeCandidates.shuffled(listed, categorical, secrets, node)
        n_cells, n_groups = self._numbers.n_cells, len(candidates.order) - len(listed)
        every = np.arange(len(candidates.order))
        return candidates, CandidateTerms(
            tree=node[0],
            node=node[1],
            rows=len(rows),
            first=np.append(first, np.arange(n_cells, n_cells + n_groups)),
            second=np.append(second, np.full(n_groups, -1)),
            groups=cells,
            numbers=every,
            places=every,
        )

    def _at_thresholds(
        self, missing: Bits, grouped: NDArray[np.uint16] | None
    ) -> tuple[Candidates, Indices, Indices]:
        """Return a node's candidates at thresholds, and the cells of their sums; nodes that miss
        the same columns share them.
        """
        lacking = tuple(np.flatnonzero(missing).tolist())
        known = self._listed.get(lacking) if grouped is None else None
        if known is not None:
            return known
        ordered = np.flatnonzero(~self._by_category).astype(np.int32)
        listed = split.candidates(self._n_bins.astype(np.int32), missing, ordered)
        chosen: slice | Bits = slice(None)
        if grouped is not None:
            (chosen,) = groups.released_mask(grouped[None], listed, self._n_bins)
        column, left = listed.column[chosen], listed.missing_left[chosen]
        listed = Candidates(self._columns[column], listed.bin[chosen], left)
        first = (self._starts[column] + listed.bin).astype(np.int64)
        second = np.where(left, self._starts[column + 1] - 1, -1)
        if grouped is None:
            self._listed[lacking] = listed, first, second
        return listed, first, second

    def _plan_cells(
        self, nodes: Sequence[int], rows: HostRows[Any]
    ) -> tuple[Collection[int], dict[int, int]]:
        """Return the nodes to add up now, and for each other node the sibling to subtract from
        their parent.
        """
        left = [node for node in nodes if node not in self._cells]
        added = self._to_add(left)
        rest = [node for node in left if node not in added]
        # A later sibling cannot be subtracted any more: its parent's cells become this node's.
        self._parents -= {parent(node) for node in rest}
        self._cells |= {node for node in added if node not in nodes and node in self.opened}
        self._keep_cells(nodes, rows)
        return added, {node: sibling(node) for node in rest}

    def _to_add(self, nodes: Sequence[int]) -> list[int]:
        """Return for each pair of siblings the one with fewer rows, open or not; none if one of
        them has been made before.
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

    def _keep_cells(self, nodes: Sequence[int], rows: HostRows[Any]) -> None:
        """Keep cells for the next layer, while there is room; of the last layer only cells that
        siblings need.
        """
        room = KEPT_BYTES_MAX // max(1, self._trees * self.n_bytes(rows))
        for node in nodes if self._subtraction else ():
            if self._is_last and parent(node) not in self._parents:  # the sibling is made, too
                self._cells.discard(node)
            elif len(self._cells) < room:
                self._cells.add(node)


class HostTreeBatch(TreeBatch[HostTree]):
    """Trees that grow at once at a host; the nodes have numbers (TreeBatch)."""

    def __init__(self, trees: Sequence[HostTree] = (), first: int = -1) -> None:
        """Begin with these trees; `first` is the number of the first one in the model, −1 for none
        before the first batch.
        """
        super().__init__(trees)
        self.first = first
        self.offered: dict[int, NodeCandidates] = {}  # this layer, by node

    def begins_with(self, number: int) -> bool:
        """Return whether there are trees, and the first is this one of the model."""
        return bool(self.trees) and self.first == number

    def begin_layer(self, *, is_last: bool) -> None:
        """Begin a layer, the trees' last or not, without offers."""
        self.offered = {}
        for tree in self.trees:
            tree.begin_layer(is_last=is_last)

    def batches(self, rows: HostRows[Any]) -> Iterator[list[tuple[int, list[int]]]]:
        """Yield the open nodes in batches whose cells fit into memory together: indices of trees,
        and nodes of each. At least one batch, which may be empty.
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
        """Return the rows of the smallest group whose sum some open nodes release; None for no
        minimum.
        """
        sizes = [tree.smallest_group(node) for tree, node in map(self.at, numbers)]
        return min((rows for rows in sizes if rows is not None), default=None)

    def note_offered(self, offered: Mapping[int, NodeCandidates]) -> None:
        """Note the released offers: candidates to choose from, and their groups for an audit."""
        self.offered |= offered
        for tree, node in map(self.at, offered):
            tree.note_released(node)
