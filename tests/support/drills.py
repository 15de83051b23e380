"""A fault strikes a job of real daemons, is mended, and the job comes to the same model.

What a drill measures: how long until everybody knew, how long until work went on, and how much
work was done twice, in layers of trees.
"""

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from fedboost.ground.errors import FedboostError, UnreachableError
from fedboost.messages.job_pb2 import Event
from fedboost.runtime.client.client import CoordinatorClient
from fedboost.runtime.cluster.cluster import ClusterProcesses
from fedboost.runtime.cluster.local import COORDINATOR
from fedboost.runtime.transport.addresses import Timers
from tests.e2e import world
from tests.support.toys import layers_grown

# As in production, but that a dead link is noticed in a third of the time, and each layer is kept
# however quick it is.
TIMERS = Timers(
    peer_lost_s=4.0, call_s=5.0, retry_first_s=0.1, retry_max_s=1.0, step_s=60.0,
    keepalive_s=2.0, keepalive_timeout_s=2.0, keep_s=0.0,
)  # fmt: skip
DETECT_S, RESUME_S, LOST_LAYERS = 15.0, 10.0, 1  # what SECURITY section 4 promises
END_S = 90.0  # no drill takes longer
WORKS = ("step", "round", "stage")  # events of a job that goes on

Do = Callable[[], Any]

_asking = threading.Lock()


@dataclass(frozen=True)
class Drill:
    """What came of a fault."""

    id: str
    detect_s: float | None  # None: nobody had to stop for it
    resume_s: float | None
    lost_layers: int
    attempts: int

    def __str__(self) -> str:
        parts = [f"attempts {self.attempts}", f"lost layers {self.lost_layers}"]
        if self.detect_s is not None:
            parts.append(f"detect {self.detect_s:.1f} s")
        if self.resume_s is not None:
            parts.append(f"resume {self.resume_s:.1f} s")
        return ", ".join(parts)


@dataclass(frozen=True)
class Fault:
    """What strikes, what mends it, and whether anybody has to notice."""

    strike: Do
    mend: Do
    mend_after_s: float | None = None  # None: once the job rests


def drill(
    cluster: ClusterProcesses,
    raw: dict[str, Any],
    at: Callable[[Event], bool],
    fault: Fault,
    whole: str,
) -> Drill:
    """Submits a job, strikes at an event, mends, and carries the job on until it is finished.

    Its model is that of the job `whole`, which nobody has disturbed.
    """
    id_ = world.submit(cluster, raw)
    last = world.watch(cluster, id_, at)[-1].number
    fault.strike()
    struck = time.monotonic()
    if fault.mend_after_s is None:
        state = _rests(cluster, id_)
        detect = time.monotonic() - struck if state.state == "paused" else None
        assert detect is None or state.reason.what, "a job pauses with a reason"
    else:
        time.sleep(fault.mend_after_s)
        detect = None
    fault.mend()
    resume = carried_on(cluster, id_, last)
    status = ask(cluster, "status", id_)
    assert_same(cluster, id_, whole)
    assert world.tracebacks(cluster) == []
    return Drill(
        id=id_,
        detect_s=detect,
        resume_s=resume if status.attempt > 1 else None,
        lost_layers=max(layers(cluster, id_) - layers(cluster, whole), 0),
        attempts=status.attempt,
    )


def ask(cluster: ClusterProcesses, method: str, id_: str) -> Any:
    """One of the client's questions; one at a time, as gRPC wants of a program's event loops."""
    with _asking:
        return world.call(cluster, method, id_)


def submitted(cluster: ClusterProcesses, raw: dict[str, Any]) -> str:
    """The id of a job that is handed in as soon as all daemons are there."""

    def once() -> str | None:
        with _asking, suppress(UnreachableError):
            return world.submit(cluster, raw)
        return None

    return str(world.wait_for(once, END_S, "all daemons are there"))


def assert_same(cluster: ClusterProcesses, id_: str, whole: str) -> None:
    """The model is that of the other job, bit for bit, or in what it scores.

    Nodes of hybrid trees are numbered in a secret order that is another one in every job.
    """
    found, expected = (_journal(cluster, one) for one in (id_, whole))
    one, other = world.result(found), world.result(expected)
    for key in ("rows", "metrics", "trees"):
        assert one.get(key) == other.get(key), key
    if found.status.protocol != "hybridtree":
        world.assert_same_model(cluster, id_, whole)


