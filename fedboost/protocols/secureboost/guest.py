"""The guest of secureboost: owns labels and key, chooses every split, keeps the trees' shape."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field

import numpy as np
from numpy.typing import NDArray

from fedboost import wire
from fedboost.core import binning, fixed_point, histogram, metrics, objectives, split
from fedboost.core.early_stopping import EarlyStopping
from fedboost.core.local import Rules, choose
from fedboost.core.objectives import Objective
from fedboost.core.partition import ROOT, Partition, left_child, right_child
from fedboost.crypto.api import Ciphertexts, PrivateKey
from fedboost.crypto.packing import GhLayout
from fedboost.crypto.schemes import SCHEMES
from fedboost.errors import ConfigError, PeerError
from fedboost.flow import Artefact, Out, Seat
from fedboost.messages.job_pb2 import Count, Curve, Importance, Metric, Told
from fedboost.messages.protocol import secureboost_pb2 as pb
from fedboost.model import vertical
from fedboost.model.vertical import GuestNode, OwnSplit
from fedboost.protocols.secureboost.growth import Growth, read_divisions

Floats = NDArray[np.float64]
Sums = NDArray[np.int64]

HOST_COLUMNS_MAX = 4096  # columns of one host: bounds the answer that the guest takes


@dataclass
class Won:
    """The best split of one node."""

    owner: int  # 0 the guest, k the k-th host
    gain: float
    left: Sums  # (k, 2) the sums on its left; of a host, those of all k candidates that tie
    split: OwnSplit | None = None  # the guest's own


@dataclass
class Guest:
    """What the guest remembers between steps."""

    seat: Seat
    rules: Rules
    objective: Objective
    bins: NDArray[np.uint8]
    y: Floats
    margin: Floats  # (rows, outputs), training and validation rows
    stopping: EarlyStopping
    key: PrivateKey | None = None
    layout: GhLayout | None = None
    nodes: list[GuestNode] = field(default_factory=list)  # of finished trees
    history: list[dict[str, dict[str, float]]] = field(default_factory=list)  # one a tree
    # The tree that grows
    growth: Growth | None = None
    gh: Sums = field(default_factory=lambda: np.empty((0, 2), np.int64))
    totals: dict[int, Sums] = field(default_factory=dict)  # (2,) per node
    won: dict[int, Won] = field(default_factory=dict)  # in every layer so far
    chosen: list[int] = field(default_factory=list)  # the nodes that divide in this layer
    opened: list[int] = field(default_factory=list)
    cells: dict[int, Sums] = field(default_factory=dict)  # own histograms of this layer

    @property
    def parts(self) -> dict[str, NDArray[np.int32]]:
        """Rows by what they are for."""
        held = self.seat.validation
        parts = {"train": np.flatnonzero(~held).astype(np.int32)}
        if held.any():
            parts["validation"] = np.flatnonzero(held).astype(np.int32)
        return parts


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
    y = frame.label[train]
    weight = np.ones(len(y))
    objective = objectives.start(params, y, weight)
    cuts = binning.fit(frame.values[train], params.max_bin)
    bounds = objective.bounds(y, weight)
    fixed = fixed_point.for_rows(len(y), params.precision_bits, *bounds)
    me = Guest(
        seat=seat,
        rules=Rules(params, cuts, fixed),
        objective=objective,
        bins=cuts.transform(frame.values),
        y=frame.label,
        margin=np.tile(objective.base_margin, (frame.n_rows, 1)),
        stopping=EarlyStopping(
            params.early_stopping_rounds, metrics.METRICS[params.metrics[-1]].bigger_is_better
        ),
    )
    _measure(me)  # refuses rows that a metric cannot rank, before a tree has grown
    return me


def share_key(me: Guest) -> Out:
    """A fresh key for this attempt, and how gradients are packed (SecureBoost+, section 4.2)."""
    encryption = me.seat.params.encryption
    me.key = SCHEMES[encryption.scheme].generate(encryption.key_bits, me.seat.workers)
    me.layout = GhLayout(
        value_bits=me.rules.fixed.bits,
        n_rows=len(me.parts["train"]),
        plaintext_bits=me.key.plaintext_bits,
        compress=me.seat.params.cipher_compressing,
    )
    return Out(
        send=pb.EncryptionKey(
            scheme=encryption.scheme,
            key=me.key.public_bytes(),
            value_bits=me.layout.value_bits,
        )
    )


def encrypt_gradients(me: Guest) -> Iterator[Out]:
    """The packed gradients of every training row, in parts (Algorithm 3, signed)."""
    assert me.key is not None
    assert me.layout is not None
    train = me.parts["train"]
    weight = np.ones(len(train))
    encoded = me.rules.fixed.encode(*me.objective.gradients(me.margin[train], me.y[train], weight))
    me.gh = np.zeros((len(me.y), 2), np.int64)
    me.gh[train] = encoded
    me.growth = Growth(~me.seat.validation)
    me.totals = {ROOT: encoded.sum(axis=0)}
    me.won, me.chosen, me.cells = {}, [], {}
    first = 0
    for block in me.key.encrypt(encoded[:, 0].copy(), encoded[:, 1].copy(), me.layout):
        rows = pb.Ciphertexts(count=len(block), data=block.to_bytes())
        yield Out(send=pb.EncryptedGradients(first_row=first, rows=rows))
        first += len(block)


def open_layer(me: Guest) -> Out:
    """Tells the hosts how the layer above divided and which nodes look for a split."""
    assert me.growth is not None
    me.opened = _open_nodes(me)
    divided = me.growth.last_divided
    return Out(
        send=pb.Frontier(
            divided=wire.pack(np.array([node for node, _ in divided], np.int32)),
            goes_right=wire.pack_bits(_joined([bits for _, bits in divided])),
            open=wire.pack(np.array(me.opened, np.int32)),
        )
    )


def choose_splits(me: Guest, got: Mapping[str, pb.CandidateSums]) -> Out:
    """The best split of every open node among all candidates; ties as in the pooled table."""
    assert me.growth is not None
    cells = _own_histograms(me)
    offers = {host: _decrypted(me, host, message) for host, message in got.items()}
    won: dict[int, Won] = {}
    tied: dict[str, list[tuple[int, NDArray[np.int64]]]] = {host: [] for host in got}
    for place, node in enumerate(me.opened):
        best = _own_best(me, node, cells[node])
        winner: tuple[str, NDArray[np.int64]] | None = None
        for number, host in enumerate(me.seat.table.hosts, start=1):
            offer = offers[host][place]
            found = _best_of(me, node, offer)
            if found is not None and (best is None or found[0] > best.gain):
                best = Won(number, found[0], offer[found[1]])
                winner = (host, found[1])
        if best is None:
            continue
        won[node] = best
        if winner is not None:
            tied[winner[0]].append((node, winner[1]))
    me.won.update(won)
    me.chosen = list(won)
    me.cells = {node: cells[node] for node in won}
    return Out(send={host: _won_splits(splits) for host, splits in tied.items()})


def grow_nodes(me: Guest, got: Mapping[str, pb.RowDivisions]) -> Out:
    """Divides the rows of the chosen nodes; refuses a division that is not the split offered."""
    assert me.growth is not None
    divisions: dict[int, NDArray[np.bool_]] = {}
    for number, host in enumerate(me.seat.table.hosts, start=1):
        owned = [node for node in me.chosen if me.won[node].owner == number]
        rows = [len(me.growth.everyone.rows(node)) for node in owned]
        divisions |= read_divisions(got[host].nodes, got[host].goes_right, owned, rows, host)
    for node in me.chosen:
        won = me.won[node]
        if won.split is not None:
            bins = me.bins[me.growth.everyone.rows(node), won.split.feature]
            bin_number = _bin_of(me, won.split)
            missing = me.rules.binning.missing
            divisions[node] = split.goes_right(bins, bin_number, won.split.missing_left, missing)
    me.growth.divide([(node, divisions[node]) for node in me.chosen])
    for node in me.chosen:
        _split_totals(me, node)
    return Out(told=Told(ends="" if _open_nodes(me) else "layer"))


def close_tree(me: Guest) -> Out:
    """Leaf values, new margins, metrics; says when early stopping ends the job."""
    assert me.growth is not None
    params, fixed = me.rules.params, me.rules.fixed
    number = len(me.history)
    for node in sorted(me.totals):
        G, H = me.totals[node][0:1], me.totals[node][1:2]
        cover = float(split.cover(H, fixed))
        won = me.won.get(node)
        if won is not None:
            zero = np.zeros(1)
            me.nodes.append(GuestNode(number, node, won.owner, zero, won.gain, cover, won.split))
            continue
        value = split.leaf_value(G, H, params, fixed)
        me.nodes.append(GuestNode(number, node, vertical.LEAF, value, 0.0, cover))
        me.margin[me.growth.everyone.rows(node)] += value
    me.growth = None
    measured = _measure(me)
    me.history.append(measured)
    if params.early_stopping_rounds is not None:
        me.stopping = me.stopping.after(measured["validation"][params.metrics[-1]])
    return Out(told=Told(ends="tree" if me.stopping.stop else "", metrics=_as_metrics(measured)))


def close_model(me: Guest) -> Out:
    """What the model came to: metrics of the round it keeps, curves, importance."""
    best = _best_round(me)
    told = Told(best=_as_metrics(me.history[best]))
    told.counts.add(name="trees", count=best + 1)
    told.counts.extend(Count(name=name, count=len(rows)) for name, rows in me.parts.items())
    told.importance.extend(_importance(me, best))
    if me.rules.params.objective == "binary:logistic":
        told.curves.extend(_curves(me))
    return Out(told=told)


def snapshot(me: Guest) -> Artefact:
    """Finished trees, margins and metrics; the key is drawn anew by the next attempt."""
    facts = {"history": me.history, "stopping": asdict(me.stopping)}
    arrays = vertical.nodes_to_arrays(me.nodes, me.margin.shape[1])
    return Artefact(facts, {**arrays, "margin": me.margin})


def restore(me: Guest, kept: Artefact) -> Told:
    """Carries on after the last finished tree."""
    me.history = list(kept.facts["history"])
    me.stopping = EarlyStopping(**kept.facts["stopping"])
    me.nodes = vertical.arrays_to_nodes(kept.arrays)
    me.margin = kept.arrays["margin"].astype(np.float64)
    return Told(ends="tree" if me.stopping.stop else "")


def finish(me: Guest) -> Artefact:
    """The guest's shard: every node up to the best round, its own splits by column name."""
    best = _best_round(me)
    kept = [node for node in me.nodes if node.tree <= best]
    frame = me.seat.frame
    assert frame is not None
    facts = {
        "objective": me.rules.params.objective,
        "params": me.rules.params.model_dump(mode="json"),
        "base_margin": me.objective.base_margin.tolist(),
        "columns": list(frame.columns),
        "trees": best + 1,
        "history": me.history,
    }
    return Artefact(facts, vertical.nodes_to_arrays(kept, me.margin.shape[1]))


