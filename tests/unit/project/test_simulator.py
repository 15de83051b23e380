"""Does the simulator's clock stand still while anything runs, and is a killed daemon dead?"""

import asyncio
import sqlite3
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from typing import Any

import pytest

from tests.simulator.clock import MockLoop, Strand, StuckError, mocked_time
from tests.simulator.disk import watched
from tests.simulator.processes import PROCESS, KilledError, Process

HOUR_S = 3600.0


def mocked(work):
    """Runs a coroutine on a mock clock; gives its result and how late it is then."""
    loop = MockLoop()
    try:
        with mocked_time(loop):
            return loop.run_until_complete(work(loop)), loop.now
    finally:
        loop.close()


def named(process):
    context = copy_context()
    context.run(PROCESS.set, process)
    return context


def test_an_hour_passes_at_once():
    async def work(_):
        await asyncio.sleep(HOUR_S)
        return time.monotonic()

    started = time.perf_counter()
    seen, now = mocked(work)
    assert seen == now == HOUR_S
    assert time.perf_counter() - started < 10


def test_time_stands_still_while_a_thread_works():
    async def work(loop):
        def busy():
            return sum(range(200_000)), loop.now

        timer = loop.create_task(asyncio.sleep(1.0))
        _, during = await loop.run_in_executor(ThreadPoolExecutor(1), busy)
        assert not timer.done()
        await timer
        return during

    during, now = mocked(work)
    assert (during, now) == (0.0, 1.0)


def test_a_thread_that_waits_lets_time_pass_until_what_it_waits_for():
    async def work(loop):
        awaited: Future[str] = Future()
        loop.call_later(5.0, awaited.set_result, "there")
        return await loop.run_in_executor(ThreadPoolExecutor(1), awaited.result)

    assert mocked(work) == ("there", 5.0)


def test_what_can_never_happen_is_noticed():
    async def work(loop):
        await loop.create_future()

    with pytest.raises(StuckError, match="nothing can happen"):
        mocked(work)


def test_a_thread_whose_future_never_comes_is_noticed():
    async def work(loop):
        await loop.run_in_executor(ThreadPoolExecutor(1), Future().result)

    with pytest.raises(StuckError, match="nothing can happen"):
        mocked(work)


def test_nothing_of_a_dead_process_runs_on():
    ran: list[Any] = []

    async def work(loop):
        process = Process("bank")

        async def live():
            try:
                for second in range(10):
                    await asyncio.sleep(1.0)
                    ran.append(second)
            finally:
                ran.append("closed")

        task = loop.create_task(live(), context=named(process))
        await asyncio.sleep(3.5)
        process.is_dead = True
        process.free()
        await asyncio.sleep(20.0)
        task._log_destroy_pending = False
        return list(ran)

    seen, _ = mocked(work)
    assert seen == [0, 1, 2]


def test_a_thread_of_a_dead_process_ends_where_it_waits():
    went_on = []

    async def work(loop):
        process = Process("bank")

        def wait():
            Future().result()
            went_on.append(True)

        named(process).run(loop.run_in_executor, ThreadPoolExecutor(1), wait)
        await asyncio.sleep(1.0)
        [strand] = process.strands
        process.free()
        return strand

    strand, _ = mocked(work)
    assert isinstance(strand, Strand)
    assert strand.is_over
    assert went_on == []
    assert not any(thread is strand._thread for thread in threading.enumerate())


@pytest.mark.parametrize(("when", "rows"), [("before", 0), ("after", 1)])
def test_a_kill_at_a_commit_comes_before_it_or_after_it(tmp_path, when, rows):
    process, seen = Process("bank"), []

    def watch(whose, write, moment):
        seen.append((whose.name, write.what, moment))
        if moment == when and "insert" in write.what:
            whose.is_dead = True
            raise KilledError

    def written():
        own = sqlite3.connect(tmp_path / "s", isolation_level=None)
        own.execute("CREATE TABLE t (a)")
        own.execute("BEGIN")
        try:
            own.execute("INSERT INTO t VALUES (1)")
            own.execute("COMMIT")
        except BaseException:
            if own.in_transaction:
                own.execute("ROLLBACK")
            raise

    with watched(watch):
        with pytest.raises(KilledError):
            named(process).run(written)
        process.free()
    with sqlite3.connect(tmp_path / "s") as left:
        assert left.execute("SELECT count(*) FROM t").fetchone() == (rows,)
    assert seen[-1] == ("bank", "insert into t", when)
