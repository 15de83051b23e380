"""Records of a party's trees, which it keeps to attack itself with later (`fedboost audit`).

A record is the party's own knowledge and never travels. A host records its bins and the sums that
left; a guest records its labels and the row divisions that each host could see. Records are handed
over round by round.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedboost.core.binning import Binning
from fedboost.core.bins import Bins, Dense, SparseBins, cell_type
from fedboost.core.partition import ROOT, parent
from fedboost.encrypted.guest.rounds import Rounds
from fedboost.encrypted.guest.tree import GuestTree
from fedboost.encrypted.host.tree import HostTree, HostTreeBatch
from fedboost.encrypted.scheme.params import EncryptedContext
from fedboost.flow import Artefact, Place
from fedboost.ground.state import Arrays

COLUMNS_KEPT_MAX = 32  # of a host's table, evenly spread: an audit draws from these

# Facts
HOST, GUEST = "host", "guest"  # values of `kind`
# Arrays; those of a tree stand behind its number.
CELLS = "cells"  # (training rows, columns kept)
AT, NODES, USED, GROUPS = "at", "nodes", "used", "groups"
Y, MARGIN, TRAINING, ROWS = "y", "margin", "training", "rows"

HeapIds = NDArray[np.int32]


def of_tree(number: int, name: str, host: int | None = None) -> str:
    """Return the name of a tree's array; `host` counts from 1, for arrays that differ by host."""
    return f"{number:06d}.{name}" if host is None else f"{number:06d}.{name}.{host}"


@dataclass
class TreeRecord:
    """Facts and arrays recorded since the last handover."""

    facts: dict[str, Any]
    start: Arrays  # brought by the first round beside its trees
    arrays: Arrays = field(default_factory=dict)
    begun: bool = False  # whether `start` has been handed over, by this attempt or another

    def handed_over(self, place: Place) -> Artefact | None:
        """Return the record as an artefact and empty it; None inside a round that has brought
        nothing.
        """
        if len(place) > 1 and not self.arrays:
            return None
        return self._take_artefact()

    def _take_artefact(self) -> Artefact:
        given = Artefact(self.facts, {**({} if self.begun else self.start), **self.arrays})
        self.arrays, self.begun = {}, True
        return given


class HostRecord(TreeRecord):
    """A host's record: the cells of each training row, and the sums that left, tree by tree."""

    def __init__(self, context: EncryptedContext, binning: Binning, bins: Bins) -> None:
        """Begin with bins (n, columns) of all rows of the stage; the record keeps some of the
        columns.
        """
        width, training = bins.shape[1], context.parts["train"]
        kept = np.linspace(0, max(0, width - 1), min(width, COLUMNS_KEPT_MAX))
        self._columns = np.unique(kept.round().astype(np.int32))
        self._training, self._n_cells, self._n_rows = training, binning.n_cells, bins.shape[0]
        self._noted = -1  # the last tree
        params = context.params
        facts = {
            "kind": HOST,
            "columns": [context.data.columns[column] for column in self._columns.tolist()],
            "values": 2 * params.n_outputs // params.trees_per_round,
            "noise": params.host_noise,
        }
        super().__init__(facts, {CELLS: _dense_columns(bins, self._columns)[training]})

    def add(self, tree_batch: HostTreeBatch) -> None:
        """Record trees that have grown as far as this host knows; a recorded tree is skipped."""
        for number, tree in enumerate(tree_batch.trees, start=tree_batch.first):
            if number > self._noted:
                self._noted = number
                self._add_tree(number, tree)

    def _add_tree(self, number: int, tree: HostTree) -> None:
        used = np.isin(self._columns, tree.columns)
        indices = np.searchsorted(tree.columns, self._columns[used])
        finest = np.tile(np.arange(self._n_cells), (len(indices), 1))
        opened = sorted(tree.released)
        groups = [finest if (held := tree.released[n]) is None else held[indices] for n in opened]
        at = tree.growth.training.node_of_rows(self._n_rows)[self._training]
        arrays: Mapping[str, NDArray[np.generic]] = {
            AT: at.astype(np.int16),  # MAX_DEPTH bounds heap ids
            NODES: np.array(opened, np.int32),
            USED: np.flatnonzero(used).astype(np.int32),
            GROUPS: np.array(groups, cell_type(self._n_cells)).reshape(
                len(opened), len(indices), self._n_cells
            ),
        }
        self.arrays |= {of_tree(number, name): array for name, array in arrays.items()}


class GuestRecord(TreeRecord):
    """The guest's record: the row divisions that each host could see, and the
    labels of the rows.
    """

    def __init__(self, context: EncryptedContext, rows: Mapping[str, NDArray[np.integer]]) -> None:
        """Begin with rows (m,) of each host: the guest's rows that it has, in the order it sees
        them.
        """
        hosts = list(rows)
        start: Arrays = {
            f"{ROWS}.{number}": rows[host].astype(np.int32)
            for number, host in enumerate(hosts, start=1)
        }
        super().__init__({"kind": GUEST, "hosts": hosts}, start)

    def add(self, number: int, host: int, at: HeapIds) -> None:
        """Record the nodes where the rows of the `host`-th host (from 1) stand in a tree, as far as
        it knows.
        """
        self.arrays[of_tree(number, AT, host)] = at.astype(np.int16)

    def closed(self, rounds: Rounds) -> Artefact:
        """Return the last artefact, with labels, margins and the training rows."""
        given = self._take_artefact()
        arrays = {Y: rounds.y, MARGIN: rounds.margin, TRAINING: ~rounds.context.validation}
        facts = {**given.facts, "objective": rounds.params.objective}
        return Artefact(facts, {**given.arrays, **arrays})


def nodes_seen(tree: GuestTree, n_rows: int, told: Collection[int], host: int) -> HeapIds:
    """Return each row's deepest node that the `host`-th host (from 1) sees, int32 (n_rows,).

    The host is `told` how some nodes divide, and knows the divisions of its own splits.
    """
    known = {*told, *(node for node, won in tree.won.items() if won.owner == host)}
    everyone, at = tree.growth.everyone, np.full(n_rows, -1, np.int32)
    for leaf in everyone.leaves():
        node = leaf
        while node != ROOT and parent(node) not in known:
            node = parent(node)
        at[everyone.rows(leaf)] = node
    return at


def _dense_columns(bins: Bins, columns: HeapIds) -> Dense:
    """Return the bins of some columns, a number for each row."""
    return bins.take(columns).dense() if isinstance(bins, SparseBins) else bins[:, columns]
