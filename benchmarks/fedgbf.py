"""Dynamic FedGBF beside SecureBoost: accuracy, measured time, and the bounds that the paper gives.

python -m benchmarks.fedgbf [--quick] [--json F] [--record F] [--data NAME]
[--part accuracy|time] [--rounds N] [--plots FOLDER] [--from F]
"""

import argparse
from dataclasses import asdict, replace
from typing import Any

from benchmarks import fedgbf_jobs, fedgbf_plots, fedgbf_tables, harness, plus_jobs
from benchmarks.fedgbf_jobs import DATA, DYNAMIC, ROUNDS, SCHEME, SECUREBOOST, Plan
from benchmarks.harness import JobRun, say
from benchmarks.parts import Parted
from benchmarks.plus_tables import XGBOOST, Row
from benchmarks.tables import HOST, Table


def measure_accuracy(name: str, plan: Plan) -> list[Row]:
    """Scores of both systems and of XGBoost after each number of rounds."""
    table = plan.accuracy_table(name)
    facts = {"what": "scores", **_facts(table)}
    boosted = fedgbf_jobs.trained(table, SECUREBOOST, max(ROUNDS))
    pooled = fedgbf_jobs.pooled(table)
    rows = []
    for rounds in ROUNDS:
        moving = fedgbf_jobs.trained(table, DYNAMIC, rounds)
        scores = {DYNAMIC: moving[-1], SECUREBOOST: boosted[rounds - 1], XGBOOST: pooled[rounds]}
        rows += [{**facts, "system": one, "rounds": rounds, **scores[one]} for one in scores]
    return rows


def measure_time(name: str, plan: Plan) -> list[Row]:
    """What whole jobs of both systems take on the same daemons, and trees of forests alone."""
    table, rows = plan.timed_table(name), []
    facts = {"what": "time", **_facts(table), "scheme": SCHEME, "rounds": plan.rounds}
    with plus_jobs.daemons(table, SCHEME) as run:
        for system, draw, params in plan.jobs(name):
            say.print(f"[bold]{name}[/]: {len(table.y)} rows, {plan.rounds} rounds, {system}")
            cost = _cost(run(plan.rounds, params))
            rows.append({**facts, "system": system, "draw": draw, **cost})
    return rows


def _cost(run: JobRun) -> Row:
    """Of all rounds of a job, the making of its key included; bytes and exchanges without it."""
    own = [step for step in run.steps if step.stage == "secureboost" and step.step != "share_key"]
    before = [step for step in run.steps if step not in own and step.bytes]
    seconds = sum(lap.seconds for lap in run.trees)
    ours, others = harness.spent(run.trees)
    exchanges = run.result["exchanges"] - sum(step.calls for step in before)
    return {
        "wall_s": seconds,
        "cpu_s": ours,
        "sent": sum(sum(step.bytes.values()) for step in own),
        "exchanges": exchanges / len(run.trees),
        "others": None if others is None else others / seconds,
        "load": run.load_before,
        "test_auc": run.rounds[-1]["metrics"]["validation.auc"],
        "laps": [asdict(lap) for lap in run.trees],
    }


def _facts(table: Table) -> Row:
    columns = len(plus_jobs.parts(table)[HOST])
    return {"data": table.name, "rows": len(table.y), "host_columns": columns}


def measure(name: str, plan: Plan, part: str) -> list[Row]:
    """Everything of one data set and part of the benchmark, in rows as JSON can say them."""
    return measure_time(name, plan) if part == "time" else measure_accuracy(name, plan)


def settings(plan: Plan, _: bool) -> dict[str, Any]:
    """What was run, in words and numbers."""
    dynamic = fedgbf_jobs.PARAMS[DYNAMIC]["forest"]["dynamic"]
    return {
        **plus_jobs.SHAPE,
        **fedgbf_jobs.SHAPE,
        "scores at rounds": list(ROUNDS),
        **{f"dynamic {name}": list(both) for name, both in dynamic.items()},
        "scheme": f"{SCHEME}, {plus_jobs.KEY_BITS[SCHEME]} bits",
        "validation": f"{plus_jobs.VALIDATION['fraction']} by id, seed {plus_jobs.SEED}",
        "parties": "1 guest, 1 host",
        "timed rows at most": dict(plan.rows_max) or "all",
        "rows for scores at most": plan.accuracy_rows or "all",
        "timed rounds": plan.rounds,
        "trees timed alone": dict(plan.draws),
    }


class FedGbf(Parted):
    """The benchmark, whose rounds can be fewer."""

    def parser(self) -> argparse.ArgumentParser:
        """See `Parted`; and the number of rounds to time."""
        found = super().parser()
        found.add_argument("--rounds", type=int, metavar="N", help="time so many rounds")
        return found


def planned(asked: argparse.Namespace) -> Plan:
    """What to measure, in as many rounds as are asked for."""
    plan = Plan.of(quick=asked.quick)
    return plan if asked.rounds is None else replace(plan, rounds=asked.rounds)


BENCHMARK = FedGbf(
    "fedgbf", __doc__ or "", DATA, ("accuracy", "time"), planned, settings, measure,
    fedgbf_tables.figures, fedgbf_tables.shown, fedgbf_plots.write, ("scores", "time"),
)  # fmt: skip


if __name__ == "__main__":
    BENCHMARK.main()
