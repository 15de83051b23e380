"""Which rounds parties keep, and where a later attempt begins."""

import pytest

from fedboost.errors import JobError
from fedboost.flow import Keeps
from fedboost.messages.job_pb2 import Event, PartyLost
from fedboost.runtime import stage
from fedboost.runtime.stage import COMMIT_S
from tests.federated import now
from tests.walks import BANK, COUNT, PARTIES, STAGE, calls_of, walk_of

# Rounds and checkpoints


class Clock:
    """A clock that a test moves."""

    def __init__(self):
        self.now = 100.0


@pytest.fixture
def clock(monkeypatch):
    """The coordinator's clock while it walks."""
    made = Clock()
    monkeypatch.setattr(stage, "now", lambda: made.now)
    return made


def walked(run, rounds, clock, keeps, took=0.0):
    """Walks a loop of so many rounds that take `took` seconds each; gives those that were kept."""
    run.committed = clock.now

    async def walk():
        for _ in run.rounds("tree", rounds, keeps=keeps):
            await run(COUNT)
            clock.now += took
        await run.commit()

    now(walk())
    return run.job.controls[BANK].commits


def test_every_round_is_kept_by_every_party(clock):
    job, run, _ = walk_of()
    assert walked(run, 3, clock, Keeps.EACH) == [1, 2, 3]
    assert all(control.commits == [1, 2, 3] for control in job.controls.values())


def test_short_rounds_are_kept_about_once_a_second(clock):
    _, run, events = walk_of()
    kept = walked(run, 10, clock, Keeps.NOW_AND_THEN, took=0.4 * COMMIT_S)
    assert kept == [3, 6, 9]
    done = [e.round.progress.done for e in events if e.WhichOneof("what") == "round"]
    assert done == list(range(1, 11))


def test_long_rounds_are_kept_each_also_now_and_then(clock):
    _, run, _ = walk_of()
    assert walked(run, 3, clock, Keeps.NOW_AND_THEN, took=1.1 * COMMIT_S) == [1, 2, 3]


def test_a_loop_that_keeps_nothing_shows_no_progress_and_the_next_one_is_the_outermost(clock):
    _, run, events = walk_of()
    assert walked(run, 4, clock, Keeps.NOTHING, took=5.0) == []
    assert not [e for e in events if e.WhichOneof("what") == "round"]
    assert run.finished == 0
    assert walked(run, 2, clock, Keeps.EACH) == [1, 2]


def test_a_resumed_stage_begins_behind_what_was_kept_but_for_what_keeps_nothing(clock):
    _, run, _ = walk_of()
    run.first_round = 2
    assert run.is_resumed
    assert list(run.rounds("quantiles", 3, keeps=Keeps.NOTHING)) == [0, 1, 2]
    assert list(run.rounds("tree", 4)) == [2, 3]


def test_a_partys_word_ends_the_loop_that_it_names(clock):
    job, run, _ = walk_of()

    async def walk():
        for index in run.rounds("tree", 9):
            for _ in run.rounds("layer", 9):
                await run(COUNT)
                job.controls[BANK].ends = "tree" if index == 1 else "layer"
                await run(COUNT)
        await run.commit()

    now(walk())
    assert job.controls[BANK].commits == [1, 2]
    assert run.ended == ""


# Attempts


def small_walk(seen):
    async def walk(run):
        for index in run.rounds("tree", 3):
            seen.append(index)
            await run(COUNT, spares=True)

    return walk


@pytest.mark.parametrize(
    ("kept", "first"), [({}, 0), (dict.fromkeys(PARTIES, (1, 2)), 0), ({"*": (1, 2)}, 2)]
)
def test_an_attempt_begins_where_all_parties_stood(kept, first):
    seen: list[int] = []
    job, _, _ = walk_of(walk=small_walk(seen))
    for party, control in job.controls.items():
        control.kept = kept.get("*", kept.get(party, ()))
    now(job.run())
    assert seen == list(range(first, 3))
    assert {control.opened for control in job.controls.values()} == {first}


def test_a_host_that_was_lost_does_not_hold_up_where_the_others_stood():
    seen: list[int] = []
    events = [Event(lost=PartyLost(party="shop", stage=STAGE, round=2))]
    job, _, _ = walk_of(walk=small_walk(seen), events=events)
    for party, control in job.controls.items():
        control.kept = () if party == "shop" else (1, 2)
    result = now(job.run())
    assert seen == [2]
    assert result["lost"] == ["shop"]
    assert calls_of(job, "shop") == []


def test_a_host_lost_before_anything_was_kept_cannot_be_done_without():
    events = [Event(lost=PartyLost(party="shop", stage=STAGE))]
    job, _, _ = walk_of(walk=small_walk([]), events=events)
    with pytest.raises(JobError, match="shop was lost before the others had kept a round"):
        now(job.run())
