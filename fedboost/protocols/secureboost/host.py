"""A host of secureboost: adds up gradients it cannot read, offers splits without their names."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fedboost import wire
from fedboost.core import binning, fixed_point, sampling, split
from fedboost.core.binning import Binning
from fedboost.core.bins import Bins, SparseBins, of_rows
from fedboost.core.categories import NO_THRESHOLD
from fedboost.core.partition import ROOT, left_child, right_child
from fedboost.crypto.api import Blinders, Ciphertexts, PublicKey
from fedboost.crypto.packing import GhLayout
from fedboost.crypto.schemes import SCHEMES
from fedboost.errors import PeerError, PolicyError
from fedboost.flow import Artefact, Out, Seat
from fedboost.messages.job_pb2 import Told
from fedboost.messages.protocol import secureboost_pb2 as pb
from fedboost.model import vertical, vocabulary
from fedboost.model.vertical import OwnSplit
from fedboost.protocols.secureboost import cells, plan
from fedboost.protocols.secureboost.growth import read_divisions
from fedboost.protocols.secureboost.host_tree import Found, HostTree
from fedboost.protocols.secureboost.offers import (
    Grouped,
    Offer,
    choices_bytes_max,
    read_choices,
    write_shapes,
)

Places = NDArray[np.int64]

FRONTIER_NODES_MAX = 1 << 14  # one layer of the deepest tree TreeParams allows
PART_MAX = 1 << 15  # ciphertexts in one part of the stream


@dataclass
class Host:
    """What a host remembers between steps."""

    seat: Seat
    binning: Binning
    bins: Bins
    key: PublicKey | None = None
    layout: GhLayout | None = None
    blinders: Blinders | None = None
    splits: list[OwnSplit] = field(default_factory=list)
    # The tree that grows
    number: int = -1
    tree: HostTree | None = None
    gradients: Ciphertexts | None = None
    offers: dict[int, Offer] = field(default_factory=dict)  # of this layer
    divided: dict[int, NDArray[np.bool_]] = field(default_factory=dict)  # our own, this layer

    def growing(self) -> HostTree:
        """The tree under way."""
        assert self.tree is not None
        return self.tree


def begin(seat: Seat) -> Host:
    """Bins the own columns, on training rows alone."""
    frame = seat.frame
    assert frame is not None
    train = ~seat.validation
    cuts = binning.fit(frame.values[train], seat.params.max_bin, frame.categorical)
    bins = cuts.transform(frame.values)
    if isinstance(bins, SparseBins) and not seat.params.sparse_histograms:
        bins = bins.dense()  # the switch is off: every zero is added up
    return Host(seat, cuts, bins)


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
        outputs=me.seat.params.n_outputs // me.seat.params.trees_per_round,
        pack=me.seat.params.gh_packing,
        compress=me.seat.params.cipher_compressing,
    )
    me.blinders = me.key.blinders()
    most = 2 * int(me.binning.n_bins.sum())
    me.blinders.prepare(me.layout.package_count([most]))
    return Out()


def receive_gradients(me: Host, got: Iterator[pb.EncryptedGradients]) -> Out:
    """The packed gradients of the rows that take part, checked; a new tree begins."""
    assert me.key is not None
    assert me.layout is not None
    parts: list[Ciphertexts] = []
    number, held, tree, lanes = 0, 0, None, len(me.layout.lanes)
    for part in got:
        if tree is None:
            number, tree = part.tree, _begun(me, part)
        rows, odd = divmod(part.rows.count, lanes)
        fits = 0 < rows <= tree.n_rows - held and not odd
        again = held > 0 and part.HasField("taking_part")
        if part.first_row != held or not fits or part.tree != number or again:
            raise PeerError(
                f"the guest sent gradients of row {part.first_row}, expected row {held}"
            )
        parts.append(Ciphertexts.received(part.rows.data, rows, me.key.width, lanes))
        me.key.check(parts[-1])
        held += rows
    if tree is None or held != tree.n_rows:
        expected = 0 if tree is None else tree.n_rows
        raise PeerError(f"the guest sent gradients of {held} rows, expected {expected}")
    me.number, me.tree, me.gradients = number, tree, Ciphertexts.concat(parts)
    me.offers, me.divided = {}, {}
    return Out()


def sum_candidates(me: Host, got: pb.Frontier) -> Out:
    """Encrypted sums of every candidate split of the open nodes, shuffled, compressed, blinded."""
    assert me.key is not None
    assert me.layout is not None
    assert me.blinders is not None
    assert me.gradients is not None
    _follow(me, got)
    tree = me.growing()
    sums, found = tree.candidate_sums(me.key, me.gradients)
    me.offers, sent = {}, [np.empty(0, np.int64)]
    for node, own in found.items():
        me.offers[node], places = _shuffled(me, node, own)
        sent.append(places)
    shapes = [offer.shape for offer in me.offers.values()]
    counts = [shape.n_sums for shape in shapes]
    released = me.key.release(sums[np.concatenate(sent)], me.layout, me.blinders, counts)
    me.blinders.prepare(2 * len(released))  # the next layer has up to twice as many nodes
    message = write_shapes(shapes)
    message.packages.CopyFrom(pb.Ciphertexts(count=len(released), data=released.to_bytes()))
    return Out(send=message)


def divide_rows(me: Host, got: pb.WonSplits) -> Out:
    """How the rows of the won nodes divide; of tied candidates the lowest column and bin count."""
    growth = me.growing().growth
    won = read_choices(got, me.offers)
    me.divided = {}
    for node, (column, place, missing_left, left_bins) in won.items():
        threshold = NO_THRESHOLD if left_bins else me.binning.threshold(column, place)
        me.splits.append(OwnSplit(me.number, node, column, threshold, missing_left, left_bins))
        bins = of_rows(me.bins, column, growth.everyone.rows(node))
        missing = me.binning.missing
        me.divided[node] = split.goes_right(bins, place, missing_left, missing, left_bins)
    bits = np.concatenate([np.empty(0, np.bool_), *me.divided.values()])
    return Out(
        send=pb.RowDivisions(
            nodes=wire.pack(np.array(list(won), np.int32)), goes_right=wire.pack_bits(bits)
        )
    )


def snapshot(me: Host) -> Artefact:
    """The splits of finished trees."""
    return Artefact({"tree": me.number}, vertical.splits_to_arrays(me.splits))


def restore(me: Host, kept: Artefact) -> Told:
    """Carries on after the last finished tree."""
    me.number = kept.facts["tree"]
    me.splits = vertical.arrays_to_splits(kept.arrays)
    return Told()


def finish(me: Host) -> Artefact:
    """The host's shard: its splits by column name."""
    frame = me.seat.frame
    assert frame is not None
    facts = {
        "columns": list(frame.columns),
        "categories": vocabulary.of(frame, me.binning),
        "trees": me.number + 1,
    }
    return Artefact(facts, vertical.splits_to_arrays(me.splits))


