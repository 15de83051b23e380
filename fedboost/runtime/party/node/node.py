"""A party as others reach it: its coordinator, its peers and its owner, and what each may ask.

No network here: `daemon` serves these methods over gRPC, `simulate` calls them directly.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from copy import copy
from dataclasses import dataclass

from fedboost.ground.errors import (
    FedboostError,
    OwnersError,
    PeerError,
    PolicyError,
    UnreachableError,
)
from fedboost.ground.workers import Workers
from fedboost.messages import job_pb2, party_pb2
from fedboost.messages.exchange_pb2 import Envelope, RecallReply, RecallRequest
from fedboost.messages.party_pb2 import StepCall, StepReply
from fedboost.runtime.config.daemons import PartyConfig
from fedboost.runtime.config.reloading import check_datasets, fresh_settings
from fedboost.runtime.party.node.halting import Finishing, Halting
from fedboost.runtime.party.node.parts import PartyParts, PeerCalls
from fedboost.runtime.party.node.stages import Stages, Starting
from fedboost.runtime.party.owner import model_store
from fedboost.runtime.party.stage.session import Session
from fedboost.runtime.policy.approval import JobVerdicts
from fedboost.runtime.policy.judgement import Trust
from fedboost.runtime.policy.reading import owned, quietly
from fedboost.runtime.store.forgetting import Forgetting
from fedboost.runtime.store.store import JobState, Store, StoredJob
from fedboost.runtime.transport.identity import Peer, greeting

# Of one peer in one job. A stream has five parts under way, and a link that broke sends them twice.
MESSAGES_AT_ONCE_MAX = 32
BYTES_AT_ONCE_MAX = 1 << 29  # a message alone may be larger, as far as its step allows


@dataclass
class _Sending:
    messages: int = 0
    bytes: int = 0


class Admission:
    """One party's door. All methods belong to the event loop's thread."""

    def __init__(self) -> None:
        self._sending: dict[tuple[str, str], _Sending] = {}  # by job and sender

    @contextmanager
    def room(self, envelope: Envelope, most: int = sys.maxsize) -> Iterator[None]:
        """Inside, a message has room; refused where its sender has too much under way, `most`
        bytes where its job has less memory for it.
        """
        key, count = (envelope.job, envelope.sender), envelope.payload_bytes
        under_way = self._sending.setdefault(key, _Sending())
        over = under_way.messages and under_way.bytes + count > min(BYTES_AT_ONCE_MAX, most)
        if over or under_way.messages >= MESSAGES_AT_ONCE_MAX:  # an honest one may have a bad link
            raise UnreachableError(
                f"{envelope.sender} sends more at once than there is room for: "
                f"{under_way.messages} messages of {under_way.bytes} bytes are under way",
                party=envelope.sender,
                todo="see the link between the two",
            )
        under_way.messages, under_way.bytes = under_way.messages + 1, under_way.bytes + count
        try:
            yield
        finally:
            under_way.messages, under_way.bytes = under_way.messages - 1, under_way.bytes - count
            if not under_way.messages:
                self._sending.pop(key, None)


log = logging.getLogger(__name__)


class PartyNode:
    """One party. Every method that a peer can reach takes the caller first.

    `Starting`, `Stages`, `Finishing` and `Halting` do what is asked of a job, in this order.
    """

    def __init__(
        self, config: PartyConfig, trust: Trust, store: Store, links: PeerCalls, workers: Workers
    ) -> None:
        self.parts = parts = PartyParts(config, trust, store, links, workers)
        self.store, self.ledger, self.judge = store, parts.ledger, parts.judge
        self.spending, self.states, self.under_way = parts.spending, parts.states, parts.jobs
        self.forecasts = JobVerdicts(store, parts.spending, parts.judge.job)
        self._identity = trust.identity
        self._forgetting = Forgetting(store)
        self._starting = Starting(parts, self._forgetting)
        self._stages = Stages(parts)
        self.finishing = Finishing(parts)
        self._halting = Halting(parts)
        self._admission = Admission()
        # Reads the owner's settings file again, where there is one
        self.reread: Callable[[], PartyConfig] | None = None

    @property
    def config(self) -> PartyConfig:
        """The owner's settings, by which jobs are judged."""
        return self.judge.config

    @config.setter
    def config(self, config: PartyConfig) -> None:
        self.judge.config = config

    def close(self) -> None:
        """Closes what the node opened."""
        self.parts.close()

    # Anybody with a certificate

    @quietly
    async def hello(self, caller: Peer, _: job_pb2.HelloRequest) -> job_pb2.HelloReply:
        """Return who we are."""
        ours = self._identity()
        known = self.config.addresses()
        if caller.role != "user" and caller.name not in known:
            raise PolicyError(f"{caller} is not known here", todo="add it to `peers`")
        return greeting(ours)

    # The coordinator

    @quietly
    async def offer_schemes(
        self, caller: Peer, request: party_pb2.SchemesRequest
    ) -> party_pb2.SchemesReply:
        """Return what is against which encryption scheme, of a job that leaves the choice open."""
        return await self._starting.offer_schemes(caller, request)

    @quietly
    async def propose(self, caller: Peer, request: party_pb2.Proposal) -> party_pb2.Agreement:
        """Our signature under a job that our policy allows; none while a person has to approve."""
        return self._starting.propose(caller, request)

    @quietly
    async def make_room(self, caller: Peer, request: job_pb2.JobId) -> party_pb2.Room:
        """Return whether a job has its memory here now; it keeps it until it ends or pauses.

        Refused, like `begin`, while nobody has approved it: an estimate counts the table's rows.
        """
        job = self.under_way.called(caller, request.id)
        self.parts.refuse_unapproved(job)
        return party_pb2.Room(held=await self.parts.memory.take(job))

    @quietly
    async def begin(self, caller: Peer, request: party_pb2.BeginRequest) -> party_pb2.BeginReply:
        """Starts an attempt: every party has signed, our table is sound. Says how far we are."""
        return await self._starting.begin(self.under_way.called(caller, request.job), request)

    @quietly
    async def open_stage(
        self, caller: Peer, request: party_pb2.StageRequest
    ) -> party_pb2.StageReply:
        """Begin a stage, from the start or from a checkpoint; once in an attempt."""
        job = self.under_way.at(caller, request.job, request.attempt)
        subject = ("stage", request.stage)
        return await job.answers.once(subject, request, lambda: self._stages.open(job, request))

    @quietly
    async def run_step(self, caller: Peer, request: StepCall) -> StepReply:
        """Does one step."""
        job = self.under_way.at(caller, request.job, request.attempt)
        return await self._stages.run_step(job, request)

    @quietly
    async def end_loop(
        self, caller: Peer, request: party_pb2.EndLoopRequest
    ) -> party_pb2.EndLoopReply:
        """Hear that a loop has ended whose next round we wait for."""
        job = self.under_way.at(caller, request.job, request.attempt)
        await job.session_of(request.stage).end_loop(request.number)
        return party_pb2.EndLoopReply()

    def check_leads(self, caller: Peer, job: str) -> None:
        """Refuses whoever does not lead the job, before anything of it is told."""
        self.under_way.led(caller, job)

    def sign_of_life(self, request: StepCall) -> StepReply:
        """Return what we say every few seconds while the steps of a call take their time."""
        job = self.under_way.get(request.job)
        session = None if job is None else job.session
        return StepReply(working=True) if session is None else session.sign_of_life()

    @quietly
    async def commit(self, caller: Peer, request: party_pb2.CommitRequest) -> party_pb2.CommitReply:
        """Keeps where we stand, behind a round or inside one."""
        job = self.under_way.at(caller, request.job, request.attempt)
        subject = ("place", request.stage, (request.round, *request.within))
        return await job.answers.once(subject, request, lambda: self._stages.keep(job, request))

    @quietly
    async def close_stage(
        self, caller: Peer, request: party_pb2.StageRequest
    ) -> party_pb2.StageReply:
        """Keeps what the stage left: an alignment, a model."""
        job = self.under_way.at(caller, request.job, request.attempt)
        subject = ("end of", request.stage)
        return await job.answers.once(
            subject, request, lambda: self._stages.close(job, request.stage)
        )

    @quietly
    async def finish(self, caller: Peer, request: party_pb2.FinishRequest) -> party_pb2.FinishReply:
        """First our share of the result; then, told the result, the end of the job here.

        In between, in a trial: what the forecasts come to.
        """
        if request.result and request.job not in self.under_way:
            stored = self.under_way.stored(caller, request.job, request.attempt)
            if stored is not None and stored.state is JobState.FINISHED:  # our answer was lost
                return party_pb2.FinishReply()
        job = self.under_way.at(caller, request.job, request.attempt)
        subject, work = ("share",), self.finishing.share
        if request.forecasts:
            subject, work = ("rehearsal",), self.finishing.rehearse
        if request.result:
            subject, work = ("result",), self.finishing.finish
        return await job.answers.once(subject, request, lambda: work(job, request))

    @quietly
    async def stop(self, caller: Peer, request: party_pb2.StopRequest) -> party_pb2.StopReply:
        """Ends an attempt because the coordinator says so: paused, failed or cancelled."""
        await self._halting.stop(caller, request)
        return party_pb2.StopReply()

    # Other parties

    @quietly
    async def recall(self, caller: Peer, _: RecallRequest) -> RecallReply:
        """The newest head of the caller's own ledger that we keep."""
        self.check_peer(caller)
        kept = await asyncio.to_thread(self.ledger.newest_kept, caller.name)
        return (
            RecallReply() if kept is None else RecallReply(text=kept.text, signature=kept.signature)
        )

    def check_peer(self, caller: Peer) -> None:
        """Refuses whoever is none of our peers."""
        if caller.role != "party" or caller.name not in self.config.peers:
            raise PolicyError(f"{caller} is not known here", todo="add it to `peers`")

    def admit(self, caller: Peer, envelope: Envelope) -> AbstractContextManager[None]:
        """Room for a message; refuses one by its envelope, before a byte of it is read."""
        try:
            receiver = self._receiver(caller, envelope)
            receiver.admit(envelope)
            return self._admission.room(envelope, receiver.context.services.peer_bytes_max)
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

    def _receiver(self, caller: Peer, envelope: Envelope) -> Session:
        is_known = caller.name in self.config.peers
        return self.under_way.receiver(caller, envelope, is_known=is_known)

    # The owner

    async def jobs(self, caller: Peer, _: job_pb2.ListRequest) -> party_pb2.OwnedJobs:
        """Every job this party has seen."""
        self.judge.owner(caller)
        return party_pb2.OwnedJobs(jobs=[self.owned(job) for job in self.store.jobs()])

    def owned(self, job: StoredJob) -> party_pb2.OwnedJob:
        """A job as our owner reads it; a FedboostError of one that another version wrote."""
        shown = owned(self.config, job, self.spending.said(job))
        forecast = self.forecasts.of(self.config, job)
        if forecast is not None:
            shown.risk, shown.forecast = forecast.risk, forecast.sentence
            shown.because.extend(forecast.reasons)
        return shown

    async def approve(self, caller: Peer, request: job_pb2.JobId) -> party_pb2.OwnedJob:
        """Lets a job run, as it was proposed."""
        self.judge.owner(caller)
        return owned(self.config, self.states.approve(request.id, caller.name))

    async def deny(self, caller: Peer, request: party_pb2.DenyRequest) -> party_pb2.OwnedJob:
        """Refuses a job; it fails at the coordinator's next look."""
        self.judge.owner(caller)
        await self._halting.deny(request.id, caller.name, request.reason)
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

    async def reload(self, caller: Peer, _: party_pb2.ReloadRequest) -> party_pb2.Reloaded:
        """Takes up what has changed in our settings file; jobs that run go on."""
        self.judge.owner(caller)
        return party_pb2.Reloaded(changed=await self.take_up())

    def hush(self, job: str, error: OwnersError) -> FedboostError:
        """Return what others may read of an error about our table, which we keep for the owner."""
        quiet = error.quiet()
        if quiet is error:
            return error
        log.warning("%s: %s", job, "; ".join(error.lines()))
        if job in self.under_way:
            self.under_way[job].fault = copy(error)  # without the frames of the attempt
        return error if "figures" in self.config.policy.tells else quiet

    # The daemon

    async def take_up(self) -> list[str]:
        """Read the settings file again, and have what has changed count from now on.

        Returns the keys that have. A ConfigError where the file is wrong, or a change needs a
        restart or the end of a job; then nothing changes.
        """

        def check(fresh: PartyConfig) -> None:
            running = (job for job in self.under_way.values() if job.halted is None)
            check_datasets(self.config, fresh, {job.signed.dataset for job in running})

        self.config, changed = await fresh_settings(self.reread, self.config, check)
        return changed

    async def watch_coordinator(self, is_there: Callable[[], Awaitable[object]]) -> None:
        """Pauses jobs whose coordinator is gone, as long as the daemon runs."""
        await self._halting.watch(is_there, self.config.timers.peer_lost_s)

    async def pause_all(self) -> None:
        """Pauses what runs here: the daemon stops."""
        await self._halting.pause_all()

    async def forget_old(self) -> None:
        """Deletes jobs and models that are older than the owner wants to keep them."""
        keeps, forgetting = self.config.retention, self._forgetting
        for job in await asyncio.to_thread(forgetting.jobs_due, keeps.jobs_days):
            await self._forget(job, keeps_model=True)
        for model in await asyncio.to_thread(forgetting.models_due, keeps.models_days):
            await asyncio.to_thread(forgetting.delete_model, model)

    async def _forget(self, id_: str, keeps_model: bool) -> StoredJob:
        forgotten = await asyncio.to_thread(self._forgetting.forget, id_, keeps_model=keeps_model)
        self.under_way.pop(id_, None)  # of one that has failed
        return forgotten
