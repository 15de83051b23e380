"""Drives one job from its manifest to its end: agrees, begins, walks each stage, finishes.

The walker speaks to parties through `Control`, which is gRPC in production and a direct call in
`fedboost simulate`. It keeps nothing itself: what happened leaves as events.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from fedboost import flow, protocols, wire
from fedboost.errors import FedboostError, JobError, UnreachableError
from fedboost.flow import START, Place
from fedboost.messages import job_pb2, party_pb2
from fedboost.messages.job_pb2 import Event, PartyLost, Progress, StatusReport, Waiting
from fedboost.messages.party_pb2 import StepCall, StepReply
from fedboost.runtime.coordinator.result import EarlierAttempts, Losses, counted, result_of
from fedboost.runtime.coordinator.stage import StageWalk, hear
from fedboost.runtime.jobs import manifest
from fedboost.runtime.process import tracing
from fedboost.runtime.process.clock import now
from fedboost.runtime.transport import faults
from fedboost.runtime.transport.addresses import Timers

APPROVAL_POLL_S = 1.0  # between two looks whether a person has approved

Reply = TypeVar("Reply")


class Control(Protocol):
    """What the coordinator may ask of one party; every call has a deadline of its own."""

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
    """Where it is noted what parties say to a job; see `job_states`."""

    def asked(self, id_: str, parties: Sequence[str]) -> None: ...
    def agreed(self, id_: str, parties: Sequence[str]) -> None: ...


class UnapprovedError(UnreachableError):
    """No owner has looked at the job in time; it does not go on before somebody asks again."""


@dataclass
class JobWalk:
    """One attempt at one job."""

    terms: manifest.Manifest
    attempt: int
    params: Any
    protocol: flow.Protocol
    protocols: Mapping[str, flow.Protocol]
    controls: Mapping[str, Control]
    states: AgreementNotes
    emit: Callable[..., None]  # takes any number of events
    journal: Callable[[], Awaitable[job_pb2.JobJournal]]
    enter: Callable[[JobWalk], Awaitable[None]]  # returns when the job's turn has come
    timers: Timers
    waiting: dict[str, Waiting] = field(default_factory=dict)
    held_up: dict[str, tuple[str, ...]] = field(default_factory=dict)  # by whom, as they say
    progress: Progress = field(default_factory=Progress)
    earlier: EarlierAttempts = field(default_factory=EarlierAttempts)
    waited: float = 0.0  # seconds of this attempt, for people's approval
    exchanges: int = 0  # of this attempt
    round_seconds: list[float] = field(default_factory=list)
    stage_seconds: dict[str, float] = field(default_factory=dict)
    told_of: dict[str, StatusReport] = field(default_factory=dict)  # what outlasts rounds, by stage
    has_begun: bool = False  # everybody has agreed
    gained: bool = False  # something was kept that a later attempt need not do again
    spares: bool = False  # goes on without hosts that are gone
    gone: set[str] = field(default_factory=set)  # hosts that this attempt goes on without
    lost: list[str] = field(default_factory=list)  # those that no attempt can take back
    # Where the parties' ledgers stood when they last kept something, for all of them to hear.
    heads: list[party_pb2.SignedHead] = field(default_factory=list)
    warned: dict[str, str] = field(default_factory=dict)  # each warning, and the party it is about
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
        """The hosts that are left; empty while nobody is gone."""
        left = tuple(host for host in self.table.hosts if host not in self.gone)
        return left if self.gone else ()

    @property
    def told(self) -> StatusReport:
        """Return what parties told of all stages and outlasts their rounds."""
        known = StatusReport()
        for report in self.told_of.values():
            hear(known, report)
        return known

    async def agree(self) -> list[party_pb2.Signature]:
        """Every party's signature under the manifest; waits for those whose owner must approve."""
        proposal = party_pb2.Proposal(manifest=self.terms.encode())
        waits_until = now() + self.timers.approval_s
        pending = list(self.everybody)
        signatures = []
        asked_at: float | None = None
        while pending:
            replies = await self.ask(
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
                asked_at = now()
                self.states.asked(self.id, pending)
            if now() > waits_until:
                raise UnapprovedError(
                    f"nobody approved the job within {self.timers.approval_s:g} s", party=pending[0]
                )
            for party in pending:
                self.waiting[party] = Waiting(party=party, step="approval", since=time.time())
            await asyncio.sleep(APPROVAL_POLL_S)
        self.waited = 0.0 if asked_at is None else now() - asked_at
        return signatures

    async def run(self) -> dict[str, Any]:
        """The whole job; gives its result. Raises what ended it."""
        started = now()
        signatures = await self.agree()
        await self.enter(self)
        self.states.agreed(self.id, self.everybody)
        self.has_begun = True
        request = party_pb2.BeginRequest(
            job=self.id,
            manifest_sha256=manifest.sha256(self.terms.encode()),
            attempt=self.attempt,
            signatures=signatures,
        )
        begun = await self.ask(
            self.everybody, "begin", lambda party: self.controls[party].begin(request)
        )
        for name in protocols.stages(self.terms.spec, self.params):
            if not all(name in reply.stages_done for reply in begun.values()):
                await self._stage(self.protocols[name], self._joint_place(name, begun))
        return await self._finish(now() - started - self.waited)

    def _joint_place(self, stage: str, begun: Mapping[str, party_pb2.BeginReply]) -> Place:
        """The last place of a stage that all parties with data have kept; the start without one."""
        kept = [
            {(place.round, *place.within) for place in reply.kept if place.stage == stage}
            for party, reply in begun.items()
            if self.table.role_of(party) is not flow.AGGREGATOR
        ]
        return max(set.intersection(*kept), default=START)

    async def _stage(self, protocol: flow.Protocol, place: Place) -> None:
        if self.lost and place == START:
            raise JobError(
                f"{self.lost[0]} was lost before the others had kept anything",
                party=self.lost[0],
                todo="nothing is left to carry on from: submit the job anew",
            )
        started = now()
        walk = StageWalk(self, protocol, place)
        round_, *within = place
        request = party_pb2.StageRequest(
            job=self.id, attempt=self.attempt, stage=protocol.name, round=round_, within=within
        )
        opened = await self.ask(
            self.everybody, "open", lambda party: self.controls[party].open_stage(request)
        )
        for reply in opened.values():
            walk.ended = reply.told.ends or walk.ended
            hear(walk.told, reply.told)
            self.warn(reply.told)
        with tracing.span(f"stage {protocol.name}"):
            await protocol.walk(walk)
        await walk.commit()
        # Told before anybody closes: a party that has closed the stage will not walk it again.
        seconds = now() - started + self.earlier.stages[protocol.name]
        self.stage_seconds[protocol.name], self.told_of[protocol.name] = seconds, walk.told
        done = job_pb2.StageDone(stage=protocol.name, seconds=seconds, told=walk.told)
        self.emit(Event(stage=done))
        await self.ask(
            self.everybody, "close", lambda party: self.controls[party].close_stage(request)
        )
        self.lose_for_good(self.gone, protocol.name)
        self.gained = True

    async def _finish(self, seconds: float) -> dict[str, Any]:
        """Ends the job at all parties, at the guest last: its result says who is lost."""
        shares = await self._conclude(self.everybody)
        self.heads = [share.head for share in shares.values() if share.HasField("head")]
        rehearsal = await self._rehearsal(shares)
        refused = bool(rehearsal) and not rehearsal["accepted"]
        others = [party for party in self.everybody if party != self.table.guest]
        await self._conclude(others, result=b"{}", refused=refused)
        self.lose_for_good(self.gone, self.protocol.name)
        report = self.told_of.setdefault(self.protocol.name, StatusReport())
        counted(report, [released for reply in shares.values() for released in reply.released])
        result = result_of(self, seconds, shares)
        if rehearsal:
            result["rehearsal"] = rehearsal
        told, guest = json.dumps(result).encode(), self.table.guest
        self.emit(Event(finished=job_pb2.Finished(result=told, told=self.told)))
        journal = await self.journal()
        await self._conclude([guest], result=told, journal=journal, refused=refused)
        return result

    async def _rehearsal(self, shares: Mapping[str, party_pb2.FinishReply]) -> dict[str, Any]:
        """Return what default policies would say of a trial; empty where parties are real."""
        guest = self.table.guest
        if not shares[guest].forecast or self.protocol.leaves != "model":
            return {}
        told = [share.forecast for share in shares.values() if share.forecast]
        replies = await self._conclude([guest], forecasts=told, journal=await self.journal())
        return wire.json_object(replies[guest].forecast, "the rehearsal")

    async def _conclude(
        self, parties: tuple[str, ...] | list[str], **told: Any
    ) -> dict[str, party_pb2.FinishReply]:
        """Asks parties for their shares of the result; told one, for the end of the job there."""
        request = party_pb2.FinishRequest(
            job=self.id, attempt=self.attempt, heads=self.heads, **told
        )
        return await self.ask(parties, "finish", lambda party: self.controls[party].finish(request))

    def warn(self, told: StatusReport) -> None:
        """Notes what parties' owners and readers of the result are warned of."""
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
        """Notes what a party that works has said of itself."""
        if party in self.waiting and sign.step:
            self.waiting[party].step = sign.step
        self.held_up[party] = tuple(sign.waits_for)

    @property
    def waited_for(self) -> list[Waiting]:
        """Whom the job waits for: of several that have been asked, those who wait for nobody."""
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
        """Tells parties (none named: all that are left) that this attempt is over.

        Gives those that could not be reached.
        """
        request = party_pb2.StopRequest(
            job=self.id, attempt=self.attempt, state=state, reason=faults.to_message(reason)
        )
        told = parties or self.everybody
        replies = await asyncio.gather(
            *(self.controls[party].stop(request) for party in told), return_exceptions=True
        )
        late = zip(told, replies, strict=True)
        return tuple(party for party, reply in late if isinstance(reply, UnreachableError))

    async def ask(
        self,
        parties: tuple[str, ...] | list[str],
        what: str,
        call: Callable[[str], Coroutine[Any, Any, Reply]],
    ) -> dict[str, Reply]:
        """Asks all `parties` at once; notes who is waited for; raises the first refusal by name.

        With `spares` hosts that are not there are gone from here on, and have no reply.
        """

        async def one(party: str) -> Reply | None:
            """Call one party, and note for whom the job waits."""
            self.waiting[party] = Waiting(party=party, step=what, since=time.time())
            try:
                return await call(party)
            except UnreachableError as error:
                # Where it names another, that one is gone, and has been asked as well.
                if not self.is_spared(party) or error.at(party=party).where["party"] != party:
                    raise error.at(party=party) from None
                self.gone.add(party)
                return None
            except FedboostError as error:
                raise error.at(party=party) from None
            finally:
                self.waiting.pop(party, None)
                self.held_up.pop(party, None)

        tasks = {party: asyncio.create_task(one(party)) for party in parties}
        failed: list[asyncio.Task[Reply | None]] = []
        try:
            await asyncio.wait(tasks.values(), return_when=asyncio.FIRST_EXCEPTION)
            failed = [t for t in tasks.values() if t.done() and t.exception() is not None]
        finally:  # a refusal, or the job is cancelled: nobody's answer is waited for any more
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
        """Return whether the job goes on without that party: one that is nothing but a host."""
        return self.spares and self.table.roles_of(party) == (flow.HOST,)

    def lose_for_good(self, hosts: Collection[str], stage: str) -> None:
        """Notes hosts that are gone and without which the others have settled something."""
        for host in sorted(set(hosts) - set(self.lost)):
            self.lost.append(host)
            done = self.progress.done
            self.emit(Event(lost=PartyLost(party=host, stage=stage, round=done)))

    def recall(self, journal: Sequence[Event]) -> None:
        """Recall what earlier attempts spent and reported, and whom they have lost."""
        self.earlier = EarlierAttempts.of(journal)
        for event in journal:
            if event.WhichOneof("what") == "lost":
                self.gone.add(event.lost.party)
                self.lost.append(event.lost.party)
            if event.WhichOneof("what") == "warned":
                self.warned[event.warned.warning] = event.warned.party
            if event.WhichOneof("what") == "round" and event.round.stage == self.protocol.name:
                list(self.losses.hear(event.round.progress.done, event.round.metrics))
            if event.WhichOneof("what") == "stage":
                self.stage_seconds[event.stage.stage] = event.stage.seconds
                self.told_of[event.stage.stage] = event.stage.told

    def round_done(
        self, stage: str, progress: Progress, seconds: float, metrics: list[job_pb2.Metric]
    ) -> None:
        """Notes one outermost round."""
        self.progress = progress
        if stage == self.protocol.name:
            self.round_seconds.append(seconds)
        done = job_pb2.RoundDone(stage=stage, progress=progress, seconds=seconds)
        done.metrics.extend(metrics)
        self.emit(Event(round=done))
        if stage == self.protocol.name:
            for warning in self.losses.hear(progress.done, metrics):
                self._note_warning(self.table.guest, warning)
