"""Boosted networks beside XGBoost and LightGBM, and what a federation of them costs.

python -m benchmarks.gbun [--quick] [--json F] [--record F] [--data NAME]
[--part accuracy|bytes|bandwidth|parties|federated] [--plots FOLDER] [--from F]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks import gbun_accuracy, gbun_jobs, gbun_plots, gbun_tables, harness, parts
from benchmarks.gbun_jobs import COMPARED, DIVIDED, NEAR
from benchmarks.gbun_plan import ACCURACY, DATA, SPARSE, TEST, VALIDATION, Plan
from benchmarks.harness import Report
from benchmarks.plus_tables import Row

NAME = "gbun"
MEASURES: dict[str, tuple[tuple[str, ...], Callable[[str, Plan], list[Row]]]] = {
    "accuracy": (ACCURACY, gbun_accuracy.measure),
    "bytes": ((SPARSE, NEAR, COMPARED), gbun_jobs.measure_bytes),
    "bandwidth": ((NEAR,), gbun_jobs.measure_bandwidth),
    "parties": ((DIVIDED,), gbun_jobs.measure_parties),
    "federated": ((COMPARED,), gbun_jobs.measure_same),
}
KINDS = tuple(MEASURES)


def measure(name: str, plan: Plan, part: str) -> list[Row]:
    """Everything of one data set and part of the benchmark, in rows as JSON can say them."""
    known, found = MEASURES[part]
    return found(name, plan) if name in known else []


def settings(plan: Plan, *, quick: bool) -> dict[str, Any]:
    """What was run, in words and numbers."""
    return {
        "test rows": f"{TEST:g} by id, split 0 …",
        "validation rows": f"{VALIDATION:g} of the others",
        "threads of XGBoost and LightGBM": gbun_accuracy.THREADS,
        "point of the jobs": [f"{k} {v}" for k, v in asdict(gbun_jobs.POINT).items()],
        "trees of the jobs": [f"{k} {v}" for k, v in gbun_jobs.TREE.items()],
        **{name: value for name, value in asdict(plan).items() if name != "grids"},
        "quick": quick,
    }


def options(given: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line: that of every benchmark, and more."""
    found = harness.parse(parts.parser(NAME, __doc__ or "", DATA, KINDS), DATA, given)
    found.part = found.part or list(KINDS)
    return found


def earlier(files: Sequence[Path]) -> Report:
    """The rows of earlier runs; where two measured the same of a data set, the later file's."""
    return parts.earlier(files, DATA, gbun_tables.figures)


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
                report.rows += measure(name, plan, part)
        report.figures = gbun_tables.figures(report.rows)
    if asked.plots is not None:
        gbun_plots.write(asked.plots, report.rows)
    report.write(asked, gbun_tables.shown(report.rows))


if __name__ == "__main__":
    main()
