"""The coordinator's side of every job as users reach it: their requests, rights and replies.

The node does not use the network: `daemon` serves its methods over gRPC, `simulate` calls them.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from fedboost.ground.errors import FedboostError, JobError, PolicyError, UnreachableError
from fedboost.job import JobSpec
from fedboost.messages import job_pb2
from fedboost.messages.job_pb2 import Event, JobStatus
from fedboost.runtime.config.daemons import CoordinatorConfig
from fedboost.runtime.config.reloading import check_parties, fresh_settings
from fedboost.runtime.coordinator.attempts import Attempts, PartyCalls
from fedboost.runtime.coordinator.intake import Intake, signed_submission
from fedboost.runtime.coordinator.journals import Journals
from fedboost.runtime.jobs.job_log import JobAct, RefusalLog, RefusedJob, log_act
from fedboost.runtime.jobs.manifest import Submission, read_outline
from fedboost.runtime.jobs.submitted import (
    SUBMISSION_KEY_BYTES,
    page_submitter,
    read_spec,
    sign_submission,
    submission_id,
)
from fedboost.runtime.store.forgetting import Forgetting, check_over
from fedboost.runtime.store.store import RESTS, Store
from fedboost.runtime.store.tags import Tags
from fedboost.runtime.transport.identity import Identity, Peer, hello_reply


class CoordinatorNode:
    """One coordinator. Every method that a user can call takes the caller first.

    `Intake` turns a submission into a job, `Attempts` drives it, `Journals` records its events.
    """

    def __init__(
        self,
        config: CoordinatorConfig,
        identity: Callable[[], Identity],
        store: Store,
        link: Callable[[str], PartyCalls],
    ) -> None:
        self.store = store
        # Reads the owner's settings file again, if there is one
        self.reread: Callable[[], CoordinatorConfig] | None = None
        self._identity = identity
        self._link = link
        self._journals = Journals(store)
        self._intake = Intake(config, store, link)
        self.attempts = Attempts(config, store, self._journals, link, self._intake.complete_job)
        self._forgetting = Forgetting(store)
        self._tags = Tags(store)
        self._refusals = RefusalLog("coordinator", config.name)

    @property
    def config(self) -> CoordinatorConfig:
        """The owner's settings."""
        return self._intake.config

    @config.setter
    def config(self, config: CoordinatorConfig) -> None:
        self._intake.config = config

    async def hello(self, _: Peer, __: job_pb2.HelloRequest) -> job_pb2.HelloReply:
        """Return the coordinator's certificate and version."""
        return hello_reply(self._identity())

    async def submit(self, caller: Peer, request: job_pb2.SubmitRequest) -> job_pb2.SubmitReply:
        """Accept a job; it is queued, and its parties are asked when it has a place.

        Several submissions of a caller with one key are the same job: a reply may have been lost.
        """
        with self._logged_refusal(caller):
            self._check_user(caller, "submit")
            spec = read_spec(request.spec)
            key = request.key or secrets.token_hex(SUBMISSION_KEY_BYTES)
            submission = None if self.config.tls is None else signed_submission(caller, request)
            return await self._take_in(caller.name, spec, key, submission)

    async def submit_here(self, user: Peer, spec: JobSpec, key: str) -> job_pb2.SubmitReply:
        """Accept a job from our own page; we sign it, since the page has no key of the user."""
        with self._logged_refusal(user):
            self._check_user(user, "submit")
            identity, key = self._identity(), key or secrets.token_hex(SUBMISSION_KEY_BYTES)
            is_signed = self.config.tls is not None
            signature = sign_submission(spec, key, identity.name, identity) if is_signed else None
            submitter = page_submitter(user.name, identity.peer)
            return await self._take_in(submitter, spec, key, signature)

    async def _take_in(
        self, submitter: str, spec: JobSpec, key: str, submission: Submission | None
    ) -> job_pb2.SubmitReply:
        id_ = submission_id(spec, submitter, key)
        reply = job_pb2.SubmitReply(id=id_)
        if self._intake.is_taken(id_, spec, submitter):
            return reply
        absence, terms = None, self._intake.draft(id_, spec, submitter, submission)
        waits = self.config.auto_resume  # for parties to return
        try:
            terms = await self._intake.complete(terms, retries=not waits)
        except UnreachableError as error:
            if not waits:
                raise
            absence = error
        if not self._intake.is_taken(id_, spec, submitter):  # meanwhile
            self.attempts.first(terms, absence)
        return reply

    def is_users_job(self, user: Peer, submitter: str) -> bool:
        """Return whether a job is a user's own, submitted by a command or on our page."""
        return submitter in (user.name, page_submitter(user.name, self._identity().peer))

    def tags(self, user: Peer) -> dict[str, tuple[str, ...]]:
        """Return every job's tags."""
        self._check_user(user, "read")
        return self._tags.by_job()

    def tag(self, user: Peer, ids: Sequence[str], tags: Sequence[str], *, adds: bool) -> None:
        """Add tags to the user's own jobs or remove them; a PolicyError for another user's job."""
        self._check_user(user, "read")
        for id_ in ids:
            if not self.is_users_job(user, read_outline(self.store.job(id_).outline).submitter):
                raise PolicyError(
                    "only the user who submitted a job may tag it", todo="ask its user", job=id_
                )
        change = self._tags.add if adds else self._tags.remove_tags
        change(ids, tags)

    async def list_jobs(self, caller: Peer, _: job_pb2.ListRequest) -> job_pb2.JobList:
        """Return all jobs, oldest first."""
        self._check_user(caller, "read")
        return job_pb2.JobList(jobs=await self.attempts.statuses.of_all())

    async def status(self, caller: Peer, request: job_pb2.JobId) -> JobStatus:
        """Return a job's status, with the parties it waits for and since when."""
        self._check_user(caller, "read")
        return self.attempts.statuses.of(self.store.job(request.id))

    async def watch(self, caller: Peer, request: job_pb2.WatchRequest) -> AsyncIterator[Event]:
        """Yield the journal's events from a number on, as it grows, until the job rests."""
        self._check_user(caller, "read")
        after = request.after
        while True:
            bell = self._journals.bell_of(request.id).rung
            is_driven = self.attempts.is_driven(request.id)
            rests = self.store.job(request.id).state in RESTS and not is_driven
            async for event in self._journals.pages(request.id, after):
                after = event.number
                yield event
            if rests:
                return
            # Not `wait_for`: in Python 3.11 it loses a cancellation at the moment of a ring.
            with suppress(TimeoutError):
                async with asyncio.timeout(self.config.timers.peer_lost_s):
                    await bell.wait()

    async def journal(self, caller: Peer, request: job_pb2.JobId) -> job_pb2.JobJournal:
        """Return the status, settings and journal of a job."""
        self._check_user(caller, "read")
        return await self.attempts.statuses.journal(request.id)

    async def cancel(self, caller: Peer, request: job_pb2.JobId) -> JobStatus:
        """End a job for good at every party."""
        self._check_user(caller, "cancel")
        await self.attempts.cancel(self.store.job(request.id), caller.name)
        return self.attempts.statuses.of(self.store.job(request.id))

    async def resume(self, caller: Peer, request: job_pb2.JobId) -> JobStatus:
        """Continue a paused or failed job from the last round that all parties have saved.

        A job that already goes on, by itself or by another user's request, is left as it is.
        """
        self._check_user(caller, "submit")
        self.attempts.resume(job := self.store.job(request.id))
        if job.state in RESTS:
            log_act(JobAct.RESUMED, job, user=caller.name)
        return self.attempts.statuses.of(self.store.job(request.id))

    async def delete(self, caller: Peer, request: job_pb2.JobId) -> JobStatus:
        """Delete a finished job and its journal; return its last status."""
        self._check_user(caller, "cancel")
        job = check_over(self.store.job(request.id))
        status = self.attempts.statuses.of(job)
        if not self.attempts.is_settled(job.id):
            raise JobError(
                "not every party has heard yet how the job ended",
                todo="start the parties that are down, or wait a moment",
                job=job.id,
            )
        await self._forget_job(job.id)
        return status

    # The daemon

    async def delete_expired(self) -> None:
        """Delete the jobs that are older than the owner's retention time."""
        for job in self._forgetting.jobs_due(self.config.retention.jobs_days):
            if self.attempts.is_settled(job):
                await self._forget_job(job)

    async def reload_settings(self) -> list[str]:
        """Read the settings file again and apply its changes from now on.

        Return the changed keys. A ConfigError if the file is wrong, or if a change needs a restart
        or the end of a job; then nothing changes.
        """

        def check_settings(fresh: CoordinatorConfig) -> None:
            check_parties(self.config, fresh, self.attempts.statuses.needed_parties())

        self.config, changed = await fresh_settings(self.reread, self.config, check_settings)
        return changed

    async def resume_unfinished(self) -> None:
        """Resume the jobs that an earlier process left unfinished; called once, at the start."""
        self.attempts.resume_unfinished()

    async def close(self) -> None:
        """Pause the running jobs; the next process resumes them."""
        await self.attempts.close()

    def listen_to_events(self, hear: Callable[[Event], None]) -> None:
        """Have `hear` called with each event of every journal once it is stored."""
        self._journals.hear = hear

    def current_waits(self) -> list[job_pb2.Waiting]:
        """Return the parties that queued, running and paused jobs wait for now."""
        return self.attempts.statuses.current_waits()

    # Inside

    @contextmanager
    def _logged_refusal(self, user: Peer) -> Iterator[None]:
        """Log an error inside the `with` as the refusal of a user's submission."""
        try:
            yield
        except FedboostError as error:
            self._refusals.log_refusal(RefusedJob(), user, error)
            raise

    def _check_user(self, caller: Peer, action: Any) -> None:
        if caller.role != "user":
            raise PolicyError(
                f"{caller} is not a user",
                todo="ask who runs the coordinator: its file lists users under `users`",
            )
        self.config.users.judge(action, caller.name)

    async def _forget_job(self, job: str) -> None:
        await asyncio.to_thread(self._forgetting.forget, job)
        self.attempts.drop(job)
        self._journals.drop(job)
