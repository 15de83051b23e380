"""A host of secureboost: adds up gradients it cannot read, offers splits without their names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fedboost import wire
from fedboost.core import binning, fixed_point, forest, sampling, split
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
from fedboost.model import vertical
from fedboost.model.vertical import OwnSplit
from fedboost.protocols.secureboost import cells, earlier, plan
from fedboost.protocols.secureboost.grove import STRIDE, Grove
from fedboost.protocols.secureboost.growth import read_divisions, read_sample
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
    splits: list[OwnSplit] = field(default_factory=list)  # of this job
    first_tree: int | None = None  # of this job, once the guest has said
    # The trees that grow
    number: int = -1  # of the first, counted with the trees of the model that the job continues
    grove: Grove[HostTree] | None = None
    gradients: Ciphertexts | None = None
    offers: dict[int, Offer] = field(default_factory=dict)  # of this layer
    divided: dict[int, NDArray[np.bool_]] = field(default_factory=dict)  # our own, this layer

    def growing(self) -> Grove[HostTree]:
        """The trees under way."""
        assert self.grove is not None
        return self.grove


def begin(seat: Seat) -> Host:
    """Bins the own columns, on training rows alone."""
    frame = seat.frame
    assert frame is not None
    train = ~seat.validation
    known = earlier.known_codes(seat)
    cuts = binning.fit(frame.values[train], seat.params.max_bin, frame.categorical, known)
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
    me.blinders.prepare(me.layout.package_count([most]))
    return Out()


def receive_gradients(me: Host, got: Iterator[pb.EncryptedGradients]) -> Out:
    """The packed gradients of the rows that take part, checked; new trees begin."""
    assert me.key is not None
    assert me.layout is not None
    parts: list[Ciphertexts] = []
    number, held, expected, lanes = 0, 0, 0, len(me.layout.lanes)
    grove: Grove[HostTree] | None = None
    for part in got:
        if grove is None:
            number, (grove, expected) = part.tree, _begun(me, part)
        rows, odd = divmod(part.rows.count, lanes)
        fits = 0 < rows <= expected - held and not odd
        again = held > 0 and (part.HasField("taking_part") or part.HasField("trees"))
        if part.first_row != held or not fits or part.tree != number or again:
            raise PeerError(
                f"the guest sent gradients of row {part.first_row}, expected row {held}"
            )
        parts.append(Ciphertexts.received(part.rows.data, rows, me.key.width, lanes))
        me.key.check(parts[-1])
        held += rows
    if grove is None or held != expected:
        raise PeerError(f"the guest sent gradients of {held} rows, expected {expected}")
    me.number, me.grove, me.gradients = number, grove, Ciphertexts.concat(parts)
    me.offers, me.divided = {}, {}
    return Out()


def sum_candidates(me: Host, got: pb.Frontier) -> Out:
    """Encrypted sums of every candidate split of the open nodes, shuffled, compressed, blinded."""
    assert me.key is not None
    assert me.layout is not None
    assert me.blinders is not None
    assert me.gradients is not None
    _follow(me, got)
    me.offers, sent = {}, []
    for slot, tree in enumerate(me.growing().trees):
        if not tree.opened:
            continue
        sums, found = tree.candidate_sums(me.key, me.gradients)
        for node, own in found.items():
            offer, places = _shuffled(me, me.number + slot, node, own)
            me.offers[slot * STRIDE + node] = offer
            sent.append(sums[places])
    shapes = [offer.shape for offer in me.offers.values()]
    counts = [shape.n_sums for shape in shapes]
    released = me.key.release(Ciphertexts.concat(sent), me.layout, me.blinders, counts)
    me.blinders.prepare(2 * len(released))  # the next layer has up to twice as many nodes
    message = write_shapes(shapes)
    message.packages.CopyFrom(pb.Ciphertexts(count=len(released), data=released.to_bytes()))
    return Out(send=message)


def divide_rows(me: Host, got: pb.WonSplits) -> Out:
    """How the rows of the won nodes divide; of tied candidates the lowest column and bin count."""
    grove, won = me.growing(), read_choices(got, me.offers)
    me.divided = {}
    for number, (column, place, missing_left, left_bins) in won.items():
        tree, node = grove.at(number)
        threshold = NO_THRESHOLD if left_bins else me.binning.threshold(column, place)
        rule = (column, threshold, missing_left, left_bins)
        me.splits.append(OwnSplit(me.number + number // STRIDE, node, *rule))
        bins = of_rows(me.bins, column, tree.growth.everyone.rows(node))
        missing = me.binning.missing
        me.divided[number] = split.goes_right(bins, place, missing_left, missing, left_bins)
    bits = np.concatenate([np.empty(0, np.bool_), *me.divided.values()])
    return Out(
        send=pb.RowDivisions(
            nodes=wire.pack(np.array(list(won), np.int32)), goes_right=wire.pack_bits(bits)
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
    return earlier.host_shard(me.seat, me.binning, me.first_tree, me.number, me.splits)


def bytes_max(me: Host, step: str) -> int:
    """As large as rows, nodes and offers make it."""
    trees = int(forest.sizes(me.seat.params).max())
    if step == "receive_gradients":
        width = 0 if me.key is None else me.key.width
        return PART_MAX * width + (1 + trees) * me.bins.shape[0] // 8 + 1024
    if step == "sum_candidates":
        return trees * (me.bins.shape[0] // 8 + 8 * FRONTIER_NODES_MAX) + 1024
    if step == "divide_rows":
        return choices_bytes_max(me.offers)
    return wire.CONTROL_BYTES_MAX


def _begun(me: Host, first: pb.EncryptedGradients) -> tuple[Grove[HostTree], int]:
    """Trees at their roots, and how many rows' gradients come: those that some tree learns from."""
    assert me.first_tree is not None
    params, table = me.seat.params, me.seat.table
    done = me.number - me.first_tree
    _, number, n_trees = plan.next_grove(params, table, me.seat.party, done)
    expected = me.first_tree + number
    if not n_trees or first.tree != expected:
        raise PeerError(f"the guest began tree {first.tree}, expected tree {expected}")
    (training,) = np.nonzero(~me.seat.validation)
    inside = np.zeros((n_trees, me.bins.shape[0]), np.bool_)
    inside[:, training] = read_sample(first, len(training), n_trees)
    taking_part = inside.any(axis=0)
    place = np.cumsum(taking_part) - 1
    group = table.hosts.index(me.seat.party) + 1
    trees = []
    for slot, sampled in enumerate(inside):
        columns = sampling.own_columns(
            *(params.seed, expected + slot, group, me.bins.shape[1], params.column_rate)
        )
        own = cells.of_columns(me.binning, me.bins, columns, leave_out=params.sparse_histograms)
        tree = HostTree(own, sampled, place, subtraction=params.histogram_subtraction)
        trees.append(tree)
    return Grove(trees), int(np.count_nonzero(taking_part))


