"""The jobs of the SecureBoost+ benchmark: data, parties, switches and modes."""

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np

from benchmarks import harness, plus_counts, tables
from benchmarks.harness import JobRun, say
from benchmarks.plus_counts import PlainRun
from benchmarks.tables import GUEST, HOST, Table
from fedboost.ground.settings import parse
from fedboost.job import JobSpec
from fedboost.runtime.cluster.local import DATASET

BINARY = ("give_credit", "epsilon_5k")
MULTI = ("sensorless_2k", "vehicle", "covtype")
DATA = (*BINARY, *MULTI)
GUEST_COLUMNS = {"epsilon_5k": 20, "sensorless_2k": 24, "covtype": 27}  # the first ones
ROUNDS = 25
SEED = 7
DEPTH = 5
SHAPE: dict[str, Any] = {"learning_rate": 0.3, "max_bin": 32, "reg_lambda": 1.0}
VALIDATION: dict[str, Any] = {"fraction": 0.3, "seed": SEED}
KEY_BITS = {"paillier": 2048, "iterative-affine": 1024, "plain": 2048}

SWITCHES = ("gh_packing", "histogram_subtraction", "cipher_compressing", "sparse_histograms")
GOSS: dict[str, Any] = {"goss": {"top_rate": 0.2, "other_rate": 0.1}}
OFF: dict[str, Any] = dict.fromkeys(SWITCHES, False)
ALL: dict[str, Any] = {**dict.fromkeys(SWITCHES, True), **GOSS}
MIX: dict[str, Any] = {"mode": "mix", "trees_per_party": 1}
LAYERED: dict[str, Any] = {"mode": "layered", "host_depth": 3, "guest_depth": 2}
CYCLE = 2  # rounds in which each party of a mix has had its turn

ALONE: dict[str, dict[str, Any]] = {
    **{switch: {**OFF, switch: True} for switch in SWITCHES},
    "goss": {**OFF, **GOSS},
}
VARIANTS: dict[str, dict[str, Any]] = {
    "baseline": OFF,
    **ALONE,
    "all": ALL,
    "mix": {**ALL, **MIX},
    "layered": {**ALL, **LAYERED},
}
TOGETHER = tuple(variant for variant in VARIANTS if variant not in ALONE)
MODES: dict[str, dict[str, Any]] = {"default": {}, "goss": GOSS, "mix": MIX, "layered": LAYERED}


CLASSES: dict[str, dict[str, Any]] = {
    "one tree a class": {},
    "multi-output": {"multi_output": True},
}
PATIENCE = 4  # times the rounds of one tree a class: then a multi-output model is given up


@dataclass(frozen=True)
class Plan:
    """How much of the whole a run does."""

    rows: Mapping[str, int]  # of a data set at most, where encrypted jobs are timed; absent: all
    host_columns: Mapping[str, int]  # of a data set at most, there; absent: all
    alone_columns: Mapping[str, int]  # the same where each switch is timed alone
    accuracy_rows: int | None  # of a table trained in plain; None: all
    rounds: int  # timed ones
    slow_rounds: int  # timed ones with most switches off
    multi_trees: int  # timed multi-output trees
    multi_target: int  # rounds of one tree a class, whose accuracy multi-output is to reach
    alone: bool  # whether each switch is timed alone, too
    schemes: tuple[str, ...]

    @classmethod
    def of(cls, *, quick: bool) -> Self:
        """The quick one, or all."""
        if quick:
            return cls(
                rows={
                    **{"give_credit": 1500, "epsilon_5k": 1500},
                    **{"sensorless_2k": 550, "covtype": 600},
                },
                host_columns={
                    **{"give_credit": 1, "epsilon_5k": 1},
                    **{"sensorless_2k": 1, "vehicle": 1, "covtype": 3},
                },
                alone_columns={}, accuracy_rows=3000, rounds=8, slow_rounds=2, multi_trees=2,
                multi_target=4, alone=False, schemes=("paillier",),
            )  # fmt: skip
        return cls(
            rows={"give_credit": 30_000, "covtype": 5000},
            host_columns={"sensorless_2k": 8}, alone_columns={"epsilon_5k": 8},
            accuracy_rows=None, rounds=6, slow_rounds=2, multi_trees=4,
            multi_target=ROUNDS, alone=True, schemes=("paillier", "iterative-affine"),
        )  # fmt: skip

    def timed_rounds(self, variant: str) -> int:
        """Rounds of a variant's timed job; those of a mix are whole cycles."""
        return self.rounds if variant in ("all", "mix", "layered") else self.slow_rounds

    def sample(self, name: str) -> Table:
        """The rows that encrypted jobs are timed on, with all columns."""
        return tables.load(name).sample(self.rows.get(name, 1 << 62), SEED)

    def timed_table(self, name: str) -> Table:
        """The rows and columns that encrypted jobs are timed on."""
        return fewer_columns(self.sample(name), self.host_columns.get(name))

    def switch_tables(self, name: str) -> list[tuple[str, Table, tuple[str, ...]]]:
        """What is timed together: a name, a table, variants, the baseline first."""
        if not self.alone:
            return [("together", self.timed_table(name), TOGETHER)]
        if name not in self.alone_columns:
            return [("together", self.timed_table(name), tuple(VARIANTS))]
        few = fewer_columns(self.sample(name), self.alone_columns[name])
        return [
            ("together", self.timed_table(name), TOGETHER),
            ("alone", few, ("baseline", *ALONE)),
        ]

    def accuracy_table(self, name: str) -> Table:
        """The rows that accuracy is measured on, with all columns."""
        table = tables.load(name)
        return table if self.accuracy_rows is None else table.sample(self.accuracy_rows, SEED)


