"""A host of secureboost: adds up gradients it cannot read, offers splits without their names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedboost import wire
from fedboost.core import binning, forest, sampling
from fedboost.core.binning import Binning
from fedboost.core.bins import Bins, SparseBins
from fedboost.core.partition import ROOT, left_child, right_child
from fedboost.encrypted import answers, cells, keys
from fedboost.encrypted.answers import Gradients
from fedboost.encrypted.candidates import choices_bytes_max, read_choices
from fedboost.encrypted.grove import STRIDE
from fedboost.encrypted.growth import Growth, about_divisions, read_divisions, read_sample
from fedboost.encrypted.host_tree import HostGrove, HostTree, HostTreeState
from fedboost.encrypted.meter import Meter
from fedboost.encrypted.record import HostRecord
from fedboost.encrypted.release import release
from fedboost.encrypted.sides import HostRows, HostSide
from fedboost.errors import PeerError
from fedboost.flow import Artefact, Out, Place, Seat
from fedboost.messages.job_pb2 import Told
from fedboost.messages.protocol import encrypted_pb2 as pb
from fedboost.messages.protocol.secureboost_pb2 import Frontier
from fedboost.model.vertical import OwnSplit
from fedboost.protocols.secureboost import earlier, plan
from fedboost.slot import Slot
from fedboost.state import state

Places = NDArray[np.int64]

FRONTIER_NODES_MAX = 1 << 14  # one layer of the deepest tree TreeParams allows


@state
class SecureBoostHostTrees:
    """What the trees under way have settled."""

    trees: list[HostTreeState]
    divided: dict[int, NDArray[np.bool_]]  # our own, in the last layer


@state
class SecureBoostHostState:
    """What a checkpoint keeps: the splits so far, and trees under way."""

    splits: list[OwnSplit]
    number: int
    first_tree: int
    is_recorded: bool
    under_way: SecureBoostHostTrees | None


CHECKPOINT = SecureBoostHostState  # what `snapshot` keeps


@dataclass
class Host:
    """What a host remembers between steps."""

    seat: Seat
    binning: Binning
    bins: Bins
    meter: Meter
    record: HostRecord  # for an audit of our own
    splits: list[OwnSplit] = field(default_factory=list)  # of this job
    # The trees that grow, or the last ones; numbers begin with the model that the job continues
    grove: HostGrove = field(default_factory=HostGrove)
    layers: int = 0  # in which we offer candidates
    divided: dict[int, NDArray[np.bool_]] = field(default_factory=dict)  # our own, this layer
    side = Slot[HostSide]("a key of the guest")
    first_tree = Slot[int]("a first tree of this job, as the guest says it")
    gradients = Slot[HostRows[Any]]("gradients of this attempt")


def begin(seat: Seat) -> Host:
    """Bins the own columns, on training rows alone."""
    frame = seat.data
    train = ~seat.validation
    known = earlier.known_codes(seat)
    cuts = binning.fit(frame.values[train], seat.params.max_bin, frame.categorical, known)
    bins = cuts.transform(frame.values)
    if isinstance(bins, SparseBins) and not seat.params.sparse_histograms:
        bins = bins.dense()  # the switch is off: every zero is added up
    return Host(seat, cuts, bins, Meter.of(seat), HostRecord(seat, cuts, bins))


def offer_nonce(me: Host) -> Out:
    """Our share in the public polynomials of a scheme that has any."""
    return Out(send=pb.Nonce(nonce=keys.nonce(me.seat)))


def accept_key(me: Host, got: pb.EncryptionKey) -> Out:
    """Takes the guest's key, if it is sound and as strong as the job and our policy say."""
    n_rows = int(np.count_nonzero(~me.seat.validation))
    side = keys.host_side(me.seat, got, n_rows, me.binning, are_all=True)
    earlier.check_first_tree(me.seat, got.first_tree)
    if not Host.first_tree.is_set(me):
        me.first_tree, me.grove.first = got.first_tree, got.first_tree - 1
    if me.first_tree != got.first_tree:
        raise PeerError(
            f"the guest begins at tree {got.first_tree}, it began at {me.first_tree} before"
        )
    me.side = side
    return Out()


