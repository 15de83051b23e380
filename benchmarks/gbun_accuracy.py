"""GBUN, XGBoost and LightGBM on the same rows: every point of a grid, scored after every round."""

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_array, vstack

from benchmarks import gbun_data, harness
from benchmarks.gbun_data import Split
from benchmarks.gbun_plan import GBUN, LIGHTGBM, SYSTEMS, XGBOOST, Grid, Plan, Point
from benchmarks.harness import say
from benchmarks.plus_tables import Row
from fedboost.core import gbun, metrics, objectives
from fedboost.core.binning import Values
from fedboost.core.gbun import GbunParams
from fedboost.core.metrics import MetricName
from fedboost.ground.errors import JobError

Predictions = NDArray[np.float32]  # (n,), or with several classes (n, classes)
THREADS = 1  # of the others: beside other work two wait for one another
CURVE = 5  # every so many rounds of a curve are kept


@dataclass(frozen=True)
class Run:
    """One point, trained: scores after every round."""

    point: Point
    validation: list[float]
    test: list[float]
    maps: dict[int, float]  # mean average precision on the test rows, after the rounds that count
    cpu_s: float
    seconds: float

    @property
    def best(self) -> int:
        """The round with the best test score, from 0."""
        return int(np.argmax(self.test))

    @property
    def chosen(self) -> int:
        """The round that validation rows choose."""
        return int(np.argmax(self.validation))

    def facts(self) -> Row:
        """What is kept of every point."""
        return {
            **asdict(self.point), "rounds": len(self.test), "best": self.test[self.best],
            "chosen": self.test[self.chosen], "validation": self.validation[self.chosen],
            "cpu_s": self.cpu_s,
        }  # fmt: skip


def measure(name: str, plan: Plan) -> list[Row]:
    """All systems on all splits of a data set."""
    grid = plan.grids[name]
    rows = []
    for seed in range(grid.splits):
        given = gbun_data.split(name, plan.rows_of(name), seed)
        for system in SYSTEMS:
            rows.append(searched(system, given, grid, plan.rounds))
            rows[-1] |= {"split": seed}
    return rows


def searched(system: str, given: Split, grid: Grid, rounds: int) -> Row:
    """A system's grid on one split; the finalists for all rounds."""
    say.print(f"[bold]{given.name}[/]: {system}")
    first = min(grid.tried, rounds)
    tried = [trained(system, given, point, first) for point in grid.points(system)]
    runs = [run for run in tried if run is not None]
    again = sorted(runs, key=lambda run: -run.validation[run.chosen])[: grid.finalists]
    if first < rounds:
        longer = (trained(system, given, run.point, rounds) for run in again)
        runs += [run for run in longer if run is not None]
    best = max(runs, key=lambda run: run.test[run.best])
    chosen = max(runs, key=lambda run: run.validation[run.chosen])
    return {
        "what": "accuracy",
        "data": given.name,
        "rows": given.rows,
        "columns": given.columns,
        "classes": given.classes,
        "metric": given.metric,
        "system": system,
        "best": _facts(best, best.best),
        "chosen": _facts(chosen, chosen.chosen),
        "unsolvable": sum(run is None for run in tried),
        "runs": [run.facts() for run in runs],
        "curve": best.test[::CURVE],
        "cpu_s": sum(run.cpu_s for run in runs),
        "seconds": sum(run.seconds for run in runs),
        "load": harness.load_average(),
    }


def _facts(run: Run, at: int) -> Row:
    return {
        "score": run.test[at], "map": run.maps.get(at), **asdict(run.point),
        "round": at + 1, "rounds": len(run.test), "cpu_s": run.cpu_s,
    }  # fmt: skip


def trained(system: str, given: Split, point: Point, rounds: int) -> Run | None:
    """One point; None where a round's equations have no solution."""
    started, cpu = time.perf_counter(), time.process_time()
    held = _joined(given.validation.values, given.test.values)
    try:
        staged = STAGED[system](given, held, point, rounds)
    except JobError:
        return None
    spent, seconds = time.process_time() - cpu, time.perf_counter() - started
    cut = len(given.validation.y)
    name = given.metric
    validation = [score(name, given.validation.y, one[:cut]) for one in staged]
    test = [score(name, given.test.y, one[cut:]) for one in staged]
    run = Run(point, validation, test, {}, spent, seconds)
    if given.classes > 2:
        for at in {run.best, run.chosen}:
            run.maps[at] = mean_average_precision(given.test.y, staged[at][cut:])
    return run


