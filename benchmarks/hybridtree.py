"""HybridTree beside everything else that hybrid data allows: accuracy, time, bytes, shared rules.

python -m benchmarks.hybridtree [--quick] [--json F] [--record F] [--data NAME]
[--part accuracy|trees|predictions|rules] [--plots FOLDER] [--from F]
"""

from __future__ import annotations

import argparse
import multiprocessing
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from pathlib import Path
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
from benchmarks.harness import Report
from benchmarks.hybridtree_plan import Plan
from benchmarks.plus_tables import Row

NAME = "hybridtree"
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
KINDS = tuple(MEASURES)


def measure(name: str, plan: Plan, part: str) -> list[Row]:
    """Everything of one data set and part of the benchmark, in rows as JSON can say them."""
    known, found = MEASURES[part]
    return found(name, plan) if name in known else []


def timed(name: str, plan: Plan, part: str) -> list[Row]:
    """The same, and how long it took, if there was anything to do."""
    started = time.perf_counter()
    rows = measure(name, plan, part)
    spent = {"data": name, "part": part, "seconds": time.perf_counter() - started}
    return [*rows, {"what": f"seconds of {part}", **spent}] if rows else []


def settings(plan: Plan, *, quick: bool) -> dict[str, Any]:
    """What was run, in words and numbers."""
    return {
        **hybridtree_accuracy.SHAPE,
        "max_bin": hybridtree_accuracy.MAX_BIN,
        "guest_depth": 7 - hybridtree_accuracy.HOST_DEPTH,
        "host_depth": hybridtree_accuracy.HOST_DEPTH,
        "scheme": f"{hybridtree_jobs.SCHEME}, {hybridtree_jobs.KEY_BITS} bits",
        **{name.replace("_", " "): value for name, value in asdict(plan).items()},
        "quick": quick,
    }


def options(given: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line: that of every benchmark, and more."""
    found = harness.parse(parts.parser(NAME, __doc__ or "", DATA, KINDS), DATA, given)
    found.part = found.part or list(KINDS)
    return found


def earlier(files: Sequence[Path]) -> Report:
    """The rows of earlier runs; where two measured the same of a data set, the later file's."""
    return parts.earlier(files, DATA, hybridtree_tables.figures)


def main(given: Sequence[str] | None = None) -> None:
    """Runs the benchmark as the command line says."""
    asked = options(given)
    if asked.earlier:
        report = earlier(asked.earlier)
    else:
        plan = Plan.of(quick=asked.quick)
        report = Report(NAME, settings(plan, quick=asked.quick))
        for part in asked.part:
            for name in asked.data:
                report.rows += timed(name, plan, part)
        report.figures = hybridtree_tables.figures(report.rows)
    if asked.plots is not None:
        hybridtree_plots.write(asked.plots, report.rows)
    report.write(asked, hybridtree_tables.shown(report.rows))


if __name__ == "__main__":
    main()
