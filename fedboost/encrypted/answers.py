"""What a host answers, layer after layer: sums of its candidates, and how rows divide."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from fedboost import wire
from fedboost.core import split
from fedboost.core.binning import Binning
from fedboost.core.bins import Bins, of_rows
from fedboost.core.categories import NO_THRESHOLD
from fedboost.crypto.api import Ciphertexts
from fedboost.crypto.secrets import Secrets
from fedboost.encrypted.grove import STRIDE, Grove
from fedboost.encrypted.host_tree import Found, HostTree
from fedboost.encrypted.keys import HostKey
from fedboost.encrypted.offers import Grouped, Named, Offer, write_shapes
from fedboost.errors import PeerError
from fedboost.messages.protocol import encrypted_pb2 as pb
from fedboost.model.vertical import OwnSplit

Bits = NDArray[np.bool_]
Places = NDArray[np.int64]

PART_MAX = 1 << 15  # ciphertexts in one part of the stream of gradients


class Gradients:
    """The encrypted gradients of the rows that take part, as they come in."""

    def __init__(self, keys: HostKey, tree: int, n_rows: int) -> None:
        """Of so many rows, for the trees from number `tree` on."""
        self._keys, self._tree, self._expected = keys, tree, n_rows
        self._parts: list[Ciphertexts] = []
        self._held = 0

    def add(self, part: pb.EncryptedGradients) -> None:
        """Takes in the next part; a PeerError unless it goes on where the last one ended.

        Parts behind the last row are empty: streams to several hosts have as many parts each.
        """
        lanes, key = len(self._keys.layout.lanes), self._keys.key
        rows, odd = divmod(part.rows.count, lanes)
        due = self._expected - self._held
        fits = (0 < rows <= due or not (rows or due)) and not odd
        again = self._held > 0 and (part.HasField("taking_part") or part.HasField("trees"))
        if part.first_row != self._held or not fits or part.tree != self._tree or again:
            raise PeerError(
                f"the guest sent gradients of row {part.first_row}, expected row {self._held}"
            )
        self._parts.append(Ciphertexts.received(part.rows.data, rows, key.width, lanes))
        key.check(self._parts[-1])
        self._held += rows

    def whole(self) -> Ciphertexts:
        """All of them; a PeerError where some have not come."""
        if self._held != self._expected:
            raise PeerError(
                f"the guest sent gradients of {self._held} rows, expected {self._expected}"
            )
        return Ciphertexts.concat(self._parts)


def offered(
    grove: Grove[HostTree], first: int, keys: HostKey, gradients: Ciphertexts, secrets: Secrets
) -> tuple[pb.CandidateSums, dict[int, Offer]]:
    """Encrypted sums of every candidate split of the open nodes, shuffled, compressed, blinded.

    `first` is the number of the grove's first tree; the offers are by node.
    """
    offers, sent = {}, []
    for slot, tree in enumerate(grove.trees):
        if not tree.opened:
            continue
        sums, found = tree.candidate_sums(keys.key, gradients)
        for node, own in found.items():
            offer, places = _shuffled(secrets, first + slot, node, own)
            offers[slot * STRIDE + node] = offer
            sent.append(sums[places])
    shapes = [offer.shape for offer in offers.values()]
    counts = [shape.n_sums for shape in shapes]
    if not shapes:
        return write_shapes([]), {}
    released = keys.key.release(Ciphertexts.concat(sent), keys.layout, keys.blinders, counts)
    keys.blinders.prepare(2 * len(released))  # the next layer has up to twice as many nodes
    message = write_shapes(shapes)
    message.packages.CopyFrom(pb.Ciphertexts(count=len(released), data=released.to_bytes()))
    return message, offers


def divisions(
    grove: Grove[HostTree], won: Mapping[int, Named], binning: Binning, bins: Bins
) -> dict[int, Bits]:
    """Which rows of each won node go right."""
    found = {}
    for number, (column, place, missing_left, left_bins) in won.items():
        tree, node = grove.at(number)
        own = of_rows(bins, column, tree.growth.everyone.rows(node))
        found[number] = split.goes_right(own, place, missing_left, binning.missing, left_bins)
    return found


def named_splits(won: Mapping[int, Named], binning: Binning, first: int) -> Iterator[OwnSplit]:
    """The won splits for the shard; `first` is the number of the grove's first tree."""
    for number, (column, place, missing_left, left_bins) in won.items():
        threshold = NO_THRESHOLD if left_bins else binning.threshold(column, place)
        tree, node = divmod(number, STRIDE)
        yield OwnSplit(first + tree, node, column, threshold, missing_left, left_bins)


def write_divisions(divided: Mapping[int, Bits]) -> pb.RowDivisions:
    """The divisions as a message, node after node."""
    bits = np.concatenate([np.empty(0, np.bool_), *divided.values()])
    return pb.RowDivisions(
        nodes=wire.pack(np.array(list(divided), np.int32)), goes_right=wire.pack_bits(bits)
    )


def _shuffled(secrets: Secrets, tree: int, node: int, found: Found) -> tuple[Offer, Places]:
    """A node's offer in a fresh secret order, and the places of its sums in that order."""
    about = (tree, node)
    order = secrets.permutation(len(found.listed), "candidates", *about)
    places, grouped = [found.sums[order]], []
    for chosen in secrets.permutation(len(found.grouped), "columns", *about).tolist():
        column, cells, missing = found.grouped[chosen]
        bins = secrets.permutation(len(cells) - missing, "categories", *about, column)
        grouped.append(Grouped(column, bins, missing))
        places.append(np.append(cells[bins], cells[len(bins) :]))
    return Offer(found.listed, order, tuple(grouped)), np.concatenate(places)
