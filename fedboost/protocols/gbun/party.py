"""Guest and hosts of boosted networks: all do the same, but that the guest's columns count."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedboost.aggregation import counts as counting
from fedboost.aggregation.contributor import Contributor
from fedboost.aggregation.counts import Counts
from fedboost.aggregation.party import (  # noqa: F401  steps of ours as they are
    bytes_max,
    compare_standings,
    deal_shares,
    given,
    hear_keys,
    hold_shares,
    offer_fresh_keys,
    offer_keys,
    reveal_shares,
    sign_survivors,
    tell_standing,
)
from fedboost.aggregation.party import labels as labels_of
from fedboost.aggregation.statistic import Statistic
from fedboost.core import gbun, objectives
from fedboost.core.gbun import Scale
from fedboost.core.local import Watched
from fedboost.core.networks import Inputs as Rows
from fedboost.core.objectives import Summary
from fedboost.errors import DataError
from fedboost.flow import GUEST, Artefact, Out, Place, Seat
from fedboost.messages.job_pb2 import RoundTold, Told
from fedboost.messages.protocol.aggregation_pb2 import Total
from fedboost.messages.protocol.gbun_pb2 import Inputs
from fedboost.model import labels, networks, words
from fedboost.protocols.gbun import columns
from fedboost.protocols.gbun.boosting import NetworkBoosting, NetworkBoostingCheckpoint
from fedboost.slot import Slot
from fedboost.state import state

Vector = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass
class Party:
    """What a party remembers between steps."""

    seat: Seat
    sums: Contributor
    names: tuple[str, ...]  # of dense columns, in the guest's order once we know it
    scale: Scale | None = None  # of dense columns
    counts = Slot[Counts]("numbers of everybody's rows")
    bounds = Slot[Floats]("bounds of columns")  # what no value is larger than
    summary = Slot[Summary]("sums of everybody's labels")
    training = Slot[NetworkBoosting]("everybody's rows to train with")

    @property
    def params(self) -> Any:
        """The job's."""
        return self.seat.params

    @property
    def is_sparse(self) -> bool:
        """Return whether our rows are."""
        return self.seat.data.is_sparse

    @property
    def is_guest(self) -> bool:
        """Return whether the coordinator hears from us what all parties know."""
        return self.seat.role is GUEST

    @property
    def sums_of_round(self) -> int:
        """Outputs, equations and metrics."""
        return 3


@state
class NetworkPartyState:
    """What a checkpoint keeps: the rounds, and what they stand on."""

    names: tuple[str, ...]
    reach: float
    counts: Counts
    summary: Summary
    scale: Scale | None
    history: bytes  # of the sums
    training: NetworkBoostingCheckpoint


CHECKPOINT = NetworkPartyState  # what `snapshot` keeps


def begin(seat: Seat) -> Party:
    """A party with its table, and keys that nobody knows yet."""
    names = () if seat.data.is_sparse else seat.data.columns
    return Party(seat, Contributor(seat), names)


# Columns and keys


def show_inputs(me: Party) -> Out:
    """Send how our rows are read."""
    return Out(send=Inputs(sparse=me.is_sparse, names=me.names))


def match_inputs(me: Party, got: Inputs) -> Out:
    """Our columns in the guest's order; a DataError where ours are others."""
    me.names = columns.matched(me.names, me.is_sparse, got, me.seat.table.guest)
    return Out()


# Rows, labels and columns


def count_rows(me: Party) -> Iterator[Out]:
    """Send how many rows we have, and how large labels, weights and columns are."""
    label, weight, scaled = labels_of(me.seat)
    own = np.empty(0, np.int64) if me.is_sparse else columns.exceeded(_dense(me, "train"))
    largest = np.maximum(weight, scaled)
    counts = counting.of_rows(own, label, largest, me.seat.parts)
    yield from given(me, counts, Statistic("count_rows", schema={"columns": me.names}))


def read_counts(me: Party, got: Iterator[Total]) -> Out:
    """Read how many rows all of us have."""
    total = me.sums.total_before_rounds(got, (1 << 31) * len(me.sums.members))
    words_each = len(columns.EXPONENTS)
    me.counts = counting.read(total, len(me.names) * words_each)
    labels.check_held_out(me.params, me.counts.validation > 0)
    me.bounds = columns.bounds(me.counts.present.reshape(len(me.names), words_each), me.names)
    return Out()


def sum_columns(me: Party) -> Iterator[Out]:
    """Send the sums of our labels, weights and columns."""
    counts = me.counts
    label, _, weight = labels_of(me.seat)
    train = me.seat.parts["train"]
    share = counting.of_labels(me.params, counts, label[train], weight[train])
    if not me.is_sparse:
        own = columns.sums(_dense(me, "train"), me.bounds, counts.train)
        share = np.concatenate([share, own])
    yield from given(me, share, Statistic("sum_columns"))


def read_columns(me: Party, got: Iterator[Total]) -> Out:
    """Read the sums of all columns: where an objective starts, and how columns are standardised."""
    counts = me.counts
    total = me.sums.total_before_rounds(got, 1 << 62)
    label_words = 2 + (me.params.num_class or 0)
    me.summary = counting.summary(me.params, counts, total[:label_words])
    objectives.start(me.params, me.summary)  # refuses labels before anybody draws a network
    if not me.is_sparse:
        me.scale = columns.scale(total[label_words:], me.bounds, counts.train)
    return Out()


def show_reach(me: Party) -> Iterator[Out]:
    """Up to a power of two, how far an output of a network may go for our rows."""
    reach = counting.exceeds(_rows(me, "train").reach())
    yield from given(me, reach, Statistic("show_reach"))


