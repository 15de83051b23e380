"""Rounds of networks on a party's rows, from sums over all parties."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fedboost.aggregation.measures import Measures, MeasuresState, PooledCounts
from fedboost.core import gbun
from fedboost.core.column_readings import ColumnReading
from fedboost.core.fixed_point import SUM_BITS, power_of_two_above
from fedboost.core.gbun import GbunParams, Normal, Round, TrainedNetworks
from fedboost.core.local import Watched
from fedboost.core.networks import Inputs, Network
from fedboost.core.objectives import Objective, Summary
from fedboost.ground.arrays import Floats
from fedboost.ground.errors import JobError
from fedboost.ground.state import Growing, restore_into, state_class

Vector = NDArray[np.int64]

PARTIES_BITS = 7  # room in a sum for the roundings of all parties


@dataclass(frozen=True)
class Scaling:
    """Sums of floats as integers, in a unit that the largest possible total allows.

    Each party rounds its own sums once.
    """

    most: float  # no sum of absolute values over all rows is larger

    @property
    def unit(self) -> float:
        """Value of 1 in the integers."""
        return math.ldexp(power_of_two_above(max(self.most, 1e-300)), PARTIES_BITS - SUM_BITS)

    def most_per_row(self, rows: int) -> int:
        """Return the most that one of `rows` rows adds, in units."""
        return math.ceil(self.most / max(1, rows) / self.unit)

    def encode(self, values: Floats) -> Vector:
        """Return a party's own sums, of any shape, as int64 (n,)."""
        return np.rint(values.ravel() / self.unit).astype(np.int64)

    def decode(self, total: Vector) -> Floats:
        """Return the sums over all parties, float64 (n,)."""
        return total.astype(np.float64) * self.unit


@state_class
class NetworkBoostingState:
    """Finished rounds and their metrics."""

    rounds: Growing[Round]
    measures: MeasuresState
    number: int  # of the network at hand: more than rounds if some were given up


@state_class
class NetworkBoostingCheckpoint:
    """Finished rounds and margins."""

    boosting: NetworkBoostingState
    margins: dict[str, Floats]  # by the part of the rows


@dataclass(kw_only=True)
class NetworkBoosting(NetworkBoostingState):
    """One party's training; two sums a round, then its `measures`."""

    params: GbunParams
    objective: Objective
    summary: Summary
    counts: PooledCounts
    reach: float  # no row's output of a network is larger
    reading: ColumnReading
    inputs: Mapping[str, Inputs]  # our rows: "train", and "validation" if any party has some
    watched: Mapping[str, Watched]  # the same rows' labels and margins
    rounds: list[Round] = field(default_factory=list)
    measures: Measures = field(init=False)
    number: int = 0
    normal: Normal | None = None  # of the network at hand

    def __post_init__(self) -> None:
        self.measures = Measures(self.params, self.counts, self.objective.base_margin)

    @property
    def network(self) -> Network:
        """Network at hand."""
        return Network(self.number, self.params.seed, self.params.outputs)

    # Σz, Σz², n

    def outputs(self) -> Vector:
        """Return our rows' sums of z and z², and their number, int64 (2·outputs + 1,)."""
        rows = self.inputs["train"]
        total, squares = gbun.output_sums(rows, self.network)
        first, second = self._output_scalings
        return np.concatenate([first.encode(total), second.encode(squares), [rows.n_rows]])

    def units_of_outputs(self) -> Vector:
        """Return the most that one row adds to each of `outputs`; the count needs no noise."""
        rows, size = self.counts.train, self.network.outputs
        first, second = (scaling.most_per_row(rows) for scaling in self._output_scalings)
        return np.repeat(np.array([first, second, 0]), [size, size, 1])

    def normalise(self, total: Vector | None) -> None:
        """Normalise the network by the sums of all parties.

        None gives up the round: the sums stayed closed, as an earlier attempt has opened them over
        other parties.
        """
        if total is None:
            return
        first, second = self._output_scalings
        z, squares, (rows,) = np.split(total, [self.network.outputs, 2 * self.network.outputs])
        if not 0 < rows <= self.counts.train:  # fewer than at the start if a party is lost
            raise JobError(
                f"{rows} rows are said to be left to train on, of {self.counts.train}",
                todo="run the job again; if it recurs, a party masks otherwise",
            )
        sums = first.decode(z), second.decode(squares)
        self.normal = Normal.from_sums(int(rows), *sums, self.params.sharpness)

    @property
    def _output_scalings(self) -> tuple[Scaling, Scaling]:
        rows = self.counts.train
        return Scaling(rows * self.reach), Scaling(rows * self.reach**2)

    # PᵀHP, PᵀG

    def system_sums(self) -> Vector:
        """Return our rows' equations, int64 (classes · (outputs · (outputs + 1) / 2 + outputs),).

        Empty if the round is given up.
        """
        if self.normal is None:
            return np.empty(0, np.int64)
        seen = self.watched["train"]
        gradients = self.objective.gradients(seen.margin, seen.y, seen.weight)
        squares, pull = gbun.normal_equations(
            self.inputs["train"], self.network, self.normal, gradients
        )
        second, first = self._system_scalings
        lower = squares[:, *np.tril_indices(self.params.outputs)]
        return np.concatenate([second.encode(lower), first.encode(pull)])

    def units_of_system(self) -> Vector:
        """Return the most that one row adds to each of `system_sums`."""
        rows, size, classes = self.counts.train, self.network.outputs, self.objective.n_outputs
        second, first = (scaling.most_per_row(rows) for scaling in self._system_scalings)
        return np.repeat(
            np.array([second, first]), [classes * size * (size + 1) // 2, classes * size]
        )

    def solve(self, total: Vector | None) -> bool:
        """Make a round from the equations of all parties; return whether there is one.

        None gives up the round: the sums stayed closed, and the next network's sums are new.
        """
        network, normal, self.normal = self.network, self.normal, None
        self.number += 1
        if total is None or normal is None:
            return False
        size, classes = network.outputs, self.objective.n_outputs
        second, first = self._system_scalings
        half = size * (size + 1) // 2
        lower = second.decode(total[: classes * half]).reshape(classes, half)
        squares = np.zeros((classes, size, size))
        squares[:, *np.tril_indices(size)] = lower
        pull = first.decode(total[classes * half :]).reshape(classes, size)
        self.rounds.append(Round(network, normal, gbun.solve_weights(squares, pull, self.params)))
        for part, seen in self.watched.items():
            seen.margin += self.rounds[-1].added(self.inputs[part])
        return True

    @property
    def _system_scalings(self) -> tuple[Scaling, Scaling]:
        g_bound, h_bound = self.objective.bounds(self.summary)
        return Scaling(self.counts.train * h_bound), Scaling(self.counts.train * g_bound)

    # The result

    @property
    def trained(self) -> TrainedNetworks:
        """The model so far."""
        return TrainedNetworks(
            *(self.params, self.objective.base_margin, self.reading, tuple(self.rounds)),
            *(self.measures.history, self.measures.best_round),
        )

    def state(self) -> NetworkBoostingCheckpoint:
        """Return the state for a checkpoint."""
        margins = {part: seen.margin for part, seen in self.watched.items()}
        return NetworkBoostingCheckpoint(boosting=self, margins=margins)

    def load_state(self, kept: NetworkBoostingCheckpoint) -> None:
        """Continue with the rounds of an earlier attempt."""
        restore_into(self, kept.boosting)
        for part, seen in self.watched.items():
            seen.margin[:] = kept.margins[part]
