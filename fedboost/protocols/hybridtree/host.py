"""A host of hybridtree: the lower layers, on its own columns, over gradients it cannot read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property

import numpy as np

from fedboost.core import binning
from fedboost.core.binning import Binning
from fedboost.core.bins import Bins, SparseBins
from fedboost.core.partition import left_child, right_child
from fedboost.core.sampling import TreeColumns
from fedboost.crypto.leaf_values import LeafLayout
from fedboost.encrypted.cells.candidates import Named, choices_bytes_max, read_choices
from fedboost.encrypted.cells.row_cells import BinnedTable, TreeCells
from fedboost.encrypted.checks.gradient_check import CheckingHost, check_sums, show_signs, sign_rows
from fedboost.encrypted.host import answers as host_answers
from fedboost.encrypted.host.answers import ReceivedGradients
from fedboost.encrypted.host.meter import Meter
from fedboost.encrypted.host.release import release
from fedboost.encrypted.host.tree import HostTree, HostTreeBatch, HostTreeState
from fedboost.encrypted.number import leaf_values
from fedboost.encrypted.number.leaf_answers import (
    MaskingHost,
    Precision,
    hear_answer_keys,
    learn_shared,
    offer_answer_key,
    released_answers,
    shared_bytes_max,
)
from fedboost.encrypted.number.leaf_values import LeafValues
from fedboost.encrypted.number.packed import HostKey, PackedHost, PackedHostRows
from fedboost.encrypted.record import HostRecord
from fedboost.encrypted.scheme import keys
from fedboost.encrypted.scheme.ciphers import HostCipher
from fedboost.encrypted.tree.growth import (
    Growth,
    about_divisions,
    about_leaves,
    check_draws,
    check_sample,
    read_sample,
)
from fedboost.flow import Artefact, Charge, Out, Place, StageContext
from fedboost.ground import wire
from fedboost.ground.errors import PeerError, ProtocolError
from fedboost.ground.slot import Slot
from fedboost.ground.state import Arrays, Growing, state_class
from fedboost.messages.array_pb2 import Array
from fedboost.messages.job_pb2 import StatusReport
from fedboost.messages.protocol.encrypted_pb2 import EncryptionKey, Nonce
from fedboost.messages.protocol.hybridtree_pb2 import BottomRows, ChosenSplits
from fedboost.model import columns, hybrid, vertical
from fedboost.model.vertical import OwnSplit
from fedboost.protocols.hybridtree.params import HybridTreeParams
from fedboost.protocols.hybridtree.unscored import Cutter

__all__ = (
    "accept_key", "answer_rows", "begin", "bytes_max", "check_sums", "divide_rows", "finish",
    "hear_answer_keys", "learn_shared", "offer_answer_key", "offer_nonce", "receive_gradients",
    "restore", "show_signs", "sign_rows", "snapshot", "sum_candidates",
)  # fmt: skip


@state_class
class HybridTreeHostState:
    """Checkpoint of a host: the splits so far, and the growing tree."""

    splits: Growing[OwnSplit]
    number: int
    is_recorded: bool
    under_way: HostTreeState | None
    leaves: Growing[LeafValues]  # with unscored splits
    key: bytes  # of these leaf values


CHECKPOINT = HybridTreeHostState  # state that `snapshot` keeps


@dataclass
class Host(CheckingHost):
    """State of a host between steps."""

    context: StageContext[HybridTreeParams]
    binning: Binning
    bins: Bins
    meter: Meter
    record: HostRecord  # of this training, for audits
    splits: list[OwnSplit] = field(default_factory=list)
    value_bits: int = 0  # that the guest declares
    # The tree that grows, or the last one
    tree_batch: HostTreeBatch = field(default_factory=HostTreeBatch)
    # With unscored splits
    leaves: list[LeafValues] = field(default_factory=list)  # of finished trees
    earlier_key: bytes = b""  # of the attempt before this one
    side = Slot[HostCipher]("a key of the guest")
    answering = Slot[MaskingHost]("masks of a job with unscored splits")

    @cached_property
    def table(self) -> BinnedTable:
        """Our bins in the form that makes cells of trees."""
        leave_out = self.context.params.sparse_histograms
        return BinnedTable.of(self.binning, self.bins, leave_out=leave_out)

    @property
    def is_scored(self) -> bool:
        """Whether the guest chooses our splits."""
        return bool(self.context.params.split == "scored")

    @property
    def n_rows(self) -> int:
        """Number of our rows, held-out rows included."""
        return self.bins.shape[0]


def begin(context: StageContext[HybridTreeParams]) -> Host:
    """Bin our columns, on training rows only."""
    frame = context.data
    train = ~context.validation
    if not train.any():  # the guest refuses this with a remedy
        train = np.ones(frame.n_rows, np.bool_)
    cuts = binning.fit(
        frame.values,
        context.params.max_bin,
        frame.categorical,
        rows=train,
        group_cuts=frame.group_cuts,
    )
    bins = cuts.transform(frame.values)
    if isinstance(bins, SparseBins) and not context.params.sparse_histograms:
        bins = bins.dense()  # the switch is off: every zero is added up
    host = Host(context, cuts, bins, Meter.of(context, cuts, bins), HostRecord(context, cuts, bins))
    check_draws(context, party=_party_number(host))
    if not host.is_scored:
        host.answering = MaskingHost(context)
    return host


def offer_nonce(host: Host) -> Out:
    """Send our share in the public polynomials, if the scheme has any."""
    return Out(send=Nonce(nonce=keys.own_nonce(host.context)))


def accept_key(host: Host, got: EncryptionKey) -> Out:
    """Accept the guest's key if it is sound and as strong as the job and our policy say."""
    if host.is_scored:
        n_rows = int(np.count_nonzero(~host.context.validation))
        side = keys.host_side(host.context, got, n_rows, host.binning, are_all=False)
    else:
        side = _leaf_side(host, got)
    if got.first_tree:
        raise PeerError(f"the guest begins at tree {got.first_tree}, the job continues no model")
    host.side, host.value_bits = side, got.value_bits
    return Out()


