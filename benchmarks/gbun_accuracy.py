"""GBUN, XGBoost and LightGBM on the same rows: every point of a grid, scored after every round."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from statistics import mean
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray
from scipy.sparse import csc_array, csr_array, vstack

from benchmarks import harness, plots, tables
from benchmarks.plots import Picture
from benchmarks.rows import Row, grouped, of
from fedboost.core import gbun, local, metrics, objectives
from fedboost.core.binning import FeatureValues
from fedboost.core.column_readings import Form
from fedboost.core.gbun import GbunParams
from fedboost.core.metrics import MetricName
from fedboost.ground.errors import JobError
from fedboost.report.charts import Line

GBUN, XGBOOST, LIGHTGBM = SYSTEMS = "GBUN", "XGBoost", "LightGBM"
DATA = ("vehicle", "sensorless_2k", "covtype", "epsilon_5k", "reuters_moneyfx", "give_credit")
ROWS_MAX = {"covtype": 20_000}  # of a data set, sampled
TEST, VALIDATION = 0.3, 0.2  # of the rows; of those that are left
OWN_TEST = {"reuters_moneyfx": ("reuters_moneyfx_train", "reuters_moneyfx_test")}
SPARSE_COLUMNS = 8315  # of Reuters
Predictions = NDArray[np.float32]  # (n,), or with several classes (n, classes)
THREADS = 1  # of the others: beside other work two wait for one another
CURVE = 5  # every so many rounds of a curve are kept


@dataclass(frozen=True)
class Point:
    """Settings of one model."""

    size: int  # outputs of a network, leaves of LightGBM's trees, depth of XGBoost's
    rate: float
    reg_lambda: float
    columns: Form = "standard"  # of GBUN, as what follows
    sharpness: float = 1.0
    weights: int = 4  # of an output, in bins


@dataclass(frozen=True)
class Grid:
    """The points that are tried; the paper's steps are 2 in sizes and 0.1 in the others."""

    sizes: dict[str, tuple[int, ...]]  # of trees, by system
    networks: tuple[Point, ...]  # a search of GBUN's settings, told in few points
    rates: tuple[float, ...] = (0.1, 0.3, 0.6)  # of trees
    lambdas: tuple[float, ...] = (0.1, 1.0)
    tried: int = 300  # rounds of every point
    finalists: int = 0  # the best by validation, which are trained anew for all rounds
    splits: int = 1

    def points(self, system: str) -> Iterator[Point]:
        """All of a system's."""
        if system == GBUN:
            yield from self.networks
            return
        for size, rate, reg_lambda in product(self.sizes[system], self.rates, self.lambdas):
            yield Point(size, rate, reg_lambda)


