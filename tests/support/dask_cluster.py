"""A real Dask cluster on loopback, with certificates of a CA of its own."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from fedboost.ground.settings import parse_settings
from fedboost.runtime.config.daemons import DaskWorkers
from fedboost.runtime.transport import authority
from fedboost.runtime.transport.certificates import Leaf, Term
from tests import warm
from tests.support.servers import free_port

ROOT = Path(__file__).resolve().parents[2]
QUIET = {
    "DASK_DISTRIBUTED__SCHEDULER__HTTP__ROUTES": "[]",
    "DASK_DISTRIBUTED__WORKER__HTTP__ROUTES": "[]",
    "PYTHONPATH": str(ROOT),
}


@dataclass
class DaskCluster:
    """A scheduler and its workers, each a process of one thread; `folder` has the certificates."""

    folder: Path
    port: int = field(default_factory=free_port)
    scheduler: subprocess.Popen[bytes] | None = None
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def address(self) -> str:
        return f"tls://127.0.0.1:{self.port}"

    def files(self, folder: str = "certs", name: str = "driver") -> dict[str, str]:
        certs = self.folder / folder
        return {
            "ca": f"{certs}/ca.pem",
            "cert": f"{certs}/{name}.pem",
            "key": f"{certs}/{name}.key",
        }

    def settings(self, folder: str = "certs", **more: object) -> DaskWorkers:
        return parse_settings(DaskWorkers, {**self.raw(folder), **more})

    def raw(self, folder: str = "certs") -> dict[str, object]:
        return {"dask": self.address, "tls": self.files(folder)}

    def certify(self, folder: str) -> None:
        leaves = [Leaf("party", name) for name in ("scheduler", "worker", "driver")]
        authority.create_certificates(self.folder / folder, leaves, Term(datetime.now(UTC)))

    def start_scheduler(self) -> None:
        at = ("--host", "127.0.0.1", "--port", str(self.port), "--dashboard-address", "127.0.0.1:0")
        self.scheduler = self._start("scheduler", "--no-show", *at)

    def start_workers(self, count: int) -> None:
        more = ("--nthreads", "1", "--no-nanny", "--memory-limit", "0", "--no-dashboard")
        for _ in range(count):
            self.workers.append(self._start("worker", self.address, "--host", "127.0.0.1", *more))

    def kill_worker(self) -> None:
        end(self.workers.pop(0))

    def kill_scheduler(self) -> None:
        assert self.scheduler is not None
        end(self.scheduler)

    def close(self) -> None:
        for process in (*self.workers, self.scheduler):
            if process is not None:
                end(process)

    def _start(self, kind: str, *words: str) -> subprocess.Popen[bytes]:
        tls = self.files(name=kind)
        certs = ("--tls-ca-file", tls["ca"], "--tls-cert", tls["cert"], "--tls-key", tls["key"])
        with (self.folder / f"{kind}.log").open("ab") as log, open(os.devnull, "rb") as nothing:
            fds = {0: nothing.fileno(), 1: log.fileno(), 2: log.fileno()}
            args = ["-m", f"distributed.cli.dask_{kind}", *words, *certs]
            env = os.environ | QUIET
            return warm.server().begin(args, fds, cwd=self.folder, env=env)


def end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


@contextmanager
def dask_cluster(folder: Path, workers: int = 2) -> Iterator[DaskCluster]:
    """A cluster of its own; its processes are on their way when this begins."""
    cluster = DaskCluster(folder)
    cluster.certify("certs")
    cluster.start_scheduler()
    cluster.start_workers(workers)
    try:
        yield cluster
    finally:
        cluster.close()