def bytes_max(me: Guest, step: str) -> int:
    """Answers are as large as the open nodes and the widest host make them."""
    if step == "grow_nodes":
        return len(me.y) // 8 + 8 * len(me.opened) + wire.PIECE_BYTES
    if me.key is None or me.layout is None:
        return 0
    per_node = HOST_COLUMNS_MAX * 2 * me.rules.params.max_bin // me.layout.capacity + 1
    return min(wire.MESSAGE_BYTES_MAX, len(me.opened) * per_node * me.key.width + wire.PIECE_BYTES)


def _open_nodes(me: Guest) -> list[int]:
    """The nodes that may still divide: two children of min_child_weight must fit into one."""
    assert me.growth is not None
    if me.growth.layers == 0:
        return [ROOT]
    children = [
        child
        for node, _ in me.growth.last_divided
        for child in (left_child(node), right_child(node))
    ]
    least = 2 * me.rules.params.min_child_weight
    return [
        node
        for node in children
        if float(split.cover(me.totals[node][1:2], me.rules.fixed)) >= least
    ]


def _own_histograms(me: Guest) -> dict[int, Sums]:
    assert me.growth is not None
    training: Partition = me.growth.training
    columns = np.arange(me.bins.shape[1], dtype=np.int32)
    n_cells = me.rules.binning.n_cells
    if me.opened == [ROOT]:
        rows = training.rows(ROOT)
        return {ROOT: histogram.build(me.bins, [rows], me.gh, n_cells, columns)[0]}
    return histogram.children(me.bins, training, me.gh, me.cells, columns)


