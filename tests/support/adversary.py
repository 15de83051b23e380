"""A coordinator, a guest and a submitter that do as they like, and a host that is as it should be.

A seed is a schedule: jobs under other names, of other guests and over two names of one table, in
attempts that end where the adversary likes. Between the calls of a job it repeats calls and
messages, also of earlier attempts, leaves out commits, asks for other steps, stops, proposes and
begins. Guests lose what they keep and change their tables. The host's node, its store, its policy
and its owner are the real ones; what the owner approved is noted here, too.
"""

from __future__ import annotations

import asyncio
import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from google.protobuf.message import Message

from fedboost.crypto.workers import Serial
from fedboost.data.sources import SourceSpec
from fedboost.errors import FedboostError, UnreachableError
from fedboost.messages.exchange_pb2 import Envelope
from fedboost.messages.job_pb2 import JobId
from fedboost.messages.party_pb2 import BeginRequest, CommitReply, Proposal, StepCall, StopRequest
from fedboost.runtime.cluster import local
from fedboost.runtime.config.policy import PredictPolicy
from fedboost.runtime.coordinator import walker
from fedboost.runtime.jobs import manifest
from fedboost.runtime.party.node import PartyNode
from fedboost.runtime.transport import authority
from fedboost.runtime.transport.addresses import Timers
from fedboost.runtime.transport.authority import Leaf, Term
from fedboost.runtime.transport.identity import Peer
from tests.support.federated import job_spec
from tests.support.observer import Observer

GUESTS, HOST = ("bank", "rival"), "telco"
ROWS, COLUMNS = 40, ("x", "z")
IDS = [f"p{row:02d}" for row in range(ROWS)]
NAMES = ("data", "again")  # of the host's one table
EPSILON = 1.0
JOBS_MAX, ATTEMPTS_MAX = 3, 3
FORGED = 0.06  # of the host's calls and messages
LOST = 0.04  # of the guests' calls
CALM = 0.4  # of the schedules begin with a job that leaves a model to predict with
LEADER = Peer("coordinator", local.COORDINATOR, fingerprint="", serial=0)
OWNER = Peer("user", local.USER, fingerprint="", serial=0)
TIMERS = Timers(approval_s=0.02, step_s=2.0, peer_lost_s=1.0)
PLAIN = {"encryption": {"scheme": "plain"}}
TREES = {"n_estimators": 2, "max_depth": 2, "max_bin": 4, **PLAIN}
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
    "predict": ("predict", {}),
}