def sizes(depths: tuple[int, ...], leaves: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
    """Of both systems of trees."""
    return {XGBOOST: depths, LIGHTGBM: leaves}


def grid_of(
    outputs: tuple[int, ...], rates: tuple[float, ...], lambdas: tuple[float, ...], columns: Form
) -> tuple[Point, ...]:
    """All combinations, with columns of one form."""
    return tuple(Point(*one, columns) for one in product(outputs, rates, lambdas))


def each(size: int, rate: float, reg_lambda: float, *columns: Form) -> tuple[Point, ...]:
    """One point with columns of several forms."""
    return tuple(Point(size, rate, reg_lambda, form) for form in columns)


FULL = {
    "vehicle": Grid(
        sizes((5, 7, 10), (32, 64)),
        (*grid_of((32, 64), (0.3, 1.0), (0.03, 0.1), "standard"),
         *each(64, 0.3, 0.1, "rank", "bins", "auto")),
        rates=(0.1, 0.3, 1.0), lambdas=(0.0, 0.1, 0.5), splits=3,
    ),
    "sensorless_2k": Grid(
        sizes((5, 8), (32, 64)),
        (*grid_of((32, 64), (0.3, 1.0), (0.03, 0.1), "bins"),
         *each(64, 0.3, 0.1, "standard", "rank", "auto")),
        rates=(0.3, 1.0), lambdas=(0.0, 0.1, 0.5),
    ),
    "covtype": Grid(
        sizes((6, 10), (32, 256)),
        (*(Point(128, 0.5, reg_lambda, "bins", 5.0, 16) for reg_lambda in (0.1, 0.3)),
         Point(128, 0.5, 0.3, "auto", 5.0, 16), Point(256, 0.5, 0.3, "bins", 5.0, 16),
         *each(128, 0.3, 0.1, "standard", "rank", "bins")),
        rates=(0.1, 0.3), tried=40, finalists=3,
    ),
    "epsilon_5k": Grid(
        sizes((5, 7, 10), (32, 128)),
        (*each(128, 0.3, 1.0, "standard", "rank", "bins", "auto"),
         *grid_of((512,), (0.1, 0.3), (0.1, 3.0), "standard")),
        rates=(0.1, 0.3), tried=100, finalists=1,
    ),
    "reuters_moneyfx": Grid(
        sizes((5, 7, 10), (32, 128)),
        (*each(64, 0.3, 0.1, "standard", "rank", "bins"),
         *grid_of((256,), (0.3,), (0.03, 0.1), "standard")),
        rates=(0.1, 0.3), tried=60, finalists=2,
    ),
    "give_credit": Grid(
        sizes((5, 7), (32, 128)),
        (*each(64, 0.3, 0.1, "standard", "rank", "bins", "auto"), Point(128, 0.3, 0.1, "auto")),
        rates=(0.1, 0.3), tried=60, finalists=1,
    ),
}  # fmt: skip
QUICK = {
    name: Grid(
        sizes((5,), (32,)), each(32, 0.3, 0.1, "auto"), rates=(0.3,), lambdas=(0.1,), tried=4
    )
    for name in DATA
}


# Data


@dataclass(frozen=True, eq=False)
class Split:
    """A data set in three parts: models learn from `fit`; `validation` and `test` score them."""

    name: str
    fit: local.TrainingTable
    validation: local.TrainingTable
    test: local.TrainingTable
    classes: int

    @property
    def metric(self) -> str:
        """What a model is judged by."""
        return "auc" if self.classes == 2 else "accuracy"

    @property
    def columns(self) -> int:
        """How many there are."""
        return int(self.fit.values.shape[1])

    @property
    def rows(self) -> dict[str, int]:
        """How many each part has."""
        return {name: len(getattr(self, name).y) for name in ("fit", "validation", "test")}


def split(name: str, rows: int | None, seed: int) -> Split:
    """A data set cut by `seed`; of at most so many rows."""
    if name in OWN_TEST:
        (values, y), (test_values, test_y) = (_sparse(file) for file in OWN_TEST[name])
        values, y = values[:rows], y[:rows]
        test = local.TrainingTable(csc_array(test_values), test_y)
    else:
        table = tables.load(name).sample(rows)
        out = table.held_out(TEST, seed)
        own = table.y.astype(np.float64)
        test = local.TrainingTable(np.asfortranarray(table.values[out]), own[out])
        values, y = table.values[~out], own[~out]
    held = np.random.default_rng(seed).random(len(y)) < VALIDATION
    return Split(
        name=name,
        fit=local.TrainingTable(_columnwise(values[~held]), y[~held]),
        validation=local.TrainingTable(_columnwise(values[held]), y[held]),
        test=test,
        classes=int(y.max()) + 1,
    )


def _columnwise(values: NDArray[np.float32] | csr_array) -> FeatureValues:
    return csc_array(values) if isinstance(values, csr_array) else np.asfortranarray(values)


def _sparse(file: str) -> tuple[csr_array, NDArray[np.float64]]:
    """The rows of a file that lists indices and values; both parts have 8,315 columns."""
    whole = pq.read_table(tables.data_folder() / f"{file}.parquet")
    indices = whole["indices"].combine_chunks()
    ends = indices.offsets.to_numpy()
    values = whole["values"].combine_chunks().flatten().to_numpy().astype(np.float32)
    shape = (whole.num_rows, SPARSE_COLUMNS)
    found = csr_array((values, indices.flatten().to_numpy(), ends - ends[0]), shape=shape)
    return found, whole["y"].to_numpy().astype(np.float64)


# Accuracy


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


def searched(name: str, rows: int | None, grid: Grid, rounds: int) -> Iterator[Row]:
    """Every system's grid on every split of a data set."""
    for seed in range(grid.splits):
        given = split(name, rows, seed)
        for system in SYSTEMS:
            yield {**found(system, given, grid, rounds), "split": seed}


def found(system: str, given: Split, grid: Grid, rounds: int) -> Row:
    """A system's grid on one split; the finalists for all rounds."""
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


def _joined(first: FeatureValues, second: FeatureValues) -> FeatureValues:
    if isinstance(first, csc_array):
        return csc_array(vstack([first, second]))
    return np.asfortranarray(np.concatenate([first, second]))


# What each system predicts of the held rows after each round


def _gbun(given: Split, held: FeatureValues, point: Point, rounds: int) -> list[Predictions]:
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


def _xgboost(given: Split, held: FeatureValues, point: Point, rounds: int) -> list[Predictions]:
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


def _lightgbm(given: Split, held: FeatureValues, point: Point, rounds: int) -> list[Predictions]:
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


def _by_row(values: FeatureValues) -> Any:
    return values.tocsr() if isinstance(values, csc_array) else np.ascontiguousarray(values)


STAGED: dict[str, Callable[[Split, FeatureValues, Point, int], list[Predictions]]] = {
    GBUN: _gbun,
    XGBOOST: _xgboost,
    LIGHTGBM: _lightgbm,
}


# Figures and plots


def score_gap(group: Sequence[Row]) -> float | None:
    """The better of XGBoost and LightGBM, less GBUN, of rounds that validation rows choose; means
    over splits of one data set. None where one of the three is not there.
    """
    known = {own[0]["system"]: mean(row["chosen"]["score"] for row in own)
             for own in grouped(group, "system")}  # fmt: skip
    if set(known) < set(SYSTEMS):
        return None
    return float(max(known[XGBOOST], known[LIGHTGBM]) - known[GBUN])


def figures(rows: Sequence[Row]) -> dict[str, float]:
    """INTERFACE.md's figures of scores; those that the rows do not give are absent."""
    gaps = {own[0]["data"]: score_gap(own) for own in grouped(of(rows, "accuracy"), "data")}
    return {f"score_gap.{data}": one for data, one in gaps.items() if one is not None}


def curves(rows: Sequence[Row]) -> dict[str, Picture | None]:
    """Test scores of the best point of each system, by rounds: Figure 4 of the paper."""
    drawn = {}
    for group in grouped(of(rows, "accuracy"), "data"):
        lines = [
            Line(row["system"], curve(row), 1 + SYSTEMS.index(row["system"]))
            for row in group
            if row["split"] == 0
        ]
        title = f"{group[0]['data']}: test {group[0]['metric']} of the best points, by rounds"
        drawn[f"curve-{group[0]['data']}"] = plots.lines(title, lines, "rounds")
    return drawn


def curve(row: Row) -> list[tuple[float, float]]:
    """Rounds and scores."""
    return [(1.0 + CURVE * place, score) for place, score in enumerate(row["curve"])]
