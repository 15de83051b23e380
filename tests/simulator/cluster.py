"""A coordinator and its parties as daemons of one process: started, asked, killed, started again.

The daemons are the product's own `serve_party` and `serve_coordinator`. What is not: the network
(`network`), the clock (`clock`), what the disk waits for (`disk`), and
chance, which a seed replaces.
"""

import asyncio
import logging
import random
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from contextvars import copy_context
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

from fedboost.data.sources import SourceSpec
from fedboost.flow import Role
from fedboost.ground.errors import FedboostError, JobError, UnreachableError
from fedboost.ground.workers import Serial
from fedboost.job import JobSpec
from fedboost.messages import job_pb2
from fedboost.runtime.client.client import CoordinatorClient
from fedboost.runtime.client.config import ClientConfig
from fedboost.runtime.cluster.local import (
    COORDINATOR,
    NOWHERE,
    USER,
    declared_sources,
    permissive_policy,
    tls_of,
)
from fedboost.runtime.config.daemons import CoordinatorConfig, PartyConfig, Users
from fedboost.runtime.config.policy import Policy
from fedboost.runtime.daemons import access, daemon
from fedboost.runtime.transport.addresses import PinnedAddress, Remote, Timers
from fedboost.runtime.transport.channel import Dialer
from fedboost.runtime.transport.health import Health
from tests.simulator import chance, disk
from tests.simulator.clock import MockLoop, mocked_time
from tests.simulator.disk import When, Write
from tests.simulator.network import Network, Schedule, Server, Undisturbed
from tests.simulator.processes import PROCESS, KilledError, Process

RESTS = ("paused", "failed", "cancelled", "finished")
LOOK_S = 1.0  # between two looks at a job
CLOSES_MAX = 50  # waits that a coroutine comes to while it ends
START_S = 5.0  # in which a daemon must listen


class Workers(Serial):
    """The processes of a daemon: none."""

    def __init__(self, count: int) -> None:
        """`count` is what the configuration wants."""

    def close(self) -> None:
        """Nothing is open."""


@dataclass(frozen=True)
class Place:
    """Where a cluster lies: certificates, stores and tables, and whose jobs it takes."""

    folder: Path
    certs: Path
    spec: JobSpec  # names everybody
    sources: Mapping[str, SourceSpec]
    timers: Timers
    policies: Mapping[str, Policy] = field(default_factory=dict)  # other than permissive ones

    @property
    def names(self) -> tuple[str, ...]:
        """Every daemon, the coordinator first."""
        return (COORDINATOR, *self.spec.parties.table().of(tuple(Role)))

    def party(self, name: str) -> PartyConfig:
        """A party's configuration."""
        has_data = name in self.sources
        return PartyConfig(
            name=name,
            listen=NOWHERE,
            tls=tls_of(self.certs, name),
            coordinator=Remote(name=COORDINATOR, address=NOWHERE),
            peers=dict.fromkeys(
                (n for n in self.names[1:] if n != name), PinnedAddress(address=NOWHERE)
            ),
            store=self.folder / name,
            datasets=declared_sources(name, self.spec, self.sources),
            policy=self.policies.get(name) or permissive_policy(name, self.spec, has_data=has_data),
            timers=self.timers,
            workers=1,
        )

    def coordinator(self) -> CoordinatorConfig:
        """The coordinator's configuration."""
        return CoordinatorConfig(
            name=COORDINATOR,
            listen=NOWHERE,
            tls=tls_of(self.certs, COORDINATOR),
            parties=dict.fromkeys(self.names[1:], PinnedAddress(address=NOWHERE)),
            store=self.folder / COORDINATOR,
            users=Users(submit=(USER,), read=(USER,), cancel=(USER,)),
            timers=self.timers,
            workers=1,
        )


# Told of each durable write, may kill its process: the place, a process, a write and when.
Plan = Callable[[Write, When], bool]


