"""What checks of a guest cost: give_credit under the lattice scheme, on daemons.

Jobs run by turns: as usual, with hosts that check gradients (`gradient_check`), and with a guest
that can be replayed (`replayable`), which is replayed afterwards. CPU seconds are of all parties'
training, those of a replay of the process that does it.
"""

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from benchmarks import boosting, harness, tables
from benchmarks.boosting import LATTICE
from benchmarks.harness import Cost
from benchmarks.question import Part, Question
from benchmarks.rows import Row
from benchmarks.tables import GUEST
from fedboost.job import JobSpec
from fedboost.runtime.cluster.cluster import ClusterProcesses

DATA = "give_credit"
USUAL, CHECKED, REPLAYED = "usual", "gradient_check", "replayable"
KINDS = (USUAL, CHECKED, REPLAYED)


def job(spec: JobSpec, kind: str) -> JobSpec:
    """The job with one of the checks, or none."""
    params = {**spec.params, "gradient_check": kind == CHECKED}
    return spec.model_copy(update={"params": params, "replayable": kind == REPLAYED})


@dataclass(frozen=True)
class Plan:
    """How much is measured."""

    rows: int | None = None  # None: all
    trees: int = 10
    turns: int = 3


def measure(name: str, plan: Plan) -> Iterator[Row]:
    """A row for each job."""
    table, clusters = tables.load(name).sample(plan.rows), list[ClusterProcesses]()
    spec = boosting.job(table, plan.trees, LATTICE, {}, held_out=False)

    def around(made: ClusterProcesses) -> Any:
        clusters.append(made)
        return nullcontext()

    def deal(folder: Path) -> Any:
        return tables.deal(table, boosting.parts(table), folder)

    with harness.daemons(spec, deal, around) as run:
        run(job(spec, CHECKED))  # what is loaded and compiled once
        for kind in KINDS * plan.turns:
            done = run(job(spec, kind))
            cost, again = Cost.of(done), None
            cpu = sum(sum(step.cpu_seconds.values()) for step in done.steps)
            if kind == REPLAYED:
                again = replay(done.result["job"], clusters[0].config(GUEST))
            spent = {"cpu_s": cpu, "wall_s": cost.wall_s, "sent": cost.sent}
            yield {"kind": kind, "rows": len(table.y), **spent, "replay_cpu_s": again}


def replay(job_id: str, config: Path) -> float:
    """CPU seconds of a replay, which has to find the guest honest."""
    words = [sys.executable, "-m", "fedboost", "audit", "replay", job_id]
    words += ["--config", str(config), "--json"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    said = json.loads(done.stdout.splitlines()[-1])
    assert said["is_honest"]
    return float(said["cpu_seconds"])


def figures(rows: Sequence[Row]) -> dict[str, float]:
    """What each check costs, as a multiple of the usual jobs; a replay's share of its job."""

    def of_kind(kind: str, what: str) -> float:
        return float(mean(row[what] for row in rows if row["kind"] == kind))

    whats = ("wall_s", "cpu_s", "sent")
    found = {f"{w}.{kind}": of_kind(kind, w) / of_kind(USUAL, w) for kind in KINDS for w in whats}
    share = of_kind(REPLAYED, "replay_cpu_s") / of_kind(REPLAYED, "cpu_s")
    return found | {"replay_share": share}


QUESTION = Question(
    "checks", __doc__ or "", {"jobs": Part(measure, (DATA,))}, Plan(), Plan(800, 2, 1), figures
)

if __name__ == "__main__":
    QUESTION.main()
