"""Admits jobs at a party as far as the memory goes that its daemon may use.

A party estimates by its own table and decides by its own settings. A job that is alone here needs
no estimate; it waits only where others hold memory that it needs.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from fedboost.data.sources import SourceSpec
from fedboost.errors import FedboostError, PolicyError, UnreachableError
from fedboost.job import JobSpec
from fedboost.runtime.config.daemons import PartyConfig
from fedboost.runtime.party.job import PartyJob
from fedboost.runtime.process.clock import now
from fedboost.runtime.process.memory_limit import allowed_bytes

log = logging.getLogger(__name__)

GB = 1e9
# Of a daemon with its compiled kernels, and of a worker process with ciphers, as measured by
# `fedboost estimate`: see `estimate.prices`.
DAEMON_BYTES, WORKER_BYTES = 400_000_000, 180_000_000

Sources = Callable[[], Mapping[str, SourceSpec]]
MemoryOf = Callable[[JobSpec, str, SourceSpec], int]  # job, party, its table: bytes


@dataclass
class _Held:
    job: PartyJob
    asked: float  # when its coordinator asked for it last
    begun: bool = False
    bytes: int | None = None  # not estimated yet


class JobMemory:
    """The memory that jobs hold at one party. All methods belong to the event loop's thread."""

    def __init__(self, config: PartyConfig, sources: Sources, jobs: Mapping[str, PartyJob]) -> None:
        """`sources` gives the tables that count now."""
        self.of: MemoryOf | None = None  # estimates; None: every job has memory enough
        self._config, self._sources, self._jobs = config, sources, jobs
        self._is_stated = config.memory_gb is not None
        allowed = config.memory_gb * GB if config.memory_gb is not None else allowed_bytes()
        self._free = allowed - DAEMON_BYTES - config.processes * WORKER_BYTES
        self._held: dict[str, _Held] = {}
        self._queue: dict[str, float] = {}  # when each was asked for last, oldest first
        self._known: dict[tuple[str, str], int] = {}  # by job's settings and table
        self._deciding = asyncio.Lock()

    async def take(self, job: PartyJob) -> bool:
        """Return whether a job holds its memory now; if not, its turn comes in order.

        A PolicyError where it needs more than `memory_gb` allows any job.
        """
        if self.of is None:
            return True
        async with self._deciding:
            self._expire()
            self._queue[job.id] = now()
            held = self._held.get(job.id)
            if held is not None:
                held.asked = now()
            elif await self._fits(job):
                self._held[job.id] = held = _Held(job, now(), bytes=self._known.get(_key(job)))
            if held is not None:
                self._queue.pop(job.id, None)
            return held is not None

    async def begin(self, job: PartyJob) -> None:
        """Has a job keep its memory until it leaves; an UnreachableError where there is none."""
        if not await self.take(job):
            raise UnreachableError(
                f"other jobs have the memory of {self._config.name}",
                party=self._config.name,
                todo="wait until they are over",
            )
        if job.id in self._held:
            self._held[job.id].begun = True

    def leave(self, id_: str) -> None:
        """Gives back what a job held or waited for."""
        self._held.pop(id_, None)
        self._queue.pop(id_, None)
        if not self._held:
            self._known.clear()

    def _expire(self) -> None:
        """Forgets jobs that have not begun and of which their coordinators say no more."""
        since = now() - self._config.timers.peer_lost_s
        for id_, held in list(self._held.items()):
            if not held.begun and held.asked < since:
                self.leave(id_)
        for id_, asked in list(self._queue.items()):
            if asked < since:
                self.leave(id_)

    async def _fits(self, job: PartyJob) -> bool:
        if not (self._held or self._is_stated):
            return next(iter(self._queue)) == job.id
        for paused in list(self._jobs.values()):  # whose tables are read again when they go on
            if paused.halted is not None and paused.id not in self._held:
                await paused.forget()
        need = await self._bytes(job)
        if self._is_stated and need > self._free:
            log.warning("%s: %s", job.id, self._short(need))
            raise PolicyError(
                f"the job needs more memory than {self._config.name} may use",
                party=self._config.name,
                key="memory_gb",
                todo="ask its owner, whose log says how much",
            )
        taken = 0
        for held in self._held.values():
            held.bytes = await self._bytes(held.job) if held.bytes is None else held.bytes
            taken += held.bytes
        fits = not self._held or taken + need <= self._free
        if not fits:
            log.info("%s waits: %s, of which others hold %.2f", job.id, self._short(need),
                     taken / GB)  # fmt: skip
        return fits and next(iter(self._queue)) == job.id

    def _short(self, need: int) -> str:
        return f"it needs {need / GB:.2f} GB of the {max(0.0, self._free) / GB:.2f} GB for jobs"

    async def _bytes(self, job: PartyJob) -> int:
        """Return a job's estimate, of which one is made for all jobs alike on one table."""
        assert self.of is not None
        signed, key = job.signed, _key(job)
        source = self._sources().get(signed.dataset)
        if source is None:
            return 0
        if key not in self._known:
            terms = signed.manifest
            spec = terms.spec.model_copy(update={"params": dict(terms.params)})
            try:
                self._known[key] = await asyncio.to_thread(self.of, spec, signed.party, source)
            except FedboostError as error:  # begin says it better, and refuses it
                log.warning("%s: its memory is not known: %s", job.id, "; ".join(error.lines()))
                return 0
        return self._known[key]


def _key(job: PartyJob) -> tuple[str, str]:
    settings = job.signed.manifest.spec.model_dump_json(exclude={"name"})
    return settings, job.signed.dataset
