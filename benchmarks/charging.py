"""What charging costs a job: CPU seconds of give_credit under the lattice scheme, with and without.

.venv/bin/python -m benchmarks.charging ROWS TREES

In one process: guest, host, coordinator and crypto. The share inside `Spending.charge`, which the
ledger's transaction runs, is measured beside the two totals, whose difference noise may hide.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.tables import GUEST, HOST, data_folder
from fedboost.crypto.workers import Serial
from fedboost.data.sources import SourceSpec
from fedboost.job import JobSpec
from fedboost.runtime.local import DATASET, cluster
from fedboost.runtime.spending import Spending
from fedboost.settings import parse

CHARGE = Spending.charge


def main(rows: int, trees: int) -> None:
    """Prints CPU seconds with and without charging, and the share of the charge itself."""
    table = pq.read_table(data_folder() / "give_credit.parquet").slice(0, rows)
    spent = [0.0, 0]

    def timed(self: Spending, messages: Sequence[Any], sql: Any) -> None:
        started = time.thread_time()
        CHARGE(self, messages, sql)
        spent[0] += time.thread_time() - started
        spent[1] += 1

    with_it = _job(table, trees, timed)
    without = _job(table, trees, lambda *_: None)
    share = spent[0] / with_it
    sys.stdout.write(
        f"{rows:,} rows, {trees} trees: {with_it:.1f} CPU s with, {without:.1f} without; charging "
        f"{int(spent[1])} messages took {spent[0]:.3f} CPU s, {100 * share:.2f} % of the job\n"
    )


def _job(table: pa.Table, trees: int, charge: Callable[..., None]) -> float:
    """CPU seconds of a job with another charge."""
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
        return asyncio.run(_timed(Path(folder), parse(JobSpec, raw), sources, charge))


async def _timed(
    folder: Path, spec: JobSpec, sources: dict[str, SourceSpec], charge: Callable[..., None]
) -> float:
    Spending.charge = charge  # type: ignore[method-assign]
    async with cluster(folder / "cluster", spec, sources, Serial()) as made:
        started = time.process_time()
        journal = await made.run(spec)
        spent = time.process_time() - started
    assert journal.status.state == "finished", journal.status.reason
    return spent


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
