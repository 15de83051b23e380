"""What FederBoost costs in accuracy and time: sections 6.1 and 6.2 of its paper."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any

import numpy as np

from benchmarks import federboost_horizontal as horizontal
from benchmarks import harness, links, plots, room, tables
from benchmarks.federboost_horizontal import (
    DAEMONS,
    HELD,
    ONE_PROCESS,
    TREES,
    UTILITY,
    Train,
    gap,
    xgboost_params,
)
from benchmarks.harness import Around
from benchmarks.plots import Picture
from benchmarks.question import Part, Question
from benchmarks.room import Params, Parts
from benchmarks.rows import Row, grouped, of
from benchmarks.tables import GUEST, HOST, Table
from fedboost.report.charts import Line

DATA = (*UTILITY, "covtype")
TIMED = "give_credit"  # where training is timed beside XGBoost's
FAR = "susy_30k"  # the paper's slowest; it is trained over daemons and a WAN, too
WAN = "WAN"
BEST = 16  # buckets with which the paper's noise is measured
NOISE = 4.0  # the ε at which the paper compares
BINS = (256, BEST)  # XGBoost's default, and as many as the hosts' buckets
COVTYPE_ROWS = 50_000  # at most
SHARED: dict[str, Any] = {
    **{"learning_rate": 0.3, "reg_lambda": 1.0, "max_bin": 32},
    **{"buckets": BEST, "epsilon": None},
}
COLOURS = {"give_credit": 1, "default_credit": 2, "susy_30k": 3, "covtype": 4}


@dataclass(frozen=True)
class Compared:
    """A row of Table 2 or 3 of the paper, of trees of four layers."""

    title: str
    data: str
    rows: int
    columns: int
    trees: int
    paper_s: float
    parties: int = 3


SECOND = Compared("Table 2", "susy_30k", 8192, 11, trees=200, paper_s=1.213)
THIRD = Compared("Table 3", "covtype", COVTYPE_ROWS, 15, trees=32, paper_s=32.4)


@dataclass(frozen=True)
class Plan:
    """How much of the whole a run does."""

    rows: int | None = None  # of a data set at most; None: all
    seeds: tuple[int, ...] = tuple(range(5))  # each a split of its own, and noise of its own
    buckets: tuple[int, ...] = tuple(range(4, 33, 4))
    epsilons: tuple[float, ...] = tuple(map(float, range(1, 9)))
    compared: tuple[Compared, ...] = (SECOND, THIRD)
    repeats: int = 5  # timed jobs, of which the median counts; one more goes before them
    daemons: tuple[int, ...] = (2, 4)  # parties, each a daemon
    walked: tuple[int, ...] = (2, 4, 8, 16, 32)  # parties in one process
    by_rows: horizontal.Plan = field(default_factory=horizontal.Plan)

    def table(self, name: str) -> Table:
        """The rows of a data set that this run uses."""
        table = tables.binary(name).sample(COVTYPE_ROWS if name == "covtype" else None)
        return table.sample(self.rows)


QUICK = Plan(
    rows=600, seeds=(0,), buckets=(BEST,), epsilons=(NOISE,),
    compared=(replace(SECOND, rows=900),), repeats=0, daemons=(), walked=(2,),
    by_rows=horizontal.QUICK,
)  # fmt: skip


def parts(table: Table, parties: int) -> dict[str, tuple[str, ...]]:
    """Who has which columns, the guest first.

    Two parties as in the papers' code where that is known; else equal shares, in order.
    """
    if parties == 2 and table.name in tables.HOST_COLUMNS:
        return tables.vertical(table)
    names = (GUEST, HOST) if parties == 2 else tables.party_names(parties)
    shares = np.array_split(np.arange(len(table.columns)), parties)
    return {
        party: tuple(table.columns[i] for i in share)
        for party, share in zip(names, shares, strict=True)
    }


def params(name: str, **more: Any) -> dict[str, Any]:
    """The paper's trees for a data set, at the settings that all jobs share, and `more`."""
    return {**SHARED, **TREES[name], "eval_metric": ["auc"], **more}


def timed(name: str) -> dict[str, Any]:
    """The same with the metric that takes least time: XGBoost, beside it, measures nothing."""
    return params(name, eval_metric=["error"])


