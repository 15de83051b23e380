"""The guest of hybridtree: labels, key and the upper layers are its own; it scores the hosts'."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fedboost import wire
from fedboost.core import binning, hybrid, objectives, sampling
from fedboost.core.bins import Bins
from fedboost.core.fixed_point import FixedPoint
from fedboost.core.objectives import Objective, Summary
from fedboost.core.tree import Positions, Tree
from fedboost.crypto.api import PrivateKey
from fedboost.crypto.schemes import SCHEMES
from fedboost.encrypted import keys, leaf_answers, schemes
from fedboost.encrypted.growth import read_divisions, write_sample
from fedboost.encrypted.guest_tree import GuestGrove, GuestRules, GuestTreeState, Won
from fedboost.encrypted.host_noise import NoiseScale
from fedboost.encrypted.leaf_answers import Precision
from fedboost.encrypted.offers import HOST_COLUMNS_MAX, Offers, read_offers, write_choices
from fedboost.encrypted.packed import PackedGuest
from fedboost.encrypted.record import GuestRecord
from fedboost.encrypted.rounds import Labels, Rounds, RoundsState
from fedboost.encrypted.sides import GuestRows, GuestSide
from fedboost.flow import About, Artefact, Out, Place, Seat
from fedboost.messages.job_pb2 import Told
from fedboost.messages.protocol import encrypted_pb2, hybridtree_pb2
from fedboost.model import columns, words
from fedboost.model import hybrid as model
from fedboost.model.hybrid import Below
from fedboost.model.vertical import GuestNode
from fedboost.protocols.hybridtree.params import HybridTreeParams
from fedboost.protocols.hybridtree.streams import nothing, side_by_side
from fedboost.protocols.hybridtree.view import HostView, views
from fedboost.slot import Slot
from fedboost.state import restore_into, state

Sums = NDArray[np.int64]
Floats = NDArray[np.float64]

LOOP = "round"  # what the outermost loop counts
LAYERS = "layer"  # and that over the hosts' layers of a tree


@state
class HybridTreeGuestState:
    """What a checkpoint keeps: finished trees, margins and metrics, and trees under way."""

    rounds: RoundsState
    tops: list[GuestNode]
    below: list[Below]
    key: bytes  # under which hosts keep leaf values; none where they keep no such
    trees_closed: int
    ends: str
    is_recorded: bool
    under_way: dict[str, list[GuestTreeState]]  # by host


CHECKPOINT = HybridTreeGuestState  # what `snapshot` keeps


@dataclass
class OpenTree:
    """The tree that grows: our upper layers, and below them each host's."""

    top: Tree
    leaves: Positions  # (rows,) in `top`
    groves: dict[str, GuestGrove]  # by host, with scored splits
    encrypted: dict[str, GuestRows] = field(default_factory=dict)  # by host
    added: Floats | None = None  # (rows, outputs) by all hosts' leaves, with unscored splits


@dataclass(kw_only=True)
class Guest(Rounds):
    """What the guest remembers between steps."""

    params: HybridTreeParams
    rules: GuestRules
    bins: Bins
    views: dict[str, HostView]
    record: GuestRecord  # for an audit of our own
    nonces: tuple[bytes, ...] = ()  # of this attempt, where the scheme takes any
    tops: list[GuestNode] = field(default_factory=list)  # of finished trees
    below: list[Below] = field(default_factory=list)
    trees_closed: int = 0
    # What an earlier attempt has settled below the tree to grow
    under_way: dict[str, list[GuestTreeState]] = field(default_factory=dict)
    side = Slot[GuestSide]("a key of this attempt")
    key = Slot[PrivateKey]("a key under which hosts keep leaf values")  # with unscored splits
    growing = Slot[OpenTree]("a tree that grows")

    @property
    def is_scored(self) -> bool:
        """Return whether we choose the hosts' splits."""
        return self.params.split == "scored"

    @property
    def precision(self) -> Precision:
        """Return how exact unscored leaf values are."""
        n_rows = len(self.seat.parts["train"])
        return Precision.of(self.params, len(self.views), n_rows)

    @cached_property
    def holders(self) -> NDArray[np.int64]:
        """int64 (rows,): how many hosts have each row."""
        found = np.zeros(len(self.y), np.int64)
        for view in self.views.values():
            found[view.rows] += 1
        return found

    @property
    def taking_part(self) -> NDArray[np.bool_]:
        """bool (rows,): the rows that the trees of this round learn from."""
        found = np.zeros(len(self.y), np.bool_)
        found[self.seat.parts["train"][self.round.sample.rows]] = True
        return found


