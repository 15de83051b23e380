"""The states of a party's jobs: the table of transitions and all code that changes a state.

A decision of the owner about a job is not a state: see `decisions`.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from fedboost.ground.errors import FedboostError, PeerError, PolicyError, ProtocolError, StoreError
from fedboost.runtime.jobs import manifest
from fedboost.runtime.jobs.job_log import JobAct, log_act, short_reason
from fedboost.runtime.policy.approval import Decision, Decisions, Verdict
from fedboost.runtime.store.store import FINAL, OVER, JobState, Store, StoredJob

log = logging.getLogger(__name__)


class PartyJobEvent(StrEnum):
    """An event that changes a job's state at a party."""

    ASKED = "wait for approval"  # proposed, and an owner has to approve it first
    AGREED = "be agreed to"  # proposed and allowed
    BEGUN = "begin"
    PAUSED = "pause"
    WITHDRAWN = "be withdrawn"  # it waits in its coordinator's queue, and is proposed again
    FAILED = "fail"
    CANCELLED = "be cancelled"
    DENIED = "be denied"
    FINISHED = "finish"


def _transitions() -> Mapping[tuple[JobState | None, PartyJobEvent], JobState]:
    state, event = JobState, PartyJobEvent
    going = {
        event.BEGUN: state.RUNNING,
        event.FAILED: state.FAILED,
        event.CANCELLED: state.CANCELLED,
        event.DENIED: state.CANCELLED,
    }
    by_state: Mapping[JobState | None, Mapping[PartyJobEvent, JobState]] = {
        None: {event.ASKED: state.WAITING, event.AGREED: state.AGREED},
        state.WAITING: {
            **going,
            event.ASKED: state.WAITING,
            event.AGREED: state.WAITING,
            event.WITHDRAWN: state.QUEUED,
        },
        state.AGREED: {
            **going,
            event.ASKED: state.WAITING,  # the current policy asks for approval
            event.AGREED: state.AGREED,
            event.PAUSED: state.AGREED,  # an attempt that never began here
            event.WITHDRAWN: state.QUEUED,
        },
        state.QUEUED: {
            **going,
            event.ASKED: state.WAITING,
            event.AGREED: state.AGREED,
            event.PAUSED: state.QUEUED,
            event.WITHDRAWN: state.QUEUED,
        },
        state.RUNNING: {
            **going,
            event.ASKED: state.RUNNING,  # a lost answer; it has begun with the owner's approval
            event.AGREED: state.RUNNING,
            event.PAUSED: state.PAUSED,
            event.WITHDRAWN: state.QUEUED,
            event.FINISHED: state.FINISHED,
        },
        state.PAUSED: {
            **going,
            event.ASKED: state.WAITING,
            event.AGREED: state.PAUSED,
            event.PAUSED: state.PAUSED,
            event.WITHDRAWN: state.QUEUED,
        },
        state.FAILED: {
            **going,
            event.ASKED: state.WAITING,
            event.AGREED: state.AGREED,  # open again: it counts in `jobs_open_max`
        },
        # Finished here, while another party has not received the result yet.
        state.FINISHED: {
            repeated: state.FINISHED
            for repeated in (event.ASKED, event.AGREED, event.BEGUN, event.FINISHED)
        },
        state.CANCELLED: {},
    }
    return {(old, event): new for old, moves in by_state.items() for event, new in moves.items()}


PARTY_TRANSITIONS = _transitions()  # all other transitions are refused
PARTY_END_ACTS = {  # a denial is logged as the act of its user
    PartyJobEvent.PAUSED: JobAct.PAUSED,
    PartyJobEvent.FAILED: JobAct.FAILED,
    PartyJobEvent.CANCELLED: JobAct.CANCELLED,
}


# How a coordinator may end an attempt.
_STOPS: Mapping[str, PartyJobEvent] = {
    JobState.PAUSED: PartyJobEvent.PAUSED,
    JobState.QUEUED: PartyJobEvent.WITHDRAWN,
    JobState.FAILED: PartyJobEvent.FAILED,
    JobState.CANCELLED: PartyJobEvent.CANCELLED,
}


def event_of_state(state: str) -> PartyJobEvent:
    """Return the event of a state that a coordinator names; a PeerError for another state."""
    if state not in _STOPS:
        raise PeerError(f"the coordinator puts a job into the state {state[:32]!r}")
    return _STOPS[state]


