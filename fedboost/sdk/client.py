"""Jobs at a coordinator from Python: submit them, watch them, fetch their results.

    with Client("127.0.0.1:7100", tls="certs") as client:
        job = client.submit("job.yaml")
        print(job.wait()["metrics"])

`Client` blocks, also in a notebook with a running loop; `AsyncClient` does the same with await.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any, Self, TypeAlias

from fedboost.ground.errors import ConfigError, FedboostError
from fedboost.ground.settings import parse_settings, read_yaml
from fedboost.job import JobSpec
from fedboost.messages import job_pb2
from fedboost.report.card import JobCard, job_card, trouble_card
from fedboost.report.page import render_page
from fedboost.report.seen import JobProgress
from fedboost.report.story import read_story
from fedboost.runtime.client import client as calls
from fedboost.runtime.jobs.submitted import read_spec
from fedboost.sdk.background import Connected
from fedboost.sdk.jobs import Event, RoundMetrics, Status, error_of_status
from fedboost.sdk.places import Tls, coordinator_at
from fedboost.sdk.progress import Hears, Verbose, watching

JobLike: TypeAlias = str | Path | Mapping[str, Any] | JobSpec  # a file, or its content


class AsyncJob:
    """A job at a coordinator, for code that awaits."""

    def __init__(self, link: calls.CoordinatorClient, id_: str) -> None:
        self.id = id_
        self._link = link

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.id!r})"

    async def status(self) -> Status:
        """Return the job's status, with the parties that it waits for."""
        return Status.of_message(await self._link.status(self.id))

    async def watch(self, after: int = 0) -> AsyncIterator[Event]:
        """Yield the job's journal after entry `after`, as it grows, until the job rests."""
        async for event in self._link.watch(self.id, after):
            yield Event.of_message(event)

    async def wait(
        self, *, progress: Verbose = "auto", timeout_s: float | None = None
    ) -> dict[str, Any]:
        """Return the result when the job has finished; raise the error that ended or paused it.

        `progress` has the values of `watching`. Raise TimeoutError after `timeout_s`; the job
        continues.
        """
        with watching(progress, (await self.status()).name) as hear:
            return await self.followed(hear, timeout_s)

    async def followed(self, hear: Hears, timeout_s: float | None) -> dict[str, Any]:
        """Wait as `wait` does, and report every event to `hear`."""
        async with asyncio.timeout(timeout_s):
            await calls.pass_on_events(self._link, self.id, hear, hear.waiting)
            return await self.result()

    async def result(self) -> dict[str, Any]:
        """Return the result as ``--json`` prints it; raise the reason if there is none."""
        journal = await self.journal()
        if result := calls.result_of(journal):
            return result
        raise error_of_status(journal.status)

    async def metrics(self) -> RoundMetrics:
        """Return the guest's metrics of every round."""
        return RoundMetrics(read_story(await self.journal()))

    async def report(self, path: str | Path) -> Path:
        """Write the job's report, one self-contained HTML file; return its path."""
        text = render_page(await self.journal())
        file = Path(path)
        await asyncio.to_thread(file.write_text, text, encoding="utf-8")
        return file

    async def cancel(self) -> Status:
        """End the job for good, at every party."""
        return Status.of_message(await self._link.cancel(self.id))

    async def resume(self) -> Status:
        """Continue the paused or failed job from the last round that all parties have kept."""
        return Status.of_message(await self._link.resume(self.id))

    async def journal(self) -> job_pb2.JobJournal:
        """Return the coordinator's journal of the job, as it travels."""
        return await self._link.journal(self.id)


class AsyncClient:
    """A user's connection to a coordinator, for code that awaits; an async context manager."""

    def __init__(
        self,
        coordinator: str | None = None,
        *,
        tls: Tls | None = None,
        user: str | None = None,
        retry_s: float = 0.0,
    ) -> None:
        """Connect; `coordinator` is ``[NAME@]HOST:PORT``, `tls` a folder or the files; see
        `Client`.
        """
        config = coordinator_at(coordinator, tls, user)
        self._link = calls.CoordinatorClient(config, user=user or "user", retry_s=retry_s)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connection."""
        await self._link.close()

    async def submit(self, job: JobLike) -> AsyncJob:
        """Submit a job, given as a file's path or as its content; raise ConfigError for an invalid
        one.
        """
        return AsyncJob(self._link, await self._link.submit(encoded_job(job)))

    async def jobs(self) -> list[Status]:
        """Return the status of every job of the coordinator, oldest first."""
        return [Status.of_message(status) for status in await self._link.jobs()]

    async def job(self, id_: str) -> AsyncJob:
        """Return the job with that id; raise JobError if there is none."""
        await self._link.status(id_)
        return AsyncJob(self._link, id_)


class Events:
    """A job's events, for `for` and, in any loop, for `async for`; each goes through them once."""

    def __init__(self, client: Client, job: AsyncJob, after: int) -> None:
        self._client = client  # keeps the client open while events are read
        self._job, self._after = job, after

    def __iter__(self) -> Iterator[Event]:
        return self._client.background.iterate(self._job.watch(self._after))

    def __aiter__(self) -> AsyncIterator[Event]:
        return self._client.background.items(self._job.watch(self._after))


