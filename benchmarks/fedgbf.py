"""Dynamic FedGBF beside SecureBoost: accuracy, measured time, and the paper's bounds."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from benchmarks import boosting, harness, plots, tables
from benchmarks.boosting import PAILLIER
from benchmarks.harness import JobRun
from benchmarks.plots import Group, Picture
from benchmarks.question import Part, Question
from benchmarks.rows import Row, grouped, of
from benchmarks.tables import Table
from fedboost.core import forest, metrics
from fedboost.core.params import TreeParams
from fedboost.report.charts import Bar

DATA = ("give_credit", "default_credit")
METRICS: tuple[metrics.MetricName, ...] = ("auc", "accuracy", "f1")
SECUREBOOST, DYNAMIC, XGBOOST = "SecureBoost", "Dynamic FedGBF", "XGBoost, pooled"
LONE = "one tree of each forest"  # what a worker does that has one tree a round to grow
MEASURED, WHOLE, BOUND = 1, 6, 3  # colours

# Section 4.2.2 of the paper; both speeds are 1, the default.
SHAPE: dict[str, Any] = {"max_depth": 3, "learning_rate": 0.1}
SUBSAMPLE = (0.1, 0.3)
SHARED: dict[str, Any] = {**SHAPE, "eval_metric": list(METRICS)}
PARAMS: dict[str, dict[str, Any]] = {
    SECUREBOOST: SHARED,
    DYNAMIC: {**SHARED, "forest": {"dynamic": {"n_trees": (5, 2), "subsample": SUBSAMPLE}}},
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
        return cls(forest.trees_each_round(params), forest.row_rates(params))

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

    rows: int | None  # of a table, where encrypted jobs are timed; None: all
    accuracy_rows: int | None  # of a table trained in plain
    rounds: int  # timed ones
    draws: Mapping[str, int]  # trees of a forest that are timed alone, by data set
    scored: tuple[int, ...] = (20, 50, 100)  # rounds, of tables 2 and 3
    depth: int = 3  # of the timed trees


FULL = Plan(None, None, 20, {"give_credit": 2, "default_credit": 3})
QUICK = Plan(200, 400, 2, dict.fromkeys(DATA, 1), (2, 4), 1)


def accuracy(name: str, plan: Plan) -> Iterator[Row]:
    """Scores of both systems and of XGBoost after each number of rounds."""
    table = tables.load(name).sample(plan.accuracy_rows)
    boosted, pooled = _trained(table, SECUREBOOST, max(plan.scored)), _pooled(table, plan)
    for rounds in plan.scored:
        moving = _trained(table, DYNAMIC, rounds)
        scores = {DYNAMIC: moving[-1], SECUREBOOST: boosted[rounds - 1], XGBOOST: pooled[rounds]}
        for system, own in scores.items():
            yield {**boosting.size(table), "system": system, "rounds": rounds, **own}


def _trained(table: Table, system: str, rounds: int) -> list[dict[str, float]]:
    """Return scores after every round, trained without encryption in this process."""
    return [one["metrics"] for one in boosting.here(table, rounds, PARAMS[system]).rounds]


def _pooled(table: Table, plan: Plan) -> dict[int, dict[str, float]]:
    """Return scores of XGBoost's histogram trees on the whole table, by rounds."""
    import xgboost

    held = table.held_out(**boosting.VALIDATION)
    params = {**boosting.SHAPE, **SHAPE, "n_estimators": max(plan.scored)}
    model = xgboost.XGBClassifier(tree_method="hist", n_jobs=harness.cores(), **params)
    model.fit(table.values[~held], table.y[~held])
    found: dict[int, dict[str, float]] = {}
    for rounds in plan.scored:
        likely = model.predict_proba(table.values, iteration_range=(0, rounds))[:, 1]
        for part, rows in (("train", ~held), ("validation", held)):
            y, own = table.y[rows].astype(np.float64), likely[rows].astype(np.float64)
            scores = {f"{part}.{one}": metrics.evaluate(one, y, own) for one in METRICS}
            found.setdefault(rounds, {}).update(scores)
    return found


def time(name: str, plan: Plan) -> Iterator[Row]:
    """What whole jobs of both systems take on the same daemons, and trees of forests alone."""
    table = tables.load(name).sample(plan.rows)
    jobs = [(system, 0, params) for system, params in PARAMS.items()]
    jobs += [(LONE, draw, lone(draw)) for draw in range(plan.draws[name])]
    with boosting.daemons(table) as train:
        for system, draw, params in jobs:
            named = {"rounds": plan.rounds, "system": system, "draw": draw}
            run = train(plan.rounds, PAILLIER, {**params, "max_depth": plan.depth})
            yield {**boosting.size(table), **named, **cost(run)}


