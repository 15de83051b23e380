"""The stages of a job at a party: opens and judges them, runs, saves and closes them."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from fedboost import flow, protocols
from fedboost.ground.errors import PeerError, ProtocolError
from fedboost.ground.settings import Settings
from fedboost.messages import party_pb2
from fedboost.messages.job_pb2 import StatusReport
from fedboost.messages.party_pb2 import StepCall, StepReply
from fedboost.runtime.jobs import manifest
from fedboost.runtime.jobs.signed import SignedJob
from fedboost.runtime.jobs.submitted import read_spec
from fedboost.runtime.ledger.signed_heads import Recalled
from fedboost.runtime.party.job.job import PartyJob
from fedboost.runtime.party.node.parts import PartyParts, check_leader
from fedboost.runtime.party.stage.answers import AttemptAnswers
from fedboost.runtime.party.stage.outbox import RecordedLinks, Terms
from fedboost.runtime.party.stage.session import Session
from fedboost.runtime.policy import reading
from fedboost.runtime.policy.judgement import signature_checker
from fedboost.runtime.process.memory import release_memory
from fedboost.runtime.store.forgetting import Forgetting
from fedboost.runtime.store.store import JobState
from fedboost.runtime.transport.identity import Peer

LARGE_BYTES = 1 << 23  # of a checkpoint, which is in memory several times while it is written


class Starting:
    """Begins attempts at one party's jobs.

    All methods belong to the event loop's thread.
    """

    def __init__(self, parts: PartyParts, forgetting: Forgetting) -> None:
        self._parts, self._forgetting = parts, forgetting
        check = signature_checker(parts.judge.config)
        self._recalled = Recalled(parts.name, parts.ledger, parts.links, check)

    def propose(self, caller: Peer, request: party_pb2.Proposal) -> party_pb2.Agreement:
        """Return our signature of a job that our policy allows, none until its approval."""
        check_leader(caller)
        parts = self._parts
        terms = manifest.decode_manifest(request.manifest)
        parts.judge.judge_proposal(caller, terms)
        self._forgetting.refuse_deleted(terms.job, parts.name)
        digest = manifest.manifest_sha256(request.manifest)
        job = parts.jobs.get(terms.job)
        if job is not None and job.signed.manifest_sha256 != digest:
            raise PeerError("the coordinator proposed two different jobs under one name")
        if job is None:
            job = PartyJob(SignedJob(parts.name, terms, digest), parts.store)
        parts.judge.job(job.signed)
        parts.judge.room(job.signed)
        consents = parts.has_consent(job)
        parts.states.note_proposal(job.id, terms.spec.name, request.manifest, consents=consents)
        parts.jobs[job.id] = job
        if not consents:
            return party_pb2.Agreement()
        return party_pb2.Agreement(signature=parts.judge.signatures_of_jobs.sign(digest))

    async def offer_schemes(
        self, caller: Peer, request: party_pb2.SchemesRequest
    ) -> party_pb2.SchemesReply:
        """Return the objections to each encryption scheme, for a job with `scheme: auto`."""
        from fedboost.runtime.policy.scheme_offers import scheme_offer

        check_leader(caller)
        spec = read_spec(request.spec)
        return await asyncio.to_thread(scheme_offer, self._parts.judge, caller.name, spec)

    async def begin(self, job: PartyJob, request: party_pb2.BeginRequest) -> party_pb2.BeginReply:
        """Begin an attempt that all parties have signed; return the checkpoints of this party."""
        if request.manifest_sha256 != job.signed.manifest_sha256:
            raise PeerError("the job to begin differs from the proposed one")
        before = job.answers
        if request.attempt != job.attempt:
            self._start_attempt(job, request)
        return await job.answers.answer_once(
            ("begin",), request, lambda: self._prepare_attempt(job, before)
        )

    def _start_attempt(self, job: PartyJob, request: party_pb2.BeginRequest) -> None:
        """Make an attempt the current one; no restart uses its number again."""
        parts = self._parts
        parts.judge.signatures(job.signed, list(request.signatures))
        parts.refuse_unapproved(job)
        parts.judge.room(job.signed)
        parts.states.note_begin(job.id, request.attempt)
        job.begin(request.attempt, parts.cpu.now())
        job.ledger_start = parts.ledger.head().n

    async def _prepare_attempt(self, job: PartyJob, before: AttemptAnswers) -> party_pb2.BeginReply:
        if job.session is not None:
            await job.session.stop(ProtocolError("a new attempt of the job began", job=job.id))
            job.close_session()
        await before.wait_until_idle()  # an earlier attempt may still write
        await self._parts.memory.begin(job)
        parts, config = self._parts, self._parts.judge.config
        if parts.store.job(job.id).state is JobState.FINISHED:
            # The job is finished here, and another party has not received the result yet.
            return party_pb2.BeginReply(stages_done=job.signed.stages)
        signed, table = job.signed, job.table
        await self._recalled.refuse_gaps(signed.peers)
        if table.frame is None and parts.name in signed.manifest.spec.data:
            source, owned = (
                config.datasets[signed.dataset],
                parts.judge.tables.owned(signed.dataset),
            )
            await asyncio.to_thread(table.read, source, owned)
        await asyncio.to_thread(table.check_alignment, config.policy.intersection_min)
        if table.unknown is not None:
            parts.unknown_categories[signed.dataset] = table.unknown.shares
        table.check()
        await asyncio.to_thread(parts.spending.judge_table, signed, table.frame)
        return await asyncio.to_thread(job.files.saved_progress)


class Stages:
    """Opens, runs, saves and closes the stages of one party's jobs.

    All methods belong to the event loop's thread.
    """

    def __init__(self, parts: PartyParts) -> None:
        self._parts = parts

    async def open(self, job: PartyJob, request: party_pb2.StageRequest) -> party_pb2.StageReply:
        """Open a stage at its start or at a checkpoint."""
        parts = self._parts
        job.check_runs(request.attempt)
        job.close_session()
        place, tells = (request.round, *request.within), parts.judge.config.policy.tells
        job.table.stays = parts.rehearsing is not None
        is_large = job.table.is_large
        if is_large:
            await asyncio.to_thread(release_memory, of_cycles=True)  # memory of the previous stage
        again = await asyncio.to_thread(job.table.alignment_report, request.stage)
        warned = await asyncio.to_thread(job.table.warned, request.stage, tells)
        context = await asyncio.to_thread(
            job.context,
            request.stage,
            place,
            workers=parts.workers,
            policy=parts.judge.config.policy,
            signer=parts.judge.signatures_of_jobs,
        )
        most = parts.memory.peer_bytes_max(job)
        services = replace(context.services, part_workers=parts.part_workers, peer_bytes_max=most)
        context = replace(context, services=services)
        checkpoint = await asyncio.to_thread(job.files.kept, request.stage, place)
        told = await self._judge_rows(job, request.stage, context)
        if checkpoint is not None:
            await self._keep_row_sets(job)
        if is_large:
            await asyncio.to_thread(release_memory)

        def let_out(told: StatusReport) -> StatusReport:
            heard = reading.allowed_report(told, tells)
            parts.spending.charge_report(job.signed, heard)
            return heard

        recording = await asyncio.to_thread(job.record, request.stage, place)
        session = Session(
            terms=Terms(job.id, job.signed.manifest_sha256, request.attempt),
            protocol=protocols.load_protocol(request.stage),
            context=context,
            links=parts.links if recording is None else RecordedLinks(parts.links, recording),
            record=parts.record,
            recording=recording,
            let_out=let_out,
            wait_s=parts.judge.config.timers.step_s,
        )
        told.MergeFrom(again)
        job.check_runs(request.attempt)  # it may have been halted meanwhile
        job.session = session
        told.MergeFrom(await session.open(checkpoint))
        is_last = request.stage == job.signed.stages[-1]  # this stage's frame is separate
        if session.protocol.tables.bins_values and is_last and context.frame is not None:
            context.frame.drop_values()
        await asyncio.to_thread(release_memory)  # memory that binning used besides the bins
        heard = await asyncio.to_thread(let_out, told)  # handled like a step's report
        heard.warnings.extend(warned)
        return party_pb2.StageReply(told=heard)

    async def run_step(self, job: PartyJob, request: StepCall) -> StepReply:
        """Do the steps of a call: by now every party has opened the stage."""
        await self._keep_row_sets(job)
        reply = await job.session_of(request.stage).run_step(request)
        job.cpu_steps += sum(turn.cost.cpu_seconds for turn in reply.turns)
        return reply

    async def keep(self, job: PartyJob, request: party_pb2.CommitRequest) -> party_pb2.CommitReply:
        """Save a checkpoint after a round or within one."""
        place = (request.round, *request.within)
        taken = await job.session_of(request.stage).snapshot(place)

        def save_and_sign() -> party_pb2.CommitReply:
            job.keep(request.stage, place, taken)
            head = self._parts.heads.exchange_heads(job, request.stage, place, request.heads)
            if sum(array.nbytes for array in taken.arrays.values()) >= LARGE_BYTES:
                release_memory()  # memory of the written checkpoint and of the round
            return party_pb2.CommitReply(head=head)

        return await asyncio.to_thread(save_and_sign)

    async def close(self, job: PartyJob, stage: str) -> party_pb2.StageReply:
        """Save the result of a stage, such as an alignment or a model."""
        left = await job.session_of(stage).close()
        await asyncio.to_thread(job.close, stage, left)
        job.close_session()
        return party_pb2.StageReply()

    async def _judge_rows(
        self, job: PartyJob, stage: str, context: flow.StageContext[Settings]
    ) -> StatusReport:
        """Judge the rows of the stage by our policy; return the report for the other parties.

        A PolicyError if the policy does not allow them.
        """
        parts, signed = self._parts, job.signed
        judge, rows = parts.judge, (context.frame, context.validation)
        await asyncio.to_thread(judge.judge_row_counts, signed, stage, *rows)
        await asyncio.to_thread(judge.contributors, signed, stage, context)
        leaves = protocols.load_protocol(stage).leaves
        if leaves == "rows":
            await asyncio.to_thread(judge.alignment, signed)
        if leaves == "predictions":
            judge.judge_prediction(signed, len(context.validation))
        if leaves == "model":
            judge.held_out(signed, context.validation)
        told = await asyncio.to_thread(parts.spending.judge_context, signed, stage, context)
        if parts.rehearsing is None:  # a rehearsal judges the rows afterwards
            job.keep_row_sets = await asyncio.to_thread(judge.judge_row_sets, signed, stage, *rows)
        return told

    async def _keep_row_sets(self, job: PartyJob) -> None:
        """Record the rows of sums and metrics before anything leaves."""
        keep = job.keep_row_sets
        if keep is not None and self._parts.rehearsing is None:
            await asyncio.to_thread(keep)
            if job.keep_row_sets is keep:  # not those of a stage that was opened meanwhile
                job.keep_row_sets = None
