"""The states of a coordinator's jobs: the table of transitions and all code that changes a state.

A transition and its event in the journal are written together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any

from fedboost.ground.errors import FedboostError, JobError, ProtocolError, UnreachableError
from fedboost.messages.job_pb2 import Event, StateChanged
from fedboost.runtime.coordinator.journals import Journals, as_dict
from fedboost.runtime.coordinator.walk import UnapprovedError
from fedboost.runtime.jobs.job_log import JobAct, log_act, short_reason
from fedboost.runtime.store.store import JobState, Store, StoredJob
from fedboost.runtime.transport import faults


class CoordinatorJobEvent(StrEnum):
    """An event that changes a job's state at the coordinator."""

    SUBMITTED = "be submitted"
    QUEUED = "queue"  # it has no place, or a party has none for it or cannot be reached
    PROPOSED = "be proposed"  # it has a place, and its parties are asked
    ASKED = "wait for approval"  # a party's owner has to approve it first
    AGREED = "begin"  # every party has agreed
    RESUMED = "go on"  # another attempt at a job at rest
    PAUSED = "pause"
    FAILED = "fail"
    CANCELLED = "be cancelled"
    FINISHED = "finish"


def _transitions() -> Mapping[tuple[JobState | None, CoordinatorJobEvent], JobState]:
    state, event = JobState, CoordinatorJobEvent
    driven = {  # transitions of a job that is not at rest
        event.QUEUED: state.QUEUED,
        event.PAUSED: state.PAUSED,
        event.FAILED: state.FAILED,
        event.CANCELLED: state.CANCELLED,
    }
    unbegun = {**driven, event.PROPOSED: state.WAITING, event.AGREED: state.RUNNING}
    resting = {event.RESUMED: state.QUEUED, event.CANCELLED: state.CANCELLED}
    by_state: Mapping[JobState | None, Mapping[CoordinatorJobEvent, JobState]] = {
        None: {event.SUBMITTED: state.QUEUED},
        state.QUEUED: unbegun,
        state.WAITING: {**unbegun, event.ASKED: state.WAITING},
        state.RUNNING: {**driven, event.FINISHED: state.FINISHED},
        state.PAUSED: {**resting, event.FAILED: state.FAILED},  # it cannot go on by itself
        state.FAILED: resting,
        state.FINISHED: {},
        state.CANCELLED: {},
    }
    return {(old, event): new for old, moves in by_state.items() for event, new in moves.items()}


COORDINATOR_TRANSITIONS = _transitions()  # all other transitions are refused
COORDINATOR_END_ACTS = {
    CoordinatorJobEvent.PAUSED: JobAct.PAUSED,
    CoordinatorJobEvent.FAILED: JobAct.FAILED,
    CoordinatorJobEvent.CANCELLED: JobAct.CANCELLED,
}