def cost(run: JobRun) -> Row:
    """Of all rounds of a job, the making of its key included; bytes and exchanges without it."""
    own = [step for step in run.of_stage("secureboost") if step.step != "share_key"]
    before = [step for step in run.steps if step not in own and step.bytes]
    seconds = sum(lap.seconds for lap in run.trees)
    ours, others = harness.spent(run.trees)
    exchanges = run.result["exchanges"] - sum(step.calls for step in before)
    return {
        "wall_s": seconds,
        "cpu_s": ours,
        "sent": harness.sent(own),
        "exchanges": exchanges / len(run.trees),
        "others": None if others is None else others / seconds,
        "load": run.load_before,
        "test_auc": run.rounds[-1]["metrics"]["validation.auc"],
        "laps": [asdict(lap) for lap in run.trees],
    }


# Figures


CLOCKS = {"wall_s": "seconds", "cpu_s": "ours"}  # of a job, and of its rounds


def figures(rows: Sequence[Row]) -> dict[str, float]:
    """INTERFACE.md's figures; those that the rows do not give are absent."""
    found: dict[str, float] = {}
    for group in grouped(of(rows, "accuracy"), "data", "rounds"):
        auc = {row["system"]: row["validation.auc"] for row in group}
        name = f"{group[0]['data']}.{group[0]['rounds']}"
        found[f"test_auc_gap.{name}"] = abs(auc[DYNAMIC] - auc[SECUREBOOST])
    for group in grouped(of(rows, "time"), "data"):
        jobs = Jobs.of(group)
        ratios = {
            "cpu_ratio": jobs.share(jobs.whole[DYNAMIC]["cpu_s"], "cpu_s"),
            "critical_path_ratio": jobs.share(jobs.path("cpu_s"), "cpu_s"),
            "exchanges_ratio": jobs.share(jobs.whole[DYNAMIC]["exchanges"], "exchanges"),
        }
        found |= {f"{n}.{group[0]['data']}": one for n, one in ratios.items() if one is not None}
    return found


@dataclass(frozen=True)
class Jobs:
    """The timed jobs of one data set."""

    whole: Mapping[str, Row]  # by system
    alone: Sequence[Row]  # one for each draw

    @classmethod
    def of(cls, group: Sequence[Row]) -> Self:
        """From rows of the part `time`."""
        whole = {row["system"]: row for row in group if row["system"] != LONE}
        return cls(whole, [row for row in group if row["system"] == LONE])

    @property
    def rounds(self) -> int:
        """Of every job."""
        return int(self.whole[SECUREBOOST]["rounds"])

    def share(self, part: float | None, what: str) -> float | None:
        """A share of what SecureBoost takes; None where either is unknown."""
        whole = self.whole[SECUREBOOST][what]
        return part / whole if part is not None and whole else None

    def path(self, clock: str) -> float | None:
        """Seconds of all rounds, each as long as its slowest tree; None where unknown.

        Of each round so many draws count as its forest has trees.
        """
        total = 0.0
        for place, trees in enumerate(Schedule.of(self.rounds).sizes.tolist()):
            seconds = [row["laps"][place][CLOCKS[clock]] for row in self.alone[:trees]]
            if not seconds or None in seconds:
                return None
            total += max(seconds)
        return total

    def unit(self, clock: str) -> float | None:
        """T_unit: the median SecureBoost round after the first, which pays for the key."""
        laps = self.whole[SECUREBOOST]["laps"]
        seconds = [lap[CLOCKS[clock]] for lap in laps[1:] or laps]
        return None if None in seconds else median(seconds)


def drawn(rows: Sequence[Row]) -> dict[str, Picture]:
    """Processor seconds of both systems, of the slowest trees alone, and both bounds.

    Wall seconds where the machine does not tell processor seconds.
    """
    groups = []
    for own in grouped(of(rows, "time"), "data"):
        jobs = Jobs.of(own)
        clock, name = ("wall_s", "wall") if jobs.unit("cpu_s") is None else ("cpu_s", "CPU")
        unit, moving = jobs.unit(clock), Schedule.of(jobs.rounds)
        assert unit is not None
        found = {
            SECUREBOOST: (jobs.whole[SECUREBOOST][clock], WHOLE),
            "equation 10": (moving.most * unit, BOUND),
            DYNAMIC: (jobs.whole[DYNAMIC][clock], MEASURED),
            "slowest trees alone": (jobs.path(clock), MEASURED),
            "equation 9": (moving.least * unit, BOUND),
        }
        bars = {
            label: Bar(value, colour, f"{value:,.1f} s")
            for label, (value, colour) in found.items()
            if value is not None
        }
        title = f"{own[0]['data']}, {name} seconds of {jobs.rounds} rounds: {plots.size(own[0])}"
        groups.append(Group(title, bars))
    title = "Seconds to train, beside the bounds of equations 9 and 10"
    return plots.known({"time": plots.bars(title, groups)})


QUESTION = Question(
    *("fedgbf", __doc__ or "", {"accuracy": Part(accuracy, DATA), "time": Part(time, DATA)}),
    full=FULL,
    quick=QUICK,
    figures=figures,
    plots=drawn,
    options={"rounds": {"type": int, "metavar": "N", "help": "time so many rounds"}},
    settings={**boosting.SETTINGS, **PARAMS[DYNAMIC], "scheme": PAILLIER},
)

if __name__ == "__main__":
    QUESTION.main()
