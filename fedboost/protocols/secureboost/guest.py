"""The guest of secureboost: owns labels and key, chooses every split, keeps the trees' shape."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field

import numpy as np
from numpy.typing import NDArray

from fedboost import wire
from fedboost.core import binning, metrics, objectives, sampling
from fedboost.core.bins import Bins
from fedboost.core.early_stopping import EarlyStopping
from fedboost.core.local import Rules
from fedboost.core.objectives import Objective
from fedboost.crypto.api import Ciphertexts, PrivateKey
from fedboost.crypto.packing import GhLayout
from fedboost.crypto.schemes import SCHEMES
from fedboost.errors import ConfigError, PeerError
from fedboost.flow import Artefact, Out, Seat
from fedboost.messages.job_pb2 import Count, Told
from fedboost.messages.protocol import secureboost_pb2 as pb
from fedboost.model import vertical, vocabulary
from fedboost.model.vertical import GuestNode
from fedboost.protocols.secureboost import plan, words
from fedboost.protocols.secureboost.growth import read_divisions
from fedboost.protocols.secureboost.guest_tree import GuestTree, Won
from fedboost.protocols.secureboost.offers import Shape, shapes_of, write_choices
from fedboost.protocols.secureboost.plan import Plan

Floats = NDArray[np.float64]
Sums = NDArray[np.int64]

HOST_COLUMNS_MAX = 1 << 20  # columns of one host, as wide as a table may be: bounds its answer


@dataclass
class Guest:
    """What the guest remembers between steps."""

    seat: Seat
    rules: Rules
    objective: Objective
    bins: Bins
    y: Floats
    weight: Floats
    margin: Floats  # (rows, outputs), training and validation rows
    stopping: EarlyStopping
    key: PrivateKey | None = None
    layout: GhLayout | None = None
    nodes: list[GuestNode] = field(default_factory=list)  # of finished trees
    history: list[dict[str, dict[str, float]]] = field(default_factory=list)  # one a round
    # The round and the tree under way
    plan: Plan | None = None
    sampled: NDArray[np.bool_] = field(default_factory=lambda: np.empty(0, np.bool_))
    gh: Sums = field(default_factory=lambda: np.empty((0, 0), np.int64))  # (rows, 2·all outputs)
    trees_closed: int = 0
    tree: GuestTree | None = None

    @property
    def parts(self) -> dict[str, NDArray[np.int32]]:
        """Rows by what they are for."""
        held = self.seat.validation
        parts = {"train": np.flatnonzero(~held).astype(np.int32)}
        if held.any():
            parts["validation"] = np.flatnonzero(held).astype(np.int32)
        return parts

    def growing(self) -> GuestTree:
        """The tree under way."""
        assert self.tree is not None
        return self.tree


def begin(seat: Seat) -> Guest:
    """Bins the own columns and fixes the objective, on training rows alone."""
    frame, params = seat.frame, seat.params
    assert frame is not None
    assert frame.label is not None
    if params.early_stopping_rounds is not None and not seat.validation.any():
        raise ConfigError(
            "early_stopping_rounds needs validation rows and there are none",
            todo="add validation: fraction: to the job, or leave early_stopping_rounds out",
        )
    train = ~seat.validation
    weight = np.ones(frame.n_rows) if frame.weight is None else frame.weight
    objective = objectives.start(params, frame.label[train], weight[train])
    cuts = binning.fit(frame.values[train], params.max_bin, frame.categorical)
    fixed = objectives.encoding(params, objective, frame.label[train], weight[train])
    decisive = metrics.METRICS[params.metrics[-1]]
    me = Guest(
        seat=seat,
        rules=Rules(params, cuts, fixed),
        objective=objective,
        bins=cuts.transform(frame.values),
        y=frame.label,
        weight=weight,
        margin=np.tile(objective.base_margin, (frame.n_rows, 1)),
        stopping=EarlyStopping(params.early_stopping_rounds, decisive.bigger_is_better),
    )
    _measure(me)  # refuses rows that a metric cannot rank, before a tree has grown
    return me


def share_key(me: Guest) -> Out:
    """A fresh key for this attempt, and how gradients are packed (SecureBoost+, section 4.2)."""
    params = me.rules.params
    encryption = me.seat.params.encryption
    me.key = SCHEMES[encryption.scheme].generate(encryption.key_bits, me.seat.workers)
    me.layout = GhLayout(
        value_bits=me.rules.fixed.bits,
        n_rows=len(me.parts["train"]),
        plaintext_bits=me.key.plaintext_bits,
        outputs=params.n_outputs // params.trees_per_round,
        pack=me.seat.params.gh_packing,
        compress=me.seat.params.cipher_compressing,
    )
    return Out(
        send=pb.EncryptionKey(
            scheme=encryption.scheme,
            key=me.key.public_bytes(),
            value_bits=me.layout.value_bits,
        )
    )


def start_round(me: Guest) -> Out:
    """Gradients at the margins so far, of the rows that this round draws, as exact integers."""
    params = me.rules.params
    number = len(me.history)
    me.plan = plan.of_round(me.seat.params, me.seat.table, number)
    train = me.parts["train"]
    g, h = me.objective.gradients(me.margin[train], me.y[train], me.weight[train])
    chosen, factor = sampling.of_round(params, g, number)
    rows = train[chosen]
    me.sampled = np.zeros(len(me.y), np.bool_)
    me.sampled[rows] = True
    me.gh = np.zeros((len(me.y), 2 * params.n_outputs), np.int64)
    amplified = factor[:, None]
    me.gh[rows] = me.rules.fixed.encode(g[chosen] * amplified, h[chosen] * amplified)
    _plant(me)
    return Out()


def encrypt_gradients(me: Guest) -> Iterator[Out]:
    """The packed gradients of the rows that take part, in parts (Algorithms 3 and 7, signed)."""
    assert me.key is not None
    assert me.layout is not None
    train = me.parts["train"]
    taking_part = me.sampled[train]
    gh = me.growing().gh[train[taking_part]]
    first, lanes = 0, len(me.layout.lanes)
    for block in me.key.encrypt(gh, me.layout):
        part = pb.EncryptedGradients(
            tree=me.trees_closed,
            first_row=first,
            rows=pb.Ciphertexts(count=len(block), data=block.to_bytes()),
        )
        if first == 0 and not taking_part.all():
            part.taking_part.CopyFrom(wire.pack_bits(taking_part))
        yield Out(send=part)
        first += len(block) // lanes


def open_layer(me: Guest) -> Out:
    """Tells the hosts how the layer above divided and which nodes look for a split."""
    tree = me.growing()
    opened = tree.open_layer()
    divided = tree.growth.last_divided
    bits = np.concatenate([np.empty(0, np.bool_), *(bits for _, bits in divided)])
    return Out(
        send=pb.Frontier(
            divided=wire.pack(np.array([node for node, _ in divided], np.int32)),
            goes_right=wire.pack_bits(bits),
            open=wire.pack(np.array(opened, np.int32)),
        )
    )


def choose_splits(me: Guest, got: Mapping[str, pb.CandidateSums]) -> Out:
    """The best split of every open node among all candidates; ties as in the pooled table."""
    assert me.plan is not None
    tree = me.growing()
    if set(got) != set(me.plan.hosts):
        raise PeerError(f"{', '.join(got)} offered splits, expected {', '.join(me.plan.hosts)}")
    offers = {host: _decrypted(me, host, message) for host, message in got.items()}
    won = tree.own_best(me.trees_closed) if me.plan.guest_competes else {}
    tied: dict[str, dict[int, list[NDArray[np.int64]]]] = {host: {} for host in got}
    for place, node in enumerate(tree.opened):
        best, winner = won.get(node), ""
        for host in me.plan.hosts:
            found = tree.best_of(node, *offers[host][place])
            if found is not None and (best is None or found.gain > best.gain):
                number = me.seat.table.hosts.index(host) + 1
                best, winner = Won(number, found.gain, found.left), host
                choices = found.choices
        if best is not None:
            won[node] = best
        if winner:
            tied[winner][node] = choices
    tree.choose({node: won[node] for node in tree.opened if node in won})
    return Out(send={host: write_choices(ties) for host, ties in tied.items()})


def grow_nodes(me: Guest, got: Mapping[str, pb.RowDivisions]) -> Out:
    """Divides the rows of the chosen nodes; refuses a division that is not the split offered."""
    tree = me.growing()
    divisions = tree.own_divisions()
    for host, message in got.items():
        number = me.seat.table.hosts.index(host) + 1
        owned = [node for node in tree.chosen if tree.won[node].owner == number]
        rows = [len(tree.growth.everyone.rows(node)) for node in owned]
        divisions |= read_divisions(message.nodes, message.goes_right, owned, rows, host)
    tree.divide(divisions, me.seat.table.hosts)
    return Out(told=Told(ends="" if tree.open_layer() else "layer"))


def grow_alone(me: Guest) -> Out:
    """The layers that nobody but the guest has a part in: all of them in one go."""
    assert me.plan is not None
    tree = me.growing()
    for _ in range(me.plan.guest_layers):
        if not tree.open_layer():
            break
        tree.choose(tree.own_best(me.trees_closed))
        tree.divide(tree.own_divisions())
    return Out()


def close_tree(me: Guest) -> Out:
    """Leaf values, and the margins with them."""
    params, tree = me.rules.params, me.growing()
    values = tree.leaves()
    if me.objective.renews_leaves:
        for node in values:
            rows = tree.growth.training.rows(node)
            residual = me.y[rows] - me.margin[rows, 0]
            values[node] = params.learning_rate * np.array(
                [objectives.median(residual, me.weight[rows])]
            )
    me.nodes += tree.finished(me.trees_closed, values)
    outputs = _outputs(me)
    for node, value in values.items():
        me.margin[tree.growth.everyone.rows(node), outputs] += value
    me.trees_closed += 1
    me.tree = None
    if me.trees_closed % params.trees_per_round:
        _plant(me)
    return Out()


def close_round(me: Guest) -> Out:
    """Metrics; says when early stopping ends the job."""
    params = me.rules.params
    measured = _measure(me)
    me.history.append(measured)
    if params.early_stopping_rounds is not None:
        me.stopping = me.stopping.after(measured["validation"][params.metrics[-1]])
    told = Told(ends="tree" if me.stopping.stop else "", metrics=words.as_metrics(measured))
    return Out(told=told)


def close_model(me: Guest) -> Out:
    """What the model came to: metrics of the round it keeps, curves, importance."""
    best = _best_round(me)
    told = Told(best=words.as_metrics(me.history[best]))
    told.counts.add(name="rounds", count=best + 1)
    told.counts.add(name="trees", count=(best + 1) * me.rules.params.trees_per_round)
    told.counts.extend(Count(name=name, count=len(rows)) for name, rows in me.parts.items())
    told.importance.extend(words.importance(me.seat, _kept(me)))
    if me.rules.params.objective == "binary:logistic":
        prediction = objectives.transform(me.rules.params.objective, me.margin)[:, 0]
        told.curves.extend(words.curves(me.y, prediction, me.parts))
    return Out(told=told)


def snapshot(me: Guest) -> Artefact:
    """Finished trees, margins and metrics; the key is drawn anew by the next attempt."""
    facts = {"history": me.history, "stopping": asdict(me.stopping), "trees": me.trees_closed}
    arrays = vertical.nodes_to_arrays(me.nodes, _width(me))
    return Artefact(facts, {**arrays, "margin": me.margin})


def restore(me: Guest, kept: Artefact) -> Told:
    """Carries on after the last finished round."""
    me.history = list(kept.facts["history"])
    me.stopping = EarlyStopping(**kept.facts["stopping"])
    me.trees_closed = kept.facts["trees"]
    me.nodes = vertical.arrays_to_nodes(kept.arrays)
    me.margin = kept.arrays["margin"].astype(np.float64)
    return Told(ends="tree" if me.stopping.stop else "")


def finish(me: Guest) -> Artefact:
    """The guest's shard: every node up to the best round, its own splits by column name."""
    frame, params = me.seat.frame, me.rules.params
    assert frame is not None
    facts = {
        "objective": params.objective,
        "params": params.model_dump(mode="json"),
        "base_margin": me.objective.base_margin.tolist(),
        "columns": list(frame.columns),
        "categories": vocabulary.of(frame, me.rules.binning),
        "trees": (_best_round(me) + 1) * params.trees_per_round,
        "trees_per_round": params.trees_per_round,
        "history": me.history,
    }
    return Artefact(facts, vertical.nodes_to_arrays(_kept(me), _width(me)))


