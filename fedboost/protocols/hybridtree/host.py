"""A host of hybridtree: the lower layers, on its own columns, over gradients it cannot read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedboost import wire
from fedboost.core import binning, sampling
from fedboost.core.binning import Binning
from fedboost.core.bins import Bins, SparseBins
from fedboost.core.partition import left_child, right_child
from fedboost.crypto.leaf_values import LeafLayout
from fedboost.encrypted import answers, cells, keys, leaf_values
from fedboost.encrypted.answer_steps import (
    hear_answer_keys,
    learn_shared,
    offer_answer_key,
    shared_bytes_max,
)
from fedboost.encrypted.answers import Gradients
from fedboost.encrypted.candidates import Named, choices_bytes_max, read_choices
from fedboost.encrypted.growth import Growth, about_divisions, about_leaves, read_sample
from fedboost.encrypted.host_tree import HostGrove, HostTree, HostTreeState
from fedboost.encrypted.leaf_answers import MaskingHost, Precision, answered
from fedboost.encrypted.leaf_values import LeafValues
from fedboost.encrypted.meter import Meter, ordered
from fedboost.encrypted.packed import HostKey, PackedHost, PackedHostRows
from fedboost.encrypted.record import HostRecord
from fedboost.encrypted.release import release
from fedboost.encrypted.sides import HostRows, HostSide
from fedboost.errors import PeerError, ProtocolError
from fedboost.flow import Artefact, Charge, Out, Place, Seat
from fedboost.messages.array_pb2 import Array
from fedboost.messages.job_pb2 import Told
from fedboost.messages.protocol.encrypted_pb2 import EncryptionKey, Nonce
from fedboost.messages.protocol.hybridtree_pb2 import BottomRows, ChosenSplits
from fedboost.model import columns, hybrid, vertical
from fedboost.model.vertical import OwnSplit
from fedboost.protocols.hybridtree.unscored import Cutter
from fedboost.slot import Slot
from fedboost.state import state

__all__ = (
    "accept_key", "answer_rows", "begin", "bytes_max", "divide_rows", "finish",
    "hear_answer_keys", "learn_shared", "offer_answer_key", "offer_nonce", "receive_gradients",
    "restore", "snapshot", "sum_candidates",
)  # fmt: skip

Bits = NDArray[np.bool_]
Rows = NDArray[np.int32]


@state
class HybridTreeHostState:
    """What a checkpoint keeps: the splits so far, and a tree under way."""

    splits: list[OwnSplit]
    number: int
    is_recorded: bool
    under_way: HostTreeState | None
    leaves: list[LeafValues]  # with unscored splits
    key: bytes  # under which they are


CHECKPOINT = HybridTreeHostState  # what `snapshot` keeps


@dataclass
class Host:
    """What a host remembers between steps."""

    seat: Seat
    binning: Binning
    bins: Bins
    meter: Meter
    record: HostRecord  # for an audit of our own
    splits: list[OwnSplit] = field(default_factory=list)
    # The tree that grows, or the last one
    grove: HostGrove = field(default_factory=HostGrove)
    # With unscored splits
    leaves: list[LeafValues] = field(default_factory=list)  # of finished trees
    earlier_key: bytes = b""  # of an attempt that this one carries on
    side = Slot[HostSide]("a key of the guest")
    gradients = Slot[HostRows[Any]]("gradients of this attempt")
    answering = Slot[MaskingHost]("masks of a job with unscored splits")

    @property
    def is_scored(self) -> bool:
        """Return whether the guest chooses our splits."""
        return bool(self.seat.params.split == "scored")

    @property
    def n_rows(self) -> int:
        """Our rows, those that are held out among them."""
        return self.bins.shape[0]


def begin(seat: Seat) -> Host:
    """Bins the own columns, on training rows alone."""
    frame = seat.data
    train = ~seat.validation
    if not train.any():  # the guest says so, too, and what to do
        train = np.ones(frame.n_rows, np.bool_)
    cuts = binning.fit(frame.values[train], seat.params.max_bin, frame.categorical)
    bins = cuts.transform(frame.values)
    if isinstance(bins, SparseBins) and not seat.params.sparse_histograms:
        bins = bins.dense()  # the switch is off: every zero is added up
    me = Host(seat, cuts, bins, Meter.of(seat), HostRecord(seat, cuts, bins))
    if not me.is_scored:
        me.answering = MaskingHost(seat)
    return me


def offer_nonce(me: Host) -> Out:
    """Our share in the public polynomials of a scheme that has any."""
    return Out(send=Nonce(nonce=keys.nonce(me.seat)))


def accept_key(me: Host, got: EncryptionKey) -> Out:
    """Takes the guest's key, if it is sound and as strong as the job and our policy say."""
    if me.is_scored:
        n_rows = int(np.count_nonzero(~me.seat.validation))
        side = keys.host_side(me.seat, got, n_rows, me.binning, are_all=False)
    else:
        side = _leaf_side(me, got)
    if got.first_tree:
        raise PeerError(f"the guest begins at tree {got.first_tree}, the job continues no model")
    me.side = side
    return Out()


