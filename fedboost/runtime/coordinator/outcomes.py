"""The ends of attempts: with a result, with a reason, or back in the queue."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from fedboost.ground.errors import FedboostError, JobError, StoreError, UnreachableError
from fedboost.messages.job_pb2 import Waiting
from fedboost.runtime.config.daemons import CoordinatorConfig
from fedboost.runtime.coordinator.auto_resume import Answering, first_gone
from fedboost.runtime.coordinator.driven_jobs import DrivenJob
from fedboost.runtime.coordinator.job_states import CoordinatorJobEvent, CoordinatorJobStates
from fedboost.runtime.coordinator.walk import JobWalk
from fedboost.runtime.coordinator.walker import walk_job
from fedboost.runtime.process.clock import growing_pauses
from fedboost.runtime.process.pulse import Pulse
from fedboost.runtime.store.store import JobState, StoredJob
from fedboost.runtime.transport.addresses import Timers

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Stopped:
    """The end of an attempt without a result."""

    event: CoordinatorJobEvent
    reason: FedboostError


@dataclass(frozen=True)
class SentBack:
    """The end of an attempt at a job that goes back to the queue."""

    reason: FedboostError | None  # of the party that it waits for; None: no place is free here


JobResult: TypeAlias = dict[str, Any]  # of a finished job
Outcome: TypeAlias = Stopped | SentBack | JobResult | None


class NoPlaceError(Exception):
    """A job that people have approved has no place yet."""


async def result_or_loss(
    walk: JobWalk, link: Callable[[str], Answering], timers: Timers, pulse: Pulse
) -> JobResult:
    """Return the walk's result; raise the error of a lost party, idle parties included."""
    running = asyncio.create_task(walk_job(walk))
    looking = asyncio.create_task(first_gone(walk, link, timers))
    beating = asyncio.create_task(pulse.beat_until_cancelled())
    try:
        await asyncio.wait((running, looking), return_when=asyncio.FIRST_COMPLETED)
        if not running.done():
            raise looking.result()
        return running.result()
    finally:
        tasks = running, looking, beating
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def cause_of_end(error: FedboostError, pulse: Pulse, config: CoordinatorConfig) -> FedboostError:
    """Return why an attempt ended by an error: parties are not lost if this process stood still."""
    if isinstance(error, StoreError):  # ours, unless it names a party already
        error.at(party=config.name)
    elif not isinstance(error, UnreachableError):
        return error
    stood_s = pulse.stood_still_s(within_s=config.timers.peer_lost_s)
    if not stood_s:
        return error
    return UnreachableError(
        f"the coordinator stood still for {stood_s:.1f} s and heard nobody",
        party=config.name,
        todo="see whether it was stopped, or its machine is overloaded or was asleep",
    )


def cancelled_error(user: str) -> JobError:
    """Return the reason of a job that a user has cancelled."""
    return JobError(f"cancelled by {user}", todo="submit it again if this was a mistake")


def end_by_interruption(driven: DrivenJob) -> Stopped | None:
    """Return the end of a job whose task was cancelled, by a user or as this process ends.

    Return None for a job that has not begun: the next process drives it.
    """
    event = CoordinatorJobEvent
    if driven.cancelled_by:
        return Stopped(event.CANCELLED, cancelled_error(driven.cancelled_by))
    if driven.walk is None or not driven.walk.has_begun:
        return None
    stopped = UnreachableError("the coordinator was stopped", todo="start it again")
    return Stopped(event.PAUSED, stopped)


async def record_end(
    driven: DrivenJob,
    ended: Stopped | JobResult,
    states: CoordinatorJobStates,
    config: CoordinatorConfig,
) -> StoredJob:
    """Return the job, its end recorded; retries until the store can take it.

    Until then the status shows the store's error, and parties hear that the job is paused.
    """
    job, timers = driven.job.id, config.timers
    pauses_s = growing_pauses(timers.retry_first_s, timers.retry_max_s)
    while True:
        try:
            if isinstance(ended, Stopped):
                return states.rests(job, ended.event, ended.reason)
            return states.finished(job, ended)
        except StoreError as error:
            if driven.unnoted is None:
                log.error("%s has ended, and: %s", job, "; ".join(error.lines()))
                await _pause_unnoted(driven, error, config.name)
            await asyncio.sleep(next(pauses_s))


async def _pause_unnoted(driven: DrivenJob, error: StoreError, name: str) -> None:
    """Show users and parties that the attempt has ended although our store cannot record it."""
    error.todo = f"{error.todo}; then the coordinator notes by itself how the attempt ended"
    error.at(party=name)
    driven.unnoted = error
    if driven.walk is not None:
        wait = Waiting(party=name, step="space for its journal", since=time.time())
        driven.walk.waiting[name] = wait
        await driven.walk.stop(JobState.PAUSED, error)
