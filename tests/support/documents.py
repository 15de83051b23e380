"""A reader who does what a document shows: its blocks in order, in one empty folder.

    python -m tests.support.documents docs/tutorials/two-machines.md

- ```console: what follows `$` is typed into one shell; lines shown below a command must come out
  of it, in that order, where `…` stands for anything. A command that fails ends the reading.
- ```python: goes into one interpreter, which stays open; `await` works as in a notebook.
- ```yaml and others with title="FILE": written to that file, unless the project has one of that
  path; then the block is a listing of it, which `make docs` writes.
- <!-- read first: FILE.md -->: what that document shows is done before, in the same shell.
  Pages that need the same daemons form a chain, so that one reading starts them for all.

`fedboost` and `python` are forks of a process that has imported fedboost (tests/warm.py); the
shell, its pipes, variables, jobs and exit codes are real. A command that ends with `&` and serves
something is waited for until it listens; everything that runs at the end is stopped. What cannot
run has the fence ```text.
"""

import contextlib
import ctypes
import fcntl
import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from tests import warm
from tests.conftest import ROOT
from tests.support.shown_commands import SHELLS, Block, Command, blocks, typed

FIRST = re.compile(r"^<!-- read first: (\S+) -->$", re.MULTILINE)
# A change reads some of all documents and notebooks.
READ_SOME = pytest.mark.some(2, of="documents")
COMMAND_S_MAX = 240.0  # on a busy machine; what a document shows takes seconds
LISTENS_S_MAX = 60.0
ENDS_S_MAX = 20.0
READ_HERE = "--read-here"  # in this process, which is a fork of a warm one
CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000  # <linux/sched.h>

# What a reader types in a clone of the repository, by its first words, and why it is not run here:
# the test of targets sees that they exist.
NOT_RUN = {
    "make": "works in a clone, and installs, tests or measures for minutes",
    ". .venv/bin/activate": "the environment is the one that runs this",
    ".venv/bin/python": "the same",
}

# The reader's interpreter; an order is a line of JSON: file, first line, block.
INTERPRETER = """
import ast, asyncio, inspect, json, os, sys, traceback
names, runner = {"__name__": "__main__"}, asyncio.Runner()
said, orders = os.fdopen(int(sys.argv[1]), "w"), os.fdopen(os.dup(0))
os.dup2(os.open(os.devnull, os.O_RDONLY), 0)  # what a block starts shall not read our orders
for order in orders:
    name, line, source = json.loads(order)
    try:
        tree = ast.increment_lineno(ast.parse(source), line - 1)
        code = compile(tree, name, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        if code.co_flags & inspect.CO_COROUTINE:
            runner.run(eval(code, names))
        else:
            exec(code, names)
        status = 0
    except BaseException:
        traceback.print_exc()
        status = 1
    sys.stdout.flush()
    print(status, file=said, flush=True)
"""


class UnlikeShownError(Exception):
    """A document shows something else than what happens."""


def everywhere() -> list[Path]:
    """List the documents whose every block is run."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def first_of(document: Path) -> Path | None:
    """Return the document whose blocks come before this one's."""
    found = FIRST.search(document.read_text())
    return document.parent / found[1] if found else None


def runs(document: Path) -> bool:
    """Return whether a reader has anything to do in it."""
    return any(_acts(block) for block in blocks(document.read_text()))


def not_run(command: str) -> str | None:
    """Return the first words of a command that works only in a clone; None for others."""
    return next((words for words in NOT_RUN if f"{command} ".startswith(f"{words} ")), None)


def deeds(document: Path) -> set[str]:
    """Return the files that a reader writes and the commands that run, without assignments."""
    done = set()
    for block in filter(_acts, blocks(document.read_text())):
        if block.language in SHELLS and block.title is None:
            done |= {one.text for one in typed(block) if not_run(one.text) is None}
        else:
            done.add(f"{block.title or block.language}: {block.text}")
    return {deed for deed in done if not re.fullmatch(r"\w+=\S+|\w+=\$\(.*\)", deed)}


def _acts(block: Block) -> bool:
    if block.title is not None:
        return not (ROOT / block.title).exists()
    if block.language in SHELLS:
        return any(not_run(command.text) is None for command in typed(block))
    return block.language == "python"


