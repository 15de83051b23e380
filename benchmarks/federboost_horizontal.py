"""The horizontal half of the FederBoost benchmark: what is measured, part by part.

`python -m benchmarks.federboost` runs it; see there for the command line.
"""

import time
from collections.abc import Mapping
from dataclasses import asdict
from statistics import median
from typing import Any

from benchmarks import (
    federboost_horizontal_floor,
    federboost_horizontal_jobs,
    federboost_jobs,
    federboost_room,
    federboost_times,
    harness,
    links,
    tables,
)
from benchmarks.federboost_horizontal_jobs import BUCKETS, EXACT, PARTIES, Plan, Shares
from benchmarks.federboost_horizontal_tables import DAEMONS, FAR, ONE_PROCESS
from benchmarks.federboost_jobs import Params
from benchmarks.federboost_room import Trained
from benchmarks.federboost_times import facts
from benchmarks.harness import JobRun, say
from benchmarks.plus_tables import Row
from benchmarks.tables import GUEST

UTILITY, COMPARED, PARTIES_PART, WAN = PARTS = (
    "horizontal_utility",
    "horizontal_200",
    "horizontal_parties",
    "horizontal_wan",
)


def measure_utility(name: str, plan: Plan) -> list[Row]:
    """AUC by buckets, beside XGBoost's."""
    table = plan.table(name)
    shapes: list[tuple[int, int | None]] = [(buckets, None) for buckets in plan.buckets]
    shapes.append((BUCKETS, EXACT))
    rows = []
    for seed in plan.seeds:
        say.print(f"[bold]{name}[/], horizontal: {len(table.y)} rows, split {seed}")
        held = table.held_out(federboost_jobs.HELD, seed)
        test = federboost_jobs.rows_of(table, held)
        shares = federboost_horizontal_jobs.dealt(federboost_jobs.rows_of(table, ~held), PARTIES)
        same = federboost_jobs.xgboost_params(federboost_horizontal_jobs.params(name))
        pooled = tables.xgboost_scores(table, held, same, harness.cores())["validation"]
        for buckets, tolerance in shapes:
            given = federboost_horizontal_jobs.params(
                name, max_bin=buckets, quantile_tolerance=tolerance
            )
            shards = federboost_room.train_horizontal(shares, given, GUEST).shards
            auc = federboost_room.auc(test, federboost_room.predict_whole(shards, test))
            rows.append(
                {"what": UTILITY, **facts(table), "seed": seed, "buckets": buckets,
                 "tolerance": tolerance, "auc": auc, "xgboost": pooled}
            )  # fmt: skip
    return rows


def measure_compared(plan: Plan) -> list[Row]:
    """Table 2 on daemons, with its steps; in one process; and the floor."""
    table = federboost_horizontal_jobs.compared()
    shares = federboost_horizontal_jobs.dealt(table, PARTIES)
    given = federboost_horizontal_jobs.compared_params()
    size = {**facts(table), "parties": PARTIES, "trees": given["n_estimators"]}
    rows = []
    for aggregator in plan.aggregators:
        say.print(f"[bold]Table 2[/], horizontal: the aggregator is {aggregator}, daemons")
        with federboost_horizontal_jobs.daemons(shares, aggregator) as run:
            first, runs = federboost_times.jobs(run, given, plan.repeats)
        steps = [asdict(step) for step in federboost_times.of_stage(runs[-1])]
        timed = {**federboost_times.spent(first, runs), **_phases_of(runs), "steps": steps}
        rows.append({"what": COMPARED, **size, "network": DAEMONS, "by": aggregator, **timed})
    walked = walk(shares, given, plan.repeats)
    rows.append({"what": COMPARED, **size, "network": ONE_PROCESS, "by": GUEST, **walked})
    pooled = federboost_horizontal_floor.pooled_seconds(table, given, 1 + plan.repeats)
    for _ in range(2):  # compiled functions are loaded the first time
        alone = federboost_horizontal_floor.primitives(table, shares, given)
    return [*rows, {"what": "horizontal_floor", **size, "pooled": pooled, **alone}]


