"""What encryption costs by scheme: operations, whole trees, bytes, memory, accuracy.

With a line between all daemons, 20 Mbit/s each way and 50 ms there and back, trees and round trips:
python -m benchmarks.encryption --link 20mbit,50ms
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from statistics import mean

import numpy as np
from numpy.typing import NDArray

from benchmarks import boosting, encryption_link, harness, rows, tables
from benchmarks import encryption_operations as operations
from benchmarks.boosting import (
    BINARY,
    DEPTH,
    LATTICE,
    MODULAR,
    MULTI,
    PAILLIER,
    PLAIN,
    RINGS,
    ROUNDS,
    VALIDATION,
)
from benchmarks.harness import Cost
from benchmarks.links import Link
from benchmarks.question import Part, Question
from benchmarks.rows import Row, Shown, grouped, of
from benchmarks.tables import HOST, SEED, Table
from fedboost.core import metrics, objectives
from fedboost.flow import Artefact
from fedboost.model import rounds, vertical
from fedboost.runtime.process.threads import ThreadWorkers

SYNTHETIC = "synthetic_1m"
TREES = ("give_credit", "default_credit", "epsilon_5k", SYNTHETIC)
AUC = (*BINARY, *MULTI)
GUEST_COLUMNS, HOST_COLUMNS = 2, 20  # of the synthetic table
MISSING = 0.02  # of each of its host's columns, so that most candidates are there twice
BATCH = 1 << 14  # rows that go down all trees together
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Plan:
    """How much of the whole a run does."""

    ops: operations.Plan = field(default_factory=operations.Plan)
    line: encryption_link.Plan = field(default_factory=encryption_link.Plan)
    schemes: tuple[str, ...] = (*RINGS, *MODULAR, PLAIN)  # with which trees are timed
    rows: Mapping[str, int] = field(default_factory=dict)  # of a data set at most; absent: all
    host_columns: int | None = None  # at most, there
    depth: int = DEPTH  # layers of a timed tree
    sampled: tuple[int, int] = (20_000, 60_000)  # rows of the synthetic table for moduli
    fast_trees: int = 4  # timed ones of lattices and plain, the first of which warms up
    slow_trees: int = 2  # the same of the others
    auc_rows: int | None = None  # of a table whose AUC is measured; None: all
    auc_depth: int = DEPTH  # layers of its models' trees
    rounds: int = ROUNDS  # of its models
    repeats: Mapping[str, int] = field(  # models with the lattice scheme; absent: one
        default_factory=lambda: {"vehicle": 3, "epsilon_5k": 3}
    )
    link: Link | None = None  # between all daemons; None: nothing goes over a line

    def table(self, name: str) -> Table:
        """The rows and columns that trees are timed on."""
        if name == SYNTHETIC:
            table = synthetic(self.rows.get(name, 1_000_000))
        else:
            table = tables.load(name).sample(self.rows.get(name))
        return boosting.fewer_columns(table, self.host_columns)


QUICK = Plan(
    operations.QUICK, encryption_link.QUICK, (LATTICE, PAILLIER, PLAIN),
    {"give_credit": 100, "default_credit": 100, "epsilon_5k": 100, SYNTHETIC: 1000}, 1,
    depth=1, sampled=(50, 100), fast_trees=1, slow_trees=1,
    auc_rows=150, auc_depth=1, rounds=1, repeats={},
)  # fmt: skip


def trees(name: str, plan: Plan) -> Iterator[Row]:
    """What a tree takes with each scheme; of the synthetic table with the others of its rows."""
    table = plan.table(name)
    if name != SYNTHETIC:
        yield from timed(table, plan.schemes, plan)
        return
    yield from timed(table, (*RINGS, PLAIN), plan)
    samples = [
        {**row, "what": "samples"}
        for few in plan.sampled
        for row in timed(table.first(few), MODULAR, plan)
    ]
    yield from scaled(samples, len(table.y))
    yield from samples


def timed(table: Table, schemes: Iterable[str], plan: Plan) -> Iterator[Row]:
    """A row for each scheme that the plan has."""
    with boosting.daemons(table) as train:  # asks no less of policies than the others
        for scheme in filter(plan.schemes.__contains__, schemes):
            count = plan.slow_trees if scheme in MODULAR else plan.fast_trees
            done = train(count, scheme, {"max_depth": plan.depth}, held_out=False)
            spent = {**asdict(Cost.of(done)), "party_cpu_s": done.by_party(), "scaled_from": []}
            yield {**boosting.size(table), "scheme": scheme, "trees": count, **spent}


def scaled(samples: Sequence[Row], count: int) -> Iterator[Row]:
    """What trees of so many rows would take, by the straight line through two samples of rows.

    The host's columns are the same, so candidates are: what they take is the line's beginning.
    Processor time by party is not scaled: keys and tables, which are made once, are in it.
    """
    for few, many in grouped(samples, "scheme"):
        times = (count - few["rows"]) / (many["rows"] - few["rows"])
        line = {
            what: few[what] + times * (many[what] - few[what])
            for what in ("wall_s", "cpu_s", "sent")
            if few[what] is not None and many[what] is not None
        }
        said = {"rows": count, "scaled_from": [few["rows"], many["rows"]], "party_cpu_s": {}}
        yield {**many, "what": "trees", **line, **said}


def memory(name: str, plan: Plan) -> Iterator[Row]:
    """The most memory of each party in a job of one tree, of daemons that did nothing else."""
    table = plan.table(name)
    for scheme in filter(plan.schemes.__contains__, RINGS):
        with boosting.daemons(table) as train:
            done = train(1, scheme, {"max_depth": plan.depth}, held_out=False)
        peaks = done.result["memory_peak_bytes"]
        yield {**boosting.size(table), "scheme": scheme, "peak": peaks}


def auc(name: str, plan: Plan) -> Iterator[Row]:
    """AUC of models with the lattice scheme, and of the one that all other schemes come to."""
    table = tables.load(name).sample(plan.auc_rows)
    for scheme, times in {PLAIN: 1, LATTICE: plan.repeats.get(name, 1)}.items():
        for number in range(times):
            with ThreadWorkers(harness.cores()) as workers:
                given = {"max_depth": plan.auc_depth}
                done = boosting.here(table, plan.rounds, given, scheme, workers=workers)
            named = {"scheme": scheme, "rounds": plan.rounds, "number": number}
            yield {**boosting.size(table), **named, **aucs(table, done.shards)}


def aucs(table: Table, shards: Mapping[str, Artefact]) -> dict[str, float]:
    """By part; of several classes the mean of each one's against all others."""
    found = predictions(table, shards)
    held = table.held_out(**VALIDATION)
    parts = {"train": ~held, "validation": held}
    return {part: auc_of(table.y[kept], found[kept]) for part, kept in parts.items()}