def read_reach(me: Party, got: Iterator[Total]) -> Out:
    """Read how far an output may go for anybody's rows."""
    total = me.sums.total_before_rounds(got, len(me.sums.members))
    _plant(me, counting.bound(total, "row's sum of values"))
    return Out()


# Rounds


def sum_outputs(me: Party) -> Iterator[Out]:
    """Send the sums of a new network's outputs and their squares over our rows."""
    training = me.training
    fresh, unit = 2 * training.number, training.units_of_outputs()
    what = Statistic("sum_outputs", (training.number,), fresh=fresh, unit=unit)
    yield from given(me, training.outputs(), what)


def normalise(me: Party, got: Iterator[Total]) -> Out:
    """Normalise the network by everybody's sums."""
    me.training.normalise(me.sums.total(got, 1 << 62))
    return Out()


def sum_system(me: Party) -> Iterator[Out]:
    """Our rows' part of the equations."""
    training = me.training
    own = training.system()
    unit = training.units_of_system() if len(own) else 0
    yield from given(me, own, Statistic("sum_system", (training.number,), unit=unit))


def solve(me: Party, got: Iterator[Total]) -> Out:
    """The weights of the network's outputs, as everybody finds them."""
    me.training.solve(me.sums.total(got, 1 << 62))
    return Out()


def measure(me: Party) -> Iterator[Out]:
    """Our share of the metrics; nothing where the round was given up."""
    training = me.training
    share = np.empty(0, np.int64)
    if len(training.rounds) > len(training.measures.history):
        share = training.measures.tally(training.watched)
    schema = {"metrics": me.params.metrics}
    what = Statistic("measure", (training.number,), schema, fresh=2 * training.number - 1)
    yield from given(me, share, what)


def read_metrics(me: Party, got: Iterator[Total]) -> Out:
    """The metrics of the round, and whether it was the last one."""
    measures, before = me.training.measures, len(me.training.measures.history)
    total = me.sums.total(got, 1 << 62)
    told, measured = Told(), None
    if len(me.training.rounds) > before:
        measured = words.as_metrics(measures.hear(total))
    if me.is_guest:  # of a round that is given up without metrics; it begins anew
        of = me.params.n_estimators
        told.rounds.append(RoundTold(round="round", done=before + 1, of=of, metrics=measured))
    told.ends = "round" if measures.ends else ""
    return Out(told=told)


def close_model(me: Party) -> Out:
    """Report the finished model, from the guest alone."""
    if not me.is_guest:
        return Out()
    trained, counts = me.training.trained, me.counts
    told = Told(best=words.as_metrics(trained.history[trained.best_round]))
    told.counts.add(name="rounds", count=trained.best_round + 1)
    for part, rows in counts.parts.items():
        told.counts.add(name=part, count=rows)
    return Out(told=told)


# Checkpoints and the end


def snapshot(me: Party, _: Place) -> Artefact:
    """Rounds so far, and what they stand on."""
    kept = NetworkPartyState(
        names=me.names,
        reach=me.training.reach,
        counts=me.counts,
        summary=me.summary,
        scale=me.scale,
        history=me.sums.history,
        training=me.training.state(),
    )
    return Artefact.of_state(kept, history=kept.history)


def restore(me: Party, checkpoint: Artefact) -> Told:
    """Carries on behind the last round that everybody has kept."""
    kept = checkpoint.state(NetworkPartyState)
    me.names, me.counts, me.summary, me.scale = kept.names, kept.counts, kept.summary, kept.scale
    _plant(me, kept.reach)
    me.training.load_state(kept.training)
    me.sums.history = kept.history
    return Told(ends="round" if me.training.measures.ends else "")


def finish(me: Party) -> Artefact:
    """The whole model, the same for everybody."""
    return networks.shard(me.training.trained, me.names)


# Inside


def _dense(me: Party, part: str) -> NDArray[np.float32]:
    """The rows of a part, with the columns in everybody's order, float32 (n, columns)."""
    frame = me.seat.data
    places = [frame.columns.index(name) for name in me.names]
    dense: NDArray[np.float32] = frame.values[me.seat.parts.get(part, np.empty(0, np.int32))]
    return dense[:, places]


def _rows(me: Party, part: str) -> Rows:
    """The rows of a part as networks read them."""
    frame = me.seat.data
    if not me.is_sparse:
        return gbun.inputs_of(_dense(me, part), me.scale)
    ids = networks.feature_ids(frame)
    return gbun.inputs_of(frame.values[me.seat.parts.get(part, np.empty(0, np.int32))], None, ids)


def _plant(me: Party, reach: float) -> None:
    """Everything that the rounds stand on; every party comes to the same."""
    params, counts, summary = me.params, me.counts, me.summary
    label, weight, _ = labels_of(me.seat)
    objective = objectives.start(params, summary)
    inputs, watched = {}, {}
    for part in counts.parts:
        rows = me.seat.parts.get(part, np.empty(0, np.int32))
        inputs[part] = _rows(me, part)
        margin = np.tile(objective.base_margin, (len(rows), 1))
        watched[part] = Watched(np.empty((0, 0), np.uint8), label[rows], weight[rows], margin)
    if not np.isfinite(reach):
        raise DataError("the rows' values are too large to be summed up")
    me.training = NetworkBoosting(
        params=params,
        objective=objective,
        summary=summary,
        counts=counts,
        reach=reach,
        scale=me.scale,
        inputs=inputs,
        watched=watched,
    )
