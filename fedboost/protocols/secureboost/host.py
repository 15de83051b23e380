"""A host of secureboost: adds up gradients it cannot read, offers splits without their names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fedboost.core import binning, forest
from fedboost.core.binning import Binning
from fedboost.core.bins import Bins, SparseBins
from fedboost.core.partition import ROOT, left_child, right_child
from fedboost.core.sampling import TreeColumns
from fedboost.encrypted.cells.candidates import choices_bytes_max, read_choices
from fedboost.encrypted.cells.row_cells import BinnedTable, TreeCells
from fedboost.encrypted.checks.gradient_check import CheckingHost, check_sums, show_signs, sign_rows
from fedboost.encrypted.host import answers as host_answers
from fedboost.encrypted.host.answers import ReceivedGradients
from fedboost.encrypted.host.meter import Meter
from fedboost.encrypted.host.release import release
from fedboost.encrypted.host.tree import HostTree, HostTreeBatch, HostTreeState
from fedboost.encrypted.record import HostRecord
from fedboost.encrypted.scheme import keys
from fedboost.encrypted.scheme.ciphers import HostCipher
from fedboost.encrypted.tree.batch import STRIDE
from fedboost.encrypted.tree.growth import (
    Growth,
    about_divisions,
    check_draws,
    check_sample,
    read_divisions,
    read_sample,
)
from fedboost.flow import Artefact, Out, Place, StageContext
from fedboost.ground import wire
from fedboost.ground.errors import PeerError
from fedboost.ground.slot import Slot
from fedboost.ground.state import Growing, state_class
from fedboost.messages.job_pb2 import StatusReport
from fedboost.messages.protocol import encrypted_pb2 as pb
from fedboost.messages.protocol.secureboost_pb2 import Frontier
from fedboost.model.vertical import OwnSplit
from fedboost.protocols.secureboost import earlier, plan
from fedboost.protocols.secureboost.params import SecureBoostParams

__all__ = (
    "accept_key", "begin", "bytes_max", "check_sums", "divide_rows", "finish", "offer_nonce",
    "receive_gradients", "restore", "show_signs", "sign_rows", "snapshot", "sum_candidates",
)  # fmt: skip

FRONTIER_NODES_MAX = 1 << 14  # one layer of the deepest tree TreeParams allows


@state_class
class SecureBoostHostTrees:
    """State of the growing trees."""

    trees: list[HostTreeState]
    divided: dict[int, NDArray[np.bool_]]  # our own, in the last layer


@state_class
class SecureBoostHostState:
    """Checkpoint of a host: the splits so far, and growing trees."""

    splits: Growing[OwnSplit]
    number: int
    first_tree: int
    is_recorded: bool
    under_way: SecureBoostHostTrees | None


CHECKPOINT = SecureBoostHostState  # state that `snapshot` keeps


@dataclass
class Host(CheckingHost):
    """State of a host between steps."""

    context: StageContext[SecureBoostParams]
    binning: Binning
    bins: Bins
    meter: Meter
    record: HostRecord  # of this training, for audits
    splits: list[OwnSplit] = field(default_factory=list)  # of this job
    value_bits: int = 0  # that the guest declares
    # The trees that grow, or the last ones; numbers begin with the model that the job continues
    tree_batch: HostTreeBatch = field(default_factory=HostTreeBatch)
    layers: int = 0  # layers with our candidates
    divided: dict[int, NDArray[np.bool_]] = field(default_factory=dict)  # our own, this layer
    side = Slot[HostCipher]("a key of the guest")
    first_tree = Slot[int]("a first tree of this job, as the guest says it")

    @cached_property
    def table(self) -> BinnedTable:
        """Our bins in the form that makes cells of trees."""
        leave_out = self.context.params.sparse_histograms
        return BinnedTable.of(self.binning, self.bins, leave_out=leave_out)


def begin(context: StageContext[SecureBoostParams]) -> Host:
    """Bin our columns, on training rows only."""
    frame = context.data
    train = ~context.validation
    known = earlier.known_codes(context)
    params, groups = context.params, frame.group_cuts
    cuts = binning.fit(frame.values, params.max_bin, frame.categorical, known, train, groups)
    bins = cuts.transform(frame.values)
    if isinstance(bins, SparseBins) and not context.params.sparse_histograms:
        bins = bins.dense()  # the switch is off: every zero is added up
    return Host(context, cuts, bins, Meter.of(context, cuts, bins), HostRecord(context, cuts, bins))


def offer_nonce(host: Host) -> Out:
    """Send our share in the public polynomials, if the scheme has any."""
    return Out(send=pb.Nonce(nonce=keys.own_nonce(host.context)))


def accept_key(host: Host, got: pb.EncryptionKey) -> Out:
    """Accept the guest's key if it is sound and as strong as the job and our policy say."""
    n_rows = int(np.count_nonzero(~host.context.validation))
    side = keys.host_side(host.context, got, n_rows, host.binning, are_all=True)
    earlier.check_first_tree(host.context, got.first_tree)
    if not Host.first_tree.is_set(host):
        host.first_tree, host.tree_batch.first = got.first_tree, got.first_tree - 1
    if host.first_tree != got.first_tree:
        raise PeerError(
            f"the guest begins at tree {got.first_tree}, it began at {host.first_tree} before"
        )
    check_draws(host.context, earlier.rounds_before(host.context, host.first_tree))
    host.side, host.value_bits = side, got.value_bits
    return Out()


