"""Guest and hosts of horizontal FederBoost: all do the same, but that the guest's columns count."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedboost.aggregation import counts as counting
from fedboost.aggregation import party as adding
from fedboost.aggregation.contributor import Contributor
from fedboost.aggregation.counts import Counts
from fedboost.aggregation.party import (  # noqa: F401  steps of ours as they are
    bytes_max,
    compare_standings,
    deal_shares,
    given,
    hear_keys,
    offer_fresh_keys,
    offer_keys,
    reveal_shares,
    tell_standing,
)
from fedboost.aggregation.party import labels as labels_of
from fedboost.aggregation.statistic import Statistic
from fedboost.core import objectives
from fedboost.core.binning import Binning
from fedboost.core.growth import Rules
from fedboost.core.local import Watched
from fedboost.core.objectives import Summary
from fedboost.core.quantiles import Ranked, Search
from fedboost.errors import PeerError
from fedboost.flow import DISCLOSURE, EVERYBODY, GUEST, Artefact, Out, Place, Seat
from fedboost.messages.job_pb2 import Told
from fedboost.messages.protocol.aggregation_pb2 import DealtShares, Total
from fedboost.messages.protocol.federboost_horizontal_pb2 import Columns
from fedboost.model import labels, whole, words
from fedboost.protocols.federboost_horizontal import tables
from fedboost.protocols.federboost_horizontal.boosting import TreeBoosting, TreeBoostingCheckpoint
from fedboost.protocols.federboost_horizontal.checks import check_rows
from fedboost.protocols.federboost_horizontal.tables import EncodedTable
from fedboost.slot import Slot
from fedboost.state import state

Vector = NDArray[np.int64]
Floats = NDArray[np.float64]

TREES, LAYERS = "tree", "layer"  # what the loops count


@dataclass
class Party:
    """What a party remembers between steps."""

    seat: Seat
    sums: Contributor
    table: EncodedTable  # our rows, with the columns in the guest's order once we know it
    cells: str = ""  # a hash of where all columns are cut, and of which they are
    counts = Slot[Counts]("numbers of everybody's rows")
    summary = Slot[Summary]("sums of everybody's labels")
    ranked = Slot[Ranked]("columns in their order")
    search = Slot[Search]("a search for cut points")
    training = Slot[TreeBoosting]("cut points to train with")

    @property
    def params(self) -> Any:
        """The job's."""
        return self.seat.params

    @property
    def is_guest(self) -> bool:
        """Return whether the coordinator hears from us what all parties know."""
        return self.seat.role is GUEST

    @property
    def sums_of_round(self) -> int:
        """Layers of a round, and its metrics."""
        return int(self.params.max_depth) + 1


@state
class TreePartyState:
    """What a checkpoint keeps: the rounds, and what they stand on."""

    columns: tuple[str, ...]
    binning: Binning
    counts: Counts
    summary: Summary
    history: bytes  # of the sums
    over: tuple[str, ...]  # whose sums a tree under way is made of
    training: TreeBoostingCheckpoint


CHECKPOINT = TreePartyState  # what `snapshot` keeps


def begin(seat: Seat) -> Party:
    """A party with its table, and keys that nobody knows yet."""
    kept = seat.artefacts.get(DISCLOSURE)
    table = tables.of(seat.data, seat.params, None if kept is None else kept.facts)
    return Party(seat, Contributor(seat), table)


# Columns and keys


def show_columns(me: Party) -> Out:
    """Our columns, which everybody counts in our order."""
    return Out(send=Columns(names=me.table.names, categorical=me.table.categorical))


def match_columns(me: Party, got: Columns) -> Out:
    """Our columns in the guest's order; a DataError names one that only one of us has."""
    for names in (got.names, got.categorical):
        if len(set(names)) < len(names):
            raise PeerError(f"{me.seat.table.guest} names a column twice")
    me.table = me.table.ordered(tuple(got.names), tuple(got.categorical), me.seat.table.guest)
    return Out()


# Rows and labels


