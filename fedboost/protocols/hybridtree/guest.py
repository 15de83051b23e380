"""The guest of hybridtree: has labels and key, grows the upper layers, scores the hosts' splits."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict

import numpy as np

from fedboost.core import binning, hybrid, objectives
from fedboost.core.fixed_point import FixedPoint
from fedboost.core.hybrid import HeldRows
from fedboost.core.leaf_gradients import LeafGradients
from fedboost.core.objectives import Objective, Summary
from fedboost.core.sampling import TreeColumns
from fedboost.crypto.schemes import KEYED_SCHEMES
from fedboost.encrypted.checks.gradient_check import SETS, commit_sums, open_sums
from fedboost.encrypted.guest.offers import HOST_COLUMNS_MAX, Offers, read_offers, write_choices
from fedboost.encrypted.guest.rounds import GuestLabels
from fedboost.encrypted.guest.tree import GuestRules, WinningSplit
from fedboost.encrypted.number import leaf_answers
from fedboost.encrypted.number.packed import PackedGuest
from fedboost.encrypted.record import GuestRecord
from fedboost.encrypted.scheme import keys, loading
from fedboost.encrypted.scheme.host_noise import NoiseScale
from fedboost.encrypted.tree.growth import read_divisions, write_sample
from fedboost.flow import Artefact, DisclosureInfo, Out, Place, StageContext
from fedboost.ground import wire
from fedboost.ground.state import restore_into
from fedboost.messages.job_pb2 import StatusReport
from fedboost.messages.protocol import encrypted_pb2, hybridtree_pb2
from fedboost.model import columns, words
from fedboost.model import hybrid as model
from fedboost.model.hybrid import Below
from fedboost.model.vertical import GUEST as OWN
from fedboost.model.vertical import GuestNode, tree_nodes
from fedboost.protocols.hybridtree.guest_state import Guest, HybridTreeGuestState, OpenTree
from fedboost.protocols.hybridtree.params import HybridTreeParams
from fedboost.protocols.hybridtree.streams import empty_part, side_by_side
from fedboost.protocols.hybridtree.view import host_views

__all__ = (
    "add_values", "begin", "bytes_max", "choose_splits", "close_model", "close_round",
    "close_tree", "commit_sums", "encrypt_gradients", "finish", "grow_nodes", "grow_top",
    "hear_nonces", "open_sums", "restore", "share_key", "share_rows", "snapshot", "start_round",
)  # fmt: skip

ROUND_LOOP = "round"  # name of the outermost loop
LAYERS = "layer"  # name of the loop over the hosts' layers of a tree


CHECKPOINT = HybridTreeGuestState  # state that `snapshot` keeps


def begin(context: StageContext[HybridTreeParams]) -> Guest:
    """Bin our columns and fix the objective, on training rows only."""
    frame, params = context.data, context.params
    labels, train = GuestLabels.of(context, params), ~context.validation
    summary = Summary.of(params, labels.y[train], labels.weight[train])
    objective = objectives.start_objective(params, summary)
    cuts = binning.fit(frame.values, params.max_bin, frame.categorical, rows=train)
    fixed = _encoding(params, objective, summary)
    hosts = host_views(context)
    return Guest(
        context=context,
        params=params,
        objective=objective,
        y=labels.y,
        weight=labels.weight,
        base_margin=objective.base_margin,
        margin=np.tile(objective.base_margin, (frame.n_rows, 1)),
        rules=GuestRules(params, cuts, fixed, noise=NoiseScale.of(params, fixed.bits)),
        bins=cuts.transform(frame.values),
        views=hosts,
        record=GuestRecord(context, {host: view.rows for host, view in hosts.items()}),
    )


def hear_nonces(guest: Guest, got: Mapping[str, encrypted_pb2.Nonce]) -> Out:
    """Read the hosts' nonces for public polynomials."""
    guest.nonces = keys.read_nonces(guest.context, got)
    return Out()


def share_key(guest: Guest) -> Out:
    """Send a fresh key for this attempt, and the packing of gradients.

    With unscored splits the key is the job's: the hosts keep leaf values under it.
    """
    rows = [view.n_training for view in guest.views.values()]
    if guest.is_scored:
        guest.side = keys.guest_side(guest.context, guest.rules.fixed.bits, rows, guest.nonces)
    else:
        if not Guest.key.is_set(guest):
            guest.key = keys.generate(guest.context)
        packing = guest.precision.layout(guest.key.plaintext_bits)
        bits = guest.precision.value_bits
        guest.side = PackedGuest(guest.params, guest.key, bits, dict.fromkeys(rows, packing))
    return Out(send=guest.side.key_message(first_tree=0))


