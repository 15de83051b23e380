"""What jobs are expected to take beside what they take, on real daemons: time, memory, bytes.

python -m benchmarks.estimate [--quick] [--json F] [--record F] [--job NAME]
"""

import argparse
import math
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from benchmarks import harness, tables
from benchmarks.estimate_jobs import CASES, Case
from benchmarks.harness import JobRun, Report, Shown, say
from fedboost.runtime.estimate.estimate import Estimate, Placement, estimate
from fedboost.runtime.estimate.setting import from_tables

NAME, ABOUT = "estimate", "what `fedboost estimate` says beside what jobs take"
ROWS_MAX = 60_000  # of a quick run's tables
TIMES = 2  # that each job runs; the quicker one counts
TARGETS = {"seconds": 2.0, "bytes": 1.5, "memory": 1.5}
QUANTITIES = ("seconds", "bytes", "memory")


def main(given: Sequence[str] | None = None) -> None:
    """Measures, prints, writes; see the harness for the options."""
    options = _options(given)
    report = Report(NAME, {"times": TIMES, "quick": options.quick, "cores": harness.cores()})
    for case in CASES:
        if options.job and case.name not in options.job:
            continue
        say.print(f"{case.name}: {case.protocol} on {case.data}", style="bold")
        report.rows.append(measured(case, quick=options.quick))
    report.figures = figures(report.rows)
    shown = [_shown(report.rows), _times(report.rows)]
    report.write(options, shown)


def measured(case: Case, *, quick: bool) -> dict[str, Any]:
    """A job's estimate and what it took, twice."""
    with tempfile.TemporaryDirectory() as folder:
        pooled = pq.read_table(tables.data_folder() / f"{case.data}.parquet")
        if quick:
            pooled = pooled.slice(0, ROWS_MAX)
        sources = case.deal(pooled, Path(folder) / "data")
        spec = case.spec(quick=quick)
        found = estimate(from_tables(spec, sources), Placement(harness.cores()))
        runs = []
        with harness.daemons(spec, sources, Path(folder) / "cluster") as run:
            for _ in range(TIMES):
                runs.append(run(spec))
        best = min(runs, key=lambda one: one.result["seconds"]["total"])
        return {
            "job": case.name,
            "data": case.data,
            "protocol": case.protocol,
            "estimate": found.said(),
            "result": best.result,
            "load_average": best.load_before,
            "took": [one.result["seconds"]["total"] for one in runs],
            "ratios": ratios(_expected(found), taken(best)),
        }


def _expected(found: Estimate) -> dict[str, float]:
    return _quantities(found.said())


def taken(run: JobRun) -> dict[str, float]:
    """What a job took, quantity by quantity."""
    return _quantities(run.result)


def _quantities(said: Mapping[str, Any]) -> dict[str, float]:
    return {
        "seconds": said["seconds"]["total"],
        "bytes": float(sum(said["bytes"].values())),
        "memory": float(sum(said["memory_peak_bytes"].values())),
    }


def ratios(expected: Mapping[str, float], found: Mapping[str, float]) -> dict[str, float]:
    """Expected divided by measured, of what both have."""
    return {
        name: expected[name] / found[name] for name in found if found[name] and name in expected
    }


def figures(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """``ratio.QUANTITY.JOB``, and for each quantity how far the worst job is off."""
    flat = {
        f"ratio.{name}.{row['job']}": ratio
        for name in QUANTITIES
        for row in rows
        if (ratio := row["ratios"].get(name)) is not None
    }
    for name in QUANTITIES:
        own = [abs(math.log(row["ratios"][name])) for row in rows if name in row["ratios"]]
        if own:
            flat[f"worst.{name}"] = math.exp(max(own))
    return flat


def _shown(rows: Sequence[Mapping[str, Any]]) -> Shown:
    lines = []
    for row in rows:
        own = [row["ratios"].get(name) for name in QUANTITIES]
        lines.append((_name(row), *("–" if ratio is None else f"{ratio:.2f}" for ratio in own)))
    note = "Estimate ÷ measured; targets are factors of " + ", ".join(
        f"{most:g} in {name}" for name, most in TARGETS.items()
    )
    return Shown("Estimate ÷ measured", ("job", *QUANTITIES), lines, note)


def _times(rows: Sequence[Mapping[str, Any]]) -> Shown:
    return Shown(
        "Estimate and measurement",
        ("job", *(f"{what}, {of}" for what in _UNITS for of in ("expected", "measured")), "load"),
        [tuple(_line(row)) for row in rows],
    )


def _line(row: Mapping[str, Any]) -> Iterator[str]:
    yield _name(row)
    expected, found = _quantities(row["estimate"]), _quantities(row["result"])
    for what, unit in _UNITS.items():
        for own in (expected, found):
            yield f"{own[what] / unit:.3g}" if what in own else "–"
    yield f"{row['load_average'][0]:g}" if row["load_average"] else "–"


def _name(row: Mapping[str, Any]) -> str:
    return f"{row['job']} ({row['protocol']}, {row['data']})"


_UNITS = {"seconds": 1.0, "bytes": 1e6, "memory": 1e6}


def _options(given: Sequence[str] | None) -> argparse.Namespace:
    parser = harness.parser(NAME, ABOUT, sorted({case.data for case in CASES}))
    names = [case.name for case in CASES]
    parser.add_argument("--job", action="append", choices=names, help="only this job")
    return harness.parse(parser, sorted({case.data for case in CASES}), given)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", str(harness.cores()))
    main()