def score(name: str, y: NDArray[np.float64], predicted: Predictions) -> float:
    """AUC or accuracy."""
    metric: MetricName = "auc" if name == "auc" else "accuracy"
    return metrics.evaluate(metric, y, predicted.astype(np.float64))


def mean_average_precision(y: NDArray[np.float64], predicted: Predictions) -> float:
    """The plain mean of the classes' average precision, each against the rest."""
    wide = predicted.astype(np.float64)
    found = [
        metrics.evaluate("map", (y == k).astype(np.float64), wide[:, k])
        for k in range(wide.shape[1])
        if (y == k).any()
    ]
    return float(np.mean(found))


def _joined(first: Values, second: Values) -> Values:
    if isinstance(first, csc_array):
        return csc_array(vstack([first, second]))
    return np.asfortranarray(np.concatenate([first, second]))


# What each system predicts of the held rows after each round


def _gbun(given: Split, held: Values, point: Point, rounds: int) -> list[Predictions]:
    params = gbun_params(given.classes, point, rounds)
    model = gbun.train(given.fit, params)
    inputs = model.reading.inputs(held)
    margin = np.tile(model.base_margin, (inputs.n_rows, 1))
    staged = []
    for one in model.rounds:
        margin += one.added(inputs)
        found = objectives.transform(params.objective, margin)
        staged.append(metrics.one_column(found).astype(np.float32))
    return staged


def gbun_params(classes: int, point: Point, rounds: int) -> GbunParams:
    """The settings of a point; what training measures by itself is the least."""
    several: dict[str, Any] = {"objective": "multi:softprob", "num_class": classes}
    return GbunParams(
        outputs=point.size,
        columns=point.columns,
        sharpness=point.sharpness,
        weights_per_output=point.weights,
        learning_rate=point.rate,
        reg_lambda=point.reg_lambda,
        n_estimators=rounds,
        eval_metric=("merror",) if classes > 2 else ("error",),
        **(several if classes > 2 else {}),
    )


def _xgboost(given: Split, held: Values, point: Point, rounds: int) -> list[Predictions]:
    import xgboost

    staged: list[Predictions] = []

    def seen(predicted: NDArray[np.float32], _: object) -> tuple[str, float]:
        staged.append(predicted.astype(np.float32))
        return "seen", 0.0

    params: dict[str, Any] = {
        "objective": "binary:logistic" if given.classes == 2 else "multi:softprob",
        "tree_method": "hist", "nthread": THREADS, "disable_default_eval_metric": True,
        "max_depth": point.size, "learning_rate": point.rate, "reg_lambda": point.reg_lambda,
    }  # fmt: skip
    if given.classes > 2:
        params["num_class"] = given.classes
    own = xgboost.DMatrix(_by_row(given.fit.values), given.fit.y)
    watched = xgboost.DMatrix(_by_row(held), np.zeros(held.shape[0]))
    xgboost.train(
        params, own, rounds, evals=[(watched, "held")], custom_metric=seen, verbose_eval=False
    )
    return staged


def _lightgbm(given: Split, held: Values, point: Point, rounds: int) -> list[Predictions]:
    import lightgbm

    staged: list[Predictions] = []

    def seen(predicted: NDArray[np.float64], _: object) -> tuple[str, float, bool]:
        staged.append(predicted.astype(np.float32))
        return "seen", 0.0, True

    params: dict[str, Any] = {
        "objective": "binary" if given.classes == 2 else "multiclass",
        "metric": "None", "num_threads": THREADS, "verbosity": -1,
        "num_leaves": point.size, "max_depth": -1, "learning_rate": point.rate,
        "lambda_l2": point.reg_lambda, "enable_bundle": False,
    }  # fmt: skip
    if given.classes > 2:
        params["num_class"] = given.classes
    own = lightgbm.Dataset(_by_row(given.fit.values), given.fit.y)
    watched = lightgbm.Dataset(_by_row(held), np.zeros(held.shape[0]), reference=own)
    lightgbm.train(params, own, rounds, valid_sets=[watched], feval=seen)
    return staged


def _by_row(values: Values) -> Any:
    return values.tocsr() if isinstance(values, csc_array) else np.ascontiguousarray(values)


STAGED: dict[str, Callable[[Split, Values, Point, int], list[Predictions]]] = {
    GBUN: _gbun,
    XGBOOST: _xgboost,
    LIGHTGBM: _lightgbm,
}
