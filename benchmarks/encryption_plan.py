"""How much of the encryption benchmark a run does: schemes, tables, rows, trees."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from benchmarks import plus_jobs, tables
from benchmarks.links import Link
from benchmarks.tables import Table

LATTICE, STATISTICAL = "lattice", "lattice-4096"
OKAMOTO_UCHIYAMA = "okamoto-uchiyama"
PAILLIER, LONG = "paillier-2048", "paillier-3072"
PLAIN = "plain"
SCHEMES: dict[str, dict[str, Any]] = {
    LATTICE: {"scheme": "lattice"},
    STATISTICAL: {"scheme": "lattice-4096"},
    OKAMOTO_UCHIYAMA: {"scheme": "okamoto-uchiyama", "key_bits": 2048},
    PAILLIER: {"scheme": "paillier", "key_bits": 2048},
    LONG: {"scheme": "paillier", "key_bits": 3072},
    PLAIN: {"scheme": "plain"},
}
RINGS = (LATTICE, STATISTICAL)
MODULAR = (OKAMOTO_UCHIYAMA, PAILLIER, LONG)
HIDING = (*RINGS, *MODULAR)

SYNTHETIC = "synthetic_1m"
TREES = ("give_credit", "default_credit", "epsilon_5k", SYNTHETIC)
AUC = plus_jobs.DATA
DATA = tuple(dict.fromkeys((*TREES, *AUC)))

GUEST_COLUMNS, HOST_COLUMNS = 2, 20  # of the synthetic table
MISSING = 0.02  # of each of its host's columns, so that most candidates are there twice


@dataclass(frozen=True)
class Plan:
    """How much of the whole a run does."""

    schemes: tuple[str, ...]  # with which trees are timed
    rows: Mapping[str, int]  # of a data set at most, where trees are timed; absent: all
    host_columns: Mapping[str, int]  # of a data set at most, there; absent: all
    depth: int  # layers of a timed tree
    sampled: tuple[int, int]  # rows of the synthetic table that moduli are timed on, few and more
    fast_trees: int  # timed ones of lattices and plain, the first of which warms up
    slow_trees: int  # the same of the others
    auc_rows: int | None  # of a table whose AUC is measured; None: all
    auc_depth: int  # layers of its models' trees
    rounds: int  # of its models
    repeats: Mapping[str, int]  # models with the lattice scheme of a data set; absent: one
    ring_rows: int  # that operations of lattices are timed on
    modular_rows: int  # encrypted rows that those of the others are timed on
    least_s: float  # how long each of these is timed at least
    link_rows: int  # of a table at most, whose trees go over a line
    link_columns: int  # of its host at most
    link_trees: int  # cycles of timed trees, behind one that warms up
    link_repeats: int  # jobs of each case, in turn with the others'
    trip_trees: int  # of a job whose round trips are counted
    link: Link | None = None  # between all daemons; None: nothing goes over a line

    @classmethod
    def of(cls, *, quick: bool, link: Link | None = None) -> Self:
        """The quick one, or all."""
        if quick:
            return cls(
                schemes=tuple(scheme for scheme in SCHEMES if scheme != LONG),
                rows={"give_credit": 2000, "default_credit": 1000, "epsilon_5k": 300,
                      SYNTHETIC: 20_000},
                host_columns={"give_credit": 1, "default_credit": 1, "epsilon_5k": 2,
                              SYNTHETIC: 2},
                depth=2, sampled=(500, 1500), fast_trees=2, slow_trees=2,
                auc_rows=1000, auc_depth=2, rounds=1, repeats={},
                ring_rows=50_000, modular_rows=160, least_s=0.05,
                link_rows=1000, link_columns=2, link_trees=1, link_repeats=1, trip_trees=2,
                link=link,
            )  # fmt: skip
        return cls(
            schemes=tuple(SCHEMES), rows={}, host_columns={}, depth=plus_jobs.DEPTH,
            sampled=(20_000, 60_000), fast_trees=4, slow_trees=2,
            auc_rows=None, auc_depth=plus_jobs.DEPTH, rounds=plus_jobs.ROUNDS,
            repeats={"vehicle": 3, "epsilon_5k": 3},
            ring_rows=1_000_000, modular_rows=1024, least_s=2.0,
            link_rows=1 << 62, link_columns=1 << 30, link_trees=2, link_repeats=1, trip_trees=8,
            link=link,
        )  # fmt: skip

    def timed_trees(self, scheme: str) -> int:
        """How many trees a timed job grows."""
        return self.slow_trees if scheme in MODULAR else self.fast_trees

    def timed_table(self, name: str) -> Table:
        """The rows and columns that trees are timed on."""
        if name == SYNTHETIC:
            table = synthetic(self.rows.get(name, 1_000_000))
        else:
            table = tables.load(name).sample(self.rows.get(name, 1 << 62), plus_jobs.SEED)
        return plus_jobs.fewer_columns(table, self.host_columns.get(name))

    def auc_table(self, name: str) -> Table:
        """The rows that AUC is measured on, with all columns."""
        table = tables.load(name)
        return table if self.auc_rows is None else table.sample(self.auc_rows, plus_jobs.SEED)


def synthetic(rows: int) -> Table:
    """Numbers at random with a label that a sum of them decides, but for noise.

    The first rows of a longer table are a shorter one's.
    """
    draw = np.random.default_rng(plus_jobs.SEED)
    columns = GUEST_COLUMNS + HOST_COLUMNS
    weight = draw.normal(size=columns)
    values = draw.normal(size=(rows, columns)).astype(np.float32)
    noise = np.random.default_rng(plus_jobs.SEED + 1).normal(size=rows)
    y = (values @ weight / np.linalg.norm(weight) + noise > 0).astype(np.int64)
    lacking = np.random.default_rng(plus_jobs.SEED + 2).random((rows, HOST_COLUMNS)) < MISSING
    values[:, GUEST_COLUMNS:][lacking] = np.nan
    names = [f"guest_{i}" for i in range(GUEST_COLUMNS)]
    names += [f"host_{i}" for i in range(HOST_COLUMNS)]
    ids = np.arange(rows, dtype=np.int64) + 10_000_000
    return Table(SYNTHETIC, ids, y, np.asfortranarray(values), tuple(names))
