"""A party's side of every job: judges proposals, runs stages, keeps checkpoints, answers its owner.

No network here: `daemon` serves these methods over gRPC, `simulate` calls them directly.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable, Sequence

from google.protobuf.message import Message

from fedboost import __version__, flow, protocols, wire
from fedboost.crypto.workers import Workers
from fedboost.errors import (
    FedboostError,
    PeerError,
    PolicyError,
    ProtocolError,
    UnreachableError,
)
from fedboost.messages import job_pb2, party_pb2
from fedboost.messages.exchange_pb2 import Envelope
from fedboost.messages.party_pb2 import StepCall, StepReply
from fedboost.runtime import faults, manifest, memory
from fedboost.runtime.config import PartyConfig
from fedboost.runtime.identity import Peer
from fedboost.runtime.judgement import Judge, Trust
from fedboost.runtime.ledger import Ledger
from fedboost.runtime.outbox import Links, Terms
from fedboost.runtime.reading import disclosure, owned
from fedboost.runtime.session import Session
from fedboost.runtime.store import Job, JobState, Store
from fedboost.runtime.work import Work

log = logging.getLogger(__name__)

WriteReport = Callable[[job_pb2.JobJournal, str], None]  # renders a journal into a file


class PartyNode:
    """One party. Every method that a peer can reach takes the caller first."""

    def __init__(
        self,
        config: PartyConfig,
        trust: Trust,
        store: Store,
        links: Links,
        workers: Workers,
    ) -> None:
        self.config = config
        self.store = store
        self.ledger = Ledger(store.database)
        self.write_report: WriteReport | None = None
        self.cpu_clock: Callable[[], float] | None = time.process_time  # None: only steps count
        self._identity = trust.identity
        self.judge = Judge(config, trust, store)
        self._links = links
        self._workers = workers
        self._works: dict[str, Work] = {}
        for job in store.jobs(JobState.RUNNING):
            store.move(job.id, JobState.PAUSED, reason="the party's daemon was restarted")

    def close(self) -> None:
        """Closes what the node opened."""
        self.ledger.close()

    async def pause_all(self) -> None:
        """Pauses what runs here: the daemon stops."""
        reason = UnreachableError(
            f"{self.config.name}'s daemon was stopped",
            party=self.config.name,
            todo="start it again, then: fedboost job resume",
        )
        for work in list(self._works.values()):
            await self._halt(work, JobState.PAUSED, reason)

    # Anybody with a certificate

    async def hello(self, caller: Peer, _: job_pb2.HelloRequest) -> job_pb2.HelloReply:
        """Who we are."""
        ours = self._identity()
        known = self.config.addresses()
        if caller.role != "user" and caller.name not in known:
            raise PolicyError(f"{caller} is not known here", todo="add it to `peers`")
        return job_pb2.HelloReply(
            name=ours.name,
            role=ours.role,
            version=__version__,
            wire_version=wire.WIRE_VERSION,
            clock=time.time(),
            certificate=ours.certificate_pem.decode(),
        )

    # The coordinator

    async def propose(self, caller: Peer, request: party_pb2.Proposal) -> party_pb2.Agreement:
        """Our signature under a job that our policy allows; none while a person has to approve."""
        if caller.role != "coordinator":
            raise PolicyError(f"{caller} does not lead jobs")
        terms = manifest.decode(request.manifest)
        self.judge.proposal(caller, terms)
        digest = manifest.sha256(request.manifest)
        work = self._works.get(terms.job)
        if work is not None and work.manifest_sha256 != digest:
            raise PeerError("the coordinator proposed two different jobs under one name")
        if work is None:
            work = Work(self.config.name, terms, digest, self.store)
        self.judge.job(work)
        job = self._recorded(work, request.manifest)
        self._works[terms.job] = work
        if job.state is JobState.CANCELLED:  # by our owner: the coordinator's own cancel is final
            raise PolicyError(job.reason, party=self.config.name, job=job.id)
        if job.state is JobState.WAITING and not job.approved_by:
            return party_pb2.Agreement()
        return party_pb2.Agreement(signature=self._identity().sign(digest))

    async def begin(self, caller: Peer, request: party_pb2.BeginRequest) -> party_pb2.BeginReply:
        """Starts an attempt: every party has signed, our table is sound. Says how far we are."""
        work = self._work(caller, request.job)
        if request.manifest_sha256 != work.manifest_sha256:
            raise PeerError("the job to begin is not the one that was proposed")
        self.judge.signatures(work, list(request.signatures))
        job = self.store.job(work.id)
        if request.attempt <= job.attempt:
            raise ProtocolError(f"attempt {request.attempt} of the job is over", job=work.id)
        if job.state is JobState.WAITING and not job.approved_by:
            raise PolicyError("nobody has approved the job here", party=self.config.name)
        self.store.set_attempt(work.id, request.attempt)
        if job.state is not JobState.FINISHED:
            self.store.move(work.id, JobState.RUNNING)
        if work.session is not None:
            await work.session.stop(ProtocolError("a new attempt of the job began", job=work.id))
            self._settle(work)
        work.attempt = request.attempt
        work.halted = None
        work.cpu_started = self._cpu_now()
        work.heard = time.monotonic()
        if job.state is JobState.FINISHED:  # here; another party has not heard the result yet
            return party_pb2.BeginReply(stages_done=work.stages)
        if work.frame is None and self.config.name in work.terms.spec.data:
            source = self.config.datasets[work.terms.spec.data[self.config.name].dataset or ""]
            await asyncio.to_thread(work.read_table, source)
            notes: tuple[str, ...] = work.frame.notes if work.frame else ()
            for note in notes:
                log.info("%s: %s", work.id, note)
        work.check_table()
        self.judge.disclosure(work)
        return work.how_far()

    async def open_stage(
        self, caller: Peer, request: party_pb2.StageRequest
    ) -> party_pb2.StageReply:
        """Takes the seat at a stage, from the start or from a checkpoint."""
        work = self._at(caller, request.job, request.attempt)
        self._settle(work)
        seat = await asyncio.to_thread(
            work.seat,
            *(request.stage, self._workers, self.config.policy, self.judge.signatures_of_jobs),
        )
        checkpoint = await asyncio.to_thread(work.kept, request.stage, request.round)
        if protocols.named(request.stage).leaves == "predictions":
            self.judge.prediction(work, len(seat.validation))
        work.session = Session(
            terms=Terms(work.id, work.manifest_sha256, work.attempt),
            protocol=protocols.named(request.stage),
            seat=seat,
            links=self._links,
            record=self._record,
            wait_s=self.config.timers.step_s,
        )
        return party_pb2.StageReply(told=await work.session.open(checkpoint))

    async def run_step(self, caller: Peer, request: StepCall) -> StepReply:
        """Does one step."""
        work = self._at(caller, request.job, request.attempt)
        session = self._session(work, request.stage)
        reply = await session.run_step(request)
        work.cpu_steps += sum(turn.cost.cpu_seconds for turn in reply.turns)
        return reply

    def sign_of_life(self, request: StepCall) -> StepReply:
        """What we say every few seconds while the steps of a call take their time."""
        session = self._works[request.job].session if request.job in self._works else None
        return StepReply(working=True) if session is None else session.sign_of_life()

    async def commit(self, caller: Peer, request: party_pb2.CommitRequest) -> party_pb2.CommitReply:
        """Keeps what a finished round left."""
        work = self._at(caller, request.job, request.attempt)
        taken = await self._session(work, request.stage).snapshot()
        await asyncio.to_thread(work.keep, request.stage, request.round, taken)
        return party_pb2.CommitReply()

    async def close_stage(
        self, caller: Peer, request: party_pb2.StageRequest
    ) -> party_pb2.StageReply:
        """Keeps what the stage left: an alignment, a model."""
        work = self._at(caller, request.job, request.attempt)
        left = await self._session(work, request.stage).close()
        await asyncio.to_thread(work.close, request.stage, left)
        self._settle(work)
        return party_pb2.StageReply()

    async def finish(self, caller: Peer, request: party_pb2.FinishRequest) -> party_pb2.FinishReply:
        """First our share of the result; then, told the result, the end of the job here."""
        work = self._at(caller, request.job, request.attempt)
        if request.result:
            await asyncio.to_thread(self._conclude, work, request)
            return party_pb2.FinishReply()
        own = None if self.cpu_clock is None else self._cpu_now() - work.cpu_started
        reply = party_pb2.FinishReply(
            cpu_seconds=work.cpu_steps if own is None else own,
            memory_peak_bytes=memory.peak_bytes() + self._workers.peak_rss_bytes(),
            model=work.id if work.protocol.leaves == "model" else "",
            ledger_head=bytes.fromhex(self.ledger.head().hash),
        )
        for peer, (count, messages) in work.sent.items():
            reply.sent.add(peer=peer, bytes=count, messages=messages)
        return reply

    async def stop(self, caller: Peer, request: party_pb2.StopRequest) -> party_pb2.StopReply:
        """Ends an attempt because the coordinator says so: paused, failed or cancelled."""
        work = self._work(caller, request.job)
        if request.attempt < self.store.job(work.id).attempt:
            return party_pb2.StopReply()
        await self._halt(work, JobState(request.state), faults.from_message(request.reason))
        return party_pb2.StopReply()

    # Other parties

    def admit(self, caller: Peer, envelope: Envelope) -> None:
        """Refuses a message by its envelope, before a byte of it is read."""
        self._receiver(caller, envelope).admit(envelope)

    async def accept(self, caller: Peer, envelope: Envelope, payload: bytes) -> bool:
        """Takes in a message; True if it had arrived before. A forged one ends the job."""
        session = self._receiver(caller, envelope)
        try:
            return await session.accept(envelope, payload)
        except PeerError as error:
            await session.stop(error.at(party=self.config.name))
            raise

    # The owner

    async def jobs(self, caller: Peer, _: job_pb2.ListRequest) -> party_pb2.OwnedJobs:
        """Every job this party has seen."""
        self.judge.owner(caller)
        return party_pb2.OwnedJobs(jobs=[owned(self.config.name, job) for job in self.store.jobs()])

    async def approve(self, caller: Peer, request: job_pb2.JobId) -> party_pb2.OwnedJob:
        """Lets a job run that waits for it."""
        self.judge.owner(caller)
        return owned(self.config.name, self.store.approve(request.id, caller.name))

    async def deny(self, caller: Peer, request: job_pb2.JobId) -> party_pb2.OwnedJob:
        """Refuses a job; it fails at the coordinator's next look."""
        self.judge.owner(caller)
        reason = f"{self.config.name}'s owner denied the job"
        if request.id in self._works:
            work = self._works[request.id]
            await self._halt(work, JobState.CANCELLED, PolicyError(reason, party=self.config.name))
            return owned(self.config.name, self.store.job(request.id))
        denied = self.store.move(request.id, JobState.CANCELLED, reason=reason)
        return owned(self.config.name, denied)

    # Inside

    async def watch_coordinator(self, is_there: Callable[[], Awaitable[object]]) -> None:
        """Pauses jobs whose coordinator is gone: silent, and `is_there` raises UnreachableError.

        Runs as long as the daemon.
        """
        lost_s = self.config.timers.peer_lost_s
        while True:
            await asyncio.sleep(min(1.0, lost_s / 4))
            silent = [
                work
                for work in self._works.values()
                if work.session is not None and time.monotonic() - work.heard > lost_s / 2
            ]
            if not silent:
                continue
            try:
                await is_there()
            except UnreachableError as error:
                error.todo = "when it is back: fedboost job resume"
                for work in silent:
                    if time.monotonic() - work.heard > lost_s:
                        await self._halt(work, JobState.PAUSED, error)
            except FedboostError as error:
                log.warning("the coordinator: %s", "; ".join(error.lines()))
            else:
                for work in silent:
                    work.heard = time.monotonic()

    def _recorded(self, work: Work, text: bytes) -> Job:
        for job in self.store.jobs():
            if job.id == work.id:
                if job.manifest != text:
                    raise PeerError("the coordinator proposed two different jobs under one name")
                return job
        needs_person = self.config.policy.approve == "always"
        state = JobState.WAITING if needs_person else JobState.RUNNING
        job = self.store.add_job(work.id, work.terms.spec.name, text, state)
        if not needs_person:
            self.store.move(work.id, JobState.PAUSED, reason="agreed to, not begun")
        return self.store.job(work.id)

    def _work(self, caller: Peer, job: str) -> Work:
        if caller.role != "coordinator":
            raise PolicyError(f"{caller} does not lead jobs")
        work = self._works.get(job)
        if work is None:
            raise UnreachableError(
                f"{self.config.name} knows nothing of this attempt, it was restarted",
                party=self.config.name,
                todo="fedboost job resume",
            )
        if caller.name != work.terms.coordinator:
            raise PolicyError(f"{caller} does not lead this job")
        work.heard = time.monotonic()
        return work

    def _at(self, caller: Peer, job: str, attempt: int) -> Work:
        work = self._work(caller, job)
        if attempt != work.attempt:
            raise ProtocolError(f"attempt {attempt} of the job is over", job=job)
        return work

    @staticmethod
    def _session(work: Work, stage: str) -> Session:
        if work.halted is not None:
            raise work.halted
        if work.session is None or work.session.protocol.name != stage:
            raise ProtocolError(f"the stage {stage[:64]!r} is not open", job=work.id)
        return work.session

    def _receiver(self, caller: Peer, envelope: Envelope) -> Session:
        if caller.role != "party" or caller.name != envelope.sender:
            raise PeerError(f"{caller} sent a message in the name of {envelope.sender[:64]!r}")
        work = self._works.get(envelope.job)
        if work is not None and caller.name in work.table.of(tuple(flow.Role)):
            if work.session is not None:
                return work.session
            if work.halted is not None:
                raise work.halted
        paused = self.store.jobs(JobState.PAUSED) if caller.name in self.config.peers else []
        if envelope.job in (job.id for job in paused):
            raise UnreachableError(
                f"{self.config.name} was restarted and has left the job", party=self.config.name
            )
        raise PeerError(f"{caller} sent a message of a job that is not running here")

    def _settle(self, work: Work) -> None:
        """Adds what the closing session sent to the job's totals."""
        if work.session is not None:
            for peer, sent in work.session.sent.items():
                count, messages = work.sent.get(peer, (0, 0))
                work.sent[peer] = (count + sent.bytes, messages + sent.messages)
        work.session = None

    async def _halt(self, work: Work, state: JobState, reason: FedboostError) -> None:
        work.halted = work.halted or reason
        if work.session is not None:
            await work.session.stop(reason)
            self._settle(work)
        job = self.store.job(work.id)
        if job.state in (JobState.CANCELLED, JobState.FINISHED):
            return
        if job.state in (JobState.WAITING, JobState.FAILED) and state is JobState.PAUSED:
            return
        if job.state is JobState.PAUSED and state is JobState.FAILED:
            self.store.move(work.id, JobState.RUNNING)
        self.store.move(
            work.id, state, reason=reason.what, waiting_for=reason.where.get("party", "")
        )
        log.warning("%s is %s: %s", work.id, state, "; ".join(reason.lines()))

    def _conclude(self, work: Work, request: party_pb2.FinishRequest) -> None:
        if result := json.loads(request.result):
            if self.write_report is not None:
                self.write_report(request.journal, str(work.report_file))
                result["report"] = str(work.report_file)
            work.write_result(result)
            self.store.set_result(work.id, result)
        if self.store.job(work.id).state is not JobState.FINISHED:
            self.store.move(work.id, JobState.FINISHED)
        work.forget()
        self._works.pop(work.id, None)

    def _record(self, direction: str, messages: Sequence[tuple[Envelope, Message]]) -> None:
        self.ledger.record(*(disclosure(direction, *one) for one in messages))

    def _cpu_now(self) -> float:
        return (self.cpu_clock() if self.cpu_clock else 0.0) + self._workers.cpu_seconds()
