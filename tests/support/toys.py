"""A small job of every protocol, the same in every run, and all that one leaves in its stores."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from fedboost import protocols
from fedboost.data.sources import SourceSpec
from fedboost.flow import Artefact, Role, RowsUsed
from fedboost.ground.errors import UnreachableError
from fedboost.ground.settings import parse_settings
from fedboost.job import JobSpec
from fedboost.messages.job_pb2 import Event
from fedboost.model import shards
from fedboost.runtime.cluster.local import COORDINATOR, DATASET, USER
from fedboost.runtime.ledger import comparison, signed_heads
from fedboost.runtime.ledger.ledger import Ledger
from fedboost.runtime.ledger.rows import Row
from fedboost.runtime.policy.judgement import signer_at
from fedboost.runtime.transport import authority
from fedboost.runtime.transport.addresses import Timers
from fedboost.runtime.transport.certificates import Leaf, Term
from fedboost.runtime.transport.roots import Roots
from tests.simulator.cluster import Place, Plan, Simulation, simulate
from tests.simulator.disk import Write
from tests.simulator.masks import Hidden
from tests.simulator.network import Schedule, Trip, Undisturbed

PARTIES = ("bank", "telco", "shop")
AGGREGATOR = "sum"
ROWS, COLUMNS = 150, 4
SIZES = (16, 64, 256)  # rows of a horizontal job's parties: each has a digit of its own to base 4
TREES = {"n_estimators": 3, "max_depth": 3, "max_bin": 16}
OPEN = {"encryption": {"scheme": "plain"}}
MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # for stores; else on the disk
REST_S = 120.0  # of mock time in which a job is done, or rests
TOLD_S = 30.0  # in which whoever was lost hears how the job has ended
ATTEMPTS_MAX = 30
CLEARS_UP = 20  # attempts after which nothing befalls anybody any more
# The step that each layer of a tree has once, by the stage; others have none of several parties.
LAYER = {
    "secureboost": "open_layer",
    "hybridtree": "choose_splits",
    "federboost-horizontal": "split_nodes",
}

Tables = Mapping[str, pa.Table]


@dataclass(frozen=True)
class Toy:
    """A job; `earlier` is one that ran before it on the same stores, whose model it may use."""

    name: str
    protocol: str
    params: dict[str, Any]
    rows: int = ROWS
    earlier: Toy | None = None
    # Whether the same bytes are sent whatever the order in which a daemon draws at random.
    is_drawn_again: bool = True
    method: str = ""  # of its alignment
    keep_s: float = 0.0  # each layer of a tree is kept: on a clock that stands still none would be

    @property
    def is_horizontal(self) -> bool:
        """Whether parties have other rows."""
        return protocols.load_protocol(self.protocol).tables.rows is RowsUsed.OWN

    def spec(self, model: str = "") -> JobSpec:
        """As a user would send it; `model` is the id of the earlier job."""
        known = protocols.load_protocol(self.protocol)
        guest, *hosts = PARTIES
        params = {k: model if v == "$model" else v for k, v in self.params.items()}
        labelled = [] if known.leaves == "predictions" else [guest]
        if self.is_horizontal:
            labelled = list(PARTIES)
        raw: dict[str, Any] = {
            "name": self.name,
            "protocol": self.protocol,
            "parties": {"guest": guest, "hosts": hosts},
            "data": {
                p: {"dataset": DATASET, **({"label": "y"} if p in labelled else {})}
                for p in PARTIES
            },
            "params": params,
        }
        if self.is_horizontal:
            raw["parties"]["aggregator"] = AGGREGATOR
        if self.method:
            raw["alignment"] = {"method": self.method}
        return parse_settings(JobSpec, raw)

    def tables(self) -> Tables:
        """Every party's table."""
        made = dict(horizontal() if self.is_horizontal else vertical(self.rows))
        if self.params.get("objective", "binary:logistic") == "binary:logistic":
            for party, table in made.items():
                if "y" in table.column_names and not self.params.get("model"):
                    place = table.column_names.index("y")
                    classes = pc.cast(pc.greater(table["y"], 0.0), pa.int64())
                    made[party] = table.set_column(place, "y", classes)
        return made


