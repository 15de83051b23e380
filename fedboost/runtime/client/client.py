"""Calls of a user's command or program to a coordinator."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol, Self

import grpc

from fedboost import protocols
from fedboost.ground import wire
from fedboost.ground.errors import FedboostError
from fedboost.ground.printable import printable_message
from fedboost.messages import job_pb2, job_pb2_grpc, party_pb2, party_pb2_grpc
from fedboost.messages.job_pb2 import Event, JobId, Waiting
from fedboost.messages.party_pb2 import DenyRequest, ModelId, OwnedJob, OwnedJobs, OwnedModels
from fedboost.model import shards
from fedboost.runtime.client.config import ClientConfig
from fedboost.runtime.relay.dialing import open_dialer
from fedboost.runtime.store.store import JobState
from fedboost.runtime.transport.addresses import Timers

if TYPE_CHECKING:
    from fedboost.model.shards import Packed


WAITING_S = 2.0  # between two requests for the awaited parties
AGAIN_S = 2.0  # after a lost answer a job is submitted again in this time
WATCH_S = 300.0  # limit of one call that watches; the next call continues after the last event


class Jobs(Protocol):
    """The jobs of a coordinator, wherever it runs."""

    async def submit(self, spec: bytes) -> str:
        """Submit a job (JSON); return its id."""

    async def status(self, job: str) -> job_pb2.JobStatus:
        """Return a job's status."""

    def watch(self, job: str, after: int = 0) -> AsyncIterator[Event]:
        """Yield the job's journal as it grows, until the job rests."""

    async def journal(self, job: str) -> job_pb2.JobJournal:
        """Return a job's whole journal."""

    async def resume(self, job: str) -> job_pb2.JobStatus:
        """Resume a paused or failed job."""


async def pass_on_events(
    jobs: Jobs,
    job: str,
    hear: Callable[[Event], None],
    waiting: Callable[[Iterable[Waiting]], None],
    after: int = 0,
) -> None:
    """Pass on the events of `watch`, and every few seconds the parties that work or must answer."""
    asking = asyncio.create_task(_ask_waiting(jobs, job, waiting))
    try:
        async for event in jobs.watch(job, after):
            hear(event)
    finally:
        asking.cancel()
        await asyncio.wait((asking,))


async def _ask_waiting(jobs: Jobs, job: str, tell: Callable[[Iterable[Waiting]], None]) -> None:
    while True:
        with suppress(FedboostError):  # `watch` reports the error
            tell((await jobs.status(job)).waiting)
        await asyncio.sleep(WAITING_S)


def result_of(journal: job_pb2.JobJournal) -> dict[str, Any]:
    """Return the result in a journal, like ``result.json``; empty for a job without a result."""
    for event in journal.events:
        if event.HasField("finished"):
            return wire.json_object(event.finished.result, "the job's result")
    return {}


class Caller:
    """One user at one daemon; an asynchronous context manager."""

    def __init__(self, config: ClientConfig, *, user: str = "user", retry_s: float = 0.0) -> None:
        """Prepare the connection; `user` is the claimed name without TLS, `retry_s` waits for a
        late daemon.
        """
        self._timers, self._tls = Timers(), config.tls
        self._dialer = open_dialer(config.tls, self._timers, f"user:{user}", config.relay)
        self._target = (config.coordinator.name, config.coordinator.address)
        self._retry_s = retry_s

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connection."""
        await self._dialer.close()

    @property
    def name(self) -> str:
        """The daemon's name."""
        return self._target[0]

    async def _call_daemon(
        self, stub: Any, method: str, request: Any, timeout_s: float, retry_s: float = 0.0
    ) -> Any:
        def start_call(channel: grpc.aio.Channel) -> Any:
            call = getattr(stub(channel), method)
            return call(request, timeout=timeout_s, metadata=self._dialer.metadata)

        reply = await self._dialer.call(
            self._target, start_call, retry_s=max(self._retry_s, retry_s)
        )
        return printable_message(reply)


