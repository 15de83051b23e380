"""Statuses of jobs that no process drives, and which jobs parties have open already."""

from dataclasses import replace

import pytest

from fedboost.ground.errors import PeerError
from fedboost.messages.job_pb2 import Event, Progress, RoundDone
from fedboost.runtime.coordinator.driven_jobs import DrivenJob, JobStatuses
from fedboost.runtime.coordinator.job_queue import JobQueue
from fedboost.runtime.coordinator.job_states import CoordinatorJobEvent, CoordinatorJobStates
from fedboost.runtime.coordinator.journals import Journals
from fedboost.runtime.coordinator.party_gates import PartyGates
from fedboost.runtime.store.store import JobState, Store
from fedboost.runtime.transport.addresses import Timers
from tests.support.walks import walk_of


def unasked(party):
    """A link to a party that is never asked."""
    raise AssertionError(party)


@pytest.fixture
def store(tmp_path):
    """A coordinator's store that lasts as long as the test."""
    with Store(tmp_path, "coordinator coord") as found:
        yield found


async def test_events_of_jobs_at_rest_are_read_once(store, monkeypatch):
    journals = Journals(store)
    states = CoordinatorJobStates(store, journals, auto_resume=True)
    states.note_submitted("j1", "credit", walk_of()[0].terms.encode())
    states.note_agreed("j1", ["bank"])
    journals.add("j1", Event(round=RoundDone(progress=Progress(round="tree", done=7, of=9))))
    states.rests("j1", CoordinatorJobEvent.FAILED, PeerError("because"))
    queue = JobQueue(1, PartyGates(unasked, Timers()), "coord")
    statuses = JobStatuses(store, journals, queue, {})
    read: list[str] = []
    events_of = store.events_of

    def noted(job, kind, **how):
        read.append(kind)
        return events_of(job, kind, **how)

    monkeypatch.setattr(store, "events_of", noted)

    async def status():
        read.clear()
        [found] = await statuses.of_all()
        return found, len(read)

    first, reads = await status()
    assert (first.progress.done, first.reason.what) == (7, "because")
    assert first == statuses.of(store.job("j1"))
    assert reads == 3
    assert await status() == (first, 0)
    states.note_resumed("j1")
    again, reads = await status()
    assert (again.state, again.HasField("reason"), reads) == ("queued", False, 2)


@pytest.mark.parametrize(
    ("state", "attempt", "waiting_for", "is_asked", "is_open"),
    [
        (JobState.QUEUED, 0, "", False, False),
        (JobState.QUEUED, 0, "telco", True, True),  # all have agreed, telco has no memory
        (JobState.QUEUED, 1, "", False, True),
        (JobState.WAITING, 0, "", True, True),
        (JobState.PAUSED, 1, "telco", False, True),
        (JobState.PAUSED, 0, "telco", False, False),
    ],
)
def test_what_its_parties_know_of_a_job_follows_from_its_state(
    store, state, attempt, waiting_for, is_asked, is_open
):
    job = store.add_job("j1", "credit", walk_of()[0].terms.encode(), JobState.QUEUED)
    driven = DrivenJob.of(replace(job, state=state, attempt=attempt, waiting_for=waiting_for))
    assert (driven.is_asked, driven.job.is_open, driven.job.had_place) == (
        is_asked, is_open, is_open,
    )  # fmt: skip
    assert (driven.contact_in_s() is None) == is_open
    assert "telco" in driven.job.parties
    assert "telco" not in DrivenJob.of(job, ["telco"]).job.parties