def measure_parties(name: str, plan: Plan) -> list[Row]:
    """Seconds by the number of parties, quantiles and trees apart."""
    table = plan.table(name)
    given = federboost_horizontal_jobs.params(name)
    size = {"what": PARTIES_PART, **facts(table)}
    rows = []
    for parties in plan.walked:
        say.print(f"[bold]{name}[/], horizontal: {parties} parties, one process")
        walked = walk(federboost_horizontal_jobs.dealt(table, parties), given, plan.again)
        rows.append({**size, "network": ONE_PROCESS, "parties": parties, **walked})
    for parties in plan.daemons if name in FAR else ():
        say.print(f"[bold]{name}[/], horizontal: {parties} parties, daemons")
        shares = federboost_horizontal_jobs.dealt(table, parties)
        with federboost_horizontal_jobs.daemons(shares) as run:
            first, runs = federboost_times.jobs(run, given, plan.again)
        timed = {**federboost_times.spent(first, runs), **_phases_of(runs)}
        rows.append({**size, "network": DAEMONS, "parties": parties, **timed})
    return rows


def measure_wan(name: str, plan: Plan) -> list[Row]:
    """Seconds, exchanges and bytes of two numbers of trees, for each way to lose a party."""
    table = plan.table(name)
    shares = federboost_horizontal_jobs.dealt(table, PARTIES)
    rows = []
    with federboost_horizontal_jobs.daemons(shares, around=links.shaped) as run:
        for dropout in plan.dropouts:
            shape = {"dropout": dropout, "colluders": 0 if dropout == "continue" else 1}
            for trees in plan.wan_trees:
                say.print(f"[bold]{name}[/], horizontal: {trees} trees, {dropout}, WAN")
                given = federboost_horizontal_jobs.params(name, n_estimators=trees, **shape)
                first, runs = federboost_times.jobs(run, given, 0)
                found = federboost_times.spent(first, runs)
                size = {**facts(table), "parties": PARTIES, "depth": given["max_depth"]}
                rows.append(
                    {"what": WAN, **size, "dropout": dropout, "trees": trees, **found,
                     "exchanges": first.result["exchanges"] / 2,  # both ways of each are counted
                     "searches": first.step("count_below").calls,
                     "rounds": [one["seconds"] for one in first.rounds]}
                )  # fmt: skip
    return rows


def walk(shares: Shares, given: Params, repeats: int) -> Row:
    """What a stage takes in this process, after a first one if there are repeats."""
    load = harness.load_average()
    found: list[Trained] = []
    cpu = []
    for _ in range(1 + repeats):
        started = time.process_time()
        found.append(federboost_room.train_horizontal(shares, given, GUEST))
        cpu.append(time.process_time() - started)
    counted = found[1:] or found
    spent = [phases(one.ends, one.began, one.ended) for one in counted]
    return {
        "seconds": [one.ended - one.began for one in counted],
        "first": found[0].ended - found[0].began,
        "cpu_s": median(cpu[1:] or cpu),
        "sent": sum(found[-1].sent.values()),
        "load": load,
        **_medians(spent),
    }


def phases(ends: Mapping[str, float], began: float, ended: float) -> Row:
    """Seconds up to the last cut point, up to the last tree's metrics, and behind these."""
    narrowed, measured = ends["narrow"], ends["read_metrics"]
    return {
        "quantiles": narrowed - began,
        "trees": measured - narrowed,
        "rest": ended - measured,
    }


def _phases_of(runs: list[JobRun]) -> Row:
    """Of jobs on daemons, by the coordinator's clock."""
    found = []
    for run in runs:
        ended = run.ends[run.result["protocol"]]
        found.append(phases(run.ends, ended - run.result["seconds"]["train"], ended))
    return _medians(found)


def _medians(spent: list[Row]) -> Row:
    return {"phases": {name: median(one[name] for one in spent) for name in spent[0]}}


def measure(name: str, plan: Plan, part: str) -> list[Row]:
    """Everything of one data set and part, in rows as JSON can say them."""
    if name not in federboost_horizontal_jobs.DATA or part not in PARTS:
        return []
    if part == UTILITY:
        return measure_utility(name, plan)
    if part == PARTIES_PART:
        return measure_parties(name, plan)
    if name != federboost_horizontal_jobs.COMPARED:
        return []
    return measure_compared(plan) if part == COMPARED else measure_wan(name, plan)


def settings(plan: Plan) -> dict[str, Any]:
    """What was run, in words and numbers."""
    known = {**federboost_horizontal_jobs.SHARED, **asdict(plan)}
    return {f"horizontal {name}": value for name, value in known.items()}
