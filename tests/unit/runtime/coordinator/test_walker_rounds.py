"""Which rounds parties keep, and where a later attempt begins."""

import json

import pytest

from fedboost.flow import LOOP, CheckpointPolicy
from fedboost.ground.errors import JobError
from fedboost.messages.job_pb2 import Event, PartyLost
from fedboost.protocols.federboost_horizontal.walk import ROOT_SUM
from fedboost.runtime.coordinator import stage
from fedboost.runtime.coordinator.walker import walk_job
from fedboost.runtime.transport.addresses import Timers
from tests.support.federated import now
from tests.support.walks import ADDER, BANK, COUNT, PARTIES, STAGE, FakeControl, calls_of, walk_of

KEEP_S = Timers().keep_s

# Rounds and checkpoints


class Clock:
    """A clock that a test moves."""

    def __init__(self):
        self.now = 100.0


@pytest.fixture
def clock(monkeypatch):
    """The coordinator's clock while it walks."""
    made = Clock()
    monkeypatch.setattr(stage, "monotonic_s", lambda: made.now)
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
    assert walked(run, 3, clock, CheckpointPolicy.EACH) == [1, 2, 3]
    assert all(control.commits == [1, 2, 3] for control in job.controls.values())


def test_short_rounds_are_kept_about_once_a_second(clock):
    _, run, events = walk_of()
    kept = walked(run, 10, clock, CheckpointPolicy.NOW_AND_THEN, took=0.4 * KEEP_S)
    assert kept == [3, 6, 9]
    done = [e.round.progress.done for e in events if e.WhichOneof("what") == "round"]
    assert done == list(range(1, 11))


def test_long_rounds_are_kept_each_also_now_and_then(clock):
    _, run, _ = walk_of()
    assert walked(run, 3, clock, CheckpointPolicy.NOW_AND_THEN, took=1.1 * KEEP_S) == [1, 2, 3]


def test_a_loop_that_keeps_nothing_shows_no_progress_and_the_next_one_is_the_outermost(clock):
    _, run, events = walk_of()
    assert walked(run, 4, clock, CheckpointPolicy.NOTHING, took=5.0) == []
    assert not [e for e in events if e.WhichOneof("what") == "round"]
    assert walked(run, 2, clock, CheckpointPolicy.EACH) == [1, 2]


def test_a_resumed_stage_begins_behind_what_was_kept_but_for_what_keeps_nothing(clock):
    _, run, _ = walk_of()
    run.place = (2,)
    assert run.is_resumed
    assert list(run.rounds("quantiles", 3, keeps=CheckpointPolicy.NOTHING)) == [0, 1, 2]
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


# Inside rounds


def grown(run, clock, took, *, ends=None):
    """Walks two rounds of two classes of three layers; gives what was kept and what was grown."""
    run.committed = clock.now
    layers = []

    async def walk():
        for tree in run.rounds("tree", 2):
            for number in run.rounds("class", 2):
                for layer in run.rounds("layer", 3, keeps=CheckpointPolicy.NOW_AND_THEN):
                    layers.append((tree, number, layer))
                    run.job.controls[BANK].ends = "layer" if (number, layer) == ends else ""
                    await run(COUNT)
                    clock.now += took
                run.job.controls[BANK].ends = ""
                await run(COUNT)
        await run.commit()

    now(walk())
    return run.job.controls[BANK].commits, layers


def test_every_slow_layer_is_kept_by_every_party(clock):
    job, run, _ = walk_of()
    kept, _ = grown(run, clock, KEEP_S)
    assert kept[:8] == [(0, 0, 1), (0, 0, 2), (0, 0, 3), (0, 1, 1), (0, 1, 2), (0, 1, 3), 1,
                        (1, 0, 1)]  # fmt: skip
    assert all(control.commits == kept for control in job.controls.values())


def test_of_quick_layers_one_a_second_is_kept(clock):
    _, run, _ = walk_of()
    assert grown(run, clock, 0.4 * KEEP_S)[0] == [(0, 0, 3), (0, 1, 3), 1, (1, 0, 3), (1, 1, 3), 2]
    _, run, _ = walk_of()
    assert grown(run, clock, 0.01 * KEEP_S)[0] == [1, 2]


def test_a_coordinator_that_keeps_as_often_as_it_can_keeps_each_layer_in_no_time(clock):
    job, run, _ = walk_of()
    job.timers = Timers(keep_s=0)
    assert len(grown(run, clock, 0.0)[0]) == 2 * 2 * 3 + 2


# Rounds that are asked for at once


class Paced(FakeControl):
    """A party that takes its time for each round of a loop."""

    def __init__(self, party, clock, took):
        super().__init__(party)
        self.clock, self.took = clock, took
        self.tells_rounds, self.told_of = False, 0

    async def run_step(self, call, hear=None):
        reply = await super().run_step(call, hear)
        if self.tells_rounds:
            for turn in reply.turns:
                self.told_of += 1
                turn.told.metrics.add(name="auc", value=self.told_of)
        self.clock.now += self.took * len(reply.turns)
        for turn in reply.turns:
            turn.cost.seconds = self.took
        return reply