def count_rows(me: Party) -> Iterator[Out]:
    """Send how many rows we have, and how large labels and weights are."""
    label, weight, scaled = labels_of(me.seat)
    me.ranked = Ranked.of(me.table.values[me.seat.parts["train"]])
    present, largest = me.ranked.present(), np.maximum(weight, scaled)
    schema = {"columns": me.table.names, "categorical": me.table.categorical}
    counts = counting.of_rows(present, label, largest, me.seat.parts)
    yield from given(me, counts, Statistic("count_rows", schema=schema))


def read_counts(me: Party, got: Iterator[Total]) -> Out:
    """Read how many rows all of us have."""
    total = me.sums.total_before_rounds(got, (1 << 31) * len(me.sums.members))
    me.counts = counting.read(total, len(me.table.names))
    labels.check_held_out(me.params, me.counts.validation > 0)
    if me.params.reuse is None:
        check_rows(me.params, me.counts.train)
    return Out()


def sum_labels(me: Party) -> Iterator[Out]:
    """Send the sums of our labels and weights."""
    label, _, weight = labels_of(me.seat)
    train = me.seat.parts["train"]
    share = counting.of_labels(me.params, me.counts, label[train], weight[train])
    yield from given(me, share, Statistic("sum_labels"))


def read_labels(me: Party, got: Iterator[Total]) -> Out:
    """Read the sums of all labels; then find where columns are cut, if nobody has to
    search for it.
    """
    total = me.sums.total_before_rounds(got, counting.most(me.counts))
    me.summary = counting.summary(me.params, me.counts, total)
    objectives.start(me.params, me.summary)  # refuses labels before anybody searches for cuts
    if DISCLOSURE in me.seat.artefacts:
        _plant(me, me.table.cuts_again(me.seat.artefacts[DISCLOSURE].facts))
        return Out(told=Told(ends="quantiles"))
    searched = me.table.searched
    present = me.counts.present[searched]
    me.search = Search(present, me.params.max_bin, me.params.quantile_tolerance)
    return _found(me)


# Quantiles


def count_below(me: Party) -> Iterator[Out]:
    """Send how many of our values are below each probe of the search."""
    probes = me.search.probes()
    below = me.ranked.at(me.table.searched).below(probes)
    yield from given(me, below, Statistic("count_below"))


def narrow(me: Party, got: Iterator[Total]) -> Out:
    """Takes the search a step on."""
    total = me.sums.total_before_rounds(got, me.counts.train)
    me.search.take(total)
    return _found(me)


# Trees


def hold_shares(me: Party, got: Mapping[str, DealtShares], present: tuple[str, ...]) -> Out:
    """Keeps the others' shares, if those who are left may begin the tree at hand."""
    _check_begun(me, present)
    return adding.hold_shares(me, got, present)


def sign_survivors(me: Party, present: tuple[str, ...]) -> Out:
    """Sign who is left, as we were told; the same rules hold."""
    _check_begun(me, present)
    return adding.sign_survivors(me, present)


def sum_histograms(me: Party) -> Iterator[Out]:
    """Our gradients in the cells of the open nodes."""
    training = me.training
    tree, layer = len(training.rounds), training.layer
    own = training.sums()
    schema = {"cells": me.cells, **training.asked()}
    fresh, unit = 2 * tree if layer == 0 else None, 1 << training.rules.fixed.bits
    what = Statistic("sum_histograms", (tree, layer), schema, fresh, unit)
    yield from given(me, own, what)


def split_nodes(me: Party, got: Iterator[Total]) -> Out:
    """Divides the open nodes as everybody does."""
    training = me.training
    total = me.sums.total(got, 1 << 62)
    if total is None and training.layer == 0:
        raise PeerError("a tree's first sum stays closed though all who are left signed for it")
    training.take(total)
    waits = me.params.dropout == "wait"  # all layers of a round have been asked for
    if training.layer == me.params.max_depth or not (training.grows or waits):
        training.close_round()
        me.sums.broadcast(*(tree.feature.tobytes() for tree in training.rounds[-1]))
        return Out(told=Told(ends="" if waits else LAYERS))
    return Out()


def measure(me: Party) -> Iterator[Out]:
    """Our share of the metrics."""
    training, of_round = me.training, len(me.training.rounds)
    share, schema = training.measures.tally(training.watched), {"metrics": me.params.metrics}
    what = Statistic("measure", (of_round,), schema, fresh=2 * of_round - 1)
    yield from given(me, share, what)