@dataclass
class Limits:
    """What the host's owner allows, drawn by a schedule."""

    approve: str
    disclosure_max: float
    epsilon_row_max: float
    rows_per_day: int
    alignments_per_day: int

    @classmethod
    def drawn(cls, draw: random.Random) -> Limits:
        """Tight ones and wide ones."""
        return cls(
            approve=draw.choice(("always", "never")),
            disclosure_max=draw.choice((0.3, 0.8, 2.0, 10.0)),
            epsilon_row_max=draw.choice((2.0, 4.0, 20.0)),
            rows_per_day=draw.choice((ROWS // 4, ROWS // 2, ROWS, 3 * ROWS)),
            alignments_per_day=draw.choice((2, 6, 100)),
        )


@dataclass
class Adversary:
    """One schedule. `did` says what it has done, in order."""

    draw: random.Random
    folder: Path
    observer: Observer = field(default_factory=Observer)
    did: list[str] = field(default_factory=list)
    approved: set[tuple[str, bytes]] = field(default_factory=set)  # by the owner: job, manifest
    unapproved: list[str] = field(default_factory=list)  # what left all the same
    charged: list[Any] = field(default_factory=list)  # the account's entries, in the end
    noted: Counter[str] = field(default_factory=Counter)  # messages in the host's ledger, by job
    predicted_by: dict[str, int] = field(default_factory=dict)  # guests, as the host has counted
    aligned: int = 0

    def __post_init__(self) -> None:
        self.limits = Limits.drawn(self.draw)
        self._calls: list[tuple[str, Message]] = []  # that the host has got
        self._mails: list[tuple[Envelope, bytes]] = []
        self._is_calm = False  # for the job at hand, nobody lies
        self._cuts: set[str] = set()  # jobs of random cuts
        self._models: dict[str, list[str]] = {name: [] for name in GUESTS}

    @property
    def predicted(self) -> int:
        """Rows predicted for all guests."""
        return sum(self.predicted_by.values())

    # The town

    def run(self) -> Adversary:
        """Carries the schedule out."""
        asyncio.run(asyncio.wait_for(self._run(), 120))
        return self

    async def _run(self) -> None:
        sources = {n: SourceSpec(path=str(self.folder / f"{n}.parquet")) for n in (*GUESTS, HOST)}
        values = np.random.default_rng(1)
        self._write(HOST, id=IDS, **{name: values.normal(size=ROWS) for name in COLUMNS})
        for guest in GUESTS:
            self._label(guest, IDS)
        spec = job_spec("secureboost", (GUESTS[0], HOST, GUESTS[1]), params=TREES)
        with self._lying():
            made = local.cluster(self.folder / "c", spec, sources, Serial(), timers=TIMERS)
            async with made as cluster:
                self.cluster, self.host = cluster, cluster.parties[HOST]
                self._rule()
                if self.draw.random() < CALM:
                    self._is_calm = True
                    await self._job("sums")
                    self._is_calm = False
                for _ in range(self.draw.randint(1, JOBS_MAX)):
                    await self._job(self.draw.choice(list(KINDS)))
                self.charged = self.host.spending.account.entries()
                rows = self.host.ledger.rows()
                self.noted = Counter(row.job for row in rows if row.direction == "out")
                with self.host.store.transaction() as sql:
                    counted = "SELECT peer, sum(rows) FROM predictions GROUP BY peer"
                    self.predicted_by = dict(sql.execute(counted).fetchall())
                    [self.aligned] = sql.execute(
                        "SELECT coalesce(max(runs), 0) FROM alignments"
                    ).fetchone()

    def _write(self, party: str, **columns: object) -> None:
        pq.write_table(pa.table(columns), self.folder / f"{party}.parquet")

    def _label(self, guest: str, ids: list[str]) -> None:
        """Other labels, of these rows."""
        draw = np.random.default_rng(self.draw.getrandbits(32))
        labels = draw.integers(0, 2, len(ids))
        self._write(guest, id=ids, y=labels, w=draw.normal(size=len(ids)))

    def _rule(self) -> None:
        """The host's policy, and its table under two names; guests allow themselves everything."""
        limits = self.limits
        for name, node in self.cluster.parties.items():
            [source] = {repr(s): s for s in node.config.datasets.values()}.values()
            policy = node.config.policy
            if name == HOST:
                source = source.model_copy(update={"labels": [], "columns": None})
                policy = policy.model_copy(
                    update={
                        "approve": limits.approve, "disclosure_max": limits.disclosure_max,
                        "epsilon_row_max": limits.epsilon_row_max, "datasets": NAMES,
                        "alignments_per_day": limits.alignments_per_day,
                        "predict": PredictPolicy(peers=GUESTS, rows_per_day=limits.rows_per_day),
                    }
                )  # fmt: skip
                tables = dict.fromkeys(NAMES, source)
            else:
                tables = {
                    local.DATASET: source.model_copy(update={"labels": ["y"], "columns": None})
                }
            own = {"policy": policy, "datasets": tables}
            node.config = node.judge.config = node.config.model_copy(update=own)

    # Jobs

    async def _job(self, kind: str) -> None:
        guest = self.draw.choice(GUESTS)
        with_models = [name for name in GUESTS if self._models[name]]
        if with_models and self.draw.random() < 0.7:
            guest, kind = self.draw.choice(with_models), "predict"
        elif kind == "predict":
            kind = "sums"
        protocol, params = KINDS[kind]
        if kind == "predict":
            params = {"model": self.draw.choice(self._models[guest])}
        data = {HOST: {"dataset": self.draw.choice(NAMES)}}
        spec = job_spec(protocol, (guest, HOST), data=data, params=params)
        spec = spec.model_copy(update={"name": f"{kind}-{self.draw.randrange(3)}"})
        self.did.append(f"job {spec.name} of {guest} over {data[HOST]['dataset']}")
        jobs = local.LocalClient(self.cluster)
        try:
            job = await jobs.submit(spec.model_dump_json().encode())
        except FedboostError as error:
            self.did.append(f"refused: {error.what}")
            return
        if kind == "cuts":
            self._cuts.add(job)
        for attempt in range(ATTEMPTS_MAX):
            if attempt:
                self._mischief(guest, job)
                with suppress(FedboostError):
                    await jobs.resume(job)
            async for _ in jobs.watch(job):
                pass
            status = await jobs.status(job)
            self.did.append(f"{status.state}: {status.reason.what}")
            if self._is_calm or status.state == "finished":
                if status.state == "finished" and kind == "sums":
                    self._models[guest].append(job)
                if self._is_calm or self.draw.random() < 0.7:
                    return
            elif status.state != "paused" and self.draw.random() < 0.5:
                return

    def _mischief(self, guest: str, job: str) -> None:
        """The guest loses what it kept, and has another table."""
        if self.draw.random() < 0.5:
            self.did.append("the guest has lost the job")
            node = self.cluster.parties[guest]
            node.under_way.pop(job, None)
            shutil.rmtree(node.store.folder / "jobs" / job, ignore_errors=True)
        if self.draw.random() < 0.5:
            ids = IDS if self.draw.random() < 0.5 else self.draw.sample(IDS, ROWS - 5)
            self.did.append(f"another table of {len(ids)} rows")
            self._label(guest, ids)

    # Lies

    @contextmanager
    def _lying(self) -> Iterator[None]:
        """Puts itself between the coordinator, the parties and the links."""
        adversary, deliver = self, local.LocalLinks.deliver

        class Lies(local.LocalControl):
            def __getattr__(self, name: str) -> Any:
                real = super().__getattr__(name)
                return lambda request: adversary._called(self._node, name, request, real)

            async def run_step(self, request: StepCall, _: Any = None) -> Any:
                real = super().run_step
                return await adversary._called(self._node, "run_step", request, real)

        async def delivered(links: local.LocalLinks, envelope: Envelope, payload: bytes) -> None:
            if envelope.sender == HOST:
                adversary._left(envelope)
            if envelope.receiver == HOST:
                await adversary._mailed(envelope, payload, lambda *m: deliver(links, *m))
            else:
                await deliver(links, envelope, payload)

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(authority, "create", _certificates)
            patched.setattr(walker, "APPROVAL_POLL_S", 0.01)
            patched.setattr(local, "LocalControl", Lies)
            patched.setattr(local.LocalLinks, "deliver", delivered)
            with self.observer.watching(patched):
                yield

    async def _called(
        self, node: PartyNode, name: str, request: Message, real: Callable[[Any], Awaitable[Any]]
    ) -> Any:
        """A call of the coordinator's: to a guest it may be lost, to the host it is not alone."""
        if node.config.name != HOST:
            if name == "run_step" and not self._is_calm and self.draw.random() < LOST:
                self.did.append(f"{node.config.name} dies")
                raise UnreachableError("the guest's daemon died", party=node.config.name)
            return await real(request)
        self._calls.append((name, request))
        if name == "propose" and self.limits.approve == "always":
            answer = await real(request)
            if self._is_calm or self.draw.random() < 0.7:
                await self._approve(request)
                answer = await real(request)
            return answer
        if not self._is_calm and self.draw.random() < FORGED:
            lie = self.draw.choice(("twice", "earlier", "other step", "anew", "stopped", "skipped"))
            if lie == "skipped" and name == "commit":
                self.did.append("a commit is left out")
                return CommitReply()
            if lie == "twice":
                await self._tried(name, request)
            elif lie == "earlier":
                await self._tried(*self._earlier(request))
            elif lie == "other step" and isinstance(request, StepCall):
                await self._tried(name, self._other_step(request))
            elif lie in ("anew", "stopped"):
                await self._anew(request, begins=lie == "anew")
        return await real(request)

    async def _approve(self, proposal: Any) -> None:
        terms = manifest.decode(proposal.manifest)
        with suppress(FedboostError):
            await self.host.approve(OWNER, JobId(id=terms.job))
            self.approved.add((terms.job, manifest.sha256(proposal.manifest)))
            self.did.append("the owner approves")

    async def _tried(self, name: str, request: Message) -> None:
        """A call to the host that no coordinator makes."""
        self.did.append(f"{name} besides")
        with suppress(FedboostError):
            await getattr(self.host, name)(LEADER, request)

    def _earlier(self, now: Any) -> tuple[str, Message]:
        """A call of before, maybe as one of this attempt or for this job."""
        name, kept = self.draw.choice(self._calls)
        request = type(kept)()
        request.CopyFrom(kept)
        for key in ("attempt", "job"):
            known = (
                key in request.DESCRIPTOR.fields_by_name and key in now.DESCRIPTOR.fields_by_name
            )
            if known and self.draw.random() < 0.5:
                setattr(request, key, getattr(now, key))
        return name, request

    def _other_step(self, call: StepCall) -> StepCall:
        request = StepCall()
        request.CopyFrom(call)
        known = [one for name, one in self._calls if isinstance(one, StepCall)]
        for turn in request.turns:
            if self.draw.random() < 0.5:
                turn.number += self.draw.choice((1, 2, 7))
            if self.draw.random() < 0.5:
                turn.step = self.draw.choice(self.draw.choice(known).turns).step
        return request

    async def _anew(self, request: Any, *, begins: bool) -> None:
        """The job is stopped, proposed again and begun, whoever has agreed to it."""
        if "job" not in request.DESCRIPTOR.fields_by_name:
            return
        state = self.draw.choice(("paused", "failed"))
        known = [job for job in self.host.store.jobs() if job.id == request.job]
        if not known:
            return
        [job] = known
        stop = StopRequest(job=job.id, attempt=max(1, job.attempt), state=state)
        await self._tried("stop", stop)
        if not begins:
            return
        await self._tried("propose", Proposal(manifest=job.manifest))
        digest = manifest.sha256(job.manifest)
        begin = BeginRequest(job=job.id, manifest_sha256=digest, attempt=job.attempt + 1)
        for party, node in self.cluster.parties.items():  # as if all had given theirs
            begin.signatures.add(party=party, signature=node.judge.signatures_of_jobs.sign(digest))
        await self._tried("begin", begin)

    async def _mailed(
        self, envelope: Envelope, payload: bytes, real: Callable[[Envelope, bytes], Awaitable[None]]
    ) -> None:
        """A message to the host: it may come twice, late, or with what stood in another."""
        self._mails.append((envelope, payload))
        if not self._is_calm and self.draw.random() < FORGED:
            old, before = self.draw.choice(self._mails)
            lie = self.draw.choice(("twice", "old", "old as new"))
            again = Envelope()
            again.CopyFrom(envelope if lie == "twice" else old)
            if lie == "old as new":
                again.attempt = envelope.attempt
            self.did.append(f"a message {lie}")
            with suppress(FedboostError):
                await real(again, payload if lie == "twice" else before)
        await real(envelope, payload)

    def _left(self, envelope: Envelope) -> None:
        """Notes what leaves a job that nobody approved."""
        job = self.host.store.job(envelope.job)
        known = (job.id, manifest.sha256(job.manifest)) in self.approved
        if self.limits.approve == "always" and not known:
            self.unapproved.append(f"{envelope.step} of {job.id}")

    def _cut_off(self) -> set[str]:
        """Jobs of which the host has noted a message that has not left: its attempt was over."""
        left = Counter(
            one.envelope.job
            for one in self.observer.left
            if not one.is_taken and one.envelope.sender == HOST
        )
        return {job for job, count in self.noted.items() if count > left[job]}

    # What must hold

    def assert_within(self) -> None:
        """What an observer has seen leave is what the account says, and within the policy."""
        assert self.unapproved == [], "left without approval"
        sums = self.observer.sums(HOST, len(COLUMNS), 2)
        rows = {entry.job: entry.rows for entry in self.charged}
        seen = {job: sum(told) / rows[job] for job, told in sums.items() if any(told)}
        said = {entry.job: sum(entry.told.values()) for entry in self.charged if entry.told}
        for job, trees in self.observer.answered(HOST).items():
            if job in self._cuts:  # of a node with one row there is no cut, and nothing to charge
                most = trees / (HYBRID["max_bin"] - 1)
                fits = most / 2 <= said.get(job, 0.0) <= most + 1e-9
                assert fits, "random cuts are not what the account says"
                seen[job] = said[job]
        cut_off = self._cut_off()
        for job in cut_off & said.keys():  # charged before the bytes were there
            assert seen.get(job, 0.0) <= said[job] + 1e-9, "sums are more than the account says"
            seen[job] = said[job]
        assert seen == pytest.approx(said), "sums are not what the account says"
        most = self.limits.disclosure_max
        assert sum(seen.values()) / len(COLUMNS) <= most, "more sums than the policy allows"
        noise = self.observer.noise(HOST, EPSILON)
        told = [sum(entry.charged.get("epsilon", {}).values()) for entry in self.charged]
        if cut_off:
            assert noise <= sum(told) + 1e-9, "ε is more than the account says"
        else:
            assert noise == pytest.approx(sum(told)), "ε is not what the account says"
        assert noise <= self.limits.epsilon_row_max, "more ε than the policy allows"
        assert self.observer.predicted(HOST) <= self.predicted, "rows that nobody counted"
        most_predicted = max(self.predicted_by.values(), default=0)
        assert most_predicted <= self.limits.rows_per_day, "more rows than the policy allows"
        seen_aligned = self.observer.alignments(HOST)
        assert seen_aligned <= len(GUESTS) * self.aligned, "alignments that nobody counted"
        assert self.aligned <= self.limits.alignments_per_day, "more alignments than allowed"


def carried_out(draw: random.Random, folder: Path) -> Adversary:
    """A schedule and what came of it; an error says what was done."""
    folder.mkdir(parents=True, exist_ok=True)
    adversary = Adversary(draw, folder)
    try:
        adversary.run()
        adversary.assert_within()
    except BaseException as error:
        error.add_note(f"{adversary.limits}: " + "; ".join(adversary.did))
        raise
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return adversary


_create = authority.create
_kept: list[tempfile.TemporaryDirectory[str]] = []


def _certificates(folder: Path, leaves: list[Leaf], term: Term) -> None:
    """The same certificates for every schedule of a process: drawing keys takes its time."""
    if not _kept:
        _kept.append(tempfile.TemporaryDirectory(prefix="certs-"))
        _create(Path(_kept[0].name), leaves, term)
    shutil.copytree(_kept[0].name, folder, dirs_exist_ok=True)
