"""The federated jobs of the GBUN benchmark: bytes, bandwidth, parties; one table beside them."""

import asyncio
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import mean, median
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks import gbun_data, harness, links, tables
from benchmarks.federboost_jobs import Around, Params, Train
from benchmarks.gbun_accuracy import gbun_params
from benchmarks.gbun_data import SEED, party_names
from benchmarks.gbun_plan import SPARSE, Plan, Point
from benchmarks.harness import StepTotal, say
from benchmarks.links import Link
from benchmarks.plus_tables import Row
from benchmarks.tables import Table
from fedboost.core import gbun, local
from fedboost.data.frame import Frame
from fedboost.data.ids import encode_ids
from fedboost.data.sources import SourceSpec
from fedboost.ground.errors import JobError
from fedboost.ground.settings import parse
from fedboost.ground.workers import Serial
from fedboost.job import JobSpec
from fedboost.model import networks
from fedboost.runtime.cluster import local as in_process
from fedboost.runtime.cluster.local import DATASET
from fedboost.runtime.transport.addresses import Timers

AGGREGATOR = "sum"  # has no rows, so that every party's bytes travel
NETWORKS, TREES = "gbun", "federboost-horizontal"
BEFORE = frozenset(  # steps of both protocols that are done once, not every round
    {
        *("show_inputs", "match_inputs", "offer_keys", "hear_keys", "count_rows", "sum_columns"),
        *("show_reach", "sum_labels", "count_below", "tell_standing"),
    }
)
# A ping waits behind what has been written: 1 MiB leaves a line of 1 Mbit/s in eight seconds.
TIMERS = Timers(keepalive_timeout_s=240.0, peer_lost_s=240.0, call_s=240.0)
OUTPUTS = 64
TREE: dict[str, Any] = {"max_depth": 6, "max_bin": 32}  # 64 leaves
POINT = Point(size=OUTPUTS, rate=0.3, reg_lambda=1.0)
COMPARED = "vehicle"  # trained by a federation and on one table
NEAR = "epsilon_5k"  # dense, 100 columns
DIVIDED = "covtype"  # whose rows are divided among parties


