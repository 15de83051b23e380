"""The guest of secureboost: owns labels and key, chooses every split, keeps the trees' shape."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fedboost import wire
from fedboost.core import binning, objectives
from fedboost.core.bins import Bins
from fedboost.core.objectives import Summary
from fedboost.encrypted import keys, schemes
from fedboost.encrypted.candidates import Shape
from fedboost.encrypted.grove import STRIDE
from fedboost.encrypted.growth import Division, about_divisions, read_divisions, write_sample
from fedboost.encrypted.guest_tree import GuestGrove, GuestRules, GuestTree, GuestTreeState, Won
from fedboost.encrypted.host_noise import NoiseScale
from fedboost.encrypted.offers import HOST_COLUMNS_MAX, Offers, read_offers, write_choices
from fedboost.encrypted.record import GuestRecord, seen
from fedboost.encrypted.rounds import Labels, Rounds, RoundsState
from fedboost.encrypted.sides import GuestRows, GuestSide, addressed
from fedboost.flow import About, Artefact, Out, Place, Seat
from fedboost.messages.job_pb2 import Told
from fedboost.messages.protocol import encrypted_pb2 as pb
from fedboost.messages.protocol.secureboost_pb2 import Frontier
from fedboost.model import vertical, words
from fedboost.model.vertical import GuestNode
from fedboost.protocols.secureboost import earlier, plan
from fedboost.protocols.secureboost.plan import Plan
from fedboost.protocols.secureboost.shown import Shown, ShownState
from fedboost.slot import Slot
from fedboost.state import restore_into, state

Floats = NDArray[np.float64]
Sums = NDArray[np.int64]

LAYERS = "layer"  # what the loop over a tree's layers counts


@state
class SecureBoostGuestTrees:
    """What the trees under way have settled."""

    trees: list[GuestTreeState]
    shown: ShownState


@state
class SecureBoostGuestState:
    """What a checkpoint keeps: finished trees, margins and metrics, and trees under way."""

    rounds: RoundsState
    nodes: list[GuestNode]
    trees_closed: int
    ends: str
    is_recorded: bool
    under_way: SecureBoostGuestTrees | None


CHECKPOINT = SecureBoostGuestState  # what `snapshot` keeps


@dataclass(frozen=True)
class OpenTrees:
    """The trees that grow at once, and what the hosts are shown of them."""

    grove: GuestGrove
    shown: Shown


@dataclass(kw_only=True)
class Guest(Rounds):
    """What the guest remembers between steps."""

    rules: GuestRules
    bins: Bins
    record: GuestRecord  # for an audit of our own
    nonces: tuple[bytes, ...] = ()  # of this attempt, where the scheme takes any
    nodes: list[GuestNode] = field(default_factory=list)  # of finished trees, earlier ones first
    trees_closed: int = 0
    under_way: SecureBoostGuestTrees | None = None  # that an earlier attempt has left
    side = Slot[GuestSide]("a key of this attempt")
    growing = Slot[OpenTrees]("trees that grow")
    encrypted = Slot[GuestRows]("gradients that hosts have")

    @property
    def plan(self) -> Plan:
        """Plan of the round under way; whose turn it is starts anew with every job."""
        this = len(self.history) - self.first_round
        return plan.of_round(self.seat.params, self.seat.table, this)


def begin(seat: Seat) -> Guest:
    """Bins the own columns and fixes the objective, on training rows alone."""
    frame, params = seat.data, earlier.settled(seat)
    own, train = Labels.of(seat, params), ~seat.validation
    summary = Summary.of(params, own.y[train], own.weight[train])
    objective = objectives.start(params, summary)
    known = earlier.known_codes(seat)
    cuts = binning.fit(frame.values[train], params.max_bin, frame.categorical, known)
    fixed = schemes.of(params).encoding(
        params, int(train.sum()), lambda own: objectives.encoding(own, objective, summary)
    )
    start = earlier.start(seat, objective)
    return Guest(
        seat=seat,
        params=params,
        objective=objective,
        y=own.y,
        weight=own.weight,
        base_margin=start.base_margin,
        margin=start.margin,
        first_round=start.rounds,
        history=start.history,
        forest=start.forest,
        rules=GuestRules(params, cuts, fixed, noise=NoiseScale.of(params, fixed.bits)),
        bins=cuts.transform(frame.values),
        record=GuestRecord(seat, dict.fromkeys(seat.table.hosts, np.arange(frame.n_rows))),
        nodes=start.nodes,
        trees_closed=sum(start.forest) * params.trees_per_round,
    )


def hear_nonces(me: Guest, got: Mapping[str, pb.Nonce]) -> Out:
    """Read what the hosts give for public polynomials."""
    me.nonces = keys.read_nonces(me.seat, got)
    return Out()


def share_key(me: Guest) -> Out:
    """A fresh key for this attempt, and how gradients are packed (SecureBoost+, section 4.2)."""
    params, bits = me.seat.params, me.rules.fixed.bits
    me.side = keys.guest_side(me.seat, bits, [_training(me)], me.nonces)
    return Out(send=me.side.told(sum(me.forest[: me.first_round]) * params.trees_per_round))


def start_round(me: Guest) -> Out:
    """Gradients at the margins before it, of the rows that this round draws, as exact integers."""
    me.start_round(me.rules.fixed, me.side.rounding(len(me.history)))
    _plant(me)
    return Out()


def encrypt_gradients(me: Guest) -> Iterator[Out]:
    """The packed gradients of the rows that take part, in parts (Algorithms 3 and 7, signed)."""
    train, sample = me.seat.parts["train"], me.round.sample
    gh = me.growing.grove.trees[0].gh[train[sample.rows]]
    rows = me.encrypted = me.side.rows(me.trees_closed, gh, _training(me))
    for number, part in enumerate(rows.parts()):
        about = About(part.rows.count // rows.per_row)
        if number:
            yield Out(send=part, about=about)
            continue
        write_sample(part, sample, len(train))
        yield Out(send=addressed(part, rows, me.plan.hosts), about=about)


def open_layer(me: Guest) -> Out:
    """Tells each host which nodes look for a split of its own, and how those above divided."""
    shown = me.growing.shown
    me.growing.grove.open_layer()
    told = shown.open_layer()
    return Out(
        send={host: _frontier(told[host], shown.open[host]) for host in told},
        about={host: about_divisions(bits for _, bits in told[host]) for host in told},
    )


def choose_splits(me: Guest, got: Iterator[Mapping[str, pb.CandidateSums]]) -> Out:
    """The best split of every open node among all candidates; ties as in the pooled table."""
    grove, this = me.growing.grove, me.plan
    offers = _read(me, got)
    won = grove.own_best(me.trees_closed) if this.guest_competes else {}
    tied: dict[str, dict[int, list[NDArray[np.int64]]]] = {host: {} for host in offers}
    for node in grove.opened:
        best, winner = won.get(node), ""
        for host in this.hosts:
            offer = offers[host].get(node)
            found = None if offer is None else grove.best_of(node, *offer)
            if found is not None and (best is None or found.gain > best.gain):
                number = me.seat.table.hosts.index(host) + 1
                best, winner = Won(number, found.gain, found.left, found.parts), host
                choices = found.choices
        if best is not None:
            won[node] = best
        if winner:
            tied[winner][node] = choices
    grove.choose({node: won[node] for node in grove.opened if node in won})
    return Out(send={host: write_choices(ties) for host, ties in tied.items()})


def grow_nodes(me: Guest, got: Mapping[str, pb.RowDivisions]) -> Out:
    """Divides the rows of the chosen nodes; refuses a division that is not the split offered."""
    grove = me.growing.grove
    divisions = grove.own_divisions()
    for host, message in got.items():
        owned = grove.owned(me.seat.table.hosts.index(host) + 1)
        rows = grove.n_rows(owned)
        divisions |= read_divisions(message.nodes, message.goes_right, owned, rows, host)
    grove.divide(divisions, me.seat.table.hosts)
    return Out(told=Told(ends="" if grove.open_layer() else LAYERS))


def grow_alone(me: Guest) -> Out:
    """The layers that nobody but the guest has a part in: all of them in one go."""
    grove = me.growing.grove
    for _ in range(me.plan.guest_layers):
        if not grove.open_layer():
            break
        grove.choose(grove.own_best(me.trees_closed))
        grove.divide(grove.own_divisions())
    return Out()


def close_trees(me: Guest) -> Out:
    """Leaf values, and the margins with them; the trees of a forest share a round's step."""
    grove = me.growing.grove
    outputs = me.outputs_of(me.trees_closed)
    found = [_leaves(me, tree) for tree in grove.trees]  # before any margin moves
    for slot, (tree, values) in enumerate(zip(grove.trees, found, strict=True)):
        me.nodes += tree.finished(me.trees_closed, values)
        _note_tree(me, slot, tree)
        for node, value in values.items():
            me.margin[tree.growth.everyone.rows(node), outputs] += value
        me.trees_closed += 1
    del me.growing
    if me.trees_closed < sum(me.forest) * me.params.trees_per_round:
        _plant(me)
    return Out()