def bytes_max(me: Guest, step: str) -> int:
    """Answers are as large as the open nodes and the widest host make them."""
    opened = [] if me.tree is None else me.tree.opened
    if step == "grow_nodes":
        return len(me.y) // 8 + 8 * len(opened) + wire.PIECE_BYTES
    if me.key is None or me.layout is None:
        return 0
    per_node = me.layout.package_count([HOST_COLUMNS_MAX * 2 * me.rules.params.max_bin])
    size = len(opened) * per_node * me.key.width + wire.PIECE_BYTES
    return min(wire.MESSAGE_BYTES_MAX, size)


def _plant(me: Guest) -> None:
    """The next tree of the round, at its root."""
    params = me.rules.params
    outputs = _outputs(me)
    pairs = slice(2 * (outputs.start or 0), None if outputs.stop is None else 2 * outputs.stop)
    columns = sampling.own_columns(
        params.seed, me.trees_closed, 0, me.bins.shape[1], params.colsample_bytree
    )
    gh = np.ascontiguousarray(me.gh[:, pairs])
    me.tree = GuestTree(me.rules, me.bins, gh, me.sampled, columns)


def _outputs(me: Guest) -> slice:
    """The margins that the tree under way adds to: its class's, or all of them."""
    per_round = me.rules.params.trees_per_round
    if per_round == 1:
        return slice(None)
    output = me.trees_closed % per_round
    return slice(output, output + 1)


