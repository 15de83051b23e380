"""Runs a stage's walk with its real roles in this process, on small tables, and counts its costs.

Walk and steps are those of the protocol; only the cipher counts instead of encrypting
(`counting_cipher`), and messages are measured instead of sent. The time of steps and that of their
workers are measured separately. A change of a protocol changes its estimate.
"""

from __future__ import annotations

import hashlib
import time
import tracemalloc
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import zip_longest
from typing import Any, TypeVar

import numpy as np
from google.protobuf.message import Message
from numpy.typing import NDArray

from fedboost import flow
from fedboost.crypto.secrets import Secrets
from fedboost.encrypted.scheme.rehearsed import RehearsedContext
from fedboost.flow import (
    Artefact,
    CheckpointPolicy,
    Out,
    StageAttempt,
    StageContext,
    StageSecrets,
    StageServices,
    Step,
    Table,
)
from fedboost.ground.settings import Settings
from fedboost.ground.workers import Deferred, Serial, Workers
from fedboost.runtime.cluster.local import permissive_policy
from fedboost.runtime.config.policy import Policy
from fedboost.runtime.estimate.cipher_tally import CipherTally
from fedboost.runtime.estimate.counting_cipher import CountingCipher
from fedboost.runtime.estimate.phases import ALONE, ASKED, SHARED, Phase
from fedboost.runtime.estimate.scenes import TableSample
from fedboost.runtime.party.stage.roles import Roles

SIGNATURE_BYTES = 780  # of a party's signature, with its certificate
BEGIN, KEEP, FINISH = "begin", "keep", "finish"  # phases without steps

T = TypeVar("T")
P = TypeVar("P", bound=Settings)
MessageParts = list[Message]


class TimedWorkers(Serial):
    """Workers in this process that measure their time; tasks run at once."""

    seconds = 0.0

    def map(self, kernel: Callable[..., T], tasks: Sequence[tuple[Any, ...]]) -> list[T]:
        """See `Workers`."""
        started = time.thread_time()
        results = super().map(kernel, tasks)
        self.seconds += time.thread_time() - started
        return results

    def submit(self, kernel: Callable[..., T], *task: Any) -> Deferred[T]:
        """See `Workers`."""
        (result,) = self.map(kernel, [task])
        return Deferred(lambda: result, ())


@dataclass
class Actor:
    """One party at its stage."""

    roles: Roles
    cipher: CountingCipher
    workers: TimedWorkers
    kept: int = 0  # bytes of memory that its steps have left
    most: int = 0

    def run_timed(self, phase: Phase, party: str, work: Callable[[], T]) -> T:
        """Return the result of some work, and note its time and memory in the phase."""
        tally, workers = self.cipher.tally, self.workers
        aside, worked = tally.seconds, workers.seconds
        before, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        started = time.thread_time()
        given = work()
        spent = time.thread_time() - started
        after, peak = tracemalloc.get_traced_memory()
        self.most = max(self.most, self.kept + peak - before)
        self.kept += after - before
        shared = workers.seconds - worked
        phase.add(party, ALONE, max(0.0, spent - shared - (tally.seconds - aside)))
        phase.add(party, SHARED, shared)
        for operation, count in tally.counts.items():
            phase.add(party, operation, count)
        tally.counts.clear()
        return given


