"""A coordinator, guests and a submitter that do as they like, and a host that is as it should be.

A seed is a schedule (`lies`): jobs under other names, of guests under other names and over two
names of one table. Beside what all others do, a guest and the coordinator may walk a larger job
than was signed, have the host's own points opened, ask about every row, and bring a model back
under another name.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from fedboost import wire
from fedboost.crypto.intersection import POINT_BYTES
from fedboost.data.ids import encode_ids
from fedboost.errors import FedboostError
from fedboost.flow import Spent
from fedboost.job import JobSpec
from fedboost.messages.exchange_pb2 import Envelope
from fedboost.messages.protocol.align_pb2 import CommonSet
from fedboost.messages.protocol.predict_pb2 import Questions
from fedboost.model import shards
from fedboost.runtime.cluster import local
from fedboost.runtime.config.policy import PredictPolicy
from fedboost.runtime.coordinator.stage import StageWalk
from fedboost.runtime.party.job import PartyJob
from fedboost.runtime.policy.account import most
from tests.support.federated import job_spec
from tests.support.lies import CALM, JOBS_MAX, Schedule, judged, ruled

GUESTS, HOST = ("bank", "rival", "agent"), "telco"
ROWS, COLUMNS = 40, ("x", "z")
IDS = [f"p{row:02d}" for row in range(ROWS)]
NAMES = ("data", "again")  # of the host's one table
EPSILON = 1.0
PLACED_EACH = 12.0  # rows' shares that one message can place in a column: of a few layers' nodes
SPOILT = 0.15  # of the messages with which a guest gains something
COPIED, DIES = 0.3, 0.2  # the host's store before the first job; its daemon between two jobs
RENAMED = 0.15  # of the guests that ask for predictions
PLAIN = {"encryption": {"scheme": "plain"}}
TREES: dict[str, Any] = {"n_estimators": 2, "max_depth": 2, "max_bin": 4, **PLAIN}
HYBRID: dict[str, Any] = {
    "n_estimators": 2,
    "guest_depth": 1,
    "host_depth": 1,
    "max_bin": 4,
    **PLAIN,
}
KINDS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "sums": ("secureboost", TREES),
    "noise": ("federboost-vertical", {"n_estimators": 1, "buckets": 4, "epsilon": EPSILON}),
    "hybrid": ("hybridtree", HYBRID),
    "cuts": ("hybridtree", {**HYBRID, "split": "unscored"}),
}
PREDICTED: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "hybrid": ("predict-hybrid", {"split": "scored"}),
    "cuts": ("predict-hybrid", {"split": "unscored"}),
}
LARGER = ("n_estimators", "max_depth", "host_depth", "guest_depth")


@dataclass
class Limits:
    """What the host's owner allows, drawn by a schedule."""

    approve: str
    disclosure_max: float
    apart: tuple[str, ...]
    epsilon_row_max: float
    rows_per_day: int
    alignments_per_day: int
    intersection_min: int
    placed_max: float
    peer_ids_max: int

    @classmethod
    def drawn(cls, draw: random.Random) -> Limits:
        """Tight ones and wide ones."""
        return cls(
            approve=draw.choice(("always", "never")),
            disclosure_max=draw.choice((0.4, 0.8, 2.0, 10.0)),
            apart=draw.choice(((), (), GUESTS[:1])),
            epsilon_row_max=draw.choice((2.0, 2.0, 4.0, 20.0)),
            rows_per_day=draw.choice((ROWS // 2, ROWS, 2 * ROWS, 3 * ROWS)),
            alignments_per_day=draw.choice((2, 6, 100, 100)),
            intersection_min=draw.choice((1, 1, 1, 1, ROWS - 2)),
            placed_max=draw.choice((1.0, 1.0, 1.0, 0.6)),
            peer_ids_max=draw.choice((3 * ROWS, 10_000, 10_000, 10_000)),
        )


@dataclass
class Adversary(Schedule):
    """One schedule against a host."""

    # What the host's store says in the end, of each guest
    rows_a_day: dict[str, int] = field(default_factory=dict)
    aligned: dict[str, int] = field(default_factory=dict)

    victim = HOST
    others = GUESTS

    def __post_init__(self) -> None:
        super().__post_init__()
        self.limits = Limits.drawn(self.draw)
        self.asks_owner = self.limits.approve == "always"
        self._larger = self.draw.choice((0, 0, 1, 2))  # layers and rounds beyond the job
        self._kinds: dict[str, str] = {}  # of jobs
        self._guests: dict[str, str] = {}
        self._models: dict[str, tuple[str, str]] = {}  # jobs that left one: guest, kind
        self._stolen: set[str] = set()  # predictions for another than the model's guest

    # The ground

    def ground(self) -> JobSpec:
        """A host of two columns, and guests of as many people."""
        values = np.random.default_rng(1)
        self.write(HOST, id=IDS, **{name: values.normal(size=ROWS) for name in COLUMNS})
        for guest in GUESTS:
            self._label(guest, IDS)
        return job_spec("secureboost", (GUESTS[0], HOST, *GUESTS[1:]), params=TREES)

    def changes_table(self, party: str) -> str:
        """Other labels, mostly of other people too."""
        ids = IDS if self.draw.random() < 0.4 else self.draw.sample(IDS, ROWS - 5)
        self._label(party, ids)
        return f"another table of {len(ids)} rows"

    def _label(self, guest: str, ids: list[str]) -> None:
        draw = np.random.default_rng(self.draw.getrandbits(32))
        labels = draw.integers(0, 2, len(ids))
        self.write(guest, id=ids, y=labels, w=draw.normal(size=len(ids)))

    def rule(self) -> None:
        """The host's policy, and its table under two names; guests allow themselves everything."""
        limits = self.limits
        for name, node in self.town.cluster.parties.items():
            [source] = {repr(s): s for s in node.config.datasets.values()}.values()
            if name != HOST:
                own = source.model_copy(update={"labels": ["y"], "columns": None})
                ruled(node, {}, {local.DATASET: own})
                continue
            source = source.model_copy(update={"labels": [], "columns": None})
            policy = {
                "approve": limits.approve, "disclosure_max": limits.disclosure_max,
                "disclosure_apart": limits.apart, "epsilon_row_max": limits.epsilon_row_max,
                "datasets": NAMES, "alignments_per_day": limits.alignments_per_day,
                "intersection_min": limits.intersection_min,
                "placed_max": limits.placed_max, "peer_ids_max": limits.peer_ids_max,
                "predict": PredictPolicy(peers=GUESTS, rows_per_day=limits.rows_per_day),
            }  # fmt: skip
            ruled(node, policy, dict.fromkeys(NAMES, source))

    # Jobs

    async def jobs(self) -> None:
        """Models and predictions with them."""
        if self.draw.random() < COPIED:
            await self.dies("copied")
        if self.draw.random() < CALM:
            self._is_calm = True
            await self._train(self.draw.choice(list(KINDS)))
            self._is_calm = False
        for _ in range(self.draw.randint(1, JOBS_MAX)):
            if self._models and self.draw.random() < 0.6:
                await self._predict(self.draw.choice(list(self._models)))
            else:
                await self._train(self.draw.choice(list(KINDS)))
            if self.draw.random() < DIES:
                await self.dies()

    async def _train(self, kind: str) -> None:
        guest, (protocol, params) = self.draw.choice(GUESTS), KINDS[kind]
        job, state = await self._job(kind, protocol, guest, params)
        if state == "finished":
            self._models[job] = guest, kind

    async def _predict(self, model: str) -> None:
        guest, kind = self._models[model]
        if self.draw.random() < RENAMED:
            guest = self._renamed(model, guest)
        protocol, split = PREDICTED.get(kind, ("predict", {}))
        await self._job("predict", protocol, guest, {"model": model, **split})

    async def _job(
        self, kind: str, protocol: str, guest: str, params: Mapping[str, Any]
    ) -> tuple[str, str]:
        data = {HOST: {"dataset": self.draw.choice(NAMES)}}
        spec = job_spec(protocol, (guest, HOST), data=data, params=params)
        spec = spec.model_copy(update={"name": f"{kind}-{self.draw.randrange(3)}"})
        self.did.append(f"job {spec.name} of {guest} over {data[HOST]['dataset']}")
        job, state = await self.carry(spec)
        self._kinds[job], self._guests[job] = kind, guest
        if kind == "predict" and self._models[params["model"]][0] != guest:
            self._stolen.add(job)
        return job, state

    def _renamed(self, model: str, guest: str) -> str:
        """Another name under which a guest asks, with its part of a model."""
        name = self.draw.choice([one for one in GUESTS if one != guest])
        own, other = (self.town.node(one).store.folder / "models" / model for one in (guest, name))
        self.did.append(f"{guest} is {name} now")
        with suppress(FedboostError):  # it may have lost the model
            part = shards.load(own)
            shutil.rmtree(other, ignore_errors=True)
            shards.save(other, replace(part, facts={**part.facts, "guest": name, "party": name}))
        return name

    # Lies

    def patches(self, patched: pytest.MonkeyPatch) -> None:
        """A larger job than the host has signed, walked by coordinator and guest."""
        rounds, at_once, context = StageWalk.rounds, StageWalk._at_once, PartyJob.context

        def more(walk: StageWalk, name: str, most: int, **keeps: Any) -> Any:
            aligns = walk.protocol.leaves == "rows"  # a further part of it is refused at once
            return rounds(
                walk, name, most + self._larger * (not (self._is_calm or aligns)), **keeps
            )

        def beyond(walk: StageWalk, name: str, left: int) -> int:
            return max(1, at_once(walk, name, left))

        def larger(job: PartyJob, *given: Any, **named: Any) -> Any:
            own = context(job, *given, **named)
            if job.signed.party == HOST or self._is_calm or not self._larger:
                return own
            known = [name for name in LARGER if hasattr(own.params, name)]
            more = {name: getattr(own.params, name) + self._larger for name in known}
            return replace(own, params=own.params.model_copy(update=more))

        patched.setattr(StageWalk, "rounds", more)
        patched.setattr(StageWalk, "_at_once", beyond)
        patched.setattr(PartyJob, "context", larger)

    def spoilt(self, envelope: Envelope, payload: bytes) -> bytes | None:
        """The host's own points to be opened, or every row to be asked about."""
        kind = envelope.kind.rpartition(".")[2]
        if kind not in ("CommonSet", "Questions") or self.draw.random() > SPOILT:
            return None
        if kind == "Questions":
            return _about_every_row(payload)
        sets = [
            one.message.data
            for one in self.observer.left
            if one.envelope.job == envelope.job and type(one.message).__name__ == "BlindedSet"
        ]
        count = CommonSet.FromString(payload).points
        data = self.draw.choice(sets)[: count * POINT_BYTES]
        return CommonSet(points=len(data) // POINT_BYTES, data=data).SerializeToString()

    # What must hold

    def looks(self, node: Any) -> None:
        """The counters of a day."""
        with node.store.transaction() as sql:
            rows = "SELECT peer, sum(rows) FROM predictions GROUP BY peer"
            self.rows_a_day = dict(sql.execute(rows).fetchall())
            runs = "SELECT peer, max(runs) FROM alignments GROUP BY peer"
            self.aligned = dict(sql.execute(runs).fetchall())

    def assert_within(self) -> None:
        """What an observer has seen leave is what the account says, and within the policy."""
        self.assert_noted()
        self._assert_sums()
        self._assert_placed()
        self._assert_noise()
        self._assert_predictions()
        self._assert_alignments()

    def _assert_sums(self) -> None:
        sums = self.observer.sums(HOST, len(COLUMNS), 2)
        rows = {entry.job: entry.rows for entry in self.entries}
        seen = {job: sum(told) / rows[job] for job, told in sums.items() if any(told)}
        said = {entry.job: sum(entry.told.values()) for entry in self.entries if entry.told}
        for job, trees in self.observer.answered(HOST).items():
            if self._kinds[job] == "cuts":  # of a node with one row no cut, and nothing to charge
                whole = trees / (HYBRID["max_bin"] - 1)
                fits = whole / 2 <= said.get(job, 0.0) <= whole + 1e-9
                assert fits, "random cuts are not what the account says"
                seen[job] = said[job]
        self._assert_same(seen, said, "sums")
        apart = self.limits.apart
        for guests in ([g for g in GUESTS if g not in apart], *([g] for g in apart)):
            told: dict[str, float] = {}
            for entry in self.entries:
                for column, amount in entry.told.items() if entry.guest in guests else ():
                    told[column] = told.get(column, 0.0) + amount
            assert most(told) <= self.limits.disclosure_max + 1e-9, "more sums than allowed"
        deepest = max(self.observer.deepest.values(), default=0)
        assert deepest <= TREES["max_depth"], "sums of more layers than the job has"

    def _assert_placed(self) -> None:
        """Whoever got sums or noisy values is charged rows placed, and no more than each message
        about all rows could place; nobody else is.
        """
        placed, sums = self._charged(Spent.PLACED), self.observer.sums(HOST, len(COLUMNS), 2)
        noise, answers = self.observer.noise(HOST, EPSILON), self.observer.messages(HOST)
        told = {job for job, (equations, _) in sums.items() if equations}
        told |= {job for job, epsilon in noise.items() if epsilon}
        for job in told:
            assert placed.get(job, 0.0) > 0.0, "what left places no rows"
        for job in placed.keys() - self.cut_off():
            most_placed = len(COLUMNS) * PLACED_EACH * answers.get(job, 0)
            assert placed[job] <= most_placed, "rows are placed by what has not left"
        for entry in self.entries:
            within = self.limits.placed_max >= 1.0 or entry.placed <= self.limits.placed_max + 1e-9
            assert within, "more rows placed than allowed"

    def _assert_noise(self) -> None:
        seen = self.observer.noise(HOST, EPSILON)
        said = {e.job: sum(e.charged.get(Spent.EPSILON, {}).values()) for e in self.entries}
        asked = {
            e.job for e in self.entries if Spent.ROWS in e.charged
        }  # of another table's values
        trained = {job: own for job, own in said.items() if job not in asked}
        self._assert_same(seen, trained, "ε")
        assert max(sum(seen.values()), sum(said.values())) <= self.limits.epsilon_row_max, (
            "more ε than allowed"
        )
        assert not self.observer.told_twice(HOST, KNOWN), "noise was drawn anew"

    def _assert_predictions(self) -> None:
        seen = self.observer.predicting(HOST)
        self._assert_same(seen, self._charged(Spent.ROWS), "predicted rows")
        for job, asked in self.observer.people(HOST, KNOWN).items():
            assert asked <= seen[job], "rows that nobody counted"
            assert job not in self._stolen, "predicted for another than the model's guest"
        by_guest: dict[str, float] = {}
        for entry in self.entries:
            own = sum(entry.charged.get(Spent.ROWS, {}).values())
            by_guest[entry.guest] = by_guest.get(entry.guest, 0.0) + own
        counted = {guest: rows for guest, rows in by_guest.items() if rows}
        assert counted == self.rows_a_day, "rows of a day are not what the account says"
        most_rows = max(self.rows_a_day.values(), default=0)
        assert most_rows <= self.limits.rows_per_day, "more rows than allowed"

    def _assert_alignments(self) -> None:
        self._assert_same(self.observer.opened(HOST, ROWS), self._charged(Spent.IDS), "ids")
        brought = self._charged(Spent.PEER_IDS)
        self._assert_same(self.observer.brought(HOST), brought, "ids of peers")
        for guest in GUESTS:
            own = sum(n for job, n in brought.items() if self._guests[job] == guest)
            assert own <= self.limits.peer_ids_max, "more ids of a peer than allowed"
        fewest = self.observer.fewest_opened(HOST)
        assert fewest >= self.limits.intersection_min, "fewer ids opened than allowed"
        assert not self.observer.strange_points(HOST), "opened what nobody had sent"
        asked = self.observer.alignments_asked()
        for guest in GUESTS:
            counted = self.aligned.get(guest, 0)
            sets = self.observer.alignments(HOST).get(guest, 0)
            assert sets <= counted, "alignments that nobody counted"
            tried = sum(count for job, count in asked.items() if self._guests[job] == guest)
            assert counted <= tried, "alignments that nobody asked for"
        most_runs = max(self.aligned.values(), default=0)
        assert most_runs <= self.limits.alignments_per_day, "more alignments than allowed"

    def _charged(self, kind: Spent) -> dict[str, float]:
        return {e.job: sum(e.charged[kind].values()) for e in self.entries if kind in e.charged}

    def _assert_same(self, seen: Mapping[str, float], said: Mapping[str, float], what: str) -> None:
        """Of each job the account says what left; no less where an attempt was cut off, since
        charges come first.
        """
        cut_off = self.cut_off()
        for job in seen.keys() | said.keys():
            left, charged = seen.get(job, 0.0), said.get(job, 0.0)
            assert left <= charged + 1e-9, f"{what} are more than the account says"
            assert job in cut_off or left >= charged - 1e-9, f"{what} are not what the account says"


def carried_out(draw: random.Random, folder: Path) -> Adversary:
    """A schedule and what came of it; an error says what was done."""
    return judged(Adversary(draw, folder))


KNOWN = encode_ids([pa.chunked_array([pa.array(IDS)])], ["id"])


def _about_every_row(payload: bytes) -> bytes:
    """The same nodes, and at each every row."""
    asked = Questions.FromString(payload)
    nodes = len(wire.unpack(asked.nodes, "i4", (None,), "the nodes"))
    asked.counts.CopyFrom(wire.pack(np.full(nodes, ROWS, np.int32)))
    asked.rows.CopyFrom(wire.pack(np.tile(np.arange(ROWS, dtype=np.int32), nodes)))
    return asked.SerializeToString()