def auc_of(y: NDArray[np.int64], prediction: Floats) -> float:
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
    whole = vertical.join_shards(shards[guest], {host: shards[host] for host in hosts})
    indices = [table.columns.index(name) for _, name in whole.columns]
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


def synthetic(count: int) -> Table:
    """Numbers at random with a label that a sum of them decides, but for noise.

    The first rows of a longer table are a shorter one's.
    """
    draw = np.random.default_rng(SEED)
    columns = GUEST_COLUMNS + HOST_COLUMNS
    weight = draw.normal(size=columns)
    values = draw.normal(size=(count, columns)).astype(np.float32)
    noise = np.random.default_rng(SEED + 1).normal(size=count)
    y = (values @ weight / np.linalg.norm(weight) + noise > 0).astype(np.int64)
    lacking = np.random.default_rng(SEED + 2).random((count, HOST_COLUMNS)) < MISSING
    values[:, GUEST_COLUMNS:][lacking] = np.nan
    names = [f"guest_{i}" for i in range(GUEST_COLUMNS)]
    names += [f"host_{i}" for i in range(HOST_COLUMNS)]
    ids = np.arange(count, dtype=np.int64) + 10_000_000
    return Table(SYNTHETIC, ids, y, np.asfortranarray(values), tuple(names))


def figures(found: Sequence[Row]) -> dict[str, float]:
    """INTERFACE.md's, and those over a line; absent where the rows do not give them."""
    told = encryption_link.figures(found)
    ns = {row["scheme"]: row["ns"] for row in of(found, operations.OPERATIONS)}
    if {LATTICE, PAILLIER} <= set(ns):
        told["add_ratio"] = ns[PAILLIER][operations.ADD] / ns[LATTICE][operations.ADD]
    for group in grouped(of(found, "trees"), "data"):
        wall = {row["scheme"]: row["wall_s"] for row in group}
        if {LATTICE, PAILLIER} <= set(wall):
            told[f"tree_ratio.{group[0]['data']}"] = wall[PAILLIER] / wall[LATTICE]
    for row in of(found, "memory"):
        if row["scheme"] == LATTICE:
            told[f"memory_gb.{row['data']}"] = row["peak"][HOST] / 1e9
    for group in grouped(of(found, "auc"), "data"):
        plain, ring = (
            mean(row["train"] for row in group if row["scheme"] == one) for one in (PLAIN, LATTICE)
        )
        told[f"auc_gap.{LATTICE}.{group[0]['data']}"] = abs(plain - ring)
    return told


def shown(found: Sequence[Row]) -> list[Shown]:
    """Tables of the line as the page has them, all others as they come, and which scheme when."""
    linked = ("link", "left out", "trips")
    plain = rows.drawn([row for row in found if row["what"] not in linked])
    return [*plain, *operations.choices(found), *encryption_link.shown(found)]


QUESTION = Question(
    *("encryption", __doc__ or ""),
    {
        operations.OPERATIONS: Part(lambda n, plan: operations.measure(n, plan.ops)),
        "trees": Part(trees, TREES),
        "memory": Part(memory, (SYNTHETIC,)),
        "auc": Part(auc, AUC),
        "link": Part(
            lambda n, plan: encryption_link.measure(n, replace(plan.line, link=plan.link)),
            *(encryption_link.DATA, "link"),
        ),
        "trips": Part(
            lambda n, plan: encryption_link.trips(n, plan.line),
            *((encryption_link.TRIPS_OF,), "link"),
        ),
    },
    full=Plan(), quick=QUICK, figures=figures, tables=shown,
    options={
        "link": {
            "type": Link.parse_round_trip, "metavar": "20mbit,50ms",
            "help": "a line between all daemons: its rate each way, and there and back",
        }
    },
    settings=boosting.SETTINGS,
)  # fmt: skip

if __name__ == "__main__":
    QUESTION.main()