def begin(seat: Seat) -> Guest:
    """Bins the own columns and fixes the objective, on training rows alone."""
    frame, params = seat.data, seat.params
    own, train = Labels.of(seat, params), ~seat.validation
    summary = Summary.of(params, own.y[train], own.weight[train])
    objective = objectives.start(params, summary)
    cuts = binning.fit(frame.values[train], params.max_bin, frame.categorical)
    fixed = _encoding(params, objective, summary)
    hosts = views(seat)
    return Guest(
        seat=seat,
        params=params,
        objective=objective,
        y=own.y,
        weight=own.weight,
        base_margin=objective.base_margin,
        margin=np.tile(objective.base_margin, (frame.n_rows, 1)),
        rules=GuestRules(params, cuts, fixed, noise=NoiseScale.of(params, fixed.bits)),
        bins=cuts.transform(frame.values),
        views=hosts,
        record=GuestRecord(seat, {host: view.rows for host, view in hosts.items()}),
    )


def hear_nonces(me: Guest, got: Mapping[str, encrypted_pb2.Nonce]) -> Out:
    """Read what the hosts give for public polynomials."""
    me.nonces = keys.read_nonces(me.seat, got)
    return Out()


def share_key(me: Guest) -> Out:
    """A fresh key for this attempt, and how gradients are packed.

    With unscored splits it is the job's: the hosts keep leaf values under it.
    """
    rows = [view.n_training for view in me.views.values()]
    if me.is_scored:
        me.side = keys.guest_side(me.seat, me.rules.fixed.bits, rows, me.nonces)
    else:
        if not Guest.key.is_set(me):
            me.key = keys.generate(me.seat)
        packing = me.precision.layout(me.key.plaintext_bits)
        bits = me.precision.value_bits
        me.side = PackedGuest(me.params, me.key, bits, dict.fromkeys(rows, packing))
    return Out(send=me.side.told(first_tree=0))


def share_rows(me: Guest) -> Out:
    """To each host which of its rows the others have as well."""
    held = {host: view.rows for host, view in me.views.items()}
    about = {host: About(len(rows)) for host, rows in held.items()}
    return Out(send=leaf_answers.shared_rows(held, len(me.y)), about=about)


def start_round(me: Guest) -> Out:
    """Gradients at the margins so far, of the rows that this round draws, as exact integers."""
    me.start_round(me.rules.fixed, me.side.rounding(len(me.history)))
    return Out()


def grow_top(me: Guest) -> Out:
    """The upper layers on the own columns; what they leave of the gradients goes to the hosts."""
    params, number = me.params, me.trees_closed
    gh, taking_part = me.gh_of(number), me.taking_part
    usable = sampling.own_columns(params.seed, number, 0, me.bins.shape[1], params.column_rate)
    rows = np.flatnonzero(taking_part).astype(np.int32)
    top = hybrid.top(me.rules, me.bins, gh, rows, usable, params.guest_depth)
    leaves = top.leaf_of_bins(me.bins, me.rules.binning.missing)
    moved = hybrid.residual(gh, top.value[leaves], me.rules.fixed)
    if not me.is_scored:
        fit = (moved, top, leaves, taking_part)
        moved = hybrid.counted(*fit, me.rules, me.precision.value_bits)
    first = model.first_number(params.guest_depth)
    # A tree that is grown again has the same numbers, which hosts keep and unscored ones cut by.
    secrets = me.seat.job_secrets
    for view in me.views.values():
        view.stand(top, leaves, first, secrets.child(view.number, number))
        view.learn(taking_part, moved)
    scored = me.views if me.is_scored else {}
    groves = {host: view.planted(me.rules, me.purity) for host, view in scored.items()}
    for host, trees in me.under_way.items():
        groves[host].load_state(trees)
    me.under_way = {}
    me.growing = OpenTree(top, leaves, groves)
    return Out()


def encrypt_gradients(me: Guest) -> Iterator[Out]:
    """To each host the packed gradients of its rows that take part, in parts, side by side."""
    number, side = me.trees_closed, me.side
    encrypted = {
        host: side.rows(number, view.gh[view.learns], view.n_training)
        for host, view in me.views.items()
    }
    me.growing.encrypted = encrypted
    streams = {host: rows.parts() for host, rows in encrypted.items()}
    held = dict.fromkeys(me.views, 0)
    for place, parts in enumerate(side_by_side(streams)):
        sent, about = {}, {}
        for host, view in me.views.items():
            part = parts[host] or nothing(number, held[host])
            rows = part.rows.count // encrypted[host].per_row
            held[host] += rows
            about[host] = About(rows) if place else view.about
            if place == 0:
                write_sample(part, view.sample, view.n_training)
                part.tree_key = encrypted[host].key_for(host)
            sent[host] = hybridtree_pb2.BottomRows(gradients=part)
            if place == 0:
                _write_places(me, host, sent[host])
        yield Out(send=sent, about=about)