def receive_gradients(me: Host, got: Iterator[pb.EncryptedGradients]) -> Out:
    """The packed gradients of the rows that take part, checked; new trees begin, or those go on
    that an earlier attempt has left.
    """
    gradients: Gradients | None = None
    grove = me.grove
    for part in got:
        if gradients is None:
            grove = _begun(me, part)
            gradients = Gradients(me.side, part, _n_sampled(grove))
        gradients.add(part)
    if gradients is None:
        raise PeerError("the guest sent no gradients")
    whole = gradients.whole()  # refuses before anything changes
    if grove is not me.grove:
        me.record.add(me.grove)
        me.grove, me.layers, me.divided = grove, _layers(me, grove.first), {}
        me.meter.begin_trees()
    me.gradients = whole
    return Out()


def sum_candidates(me: Host, got: Frontier) -> Iterator[Out]:
    """Encrypted sums of every candidate split of the open nodes, shuffled, compressed, blinded."""
    _follow(me, got)
    yield from release(me.grove, me.gradients, me.meter, me.seat.secrets)


def divide_rows(me: Host, got: pb.WonSplits) -> Out:
    """Send how the rows of the won nodes divide; of tied candidates the lowest column and bin
    count.
    """
    won = read_choices(got, me.grove.offered)
    me.divided = answers.divisions(me.grove, won, me.binning, me.bins)
    me.splits += answers.named_splits(won, me.binning, me.grove.first)
    about = replace(about_divisions(me.divided.values()), charges=me.meter.divided(won))
    return Out(send=answers.write_divisions(me.divided), about=about)


def snapshot(me: Host, place: Place) -> Artefact:
    """The splits so far, and what trees under way have settled."""
    under_way = None
    if len(place) > 1 and me.seat.party in _plan(me, place[0]).hosts:
        under_way = SecureBoostHostTrees(trees=[*me.grove.trees], divided=me.divided)
    else:
        me.record.add(me.grove)
    transcript = me.record.handed_over(place)
    kept = SecureBoostHostState(
        splits=me.splits,
        number=me.grove.first,
        first_tree=me.first_tree,
        is_recorded=me.record.begun,
        under_way=under_way,
    )
    return Artefact.of_state(kept, transcript)


def restore(me: Host, checkpoint: Artefact) -> Told:
    """Carries on behind the last finished tree, or behind a layer."""
    kept = checkpoint.state(SecureBoostHostState)
    me.splits, me.first_tree, me.record.begun = kept.splits, kept.first_tree, kept.is_recorded
    me.grove = HostGrove(first=kept.number)
    if kept.under_way is not None:
        trees = kept.under_way.trees
        me.grove = _planted(me, kept.number, np.array([tree.growth.is_training for tree in trees]))
        me.grove.load_state(trees)
        me.layers, me.divided = _layers(me, kept.number), kept.under_way.divided
    return Told()


def finish(me: Host) -> Artefact:
    """The host's shard: its splits by column name."""
    return earlier.host_shard(me.seat, me.binning, me.first_tree, me.grove.first, me.splits)


