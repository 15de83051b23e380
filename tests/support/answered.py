"""Clients of the SDK whose calls go to nodes in this process: all but the network is there."""

import re
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from fedboost.ground.workers import Serial
from fedboost.job import JobSpec
from fedboost.messages.job_pb2 import Event, WatchRequest
from fedboost.messages.party_pb2 import ModelId
from fedboost.model.shards import Packed
from fedboost.runtime.client import client as calls
from fedboost.runtime.cluster import local
from fedboost.runtime.cluster.local import COORDINATOR, USER, LocalCluster
from fedboost.runtime.party.owner import model_store
from fedboost.sdk import client, party
from fedboost.sdk.background import BACKGROUND
from tests.support import small_jobs
from tests.support.whole_jobs import written


class _Answered(calls.Caller):
    """Asks a node's methods, as the daemon does with what came over the network."""

    node: Any
    cluster: LocalCluster

    async def _call_daemon(
        self, stub: Any, method: str, request: Any, timeout_s: float, retry_s: float = 0.0
    ) -> Any:
        called = getattr(self.node, re.sub(r"(?<!^)(?=[A-Z])", "_", method).lower())
        return await called(
            self.cluster.user, type(request).FromString(request.SerializeToString())
        )


class Town:
    """A cluster in the loop of the SDK's clients."""

    def __init__(self, cluster: LocalCluster, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.cluster = cluster
        self.certs = folder / "certs"
        own = cluster

        class Coordinated(_Answered, calls.CoordinatorClient):
            node, cluster = own.coordinator, own

            async def watch(self, job: str, after: int = 0) -> AsyncIterator[Event]:
                wanted = WatchRequest(id=job, after=after)
                async for event in self.node.watch(self.cluster.user, wanted):
                    yield event

        class Owned(_Answered, calls.Owner):
            cluster = own

            @property
            def node(self) -> Any:
                return self.cluster.parties[self.name]

            async def fetch_model(self, model: str) -> Packed:
                sent = self.node.fetch_model(self.cluster.user, ModelId(id=model))
                return await model_store.assemble_shard(sent, self.name, model)

        patch.setattr(calls, "CoordinatorClient", Coordinated)
        patch.setattr(party, "Owner", Owned)

    def client(self) -> client.Client:
        """The user at the coordinator."""
        return client.Client(f"{COORDINATOR}@{local.NOWHERE}", tls=self.certs, user=USER)

    def party(self, name: str) -> party.PartyClient:
        """The same user as a party's owner."""
        return party.PartyClient(f"{name}@{local.NOWHERE}", tls=self.certs, user=USER)


@contextmanager
def town(folder: Path, spec: JobSpec, toy: str) -> Iterator[Town]:
    """A cluster for the jobs of a toy, `small_jobs.TOYS`, or of others among its parties."""
    sources = written(folder / "data", small_jobs.tables(toy))
    made = local.open_cluster(folder, spec, sources, Serial())
    with pytest.MonkeyPatch.context() as patch:
        BACKGROUND.hold_loop()
        try:
            cluster = BACKGROUND.run(made.__aenter__())
            try:
                yield Town(cluster, folder, patch)
            finally:
                BACKGROUND.run(made.__aexit__(None, None, None))
        finally:
            BACKGROUND.let_go()
