"""What a coordinator reads again and again of its journals: each event is made once of its row."""

from contextlib import closing

import pytest

from fedboost.messages.job_pb2 import Event, PartyLost, StateChanged
from fedboost.runtime.coordinator import journals
from fedboost.runtime.store.store import JobState, Store


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
    assert kept.lost("credit-1") == ["shop"]
    first, second = kept.events("credit-1")
    assert kept.events("credit-1")[0] is first
    assert kept.events("credit-1", after=1)[0] is second


def test_no_more_events_are_kept_as_they_were_read_than_so_many(store, monkeypatch):
    monkeypatch.setattr(journals, "READ_MAX", 2)
    kept = journals.Journals(store)
    kept.add("credit-1", *(Event(lost=PartyLost(party=f"p{n}")) for n in range(5)))
    assert kept.lost("credit-1") == [f"p{n}" for n in range(5)] == kept.lost("credit-1")
    assert len(kept._read) <= 2
