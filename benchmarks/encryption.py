"""What encryption costs by scheme: operations, whole trees, bytes, memory, accuracy.

python -m benchmarks.encryption [--quick] [--json F] [--markdown F] [--data NAME]
[--part ops|trees|auc|memory] [--from F]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks import (
    encryption_jobs,
    encryption_operations,
    encryption_plan,
    encryption_tables,
    harness,
    parts,
    plus_jobs,
)
from benchmarks.encryption_operations import OPERATIONS
from benchmarks.encryption_plan import AUC, DATA, TREES, Plan
from benchmarks.harness import Report
from benchmarks.plus_tables import Row

NAME = "encryption"
OPS = "ops"
INTRO = f"""# What encryption costs, scheme by scheme

Written by `python -m benchmarks.encryption --markdown F`; run it again to refresh it. The lattice
schemes are described in [the lattice scheme](../explanation/lattice.md).

`add_ratio` is the processor time that adding one row to one cell takes with Paillier of 2048 bits,
divided by that of `lattice`. `tree_ratio` is the same of the wall time of a whole tree: guest, host
and coordinator are daemons of their own on one machine, on loopback with mTLS, with every switch of
SecureBoost+ on and all rows (no GOSS), {plus_jobs.SHAPE["max_bin"]} bins, nothing held out. Times
are medians of trees after the first; CPU seconds are those of all processes, means of the same
trees; those by party are of all trees, keys included.

`{encryption_plan.SYNTHETIC}` is made of random numbers, {encryption_plan.GUEST_COLUMNS} columns of
the guest's and {encryption_plan.HOST_COLUMNS} of the host's, of each of which
{encryption_plan.MISSING:.0%} are missing, so that most candidates are there twice (missing rows
left or right). There the schemes with a modulus are timed on samples of rows, and what they would
take on all of them is the straight line through two samples, not a measurement. `memory_gb` is the
host's peak there with `lattice`, alignment included.

`auc_gap` is |training AUC of Paillier's model − that of lattice's|; trees with Paillier are those
of no encryption, bit for bit, and AUC is that of a model trained without."""


def measure_operations(name: str, plan: Plan) -> list[Row]:
    """Of no data set."""
    assert name == OPERATIONS
    return encryption_operations.measure(plan)


MEASURES: dict[str, tuple[tuple[str, ...], Callable[[str, Plan], list[Row]]]] = {
    OPS: ((OPERATIONS,), measure_operations),
    "trees": (TREES, encryption_jobs.measure_trees),
    "memory": (TREES, encryption_jobs.measure_memory),
    "auc": (AUC, encryption_jobs.measure_auc),
}
PARTS = tuple(MEASURES)


def timed(name: str, plan: Plan, part: str) -> list[Row]:
    """Everything of one data set and part, in rows as JSON can say them, and how long it took."""
    known, measure = MEASURES[part]
    if name not in known:
        return []
    started = time.perf_counter()
    rows = measure(name, plan)
    spent = {"data": name, "part": part, "seconds": time.perf_counter() - started}
    return [*rows, {"what": f"seconds of {part}", **spent}] if rows else []


def settings(plan: Plan, *, quick: bool) -> dict[str, Any]:
    """What was run, in words and numbers."""
    return {
        **plus_jobs.SHAPE,
        "validation": f"{plus_jobs.VALIDATION['fraction']} by id, seed {plus_jobs.SEED}, AUC alone",
        "parties": "1 guest, 1 host",
        **{name.replace("_", " "): value for name, value in asdict(plan).items()},
        "quick": quick,
    }


def options(given: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line: that of every benchmark, and more."""
    found = harness.parse(parts.parser(NAME, __doc__ or "", DATA, PARTS), DATA, given)
    found.part = found.part or list(PARTS)
    return found


def earlier(files: Sequence[Path]) -> Report:
    """The rows of earlier runs; where two measured the same of a data set, the later file's."""
    return parts.earlier(files, (OPERATIONS, *DATA), encryption_tables.figures)


def main(given: Sequence[str] | None = None) -> None:
    """Runs the benchmark as the command line says."""
    asked = options(given)
    if asked.earlier:
        report = earlier(asked.earlier)
    else:
        plan = Plan.of(quick=asked.quick)
        report = Report(NAME, settings(plan, quick=asked.quick))
        for part in asked.part:
            for name in (OPERATIONS, *asked.data):
                report.rows += timed(name, plan, part)
        report.figures = encryption_tables.figures(report.rows)
    report.write(asked, encryption_tables.shown(report.rows), INTRO)


if __name__ == "__main__":
    main()
