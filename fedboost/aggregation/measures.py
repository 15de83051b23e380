"""Metrics and early stopping of a job whose rows are split among many parties."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedboost.core import fixed_point, objectives
from fedboost.core.early_stopping import EarlyStopping
from fedboost.core.local import Watched
from fedboost.core.metrics import METRICS
from fedboost.core.objectives import Summary
from fedboost.core.params import BoostingParams
from fedboost.core.tallies import Tally
from fedboost.ground.arrays import Floats, Rows
from fedboost.ground.errors import DataError, JobError
from fedboost.ground.state import Growing, state_class

Vector = NDArray[np.int64]

PARTS = ("train", "validation")
EXPONENTS = range(-64, 64)  # the powers of two that bound labels and weights


@dataclass(frozen=True)
class PooledCounts:
    """Number of rows of all parties together, and bounds of their values."""

    train: int
    validation: int
    present: Vector  # (columns,) training rows with a value
    weight_bound: float  # no weight is larger; a power of two
    label_bound: float  # no |label| is larger; a power of two

    @property
    def parts(self) -> dict[str, int]:
        """Return the row counts of the parts that have rows, by name."""
        return {name: count for name in PARTS if (count := getattr(self, name))}


def counts_of_rows(
    present: Vector, label: Floats, weight: Floats, parts: Mapping[str, Rows]
) -> Vector:
    """Return a party's own share of the counts, int64; `weight` bounds the weights of its rows."""
    rows = [len(parts.get(name, ())) for name in PARTS]
    return np.concatenate(
        [
            rows,
            present,
            exceeded_powers(weight.max(initial=0.0)),
            exceeded_powers(np.abs(label).max(initial=0.0)),
        ]
    )


def read_counts(total: Vector, columns: int) -> PooledCounts:
    """Decode the sum of all shares."""
    train, validation = total[: len(PARTS)].tolist()
    rest = total[len(PARTS) :]
    present, bounds = rest[:columns], rest[columns:].reshape(2, len(EXPONENTS))
    if not train:
        raise DataError(
            "no party has rows to train on",
            kind="no party has rows to train on",
            todo="check the tables and the number of rows held out for validation",
        )
    weight, label = common_bound(bounds[0], "weight"), common_bound(bounds[1], "label")
    return PooledCounts(train, validation, present, weight, label)


def sums_of_labels(
    params: BoostingParams, counts: PooledCounts, label: Floats, weight: Floats
) -> Vector:
    """Return a party's sums over its training rows, int64: weights, weight times label, and the
    weights of each class. Each row is rounded to a unit of `counts`' bounds.
    """
    classes = range(params.num_class or 0)
    unit = _sum_units(counts)
    values = [weight / unit[0], weight * label / unit[1]]
    values += [weight[label == c] / unit[0] for c in classes]
    return np.array([np.rint(part).astype(np.int64).sum() for part in values], np.int64)


def label_summary(params: BoostingParams, counts: PooledCounts, total: Vector) -> Summary:
    """Return the starting values of the objective. Labels lie between the bounds: from 0 up if the
    objective requires it, otherwise on both sides.
    """
    weight, mean, *classes = total.tolist()
    unit = _sum_units(counts)
    if weight <= 0:
        raise DataError(
            f"all {counts.train} weights are 0",
            kind="there is nothing to learn from these weights",
            todo="give some rows a weight above 0",
        )
    by_class = classes or [mean, weight - mean]  # of binary labels, those of 1 and of 0
    if params.record.classifies and max(by_class) == weight:
        raise DataError(
            "all labels of all parties are the same class, so there is nothing to learn",
            todo="check the label columns and the rows chosen",
            kind="all labels of all parties are the same class",
        )
    return Summary(
        rows=counts.train,
        weight_sum=weight * unit[0],
        weight_max=counts.weight_bound,
        mean=mean / weight * (unit[1] / unit[0]),
        low=-counts.label_bound if params.record.labels.is_signed else 0.0,
        high=counts.label_bound,
        shares=tuple(class_rows / weight for class_rows in classes),
    )


def largest_sum(counts: PooledCounts) -> int:
    """Return an upper bound of every sum of `sums_of_labels`."""
    return counts.train << fixed_point.bits_for_rows(counts.train)


def _sum_units(counts: PooledCounts) -> tuple[float, float]:
    """Return what 1 is worth in a sum of weights, and of weight times label; powers of two."""
    weight = math.ldexp(counts.weight_bound, -fixed_point.bits_for_rows(counts.train))
    return weight, weight * counts.label_bound


def exceeded_powers(largest: float) -> Vector:
    """Return 1 for each power of two below a party's greatest value, int64 (EXPONENTS,)."""
    return np.array([largest > math.ldexp(1.0, e) for e in EXPONENTS], np.int64)


def common_bound(exceeded: Vector, what: str) -> float:
    """Return the least power of two that no party exceeds; raise JobError if there is none."""
    free = np.flatnonzero(exceeded == 0)
    if not len(free):
        raise JobError(f"a {what} is above 2^{EXPONENTS[-1]}", todo=f"scale the {what}s down")
    return math.ldexp(1.0, EXPONENTS[int(free[0])])


@state_class
class MeasuresState:
    """The metrics so far, and which round was the best."""

    history: Growing[dict[str, dict[str, float]]]
    stopping: EarlyStopping


class Measures(MeasuresState):
    """The metrics so far; every party computes the same ones from the same sums."""

    def __init__(self, params: BoostingParams, counts: PooledCounts, base_margin: Floats) -> None:
        """Start without metrics; `counts` name the parts that have rows, `base_margin` is float64
        (outputs,).
        """
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
        """Return the best round, from 0; the last one unless early stopping found a better one."""
        return len(self.history) - 1 if self.stopping.best is None else self.stopping.best_round

    @property
    def best_metrics(self) -> dict[str, dict[str, float]]:
        """Return the metrics of the best round, or of the last round before it whose sum was
        opened.
        """
        return next((metrics for metrics in self.history[self.best_round :: -1] if metrics), {})

    @property
    def words(self) -> int:
        """Return the length of a `round_tally`."""
        return sum(tally.n_sums for tally in self._tallies.values())

    def round_tally(self, watched: Mapping[str, Watched]) -> Vector:
        """Return our rows' share of the job's metrics after a round, int64."""
        shares = []
        for part, tally in self._tallies.items():
            seen = watched[part]
            prediction = objectives.transform(self._params.objective, seen.margin)
            shares.append(tally.of(seen.y, prediction, seen.weight))
        return np.concatenate(shares)

    def hear(self, total: Vector | None) -> dict[str, dict[str, float]]:
        """Return the metrics of the round from the total; empty if the sum stayed closed."""
        measured = {}
        if total is not None:
            ends = np.cumsum([tally.n_sums for tally in self._tallies.values()])
            parts = zip(np.split(total, ends[:-1]), self._tallies.items(), strict=True)
            measured = {part: tally.read_metrics(part_rows) for part_rows, (part, tally) in parts}
        self.history.append(measured)
        if self._params.early_stopping_rounds is not None and "validation" in measured:
            decisive = measured["validation"][self._params.metrics[-1]]
            self.stopping = self.stopping.after(decisive)
        return measured
