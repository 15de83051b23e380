"""One attempt at a job: its state, and the questions to its parties."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from fedboost import flow
from fedboost.ground.errors import FedboostError, UnreachableError
from fedboost.ground.settings import Settings
from fedboost.messages import job_pb2, party_pb2
from fedboost.messages.job_pb2 import Event, PartyLost, Progress, StatusReport, Waiting
from fedboost.messages.party_pb2 import StepCall, StepReply
from fedboost.runtime.coordinator.earlier import EarlierAttempts
from fedboost.runtime.coordinator.losses import Losses
from fedboost.runtime.coordinator.reports import add_report
from fedboost.runtime.jobs import manifest
from fedboost.runtime.process.clock import monotonic_s
from fedboost.runtime.transport import faults
from fedboost.runtime.transport.addresses import Timers

APPROVAL_POLL_S = 1.0  # between two checks whether a person has approved

Reply = TypeVar("Reply")


class Control(Protocol):
    """The requests that the coordinator may make of one party; each call has its own deadline."""

    async def offer_schemes(self, request: party_pb2.SchemesRequest) -> party_pb2.SchemesReply: ...
    async def propose(self, request: party_pb2.Proposal) -> party_pb2.Agreement: ...
    async def make_room(self, request: job_pb2.JobId) -> party_pb2.Room: ...
    async def begin(self, request: party_pb2.BeginRequest) -> party_pb2.BeginReply: ...
    async def open_stage(self, request: party_pb2.StageRequest) -> party_pb2.StageReply: ...
    async def run_step(
        self, request: StepCall, hear: Callable[[StepReply], None] | None = None
    ) -> StepReply: ...
    async def end_loop(self, request: party_pb2.EndLoopRequest) -> party_pb2.EndLoopReply: ...
    async def commit(self, request: party_pb2.CommitRequest) -> party_pb2.CommitReply: ...
    async def close_stage(self, request: party_pb2.StageRequest) -> party_pb2.StageReply: ...
    async def finish(self, request: party_pb2.FinishRequest) -> party_pb2.FinishReply: ...
    async def stop(self, request: party_pb2.StopRequest) -> party_pb2.StopReply: ...


class AgreementNotes(Protocol):
    """The record of the parties' agreement to a job; see `job_states`."""

    def asked(self, id_: str, parties: Sequence[str]) -> None: ...
    def note_agreed(self, id_: str, parties: Sequence[str]) -> None: ...


class UnapprovedError(UnreachableError):
    """No owner has looked at the job in time; it goes on only when a user resumes it."""