@dataclass
class Rehearsal(flow.Run):
    """A running walk; `phases` are its costs so far."""

    protocol: flow.Protocol[Settings]
    params: Any
    sample: TableSample
    artefacts: Mapping[str, Mapping[str, Artefact]] = field(default_factory=dict)  # by party
    phases: list[Phase] = field(default_factory=list)
    left: dict[str, Artefact] = field(default_factory=dict)
    answers: str = ""  # the form of hosts' encrypted sums, as the guest reports it

    def __post_init__(self) -> None:
        self.table = self.sample.scene.spec.parties.table()
        self.actors: dict[str, Actor] = {}
        # By receiver and kind: by sender, the messages that no step has taken yet.
        self._mail: dict[tuple[str, type[Message]], dict[str, deque[MessageParts]]] = defaultdict(
            dict
        )
        self._counters: list[int] = []
        self._ended = ""
        self._sent = 0  # messages
        self._calling = False  # whether the next step is the first of its call

    async def run(self) -> None:
        """Begin, walk and finish the stage."""
        began, held_out = self._new_phase(BEGIN), self.sample.held_out()
        self.actors = {
            party: self._new_actor(party, held_out) for party in self.table.of(tuple(flow.Role))
        }
        for party, actor in self.actors.items():
            for part in actor.roles:
                part.state = actor.run_timed(began, party, partial(part.module.begin, part.context))
        await self.protocol.walk(self)
        done = self._new_phase(FINISH)
        for party, actor in self.actors.items():
            main = actor.roles.main
            self.left[party] = actor.run_timed(done, party, partial(main.module.finish, main.state))

    async def __call__(
        self, *steps: Step, at: str | None = None, among: tuple[str, ...] = (), spares: bool = False
    ) -> None:
        """Do the steps in their order, at one party after another."""
        self._calling = True
        self._do_steps(steps, at, among)

    def _do_steps(self, steps: tuple[Step, ...], at: str | None, among: tuple[str, ...]) -> None:
        called: set[str] = set()
        for step in steps:
            phase, sent = self._phase_of(step), self._sent
            for party in (at,) if at is not None else self.table.among(step.roles, among):
                if party not in called:
                    phase.add(party, ASKED, 1.0)
                    called.add(party)
                self._perform(step, party, among, phase)
            phase.exchanges += self._sent > sent

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
        """Run all rounds as one call, as for quick rounds; see `flow.Run`."""
        keeps = CheckpointPolicy.NOW_AND_THEN
        for number, _ in enumerate(self.rounds(name, most, keeps=keeps)):
            self._calling = not number
            self._do_steps(steps if number else (*first, *around[0], *steps), None, among)
            self._do_steps(around[1] if number + 1 == most else (), None, among)
        return most > 0

    def _perform(self, step: Step, party: str, among: tuple[str, ...], phase: Phase) -> None:
        actor = self.actors[party]
        roles = actor.roles
        part = roles.of(step)
        given = [part.state]
        if step.takes is not None:
            given.append(self._collect(step, party, among))
        if step.hears:
            given.append(self.table.among(step.hears, among))

        def run_step() -> list[Out]:
            out: Out | Iterator[Out] = getattr(part.module, step.name)(*given)
            return [*out] if isinstance(out, Iterator) else [out]

        sent: dict[str, MessageParts] = defaultdict(list)
        for out in actor.run_timed(phase, party, run_step):
            if out.told is not None:
                self._ended = out.told.ends or self._ended
                self.answers = out.told.answers or self.answers
            messages = out.send or {}
            if not isinstance(messages, Mapping):
                messages = dict.fromkeys(roles.receivers(step, among), messages)
            for peer, message in messages.items():
                sent[peer].append(message)
        for receiver, parts in sent.items():
            assert step.gives is not None
            self._mail[receiver, step.gives].setdefault(party, deque()).append(parts)
            if receiver != party:
                n_bytes = sum(actor.cipher.n_bytes(part) for part in parts)
                phase.send((party, receiver), float(n_bytes), float(len(parts)))
                self._sent += len(parts)

    def _collect(self, step: Step, party: str, among: tuple[str, ...]) -> object:
        """Return the messages of a step in the form that a session gives them."""
        assert step.takes is not None
        roles = self.actors[party].roles
        box = self._mail[party, step.takes]
        arrived = sorted(sender for sender, waiting in box.items() if waiting)
        senders = arrived if step.tolerates or step.one_sender else roles.senders(step, among)
        got = {sender: box[sender].popleft() for sender in senders}
        alone = roles.has_one_giver(step) or step.one_sender
        if roles.takes_stream(step) and not step.tolerates:
            return iter(got[senders[0]]) if alone else _side_by_side(got)
        messages = {sender: parts[0] for sender, parts in got.items()}
        return messages[senders[0]] if alone and not step.tolerates else messages

    def _phase_of(self, step: Step) -> Phase:
        """Return the phase of a step: that of all steps that run at about the same time.

        A new phase begins if the step waits for the coordinator or for a message of the last phase,
        except for a stream, which is read while it is made.
        """
        phase = self.phases[-1]
        waits = step.takes is not None and step.takes in phase.gives
        reads_on = waits and any(
            giver.streams for giver in phase.steps if giver.gives is step.takes
        )
        again = step in phase.steps  # the next of several layers in one call
        if again or ((waits or self._calling) and not reads_on):
            phase = self._new_phase(step.name)
        phase.steps.append(step)
        phase.calls += self._calling
        self._calling = False
        return phase

    def _new_phase(self, name: str) -> Phase:
        phase = Phase(self.protocol.name, name, tuple(self._counters))
        self.phases.append(phase)
        return phase

    def keep(self, keeps: CheckpointPolicy = CheckpointPolicy.NOW_AND_THEN) -> None:
        """Do nothing: a rehearsal is not resumed."""

    @property
    def is_quick(self) -> bool:
        """True: several rounds are asked for at once."""
        return True

    def rounds(
        self, name: str, most: int, *, keeps: CheckpointPolicy | None = None
    ) -> Iterator[int]:
        """Yield the index of each round; rounds of the walk's main loop are multiplied later."""
        is_main = not self._counters and keeps is not CheckpointPolicy.NOTHING
        for index in range(most):
            if self._ended == name:
                break
            first = len(self.phases)
            self._counters.append(index)
            yield index
            if is_main and keeps is None:  # after each of them, all parties save a checkpoint
                kept = self._new_phase(KEEP)
                kept.calls += 1
                for party in self.actors:
                    kept.add(party, ASKED, 1.0)
            self._counters.pop()
            for phase in self.phases[first:] if is_main else ():
                phase.round, phase.in_batches = index, most >= flow.UNBOUNDED
        if self._ended == name:
            self._ended = ""

    def _new_actor(self, party: str, held_out: Mapping[str, NDArray[np.bool_]]) -> Actor:
        workers, tally, sample = TimedWorkers(), CipherTally(), self.sample
        cipher = CountingCipher(self.params, _secrets(party).child("job"), tally, sample.share)
        context = replace(
            context_of(party, self.table, self.params, workers),
            frame=sample.frames.get(party),
            validation=held_out.get(party, np.zeros(0, np.bool_)),
            artefacts=self.artefacts.get(party, {}),
            limits=permissive_policy(party, sample.scene.spec),
        )
        roles = Roles(self.protocol, RehearsedContext.of(context, cipher))
        return Actor(roles, cipher, workers)

    @property
    def held(self) -> dict[str, tuple[float, float]]:
        """The most bytes at each party: in the clear, if traced, and encrypted."""
        actors = self.actors.items()
        return {name: (float(actor.most), actor.cipher.tally.most) for name, actor in actors}


