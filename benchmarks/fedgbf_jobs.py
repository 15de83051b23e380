"""The jobs of the FedGBF benchmark: SecureBoost, Dynamic FedGBF, one tree of each of its forests.

Data, parties and daemons are those of the SecureBoost+ benchmark.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from benchmarks import harness, plus_jobs, tables
from benchmarks.tables import Table
from fedboost.core import forest, metrics
from fedboost.core.params import TreeParams

DATA = ("give_credit", "default_credit")
ROUNDS = (20, 50, 100)  # of tables 2 and 3
METRICS: tuple[metrics.MetricName, ...] = ("auc", "accuracy", "f1")
PARTS = {"train": "train", "validation": "test"}  # our word and the paper's
SECUREBOOST, DYNAMIC = "SecureBoost", "Dynamic FedGBF"
LONE = "one tree of each forest"  # what a worker does that has one tree a round to grow
SCHEME = "paillier"

# Section 4.2.2 of the paper; both speeds are 1, the default.
SHAPE: dict[str, Any] = {"max_depth": 3, "learning_rate": 0.1}
SUBSAMPLE = (0.1, 0.3)
N_TREES = (5, 2)
SHARED: dict[str, Any] = {**SHAPE, "eval_metric": list(METRICS)}
PARAMS: dict[str, dict[str, Any]] = {
    SECUREBOOST: SHARED,
    DYNAMIC: {**SHARED, "forest": {"dynamic": {"n_trees": N_TREES, "subsample": SUBSAMPLE}}},
}


def lone(draw: int) -> dict[str, Any]:
    """One tree a round in place of each forest, at the rates of the forests.

    Draw 0 has the rows of the forests' first trees, every other draw rows of its own.
    """
    alone = {"dynamic": {"n_trees": (1, 1), "subsample": SUBSAMPLE}}
    return {**SHARED, "forest": alone, "seed": draw}


@dataclass(frozen=True)
class Schedule:
    """What Dynamic FedGBF grows in a job of so many rounds."""

    sizes: NDArray[np.int64]  # (rounds,) N: trees
    rates: NDArray[np.float64]  # (rounds,) α: share of the rows that each of them sees

    @classmethod
    def of(cls, rounds: int) -> Self:
        """By the product's own formulas."""
        params = TreeParams(n_estimators=rounds, forest=PARAMS[DYNAMIC]["forest"])
        return cls(forest.sizes(params), forest.rates(params))

    @property
    def least(self) -> float:
        """Σα: whole trees' worth of rows if all trees of a round grow at once (equation 9)."""
        return float(self.rates.sum())

    @property
    def most(self) -> float:
        """ΣαN: the same if they grow one after the other (equation 10)."""
        return float(self.rates @ self.sizes)


@dataclass(frozen=True)
class Plan:
    """How much of the whole a run does."""

    rows_max: Mapping[str, int]  # of a data set, where encrypted jobs are timed; absent: all
    accuracy_rows: int | None  # of a table trained in plain; None: all
    rounds: int  # timed ones
    draws: Mapping[str, int]  # trees of a forest that are timed alone, by data set

    @classmethod
    def of(cls, *, quick: bool) -> Self:
        """The quick one, or all."""
        if quick:
            rows = {"give_credit": 24_000, "default_credit": 5000}
            return cls(rows, accuracy_rows=8000, rounds=4, draws=dict.fromkeys(DATA, 1))
        draws = {"give_credit": 2, "default_credit": 3}
        return cls({}, accuracy_rows=None, rounds=ROUNDS[0], draws=draws)

    def timed_table(self, name: str) -> Table:
        """The rows that encrypted jobs are timed on."""
        return _some(name, self.rows_max.get(name))

    def accuracy_table(self, name: str) -> Table:
        """The rows that accuracy is measured on."""
        return _some(name, self.accuracy_rows)

    def jobs(self, name: str) -> list[tuple[str, int, dict[str, Any]]]:
        """What is timed one after the other: a system, a draw, parameters."""
        alone = [(LONE, draw, lone(draw)) for draw in range(self.draws[name])]
        return [*((system, 0, params) for system, params in PARAMS.items()), *alone]


def _some(name: str, rows: int | None) -> Table:
    table = tables.load(name)
    return table if rows is None else table.sample(rows, plus_jobs.SEED)


Scores = dict[str, dict[str, float]]  # by part and metric


def trained(table: Table, system: str, rounds: int) -> list[Scores]:
    """Scores after every round; without encryption, in this process."""
    found = plus_jobs.plain(table, rounds, PARAMS[system]).rounds
    return [
        {part: {str(name): one[f"{part}.{name}"] for name in METRICS} for part in PARTS}
        for one in found
    ]


def pooled(table: Table) -> dict[int, Scores]:
    """Scores of XGBoost's histogram trees on the whole table, by rounds."""
    import xgboost

    held = table.held_out(**plus_jobs.VALIDATION)
    params = {**plus_jobs.SHAPE, **SHAPE, "n_estimators": max(ROUNDS)}
    model = xgboost.XGBClassifier(tree_method="hist", n_jobs=harness.cores(), **params)
    model.fit(table.values[~held], table.y[~held])

    def scores(rows: NDArray[np.bool_], rounds: int) -> dict[str, float]:
        predicted = model.predict_proba(table.values[rows], iteration_range=(0, rounds))
        y, likely = table.y[rows].astype(np.float64), predicted[:, 1].astype(np.float64)
        return {name: metrics.evaluate(name, y, likely) for name in METRICS}

    return {
        rounds: {"train": scores(~held, rounds), "validation": scores(held, rounds)}
        for rounds in ROUNDS
    }
