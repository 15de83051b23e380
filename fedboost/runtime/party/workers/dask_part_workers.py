"""A party's parts on workers of Dask, in a separate cluster or in processes of this machine.

Dask sends tasks and results as pickles, so every owner of a certificate of the cluster can run code
on its workers and its clients. Connections are therefore mutual TLS only, under the cluster's own
CA, and workers must be trusted as much as the party's daemon. All data of workers can be made
again, so another worker can replace a lost one.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

from fedboost.ground import part_workers
from fedboost.ground.errors import ConfigError, UnreachableError, install_advice
from fedboost.ground.part_workers import Embedded, MakePart, PartWorkers
from fedboost.runtime.config.daemons import DaskWorkers, PartyConfig
from fedboost.runtime.party.workers.cluster_ca import check_own_ca
from fedboost.runtime.process.clock import growing_pauses
from fedboost.runtime.transport.tls import TlsFiles

if TYPE_CHECKING:
    from distributed import Client, Future

T = TypeVar("T")

log = logging.getLogger(__name__)

DASK_CONNECT_S = 10  # until an unresponsive scheduler counts as lost, or one without workers
LOST_S = 0.25  # the first pause after a loss
LOSSES_MAX = 8  # of workers, one after another, during one layer
SMALL_TASK_BYTES = 1 << 15  # a smaller task goes by the scheduler, which takes half as long
LOCAL = "this machine"
LOGGERS = ("distributed", "distributed.client", "tornado.application")  # with separate levels


class _Kept:
    """Parts at workers, and the function that makes them again."""

    def __init__(self, parts: int, make: MakePart) -> None:
        self.make = make
        self.futures: list[Future[Any] | None] = [None] * parts
        self.at = [""] * parts

    def is_at_worker(self, i: int, client: Client, worker: str) -> bool:
        """Return whether part i is at its worker."""
        future = self.futures[i]
        is_whole = future is not None and future.client is client and future.status == "finished"
        return is_whole and self.at[i] == worker


class DaskPartWorkers:
    """Workers of a cluster, connected on first use; each of their threads counts as one."""

    def __init__(self, workers: DaskWorkers, federation: TlsFiles | None = None) -> None:
        """`federation` holds the party's own files; the cluster must have another CA."""
        self._settings, self._federation = workers, federation
        self._where = workers.address or LOCAL
        self._lock = threading.RLock()
        self._client: Client | None = None
        self._cluster: Any = None  # of this machine
        self._slots: dict[str, int] = {}  # threads of each known worker
        self._places: list[str] = []  # the worker of each part

    @property
    def count(self) -> int:
        """Number of threads, after a new look at the cluster; see `PartWorkers`."""
        with self._lock:
            self._client_with_parts(fresh=True)
            return len(self._places)

    @property
    def takes_gradients(self) -> bool:
        """As the party's file says; see `PartWorkers`."""
        return self._settings.gradients

    def keep(self, parts: int, make: MakePart) -> object:
        """See `PartWorkers`; the parts are sent when a task first needs them."""
        return _Kept(parts, make)

    def run(
        self,
        kernel: Callable[..., T],
        kept: Sequence[object],
        tasks: Sequence[tuple[Any, ...]],
        join: Callable[..., T] | None = None,
    ) -> list[T]:
        """See `PartWorkers`."""
        from distributed import KilledWorker

        for pause_s in islice(growing_pauses(LOST_S, DASK_CONNECT_S), LOSSES_MAX):
            with self._lock:
                client = self._client_with_parts()
                places = [self._places[i % len(self._places)] for i in range(len(tasks))]
            run = _Run(client, places, [part for part in kept if isinstance(part, _Kept)])
            try:
                return run.results(kernel, tasks, join)
            except (CancelledError, KilledWorker, OSError, TimeoutError) as error:
                log.warning("workers on %s: %s; their parts go elsewhere", self._where, error)
                time.sleep(pause_s)  # until the scheduler has noticed
        raise UnreachableError(
            f"{LOSSES_MAX} times in a row workers were lost during one layer",
            todo="look at the workers' logs: often they lack memory",
            workers=self._where,
        )

    def check(self) -> str:
        """Return the number of workers and threads in words; raises an error if there are none."""
        count = self.count
        return f"{len(self._slots)} workers, {count} threads"

    def close(self) -> None:
        """Disconnect from the cluster; workers of this machine end."""
        with self._lock:
            self._hang_up()
            if self._cluster is not None:
                self._cluster.close()
            self._cluster = None

    def _hang_up(self) -> None:
        client, self._client = self._client, None
        self._slots, self._places = {}, []
        if client is not None:
            with suppress(Exception):  # errors of the old connection do not matter
                client.close(timeout=1)

    def _connected(self) -> Client:
        """Return a client with a responsive scheduler."""
        if self._client is None or self._client.status != "running":
            self._hang_up()
            self._client = self._connect()
        return self._client

    def _connect(self) -> Client:
        try:
            import dask
            from distributed import Client
        except ModuleNotFoundError:
            raise ConfigError(
                "workers.dask needs Dask, which is not installed",
                todo=f"{install_advice('dask')}; or set workers: embedded",
            ) from None
        dask.config.set(
            {
                "distributed.comm.timeouts.connect": f"{DASK_CONNECT_S}s",
                # A scheduler and workers of this machine would serve these in the clear.
                "distributed.scheduler.http.routes": [],
                "distributed.worker.http.routes": [],
                "distributed.worker.profile.enabled": False,  # of local workers
            }
        )
        for name in LOGGERS:
            logging.getLogger(name).setLevel(logging.CRITICAL)  # our own log says what is lost
        address, security = self._scheduler_access()
        try:
            return Client(
                address,
                security=security,
                timeout=DASK_CONNECT_S,
                set_as_default=False,
                name="fedboost",
            )
        except (OSError, TimeoutError, ValueError) as error:
            raise UnreachableError(
                "the scheduler of the workers does not answer",
                todo="start it, and see that `workers` names its address and files of its CA",
                private=str(error),
                workers=self._where,
            ) from None

    def _scheduler_access(self) -> tuple[str, Any]:
        """Return the scheduler's address, and the TLS settings of the connection."""
        from distributed import LocalCluster, Security

        if (tls := self._settings.tls) is not None:
            check_own_ca(tls, self._federation)
            files = {"tls_client_cert": str(tls.cert), "tls_client_key": str(tls.key)}
            security = Security(require_encryption=True, tls_ca_file=str(tls.ca), **files)
            return str(self._settings.address), security
        if self._cluster is None:
            self._cluster = LocalCluster(
                n_workers=self._settings.local_workers,
                threads_per_worker=1,
                processes=True,
                host="127.0.0.1",
                security=Security.temporary(),  # keys in memory, for these processes only
                dashboard_address="127.0.0.1:0",
                memory_limit=0,  # otherwise they would write their data to the disk
                silence_logs=logging.ERROR,
            )
        return self._cluster.scheduler_address, self._cluster.security

    def _client_with_parts(self, *, fresh: bool = False) -> Client:
        """Return a client, with all parts at reachable workers; `fresh` spreads them anew.

        A scheduler that was restarted is a new one, so a second connection is tried.
        """
        lost = ""
        for _ in range(2):
            client = self._connected()
            try:
                self._place_parts(client, fresh=fresh)
            except (CancelledError, OSError) as error:
                self._hang_up()
                lost = str(error)
            else:
                return client
        raise UnreachableError(
            "the scheduler of the workers is gone",
            todo="start it again",
            private=lost,
            workers=self._where,
        )

    def _place_parts(self, client: Client, *, fresh: bool) -> None:
        try:
            if not (threads_of := dict(client.nthreads())):
                client.wait_for_workers(1, timeout=DASK_CONNECT_S)
                threads_of = dict(client.nthreads())
        except TimeoutError:
            raise UnreachableError(
                "the Dask cluster has no workers", todo="start some", workers=self._where
            ) from None
        self._check_versions(client, [worker for worker in threads_of if worker not in self._slots])
        # Threads of different workers in turn, so that few parts still use all machines.
        each = sorted((n, worker) for worker, threads in threads_of.items() for n in range(threads))
        if fresh or not self._places:
            self._places = [worker for _, worker in each]
        # Otherwise parts stay where they are, if their worker is still there.
        for i, worker in enumerate(self._places):
            if worker not in threads_of:
                self._places[i] = min(sorted(threads_of), key=self._places.count)
        self._slots = threads_of

    def _check_versions(self, client: Client, strangers: Sequence[str]) -> None:
        """Raise a ConfigError if a worker runs other versions than we do."""
        ours = part_workers.library_versions()
        try:
            said = (
                client.run(part_workers.library_versions, workers=list(strangers))
                if strangers
                else {}
            )
        except (ImportError, AttributeError) as error:
            raise ConfigError(
                "a worker of the Dask cluster cannot run fedboost",
                todo=f"where the workers run, install fedboost {ours[0]} with its extra dask",
                private=str(error),
                workers=self._where,
            ) from None
        except (CancelledError, OSError, TimeoutError):
            return  # lost meanwhile: the next task notices
        for worker, theirs in said.items():
            if tuple(theirs) != ours:
                raise ConfigError(
                    f"{worker} runs fedboost {theirs[0]} on Python {theirs[1]} and numpy "
                    f"{theirs[2]}, here are {ours[0]}, {ours[1]} and {ours[2]}",
                    todo="give the workers the same versions",
                    workers=self._where,
                )