def vertical(rows: int) -> Tables:
    """Columns of the same rows, each party's in its own order; of each a few are its own."""
    draw = np.random.default_rng(11)
    made, pull = {}, draw.normal(size=rows)
    for place, party in enumerate(PARTIES):
        values = np.round(draw.normal(size=(rows, COLUMNS)), 2).astype(np.float32)
        pull += values[:, 0] - values[:, 1] * place
        ids = np.arange(rows)
        ids[: 3 * place] += 10_000 * place
        made[party] = (ids, values)
    found = {}
    for party, (ids, values) in made.items():
        order = draw.permutation(rows)
        columns = {f"c{c}": values[order, c] for c in range(COLUMNS)}
        label = {"y": np.round(pull[order], 1)} if party == PARTIES[0] else {}
        found[party] = pa.table({"id": ids[order], **label, **columns})
    return found


def horizontal() -> Tables:
    """The same columns of other rows."""
    draw = np.random.default_rng(12)
    found = {}
    for place, (party, rows) in enumerate(zip(PARTIES, SIZES, strict=True)):
        values = np.round(draw.normal(0.3 * place, size=(rows, COLUMNS)), 2).astype(np.float32)
        y = np.round(values[:, 0] - values[:, 1] + draw.normal(size=rows), 1)
        columns = {f"c{c}": values[:, c] for c in range(COLUMNS)}
        found[party] = pa.table({"id": 1000 * place + np.arange(rows), "y": y, **columns})
    return found


_SQUARED = {**TREES, "objective": "reg:squarederror"}
_HYBRID = {k: v for k, v in _SQUARED.items() if k != "max_depth"} | {
    "guest_depth": 2,
    "host_depth": 1,
}
_SECUREBOOST = Toy("secureboost", "secureboost", {**_SQUARED, **OPEN})
_SCORED = Toy("hybrid-scored", "hybridtree", {**_HYBRID, **OPEN, "split": "scored"})
_FEW = {"n_estimators": 2, "max_depth": 2}
_RING = {"encryption": {"scheme": "lattice"}}
_UNSCORED = Toy(
    name="hybrid-unscored",
    protocol="hybridtree",
    params={
        **_HYBRID,
        "encryption": {"scheme": "okamoto-uchiyama"},
        "split": "unscored",
        "n_estimators": 2,
    },
    rows=60,
    is_drawn_again=False,
)
_PAILLIER = Toy(
    name="paillier",
    protocol="secureboost",
    params={**_SQUARED, **_FEW, "max_bin": 4, "encryption": {"scheme": "paillier"}},
    rows=40,
    is_drawn_again=False,
)
_HORIZONTAL = {**TREES, "quantile_tolerance": 4}
_GBUN = {"n_estimators": 3, "outputs": 8}
_GOES_ON = {"dropout": "continue", "objective": "binary:logistic"}
_SQUARES = {"objective": "reg:squarederror"}
_USED: dict[str, Any] = {"model": "$model", "batch_rows": 100}
TOYS = {  # the quickest first
    toy.name: toy
    for toy in (
        Toy("vertical", "federboost-vertical", {**_SQUARED, "buckets": 8, "epsilon": 4.0}),
        Toy(
            "vertical-oprf",
            "federboost-vertical",
            {**_SQUARED, **_FEW, "buckets": 8, "epsilon": 4.0},
            method="oprf",
        ),
        Toy("hybrid-oprf", "hybridtree", {**_HYBRID, **OPEN, "n_estimators": 1}, method="oprf"),
        Toy("predict", "predict", _USED, earlier=_SECUREBOOST),
        Toy("predict-scored", "predict-hybrid", {**_USED, "split": "scored"}, earlier=_SCORED),
        Toy("gbun", "gbun", {**_GBUN, **_SQUARES}),
        _SCORED,
        _SECUREBOOST,
        Toy("horizontal", "federboost-horizontal", {**_HORIZONTAL, **_SQUARES}),
        Toy("gbun-continue", "gbun", {**_GBUN, **_GOES_ON}),
        Toy("horizontal-continue", "federboost-horizontal", {**_HORIZONTAL, **_GOES_ON}),
        Toy(
            name="predict-unscored",
            protocol="predict-hybrid",
            params={**_USED, "split": "unscored", "batch_rows": 40},
            rows=60,
            earlier=_UNSCORED,
            is_drawn_again=False,
        ),
        _UNSCORED,
        Toy("lattice", "secureboost", {**_SQUARED, **_FEW, **_RING, "gradient_check": True}),
        Toy("hybrid-lattice", "hybridtree", {**_HYBRID, **_RING, "n_estimators": 2}),
        Toy(
            name="warm-start",
            protocol="secureboost",
            params={**_SQUARED, **OPEN, "warm_start": "$model"},
            earlier=_SECUREBOOST,
        ),
        _PAILLIER,
    )
}


