"""The guest of vertical FederBoost: collects buckets, trains alone, sends each host its splits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedboost.core import binning, objectives
from fedboost.core.binning import Binning
from fedboost.core.categories import SET_BYTES
from fedboost.core.fixed_point import FixedPoint
from fedboost.core.local import Training, TrainingState, Watched, grow_tree
from fedboost.core.metrics import ranks_label
from fedboost.core.objectives import Objective, Summary
from fedboost.core.row_parts import SharedTable
from fedboost.core.rules import Rules
from fedboost.core.tree import Tree
from fedboost.crypto import noise
from fedboost.flow import DISCLOSURE, Artefact, Out, Place, StageContext
from fedboost.ground import wire
from fedboost.ground.arrays import Floats
from fedboost.ground.errors import ConfigError, ProtocolError
from fedboost.ground.slot import Slot
from fedboost.ground.state import restore_into, state_class
from fedboost.messages.job_pb2 import Count, RoundTold, StatusReport
from fedboost.messages.protocol.federboost_vertical_pb2 import BucketIds, OwnSplits
from fedboost.model import columns, labels, vertical, words
from fedboost.model.vertical import GuestNode
from fedboost.protocols.federboost_vertical import buckets
from fedboost.protocols.federboost_vertical.buckets import Buckets
from fedboost.protocols.federboost_vertical.joined import Joined
from fedboost.protocols.federboost_vertical.params import FederBoostVerticalParams
from fedboost.protocols.federboost_vertical.xgboost_trees import XgboostTrees

STEP_CELLS = 1 << 27  # rows × columns × layers × trees that one step adds up: about a second


@state_class
class BucketTreesState:
    """Checkpoint of the guest: its rounds, and all rows' margins."""

    training: TrainingState
    margins: dict[str, Floats]  # by the part of the rows


CHECKPOINT = BucketTreesState  # state that `snapshot` keeps


@dataclass
class Guest:
    """State of the guest between steps."""

    context: StageContext[FederBoostVerticalParams]  # its rows match the disclosure
    own: Binning
    objective: Objective
    fixed: FixedPoint
    weight: Floats
    told: dict[str, Buckets] = field(default_factory=dict)  # by host, in the table's order
    kept: BucketTreesState | None = None  # of a checkpoint, until the buckets are there again
    joined = Slot[Joined]("a table with the hosts' buckets")
    training = Slot[Training]("a table with the hosts' buckets to train on")

    @property
    def params(self) -> Any:
        """Settings of the job."""
        return self.context.params


def begin(context: StageContext[FederBoostVerticalParams]) -> Guest:
    """Bin our columns and fix the objective; reuse an earlier disclosure if there is one."""
    frame, params = context.data, context.params
    labels.check_held_out(params, bool(context.validation.any()))
    strangers = sorted(set(params.public_cuts) - set(context.table.hosts))
    if strangers:
        raise ConfigError(
            f"public_cuts names {strangers[0]}, which is no host of the job",
            todo="name a host; the guest's own columns have max_bin",
        )
    train = ~context.validation
    weight = np.ones(frame.n_rows) if frame.weight is None else frame.weight
    summary = Summary.of(params, context.label[train], weight[train])
    objective = objectives.start_objective(params, summary)
    cuts = binning.fit(frame.values, params.max_bin, frame.categorical, rows=train)
    fixed = objectives.encoding(params, objective, summary)
    guest = Guest(context, cuts, objective, fixed, weight)
    if DISCLOSURE in context.artefacts:
        guest.told = _earlier_buckets(context.artefacts[DISCLOSURE], context.table.hosts)
        _start_training(guest)
    return guest


def receive_buckets(guest: Guest, got: Mapping[str, BucketIds]) -> Out:
    """Join the hosts' buckets to our bins: one table, as if it were pooled."""
    if DISCLOSURE in guest.context.artefacts:
        raise ProtocolError("the job uses earlier buckets again and takes no new ones")
    rows, most = len(guest.weight), guest.context.services.peer_bytes_max
    hosts = guest.context.table.hosts
    guest.told = {host: buckets.read_message(got[host], rows, host, most) for host in hosts}
    _start_training(guest)
    given_away = [
        words.label_warning(host) for host in guest.told if _gives_label_away(guest, host)
    ]
    return Out(told=StatusReport(warnings=given_away))


def _gives_label_away(guest: Guest, host: str) -> bool:
    """Return whether one column of a host ranks a binary label almost perfectly by its buckets."""
    of_host, rows = guest.told[host], guest.context.parts["train"]
    label = guest.context.label[rows]
    if len(np.unique(label)) != 2:
        return False
    lacks = of_host.missing & (of_host.ids == of_host.count - 1)
    ids, numeric = np.where(lacks, np.nan, of_host.ids)[rows], np.flatnonzero(~of_host.categorical)
    return any(ranks_label(label, ids[:, c]) for c in numeric.tolist())


