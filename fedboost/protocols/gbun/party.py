"""Guest and hosts of boosted networks: all do the same, with the columns of the guest."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedboost.aggregation import lookup
from fedboost.aggregation import measures as counting
from fedboost.aggregation.contributor import Contributor
from fedboost.aggregation.lookup import count_below  # noqa: F401  a step of ours as it is
from fedboost.aggregation.measures import PooledCounts
from fedboost.aggregation.party import (  # noqa: F401  steps of ours as they are
    bytes_max,
    compare_standings,
    deal_shares,
    hear_keys,
    hold_shares,
    offer_fresh_keys,
    offer_keys,
    reveal_shares,
    reveal_whole,
    sign_survivors,
    tell_standing,
    vector_parts,
)
from fedboost.aggregation.party import labels_and_weights as labels_of
from fedboost.aggregation.statistic import Statistic
from fedboost.core import objectives
from fedboost.core.binning import FeatureValues
from fedboost.core.column_readings import ColumnReading, CutColumns, needs_scale, needs_search
from fedboost.core.local import Watched
from fedboost.core.networks import Inputs as Rows
from fedboost.core.objectives import Summary
from fedboost.core.quantiles import Ranked, Search
from fedboost.flow import GUEST, Artefact, Out, Place, StageContext
from fedboost.ground.arrays import Floats
from fedboost.ground.errors import DataError
from fedboost.ground.slot import Slot
from fedboost.ground.state import state_class
from fedboost.messages.job_pb2 import RoundTold, StatusReport
from fedboost.messages.protocol.aggregation_pb2 import Total
from fedboost.messages.protocol.gbun_pb2 import Inputs
from fedboost.model import labels, networks, words
from fedboost.protocols.gbun import columns
from fedboost.protocols.gbun.boosting import NetworkBoosting, NetworkBoostingCheckpoint
from fedboost.protocols.gbun.params import GbunJobParams

Vector = NDArray[np.int64]


@dataclass
class NetworkParty:
    """State of a party between steps."""

    context: StageContext[GbunJobParams]
    sums: Contributor
    names: tuple[str, ...]  # later in the guest's order; none if rows are hashed
    counts = Slot[PooledCounts]("numbers of everybody's rows")
    bounds = Slot[Floats]("bounds of columns")  # of absolute values
    ranked = Slot[Ranked]("columns in their order")
    search = Slot[Search]("a search for cut points")
    reading = Slot[ColumnReading]("how columns are read")
    summary = Slot[Summary]("sums of everybody's labels")
    training = Slot[NetworkBoosting]("everybody's rows to train with")

    @property
    def params(self) -> Any:
        """Settings of the job."""
        return self.context.params

    @property
    def is_sparse(self) -> bool:
        """Whether our rows are sparse."""
        return self.context.data.is_sparse

    @property
    def searches(self) -> bool:
        """Whether the columns are cut at quantiles of all parties."""
        return needs_search(self.params, is_sparse=self.is_sparse)

    @property
    def may_standardise(self) -> bool:
        """Whether columns may need means and deviations."""
        return not self.is_sparse and needs_scale(self.params.columns)

    @property
    def standardises(self) -> bool:
        """Whether columns need means and deviations."""
        return not self.is_sparse and self.reading.standardises

    @property
    def is_guest(self) -> bool:
        """Whether the coordinator gets from us the results that all parties know."""
        return self.context.role is GUEST

    @property
    def sums_ahead(self) -> int:
        """Number of sums in a round with fresh keys: outputs and metrics."""
        return 2


@state_class
class NetworkPartyState:
    """Checkpoint of a party: its rounds, and the settings and sums behind them."""

    names: tuple[str, ...]
    reach: float
    counts: PooledCounts
    summary: Summary
    reading: ColumnReading
    history: bytes  # of the sums
    training: NetworkBoostingCheckpoint


CHECKPOINT = NetworkPartyState  # state that `snapshot` keeps


def begin(context: StageContext[GbunJobParams]) -> NetworkParty:
    """Return a party with its table, and keys that it has not shared yet."""
    sparse = context.data.is_sparse
    named = not sparse or needs_search(context.params, is_sparse=True)
    return NetworkParty(context, Contributor(context), context.data.columns if named else ())


# Columns and keys


def show_inputs(party: NetworkParty) -> Out:
    """Send the form of our rows and their columns."""
    return Out(send=Inputs(sparse=party.is_sparse, names=party.names))


def match_inputs(party: NetworkParty, got: Inputs) -> Out:
    """Put our columns in the guest's order; a DataError if ours differ."""
    party.names = columns.match_columns(
        party.names, party.is_sparse, got, party.context.table.guest
    )
    return Out()


# Rows, labels and columns


