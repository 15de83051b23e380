"""Guest and hosts of horizontal FederBoost: all do the same, with the columns of the guest."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedboost.aggregation import lookup
from fedboost.aggregation import measures as counting
from fedboost.aggregation import party as adding
from fedboost.aggregation.contributor import Contributor
from fedboost.aggregation.lookup import count_below  # noqa: F401  a step of ours as it is
from fedboost.aggregation.measures import PooledCounts
from fedboost.aggregation.party import (  # noqa: F401  steps of ours as they are
    bytes_max,
    compare_standings,
    deal_shares,
    hear_keys,
    offer_fresh_keys,
    offer_keys,
    reveal_shares,
    reveal_whole,
    tell_standing,
    vector_parts,
)
from fedboost.aggregation.party import labels_and_weights as labels_of
from fedboost.aggregation.statistic import Statistic
from fedboost.core import objectives, sampling
from fedboost.core.binning import Binning
from fedboost.core.local import Watched
from fedboost.core.objectives import Summary
from fedboost.core.quantiles import Ranked, Search
from fedboost.core.row_parts import SharedTable
from fedboost.core.rules import Rules
from fedboost.flow import DISCLOSURE, EVERYBODY, GUEST, Artefact, Out, Place, StageContext
from fedboost.ground.arrays import Floats
from fedboost.ground.errors import PeerError
from fedboost.ground.slot import Slot
from fedboost.ground.state import state_class
from fedboost.messages.job_pb2 import StatusReport
from fedboost.messages.protocol.aggregation_pb2 import DealtShares, Total
from fedboost.messages.protocol.federboost_horizontal_pb2 import Columns
from fedboost.model import columns, labels, whole, words
from fedboost.protocols.federboost_horizontal import tables
from fedboost.protocols.federboost_horizontal.boosting import TreeBoosting, TreeBoostingCheckpoint
from fedboost.protocols.federboost_horizontal.checks import check_rows
from fedboost.protocols.federboost_horizontal.params import FederBoostHorizontalParams
from fedboost.protocols.federboost_horizontal.tables import EncodedTable

Vector = NDArray[np.int64]

TREES, LAYERS = "tree", "layer"  # names of the loops


@dataclass
class HistogramParty:
    """State of a party between steps."""

    context: StageContext[FederBoostHorizontalParams]
    sums: Contributor
    table: EncodedTable  # our rows; its columns get the guest's order
    cells: str = ""  # a hash of all columns' names and cut points
    counts = Slot[PooledCounts]("numbers of everybody's rows")
    summary = Slot[Summary]("sums of everybody's labels")
    ranked = Slot[Ranked]("columns in their order")
    search = Slot[Search]("a search for cut points")
    training = Slot[TreeBoosting]("cut points to train with")

    @property
    def params(self) -> Any:
        """Settings of the job."""
        return self.context.params

    @property
    def is_guest(self) -> bool:
        """Whether the coordinator gets from us the results that all parties know."""
        return self.context.role is GUEST

    @property
    def sums_ahead(self) -> int:
        """Number of trees to come, each with a sum at its root."""
        return max(1, int(self.params.n_estimators) - len(self.training.rounds))


@state_class
class TreePartyState:
    """Checkpoint of a party: its rounds, and the settings and sums behind them."""

    columns: tuple[str, ...]
    binning: Binning
    counts: PooledCounts
    summary: Summary
    history: bytes  # of the sums
    over: tuple[str, ...]  # parties in the sums of the tree that grows
    training: TreeBoostingCheckpoint


CHECKPOINT = TreePartyState  # state that `snapshot` keeps


def begin(context: StageContext[FederBoostHorizontalParams]) -> HistogramParty:
    """Return a party with its table, and keys that it has not shared yet."""
    kept = context.artefacts.get(DISCLOSURE)
    table = tables.encode_table(context.data, context.params, None if kept is None else kept.facts)
    return HistogramParty(context, Contributor(context), table)


# Columns and keys


def show_columns(party: HistogramParty) -> Out:
    """Send our columns, whose order counts for all parties."""
    return Out(send=Columns(names=party.table.names, categorical=party.table.categorical))


def match_columns(party: HistogramParty, got: Columns) -> Out:
    """Put our columns in the guest's order; a DataError names a column of only one party."""
    for names in (got.names, got.categorical):
        if len(set(names)) < len(names):
            raise PeerError(f"{party.context.table.guest} names a column twice")
    party.table = party.table.ordered(
        tuple(got.names), tuple(got.categorical), party.context.table.guest
    )
    return Out()


# Rows and labels


def count_rows(party: HistogramParty) -> Iterator[Out]:
    """Send our numbers of rows, and how large labels and weights are."""
    label, weight, scaled = labels_of(party.context)
    party.ranked = Ranked.of(party.table.values[party.context.parts["train"]])
    present, largest = party.ranked.present(), np.maximum(weight, scaled)
    schema = {"columns": party.table.names, "categorical": party.table.categorical}
    counts = counting.counts_of_rows(present, label, largest, party.context.parts)
    yield from vector_parts(party, counts, Statistic("count_rows", schema=schema))


