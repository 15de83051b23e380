"""A Python that has imported fedboost already: what runs in it costs a fork, and no imports.

    with warm.Server() as server:
        server.run("-m", "fedboost", "job", "list").stdout
        subprocess.run(["fedboost job list | head"], shell=True, env={"PATH": server.path(...)})

A server is a process that has imported a lot and done nothing: no thread, no channel, no loop. For
each caller it forks a process with the caller's arguments, folder, variables and open files. What
a caller sees is a process like any other; its sessions, signals, pipes and exit codes are real.
`python` and `fedboost` in the server's folder are stand-ins for those of the environment: shells
find them by PATH, and what a fork starts by `sys.executable` or as a worker comes here too. Only
with `new_session` its workers are started afresh: whoever looks into its session finds them there.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import gc
import importlib
import io
import json
import multiprocessing.spawn
import os
import runpy
import select
import selectors
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType, TracebackType
from typing import NoReturn

import click
import pyarrow as pa

from tests.warm_client import FDS_MAX, ORDER_BYTES_MAX, ask, flags_of

ROOT = Path(__file__).resolve().parent.parent
CLIENT = Path(__file__).with_name("warm_client.py")
PYTHON = sys.executable
ENTRY = "import sys; sys.argv[0] = 'fedboost'; from fedboost.cli.main import main; main()"
HIGH = 512  # descriptors from here on are out of the way
INTERRUPTED = -signal.SIGINT
ORDER_S_MAX = 5.0  # from a connection to its order
# What commands import when they are used, and what documents compare with.
USED = (
    "fedboost.ground.kernel_files", "fedboost.runtime.daemons.daemon",
    "fedboost.runtime.daemons.metrics", "fedboost.pages.serving", "fedboost.data.svmlight",
    "cryptography.hazmat.backends.openssl", "fedboost.sdk",
    "fedboost.report.page", "fedboost.audit", "aiohttp", "sklearn.metrics",
    "sklearn.model_selection", "xgboost",
)  # fmt: skip


@dataclass(frozen=True)
class Order:
    """What a caller wants to have run: arguments of a Python, and where."""

    args: list[str]
    cwd: str
    env: dict[str, str]
    fds: list[int]  # the caller's numbers of the open files that come along
    new_session: bool


class Process(subprocess.Popen[bytes]):
    """A process of a server, for whoever started it."""

    def __init__(
        self,
        link: socket.socket,
        pid: int,
        args: list[str],
        stdin: io.BufferedWriter | None = None,
    ) -> None:
        self.link, self.pid, self.args, self.stdin = link, pid, args, stdin
        self.stdout = self.stderr = None
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Its exit code, or None while it runs."""
        if self.returncode is None and select.select([self.link], [], [], 0)[0]:
            said = self.link.recv(16)
            self.returncode = int(said) if said else -signal.SIGKILL
            self.link.close()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code, once it has ended."""
        if self.returncode is None and not select.select([self.link], [], [], timeout)[0]:
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        code = self.poll()
        assert code is not None
        return code


class Server:
    """Forks of a warm Python; a context manager that leaves none behind."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="warm-"))  # forks must not delete it
        self.address = self.folder / "socket"
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind(str(self.address))
        self._listener.listen(64)
        for name, args in (("python", ()), ("fedboost", ("-c", ENTRY))):
            words = [PYTHON, "-IS", str(CLIENT), str(self.address), PYTHON, *args]
            script = self.folder / name
            script.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
            script.chmod(0o755)
        self._pid = 0
        self._alive = -1  # closed when we are gone

    def start(self) -> None:
        """A process of its own, which imports what is needed; callers may come at once."""
        ours, theirs = os.pipe(), self._listener.fileno()
        command = [PYTHON, "-m", "tests.warm", str(self.folder), str(theirs), str(ours[0])]
        env = {**os.environ, "PYTHONPATH": str(ROOT)}
        fds = (theirs, ours[0])
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, cwd=ROOT, env=env, pass_fds=fds
        )
        self._pid, self._alive = self._process.pid, ours[1]
        os.close(ours[0])
        self._listener.close()  # who calls a server that has died must not wait for it

    def fork(self) -> None:
        """A fork of this process, which is warm itself and has no other threads."""
        ours = os.pipe()
        self._pid, self._alive = os.fork(), ours[1]
        if not self._pid:
            os.close(ours[1])
            serve(self._listener, ours[0], self.folder)
        os.close(ours[0])
        self._listener.close()

    def close(self) -> None:
        """Ends everything that runs in it."""
        if self._pid:
            os.close(self._alive)
            os.waitpid(self._pid, 0)
            self._pid = 0
        self._listener.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Server:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def begin(
        self,
        args: list[str],
        fds: Mapping[int, int],
        *,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        new_session: bool = False,
    ) -> Process:
        """Starts a Python with these arguments; `fds` are its open files, by its numbers."""
        order = Order(args, str(cwd or Path.cwd()), dict(env or os.environ), list(fds), new_session)
        link, pid = ask(str(self.address), vars(order), list(fds.values()))
        return Process(link, pid, args)

    def run(
        self,
        *args: object,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
        new_session: bool = False,
    ) -> subprocess.CompletedProcess[str]:
        """A Python with these arguments from its start to its end, without input."""
        words = [str(arg) for arg in args]
        with (
            open(os.devnull, "rb") as nothing,
            tempfile.TemporaryFile() as out,
            tempfile.TemporaryFile() as err,
        ):
            fds = {0: nothing.fileno(), 1: out.fileno(), 2: err.fileno()}
            process = self.begin(words, fds, cwd=cwd, env=env, new_session=new_session)
            try:
                code = process.wait(timeout)
            except BaseException:
                process.kill()
                raise
            said = []
            for file in (out, err):
                file.seek(0)
                said.append(file.read().decode(errors="replace"))
        return subprocess.CompletedProcess(words, code, *said)