def receive_gradients(host: Host, got: Iterator[pb.EncryptedGradients]) -> Out:
    """Check the packed gradients that take part; trees begin, or an earlier attempt's go on."""
    gradients: ReceivedGradients | None = None
    tree_batch = host.tree_batch
    for part in got:
        if gradients is None:
            tree_batch = _trees_to_grow(host, part)
            n_rows = int(np.count_nonzero(_training_masks(tree_batch).any(axis=0)))
            gradients = ReceivedGradients(host.side, part, n_rows, host.bins)
        gradients.add(part)
    if gradients is None:
        raise PeerError("the guest sent no gradients")
    complete = gradients.whole()  # refuses before anything changes
    if tree_batch is not host.tree_batch:
        host.record.add(host.tree_batch)
        host.tree_batch, host.layers, host.divided = (
            tree_batch,
            _candidate_layers(host, tree_batch.first),
            {},
        )
        host.meter.begin_trees()
    host.take_gradients(complete, n_rows)
    return Out()


def sum_candidates(host: Host, got: Frontier) -> Iterator[Out]:
    """Send encrypted sums of all candidate splits of open nodes, shuffled, compressed, blinded."""
    _follow_frontier(host, got)
    is_last = host.tree_batch.trees[0].growth.layers == host.layers
    secrets = host.context.secrets.attempt
    yield from release(host.tree_batch, host.gradients, host.meter, secrets, is_last=is_last)


def divide_rows(host: Host, got: pb.WonSplits) -> Out:
    """Send how rows of the won nodes divide; of tied candidates the lowest column and bin count."""
    won = read_choices(got, host.tree_batch.offered)
    host.divided = host_answers.divisions(host.tree_batch, won, host.binning, host.bins)
    host.splits += host_answers.named_splits(won, host.binning, host.tree_batch.first)
    charges = host.meter.divided(won, host.tree_batch.rows_of(won), host.divided)
    charges += host.context.held_out_charges if won else ()
    about = replace(about_divisions(host.divided.values()), charges=charges)
    return Out(send=host_answers.write_divisions(host.divided), about=about)


def snapshot(host: Host, place: Place) -> Artefact:
    """Keep the splits so far, and the state of growing trees."""
    under_way = None
    if len(place) > 1 and host.context.party in _round_plan(host, place[0]).hosts:
        under_way = SecureBoostHostTrees(trees=[*host.tree_batch.trees], divided=host.divided)
    else:
        host.record.add(host.tree_batch)
    transcript = host.record.handed_over(place)
    kept = SecureBoostHostState(
        splits=host.splits,
        number=host.tree_batch.first,
        first_tree=host.first_tree,
        is_recorded=host.record.begun,
        under_way=under_way,
    )
    return Artefact.from_state(kept, transcript)


def restore(host: Host, checkpoint: Artefact) -> StatusReport:
    """Continue behind the last finished tree, or behind a layer."""
    kept = checkpoint.state(SecureBoostHostState)
    host.splits, host.first_tree, host.record.begun = kept.splits, kept.first_tree, kept.is_recorded
    host.tree_batch = HostTreeBatch(first=kept.number)
    if kept.under_way is not None:
        trees = kept.under_way.trees
        host.tree_batch = _planted_trees(
            host, kept.number, np.array([tree.growth.is_training for tree in trees])
        )
        host.tree_batch.load_state(trees)
        host.layers, host.divided = _candidate_layers(host, kept.number), kept.under_way.divided
    return StatusReport()


def finish(host: Host) -> Artefact:
    """Return the host's shard: its splits by column name."""
    return earlier.host_shard(
        host.context, host.binning, host.first_tree, host.tree_batch.first, host.splits
    )


