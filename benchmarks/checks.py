"""What checks of a guest cost: give_credit under the lattice scheme, on daemons.

python -m benchmarks.checks [--quick] [--json F] [--record F]

Jobs run by turns: as usual, with hosts that check gradients (`gradient_check`), and with a guest
that can be replayed (`replayable`), which is replayed afterwards. CPU seconds are of all parties'
training, those of a replay of the process that does it.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import mean
from typing import Any

from benchmarks import encryption_jobs, harness, plus_jobs, tables
from benchmarks.encryption_plan import LATTICE
from benchmarks.harness import Report, Shown
from benchmarks.tables import GUEST
from benchmarks.tree_cost import Cost
from fedboost.job import JobSpec
from fedboost.runtime.cluster.cluster import ClusterProcesses

NAME = "checks"
DATA, TREES, DEPTH, TURNS = "give_credit", 10, 5, 3
QUICK = 3_000  # rows
USUAL, CHECKED, REPLAYED = "usual", "gradient_check", "replayable"
KINDS = (USUAL, CHECKED, REPLAYED)


def job(spec: JobSpec, kind: str) -> JobSpec:
    """The job with one of the checks, or none."""
    params = {**spec.params, "gradient_check": kind == CHECKED}
    return spec.model_copy(update={"params": params, "replayable": kind == REPLAYED})


def measured(rows: int | None, turns: int) -> list[dict[str, Any]]:
    """A row for each job."""
    table, clusters = tables.load(DATA), list[ClusterProcesses]()
    table = table if rows is None else table.first(rows)
    spec, found = encryption_jobs.job(table, TREES, LATTICE, DEPTH), []

    def around(made: ClusterProcesses) -> Any:
        clusters.append(made)
        return tempfile.TemporaryDirectory()

    with tempfile.TemporaryDirectory() as folder:
        sources = tables.deal(table, plus_jobs.parts(table), Path(folder) / "data")
        with harness.daemons(spec, sources, Path(folder) / "cluster", around) as run:
            run(job(spec, CHECKED))  # what is loaded and compiled once
            for _ in range(turns):
                for kind in KINDS:
                    done = run(job(spec, kind))
                    cost = Cost.of(done)
                    cpu = sum(sum(step.cpu_seconds.values()) for step in done.steps)
                    row = {"kind": kind, "rows": len(table.y), "cpu_s": cpu, "wall_s": cost.wall_s,
                           "sent": cost.sent, "replay_cpu_s": None}  # fmt: skip
                    if kind == REPLAYED:
                        config = clusters[0].config(GUEST)
                        row["replay_cpu_s"] = replay(done.result["job"], config)
                    found.append(row)
    return found


def replay(job_id: str, config: Path) -> float:
    """CPU seconds of a replay, which has to find the guest honest."""
    words = [sys.executable, "-m", "fedboost", "audit", "replay", job_id]
    words += ["--config", str(config), "--json"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    said = json.loads(done.stdout.splitlines()[-1])
    assert said["is_honest"]
    return float(said["cpu_seconds"])


def cells(kind: str, rows: list[dict[str, Any]]) -> tuple[str, ...]:
    """A row for people: means of a kind's jobs, beside the usual ones."""

    def figure(of: str, what: str) -> float:
        return float(mean(row[what] for row in rows if row["kind"] == of))

    whole = [figure(kind, what) for what in ("wall_s", "cpu_s", "sent")]
    ratios = [figure(kind, what) / figure(USUAL, what) for what in ("wall_s", "cpu_s", "sent")]
    times = f"{whole[0]:.3f} ({ratios[0]:.2f})", f"{whole[1]:.2f} ({ratios[1]:.2f})"
    again = figure(kind, "replay_cpu_s") if kind == REPLAYED else None
    share = "" if again is None else f"{again:.2f} ({again / whole[1]:.1%})"
    return kind, *times, f"{whole[2] / 1e6:.2f} ({ratios[2]:.2f})", share


def main(given: list[str] | None = None) -> None:
    """Measure what the command line asks for."""
    options = harness.arguments(NAME, __doc__, (), given)
    settings: dict[str, Any] = {"data": DATA, "trees": TREES, "depth": DEPTH, "turns": TURNS}
    report = Report(NAME, settings)
    report.rows = measured(QUICK if options.quick else None, 1 if options.quick else TURNS)
    heads = ("job", "s a tree", "CPU s of all parties", "MB a tree", "CPU s of a replay")
    shown = [cells(kind, report.rows) for kind in KINDS]
    report.write(options, [Shown("Checks of a guest", heads, shown)])


if __name__ == "__main__":
    main()
