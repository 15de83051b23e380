"""A host of secureboost: adds up gradients it cannot read, offers splits without their names."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fedboost import wire
from fedboost.core import binning, fixed_point, histogram, split
from fedboost.core.binning import Binning
from fedboost.core.partition import ROOT, left_child, parent, right_child, sibling
from fedboost.core.split import Candidates
from fedboost.crypto.api import Blinders, Ciphertexts, PublicKey
from fedboost.crypto.packing import GhLayout
from fedboost.crypto.schemes import SCHEMES
from fedboost.errors import PeerError, PolicyError
from fedboost.flow import Artefact, Out, Seat
from fedboost.messages.job_pb2 import Told
from fedboost.messages.protocol import secureboost_pb2 as pb
from fedboost.model import vertical
from fedboost.model.vertical import OwnSplit
from fedboost.protocols.secureboost.growth import Growth, read_divisions

Places = NDArray[np.int64]

FRONTIER_NODES_MAX = 1 << 14  # one layer of the deepest tree TreeParams allows
PART_ROWS_MAX = 1 << 15  # gradients in one part of the stream


@dataclass
class Offer:
    """What a host has offered for one node: its candidates, and the order they went out in."""

    listed: Candidates
    order: Places  # place k of what was sent is candidate order[k]


@dataclass
class Host:
    """What a host remembers between steps."""

    seat: Seat
    binning: Binning
    bins: NDArray[np.uint8]
    place: Places  # of each training row among the encrypted gradients
    key: PublicKey | None = None
    layout: GhLayout | None = None
    blinders: Blinders | None = None
    splits: list[OwnSplit] = field(default_factory=list)
    trees: int = 0  # begun so far
    # The tree that grows
    gradients: Ciphertexts | None = None
    growth: Growth | None = None
    cells: dict[int, Ciphertexts] = field(default_factory=dict)  # encrypted histograms of a layer
    opened: list[int] = field(default_factory=list)
    offers: dict[int, Offer] = field(default_factory=dict)
    divided: dict[int, NDArray[np.bool_]] = field(default_factory=dict)  # our own, this layer

    @property
    def starts(self) -> Places:
        """Where each column's cells begin in a node's: its bins, then the one of missing rows."""
        return np.concatenate(([0], np.cumsum(self.binning.n_bins.astype(np.int64) + 1)))


def begin(seat: Seat) -> Host:
    """Bins the own columns, on training rows alone."""
    frame = seat.frame
    assert frame is not None
    train = ~seat.validation
    cuts = binning.fit(frame.values[train], seat.params.max_bin)
    return Host(seat, cuts, cuts.transform(frame.values), np.cumsum(train) - 1)


def accept_key(me: Host, got: pb.EncryptionKey) -> Out:
    """Takes the guest's key, if it is sound and as strong as the job and our policy say."""
    asked, limits = me.seat.params.encryption, me.seat.limits
    if got.scheme != asked.scheme:
        raise PeerError(f"the guest sent a {got.scheme[:32]!r} key, the job says {asked.scheme}")
    if got.value_bits > limits.gradient_bits_max:
        raise PolicyError(
            f"the policy allows {limits.gradient_bits_max} bits per gradient, "
            f"the guest declares {got.value_bits}",
            todo="lower precision_bits, or ask the party's owner",
            key="policy.gradient_bits_max",
        )
    n_rows = int(np.count_nonzero(~me.seat.validation))
    bits = fixed_point.for_rows(n_rows, me.seat.params.precision_bits, 1.0, 1.0).bits
    if got.value_bits != bits:
        raise PeerError(
            f"the guest declares {got.value_bits} bits per gradient, the job has {bits}"
        )
    me.key = SCHEMES[asked.scheme].load_public(got.key, asked.key_bits, me.seat.workers)
    me.layout = GhLayout(
        value_bits=got.value_bits,
        n_rows=n_rows,
        plaintext_bits=me.key.plaintext_bits,
        compress=me.seat.params.cipher_compressing,
    )
    me.blinders = me.key.blinders()
    most = 2 * int(me.binning.n_bins.sum())
    me.blinders.prepare(len(me.layout.package_sizes([most])))
    return Out()


def receive_gradients(me: Host, got: Iterator[pb.EncryptedGradients]) -> Out:
    """The packed gradients of every training row, checked; a new tree begins."""
    assert me.key is not None
    n_rows = int(np.count_nonzero(~me.seat.validation))
    parts: list[Ciphertexts] = []
    held = 0
    for part in got:
        if part.first_row != held or not 0 < part.rows.count <= n_rows - held:
            raise PeerError(
                f"the guest sent gradients of row {part.first_row}, expected row {held}"
            )
        parts.append(Ciphertexts.received(part.rows.data, part.rows.count, me.key.width))
        me.key.check(parts[-1])
        held += part.rows.count
    if held != n_rows:
        raise PeerError(f"the guest sent gradients of {held} rows, expected {n_rows}")
    me.gradients = Ciphertexts.concat(parts)
    me.growth = Growth(~me.seat.validation)
    me.cells, me.offers, me.divided = {}, {}, {}
    me.trees += 1
    return Out()