def choose_splits(me: Guest, got: Iterator[Mapping[str, encrypted_pb2.CandidateSums]]) -> Out:
    """Choose the best split of every open node of every host; no host's nodes compete with
    another's.
    """
    most, sent, growing = _most_sums(me), {}, me.growing
    coming = {
        host: Offers(growing.encrypted[host], grove.expected(), most, host)
        for host, grove in growing.groves.items()
    }
    offers = read_offers(got, coming)
    for host, grove in growing.groves.items():
        number = me.views[host].number
        won, tied = {}, {}
        for node, offer in zip(grove.opened, offers[host], strict=True):
            best = grove.best_of(node, *offer)
            if best is not None:
                won[node] = Won(number, best.gain, best.left, best.parts)
                tied[node] = best.choices
        grove.choose(won)
        [tree] = grove.trees
        opened = tree.next_open() if tree.layers + 1 < me.params.host_depth else []
        sent[host] = hybridtree_pb2.ChosenSplits(
            won=write_choices(tied), open=wire.pack(np.array(opened, np.int32))
        )
    return Out(send=sent)


def grow_nodes(me: Guest, got: Mapping[str, encrypted_pb2.RowDivisions]) -> Out:
    """Divides the rows as the hosts say; refuses a division that is not the split offered."""
    for host, grove in me.growing.groves.items():
        [tree] = grove.trees
        opened = tree.next_open()
        owned = grove.owned(me.views[host].number)
        rows, message = grove.n_rows(owned), got[host]
        divided = read_divisions(message.nodes, message.goes_right, owned, rows, host)
        grove.divide(divided, me.seat.table.hosts)
        tree.opened = opened
    is_over = _is_grown(me)
    return Out(told=Told(ends=LAYERS if is_over else ""))


def add_values(me: Guest, got: Mapping[str, encrypted_pb2.LeafAnswers]) -> Out:
    """Add what the hosts' leaves give each row, summed over its hosts before anybody could look."""
    held = {host: view.rows for host, view in me.views.items()}
    packing = me.precision.layout(me.key.plaintext_bits)
    total = leaf_answers.read_answers(got, me.key, packing, held, len(me.y))
    me.growing.added = np.asarray(total * _unit(me), np.float64)
    return Out()


def close_tree(me: Guest) -> Out:
    """Leaf values, and the margins with them: what the hosts' leaves add is averaged."""
    number, growing = me.trees_closed, me.growing
    tops = model.top_nodes(number, growing.top, me.params.learning_rate)
    me.tops += tops
    total = growing.added
    if total is None:
        total = np.zeros((len(me.y), me.outputs_of_tree))
        for host, view in me.views.items():
            [tree] = growing.groves[host].trees
            values = tree.leaves()
            total[view.rows] += view.added(tree, values)
            me.below += view.finished(number, tree, values)
    else:
        for view in me.views.values():
            me.below += view.unseen(number, me.outputs_of_tree)
    for host, view in me.views.items():
        me.record.add(number, view.number, view.seen(growing.groves.get(host)))
    own = np.array([node.value for node in tops])[growing.leaves]
    me.margin[:, me.outputs_of(number)] += own + total / np.maximum(me.holders, 1)[:, None]
    me.trees_closed += 1
    del me.growing
    return Out()


def close_round(me: Guest) -> Out:
    """Metrics; says when early stopping ends the job."""
    return Out(told=me.close_round(LOOP))


def close_model(me: Guest) -> Out:
    """Report the finished model: metrics of the round it keeps, curves, importance."""
    told, (tops, below) = me.told(), _kept(me)
    seen = [one.node for one in below] if me.is_scored else []
    told.importance.extend(words.importance(me.seat, [*tops, *seen]))
    return Out(told=told)


