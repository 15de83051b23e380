"""What encryption costs by scheme: operations, whole trees, bytes, memory, accuracy.

python -m benchmarks.encryption [--quick] [--json F] [--record F] [--data NAME]
[--part ops|trees|auc|memory] [--from F]

With a line between all daemons, 20 Mbit/s each way and 50 ms there and back, trees and round trips:
python -m benchmarks.encryption --link 20mbit,50ms [--part link|trips] and the rest as above
"""

import argparse
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from benchmarks import (
    encryption_jobs,
    encryption_link,
    encryption_link_tables,
    encryption_operations,
    encryption_tables,
    encryption_trips,
    harness,
    plus_jobs,
)
from benchmarks.encryption_operations import OPERATIONS
from benchmarks.encryption_plan import AUC, DATA, TREES, Plan
from benchmarks.harness import Report
from benchmarks.links import Link
from benchmarks.parts import Parted, timed
from benchmarks.plus_tables import Row

LINKED = "encryption_link"  # of a report over a line
OPS = "ops"


def measure_operations(name: str, plan: Plan) -> list[Row]:
    """Of no data set."""
    assert name == OPERATIONS
    return encryption_operations.measure(plan)


MEASURES: dict[str, tuple[tuple[str, ...], Callable[[str, Plan], list[Row]]]] = {
    OPS: ((OPERATIONS,), measure_operations),
    "trees": (TREES, encryption_jobs.measure_trees),
    "memory": (TREES, encryption_jobs.measure_memory),
    "auc": (AUC, encryption_jobs.measure_auc),
    "link": (encryption_link.DATA, encryption_link.measure),
    "trips": ((encryption_trips.TABLE,), encryption_trips.measure),
}
LINK_PARTS = ("link", "trips")
PARTS = tuple(MEASURES)


def measure(name: str, plan: Plan, part: str) -> list[Row]:
    """Everything of one data set and part, in rows as JSON can say them, and how long it took."""
    return timed(MEASURES, name, plan, part)


def settings(plan: Plan, _: bool) -> dict[str, Any]:
    """What was run, in words and numbers."""
    return {
        **plus_jobs.SHAPE,
        "validation": f"{plus_jobs.VALIDATION['fraction']} by id, seed {plus_jobs.SEED}, AUC alone",
        "parties": "1 guest, 1 host",
        **{name.replace("_", " "): value for name, value in asdict(plan).items()},
        "link": "none" if plan.link is None else plan.link.words,
    }


def figures(rows: list[Row]) -> dict[str, float]:
    """What the claims stand on, of all parts."""
    return encryption_tables.figures(rows) | encryption_link_tables.figures(rows)


class Encryption(Parted):
    """The benchmark, of which some parts need a line between all daemons and the others none."""

    def options(self, given: Sequence[str] | None = None) -> argparse.Namespace:
        """Return what the command line says; all parts with or without a line if it names none."""
        parser = self.parser()
        parser.add_argument(
            *("--link",), type=Link.parse_round_trip, metavar="20mbit,50ms",
            help="a line between all daemons: its rate each way, and there and back",
        )  # fmt: skip
        found = harness.parse(parser, self.data, given)
        wanted = [part for part in PARTS if (part in LINK_PARTS) == (found.link is not None)]
        found.part = found.part or wanted
        if not set(found.part) <= set(wanted):
            parser.error(f"--part {' and '.join(LINK_PARTS)} go with --link, the others without")
        return found

    def measured(self, asked: argparse.Namespace) -> Report:
        """See `Parted`; operations are measured on no data set."""
        asked.data = [*dict.fromkeys([OPERATIONS, *asked.data])]
        report = super().measured(asked)
        report.name = LINKED if asked.link else self.name
        return report


BENCHMARK = Encryption(
    "encryption", __doc__ or "", (OPERATIONS, *DATA), PARTS,
    lambda asked: Plan.of(quick=asked.quick, link=asked.link), settings, measure, figures,
    lambda rows: encryption_tables.shown(rows) + encryption_link_tables.shown(rows),
)  # fmt: skip


if __name__ == "__main__":
    BENCHMARK.main()
