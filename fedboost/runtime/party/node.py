"""A party's side of every job: judges proposals, runs stages, keeps checkpoints, answers its owner.

No network here: `daemon` serves these methods over gRPC, `simulate` calls them directly.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Protocol

from fedboost import flow, protocols, wire
from fedboost.crypto.workers import Workers
from fedboost.errors import (
    FedboostError,
    OwnersError,
    PeerError,
    PolicyError,
    ProtocolError,
    UnreachableError,
)
from fedboost.messages import job_pb2, party_pb2
from fedboost.messages.exchange_pb2 import Envelope, RecallReply, RecallRequest
from fedboost.messages.party_pb2 import StepCall, StepReply
from fedboost.runtime.config.daemons import PartyConfig
from fedboost.runtime.jobs import manifest
from fedboost.runtime.jobs.signed import SignedJob
from fedboost.runtime.ledger.ledger import Ledger
from fedboost.runtime.ledger.messages import Noted, disclosure
from fedboost.runtime.ledger.recalled import Recalled, Recalls
from fedboost.runtime.ledger.signed_heads import END, Heads
from fedboost.runtime.party import model_store
from fedboost.runtime.party.admission import Admission
from fedboost.runtime.party.answers import Answers
from fedboost.runtime.party.halting import Halting, restarted
from fedboost.runtime.party.job import PartyJob
from fedboost.runtime.party.job_states import PartyJobEvent, PartyJobStates
from fedboost.runtime.party.outbox import Links, Terms
from fedboost.runtime.party.records import check_leader, led
from fedboost.runtime.party.session import Session
from fedboost.runtime.policy.account import Account
from fedboost.runtime.policy.judgement import Judge, Trust, checker
from fedboost.runtime.policy.quiet import quietly
from fedboost.runtime.policy.reading import let_out, owned, owned_by
from fedboost.runtime.policy.spending import Spending
from fedboost.runtime.process import memory
from fedboost.runtime.process.clock import now
from fedboost.runtime.store.forgetting import Forgetting
from fedboost.runtime.store.store import JobState, Store, StoredJob
from fedboost.runtime.transport import faults
from fedboost.runtime.transport.identity import Peer, greeting

log = logging.getLogger(__name__)

# How a coordinator may end an attempt.
ENDS: Mapping[str, PartyJobEvent] = {
    JobState.PAUSED: PartyJobEvent.PAUSED,
    JobState.FAILED: PartyJobEvent.FAILED,
    JobState.CANCELLED: PartyJobEvent.CANCELLED,
}
WriteReport = Callable[[job_pb2.JobJournal, str], None]  # renders a journal into a file


class PeerCalls(Links, Recalls, Protocol):
    """What a party asks of others."""


class PartyNode:
    """One party. Every method that a peer can reach takes the caller first."""

    def __init__(
        self,
        config: PartyConfig,
        trust: Trust,
        store: Store,
        links: PeerCalls,
        workers: Workers,
    ) -> None:
        self.config = config
        self.store = store
        self.ledger = Ledger(store.database)
        self.write_report: WriteReport | None = None
        self.cpu_clock: Callable[[], float] | None = time.process_time  # None: only steps count
        self._identity = trust.identity
        self.judge = Judge(config, trust, store)
        self._heads = Heads(config.name, self.ledger, self.judge.signatures_of_jobs)
        self.spending = Spending(
            config.name,
            lambda: self.config.policy,
            lambda: self.config.datasets,
            Account(store.database),
        )
        self._recalled = Recalled(config.name, self.ledger, links, checker(config))
        self._links = links
        self._workers = workers
        self._works: dict[str, PartyJob] = {}
        self.states = PartyJobStates(store, config.name)
        self._halting = Halting(store, self.states)
        self._forgetting = Forgetting(store)
        self._admission = Admission()

    def close(self) -> None:
        """Closes what the node opened."""
        self.ledger.close()
        self.spending.account.close()

    async def pause_all(self) -> None:
        """Pauses what runs here: the daemon stops."""
        reason = UnreachableError(
            f"{self.config.name}'s daemon was stopped",
            party=self.config.name,
            todo="start it again",
        )
        for work in list(self._works.values()):
            await self._halting.halt(work, PartyJobEvent.PAUSED, reason)

    # Anybody with a certificate

    @quietly
    async def hello(self, caller: Peer, _: job_pb2.HelloRequest) -> job_pb2.HelloReply:
        """Who we are."""
        ours = self._identity()
        known = self.config.addresses()
        if caller.role != "user" and caller.name not in known:
            raise PolicyError(f"{caller} is not known here", todo="add it to `peers`")
        return greeting(ours)

    # The coordinator

    @quietly
    async def propose(self, caller: Peer, request: party_pb2.Proposal) -> party_pb2.Agreement:
        """Our signature under a job that our policy allows; none while a person has to approve."""
        check_leader(caller)
        terms = manifest.decode(request.manifest)
        self.judge.proposal(caller, terms)
        self._forgetting.refuse(terms.job, self.config.name)
        digest = manifest.sha256(request.manifest)
        work = self._works.get(terms.job)
        if work is not None and work.signed.manifest_sha256 != digest:
            raise PeerError("the coordinator proposed two different jobs under one name")
        if work is None:
            work = PartyJob(SignedJob(self.config.name, terms, digest), self.store)
        self.judge.job(work.signed)
        self.judge.room(work.signed)
        consents = self._consents(work)
        self.states.proposed(work.id, terms.spec.name, request.manifest, consents=consents)
        self._works[terms.job] = work
        if not consents:
            return party_pb2.Agreement()
        return party_pb2.Agreement(signature=self.judge.signatures_of_jobs.sign(digest))

    @quietly
    async def begin(self, caller: Peer, request: party_pb2.BeginRequest) -> party_pb2.BeginReply:
        """Starts an attempt: every party has signed, our table is sound. Says how far we are."""
        work = self._work(caller, request.job)
        if request.manifest_sha256 != work.signed.manifest_sha256:
            raise PeerError("the job to begin is not the one that was proposed")
        before = work.answers
        if request.attempt != work.attempt:
            self._take_up(work, request)
        return await work.answers.once(("begin",), request, lambda: self._begin(work, before))

    def _take_up(self, work: PartyJob, request: party_pb2.BeginRequest) -> None:
        """Makes an attempt the one that counts; its number is used once, also by a restart."""
        self.judge.signatures(work.signed, list(request.signatures))
        if not self._consents(work):
            raise PolicyError("nobody has approved the job here", party=self.config.name)
        self.judge.room(work.signed)
        self.states.begins(work.id, request.attempt)
        work.begin(request.attempt, self._cpu_now())

    async def _begin(self, work: PartyJob, before: Answers) -> party_pb2.BeginReply:
        if work.session is not None:
            await work.session.stop(ProtocolError("a new attempt of the job began", job=work.id))
            work.settle()
        await before.settled()  # what an earlier attempt still writes
        if self.store.job(work.id).state is JobState.FINISHED:
            # Here; another party has not heard the result yet.
            return party_pb2.BeginReply(stages_done=work.signed.stages)
        signed, table = work.signed, work.table
        await self._recalled.refuse_gaps(signed.peers)
        if table.frame is None and self.config.name in signed.manifest.spec.data:
            await asyncio.to_thread(table.read, self.config.datasets[signed.dataset])
        await asyncio.to_thread(table.check_alignment, self.config.policy.intersection_min)
        table.check()
        await asyncio.to_thread(self.spending.judge_table, signed, table.frame)
        return await asyncio.to_thread(work.files.how_far)

    @quietly
    async def open_stage(
        self, caller: Peer, request: party_pb2.StageRequest
    ) -> party_pb2.StageReply:
        """Takes the seat at a stage, from the start or from a checkpoint; once in an attempt."""
        work = self._at(caller, request.job, request.attempt)
        subject = ("stage", request.stage)
        return await work.answers.once(subject, request, lambda: self._open(work, request))

    async def _open(self, work: PartyJob, request: party_pb2.StageRequest) -> party_pb2.StageReply:
        self._check_runs(work, request.attempt)
        work.settle()
        place = (request.round, *request.within)
        seat = await asyncio.to_thread(
            work.seat,
            request.stage,
            place,
            *(self._workers, self.config.policy, self.judge.signatures_of_jobs),
        )
        checkpoint = await asyncio.to_thread(work.files.kept, request.stage, place)
        await asyncio.to_thread(self.judge.holdout, work.signed, request.stage, seat)
        await asyncio.to_thread(self.judge.contributors, work.signed, request.stage, seat)
        leaves = protocols.named(request.stage).leaves
        if leaves == "rows":
            await asyncio.to_thread(self.judge.alignment, work.signed)
        if leaves == "predictions":
            self.judge.prediction(work.signed, len(seat.validation))
        told = await asyncio.to_thread(self.spending.judge_seat, work.signed, request.stage, seat)
        session = Session(
            terms=Terms(work.id, work.signed.manifest_sha256, request.attempt),
            protocol=protocols.named(request.stage),
            seat=seat,
            links=self._links,
            record=self._record,
            tell=partial(self.spending.tell, work.signed),
            wait_s=self.config.timers.step_s,
        )
        told.MergeFrom(await asyncio.to_thread(work.table.told_again, request.stage))
        self._check_runs(work, request.attempt)  # it may have been halted meanwhile
        work.session = session
        told.MergeFrom(await session.open(checkpoint))
        heard = let_out(told, self.config.policy.tells)  # as of a step
        await asyncio.to_thread(self.spending.tell, work.signed, heard)
        return party_pb2.StageReply(told=heard)

    @quietly
    async def run_step(self, caller: Peer, request: StepCall) -> StepReply:
        """Does one step."""
        work = self._at(caller, request.job, request.attempt)
        session = self._session(work, request.stage)
        reply = await session.run_step(request)
        work.cpu_steps += sum(turn.cost.cpu_seconds for turn in reply.turns)
        return reply

    def check_leads(self, caller: Peer, job: str) -> None:
        """Refuses whoever does not lead the job, before anything of it is told."""
        self._led(caller, job)

    def sign_of_life(self, request: StepCall) -> StepReply:
        """What we say every few seconds while the steps of a call take their time."""
        session = self._works[request.job].session if request.job in self._works else None
        return StepReply(working=True) if session is None else session.sign_of_life()

    @quietly
    async def commit(self, caller: Peer, request: party_pb2.CommitRequest) -> party_pb2.CommitReply:
        """Keeps where we stand, behind a round or inside one."""
        work = self._at(caller, request.job, request.attempt)
        place = (request.round, *request.within)

        async def keep() -> party_pb2.CommitReply:
            taken = await self._session(work, request.stage).snapshot(place)
            return await asyncio.to_thread(self._keep, work, request, taken)

        return await work.answers.once(("place", request.stage, place), request, keep)

    @quietly
    async def close_stage(
        self, caller: Peer, request: party_pb2.StageRequest
    ) -> party_pb2.StageReply:
        """Keeps what the stage left: an alignment, a model."""
        work = self._at(caller, request.job, request.attempt)

        async def close() -> party_pb2.StageReply:
            left = await self._session(work, request.stage).close()
            await asyncio.to_thread(work.close, request.stage, left)
            work.settle()
            return party_pb2.StageReply()

        return await work.answers.once(("end of", request.stage), request, close)

    @quietly
    async def finish(self, caller: Peer, request: party_pb2.FinishRequest) -> party_pb2.FinishReply:
        """First our share of the result; then, told the result, the end of the job here."""
        if request.result and request.job not in self._works:
            job = led(self.store, caller, request.job, request.attempt)
            if job is not None and job.state is JobState.FINISHED:  # our answer was lost
                return party_pb2.FinishReply()
        work = self._at(caller, request.job, request.attempt)

        async def conclude() -> party_pb2.FinishReply:
            await asyncio.to_thread(self._conclude, work, request)
            self._works.pop(work.id, None)
            return party_pb2.FinishReply()

        async def share() -> party_pb2.FinishReply:
            return await asyncio.to_thread(self._share, work, request)

        if request.result:
            return await work.answers.once(("result",), request, conclude)
        return await work.answers.once(("share",), request, share)

    def _share(self, work: PartyJob, request: party_pb2.FinishRequest) -> party_pb2.FinishReply:
        """What the job has cost us so far, and where its model lies."""
        own = None if self.cpu_clock is None else self._cpu_now() - work.cpu_started
        reply = party_pb2.FinishReply(
            cpu_seconds=work.cpu_steps if own is None else own,
            memory_peak_bytes=memory.peak_bytes() + self._workers.peak_rss_bytes(),
            model=work.id if work.signed.protocol.leaves == "model" else "",
            head=self._heads.exchange(work, END, flow.START, request.heads),
            released=self.spending.share(work.id),
        )
        for peer, (count, messages) in work.sent.items():
            reply.sent.add(peer=peer, bytes=count, messages=messages)
        return reply

    @quietly
    async def stop(self, caller: Peer, request: party_pb2.StopRequest) -> party_pb2.StopReply:
        """Ends an attempt because the coordinator says so: paused, failed or cancelled."""
        check_leader(caller)
        if request.state not in ENDS:
            raise PeerError(f"the coordinator puts a job into the state {request.state[:32]!r}")
        event, reason = ENDS[request.state], faults.from_message(request.reason)
        if request.job in self._works:
            work = self._work(caller, request.job)
            if request.attempt >= self.store.job(work.id).attempt:
                await self._halting.halt(work, event, reason)
                if event is PartyJobEvent.CANCELLED:
                    self._works.pop(work.id, None)
        elif led(self.store, caller, request.job, request.attempt):  # we were restarted meanwhile
            self.states.ends(request.job, event, reason)
            if event is PartyJobEvent.CANCELLED:
                self.store.discard(request.job)
        return party_pb2.StopReply()

    # Other parties

    @quietly
    async def recall(self, caller: Peer, _: RecallRequest) -> RecallReply:
        """The newest head of the caller's own ledger that we keep."""
        if caller.role != "party" or caller.name not in self.config.peers:
            raise PolicyError(f"{caller} is not known here", todo="add it to `peers`")
        kept = await asyncio.to_thread(self.ledger.newest_kept, caller.name)
        return (
            RecallReply() if kept is None else RecallReply(text=kept.text, signature=kept.signature)
        )

    def admit(self, caller: Peer, envelope: Envelope) -> AbstractContextManager[None]:
        """Room for a message; refuses one by its envelope, before a byte of it is read."""
        try:
            self._receiver(caller, envelope).admit(envelope)
            return self._admission.room(envelope)
        except OwnersError as error:  # why the session has stopped
            raise self.hush(envelope.job, error) from None

    @quietly
    async def accept(self, caller: Peer, envelope: Envelope, payload: bytes) -> bool:
        """Takes in a message; True if it had arrived before. A forged one ends the job."""
        session = self._receiver(caller, envelope)
        try:
            return await session.accept(envelope, payload)
        except PeerError as error:
            await session.stop(error.at(party=self.config.name))
            raise
        except FedboostError as error:
            raise error.at(party=self.config.name) from None

    # The owner

    async def jobs(self, caller: Peer, _: job_pb2.ListRequest) -> party_pb2.OwnedJobs:
        """Every job this party has seen."""
        self.judge.owner(caller)
        return owned_by(self.config, self.store.jobs(), self.spending.said)

    async def approve(self, caller: Peer, request: job_pb2.JobId) -> party_pb2.OwnedJob:
        """Lets a job run, as it was proposed."""
        self.judge.owner(caller)
        return owned(self.config, self.states.approve(request.id, caller.name))

    async def deny(self, caller: Peer, request: party_pb2.DenyRequest) -> party_pb2.OwnedJob:
        """Refuses a job; it fails at the coordinator's next look."""
        self.judge.owner(caller)
        denied = self.states.deny(request.id, caller.name, request.reason)
        denial = PolicyError(denied, party=self.config.name)
        if request.id in self._works:
            await self._halting.halt(self._works.pop(request.id), PartyJobEvent.DENIED, denial)
        else:
            self.states.ends(request.id, PartyJobEvent.DENIED, denial)
            self.store.discard(request.id)
        return owned(self.config, self.store.job(request.id))

    async def forget(self, caller: Peer, request: party_pb2.ForgetRequest) -> party_pb2.OwnedJob:
        """Deletes what is kept here of a job that is over; gives what it was."""
        self.judge.owner(caller)
        return owned(self.config, await self._forget(request.id, request.keeps_model))

    async def models(self, caller: Peer, _: job_pb2.ListRequest) -> party_pb2.OwnedModels:
        """Every model of which a shard lies here."""
        self.judge.owner(caller)
        return await asyncio.to_thread(model_store.listed, self.store.models)

    async def fetch_model(
        self, caller: Peer, request: party_pb2.ModelId
    ) -> AsyncIterator[party_pb2.ShardPiece]:
        """Our shard of a model, for an owner to take along; the ledger says who did."""
        self.judge.owner(caller)
        models = self.store.models
        packed, row = await asyncio.to_thread(model_store.taken, models, request.id, caller.name)
        await asyncio.to_thread(self.ledger.record, row)
        for piece in model_store.pieces(packed):
            yield piece

    # Inside

    def hush(self, job: str, error: OwnersError) -> FedboostError:
        """What others may read of an error about our table, which we keep for the owner."""
        quiet = error.quiet()
        if quiet is error:
            return error
        log.warning("%s: %s", job, "; ".join(error.lines()))
        if job in self._works:
            self._works[job].fault = error
        return error if "figures" in self.config.policy.tells else quiet

    async def _forget(self, id_: str, keeps_model: bool) -> StoredJob:
        forgotten = await asyncio.to_thread(self._forgetting.forget, id_, keeps_model=keeps_model)
        self._works.pop(id_, None)  # of one that has failed
        return forgotten

    async def forget_old(self) -> None:
        """Deletes jobs and models that are older than the owner wants to keep them."""
        keeps, forgetting = self.config.retention, self._forgetting
        for job in await asyncio.to_thread(forgetting.jobs_due, keeps.jobs_days):
            await self._forget(job, keeps_model=True)
        for model in await asyncio.to_thread(forgetting.models_due, keeps.models_days):
            await asyncio.to_thread(forgetting.delete_model, model)

    async def watch_coordinator(self, is_there: Callable[[], Awaitable[object]]) -> None:
        """Pauses jobs whose coordinator is gone, as long as the daemon runs."""
        await self._halting.watch(self._works, is_there, self.config.timers.peer_lost_s)

    def _consents(self, work: PartyJob) -> bool:
        """Whether nobody needs to be asked now, or somebody approved exactly this job."""
        asks = self.config.policy.approve != "never"
        return self.states.consents(work.id, work.signed.manifest_sha256, asks=asks)

    def _work(self, caller: Peer, job: str) -> PartyJob:
        work = self._led(caller, job)
        work.heard = now()
        return work

    def _led(self, caller: Peer, job: str) -> PartyJob:
        check_leader(caller)
        work = self._works.get(job)
        if work is None:
            raise restarted(self.config.name)
        if caller.name != work.signed.manifest.coordinator:
            raise PolicyError(f"{caller} does not lead this job")
        return work

    def _at(self, caller: Peer, job: str, attempt: int) -> PartyJob:
        work = self._work(caller, job)
        if attempt != work.attempt:
            raise ProtocolError(f"attempt {attempt} of the job is over", job=job)
        return work

    @staticmethod
    def _check_runs(work: PartyJob, attempt: int) -> None:
        if attempt != work.attempt:
            raise ProtocolError(f"attempt {attempt} of the job is over", job=work.id)
        if work.halted is not None:
            raise work.halted

    def _session(self, work: PartyJob, stage: str) -> Session:
        self._check_runs(work, work.attempt)
        if work.session is None or work.session.protocol.name != stage:
            raise ProtocolError(f"the stage {stage[:64]!r} is not open", job=work.id)
        return work.session

    def _receiver(self, caller: Peer, envelope: Envelope) -> Session:
        if caller.role != "party" or caller.name != envelope.sender:
            raise PeerError(f"{caller} sent a message in the name of {envelope.sender[:64]!r}")
        work = self._works.get(envelope.job)
        if work is not None and caller.name in work.signed.peers:
            if work.session is not None:
                return work.session
            if work.halted is not None:
                raise work.halted
        rests = self.store.jobs(JobState.AGREED, JobState.PAUSED)
        if caller.name in self.config.peers and envelope.job in (job.id for job in rests):
            raise UnreachableError(
                f"{self.config.name} was restarted and has left the job", party=self.config.name
            )
        raise PeerError(f"{caller} sent a message of a job that is not running here")

    def _keep(
        self, work: PartyJob, request: party_pb2.CommitRequest, taken: flow.Artefact
    ) -> party_pb2.CommitReply:
        place = (request.round, *request.within)
        work.files.keep(request.stage, place, taken)
        head = self._heads.exchange(work, request.stage, place, request.heads)
        return party_pb2.CommitReply(head=head)

    def _conclude(self, work: PartyJob, request: party_pb2.FinishRequest) -> None:
        result = wire.json_object(request.result, "the job's result")
        self._heads.hear(work, request.heads)
        if result:
            if self.write_report is not None:
                self.write_report(request.journal, str(work.files.report))
                result["report"] = str(work.files.report)
            work.files.write_result(result)
        self.states.finishes(work.id, result or None)
        self.store.clear(work.id)

    def _record(self, direction: str, messages: Sequence[Noted]) -> None:
        rows = [disclosure(direction, one) for one in messages]
        if direction == "in":
            self.ledger.record(*rows)
        else:
            self.ledger.record(*rows, first=partial(self.spending.charge, messages))

    def _cpu_now(self) -> float:
        return (self.cpu_clock() if self.cpu_clock else 0.0) + self._workers.cpu_seconds()
