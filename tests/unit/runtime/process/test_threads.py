"""Threads as workers: results in order, errors raised, and nothing left behind."""

import threading
import time

import pytest

from fedboost.ground.errors import JobError
from fedboost.runtime.process.threads import ThreadWorkers


def test_results_come_in_the_tasks_order():
    with ThreadWorkers(3) as workers:
        assert workers.count == 3
        assert workers.map(divmod, [(number, 7) for number in range(100)]) == [
            divmod(number, 7) for number in range(100)
        ]
        assert workers.map(divmod, []) == []
        assert workers.submit(pow, 2, 10).result() == 1024


def test_kernels_run_at_the_same_time():
    """Each waits for the other; alone, neither would end."""
    meeting = threading.Barrier(2, timeout=30)
    with ThreadWorkers(2) as workers:
        assert sorted(workers.map(meeting.wait, [(), ()])) == [0, 1]


def test_the_first_error_is_raised():
    with ThreadWorkers(2) as workers, pytest.raises(ZeroDivisionError):
        workers.map(divmod, [(1, 1), (1, 0), ("a", 1)])


def test_closed_threads_are_gone():
    workers = ThreadWorkers(2)
    workers.map(pow, [(1, 1), (2, 2)])
    workers.close()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("kernel")]
    assert workers.cpu_seconds() == workers.peak_rss_bytes() == 0
    with pytest.raises(JobError, match="closed"):
        workers.submit(pow, 1, 1)


def test_processor_seconds_of_kernels_are_counted_and_of_waits_are_not():
    def work(seconds):
        started = time.thread_time()
        while time.thread_time() - started < seconds:
            pass

    def failing():
        work(0.05)
        raise ZeroDivisionError

    with ThreadWorkers(2) as workers:
        assert workers.busy_seconds() == 0.0
        never = threading.Event()
        workers.submit(never.wait, 0.2).result()
        assert workers.busy_seconds() < 0.05
        workers.map(work, [(0.05,), (0.05,), (0.05,)])
        assert 0.15 <= workers.busy_seconds() < 0.3
        with pytest.raises(ZeroDivisionError):
            workers.submit(failing).result()
        assert workers.busy_seconds() >= 0.2
