"""The guest of secureboost: owns labels and key, chooses every split, keeps the trees' shape."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fedboost.core import binning, objectives
from fedboost.core.bins import Bins
from fedboost.core.objectives import Summary
from fedboost.encrypted.cells.candidates import Shape
from fedboost.encrypted.checks.gradient_check import SETS, CheckedGuest, commit_sums, open_sums
from fedboost.encrypted.guest.offers import HOST_COLUMNS_MAX, Offers, read_offers, write_choices
from fedboost.encrypted.guest.rounds import GuestLabels, Rounds, RoundsState
from fedboost.encrypted.guest.tree import (
    GuestRules,
    GuestTree,
    GuestTreeBatch,
    GuestTreeState,
    WinningSplit,
)
from fedboost.encrypted.record import GuestRecord, nodes_seen
from fedboost.encrypted.scheme import keys, loading
from fedboost.encrypted.scheme.ciphers import GuestCipher, GuestRows, addressed
from fedboost.encrypted.scheme.host_noise import NoiseScale
from fedboost.encrypted.tree.batch import STRIDE
from fedboost.encrypted.tree.growth import Division, about_divisions, read_divisions, write_sample
from fedboost.flow import Artefact, DisclosureInfo, Out, Place, StageContext
from fedboost.ground import wire
from fedboost.ground.arrays import Floats, Sums
from fedboost.ground.slot import Slot
from fedboost.ground.state import Growing, restore_into, state_class
from fedboost.messages.job_pb2 import StatusReport, Warned
from fedboost.messages.protocol import encrypted_pb2 as pb
from fedboost.messages.protocol.secureboost_pb2 import Frontier
from fedboost.model import vertical, words
from fedboost.model.columns import directions
from fedboost.model.vertical import GuestNode
from fedboost.protocols.secureboost import earlier, plan
from fedboost.protocols.secureboost.params import SecureBoostParams
from fedboost.protocols.secureboost.plan import Plan
from fedboost.protocols.secureboost.visibility import Visibility, VisibilityState

__all__ = (
    "begin", "bytes_max", "choose_splits", "close_model", "close_round", "close_trees",
    "commit_sums", "encrypt_gradients", "finish", "grow_alone", "grow_nodes", "hear_nonces",
    "open_layer", "open_sums", "restore", "share_key", "snapshot", "start_round",
)  # fmt: skip

LAYERS = "layer"  # name of the loop over a tree's layers


@state_class
class SecureBoostGuestTrees:
    """State of the growing trees."""

    trees: list[GuestTreeState]
    shown: VisibilityState


@state_class
class SecureBoostGuestState:
    """Checkpoint of the guest: finished trees, margins and metrics, and growing trees."""

    rounds: RoundsState
    nodes: Growing[GuestNode]
    trees_closed: int
    ends: str
    is_recorded: bool
    under_way: SecureBoostGuestTrees | None


CHECKPOINT = SecureBoostGuestState  # state that `snapshot` keeps


@dataclass(frozen=True)
class OpenTrees:
    """The trees that grow at once, and the parts of them that hosts see."""

    tree_batch: GuestTreeBatch
    shown: Visibility


@dataclass(kw_only=True)
class Guest(Rounds, CheckedGuest):
    """State of the guest between steps."""

    context: StageContext[SecureBoostParams]
    rules: GuestRules
    bins: Bins
    record: GuestRecord  # of this training, for audits
    nonces: tuple[bytes, ...] = ()  # of this attempt, if the scheme uses any
    nodes: list[GuestNode] = field(default_factory=list)  # of finished trees, earlier ones first
    trees_closed: int = 0
    under_way: SecureBoostGuestTrees | None = None  # that an earlier attempt has left
    side = Slot[GuestCipher]("a key of this attempt")
    growing = Slot[OpenTrees]("trees that grow")
    encrypted = Slot[GuestRows]("gradients that hosts have")

    @property
    def round_plan(self) -> Plan:
        """Plan of the present round; the turns of parties start anew with every job."""
        this = len(self.history) - self.first_round
        return plan.of_round(self.context.params, self.context.table, this)

    @property
    def sampled_gh(self) -> Sums:
        """Gradients of the rows that take part, int64 (n, 2·outputs)."""
        rows, gh = self.round.sample.rows, self.growing.tree_batch.trees[0].gh
        return gh[self.context.parts["train"][rows]] if len(rows) < len(gh) else gh

    def sent(self) -> Mapping[str, tuple[GuestRows, Sums]]:
        """Return the rows and gradients of each host, the same for all; see `CheckedGuest`."""
        return dict.fromkeys(self.round_plan.hosts, (self.encrypted, self.sampled_gh))


def begin(context: StageContext[SecureBoostParams]) -> Guest:
    """Bin our columns and fix the objective, on training rows only."""
    frame, params = context.data, earlier.settled_params(context)
    labels, train = GuestLabels.of(context, params), ~context.validation
    summary = Summary.of(params, labels.y[train], labels.weight[train])
    objective = objectives.start_objective(params, summary)
    known = earlier.known_codes(context)
    cuts = binning.fit(frame.values, params.max_bin, frame.categorical, known, rows=train)
    fixed = loading.tree_scheme(params).encoding(
        params, int(train.sum()), lambda settings: objectives.encoding(settings, objective, summary)
    )
    moves = directions(params.monotone_constraints, frame.columns, frame.categories)
    start, noise = earlier.training_start(context, objective), NoiseScale.of(params, fixed.bits)
    return Guest(
        context=context,
        params=params,
        objective=objective,
        y=labels.y,
        weight=labels.weight,
        base_margin=start.base_margin,
        margin=start.margin,
        first_round=start.rounds,
        history=start.history,
        forest=start.forest,
        rules=GuestRules(params, cuts, fixed, directions=moves, noise=noise),
        bins=cuts.transform(frame.values),
        record=GuestRecord(context, dict.fromkeys(context.table.hosts, np.arange(frame.n_rows))),
        nodes=start.nodes,
        trees_closed=sum(start.forest) * params.trees_per_round,
    )


def hear_nonces(guest: Guest, got: Mapping[str, pb.Nonce]) -> Out:
    """Read the hosts' nonces for public polynomials."""
    guest.nonces = keys.read_nonces(guest.context, got)
    return Out()