def receive_gradients(me: Host, got: Iterator[BottomRows]) -> Out:
    """Read where the own rows stand, and their packed gradients, checked; a new tree begins, or one
    goes on that an earlier attempt has left.
    """
    gradients: Gradients | None = None
    grove = me.grove
    for part in got:
        if gradients is None:
            grove = _begun(me, part)
            [tree] = grove.trees
            n_rows = int(np.count_nonzero(tree.growth.is_training))
            gradients = Gradients(me.side, part.gradients, n_rows)
        elif part.HasField("at") or part.HasField("open"):
            raise PeerError("the guest said twice where our rows stand")
        gradients.add(part.gradients)
    if gradients is None:
        raise PeerError("the guest sent no gradients")
    whole = gradients.whole()  # refuses before anything changes
    if grove is not me.grove:
        me.record.add(me.grove)
        me.grove = grove
        me.meter.begin_trees()
    me.gradients = whole
    return Out()


def sum_candidates(me: Host) -> Iterator[Out]:
    """Encrypted sums of every candidate split of the open nodes, shuffled, compressed, blinded."""
    if not me.is_scored:
        raise ProtocolError("the job's splits are unscored: hosts offer no sums")
    [tree] = me.grove.trees
    if tree.growth.layers >= (layers := me.seat.params.host_depth):
        raise PeerError(f"the guest asked for layer {layers + 1} of a tree, it has {layers}")
    yield from release(me.grove, me.gradients, me.meter, me.seat.secrets)


def divide_rows(me: Host, got: ChosenSplits) -> Out:
    """Send how the rows of the won nodes divide; of tied candidates the lowest column and bin
    count.
    """
    won = read_choices(got.won, me.grove.offered)
    [tree] = me.grove.trees
    is_last = tree.growth.layers + 1 == me.seat.params.host_depth
    children = [child for node in won for child in (left_child(node), right_child(node))]
    opened = _opened(got.open, [] if is_last else children)
    divided = answers.divisions(me.grove, won, me.binning, me.bins)
    me.splits += answers.named_splits(won, me.binning, me.grove.first)
    tree.growth.divide(list(divided.items()))
    tree.opened, me.grove.offered = opened, {}
    about = replace(about_divisions(divided.values()), charges=me.meter.divided(won))
    return Out(send=answers.write_divisions(divided), about=about)


def answer_rows(me: Host) -> Out:
    """Cuts the lower layers at random, and answers each row with its leaf's encrypted value."""
    if me.is_scored:
        raise ProtocolError("the job's splits are scored: hosts answer with no leaf values")
    own, held = _key(me), me.gradients
    assert isinstance(held, PackedHostRows)
    params, [tree], n_rows = me.seat.params, me.grove.trees, me.n_rows
    secrets = me.seat.job_secrets.child("cuts", me.grove.first)
    least = me.seat.limits.group_rows_min
    cutter = Cutter(me.binning, me.bins, _usable(me, me.grove.first), secrets, least)
    won = cutter.grow(tree, params.host_depth)
    me.splits += answers.named_splits(won, me.binning, me.grove.first)
    learns = tree.growth.training.node_of_rows(n_rows) >= 0
    leaves = LeafValues.of(
        tree.growth, held.gradients, np.flatnonzero(learns), own, params.reg_lambda
    )
    me.leaves.append(leaves)
    packing = own.layout
    assert isinstance(packing, LeafLayout)
    masks = me.answering.masks(me.grove.first, slice(0, n_rows), packing)
    message = answered(own, leaves.of_rows(tree.growth, n_rows), masks)
    return Out(send=message, about=replace(about_leaves(tree.growth), charges=_order(me, won)))


