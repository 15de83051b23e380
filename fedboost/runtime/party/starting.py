"""How a job begins at a party: judged when it is proposed, and again with each attempt."""

from __future__ import annotations

import asyncio

from fedboost.errors import PeerError, PolicyError, ProtocolError
from fedboost.messages import party_pb2
from fedboost.runtime.jobs import manifest
from fedboost.runtime.jobs.signed import SignedJob
from fedboost.runtime.ledger.signed_heads import Recalled
from fedboost.runtime.party.answers import Answers
from fedboost.runtime.party.job import PartyJob
from fedboost.runtime.party.parts import PartyParts, check_leader
from fedboost.runtime.policy.judgement import checker
from fedboost.runtime.store.forgetting import Forgetting
from fedboost.runtime.store.store import JobState
from fedboost.runtime.transport.identity import Peer


class Starting:
    """The beginnings of one party's jobs. All methods belong to the event loop's thread."""

    def __init__(self, parts: PartyParts, forgetting: Forgetting) -> None:
        self._parts, self._forgetting = parts, forgetting
        check = checker(parts.judge.config)
        self._recalled = Recalled(parts.name, parts.ledger, parts.links, check)

    def propose(self, caller: Peer, request: party_pb2.Proposal) -> party_pb2.Agreement:
        """Our signature under a job that our policy allows; none while a person has to approve."""
        check_leader(caller)
        parts = self._parts
        terms = manifest.decode(request.manifest)
        parts.judge.proposal(caller, terms)
        self._forgetting.refuse(terms.job, parts.name)
        digest = manifest.sha256(request.manifest)
        job = parts.jobs.get(terms.job)
        if job is not None and job.signed.manifest_sha256 != digest:
            raise PeerError("the coordinator proposed two different jobs under one name")
        if job is None:
            job = PartyJob(SignedJob(parts.name, terms, digest), parts.store)
        parts.judge.job(job.signed)
        parts.judge.room(job.signed)
        consents = parts.consents(job)
        parts.states.proposed(job.id, terms.spec.name, request.manifest, consents=consents)
        parts.jobs[job.id] = job
        if not consents:
            return party_pb2.Agreement()
        return party_pb2.Agreement(signature=parts.judge.signatures_of_jobs.sign(digest))

    async def begin(self, job: PartyJob, request: party_pb2.BeginRequest) -> party_pb2.BeginReply:
        """Starts an attempt: every party has signed, our table is sound. Says how far we are."""
        if request.manifest_sha256 != job.signed.manifest_sha256:
            raise PeerError("the job to begin is not the one that was proposed")
        before = job.answers
        if request.attempt != job.attempt:
            self._take_up(job, request)
        return await job.answers.once(("begin",), request, lambda: self._begin(job, before))

    def _take_up(self, job: PartyJob, request: party_pb2.BeginRequest) -> None:
        """Makes an attempt the one that counts; its number is used once, also by a restart."""
        parts = self._parts
        parts.judge.signatures(job.signed, list(request.signatures))
        if not parts.consents(job):
            raise PolicyError(
                "nobody has approved the job here",
                party=parts.name,
                todo="fedboost party approve JOB, at that party",
            )
        parts.judge.room(job.signed)
        parts.states.begins(job.id, request.attempt)
        job.begin(request.attempt, parts.cpu.now())

    async def _begin(self, job: PartyJob, before: Answers) -> party_pb2.BeginReply:
        if job.session is not None:
            await job.session.stop(ProtocolError("a new attempt of the job began", job=job.id))
            job.settle()
        await before.settled()  # what an earlier attempt still writes
        parts, config = self._parts, self._parts.judge.config
        if parts.store.job(job.id).state is JobState.FINISHED:
            # Here; another party has not heard the result yet.
            return party_pb2.BeginReply(stages_done=job.signed.stages)
        signed, table = job.signed, job.table
        await self._recalled.refuse_gaps(signed.peers)
        if table.frame is None and parts.name in signed.manifest.spec.data:
            await asyncio.to_thread(table.read, config.datasets[signed.dataset])
        await asyncio.to_thread(table.check_alignment, config.policy.intersection_min)
        table.check()
        await asyncio.to_thread(parts.spending.judge_table, signed, table.frame)
        return await asyncio.to_thread(job.files.how_far)