def count_rows(party: NetworkParty) -> Iterator[Out]:
    """Send our numbers of rows, and how large labels, weights and columns are."""
    label, weight, scaled = labels_of(party.context)
    present = [np.empty(0, np.int64)]
    if party.searches:
        party.ranked = Ranked.of(_rows_of_part(party, "train"))
        present.append(party.ranked.present())
    if party.may_standardise:
        present.append(columns.exceeded_powers(_dense_rows(party, "train")))
    largest = np.maximum(weight, scaled)
    counts = counting.counts_of_rows(np.concatenate(present), label, largest, party.context.parts)
    yield from vector_parts(party, counts, Statistic("count_rows", schema={"columns": party.names}))


def read_counts(party: NetworkParty, got: Iterator[Total]) -> Out:
    """Read the numbers of rows of all parties, and begin the search for cut points if needed."""
    total = party.sums.total_before_rounds(got, (1 << 31) * len(party.sums.members))
    width, each = len(party.names), len(columns.BOUND_EXPONENTS)
    present = width if party.searches else 0
    bounding = width * each if party.may_standardise else 0
    party.counts = counting.read_counts(total, present + bounding)
    labels.check_held_out(party.params, party.counts.validation > 0)
    if bounding:
        exceeded = party.counts.present[present:].reshape(width, each)
        party.bounds = columns.value_bounds(exceeded, party.names)
    if not present:
        party.reading = ColumnReading.for_params(party.params, None)
        return lookup.search_end()
    params = party.params
    party.search = Search(party.counts.present[:present], params.max_bin, params.quantile_tolerance)
    return _finish_search(party)


def narrow(party: NetworkParty, got: Iterator[Total]) -> Out:
    """Take a step of the search."""
    lookup.take_counts(party, got)
    return _finish_search(party)


def sum_columns(party: NetworkParty) -> Iterator[Out]:
    """Send the sums of our labels, weights and columns."""
    counts = party.counts
    label, _, weight = labels_of(party.context)
    train = party.context.parts["train"]
    share = counting.sums_of_labels(party.params, counts, label[train], weight[train])
    if party.standardises:
        sums = columns.value_sums(_dense_rows(party, "train"), party.bounds, counts.train)
        share = np.concatenate([share, sums])
    yield from vector_parts(party, share, Statistic("sum_columns"))


def read_columns(party: NetworkParty, got: Iterator[Total]) -> Out:
    """Read the sums of all columns: the objective's start, and the scale of columns."""
    counts = party.counts
    total = party.sums.total_before_rounds(got, 1 << 62)
    label_words = 2 + (party.params.num_class or 0)
    party.summary = counting.label_summary(party.params, counts, total[:label_words])
    objectives.start_objective(
        party.params, party.summary
    )  # refuses labels before any network is drawn
    if party.standardises:
        scale = columns.standard_scale(total[label_words:], party.bounds, counts.train)
        party.reading = replace(party.reading, scale=scale)
    return Out()


def show_reach(party: NetworkParty) -> Iterator[Out]:
    """Send a power of two that no output of a network exceeds for our rows."""
    reach = counting.exceeded_powers(_network_inputs(party, "train").reach())
    yield from vector_parts(party, reach, Statistic("show_reach"))


def read_reach(party: NetworkParty, got: Iterator[Total]) -> Out:
    """Read the bound on outputs for the rows of all parties."""
    total = party.sums.total_before_rounds(got, len(party.sums.members))
    _start_training(party, counting.common_bound(total, "row's sum of values"))
    return Out()


# Rounds


def sum_outputs(party: NetworkParty) -> Iterator[Out]:
    """Send the sums of a new network's outputs and their squares over our rows."""
    training = party.training
    fresh, unit = 2 * training.number, training.units_of_outputs()
    what = Statistic("sum_outputs", (training.number,), fresh=fresh, unit=unit)
    yield from vector_parts(party, training.outputs(), what)


def normalise(party: NetworkParty, got: Iterator[Total]) -> Out:
    """Normalise the network by the sums of all parties."""
    party.training.normalise(party.sums.total(got, 1 << 62))
    return Out()


def sum_system(party: NetworkParty) -> Iterator[Out]:
    """Send our rows' part of the equations."""
    training = party.training
    system = training.system_sums()
    unit = training.units_of_system() if len(system) else 0
    yield from vector_parts(party, system, Statistic("sum_system", (training.number,), unit=unit))


def solve(party: NetworkParty, got: Iterator[Total]) -> Out:
    """Solve for the weights of the network's outputs, as all parties do."""
    party.training.solve(party.sums.total(got, 1 << 62))
    return Out()


def measure(party: NetworkParty) -> Iterator[Out]:
    """Send our share of the metrics; nothing if the round was given up."""
    training = party.training
    share = np.empty(0, np.int64)
    if len(training.rounds) > len(training.measures.history):
        share = training.measures.round_tally(training.watched)
    schema = {"metrics": party.params.metrics}
    what = Statistic("measure", (training.number,), schema, fresh=2 * training.number - 1)
    yield from vector_parts(party, share, what)


