"""What FederBoost costs in accuracy and time: sections 6.1 and 6.2 of its paper.

python -m benchmarks.federboost [--quick] [--json F] [--record F] [--data NAME]
[--part PART] [--plots FOLDER] [--from F]

Parts: utility and time of the vertical half, here; those of the horizontal half, which are in
`federboost_horizontal`.
"""

import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict
from typing import Any

from benchmarks import (
    federboost_horizontal,
    federboost_horizontal_tables,
    federboost_jobs,
    federboost_plots,
    federboost_room,
    federboost_tables,
    federboost_times,
    harness,
    links,
    tables,
)
from benchmarks.federboost_horizontal_jobs import Plan as Horizontal
from benchmarks.federboost_jobs import DATA, UTILITY, Around, Compared, Params, Plan, Train
from benchmarks.federboost_tables import DAEMONS, ONE_PROCESS, WAN
from benchmarks.federboost_times import facts
from benchmarks.harness import say
from benchmarks.links import Link
from benchmarks.parts import Parted
from benchmarks.plus_tables import Row
from benchmarks.tables import Table

PARTS = ("utility", "time", *federboost_horizontal.PARTS)
TIMED = "give_credit"  # where training is timed beside XGBoost's


def measure_utility(name: str, plan: Plan) -> list[Row]:
    """AUC by buckets and by noise, beside XGBoost's."""
    table = plan.table(name)
    dealt = federboost_jobs.parts(table, 2)
    shapes: list[tuple[int, float | None]] = [(buckets, None) for buckets in plan.buckets]
    shapes += [(federboost_jobs.BEST, epsilon) for epsilon in plan.epsilons]
    rows = []
    for seed in plan.seeds:
        say.print(f"[bold]{name}[/]: {len(table.y)} rows, {len(shapes)} jobs, split {seed}")
        held = table.held_out(federboost_jobs.HELD, seed)
        test = federboost_jobs.rows_of(table, held)
        same = federboost_jobs.xgboost_params(federboost_jobs.params(name))
        pooled = tables.xgboost_scores(table, held, same, harness.cores())["validation"]
        for buckets, epsilon in shapes:
            given = federboost_jobs.params(name, buckets=buckets, epsilon=epsilon)
            shards = federboost_room.train(table, dealt, given, held).shards
            scored = federboost_room.predict(shards, test, dealt)
            auc = federboost_room.auc(test, scored)
            rows.append(
                {"what": "utility", **facts(table), "seed": seed, "buckets": buckets,
                 "epsilon": epsilon, "auc": auc, "xgboost": pooled}
            )  # fmt: skip
    return rows


def measure_compared(one: Compared, plan: Plan) -> Row:
    """A row of Table 2 or 3, on daemons."""
    table = one.table()
    say.print(f"[bold]{one.title}[/]: {one.trees} trees, {len(table.y)} rows, daemons")
    with federboost_jobs.daemons(table, one.parties) as run:
        spent = _timed(run, one.params, plan.repeats)
    size = {**facts(table), "parties": one.parties, "trees": one.trees}
    return {"what": "compared", **size, "title": one.title, "paper_s": one.paper_s, **spent}


def measure_parties(name: str, plan: Plan) -> list[Row]:
    """Seconds by the number of parties, of those that have a column each."""
    table = plan.table(name)
    given = federboost_jobs.timed(name)
    rows = []
    for parties in plan.walked:
        if parties <= len(table.columns):
            spent = walk(table, parties, given, plan.repeats)
            rows.append({"network": ONE_PROCESS, "parties": parties, **spent})
    networks: dict[str, Around] = {DAEMONS: nullcontext, WAN: links.shaped}
    for network, around in networks.items() if name == federboost_tables.FAR else ():
        for parties in plan.daemons:
            say.print(f"[bold]{name}[/]: {parties} parties, {network}")
            with federboost_jobs.daemons(table, parties, around) as run:
                rows.append({"network": network, "parties": parties, **_timed(run, given, 0)})
    return [{"what": "parties", **facts(table), **row} for row in rows]