def share_rows(guest: Guest) -> Out:
    """Send each host the rows that it shares with other hosts."""
    held = {host: view.rows for host, view in guest.views.items()}
    about = {host: DisclosureInfo(len(rows)) for host, rows in held.items()}
    return Out(send=leaf_answers.shared_rows(held, len(guest.y)), about=about)


def start_round(guest: Guest) -> Out:
    """Compute gradients at the present margins, for this round's rows, as exact integers.

    The rows that a host's subtrees learn from are drawn among them, as the host can check.
    """
    fixed = guest.own_rules.fixed
    g, h = guest.start_round(fixed)
    place = np.cumsum(~guest.context.validation) - 1
    for view in guest.views.values():
        rows, number = place[view.training_rows], len(guest.history)
        view.held = HeldRows.draw_rows(guest.params, fixed, (g[rows], h[rows]), number, view.number)
    return Out()


def grow_top(guest: Guest) -> Out:
    """Grow the upper layers on our columns; the gradients they leave go to the hosts."""
    params, number, rules = guest.params, guest.trees_closed, guest.own_rules
    gh, rows = guest.gh_of(number), guest.context.parts["train"][guest.round.sample.rows]
    usable = TreeColumns.draw_columns(params, number, (guest.bins.shape[1],))
    top = hybrid.grow_top(rules, guest.bins, gh, rows, usable, params.guest_depth)
    leaves = top.leaf_of_bins(guest.bins, rules.binning.missing)
    first = model.first_number(params.guest_depth)
    # A tree that is grown again has the same numbers; hosts keep them and draw cuts by them.
    secrets = guest.context.secrets.job
    factors = None
    if not guest.is_scored:
        factors = hybrid.count_factors(gh[rows], top, leaves[rows], rules)
    for view in guest.views.values():
        view.place_rows(top, leaves, first, secrets.child(view.number, number))
        held, at = view.held.columns_of_tree(guest.pairs_of(number)), leaves[view.training_rows]
        moved = hybrid.residual_gradients(held.gh, top.value[at], rules.fixed)
        sent = held.rounded_gradients(moved, rules.fixed, guest.rules.fixed)
        if factors is not None:
            sent = hybrid.counted_gradients(moved, factors[at], rules, guest.precision.value_bits)
        view.set_gradients(sent, moved)
    scored = guest.views if guest.is_scored else {}
    tree_batches = {
        host: view.planted_trees(guest.rules, guest.purity_limit) for host, view in scored.items()
    }
    for host, trees in guest.under_way.items():
        tree_batches[host].load_state(trees)
    guest.under_way = {}
    guest.growing = OpenTree(top, leaves, tree_batches)
    return Out()


def encrypt_gradients(guest: Guest) -> Iterator[Out]:
    """Send each host the packed gradients of its rows that take part, in parts, side by side."""
    number, side = guest.trees_closed, guest.side
    encrypted = {
        host: side.rows(number, view.sent, view.n_training) for host, view in guest.views.items()
    }
    guest.growing.encrypted = encrypted
    streams = {host: rows.parts() for host, rows in encrypted.items()}
    held = dict.fromkeys(guest.views, 0)
    for place, parts in enumerate(side_by_side(streams)):
        sent, about = {}, {}
        for host, view in guest.views.items():
            part = parts[host] or empty_part(number, held[host])
            rows = part.rows.count // encrypted[host].sizes.per_row
            held[host] += rows
            about[host] = DisclosureInfo(rows) if place else view.about
            if place == 0:
                write_sample(part, view.sample, view.n_training)
                part.tree_key = encrypted[host].key_for(host)
            sent[host] = hybridtree_pb2.BottomRows(gradients=part)
            if place == 0:
                _write_indices(guest, host, sent[host])
        yield Out(send=sent, about=about)


def choose_splits(guest: Guest, got: Iterator[Mapping[str, encrypted_pb2.CandidateSums]]) -> Out:
    """Choose the best split of every open node; nodes of different hosts do not compete."""
    most, sent, growing = _most_sums(guest), {}, guest.growing
    room = guest.context.services.peer_bytes_max
    coming = {
        host: Offers(growing.encrypted[host], tree_batch.expected(), most, host, room)
        for host, tree_batch in growing.tree_batches.items()
    }
    offers = read_offers(got, coming)
    for host, tree_batch in growing.tree_batches.items():
        number = guest.views[host].number
        won, tied = {}, {}
        for node, offer in zip(tree_batch.opened, offers[host], strict=True):
            best = tree_batch.best_of(node, *offer)
            if best is not None:
                won[node] = WinningSplit(number, best.gain, best.left, best.parts)
                tied[node] = best.choices
        tree_batch.take_winners(won)
        [tree] = tree_batch.trees
        opened = tree.next_open() if tree.layers + 1 < guest.params.host_depth else []
        sent[host] = hybridtree_pb2.ChosenSplits(
            won=write_choices(tied), open=wire.pack(np.array(opened, np.int32))
        )
    return Out(send=sent)


