"""A fork of a warm Python is to its caller what a Python of its own is: compared one by one."""

import json
import os
import signal
import socket
import subprocess
import time

import pytest

from tests import warm
from tests.e2e import world

pytestmark = pytest.mark.e2e
ENDS_S = 30.0
PROGRAMS = {
    "arguments": "import sys; print(sys.argv, repr(sys.path[0]))",
    "folder": "import os; print(os.getcwd(), os.environ['LANG'], os.umask(0))",
    "input": "import sys; print(sys.stdin.read().upper(), end='')",
    "code": "import sys; sys.exit(3)",
    "words": "import sys; sys.exit('what went wrong')",
    "raised": "1 / 0",
    "cut": "import os; print('lost', end=''); os._exit(5)",
    "atexit": "import atexit; atexit.register(print, 'at the end')",
    "thread": "from threading import Timer; Timer(0.2, print, ('late',)).start()",
    "terminated": "import os, signal; os.kill(os.getpid(), signal.SIGTERM)",
    "interrupted": "import os, signal; os.kill(os.getpid(), signal.SIGINT)",
    "main": "import sys; print(__name__, sys.modules['__main__'].__dict__ is globals())",
    "worker": "import multiprocessing as m; p = m.get_context('spawn').Pool(1); "
    "print(p.apply(pow, (2, 8))); p.close(); p.join()",
}
SLEEPS = "import os, time; print(os.getpid(), flush=True); time.sleep(600)"


def stand_in():
    """The program that has its arguments run by a fork."""
    return str(warm.server().folder / "python")


def ran(python, program, folder):
    done = subprocess.run(
        [python, "-c", program, "one", "two"],
        input="words\n", cwd=folder, env={"LANG": "C.UTF-8", "PATH": os.environ["PATH"]},
        capture_output=True, text=True, timeout=ENDS_S, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr.splitlines()[-1:]


@pytest.mark.some(5)
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_ends_and_says_what_it_does_in_a_python_of_its_own(tmp_path, name):
    own = ran(warm.PYTHON, PROGRAMS[name], tmp_path)
    assert ran(stand_in(), PROGRAMS[name], tmp_path) == own


def gone(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.mark.some(1, of="forks")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_signals_reach_the_fork(number):
    command = [stand_in(), "-c", SLEEPS]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as asked:
        assert asked.stdout is not None
        pid = int(asked.stdout.readline())
        asked.send_signal(number)
        assert asked.wait(ENDS_S) == -number
    world.wait_for(lambda: gone(pid), ENDS_S, "the fork is gone")


@pytest.mark.some(1, of="forks")
def test_callers_that_die_before_they_are_answered_harm_nobody(tmp_path):
    with open(os.devnull, "r+b") as nothing:
        for _ in range(50):
            link = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            link.connect(str(warm.server().address))
            order = warm.Order(["-c", "0"], str(tmp_path), {}, [1], new_session=False)
            socket.send_fds(link, [json.dumps(vars(order)).encode()], [nothing.fileno()])
            link.close()
    assert ran(stand_in(), "print('well')", tmp_path) == (0, "well\n", [])


@pytest.mark.some(1, of="forks")
def test_a_server_that_closes_leaves_no_fork(tmp_path):
    said = tmp_path / "pid"
    with open(os.devnull) as nothing, said.open("w") as out, warm.Server() as server:
        fds = {0: nothing.fileno(), 1: out.fileno(), 2: out.fileno()}
        process = server.begin(["-c", SLEEPS], fds)
        world.wait_for(said.read_text, ENDS_S, "it runs")
        assert process.poll() is None
    assert gone(int(said.read_text()))
    assert not server.folder.exists()


def test_what_a_fork_cannot_be_is_a_python_of_its_own():
    done = subprocess.run(
        [stand_in(), "-I", "-c", "import sys; print(sys.flags.isolated)"],
        capture_output=True, text=True, timeout=ENDS_S, check=True,
    )  # fmt: skip
    assert done.stdout == "1\n"


@pytest.mark.some(1, of="forks")
def test_many_callers_are_served_at_a_time():
    began = time.monotonic()
    command = [stand_in(), "-c", "import time; time.sleep(2)"]
    callers = [subprocess.Popen(command) for _ in range(12)]
    assert [caller.wait(ENDS_S) for caller in callers] == [0] * 12
    assert time.monotonic() - began < 12 * 2
