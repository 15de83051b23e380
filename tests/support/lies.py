"""What everybody but one party may do to it: a coordinator, its users, and the other parties.

A schedule is drawn: jobs in attempts that end where the others like. Between the calls of a job
they repeat calls and messages, also of earlier attempts and jobs, leave out commits, ask for other
steps, stop, propose and begin. The others lose what they keep of a job, their stores, and the
coordinator's; they change their tables. The victim's node, store, policy and owner are the real
ones: it dies, comes back, is restored from a backup, and its owner approves, denies and sees what a
backup lacks.
"""

from __future__ import annotations

import asyncio
import json
import random
import shutil
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from google.protobuf.message import Message

from fedboost.data.sources import SourceSpec
from fedboost.ground import wire
from fedboost.ground.errors import FedboostError, UnreachableError
from fedboost.job import JobSpec
from fedboost.messages.exchange_pb2 import Envelope
from fedboost.messages.job_pb2 import JobId
from fedboost.messages.party_pb2 import (
    BeginRequest,
    CommitReply,
    DenyRequest,
    Proposal,
    StepCall,
    StopRequest,
)
from fedboost.runtime.cluster import local
from fedboost.runtime.coordinator import walk
from fedboost.runtime.jobs import manifest
from fedboost.runtime.ledger.signed_heads import Recalled
from fedboost.runtime.transport import authority
from fedboost.runtime.transport.addresses import Timers
from fedboost.runtime.transport.identity import Peer
from tests.support.federated import resealed
from tests.support.observer import Observer
from tests.support.town import certificates, town

JOBS_MAX, ATTEMPTS_MAX = 3, 3
FORGED = 0.06  # of the victim's calls and messages
LOST = 0.04  # of the others' calls
APPROVED, DENIED = 0.75, 0.12  # of the proposals that an owner looks at
DENIES = 0.003  # of the victim's calls, whatever was decided before
FORGETS = 0.2  # of the times between two attempts, the coordinator
LOSES, CHANGES = 0.4, 0.4  # one of the others loses the job, has another table
CALM = 0.5  # of the schedules begin with a job in which nobody lies
LEADER = Peer("coordinator", local.COORDINATOR, fingerprint="", serial=0)
OWNER = Peer("user", local.USER, fingerprint="", serial=0)
TIMERS = Timers(approval_s=0.02, step_s=2.0, peer_lost_s=1.0)


@dataclass
class Habits:
    """How often a schedule does what would be rare, or too much, in every one."""

    skips: float  # commits that are left out
    dies: float  # of the victim's calls, before which its daemon dies

    @classmethod
    def drawn(cls, draw: random.Random) -> Habits:
        """Mostly some, sometimes all or none."""
        return cls(skips=draw.choice((0.0, 0.2, 1.0)), dies=draw.choice((0.0, 0.0, 0.01, 0.03)))