def grow_nodes(guest: Guest, got: Mapping[str, encrypted_pb2.RowDivisions]) -> Out:
    """Divide the rows as the hosts answer; refuse a division that is not the offered split."""
    for host, tree_batch in guest.growing.tree_batches.items():
        [tree] = tree_batch.trees
        opened = tree.next_open()
        owned = tree_batch.owned(guest.views[host].number)
        rows, message = tree_batch.n_rows(owned), got[host]
        divided = read_divisions(message.nodes, message.goes_right, owned, rows, host)
        tree_batch.divide(divided, guest.context.table.hosts)
        tree.opened = opened
    is_over = _is_grown(guest)
    return Out(told=StatusReport(ends=LAYERS if is_over else ""))


def add_values(guest: Guest, got: Mapping[str, encrypted_pb2.LeafAnswers]) -> Out:
    """Add the values of the hosts' leaves to each row; only sums over its hosts are visible."""
    held = {host: view.rows for host, view in guest.views.items()}
    packing = guest.precision.layout(guest.key.plaintext_bits)
    total = leaf_answers.read_answers(got, guest.key, packing, held, len(guest.y))
    guest.growing.added = np.asarray(total * _answer_unit(guest), np.float64)
    return Out()


def close_tree(guest: Guest) -> Out:
    """Compute leaf values, and the margins with them: the hosts' leaves are averaged."""
    number, growing = guest.trees_closed, guest.growing
    rate = guest.params.learning_rate
    tops = tree_nodes(number, growing.top, lambda column: (OWN, column), rate)
    guest.tops += tops
    total = growing.added
    if total is None:
        total = np.zeros((len(guest.y), guest.outputs_of_tree))
        for host, view in guest.views.items():
            [tree] = growing.tree_batches[host].trees
            values = tree.leaves(LeafGradients(view.exact, guest.own_rules.fixed))
            total[view.rows] += view.added(tree, values)
            guest.below += view.finished(number, tree, values)
    else:
        for view in guest.views.values():
            guest.below += view.hidden_nodes(number, guest.outputs_of_tree)
    for host, view in guest.views.items():
        guest.record.add(number, view.number, view.seen(growing.tree_batches.get(host)))
    mean = total / np.maximum(guest.holders, 1)[:, None]
    top_values = np.array([node.value for node in tops])[growing.leaves]
    guest.margin[:, guest.outputs_of(number)] += top_values + mean
    guest.trees_closed += 1
    del guest.growing
    return Out()


def close_round(guest: Guest) -> Out:
    """Report the round's metrics, and whether early stopping ends the job."""
    return Out(told=guest.close_round(ROUND_LOOP))


def close_model(guest: Guest) -> Out:
    """Report the finished model: metrics of the kept round, curves, importance."""
    report, (tops, below) = guest.status_report(), _kept_trees(guest)
    seen = [part.node for part in below] if guest.is_scored else []
    report.importance.extend(words.importance(guest.context, [*tops, *seen]))
    report.answers = guest.side.answers_in_words()
    return Out(told=report)


def snapshot(guest: Guest, place: Place) -> Artefact:
    """Keep finished trees, margins and metrics, and the key of leaf values if there is one."""
    inside = guest.growing.tree_batches if len(place) > 1 and Guest.growing.is_set(guest) else {}
    transcript = guest.record.handed_over(place)
    kept = HybridTreeGuestState(
        rounds=guest,
        tops=guest.tops,
        below=guest.below,
        key=_own_key(guest),
        trees_closed=guest.trees_closed,
        ends=LAYERS if inside and _is_grown(guest) else "",
        is_recorded=guest.record.begun,
        under_way={host: [*tree_batch.trees] for host, tree_batch in inside.items()},
    )
    return Artefact.from_state(kept, transcript)