def formula(outputs: int, classes: int) -> int:
    """Bytes of a round's sums: Σz, Σz² and a count; a triangle and a vector for each class, of
    which two classes need one."""
    return 8 * (2 * outputs + 1 + classes * outputs * (outputs + 1) // 2 + classes * outputs)


def job(protocol: str, parties: Sequence[str], params: Params) -> JobSpec:
    """Everybody learns from all rows, and an aggregator without any adds up."""
    guest, *hosts = parties
    own = {"dataset": DATASET, "label": "y"}
    return parse(
        JobSpec,
        {
            "name": protocol,
            "protocol": protocol,
            "parties": {"guest": guest, "hosts": hosts, "aggregator": AGGREGATOR},
            "data": {party: dict(own) for party in parties},
            "params": dict(params),
        },
    )


def networks_of(classes: int, rounds: int, outputs: int = OUTPUTS) -> dict[str, Any]:
    """Settings of a job of networks."""
    point = replace(POINT, size=outputs)
    said = gbun_params(classes, point, rounds).model_dump(mode="json", exclude_unset=True)
    return {**said, "eval_metric": list(said["eval_metric"])}


def trees_of(classes: int, rounds: int) -> dict[str, Any]:
    """Settings of the trees that stand beside them, with as many leaves as the least outputs."""
    shared = networks_of(classes, rounds)
    shared.pop("outputs")
    return {**shared, **TREE}


# Bytes


def measure_bytes(name: str, plan: Plan) -> list[Row]:
    """What each party sends up in a round, by columns; on dense rows beside that of trees."""
    if name != SPARSE:
        return _dense_bytes(name, plan)
    rows = []
    for columns in plan.columns:
        say.print(f"[bold]bytes[/]: {columns} sparse columns")
        with tempfile.TemporaryDirectory() as folder:
            parties = party_names(3)
            sources = gbun_data.deal_sparse(columns, parties, Path(folder))
            found = counted(NETWORKS, networks_of(2, plan.counted), parties, sources)
        rows.append({**found, "data": name, "columns": columns, "classes": 2})
    return rows


def _dense_bytes(name: str, plan: Plan) -> list[Row]:
    """Of networks of all sizes that are limited; with two classes of one that measures AUC, and of
    trees, which need more rows than those tables have that have more classes."""
    table, rounds = tables.load(name).sample(plan.rows_of(name), SEED), plan.counted
    classes = _classes(table)
    given = [(NETWORKS, networks_of(classes, rounds, outputs)) for outputs in plan.limited]
    if classes == 2:
        given.append((NETWORKS, {**networks_of(classes, rounds), "eval_metric": ["auc"]}))
        given.append((TREES, trees_of(classes, rounds)))
    facts = {"data": name, "columns": len(table.columns), "classes": classes}
    with _dealt(table, 3) as (parties, sources):
        return [counted(*one, parties, sources) | facts for one in given]


def counted(
    protocol: str, params: Params, parties: Sequence[str], sources: Mapping[str, SourceSpec]
) -> Row:
    """Bytes that a party sends in a round, the most of any, from the coordinator's journal."""
    rounds = params["n_estimators"]
    steps = in_this_process(job(protocol, parties, params), sources)
    own = [step for step in steps if step.stage == protocol and step.step not in BEFORE]
    up = {party: _sent(own, party) / rounds for party in parties}
    most = max(up, key=lambda party: up[party])
    by_step = {step.step: _sent([step], most) / rounds for step in own}
    return {
        "what": "bytes",
        "protocol": protocol,
        "outputs": params.get("outputs"),
        "rounds": rounds,
        "parties": len(parties),
        "up": up[most],
        "by_step": {step: count for step, count in by_step.items() if count},
        "metric": params["eval_metric"],
        "formula": _formula(protocol, params),
        "once": sum(_sent([s], most) for s in steps if s.step in BEFORE),
    }


def _formula(protocol: str, params: Params) -> int | None:
    classes = params.get("num_class") or 1
    return formula(params["outputs"], classes) if protocol == NETWORKS else None


def _sent(steps: Sequence[StepTotal], party: str) -> int:
    name = f"{party}->"
    return sum(
        count for step in steps for link, count in step.bytes.items() if link.startswith(name)
    )


def in_this_process(spec: JobSpec, sources: Mapping[str, SourceSpec]) -> list[StepTotal]:
    """The steps of a job whose coordinator and parties are all in this process."""

    async def run(folder: Path) -> list[StepTotal]:
        async with in_process.cluster(folder, spec, sources, Serial()) as cluster:
            journal = await cluster.run(spec)
        if journal.status.state != "finished":
            raise JobError(f"the job {journal.status.state}: {journal.status.reason.what}")
        return harness.step_totals(journal.events)

    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(run(Path(folder)))


# Bandwidth


def measure_bandwidth(name: str, plan: Plan) -> list[Row]:
    """Seconds of a round behind lines of so many bits a second; trees beside them."""
    table = tables.load(name).sample(plan.rows_of(name), SEED)
    jobs = {
        f"GBUN, {outputs} outputs": (NETWORKS, networks_of(2, rounds, outputs))
        for outputs, rounds in plan.limited.items()
    }
    jobs["FederBoost, 64 leaves"] = (TREES, trees_of(2, min(plan.limited.values())))
    rows = []
    for rate in plan.rates:
        with daemons(table, 2, partial(links.shaped, link=Link(rate, 0.0))) as run:
            for system, (protocol, params) in jobs.items():
                say.print(f"[bold]{system}[/]: {rate / 1e6:g} Mbit/s")
                found = run({"protocol": protocol, **params})
                rows.append(
                    {"what": "bandwidth", "data": name, "system": system, "bits_per_s": rate,
                     "parties": 2, **_round(found)}
                )  # fmt: skip
    return rows


def _round(run: harness.JobRun) -> Row:
    """Seconds of a job's rounds, the first one apart: it loads what has not been used yet."""
    seconds = [one["seconds"] for one in run.rounds]
    spent = run.training
    return {
        "seconds": seconds[1:] or seconds,
        "first": seconds[0],
        "cpu_s": spent.get("ours"),
        "others": spent["others"] / spent["seconds"] if spent else None,
        "load": run.load_before,
    }


@contextmanager
def daemons(table: Table, count: int, around: Around = nullcontext) -> Iterator[Train]:
    """Trains job after job, whose `protocol` stands among its settings, on daemons of their own."""
    with _dealt(table, count) as (parties, sources), tempfile.TemporaryDirectory() as folder:

        def spec(params: Params) -> JobSpec:
            said = dict(params)
            return job(said.pop("protocol"), parties, said)

        first = spec({"protocol": NETWORKS, **networks_of(_classes(table), 1)})
        with harness.daemons(first, sources, Path(folder), around, TIMERS) as run:
            yield lambda params: run(spec(params))


@contextmanager
def _dealt(table: Table, count: int) -> Iterator[tuple[tuple[str, ...], dict[str, SourceSpec]]]:
    parties = party_names(count)
    with tempfile.TemporaryDirectory() as folder:
        yield parties, gbun_data.deal_rows(table, parties, Path(folder))


def _classes(table: Table) -> int:
    return int(table.y.max()) + 1


# Parties


def measure_parties(name: str, plan: Plan) -> list[Row]:
    """Seconds of a round by parties among whom the same rows are divided; one is one table."""
    table = tables.load(name).sample(plan.dealt, SEED)
    classes, rows = _classes(table), []
    for count in plan.parties:
        with nullcontext() if count == 1 else daemons(table, count) as run:
            for outputs, rounds in plan.divided.items():
                say.print(f"[bold]parties[/]: {count}, {outputs} outputs")
                params = networks_of(classes, rounds, outputs)
                if run is None:
                    found = _alone(table, params)
                else:
                    done = run({"protocol": NETWORKS, **params})
                    found = {**_round(done), "busiest_cpu_s": _busiest(done, rounds)}
                rows.append({"outputs": outputs, "parties": count, "rounds": rounds, **found})
    facts = {"data": name, "rows": len(table.y), "columns": len(table.columns)}
    return [{"what": "parties", **facts, "classes": classes, **row} for row in rows]


def _busiest(run: harness.JobRun, rounds: int) -> float:
    """Processor seconds a round of the party that spends most, the aggregator not counted."""
    spent: dict[str, float] = {}
    for step in run.steps:
        if step.stage == NETWORKS and step.step not in BEFORE:
            for party, seconds in step.cpu_seconds.items():
                spent[party] = spent.get(party, 0.0) + seconds
    spent.pop(AGGREGATOR, None)
    return max(spent.values()) / rounds


def _alone(table: Table, params: Params) -> Row:
    load, cpu, started = harness.load_average(), time.process_time(), time.perf_counter()
    _pooled(table, params)
    seconds, spent = time.perf_counter() - started, time.process_time() - cpu
    each = 1.0 / params["n_estimators"]
    return {
        "seconds": [seconds * each], "first": seconds * each, "cpu_s": spent,
        "busiest_cpu_s": spent * each, "others": None, "load": load,
    }  # fmt: skip


# Beside one table


def measure_same(name: str, plan: Plan) -> list[Row]:
    """How far margins of a federation of three are from those of one table."""
    table = tables.load(name)
    params = networks_of(_classes(table), plan.same)
    say.print(f"[bold]{name}[/]: three daemons beside one table")
    with daemons(table, 3) as run:
        done = run({"protocol": NETWORKS, **params})
    pooled = _pooled(table, params).margins(table.values)
    gaps = [
        float(np.abs(networks.margins(shard, _frame(table)) - pooled).max())
        for shard in done.shards.values()
    ]
    facts = {"data": name, "rows": len(table.y), "columns": len(table.columns)}
    return [
        {"what": "federated", **facts, "parties": 3, "rounds": plan.same, "outputs": OUTPUTS,
         "reg_lambda": POINT.reg_lambda, "gap": max(gaps), "mean_gap": mean(gaps),
         "largest": float(np.abs(pooled).max()),
         "seconds": median(one["seconds"] for one in done.rounds)}
    ]  # fmt: skip


def _pooled(table: Table, params: Params) -> gbun.TrainedNetworks:
    own = {**params, "eval_metric": tuple(params["eval_metric"])}
    return gbun.train(
        local.TrainingTable(table.values, table.y.astype(np.float64)), gbun.GbunParams(**own)
    )


def _frame(table: Table) -> Frame:
    ids = encode_ids([pa.chunked_array([pa.array(table.id)])], ["id"])
    return Frame(ids, table.values, table.columns, None, ("id",))
