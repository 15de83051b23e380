"""The pauses and ends of jobs at a party: work stops, the store records the reason."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable

from fedboost import flow
from fedboost.ground import wire
from fedboost.ground.errors import FedboostError, PolicyError, ProtocolError, UnreachableError
from fedboost.messages import job_pb2, party_pb2
from fedboost.runtime.jobs.job_log import is_logged
from fedboost.runtime.ledger.signed_heads import END_OF_JOB
from fedboost.runtime.party.job.job import PartyJob
from fedboost.runtime.party.job.states import PartyJobEvent, event_of_state
from fedboost.runtime.party.node.parts import PartyParts, check_leader
from fedboost.runtime.process import memory, workers
from fedboost.runtime.process.clock import monotonic_s
from fedboost.runtime.transport import faults
from fedboost.runtime.transport.identity import Peer

log = logging.getLogger(__name__)

_FOR_GOOD = (PartyJobEvent.CANCELLED, PartyJobEvent.DENIED)  # all files of the job are deleted then


class Halting:
    """Ends attempts of one party's jobs without a result.

    All methods belong to the event loop's thread.
    """

    def __init__(self, parts: PartyParts) -> None:
        self._parts, self._jobs, self._states = parts, parts.jobs, parts.states
        self._worked: float | None = None  # when a job last ran; None: no memory to give back

    async def stop(self, caller: Peer, request: party_pb2.StopRequest) -> None:
        """End an attempt at the coordinator's request: paused, queued, failed or cancelled."""
        check_leader(caller)
        event, reason = event_of_state(request.state), faults.error_of_fault(request.reason)
        if request.job in self._jobs:
            job = self._jobs.job_called_by(caller, request.job)
            if request.attempt >= self._parts.store.job(job.id).attempt:
                await self._halt_job(job, event, reason)
        elif self._jobs.stored_job_of(
            caller, request.job, request.attempt
        ):  # we were restarted meanwhile
            self._end_unknown(request.job, event, reason)

    async def deny(self, id_: str, user: str, reason: str) -> None:
        """End a job that our owner denies; it fails at the coordinator's next request."""
        denial = PolicyError(self._states.deny(id_, user, reason), party=self._parts.name)
        if id_ in self._jobs:
            await self._halt_job(self._jobs[id_], PartyJobEvent.DENIED, denial)
        else:
            self._end_unknown(id_, PartyJobEvent.DENIED, denial)

    async def pause_all(self) -> None:
        """Pause all jobs at the daemon's stop."""
        party = self._parts.name
        reason = UnreachableError(
            f"{party}'s daemon was stopped", party=party, todo="start it again"
        )
        for job in list(self._jobs.values()):
            await self._halt_job(job, PartyJobEvent.PAUSED, reason)

    async def watch(self, is_there: Callable[[], Awaitable[object]], lost_s: float) -> None:
        """Pause jobs of a lost coordinator: silent, and `is_there` raises UnreachableError.

        Also gives memory back once no job is running. Runs as long as the daemon.
        """
        while True:
            await asyncio.sleep(min(1.0, lost_s / 4))
            self._states.again()
            await self._give_memory_back()
            silent = [
                job
                for job in self._jobs.values()
                if job.session is not None and monotonic_s() - job.heard > lost_s / 2
            ]
            if not silent:
                continue
            try:
                await is_there()
            except UnreachableError as error:
                by_itself = "the job goes on by itself when it is back"
                error.todo = f"{error.todo}; {by_itself}" if error.todo else by_itself
                for job in silent:
                    if monotonic_s() - job.heard > lost_s:
                        await self._halt_job(job, PartyJobEvent.PAUSED, error)
            except FedboostError as error:
                log.warning("the coordinator: %s", "; ".join(error.lines()))
            else:
                for job in silent:
                    job.heard = monotonic_s()

    async def _give_memory_back(self) -> None:
        """Give memory back to the system some seconds after the last job."""
        if any(job.halted is None for job in self._jobs.values()):
            self._worked = monotonic_s()
        elif self._worked is not None and monotonic_s() - self._worked > memory.QUIET_S:
            self._worked = None
            if isinstance(self._parts.workers, workers.ProcessWorkers):
                self._parts.workers.discard()  # on the loop: no job begins meanwhile
            await asyncio.to_thread(memory.release_all_memory)

    async def _halt_job(self, job: PartyJob, event: PartyJobEvent, reason: FedboostError) -> None:
        """End this attempt of a job; all its waits end with `reason`."""
        await job.stop(reason)
        self._parts.memory.release_memory(job.id)
        self._states.ends(job.id, event, job.fault or reason)
        if event is not PartyJobEvent.PAUSED:  # a paused job soon needs its table again
            await job.forget()
        if event in _FOR_GOOD:
            self._parts.store.discard(job.id)
        has_begun = job.attempt >= 0 or event is PartyJobEvent.PAUSED
        if event in _FOR_GOOD or not has_begun:
            self._jobs.pop(job.id, None)
        if is_logged():
            await asyncio.to_thread(self._parts.log_releases, job)

    def _end_unknown(self, id_: str, event: PartyJobEvent, reason: FedboostError) -> None:
        """End a job that has no attempt in this process."""
        self._states.ends(id_, event, reason)
        if event in _FOR_GOOD:
            self._parts.store.discard(id_)