def snapshot(me: Guest, place: Place) -> Artefact:
    """Finished trees, margins and metrics; a key that the hosts' leaf values are not under is
    drawn anew by the next attempt.
    """
    inside = me.growing.groves if len(place) > 1 and Guest.growing.is_set(me) else {}
    transcript = me.record.handed_over(place)
    kept = HybridTreeGuestState(
        rounds=me,
        tops=me.tops,
        below=me.below,
        key=_own_key(me),
        trees_closed=me.trees_closed,
        ends=LAYERS if inside and _is_grown(me) else "",
        is_recorded=me.record.begun,
        under_way={host: [*grove.trees] for host, grove in inside.items()},
    )
    return Artefact.of_state(kept, transcript)


def restore(me: Guest, checkpoint: Artefact) -> Told:
    """Carries on behind the last finished tree; or behind a layer, once the tree is begun."""
    kept = checkpoint.state(HybridTreeGuestState)
    restore_into(me, kept.rounds)
    me.trees_closed, me.record.begun = kept.trees_closed, kept.is_recorded
    me.tops, me.below, me.under_way = kept.tops, kept.below, kept.under_way
    if kept.key:
        scheme = SCHEMES[me.params.encryption.scheme]
        me.key = scheme.load_private(kept.key, me.seat.workers)
    return Told(ends=me.ended(LOOP) or kept.ends)


def finish(me: Guest) -> Artefact:
    """The guest's shard: its parts of all trees up to the best round, and the values below."""
    frame = me.seat.data
    facts = {
        **me.model_facts(),
        "kind": model.KIND,
        "split": me.params.split,
        "host_depth": me.params.host_depth,
        "guest_depth": me.params.guest_depth,
        "columns": list(frame.columns),
        "categories": columns.categories(frame, me.rules.binning),
    }
    arrays = model.to_arrays(*_kept(me), me.outputs_of_tree)
    if not me.is_scored:
        facts |= {"precision": asdict(me.precision), "value_unit": _unit(me)}
        arrays[model.KEY] = np.frombuffer(_own_key(me), np.uint8)
    return Artefact(facts, arrays, transcript=me.record.closed(me))


def bytes_max(me: Guest, step: str) -> int:
    """Answers are as large as the open nodes and the widest host make them."""
    if step == "grow_nodes":
        return len(me.y) // 8 + (8 << me.params.guest_depth + me.params.host_depth) + 1024
    if step == "hear_nonces":
        return keys.NONCE_BYTES_MAX
    if step == "add_values" and Guest.key.is_set(me):
        packing = me.precision.layout(me.key.plaintext_bits)
        most = max(packing.package_count([len(view.rows)]) for view in me.views.values())
        return most * me.key.width + 1024
    if not Guest.growing.is_set(me):
        return wire.PIECE_BYTES
    opened = max((len(grove.opened) for grove in me.growing.groves.values()), default=0)
    sums = [_most_sums(me)] * opened
    size = max((rows.octets_max(sums) for rows in me.growing.encrypted.values()), default=0)
    return min(wire.MESSAGE_BYTES_MAX, size + wire.PIECE_BYTES)


def _encoding(params: HybridTreeParams, objective: Objective, summary: Summary) -> FixedPoint:
    """The job's integers, as exact as its scheme adds them up."""
    return schemes.of(params).encoding(
        params, summary.rows, lambda own: hybrid.encoding(own, objective, summary)
    )


def _most_sums(me: Guest) -> int:
    """Return the most sums of a host about one node."""
    return HOST_COLUMNS_MAX * 2 * me.params.max_bin


def _unit(me: Guest) -> float:
    """Return what 1 in an answer of unscored splits is worth to a margin."""
    of_gradient = hybrid.counted_unit(me.rules.fixed, me.precision.value_bits)
    return -math.ldexp(of_gradient, -me.precision.fraction_bits) * me.params.learning_rate


def _own_key(me: Guest) -> bytes:
    """The key under which the hosts keep leaf values; none where they keep no such."""
    return me.key.to_bytes() if Guest.key.is_set(me) else b""


def _write_places(me: Guest, host: str, part: hybridtree_pb2.BottomRows) -> None:
    """Says below which bottom node each of the host's rows stands, and which may divide."""
    view = me.views[host]
    part.at.CopyFrom(wire.pack(view.shown if me.is_scored else view.at))
    part.open.CopyFrom(wire.pack(np.array(view.opened if me.is_scored else [], np.int32)))


def _is_grown(me: Guest) -> bool:
    """Return whether no host's subtrees can grow another layer."""
    return not any(grove.opened for grove in me.growing.groves.values())


def _kept(me: Guest) -> tuple[list[GuestNode], list[Below]]:
    """The trees up to the best round."""
    tops = [node for node in me.tops if node.tree < me.n_kept]
    return tops, [one for one in me.below if one.node.tree < me.n_kept]