def receive_gradients(host: Host, got: Iterator[BottomRows]) -> Out:
    """Check our rows' bottom nodes and gradients; a tree begins, or an earlier one goes on."""
    gradients: ReceivedGradients | None = None
    tree_batch = host.tree_batch
    for part in got:
        if gradients is None:
            tree_batch = _tree_to_grow(host, part)
            [tree] = tree_batch.trees
            n_rows = int(np.count_nonzero(tree.growth.is_training))
            gradients = ReceivedGradients(host.side, part.gradients, n_rows, host.bins)
        elif part.HasField("at") or part.HasField("open"):
            raise PeerError("the guest said twice where our rows stand")
        gradients.add(part.gradients)
    if gradients is None:
        raise PeerError("the guest sent no gradients")
    complete = gradients.whole()  # refuses before anything changes
    if tree_batch is not host.tree_batch:
        host.record.add(host.tree_batch)
        host.tree_batch = tree_batch
        host.meter.begin_trees()
    host.take_gradients(complete, n_rows)
    return Out()


def sum_candidates(host: Host) -> Iterator[Out]:
    """Send encrypted sums of all candidate splits of open nodes, shuffled, compressed, blinded."""
    if not host.is_scored:
        raise ProtocolError("the job's splits are unscored: hosts offer no sums")
    [tree] = host.tree_batch.trees
    if tree.growth.layers >= (layers := host.context.params.host_depth):
        raise PeerError(f"the guest asked for layer {layers + 1} of a tree, it has {layers}")
    is_last, secrets = tree.growth.layers + 1 == layers, host.context.secrets.attempt
    yield from release(host.tree_batch, host.gradients, host.meter, secrets, is_last=is_last)


def divide_rows(host: Host, got: ChosenSplits) -> Out:
    """Send how rows of the won nodes divide; of tied candidates the lowest column and bin count."""
    won = read_choices(got.won, host.tree_batch.offered)
    [tree] = host.tree_batch.trees
    is_last = tree.growth.layers + 1 == host.context.params.host_depth
    children = [child for node in won for child in (left_child(node), right_child(node))]
    opened = _read_opened(got.open, [] if is_last else children)
    divided = host_answers.divisions(host.tree_batch, won, host.binning, host.bins)
    charges = host.meter.divided(won, host.tree_batch.rows_of(won), divided)
    host.splits += host_answers.named_splits(won, host.binning, host.tree_batch.first)
    tree.divide(list(divided.items()))
    tree.opened, host.tree_batch.offered = opened, {}
    charges += host.context.held_out_charges if won else ()
    about = replace(about_divisions(divided.values()), charges=charges)
    return Out(send=host_answers.write_divisions(divided), about=about)


