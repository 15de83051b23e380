"""What plain trees take beside XGBoost's: the pooled trainer and vertical FederBoost's guest.

A ratio is the median over pairs of runs, one right behind the other on the same cores, so that
whatever else the machine does slows down both. Where XGBoost measures nothing we measure `error`,
the quickest, after every tree; rows of `auc` and `logloss` have both measure both. A pooled tree is
grown of bins that are known; FederBoost's seconds are those of its whole stage, XGBoost's of `fit`.
Rows `on Dask` are pooled trees whose rows as many processes of this machine add up, beside threads.
"""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from statistics import median

import numpy as np

from benchmarks import federboost, harness, room, tables
from benchmarks.federboost_horizontal import HELD, xgboost_params
from benchmarks.question import Part, Question
from benchmarks.rows import Row, say
from fedboost.core import binning, local, objectives
from fedboost.core.local import Training, TrainingTable, Watched
from fedboost.core.objectives import Summary
from fedboost.core.params import TreeParams
from fedboost.core.row_parts import SharedTable
from fedboost.core.rules import Rules
from fedboost.ground.part_workers import PartWorkers
from fedboost.runtime.config.daemons import DaskWorkers, LocalWorkers
from fedboost.runtime.config.policy import Policy
from fedboost.runtime.party.workers.dask_part_workers import DaskPartWorkers
from fedboost.runtime.process.threads import ThreadWorkers

POOLED = {"pooled_100k": (100_000, 20), "pooled_1m": (1_000_000, 6)}  # rows, trees a run
COLUMNS, DEPTH, BINS = 28, 5, 32
VERTICAL = "give_credit"


@dataclass(frozen=True)
class Plan:
    """How much is measured."""

    repeats: int = 11
    rows: int = 1 << 62  # at most


def table(rows: int) -> TrainingTable:
    """Rows of 28 normal columns, ten of which the label depends on."""
    draw = np.random.default_rng(1)
    values = draw.standard_normal((rows, COLUMNS), np.float32)
    signal = values[:, :10] @ draw.standard_normal(10) + draw.standard_normal(rows)
    return TrainingTable(np.asfortranarray(values), (signal > 0).astype(np.float64))


def params(trees: int, metrics: tuple[str, ...]) -> TreeParams:
    """The settings that both have."""
    return TreeParams(
        n_estimators=trees, max_depth=DEPTH, max_bin=BINS, learning_rate=0.1, eval_metric=metrics
    )


def ours(
    rows: TrainingTable,
    trees: int,
    metrics: tuple[str, ...],
    threads: ThreadWorkers,
    least: int = 1,
    part_workers: PartWorkers | None = None,
) -> Callable[[], Training]:
    """A run of our trainer on bins that are known; `least` is the own_rows_min."""
    given = params(trees, metrics)
    summary = Summary.of(given, rows.y, rows.weights)
    objective = objectives.start_objective(given, summary)
    fixed = objectives.encoding(given, objective, summary)
    cuts = binning.fit(rows.values, BINS)
    bins = cuts.transform(rows.values)
    own = (least,) if least > 1 else ()
    elsewhere = None if part_workers is None else SharedTable.of(part_workers, bins, cuts, least)
    rules = Rules(given, cuts, fixed, own_rows_min=own, threads=threads, elsewhere=elsewhere)

    def run() -> Training:
        margin = np.tile(objective.base_margin, (len(rows.y), 1))
        watched = Watched(bins, rows.y, rows.weights, margin)
        training = Training(rules, objective, {"train": watched}, (COLUMNS,))
        while not training.is_over:
            training.advance()
        return training

    return run


def theirs(rows: TrainingTable, trees: int, threads: int, measures: bool) -> Callable[[], object]:
    """A run of XGBoost's on bins that are known."""
    import xgboost

    made = xgboost.QuantileDMatrix(rows.values, rows.y, max_bin=BINS, nthread=threads)
    same = {"objective": "binary:logistic", "max_depth": DEPTH, "max_bin": BINS, "eta": 0.1}
    same |= {"tree_method": "hist", "nthread": threads}
    if measures:
        same |= {"eval_metric": ["auc", "logloss"]}
    seen = [(made, "train")] if measures else []
    return lambda: xgboost.train(same, made, trees, evals=seen, verbose_eval=False)


@contextmanager
def on_cores(count: int) -> Iterator[None]:
    """Keep this process, and threads that it starts, on so many cores."""
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(allowed)[:count])
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)


def seconds_of(run: Callable[[], object]) -> Callable[[], float]:
    """A run that gives its seconds."""

    def timed() -> float:
        started = time.perf_counter()
        run()
        return time.perf_counter() - started

    return timed


def paired(one: Callable[[], float], other: Callable[[], float], repeats: int) -> Row:
    """Least seconds of both, the median of their ratios and the ratio of the least; a first time
    does not count.
    """
    pairs = [(one(), other()) for _ in range(repeats + 1)][1:]
    mine, others = (min(side) for side in zip(*pairs, strict=True))
    ratio = median(a / b for a, b in pairs)
    return {"ours": mine, "other": others, "ratio": ratio, "of_best": mine / others}