def read_metrics(party: NetworkParty, got: Iterator[Total]) -> Out:
    """Read the metrics of the round; the loop ends if it was the last one."""
    measures, before = party.training.measures, len(party.training.measures.history)
    total = party.sums.total(got, 1 << 62)
    told, measured = StatusReport(), None
    if len(party.training.rounds) > before:
        measured = words.as_metrics(measures.hear(total))
    if party.is_guest:  # no metrics if the round is given up; it begins again
        of = party.params.n_estimators
        told.rounds.append(RoundTold(round="round", done=before + 1, of=of, metrics=measured))
    told.ends = "round" if measures.ends else ""
    return Out(told=told)


def close_model(party: NetworkParty) -> Out:
    """Report the finished model, from the guest only."""
    if not party.is_guest:
        return Out()
    trained, counts = party.training.trained, party.counts
    told = StatusReport(best=words.as_metrics(trained.history[trained.best_round]))
    told.counts.add(name="rounds", count=trained.best_round + 1)
    for part, rows in counts.parts.items():
        told.counts.add(name=part, count=rows)
    return Out(told=told)


# Checkpoints and the end


def snapshot(party: NetworkParty, _: Place) -> Artefact:
    """Keep the finished rounds, and the settings and sums behind them."""
    kept = NetworkPartyState(
        names=party.names,
        reach=party.training.reach,
        counts=party.counts,
        summary=party.summary,
        reading=party.reading,
        history=party.sums.history,
        training=party.training.state(),
    )
    return Artefact.from_state(kept, history=kept.history)


def restore(party: NetworkParty, checkpoint: Artefact) -> StatusReport:
    """Continue behind the last round that all parties have kept."""
    kept = checkpoint.state(NetworkPartyState)
    party.names, party.counts = kept.names, kept.counts
    party.summary, party.reading = kept.summary, kept.reading
    _start_training(party, kept.reach)
    party.training.load_state(kept.training)
    party.sums.history = kept.history
    return StatusReport(ends="round" if party.training.measures.ends else "")


def finish(party: NetworkParty) -> Artefact:
    """Return the whole model, the same at all parties."""
    return networks.make_shard(party.training.trained, party.names, is_sparse=party.is_sparse)


# Inside


def _finish_search(party: NetworkParty) -> Out:
    """End the search if every quantile is found, and settle how columns are read."""
    if not party.search.is_over:
        return Out()
    params, counts = party.params, party.counts
    present = counts.present[: len(party.names)]
    cuts = CutColumns.found(party.search.cuts(), params.max_bin, present, counts.train)
    party.reading = ColumnReading.for_params(params, cuts)
    return lookup.search_end()


def _rows_of_part(party: NetworkParty, part: str) -> FeatureValues:
    """Return the rows of a part, float32 (n, columns), with columns in the common order."""
    frame = party.context.data
    rows = frame.values[party.context.parts.get(part, np.empty(0, np.int32))]
    if not party.names:  # sparse rows, whose columns are hashed
        return rows
    indices = [frame.columns.index(name) for name in party.names]
    return rows[:, indices]


def _dense_rows(party: NetworkParty, part: str) -> NDArray[np.float32]:
    """Return the rows of a part of a dense table, float32 (n, columns)."""
    values = _rows_of_part(party, part)
    assert isinstance(values, np.ndarray)
    return values


def _network_inputs(party: NetworkParty, part: str) -> Rows:
    """Return the rows of a part as networks read them."""
    ids = None
    if party.is_sparse:
        ids = networks.feature_ids(party.names or party.context.data.columns)
    return party.reading.inputs(_rows_of_part(party, part), ids)


def _start_training(party: NetworkParty, reach: float) -> None:
    """Set up the training that the rounds need, alike at every party."""
    params, counts, summary = party.params, party.counts, party.summary
    label, weight, _ = labels_of(party.context)
    objective = objectives.start_objective(params, summary)
    inputs, watched = {}, {}
    for part in counts.parts:
        rows = party.context.parts.get(part, np.empty(0, np.int32))
        inputs[part] = _network_inputs(party, part)
        margin = np.tile(objective.base_margin, (len(rows), 1))
        watched[part] = Watched(np.empty((0, 0), np.uint8), label[rows], weight[rows], margin)
    if not np.isfinite(reach):
        raise DataError(
            "the rows' values are too large to be summed up", todo="rescale the columns"
        )
    party.training = NetworkBoosting(
        params=params,
        objective=objective,
        summary=summary,
        counts=counts,
        reach=reach,
        reading=party.reading,
        inputs=inputs,
        watched=watched,
    )