class PartyJobStates:
    """The states of the jobs in one party's store.

    All methods but `note_finish` belong to the event loop's thread.
    """

    def __init__(self, store: Store, party: str) -> None:
        """Pause the jobs that an earlier process left running."""
        self._store, self._party = store, party
        self.decisions = Decisions(store)
        self._moving = threading.Lock()  # held from reading a state until the next one is written
        # Ends of attempts that the store could not record.
        self._untold: dict[str, tuple[PartyJobEvent, FedboostError]] = {}
        for job in store.jobs(JobState.RUNNING):
            reason = "the party's daemon was restarted"
            paused = self._change_state(job.id, PartyJobEvent.PAUSED, reason)
            log_act(JobAct.PAUSED, paused, party, reason=reason)

    # Before a job runs

    def has_consent(self, id_: str, digest: bytes, *, asks: bool) -> bool:
        """Return whether a job may run: without `asks`, or once the owner approved this manifest.

        A PolicyError if the owner denied it.
        """
        decision = self.decisions.last_decision(id_, digest)
        if decision is not None and decision.verdict is Verdict.DENIED:
            raise PolicyError(self.denial_text(decision), party=self._party, job=id_)
        return decision is not None or not asks

    def note_proposal(self, id_: str, name: str, text: bytes, *, consents: bool) -> StoredJob:
        """Note that a job is proposed, for the first time or again; return it.

        A PeerError if it was proposed with another manifest before; a PolicyError if it is
        cancelled.
        """
        event = PartyJobEvent.AGREED if consents else PartyJobEvent.ASKED
        job = self._store.find(id_)
        if job is None:
            reason = "agreed to, not begun" if consents else ""
            job = self._store.add_job(
                id_, name, text, PARTY_TRANSITIONS[None, event], reason=reason
            )
            answer = "agreed" if consents else "waits for approval"
            log_act(JobAct.PROPOSED, job, self._party, answer=answer)
            return job
        if job.manifest_sha256 != manifest.manifest_sha256(text):
            raise PeerError("the coordinator proposed two different jobs under one name")
        if job.state is JobState.CANCELLED:
            raise PolicyError(job.reason, party=self._party, job=id_)
        if job.state is JobState.FAILED:
            self._store.keep_manifest(id_, text)  # deleted if nobody had agreed to it
        return self._change_state(id_, event)

    def approve(self, id_: str, user: str) -> StoredJob:
        """Note that the owner approves the job as proposed; refused once the job has ended."""
        self._note_decision(id_, Verdict.APPROVED, user, "")
        return self._store.job(id_)

    def deny(self, id_: str, user: str, reason: str) -> str:
        """Note that the owner denies the job for good; return the text that others read."""
        return self.denial_text(self._note_decision(id_, Verdict.DENIED, user, reason))

    def decision(self, job: StoredJob) -> Decision | None:
        """Return the owner's decision about a job."""
        return self.decisions.last_decision(job.id, job.manifest_sha256)

    def denial_text(self, decision: Decision) -> str:
        """Return the text about a denial that all parties of the job read."""
        why = f": {decision.reason}" if decision.reason else ""
        return f"{self._party}'s owner denied the job{why}"

    def _note_decision(self, id_: str, verdict: Verdict, user: str, reason: str) -> Decision:
        job = self._store.job(id_)
        if job.state in FINAL:
            raise ProtocolError(f"the job is {job.state}, nothing is left to decide", job=id_)
        decision = self.decisions.note(id_, job.manifest_sha256, verdict, user, reason)
        act = JobAct.APPROVED if verdict is Verdict.APPROVED else JobAct.DENIED
        log_act(act, job, self._party, user=user, reason=f": {reason}" if reason else "")
        return decision

    # While a job runs

    def note_begin(self, id_: str, attempt: int) -> None:
        """Make an attempt the current one; no restart uses its number again."""
        job = self._store.job(id_)
        if attempt <= job.attempt:
            raise ProtocolError(f"attempt {attempt} of the job is over", job=id_)
        self._state_after(job, PartyJobEvent.BEGUN)
        self._store.set_attempt(id_, attempt)
        begun = self._change_state(id_, PartyJobEvent.BEGUN)
        self._untold.pop(id_, None)
        log_act(JobAct.BEGAN, begun, self._party, attempt=attempt)

    def note_finish(self, id_: str, result: Mapping[str, Any] | None = None) -> None:
        """Note that the job has finished; only the guest has a result."""
        was = self._store.job(id_).state
        job = self._change_state(id_, PartyJobEvent.FINISHED, result=result)
        if was is not job.state:
            log_act(JobAct.FINISHED, job, self._party)

    def ends(self, id_: str, event: PartyJobEvent, reason: FedboostError) -> None:
        """Note why an attempt has ended; if the disk is full, `again` retries.

        Does nothing if the job's state allows no such end.
        """
        known = self._untold.pop(id_, None)
        try:
            was = self._store.job(id_).state
            if (was, event) not in PARTY_TRANSITIONS:
                return
            job = self._change_state(id_, event, reason.what, reason.where.get("party", ""))
        except StoreError as error:
            if known is None:
                text = "the store cannot record that %s is to %s; this is retried until it can: %s"
                log.error(text, id_, event, "; ".join(error.lines()))
            self._untold[id_] = event, reason
            return
        if event in PARTY_END_ACTS and job.state is not was:
            log_act(PARTY_END_ACTS[event], job, self._party, reason=short_reason(reason))

    def again(self) -> None:
        """Retry the ends that the store could not record."""
        for id_, (event, reason) in list(self._untold.items()):
            self.ends(id_, event, reason)

    @staticmethod
    def _state_after(job: StoredJob, event: PartyJobEvent) -> JobState:
        """Return the state after an event; a ProtocolError if the event may not happen."""
        after = PARTY_TRANSITIONS.get((job.state, event))
        if after is None:
            raise ProtocolError(f"a job that is {job.state.shown} cannot {event}", job=job.id)
        return after

    def _change_state(
        self,
        id_: str,
        event: PartyJobEvent,
        reason: str = "",
        waiting_for: str = "",
        result: Mapping[str, Any] | None = None,
    ) -> StoredJob:
        """Change the job's state by the table; write nothing if state and reason stay."""
        with self._moving:
            job = self._store.job(id_)
            after = self._state_after(job, event)
            if after is job.state and (job.state in FINAL or not reason):
                return job
            moved = self._store.move_to_state(
                id_, after, reason=reason, waiting_for=waiting_for, result=result
            )
            if after in OVER and not job.attempt and self.decision(job) is None:
                self._store.keep_manifest(id_, None)  # never agreed to, nothing was disclosed
            return moved
