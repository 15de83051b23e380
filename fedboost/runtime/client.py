"""What a user's command or program says to a coordinator or to a party's daemon."""

from __future__ import annotations

from collections.abc import AsyncIterator
from types import TracebackType
from typing import Any, Protocol

import grpc

from fedboost.messages import job_pb2, job_pb2_grpc, party_pb2_grpc
from fedboost.messages.job_pb2 import Event, JobId
from fedboost.runtime import status
from fedboost.runtime.channel import Dialer
from fedboost.runtime.config import ClientConfig, Timers

WATCH_S = 300.0  # one call's share of watching; then the next one goes on behind what was seen


class Jobs(Protocol):
    """The jobs of a coordinator, wherever it runs."""

    async def submit(self, spec: bytes) -> str:
        """Hands in a job (JSON); gives its id."""

    async def status(self, job: str) -> job_pb2.JobStatus:
        """How a job stands."""

    def watch(self, job: str, after: int = 0) -> AsyncIterator[Event]:
        """The job's journal as it grows, until the job rests."""

    async def journal(self, job: str) -> job_pb2.JobJournal:
        """Everything the coordinator knows of a job."""

    async def resume(self, job: str) -> job_pb2.JobStatus:
        """Carries a paused or failed job on."""


class Client:
    """One user at one coordinator; an asynchronous context manager."""

    def __init__(self, config: ClientConfig, *, user: str = "user", retry_s: float = 0.0) -> None:
        """`user` is who we claim to be where there is no TLS; `retry_s` waits for a late daemon."""
        self._timers = Timers()
        self._dialer = Dialer(config.tls, self._timers, claim=f"user:{user}")
        self._target = (config.coordinator.name, config.coordinator.address)
        self._retry_s = retry_s

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._dialer.close()

    async def submit(self, spec: bytes) -> str:
        """Hands in a job (JSON); gives its id."""
        reply: job_pb2.SubmitReply = await self._ask("Submit", job_pb2.SubmitRequest(spec=spec))
        return reply.id

    async def jobs(self) -> list[job_pb2.JobStatus]:
        """All jobs of the coordinator."""
        reply: job_pb2.JobList = await self._ask("ListJobs", job_pb2.ListRequest())
        return list(reply.jobs)

    async def status(self, job: str) -> job_pb2.JobStatus:
        """How a job stands."""
        reply: job_pb2.JobStatus = await self._ask("Status", JobId(id=job))
        return reply

    async def watch(self, job: str, after: int = 0) -> AsyncIterator[Event]:
        """The job's journal as it grows, until the job rests."""
        stub = job_pb2_grpc.CoordinatorStub(self._dialer.channel(*self._target))
        how: dict[str, Any] = {"timeout": WATCH_S, "metadata": self._dialer.metadata}
        while True:
            try:
                async for event in stub.Watch(job_pb2.WatchRequest(id=job, after=after), **how):
                    after = event.number
                    yield event
                return
            except grpc.aio.AioRpcError as error:
                if error.code() is not grpc.StatusCode.DEADLINE_EXCEEDED:
                    raise status.from_call(error, *self._target) from None

    async def journal(self, job: str) -> job_pb2.JobJournal:
        """Everything the coordinator knows of a job."""
        reply: job_pb2.JobJournal = await self._ask("Journal", JobId(id=job))
        return reply

    async def cancel(self, job: str) -> job_pb2.JobStatus:
        """Ends a job for good."""
        reply: job_pb2.JobStatus = await self._ask("Cancel", JobId(id=job))
        return reply

    async def resume(self, job: str) -> job_pb2.JobStatus:
        """Carries a paused or failed job on."""
        reply: job_pb2.JobStatus = await self._ask("Resume", JobId(id=job))
        return reply

    async def _ask(self, method: str, request: Any) -> Any:
        def start(channel: grpc.aio.Channel) -> Any:
            call = getattr(job_pb2_grpc.CoordinatorStub(channel), method)
            timeout = self._timers.call_s + self._timers.peer_lost_s
            return call(request, timeout=timeout, metadata=self._dialer.metadata)

        return await self._dialer.call(self._target, start, retry_s=self._retry_s)


async def ask_owner(config: ClientConfig, method: str, request: Any) -> Any:
    """One question of a data owner to a party's daemon: Jobs, Approve or Deny."""
    timers = Timers()
    dialer = Dialer(config.tls, timers, claim="user:user")

    def start(channel: grpc.aio.Channel) -> Any:
        call = getattr(party_pb2_grpc.OwnerStub(channel), method)
        return call(request, timeout=timers.call_s, metadata=dialer.metadata)

    try:
        return await dialer.call((config.coordinator.name, config.coordinator.address), start)
    finally:
        await dialer.close()