def looped(clock, took, *, ends_after=None, most=6):
    """Walks two trees of a loop of layers; gives the walk, and how many turns each call had."""
    job, run, _ = walk_of()
    job.controls = {name: Paced(name, clock, took * (name == BANK)) for name in job.controls}
    bank = job.controls[BANK]
    run.committed = clock.now

    async def walk():
        for _ in run.rounds("tree", 2):
            bank.rounds, bank.ends = ends_after, "layer" if ends_after else ""
            await run.loop("layer", most, COUNT)
            bank.ends = ""
        await run.commit()

    now(walk())
    return run, [len(call.turns) for call in calls_of(job, BANK)]


def test_one_layer_is_asked_for_at_first_and_then_what_is_over_when_one_is_to_be_kept(clock):
    run, asked = looped(clock, 0.4 * KEEP_S)
    assert asked == [1, 2, 3, 3, 3]
    kept = run.job.controls[BANK].commits
    assert kept == [(0, 3), 1, (1, 3), 2]
    assert all(control.commits == kept for control in run.job.controls.values())


def test_slow_layers_are_asked_for_one_by_one_and_quick_ones_all_at_once(clock):
    assert looped(clock, KEEP_S)[1] == [1] * 12
    assert looped(clock, 0.01 * KEEP_S)[1] == [1, 5, 6]
    assert looped(clock, 0.0)[1] == [1, 5, 6]


def test_a_loop_says_whether_what_comes_first_was_done(clock):
    job, run, _ = walk_of()
    job.controls = {name: Paced(name, clock, 0.0) for name in job.controls}

    async def walk():
        has_begun = await run.loop("layer", 2, COUNT, first=(COUNT,))
        return has_begun, await run.loop("layer", 0, COUNT, first=(COUNT,))

    assert now(walk()) == (True, False)


def test_everybody_hears_that_a_loop_has_ended_which_asks_for_more(clock):
    run, asked = looped(clock, 0.01 * KEEP_S, ends_after=1)
    assert asked == [1, 6]  # the first call asked for one layer: nothing is left of it
    others = {name: own.ended for name, own in run.job.controls.items() if name != BANK}
    assert all(ended == [run.number] for name, ended in others.items() if name in PARTIES)
    assert run.job.controls[BANK].ended == []
    assert run.job.controls[BANK].commits == [1, 2]
    assert run.ended == ""


async def test_rounds_that_are_told_may_be_asked_for_at_once_the_first_walked_slowly(clock):
    job, run, events = walk_of()
    job.controls = {name: Paced(name, clock, 0.0) for name in job.controls}
    bank = job.controls[BANK]
    bank.took, bank.tells_rounds, run.committed = 0.2 * KEEP_S, True, clock.now
    slowly = []

    async def slow(_):
        slowly.append(run.counters[0])
        await run(COUNT)

    await run.loop("tree", 9, COUNT, slowly=slow)
    await run.commit()
    assert slowly == [0]
    assert [len(call.turns) for call in calls_of(job, BANK)] == [1, 4, 4]
    assert bank.commits == [5]
    told = [event.round for event in events if event.WhichOneof("what") == "round"]
    assert [one.progress.done for one in told] == list(range(1, 10))
    assert [[metric.value for metric in one.metrics] for one in told] == [[n] for n in range(1, 10)]
    assert all(one.seconds == pytest.approx(0.2 * KEEP_S) for one in told)


def test_what_the_first_step_of_a_round_tells_belongs_to_the_round_before(clock):
    job, run, events = walk_of()
    job.controls = {name: Paced(name, clock, 0.0) for name in job.controls}
    job.controls[BANK].tells_rounds = True
    now(run.loop("tree", 3, COUNT, around=((COUNT,), (COUNT,))))
    assert [len(call.turns) for call in calls_of(job, BANK)] == [3, 4]
    told = [event.round for event in events if event.WhichOneof("what") == "round"]
    assert [[metric.value for metric in one.metrics] for one in told] == [[3], [6], [7]]


def test_where_a_host_is_lost_what_others_give_alone_is_still_read():
    steps = ROOT_SUM.steps
    names = [step.name for step in steps]
    assert names == ["sum_histograms", "gather", "reveal_whole", "open_whole", "split_nodes"]
    reachable = [stage._reachable_steps(steps, done) for done in range(1, len(steps) + 1)]
    assert reachable == [1, 3, 3, 5, 5]


