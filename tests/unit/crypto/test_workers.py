"""Workers: results in order, errors as they were, nothing left behind."""

import importlib
import os
import select
import signal
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest

from fedboost.ground.errors import JobError, PeerError
from fedboost.ground.workers import BLOCKS_PER_WORKER, Serial, even_slices
from fedboost.runtime.process import workers as processes
from fedboost.runtime.process.workers import ProcessWorkers

END_WITHIN_S = 10.0


@pytest.fixture(scope="module")
def workers():
    with ProcessWorkers(2) as pool:
        yield pool


def refuse(party):
    raise PeerError("sent nonsense", todo="ask them", party=party)


def burn(count):
    return sum(i * i for i in range(count))


@pytest.mark.parametrize("kind", ["serial", "processes"])
def test_map_gives_results_in_order(kind, workers):
    chosen = Serial() if kind == "serial" else workers
    assert chosen.map(divmod, [(i, 7) for i in range(50)]) == [divmod(i, 7) for i in range(50)]
    assert chosen.map(divmod, []) == []


def test_a_deferred_task_of_this_process_runs_once():
    calls: list[int] = []
    pending = Serial().submit(calls.append, 1)
    assert not pending.done()
    assert calls == []
    pending.result()
    pending.result()
    assert pending.done()
    assert calls == [1]


def test_typed_errors_cross_the_process_boundary_whole(workers):
    with pytest.raises(PeerError) as caught:
        workers.map(refuse, [("telco",)])
    assert caught.value.lines() == ["sent nonsense", "where: party telco", "to do: ask them"]


def test_an_error_leaves_the_workers_usable(workers):
    with pytest.raises(PeerError):
        workers.map(refuse, [(str(i),) for i in range(20)])
    assert workers.map(abs, [(-3,)]) == [3]


def test_workers_count_their_processor_time_and_memory(workers):
    before = workers.cpu_seconds()
    workers.map(burn, [(300_000,)] * 4)
    assert 0.01 < workers.cpu_seconds() - before < 30
    assert 5_000_000 < workers.peak_rss_bytes() < 2_000_000_000


@pytest.mark.some(3, of="processes of their own")
def test_a_workers_memory_is_its_own_and_not_that_of_a_large_parent():
    held = np.ones(1 << 27)  # 1 GiB
    with ProcessWorkers(1) as pool:
        pool.map(abs, [(-1,)])
        assert 5_000_000 < pool.peak_rss_bytes() < held.nbytes // 2


def test_memory_is_told_where_the_kernel_does_not_say_it_better(monkeypatch, tmp_path):
    better = processes.peak_bytes()
    monkeypatch.setattr(processes, "STATUS", tmp_path / "absent")
    assert 5_000_000 < better <= 1.1 * processes.peak_bytes()


def test_workers_ignore_ctrl_c(workers):
    assert workers.map(signal.raise_signal, [(signal.SIGINT,)] * 2) == [None, None]


def test_a_killed_worker_is_a_job_error_and_fresh_ones_take_over():
    with ProcessWorkers(2) as pool:
        pool.map(abs, [(1,)])
        with pytest.raises(JobError, match="ended before its work was done"):
            pool.submit(os._exit, 1).result()
        assert pool.map(abs, [(-2,)]) == [2]


def test_a_worker_that_ends_while_it_is_being_ended_is_no_error(monkeypatch):
    pool = ProcessWorkers(1)
    pool.map(abs, [(1,)])
    assert pool._pool is not None
    (worker,) = pool._pool._processes.values()
    worker.kill()
    worker.join()
    monkeypatch.setattr(type(worker), "is_alive", lambda process: True)  # as it was just before
    pool.close()


def test_closed_workers_break_off_what_they_compute_and_what_waits_behind_it():
    pool = ProcessWorkers(2)
    pool.map(abs, [(1,)] * 4)
    answers = [pool.submit(burn, 10**10) for _ in range(6)]  # half an hour each
    time.sleep(0.2)
    began = time.monotonic()
    pool.close()
    assert time.monotonic() - began < 5.0
    for answer in answers:
        with pytest.raises(JobError, match="the workers have been closed"):
            answer.result()


def test_a_large_result_on_its_way_is_not_cut_by_closing():
    for _ in range(5):
        pool = ProcessWorkers(1)
        answers = [pool.submit(bytes, 1 << 26) for _ in range(3)]
        answers[0].result()
        pool.close()  # ends: a result that is cut would be waited for
        assert answers[0].done()


def test_closed_workers_refuse_work():
    pool = ProcessWorkers(1)
    pool.close()
    with pytest.raises(JobError, match="closed"):
        pool.map(abs, [(1,)])


def test_workers_import_only_what_their_kernels_need(tmp_path, monkeypatch):
    (tmp_path / "lists_modules.py").write_text(
        "import sys\nimport fedboost.crypto.paillier\nimport fedboost.crypto.okamoto_uchiyama\n"
        "def loaded():\n    return sorted(sys.modules)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    kernel = importlib.import_module("lists_modules").loaded

    with ProcessWorkers(1) as pool:
        loaded = set(pool.submit(kernel).result())
    assert "gmpy2" in loaded
    heavy = {"grpc", "numba", "pyarrow", "pytest", "pydantic", "asyncio", "phe", "google.protobuf"}
    assert loaded & heavy == set()


def test_no_worker_outlives_a_killed_parent_and_no_main_guard_is_needed(tmp_path):
    script = tmp_path / "without_a_guard.py"
    script.write_text(
        textwrap.dedent(
            """
            import os
            import signal
            from fedboost.runtime.process.workers import ProcessWorkers

            pool = ProcessWorkers(2)
            pids = set()
            while len(pids) < 2:
                pids.update(pool.map(os.getpid, [()] * 8))
            print(*pids, flush=True)
            signal.pause()
            """
        )
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    parent = subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True, env=env)
    assert parent.stdout is not None
    try:
        pids = [int(pid) for pid in parent.stdout.readline().split()]
        assert len(pids) == 2
        watches = [os.pidfd_open(pid) for pid in pids]
    finally:
        parent.kill()
        parent.wait()
        parent.stdout.close()
    for watch in watches:
        ended, _, _ = select.select([watch], [], [], END_WITHIN_S)
        os.close(watch)
        assert ended, "a worker lives on without its parent"


@pytest.mark.parametrize("items", [0, 1, 5, 63, 64, 1000, 100_003])
def test_blocks_cover_everything_once(items):
    cuts = even_slices(items, 2, 16, 1024)
    assert [i for cut in cuts for i in range(items)[cut]] == list(range(items))
    assert all(cut.stop - cut.start <= 1024 for cut in cuts)
    assert items < 16 or len(cuts) <= max(2 * BLOCKS_PER_WORKER, -(-items // 1024))


@pytest.mark.parametrize("workers", [1, 2, 3, 7])
@pytest.mark.parametrize("items", [500, 21_000, 73_531])
def test_every_worker_gets_as_many_blocks_as_any_other(items, workers):
    cuts = even_slices(items, workers, 16, 1024)
    assert len(cuts) % workers == 0
    assert min(cut.stop - cut.start for cut in cuts) >= 16