def share_key(guest: Guest) -> Out:
    """Send a fresh key for this attempt, and the packing of gradients (SecureBoost+, 4.2)."""
    params, bits = guest.context.params, guest.rules.fixed.bits
    guest.side = keys.guest_side(guest.context, bits, [_n_training(guest)], guest.nonces)
    return Out(
        send=guest.side.key_message(sum(guest.forest[: guest.first_round]) * params.trees_per_round)
    )


def start_round(guest: Guest) -> Out:
    """Compute gradients at the present margins, for this round's rows, as exact integers."""
    guest.start_round(guest.rules.fixed)
    _plant_trees(guest)
    return Out()


def encrypt_gradients(guest: Guest) -> Iterator[Out]:
    """Send packed gradients of the rows that take part, in parts (Algorithms 3, 7, signed)."""
    train, sample = guest.context.parts["train"], guest.round.sample
    gh = guest.sampled_gh
    rows = guest.encrypted = guest.side.rows(guest.trees_closed, gh, _n_training(guest))
    for number, part in enumerate(rows.parts()):
        about = DisclosureInfo(part.rows.count // rows.sizes.per_row)
        if number:
            yield Out(send=part, about=about)
            continue
        write_sample(part, sample, len(train))
        yield Out(send=addressed(part, rows, guest.round_plan.hosts), about=about)


def open_layer(guest: Guest) -> Out:
    """Send each host its open nodes, and the divisions above them."""
    shown = guest.growing.shown
    guest.growing.tree_batch.open_layer()
    divisions = shown.open_layer()
    return Out(
        send={host: _frontier(divisions[host], shown.open[host]) for host in divisions},
        about={host: about_divisions(bits for _, bits in divisions[host]) for host in divisions},
    )


def choose_splits(guest: Guest, got: Iterator[Mapping[str, pb.CandidateSums]]) -> Out:
    """Choose the best split of every open node; ties are resolved as in the pooled table."""
    tree_batch, this = guest.growing.tree_batch, guest.round_plan
    offers = _read_sums(guest, got)
    won = tree_batch.own_best(guest.trees_closed) if this.guest_competes else {}
    tied: dict[str, dict[int, list[NDArray[np.int64]]]] = {host: {} for host in offers}
    for node in tree_batch.opened:
        best, winner = won.get(node), ""
        for host in this.hosts:
            offer = offers[host].get(node)
            rival = None if offer is None else tree_batch.best_of(node, *offer)
            if rival is not None and (best is None or rival.gain > best.gain):
                number = guest.context.table.hosts.index(host) + 1
                best, winner = WinningSplit(number, rival.gain, rival.left, rival.parts), host
                choices = rival.choices
        if best is not None:
            won[node] = best
        if winner:
            tied[winner][node] = choices
    tree_batch.take_winners({node: won[node] for node in tree_batch.opened if node in won})
    chosen = {*tree_batch.chosen_nodes}  # within max_leaves
    sent = {h: {n: tie for n, tie in ties.items() if n in chosen} for h, ties in tied.items()}
    return Out(send={host: write_choices(ties) for host, ties in sent.items()})


def grow_nodes(guest: Guest, got: Mapping[str, pb.RowDivisions]) -> Out:
    """Divide the rows of the chosen nodes; refuse a division that is not the offered split."""
    tree_batch = guest.growing.tree_batch
    divisions = tree_batch.own_divisions()
    for host, message in got.items():
        owned = tree_batch.owned(guest.context.table.hosts.index(host) + 1)
        rows = tree_batch.n_rows(owned)
        divisions |= read_divisions(message.nodes, message.goes_right, owned, rows, host)
    tree_batch.divide(divisions, guest.context.table.hosts)
    return Out(told=StatusReport(ends="" if tree_batch.open_layer() else LAYERS))


def grow_alone(guest: Guest) -> Out:
    """Grow the layers that only the guest has a part in, all of them in one step."""
    tree_batch = guest.growing.tree_batch
    for _ in range(guest.round_plan.guest_layers):
        if not tree_batch.open_layer():
            break
        tree_batch.take_winners(tree_batch.own_best(guest.trees_closed))
        tree_batch.divide(tree_batch.own_divisions())
    return Out()


def close_trees(guest: Guest) -> Out:
    """Compute leaf values and new margins; the trees of a forest share a round's step."""
    tree_batch = guest.growing.tree_batch
    outputs = guest.outputs_of(guest.trees_closed)
    leaves = _leaf_values(guest, tree_batch.trees)  # before any margin moves
    report = StatusReport(warnings=_label_given_away(guest, tree_batch.trees))
    for slot, (tree, values) in enumerate(zip(tree_batch.trees, leaves, strict=True)):
        guest.nodes += tree.finished(guest.trees_closed, values)
        _note_tree(guest, slot, tree)
        for node, value in values.items():
            guest.margin[tree.growth.everyone.rows_below(node), outputs] += value
        guest.trees_closed += 1
    del guest.growing
    if guest.trees_closed < sum(guest.forest) * guest.params.trees_per_round:
        _plant_trees(guest)
    return Out(told=report)


def close_round(guest: Guest) -> Out:
    """Report the round's metrics, and whether early stopping ends the job."""
    return Out(told=guest.close_round(plan.loop_name(guest.context.params)))


def close_model(guest: Guest) -> Out:
    """Report the finished model: metrics of the kept round, curves, importance."""
    report = guest.status_report()
    report.importance.extend(words.importance(guest.context, _kept_nodes(guest)))
    report.answers = guest.side.answers_in_words()
    return Out(told=report)


def snapshot(guest: Guest, place: Place) -> Artefact:
    """Keep finished trees, margins, metrics, and the state of growing trees; no key."""
    under_way = None
    if len(place) > 1:
        under_way = SecureBoostGuestTrees(
            trees=[*guest.growing.tree_batch.trees], shown=guest.growing.shown
        )
    transcript = guest.record.handed_over(place)
    kept = SecureBoostGuestState(
        rounds=guest,
        nodes=guest.nodes,
        trees_closed=guest.trees_closed,
        ends=LAYERS if under_way is not None and not guest.growing.tree_batch.opened else "",
        is_recorded=guest.record.begun,
        under_way=under_way,
    )
    return Artefact.from_state(kept, transcript)


def restore(guest: Guest, checkpoint: Artefact) -> StatusReport:
    """Continue behind the last finished round, or behind a layer of a round that has begun."""
    kept = checkpoint.state(SecureBoostGuestState)
    restore_into(guest, kept.rounds)
    guest.trees_closed, guest.record.begun = kept.trees_closed, kept.is_recorded
    guest.nodes, guest.under_way = kept.nodes, kept.under_way
    return StatusReport(ends=guest.ended(plan.loop_name(guest.context.params)) or kept.ends)


def finish(guest: Guest) -> Artefact:
    """Return the guest's shard: nodes up to the best round, its own splits by column name."""
    frame = guest.context.data
    columns = list(frame.columns)
    categories = earlier.category_lists(guest.context, guest.rules.binning)
    facts = {**guest.model_facts(), "columns": columns, "categories": categories}
    arrays = vertical.nodes_to_arrays(_kept_nodes(guest), guest.outputs_of_tree)
    return Artefact(facts, arrays, transcript=guest.record.closed(guest))


def bytes_max(guest: Guest, step: str) -> int:
    """Return the size of an answer, by the open nodes and the widest possible host."""
    tree_batch = guest.growing.tree_batch if Guest.growing.is_set(guest) else GuestTreeBatch([])
    opened = tree_batch.opened
    if step == "grow_nodes":
        return len(tree_batch.trees) * len(guest.y) // 8 + 8 * len(opened) + wire.PIECE_BYTES
    if not Guest.encrypted.is_set(guest):
        return keys.NONCE_BYTES_MAX
    if step == "commit_sums":
        return guest.encrypted.bytes_max([SETS]) + wire.PIECE_BYTES
    size = guest.encrypted.bytes_max([_most_sums(guest)] * len(opened))
    return min(wire.MESSAGE_BYTES_MAX, size + wire.PIECE_BYTES)


def _plant_trees(guest: Guest) -> None:
    """Plant the next trees of the round, at their roots or as an earlier attempt left them."""
    train, number = guest.context.parts["train"], guest.trees_closed
    rows = [train[drawn] for drawn in guest.round.sample.trees]
    tree_batch = GuestTreeBatch.at_roots(guest.rules, guest.bins, guest.gh_of(number), rows, number)
    owners = {host: guest.context.table.hosts.index(host) + 1 for host in guest.round_plan.hosts}
    protection = guest.params.label_protection
    hides = protection is not None and protection.hide_divisions
    shown = Visibility(owners, tree_batch, guest.purity_limit, hides=hides)
    if guest.under_way is not None:
        tree_batch.load_state(guest.under_way.trees)
        restore_into(shown, guest.under_way.shown)
        guest.under_way = None
    guest.growing = OpenTrees(tree_batch, shown)


def _label_given_away(guest: Guest, trees: Sequence[GuestTree]) -> list[Warned]:
    """Return warnings that hosts' columns may hold the label, by the first splits of the job.

    There are none with label_protection: a host that reads them would learn how its own split
    relates to labels.
    """
    is_protected = guest.params.label_protection is not None
    if guest.trees_closed or is_protected or len(np.unique(guest.y)) != 2:
        return []
    numbers = {tree.host_gives_away(guest.y) for tree in trees} - {0}
    return [
        words.label_warning(guest.context.table.hosts[number - 1]) for number in sorted(numbers)
    ]


def _note_tree(guest: Guest, slot: int, tree: GuestTree) -> None:
    """Note the part of a grown tree that each participating host has seen."""
    for host in guest.round_plan.hosts:
        number = guest.context.table.hosts.index(host) + 1
        nodes = (divmod(node, STRIDE) for node in guest.growing.shown.told[host])
        divided = [node for of_slot, node in nodes if of_slot == slot]
        guest.record.add(
            guest.trees_closed, number, nodes_seen(tree, len(guest.y), divided, number)
        )


def _n_training(guest: Guest) -> int:
    """Return the number of rows to learn from."""
    return len(guest.context.parts["train"])


def _most_sums(guest: Guest) -> int:
    """Return the largest number of sums of a host about one node."""
    return HOST_COLUMNS_MAX * 2 * guest.rules.params.max_bin


def _frontier(divided: Sequence[Division], opened: Sequence[int]) -> Frontier:
    bits = np.concatenate([np.empty(0, np.bool_), *(bits for _, bits in divided)])
    return Frontier(
        divided=wire.pack(np.array([node for node, _ in divided], np.int32)),
        goes_right=wire.pack_bits(bits),
        open=wire.pack(np.array(opened, np.int32)),
    )


def _read_sums(
    guest: Guest, got: Iterator[Mapping[str, pb.CandidateSums]]
) -> dict[str, dict[int, tuple[Sums, Shape]]]:
    """Return each host's sums of its open nodes, decrypted as they come in."""
    tree_batch, shown, most = guest.growing.tree_batch, guest.growing.shown, _most_sums(guest)
    expected = dict(zip(tree_batch.opened, tree_batch.expected(), strict=True))
    room = guest.context.services.peer_bytes_max
    coming = {
        host: Offers(guest.encrypted, [expected[node] for node in opened], most, host, room)
        for host, opened in shown.open.items()
    }
    by_host = read_offers(got, coming)
    for host, offers in by_host.items():
        shown.hear(host, [sums for sums, _ in offers])
    by_node = {host: zip(shown.open[host], by_host[host], strict=True) for host in by_host}
    return {host: dict(offers) for host, offers in by_node.items()}


def _leaf_values(guest: Guest, trees: Sequence[GuestTree]) -> list[dict[int, Floats]]:
    """Return the leaf values (outputs,) of each tree, divided by the number of trees averaged."""
    if guest.params.record.has_median_leaves:
        values = [tree.medians(guest.y - guest.margin[:, 0], guest.weight) for tree in trees]
    else:
        exact = guest.leaf_gradients(guest.trees_closed, guest.rules.fixed)
        values = [tree.leaves(exact) for tree in trees]
    return [{node: value / guest.forest[-1] for node, value in of.items()} for of in values]


def _kept_nodes(guest: Guest) -> list[GuestNode]:
    return [node for node in guest.nodes if node.tree < guest.n_kept]
