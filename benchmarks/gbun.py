"""Boosted networks beside XGBoost and LightGBM, and what a federation of them costs.

python -m benchmarks.gbun [--quick] [--json F] [--markdown F] [--data NAME]
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
INTRO = """# GBUN: accuracy, bytes, bandwidth, parties

Written by `python -m benchmarks.gbun --markdown F --plots FOLDER`; run it again to refresh it.

**Accuracy** (Table 2 and Figure 4 of the paper). GBUN on one table, XGBoost (`hist`, 256 bins) and
LightGBM (no limit of depth, no bundles), all of the same rows and rounds. Three tenths of the rows
are for testing (Reuters has a file of its own), a fifth of the others for validation; models learn
from the rest. Model sizes, shrinkage and λ are points of the paper's grid, coarser: a table says
which. Where fewer rounds than the plan's were tried, the best points by validation were trained
anew for all rounds. `score_gap` takes the best test score over all rounds and points, as the paper
does: a choice that no one could make who does not know the test labels, though all three profit
from it. The score that validation rows choose stands beside it. AUC with two classes, else
accuracy, with mAP (the mean of the classes' average precision) beside it. Values are those of the
files, standardised by the protocol; for give_credit GBUN is shown on sign(x)·log(1 + |x|), too,
which every party could take of its own rows, but which is in no figure.

**Bytes** (`bytes_ratio`). Payloads that a party sends in a round, from the coordinator's journal,
all steps of the round, masks and metrics included, divided by
8·(2K + 1 + C·K(K+1)/2 + C·K); two classes count as C = 1. Three parties and an aggregator without
rows, all in one process, every message encoded. Beside them horizontal FederBoost, 32 bins, six
layers.

**Bandwidth** (Figure 7). Two parties, an aggregator and a coordinator, daemons of their own on one
machine; a proxy between any two limits each daemon to so many bits a second each way, without
latency. Without a limit they go through the same proxies. Ratios are of the median round after the
first. The daemons wait four minutes for a ping instead of five seconds, which a large vector on a
slow line holds back.

**Parties** (Figures 5 and 6). The same rows, divided among parties that are daemons on one machine:
more parties than cores cannot be faster here. What a round takes where each has a machine of its
own is bounded from below by the processor seconds of the busiest party, which stand beside. One
party is one table, without a federation.

**Federated.** Margins of a job of three daemons and of one table with all rows."""
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
        "point of the jobs": [f"{k} {v:g}" for k, v in asdict(gbun_jobs.POINT).items()],
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
    pictures = [] if asked.plots is None else gbun_plots.write(asked.plots, report.rows)
    intro = "\n\n".join([INTRO, *pictures])
    report.write(asked, gbun_tables.shown(report.rows), intro)


if __name__ == "__main__":
    main()