class Simulation:
    """One cluster on one clock."""

    def __init__(self, loop: MockLoop, place: Place, schedule: Schedule, plan: Plan) -> None:
        self.loop, self.place, self.plan = loop, place, plan
        self.network = Network(loop)
        self.network.schedule = schedule
        self.graveyard: list[Process] = []  # nothing of them is swept up before the end
        self.writes: list[Write] = []
        self.errors: list[str] = []  # that daemons log and nobody expects
        self.user = Process(USER, certificate=self._certificate(USER))
        self.kills: list[Write] = []
        self.left: list[str] = []  # tasks and threads, when everybody has ended
        self.outside = copy_context()
        self.outside.run(PROCESS.set, None)

    # Daemons

    async def start(self, *names: str) -> None:
        """Starts daemons that are not there, and waits until they listen."""
        for name in names:
            old = self.network.processes.get(name)
            life = 1 if old is None else old.life + 1
            process = Process(name, life, self._certificate(name))
            self.network.processes[name] = process
            work = (
                daemon.serve_coordinator(self.place.coordinator())
                if name == COORDINATOR
                else daemon.serve_party(self.place.party(name))
            )
            context = copy_context()
            context.run(PROCESS.set, process)
            process.main = self.loop.create_task(work, name=name, context=context)
        async with asyncio.timeout(START_S):
            while not all(self.network.processes[name].is_up for name in names):
                if not all(self._lives(name) for name in names):
                    return  # killed while it started, which a test may want
                await asyncio.sleep(0.01)

    def _lives(self, name: str) -> bool:
        process = self.network.processes[name]
        return not process.is_dead and not process.main.done()

    def kill(self, name: str) -> None:
        """Ends a daemon between two instructions."""
        process = self.network.processes[name]
        if not process.is_dead:
            process.is_dead = True
            self._bury(process)

    async def stop(self, name: str) -> None:
        """SIGTERM; gives its end."""
        process = self.network.processes[name]
        process.signals[signal.SIGTERM]()
        await asyncio.wait((process.main,))
        process.main.result()
        process.is_dead = True
        self.graveyard.append(process)

    @property
    def dead(self) -> list[str]:
        """The daemons that are not there."""
        return [name for name in self.place.names if not self._lives(name)]

    def watch(self, process: Process, write: Write, when: When) -> None:
        """Sees a durable write; the plan may kill."""
        if when == "before":
            self.writes.append(write)
        if self.plan(write, when):
            self.kills.append(write)
            process.is_dead = True
            self.loop.call_soon_threadsafe(self._bury, process, context=self.outside)
            raise KilledError

    def _bury(self, process: Process) -> None:
        process.free()
        self.graveyard.append(process)

    # Jobs

    def client(self) -> CoordinatorClient:
        """What the user's command asks the coordinator with."""
        remote = Remote(name=COORDINATOR, address=NOWHERE)
        return CoordinatorClient(
            ClientConfig(coordinator=remote, tls=tls_of(self.place.certs, USER))
        )

    async def submit(self, spec: JobSpec) -> str:
        """Hands in a job; gives its id."""
        return await self.client().submit(spec.model_dump_json().encode())

    async def status(self, job: str) -> job_pb2.JobStatus:
        """How a job stands; the coordinator must be there."""
        return await self.client().status(job)

    async def rest(self, job: str, most_s: float) -> str:
        """The state in which the job rests, or "running" where it does not within `most_s`.

        Where the coordinator is dead that is what is found.
        """
        until = self.loop.time() + most_s
        while self.loop.time() < until and COORDINATOR not in self.dead:
            try:
                state = (await self.status(job)).state
            except FedboostError:
                state = ""
            if state in RESTS:
                return state
            await asyncio.sleep(LOOK_S)
        return "running"

    async def resume(self, job: str) -> None:
        """What a user does where a paused job does not go on by itself."""
        try:
            await self.client().resume(job)
        except (JobError, UnreachableError):
            return  # it has gone on meanwhile, or nobody is there to ask

    # Inside

    @contextmanager
    def world(self, seed: int) -> Iterator[None]:
        """Everything outside the daemons, replaced; the seed is that of back-offs alone."""
        collecting = _Collecting(self.errors)
        self.loop.set_exception_handler(self._unexpected)
        PROCESS.set(self.user)
        random.seed(seed)
        with ExitStack() as stack:
            enter = stack.enter_context
            enter(mocked_time(self.loop))
            enter(disk.watched(self.watch))
            enter(mock.patch("fedboost.runtime.process.workers.ProcessWorkers", Workers))
            enter(mock.patch.object(access, "bind_server", _bound))
            enter(mock.patch.object(access, "end_within", _told_to_end))
            enter(
                mock.patch.object(Dialer, "_open", lambda _, name, __: self.network.channel(name))
            )
            enter(mock.patch.object(Dialer, "_check_callee", _known))
            enter(mock.patch.object(Health, "watch_loop", _idle))
            enter(mock.patch.object(access.DaemonAccess, "warn_of_expiry_daily", _idle))
            enter(chance.replaced(self._next_job))
            logging.getLogger("fedboost").addHandler(collecting)
            try:
                yield
            finally:
                logging.getLogger("fedboost").removeHandler(collecting)

    def _next_job(self) -> int:
        """A number for a job that parties do not know yet, however often one was handed in."""
        known = {path.name for path in self.place.folder.glob("*/jobs/*")}
        return len(known) + 1

    def _unexpected(self, _: Any, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if not isinstance(error, KilledError):
            self.errors.append(f"{context['message']}: {error!r}")

    def _certificate(self, name: str) -> bytes:
        return (self.place.certs / f"{name}.pem").read_bytes()


def _told_to_end(_: float) -> None:
    """A daemon that stops would end its process after a while: it is everybody's here."""


def _bound(*_: Any) -> tuple[Server, int]:
    return Server(), 0


async def _idle(_: Any) -> None:
    """Timers of no job would change the order of events at one moment."""


async def _known(*_: Any) -> None:
    """No link has TLS here, so no daemon states a certificate."""


class _Collecting(logging.Handler):
    def __init__(self, errors: list[str]) -> None:
        super().__init__(logging.ERROR)
        self._errors = errors

    def emit(self, record: logging.LogRecord) -> None:
        process, info = PROCESS.get(), record.exc_info
        if process is None or not process.is_dead:
            what = f" {info[1]!r}" if info else ""
            self._errors.append(record.getMessage() + what)


def simulate(
    place: Place,
    work: Callable[[Simulation], Any],
    *,
    seed: int = 0,
    schedule: Schedule | None = None,
    plan: Plan = lambda *_: False,
) -> Any:
    """Runs `work` on a cluster whose daemons are all up, and stops them in the end.

    An AssertionError where a task or a thread is left then.
    """
    loop = MockLoop()
    made = Simulation(loop, place, schedule or Undisturbed(), plan)

    async def whole() -> Any:
        await made.start(*place.names)
        result = await work(made)
        for name in place.names:
            if name not in made.dead:
                await made.stop(name)
        return result

    context = copy_context()

    def inside() -> Any:
        with made.world(seed):
            try:
                return loop.run_until_complete(whole())
            finally:
                _sweep(made)

    return context.run(inside)


def _sweep(made: Simulation) -> None:
    """Lets go of what dead processes hold; what the living left is noted as errors."""
    loop = made.loop
    buried = {id(task) for process in made.graveyard for task in process.tasks}
    own = asyncio.all_tasks(loop)
    for process in made.network.processes.values():
        if not process.is_dead:  # the run has failed in the middle
            process.is_dead = True
            made._bury(process)
    for task in own:
        task._log_destroy_pending = False  # type: ignore[attr-defined]
    for process in made.graveyard:
        context = copy_context()
        context.run(PROCESS.set, process)
        for task in process.tasks:
            context.run(_close, task)
    left = [task for task in own if id(task) not in buried and not task.done()]
    made.left += [f"task {task.get_coro()}" for task in left]
    made.left += ["thread" for strand in loop.strands if not strand.is_over]
    loop.close()


def _close(task: asyncio.Task[Any]) -> None:
    """Ends a dead process's coroutine, which may do nothing more, without a word."""
    for _ in range(CLOSES_MAX):
        try:
            coroutine: Any = task.get_coro()
            coroutine.close()
        except BaseException:  # what it does in the end, it does not do either
            continue
        return