def bytes_max(me: Host, step: str) -> int:
    """As large as rows, nodes and offers make it."""
    if step == "receive_gradients":
        width = 0 if me.key is None else me.key.width
        return PART_MAX * width + me.bins.shape[0] // 8 + 1024
    if step == "sum_candidates":
        return me.bins.shape[0] // 8 + 8 * FRONTIER_NODES_MAX + 1024
    if step == "divide_rows":
        return choices_bytes_max(me.offers)
    return wire.CONTROL_BYTES_MAX


def _begun(me: Host, first: pb.EncryptedGradients) -> HostTree:
    """A tree at its root, with the rows that the guest says take part."""
    training = np.flatnonzero(~me.seat.validation)
    taking_part = np.ones(len(training), np.bool_)
    if first.HasField("taking_part"):
        what = "the rows that take part"
        taking_part = wire.unpack_bits(first.taking_part, len(training), what)
    params, table = me.seat.params, me.seat.table
    expected = plan.next_tree(params, table, me.seat.party, me.number)
    if first.tree != expected:
        raise PeerError(f"the guest began tree {first.tree}, expected tree {expected}")
    sampled = np.zeros(me.bins.shape[0], np.bool_)
    sampled[training[taking_part]] = True
    group = table.hosts.index(me.seat.party) + 1
    columns = sampling.own_columns(
        params.seed, first.tree, group, me.bins.shape[1], params.colsample_bytree
    )
    own = cells.of_columns(me.binning, me.bins, columns, leave_out=params.sparse_histograms)
    by_category, subtraction = me.binning.is_categorical[columns], params.histogram_subtraction
    return HostTree(own, by_category, sampled, columns, subtraction=subtraction)


def _follow(me: Host, got: pb.Frontier) -> None:
    """Divides the rows as the guest says, and checks that what it opens can be open."""
    tree = me.growing()
    divided = wire.unpack(got.divided, "i4", (None,), "the divided nodes").tolist()
    strangers = set(divided) - set(me.offers)
    if strangers or len(set(divided)) != len(divided) or set(me.divided) - set(divided):
        raise PeerError("the guest divided nodes that were not open, or not the ones it chose")
    rows = [len(tree.growth.everyone.rows(node)) for node in divided]
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
    tree.growth.divide(list(divisions.items()))
    tree.opened = opened


def _shuffled(me: Host, node: int, found: Found) -> tuple[Offer, Places]:
    """A node's offer in a fresh secret order, and the places of its sums in that order."""
    secrets, about = me.seat.secrets, (me.number, node)
    order = secrets.permutation(len(found.listed), "candidates", *about)
    places, grouped = [found.sums[order]], []
    for chosen in secrets.permutation(len(found.grouped), "columns", *about).tolist():
        column, cells, missing = found.grouped[chosen]
        bins = secrets.permutation(len(cells) - missing, "categories", *about, column)
        grouped.append(Grouped(column, bins, missing))
        places.append(np.append(cells[bins], cells[len(bins) :]))
    return Offer(found.listed, order, tuple(grouped)), np.concatenate(places)
