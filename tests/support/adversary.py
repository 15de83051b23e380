"""A coordinator, guests and a submitter that do as they like, and a host that is as it should be.

A seed is a schedule (`lies`): jobs under other names, of guests under other names and over two
names of one table. Beside what all others do, a guest and the coordinator may walk a larger job
than was signed, have the host's own points opened, ask about every row, and bring a model back
under another name. A guest chooses weights, what it encrypts, which candidates win, which nodes it
opens and which rows jobs and trees are about (`hostile_guests`).
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedboost.crypto.intersection import POINT_BYTES
from fedboost.ground import wire
from fedboost.ground.errors import FedboostError
from fedboost.job import JobSpec
from fedboost.messages.exchange_pb2 import Envelope
from fedboost.messages.protocol.align_pb2 import CommonSet
from fedboost.messages.protocol.predict_pb2 import Questions
from fedboost.model import shards
from fedboost.runtime.cluster import local
from fedboost.runtime.config.policy import PredictPolicy
from fedboost.runtime.coordinator.stage import StageWalk
from fedboost.runtime.party.job.job import PartyJob
from tests.support.federated import job_spec
from tests.support.host_border import HostBorder
from tests.support.host_limits import (
    COLUMNS,
    EPSILON,
    GUESTS,
    HOST,
    HYBRID,
    IDS,
    ROWS,
    TREES,
    Limits,
)
from tests.support.hostile_guests import HONEST, GuestHabit, HostileGuest, weights_of
from tests.support.lies import CALM, JOBS_MAX, judged, ruled

NAMES = ("data", "again")  # of the host's one table
SPOILT = 0.15  # of the messages with which a guest gains something
COPIED, DIES = 0.3, 0.2  # the host's store before the first job; its daemon between two jobs
RENAMED = 0.15  # of the guests that ask for predictions
HOSTILE = 0.7  # of the jobs, those whose guest chooses numbers, winners or rows
ALONE = 0.6  # of these, the ones in which nobody else lies
WEIGHED = 0.3  # of these, the ones in which a stock guest chooses weights alone
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
CHOSEN_BINS = (2, 2, 3, 4, 8)
CHOSEN_BITS = (4, 4, 7, 20)
LEFT_OUT = (0, 0, 1, 2, 6, 16)  # people whom a guest's table lacks
ROWS_CHOSEN: tuple[Mapping[str, Any], ...] = (
    {},
    {},
    {"subsample": 0.5},
    {"subsample": 0.8},
    {"goss": {"top_rate": 0.3, "other_rate": 0.3}},
)
LARGER = ("n_estimators", "max_depth", "host_depth", "guest_depth")


@dataclass
class Adversary(HostBorder):
    """One schedule against a host."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.limits = Limits.drawn(self.draw)
        self.asks_owner = self.limits.approve == "always"
        self._larger = self.draw.choice((0, 0, 1, 2))  # layers and rounds beyond the job
        self._models: dict[str, tuple[str, str]] = {}  # jobs that left one: guest, kind
        self._guest = HostileGuest()

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
        labels, weights = draw.integers(0, 2, len(ids)), weights_of(self.draw, len(ids))
        self.write(guest, id=ids, y=labels, w=draw.normal(size=len(ids)), v=weights)

    def rule(self) -> None:
        """The host's policy, and its table under two names; guests allow themselves everything."""
        limits = self.limits
        for name, node in self.town.cluster.parties.items():
            [source] = {repr(s): s for s in node.config.datasets.values()}.values()
            if name != HOST:
                own = source.model_copy(update={"labels": ["y"], "weights": ["v"], "columns": None})
                ruled(node, {}, {local.DATASET: own})
                continue
            source = source.model_copy(update={"labels": [], "columns": None})
            policy = {
                "approve": limits.approve, "disclosure_max": limits.disclosure_max,
                "disclosure_apart": limits.apart, "epsilon_row_max": limits.epsilon_row_max,
                "datasets": NAMES, "alignments_per_day": limits.alignments_per_day,
                "intersection_min": limits.intersection_min,
                "placed_max": limits.placed_max, "peer_ids_max": limits.peer_ids_max,
                "group_rows_min": limits.group_rows_min,
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
        own: dict[str, Any] = {}
        chosen, validation = dict[str, Any](), None
        was_calm = self._is_calm
        if protocol != "federboost-vertical" and self.draw.random() < HOSTILE:
            chosen, validation = self._choose(kind, guest, own)
            self._is_calm = was_calm or self.draw.random() < ALONE
        try:
            settings = {**params, **chosen}
            job, state = await self._job(
                kind, protocol, guest, settings, own=own, validation=validation
            )
        finally:
            self._is_calm, self._guest.habit = was_calm, HONEST
        if state == "finished":
            self._models[job] = guest, kind

    def _choose(
        self, kind: str, guest: str, own: dict[str, Any]
    ) -> tuple[dict[str, Any], dict[str, Any] | None]:
        """What a guest chooses of a job: weights or marks, winners, and the rows that it is about.

        Gives settings and rows held out; adds to what the guest says of its `own` table.
        """
        draw, chosen = self.draw, dict[str, Any]()
        if kind != "cuts":
            chosen = {
                "max_bin": draw.choice(CHOSEN_BINS),
                "precision_bits": draw.choice(CHOSEN_BITS),
                "cipher_compressing": draw.choice((True, False, False)),
                "n_estimators": draw.choice((1, 1, 2)),
                "max_depth" if kind == "sums" else "host_depth": draw.choice((1, 2)),
                **draw.choice(ROWS_CHOSEN),
            }
        if draw.random() < WEIGHED:
            own["weight"] = "v"
        else:
            self._guest.habit = GuestHabit.drawn(draw)
        first, left_out = draw.choice((0, 0, 1)), draw.choice(LEFT_OUT)
        self._label(guest, IDS[first : first + ROWS - left_out])
        seed = draw.choice((0, 0, 0, 1))
        validation = draw.choice(
            (
                None,
                None,
                {"fraction": draw.randrange(1, ROWS // 2) / ROWS, "seed": seed},
                {"fold": draw.randrange(2), "folds": draw.choice((2, 3, 6)), "seed": seed},
            )
        )
        rows = f"{ROWS - left_out} people from {first} on, held out {validation}"
        weights = "weights, " if own else ""
        self.did.append(f"{guest} chooses {weights}{self._guest.habit}, {chosen}, {rows}")
        return chosen, validation

    async def _predict(self, model: str) -> None:
        guest, kind = self._models[model]
        if self.draw.random() < RENAMED:
            guest = self._renamed(model, guest)
        protocol, split = PREDICTED.get(kind, ("predict", {}))
        await self._job("predict", protocol, guest, {"model": model, **split})

    async def _job(
        self,
        kind: str,
        protocol: str,
        guest: str,
        params: Mapping[str, Any],
        *,
        own: Mapping[str, Any] | None = None,
        validation: Mapping[str, Any] | None = None,
    ) -> tuple[str, str]:
        data = {HOST: {"dataset": self.draw.choice(NAMES)}, guest: dict(own or {})}
        parties = guest, HOST
        spec = job_spec(protocol, parties, data=data, params=params, validation=validation)
        spec = spec.model_copy(update={"name": f"{kind}-{self.draw.randrange(3)}"})
        self.did.append(f"job {spec.name} of {guest} over {data[HOST]['dataset']}")
        job, state = await self.carry(spec)
        self.kinds[job], self.guests[job] = kind, guest
        if kind == "predict" and self._models[params["model"]][0] != guest:
            self.stolen.add(job)
        return job, state

    def _renamed(self, model: str, guest: str) -> str:
        """Another name under which a guest asks, with its part of a model."""
        name = self.draw.choice([one for one in GUESTS if one != guest])
        own, other = (self.town.node(one).store.folder / "models" / model for one in (guest, name))
        self.did.append(f"{guest} is {name} now")
        with suppress(FedboostError):  # it may have lost the model
            part = shards.load_shard(own)
            shutil.rmtree(other, ignore_errors=True)
            shards.save_shard(
                other, replace(part, facts={**part.facts, "guest": name, "party": name})
            )
        return name

    # Lies

    def patches(self, patched: pytest.MonkeyPatch) -> None:
        """A larger job than the host has signed, walked by coordinator and guest; numbers, winners
        and nodes of the guest's choice.
        """
        self._guest.patches(patched)
        self.reader.patches(patched)
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


def carried_out(draw: random.Random, folder: Path) -> Adversary:
    """A schedule and what came of it; an error says what was done."""
    return judged(Adversary(draw, folder))


def _about_every_row(payload: bytes) -> bytes:
    """The same nodes, and at each every row."""
    asked = Questions.FromString(payload)
    nodes = len(wire.unpack(asked.nodes, "i4", (None,), "the nodes"))
    asked.counts.CopyFrom(wire.pack(np.full(nodes, ROWS, np.int32)))
    asked.rows.CopyFrom(wire.pack(np.tile(np.arange(ROWS, dtype=np.int32), nodes)))
    return asked.SerializeToString()