@contextmanager
def daemons(table: Table, parties: int, around: Around = nullcontext) -> Iterator[Train]:
    """Trains with such parameters, job after job, on daemons of their own."""
    dealt = parts(table, parties)

    def spec(given: Params) -> Any:
        return harness.job("federboost-vertical", list(dealt), given)

    first = spec(params(table.name))
    with harness.daemons(first, lambda at: tables.deal(table, dealt, at), around) as run:
        yield lambda given: run(spec(given))


def utility(name: str, plan: Plan) -> Iterator[Row]:
    """AUC by buckets and by noise, beside XGBoost's."""
    table = plan.table(name)
    dealt = parts(table, 2)
    shapes: list[tuple[int, float | None]] = [(buckets, None) for buckets in plan.buckets]
    shapes += [(BEST, epsilon) for epsilon in plan.epsilons]
    for seed in plan.seeds:
        held = table.held_out(HELD, seed)
        test, same = table.where(held), xgboost_params(params(name))
        pooled = tables.xgboost_scores(table, held, same, harness.cores())["validation"]
        for buckets, epsilon in shapes:
            given = params(name, buckets=buckets, epsilon=epsilon)
            shards = room.train(table, dealt, given, held).shards
            auc = room.auc(test, room.predict(shards, test, dealt))
            yield {**table.size, "seed": seed, "buckets": buckets, "epsilon": epsilon,
                   "auc": auc, "xgboost": pooled}  # fmt: skip


def compared(name: str, plan: Plan) -> Iterator[Row]:
    """Rows of Tables 2 and 3, on daemons."""
    for one in plan.compared:
        if one.data == name:
            table = tables.binary(name).sample(one.rows).first_columns(one.columns)
            given = {**timed(name), "n_estimators": one.trees, "max_depth": 4}
            named = {"title": one.title, "parties": one.parties, "paper_s": one.paper_s}
            yield {**table.size, **named, **_spent(table, one.parties, given, plan.repeats)}


def parties(name: str, plan: Plan) -> Iterator[Row]:
    """Seconds by the number of parties, of those that have a column each."""
    table, given = plan.table(name), timed(name)
    for count in plan.walked:
        if count <= len(table.columns):
            spent = walk(table, parts(table, count), given, plan.repeats)
            yield {**table.size, "network": ONE_PROCESS, "parties": count, **spent}
    networks: dict[str, Around] = {DAEMONS: nullcontext, WAN: links.shaped}
    for network, around in networks.items() if name == FAR else ():
        for count in plan.daemons:
            spent = _spent(table, count, given, 0, around)
            yield {**table.size, "network": network, "parties": count, **spent}


def walk(table: Table, dealt: Parts, given: Params, repeats: int) -> Row:
    """What a stage takes in this process, after a first one."""
    load = harness.load_average()
    first, *found = [room.train(table, dealt, given) for _ in range(1 + repeats)]
    counted = found or [first]
    sent = sum(counted[-1].sent.values())
    return {"seconds": [one.total for one in counted], "sent": sent, "load": load}


def beside_xgboost(name: str, plan: Plan) -> Iterator[Row]:
    """Seconds of training beside XGBoost's, on the same rows and cores."""
    whole, given = plan.table(name), timed(name)
    table = whole.where(~whole.held_out(HELD, plan.seeds[0]))
    fitted = {
        f"{bins} bins, n_jobs {threads}": _fit_s(table, given, (bins, threads), plan.repeats)
        for bins in BINS
        for threads in (1, harness.cores())
    }
    spent = _spent(table, 2, given, plan.repeats)
    yield {**table.size, "parties": 2, "xgboost": fitted, **spent}


def _spent(
    table: Table, count: int, given: Params, repeats: int, around: Around = nullcontext
) -> Row:
    with daemons(table, count, around) as train:
        return harness.took(*harness.repeated(lambda: train(given), repeats))


def _fit_s(table: Table, given: Params, how: tuple[int, int], repeats: int) -> list[float]:
    """Of XGBoost's histogram trees on a whole table, after a first time."""
    import xgboost

    bins, threads = how
    same = {**xgboost_params(given), "max_bin": bins, "tree_method": "hist"}
    seconds = []
    for _ in range(2 + repeats):
        started = time.perf_counter()
        xgboost.XGBClassifier(n_jobs=threads, **same).fit(table.values, table.y)
        seconds.append(time.perf_counter() - started)
    return seconds[1:]