def restore(guest: Guest, checkpoint: Artefact) -> StatusReport:
    """Continue behind the last finished tree, or behind a layer of a tree that has begun."""
    kept = checkpoint.state(HybridTreeGuestState)
    restore_into(guest, kept.rounds)
    guest.trees_closed, guest.record.begun = kept.trees_closed, kept.is_recorded
    guest.tops, guest.below, guest.under_way = kept.tops, kept.below, kept.under_way
    if kept.key:
        scheme = KEYED_SCHEMES[guest.params.encryption.scheme]
        guest.key = scheme.load_private(kept.key, guest.context.services.workers)
    return StatusReport(ends=guest.ended(ROUND_LOOP) or kept.ends)


def finish(guest: Guest) -> Artefact:
    """Return the guest's shard: its parts of trees up to the best round, and the values below."""
    frame = guest.context.data
    facts = {
        **guest.model_facts(),
        "kind": model.HYBRID_KIND,
        "split": guest.params.split,
        "host_depth": guest.params.host_depth,
        "guest_depth": guest.params.guest_depth,
        "columns": list(frame.columns),
        "categories": columns.categories(frame, guest.rules.binning),
    }
    arrays = model.to_arrays(*_kept_trees(guest), guest.outputs_of_tree)
    if not guest.is_scored:
        facts |= {"precision": asdict(guest.precision), "value_unit": _answer_unit(guest)}
        arrays[model.SHARD_KEY] = np.frombuffer(_own_key(guest), np.uint8)
    return Artefact(facts, arrays, transcript=guest.record.closed(guest))


def bytes_max(guest: Guest, step: str) -> int:
    """Return the size of an answer, by the open nodes and the widest possible host."""
    if step == "grow_nodes":
        return len(guest.y) // 8 + (8 << guest.params.guest_depth + guest.params.host_depth) + 1024
    if step == "hear_nonces":
        return keys.NONCE_BYTES_MAX
    if step == "add_values" and Guest.key.is_set(guest):
        packing = guest.precision.layout(guest.key.plaintext_bits)
        most = max(packing.package_count([len(view.rows)]) for view in guest.views.values())
        return most * guest.key.width + 1024
    if not Guest.growing.is_set(guest):
        return wire.PIECE_BYTES
    if step == "commit_sums":
        rows = guest.growing.encrypted.values()
        return max(held.bytes_max([SETS]) for held in rows) + wire.PIECE_BYTES
    opened = max(
        (len(tree_batch.opened) for tree_batch in guest.growing.tree_batches.values()), default=0
    )
    sums = [_most_sums(guest)] * opened
    size = max((rows.bytes_max(sums) for rows in guest.growing.encrypted.values()), default=0)
    return min(wire.MESSAGE_BYTES_MAX, size + wire.PIECE_BYTES)


def _encoding(params: HybridTreeParams, objective: Objective, summary: Summary) -> FixedPoint:
    """Return the encoding of the job's numbers, as exact as its scheme can add them."""
    return loading.tree_scheme(params).encoding(
        params, summary.rows, lambda settings: hybrid.encoding(settings, objective, summary)
    )


def _most_sums(guest: Guest) -> int:
    """Return the most sums of a host about one node."""
    return HOST_COLUMNS_MAX * 2 * guest.params.max_bin


def _answer_unit(guest: Guest) -> float:
    """Return the value of 1 in an answer of unscored splits, in units of the margin."""
    of_gradient = hybrid.counted_unit(guest.own_rules.fixed, guest.precision.value_bits)
    return -math.ldexp(of_gradient, -guest.precision.fraction_bits) * guest.params.learning_rate


def _own_key(guest: Guest) -> bytes:
    """Return the key of the hosts' leaf values; empty if they keep none."""
    return guest.key.to_bytes() if Guest.key.is_set(guest) else b""


def _write_indices(guest: Guest, host: str, part: hybridtree_pb2.BottomRows) -> None:
    """Write the bottom nodes of the host's rows, and the nodes that it may divide."""
    view = guest.views[host]
    part.at.CopyFrom(wire.pack(view.shown if guest.is_scored else view.at))
    part.open.CopyFrom(wire.pack(np.array(view.opened if guest.is_scored else [], np.int32)))


def _is_grown(guest: Guest) -> bool:
    """Return whether no host's subtrees can grow another layer."""
    return not any(tree_batch.opened for tree_batch in guest.growing.tree_batches.values())


def _kept_trees(guest: Guest) -> tuple[list[GuestNode], list[Below]]:
    """Return the trees up to the best round."""
    tops = [node for node in guest.tops if node.tree < guest.n_kept]
    return tops, [part for part in guest.below if part.node.tree < guest.n_kept]
