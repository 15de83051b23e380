"""What a host answers, layer after layer: sums of its candidates, and how rows divide."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedboost import wire
from fedboost.core import split
from fedboost.core.binning import Binning
from fedboost.core.bins import Bins, of_rows
from fedboost.core.categories import NO_THRESHOLD
from fedboost.crypto.secrets import Secrets
from fedboost.encrypted.grove import STRIDE, Grove
from fedboost.encrypted.host_noise import HostNoise
from fedboost.encrypted.host_tree import CELLS_OCTETS_MAX, Found, HostTree
from fedboost.encrypted.offers import Grouped, Named, Offer, Shape, write_shapes
from fedboost.encrypted.sides import Asked, HostRows, HostSide
from fedboost.errors import PeerError
from fedboost.flow import About
from fedboost.messages.protocol import encrypted_pb2 as pb
from fedboost.model.vertical import OwnSplit

Bits = NDArray[np.bool_]
Places = NDArray[np.int64]
Rows = NDArray[np.int32]
Sums = NDArray[np.int64]
Group = list[tuple[int, list[int]]]  # places of trees, and nodes of each


class Gradients:
    """The encrypted gradients of the rows that take part, as they come in."""

    def __init__(self, side: HostSide, first: pb.EncryptedGradients, n_rows: int) -> None:
        """Of so many rows, for the trees from the `first` part's on; `add` that part, too."""
        self._side, self._tree, self._key = side, first.tree, first.tree_key
        self._expected, self._held = n_rows, 0
        self._parts: list[Any] = []

    def add(self, part: pb.EncryptedGradients) -> None:
        """Takes in the next part; a PeerError unless it goes on where the last one ended.

        Parts behind the last row are empty: streams to several hosts have as many parts each.
        """
        rows, odd = divmod(part.rows.count, self._side.per_row)
        due = self._expected - self._held
        fits = (0 < rows <= due or not (rows or due)) and not odd
        told = part.HasField("taking_part") or part.HasField("trees") or part.tree_key
        again = bool(self._parts) and told
        if part.first_row != self._held or not fits or part.tree != self._tree or again:
            raise PeerError(
                f"the guest sent gradients of row {part.first_row}, expected row {self._held}"
            )
        self._parts.append(self._side.received(part.rows.data, rows))
        self._held += rows

    def whole(self) -> HostRows[Any]:
        """All of them; a PeerError where some have not come."""
        if self._held != self._expected:
            raise PeerError(
                f"the guest sent gradients of {self._held} rows, expected {self._expected}"
            )
        return self._side.rows(self._parts, self._tree, self._key)


def offered(
    grove: Grove[HostTree[Any]], first: int, rows: HostRows[Any], secrets: Secrets
) -> Iterator[tuple[pb.CandidateSums, dict[int, Offer]]]:
    """Encrypted sums of every candidate split of the open nodes, shuffled, on their way out.

    In parts, each with the offers that begin in it, by node; `first` is the number of the grove's
    first tree.
    """
    for tree in grove.trees:
        tree.begin_layer()
    for group in _at_once(grove, rows):
        asked, offers = [], dict[int, Offer]()
        for slot, nodes in group:
            tree = grove.trees[slot]
            sums, found = tree.candidate_sums(rows, nodes)
            for node, own in found.items():
                offer, order = _shuffled(secrets, first + slot, node, own)
                offers[slot * STRIDE + node] = offer
                training = tree.growth.training.rows(node)
                noise = None
                if rows.noise is not None:
                    noise = _noise(rows.noise, first + slot, node, training, own)[order]
                places = np.concatenate([own.sums, *(one.sums for one in own.grouped)])[order]
                asked.append(Asked(first + slot, node, len(training), sums[places], noise))
        if not asked:
            yield write_shapes([]), {}
            return
        shapes = [offer.shape for offer in offers.values()]
        yield from _parts(shapes, rows.answers(asked), offers)


def about_offers(grove: Grove[HostTree[Any]], offers: Mapping[int, Offer]) -> About:
    """Who is behind the sums of some nodes; of the parts of a stream, of the first of them."""
    at = [grove.at(number) for number in offers]
    if not at:
        return About()
    rows = sum(len(tree.growth.training.rows(node)) for tree, node in at)
    sums = sum(offer.shape.n_sums for offer in offers.values())
    smallest = [own for tree, node in at if (own := tree.smallest_group(node)) is not None]
    return About(rows, sums, min(smallest, default=None))


def _at_once(grove: Grove[HostTree[Any]], rows: HostRows[Any]) -> Iterator[Group]:
    """The open nodes, tree by tree, in groups whose cells fit into memory together; one at least,
    which may be empty.
    """
    group: Group = []
    room = CELLS_OCTETS_MAX
    for slot, tree in enumerate(grove.trees):
        each = max(1, tree.octets(rows))
        left = list(tree.opened)
        while left:
            if each > room and group:
                yield group
                group, room = [], CELLS_OCTETS_MAX
            fits = max(1, room // each)
            group.append((slot, left[:fits]))
            room, left = room - each * len(left[:fits]), left[fits:]
    yield group


def _parts(
    shapes: list[Shape], answers: Iterator[pb.Ciphertexts], offers: dict[int, Offer]
) -> Iterator[tuple[pb.CandidateSums, dict[int, Offer]]]:
    """The first part says how the sums are arranged, whether or not there are any."""
    message = write_shapes(shapes)
    message.packages.CopyFrom(next(answers, pb.Ciphertexts()))
    yield message, offers
    for packages in answers:
        yield pb.CandidateSums(packages=packages), {}


def divisions(
    grove: Grove[HostTree[Any]], won: Mapping[int, Named], binning: Binning, bins: Bins
) -> dict[int, Bits]:
    """Which rows of each won node go right."""
    found = {}
    for number, (column, place, missing_left, left_bins) in won.items():
        tree, node = grove.at(number)
        tree.note_split(node, (column, place, missing_left, left_bins))
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
    """A node's offer in a fresh secret order, and that order of its sums: candidates at thresholds
    and behind them each categorical column's, as they are found.
    """
    about = (tree, node)
    order = secrets.permutation(len(found.listed), "candidates", *about)
    places, grouped = [order], []
    ends = len(order) + np.cumsum([len(own.sums) for own in found.grouped], dtype=np.int64)
    for chosen in secrets.permutation(len(found.grouped), "columns", *about).tolist():
        own = found.grouped[chosen]
        count = len(own.sums)
        bins = secrets.permutation(count - own.missing, "categories", *about, own.column)
        grouped.append(Grouped(own.column, bins, own.missing, own.segments))
        first = ends[chosen] - count
        places += [first + bins, np.arange(first + len(bins), ends[chosen])]
    return Offer(found.listed, order, tuple(grouped)), np.concatenate(places)


def _noise(noise: HostNoise, tree: int, node: int, training: Rows, found: Found) -> Sums:
    """What is added to a node's sums, in the order in which they are found."""
    cells = [len(own.sums) for own in found.grouped]
    return np.concatenate(noise.of_node((tree, node), training, found.listed, cells))
