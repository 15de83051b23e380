"""What jobs are expected to take beside what they take, on real daemons: time, memory, bytes."""

import math
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks import harness, tables
from benchmarks.question import Part, Question
from benchmarks.rows import Row
from fedboost.data.sources import SourceSpec
from fedboost.data.split import SplitPlan, split_table
from fedboost.ground.settings import parse_settings
from fedboost.job import JobSpec
from fedboost.runtime.estimate.estimate import Placement, estimate
from fedboost.runtime.estimate.setting import from_tables

QUANTITIES = ("seconds", "bytes", "memory")
GUEST = "bank"
HELD = {"fraction": 0.3, "seed": 7}
TREES = {"max_depth": 5, "max_bin": 32}
PAILLIER = {"encryption": {"scheme": "paillier", "key_bits": 2048}}


@dataclass(frozen=True)
class Case:
    """One job: its table, how it is dealt, and what is trained."""

    name: str
    data: str
    protocol: str
    layout: str  # vertical, horizontal or hybrid
    hosts: tuple[str, ...]
    guest_columns: int  # of the vertical layout
    params: Mapping[str, Any]
    rounds: int

    def spec(self, rounds: int) -> JobSpec:
        """The job, of so many rounds at most."""
        parties, across = (GUEST, *self.hosts), self.layout == "horizontal"
        params = {**self.params, "n_estimators": min(rounds, self.rounds)}
        labelled = parties if across else ()
        aggregator = GUEST if across else None
        return harness.job(
            self.protocol, parties, params, labelled, aggregator, name=self.name, validation=HELD
        )

    def deal(self, table: pa.Table, folder: Path) -> dict[str, SourceSpec]:
        """The parties' tables as files."""
        folder.mkdir(parents=True, exist_ok=True)
        found = {}
        for party, own in split_table(table, self._plan(table)).items():
            pq.write_table(own, folder / f"{party}.parquet")
            found[party] = SourceSpec(path=str(folder / f"{party}.parquet"))
        return found

    def _plan(self, table: pa.Table) -> SplitPlan:
        names = [name for name in table.column_names if name not in ("id", "y")]
        parties: list[dict[str, Any]] = [{"name": party} for party in (GUEST, *self.hosts)]
        if self.layout != "horizontal":
            first = self.guest_columns
            each = -(-(len(names) - first) // len(self.hosts))
            parties[0]["columns"] = names[:first]
            for place, party in enumerate(parties[1:]):
                party["columns"] = names[first + place * each : first + (place + 1) * each]
        if self.layout == "hybrid":
            parties = [{"name": GUEST, "columns": names[: self.guest_columns]}, *(
                {"name": host} for host in self.hosts)]  # fmt: skip
        return parse_settings(SplitPlan, {"layout": self.layout, "parties": parties})


CASES = (
    Case("paillier", "default_credit", "secureboost", "vertical", ("telco",), 10,
         {**TREES, **PAILLIER}, 2),
    Case("lattice", "give_credit", "secureboost", "vertical", ("telco",), 5,
         {**TREES, "encryption": {"scheme": "lattice"}}, 5),
    Case("vertical", "susy_30k", "federboost-vertical", "vertical", ("telco",), 9,
         {**TREES, "buckets": 16}, 50),
    Case("horizontal", "susy_30k", "federboost-horizontal", "horizontal", ("north", "south"), 0,
         {"max_depth": 4, "max_bin": 24}, 20),
    Case("gbun", "covtype", "gbun", "horizontal", ("north", "south"), 0,
         {"objective": "multi:softprob", "num_class": 7, "outputs": 64}, 5),
    Case("hybridtree", "default_credit", "hybridtree", "hybrid", ("shop", "mill"), 10,
         {"guest_depth": 4, "host_depth": 2, "max_bin": 32, **PAILLIER}, 2),
)  # fmt: skip


@dataclass(frozen=True)
class Plan:
    """How much is measured."""

    rows: int = 60_000  # of a table at most
    rounds: int = 1 << 30  # of a job at most
    times: int = 2  # that each job runs; the quicker one counts


def measure(name: str, plan: Plan) -> Iterator[Row]:
    """A job's estimate and what it took."""
    case = next(one for one in CASES if one.name == name)
    pooled = pq.read_table(tables.data_folder() / f"{case.data}.parquet").slice(0, plan.rows)
    spec = case.spec(plan.rounds)
    with tempfile.TemporaryDirectory() as folder:
        sources = case.deal(pooled, Path(folder) / "data")
        found = estimate(from_tables(spec, sources), Placement(harness.cores())).said()
        with harness.daemons(spec, lambda _: sources) as run:
            runs = [run(spec) for _ in range(plan.times)]
    best = min(runs, key=lambda one: float(one.result["seconds"]["total"]))
    expected, took = quantities(found), quantities(best.result)
    yield {
        "table": case.data,
        "protocol": case.protocol,
        "load": best.load_before,
        "expected": expected,
        "took": took,
        "ratios": ratios(expected, took),
    }


def quantities(said: Mapping[str, Any]) -> dict[str, float]:
    """What a job takes, as its result or an estimate says."""
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


def figures(rows: Sequence[Row]) -> dict[str, float]:
    """``ratio.QUANTITY.JOB``, and for each quantity how far the worst job is off."""
    flat = {
        f"ratio.{name}.{row['data']}": ratio
        for name in QUANTITIES
        for row in rows
        if (ratio := row["ratios"].get(name)) is not None
    }
    for name in QUANTITIES:
        own = [abs(math.log(row["ratios"][name])) for row in rows if name in row["ratios"]]
        if own:
            flat[f"worst.{name}"] = math.exp(max(own))
    return flat


QUESTION = Question(
    *("estimate", __doc__ or "", {"jobs": Part(measure, [case.name for case in CASES])}),
    full=Plan(),
    quick=Plan(2800, 1, 1),
    figures=figures,
)

if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", str(harness.cores()))
    QUESTION.main()