class _Hand:
    """Signs only for ourselves; implements `flow.Signer`."""

    def sign(self, text: bytes) -> bytes:
        """Return bytes as long as a signature with its certificate."""
        return hashlib.sha256(text).digest().ljust(SIGNATURE_BYTES)

    def check(self, party: str, text: bytes, signature: bytes) -> None:
        """Refuse nothing."""


def context_of(party: str, table: Table, params: P, workers: Workers) -> StageContext[P]:
    """Return the context of a party without a table in a stage that leaves no trace."""
    secrets = _secrets(party)
    return StageContext(
        party=party,
        role=table.roles_of(party)[0],
        table=table,
        job="estimate",
        params=params,
        limits=Policy(),
        frame=None,
        validation=np.zeros(0, np.bool_),
        artefacts={},
        attempt=StageAttempt(origin=bytes(32), digest=bytes(32)),
        secrets=StageSecrets(
            attempt=secrets.child("stage"),
            job=secrets.child("job"),
            lasting=secrets.child("lasting").child,
        ),
        services=StageServices(_Hand(), flow.MemoryNotebook(), workers),
    )


def _secrets(party: str) -> Secrets:
    return Secrets(hashlib.sha256(party.encode()).digest())


def _side_by_side(streams: Mapping[str, MessageParts]) -> Iterator[dict[str, Message]]:
    """Yield the next part of each of several streams, by sender, until all have ended."""
    for parts in zip_longest(*streams.values()):
        every = zip(streams, parts, strict=True)
        yield {sender: part for sender, part in every if part is not None}