# What a run leaves


@dataclass
class Left:
    """All that there is once everybody has ended."""

    job: str
    state: str
    reason: str
    attempts: int
    result: dict[str, Any]
    shards: dict[str, Artefact]
    predictions: str  # SHA-256 of the guest's file
    ledgers: dict[str, list[Row]]
    broken: list[str]  # ledgers whose chain is
    files: dict[str, list[str]]  # below each party's folder of the job
    trips: list[Trip]
    writes: list[Write]
    seconds: float  # of mock time
    layers: int  # of trees, as often as they were grown whole
    masks_twice: int  # how many masks have hidden two plaintexts
    errors: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)


def gathered(made: Simulation, noted: dict[str, Any], hidden: Hidden) -> Left:
    """Reads the stores of a cluster that has ended."""
    found, ledgers, broken, predictions, files = {}, {}, [], "", {}
    place, job, status = made.place, noted["job"], noted["status"]
    roots = Roots((place.certs / "ca.pem").read_bytes())
    for name in place.names[1:]:
        store = place.folder / name
        if job in shards.model_ids(store / "models"):
            found[name] = shards.load_shard(store / "models" / job)
        scored = store / "predictions" / f"{job}.parquet"
        if scored.exists():
            predictions = hashlib.sha256(scored.read_bytes()).hexdigest()
        files[name] = sorted(p.name for p in (store / "jobs" / job).rglob("*") if p.is_file())
        ledger = Ledger(store / "store.sqlite", read_only=True)
        try:
            ledgers[name] = ledger.rows(job)
            signed_heads.verify_ledger(ledger, name, partial(signer_at, roots))
            broken += [
                f"{name}: {one.text}" for one in comparison.contradicted_rows(ledger, name, job)
            ]
        except Exception as error:
            broken.append(f"{name}: {error}")
        finally:
            ledger.close()
    return Left(
        job=job,
        state=status.state,
        reason=status.reason.what,
        attempts=status.attempt,
        result=noted["result"],
        shards=found,
        predictions=predictions,
        ledgers=ledgers,
        broken=broken,
        files=files,
        trips=made.network.trips,
        writes=made.writes,
        seconds=made.loop.now,
        layers=noted["layers"],
        masks_twice=hidden.twice,
        errors=made.errors,
        left=made.left,
    )


def layers_grown(events: Iterable[Event]) -> int:
    """How many layers of trees the steps in a journal have grown, those grown again among them."""
    done = (event.step for event in events if event.WhichOneof("what") == "step")
    return sum(one.calls for one in done if LAYER.get(one.stage) == one.step)


# How a job is run


Work = Callable[[Simulation, str], Any]  # what happens once a job is handed in