def close_round(me: Guest) -> Out:
    """Metrics; says when early stopping ends the job."""
    return Out(told=me.close_round(plan.loop(me.seat.params)))


def close_model(me: Guest) -> Out:
    """Report the finished model: metrics of the round it keeps, curves, importance."""
    told = me.told()
    told.importance.extend(words.importance(me.seat, _kept(me)))
    return Out(told=told)


def snapshot(me: Guest, place: Place) -> Artefact:
    """Finished trees, margins and metrics, and what trees under way have settled; the key is drawn
    anew by the next attempt.
    """
    under_way = None
    if len(place) > 1:
        under_way = SecureBoostGuestTrees(trees=[*me.growing.grove.trees], shown=me.growing.shown)
    transcript = me.record.handed_over(place)
    kept = SecureBoostGuestState(
        rounds=me,
        nodes=me.nodes,
        trees_closed=me.trees_closed,
        ends=LAYERS if under_way is not None and not me.growing.grove.opened else "",
        is_recorded=me.record.begun,
        under_way=under_way,
    )
    return Artefact.of_state(kept, transcript)


def restore(me: Guest, checkpoint: Artefact) -> Told:
    """Carries on behind the last finished round; or behind a layer, once the round is begun."""
    kept = checkpoint.state(SecureBoostGuestState)
    restore_into(me, kept.rounds)
    me.nodes, me.trees_closed, me.record.begun = kept.nodes, kept.trees_closed, kept.is_recorded
    me.under_way = kept.under_way
    return Told(ends=me.ended(plan.loop(me.seat.params)) or kept.ends)