def read_counts(party: HistogramParty, got: Iterator[Total]) -> Out:
    """Read the numbers of rows of all parties."""
    total = party.sums.total_before_rounds(got, (1 << 31) * len(party.sums.members))
    party.counts = counting.read_counts(total, len(party.table.names))
    labels.check_held_out(party.params, party.counts.validation > 0)
    if party.params.reuse is None:
        check_rows(party.params, party.counts.train)
    return Out()


def sum_labels(party: HistogramParty) -> Iterator[Out]:
    """Send the sums of our labels and weights."""
    label, _, weight = labels_of(party.context)
    train = party.context.parts["train"]
    share = counting.sums_of_labels(party.params, party.counts, label[train], weight[train])
    yield from vector_parts(party, share, Statistic("sum_labels"))


def read_labels(party: HistogramParty, got: Iterator[Total]) -> Out:
    """Read the sums of all labels, then fix the cut points unless they need a search."""
    total = party.sums.total_before_rounds(got, counting.largest_sum(party.counts))
    party.summary = counting.label_summary(party.params, party.counts, total)
    objectives.start_objective(
        party.params, party.summary
    )  # refuses labels before the search for cuts
    if DISCLOSURE in party.context.artefacts:
        _start_training(
            party, party.table.earlier_binning(party.context.artefacts[DISCLOSURE].facts)
        )
        return lookup.search_end()
    searched = party.table.searched
    party.ranked = party.ranked.at(searched)
    present = party.counts.present[searched]
    party.search = Search(present, party.params.max_bin, party.params.quantile_tolerance)
    return _finish_search(party)


# Quantiles


def narrow(party: HistogramParty, got: Iterator[Total]) -> Out:
    """Take a step of the search."""
    lookup.take_counts(party, got)
    return _finish_search(party)


# Trees


def hold_shares(
    party: HistogramParty, got: Mapping[str, DealtShares], present: tuple[str, ...]
) -> Out:
    """Keep the others' shares, if the remaining parties may begin the tree at hand."""
    _check_begun(party, present)
    return adding.hold_shares(party, got, present)


def sign_survivors(party: HistogramParty, present: tuple[str, ...]) -> Out:
    """Sign the remaining parties, as the coordinator named them; the same rules hold."""
    _check_begun(party, present)
    return adding.sign_survivors(party, present)


def sum_histograms(party: HistogramParty) -> Iterator[Out]:
    """Send our gradients in the cells of the open nodes, behind metrics that are due."""
    training = party.training
    tree, layer = len(training.rounds), training.layer
    due, measured = _metrics_share(party) if _owes_metrics(party) else (np.empty(0, np.int64), {})
    sums = np.concatenate([due, training.sums()])
    schema = {"cells": party.cells, **training.asked(), **measured}
    fresh, unit = tree if layer == 0 else None, 1 << training.rules.fixed.bits
    what = Statistic("sum_histograms", (tree, layer), schema, fresh, unit)
    yield from vector_parts(party, sums, what)


def split_nodes(party: HistogramParty, got: Iterator[Total]) -> Out:
    """Divide the open nodes as all parties do, after reading metrics that are due."""
    training, told = party.training, StatusReport()
    total = party.sums.total(got, 1 << 62)
    if total is None and training.layer == 0:
        raise PeerError("a tree's first sum stays closed though all remaining parties signed it")
    if total is not None and _owes_metrics(party):
        due, total = np.split(total, [training.measures.words])
        told = _metrics_report(party, due)
    training.take(total)
    if training.layer == party.params.max_depth:
        training.close_round()
        party.sums.add_to_history(*(tree.feature.tobytes() for tree in training.rounds[-1]))
    return Out(told=told)


def measure(party: HistogramParty) -> Iterator[Out]:
    """Send our share of the metrics."""
    share, schema = _metrics_share(party)
    yield from vector_parts(
        party, share, Statistic("measure", (len(party.training.rounds),), schema)
    )


def read_metrics(party: HistogramParty, got: Iterator[Total]) -> Out:
    """Read the metrics of the round; the tree loop ends if it was the last one."""
    told = _metrics_report(party, party.sums.total(got, 1 << 62))
    told.ends = TREES if party.training.measures.ends else ""
    return Out(told=told)


def close_model(party: HistogramParty) -> Out:
    """Report the finished model, from the guest only."""
    if not party.is_guest:
        return Out()
    trained, counts = party.training.trained, party.counts
    kept = trained.rounds[: trained.best_round + 1]
    told = StatusReport(best=words.as_metrics(party.training.measures.best_metrics))
    told.counts.add(name="rounds", count=len(kept))
    told.counts.add(name="trees", count=sum(map(len, kept)))
    for part, rows in counts.parts.items():
        told.counts.add(name=part, count=rows)
    told.importance.extend(words.importance_of(party.context.party, party.table.names, kept))
    return Out(told=told)


