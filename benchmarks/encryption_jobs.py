"""The jobs of the encryption benchmark: trees and memory on daemons, AUC in one process."""

import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks import harness, plus_counts, plus_jobs, tables
from benchmarks.encryption_plan import (
    LATTICE,
    MODULAR,
    PLAIN,
    RINGS,
    SCHEMES,
    SYNTHETIC,
    Plan,
)
from benchmarks.harness import JobRun, say
from benchmarks.hybridtree_jobs import by_party
from benchmarks.plus_counts import PlainRun
from benchmarks.plus_tables import Row
from benchmarks.tables import HOST, Table
from benchmarks.tree_cost import Cost
from fedboost.core import metrics, objectives
from fedboost.flow import Artefact
from fedboost.job import JobSpec
from fedboost.model import rounds, vertical
from fedboost.runtime.process.threads import ThreadWorkers

BATCH = 1 << 14  # rows that go down all trees together
Floats = NDArray[np.float64]


def job(table: Table, count: int, scheme: str, depth: int, *, held_out: bool = False) -> JobSpec:
    """A job of so many rounds with all switches on, that learns from all rows, or holds those of
    the validation out.
    """
    params = {"encryption": SCHEMES[scheme], "max_depth": depth}
    found = plus_jobs.job(table, count, PLAIN, params)
    return found if held_out else found.model_copy(update={"validation": None})


Train = Callable[[str, int], JobRun]


@contextmanager
def daemons(table: Table, depth: int) -> Iterator[Train]:
    """Trains with a scheme so many rounds, job after job, on daemons of their own."""
    with tempfile.TemporaryDirectory() as folder:
        sources = tables.deal(table, plus_jobs.parts(table), Path(folder) / "data")
        first = job(table, 1, PLAIN, depth)  # asks no less of policies than the others
        with harness.daemons(first, sources, Path(folder) / "cluster") as run:
            yield lambda scheme, count: run(job(table, count, scheme, depth))


def measure_trees(name: str, plan: Plan) -> list[Row]:
    """What a tree takes with each scheme; of the synthetic table with the others of its rows."""
    table = plan.timed_table(name)
    if name != SYNTHETIC:
        return timed(table, SCHEMES, plan)
    whole = timed(table, (*RINGS, PLAIN), plan)
    samples = [
        {**row, "what": "samples"}
        for rows in plan.sampled
        for row in timed(table.first(rows), MODULAR, plan)
    ]
    return [*whole, *scaled(samples, len(table.y)), *samples]


def timed(table: Table, schemes: Iterable[str], plan: Plan) -> list[Row]:
    """A row for each scheme that the plan has."""
    rows = []
    with daemons(table, plan.depth) as run:
        for scheme in filter(plan.schemes.__contains__, schemes):
            trees = plan.timed_trees(scheme)
            say.print(f"[bold]{table.name}[/]: {len(table.y)} rows, {trees} trees, {scheme}")
            done = run(scheme, trees)
            rows.append(
                {"what": "trees", **_facts(table), "scheme": scheme, "trees": trees,
                 **asdict(Cost.of(done)), "party_cpu_s": by_party(done), "scaled_from": []}
            )  # fmt: skip
    return rows


def scaled(samples: Sequence[Row], rows: int) -> list[Row]:
    """What trees of so many rows would take, by the straight line through two samples of rows.

    The host's columns are the same, so candidates are: what they take is the line's beginning.
    Processor time by party is not scaled: keys and tables, which are made once, are in it.
    """
    found = []
    for scheme in dict.fromkeys(row["scheme"] for row in samples):
        few, many = (row for row in samples if row["scheme"] == scheme)
        times = (rows - few["rows"]) / (many["rows"] - few["rows"])
        line = {
            what: few[what] + times * (many[what] - few[what])
            for what in ("wall_s", "cpu_s", "sent")
            if few[what] is not None and many[what] is not None
        }
        scaled_from = [few["rows"], many["rows"]]
        found.append(
            {**many, "what": "trees", "rows": rows, **line, "party_cpu_s": {},
             "scaled_from": scaled_from}
        )  # fmt: skip
    return found