@dataclass
class Schedule:
    """One schedule against one party. `did` says what happened, in order."""

    draw: random.Random
    folder: Path
    observer: Observer = field(default_factory=Observer)
    did: list[str] = field(default_factory=list)
    forbidden: list[str] = field(default_factory=list)  # what left all the same, and why not
    noted: Counter[tuple[Any, ...]] = field(default_factory=Counter)  # messages in the ledger
    entries: list[Any] = field(default_factory=list)  # the account's, in the end
    asks_owner: bool = False

    victim: ClassVar[str]
    others: ClassVar[tuple[str, ...]]

    def __post_init__(self) -> None:
        self.habits = Habits.drawn(self.draw)
        self._calls: list[tuple[str, Message]] = []  # that the victim has got
        self._mails: list[tuple[Envelope, bytes]] = []
        self._is_calm = False  # for the job at hand, nobody lies
        self._approved: set[tuple[str, bytes]] = set()  # job and manifest
        self._denied: set[tuple[str, bytes]] = set()
        self._kept: tuple[frozenset[int], set[Any], set[Any]] | None = None  # with the backup
        self._owed: dict[str, str] = {}  # hashes of rows that peers keep and the victim lacks

    # What a schedule is made of

    def ground(self) -> JobSpec:
        """Writes the tables; a job of all parties."""
        raise NotImplementedError

    def rule(self) -> None:
        """Gives everybody a policy."""
        raise NotImplementedError

    async def jobs(self) -> None:
        """What is submitted, one after the other."""
        raise NotImplementedError

    def changes_table(self, party: str) -> str:
        """Another table of one of the others; in words."""
        raise NotImplementedError

    def patches(self, patched: pytest.MonkeyPatch) -> None:
        """What else the others do otherwise."""

    def spoilt(self, _: Envelope, payload: bytes) -> bytes | None:
        """Another content of a message to the victim; None where there is nothing to gain."""
        del payload
        return None

    # Carried out

    def run(self) -> None:
        """Carries the schedule out."""
        asyncio.run(asyncio.wait_for(self._run(), 180))

    async def _run(self) -> None:
        spec = self.ground()
        sources = {
            name: SourceSpec(path=str(self.folder / f"{name}.parquet"))
            for name in (self.victim, *self.others)
        }
        with self._lying():
            async with town(self.folder, spec, sources, TIMERS) as self.town:
                self.rule()
                await self.jobs()
                await self.town.settles()
                node = self.town.node(self.victim)
                self.entries = node.spending.account.entries()
                self.noted = Counter(
                    (r.job, r.attempt, r.step, r.number, r.part, r.peer, r.bytes, r.sha256)
                    for r in node.ledger.rows()
                    if r.direction == "out"
                )
                self.looks(node)

    def looks(self, node: Any) -> None:
        """What else the victim's store says in the end."""

    def write(self, party: str, **columns: object) -> None:
        """Its table from now on."""
        pq.write_table(pa.table(columns), self.folder / f"{party}.parquet")

    async def carry(self, spec: JobSpec) -> tuple[str, str]:
        """One job in attempts: its id, empty where it was refused, and how it stands."""
        key = f"{self.draw.getrandbits(128):032x}"
        text = spec.model_dump_json().encode()
        try:
            job = await self.town.client.submit(text, key)
        except FedboostError as error:
            self.did.append(f"refused: {error.what}")
            return "", ""
        state = ""
        for attempt in range(ATTEMPTS_MAX):
            if attempt:
                await self._mischief(job, spec)
                with suppress(FedboostError):
                    await self.town.client.submit(text, key)
                    await self.town.client.resume(job)
            async for _ in self.town.client.watch(job):
                pass
            status = await self.town.client.status(job)
            state = status.state
            self.did.append(f"{state}: {status.reason.what}")
            is_over = state == "finished" or self._is_calm
            if is_over and (self._is_calm or self.draw.random() < 0.7):
                break
            if not is_over and state != "paused" and self.draw.random() < 0.4:
                break
        return job, state

    async def _mischief(self, job: str, spec: JobSpec) -> None:
        """What befalls people between two attempts."""
        await self.town.settles()
        other = self.draw.choice([name for name in spec.parties.everybody if name != self.victim])
        if self.draw.random() < LOSES:
            self.did.append(f"{other} has lost the job")
            node = self.town.node(other)
            node.under_way.pop(job, None)
            shutil.rmtree(node.store.folder / "jobs" / job, ignore_errors=True)
        if self.draw.random() < CHANGES:
            self.did.append(self.changes_table(other))
        if self.draw.random() < 0.05:
            self.did.append(f"{other} has lost its store")
            await self.town.lose_store(other)
            self._owed.pop(other, None)
        if self.draw.random() < FORGETS:
            known = [j for j in self.town.node(self.victim).store.jobs() if j.id == job]
            kept = self.draw.choice((None, *known, *known))
            self.did.append(f"the coordinator has lost {'all' if kept is None else 'other jobs'}")
            if kept is not None:  # and maybe, how often it was tried
                kept = replace(kept, attempt=self.draw.choice((0, 0, kept.attempt)))
            await self.town.lose_coordinator(kept)
        if self.draw.random() < 0.3:
            await self.dies()
        if self.draw.random() < 0.5:
            self._sees()

    # The victim's daemon and owner

    async def dies(self, way: str = "") -> None:
        """The victim's daemon dies; maybe its store is copied, or is the copy when it is back.

        Whoever is amid a call may be cancelled meanwhile, which brings nobody back halfway.
        """
        await asyncio.shield(asyncio.create_task(self._dies(way)))

    async def _dies(self, way: str) -> None:
        way = way or self.draw.choice(("killed", "copied", "restored", "restored"))
        if way == "copied" or (way == "restored" and self._kept is None):
            self.did.append(f"{self.victim}'s store is copied")
            await self.town.back_up(self.victim, self._keep)
        elif way == "restored":
            self.did.append(f"{self.victim}'s store is restored")
            await self.town.restore(self.victim, self._forget)
            self._owed = dict(self._lacking())
        else:
            self.did.append(f"{self.victim} dies")
            await self.town.restart(self.victim)

    def _keep(self) -> None:
        """Notes what the victim's store says, which is being copied."""
        self._kept = self.observer.era(), set(self._approved), set(self._denied)

    def _forget(self) -> None:
        """Forgets what the victim's store does not say that has been restored.

        Like `_keep` while the victim is dead: another copy may have been made since somebody
        wanted this one back, and nobody calls the victim meanwhile.
        """
        assert self._kept is not None
        eras, approved, denied = self._kept
        self._approved, self._denied = set(approved), set(denied)
        self.observer.era(eras)

    def _lacking(self) -> Iterator[tuple[str, str]]:
        """Of each of the others who keeps one, a head of the victim's that its ledger lacks."""
        own = {row.n: row.hash for row in self.town.node(self.victim).ledger.rows()}
        for name in self.others:
            kept = self.town.node(name).ledger.newest_head(self.victim)
            said: dict[str, Any] = {"n": 0} if kept is None else json.loads(kept.text)
            if said["n"] and own.get(said["n"]) != said["hash"]:
                yield name, str(said["hash"])

    def _sees(self) -> None:
        """The owner sees what a restored store lacks, as far as it is known."""
        ledger = self.town.node(self.victim).ledger
        known = {gap.hash for gap in ledger.recorded_gaps() if not gap.seen}
        if known:
            self.did.append("the owner has seen what the backup lacks")
            ledger.mark_gaps_seen()
            self._owed = {name: one for name, one in self._owed.items() if one not in known}

    async def _proposed(self, proposal: Any) -> Any:
        """The owner looks at what is proposed, where the policy asks for that."""
        answer = await self._real(self.victim, "propose", proposal)
        chance = self.draw.random()
        if not self.asks_owner:
            return answer
        if self._is_calm or chance < APPROVED:
            with suppress(FedboostError):
                terms = manifest.decode_manifest(proposal.manifest)
                await self.town.node(self.victim).approve(OWNER, JobId(id=terms.job))
                self._approved.add((terms.job, manifest.manifest_sha256(proposal.manifest)))
                self.did.append("the owner approves")
            return await self._real(self.victim, "propose", proposal)
        if chance < APPROVED + DENIED:
            await self._denies(manifest.decode_manifest(proposal.manifest).job)
        return answer

    async def _denies(self, job: str) -> None:
        await self.town.settles()
        node = self.town.node(self.victim)
        with suppress(FedboostError):
            await node.deny(OWNER, DenyRequest(id=job))
            self._denied.add((job, manifest.manifest_sha256(node.store.job(job).manifest)))
            self.did.append("the owner denies")

    # Lies

    @contextmanager
    def _lying(self) -> Iterator[None]:
        """Puts itself between the coordinator, the parties and the links."""
        schedule, deliver = self, local.LocalLinks.deliver
        refuse_gaps = Recalled.refuse_gaps

        async def refused(recalled: Recalled, peers: Iterable[str]) -> None:
            if recalled._party == schedule.victim:  # others care little for what they forgot
                await refuse_gaps(recalled, peers)

        class Lies(local.LocalControl):
            """Calls of whichever node a party has now."""

            def __init__(self, node: Any, coordinator: str) -> None:
                super().__init__(node, coordinator)
                self._name = node.config.name

            def __getattr__(self, name: str) -> Any:
                return lambda request: schedule._called(self._name, name, request)

            async def run_step(self, request: StepCall, _: Any = None) -> Any:
                return await schedule._called(self._name, "run_step", request)

            async def hello(self, *, retries: bool = True) -> Any:
                del retries
                self._node = schedule.town.node(self._name)
                return await super().hello()

        async def delivered(links: local.LocalLinks, envelope: Envelope, payload: bytes) -> None:
            if envelope.sender == schedule.victim:
                schedule._left(envelope)
            if envelope.receiver == schedule.victim:
                await schedule._mailed(envelope, payload, lambda *m: deliver(links, *m))
            else:
                await deliver(links, envelope, payload)

        with pytest.MonkeyPatch.context() as patched:
            self.patches(patched)
            patched.setattr(authority, "create_certificates", certificates)
            patched.setattr(walk, "APPROVAL_POLL_S", 0.01)
            patched.setattr(local, "LocalControl", Lies)
            patched.setattr(local.LocalLinks, "deliver", delivered)
            patched.setattr(Recalled, "refuse_gaps", refused)
            with self.observer.watching(patched):
                yield

    async def _real(self, party: str, name: str, request: Any) -> Any:
        """A call as it is; the observer hears what the victim answers."""
        node = self.town.node(party)
        arrived = type(request).FromString(wire.encode(request))
        if party == self.victim:
            self.observer.asks(name, request)
        try:
            reply = await getattr(node, name)(LEADER, arrived)
        except BaseException:
            if party == self.victim:
                self.observer.refused(name, request)
            raise
        if party == self.victim:
            self.observer.hears(name, request, reply)
        return reply

    async def _called(self, party: str, name: str, request: Any) -> Any:
        """A call of the coordinator's: to others it may be lost, to the victim it is not alone."""
        lies = not self._is_calm
        if party != self.victim:
            if name == "run_step" and lies and self.draw.random() < LOST:
                self.did.append(f"{party} dies")
                raise UnreachableError(f"{party}'s daemon died", party=party)
            return await self._real(party, name, request)
        self._calls.append((name, request))
        if name == "propose":
            return await self._proposed(request)
        if lies and name == "commit" and self.draw.random() < self.habits.skips:
            self.did.append("a commit is left out")
            return CommitReply()
        if lies and self.draw.random() < DENIES:
            await self._denies(request.job)
        if lies and self.draw.random() < self.habits.dies:
            await self.dies()
        if lies and self.draw.random() < FORGED:
            await self._forged(name, request)
        return await self._real(party, name, request)

    async def _forged(self, name: str, request: Any) -> None:
        """What no coordinator does, before what it does."""
        lie = self.draw.choice(("twice", "earlier", "other step", "anew", "stopped"))
        if lie == "twice":
            await self._tried(name, request)
        elif lie == "earlier":
            await self._tried(*self._earlier(request))
        elif lie == "other step" and isinstance(request, StepCall):
            await self._tried(name, self._other_step(request))
        elif lie in ("anew", "stopped"):
            await self._anew(request, begins=lie == "anew")

    async def _tried(self, name: str, request: Message) -> None:
        self.did.append(f"{name} besides")
        with suppress(FedboostError):
            await self._real(self.victim, name, request)

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
        known = [j for j in self.town.node(self.victim).store.jobs() if j.id == request.job]
        if not known:
            return
        [job] = known
        stop = StopRequest(job=job.id, attempt=max(1, job.attempt), state=state)
        await self._tried("stop", stop)
        if not begins:
            return
        await self._tried("propose", Proposal(manifest=job.manifest))
        digest = manifest.manifest_sha256(job.manifest)
        begin = BeginRequest(job=job.id, manifest_sha256=digest, attempt=job.attempt + 1)
        for party, node in self.town.cluster.parties.items():  # as if all had given theirs
            begin.signatures.add(party=party, signature=node.judge.signatures_of_jobs.sign(digest))
        await self._tried("begin", begin)

    async def _mailed(
        self, envelope: Envelope, payload: bytes, real: Callable[[Envelope, bytes], Awaitable[None]]
    ) -> None:
        """A message to the victim: it may come twice, late, with what stood in another, or say
        something else.
        """
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
        other = None if self._is_calm else self.spoilt(envelope, payload)
        if other is not None:
            self.did.append(f"another {envelope.kind.rpartition('.')[2]}")
            envelope, payload = resealed(envelope, other)
        await real(envelope, payload)

    def _left(self, envelope: Envelope) -> None:
        """Notes what must not leave: unapproved, denied, or of a restored store that nobody saw."""
        job = self.town.node(self.victim).store.job(envelope.job)
        key = job.id, manifest.manifest_sha256(job.manifest)
        what = f"{envelope.step} of {job.id}"
        if self.asks_owner and key not in self._approved:
            self.forbidden.append(f"without approval: {what}")
        if key in self._denied:
            self.forbidden.append(f"denied: {what}")
        if envelope.receiver in self._owed:
            self.forbidden.append(f"from a restored store: {what}")

    # What must hold of every party

    def assert_within(self) -> None:
        """What an observer has seen leave is what the account says, and within the policy."""
        raise NotImplementedError

    def cut_off(self) -> set[str]:
        """Jobs of which the victim has noted a message that has not left: its attempt was over."""
        left = Counter(self._sent())
        return {key[0] for key, count in self.noted.items() if count > left[key]}

    def assert_noted(self) -> None:
        """What must not leave has not, and what has left stands in the ledger, each time."""
        assert self.forbidden == [], "left all the same"
        unknown = Counter(self._sent()) - self.noted
        assert not unknown, f"left and stands in no ledger: {[*unknown][:3]}"
        assert not self.observer.rewritten(self.victim), "two messages in one place"

    def _sent(self) -> Iterator[tuple[Any, ...]]:
        for one in self.observer.kept:
            e = one.envelope
            if not one.is_taken and e.sender == self.victim:
                place = e.job, e.attempt, e.step, e.number, e.part, e.receiver
                yield (*place, e.payload_bytes, e.payload_sha256.hex())


Played = TypeVar("Played", bound=Schedule)


def judged(schedule: Played) -> Played:
    """A schedule that was carried out and left the border; an error says what was done."""
    schedule.folder.mkdir(parents=True, exist_ok=True)
    try:
        schedule.run()
        schedule.assert_within()
    except BaseException as error:
        error.add_note("; ".join(schedule.did))
        raise
    finally:
        shutil.rmtree(schedule.folder, ignore_errors=True)
    return schedule


def ruled(node: Any, policy: Mapping[str, Any], datasets: Mapping[str, SourceSpec]) -> None:
    """Gives a party's node another policy and other tables."""
    config = node.config
    more = {"policy": config.policy.model_copy(update=policy), "datasets": datasets}
    node.config = node.judge.config = config.model_copy(update=more)
