"""A tree while it grows, as a host sees it: encrypted histograms and the candidates in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Generic

import numpy as np
from numpy.typing import NDArray

from fedboost.core import groups, split
from fedboost.core.groups import Minimum, MinimumState, Segments
from fedboost.core.partition import parent, sibling
from fedboost.core.split import Candidates
from fedboost.crypto.api import Adder, H, Pairs
from fedboost.crypto.sparse import fill_skipped
from fedboost.encrypted.cells import Cells, Rows
from fedboost.encrypted.growth import Growth
from fedboost.encrypted.offers import Named
from fedboost.encrypted.sides import HostRows
from fedboost.state import state

Bits = NDArray[np.bool_]
Places = NDArray[np.int64]

KEPT_OCTETS_MAX = 1 << 29  # of a layer's cells of all trees, for the next layer to subtract from
CELLS_OCTETS_MAX = 1 << 26  # of the nodes whose sums are made at once


@dataclass(frozen=True)
class Categories:
    """A categorical column of one node, its bins in groups."""

    column: int
    segments: Segments
    missing: bool  # whether rows of the node lack a value, and they are a group apart
    sums: Places  # (groups,) where their sums are and, last, that of missing rows


@dataclass(frozen=True)
class Found:
    """One node's candidates, with their places among the sums that were made with it."""

    listed: Candidates
    sums: Places  # (candidates,)
    grouped: tuple[Categories, ...]  # column by column


@state
class HostTreeState:
    """What the layers so far have settled: where the rows stand, and which sums have left."""

    growth: Growth
    opened: list[int]
    # Of each node whose sums have left, the group of every cell, uint8 (columns, n_cells), of which
    # there is a sum; None: one of each cell.
    released: dict[int, NDArray[np.uint8] | None]
    minimum: MinimumState | None