def measure_memory(name: str, plan: Plan) -> list[Row]:
    """The most memory of each party in a job of one tree, of daemons that did nothing else."""
    if name != SYNTHETIC:
        return []
    table = plan.timed_table(name)
    rows = []
    for scheme in RINGS:
        with daemons(table, plan.depth) as run:
            say.print(f"[bold]{name}[/]: {len(table.y)} rows, memory, {scheme}")
            peaks = run(scheme, 1).result["memory_peak_bytes"]
        rows.append({"what": "memory", **_facts(table), "scheme": scheme, "peak": peaks})
    return rows


def measure_auc(name: str, plan: Plan) -> list[Row]:
    """AUC of models with the lattice scheme, and of the one that all other schemes come to."""
    table = plan.auc_table(name)
    repeats = {PLAIN: 1, LATTICE: plan.repeats.get(name, 1)}
    rows = []
    for scheme, times in repeats.items():
        for number in range(times):
            say.print(f"[bold]{name}[/]: {len(table.y)} rows, AUC, {scheme} {number + 1}")
            found = aucs(table, trained(table, plan.rounds, scheme, plan.auc_depth).shards)
            facts = {"what": "auc", **_facts(table), "scheme": scheme}
            rows.append({**facts, "rounds": plan.rounds, "number": number, **found})
    return rows


def trained(table: Table, count: int, scheme: str, depth: int) -> PlainRun:
    """A model of all parties in this process, on all cores."""
    with tempfile.TemporaryDirectory() as folder, ThreadWorkers(harness.cores()) as workers:
        sources = tables.deal(table, plus_jobs.parts(table), Path(folder) / "data")
        spec = job(table, count, scheme, depth, held_out=True)
        return plus_counts.train_plain(spec, sources, Path(folder) / "cluster", workers=workers)


def aucs(table: Table, shards: Mapping[str, Artefact]) -> dict[str, float]:
    """By part; of several classes the mean of each one's against all others."""
    found = predictions(table, shards)
    held = table.held_out(**plus_jobs.VALIDATION)
    parts = {"train": ~held, "validation": held}
    return {part: auc(table.y[rows], found[rows]) for part, rows in parts.items()}


def auc(y: NDArray[np.int64], prediction: Floats) -> float:
    """Of probabilities float64 (n, 1), or of (n, classes) the mean over classes that there are."""
    if prediction.shape[1] == 1:
        return metrics.evaluate("auc", y.astype(np.float64), prediction)
    each = [
        metrics.evaluate("auc", (y == k).astype(np.float64), prediction[:, k]) for k in np.unique(y)
    ]
    return float(np.mean(each))


def predictions(table: Table, shards: Mapping[str, Artefact]) -> Floats:
    """Probabilities of all rows, float64 (n, outputs), by the shards put together."""
    guest, *hosts = shards
    whole = vertical.join(shards[guest], {host: shards[host] for host in hosts})
    names = [name for _, name in whole.columns]
    indices = [table.columns.index(name) for name in names]
    values = np.asfortranarray(table.values[:, indices])
    # One party that owns every split, as it were.
    owner = np.where(whole.arrays["owner"] == vertical.LEAF, vertical.LEAF, vertical.GUEST)
    arrays = {**whole.arrays, "owner": owner}
    margin = np.tile(np.array(whole.facts["base_margin"], np.float64), (len(table.y), 1))
    into = rounds.classes(whole.facts)
    for first in range(0, len(margin), BATCH):
        own = margin[first : first + BATCH]
        at = np.tile(whole.shape.roots, (len(own), 1))
        vertical.descend_own(arrays, whole.shape, values, at, first)
        for tree, output in enumerate(into.tolist()):
            leaves = arrays["value"][at[:, tree]].astype(np.float64)
            if output == rounds.ALL:
                own += leaves.reshape(len(own), -1)
            else:
                own[:, output] += leaves.reshape(len(own), -1)[:, 0]
    return objectives.transform(whole.facts["objective"], margin)


def _facts(table: Table) -> Row:
    columns = len(plus_jobs.parts(table)[HOST])
    return {"data": table.name, "rows": len(table.y), "host_columns": columns}
