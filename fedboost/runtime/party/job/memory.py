"""Admits jobs at a party within the memory and the disk that its daemon may use.

A party estimates by its own table and decides by its own settings. A single job needs no estimate;
a job waits only if other jobs hold memory or disk that it needs.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from fedboost.data.sources import SourceSpec
from fedboost.ground.errors import FedboostError, PolicyError, UnreachableError
from fedboost.job import JobSpec
from fedboost.runtime.config.daemons import PartyConfig
from fedboost.runtime.party.job.job import PartyJob
from fedboost.runtime.process.clock import monotonic_s
from fedboost.runtime.process.memory_limit import allowed_bytes

log = logging.getLogger(__name__)

GB = 1e9
# Memory of a daemon with compiled kernels, and of a worker process with ciphers, as measured by
# `fedboost estimate`: see `estimate.prices`.
DAEMON_BYTES, WORKER_BYTES = 400_000_000, 180_000_000
# The least memory for messages of one peer: a dozen waiting parts of a stream, and the array that
# they are added up in.
PEER_BYTES_LEAST = 1 << 28

Sources = Callable[[], Mapping[str, SourceSpec]]


class Space(NamedTuple):
    """Bytes that jobs use or may use."""

    memory: float
    disk: float = 0.0  # for files of large tables

    def has_room_for(self, taken: Space) -> bool:
        """Return whether `taken` fits."""
        return taken.memory <= self.memory and taken.disk <= self.disk


MemoryOf = Callable[[JobSpec, str, SourceSpec], Space]  # job, party, its table


@dataclass
class _Held:
    job: PartyJob
    asked: float  # when its coordinator last asked for it
    begun: bool = False
    room: Space | None = None  # not estimated yet


class JobMemory:
    """The memory that jobs hold at one party. All methods belong to the event loop's thread."""

    def __init__(self, config: PartyConfig, sources: Sources, jobs: Mapping[str, PartyJob]) -> None:
        """`sources` gives the current tables."""
        self.of: MemoryOf | None = None  # estimates; None: memory is not limited
        self._config, self._sources, self._jobs = config, sources, jobs
        allowed = config.memory_gb * GB if config.memory_gb is not None else allowed_bytes()
        memory = allowed - DAEMON_BYTES - config.processes * WORKER_BYTES
        disk = math.inf if config.disk_gb is None else config.disk_gb * GB
        self._free = Space(memory, disk)
        # Limits that the owner states hold for every single job.
        self._stated = Space(math.inf if config.memory_gb is None else memory, disk)
        self._held: dict[str, _Held] = {}
        self._queue: dict[str, float] = {}  # when each was last asked for, oldest first
        self._known: dict[tuple[str, str], Space] = {}  # by job's settings and table
        self._deciding = asyncio.Lock()

    async def take(self, job: PartyJob) -> bool:
        """Return whether a job holds its memory now; if not, it waits for its turn.

        A PolicyError if it needs more than `memory_gb` or `disk_gb` allow any job.
        """
        if self.of is None:
            return True
        await self._release_paused_tables(job)
        async with self._deciding:
            self._drop_expired()
            self._queue[job.id] = monotonic_s()
            held = self._held.get(job.id)
            if held is not None:
                held.asked = monotonic_s()
            elif await self._has_room(job):
                self._held[job.id] = held = _Held(
                    job, monotonic_s(), room=self._known.get(_estimate_key(job))
                )
            if held is not None:
                self._queue.pop(job.id, None)
            return held is not None

    async def begin(self, job: PartyJob) -> None:
        """Have a job keep its memory until it leaves; an UnreachableError if there is none."""
        if not await self.take(job):
            raise UnreachableError(
                f"other jobs have the memory or the disk of {self._config.name}",
                party=self._config.name,
                todo="wait until they are over",
            )
        if job.id in self._held:
            self._held[job.id].begun = True

    def peer_bytes_max(self, job: PartyJob) -> int:
        """Return the bytes that messages of one peer may use in a job.

        This is the peer's share of the memory for jobs, less the estimates of other jobs.
        """
        rooms = [held.room for id_, held in self._held.items() if id_ != job.id]
        left = self._free.memory - sum(room.memory for room in rooms if room is not None)
        return max(PEER_BYTES_LEAST, int(left) // max(1, len(job.signed.peers)))

    def release_memory(self, id_: str) -> None:
        """Give back the memory or the turn of a job."""
        self._held.pop(id_, None)
        self._queue.pop(id_, None)
        if not self._held:
            self._known.clear()

    def _drop_expired(self) -> None:
        """Forget jobs that have not begun and that their coordinators no longer ask for."""
        since = monotonic_s() - self._config.timers.peer_lost_s
        for id_, held in list(self._held.items()):
            if not held.begun and held.asked < since:
                self.release_memory(id_)
        for id_, asked in list(self._queue.items()):
            if asked < since:
                self.release_memory(id_)

    async def _release_paused_tables(self, job: PartyJob) -> None:
        """Release the tables of paused jobs; they are read again when the jobs go on.

        A paused job may be beginning still, and then asks for memory itself: it waits for no other,
        and no lock is held while we wait for it.
        """
        if job.halted is not None or (not self._held and min(self._stated) == math.inf):
            return
        for paused in list(self._jobs.values()):
            if paused.halted is not None and paused.id not in self._held:
                await paused.forget()

    async def _has_room(self, job: PartyJob) -> bool:
        if not self._held and min(self._stated) == math.inf:
            return self._is_next(job)
        need = await self._estimated_space(job)
        if not self._stated.has_room_for(need):
            log.warning("%s: %s", job.id, self._shortage_text(need))
            what, key = "memory", "memory_gb"
            if need.memory <= self._stated.memory:
                what, key = "of the disk", "disk_gb"
            raise PolicyError(
                f"the job needs more {what} than {self._config.name} may use",
                party=self._config.name,
                key=key,
                todo="ask its owner, whose log says how much",
            )
        for held in list(self._held.values()):  # any of them may leave meanwhile
            held.room = await self._estimated_space(held.job) if held.room is None else held.room
        rooms = [need, *(held.room for held in self._held.values() if held.room is not None)]
        taken = Space(*map(sum, zip(*rooms, strict=True)))
        fits = not self._held or self._free.has_room_for(taken)
        if not fits:
            log.info(
                "%s waits: %s; with others %s",
                job.id,
                self._shortage_text(need),
                self._shortage_text(taken),
            )
        return fits and self._is_next(job)

    def _is_next(self, job: PartyJob) -> bool:
        """Return whether it is a job's turn; a job that has left meanwhile has none."""
        return next(iter(self._queue), None) == job.id

    def _shortage_text(self, need: Space) -> str:
        free, disk = self._free, ""
        if free.disk < math.inf:
            disk = f", and {need.disk / GB:.2f} GB of {free.disk / GB:.2f} GB of the disk"
        memory = max(0.0, free.memory)
        return f"it needs {need.memory / GB:.2f} GB of the {memory / GB:.2f} GB for jobs{disk}"

    async def _estimated_space(self, job: PartyJob) -> Space:
        """Return a job's estimate; jobs with equal settings on one table share one estimate."""
        assert self.of is not None
        signed, key = job.signed, _estimate_key(job)
        source = self._sources().get(signed.dataset)
        if source is None:
            return Space(0.0)
        if key not in self._known:
            terms = signed.manifest
            spec = terms.spec.model_copy(update={"params": dict(terms.params)})
            try:
                self._known[key] = await asyncio.to_thread(self.of, spec, signed.party, source)
            except FedboostError as error:  # `begin` refuses it with a better error
                log.warning("%s: its memory is not known: %s", job.id, "; ".join(error.lines()))
                return Space(0.0)
        return self._known[key]


def _estimate_key(job: PartyJob) -> tuple[str, str]:
    settings = job.signed.manifest.spec.model_dump_json(exclude={"name"})
    return settings, job.signed.dataset
