"""A host of secureboost: adds up gradients it cannot read, offers splits without their names."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fedboost import wire
from fedboost.core import binning, fixed_point, sampling, split
from fedboost.core.binning import Binning
from fedboost.core.partition import ROOT, left_child, right_child
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
from fedboost.protocols.secureboost import earlier, plan
from fedboost.protocols.secureboost.growth import read_divisions
from fedboost.protocols.secureboost.host_tree import HostTree, Switches

Places = NDArray[np.int64]

FRONTIER_NODES_MAX = 1 << 14  # one layer of the deepest tree TreeParams allows
PART_MAX = 1 << 15  # ciphertexts in one part of the stream


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
    key: PublicKey | None = None
    layout: GhLayout | None = None
    blinders: Blinders | None = None
    splits: list[OwnSplit] = field(default_factory=list)  # of this job
    first_tree: int | None = None  # of this job, once the guest has said
    # The tree that grows
    number: int = -1  # counted with the trees of the model that the job continues
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
    cuts = binning.fit(frame.values[train], seat.params.max_bin)
    return Host(seat, cuts, cuts.transform(frame.values))


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
    earlier.check_first_tree(me.seat, got.first_tree)
    if me.first_tree is None:
        me.first_tree, me.number = got.first_tree, got.first_tree - 1
    if me.first_tree != got.first_tree:
        raise PeerError(
            f"the guest begins at tree {got.first_tree}, it began at {me.first_tree} before"
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
    me.blinders.prepare(len(me.layout.packages([most])))
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
    me.offers, indices = {}, [np.empty(0, np.int64)]
    for node, (listed, index) in found.items():
        order = me.seat.secrets.permutation(len(listed), "candidates", me.number, node)
        me.offers[node] = Offer(listed, order)
        indices.append(index[order])
    counts = [len(offer.order) for offer in me.offers.values()]
    released = me.key.release(sums[np.concatenate(indices)], me.layout, me.blinders, counts)
    me.blinders.prepare(2 * len(released))  # the next layer has up to twice as many nodes
    return Out(
        send=pb.CandidateSums(
            candidates=wire.pack(np.array(counts, np.int32)),
            packages=pb.Ciphertexts(count=len(released), data=released.to_bytes()),
        )
    )


def divide_rows(me: Host, got: pb.WonSplits) -> Out:
    """How the rows of the won nodes divide; of tied candidates the lowest column and bin count."""
    growth = me.growing().growth
    nodes, choices = _read_won(me, got)
    me.divided = {}
    for node, tied in zip(nodes, choices, strict=True):
        offer = me.offers[node]
        lowest = int(offer.order[tied].min())
        column, bin_number = int(offer.listed.column[lowest]), int(offer.listed.bin[lowest])
        missing_left = bool(offer.listed.missing_left[lowest])
        threshold = me.binning.threshold(column, bin_number)
        me.splits.append(OwnSplit(me.number, node, column, threshold, missing_left))
        bins = me.bins[growth.everyone.rows(node), column]
        me.divided[node] = split.goes_right(bins, bin_number, missing_left, me.binning.missing)
    bits = np.concatenate([np.empty(0, np.bool_), *me.divided.values()])
    return Out(
        send=pb.RowDivisions(
            nodes=wire.pack(np.array(nodes, np.int32)), goes_right=wire.pack_bits(bits)
        )
    )


def snapshot(me: Host) -> Artefact:
    """The splits of finished trees."""
    facts = {"tree": me.number, "first_tree": me.first_tree}
    return Artefact(facts, vertical.splits_to_arrays(me.splits))


def restore(me: Host, kept: Artefact) -> Told:
    """Carries on after the last finished tree."""
    me.number, me.first_tree = kept.facts["tree"], kept.facts["first_tree"]
    me.splits = vertical.arrays_to_splits(kept.arrays)
    return Told()


def finish(me: Host) -> Artefact:
    """The host's shard: its splits by column name."""
    assert me.first_tree is not None
    return earlier.host_shard(me.seat, me.first_tree, me.number, me.splits)


def bytes_max(me: Host, step: str) -> int:
    """As large as rows, nodes and offers make it."""
    if step == "receive_gradients":
        width = 0 if me.key is None else me.key.width
        return PART_MAX * width + len(me.bins) // 8 + 1024
    if step == "sum_candidates":
        return len(me.bins) // 8 + 8 * FRONTIER_NODES_MAX + 1024
    if step == "divide_rows":
        offered = sum(len(offer.order) for offer in me.offers.values())
        return 4 * offered + 8 * len(me.offers) + 1024
    return wire.CONTROL_BYTES_MAX


def _begun(me: Host, first: pb.EncryptedGradients) -> HostTree:
    """A tree at its root, with the rows that the guest says take part."""
    training = np.flatnonzero(~me.seat.validation)
    taking_part = np.ones(len(training), np.bool_)
    if first.HasField("taking_part"):
        what = "the rows that take part"
        taking_part = wire.unpack_bits(first.taking_part, len(training), what)
    params, table = me.seat.params, me.seat.table
    assert me.first_tree is not None
    done = me.number - me.first_tree
    expected = me.first_tree + plan.next_tree(params, table, me.seat.party, done)
    if first.tree != expected:
        raise PeerError(f"the guest began tree {first.tree}, expected tree {expected}")
    sampled = np.zeros(len(me.bins), np.bool_)
    sampled[training[taking_part]] = True
    group = table.hosts.index(me.seat.party) + 1
    columns = sampling.own_columns(
        params.seed, first.tree, group, me.bins.shape[1], params.colsample_bytree
    )
    switches = Switches(params.histogram_subtraction, params.sparse_histograms)
    return HostTree(me.binning, me.bins, sampled, columns, switches)


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


def _read_won(me: Host, got: pb.WonSplits) -> tuple[list[int], list[NDArray[np.int32]]]:
    """The won nodes and the tied candidates of each, all of them ours and offered in this layer."""
    nodes = wire.unpack(got.nodes, "i4", (None,), "the won nodes").tolist()
    tied = wire.unpack(got.tied, "i4", (len(nodes),), "the ties of the won nodes").astype(np.int64)
    if set(nodes) - set(me.offers) or len(set(nodes)) != len(nodes) or (tied < 1).any():
        raise PeerError("the guest chose splits of nodes that are not open")
    chosen = wire.unpack(got.candidates, "i4", (int(tied.sum()),), "the chosen candidates")
    choices = np.split(chosen.astype(np.int32), np.cumsum(tied)[:-1]) if nodes else []
    for node, choice in zip(nodes, choices, strict=True):
        if choice.min() < 0 or choice.max() >= len(me.offers[node].order):
            raise PeerError(f"the guest chose a candidate of node {node} that was not offered")
    return nodes, choices