def parts(table: Table) -> dict[str, tuple[str, ...]]:
    """Who has which columns, the guest first, as in the papers' code where that is known.

    sensorless and covtype have no known partition: the first half of the columns is the guest's.
    """
    names = table.columns
    if table.name in tables.HOST_COLUMNS:
        own = [name for name in names if name not in tables.HOST_COLUMNS[table.name]]
    elif table.name in GUEST_COLUMNS:
        own = list(names[: GUEST_COLUMNS[table.name]])
    else:
        own = [name for name in names if not name.startswith("host_")]
    return {GUEST: tuple(own), HOST: tuple(name for name in names if name not in own)}


def fewer_columns(table: Table, host_columns: int | None) -> Table:
    """The guest's columns, and as many of the host's first ones."""
    if host_columns is None:
        return table
    whole = parts(table)
    gone = set(whole[HOST][host_columns:])
    indices = [i for i, name in enumerate(table.columns) if name not in gone]
    named = tuple(table.columns[i] for i in indices)
    return replace(table, values=np.asfortranarray(table.values[:, indices]), columns=named)


def job(table: Table, rounds: int, scheme: str, params: Mapping[str, Any]) -> JobSpec:
    """A job on one table; `params` come on top of those that all jobs share."""
    objective: dict[str, Any] = {"eval_metric": ["auc"]}
    if table.name in MULTI:
        classes = int(table.y.max()) + 1
        objective = {"objective": "multi:softprob", "num_class": classes}
        objective["eval_metric"] = ["accuracy"]
    depth = {} if params.get("mode") == "layered" else {"max_depth": DEPTH}
    encryption = {"scheme": scheme, "key_bits": KEY_BITS[scheme]}
    return parse(
        JobSpec,
        {
            "name": table.name.replace("_", "-"),
            "protocol": "secureboost",
            "parties": {"guest": GUEST, "hosts": [HOST]},
            "data": {GUEST: {"dataset": DATASET, "label": "y"}, HOST: {"dataset": DATASET}},
            "validation": VALIDATION,
            "params": {
                **{**SHAPE, **depth, **objective, "n_estimators": rounds},
                **{"encryption": encryption, "allow_insecure": scheme == "iterative-affine"},
                **params,
            },
        },
    )


Train = Callable[[int, Mapping[str, Any]], JobRun]


@contextmanager
def daemons(table: Table, scheme: str) -> Iterator[Train]:
    """Trains so many rounds with such parameters, job after job, on daemons of their own."""
    with tempfile.TemporaryDirectory() as folder:
        sources = tables.deal(table, parts(table), Path(folder) / "data")
        first = job(table, 1, scheme, {})
        with harness.daemons(first, sources, Path(folder) / "cluster") as run:
            yield lambda rounds, params: run(job(table, rounds, scheme, params))


def plain(
    table: Table,
    rounds: int,
    params: Mapping[str, Any],
    after_round: Callable[[], None] | None = None,
) -> PlainRun:
    """Trains the same trees without encryption, in this process."""
    say.print(f"  {table.name}: {rounds} rounds, plain", style="dim")
    with tempfile.TemporaryDirectory() as folder:
        sources = tables.deal(table, parts(table), Path(folder) / "data")
        spec = job(table, rounds, "plain", params)
        return plus_counts.train_plain(spec, sources, Path(folder) / "cluster", after_round)
