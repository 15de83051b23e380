"""The acts on jobs that a daemon logs: who did what, one line of level INFO for each act.

A line holds no value of a table and no secret. Texts of others are made printable.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from fedboost.ground.errors import FedboostError
from fedboost.ground.printable import printable
from fedboost.runtime.process import logs
from fedboost.runtime.process.clock import monotonic_s

log = logging.getLogger(__name__)

ACT_CHARS_MAX = 1000
REFUSALS_PER_MINUTE_MAX = 60  # of one daemon: no caller fills its log


class JobAct(StrEnum):
    """An act and its line; `job_facts` has the facts that the job itself gives."""

    SUBMITTED = "user {submitter} submitted {job}"
    RESUMED = "user {user} resumed {job}"
    PROPOSED = "coordinator {coordinator} proposed {job} of user {submitter}: {answer}"
    REFUSED = "{by} refused {job} of {caller}: {reason}{note}"
    APPROVED = "user {user} approved {job}"
    DENIED = "user {user} denied {job}{reason}"
    BEGAN = "coordinator {coordinator} began {job}, attempt {attempt}"
    PAUSED = "{job} is paused: {reason}"
    FAILED = "{job} failed: {reason}"
    CANCELLED = "{job} was cancelled: {reason}"
    FINISHED = "{job} finished"
    RELEASED = "party {party} sent {peer} {amount} in {job}{sums}"


class LoggedJob(Protocol):
    """A job that a line names."""

    @property
    def id(self) -> str:
        """The job's id."""

    @property
    def name(self) -> str:
        """The job's name, as its submitter wrote it."""

    @property
    def manifest(self) -> bytes:
        """The job's manifest or its outline; other text is allowed and adds no facts."""


@dataclass(frozen=True)
class RefusedJob:
    """A job that is refused and therefore not stored."""

    id: str = ""
    name: str = ""
    manifest: bytes = b""


class RefusalLog:
    """One daemon's lines about refusals, of which there is a maximum each minute."""

    def __init__(self, role: str, name: str) -> None:
        self._by, self._party = f"{role} {name}", name if role == "party" else ""
        self._began, self._lines = 0.0, 0

    def log_refusal(self, job: LoggedJob, caller: object, error: FedboostError) -> None:
        """Log that the daemon refused a caller's job."""
        now = monotonic_s()
        if now - self._began >= 60.0:
            self._began, self._lines = now, 0
        self._lines += 1
        if self._lines > REFUSALS_PER_MINUTE_MAX:
            return
        is_last = self._lines == REFUSALS_PER_MINUTE_MAX
        note = "; further refusals of this minute are not logged" if is_last else ""
        facts = {"by": self._by, "caller": caller, "reason": short_reason(error), "note": note}
        log_act(JobAct.REFUSED, job, self._party, **facts)


def log_act(act: JobAct, job: LoggedJob, party: str = "", **facts: object) -> None:
    """Log an act; `facts` complete its line, and `party` is the party that logs, if it is one."""
    if is_logged():
        line = act.format_map({"party": party, **job_facts(job, party), **facts})
        with logs.added_context(job=job.id):
            log.info("%s", printable(line, instead="?", most=ACT_CHARS_MAX))


def is_logged() -> bool:
    """Return whether acts are logged; without that, nothing need be read for their lines."""
    return log.isEnabledFor(logging.INFO)


def job_facts(job: LoggedJob, party: str) -> dict[str, str]:
    """Return the facts of a line about a job: itself, its coordinator and its submitter.

    The data set is that of `party`.
    """
    try:
        raw: Any = json.loads(job.manifest)
        spec = raw["spec"]
        who = {role: str(raw[role]) for role in ("coordinator", "submitter")}
        dataset = spec.get("data", {}).get(party, {}).get("dataset")
        parties = [str(member["name"]) for member in raw["members"]]
        words = [str(spec["protocol"]), f"parties {_listed(parties)}"]
    except (ValueError, KeyError, TypeError, AttributeError):
        known = f"job {job.id}" if job.id else "a job"
        return {"job": known, "coordinator": "unknown", "submitter": "unknown"}
    if dataset:
        words.insert(1, f"data set {dataset}")
    if not job.id.startswith(f"{job.name}-"):
        words.insert(0, job.name)
    return {"job": f"job {job.id} ({', '.join(words)})", **who}


def short_reason(error: FedboostError) -> str:
    """Return an error's text, and the party and the key of its settings that it names."""
    places = [f"{key} {error.where[key]}" for key in ("party", "key") if key in error.where]
    return f"{error.what} ({', '.join(places)})" if places else error.what


def _listed(names: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))