def answer_rows(host: Host) -> Out:
    """Cut the lower layers at random, and answer each row with its leaf's encrypted value."""
    if host.is_scored:
        raise ProtocolError("the job's splits are scored: hosts answer with no leaf values")
    key, held = _host_key(host), host.gradients
    assert isinstance(held, PackedHostRows)
    params, [tree], n_rows = host.context.params, host.tree_batch.trees, host.n_rows
    secrets = host.context.secrets.job.child("cuts", host.tree_batch.first)
    least = host.context.limits.group_rows_min
    usable = _usable_columns(host, host.tree_batch.first).all
    cutter = Cutter(host.binning, host.bins, usable, secrets, least)
    won = cutter.cut_layers(tree, params.host_depth)
    host.splits += host_answers.named_splits(won, host.binning, host.tree_batch.first)
    learns = tree.growth.training.node_of_rows(n_rows) >= 0
    leaves = LeafValues.of(
        tree.growth, held.gradients, np.flatnonzero(learns), key, params.reg_lambda
    )
    host.leaves.append(leaves)
    packing = key.layout
    assert isinstance(packing, LeafLayout)
    masks = host.answering.masks(host.tree_batch.first, slice(0, n_rows), packing)
    message = released_answers(key, leaves.of_rows(tree.growth, n_rows), masks)
    charges = (*_cut_charges(host, won), *host.context.held_out_charges)
    return Out(send=message, about=replace(about_leaves(tree.growth), charges=charges))


def snapshot(host: Host, place: Place) -> Artefact:
    """Keep the splits so far, and the state of a tree that grows."""
    under_way = None
    if len(place) > 1 and host.is_scored:
        [under_way] = host.tree_batch.trees
    else:
        host.record.add(host.tree_batch)
    transcript = host.record.handed_over(place)
    kept = HybridTreeHostState(
        splits=host.splits,
        number=host.tree_batch.first,
        is_recorded=host.record.begun,
        under_way=under_way,
        leaves=host.leaves,
        key=b"" if host.is_scored else _host_key(host).key.to_bytes(),
    )
    return Artefact.from_state(kept, transcript)


def restore(host: Host, checkpoint: Artefact) -> StatusReport:
    """Continue behind the last finished tree, or behind a layer."""
    kept = checkpoint.state(HybridTreeHostState)
    host.splits, host.record.begun = kept.splits, kept.is_recorded
    host.leaves, host.earlier_key = kept.leaves, kept.key
    host.tree_batch = HostTreeBatch(first=kept.number)
    if kept.under_way is not None:
        tree = _planted_tree(host, kept.number, kept.under_way.growth)
        host.tree_batch = HostTreeBatch([tree], kept.number)
        host.tree_batch.load_state([kept.under_way])
    return StatusReport()


