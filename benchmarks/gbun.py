"""Boosted networks beside XGBoost and LightGBM, and what a federation of them costs."""

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks import gbun_accuracy, harness, links, plots, tables
from benchmarks.gbun_accuracy import FULL, Grid, Point, gbun_params
from benchmarks.harness import Around, Deal, JobRun, StepTotal
from benchmarks.links import Link
from benchmarks.plots import Picture
from benchmarks.question import Part, Question
from benchmarks.rows import Row, grouped, of
from benchmarks.tables import Table
from fedboost.core import gbun, local
from fedboost.data.sources import SourceSpec
from fedboost.job import JobSpec
from fedboost.model import networks
from fedboost.report.charts import Line
from fedboost.runtime.transport.addresses import Timers

SPARSE = "sparse"  # drawn at random, of any number of columns
COMPARED = "vehicle"  # trained by a federation and on one table
NEAR = "epsilon_5k"  # dense, 100 columns
DIVIDED = "covtype"  # whose rows are divided among parties
AGGREGATOR = "sum"  # has no rows, so that every party's bytes travel
NETWORKS, TREES = "gbun", "federboost-horizontal"
BEFORE = frozenset(  # steps of both protocols that are done once, not every round
    {
        *("show_inputs", "match_inputs", "offer_keys", "hear_keys", "count_rows", "sum_columns"),
        *("show_reach", "sum_labels", "count_below", "tell_standing"),
    }
)
# A ping waits behind what has been written: 1 MiB leaves a line of 1 Mbit/s in eight seconds.
TIMERS = Timers(keepalive_timeout_s=240.0, peer_lost_s=240.0, call_s=240.0)
RATES = (1e12, 100e6, 10e6, 1e6)  # bits a second, each way of each daemon; the first: no limit
OUTPUTS = 64
TREE_DEPTH = 6  # 64 leaves
SHARED = (
    *("n_estimators", "learning_rate", "reg_lambda", "eval_metric", "objective", "num_class"),
)  # settings that trees have, too
POINT = Point(size=OUTPUTS, rate=0.3, reg_lambda=1.0)

Params = Mapping[str, Any]


@dataclass(frozen=True)
class Plan:
    """How much of the whole a run does."""

    rows: int | None = None  # of a data set at most; None: all
    rounds: int = 300
    grids: Mapping[str, Grid] = field(default_factory=lambda: FULL, repr=False)
    columns: tuple[int, ...] = (100, 10_000, 1_000_000)
    counted: int = 5  # rounds of which bytes are counted
    limited: Mapping[int, int] = field(default_factory=lambda: {64: 8, 1024: 2})  # rounds, outputs
    rates: tuple[float, ...] = RATES
    parties: tuple[int, ...] = (1, 2, 4, 8)
    divided: Mapping[int, int] = field(default_factory=lambda: {64: 8, 256: 5})  # rounds, outputs
    dealt: int = 100_000  # rows that are divided
    bins: int = 32  # of trees: each takes 80 rows
    same: int = 50  # rounds of the job that is compared with one table

    def rows_of(self, name: str) -> int | None:
        """The most rows that this run uses of a data set."""
        return self.rows or gbun_accuracy.ROWS_MAX.get(name)


QUICK = Plan(
    rows=600, rounds=4, grids=gbun_accuracy.QUICK, counted=1, limited={64: 2}, rates=(RATES[0],),
    parties=(1, 2), divided={64: 2}, dealt=1000, bins=6, same=2,
)  # fmt: skip