def read_metrics(me: Party, got: Iterator[Total]) -> Out:
    """The metrics of the round, and whether it was the last one."""
    measured = me.training.measures.hear(me.sums.total(got, 1 << 62))
    told = Told(ends=TREES if me.training.measures.ends else "")
    if me.is_guest:
        told.metrics.extend(words.as_metrics(measured))
    return Out(told=told)


def close_model(me: Party) -> Out:
    """Report the finished model, from the guest alone."""
    if not me.is_guest:
        return Out()
    trained, counts = me.training.trained, me.counts
    kept = trained.rounds[: trained.best_round + 1]
    told = Told(best=words.as_metrics(trained.history[trained.best_round]))
    told.counts.add(name="rounds", count=len(kept))
    told.counts.add(name="trees", count=sum(map(len, kept)))
    for part, rows in counts.parts.items():
        told.counts.add(name=part, count=rows)
    told.importance.extend(words.importance_of(me.seat.party, me.table.names, kept))
    return Out(told=told)


# Checkpoints and the end


def snapshot(me: Party, _: Place) -> Artefact:
    """Rounds so far, and what they stand on; of a tree under way also whose sums it is made of."""
    kept = TreePartyState(
        columns=me.table.names,
        binning=me.training.rules.binning,
        counts=me.counts,
        summary=me.summary,
        history=me.sums.history,
        over=me.sums.over,
        training=me.training.state(),
    )
    return Artefact.of_state(kept, history=kept.history)


def restore(me: Party, checkpoint: Artefact) -> Told:
    """Carries on behind the last round, or layer, that everybody has kept."""
    kept, own = checkpoint.state(TreePartyState), me.table.names
    me.table = me.table.ordered(kept.columns, me.table.categorical, me.seat.table.guest)
    assert set(own) == set(me.table.names)
    me.counts, me.summary = kept.counts, kept.summary
    _plant(me, kept.binning)
    training = me.training
    training.load_state(kept.training)
    me.sums.history = kept.history
    if training.layer:
        me.sums.begun = kept.over
    if training.is_grown:
        return Told(ends=LAYERS)
    return Told(ends=TREES if training.measures.ends else "")


def finish(me: Party) -> Artefact:
    """The whole model, the same for everybody, and the cut points for other jobs."""
    training = me.training
    lists = me.table.lists
    shard = whole.shard(training.trained, me.table.names, lists)
    if DISCLOSURE in me.seat.artefacts:
        return shard
    facts = tables.cuts_facts(training.rules.binning)
    facts |= {"columns": list(me.table.names), "lists": {k: list(v) for k, v in lists.items()}}
    return Artefact(shard.facts, shard.arrays, Artefact(facts))


# Inside


def _check_begun(me: Party, present: tuple[str, ...]) -> None:
    """Refuses a tree that was begun with others, as long as nothing of it has been kept."""
    training = me.training
    if training.layer == 0 and not training.is_grown:
        me.sums.check_begun(2 * len(training.rounds), present, "a tree")


def _found(me: Party) -> Out:
    """Ends the search where every quantile is found, and begins to train."""
    if not me.search.is_over:
        return Out()
    _plant(me, me.table.cut_at(me.search.cuts()))
    return Out(told=Told(ends="quantiles"))


def _plant(me: Party, binning: Binning) -> None:
    """Everything that the rounds stand on; every party comes to the same."""
    params, counts, summary = me.params, me.counts, me.summary
    label, weight, _ = labels_of(me.seat)
    objective = objectives.start(params, summary)
    fixed = objectives.encoding(params, objective, summary)
    watched = {}
    for part in counts.parts:
        rows = me.seat.parts.get(part, np.empty(0, np.int32))
        margin = np.tile(objective.base_margin, (len(rows), 1))
        bins = binning.transform(me.table.values[rows])
        watched[part] = Watched(bins, label[rows], weight[rows], margin)
    place = me.seat.table.of(EVERYBODY).index(me.seat.party)
    rules = Rules(params, binning, fixed, own_rows_min=(me.seat.limits.own_rows_min,))
    facts = [me.table.names, tables.cuts_facts(binning)]
    me.cells = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
    me.training = TreeBoosting(rules, (objective, summary, counts), watched, place)