class Job:
    """A job at a coordinator; in a notebook it shows itself."""

    def __init__(self, client: Client, job: AsyncJob) -> None:
        self.id = job.id
        self._client = client  # keeps the client open while the job is used
        self._job = job

    def __repr__(self) -> str:
        return f"Job({self.id!r})"

    def status(self) -> Status:
        """Return the job's status, with the parties that it waits for."""
        return self._client.run(self._job.status())

    def watch(self, after: int = 0) -> Events:
        """Return the events of the job's journal after entry `after`, until the job rests."""
        return Events(self._client, self._job, after)

    def wait(self, *, progress: Verbose = "auto", timeout_s: float | None = None) -> dict[str, Any]:
        """Return the result when the job has finished; raise the error that ended or paused it.

        `progress` has the values of `watching`. A TimeoutError after `timeout_s`, or an interrupt,
        does not affect the job: it continues.
        """
        with watching(progress, self.status().name) as hear:
            return self._client.run(self._job.followed(hear, timeout_s))

    def result(self) -> dict[str, Any]:
        """Return the result as ``--json`` prints it; raise the reason if there is none."""
        return self._client.run(self._job.result())

    def metrics(self) -> RoundMetrics:
        """Return the guest's metrics of every round."""
        return self._client.run(self._job.metrics())

    def report(self, path: str | Path) -> Path:
        """Write the job's report, one self-contained HTML file; return its path."""
        return self._client.run(self._job.report(path))

    def cancel(self) -> Status:
        """End the job for good, at every party."""
        return self._client.run(self._job.cancel())

    def resume(self) -> Status:
        """Continue the paused or failed job from the last round that all parties have kept."""
        return self._client.run(self._job.resume())

    def _repr_html_(self) -> str:
        try:
            return job_card_html(self._client.run(self._job.journal()))
        except FedboostError as error:
            return trouble_card([f"{self.id} cannot be shown: {error.what}", *error.lines()[1:]])


class Client(Connected):
    """A user's connection to a coordinator; a context manager, and safe in threads.

    Missing arguments are read from the command line's sources: FEDBOOST_COORDINATOR, FEDBOOST_TLS
    and FEDBOOST_USER, then ~/.config/fedboost/client.yaml.
    """

    def __init__(
        self,
        coordinator: str | None = None,
        *,
        tls: Tls | None = None,
        user: str | None = None,
        retry_s: float = 0.0,
    ) -> None:
        """Connect to `coordinator`, ``[NAME@]HOST:PORT``.

        `tls` is a folder with ca.pem and the user's NAME.pem and NAME.key (`user` picks one of
        several), or these files as ``{"ca": …, "cert": …, "key": …}``. For `retry_s` seconds the
        client retries a coordinator that does not answer yet. Raise ConfigError for missing or
        wrong settings.
        """
        config = coordinator_at(coordinator, tls, user)
        link = calls.CoordinatorClient(config, user=user or "user", retry_s=retry_s)
        super().__init__(link)
        self._link = link

    def __repr__(self) -> str:
        return f"Client({self._link.name!r})"

    def submit(self, job: JobLike) -> Job:
        """Submit a job, given as a file's path or as its content; raise ConfigError for an invalid
        one.
        """
        return Job(self, AsyncJob(self._link, self.run(self._link.submit(encoded_job(job)))))

    def jobs(self) -> list[Status]:
        """Return the status of every job of the coordinator, oldest first."""
        return [Status.of_message(status) for status in self.run(self._link.jobs())]

    def job(self, id_: str) -> Job:
        """Return the job with that id; raise JobError if there is none."""
        self.run(self._link.status(id_))
        return Job(self, AsyncJob(self._link, id_))


def read_job(job: JobLike) -> tuple[Any, dict[str, str]]:
    """Return a job's keys, and its file for errors; a ConfigError where there is no job."""
    if isinstance(job, JobSpec):
        return job.model_dump(), {}
    if isinstance(job, Mapping):
        return job, {}
    if isinstance(job, str | Path):
        return read_yaml(Path(job)), {"file": str(job)}
    raise ConfigError(
        f"the job is of the type {type(job).__name__}",
        todo="give a file's path, the keys of a job as a dict, or a JobSpec",
    )


def encoded_job(job: JobLike) -> bytes:
    """Return a job's bytes for submission; a ConfigError names the error and its file."""
    raw, where = read_job(job)
    spec = job if isinstance(job, JobSpec) else parse_settings(JobSpec, raw, **where)
    text = spec.model_dump_json().encode()
    try:
        read_spec(text)
    except FedboostError as error:
        raise error.at(**where) from None
    return text


def job_card_html(journal: job_pb2.JobJournal) -> str:
    """Return a job's card for a notebook."""
    status, seen = journal.status, JobProgress()
    for event in journal.events:
        seen.event(event)
    seen.state = status.state or seen.state
    at = seen.at if seen.rests else time.time()
    facts = JobCard(status.name, seen, at, status.id, status.protocol, tuple(status.waiting))
    return job_card(facts)
