"""How a job finishes at a party: first its share of the result, then, told the result, the end."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

from fedboost import flow, wire
from fedboost.errors import ProtocolError
from fedboost.messages import job_pb2, party_pb2
from fedboost.runtime.ledger.signed_heads import END
from fedboost.runtime.party.job import PartyJob
from fedboost.runtime.party.parts import PartyParts
from fedboost.runtime.process import memory

WriteReport = Callable[[job_pb2.JobJournal, str], None]  # renders a journal into a file


class Finishing:
    """The good ends of one party's jobs. All methods belong to the event loop's thread."""

    def __init__(self, parts: PartyParts) -> None:
        self._parts = parts
        self.write_report: WriteReport | None = None

    async def share(self, job: PartyJob, request: party_pb2.FinishRequest) -> party_pb2.FinishReply:
        """Return what the job has cost us so far, and where its model lies."""
        return await asyncio.to_thread(self._share, job, request)

    async def rehearse(
        self, job: PartyJob, request: party_pb2.FinishRequest
    ) -> party_pb2.FinishReply:
        """Return what all parties' forecasts come to, for the result of a trial."""
        rehearsing = self._parts.rehearsing
        if rehearsing is None:
            raise ProtocolError("this party rehearses nothing", job=job.id)
        told = list(request.forecasts)
        found = await asyncio.to_thread(rehearsing.compare, job, told, request.journal)
        return party_pb2.FinishReply(forecast=json.dumps(found).encode())

    async def finish(
        self, job: PartyJob, request: party_pb2.FinishRequest
    ) -> party_pb2.FinishReply:
        """Ends the job here, with what its result says."""
        await asyncio.to_thread(self._finish, job, request)
        self._parts.jobs.pop(job.id, None)
        return party_pb2.FinishReply()

    def _share(self, job: PartyJob, request: party_pb2.FinishRequest) -> party_pb2.FinishReply:
        parts = self._parts
        own = None if parts.cpu.clock is None else parts.cpu.now() - job.cpu_started
        reply = party_pb2.FinishReply(
            cpu_seconds=job.cpu_steps if own is None else own,
            memory_peak_bytes=memory.peak_bytes() + parts.workers.peak_rss_bytes(),
            model=job.id if job.signed.protocol.leaves == "model" else "",
            head=parts.heads.exchange(job, END, flow.START, request.heads),
            released=parts.spending.share(job.id),
        )
        if parts.rehearsing is not None:
            reply.forecast = parts.rehearsing.forecast(job).encode()
        for peer, (count, messages) in job.sent.items():
            reply.sent.add(peer=peer, bytes=count, messages=messages)
        return reply

    def _finish(self, job: PartyJob, request: party_pb2.FinishRequest) -> None:
        result = wire.json_object(request.result, "the job's result")
        self._parts.heads.hear(job, request.heads)
        if result and self.write_report is not None:
            self.write_report(request.journal, str(job.files.report))
            result["report"] = str(job.files.report)
        if request.refused and self._parts.rehearsing is not None:
            self._parts.rehearsing.note_refused(job.id)
        job.finish(result)
        self._parts.states.finishes(job.id, result or None)
        self._parts.store.clear(job.id)
