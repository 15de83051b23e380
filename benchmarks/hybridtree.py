"""HybridTree beside everything else that hybrid data allows: accuracy, time, bytes, shared rules.

python -m benchmarks.hybridtree [--quick] [--json F] [--record F] [--data NAME]
[--part accuracy|trees|predictions|rules] [--plots FOLDER] [--from F]
"""

import multiprocessing
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from typing import Any

from benchmarks import (
    harness,
    hybridtree_accuracy,
    hybridtree_data,
    hybridtree_jobs,
    hybridtree_plots,
    hybridtree_tables,
    meta_rules,
    parts,
)
from benchmarks.hybridtree_plan import Plan
from benchmarks.parts import Parted
from benchmarks.plus_tables import Row

TABLES = hybridtree_data.DATA
DATA = (*TABLES, *(name for name in meta_rules.DATA if name not in TABLES))


def measure_accuracy(name: str, plan: Plan) -> list[Row]:
    """All experiments on one data set, as many at once as there are cores."""
    experiments = list(plan.experiments(name))
    with ProcessPoolExecutor(harness.cores(), multiprocessing.get_context("spawn")) as pool:
        return list(pool.map(hybridtree_accuracy.measured, experiments))


def measure_rules(name: str, plan: Plan) -> list[Row]:
    """Figure 3a."""
    params = meta_rules.PARAMS.model_copy(update={"n_estimators": plan.rule_trees})
    return meta_rules.measure([name], params, plan.rule_rows)


MEASURES: dict[str, tuple[tuple[str, ...], Callable[[str, Plan], list[Row]]]] = {
    "accuracy": (TABLES, measure_accuracy),
    "trees": (TABLES, hybridtree_jobs.measure_trees),
    "predictions": (TABLES, hybridtree_jobs.measure_predictions),
    "rules": (meta_rules.DATA, measure_rules),
}


def measure(name: str, plan: Plan, part: str) -> list[Row]:
    """Everything of one data set and part, in rows as JSON can say them, and how long it took."""
    return parts.timed(MEASURES, name, plan, part)


def settings(plan: Plan, _: bool) -> dict[str, Any]:
    """What was run, in words and numbers."""
    return {
        **hybridtree_accuracy.SHAPE,
        "max_bin": hybridtree_accuracy.MAX_BIN,
        "guest_depth": 7 - hybridtree_accuracy.HOST_DEPTH,
        "host_depth": hybridtree_accuracy.HOST_DEPTH,
        "scheme": f"{hybridtree_jobs.SCHEME}, {hybridtree_jobs.KEY_BITS} bits",
        **{name.replace("_", " "): value for name, value in asdict(plan).items()},
    }


BENCHMARK = Parted(
    "hybridtree", __doc__ or "", DATA, tuple(MEASURES), lambda asked: Plan.of(quick=asked.quick),
    settings, measure, hybridtree_tables.figures, hybridtree_tables.shown, hybridtree_plots.write,
)  # fmt: skip


if __name__ == "__main__":
    BENCHMARK.main()