WriteReport = Callable[[job_pb2.JobJournal, str], None]  # renders a journal into a file


class Finishing:
    """Ends one party's jobs with a result.

    All methods belong to the event loop's thread.
    """

    def __init__(self, parts: PartyParts) -> None:
        self._parts = parts
        self.write_report: WriteReport | None = None

    async def report_share(
        self, job: PartyJob, request: party_pb2.FinishRequest
    ) -> party_pb2.FinishReply:
        """Return our costs of the job, our released sums and the model's id."""
        return await asyncio.to_thread(self._build_share, job, request)

    async def combine_forecasts(
        self, job: PartyJob, request: party_pb2.FinishRequest
    ) -> party_pb2.FinishReply:
        """Return the combined forecasts of all parties, for the result of a trial."""
        rehearsing = self._parts.rehearsing
        if rehearsing is None:
            raise ProtocolError("this party rehearses nothing", job=job.id)
        told = list(request.forecasts)
        compared = await asyncio.to_thread(rehearsing.compare, job, told, request.journal)
        return party_pb2.FinishReply(forecast=json.dumps(compared).encode())

    async def finish(
        self, job: PartyJob, request: party_pb2.FinishRequest
    ) -> party_pb2.FinishReply:
        """End the job here with its result."""
        await asyncio.to_thread(self._record_result, job, request)
        self._parts.jobs.pop(job.id, None)
        self._parts.memory.release_memory(job.id)
        return party_pb2.FinishReply()

    def _build_share(
        self, job: PartyJob, request: party_pb2.FinishRequest
    ) -> party_pb2.FinishReply:
        parts = self._parts
        cpu_seconds = None if parts.cpu.clock is None else parts.cpu.now() - job.cpu_started
        reply = party_pb2.FinishReply(
            cpu_seconds=job.cpu_steps if cpu_seconds is None else cpu_seconds,
            memory_peak_bytes=workers.peak_bytes() + parts.workers.peak_rss_bytes(),
            model=job.id if job.signed.protocol.leaves == "model" else "",
            head=parts.heads.exchange_heads(job, END_OF_JOB, flow.START, request.heads),
            released=parts.spending.released_sums(job.id),
        )
        if parts.rehearsing is not None:
            reply.forecast = parts.rehearsing.forecast(job).encode()
        for peer, (count, messages) in job.sent.items():
            reply.sent.add(peer=peer, bytes=count, messages=messages)
        return reply

    def _record_result(self, job: PartyJob, request: party_pb2.FinishRequest) -> None:
        result = wire.json_object(request.result, "the job's result")
        self._parts.heads.hear(job, request.heads)
        if result and self.write_report is not None:
            self.write_report(request.journal, str(job.files.report))
            result["report"] = str(job.files.report)
        if self._parts.rehearsing is not None:
            self._parts.rehearsing.note(job, refused=request.refused)
        job.finish(result)
        self._parts.log_releases(job)
        self._parts.states.note_finish(job.id, result or None)
        self._parts.store.clear(job.id)
