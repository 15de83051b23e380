"""What a data owner says to the own party's daemon."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import grpc

from fedboost.messages import job_pb2, party_pb2, party_pb2_grpc
from fedboost.messages.job_pb2 import JobId
from fedboost.messages.party_pb2 import DenyRequest, ModelId, OwnedJob, OwnedJobs, OwnedModels
from fedboost.runtime.client.client import Caller
from fedboost.runtime.client.config import ClientConfig
from fedboost.runtime.transport import status

if TYPE_CHECKING:
    from fedboost.model.shards import Packed


class Owner(Caller):
    """A data owner at the own party's daemon, which the settings call `coordinator`."""

    async def jobs(self) -> OwnedJobs:
        """Every job that the party has seen."""
        reply: OwnedJobs = await self.ask("Jobs", job_pb2.ListRequest())
        return reply

    async def approve(self, job: str) -> OwnedJob:
        """Lets a job run that waits for approval."""
        reply: OwnedJob = await self.ask("Approve", JobId(id=job))
        return reply

    async def deny(self, job: str, reason: str = "") -> OwnedJob:
        """Refuses a job; everybody in it reads the reason."""
        reply: OwnedJob = await self.ask("Deny", DenyRequest(id=job, reason=reason))
        return reply

    async def models(self) -> OwnedModels:
        """Every model of which the party holds a shard."""
        reply: OwnedModels = await self.ask("Models", job_pb2.ListRequest())
        return reply

    async def fetch_model(self, model: str) -> Packed:
        """The party's shard of a model, checked; see `model_store.assembled`."""
        from fedboost.runtime.party import model_store

        stub = party_pb2_grpc.OwnerStub(self._dialer.channel(*self._target))
        how: dict[str, Any] = {"timeout": self._timers.step_s, "metadata": self._dialer.metadata}
        try:
            found: AsyncIterator[party_pb2.ShardPiece] = stub.FetchModel(ModelId(id=model), **how)
            return await model_store.assembled(found, self.name, model)
        except grpc.aio.AioRpcError as error:
            raise status.from_call(error, *self._target) from None

    async def ask(self, method: str, request: Any) -> Any:
        """One small question by its name."""
        return await self._ask(party_pb2_grpc.OwnerStub, method, request, self._timers.call_s)


async def ask_owner(config: ClientConfig, method: str, request: Any) -> Any:
    """One question of a data owner to a party's daemon: Jobs, Approve, Deny or Forget."""
    async with Owner(config) as owner:
        return await owner.ask(method, request)