@cache
def server() -> Server:
    """The server of this process, started when somebody needs it first."""
    made = Server()
    made.start()
    atexit.register(made.close)
    return made


# In the server


def serve(listener: socket.socket, alive: int, folder: Path) -> NoReturn:
    """Forks for every caller until whoever holds the other end of `alive` is gone."""
    running: dict[int, tuple[int, socket.socket]] = {}  # by pidfd
    selector = selectors.DefaultSelector()
    selector.register(listener, selectors.EVENT_READ)
    selector.register(alive, selectors.EVENT_READ)
    for number in (signal.SIGINT, signal.SIGTERM):  # meant for those whom we serve
        signal.signal(number, signal.SIG_IGN)
    while True:
        for key, _ in selector.select():
            if selector.get_map().get(key.fd) is not key:
                continue  # let go of in this round; its number may be another's by now
            if key.fd == alive:
                _end(running)
            elif key.fileobj is listener:
                _begin(listener, folder, selector, running)
            elif key.fd in running:
                selector.unregister(key.fd)
                pid, link = running.pop(key.fd)
                _, status = os.waitpid(pid, 0)
                os.close(key.fd)
                with contextlib.suppress(KeyError):
                    selector.unregister(link)
                with contextlib.suppress(OSError), link:
                    link.send(str(os.waitstatus_to_exitcode(status)).encode())
            else:
                _told(key, selector)


def _begin(
    listener: socket.socket,
    folder: Path,
    selector: selectors.BaseSelector,
    running: dict[int, tuple[int, socket.socket]],
) -> None:
    link, _ = listener.accept()
    link.settimeout(ORDER_S_MAX)
    try:
        said, fds, _, _ = socket.recv_fds(link, ORDER_BYTES_MAX, FDS_MAX)
    except OSError:
        said, fds = b"", []
    if said:
        pid = os.fork()
        if not pid:
            _carry_out(Order(**json.loads(said)), fds, folder)
        with contextlib.suppress(OSError):  # a caller that has died already: `_told` ends its fork
            link.send(str(pid).encode())
        watched = os.pidfd_open(pid)
        running[watched] = pid, link
        selector.register(watched, selectors.EVENT_READ)
        selector.register(link, selectors.EVENT_READ, pid)
    else:
        link.close()
    for fd in fds:
        os.close(fd)


def _told(key: selectors.SelectorKey, selector: selectors.BaseSelector) -> None:
    """A signal that a caller passes on, or the end of the caller: then its process ends too."""
    assert isinstance(key.fileobj, socket.socket)
    try:
        said = key.fileobj.recv(16)
    except OSError:
        said = b""
    if not said:
        selector.unregister(key.fileobj)
    os.kill(key.data, int(said) if said else signal.SIGKILL)