def _follow(me: Host, got: pb.Frontier) -> None:
    """Divides the rows as the guest says, and checks that what it opens can be open."""
    grove = me.growing()
    divided = wire.unpack(got.divided, "i4", (None,), "the divided nodes").tolist()
    strangers = set(divided) - set(me.offers)
    if strangers or len(set(divided)) != len(divided) or set(me.divided) - set(divided):
        raise PeerError("the guest divided nodes that were not open, or not the ones it chose")
    rows = grove.n_rows(divided)
    divisions = read_divisions(got.divided, got.goes_right, divided, rows, "the guest")
    for number, bits in me.divided.items():
        if not np.array_equal(divisions[number], bits):
            raise PeerError(f"the guest divided node {number} otherwise than we did")
    own = grove.by_tree(divisions)
    opened = wire.unpack(got.open, "i4", (None,), "the open nodes").tolist()
    may_open = set(grove.numbers(_children(nodes) for nodes in own))
    fits = bool(opened) and set(opened) <= may_open and sorted(set(opened)) == opened
    if not me.offers:  # every tree begins
        fits = opened == grove.numbers([ROOT] for _ in own)
    if not fits:
        raise PeerError("the guest opened nodes that are not children of divided ones")
    for slot, (tree, mine) in enumerate(zip(grove.trees, own, strict=True)):
        tree.growth.divide(list(mine.items()))
        tree.opened = [number - slot * STRIDE for number in opened if number // STRIDE == slot]


def _children(nodes: Iterable[int]) -> list[int]:
    return [child for node in nodes for child in (left_child(node), right_child(node))]


def _shuffled(me: Host, tree: int, node: int, found: Found) -> tuple[Offer, Places]:
    """A node's offer in a fresh secret order, and the places of its sums in that order."""
    secrets, about = me.seat.secrets, (tree, node)
    order = secrets.permutation(len(found.listed), "candidates", *about)
    places, grouped = [found.sums[order]], []
    for chosen in secrets.permutation(len(found.grouped), "columns", *about).tolist():
        column, cells, missing = found.grouped[chosen]
        bins = secrets.permutation(len(cells) - missing, "categories", *about, column)
        grouped.append(Grouped(column, bins, missing))
        places.append(np.append(cells[bins], cells[len(bins) :]))
    return Offer(found.listed, order, tuple(grouped)), np.concatenate(places)