class HostTree(HostTreeState, Generic[H]):
    """One tree. Every layer: divide as the guest says, `open`, then `candidate_sums` of all the
    open nodes, some at a time.
    """

    def __init__(
        self,
        cells: Cells,
        growth: Growth,
        place: Places,
        *,
        subtraction: bool,
        least: int,
        trees: int = 1,
    ) -> None:
        """Cells of the columns that the tree may use; `growth`: where rows begin, and which of
        them it learns from; place int64 (n,): where each row's gradients are among the encrypted
        ones; `subtraction`: whether a node's sums may be its parent's minus its sibling's
        (SecureBoost+, section 4.3); `least`: rows of a group whose sum may leave (core.groups);
        `trees`: how many grow at once.
        """
        self.growth = growth
        self.opened, self.released = [], {}
        self.minimum: Minimum | None = cells.minimum(least)
        self._cells_of, self._place, self._subtraction = cells, place, subtraction
        self._columns, self._by_category = cells.columns, cells.by_category
        self._trees = trees
        self._n_bins, self._starts = cells.n_bins, cells.starts
        self._ordered = np.where(self._by_category, 0, self._n_bins)  # bins that thresholds divide
        self._parents: dict[int, H] = {}  # the cells of the layer above
        self._cells: dict[int, H] = {}  # of the open nodes, as far as they have been made and kept

    @property
    def columns(self) -> Rows:
        """The columns that the tree may use, rising."""
        return self._columns

    def begin_layer(self) -> None:
        """The cells of the layer before become those that may be subtracted from."""
        self._parents, self._cells = self._cells, {}
        if self.minimum is not None:
            self.minimum.open(self.opened, self.growth.training)

    def smallest_group(self, node: int) -> int | None:
        """Rows of the smallest group whose sum an open node lets go; None for no minimum."""
        return None if self.minimum is None else self.minimum.smallest(node)

    def note_split(self, node: int, won: Named) -> None:
        """Remembers how a split of our own divides a node, for the groups below it."""
        if self.minimum is not None:
            self.minimum.divide(node, *won)

    def octets(self, rows: HostRows[H]) -> int:
        """What a node's cells take in memory."""
        return self._cells_of.n_cells * rows.cell_octets

    def candidate_sums(
        self, rows: HostRows[H], nodes: Sequence[int]
    ) -> tuple[Pairs[H], dict[int, Found]]:
        """Sums, and for each of some open nodes its candidates with their places among them.

        [ prefix sums | those with missing rows added | groups of categories, node after node ]
        """
        least = self.minimum
        self.released |= {node: least.groups(node) if least else None for node in nodes}
        histograms, key = self._histograms(rows, nodes), rows.adds
        self._keep(histograms, rows)
        cells = _joined([histograms[node] for node in nodes])
        prefix = self._prefix_sums(key, cells, len(nodes))
        missing = [self._cells_of.missing(self.growth.training.rows(node)) for node in nodes]
        listed = [self._listed(node, lacks) for node, lacks in zip(nodes, missing, strict=True)]
        grouped = [self._grouped(node, lacks) for node, lacks in zip(nodes, missing, strict=True)]
        found, base, absent = self._placed(nodes, listed, grouped)
        first, second = np.arange(len(prefix)), np.full(len(prefix), -1)
        rest = np.empty(0, np.int64)
        if self._by_category.any():
            by_group = self._group_sums(key, cells, grouped)
            rest = len(first) + np.arange(len(by_group))
            prefix = prefix.joined([by_group])
        sums = Pairs(
            prefix,
            np.concatenate([first, base, rest]),
            cells,
            np.concatenate([second, absent, np.full(len(rest), -1)]),
        )
        return sums, found

    def _placed(
        self,
        nodes: Sequence[int],
        listed: Sequence[Candidates],
        grouped: Sequence[Sequence[Categories]],
    ) -> tuple[dict[int, Found], Places, Places]:
        """Where the nodes' candidates are; which prefix sums and which cells of missing rows make
        up the second part.
        """
        width, per_node = int(self._ordered.sum()), int(self._starts[-1])
        with_missing = width * len(nodes)
        first_group = with_missing + sum(int(own.missing_left.sum()) for own in listed)
        first_bin = np.cumsum(self._ordered) - self._ordered
        found: dict[int, Found] = {}
        base, absent = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        for i, (node, own, columns) in enumerate(zip(nodes, listed, grouped, strict=True)):
            sums = i * width + first_bin[own.column] + own.bin.astype(np.int64)
            left = np.flatnonzero(own.missing_left)
            base.append(sums[left])
            absent.append(i * per_node + self._starts[own.column[left] + 1] - 1)
            sums[left] = with_missing + np.arange(len(left))
            with_missing += len(left)
            named = Candidates(self._columns[own.column], own.bin, own.missing_left)
            found[node] = Found(
                named, sums, tuple(replace(one, sums=first_group + one.sums) for one in columns)
            )
            first_group += sum(len(one.sums) for one in columns)
        return found, np.concatenate(base), np.concatenate(absent)

    def _prefix_sums(self, key: Adder[H], cells: H, nodes: int) -> H:
        """Of each column that thresholds divide, node after node, the sums up to each bin.

        They run within a column's bins; the cell of missing rows stays outside.
        """
        is_bin = np.repeat(~self._by_category, self._n_bins + 1)
        is_bin[self._starts[1:] - 1] = False
        present = np.flatnonzero(np.tile(is_bin, nodes))
        lengths = np.tile(self._ordered, nodes)
        return key.prefix_sums(cells[present], np.concatenate(([0], np.cumsum(lengths))))

    def _listed(self, node: int, missing: Bits) -> Candidates:
        """A node's candidates at thresholds, columns counted among those that the tree may use."""
        ordered = np.flatnonzero(~self._by_category).astype(np.int32)
        listed = split.candidates(self._n_bins.astype(np.int32), missing, ordered)
        if self.minimum is None:
            return listed
        (released,) = groups.released(self.minimum.stacked([node]), listed, self._n_bins)
        return Candidates(
            listed.column[released], listed.bin[released], listed.missing_left[released]
        )

    def _grouped(self, node: int, missing: Bits) -> list[Categories]:
        """A node's categorical columns, the places of their sums counted from the first one's."""
        found, first = [], 0
        for c in np.flatnonzero(self._by_category):
            segments = Segments.finest(int(self._n_bins[c]))
            if self.minimum is not None:
                segments = Segments.of(self.minimum.groups(node)[c], int(self._n_bins[c]))
            lacks = bool(missing[c]) and segments.apart
            sums = first + np.arange(len(segments) + lacks)
            found.append(Categories(int(self._columns[c]), segments, lacks, sums))
            first += len(sums)
        return found

    def _group_sums(self, key: Adder[H], cells: H, grouped: Sequence[Sequence[Categories]]) -> H:
        """The sums of the groups of categorical columns, node after node."""
        places, lengths = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        by_category = np.flatnonzero(self._by_category)
        for i, columns in enumerate(grouped):
            for c, one in zip(by_category, columns, strict=True):
                own = np.append(one.segments.lengths, np.ones(int(one.missing), np.int64))
                places.append(i * self._starts[-1] + self._starts[c] + np.arange(own.sum()))
                lengths.append(own)
        length = np.concatenate(lengths)
        held = cells[np.concatenate(places)]
        if (length == 1).all():
            return held
        ends = np.cumsum(length)
        return key.prefix_sums(held, np.concatenate(([0], ends)))[ends - 1]

    def _histograms(self, rows: HostRows[H], nodes: Sequence[int]) -> dict[int, H]:
        """The encrypted histogram of each node: added up, or its parent's minus its sibling's."""
        added = self._to_add(nodes)
        n_cells = int(self._starts[-1])
        found: dict[int, H] = {}
        if added:
            sums = self._added_up(rows, added)
            found = {node: sums[i * n_cells : (i + 1) * n_cells] for i, node in enumerate(added)}
        rest = [node for node in nodes if node not in found]
        if rest:
            siblings = self._cells | found
            above = _joined([self._parents[parent(node)] for node in rest])
            beside = _joined([siblings[sibling(node)] for node in rest])
            minus = rows.adds.subtract(above, beside)
            for i, node in enumerate(rest):
                found[node] = minus[i * n_cells : (i + 1) * n_cells]
        return {node: found[node] for node in nodes}

    def _to_add(self, nodes: Sequence[int]) -> list[int]:
        """Of two siblings the one with fewer rows, whether or not it is open itself; none where
        one of them has been made before.
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
        """Keeps cells for the next layer, while there is room."""
        room = KEPT_OCTETS_MAX // max(1, self._trees * self.octets(rows))
        if self._subtraction:
            for node, cells in histograms.items():
                if len(self._cells) < room:
                    self._cells[node] = cells

    def _added_up(self, rows: HostRows[H], added: Sequence[int]) -> H:
        """The cells of these nodes, node after node, from their rows."""
        own = [self.growth.training.rows(node) for node in added]
        asked, n_cells = self._cells_of.additions(own), int(self._starts[-1])
        place, skipped = self._place[asked.rows], asked.skipped
        sums = rows.sums(place, asked.cells, n_cells * len(added))
        if (skipped < 0).all():
            return sums
        joined = self._place[np.concatenate([np.empty(0, np.int32), *own])]
        node = np.repeat(np.arange(len(added), dtype=np.int32), [len(one) for one in own])
        totals = rows.sums(joined, node[:, None], len(added))
        base = (n_cells * np.arange(len(added))[:, None] + self._starts[:-1]).ravel()
        offsets = np.append(base, n_cells * len(added))
        left_out = np.tile(skipped, len(added))
        filled = np.where(left_out < 0, -1, base + left_out)
        return fill_skipped(rows.adds, sums, offsets, filled, totals)


def _joined(parts: Sequence[H]) -> H:
    return parts[0].joined(parts[1:]) if len(parts) > 1 else parts[0]