def _end(running: dict[int, tuple[int, socket.socket]]) -> NoReturn:
    for pid, _ in running.values():
        os.kill(pid, signal.SIGKILL)
    for pid, _ in running.values():
        os.waitpid(pid, 0)
    os._exit(0)


# In a fork


def _carry_out(order: Order, fds: list[int], folder: Path) -> NoReturn:
    """Becomes the process that the caller wants."""
    try:
        _take(order.fds, fds)
        if order.new_session:
            os.setsid()
        os.chdir(order.cwd)
        os.environ.clear()
        os.environ.update(order.env)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        sys.executable = str(folder / "python")
        if not order.new_session:
            multiprocessing.spawn.set_executable(sys.executable)
        code = _ran(order.args)
    except BaseException:
        traceback.print_exc()
        code = 1
    with contextlib.suppress(BaseException):
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):
            if not stream.closed:
                stream.flush()
    if code == INTERRUPTED:  # Python ends itself by the signal, too
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    os._exit(code)


def _take(numbers: list[int], fds: list[int]) -> None:
    """The open files under the numbers that the caller has for them, and no others."""
    high = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, HIGH) for fd in fds]
    os.closerange(0, HIGH)
    for fd, number in zip(high, numbers, strict=True):
        os.dup2(fd, number)
        os.close(fd)


def _ran(args: list[str]) -> int:
    """Runs `-m MODULE`, `-c CODE` or a file as Python does; gives the exit code."""
    flags = flags_of(args)
    kind, *rest = args[len(flags) :]
    _open_streams(unbuffered="-u" in flags)
    try:
        _run(kind, rest)
    except SystemExit as asked:
        if asked.code is None or isinstance(asked.code, int):
            return (asked.code or 0) & 0xFF
        sys.stderr.write(f"{asked.code}\n")
        return 1
    except BaseException as error:
        sys.excepthook(*sys.exc_info())
        return INTERRUPTED if isinstance(error, KeyboardInterrupt) else 1
    return 0


def _open_streams(*, unbuffered: bool) -> None:
    """Standard streams as Python opens them at its start."""
    sys.stdin = io.TextIOWrapper(io.FileIO(0, closefd=False))
    sys.stdout = io.TextIOWrapper(
        io.BufferedWriter(io.FileIO(1, "w", closefd=False)),
        line_buffering=os.isatty(1),
        write_through=unbuffered,
    )
    sys.stderr = io.TextIOWrapper(
        io.BufferedWriter(io.FileIO(2, "w", closefd=False)),
        line_buffering=True,
        errors="backslashreplace",
    )


def _run(kind: str, rest: list[str]) -> None:
    if kind == "-m":
        module, *sys.argv[1:] = rest
        sys.path[0] = os.getcwd()
        runpy.run_module(module, run_name="__main__", alter_sys=True)
        return
    if kind == "-c":
        code, *more = rest
        sys.argv, sys.path[0] = ["-c", *more], ""
        main = sys.modules["__main__"] = ModuleType("__main__")
        vars(main)["__builtins__"] = __builtins__
        exec(compile(code, "<string>", "exec"), vars(main))
        return
    sys.argv, sys.path[0] = [kind, *rest], str(Path(kind).resolve().parent)
    runpy.run_path(kind, run_name="__main__")


def _import_commands(group: click.Group) -> None:
    """Loads the module of every command below a group."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            _import_commands(command)


def _use_libraries() -> None:
    """Has libraries do what they do at their first use: numba's tables, Arrow's look for pandas."""
    from numba.core.registry import cpu_target

    cpu_target.typing_context.refresh()
    cpu_target.target_context.refresh()
    pa.array([0])


def main(args: list[str]) -> NoReturn:
    """The server: folder, and the numbers of the listener and of what tells that we are needed."""
    from fedboost.cli.groups import cli

    _import_commands(cli)
    for module in USED:
        with contextlib.suppress(ImportError):  # what is optional may be missing
            importlib.import_module(module)
    _use_libraries()
    assert threading.active_count() == 1
    gc.freeze()
    serve(socket.socket(fileno=int(args[1])), int(args[2]), Path(args[0]))


if __name__ == "__main__":
    main(sys.argv[1:])