def finish(me: Guest) -> Artefact:
    """The guest's shard: every node up to the best round, its own splits by column name."""
    frame = me.seat.data
    columns = list(frame.columns)
    categories = earlier.listed(me.seat, me.rules.binning)
    facts = {**me.model_facts(), "columns": columns, "categories": categories}
    arrays = vertical.nodes_to_arrays(_kept(me), me.outputs_of_tree)
    return Artefact(facts, arrays, transcript=me.record.closed(me))


def bytes_max(me: Guest, step: str) -> int:
    """Answers are as large as the open nodes and the widest host make them."""
    grove = me.growing.grove if Guest.growing.is_set(me) else GuestGrove([])
    opened = grove.opened
    if step == "grow_nodes":
        return len(grove.trees) * len(me.y) // 8 + 8 * len(opened) + wire.PIECE_BYTES
    if not Guest.encrypted.is_set(me):
        return keys.NONCE_BYTES_MAX
    size = me.encrypted.octets_max([_most_sums(me)] * len(opened))
    return min(wire.MESSAGE_BYTES_MAX, size + wire.PIECE_BYTES)


def _plant(me: Guest) -> None:
    """The next trees of the round, at their roots or where an earlier attempt has left them."""
    train, number = me.seat.parts["train"], me.trees_closed
    rows = [train[own] for own in me.round.sample.trees]
    grove = GuestGrove.planted(me.rules, me.bins, me.gh_of(number), rows, number)
    owners = {host: me.seat.table.hosts.index(host) + 1 for host in me.plan.hosts}
    own = me.params.label_protection
    shown = Shown(owners, grove, me.purity, hides=own is not None and own.hide_divisions)
    if me.under_way is not None:
        grove.load_state(me.under_way.trees)
        restore_into(shown, me.under_way.shown)
        me.under_way = None
    me.growing = OpenTrees(grove, shown)


def _note_tree(me: Guest, slot: int, tree: GuestTree) -> None:
    """Notes what each host that took part has seen of a tree that has grown."""
    for host in me.plan.hosts:
        number = me.seat.table.hosts.index(host) + 1
        told = [one % STRIDE for one in me.growing.shown.told[host] if one // STRIDE == slot]
        me.record.add(me.trees_closed, number, seen(tree, len(me.y), told, number))


def _training(me: Guest) -> int:
    """Return how many rows there are to learn from."""
    return len(me.seat.parts["train"])


def _most_sums(me: Guest) -> int:
    """Return the most sums of a host about one node."""
    return HOST_COLUMNS_MAX * 2 * me.rules.params.max_bin


def _frontier(divided: Sequence[Division], opened: Sequence[int]) -> Frontier:
    bits = np.concatenate([np.empty(0, np.bool_), *(bits for _, bits in divided)])
    return Frontier(
        divided=wire.pack(np.array([node for node, _ in divided], np.int32)),
        goes_right=wire.pack_bits(bits),
        open=wire.pack(np.array(opened, np.int32)),
    )


def _read(
    me: Guest, got: Iterator[Mapping[str, pb.CandidateSums]]
) -> dict[str, dict[int, tuple[Sums, Shape]]]:
    """Each host's sums of the nodes that are open to it, decrypted as they come in."""
    grove, shown, most = me.growing.grove, me.growing.shown, _most_sums(me)
    expected = dict(zip(grove.opened, grove.expected(), strict=True))
    coming = {
        host: Offers(me.encrypted, [expected[node] for node in opened], most, host)
        for host, opened in shown.open.items()
    }
    found = read_offers(got, coming)
    for host, offers in found.items():
        shown.hear(host, [sums for sums, _ in offers])
    return {host: dict(zip(shown.open[host], own, strict=True)) for host, own in found.items()}


def _leaves(me: Guest, tree: GuestTree) -> dict[int, Floats]:
    """The leaves' values (outputs,), divided by the trees whose average they are."""
    if me.objective.renews_leaves:
        values = tree.medians(me.y - me.margin[:, 0], me.weight)
    else:
        values = tree.leaves()
    return {node: value / me.forest[-1] for node, value in values.items()}


def _kept(me: Guest) -> list[GuestNode]:
    return [node for node in me.nodes if node.tree < me.n_kept]