def _journal(cluster: ClusterProcesses, id_: str) -> Any:
    """A job's journal, as soon as the coordinator is there."""

    def once() -> Any:
        with suppress(UnreachableError):
            return ask(cluster, "journal", id_)
        return None

    return world.wait_for(once, END_S, "the coordinator is there")


def layers(cluster: ClusterProcesses, id_: str) -> int:
    """How many layers of trees a job has grown, whether they were kept or not."""
    return layers_grown(world.watch(cluster, id_))


def _rests(cluster: ClusterProcesses, id_: str) -> Any:
    """The state in which the job comes to rest."""
    found = world.wait_for(
        lambda: _status(cluster, id_, *world.RESTS), END_S, f"the job {id_} rests"
    )
    assert found.state in ("paused", "finished"), found
    return found


def carried_on(cluster: ClusterProcesses, id_: str, last: int) -> float:
    """Resumes a job that does not do so by itself, to its end; seconds until it worked again."""
    mended = time.monotonic()
    before = max(last, _journalled(cluster, id_))
    worked: float | None = None
    while time.monotonic() - mended < END_S:
        status = _status(cluster, id_)
        if worked is None and status is not None and _works(cluster, id_, before):
            worked = time.monotonic() - mended
        if status is not None and status.state == "finished":
            return worked if worked is not None else time.monotonic() - mended
        if status is not None and status.state == "paused":
            with suppress(FedboostError):  # it may have begun by itself, or a daemon is not back
                ask(cluster, "resume", id_)
        elif status is not None:
            assert status.state not in ("failed", "cancelled"), status.reason
        time.sleep(0.1)
    raise AssertionError(f"the job {id_} did not end within {END_S:g} s: {status}")


def _status(cluster: ClusterProcesses, id_: str, *states: str) -> Any:
    """The job's status, None while it is in another state or the coordinator is not there."""
    try:
        found = ask(cluster, "status", id_)
    except FedboostError:
        return None
    return found if not states or found.state in states else None


def _works(cluster: ClusterProcesses, id_: str, before: int) -> bool:
    """Whether anything has been done since that event."""
    try:
        events = ask(cluster, "journal", id_).events
    except FedboostError:
        return False
    return any(e.number > before and e.WhichOneof("what") in WORKS for e in events)


def _journalled(cluster: ClusterProcesses, id_: str) -> int:
    """The number of the last event; none while the coordinator is not there."""
    try:
        events = ask(cluster, "journal", id_).events
    except FedboostError:
        return 0
    return max((event.number for event in events), default=0)


# What strikes


def killed(cluster: ClusterProcesses, *names: str) -> Fault:
    """SIGKILL; mended by a new daemon on the old store."""

    def strike() -> None:
        for name in names:
            cluster.kill(name)

    def mend() -> None:
        for name in names:
            cluster.start(name)
        for name in names:
            cluster.wait(name)

    return Fault(strike, mend, 1.0 if COORDINATOR in names else None)


def frozen(cluster: ClusterProcesses, *names: str) -> Fault:
    """SIGSTOP; mended by SIGCONT. Only the daemons of this cluster are ever sent one."""

    def signalled(sign: signal.Signals) -> None:
        for name in names:
            os.kill(cluster.processes[name].pid, sign)

    after = TIMERS.peer_lost_s * 2 if COORDINATOR in names else None
    return Fault(lambda: signalled(signal.SIGSTOP), lambda: signalled(signal.SIGCONT), after)


def killed_twice(cluster: ClusterProcesses, name: str) -> Fault:
    """SIGKILL, and once more as soon as the job works again or is asked to."""
    first = killed(cluster, name)

    def mend() -> None:
        first.mend()
        for status in _paused(cluster):
            with suppress(FedboostError):  # it may have begun by itself
                ask(cluster, "resume", status.id)
        first.strike()
        first.mend()

    return Fault(first.strike, mend, first.mend_after_s)


def _paused(cluster: ClusterProcesses) -> list[Any]:
    """The jobs that wait for somebody."""

    async def work() -> list[Any]:
        async with CoordinatorClient(cluster.client, retry_s=5.0) as client:
            return [job for job in await client.jobs() if job.state == "paused"]

    return asyncio.run(work())