class CoordinatorJobStates:
    """The states of the jobs in a coordinator's store.

    All methods belong to the event loop's thread.
    """

    def __init__(self, store: Store, journals: Journals, *, auto_resume: bool) -> None:
        """Pause the jobs that an earlier process left running; queued ones stay queued.

        Without `auto_resume` those that have not begun are paused too: a user decides about them.
        """
        self._store, self._journals, self._auto_resume = store, journals, auto_resume
        unbegun = () if auto_resume else (JobState.QUEUED, JobState.WAITING)
        for job in store.jobs(JobState.RUNNING, *unbegun):
            reason = UnreachableError("the coordinator was restarted", todo="")
            self.rests(job.id, CoordinatorJobEvent.PAUSED, reason)

    def note_submitted(self, id_: str, name: str, text: bytes) -> StoredJob:
        """Add a new job with its manifest."""
        job = self._store.add_job(
            id_, name, text, COORDINATOR_TRANSITIONS[None, CoordinatorJobEvent.SUBMITTED]
        )
        log_act(JobAct.SUBMITTED, job)
        return job

    def asked(self, id_: str, parties: Sequence[str]) -> None:
        """Note that the owners of these parties have to approve the job."""
        self._change_state(id_, CoordinatorJobEvent.ASKED, StateChanged(parties=parties))

    def note_proposed(self, id_: str) -> None:
        """Note that the job has a place and its parties are asked."""
        self._change_state(id_, CoordinatorJobEvent.PROPOSED)

    def note_queued(self, id_: str, party: str = "") -> None:
        """Note that the job waits for its turn, or agreed to for memory at `party`.

        The journal has one event of it, however often the job is proposed in vain.
        """
        states = self._journals.states(id_)
        is_known = bool(states) and states[-1].state == JobState.QUEUED
        changed = None if is_known else StateChanged()
        self._change_state(id_, CoordinatorJobEvent.QUEUED, changed, waiting_for=party)

    def note_agreed(self, id_: str, parties: Sequence[str]) -> None:
        """Note that all these parties have agreed and an attempt begins."""
        job = self._change_state(id_, CoordinatorJobEvent.AGREED, StateChanged(parties=parties))
        log_act(JobAct.BEGAN, job, attempt=job.attempt)

    def note_resumed(self, id_: str) -> None:
        """Note another attempt at a job that is paused or has failed."""
        self._change_state(id_, CoordinatorJobEvent.RESUMED)

    def rests(self, id_: str, event: CoordinatorJobEvent, reason: FedboostError) -> StoredJob:
        """Note the end of an attempt or of the job: a pause, a failure or a cancellation.

        The reason goes to the journal. If the pause can end by itself, the event says so.
        """
        changed = StateChanged()
        if event is CoordinatorJobEvent.PAUSED:
            changed.goes_on = self.is_by_absence(reason)
            reason.todo = _advice_about(reason.todo, id_, alone=changed.goes_on)
        changed.reason.CopyFrom(faults.fault_of_error(reason))
        job = self._change_state(id_, event, changed)
        log_act(COORDINATOR_END_ACTS[event], job, reason=short_reason(reason))
        return job

    def finished(self, id_: str, result: Mapping[str, Any]) -> StoredJob:
        """Note that the job has finished with this result."""
        job = self._change_state(id_, CoordinatorJobEvent.FINISHED, StateChanged(), result)
        log_act(JobAct.FINISHED, job)
        return job

    @staticmethod
    def check_cancel(job: StoredJob) -> None:
        """Raise a JobError if the job cannot be cancelled."""
        if (job.state, CoordinatorJobEvent.CANCELLED) not in COORDINATOR_TRANSITIONS:
            raise JobError(
                f"the job is {job.state} already",
                job=job.id,
                todo="fedboost job status JOB says how it ended",
            )

    @staticmethod
    def check_resume(job: StoredJob) -> None:
        """Raise a JobError if the job cannot be resumed."""
        if (job.state, CoordinatorJobEvent.RESUMED) not in COORDINATOR_TRANSITIONS:
            raise JobError(
                f"the job is {job.state}, there is nothing to resume",
                job=job.id,
                todo="submit the job again",
            )

    def goes_on_alone(self, job: StoredJob) -> bool:
        """Return whether a job is paused and goes on by itself once lost parties are back."""
        states = self._journals.states(job.id)
        return job.state is JobState.PAUSED and bool(states) and states[-1].goes_on

    def is_by_absence(self, reason: FedboostError) -> bool:
        """Return whether a job stops only because a party is absent, which ends by itself."""
        absent = isinstance(reason, UnreachableError) and not isinstance(reason, UnapprovedError)
        return absent and self._auto_resume

    def _change_state(
        self,
        id_: str,
        event: CoordinatorJobEvent,
        changed: StateChanged | None = None,
        result: Mapping[str, Any] | None = None,
        waiting_for: str = "",
    ) -> StoredJob:
        """Change the job's state by the table, with an event if `changed` is given.

        A ProtocolError if the table has no such transition.
        """
        job = self._store.job(id_)
        after = COORDINATOR_TRANSITIONS.get((job.state, event))
        if after is None:
            raise ProtocolError(f"a job that is {job.state} cannot {event}", job=id_)
        if changed is None:
            return self._store.move_to_state(id_, after, waiting_for=waiting_for)
        changed.state = after
        told = Event(state=changed)
        job = self._store.move_to_state(
            id_,
            after,
            reason=changed.reason.what,
            waiting_for=waiting_for
            or next((w.value for w in changed.reason.where if w.key == "party"), ""),
            event=as_dict(told),
            result=result,
        )
        self._journals.tell_followers(id_, told)
        return job


def _advice_about(first: str, job: str, *, alone: bool) -> str:
    """Return the advice about a paused job; `first` is the advice of its reason."""
    resume, by_itself = f"fedboost job resume {job}", "goes on by itself when everybody is there"
    if "job resume" in first or by_itself in first:
        return first
    if not alone:
        return f"{first}; then: {resume}" if first else resume
    by_itself = f"the job {by_itself}"
    return f"{first}; {by_itself}, or: {resume}" if first else f"nothing, {by_itself}"
