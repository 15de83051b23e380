"""A whole cluster on this machine: certificates, files and one process per daemon, on loopback."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import yaml

from fedboost.data.sources import SourceSpec
from fedboost.ground.disk import PUBLIC_MODE, write_file
from fedboost.ground.errors import UnreachableError
from fedboost.job import JobSpec
from fedboost.runtime.client.config import ClientConfig
from fedboost.runtime.cluster.local import (
    COORDINATOR,
    USER,
    coordinator_config,
    create_certificates,
    party_config,
    tls_of,
)
from fedboost.runtime.config.daemons import DaemonConfig, PartyConfig
from fedboost.runtime.config.page import Page
from fedboost.runtime.transport.addresses import Remote, Timers

READY_S = 60.0  # until a daemon listens: it imports, compiles nothing, opens its store
READY_WORDS = b" listens on port "  # a daemon's log line at that time
STOP_S = 10.0  # from SIGTERM to SIGKILL
WIDE_OPEN = """\
# Written by fedboost for a trial on one machine, where one person has all tables: the limits
# of what they tell are wide open (.inf). For real work begin with a file of configs/.
"""
LOG_LINES = 5  # of a daemon that did not come up, shown in the error


class ClusterProcesses:
    """Daemons for the parties of one job file; a context manager that leaves no process behind.

    All files are in `folder`: certs/, configs/, var/NAME (stores, models), logs/NAME.log. A second
    cluster in the same folder finds the stores and models of the first. With `pages` each daemon
    serves its page, for the cluster's one user.
    """

    auto_resume: ClassVar[bool] = True  # of jobs that an earlier cluster has left unfinished
    rehearses: ClassVar = False  # whether results include the verdict of default policies

    def __init__(
        self,
        folder: Path,
        spec: JobSpec,
        sources: Mapping[str, SourceSpec],
        *,
        timers: Timers | None = None,
        workers: int | None = None,
        pages: bool = False,
    ) -> None:
        self.folder = folder
        self.names = spec.parties.everybody
        daemons = (COORDINATOR, *self.names)
        ports = [f"127.0.0.1:{port}" for port in _free_ports(2 * len(daemons))]
        self.addresses = dict(zip(daemons, ports, strict=False))
        at = dict(zip(daemons, ports[len(daemons) :], strict=True)) if pages else {}
        self.pages = {name: Page(listen=address, user=USER) for name, address in at.items()}
        create_certificates(folder, self.names)
        extra: dict[str, Any] = {"timers": timers or Timers()}
        if workers is not None:
            extra["workers"] = workers
        of_coordinator = {"auto_resume": self.auto_resume, "page": self.pages.get(COORDINATOR)}
        leading = coordinator_config(folder, self.addresses, **of_coordinator, **extra)
        self._write_config(COORDINATOR, leading)
        for name in self.names:
            of_party = {"rehearses": self.rehearses, "page": self.pages.get(name)}
            party = party_config(name, folder, spec, sources, self.addresses, **of_party, **extra)
            self._write_config(name, party)
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self._logged: dict[str, int] = {}  # size of each log before its daemon started

    @property
    def client(self) -> ClientConfig:
        """Return the settings of a user of this cluster."""
        remote = Remote(name=COORDINATOR, address=self.addresses[COORDINATOR])
        return ClientConfig(coordinator=remote, tls=tls_of(self.folder / "certs", USER))

    def config(self, name: str) -> Path:
        """Return the settings file of a daemon."""
        return self.folder / "configs" / f"{name}.yaml"

    def log(self, name: str) -> Path:
        """Return the log file of a daemon."""
        return self.folder / "logs" / f"{name}.log"

    def store(self, name: str) -> Path:
        """Return a daemon's store."""
        return self.folder / "var" / name

    def __enter__(self) -> ClusterProcesses:
        try:
            for name in (COORDINATOR, *self.names):
                self.start(name)
            for name in (COORDINATOR, *self.names):
                self.wait(name)
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self, name: str) -> None:
        """Start one daemon, again if it has died."""
        kind = "coordinator" if name == COORDINATOR else "party"
        command = [sys.executable, "-m", "fedboost", kind, "serve"]
        command += ["--config", str(self.config(name)), "--until-stdin-closes"]
        self.log(name).parent.mkdir(parents=True, exist_ok=True)
        with self.log(name).open("ab") as log:
            self._logged[name] = log.tell()
            self.processes[name] = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True
            )

    def wait(self, name: str) -> None:
        """Wait until a daemon listens; raise UnreachableError with the end of its log if it does
        not.
        """
        until = time.monotonic() + READY_S
        while time.monotonic() < until and self.processes[name].poll() is None:
            if READY_WORDS in self.log(name).read_bytes()[self._logged[name] :]:
                return
            time.sleep(0.05)
        last = self.log(name).read_text(errors="replace").splitlines()[-LOG_LINES:]
        raise UnreachableError(
            f"the daemon of {name} did not start: {' | '.join(last) or 'it said nothing'}",
            party=name,
            log=str(self.log(name)),
            todo="read its log",
        )

    def kill(self, name: str) -> None:
        """Send SIGKILL to a daemon, like a power cut."""
        self.processes[name].send_signal(signal.SIGKILL)
        self.processes[name].wait()

    def stop(self) -> None:
        """End every daemon, by request and then by force: first the coordinator, which tells the
        parties that jobs are paused, then the parties.
        """
        running = {
            name: process for name, process in self.processes.items() if process.poll() is None
        }
        _end_processes([process for name, process in running.items() if name == COORDINATOR])
        _end_processes([process for name, process in running.items() if name != COORDINATOR])
        for process in self.processes.values():
            if process.stdin is not None:
                process.stdin.close()

    def _write_config(self, name: str, config: DaemonConfig) -> None:
        path = self.config(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        raw = config.model_dump(mode="json")  # a null may stand against another default
        text = WIDE_OPEN * isinstance(config, PartyConfig) + yaml.safe_dump(raw, sort_keys=False)
        write_file(path, text.encode(), PUBLIC_MODE)


class TrialProcesses(ClusterProcesses):
    """Daemons for trials: results include the verdict of default policies."""

    rehearses = True


def _end_processes(running: list[subprocess.Popen[bytes]]) -> None:
    for process in running:
        process.terminate()
    until = time.monotonic() + STOP_S
    for process in running:
        try:
            process.wait(max(0.1, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _free_ports(count: int) -> list[int]:
    """Return free ports; all are reserved at once, so that they differ."""
    held = [socket.socket() for _ in range(count)]
    try:
        for socket_ in held:
            socket_.bind(("127.0.0.1", 0))
        return [socket_.getsockname()[1] for socket_ in held]
    finally:
        for socket_ in held:
            socket_.close()