def sum_candidates(me: Host, got: pb.Frontier) -> Out:
    """Encrypted sums of every candidate split of the open nodes, shuffled, compressed, blinded."""
    assert me.key is not None
    assert me.layout is not None
    assert me.blinders is not None
    _follow(me, got)
    me.cells = _histograms(me)
    sums, indices = _candidate_sums(me)
    counts = [len(index) for index in indices]
    shuffled = sums[np.concatenate([np.empty(0, np.int64), *indices])]
    released = me.key.release(shuffled, me.layout, me.blinders, counts)
    me.blinders.prepare(2 * len(released))  # the next layer has up to twice as many nodes
    return Out(
        send=pb.CandidateSums(
            candidates=wire.pack(np.array(counts, np.int32)),
            packages=pb.Ciphertexts(count=len(released), data=released.to_bytes()),
        )
    )


def divide_rows(me: Host, got: pb.WonSplits) -> Out:
    """How the rows of the won nodes divide; of tied candidates the lowest column and bin count."""
    assert me.growth is not None
    nodes, choices = _read_won(me, got)
    me.divided = {}
    for node, tied in zip(nodes, choices, strict=True):
        offer = me.offers[node]
        lowest = int(offer.order[tied].min())
        column, bin_number = int(offer.listed.column[lowest]), int(offer.listed.bin[lowest])
        missing_left = bool(offer.listed.missing_left[lowest])
        threshold = me.binning.threshold(column, bin_number)
        me.splits.append(OwnSplit(me.trees - 1, node, column, threshold, missing_left))
        bins = me.bins[me.growth.everyone.rows(node), column]
        me.divided[node] = split.goes_right(bins, bin_number, missing_left, me.binning.missing)
    bits = np.concatenate([np.empty(0, np.bool_), *me.divided.values()])
    return Out(
        send=pb.RowDivisions(
            nodes=wire.pack(np.array(nodes, np.int32)), goes_right=wire.pack_bits(bits)
        )
    )


def snapshot(me: Host) -> Artefact:
    """The splits of finished trees."""
    return Artefact({"trees": me.trees}, vertical.splits_to_arrays(me.splits))


def restore(me: Host, kept: Artefact) -> Told:
    """Carries on after the last finished tree."""
    me.trees = kept.facts["trees"]
    me.splits = vertical.arrays_to_splits(kept.arrays)
    return Told()


def finish(me: Host) -> Artefact:
    """The host's shard: its splits by column name."""
    frame = me.seat.frame
    assert frame is not None
    facts = {"columns": list(frame.columns), "trees": me.trees}
    return Artefact(facts, vertical.splits_to_arrays(me.splits))


def bytes_max(me: Host, step: str) -> int:
    """As large as rows, nodes and offers make it."""
    if step == "receive_gradients":
        return 0 if me.key is None else PART_ROWS_MAX * me.key.width + 1024
    if step == "sum_candidates":
        return len(me.bins) // 8 + 8 * FRONTIER_NODES_MAX + 1024
    if step == "divide_rows":
        offered = sum(len(offer.order) for offer in me.offers.values())
        return 4 * offered + 8 * len(me.opened) + 1024
    return wire.CONTROL_BYTES_MAX


def _follow(me: Host, got: pb.Frontier) -> None:
    """Divides the rows as the guest says, and checks that what it opens can be open."""
    assert me.growth is not None
    divided = wire.unpack(got.divided, "i4", (None,), "the divided nodes").tolist()
    strangers = set(divided) - set(me.opened if me.offers else [])
    if strangers or len(set(divided)) != len(divided) or set(me.divided) - set(divided):
        raise PeerError("the guest divided nodes that were not open, or not the ones it chose")
    rows = [len(me.growth.everyone.rows(node)) for node in divided]
    divisions = read_divisions(got.divided, got.goes_right, divided, rows, "the guest")
    for node, bits in me.divided.items():
        if not np.array_equal(divisions[node], bits):
            raise PeerError(f"the guest divided node {node} otherwise than we did")
    may_open = {child for node in divided for child in (left_child(node), right_child(node))}
    opened = wire.unpack(got.open, "i4", (None,), "the open nodes").tolist()
    if not me.offers:
        may_open = {ROOT}
    if not opened or set(opened) - may_open or sorted(set(opened)) != opened:
        raise PeerError("the guest opened nodes that are not children of divided ones")
    me.growth.divide(list(divisions.items()))
    me.opened = opened