def grow_trees(guest: Guest) -> Out:
    """Grow as many rounds as fit into about a second; each says its metrics."""
    training, params = guest.training, guest.params
    rounds, cells = [], 0
    while not training.is_over and cells < STEP_CELLS:
        number = len(training.rounds)
        training.advance()
        trees = len(training.rounds[-1])
        cells += (
            len(guest.weight) * training.watched["train"].bins.shape[1] * params.max_depth * trees
        )
        measured = words.as_metrics(training.history[-1])
        done = RoundTold(round="tree", done=number + 1, of=params.n_estimators, metrics=measured)
        rounds.append(done)
    return Out(told=StatusReport(ends="batch" if training.is_over else "", rounds=rounds))


def close_model(guest: Guest) -> Out:
    """Report the finished model; send every host the splits of its own columns."""
    training, params = guest.training, guest.params
    nodes = _kept_nodes(guest)
    best = training.best_round
    report = StatusReport(best=words.as_metrics(training.history[best]))
    report.counts.add(name="rounds", count=best + 1)
    report.counts.add(name="trees", count=sum(map(len, training.rounds[: best + 1])))
    report.counts.extend(
        Count(name=name, count=len(rows)) for name, rows in guest.context.parts.items()
    )
    report.importance.extend(words.importance(guest.context, nodes))
    for host in guest.context.table.hosts:
        _report_privacy(guest, host, report)
    if params.record.has_chances:
        margin = np.empty((len(guest.weight), 1))
        for part, rows in guest.context.parts.items():
            margin[rows] = training.watched[part].margin
        prediction = objectives.transform(params.objective, margin)[:, 0]
        report.curves.extend(
            words.curve_messages(guest.context.label, prediction, guest.context.parts)
        )
    return Out(send=_splits_of_hosts(guest), told=report)


def snapshot(guest: Guest, _: Place) -> Artefact:
    """Keep the finished rounds; hosts send the same buckets again."""
    training = guest.training
    margins = {part: seen.margin for part, seen in training.watched.items()}
    return Artefact.from_state(BucketTreesState(training=training, margins=margins))


def restore(guest: Guest, checkpoint: Artefact) -> StatusReport:
    """Continue behind the last batch, once the buckets are there."""
    guest.kept = kept = checkpoint.state(BucketTreesState)
    if guest.told:
        _restore_rounds(guest, kept)
    rounds, stopping = kept.training.rounds, kept.training.stopping
    done = len(rounds) == guest.params.n_estimators or stopping.stop
    return StatusReport(ends="batch" if done else "")


