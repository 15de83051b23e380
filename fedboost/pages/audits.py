"""`fedboost audit` beside a daemon, in a process with lower priority than the daemon."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from fedboost.ground.errors import ConfigError, FedboostError, JobError

AUDIT_S_MAX = 3600.0  # then it is ended
SAID_BYTES_MAX = 4096  # of its output, from the end
NICE = 10


@dataclass(frozen=True)
class Running:
    """An audit at work."""

    job: str
    since: float  # seconds since 1970


class Audits:
    """The audits of a party, one at a time. All methods belong to the event loop's thread."""

    def __init__(self, file: Path | None) -> None:
        """Start without an audit; `file` holds the party's settings and is required to run one."""
        self._file = file
        self._task: asyncio.Task[None] | None = None
        self.running: Running | None = None
        self._failed: dict[str, FedboostError] = {}

    @property
    def can_start(self) -> bool:
        """Return True if audits can be started at all."""
        return self._file is not None

    def failure(self, job: str) -> FedboostError | None:
        """Return the error of the last audit of a job, if it ended without findings."""
        return self._failed.get(job)

    def start(self, job: str) -> None:
        """Start an audit; raise JobError while another one is running."""
        if self._file is None:
            raise ConfigError(
                "this daemon does not know its settings file",
                todo="run it in a terminal: fedboost audit",
            )
        if self.running is not None:
            raise JobError(
                "an audit is already running", todo="wait for its end", job=self.running.job
            )
        self._failed.pop(job, None)
        self.running = Running(job, time.time())
        self._task = asyncio.create_task(self._run_command(job, self._file))

    async def close(self) -> None:
        """End the running audit."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run_command(self, job: str, file: Path) -> None:
        nice = shutil.which("nice")
        before = [nice, "-n", str(NICE)] if nice else []
        command = [sys.executable, "-m", "fedboost", "audit", "--json", "--config", str(file)]
        try:
            process = await asyncio.create_subprocess_exec(
                *before,
                *command,
                "--",
                job,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                start_new_session=True,
            )
            try:
                async with asyncio.timeout(AUDIT_S_MAX):
                    output = await _end_of_output(process)
                    code = await process.wait()
            finally:
                if process.returncode is None:
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(process.pid, signal.SIGKILL)
                    await process.wait()
            if code:
                self._failed[job] = _error_in_output(output)
        except TimeoutError:
            self._failed[job] = JobError(
                f"the audit took over {AUDIT_S_MAX:.0f} s and was ended",
                todo="run it in a terminal: fedboost audit JOB",
            )
        except OSError as error:
            self._failed[job] = JobError(
                f"the audit could not be started: {error.strerror}",
                todo="run it in a terminal: fedboost audit JOB",
            )
        finally:
            self.running = None


async def _end_of_output(process: asyncio.subprocess.Process) -> str:
    """Return the end of a process's output."""
    assert process.stdout is not None
    kept = b""
    while piece := await process.stdout.read(SAID_BYTES_MAX):
        kept = (kept + piece)[-SAID_BYTES_MAX:]
    return kept.decode("utf-8", "replace")


def _error_in_output(output: str) -> FedboostError:
    """Return the error of a command from its last line of JSON."""
    try:
        error = json.loads(output.splitlines()[-1])["error"]
        return FedboostError(str(error["what"]), todo=str(error["todo"]))
    except (ValueError, KeyError, TypeError, IndexError):
        return FedboostError("the audit failed", todo="run it as a command: fedboost audit JOB")