def _own_best(me: Guest, node: int, cells: Sums) -> Won | None:
    assert me.growth is not None
    rules = me.rules
    rows = me.growth.training.rows(node)
    missing = histogram.has_missing(me.bins, [rows], rules.binning.missing)[0]
    listed = split.candidates(rules.binning.n_bins, missing)
    found = choose(rules, cells, me.totals[node], listed)
    if found is None:
        return None
    best, left = found
    tree = len(me.history)
    own = OwnSplit(tree, node, best.column, best.threshold, best.missing_left)
    return Won(vertical.GUEST, best.gain, left[None, :], own)


def _best_of(me: Guest, node: int, offer: Sums) -> tuple[float, NDArray[np.int64]] | None:
    """The greatest gain in a host's offer and all candidates that share it."""
    total = me.totals[node]
    gain = split.gains(
        offer[:, 0:1], offer[:, 1:2], total[0:1], total[1:2], me.rules.params, me.rules.fixed
    )
    best = split.best(gain, me.rules.params)
    if best < 0:
        return None
    return float(gain[best]), np.flatnonzero(gain == gain[best])


def _decrypted(me: Guest, host: str, message: pb.CandidateSums) -> list[Sums]:
    """A host's sums, one array (candidates, 2) for each open node."""
    assert me.key is not None
    assert me.layout is not None
    what = f"the number of {host}'s candidates"
    counts = wire.unpack(message.candidates, "i4", (len(me.opened),), what).astype(np.int64)
    most = HOST_COLUMNS_MAX * 2 * me.rules.params.max_bin
    if len(counts) and (counts.min() < 0 or counts.max() > most):
        raise PeerError(f"{host} sent {counts.max()} candidates for one node; {most} is the most")
    count = len(me.layout.package_sizes(counts.tolist()))
    if message.packages.count != count:
        raise PeerError(f"{host} sent {message.packages.count} packages, its counts need {count}")
    packages = Ciphertexts.received(message.packages.data, count, me.key.width)
    sums = me.key.decrypt(packages, me.layout, counts.tolist())
    return np.split(sums, np.cumsum(counts)[:-1])


