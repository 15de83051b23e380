"""Jobs of SecureBoost on public tables: schemes, settings, whose columns, and what runs them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks import harness, tables
from benchmarks.harness import Around, JobRun
from benchmarks.tables import GUEST, HOST, SEED, Table
from fedboost import protocols
from fedboost.ground.settings import parse_settings
from fedboost.ground.workers import Workers
from fedboost.job import JobSpec
from fedboost.messages.job_pb2 import Event
from fedboost.runtime.transport.addresses import Timers

LATTICE, STATISTICAL, PLAIN = "lattice", "lattice-4096", "plain"
OKAMOTO_UCHIYAMA, PAILLIER, LONG = "okamoto-uchiyama", "paillier-2048", "paillier-3072"
AFFINE = "iterative-affine"
SCHEMES: dict[str, dict[str, Any]] = {
    LATTICE: {"scheme": "lattice"},
    STATISTICAL: {"scheme": "lattice-4096"},
    OKAMOTO_UCHIYAMA: {"scheme": "okamoto-uchiyama", "key_bits": 2048},
    PAILLIER: {"scheme": "paillier", "key_bits": 2048},
    LONG: {"scheme": "paillier", "key_bits": 3072},
    AFFINE: {"scheme": "iterative-affine", "key_bits": 1024},
    PLAIN: {"scheme": "plain"},
}
RINGS, MODULAR = (LATTICE, STATISTICAL), (OKAMOTO_UCHIYAMA, PAILLIER, LONG)
BINARY = ("give_credit", "epsilon_5k")
MULTI = ("sensorless_2k", "vehicle", "covtype")
GUEST_COLUMNS = {"epsilon_5k": 20, "sensorless_2k": 24, "covtype": 27}  # the first ones
ROUNDS, DEPTH = 25, 5
SHAPE: dict[str, Any] = {"learning_rate": 0.3, "max_bin": 32, "reg_lambda": 1.0}
VALIDATION: dict[str, Any] = {"fraction": 0.3, "seed": SEED}
SWITCHES = ("gh_packing", "histogram_subtraction", "cipher_compressing", "sparse_histograms")
OFF: dict[str, Any] = dict.fromkeys(SWITCHES, False)
SETTINGS = {**SHAPE, "max_depth": DEPTH, "validation": VALIDATION, "parties": "1 guest, 1 host"}


def parts(table: Table) -> dict[str, tuple[str, ...]]:
    """Who has which columns, the guest first, as in the papers' code where that is known.

    sensorless and covtype have no known partition: the first half of the columns is the guest's.
    """
    names = table.columns
    if table.name in tables.HOST_COLUMNS:
        own = tuple(name for name in names if name not in tables.HOST_COLUMNS[table.name])
    elif table.name in GUEST_COLUMNS:
        own = names[: GUEST_COLUMNS[table.name]]
    else:
        own = tuple(name for name in names if not name.startswith("host_"))
    return {GUEST: own, HOST: tuple(name for name in names if name not in own)}


def fewer_columns(table: Table, host_columns: int | None) -> Table:
    """The guest's columns, and as many of the host's first ones."""
    if host_columns is None:
        return table
    gone = set(parts(table)[HOST][host_columns:])
    indices = [i for i, name in enumerate(table.columns) if name not in gone]
    named = tuple(table.columns[i] for i in indices)
    return replace(table, values=np.asfortranarray(table.values[:, indices]), columns=named)


def size(table: Table) -> dict[str, Any]:
    """What every row says of its data."""
    rows, columns = len(table.y), len(parts(table)[HOST])
    return {"data": table.name, "rows": rows, "host_columns": columns}


def job(
    table: Table, rounds: int, scheme: str, params: Mapping[str, Any], *, held_out: bool = True
) -> JobSpec:
    """A job on one table; `params` come on top of those that all jobs share."""
    own: dict[str, Any] = {"eval_metric": ["auc"]}
    if table.name in MULTI:
        own = {"objective": "multi:softprob", "num_class": table.classes}
        own["eval_metric"] = ["accuracy"]
    if params.get("mode") != "layered":
        own["max_depth"] = DEPTH
    own |= {"encryption": SCHEMES[scheme], "allow_insecure": scheme == AFFINE}
    own |= {**SHAPE, "n_estimators": rounds, **params}
    more: dict[str, Any] = {"validation": VALIDATION} if held_out else {}
    made = harness.job("secureboost", (GUEST, HOST), own, (), None, **more)
    parse_settings(protocols.load_protocol("secureboost").params, made.params, section="params")
    return made.model_copy(update={"name": table.name.replace("_", "-")})


Train = Callable[..., JobRun]  # of rounds, a scheme and parameters, as `job` takes them


@contextmanager
def daemons(
    table: Table,
    scheme: str = PLAIN,
    around: Around = nullcontext,
    timers: Timers | None = None,
    dealt: Mapping[str, tuple[str, ...]] | None = None,
) -> Iterator[Train]:
    """Trains job after job on daemons of their own, that allow what a job of `scheme` asks for."""
    own, first = dealt or parts(table), job(table, 1, scheme, {})
    with harness.daemons(first, lambda at: tables.deal(table, own, at), around, timers) as run:
        yield lambda *given, **named: run(job(table, *given, **named))


def here(
    table: Table,
    rounds: int,
    params: Mapping[str, Any],
    scheme: str = PLAIN,
    hear: Callable[[Event], None] = lambda _: None,
    workers: Workers | None = None,
) -> JobRun:
    """Train all parties in this process."""
    spec = job(table, rounds, scheme, params)
    return harness.run_here(spec, lambda at: tables.deal(table, parts(table), at), hear, workers)
