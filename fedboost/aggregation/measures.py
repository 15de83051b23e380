"""Metrics of a job whose rows lie with many parties, round by round, and when they end it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from fedboost.aggregation.counts import Counts
from fedboost.core import objectives
from fedboost.core.early_stopping import EarlyStopping
from fedboost.core.local import History, Watched
from fedboost.core.metrics import METRICS
from fedboost.core.params import BoostingParams
from fedboost.core.tallies import Tally
from fedboost.state import state

Vector = NDArray[np.int64]
Floats = NDArray[np.float64]


@state
class MeasuresState:
    """The metrics so far, and which round was the best."""

    history: History
    stopping: EarlyStopping


class Measures(MeasuresState):
    """What every party knows of the metrics so far; all come to the same from the same sums."""

    def __init__(self, params: BoostingParams, counts: Counts, base_margin: Floats) -> None:
        """`counts` say which parts of the rows anybody has, `base_margin` float64 (outputs,) is
        the objective's."""
        self._params = params
        bigger = METRICS[params.metrics[-1]].bigger_is_better
        self.history = []
        self.stopping = EarlyStopping(params.early_stopping_rounds, bigger)
        bounds = counts.weight_bound, counts.label_bound
        self._tallies = {
            part: Tally(params, rows, *bounds, base_margin) for part, rows in counts.parts.items()
        }

    @property
    def ends(self) -> bool:
        """Return whether all rounds are measured, or early stopping ends the job."""
        return len(self.history) == self._params.n_estimators or self.stopping.stop

    @property
    def best_round(self) -> int:
        """From 0; the last round unless early stopping found an earlier one better."""
        return len(self.history) - 1 if self.stopping.best is None else self.stopping.best_round

    def tally(self, watched: Mapping[str, Watched]) -> Vector:
        """The own rows' share of the job's metrics after a round, int64."""
        shares = []
        for part, tally in self._tallies.items():
            seen = watched[part]
            prediction = objectives.transform(self._params.objective, seen.margin)
            shares.append(tally.of(seen.y, prediction, seen.weight))
        return np.concatenate(shares)

    def hear(self, total: Vector | None) -> dict[str, dict[str, float]]:
        """The metrics of the round from everybody's shares; none where the sum stayed closed."""
        measured = {}
        if total is not None:
            ends = np.cumsum([tally.length for tally in self._tallies.values()])
            parts = zip(np.split(total, ends[:-1]), self._tallies.items(), strict=True)
            measured = {part: tally.measure(own) for own, (part, tally) in parts}
        self.history.append(measured)
        if self._params.early_stopping_rounds is not None and "validation" in measured:
            decisive = measured["validation"][self._params.metrics[-1]]
            self.stopping = self.stopping.after(decisive)
        return measured
