"""What a coordinator reads again and again of its journals: each event is made once of its row."""

import asyncio
from contextlib import closing
from dataclasses import replace

import pytest

from fedboost.messages.job_pb2 import (
    Event,
    PartyLost,
    Progress,
    RoundDone,
    StateChanged,
    StepDone,
    Warned,
)
from fedboost.runtime.coordinator import journals
from fedboost.runtime.coordinator.journals import status_at_rest
from fedboost.runtime.store.outlines import encode_outline
from fedboost.runtime.store.store import JobState, Store
from tests.support.walks import walk_of


@pytest.fixture
def store(tmp_path):
    with closing(Store(tmp_path, "coordinator coord")) as made:
        made.add_job("credit-1", "credit", b"{}", JobState.WAITING)
        yield made


def test_each_event_is_read_once(store):
    kept = journals.Journals(store)
    kept.add("credit-1", Event(state=StateChanged(state="running")))
    kept.add("credit-1", Event(lost=PartyLost(party="shop")))
    assert [event.number for event in kept.events("credit-1")] == [1, 2]
    assert [state.state for state in kept.states("credit-1")] == ["running"]
    assert kept.lost_hosts("credit-1") == ["shop"]
    first, second = kept.events("credit-1")
    assert kept.events("credit-1")[0] is first
    assert kept.events("credit-1", after=1)[0] is second


def test_no_more_events_are_kept_as_they_were_read_than_so_many(store, monkeypatch):
    monkeypatch.setattr(journals, "READ_MAX", 2)
    kept = journals.Journals(store)
    kept.add("credit-1", *(Event(lost=PartyLost(party=f"p{n}")) for n in range(5)))
    assert kept.lost_hosts("credit-1") == [f"p{n}" for n in range(5)] == kept.lost_hosts("credit-1")
    assert len(kept._read) <= 2


def test_the_status_of_a_job_that_rests_needs_few_of_its_events(store):
    kept = journals.Journals(store)
    for done in range(1, 51):
        kept.add("credit-1", *(Event(step=StepDone(step=f"step_{n}")) for n in range(9)))
        progress = Progress(round="tree", done=done, of=50)
        kept.add("credit-1", Event(round=RoundDone(progress=progress)))
    kept.add("credit-1", Event(warned=Warned(warning="a column is constant")))
    store.move_to_state("credit-1", JobState.FINISHED, event={"state": {"state": "finished"}})
    job = replace(store.job("credit-1"), outline=encode_outline(walk_of()[0].terms.encode()))
    quick = status_at_rest(job, kept.status_events(job))
    assert len(kept._read) == 2
    assert quick == status_at_rest(job, kept.events("credit-1"))
    assert (quick.progress.done, list(quick.warnings)) == (50, ["a column is constant"])


def test_a_journal_is_read_by_pages_in_order(store, monkeypatch):
    monkeypatch.setattr(journals, "PAGE_EVENTS", 3)
    kept = journals.Journals(store)
    kept.add("credit-1", *(Event(lost=PartyLost(party=f"p{n}")) for n in range(7)))

    async def read():
        return [event.number async for event in kept.pages("credit-1", after=1)]

    assert asyncio.run(read()) == [2, 3, 4, 5, 6, 7]
