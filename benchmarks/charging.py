"""What charging costs a job: CPU seconds of give_credit under the lattice scheme, with and without.

.venv/bin/python -m benchmarks.charging [ROWS] [TREES] [SECONDS]

In one process: guest, host, coordinator and crypto. Jobs with and without run by turns, in pairs
whose order alternates, until SECONDS are over. Two figures: the time inside `Spending.charge` of
the host, which noise does not reach, by the CPU seconds of its steps; and the median ratio of a
pair's CPU seconds, with the range of all pairs, which also holds what charging costs elsewhere.
"""

import asyncio
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.tables import GUEST, HOST, data_folder
from fedboost.data.sources import SourceSpec
from fedboost.ground.settings import parse
from fedboost.ground.workers import Serial
from fedboost.job import JobSpec
from fedboost.runtime.cluster.local import DATASET, cluster
from fedboost.runtime.ledger.rows import Noted
from fedboost.runtime.policy.spending import Spending

Charges = Callable[[Spending, Sequence[Noted], sqlite3.Connection], None]

CHARGE = Spending.charge
PAIRS_MIN = 2


@dataclass
class Spent:
    """CPU seconds of one job."""

    everybody: float = 0.0  # the whole process
    host: float = 0.0  # the host's steps
    charging: float = 0.0  # inside the host's charges, which run beside its steps
    messages: int = 0


def main(rows: int = 15_000, trees: int = 2, seconds: float = 200.0) -> None:
    """Prints both figures."""
    table = pq.read_table(data_folder() / "give_credit.parquet").slice(0, rows)
    began, pairs = time.monotonic(), list[tuple[Spent, Spent]]()
    _job(table, 1, charges=True)  # what is loaded and compiled once
    took = 0.0
    while len(pairs) < PAIRS_MIN or time.monotonic() - began + took < seconds:
        started = time.monotonic()
        order = (True, False) if len(pairs) % 2 else (False, True)
        by = {one: _job(table, trees, charges=one) for one in order}
        pairs.append((by[True], by[False]))
        took = time.monotonic() - started
    charged = [one for one, _ in pairs]
    share = sum(one.charging for one in charged) / sum(one.host for one in charged)
    ratios = [one.everybody / other.everybody for one, other in pairs]
    sys.stdout.write(
        f"{rows:,} rows, {trees} trees, {len(pairs)} pairs: charging {charged[0].messages} "
        f"messages takes {statistics.median(one.charging for one in charged):.4f} of the host's "
        f"{statistics.median(one.host for one in charged):.1f} CPU s, {100 * share:.3f} %; with "
        f"charging a pair's CPU s are {statistics.median(ratios):.4f} of those without "
        f"({min(ratios):.4f} to {max(ratios):.4f})\n"
    )


def _job(table: pa.Table, trees: int, *, charges: bool) -> Spent:
    """A job with charges, or without any."""
    names = [name for name in table.column_names if name not in ("id", "y")]
    half, ids = len(names) // 2, pa.array([f"p{row}" for row in range(table.num_rows)])
    own = {GUEST: [*names[:half], "y"], HOST: names[half:]}
    with tempfile.TemporaryDirectory() as folder:
        sources = {}
        for party, columns in own.items():
            path = Path(folder) / f"{party}.parquet"
            pq.write_table(pa.table({"id": ids, **{c: table[c] for c in columns}}), path)
            sources[party] = SourceSpec(path=str(path))
        raw = {
            "name": "charging",
            "protocol": "secureboost",
            "parties": {"guest": GUEST, "hosts": [HOST]},
            "data": {GUEST: {"dataset": DATASET, "label": "y"}, HOST: {"dataset": DATASET}},
            "params": {
                "n_estimators": trees,
                "max_depth": 5,
                "max_bin": 32,
                "encryption": {"scheme": "lattice"},
            },
        }
        return asyncio.run(_measured(Path(folder), parse(JobSpec, raw), sources, charges=charges))


async def _measured(
    folder: Path, spec: JobSpec, sources: dict[str, SourceSpec], *, charges: bool
) -> Spent:
    spent = Spent()
    charge: Charges = _timed(spent) if charges else _none
    Spending.charge = charge  # type: ignore[method-assign, assignment]
    async with cluster(folder / "cluster", spec, sources, Serial()) as made:
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
        if self._party == HOST:
            spent.charging += time.thread_time() - started
            spent.messages += sum(bool(one.about.charges) for one in messages)

    return charge


def _none(*_: object) -> None:
    """Charges nothing."""


if __name__ == "__main__":
    given = sys.argv[1:]
    main(*(int(text) for text in given[:2]), *(float(text) for text in given[2:3]))