# Checkpoints and the end


def snapshot(party: HistogramParty, _: Place) -> Artefact:
    """Keep the finished rounds and their basis, and the parties in a growing tree's sums."""
    kept = TreePartyState(
        columns=party.table.names,
        binning=party.training.rules.binning,
        counts=party.counts,
        summary=party.summary,
        history=party.sums.history,
        over=party.sums.over,
        training=party.training.state(),
    )
    return Artefact.from_state(kept, history=kept.history)


def restore(party: HistogramParty, checkpoint: Artefact) -> StatusReport:
    """Continue behind the last round, or layer, that all parties have kept."""
    kept, tables = checkpoint.state(TreePartyState), party.table.names
    party.table = party.table.ordered(
        kept.columns, party.table.categorical, party.context.table.guest
    )
    assert set(tables) == set(party.table.names)
    party.counts, party.summary = kept.counts, kept.summary
    _start_training(party, kept.binning)
    training = party.training
    training.load_state(kept.training)
    party.sums.history = kept.history
    if training.layer or training.is_grown:
        party.sums.begun = kept.over
    if training.is_grown:
        return StatusReport(ends=LAYERS)
    return StatusReport(ends=TREES if training.measures.ends else "")


def finish(party: HistogramParty) -> Artefact:
    """Return the whole model, the same at all parties, and the cut points for other jobs."""
    training = party.training
    lists = party.table.lists
    shard = whole.make_shard(training.trained, party.table.names, lists)
    if DISCLOSURE in party.context.artefacts:
        return shard
    facts = tables.cuts_facts(training.rules.binning)
    facts |= {"columns": list(party.table.names), "lists": {k: list(v) for k, v in lists.items()}}
    return Artefact(shard.facts, shard.arrays, Artefact(facts))


# Inside


def _check_begun(party: HistogramParty, present: tuple[str, ...]) -> None:
    """Refuse a tree that began with other parties, until a part of it has been kept."""
    training = party.training
    if training.layer == 0 and not training.is_grown:
        party.sums.check_begun(len(training.rounds), present, "a tree")


def _owes_metrics(party: HistogramParty) -> bool:
    """Return whether the sum at hand begins with the metrics of the round before.

    It does if no party's part can be left out of it.
    """
    training = party.training
    return training.is_grown and training.layer == 0 and party.params.dropout == "wait"


def _metrics_share(party: HistogramParty) -> tuple[Vector, dict[str, Any]]:
    """Return our share of the last round's metrics, and their part of a sum's schema."""
    training = party.training
    return training.measures.round_tally(training.watched), {"metrics": party.params.metrics}


def _metrics_report(party: HistogramParty, total: Vector | None) -> StatusReport:
    """Read all parties' metrics of the last round; the guest reports them."""
    measured = party.training.measures.hear(total)
    return StatusReport(metrics=words.as_metrics(measured) if party.is_guest else ())


def _finish_search(party: HistogramParty) -> Out:
    """End the search if every quantile is found, and begin to train."""
    if not party.search.is_over:
        return Out()
    _start_training(party, party.table.binning_of_cuts(party.search.cuts()))
    return lookup.search_end()


def _start_training(party: HistogramParty, binning: Binning) -> None:
    """Set up the training that the rounds need, alike at every party."""
    params, counts, summary = party.params, party.counts, party.summary
    label, weight, _ = labels_of(party.context)
    objective = objectives.start_objective(params, summary)
    fixed = objectives.encoding(params, objective, summary)
    watched = {}
    for part in counts.parts:
        rows = party.context.parts.get(part, np.empty(0, np.int32))
        margin = np.tile(objective.base_margin, (len(rows), 1))
        bins = binning.transform(party.table.values[rows])
        watched[part] = Watched(bins, label[rows], weight[rows], margin)
    place = party.context.table.of(EVERYBODY).index(party.context.party)
    _check_draws(party, label[party.context.parts["train"]], place)
    table, least = party.table, (party.context.limits.own_rows_min,)
    moves = columns.directions(params.monotone_constraints, table.names, table.categorical)
    bins = watched["train"].bins
    elsewhere = SharedTable.of(party.context.services.part_workers, bins, binning, *least)
    rules = Rules(params, binning, fixed, own_rows_min=least, directions=moves, elsewhere=elsewhere)
    facts = [party.table.names, tables.cuts_facts(binning)]
    party.cells = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
    party.training = TreeBoosting(rules, (objective, summary, counts), watched, place)


def _check_draws(party: HistogramParty, label: Floats, place: int) -> None:
    """Refuse, by a PolicyError, a job whose trees tell few of our training rows apart."""
    params, classes = party.params, np.ones((1, len(label)), np.bool_)
    if params.record.classifies:
        classes = label == np.unique(label)[:, None]
    least = party.context.limits.holdout_rows_min
    sampling.check_draws(params, classes, least, "policy.holdout_rows_min", party=place)