def formula(outputs: int, classes: int) -> int:
    """Bytes of a round's sums: Σz, Σz² and a count; a triangle and a vector for each class, of
    which two classes need one."""
    return 8 * (2 * outputs + 1 + classes * outputs * (outputs + 1) // 2 + classes * outputs)


def job(protocol: str, parties: Sequence[str], params: Params) -> JobSpec:
    """Everybody learns from all rows, and an aggregator without any adds up."""
    return harness.job(protocol, parties, params, parties, AGGREGATOR)


def networks_of(classes: int, rounds: int, outputs: int = OUTPUTS) -> dict[str, Any]:
    """Settings of a job of networks."""
    point = replace(POINT, size=outputs)
    said = gbun_params(classes, point, rounds).model_dump(mode="json", exclude_unset=True)
    return {**said, "eval_metric": list(said["eval_metric"])}


def trees_of(classes: int, rounds: int, bins: int) -> dict[str, Any]:
    """Settings of the trees that stand beside them, with as many leaves as the least outputs."""
    own = networks_of(classes, rounds)
    shared = {name: own[name] for name in SHARED if name in own}
    return {**shared, "max_depth": TREE_DEPTH, "max_bin": bins}


def in_order(table: Table, count: int) -> dict[str, Table]:
    """Equal shares of the rows, in order."""
    edges = np.linspace(0, len(table.y), count + 1).astype(int).tolist()
    at = np.arange(len(table.y))
    return {
        party: table.where((at >= start) & (at < stop))
        for party, (start, stop) in zip(tables.party_names(count), pairwise(edges), strict=True)
    }


def deal_sparse(
    columns: int, parties: Sequence[str], folder: Path, rows: int = 400, stored: int = 20
) -> dict[str, SourceSpec]:
    """Writes random rows of so many columns with some values each, as svmlight files."""
    draw = np.random.default_rng(columns)
    folder.mkdir(parents=True, exist_ok=True)
    sources = {}
    for party in parties:
        lines = []
        for _ in range(rows):
            indices = np.unique(np.append(draw.integers(0, columns, stored), columns - 1))
            cells = " ".join(f"{place + 1}:{draw.random():.3f}" for place in indices.tolist())
            lines.append(f"{draw.integers(0, 2)} {cells}")
        path = folder / f"{party}.svmlight"
        path.write_text("\n".join(lines) + "\n")
        sources[party] = SourceSpec(path=str(path))
    return sources


# Scores


def accuracy(name: str, plan: Plan) -> Iterator[Row]:
    """All systems on all splits of a data set."""
    return gbun_accuracy.searched(name, plan.rows_of(name), plan.grids[name], plan.rounds)


# Bytes


def sent(name: str, plan: Plan) -> Iterator[Row]:
    """What each party sends up in a round, by columns; on dense rows beside that of trees.

    With two classes also of one that measures AUC, and of trees, which need more rows than those
    tables have that have more classes.
    """
    parties = tables.party_names(3)
    if name == SPARSE:
        for columns in plan.columns:
            deal = partial(deal_sparse, columns, parties)
            found = counted(NETWORKS, networks_of(2, plan.counted), parties, deal)
            yield {"columns": columns, "classes": 2, **found}
        return
    table, rounds = tables.load(name).sample(plan.rows_of(name)), plan.counted
    classes, shares = table.classes, in_order(table, 3)
    given = [(NETWORKS, networks_of(classes, rounds, outputs)) for outputs in plan.limited]
    if classes == 2:
        given.append((NETWORKS, {**networks_of(classes, rounds), "eval_metric": ["auc"]}))
        given.append((TREES, trees_of(classes, rounds, plan.bins)))
    for protocol, params in given:
        found = counted(protocol, params, parties, partial(tables.deal_rows, shares))
        yield {"columns": len(table.columns), "classes": classes, **found}


def counted(protocol: str, params: Params, parties: Sequence[str], deal: Deal) -> Row:
    """Bytes that a party sends in a round, the most of any, from the coordinator's journal."""
    rounds, steps = (
        params["n_estimators"],
        harness.run_here(job(protocol, parties, params), deal).steps,
    )
    own = [step for step in steps if step.stage == protocol and step.step not in BEFORE]
    up = {party: _sent(own, party) / rounds for party in parties}
    most = max(up, key=lambda party: up[party])
    by_step = {step.step: _sent([step], most) / rounds for step in own}
    classes = params.get("num_class") or 1
    return {
        "protocol": protocol,
        "outputs": params.get("outputs"),
        "rounds": rounds,
        "parties": len(parties),
        "up": up[most],
        "by_step": {step: count for step, count in by_step.items() if count},
        "metric": params["eval_metric"],
        "formula": formula(params["outputs"], classes) if protocol == NETWORKS else None,
        "once": sum(_sent([s], most) for s in steps if s.step in BEFORE),
    }


def _sent(steps: Sequence[StepTotal], party: str) -> int:
    links_of = (link for step in steps for link in step.bytes.items())
    return sum(count for link, count in links_of if link.startswith(f"{party}->"))


# Bandwidth, parties, and one table beside them


@contextmanager
def daemons(table: Table, count: int, around: Around = nullcontext) -> Iterator[Any]:
    """Trains by a protocol and its settings, job after job, on daemons of their own."""
    shares = in_order(table, count)
    names = list(shares)
    first = job(NETWORKS, names, networks_of(table.classes, 1))
    with harness.daemons(first, partial(tables.deal_rows, shares), around, TIMERS) as run:
        yield lambda protocol, params: run(job(protocol, names, params))


def bandwidth(name: str, plan: Plan) -> Iterator[Row]:
    """Seconds of a round behind lines of so many bits a second; trees beside them."""
    table = tables.load(name).sample(plan.rows_of(name))
    jobs = {
        f"GBUN, {outputs} outputs": (NETWORKS, networks_of(2, rounds, outputs))
        for outputs, rounds in plan.limited.items()
    }
    jobs["FederBoost, 64 leaves"] = (TREES, trees_of(2, min(plan.limited.values()), plan.bins))
    for rate in plan.rates:
        with daemons(table, 2, partial(links.shaped, link=Link(rate, 0.0))) as train:
            for system, own in jobs.items():
                yield {"system": system, "bits_per_s": rate, "parties": 2, **_round(train(*own))}


def _round(run: JobRun) -> Row:
    """Seconds of a job's rounds, the first one apart: it loads what has not been used yet."""
    seconds = [one["seconds"] for one in run.rounds]
    return {
        "seconds": seconds[1:] or seconds,
        "first": seconds[0],
        "cpu_s": run.training.get("ours"),
        "others": run.others,
        "load": run.load_before,
    }


def parties(name: str, plan: Plan) -> Iterator[Row]:
    """Seconds of a round by parties among whom the same rows are divided; one is one table."""
    table = tables.load(name).sample(plan.dealt)
    for count in plan.parties:
        with nullcontext() if count == 1 else daemons(table, count) as train:
            for outputs, rounds in plan.divided.items():
                params = networks_of(table.classes, rounds, outputs)
                if train is None:
                    found = _alone(table, params)
                else:
                    done = train(NETWORKS, params)
                    found = {**_round(done), "busiest_cpu_s": busiest(done, rounds)}
                yield {
                    **table.size,
                    "outputs": outputs,
                    "parties": count,
                    "rounds": rounds,
                    **found,
                }


def busiest(run: JobRun, rounds: int) -> float:
    """Processor seconds a round of the party that spends most, the aggregator not counted."""
    spent: dict[str, float] = {}
    for step in run.steps:
        if step.stage == NETWORKS and step.step not in BEFORE:
            for party, seconds in step.cpu_seconds.items():
                spent[party] = spent.get(party, 0.0) + seconds
    spent.pop(AGGREGATOR, None)
    return max(spent.values()) / rounds


def _alone(table: Table, params: Params) -> Row:
    load, cpu, started = harness.load_average(), time.process_time(), time.perf_counter()
    _pooled(table, params)
    seconds, spent = time.perf_counter() - started, time.process_time() - cpu
    each = 1.0 / params["n_estimators"]
    return {
        "seconds": [seconds * each], "first": seconds * each, "cpu_s": spent,
        "busiest_cpu_s": spent * each, "others": None, "load": load,
    }  # fmt: skip


def same(name: str, plan: Plan) -> Iterator[Row]:
    """How far margins of a federation of three are from those of one table."""
    table = tables.load(name)
    params = networks_of(table.classes, plan.same)
    with daemons(table, 3) as train:
        done = train(NETWORKS, params)
    pooled = _pooled(table, params).margins(table.values)
    frame = tables.frame(table, table.columns, labelled=False)
    found = [np.abs(networks.margins(one, frame) - pooled).max() for one in done.shards.values()]
    facts = {"parties": 3, "rounds": plan.same, "outputs": OUTPUTS, "gap": float(max(found))}
    yield {**table.size, **facts, "largest": float(np.abs(pooled).max())}


def _pooled(table: Table, params: Params) -> gbun.TrainedNetworks:
    own = {**params, "eval_metric": tuple(params["eval_metric"])}
    return gbun.train(
        local.TrainingTable(table.values, table.y.astype(np.float64)), gbun.GbunParams(**own)
    )


# Figures and plots


def figures(rows: Sequence[Row]) -> dict[str, float]:
    """INTERFACE.md's figures; those that the rows do not give are absent."""
    found = gbun_accuracy.figures(rows)
    for row in of(rows, "bytes"):
        if row["data"] == SPARSE:
            found[f"bytes_ratio.{row['columns']}"] = row["up"] / row["formula"]
    return found


def drawn(rows: Sequence[Row]) -> dict[str, Picture]:
    """Figures 4 to 7 of the paper."""
    found = gbun_accuracy.curves(rows)
    found["bandwidth"] = _bandwidth(of(rows, "bandwidth"))
    found["parties"] = _parties(of(rows, "parties"))
    return plots.known(found)


def _bandwidth(rows: Sequence[Row]) -> Picture | None:
    """Seconds of a round as multiples of those without a limit: Figure 7 of the paper."""
    lines = []
    for colour, group in enumerate(grouped(rows, "system"), 1):
        by_rate = {row["bits_per_s"]: median(row["seconds"]) for row in group}
        free = by_rate.pop(RATES[0], None)
        if free is not None and by_rate:
            points = [
                (math.log10(rate / 1e6), math.log10(spent / free))
                for rate, spent in sorted(by_rate.items())
            ]
            lines.append(Line(group[0]["system"], points, colour))
    title = "Seconds of a round ÷ unlimited (log10), by bandwidth (log10 of Mbit/s)"
    return plots.lines(title, lines, "log10 of Mbit/s")


def _parties(rows: Sequence[Row]) -> Picture | None:
    """Rounds a second as multiples of one party's: Figures 5 and 6 of the paper."""
    lines = []
    for colour, group in enumerate(grouped(rows, "outputs"), 1):
        first, outputs = group[0], f"{group[0]['outputs']} outputs"
        at = [float(row["parties"]) for row in group]
        wall = [median(first["seconds"]) / median(row["seconds"]) for row in group]
        own = [first["busiest_cpu_s"] / row["busiest_cpu_s"] for row in group]
        here = Line(f"{outputs}, here", list(zip(at, wall, strict=True)), colour, dashed=True)
        lines += [here, Line(f"{outputs}, CPU", list(zip(at, own, strict=True)), colour)]
    title = "Rounds a second ÷ those of one party: here, and by the busiest party's CPU seconds"
    return plots.lines(title, lines, "parties")


QUESTION = Question(
    *("gbun", __doc__ or ""),
    {
        "accuracy": Part(accuracy, gbun_accuracy.DATA),
        "bytes": Part(sent, (SPARSE, NEAR, COMPARED)), "bandwidth": Part(bandwidth, (NEAR,)),
        "parties": Part(parties, (DIVIDED,)), "federated": Part(same, (COMPARED,)),
    },
    full=Plan(), quick=QUICK, figures=figures,
    plots=drawn,
    settings={"test rows": "0.3 by id", "validation rows": "0.2 of the others"},
)  # fmt: skip

if __name__ == "__main__":
    QUESTION.main()