def _histograms(me: Host) -> dict[int, Ciphertexts]:
    """The encrypted histogram of every open node: added up, or the parent's minus the sibling's."""
    assert me.growth is not None
    assert me.key is not None
    assert me.gradients is not None
    growth = me.growth
    added = _to_add(me)
    starts, n_cells = me.starts[:-1], int(me.starts[-1])
    rows = [growth.training.rows(node) for node in added]
    joined = np.concatenate([np.empty(0, np.int32), *rows])
    slot = np.repeat(np.arange(len(added)), [len(own) for own in rows])
    bins = np.minimum(
        me.bins[joined], me.binning.n_bins.astype(np.uint8)
    )  # missing: after the last
    cells = (bins + (starts + n_cells * slot[:, None])).astype(np.int32)
    sums = me.key.segment_sum(me.gradients, me.place[joined], cells, n_cells * len(added))
    found = {node: sums[i * n_cells : (i + 1) * n_cells] for i, node in enumerate(added)}
    rest = [node for node in me.opened if node not in found]
    if rest:
        parents = Ciphertexts.concat([me.cells[parent(node)] for node in rest])
        siblings = Ciphertexts.concat([found[sibling(node)] for node in rest])
        minus = me.key.subtract(parents, siblings)
        for i, node in enumerate(rest):
            found[node] = minus[i * n_cells : (i + 1) * n_cells]
    return {node: found[node] for node in me.opened}


def _to_add(me: Host) -> list[int]:
    """Of two siblings the one with fewer training rows, whether or not it is open itself."""
    assert me.growth is not None
    if not me.seat.params.histogram_subtraction or me.opened == [ROOT]:
        return list(me.opened)
    size = {node: len(me.growth.training.rows(node)) for node in me.growth.training.leaves()}
    smaller = {
        node if (size[node], node) < (size[sibling(node)], sibling(node)) else sibling(node)
        for node in me.opened
    }
    return sorted(smaller)


def _candidate_sums(me: Host) -> tuple[Ciphertexts, list[Places]]:
    """Sums left of every candidate; and for each node, where its candidates lie, shuffled."""
    assert me.growth is not None
    assert me.key is not None
    n_bins = me.binning.n_bins.astype(np.int64)
    nodes = Ciphertexts.concat([me.cells[node] for node in me.opened])
    per_node, width = int(me.starts[-1]), int(n_bins.sum())
    # Prefix sums run within a column's bins; the cell of missing rows stays outside.
    is_bin = np.ones(per_node, np.bool_)
    is_bin[me.starts[1:] - 1] = False
    present = np.flatnonzero(np.tile(is_bin, len(me.opened)))
    lengths = np.tile(n_bins, len(me.opened))
    prefix = me.key.prefix_sums(nodes[present], np.concatenate(([0], np.cumsum(lengths))))
    first_bin = np.concatenate(([0], np.cumsum(n_bins)))[:-1]
    indices, base, absent = [], [], []
    me.offers = {}
    rows = [me.growth.training.rows(node) for node in me.opened]
    has_missing = histogram.has_missing(me.bins, rows, me.binning.missing)
    with_missing = 0
    for i, node in enumerate(me.opened):
        listed = split.candidates(me.binning.n_bins, has_missing[i])
        index = i * width + first_bin[listed.column] + listed.bin.astype(np.int64)
        left = np.flatnonzero(listed.missing_left)
        base.append(index[left])
        absent.append(i * per_node + me.starts[listed.column[left] + 1] - 1)
        index[left] = len(prefix) + with_missing + np.arange(len(left))
        with_missing += len(left)
        order = me.seat.secrets.permutation(len(listed), "candidates", me.trees, node)
        me.offers[node] = Offer(listed, order)
        indices.append(index[order])
    missing_left = me.key.add(prefix[np.concatenate(base)], nodes[np.concatenate(absent)])
    return Ciphertexts.concat([prefix, missing_left]), indices


def _read_won(me: Host, got: pb.WonSplits) -> tuple[list[int], list[NDArray[np.int32]]]:
    """The won nodes and the tied candidates of each, all of them ours and offered in this layer."""
    nodes = wire.unpack(got.nodes, "i4", (None,), "the won nodes").tolist()
    tied = wire.unpack(got.tied, "i4", (len(nodes),), "the ties of the won nodes")
    if set(nodes) - set(me.opened) or len(set(nodes)) != len(nodes) or (tied < 1).any():  # type: ignore[operator]
        raise PeerError("the guest chose splits of nodes that are not open")
    counts = tied.astype(np.int64)
    chosen = wire.unpack(got.candidates, "i4", (int(counts.sum()),), "the chosen candidates")
    choices = np.split(chosen.astype(np.int32), np.cumsum(counts)[:-1]) if nodes else []
    for node, choice in zip(nodes, choices, strict=True):
        if choice.min() < 0 or choice.max() >= len(me.offers[node].order):
            raise PeerError(f"the guest chose a candidate of node {node} that was not offered")
    return nodes, choices
