"""What charging costs a job: CPU seconds of give_credit under the lattice scheme, with and without.

In one process: guest, host, coordinator and crypto. Jobs with and without run by turns, in pairs
whose order alternates, for a while. Two figures: the time inside `Spending.charge` of
the host, which noise does not reach, by the CPU seconds of its steps; and the median ratio of a
pair's CPU seconds, with the range of all pairs, which also holds what charging costs elsewhere.
"""

import asyncio
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from benchmarks import boosting, tables
from benchmarks.boosting import LATTICE
from benchmarks.question import Part, Question
from benchmarks.rows import Row
from benchmarks.tables import HOST, Table
from fedboost.data.sources import SourceSpec
from fedboost.ground.workers import Serial
from fedboost.job import JobSpec
from fedboost.runtime.cluster.local import open_cluster
from fedboost.runtime.ledger.rows import Noted
from fedboost.runtime.policy.spending import Spending

Charges = Callable[[Spending, Sequence[Noted], sqlite3.Connection], None]

CHARGE = Spending.charge
DATA = "give_credit"
PAIRS_MIN = 2


@dataclass
class Spent:
    """CPU seconds of one job."""

    everybody: float = 0.0  # the whole process
    host: float = 0.0  # the host's steps
    charging: float = 0.0  # inside the host's charges, which run beside its steps
    messages: int = 0


@dataclass(frozen=True)
class Plan:
    """How much is measured."""

    rows: int = 15_000
    trees: int = 2
    seconds: float = 200.0


def measure(name: str, plan: Plan) -> Iterator[Row]:
    """Two rows of a pair, with charges and without, as long as there is time."""
    table = tables.load(name).sample(plan.rows)
    job(table, 1, charges=True)  # what is loaded and compiled once
    began, pairs, took = time.monotonic(), 0, 0.0
    while pairs < PAIRS_MIN or time.monotonic() - began + took < plan.seconds:
        started = time.monotonic()
        for charges in (True, False) if pairs % 2 else (False, True):
            spent = job(table, plan.trees, charges=charges)
            yield {"pair": pairs, "charges": charges, **asdict(spent)}
        pairs, took = pairs + 1, time.monotonic() - started


def figures(rows: Sequence[Row]) -> dict[str, float]:
    """Both figures, and the range of the second."""
    charged, free = ({row["pair"]: row for row in rows if row["charges"] == with_}
                     for with_ in (True, False))  # fmt: skip
    ratios = [charged[pair]["everybody"] / free[pair]["everybody"] for pair in charged]
    spent, whole = (sum(row[what] for row in charged.values()) for what in ("charging", "host"))
    return {
        "share_of_host": spent / whole,
        "cpu_ratio": median(ratios),
        "cpu_ratio.least": min(ratios),
        "cpu_ratio.most": max(ratios),
    }


def job(table: Table, trees: int, *, charges: bool) -> Spent:
    """A job with charges, or without any."""
    spec = boosting.job(table, trees, LATTICE, {}, held_out=False)
    with tempfile.TemporaryDirectory() as folder:
        sources = tables.deal(table, boosting.parts(table), Path(folder))
        return asyncio.run(_measured(Path(folder), spec, sources, charges=charges))


async def _measured(
    folder: Path, spec: JobSpec, sources: dict[str, SourceSpec], *, charges: bool
) -> Spent:
    spent = Spent()
    charge: Charges = _timed(spent) if charges else _none
    Spending.charge = charge  # type: ignore[method-assign, assignment]
    async with open_cluster(folder / "cluster", spec, sources, Serial()) as made:
        started = time.process_time()
        journal = await made.run(spec)
        spent.everybody = time.process_time() - started
    assert journal.status.state == "finished", journal.status.reason
    steps = [event.step for event in journal.events if event.WhichOneof("what") == "step"]
    costs = [cost for step in steps for cost in step.costs if cost.party == HOST]
    spent.host = sum(cost.cpu_seconds for cost in costs)
    return spent


def _timed(spent: Spent) -> Charges:
    def charge(self: Spending, messages: Sequence[Noted], sql: sqlite3.Connection) -> None:
        started = time.thread_time()
        CHARGE(self, messages, sql)
        if self.party == HOST:
            spent.charging += time.thread_time() - started
            spent.messages += sum(bool(one.about.charges) for one in messages)

    return charge


def _none(*_: object) -> None:
    """Charges nothing."""


QUESTION = Question(
    *("charging", __doc__ or "", {"pairs": Part(measure, (DATA,))}),
    full=Plan(),
    quick=Plan(1000, 1, 0.0),
    figures=figures,
)

if __name__ == "__main__":
    QUESTION.main()