def bytes_max(me: Host, step: str) -> int:
    """As large as rows, nodes and offers make it."""
    trees = int(forest.sizes(me.seat.params).max())
    if step == "receive_gradients":
        rows = me.side.octets_max if Host.side.is_set(me) else 0
        return rows + (1 + trees) * me.bins.shape[0] // 8 + 1024
    if step == "sum_candidates":
        return trees * (me.bins.shape[0] // 8 + 8 * FRONTIER_NODES_MAX) + 1024
    if step == "divide_rows":
        return choices_bytes_max(me.grove.offered)
    return wire.CONTROL_BYTES_MAX


def _begun(me: Host, first: pb.EncryptedGradients) -> HostGrove:
    """Trees at their roots; or ours, where an earlier attempt has left them."""
    is_left = not Host.gradients.is_set(me) and me.grove.begins_with(first.tree)
    left = me.grove if is_left else None
    done = me.grove.first - me.first_tree
    _, number, n_trees = plan.next_grove(me.seat.params, me.seat.table, me.seat.party, done)
    if left is not None:
        number, n_trees = done, len(left.trees)
    expected = me.first_tree + number
    if not n_trees or first.tree != expected:
        raise PeerError(f"the guest began tree {first.tree}, expected tree {expected}")
    (training,) = np.nonzero(~me.seat.validation)
    sampled = np.zeros((n_trees, me.bins.shape[0]), np.bool_)
    sampled[:, training] = read_sample(first, len(training), n_trees)
    if left is None:
        return _planted(me, expected, sampled)
    if not np.array_equal(sampled, _sampled(left)):
        raise PeerError("the guest goes on with other rows than the trees have begun with")
    return left


def _planted(me: Host, number: int, sampled: NDArray[np.bool_]) -> HostGrove:
    """Trees from tree `number` on at their roots; sampled bool (trees, rows) says what each learns
    from.
    """
    params = me.seat.params
    place = np.cumsum(sampled.any(axis=0)) - 1
    group = me.seat.table.hosts.index(me.seat.party) + 1
    trees: list[HostTree[Any]] = []
    for slot, inside in enumerate(sampled):
        columns = sampling.own_columns(
            *(params.seed, number + slot, group, me.bins.shape[1], params.column_rate)
        )
        own = cells.of_columns(me.binning, me.bins, columns, leave_out=params.sparse_histograms)
        tree: HostTree[Any] = HostTree(
            *(own, Growth.begun(inside), place),
            subtraction=params.histogram_subtraction,
            least=me.seat.limits.group_rows_min,
            trees=len(sampled),
        )
        trees.append(tree)
    return HostGrove(trees, number)


def _sampled(grove: HostGrove) -> NDArray[np.bool_]:
    """bool (trees, rows): which rows each tree learns from."""
    return np.array([tree.growth.is_training for tree in grove.trees])


def _n_sampled(grove: HostGrove) -> int:
    """Return how many rows' gradients come: those that some tree learns from."""
    return int(np.count_nonzero(_sampled(grove).any(axis=0)))


def _plan(me: Host, number: int) -> plan.Plan:
    """Return the plan of a round of this job."""
    return plan.of_round(me.seat.params, me.seat.table, number)


def _layers(me: Host, tree: int) -> int:
    """In how many layers we offer candidates of the trees that begin with `tree`."""
    before = tree - me.first_tree - 1
    number, _, _ = plan.next_grove(me.seat.params, me.seat.table, me.seat.party, before)
    return _plan(me, number).host_layers


def _follow(me: Host, got: Frontier) -> None:
    """Divides the rows as the guest says, and checks that what it opens can be open."""
    grove = me.grove
    if grove.trees[0].growth.layers >= me.layers:
        raise PeerError(f"the guest asked for layer {me.layers + 1} of a tree, it has {me.layers}")
    divided = wire.unpack(got.divided, "i4", (None,), "the divided nodes").tolist()
    strangers = set(divided) - set(grove.opened)
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
    fits = set(opened) <= may_open and sorted(set(opened)) == opened
    if not grove.trees[0].growth.layers:  # every tree begins
        fits = opened == grove.numbers([ROOT] for _ in own)
    if not fits:
        raise PeerError("the guest opened nodes that are not children of divided ones")
    for slot, (tree, mine) in enumerate(zip(grove.trees, own, strict=True)):
        tree.growth.divide(list(mine.items()))
        tree.opened = [number - slot * STRIDE for number in opened if number // STRIDE == slot]


def _children(nodes: Iterable[int]) -> list[int]:
    return [child for node in nodes for child in (left_child(node), right_child(node))]
