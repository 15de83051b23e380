"""A party as others reach it: the requests of its coordinator, its peers and its owner.

The node does not use the network: `daemon` serves its methods over gRPC, `simulate` calls them.
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
from fedboost.runtime.party.node.refusals import PartyRefusals
from fedboost.runtime.party.node.stages import Stages, Starting
from fedboost.runtime.party.owner import model_store
from fedboost.runtime.party.stage.session import Session
from fedboost.runtime.policy.approval import JobVerdicts
from fedboost.runtime.policy.judgement import Trust
from fedboost.runtime.policy.reading import hush_errors, owned_job
from fedboost.runtime.store.forgetting import Forgetting
from fedboost.runtime.store.store import JobState, Store, StoredJob
from fedboost.runtime.transport.identity import Peer, hello_reply

# Of one peer in one job. A stream has five parts in flight, and repeats them after a broken link.
MESSAGES_AT_ONCE_MAX = 32
BYTES_AT_ONCE_MAX = 1 << 29  # a single message may be larger, up to the limit of its step


@dataclass
class _Sending:
    messages: int = 0
    bytes: int = 0


class Admission:
    """The limit on messages that each peer has in flight to one party.

    All methods belong to the event loop's thread.
    """

    def __init__(self) -> None:
        self._sending: dict[tuple[str, str], _Sending] = {}  # by job and sender

    @contextmanager
    def room(self, envelope: Envelope, most: int = sys.maxsize) -> Iterator[None]:
        """Hold room for a message inside the context.

        An UnreachableError if its sender has too many messages or bytes in flight; `most` is the
        limit in bytes if the job has less memory for them.
        """
        key, count = (envelope.job, envelope.sender), envelope.payload_bytes
        under_way = self._sending.setdefault(key, _Sending())
        over = under_way.messages and under_way.bytes + count > min(BYTES_AT_ONCE_MAX, most)
        if over or under_way.messages >= MESSAGES_AT_ONCE_MAX:  # an honest peer may have a bad link
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
    """One party. Every method that a peer can call takes the caller first.

    `Starting`, `Stages`, `Finishing` and `Halting` carry out the requests about a job, in this
    order.
    """

    def __init__(
        self, config: PartyConfig, trust: Trust, store: Store, links: PeerCalls, workers: Workers
    ) -> None:
        self.parts = parts = PartyParts(config, trust, store, links, workers)
        self.store, self.ledger, self.judge = store, parts.ledger, parts.judge
        self.spending, self.states, self.under_way = parts.spending, parts.states, parts.jobs
        self.unknown_categories = parts.unknown_categories
        self.forecasts = JobVerdicts(store, parts.spending, parts.judge.job)
        self._identity = trust.identity
        self._forgetting = Forgetting(store)
        self._starting = Starting(parts, self._forgetting)
        self._stages = Stages(parts)
        self.finishing = Finishing(parts)
        self._halting = Halting(parts)
        self._admission = Admission()
        self._refusals = PartyRefusals(config.name, store, parts.jobs)
        # Reads the owner's settings file again, if there is one
        self.reread: Callable[[], PartyConfig] | None = None

    @property
    def config(self) -> PartyConfig:
        """The owner's settings, which judge jobs."""
        return self.judge.config

    @config.setter
    def config(self, config: PartyConfig) -> None:
        self.judge.config = config

    def close(self) -> None:
        """Close the database connections of the node."""
        self.parts.close()

    # Anybody with a certificate

    @hush_errors
    async def hello(self, caller: Peer, _: job_pb2.HelloRequest) -> job_pb2.HelloReply:
        """Return our certificate and version."""
        ours = self._identity()
        known = self.config.addresses()
        if caller.role != "user" and caller.name not in known:
            raise PolicyError(f"{caller} is not known here", todo="add it to `peers`")
        return hello_reply(ours)

    # The coordinator

    @hush_errors
    async def offer_schemes(
        self, caller: Peer, request: party_pb2.SchemesRequest
    ) -> party_pb2.SchemesReply:
        """Return the objections to each encryption scheme, for a job with `scheme: auto`."""
        return await self._starting.offer_schemes(caller, request)

    @hush_errors
    async def propose(self, caller: Peer, request: party_pb2.Proposal) -> party_pb2.Agreement:
        """Return our signature of a job that our policy allows, none until its approval."""
        try:
            return self._starting.propose(caller, request)
        except FedboostError as error:
            self._refusals.log_proposal(caller, request.manifest, error)
            raise

    @hush_errors
    async def make_room(self, caller: Peer, request: job_pb2.JobId) -> party_pb2.Room:
        """Reserve a job's memory; return whether it holds it now, until it ends or pauses.

        An unapproved job is refused, as by `begin`: an estimate reveals the number of rows of the
        table.
        """
        job = self.under_way.job_called_by(caller, request.id)
        self.parts.refuse_unapproved(job)
        return party_pb2.Room(held=await self.parts.memory.take(job))

    @hush_errors
    async def begin(self, caller: Peer, request: party_pb2.BeginRequest) -> party_pb2.BeginReply:
        """Begin an attempt that all parties have signed; return the checkpoints of this party."""
        return await self._starting.begin(
            self.under_way.job_called_by(caller, request.job), request
        )

    @hush_errors
    async def open_stage(
        self, caller: Peer, request: party_pb2.StageRequest
    ) -> party_pb2.StageReply:
        """Open a stage at its start or at a checkpoint; once in an attempt."""
        job = self.under_way.at(caller, request.job, request.attempt)
        subject = ("stage", request.stage)
        return await job.answers.answer_once(
            subject, request, lambda: self._stages.open(job, request)
        )

    @hush_errors
    async def run_step(self, caller: Peer, request: StepCall) -> StepReply:
        """Do the steps of a call."""
        job = self.under_way.at(caller, request.job, request.attempt)
        return await self._stages.run_step(job, request)

    @hush_errors
    async def end_loop(
        self, caller: Peer, request: party_pb2.EndLoopRequest
    ) -> party_pb2.EndLoopReply:
        """End the loop whose next round the session waits for."""
        job = self.under_way.at(caller, request.job, request.attempt)
        await job.session_of(request.stage).end_loop(request.number)
        return party_pb2.EndLoopReply()

    def check_leads(self, caller: Peer, job: str) -> None:
        """Raise a PolicyError unless the caller leads the job."""
        self.under_way.job_led_by(caller, job)

    def sign_of_life(self, request: StepCall) -> StepReply:
        """Return the sign of life that we send every few seconds while steps run."""
        job = self.under_way.get(request.job)
        session = None if job is None else job.session
        return StepReply(working=True) if session is None else session.sign_of_life()

    @hush_errors
    async def commit(self, caller: Peer, request: party_pb2.CommitRequest) -> party_pb2.CommitReply:
        """Save a checkpoint after a round or within one."""
        job = self.under_way.at(caller, request.job, request.attempt)
        subject = ("place", request.stage, (request.round, *request.within))
        return await job.answers.answer_once(
            subject, request, lambda: self._stages.keep(job, request)
        )

    @hush_errors
    async def close_stage(
        self, caller: Peer, request: party_pb2.StageRequest
    ) -> party_pb2.StageReply:
        """Save the result of the stage, such as an alignment or a model."""
        job = self.under_way.at(caller, request.job, request.attempt)
        subject = ("end of", request.stage)
        return await job.answers.answer_once(
            subject, request, lambda: self._stages.close(job, request.stage)
        )

    @hush_errors
    async def finish(self, caller: Peer, request: party_pb2.FinishRequest) -> party_pb2.FinishReply:
        """Return our share of the result; a request with the result ends the job here.

        In a trial, a request with forecasts returns their combination.
        """
        if request.result and request.job not in self.under_way:
            stored = self.under_way.stored_job_of(caller, request.job, request.attempt)
            if stored is not None and stored.state is JobState.FINISHED:  # our reply was lost
                return party_pb2.FinishReply()
        job = self.under_way.at(caller, request.job, request.attempt)
        subject, work = ("share",), self.finishing.report_share
        if request.forecasts:
            subject, work = ("rehearsal",), self.finishing.combine_forecasts
        if request.result:
            subject, work = ("result",), self.finishing.finish
        return await job.answers.answer_once(subject, request, lambda: work(job, request))

    @hush_errors
    async def stop(self, caller: Peer, request: party_pb2.StopRequest) -> party_pb2.StopReply:
        """End an attempt at the coordinator's request: paused, queued, failed or cancelled."""
        await self._halting.stop(caller, request)
        return party_pb2.StopReply()

    # Other parties

    @hush_errors
    async def recall(self, caller: Peer, _: RecallRequest) -> RecallReply:
        """Return the newest head of the caller's own ledger that we keep."""
        self.check_peer(caller)
        kept = await asyncio.to_thread(self.ledger.newest_head, caller.name)
        return (
            RecallReply() if kept is None else RecallReply(text=kept.text, signature=kept.signature)
        )

    def check_peer(self, caller: Peer) -> None:
        """Raise a PolicyError unless the caller is one of our peers."""
        if caller.role != "party" or caller.name not in self.config.peers:
            raise PolicyError(f"{caller} is not known here", todo="add it to `peers`")

    def admit(self, caller: Peer, envelope: Envelope) -> AbstractContextManager[None]:
        """Return room for a message; refuse it by its envelope, before its payload is read."""
        try:
            receiver = self._receiver(caller, envelope)
            receiver.admit(envelope)
            return self._admission.room(envelope, receiver.context.services.peer_bytes_max)
        except OwnersError as error:  # the reason why the session has stopped
            raise self.public_error(envelope.job, error) from None

    @hush_errors
    async def accept(self, caller: Peer, envelope: Envelope, payload: bytes) -> bool:
        """Accept a message; return True if it had arrived before. A forged message ends the job."""
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
        """Return every job this party has seen."""
        self.judge.owner(caller)
        return party_pb2.OwnedJobs(jobs=[self.owned(job) for job in self.store.jobs()])

    def owned(self, job: StoredJob) -> party_pb2.OwnedJob:
        """Return a job as our owner reads it; a FedboostError for a job of another version."""
        shown = owned_job(self.config, job, self.spending.said(job))
        forecast = self.forecasts.of(self.config, job)
        if forecast is not None:
            shown.risk, shown.forecast = forecast.risk, forecast.sentence
            shown.because.extend(forecast.reasons)
        return shown

    async def approve(self, caller: Peer, request: job_pb2.JobId) -> party_pb2.OwnedJob:
        """Let a job run as it was proposed."""
        self.judge.owner(caller)
        return owned_job(self.config, self.states.approve(request.id, caller.name))

    async def deny(self, caller: Peer, request: party_pb2.DenyRequest) -> party_pb2.OwnedJob:
        """Deny a job; it fails at the coordinator's next request."""
        self.judge.owner(caller)
        await self._halting.deny(request.id, caller.name, request.reason)
        return owned_job(self.config, self.store.job(request.id))

    async def forget(self, caller: Peer, request: party_pb2.ForgetRequest) -> party_pb2.OwnedJob:
        """Delete our data of a finished job; return the job as it was."""
        self.judge.owner(caller)
        return owned_job(self.config, await self._forget_job(request.id, request.keeps_model))

    async def models(self, caller: Peer, _: job_pb2.ListRequest) -> party_pb2.OwnedModels:
        """Return every model with a shard in our store."""
        self.judge.owner(caller)
        return await asyncio.to_thread(model_store.list_models, self.store.models)

    async def fetch_model(
        self, caller: Peer, request: party_pb2.ModelId
    ) -> AsyncIterator[party_pb2.ShardPiece]:
        """Yield our shard of a model in pieces, for the owner; the ledger records the user."""
        self.judge.owner(caller)
        models = self.store.models
        packed, row = await asyncio.to_thread(
            model_store.shard_for_owner, models, request.id, caller.name
        )
        await asyncio.to_thread(self.ledger.record, row)
        for piece in model_store.shard_pieces(packed):
            yield piece

    async def reload(self, caller: Peer, _: party_pb2.ReloadRequest) -> party_pb2.Reloaded:
        """Apply changes of our settings file; running jobs go on."""
        self.judge.owner(caller)
        return party_pb2.Reloaded(changed=await self.reload_settings())

    def public_error(self, job: str, error: OwnersError) -> FedboostError:
        """Return the error that others may read; keep the full error for the owner."""
        quiet, is_logged = error.redacted(), self._refusals.log_by_key(job, error)
        if quiet is error:
            return error
        if not is_logged:
            log.warning("%s: %s", job, "; ".join(error.lines()))
        if job in self.under_way:
            self.under_way[job].fault = copy(error)  # without the frames of the attempt
        return error if "figures" in self.config.policy.tells else quiet

    # The daemon

    async def reload_settings(self) -> list[str]:
        """Read the settings file again and apply its changes from now on.

        Return the changed keys. A ConfigError if the file is wrong, or if a change needs a restart
        or the end of a job; then nothing changes.
        """

        def check_settings(fresh: PartyConfig) -> None:
            running = (job for job in self.under_way.values() if job.halted is None)
            check_datasets(self.config, fresh, {job.signed.dataset for job in running})

        self.config, changed = await fresh_settings(self.reread, self.config, check_settings)
        return changed

    async def watch_coordinator(self, is_there: Callable[[], Awaitable[object]]) -> None:
        """Pause jobs whose coordinator is lost; runs as long as the daemon."""
        await self._halting.watch(is_there, self.config.timers.peer_lost_s)

    async def pause_all(self) -> None:
        """Pause all jobs at the daemon's stop."""
        await self._halting.pause_all()

    async def delete_expired(self) -> None:
        """Delete the jobs and models that are older than the owner's retention times."""
        keeps, forgetting = self.config.retention, self._forgetting
        for job in await asyncio.to_thread(forgetting.jobs_due, keeps.jobs_days):
            await self._forget_job(job, keeps_model=True)
        for model in await asyncio.to_thread(forgetting.models_due, keeps.models_days):
            await asyncio.to_thread(forgetting.delete_model, model)

    async def _forget_job(self, id_: str, keeps_model: bool) -> StoredJob:
        forgotten = await asyncio.to_thread(self._forgetting.forget, id_, keeps_model=keeps_model)
        self.under_way.pop(id_, None)  # a failed job is still there
        return forgotten
