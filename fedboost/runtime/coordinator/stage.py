"""One stage's walk at the coordinator: numbers steps, counts rounds, has parties save them."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import zip_longest

from fedboost import flow
from fedboost.flow import HOST, LOOP, START, CheckpointPolicy, Place, Step
from fedboost.ground.errors import ProtocolError, UnreachableError
from fedboost.ground.settings import Settings
from fedboost.messages import job_pb2, party_pb2
from fedboost.messages.job_pb2 import Event, Progress, StatusReport, StepDone
from fedboost.messages.party_pb2 import EndLoopRequest, StepCall, StepReply, Turn, TurnReply
from fedboost.runtime.coordinator.journals import Costs
from fedboost.runtime.coordinator.reports import add_report
from fedboost.runtime.coordinator.walk import JobWalk
from fedboost.runtime.process import logs
from fedboost.runtime.process.clock import monotonic_s

HEARD_POLL_S = 0.02  # between two checks whether a party has received the call


@dataclass
class StageWalk(flow.Run):
    """One stage's walk: numbers steps, counts rounds, commits the walk's places."""

    job: JobWalk
    protocol: flow.Protocol[Settings]
    place: Place  # the walk begins after it; every party has saved it
    ended: str = ""  # the loop that a party's reply has ended
    counters: list[int] = field(default_factory=list)
    silent: int = 0  # open loops, from the outermost on, that save nothing
    number: int = 0
    is_due: bool = False  # whether the current place is to be saved before the next step
    committed: float = field(default_factory=monotonic_s)
    round_took: float = math.inf  # seconds, the last one of the outermost loop
    loop_took: dict[str, float] = field(default_factory=dict)  # the same of inner ones, by name
    took: float | None = None  # seconds of a counted loop's round; None: measured by the clock
    metrics: list[job_pb2.Metric] = field(default_factory=list)
    several: list[job_pb2.RoundTold] = field(default_factory=list)  # rounds of one step
    told: StatusReport = field(default_factory=StatusReport)

    def __post_init__(self) -> None:
        self.params = self.job.params if self.protocol is self.job.protocol else None
        self.table = self.job.table
        self.stands = self.kept = self.place  # the last place to save that was passed; last saved

    async def __call__(
        self,
        *steps: Step,
        at: str | None = None,
        among: tuple[str, ...] = (),
        spares: bool = False,
    ) -> None:
        self.job.spares |= spares
        await self._do_steps(steps, at=at, among=among)

    async def _do_steps(
        self,
        steps: tuple[Step, ...],
        *,
        at: str | None = None,
        among: tuple[str, ...] = (),
        loop: str = "",
        done: Mapping[str, int] | None = None,
    ) -> list[list[TurnReply]]:
        """Have parties do steps, or the next rounds of `loop`.

        Return the parties' replies for each step that was done before the loop ended. `done` gives
        the number of steps that a party has done before.
        """
        settles = any(step.hears for step in steps)
        self.is_due |= settles and not self.job.gone <= set(self.job.lost)
        await self.commit()
        hosts = among or self.job.present
        gone = frozenset(self.job.gone)
        before = self.number
        turns = self._number_steps(steps, (at,) if at is not None else (), hosts, done or {})
        if not turns:
            return []
        common = StepCall(
            job=self.job.id,
            attempt=self.job.attempt,
            stage=self.protocol.name,
            awaits=len(steps) > 1,
            rounds=self.counters,
            among=hosts,
            spares=self.job.spares,
            loop=loop,
        )

        named = ", ".join(dict.fromkeys(step.name for step in steps))
        logs.note_context(stage=self.protocol.name, step=named)
        started = monotonic_s()
        call = partial(self._call_party, turns, common)
        replies = await self.job.ask_parties(tuple(turns), named, call)
        if settles:
            self.job.lose_for_good(gone, self.protocol.name)
        reached = {p: turns[p][len(r.turns) - 1].number - before for p, r in replies.items()}
        furthest = max(reached.values())
        self._note_costs(steps[:furthest], turns, replies, monotonic_s() - started)
        said: list[list[TurnReply]] = [[] for _ in range(furthest)]
        for party, reply in replies.items():
            for turn, spent in zip(turns[party], reply.turns, strict=False):
                said[turn.number - before - 1].append(spent)
        if loop and self.job.gone > gone:
            reachable = steps[: _reachable_steps(steps, furthest)]
            late = await self._do_steps(reachable, among=among, done=reached)
            said = [[*first, *more] for first, more in zip_longest(said, late, fillvalue=())]
        return said

    async def _call_party(
        self, turns: Mapping[str, Sequence[Turn]], common: StepCall, party: str
    ) -> StepReply:
        """Ask one party to take its turns; if it ends a loop early, end it at the others too."""
        call = StepCall(turns=turns[party])
        call.MergeFrom(common)
        loop, has_ended = call.loop, False
        try:
            reply = await self.job.controls[party].run_step(call, partial(self.job.hear, party))
            is_short = len(reply.turns) < len(turns[party])
            has_ended = reply.turns[-1].told.ends == loop and is_short
        except UnreachableError:
            has_ended = self.job.is_spared(party)
            raise
        finally:
            if loop and has_ended:
                others = {
                    peer: rounds[-1].number for peer, rounds in turns.items() if peer != party
                }
                await self._end_loop(others)
        return reply

    def _number_steps(
        self,
        steps: tuple[Step, ...],
        at: tuple[str, ...],
        hosts: tuple[str, ...],
        done: Mapping[str, int],
    ) -> dict[str, list[Turn]]:
        """Number the steps; return the turns of each party without the steps it has done before."""
        turns: dict[str, list[Turn]] = {}
        for place, step in enumerate(steps):
            self.number += 1
            for party in at or self.table.among(step.roles, hosts):
                if place >= done.get(party, 0):
                    turns.setdefault(party, []).append(Turn(step=step.name, number=self.number))
        return turns

    async def _end_loop(self, numbers: Mapping[str, int]) -> None:
        """Tell each party the number of the last step of its call; later steps will not come."""
        await asyncio.gather(
            *(self._end_loop_at(party, number) for party, number in numbers.items())
        )

    async def _end_loop_at(self, party: str, number: int) -> None:
        """Tell one party, once it has received the call."""
        job, stage = self.job, self.protocol.name
        request = EndLoopRequest(job=job.id, attempt=job.attempt, stage=stage, number=number)
        while True:
            try:
                await job.controls[party].end_loop(request)
            except ProtocolError:
                if party in job.waiting:
                    await asyncio.sleep(HEARD_POLL_S)
                    continue
            except UnreachableError:
                if not job.is_spared(party):
                    raise
            return

    def _note_costs(
        self,
        steps: tuple[Step, ...],
        turns: Mapping[str, list[Turn]],
        replies: Mapping[str, StepReply],
        seconds: float,
    ) -> None:
        """Note the steps' costs, one event for each step even if it was done several times."""
        stage = self.protocol.name
        done = {step.name: StepDone(stage=stage, step=step.name) for step in steps}
        costs = {name: Costs(reply) for name, reply in done.items()}
        sent: dict[int, str] = {}  # the step of each number that sent something
        for party, reply in replies.items():
            for turn, spent in zip(turns[party], reply.turns, strict=False):
                costs[turn.step].add(spent.cost)
                if spent.cost.sent:
                    sent[turn.number] = turn.step
                self.ended = spent.told.ends or self.ended
                self.metrics.extend(spent.told.metrics)
                self.several.extend(spent.told.rounds)
                add_report(self.told, spent.told)
                self.job.note_warnings(spent.told)
        self.job.exchanges += len(sent)
        # Steps of one call share its time in proportion to the slowest party's computing time.
        busy = {name: max((c.cpu_seconds for c in reply.costs), default=0.0)
                for name, reply in done.items()}  # fmt: skip
        whole = sum(busy.values())
        for name, event in done.items():
            event.calls = sum(step.name == name for step in steps)
            event.exchanges = sum(step == name for step in sent.values())
            event.seconds = seconds * (busy[name] / whole if whole else 1 / len(done))
        self.job.emit(*(Event(step=event) for event in done.values()))

    async def loop(
        self,
        name: str,
        most: int,
        *steps: Step,
        first: tuple[Step, ...] = (),
        among: tuple[str, ...] = (),
        slowly: flow.Walk | None = None,
        around: tuple[tuple[Step, ...], tuple[Step, ...]] = ((), ()),
    ) -> bool:
        """Run the loop in calls of several rounds, up to the next time to save; see `flow.Run`."""
        before, ended = first, ""
        rounds: deque[Sequence[Sequence[TurnReply]]] = deque()  # done and not counted yet
        over: tuple[str, ...] | None = None  # the hosts of the last complete slow round
        for index in self.rounds(name, most, keeps=CheckpointPolicy.NOW_AND_THEN):
            is_slow = slowly is not None and not (self.is_quick and over in (None, self.present))
            if not rounds and not self.broken_off and not is_slow:
                await self.commit()
                ahead, behind, gone = (*before, *around[0]), around[1], set(self.job.gone)
                asked = ahead + steps * self._at_once(name, most - index) + behind
                said = await self._do_steps(asked, among=among, loop=name)
                said = said[len(ahead) + len(behind) :]
                whole = len(said) - (self.job.gone > gone) * (len(said) % len(steps))
                rounds.extend(said[at : at + len(steps)] for at in range(0, whole, len(steps)))
                self.broken_off = steps[len(said) - whole :] if len(said) > whole else ()
                before, self.loop_took[name] = (), _longest_seconds(said) * len(steps) / len(said)
                ended, self.ended = self.ended, ""
            if not rounds:
                assert slowly is not None  # the round was broken off, or is slow
                over, began = over if self.broken_off else self.present, monotonic_s()
                await slowly(self)
                self.broken_off, self.loop_took[name] = (), monotonic_s() - began
                continue
            turns = [turn for step in rounds.popleft() for turn in step]
            if len(self.counters) == self.silent + 1:  # the outermost loop reports its rounds
                self.metrics = [metric for turn in turns for metric in turn.told.metrics]
            self.took = self.loop_took[name]
            if not rounds:
                self.ended = ended
        return before != first

    def _at_once(self, name: str, left: int) -> int:
        """Return how many of the remaining rounds to ask for at once."""
        took = self.loop_took.get(name, math.inf)
        left_s = self.committed + self.job.timers.keep_s - monotonic_s()
        return left if took * left <= left_s else max(1, math.ceil(left_s / took))

    @property
    def present(self) -> tuple[str, ...]:
        """See `flow.Run`."""
        return self.job.present

    @property
    def is_resumed(self) -> bool:
        """See `flow.Run`."""
        return self.place > START

    @property
    def is_quick(self) -> bool:
        """See `flow.Run`; decided by the time of the previous round."""
        return self.round_took < self.job.timers.keep_s

    def keep(self, keeps: CheckpointPolicy = CheckpointPolicy.NOW_AND_THEN) -> None:
        """See `flow.Run`."""
        self._pass_place(LOOP, keeps)

    def rounds(
        self, name: str, most: int, *, keeps: CheckpointPolicy | None = None
    ) -> Iterator[int]:
        """Iterate over rounds after the last place in the loop that all parties have saved.

        See `flow.Run`.
        """
        outermost = len(self.counters) == self.silent and keeps is not CheckpointPolicy.NOTHING
        is_silent = len(self.counters) == self.silent and not outermost
        keeps = keeps or (CheckpointPolicy.EACH if outermost else CheckpointPolicy.NOTHING)
        first = self._first_round(len(self.counters)) if self.counters or outermost else 0
        for index in range(first, most):
            if self.ended == name:
                break
            started = monotonic_s()
            self.counters.append(index)
            self.silent += is_silent
            yield index
            self.silent -= is_silent
            self.counters.pop()
            self._pass_place((*self.counters, index + 1), keeps)
            took, self.took = monotonic_s() - started if self.took is None else self.took, None
            if outermost:
                self.round_took = took
                of = most if most < flow.UNBOUNDED else (self.ended == name) * (index + 1)
                whole = job_pb2.RoundTold(round=name, done=index + 1, of=of, metrics=self.metrics)
                done = self.several or [whole]  # of=0: not known yet
                seconds = took / len(done)
                for told in done:
                    progress = Progress(round=told.round, done=told.done, of=told.of)
                    metrics = list(told.metrics)
                    self.job.note_round(self.protocol.name, progress, seconds, metrics)
                self.metrics, self.several = [], []
        if self.ended == name:
            self.ended = ""

    def _first_round(self, depth: int) -> int:
        """Return the first round of a loop at this depth of nesting."""
        is_here = len(self.place) > depth and tuple(self.counters) == self.place[:depth]
        return self.place[depth] if is_here else 0

    def _pass_place(self, place: Place, keeps: CheckpointPolicy) -> None:
        """Note a place that can be saved, and whether to save it."""
        if keeps is not CheckpointPolicy.NOTHING:
            is_time = monotonic_s() - self.committed >= self.job.timers.keep_s
            self.stands, self.is_due = (
                place,
                self.is_due or keeps is CheckpointPolicy.EACH or is_time,
            )

    async def commit(self) -> None:
        """Have every party save the last place passed, if that is due, before the next step."""
        is_due, self.is_due = self.is_due and self.stands > self.kept, False
        if not is_due:
            return
        round_, *within = self.kept = self.stands
        request = party_pb2.CommitRequest(
            job=self.job.id,
            attempt=self.job.attempt,
            stage=self.protocol.name,
            round=round_,
            within=within,
            heads=self.job.heads,
        )
        replies = await self.job.ask_parties(
            self.job.everybody, "commit", lambda party: self.job.controls[party].commit(request)
        )
        self.job.heads = [reply.head for reply in replies.values() if reply.HasField("head")]
        self.committed = monotonic_s()
        self.job.gained = True


def _reachable_steps(steps: Sequence[Step], done: int) -> int:
    """Return how many steps can be done without a lost host if one party has done `done` of them.

    The next step counts too if it takes the message of the last one and no host gives that.
    """
    last = steps[done - 1]
    takes_it = done < len(steps) and steps[done].takes is last.gives is not None
    return done + (takes_it and HOST not in last.roles)


def _longest_seconds(said: Sequence[Sequence[TurnReply]]) -> float:
    """Return the seconds of the party that took longest, its waiting for others included."""
    spent: dict[str, float] = {}
    for turn in (turn for step in said for turn in step):
        spent[turn.cost.party] = spent.get(turn.cost.party, 0.0) + turn.cost.seconds
    return max(spent.values())