def _won_splits(splits: list[tuple[int, NDArray[np.int64]]]) -> pb.WonSplits:
    ties = [tied.astype(np.int32) for _, tied in splits]
    return pb.WonSplits(
        nodes=wire.pack(np.array([node for node, _ in splits], np.int32)),
        tied=wire.pack(np.array([len(tied) for tied in ties], np.int32)),
        candidates=wire.pack(np.concatenate([np.empty(0, np.int32), *ties])),
    )


def _split_totals(me: Guest, node: int) -> None:
    """The children's sums; a host whose rows do not add up to what it offered is refused."""
    assert me.growth is not None
    won, left = me.won[node], left_child(node)
    sums = me.gh[me.growth.training.rows(left)].sum(axis=0)
    if not (sums == won.left).all(axis=1).any():
        host = me.seat.table.hosts[won.owner - 1]
        raise PeerError(
            f"{host} divided the rows of node {node} otherwise than it offered", party=host
        )
    me.totals[left], me.totals[right_child(node)] = sums, me.totals[node] - sums


def _bin_of(me: Guest, own: OwnSplit) -> int:
    cuts = me.rules.binning.cuts[own.feature]
    return int(np.searchsorted(cuts, own.threshold)) if np.isfinite(own.threshold) else len(cuts)


def _measure(me: Guest) -> dict[str, dict[str, float]]:
    params = me.rules.params
    prediction = objectives.transform(params.objective, me.margin)
    return {
        part: {
            name: metrics.evaluate(name, me.y[rows], prediction[rows]) for name in params.metrics
        }
        for part, rows in me.parts.items()
    }


def _as_metrics(measured: Mapping[str, Mapping[str, float]]) -> list[Metric]:
    return [
        Metric(split=part, name=name, value=value)
        for part, values in measured.items()
        for name, value in values.items()
    ]


def _best_round(me: Guest) -> int:
    return len(me.history) - 1 if me.stopping.best is None else me.stopping.best_round


def _importance(me: Guest, best: int) -> list[Importance]:
    """Gain and splits: the own columns by name, every host's as one sum."""
    frame, hosts = me.seat.frame, me.seat.table.hosts
    assert frame is not None
    summed: dict[tuple[str, str], tuple[float, int]] = {}
    for node in me.nodes:
        if node.owner == vertical.LEAF or node.tree > best:
            continue
        own = node.split is not None
        party = me.seat.party if own else hosts[node.owner - 1]
        feature = frame.columns[node.split.feature] if node.split is not None else ""
        gain, count = summed.get((party, feature), (0.0, 0))
        summed[party, feature] = (gain + node.gain, count + 1)
    return [
        Importance(party=party, feature=feature, gain=gain, splits=count)
        for (party, feature), (gain, count) in sorted(summed.items(), key=lambda i: -i[1][0])
    ]


def _curves(me: Guest) -> list[Curve]:
    """ROC, precision-recall and KS of the last round, thinned out."""
    prediction = objectives.transform(me.rules.params.objective, me.margin)[:, 0]
    drawn = []
    for part, rows in me.parts.items():
        y = me.y[rows]
        if y.min() == y.max():
            continue
        found = metrics.curves(y, prediction[rows])
        for name, x, height in (
            ("roc", found.false_positive_rate, found.true_positive_rate),
            ("pr", found.true_positive_rate, found.precision),
            ("ks", found.share, found.true_positive_rate - found.false_positive_rate),
        ):
            drawn.append(Curve(name=name, split=part, x=wire.pack(x), y=wire.pack(height)))
    return drawn


def _joined(parts: list[NDArray[np.bool_]]) -> NDArray[np.bool_]:
    return np.concatenate([np.empty(0, np.bool_), *parts])
