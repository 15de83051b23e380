"""Trees under each scheme over a line between organisations: seconds, bytes, processor, memory.

Every case has daemons of its own, so that a party's peak of memory is the case's. All of them are
up at the same time and train in turn, so that what else the machine does befalls all alike.
"""

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from benchmarks import harness, links, plus_jobs, tables
from benchmarks.encryption_plan import PLAIN, Plan
from benchmarks.harness import TREE_ENDS, JobRun, say
from benchmarks.links import Link
from benchmarks.plus_tables import Row
from benchmarks.tables import GUEST, HOST, Table
from fedboost import protocols
from fedboost.ground.errors import ConfigError
from fedboost.ground.settings import parse
from fedboost.job import JobSpec
from fedboost.runtime.cluster.cluster import ClusterProcesses
from fedboost.runtime.ledger.ledger import Ledger
from fedboost.runtime.transport.addresses import Timers

# A ping waits behind what has been written, and at 20 Mbit/s megabytes take seconds.
TIMERS = Timers(keepalive_timeout_s=120.0, peer_lost_s=120.0, call_s=120.0)


@dataclass(frozen=True)
class Case:
    """A way to encrypt; `cycle` trees share what is sent once for several, such as a key."""

    encryption: Mapping[str, Any]
    cycle: int = 1


PAILLIER, OKAMOTO_UCHIYAMA = "paillier-2048", "okamoto-uchiyama-2048"
LATTICE = "lattice"
# Of settings that this version does not know a case is left out, and the table says so.
CASES: dict[str, Case] = {
    PLAIN: Case({"scheme": "plain"}),
    PAILLIER: Case({"scheme": "paillier", "key_bits": 2048}),
    OKAMOTO_UCHIYAMA: Case({"scheme": "okamoto-uchiyama", "key_bits": 2048}),
    LATTICE: Case({"scheme": "lattice"}),
    "lattice, vectors": Case({"scheme": "lattice", "answers": "vectors"}),
    "lattice, packed": Case({"scheme": "lattice", "answers": "packed"}),
    "lattice, packed, a key for 10 trees": Case(
        {"scheme": "lattice", "answers": "packed", "key_trees": 10}, cycle=10
    ),
}


@dataclass(frozen=True)
class Split:
    """Which of a data set's columns are the host's."""

    data: str
    columns: slice

    def of(self, table: Table) -> dict[str, tuple[str, ...]]:
        """Who has which columns, the guest first."""
        host = tables.HOST_COLUMNS[table.name]
        if self.columns != slice(None):
            host = table.columns[self.columns]
        return {GUEST: tuple(c for c in table.columns if c not in host), HOST: tuple(host)}


SPLITS: dict[str, Split] = {
    "default_credit, first 10": Split("default_credit", slice(None, 10)),
    "default_credit, last 13": Split("default_credit", slice(-13, None)),
    "give_credit": Split("give_credit", slice(None)),
}
DATA = tuple(dict.fromkeys(split.data for split in SPLITS.values()))


def measure(name: str, plan: Plan) -> list[Row]:
    """The rows of all splits of a data set."""
    rows = []
    for title, split in SPLITS.items():
        if split.data == name:
            table = tables.load(name).sample(plan.link_rows, plus_jobs.SEED)
            parts = split.of(table)
            parts[HOST] = parts[HOST][: plan.link_columns]
            rows += _timed(title, table, parts, plan)
    return rows


def job(table: Table, trees: int, case: Case, depth: int) -> JobSpec:
    """A job with all switches on that learns from all rows; a ConfigError where this version does
    not know its settings.
    """
    params = {"encryption": dict(case.encryption), "max_depth": depth}
    found = plus_jobs.job(table, trees, PLAIN, params).model_copy(update={"validation": None})
    parse(protocols.named(found.protocol).params, found.params, section="params")
    return found


def _timed(title: str, table: Table, parts: Mapping[str, tuple[str, ...]], plan: Plan) -> list[Row]:
    rows: list[Row] = []
    facts = {"data": table.name, "split": title, "rows": len(table.y),
             "host_columns": len(parts[HOST])}  # fmt: skip
    with ExitStack() as stack:
        up: dict[str, Train] = {}
        for name, case in CASES.items():
            try:
                job(table, 1, case, plan.depth)
            except ConfigError as error:
                rows.append({"what": "left out", **facts, "case": name, "why": error.what})
                continue
            up[name] = stack.enter_context(_daemons(table, parts, case, plan))
        for number in range(plan.link_repeats):
            for name, train in up.items():
                trees = 1 + CASES[name].cycle * plan.link_trees
                say.print(f"[bold]{title}[/]: {len(table.y)} rows, {trees} trees, {name}")
                rows.append({"what": "link", **facts, "case": name, "number": number,
                             **train(trees)})  # fmt: skip
    return rows


Train = Callable[[int], Row]


@contextmanager
def _daemons(
    table: Table, parts: Mapping[str, tuple[str, ...]], case: Case, plan: Plan
) -> Iterator[Train]:
    """Trains so many trees on daemons of one case; gives what a tree has taken."""
    clusters: list[ClusterProcesses] = []

    @contextmanager
    def around(made: ClusterProcesses) -> Iterator[None]:
        clusters.append(made)
        with links.shaped(made, plan.link or Link()):
            yield

    with tempfile.TemporaryDirectory() as folder:
        sources = tables.deal(table, parts, Path(folder) / "data")
        first = job(table, 1, case, plan.depth)
        with harness.daemons(first, sources, Path(folder) / "cluster", around, TIMERS) as run:
            yield lambda trees: _of(run(job(table, trees, case, plan.depth)), clusters[0])


def _of(done: JobRun, cluster: ClusterProcesses) -> Row:
    """What a tree behind the first one took, which warms up and shares the job's key."""
    laps = done.trees[1:]
    seconds = sum(lap.seconds for lap in laps)
    began = max(done.ends.get(step, 0.0) for step in TREE_ENDS) - seconds
    cpu = {name: sum(lap.by_daemon[name] for lap in laps) / len(laps) for name in cluster.names}
    return {
        "trees": len(laps),
        "wall_s": seconds / len(laps),
        "sent": _bytes(cluster, done.result["job"], began) / len(laps),
        "cpu_s": cpu,
        "peak": done.result["memory_peak_bytes"],
        "others": harness.spent(laps)[1],
        "load": done.load_before,
    }


def _bytes(cluster: ClusterProcesses, job: str, since: float) -> int:
    """Payload bytes between the parties from a moment on, by the guest's ledger."""
    ledger = Ledger(cluster.store(GUEST) / "store.sqlite", read_only=True)
    try:
        rows = ledger.rows(job)
    finally:
        ledger.close()
    return sum(row.bytes for row in rows if datetime.fromisoformat(row.at).timestamp() >= since)