def finish(guest: Guest) -> Artefact:
    """Return the guest's shard, and the buckets for other jobs to use again."""
    training, params, frame = guest.training, guest.params, guest.context.data
    nodes = _kept_nodes(guest)
    sizes = [len(t) // params.trees_per_round for t in training.rounds[: training.best_round + 1]]
    facts = {
        "objective": params.objective,
        "params": params.model_dump(mode="json"),
        "base_margin": guest.objective.base_margin.tolist(),
        "columns": list(frame.columns),
        "categories": columns.categories(frame, guest.own),
        "trees": sum(sizes) * params.trees_per_round,
        "trees_per_round": params.trees_per_round,
        "forest": sizes,
        "history": training.history,
    }
    outputs = params.n_outputs // params.trees_per_round
    kept = None if DISCLOSURE in guest.context.artefacts else _disclosure(guest)
    return Artefact(facts, vertical.nodes_to_arrays(nodes, outputs), kept)


def bytes_max(_: Guest, __: str) -> int:
    """Return the limit of any message: rows and columns of a host are up to the host."""
    return wire.MESSAGE_BYTES_MAX


# Inside


def _start_training(guest: Guest) -> None:
    """Join all columns to one table, at the first round or behind a checkpoint."""
    frame, params = guest.context.data, guest.params
    joined = Joined(guest.own, tuple(guest.told.values()))
    bins = joined.bins(frame.values)
    watched = {}
    for part, rows in guest.context.parts.items():
        margin = np.tile(guest.objective.base_margin, (len(rows), 1))
        watched[part] = Watched(bins[rows], guest.context.label[rows], guest.weight[rows], margin)
    others = sum(joined.groups[1:])
    moves = columns.directions(params.monotone_constraints, frame.columns, frame.categories, others)
    threads = guest.context.services.workers.threads
    by_xgboost = params.trainer == "xgboost"  # XGBoost has all rows itself
    elsewhere = None
    if not by_xgboost:
        elsewhere = SharedTable.of(
            guest.context.services.part_workers, watched["train"].bins, joined.cuts
        )
    rules = Rules(
        params,
        joined.cuts,
        guest.fixed,
        directions=moves,
        threads=threads,
        elsewhere=elsewhere,
    )
    grower = (
        XgboostTrees(rules, bins[guest.context.parts["train"]]).grow_tree
        if by_xgboost
        else grow_tree
    )
    guest.joined = joined
    guest.training = Training(rules, guest.objective, watched, joined.groups, grower)
    if guest.kept is not None:
        _restore_rounds(guest, guest.kept)


def _restore_rounds(guest: Guest, kept: BucketTreesState) -> None:
    """Put the rounds of a checkpoint into the training."""
    restore_into(guest.training, kept.training)
    for part, seen in guest.training.watched.items():
        seen.margin[:] = kept.margins[part]


def _kept_trees(guest: Guest) -> list[Tree]:
    training = guest.training
    return [tree for trees in training.rounds[: training.best_round + 1] for tree in trees]


def _kept_nodes(guest: Guest) -> list[GuestNode]:
    """Return the trees that the model keeps, hosts' splits without their content."""
    owner_of, trees = guest.joined.owner, enumerate(_kept_trees(guest))
    return list(chain.from_iterable(vertical.tree_nodes(*tree, owner_of) for tree in trees))


def _splits_of_hosts(guest: Guest) -> dict[str, OwnSplits]:
    """Return each host's splits, by the numbers of its columns and buckets."""
    rows: list[list[tuple[int, int, int, int, bool]]] = [[] for _ in guest.told]
    sets: list[list[NDArray[np.uint8]]] = [[] for _ in guest.told]
    for number, tree in enumerate(_kept_trees(guest)):
        for i in np.flatnonzero(~tree.is_leaf):
            owner, column = guest.joined.owner(int(tree.feature[i]))
            if owner == vertical.GUEST:
                continue
            last, left = int(tree.bin[i]), bool(tree.missing_left[i])
            if tree.left_bins[i].any():
                last = buckets.BY_SET
                sets[owner - 1].append(tree.left_bins[i])
            rows[owner - 1].append((number, int(tree.node[i]), column, last, left))
    return {host: _own_splits(rows[k], sets[k]) for k, host in enumerate(guest.told)}


def _own_splits(
    rows: list[tuple[int, int, int, int, bool]], sets: list[NDArray[np.uint8]]
) -> OwnSplits:
    numbers = np.array([row[:4] for row in rows], np.int32).reshape(len(rows), 4)
    held = np.array(sets, np.uint8).reshape(len(sets), -1 if sets else SET_BYTES)
    return OwnSplits(
        trees=wire.pack(numbers[:, 0]),
        nodes=wire.pack(numbers[:, 1]),
        columns=wire.pack(numbers[:, 2]),
        buckets=wire.pack(numbers[:, 3]),
        missing_left=wire.pack_bits(np.array([row[4] for row in rows], np.bool_)),
        sets=wire.pack(held),
    )


def _report_privacy(guest: Guest, host: str, report: StatusReport) -> None:
    """Report the privacy loss of a host's disclosure, by the settings that it was made with."""
    epsilon, count = guest.params.epsilon, guest.told[host].count.tolist()
    if DISCLOSURE in guest.context.artefacts:
        epsilon = guest.context.artefacts[DISCLOSURE].facts["epsilon"]
    if epsilon is None:
        report.privacy.add(party=host, noise=False)
        return
    moved = [noise.move_chance(epsilon, values) for values in count]
    report.privacy.add(
        party=host,
        noise=True,
        epsilon_element=epsilon,
        epsilon_row=epsilon * len(count),
        moved=float(np.mean(moved)),
    )


def _disclosure(guest: Guest) -> Artefact:
    """Return the buckets as the hosts sent them."""
    arrays: dict[str, NDArray[np.generic]] = {
        f"{host}.{name}": array
        for host, of_host in guest.told.items()
        for name, array in vars(of_host).items()
    }
    return Artefact({"epsilon": guest.params.epsilon}, arrays)


def _earlier_buckets(kept: Artefact, hosts: tuple[str, ...]) -> dict[str, Buckets]:
    return {
        host: Buckets(
            count=kept.arrays[f"{host}.count"].astype(np.int32),
            missing=kept.arrays[f"{host}.missing"].astype(np.bool_),
            categorical=kept.arrays[f"{host}.categorical"].astype(np.bool_),
            ids=np.asfortranarray(kept.arrays[f"{host}.ids"].astype(np.uint8)),
        )
        for host in hosts
    }
