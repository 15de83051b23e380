"""A cluster in one process whose daemons die, come back, lose what they kept, and are restored.

A party's node is closed with its store and opened anew on the same folder, as a daemon is that was
killed; what it was sending is cut off. Nothing here lies: see `lies`.
"""

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from fedboost.data.sources import SourceSpec
from fedboost.ground.errors import UnreachableError
from fedboost.ground.workers import Serial
from fedboost.job import JobSpec
from fedboost.runtime.cluster import local
from fedboost.runtime.coordinator.node import CoordinatorNode
from fedboost.runtime.party.node.node import PartyNode
from fedboost.runtime.policy.judgement import Trust
from fedboost.runtime.store.store import JobState, Store, StoredJob
from fedboost.runtime.transport import authority
from fedboost.runtime.transport.addresses import Timers
from fedboost.runtime.transport.certificates import Leaf, Term


@dataclass
class Town:
    """The daemons of a cluster. At most one backup of a store is kept for each party."""

    cluster: local.LocalCluster
    certs: Path
    backups: Path
    closing: AsyncExitStack
    restarting: asyncio.Lock = field(default_factory=asyncio.Lock)

    def node(self, name: str) -> PartyNode:
        """A party's node of now; an UnreachableError while it is dead."""
        found = self.cluster.parties.get(name)
        if found is None:
            raise UnreachableError(f"{name} is not there", party=name)
        return found

    @property
    def client(self) -> local.LocalClient:
        """A user of the coordinator of now."""
        return local.LocalClient(self.cluster)

    async def restart(self, name: str, meanwhile: Callable[[Path], None] | None = None) -> None:
        """A party dies and comes back; `meanwhile` sees the folder of its store."""
        async with self.restarting:
            await self._restart(name, meanwhile)

    async def _restart(self, name: str, meanwhile: Callable[[Path], None] | None) -> None:
        node = self.cluster.parties.pop(name)
        died = UnreachableError(f"{name}'s daemon died", party=name)
        for work in list(node.under_way.values()):  # one may be forgotten meanwhile
            session = work.session
            await work.stop(died)
            await work.answers.wait_until_idle()
            if session is not None:
                await asyncio.to_thread(session._threads.shutdown, wait=True)
        node.under_way.clear()
        node.close()
        node.store.close()
        if meanwhile is not None:
            meanwhile(node.store.folder)
        store = Store(node.store.folder, f"party {name}")
        trust = Trust.of_files(local.tls_of(self.certs, name), name)
        again = PartyNode(node.config, trust, store, node.parts.links, node.parts.workers)
        again.parts.cpu.clock = None
        self.closing.callback(store.close)
        self.closing.callback(again.close)
        self.closing.push_async_callback(again.pause_all)
        self.cluster.parties[name] = again

    async def settles(self) -> None:
        """Returns once nobody is on the way back."""
        async with self.restarting:
            pass

    async def back_up(self, name: str, copied: Callable[[], None] = lambda: None) -> None:
        """The same, and its store is copied before it comes back; then `copied` is called."""

        def meanwhile(folder: Path) -> None:
            self._copy(folder, self.backups / name)
            copied()

        await self.restart(name, meanwhile)

    async def restore(self, name: str, copied: Callable[[], None] = lambda: None) -> None:
        """The same, with the store as it was copied; before it comes back `copied` is called."""

        def meanwhile(folder: Path) -> None:
            self._copy(self.backups / name, folder)
            copied()

        await self.restart(name, meanwhile)

    def has_backup(self, name: str) -> bool:
        """Whether the store of a party can be restored."""
        return (self.backups / name).exists()

    async def lose_store(self, name: str) -> None:
        """The same, with an empty store."""
        await self.restart(name, shutil.rmtree)

    async def lose_coordinator(self, job: StoredJob | None = None) -> None:
        """The coordinator comes back with an empty store, or one that knows a single job."""
        old = self.cluster.coordinator
        await old.close()
        old.store.close()
        shutil.rmtree(old.store.folder)
        store = Store(old.store.folder, f"coordinator {local.COORDINATOR}")
        if job is not None:
            store.add_job(job.id, job.name, job.manifest, JobState.PAUSED)
            store.set_attempt(job.id, job.attempt)
        again = CoordinatorNode(old.config, old._identity, store, old._link)
        self.closing.callback(store.close)
        self.closing.push_async_callback(again.close)
        self.cluster = replace(self.cluster, coordinator=again)

    @staticmethod
    def _copy(source: Path, target: Path) -> None:
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(source, target)


@asynccontextmanager
async def town(
    folder: Path, spec: JobSpec, sources: Mapping[str, SourceSpec], timers: Timers
) -> AsyncIterator[Town]:
    """A town for the jobs of one file, as `local.open_cluster` makes it."""
    made = local.open_cluster(folder / "c", spec, sources, Serial(), timers=timers)
    async with made as cluster, AsyncExitStack() as closing:
        yield Town(cluster, folder / "c" / "certs", folder / "backups", closing)


_create = authority.create_certificates
_kept: list[tempfile.TemporaryDirectory[str]] = []


def certificates(folder: Path, leaves: Sequence[Leaf], term: Term) -> None:
    """Stands in for `authority.create_certificates`: the same ones for every town of a process,
    since drawing keys takes its time.
    """
    if not _kept:
        _kept.append(tempfile.TemporaryDirectory(prefix="certs-"))
    _create(Path(_kept[0].name), leaves, term)
    shutil.copytree(_kept[0].name, folder, dirs_exist_ok=True)