class Reader:
    """A shell and an interpreter in one folder, with another for a home.

    What they call `fedboost` and `python` runs in `server`.
    """

    def __init__(self, folder: Path, server: warm.Server) -> None:
        self.folder, self.home, self.outputs = (folder / n for n in ("here", "home", "outputs"))
        for made in (self.folder, self.home, self.outputs):
            made.mkdir()
        bins = (server.folder, Path(warm.PYTHON).parent, "/usr/local/bin", "/usr/bin", "/bin")
        self.env = {
            "PATH": os.pathsep.join(map(str, bins)),
            "HOME": str(self.home),
            "LANG": "C.UTF-8",
            "COLUMNS": "100",
            "PYTHONPATH": str(ROOT),
        }
        self.shell = Typed(["bash", "--noprofile", "--norc"], self)
        self.python: Typed | None = None

    def read(self, document: Path) -> None:
        """Do all that the document shows, after the document before it."""
        before = first_of(document)
        if before is not None:
            self.read(before)
        for block in blocks(document.read_text()):
            if not _acts(block):
                continue
            if block.title is not None:
                path = self.folder / block.title
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(block.text)
            elif block.language == "python":
                self._run(document, block)
            else:
                for command in typed(block):
                    if not_run(command.text) is None:
                        self._type(document, command)

    def output(self) -> Path:
        """Return a new file for the output of a command."""
        return self.outputs / str(len(list(self.outputs.iterdir())))

    def close(self) -> None:
        """Stop all processes that still run."""
        if self.python is not None:
            self.python.stop("")
        self.shell.stop("kill $(jobs -p) 2>/dev/null; wait\n")

    def _type(self, document: Path, command: Command) -> None:
        where = f"{os.path.relpath(document, ROOT)}:{command.line}: {command.text}"
        output, listening = self.output(), _listening()
        told = self.shell.told
        order = f"{{ {command.text}\n}} </dev/null >'{output}' 2>&1 {told}>&-\necho $? >&{told}\n"
        status = self.shell.order(order)
        if status != "0":
            raise _unlike(where, f"ended with {status}", output)
        if command.text.endswith("&") and " serve" in command.text:
            limit = time.monotonic() + LISTENS_S_MAX
            while _listening() <= listening:
                if time.monotonic() > limit:
                    raise _unlike(where, "listens nowhere", output)
                time.sleep(0.05)
        missing = unprinted(command.shown, output.read_text(errors="replace"))
        if missing is not None:
            raise _unlike(where, f"did not print {missing!r}", output)

    def _run(self, document: Path, block: Block) -> None:
        name = os.path.relpath(document, ROOT)
        if self.python is None:
            self.python = Typed(["python", "-u", "-c", INTERPRETER], self)
        status = self.python.order(json.dumps([name, block.line, block.text]) + "\n")
        if status != "0":
            raise _unlike(f"{name}:{block.line}", "did not run", self.python.output)


class Typed:
    """A process that takes orders on its input and tells on a pipe how each ended."""

    def __init__(self, args: list[str], reader: Reader) -> None:
        self.answers, self.told = os.pipe()
        self.output = reader.output()
        if args[0] == "python":
            args = [*args, str(self.told)]
        with self.output.open("w") as output:
            self.process = subprocess.Popen(
                args, stdin=subprocess.PIPE, stdout=output, stderr=output, cwd=reader.folder,
                env=reader.env, process_group=0, pass_fds=(self.told,),
            )  # fmt: skip
        os.close(self.told)

    def order(self, text: str) -> str:
        """Return the exit code of the order, or in words that there is none."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(text.encode())
            self.process.stdin.flush()
        except BrokenPipeError:
            return "no process to do it"
        if not select.select([self.answers], [], [], COMMAND_S_MAX)[0]:
            return f"nothing within {COMMAND_S_MAX:g} s"
        return os.read(self.answers, 64).decode().strip() or "the end of the process"

    def stop(self, last: str) -> None:
        """End it after a last order, with all that it started."""
        assert self.process.stdin is not None
        with contextlib.suppress(subprocess.TimeoutExpired, BrokenPipeError):
            self.process.communicate(last.encode(), timeout=ENDS_S_MAX)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        os.close(self.answers)


def unprinted(shown: tuple[str, ...], printed: str) -> str | None:
    """Return the first shown line that is missing after those shown before it."""
    rest = [" ".join(line.split()) for line in printed.splitlines()]
    for line in shown:
        parts = " ".join(line.split()).split("…")
        pattern = re.compile(".*".join(re.escape(part) for part in parts))
        place = next((n for n, text in enumerate(rest) if pattern.fullmatch(text)), None)
        if place is None:
            return line
        rest = rest[place + 1 :]
    return None


def run(document: Path) -> subprocess.CompletedProcess[str]:
    """Read a document in a process of its own; exit code 0: all is as shown."""
    args = ("-m", "tests.support.documents", READ_HERE, document)
    return warm.server().run(*args, cwd=ROOT, new_session=True)


def main(args: list[str]) -> int:
    """Read one document; return the exit status."""
    if READ_HERE not in args:
        done = run(Path(args[0]).resolve())
        sys.stderr.write(done.stderr)
        return done.returncode
    lock_file = Path(tempfile.gettempdir()) / "fedboost-documents.lock"
    with lock_file.open("w") as lock:
        if not _alone():
            fcntl.flock(lock, fcntl.LOCK_EX)
        folder = Path(
            tempfile.mkdtemp()
        )  # no TemporaryDirectory: the ends of forks would delete it
        server = warm.Server()
        server.fork()
        reader = Reader(folder, server)
        try:
            reader.read(Path(args[-1]))
        except UnlikeShownError as error:
            sys.stderr.write(f"{error}\n")
            return 1
        finally:
            reader.close()
            server.close()
            shutil.rmtree(folder)
    return 0


def _alone() -> bool:
    """Move into a network of our own, where nobody else can take our ports, if we may."""
    user, group = os.getuid(), os.getgid()
    if ctypes.CDLL(None).unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0:
        return False
    own = Path("/proc/self")
    (own / "setgroups").write_text("deny")
    (own / "uid_map").write_text(f"0 {user} 1")
    (own / "gid_map").write_text(f"0 {group} 1")
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    return True


def _unlike(where: str, what: str, output: Path) -> UnlikeShownError:
    printed = output.read_text(errors="replace")[-6000:]
    return UnlikeShownError(f"{where}\n{what}\n{printed}")


def _listening() -> int:
    """Count the sockets that listen in the processes of our session."""
    tables = [Path("/proc/self/net") / name for name in ("tcp", "tcp6")]
    rows = [row for table in tables if table.exists() for row in table.read_text().splitlines()]
    listen = {f"socket:[{row.split()[9]}]" for row in rows if row.split()[3] == "0A"}
    held: set[str] = set()
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it may be gone by now
            if os.getsid(int(process.name)) == os.getsid(0):
                held |= {os.readlink(one) for one in (process / "fd").iterdir()}
    return len(listen & held)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
