"""Boosted networks beside XGBoost and LightGBM, and what a federation of them costs.

python -m benchmarks.gbun [--quick] [--json F] [--record F] [--data NAME]
[--part accuracy|bytes|bandwidth|parties|federated] [--plots FOLDER] [--from F]
"""

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from benchmarks import gbun_accuracy, gbun_jobs, gbun_plots, gbun_tables
from benchmarks.gbun_jobs import COMPARED, DIVIDED, NEAR
from benchmarks.gbun_plan import ACCURACY, DATA, SPARSE, TEST, VALIDATION, Plan
from benchmarks.parts import Parted
from benchmarks.plus_tables import Row

MEASURES: dict[str, tuple[tuple[str, ...], Callable[[str, Plan], list[Row]]]] = {
    "accuracy": (ACCURACY, gbun_accuracy.measure),
    "bytes": ((SPARSE, NEAR, COMPARED), gbun_jobs.measure_bytes),
    "bandwidth": ((NEAR,), gbun_jobs.measure_bandwidth),
    "parties": ((DIVIDED,), gbun_jobs.measure_parties),
    "federated": ((COMPARED,), gbun_jobs.measure_same),
}


def measure(name: str, plan: Plan, part: str) -> list[Row]:
    """Everything of one data set and part of the benchmark, in rows as JSON can say them."""
    known, found = MEASURES[part]
    return found(name, plan) if name in known else []


def settings(plan: Plan, _: bool) -> dict[str, Any]:
    """What was run, in words and numbers."""
    return {
        "test rows": f"{TEST:g} by id, split 0 …",
        "validation rows": f"{VALIDATION:g} of the others",
        "threads of XGBoost and LightGBM": gbun_accuracy.THREADS,
        "point of the jobs": [f"{k} {v}" for k, v in asdict(gbun_jobs.POINT).items()],
        "trees of the jobs": [f"{k} {v}" for k, v in gbun_jobs.TREE.items()],
        **{name: value for name, value in asdict(plan).items() if name != "grids"},
    }


BENCHMARK = Parted(
    "gbun", __doc__ or "", DATA, tuple(MEASURES), lambda asked: Plan.of(quick=asked.quick),
    settings, measure, gbun_tables.figures, gbun_tables.shown, gbun_plots.write,
)  # fmt: skip


if __name__ == "__main__":
    BENCHMARK.main()