def bytes_max(host: Host, step: str) -> int:
    """Return the largest message, by rows, nodes and offers."""
    trees = forest.most_trees(host.context.params)
    if step == "receive_gradients":
        rows = host.side.sizes.bytes_max if Host.side.is_set(host) else 0
        return rows + (1 + trees) * host.bins.shape[0] // 8 + 1024
    if step == "sum_candidates":
        return trees * (host.bins.shape[0] // 8 + 8 * FRONTIER_NODES_MAX) + 1024
    if step == "divide_rows":
        return choices_bytes_max(host.tree_batch.offered)
    return wire.CONTROL_BYTES_MAX


def _trees_to_grow(host: Host, first: pb.EncryptedGradients) -> HostTreeBatch:
    """Return trees at their roots, or the trees that an earlier attempt left."""
    is_left = not Host.gradients.is_set(host) and host.tree_batch.begins_with(first.tree)
    left = host.tree_batch if is_left else None
    done = host.tree_batch.first - host.first_tree
    params = host.context.params
    this, number, n_trees = plan.next_tree_batch(
        params, host.context.table, host.context.party, done
    )
    if left is not None:
        number, n_trees = done, len(left.trees)
    expected = host.first_tree + number
    if not n_trees or first.tree != expected:
        raise PeerError(f"the guest began tree {first.tree}, expected tree {expected}")
    (training,) = np.nonzero(~host.context.validation)
    sampled = np.zeros((n_trees, host.bins.shape[0]), np.bool_)
    samples = read_sample(first, len(training), n_trees)
    sampled[:, training] = samples
    if left is None:
        before = earlier.rounds_before(host.context, host.first_tree)
        check_sample(samples, params, this, before=before)
        return _planted_trees(host, expected, sampled)
    if not np.array_equal(sampled, _training_masks(left)):
        raise PeerError("the guest goes on with other rows than the trees have begun with")
    return left


def _planted_trees(host: Host, number: int, sampled: NDArray[np.bool_]) -> HostTreeBatch:
    """Plant trees from tree `number` on; `sampled` bool (trees, rows) are their training rows."""
    params = host.context.params
    place = np.cumsum(sampled.any(axis=0)) - 1
    group = host.context.table.hosts.index(host.context.party) + 1
    trees: list[HostTree] = []
    for slot, inside in enumerate(sampled):
        columns = TreeColumns.draw_columns(
            params, number + slot, (host.bins.shape[1],), first=group
        )
        tree: HostTree = HostTree(
            TreeCells(host.table, columns),
            Growth.begun(inside),
            place,
            subtraction=params.histogram_subtraction,
            least=host.context.limits.group_rows_min,
            trees=len(sampled),
        )
        trees.append(tree)
    return HostTreeBatch(trees, number)


def _training_masks(tree_batch: HostTreeBatch) -> NDArray[np.bool_]:
    """Return the rows that each tree learns from, bool (trees, rows)."""
    return np.array([tree.growth.is_training for tree in tree_batch.trees])


def _round_plan(host: Host, number: int) -> plan.Plan:
    """Return the plan of a round of this job."""
    return plan.of_round(host.context.params, host.context.table, number)


def _candidate_layers(host: Host, tree: int) -> int:
    """Return the number of layers with our candidates, in the trees that begin with `tree`."""
    before = tree - host.first_tree - 1
    number, _, _ = plan.next_tree_batch(
        host.context.params, host.context.table, host.context.party, before
    )
    return _round_plan(host, number).host_layers


def _follow_frontier(host: Host, got: Frontier) -> None:
    """Divide the rows as the guest says, and check that the nodes it opens can be open."""
    tree_batch = host.tree_batch
    if tree_batch.trees[0].growth.layers >= host.layers:
        raise PeerError(
            f"the guest asked for layer {host.layers + 1} of a tree, it has {host.layers}"
        )
    divided = wire.unpack(got.divided, "i4", (None,), "the divided nodes").tolist()
    strangers = set(divided) - set(tree_batch.opened)
    if strangers or len(set(divided)) != len(divided) or set(host.divided) - set(divided):
        raise PeerError("the guest divided nodes that were not open, or not the ones it chose")
    rows = tree_batch.n_rows(divided)
    divisions = read_divisions(got.divided, got.goes_right, divided, rows, "the guest")
    for number, bits in host.divided.items():
        if not np.array_equal(divisions[number], bits):
            raise PeerError(f"the guest divided node {number} otherwise than we did")
    by_tree = tree_batch.by_tree(divisions)
    opened = wire.unpack(got.open, "i4", (None,), "the open nodes").tolist()
    may_open = set(tree_batch.numbers(_children(nodes) for nodes in by_tree))
    fits = set(opened) <= may_open and sorted(set(opened)) == opened
    if not tree_batch.trees[0].growth.layers:  # every tree begins
        fits = opened == tree_batch.numbers([ROOT] for _ in by_tree)
    if not fits:
        raise PeerError("the guest opened nodes that are not children of divided ones")
    for slot, (tree, mine) in enumerate(zip(tree_batch.trees, by_tree, strict=True)):
        tree.divide(list(mine.items()))
        tree.opened = [number - slot * STRIDE for number in opened if number // STRIDE == slot]


def _children(nodes: Iterable[int]) -> list[int]:
    return [child for node in nodes for child in (left_child(node), right_child(node))]