def walk(table: Table, parties: int, given: Params, repeats: int) -> Row:
    """What a stage takes in this process, after a first one."""
    dealt = federboost_jobs.parts(table, parties)
    load = harness.load_average()
    found = [federboost_room.train(table, dealt, given) for _ in range(1 + repeats)][1:]
    sent = sum(found[-1].sent.values())
    return {"seconds": [one.total for one in found], "sent": sent, "load": load}


def measure_xgboost(name: str, plan: Plan) -> Row:
    """Seconds of training beside XGBoost's, on the same rows and cores."""
    whole = plan.table(name)
    kept = ~whole.held_out(federboost_jobs.HELD, plan.seeds[0])
    table = federboost_jobs.rows_of(whole, kept)
    given = federboost_jobs.timed(name)
    say.print(f"[bold]{name}[/]: {len(table.y)} rows beside XGBoost")
    fitted = {
        f"{bins} bins, n_jobs {threads}": fit_seconds(table, given, (bins, threads), plan.repeats)
        for bins in BINS
        for threads in (1, harness.cores())
    }
    with federboost_jobs.daemons(table, 2) as run:
        spent = _timed(run, given, plan.repeats)
    size = {**facts(table), "parties": 2}
    return {"what": "xgboost", **size, "xgboost": fitted, **spent}


def _timed(run: Train, given: Params, repeats: int) -> Row:
    return federboost_times.spent(*federboost_times.jobs(run, given, repeats))


BINS = (256, federboost_jobs.BEST)  # XGBoost's default, and as many as the hosts' buckets


def fit_seconds(
    table: Table, given: Params, bins_and_threads: tuple[int, int], repeats: int
) -> list[float]:
    """Of XGBoost's histogram trees on a whole table, after a first time."""
    import xgboost

    bins, threads = bins_and_threads
    same = {**federboost_jobs.xgboost_params(given), "max_bin": bins, "tree_method": "hist"}
    seconds = []
    for _ in range(1 + repeats):
        started = time.perf_counter()
        xgboost.XGBClassifier(n_jobs=threads, **same).fit(table.values, table.y)
        seconds.append(time.perf_counter() - started)
    return seconds[1:]


def measure(name: str, plan: Plan, part: str) -> list[Row]:
    """Everything of one data set and part of the benchmark, in rows as JSON can say them."""
    if part == "utility":
        return measure_utility(name, plan) if name in UTILITY else []
    if part != "time":
        return []
    rows = [measure_compared(one, plan) for one in plan.compared if one.data == name]
    if name == TIMED:
        rows.append(measure_xgboost(name, plan))
    return [*rows, *measure_parties(name, plan)]


def settings(plan: tuple[Plan, Horizontal], _: bool) -> dict[str, Any]:
    """What was run, in words and numbers."""
    vertical, horizontal = plan
    trees = [
        f"{name}: {one['n_estimators']} × {one['max_depth']} layers"
        for name, one in federboost_jobs.TREES.items()
    ]
    return {
        **federboost_jobs.SHARED,
        "trees": trees,
        "test rows": "a third by id, seeds 0 …",
        "eval_metric where timed": federboost_jobs.timed(TIMED)["eval_metric"],
        "WAN": [f"{key} {value:g}" for key, value in asdict(Link()).items()],
        **{name: value for name, value in asdict(vertical).items() if name != "compared"},
        **federboost_horizontal.settings(horizontal),
    }


def measure_both(name: str, plan: tuple[Plan, Horizontal], part: str) -> list[Row]:
    """What `measure` gives of both halves."""
    vertical, horizontal = plan
    return measure(name, vertical, part) + federboost_horizontal.measure(name, horizontal, part)


def figures(rows: Sequence[Row]) -> dict[str, float]:
    """INTERFACE.md's, of both halves."""
    return federboost_tables.figures(rows) | federboost_horizontal_tables.figures(rows)


BENCHMARK = Parted(
    "federboost", __doc__ or "", DATA, PARTS,
    lambda asked: (Plan.of(quick=asked.quick), Horizontal.of(quick=asked.quick)), settings,
    measure_both, figures,
    lambda rows: federboost_tables.shown(rows) + federboost_horizontal_tables.shown(rows),
    federboost_plots.write,
)  # fmt: skip


if __name__ == "__main__":
    BENCHMARK.main()