@pytest.mark.parametrize(("took", "kept"), [(0.9 * KEEP_S, [1, 2]), (KEEP_S, [LOOP, 1, 2])])
def test_what_rounds_stand_on_is_kept_before_them_where_it_took_its_time(clock, took, kept):
    _, run, _ = walk_of()
    run.committed = clock.now

    async def walk():
        for _ in run.rounds("quantiles", 3, keeps=CheckpointPolicy.NOTHING):
            await run(COUNT)
        clock.now += took
        run.keep()
        for _ in run.rounds("tree", 2):
            await run(COUNT)
        await run.commit()

    now(walk())
    assert run.job.controls[BANK].commits == kept


def test_a_resumed_stage_begins_with_the_first_round_where_what_it_stands_on_was_kept():
    _, run, _ = walk_of()
    run.place = LOOP
    assert run.is_resumed
    grown = [(tree, layer) for tree in run.rounds("tree", 2) for layer in run.rounds("layer", 2)]
    assert grown == [(0, 0), (0, 1), (1, 0), (1, 1)]


def test_a_resumed_stage_begins_behind_the_layer_that_was_kept(clock):
    _, run, _ = walk_of()
    run.place = (1, 0, 2)
    assert run.is_resumed
    kept, layers = grown(run, clock, KEEP_S)
    assert layers == [(1, 0, 2), (1, 1, 0), (1, 1, 1), (1, 1, 2)]
    assert kept == [(1, 0, 3), (1, 1, 1), (1, 1, 2), (1, 1, 3), 2]


def test_a_resumed_stage_behind_the_last_layer_grows_none_of_the_tree(clock):
    _, run, _ = walk_of()
    run.place = (0, 1, 3)
    assert grown(run, clock, 0.0)[1][0] == (1, 0, 0)


def test_a_party_may_say_that_the_loop_a_place_is_in_is_over(clock):
    _, run, _ = walk_of()
    run.place, run.ended = (0, 0, 1), "layer"
    assert grown(run, clock, 0.0)[1][:2] == [(0, 1, 0), (0, 1, 1)]


def test_a_layer_that_a_party_ends_the_loop_with_is_kept_as_well(clock):
    _, run, _ = walk_of()
    assert grown(run, clock, KEEP_S, ends=(0, 1))[0][:3] == [(0, 0, 1), (0, 0, 2), (0, 1, 1)]


# Attempts


def small_walk(seen):
    async def walk(run):
        for index in run.rounds("tree", 3):
            seen.append(index)
            await run(COUNT, spares=True)

    return walk


@pytest.mark.parametrize(
    ("kept", "first"),
    [
        ({}, 0),
        (dict.fromkeys(PARTIES, (1, 2)), 2),  # an aggregator keeps nothing
        ({"*": (1, 2)}, 2),
        ({"*": (1, (1, 0, 2)), "shop": ((1, 0, 1), (1, 0, 2))}, (1, 0, 2)),
        ({"*": (1, (1, 0, 2)), "shop": (1, (1, 0, 3))}, 1),
        ({"*": ((1, 0, 2), 2), "shop": (2, (2, 0, 1))}, 2),
    ],
)
def test_an_attempt_begins_where_all_parties_stood(kept, first):
    seen: list[int] = []
    job, _, _ = walk_of(walk=small_walk(seen))
    for party, control in job.controls.items():
        control.kept = kept.get(party, kept.get("*", ()))
    now(walk_job(job))
    assert seen == list(range(first if isinstance(first, int) else first[0], 3))
    assert {control.opened for control in job.controls.values()} == {first}


def test_a_host_that_was_lost_does_not_hold_up_where_the_others_stood():
    seen: list[int] = []
    events = [Event(lost=PartyLost(party="shop", stage=STAGE, round=2))]
    job, _, _ = walk_of(walk=small_walk(seen), events=events)
    job.recall(events)
    for party, control in job.controls.items():
        control.kept = () if party == "shop" else (1, 2)
    result = now(walk_job(job))
    assert seen == [2]
    assert result["lost"] == ["shop"]
    assert calls_of(job, "shop") == []


def test_a_host_that_does_not_hear_the_end_is_lost_and_the_guests_result_says_so():
    async def walk(run):
        await run(COUNT, spares=True)

    job, _, events = walk_of(walk=walk)
    job.controls["shop"].deaf = True
    result = now(walk_job(job))
    assert result["lost"] == ["shop"]
    assert json.loads(job.controls[BANK].heard)["lost"] == ["shop"]
    assert {job.controls[party].heard for party in ("telco", "mill", ADDER)} == {b"{}"}
    kinds = [event.WhichOneof("what") for event in events]
    assert kinds.index("lost") < kinds.index("finished")


def test_a_host_lost_before_anything_was_kept_cannot_be_done_without():
    events = [Event(lost=PartyLost(party="shop", stage=STAGE))]
    job, _, _ = walk_of(walk=small_walk([]), events=events)
    job.recall(events)
    with pytest.raises(JobError, match="shop was lost before the other parties had saved anything"):
        now(walk_job(job))
