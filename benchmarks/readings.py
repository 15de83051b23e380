"""What a default job tells at most, by both readings of the account, and how many fit a budget.

Forecasts, which are bounds: one host with ten columns of 32 equal bins. `sums` is what a guest that
follows the protocol gets, equations for each bin and row; `placed` the share of rows whose bin the
sums could tell any guest. No row is placed more than once, so `placed` ends at 1.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.question import Part, Question
from benchmarks.rows import Row, Shown
from fedboost import protocols
from fedboost.flow import Table
from fedboost.ground.settings import parse_settings
from fedboost.runtime.config.policy import Policy

COLUMNS, BINS = 10, 32
PLACED_MAX = 0.25  # that an owner of a large table may set
JOBS: Mapping[str, dict[str, Any]] = {
    "default": {},
    "default, host_noise 1": {"host_noise": 1.0},
    "25 trees of depth 5": {"max_depth": 5},
}
LATTICES = {"lattice": 2_000_000, "lattice-large": math.inf}  # and the most rows of each


def row(job: str, settings: Mapping[str, Any], rows: int) -> dict[str, Any]:
    """What a job of so many rows tells at most."""
    secureboost = protocols.load_protocol("secureboost")
    scheme = next(name for name, most in LATTICES.items() if rows <= most)
    params = parse_settings(secureboost.params, {**settings, "encryption": {"scheme": scheme}})
    table = Table(guest="bank", hosts=("telco",))
    assert secureboost.policy.releases is not None
    releases = secureboost.policy.releases(params, table, "telco", COLUMNS)
    assert releases.sum_bits is not None
    sums = releases.ratio(rows)
    placed = releases.sum_bits(BINS, rows) / (rows * math.log2(BINS))
    return {"job": job, "rows": rows, "scheme": scheme, "sums": sums, "placed": placed}


def cells(found: Mapping[str, Any]) -> tuple[str, ...]:
    """A row for people."""
    fit = int(Policy().disclosure_max / found["sums"])
    fit_placed = int(PLACED_MAX / found["placed"])
    placed = f"{min(1.0, found['placed']):.3g}"
    numbers = f"{found['rows']:,}", f"{found['sums']:.2g}", placed, f"{fit:,}", f"{fit_placed:,}"
    return found["job"], *numbers


@dataclass(frozen=True)
class Plan:
    """Of how many rows forecasts are."""

    sizes: tuple[int, ...] = (3_000, 21_000, 100_000, 1_000_000, 10_000_000)


def measure(_: str, plan: Plan) -> Iterator[Row]:
    """Every job on every size."""
    return (row(job, own, rows) for job, own in JOBS.items() for rows in plan.sizes)


def shown(rows: Sequence[Row]) -> list[Shown]:
    """One table."""
    heads = ("job", "rows", "sums", "placed by sums", "jobs at 0.15", "jobs at placed_max 0.25")
    return [Shown("Both readings", heads, [*map(cells, rows)])]


QUESTION = Question(
    *("readings", __doc__ or "", {"forecasts": Part(measure)}, Plan(), Plan(), lambda _: {}, shown),
    settings={"columns": COLUMNS, "bins": BINS, "placed_max": PLACED_MAX},
)

if __name__ == "__main__":
    QUESTION.main()