async def handed_in(made: Simulation, spec: JobSpec) -> str:
    """The id of a job; handed in again where the coordinator dies before it has taken it in."""
    before = {job.id for job in await made.client().jobs()}
    while True:
        try:
            taken = {job.id for job in await made.client().jobs()} - before
            return taken.pop() if taken else await made.submit(spec)
        except UnreachableError:
            if not made.dead:
                raise
            while made.dead:
                await made.start(*made.dead)


async def to_its_end(made: Simulation, job: str) -> None:
    """Starts again whoever is dead and resumes what is paused, until the job is over.

    In bad weather that never ends nothing is promised but that nothing is lost: it clears up.
    """
    for attempt in range(ATTEMPTS_MAX):
        if attempt == CLEARS_UP:
            made.network.schedule = Undisturbed()
        state = await made.rest(job, REST_S)
        dead = made.dead
        if state in ("finished", "failed", "cancelled") and not dead:
            events = (await made.client().journal(job)).events
            if any(event.WhichOneof("what") == "lost" for event in events):
                await asyncio.sleep(TOLD_S)
            return
        if dead:
            await made.start(*dead)
            continue
        if state == "paused":
            await made.resume(job)
    raise AssertionError(f"the job is not over after {ATTEMPTS_MAX} attempts")


@dataclass(frozen=True)
class Ground:
    """A toy's certificates and tables, and stores on which an earlier job has run."""

    toy: Toy
    folder: Path

    @classmethod
    def laid(cls, toy: Toy, folder: Path) -> Ground:
        """Made anew in a folder."""
        ground = cls(toy, folder)
        spec = toy.spec("none")
        names = [*spec.parties.table().of(tuple(Role))]
        leaves = [Leaf("coordinator", COORDINATOR), Leaf("user", USER)]
        parties = [Leaf("party", name) for name in names]
        authority.create_certificates(
            folder / "certs", [*leaves, *parties], Term(datetime.now(UTC))
        )
        for party, table in toy.tables().items():
            pq.write_table(table, folder / f"{party}.parquet")
        (folder / "stores").mkdir()
        return ground

    def place(self, stores: Path) -> Place:
        """A cluster on these stores."""
        sources = {p: SourceSpec(path=str(self.folder / f"{p}.parquet")) for p in PARTIES}
        first = self.toy.earlier or self.toy
        timers = Timers(keep_s=self.toy.keep_s)
        return Place(stores, self.folder / "certs", first.spec(), sources, timers)

    @cached_property
    def earlier(self) -> Left:
        """What the earlier job left: of the toy itself, where it uses no other's model."""
        first = self.toy.earlier or self.toy
        return self._ran(self.folder / "stores", first.spec(), {})

    @cached_property
    def whole(self) -> Left:
        """What the job leaves that nobody disturbs."""
        return self.run()

    def run(self, work: Work = to_its_end, **how: Any) -> Left:
        """Runs the job on fresh copies of the stores; `how` as for `simulate`."""
        model = self.earlier.job
        with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
            stores = Path(folder) / "stores"
            shutil.copytree(self.folder / "stores", stores)
            return self._ran(stores, self.toy.spec(model), how, work)

    def _ran(
        self, stores: Path, spec: JobSpec, how: dict[str, Any], work: Work = to_its_end
    ) -> Left:
        place = self.place(stores)
        noted: dict[str, Any] = {}

        async def whole(made: Simulation) -> None:
            noted["made"] = made
            noted["job"] = await handed_in(made, spec)
            await work(made, noted["job"])
            journal = await made.client().journal(noted["job"])
            noted["status"] = journal.status
            noted["layers"] = layers_grown(journal.events)
            ended = [e.finished.result for e in journal.events if e.HasField("finished")]
            noted["result"] = json.loads(ended[-1]) if ended else {}

        hidden = Hidden()
        with hidden.watched():
            simulate(place, whole, **how)
        return gathered(noted["made"], noted, hidden)


__all__ = ["TOYS", "Ground", "Left", "Plan", "Schedule", "Toy", "Trip", "to_its_end"]
