"""A host's work besides sums, layer after layer: accepting gradients and dividing rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedboost.core import split
from fedboost.core.binning import Binning
from fedboost.core.bins import Bins, bins_of_rows
from fedboost.core.categories import NO_THRESHOLD
from fedboost.encrypted.cells.candidates import Named
from fedboost.encrypted.host.tree import HostTree
from fedboost.encrypted.scheme.ciphers import HostCipher, HostRows
from fedboost.encrypted.tree.batch import STRIDE, TreeBatch
from fedboost.ground import wire
from fedboost.ground.arrays import Bits, Rows
from fedboost.ground.errors import PeerError
from fedboost.ground.mapped import array_beside
from fedboost.messages.protocol import encrypted_pb2 as pb
from fedboost.model.vertical import OwnSplit

Group = list[tuple[int, list[int]]]  # places of trees, and nodes of each


class ReceivedGradients:
    """The encrypted gradients of the rows that take part, as their parts arrive."""

    def __init__(
        self, side: HostCipher, first: pb.EncryptedGradients, n_rows: int, bins: Bins
    ) -> None:
        """Begin with so many rows, for the trees from the `first` part's on; `add` that part, too.
        They lie in a file if `bins` do.
        """
        self._side, self._tree, self._key = side, first.tree, first.tree_key
        self._expected, self._held, self._bins = n_rows, 0, bins
        self._rows: NDArray[Any] | None = None

    def add(self, part: pb.EncryptedGradients) -> None:
        """Append the next part; a PeerError unless it continues at the end of the last one.

        Parts behind the last row are empty: streams to several hosts have as many parts each.
        """
        rows, odd = divmod(part.rows.count, self._side.sizes.per_row)
        due = self._expected - self._held
        fits = (0 < rows <= due or not (rows or due)) and not odd
        told = part.HasField("taking_part") or part.HasField("trees") or part.tree_key
        again = self._rows is not None and told
        if part.first_row != self._held or not fits or part.tree != self._tree or again:
            raise PeerError(
                f"the guest sent gradients of row {part.first_row}, expected row {self._held}"
            )
        came = self._side.read_part(part.rows.data, rows)
        if self._rows is None:
            shape = self._expected, *came.shape[1:]
            self._rows = array_beside(self._bins, shape, came.dtype)
        self._rows[self._held : self._held + rows] = came
        self._held += rows

    def whole(self) -> HostRows[Any]:
        """Return the rows of all parts; a PeerError if some have not arrived."""
        if self._held != self._expected:
            raise PeerError(
                f"the guest sent gradients of {self._held} rows, expected {self._expected}"
            )
        assert self._rows is not None
        return self._side.rows(self._rows, self._tree, self._key)


def divisions(
    tree_batch: TreeBatch[HostTree], won: Mapping[int, Named], binning: Binning, bins: Bins
) -> dict[int, Bits]:
    """Return which rows of each won node go right."""
    rights = {}
    for number, (column, place, missing_left, left_bins) in won.items():
        tree, node = tree_batch.at(number)
        tree.note_split(node, (column, place, missing_left, left_bins))
        named = column, place, missing_left, left_bins
        rights[number] = goes_right(named, tree.growth.everyone.rows(node), binning, bins)
    return rights


def goes_right(named: Named, rows: Rows, binning: Binning, bins: Bins) -> Bits:
    """Return which of some rows a split of ours sends right."""
    column, place, missing_left, left_bins = named
    cells = bins_of_rows(bins, column, rows)
    return split.goes_right(cells, place, missing_left, binning.missing, left_bins)


def named_splits(won: Mapping[int, Named], binning: Binning, first: int) -> Iterator[OwnSplit]:
    """Yield the won splits for the shard; `first` is the number of the batch's first tree."""
    for number, (column, place, missing_left, left_bins) in won.items():
        threshold = NO_THRESHOLD if left_bins else binning.threshold(column, place)
        tree, node = divmod(number, STRIDE)
        yield OwnSplit(first + tree, node, column, threshold, missing_left, left_bins)


def write_divisions(divided: Mapping[int, Bits]) -> pb.RowDivisions:
    """Return the message of divisions, node after node."""
    bits = np.concatenate([np.empty(0, np.bool_), *divided.values()])
    return pb.RowDivisions(
        nodes=wire.pack(np.array(list(divided), np.int32)), goes_right=wire.pack_bits(bits)
    )