def _width(me: Guest) -> int:
    """Values of a leaf."""
    params = me.rules.params
    return params.n_outputs // params.trees_per_round


def _decrypted(me: Guest, host: str, message: pb.CandidateSums) -> list[tuple[Sums, Shape]]:
    """A host's sums, one array (sums, 2·outputs) for each open node, and how they are arranged."""
    assert me.key is not None
    assert me.layout is not None
    most = HOST_COLUMNS_MAX * 2 * me.rules.params.max_bin
    shapes = shapes_of(message, len(me.growing().opened), most, host)
    counts = [shape.n_sums for shape in shapes]
    count = me.layout.package_count(counts)
    if message.packages.count != count:
        raise PeerError(f"{host} sent {message.packages.count} packages, its counts need {count}")
    packages = Ciphertexts.received(message.packages.data, count, me.key.width)
    sums = me.key.decrypt(packages, me.layout, counts)
    return list(zip(np.split(sums, np.cumsum(counts)[:-1]), shapes, strict=True)) if counts else []


def _measure(me: Guest) -> dict[str, dict[str, float]]:
    params = me.rules.params
    prediction = objectives.transform(params.objective, me.margin)
    return {
        part: {
            name: metrics.evaluate(name, me.y[rows], prediction[rows], me.weight[rows])
            for name in params.metrics
        }
        for part, rows in me.parts.items()
    }


def _best_round(me: Guest) -> int:
    return len(me.history) - 1 if me.stopping.best is None else me.stopping.best_round


def _kept(me: Guest) -> list[GuestNode]:
    """The nodes of the trees that the model keeps."""
    trees = (_best_round(me) + 1) * me.rules.params.trees_per_round
    return [node for node in me.nodes if node.tree < trees]
