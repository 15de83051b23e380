"""A thread that waits for an event loop never waits longer than its session lasts."""

import asyncio
import inspect
import threading

import pytest

from fedboost.ground.errors import JobError
from fedboost.runtime.process.bridge import Bridge

OVER = JobError("cancelled by ann")


async def answer(value):
    await asyncio.sleep(0)
    return value


async def nothing_ever():
    await asyncio.Event().wait()


@pytest.fixture
def loop():
    """A loop that runs in a thread, until it is told to stop."""
    own = asyncio.new_event_loop()
    thread = threading.Thread(target=own.run_forever)
    thread.start()
    yield own
    own.call_soon_threadsafe(own.stop)
    thread.join()
    own.close()


def waiting(bridge, futures):
    """What a thread that waits gets, in a list that is filled once it does."""
    got: list[object] = []

    def work():
        try:
            got.append([bridge.wait(one) for one in futures])
        except JobError as error:
            got.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread, got


def test_results_come_over(loop):
    bridge = Bridge()
    assert [bridge.wait(one) for one in bridge.start(loop, answer(1), answer(2))] == [1, 2]


def test_a_stop_ends_a_wait(loop):
    bridge = Bridge()
    thread, got = waiting(bridge, bridge.start(loop, nothing_ever()))
    bridge.stop(OVER)
    thread.join(5)
    assert got == [OVER]


def test_a_stop_ends_a_wait_for_a_loop_that_will_never_run_again():
    """As where a program's loop ends between a thread's last look at it and its next question."""
    loop = asyncio.new_event_loop()
    bridge = Bridge()
    never = answer(1)
    thread, got = waiting(bridge, bridge.start(loop, never))
    thread.join(0.2)
    assert thread.is_alive()
    bridge.stop(OVER)
    thread.join(5)
    assert got == [OVER]
    never.close()
    loop.close()


def test_nothing_starts_after_a_stop(loop):
    bridge = Bridge()
    bridge.stop(OVER)
    late = answer(1)
    with pytest.raises(JobError, match="cancelled by ann"):
        bridge.start(loop, late, answer(2))
    assert inspect.getcoroutinestate(late) == inspect.CORO_CLOSED  # not forgotten