def part_workers_of(config: PartyConfig) -> PartWorkers:
    """Return the workers that add up encrypted rows for a party, by its settings.

    A ConfigError for a cluster under the federation's CA.
    """
    workers = config.workers
    if not isinstance(workers, DaskWorkers):
        return Embedded()
    if workers.tls is not None:
        check_own_ca(workers.tls, config.tls)  # before anything is served, and at each connection
    return DaskPartWorkers(workers, config.tls)


class _Run:
    """Running tasks, each at its worker."""

    def __init__(self, client: Client, places: Sequence[str], kept: Sequence[_Kept]) -> None:
        self._client, self._places, self._kept = client, places, kept

    def results(
        self,
        kernel: Callable[..., T],
        tasks: Sequence[tuple[Any, ...]],
        join: Callable[..., T] | None,
    ) -> list[T]:
        """Return the results of tasks or raise Dask's error of a lost worker; see `PartWorkers`."""
        futures = [
            self._submit_task(kernel, i, task) for i, task in enumerate(self._send_missing(tasks))
        ]
        step = 1
        while join is not None and step < len(futures):
            for i in range(0, len(futures) - step, 2 * step):
                futures[i] = self._submit_task(join, i, (), futures[i], futures[i + step])
            step *= 2
        results: list[T] = self._client.gather(
            futures if join is None else futures[:1], direct=True
        )
        return results

    def _send_missing(self, tasks: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Send missing parts and large tasks straight to workers; return tasks or their futures."""
        from dask.sizeof import sizeof

        large, lacking = _Kept(len(tasks), lambda i: tasks[i]), []
        for i, task in enumerate(tasks):
            parts = self._kept if sizeof(task) <= SMALL_TASK_BYTES else [*self._kept, large]
            lacking.append(
                [p for p in parts if not p.is_at_worker(i, self._client, self._places[i])]
            )
        given = [[part.make(i) for part in parts] for i, parts in enumerate(lacking)]
        for i, futures in enumerate(self._client.sync(self._send_to_workers, given)):
            for part, future in zip(lacking[i], futures, strict=True):
                part.futures[i], part.at[i] = future, self._places[i]
        return [large.futures[i] or task for i, task in enumerate(tasks)]

    async def _send_to_workers(self, given: Sequence[list[Any]]) -> list[list[Future[Any]]]:
        """Send data to the workers of parts, all at once."""

        async def scatter_to(what: list[Any], place: str) -> list[Future[Any]]:
            how = {"direct": True, "hash": False, "asynchronous": True}
            futures: list[Future[Any]] = (
                await self._client.scatter(what, workers=[place], **how) if what else []
            )
            return futures

        return await asyncio.gather(*map(scatter_to, given, self._places))

    def _submit_task(
        self, kernel: Callable[..., T], i: int, task: Any, *more: Future[Any]
    ) -> Future[Any]:
        parts = [part.futures[i] for part in self._kept]
        return self._client.submit(
            part_workers.call_with_parts,
            kernel,
            task,
            *parts,
            *more,
            workers=[self._places[i]],
            allow_other_workers=True,  # if its worker is lost, its data is too, and we get an error
            pure=False,
            retries=0,
        )