@dataclass
class JobWalk:
    """One attempt at one job."""

    terms: manifest.Manifest
    attempt: int
    params: Any
    protocol: flow.Protocol[Settings]
    protocols: Mapping[str, flow.Protocol[Settings]]
    controls: Mapping[str, Control]
    states: AgreementNotes
    emit: Callable[..., None]  # takes any number of events
    journal: Callable[[], Awaitable[job_pb2.JobJournal]]
    enter: Callable[[JobWalk], Awaitable[None]]  # returns when the job's turn has come
    timers: Timers
    waiting: dict[str, Waiting] = field(default_factory=dict)
    held_up: dict[str, tuple[str, ...]] = field(default_factory=dict)  # parties that each awaits
    progress: Progress = field(default_factory=Progress)
    earlier: EarlierAttempts = field(default_factory=EarlierAttempts)
    waited: float = 0.0  # seconds of this attempt, for people's approval
    exchanges: int = 0  # of this attempt
    round_seconds: list[float] = field(default_factory=list)
    stage_seconds: dict[str, float] = field(default_factory=dict)
    told_of: dict[str, StatusReport] = field(default_factory=dict)  # by stage; outlasts rounds
    has_begun: bool = False  # everybody has agreed
    gained: bool = False  # a later attempt need not repeat all of this one
    spares: bool = False  # goes on without hosts that are gone
    gone: set[str] = field(default_factory=set)  # hosts that this attempt goes on without
    lost: list[str] = field(default_factory=list)  # hosts that no attempt can take back
    # The heads of the parties' ledgers at the last commit, which all parties receive.
    heads: list[party_pb2.SignedHead] = field(default_factory=list)
    warned: dict[str, str] = field(default_factory=dict)  # each warning, and its party
    losses: Losses = field(default_factory=Losses)

    def __post_init__(self) -> None:
        self.id = self.terms.job
        self.table = self.terms.spec.parties.table()

    @property
    def everybody(self) -> tuple[str, ...]:
        """Every party, without hosts that are gone."""
        return tuple(p for p in self.table.of(tuple(flow.Role)) if p not in self.gone)

    @property
    def present(self) -> tuple[str, ...]:
        """Return the hosts that are left; empty while no host is gone."""
        left = tuple(host for host in self.table.hosts if host not in self.gone)
        return left if self.gone else ()

    @property
    def told(self) -> StatusReport:
        """Return the parties' reports on all stages, for the facts that outlast rounds."""
        known = StatusReport()
        for report in self.told_of.values():
            add_report(known, report)
        return known

    async def collect_signatures(self) -> list[party_pb2.Signature]:
        """Return every party's signature of the manifest; waits for owners who must approve it."""
        proposal = party_pb2.Proposal(manifest=self.terms.encode())
        waits_until = monotonic_s() + self.timers.approval_s
        pending = list(self.everybody)
        signatures = []
        asked_at: float | None = None
        while pending:
            replies = await self.ask_parties(
                pending, "approval", lambda party: self.controls[party].propose(proposal)
            )
            signatures += [
                party_pb2.Signature(party=party, signature=reply.signature)
                for party, reply in replies.items()
                if reply.signature
            ]
            pending = [party for party, reply in replies.items() if not reply.signature]
            if not pending:
                break
            if asked_at is None:
                asked_at = monotonic_s()
                self.states.asked(self.id, pending)
            if monotonic_s() > waits_until:
                raise UnapprovedError(
                    f"nobody approved the job within {self.timers.approval_s:g} s", party=pending[0]
                )
            for party in pending:
                self.waiting[party] = Waiting(party=party, step="approval", since=time.time())
            await asyncio.sleep(APPROVAL_POLL_S)
        self.waited = 0.0 if asked_at is None else monotonic_s() - asked_at
        return signatures

    def note_warnings(self, told: StatusReport) -> None:
        """Note the warnings in a party's report."""
        known: list[job_pb2.Released | job_pb2.Warned] = [*told.released, *told.warnings]
        for warning in known:
            if warning.warning:
                self._note_warning(warning.party, warning.warning)

    def _note_warning(self, party: str, warning: str) -> None:
        """Note a warning about a party, once."""
        if warning not in self.warned:
            self.warned[warning] = party
            self.emit(Event(warned=job_pb2.Warned(party=party, warning=warning)))

    def hear(self, party: str, sign: StepReply) -> None:
        """Note a working party's sign of life."""
        if party in self.waiting and sign.step:
            self.waiting[party].step = sign.step
        self.held_up[party] = tuple(sign.waits_for)

    @property
    def waited_for(self) -> list[Waiting]:
        """Parties that the job waits for, without parties that wait for another of them."""
        asked = set(self.waiting)
        waits = [
            waiting
            for party, waiting in self.waiting.items()
            if not asked & set(self.held_up.get(party, ())) - {party}
        ]
        return waits or list(self.waiting.values())

    async def stop(
        self, state: str, reason: FedboostError, parties: tuple[str, ...] = ()
    ) -> tuple[str, ...]:
        """Notify parties (default: all remaining ones) of the end of this attempt.

        Return the parties that could not be reached.
        """
        request = party_pb2.StopRequest(
            job=self.id, attempt=self.attempt, state=state, reason=faults.fault_of_error(reason)
        )
        told = parties or self.everybody
        replies = await asyncio.gather(
            *(self.controls[party].stop(request) for party in told), return_exceptions=True
        )
        late = zip(told, replies, strict=True)
        return tuple(party for party, reply in late if isinstance(reply, UnreachableError))

    async def ask_parties(
        self,
        parties: tuple[str, ...] | list[str],
        what: str,
        call: Callable[[str], Coroutine[Any, Any, Reply]],
    ) -> dict[str, Reply]:
        """Ask all `parties` at once; return their replies, or raise the first refusal.

        The parties show as waited for meanwhile. With `spares`, hosts that do not answer are gone
        from here on and have no reply.
        """

        async def ask_party(party: str) -> Reply | None:
            """Call one party; the job shows as waiting for it meanwhile."""
            self.waiting[party] = Waiting(party=party, step=what, since=time.time())
            try:
                return await call(party)
            except UnreachableError as error:
                # The error may name another party, which is then the lost one and was asked as
                # well.
                if not self.is_spared(party) or error.at(party=party).where["party"] != party:
                    raise error.at(party=party) from None
                self.gone.add(party)
                return None
            except FedboostError as error:
                raise error.at(party=party) from None
            finally:
                self.waiting.pop(party, None)
                self.held_up.pop(party, None)

        tasks = {party: asyncio.create_task(ask_party(party)) for party in parties}
        failed: list[asyncio.Task[Reply | None]] = []
        try:
            await asyncio.wait(tasks.values(), return_when=asyncio.FIRST_EXCEPTION)
            failed = [t for t in tasks.values() if t.done() and t.exception() is not None]
        finally:  # after a refusal or a cancellation the other replies are not needed
            for task in tasks.values():
                task.cancel()
            await asyncio.gather(*tasks.values(), return_exceptions=True)
        if failed:
            error = failed[0].exception()
            assert error is not None
            raise error
        if len(self.gone) >= len(self.table.hosts):
            raise UnreachableError(
                "all hosts are gone",
                party=self.table.hosts[0],
                todo="start their daemons",
            )
        replies = {party: task.result() for party, task in tasks.items()}
        return {party: reply for party, reply in replies.items() if reply is not None}

    def is_spared(self, party: str) -> bool:
        """Return whether the job goes on without that party, which is only a host."""
        return self.spares and self.table.roles_of(party) == (flow.HOST,)

    def lose_for_good(self, hosts: Collection[str], stage: str) -> None:
        """Note lost hosts whose absence a settled result has made final."""
        for host in sorted(set(hosts) - set(self.lost)):
            self.lost.append(host)
            done = self.progress.done
            self.emit(Event(lost=PartyLost(party=host, stage=stage, round=done)))

    def recall(self, journal: Sequence[Event]) -> None:
        """Restore the costs and reports of earlier attempts, and the hosts they have lost."""
        self.earlier = EarlierAttempts.of(journal)
        for event in journal:
            if event.WhichOneof("what") == "lost":
                self.gone.add(event.lost.party)
                self.lost.append(event.lost.party)
            if event.WhichOneof("what") == "warned":
                self.warned[event.warned.warning] = event.warned.party
            if event.WhichOneof("what") == "round" and event.round.stage == self.protocol.name:
                list(self.losses.add_metrics(event.round.progress.done, event.round.metrics))
            if event.WhichOneof("what") == "stage":
                self.stage_seconds[event.stage.stage] = event.stage.seconds
                self.told_of[event.stage.stage] = event.stage.told

    def note_round(
        self, stage: str, progress: Progress, seconds: float, metrics: list[job_pb2.Metric]
    ) -> None:
        """Note one outermost round."""
        self.progress = progress
        if stage == self.protocol.name:
            self.round_seconds.append(seconds)
        done = job_pb2.RoundDone(stage=stage, progress=progress, seconds=seconds)
        done.metrics.extend(metrics)
        self.emit(Event(round=done))
        if stage == self.protocol.name:
            for warning in self.losses.add_metrics(progress.done, metrics):
                self._note_warning(self.table.guest, warning)