def measure_pooled(name: str, threads: int, plan: Plan) -> Iterator[Row]:
    """The pooled trainer's seconds a tree beside XGBoost's."""
    rows, trees = POOLED[name]
    made = table(min(rows, plan.rows))
    for metrics in (("error",), ("auc", "logloss")):
        measures = len(metrics) > 1
        say.print(f"[bold]{name}[/]: {threads} threads, {' and '.join(metrics)}")
        with on_cores(threads), ThreadWorkers(threads) as workers:
            own = seconds_of(ours(made, trees, metrics, workers))
            found = paired(own, seconds_of(theirs(made, trees, threads, measures)), plan.repeats)
        seconds = {side: found[side] / trees for side in ("ours", "other")}
        yield {"threads": threads, "how": " ".join(metrics), **found, **seconds}


def measure_workers(name: str, threads: int, plan: Plan) -> Iterator[Row]:
    """Seconds a tree whose rows processes of Dask add up, beside threads of this one."""
    rows, trees = POOLED[name]
    made = table(min(rows, plan.rows))
    local = LocalWorkers(local=threads)
    part_workers = DaskPartWorkers(DaskWorkers(dask=local, gradients=True))
    for least in (1, Policy().own_rows_min):
        say.print(f"[bold]{name}[/]: {threads} processes of Dask, own_rows_min {least}")
        with on_cores(threads), ThreadWorkers(threads) as workers:
            given = made, trees, ("error",), workers, least
            found = paired(
                seconds_of(ours(*given, part_workers)), seconds_of(ours(*given)), plan.repeats
            )
        seconds = {side: found[side] / trees for side in ("ours", "other")}
        how = f"on Dask, own_rows_min {least}"
        yield {"threads": threads, "how": how, **found, **seconds}
    part_workers.close()


def measure_vertical(threads: int, plan: Plan) -> Iterator[Row]:
    """The stage of vertical FederBoost beside XGBoost's `fit`, with as many bins."""
    import xgboost

    table = tables.load(VERTICAL).sample(plan.rows)
    kept = ~table.held_out(HELD, 1)
    rows = table.where(kept)
    dealt = federboost.parts(rows, 2)
    for trainer in ("own", "xgboost"):
        say.print(f"[bold]{VERTICAL}[/]: {threads} threads, trainer {trainer}")
        given = {**federboost.timed(VERTICAL), "trainer": trainer}
        same = {**xgboost_params(given), "tree_method": "hist"}

        model = xgboost.XGBClassifier(n_jobs=threads, max_bin=federboost.BEST, **same)
        with on_cores(threads), ThreadWorkers(threads) as workers:
            stage = partial(room.train, rows, dealt, given, workers=workers)
            fit = partial(model.fit, rows.values, rows.y)
            found = paired(partial(_total, stage), seconds_of(fit), plan.repeats)
        yield {"threads": threads, "how": f"trainer {trainer}", **found}


def _total(stage: Callable[[], room.Trained]) -> float:
    """Seconds of all steps of a stage."""
    return stage().total


def measure_prediction(name: str, threads: int, plan: Plan) -> Iterator[Row]:
    """Rows a second through all trees, from bins."""
    rows, trees = POOLED[name]
    made = table(min(rows, plan.rows))
    with on_cores(threads), ThreadWorkers(threads) as workers:
        training = ours(made, trees, ("error",), workers)()
        bins, missing = training.watched["train"].bins, BINS
        seconds = []
        for _ in range(plan.repeats + 1):
            margin, started = np.zeros((len(made.y), 1)), time.perf_counter()
            for grown in training.rounds:
                local.add_trees(margin, grown, bins, missing, workers)
            seconds.append(time.perf_counter() - started)
    rate = len(made.y) * trees / min(seconds[1:])
    yield {"threads": threads, "how": "rows of a tree a second", "rate": rate}


def measure(name: str, plan: Plan) -> Iterator[Row]:
    """Everything of one table, on one core and on all."""
    for threads in sorted({1, harness.cores()}):
        if name == VERTICAL:
            yield from measure_vertical(threads, plan)
            continue
        yield from measure_pooled(name, threads, plan)
        yield from measure_prediction(name, threads, plan)
        if threads == harness.cores():
            yield from measure_workers(name, threads, plan)


def figures(rows: Sequence[Row]) -> dict[str, float]:
    """The ratios."""
    return {
        f"{row['data']} {row['how']} {row['threads']}": row["ratio"]
        for row in rows
        if "ratio" in row
    }


QUESTION = Question(
    *("plain", __doc__ or "", {"ratios": Part(measure, [*POOLED, VERTICAL])}),
    full=Plan(),
    quick=Plan(1, 2000),
    figures=figures,
    settings={"columns": COLUMNS, "depth": DEPTH, "bins": BINS},
)

if __name__ == "__main__":
    QUESTION.main()