def finish(host: Host) -> Artefact:
    """Return the host's shard: its splits by column name."""
    frame, params = host.context.data, host.context.params
    facts = {
        "kind": hybrid.HYBRID_KIND,
        "split": params.split,
        "guest_depth": params.guest_depth,
        "host_depth": params.host_depth,
        "columns": list(frame.columns),
        "categories": columns.categories(frame, host.binning),
        "trees": host.tree_batch.first + 1,
        "trees_per_round": params.trees_per_round,
        "forest": [1] * ((host.tree_batch.first + 1) // params.trees_per_round),
    }
    if not host.is_scored:
        facts["precision"] = asdict(_precision(host, _host_key(host).layout.value_bits))
        facts["encryption"] = params.encryption.model_dump()
    return Artefact(facts, _shard_arrays(host))


def bytes_max(host: Host, step: str) -> int:
    """Return the largest message, by rows, nodes and offers."""
    depth = host.context.params.guest_depth + host.context.params.host_depth
    if step == "receive_gradients":
        rows = host.side.sizes.bytes_max if Host.side.is_set(host) else 0
        return rows + 5 * host.n_rows + (4 << depth) + 1024
    if step == "divide_rows":
        return choices_bytes_max(host.tree_batch.offered) + (8 << depth) + 1024
    if step == "learn_shared" and not host.is_scored:
        return shared_bytes_max(host)
    return wire.CONTROL_BYTES_MAX


def _leaf_side(host: Host, got: EncryptionKey) -> HostCipher:
    """Accept the guest's key for leaf values."""
    key = keys.accepted_key(host.context, got)
    if host.leaves and got.key != host.earlier_key:
        raise PeerError("the guest changed the key of our leaf values")
    packing = _precision(host, got.value_bits).layout(key.plaintext_bits)
    return PackedHost(HostKey.of(key, packing, host.n_rows), host.context.services.part_workers)


def _host_key(host: Host) -> HostKey:
    """Return the key of a job with unscored splits."""
    assert isinstance(host.side, PackedHost)
    return host.side.keys


def _precision(host: Host, value_bits: int) -> Precision:
    """Return the precision of our leaf values."""
    return Precision.from_declared_bits(
        host.context.params, len(host.context.table.hosts), value_bits
    )


def _tree_to_grow(host: Host, first: BottomRows) -> HostTreeBatch:
    """Return a tree at its bottom nodes, or the tree of an earlier attempt."""
    is_left = not Host.gradients.is_set(host) and host.tree_batch.begins_with(first.gradients.tree)
    left = host.tree_batch if is_left else None
    params, number = host.context.params, host.tree_batch.first + (left is None)
    if first.gradients.tree != number or number >= params.n_estimators * params.trees_per_round:
        raise PeerError(f"the guest began tree {first.gradients.tree}, expected tree {number}")
    (training,) = np.nonzero(~host.context.validation)
    sampled = np.zeros(host.n_rows, np.bool_)
    sampled[training] = sample = read_sample(first.gradients, len(training), 1)[0]
    least = hybrid.first_number(params.guest_depth)
    at = wire.unpack(first.at, "i4", (len(sampled),), "where our rows stand").astype(np.int32)
    may_stand = (at >= least) & (at <= 2 * least)
    if host.is_scored:  # a row may be below no open node
        may_stand |= at == hybrid.NO_BOTTOM
    if not may_stand.all():
        raise PeerError("the guest put rows below nodes that no tree of the job has")
    if left is not None:
        [tree] = left.trees
        stood = tree.growth.everyone.node_of_rows(host.n_rows)
        before = hybrid.bottoms_above(stood, params.guest_depth)
        if not (np.array_equal(sampled, tree.growth.is_training) and np.array_equal(at, before)):
            raise PeerError("the guest goes on with other rows than the tree has begun with")
        return left
    check_sample([sample], params, number // params.trees_per_round, party=_party_number(host))
    tree = _planted_tree(host, number, Growth.begun(sampled, at))
    tree.opened = _read_opened(first.open, tree.growth.training.leaves())
    return HostTreeBatch([tree], number)


def _planted_tree(host: Host, number: int, growth: Growth) -> HostTree:
    """Return tree `number` with its rows at the nodes of `growth`."""
    params = host.context.params
    return HostTree(
        TreeCells(host.table, _usable_columns(host, number)),
        growth,
        np.cumsum(growth.is_training) - 1,
        subtraction=params.histogram_subtraction,
        least=host.context.limits.group_rows_min,
    )


def _cut_charges(host: Host, won: Mapping[int, Named]) -> tuple[Charge, ...]:
    """Return charges for the cuts of the growing tree, by the rows of our columns."""
    [tree] = host.tree_batch.trees
    rows = {node: tree.growth.everyone.rows_below(node) for node in won}
    rights = {
        node: host_answers.goes_right(named, rows[node], host.binning, host.bins)
        for node, named in won.items()
    }
    return host.meter.charge_cuts(won, rows, rights)


def _usable_columns(host: Host, number: int) -> TreeColumns:
    """Return the columns that a tree may use."""
    widths = (host.bins.shape[1],)
    return TreeColumns.draw_columns(host.context.params, number, widths, first=_party_number(host))


def _party_number(host: Host) -> int:
    """Return our number k among the parties: we are the k-th host."""
    return host.context.table.hosts.index(host.context.party) + 1


def _shard_arrays(host: Host) -> Arrays:
    """Return the splits, and the encrypted values of leaves that stay hidden from the guest."""
    arrays = vertical.splits_to_arrays(host.splits)
    if not host.is_scored:
        arrays |= leaf_values.as_arrays(host.leaves)
        arrays[hybrid.SHARD_KEY] = np.frombuffer(_host_key(host).key.to_bytes(), np.uint8)
    return arrays


def _read_opened(message: Array, may_open: list[int]) -> list[int]:
    """Return the nodes that the guest opens; a PeerError unless these may open, in their order."""
    opened = wire.unpack(message, "i4", (None,), "the open nodes").tolist()
    if opened != [node for node in may_open if node in set(opened)]:
        raise PeerError("the guest opened nodes that are not below divided ones")
    return [int(node) for node in opened]