class CoordinatorClient(Caller):
    """One user at one coordinator; an asynchronous context manager."""

    async def submit(self, spec: bytes) -> str:
        """Submit a job (JSON) exactly once, even if an answer is lost; return its id.

        A model given as `latest` or as a job's name means that job's newest model at this
        coordinator.
        """
        from fedboost.runtime.jobs.submitted import SUBMISSION_KEY_BYTES, submission_request
        from fedboost.runtime.transport.tls import load_identity

        identity = None if self._tls is None else await asyncio.to_thread(load_identity, self._tls)
        spec = await self._with_model(spec)
        request = submission_request(
            spec, secrets.token_hex(SUBMISSION_KEY_BYTES), self.name, identity
        )
        reply: job_pb2.SubmitReply = await self._call_coordinator("Submit", request, AGAIN_S)
        return reply.id

    async def _with_model(self, spec: bytes) -> bytes:
        """Return a job with the id of the model that it means; others as they are."""
        raw = json.loads(spec)
        text = raw["params"].get("model")
        if text is None:
            return spec
        known = {
            job.id: (job.name, str(job.created))
            for job in await self.jobs()
            if job.state == JobState.FINISHED
            and protocols.load_protocol(job.protocol).leaves == "model"
        }
        if text in known or not shards.matching_models(text, known):
            return spec  # parties know models that this coordinator does not
        raw["params"]["model"] = shards.resolve_model(text, known)
        return json.dumps(raw).encode()

    async def jobs(self) -> list[job_pb2.JobStatus]:
        """Return all jobs of the coordinator."""
        reply: job_pb2.JobList = await self._call_coordinator("ListJobs", job_pb2.ListRequest())
        return list(reply.jobs)

    async def status(self, job: str) -> job_pb2.JobStatus:
        """Return a job's status."""
        return await self._call_coordinator("Status", JobId(id=job))

    async def watch(self, job: str, after: int = 0) -> AsyncIterator[Event]:
        """Yield the job's journal as it grows, until the job rests."""
        how: dict[str, Any] = {"timeout": WATCH_S, "metadata": self._dialer.metadata}
        while True:
            request = job_pb2.WatchRequest(id=job, after=after)
            try:
                with self._dialer.open_channel(*self._target) as channel:
                    async for event in job_pb2_grpc.CoordinatorStub(channel).Watch(request, **how):
                        after = event.number
                        printable_message(event)
                        yield event
                return
            except grpc.aio.AioRpcError as error:
                if error.code() is not grpc.StatusCode.DEADLINE_EXCEEDED:
                    raise self._dialer.error_of_call(error, *self._target) from None

    async def journal(self, job: str) -> job_pb2.JobJournal:
        """Return a job's whole journal."""
        return await self._call_coordinator("Journal", JobId(id=job))

    async def cancel(self, job: str) -> job_pb2.JobStatus:
        """End a job for good."""
        return await self._call_coordinator("Cancel", JobId(id=job))

    async def resume(self, job: str) -> job_pb2.JobStatus:
        """Resume a paused or failed job."""
        return await self._call_coordinator("Resume", JobId(id=job))

    async def delete(self, job: str) -> job_pb2.JobStatus:
        """Delete an ended job at the coordinator."""
        return await self._call_coordinator("Delete", JobId(id=job))

    async def _call_coordinator(self, method: str, request: Any, retry_s: float = 0.0) -> Any:
        timeout_s = self._timers.call_s + self._timers.peer_lost_s
        return await self._call_daemon(
            job_pb2_grpc.CoordinatorStub, method, request, timeout_s, retry_s
        )


class Owner(Caller):
    """A data owner at the own party's daemon, which the settings call `coordinator`."""

    async def jobs(self) -> OwnedJobs:
        """Return every job that the party has seen."""
        return await self.send_request("Jobs", job_pb2.ListRequest())

    async def approve(self, job: str) -> OwnedJob:
        """Approve a job that waits for approval."""
        return await self.send_request("Approve", JobId(id=job))

    async def deny(self, job: str, reason: str = "") -> OwnedJob:
        """Refuse a job; all its parties see the reason."""
        return await self.send_request("Deny", DenyRequest(id=job, reason=reason))

    async def models(self) -> OwnedModels:
        """Return every model with a shard at the party."""
        return await self.send_request("Models", job_pb2.ListRequest())

    async def fetch_model(self, model: str) -> Packed:
        """Return the party's shard of a model, checked; see `model_store.assemble_shard`."""
        from fedboost.runtime.party.owner import model_store

        stub = party_pb2_grpc.OwnerStub(self._dialer.short_call_channel(*self._target))
        how: dict[str, Any] = {"timeout": self._timers.step_s, "metadata": self._dialer.metadata}
        try:
            stream: AsyncIterator[party_pb2.ShardPiece] = stub.FetchModel(ModelId(id=model), **how)
            return await model_store.assemble_shard(stream, self.name, model)
        except grpc.aio.AioRpcError as error:
            raise self._dialer.error_of_call(error, *self._target) from None

    async def send_request(self, method: str, request: Any) -> Any:
        """Send one small request by its name."""
        return await self._call_daemon(
            party_pb2_grpc.OwnerStub, method, request, self._timers.call_s
        )


async def ask_owner(config: ClientConfig, method: str, request: Any) -> Any:
    """Send a data owner's request to a party's daemon: Jobs, Approve, Deny or Forget."""
    async with Owner(config) as owner:
        return await owner.send_request(method, request)
