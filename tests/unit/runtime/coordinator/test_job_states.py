"""How a coordinator's jobs move: the whole table, and what is written with each move."""

import pytest

from fedboost.ground.errors import JobError, PeerError, ProtocolError, StoreError, UnreachableError
from fedboost.runtime.coordinator.job_states import (
    COORDINATOR_TRANSITIONS,
    CoordinatorJobEvent,
    CoordinatorJobStates,
)
from fedboost.runtime.coordinator.journals import Journals
from fedboost.runtime.coordinator.walk import UnapprovedError
from fedboost.runtime.store.store import FINAL, JobState, Store

EVENT = CoordinatorJobEvent
WAY = {  # what happens to a job until it stands so
    JobState.QUEUED: (),
    JobState.WAITING: (EVENT.PROPOSED,),
    JobState.RUNNING: (EVENT.AGREED,),
    JobState.PAUSED: (EVENT.AGREED, EVENT.PAUSED),
    JobState.FAILED: (EVENT.FAILED,),
    JobState.CANCELLED: (EVENT.CANCELLED,),
    JobState.FINISHED: (EVENT.AGREED, EVENT.FINISHED),
}
RESULT = {"metrics": {"auc": 0.5}}


class Jobs:
    """One job at a coordinator."""

    def __init__(self, folder, *, auto_resume=True):
        self.store = Store(folder, "coordinator coord")
        self.journals = Journals(self.store)
        self.states = CoordinatorJobStates(self.store, self.journals, auto_resume=auto_resume)

    def happen(self, event, reason=None):
        """Lets it happen."""
        if event is EVENT.SUBMITTED:
            self.states.note_submitted("j1", "credit", b"manifest")
        elif event is EVENT.PROPOSED:
            self.states.note_proposed("j1")
        elif event is EVENT.ASKED:
            self.states.asked("j1", ["telco"])
        elif event is EVENT.QUEUED:
            self.states.note_queued("j1")
        elif event is EVENT.AGREED:
            self.states.note_agreed("j1", ["bank", "telco"])
        elif event is EVENT.RESUMED:
            self.states.note_resumed("j1")
        elif event is EVENT.FINISHED:
            self.states.finished("j1", RESULT)
        else:
            self.states.rests("j1", event, reason or PeerError("because", party="telco"))

    def at(self, state):
        """The job, once it stands so."""
        for event in (EVENT.SUBMITTED, *WAY[state]):
            self.happen(event)
        assert self.job.state is state
        return self

    @property
    def job(self):
        """The job as it is stored."""
        return self.store.job("j1")

    @property
    def states_told(self):
        """The states that the journal tells."""
        return [one.state for one in self.journals.states("j1")]


@pytest.fixture
def jobs(tmp_path):
    """A coordinator's jobs, none of them yet."""
    found = Jobs(tmp_path)
    yield found
    found.store.close()


@pytest.mark.parametrize("state", WAY)
@pytest.mark.parametrize("event", [one for one in EVENT if one is not EVENT.SUBMITTED])
def test_a_job_moves_as_the_table_says_and_never_otherwise(jobs, state, event):
    before = jobs.at(state).states_told
    after = COORDINATOR_TRANSITIONS.get((state, event))
    if after is None:
        with pytest.raises(ProtocolError, match=f"a job that is {state} cannot {event}"):
            jobs.happen(event)
        assert jobs.states_told == before
    else:
        jobs.happen(event)
        told = [] if event in (EVENT.RESUMED, EVENT.PROPOSED) else [after]
        assert jobs.states_told == [*before, *told]
    assert jobs.job.state is (after or state)
    assert (jobs.job.result == RESULT) == (jobs.job.state is JobState.FINISHED)


def test_no_coordinator_waits_for_a_beginning_that_it_makes_itself():
    assert JobState.AGREED not in {
        *COORDINATOR_TRANSITIONS.values(),
        *(old for old, _ in COORDINATOR_TRANSITIONS),
    }
    assert {old for old, _ in COORDINATOR_TRANSITIONS} == {None, *JobState} - FINAL - {
        JobState.AGREED
    }


@pytest.mark.parametrize(
    ("reason", "goes_on"),
    [(UnreachableError("gone"), True), (UnapprovedError("nobody"), False), (StoreError("full"), 0)],
)
def test_a_pause_by_absence_ends_by_itself_and_says_what_to_do(jobs, reason, goes_on):
    jobs.at(JobState.RUNNING).happen(EVENT.PAUSED, reason)
    [*_, paused] = jobs.journals.states("j1")
    assert paused.goes_on == bool(goes_on) == jobs.states.goes_on_alone(jobs.job)
    assert ("the job goes on by itself" in paused.reason.todo) == bool(goes_on)
    assert goes_on or "fedboost job resume j1" in paused.reason.todo


def test_what_was_under_way_when_the_coordinator_ended_is_paused(tmp_path, jobs):
    jobs.at(JobState.RUNNING).store.close()
    again = Jobs(tmp_path)
    assert (again.job.state, again.job.reason) == (
        JobState.PAUSED, "the coordinator was restarted",
    )  # fmt: skip
    assert again.states.goes_on_alone(again.job)
    again.store.close()


@pytest.mark.parametrize("state", [JobState.QUEUED, JobState.WAITING])
def test_what_has_not_begun_when_the_coordinator_ended_stays_as_it_is(tmp_path, jobs, state):
    jobs.at(state).store.close()
    again = Jobs(tmp_path)
    assert (again.job.state, again.states_told) == (state, [])
    again.store.close()
    by_hand = Jobs(tmp_path, auto_resume=False)
    assert (by_hand.job.state, by_hand.states_told) == (JobState.PAUSED, [JobState.PAUSED])
    by_hand.store.close()


def test_the_journal_says_once_that_a_job_is_queued_and_the_store_whose_memory_it_waits_for(jobs):
    jobs.at(JobState.QUEUED).happen(EVENT.QUEUED)
    jobs.happen(EVENT.PROPOSED)
    jobs.happen(EVENT.QUEUED)
    assert (jobs.states_told, jobs.job.waiting_for) == ([JobState.QUEUED], "")
    jobs.states.note_queued("j1", "telco")
    assert (jobs.states_told, jobs.job.waiting_for) == ([JobState.QUEUED], "telco")


def test_a_job_that_is_over_is_neither_cancelled_nor_resumed(jobs):
    job = jobs.at(JobState.FINISHED).job
    with pytest.raises(JobError, match="the job is finished already"):
        jobs.states.check_cancel(job)
    with pytest.raises(JobError, match="the job is finished, there is nothing to resume"):
        jobs.states.check_resume(job)


def test_whose_return_a_job_waits_for_is_stored_with_its_state(jobs):
    jobs.at(JobState.PAUSED)
    assert (jobs.job.waiting_for, jobs.job.reason) == ("telco", "because")
    jobs.happen(EVENT.RESUMED)
    assert (jobs.job.waiting_for, jobs.job.reason) == ("", "")