def snapshot(me: Host, place: Place) -> Artefact:
    """The splits so far, and what a tree under way has settled."""
    under_way = None
    if len(place) > 1 and me.is_scored:
        [under_way] = me.grove.trees
    else:
        me.record.add(me.grove)
    transcript = me.record.handed_over(place)
    kept = HybridTreeHostState(
        splits=me.splits,
        number=me.grove.first,
        is_recorded=me.record.begun,
        under_way=under_way,
        leaves=me.leaves,
        key=b"" if me.is_scored else _key(me).key.to_bytes(),
    )
    return Artefact.of_state(kept, transcript)


def restore(me: Host, checkpoint: Artefact) -> Told:
    """Carries on behind the last finished tree, or behind a layer."""
    kept = checkpoint.state(HybridTreeHostState)
    me.splits, me.record.begun = kept.splits, kept.is_recorded
    me.leaves, me.earlier_key = kept.leaves, kept.key
    me.grove = HostGrove(first=kept.number)
    if kept.under_way is not None:
        me.grove = HostGrove([_planted(me, kept.number, kept.under_way.growth)], kept.number)
        me.grove.load_state([kept.under_way])
    return Told()


def finish(me: Host) -> Artefact:
    """The host's shard: its splits by column name."""
    frame, params = me.seat.data, me.seat.params
    facts = {
        "kind": hybrid.KIND,
        "split": params.split,
        "guest_depth": params.guest_depth,
        "host_depth": params.host_depth,
        "columns": list(frame.columns),
        "categories": columns.categories(frame, me.binning),
        "trees": me.grove.first + 1,
        "trees_per_round": params.trees_per_round,
        "forest": [1] * ((me.grove.first + 1) // params.trees_per_round),
    }
    if not me.is_scored:
        facts["precision"] = asdict(_precision(me, _key(me).layout.value_bits))
        facts["encryption"] = params.encryption.model_dump()
    return Artefact(facts, _arrays(me))


def bytes_max(me: Host, step: str) -> int:
    """As large as rows, nodes and offers make it."""
    depth = me.seat.params.guest_depth + me.seat.params.host_depth
    if step == "receive_gradients":
        rows = me.side.octets_max if Host.side.is_set(me) else 0
        return rows + 5 * me.n_rows + (4 << depth) + 1024
    if step == "divide_rows":
        return choices_bytes_max(me.grove.offered) + (8 << depth) + 1024
    if step == "learn_shared" and not me.is_scored:
        return shared_bytes_max(me)
    return wire.CONTROL_BYTES_MAX


def _leaf_side(me: Host, got: EncryptionKey) -> HostSide:
    """The guest's key, under which leaf values go."""
    key = keys.accept(me.seat, got)
    if me.leaves and got.key != me.earlier_key:
        raise PeerError("the guest changed its key, under which our leaf values are")
    packing = _precision(me, got.value_bits).layout(key.plaintext_bits)
    return PackedHost(HostKey.of(key, packing, me.n_rows))


def _key(me: Host) -> HostKey:
    """The key of a job with unscored splits."""
    assert isinstance(me.side, PackedHost)
    return me.side.keys


def _precision(me: Host, value_bits: int) -> Precision:
    """Return how exact our leaf values are."""
    return Precision.agreed(me.seat.params, len(me.seat.table.hosts), value_bits)


def _begun(me: Host, first: BottomRows) -> HostGrove:
    """A tree at its bottom nodes; or ours, where an earlier attempt has left it."""
    is_left = not Host.gradients.is_set(me) and me.grove.begins_with(first.gradients.tree)
    left = me.grove if is_left else None
    params, number = me.seat.params, me.grove.first + (left is None)
    most = params.n_estimators * params.trees_per_round
    if first.gradients.tree != number or number >= most:
        raise PeerError(f"the guest began tree {first.gradients.tree}, expected tree {number}")
    (training,) = np.nonzero(~me.seat.validation)
    sampled = np.zeros(me.n_rows, np.bool_)
    [sampled[training]] = read_sample(first.gradients, len(training), 1)
    least = hybrid.first_number(params.guest_depth)
    at = wire.unpack(first.at, "i4", (len(sampled),), "where our rows stand").astype(np.int32)
    may_stand = (at >= least) & (at <= 2 * least)
    if me.is_scored:  # below no node that is open
        may_stand |= at == hybrid.NO_NODE
    if not may_stand.all():
        raise PeerError("the guest put rows below nodes that no tree of the job has")
    if left is not None:
        [tree] = left.trees
        before = _bottoms(me, tree.growth.everyone.node_of_rows(me.n_rows))
        if not (np.array_equal(sampled, tree.growth.is_training) and np.array_equal(at, before)):
            raise PeerError("the guest goes on with other rows than the tree has begun with")
        return left
    tree = _planted(me, number, Growth.begun(sampled, at))
    tree.opened = _opened(first.open, tree.growth.training.leaves())
    return HostGrove([tree], number)


def _planted(me: Host, number: int, growth: Growth) -> HostTree[Any]:
    """Tree `number`, whose rows stand as in `growth`."""
    params, usable = me.seat.params, _usable(me, number)
    own = cells.of_columns(me.binning, me.bins, usable, leave_out=params.sparse_histograms)
    place = np.cumsum(growth.is_training) - 1
    subtraction, least = params.histogram_subtraction, me.seat.limits.group_rows_min
    return HostTree(own, growth, place, subtraction=subtraction, least=least)


def _bottoms(me: Host, at: Rows) -> Rows:
    """The bottom nodes at or above nodes of a tree, int32; none above none."""
    last = 2 * hybrid.first_number(me.seat.params.guest_depth)
    bottoms = at.copy()
    while (below := bottoms > last).any():
        bottoms[below] = (bottoms[below] - 1) // 2
    return bottoms


def _order(me: Host, won: Mapping[int, Named]) -> tuple[Charge, ...]:
    """Return what the cuts of the tree under way tell of the order of rows in our columns."""
    [tree] = me.grove.trees
    sizes, at = dict.fromkeys(won, 0), tree.growth.everyone.node_of_rows(me.n_rows)
    for _ in range(me.seat.params.host_depth):
        at = (at - 1) // 2
        nodes, rows = np.unique(at, return_counts=True)
        for node, count in zip(nodes.tolist(), rows.tolist(), strict=True):
            if node in sizes:
                sizes[node] += count
    return ordered(me.seat.data, won, me.binning.n_bins.tolist(), sizes)


def _usable(me: Host, number: int) -> Rows:
    """The columns that a tree may use."""
    group, params = me.seat.table.hosts.index(me.seat.party) + 1, me.seat.params
    return sampling.own_columns(params.seed, number, group, me.bins.shape[1], params.column_rate)


def _arrays(me: Host) -> vertical.Arrays:
    """The splits, and the encrypted values of leaves that no guest has seen."""
    arrays = vertical.splits_to_arrays(me.splits)
    if not me.is_scored:
        arrays |= leaf_values.as_arrays(me.leaves)
        arrays[hybrid.KEY] = np.frombuffer(_key(me).key.to_bytes(), np.uint8)
    return arrays


def _opened(message: Array, may_open: list[int]) -> list[int]:
    """The nodes that the guest opens; a PeerError unless they are among these, in their order."""
    opened = wire.unpack(message, "i4", (None,), "the open nodes").tolist()
    if opened != [node for node in may_open if node in set(opened)]:
        raise PeerError("the guest opened nodes that are not below divided ones")
    return [int(node) for node in opened]