# Figures and plots, of both halves


def figures(rows: Sequence[Row]) -> dict[str, float]:
    """INTERFACE.md's figures; those that the rows do not give are absent."""
    found: dict[str, float] = {}
    for row in of(rows, "compared"):
        if row["title"] == SECOND.title:
            found["vertical_200_seconds"] = median(row["seconds"])
    names = {None: "vertical", NOISE: "vertical_eps4"}
    for group in grouped(of(rows, "utility"), "data", "buckets", "epsilon"):
        first = group[0]
        if first["buckets"] == BEST and first["epsilon"] in names:
            found[f"auc_gap.{names[first['epsilon']]}.{first['data']}"] = abs(gap(group))
    for row in of(rows, "xgboost"):
        fastest = min(median(one) for one in row["xgboost"].values())
        found[f"train_time_over_xgboost.{row['data']}"] = median(row["seconds"]) / fastest
    return found | horizontal.figures(rows)


def drawn(rows: Sequence[Row]) -> dict[str, Picture]:
    """Figures 5 and 6 of the paper, of both halves."""
    own, which = of(rows, "utility"), "Horizontal: "
    plain = grouped([row for row in own if row["epsilon"] is None], "data", "buckets")
    noisy = grouped([row for row in own if row["epsilon"] is not None], "data", "epsilon")
    return plots.known(
        {
            "buckets": _gaps(list(plain), "buckets", "buckets"),
            "noise": _gaps(list(noisy), "epsilon", "ε"),
            "parties": _parties(of(rows, "parties")),
            "horizontal-buckets": _gaps(horizontal.by_buckets(rows), "buckets", "buckets", which),
            "horizontal-parties": _parties(of(rows, "horizontal_parties"), which),
        }
    )


def _gaps(groups: Sequence[Sequence[Row]], by: str, named: str, which: str = "") -> Picture | None:
    """Mean AUC above XGBoost's, a line for each data set."""
    found: dict[str, list[tuple[float, float]]] = {}
    for group in groups:
        found.setdefault(group[0]["data"], []).append((float(group[0][by]), gap(group)))
    at = [x for points in found.values() for x, _ in points]
    lines = [Line(data, points, COLOURS[data]) for data, points in found.items()]
    if at:
        lines.append(Line("XGBoost", [(min(at), 0.0), (max(at), 0.0)], 6, faint=True))
    return plots.lines(f"{which}Test AUC minus XGBoost's, by {named}", lines, named, whole=True)


def _parties(rows: Sequence[Row], which: str = "") -> Picture | None:
    """Seconds by parties, a line for each data set and network."""
    lines = [
        Line(
            f"{group[0]['data']}, {group[0]['network']}",
            [(float(row["parties"]), median(row["seconds"])) for row in group],
            COLOURS[group[0]["data"]],
            dashed=group[0]["network"] == ONE_PROCESS,
        )
        for group in grouped(rows, "network", "data")
    ]
    return plots.lines(f"{which}Seconds of training, by parties", lines, "parties", whole=True)


def _dealt(part: Any, data: Sequence[str]) -> Part:
    """A part of the horizontal half, by its own plan."""
    return Part(lambda name, plan: part(name, plan.by_rows), data)


PARTS: Mapping[str, Part] = {
    "utility": Part(utility, UTILITY),
    "compared": Part(compared, (SECOND.data, THIRD.data)),
    "xgboost": Part(beside_xgboost, (TIMED,)),
    "parties": Part(parties, DATA),
    "horizontal_utility": _dealt(horizontal.utility, UTILITY),
    "horizontal_200": _dealt(horizontal.compared, (horizontal.COMPARED,)),
    "horizontal_parties": _dealt(horizontal.parties, UTILITY),
    "horizontal_wan": _dealt(horizontal.wide_area, (horizontal.COMPARED,)),
}
QUESTION = Question(
    *("federboost", __doc__ or "", PARTS, Plan(), QUICK, figures),
    plots=drawn,
    settings={**SHARED, "trees": TREES, "test rows": "a third by id", "WAN": links.Link().words},
)

if __name__ == "__main__":
    QUESTION.main()
