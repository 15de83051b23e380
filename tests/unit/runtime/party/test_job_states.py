"""How a party's jobs move: the whole table, and what owners decide about them."""

import hashlib
import logging

import pytest

from fedboost.ground.errors import (
    ConfigError,
    JobError,
    PeerError,
    PolicyError,
    ProtocolError,
    StoreError,
)
from fedboost.runtime.jobs import job_log
from fedboost.runtime.party.job.states import PARTY_TRANSITIONS, PartyJobEvent, PartyJobStates
from fedboost.runtime.policy.approval import Verdict
from fedboost.runtime.store.store import JobState, Store

TEXT = b"the manifest"
DIGEST = hashlib.sha256(TEXT).digest()
WAY = {  # what happens to a job until it stands so, of somebody that it asks but for AGREED
    JobState.AGREED: (),
    JobState.WAITING: (),
    JobState.QUEUED: (PartyJobEvent.WITHDRAWN,),
    JobState.RUNNING: (PartyJobEvent.BEGUN,),
    JobState.PAUSED: (PartyJobEvent.BEGUN, PartyJobEvent.PAUSED),
    JobState.FAILED: (PartyJobEvent.FAILED,),
    JobState.CANCELLED: (PartyJobEvent.CANCELLED,),
    JobState.FINISHED: (PartyJobEvent.BEGUN, PartyJobEvent.FINISHED),
}


@pytest.fixture
def store(tmp_path):
    """A party's store that lasts as long as the test."""
    with Store(tmp_path, "party bank") as found:
        yield found


def happen(states, store, event):
    """Lets it happen to the only job there is."""
    if event is PartyJobEvent.BEGUN:
        states.note_begin("j1", store.job("j1").attempt + 1)
    elif event is PartyJobEvent.FINISHED:
        states.note_finish("j1")
    elif event in (PartyJobEvent.ASKED, PartyJobEvent.AGREED):
        states.note_proposal("j1", "credit", TEXT, consents=event is PartyJobEvent.AGREED)
    else:
        states.ends("j1", event, JobError("because"))


def at(store, state):
    """A job that stands so."""
    states = PartyJobStates(store, "bank")
    states.note_proposal("j1", "credit", TEXT, consents=state is JobState.AGREED)
    for event in WAY[state]:
        happen(states, store, event)
    assert store.job("j1").state is state
    return states


@pytest.mark.parametrize("state", WAY)
@pytest.mark.parametrize("event", PartyJobEvent)
def test_a_job_moves_as_the_table_says_and_never_otherwise(store, state, event):
    states = at(store, state)
    before = store.job("j1")
    after = PARTY_TRANSITIONS.get((state, event))
    if after is None and event not in _ENDS:
        with pytest.raises((ProtocolError, PolicyError)):
            happen(states, store, event)
    else:
        happen(states, store, event)  # nothing, where no attempt could end so
    assert store.job("j1").state is (after or state)
    if after is None or (after is state and event not in _ENDS):
        assert store.job("j1").since == before.since


_ENDS = (
    PartyJobEvent.PAUSED, PartyJobEvent.WITHDRAWN, PartyJobEvent.FAILED, PartyJobEvent.CANCELLED,
    PartyJobEvent.DENIED,
)  # fmt: skip


def test_what_was_not_decided_about_this_manifest_is_not_decided(store):
    states = at(store, JobState.WAITING)
    other = hashlib.sha256(b"another manifest").digest()
    assert states.has_consent("j1", DIGEST, asks=False)
    assert not states.has_consent("j1", DIGEST, asks=True)
    states.approve("j1", "ana")
    assert states.has_consent("j1", DIGEST, asks=True)
    assert not states.has_consent("j1", other, asks=True)
    assert not states.has_consent("j2", DIGEST, asks=True)


@pytest.mark.parametrize("event", [PartyJobEvent.ASKED, PartyJobEvent.FAILED, PartyJobEvent.BEGUN])
def test_an_approval_is_no_state_and_outlives_all_of_them(store, event):
    states = at(store, JobState.WAITING)
    happen(states, store, event)
    assert not states.has_consent("j1", DIGEST, asks=True)
    states.approve("j1", "ana")
    assert PartyJobStates(store, "bank").has_consent("j1", DIGEST, asks=True)


def test_a_denial_counts_whatever_was_decided_before_and_says_who_when_and_why(store):
    states = at(store, JobState.WAITING)
    states.approve("j1", "ana")
    said = states.deny("j1", "olga", "too many columns")
    assert said == "bank's owner denied the job: too many columns"
    for asks in (True, False):
        with pytest.raises(PolicyError, match="denied the job: too many columns"):
            states.has_consent("j1", DIGEST, asks=asks)
    found = states.decision(store.job("j1"))
    assert (found.verdict, found.user, found.reason) == (Verdict.DENIED, "olga", "too many columns")
    assert found.at == pytest.approx(store.now(), abs=60)


@pytest.mark.parametrize("state", [JobState.FINISHED, JobState.CANCELLED])
def test_nothing_is_decided_about_a_job_that_is_over(store, state):
    states = at(store, state)
    with pytest.raises(ProtocolError, match="nothing is left to decide"):
        states.approve("j1", "ana")
    with pytest.raises(ProtocolError, match="nothing is left to decide"):
        states.deny("j1", "ana", "")
    assert states.decision(store.job("j1")) is None


def test_a_reason_that_is_too_long_is_refused_and_the_job_goes_on(store):
    states = at(store, JobState.WAITING)
    with pytest.raises(ConfigError, match="501 characters; 500 is the most"):
        states.deny("j1", "ana", "x" * 501)
    assert states.decision(store.job("j1")) is None


def test_the_end_of_an_attempt_is_one_line_of_the_log_with_its_reason(store, caplog):
    caplog.set_level(logging.INFO, logger=job_log.__name__)
    at(store, JobState.RUNNING)
    restarted = PartyJobStates(store, "bank")
    for reason in ("first", "second"):
        restarted.ends("j1", PartyJobEvent.PAUSED, JobError(reason, party="telco"))
    restarted.ends("j1", PartyJobEvent.FAILED, JobError("third", party="telco", row=7))
    assert [r.getMessage() for r in caplog.records][-2:] == [
        "job j1 is paused: the party's daemon was restarted",
        "job j1 failed: third (party telco)",
    ]
    assert not [r for r in caplog.records if r.levelno != logging.INFO]


def test_another_manifest_under_the_same_name_is_refused(store):
    states = at(store, JobState.WAITING)
    with pytest.raises(PeerError, match="two different jobs"):
        states.note_proposal("j1", "credit", b"another manifest", consents=True)


def test_a_damaged_decision_opens_no_store(store, tmp_path):
    states = at(store, JobState.WAITING)
    states.deny("j1", "ana", "no")
    with store.transaction() as sql:
        sql.execute("DROP TRIGGER decisions_update")
        sql.execute("UPDATE decisions SET verdict = 'approved'")
    with pytest.raises(StoreError, match="damaged"):
        states.has_consent("j1", DIGEST, asks=True)
    store.close()
    with pytest.raises(StoreError, match="damaged"):
        Store(tmp_path, "party bank")
