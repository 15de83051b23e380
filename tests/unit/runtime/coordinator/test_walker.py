"""The coordinator's hand over parties that answer, refuse or are gone, without a network."""

import asyncio

import pytest

from fedboost import flow
from fedboost.flow import CheckpointPolicy, Step
from fedboost.ground.errors import PeerError, UnreachableError
from fedboost.messages.job_pb2 import Event, PartyLost, StageDone
from fedboost.messages.party_pb2 import StepReply, TurnReply
from fedboost.runtime.coordinator.walker import walk_job
from tests.support.federated import now
from tests.support.walks import (
    ADDER,
    ANSWER,
    BANK,
    COUNT,
    HOSTS,
    LISTEN,
    PARTIES,
    SPEAK,
    STAGE,
    calls_of,
    gone,
    walk_of,
)

# Several steps at once


def test_each_party_is_asked_once_for_all_its_steps_in_their_order():
    job, run, _ = walk_of()
    now(run(SPEAK, ANSWER, COUNT, SPEAK))
    turns = {p: [[(t.step, t.number) for t in c.turns] for c in calls_of(job, p)] for p in PARTIES}
    assert turns[BANK] == [[("speak", 1), ("count", 3), ("speak", 4)]]
    assert turns["shop"] == [[("answer", 2), ("count", 3)]]
    assert calls_of(job, ADDER) == []
    assert all(c.awaits and not c.spares and not c.among for c in calls_of(job, "mill"))
    now(run(COUNT))
    assert [t.number for t in calls_of(job, BANK)[-1].turns] == [5]
    assert not calls_of(job, BANK)[-1].awaits


def test_a_step_asked_for_many_times_is_one_event_with_all_its_costs():
    job, run, events = walk_of()
    now(run(*(SPEAK, ANSWER) * 3))
    steps = {e.step.step: e.step for e in events if e.WhichOneof("what") == "step"}
    assert set(steps) == {"speak", "answer"}
    assert steps["speak"].calls == steps["answer"].calls == 3
    assert [c.cpu_seconds for c in steps["speak"].costs] == [3.0]
    assert {c.party: c.sent[0].bytes for c in steps["answer"].costs} == dict.fromkeys(HOSTS, 30)
    assert job.exchanges == 6


def test_who_is_waited_for_is_told_with_the_names_of_all_steps():
    job, run, _ = walk_of()
    seen = {}

    async def looking(call, _):
        seen.update({p: w.step for p, w in job.waiting.items()})
        return StepReply(turns=[TurnReply() for _ in call.turns])

    job.controls["shop"].run_step = looking
    now(run(*(SPEAK, ANSWER) * 2))
    assert seen["shop"] == "speak, answer"
    assert job.waiting == {}


def waiting_on(job, wanted):
    """Whom the job waits for once each host has said whose messages it lacks, by `wanted`."""
    told, all_said = [], asyncio.Event()

    def says(party):
        async def run_step(_, hear):
            hear(StepReply(working=True, step="listen", waits_for=wanted.get(party, ())))
            told.append(party)
            if len(told) == len(HOSTS):
                told.extend((w.party, w.step) for w in job.waited_for)
                all_said.set()
            await all_said.wait()
            return StepReply(turns=[TurnReply()])

        return run_step

    for party in HOSTS:
        job.controls[party].run_step = says(party)
    return told


def test_a_party_that_waits_for_another_is_not_the_one_the_job_waits_for():
    job, run, _ = walk_of()
    told = waiting_on(job, {party: ["shop"] for party in HOSTS if party != "shop"})
    now(run(ANSWER))
    assert told[len(HOSTS) :] == [("shop", "listen")]
    assert job.held_up == {}


def test_parties_that_wait_for_one_another_are_all_waited_for():
    job, run, _ = walk_of()
    told = waiting_on(job, {party: [other for other in HOSTS if other != party] for party in HOSTS})
    now(run(ANSWER))
    assert {party for party, _ in told[len(HOSTS) :]} == set(HOSTS)


# Hosts that are gone


def test_without_the_walks_word_a_host_that_is_gone_ends_the_attempt():
    job, run, _ = walk_of()
    job.controls["shop"].fails = gone("shop")
    with pytest.raises(UnreachableError) as ended:
        now(run(COUNT))
    assert ended.value.where == {"party": "shop"}
    assert job.gone == set()


def test_with_it_the_others_go_on_and_hear_who_is_left():
    job, run, events = walk_of()
    job.controls["shop"].fails = gone("shop")
    now(run(COUNT, spares=True))
    assert job.gone == {"shop"}
    assert job.present == ("telco", "mill")
    assert job.everybody == (BANK, "telco", "mill", ADDER)
    before = len(calls_of(job, "shop"))
    now(run(COUNT))
    assert len(calls_of(job, "shop")) == before
    last = calls_of(job, BANK)[-1]
    assert list(last.among) == ["telco", "mill"]
    assert last.spares
    assert not [e for e in events if e.WhichOneof("what") == "lost"]


@pytest.mark.parametrize("party", [BANK, ADDER])
def test_neither_the_guest_nor_the_aggregator_is_ever_spared(party):
    job, run, _ = walk_of()
    job.controls[party].fails = gone(party)
    step = COUNT if party == BANK else Step("add", flow.AGGREGATOR)
    with pytest.raises(UnreachableError) as ended:
        now(run(step, spares=True))
    assert ended.value.where["party"] == party


def test_a_host_that_adds_up_is_not_spared():
    job, run, _ = walk_of(aggregator="shop")
    job.controls["shop"].fails = gone("shop")
    with pytest.raises(UnreachableError):
        now(run(COUNT, spares=True))


def test_who_waits_in_vain_for_another_is_not_taken_for_gone():
    job, run, _ = walk_of()
    job.controls["shop"].fails = UnreachableError("waited 5 s", party="mill")
    with pytest.raises(UnreachableError) as ended:
        now(run(COUNT, spares=True))
    assert ended.value.where["party"] == "mill"
    assert job.gone == set()


def test_a_refusal_is_never_passed_over():
    job, run, _ = walk_of()
    job.controls["shop"].fails = PeerError("it does not fit")
    with pytest.raises(PeerError) as ended:
        now(run(COUNT, spares=True))
    assert ended.value.where["party"] == "shop"


def test_a_job_without_hosts_is_none():
    job, run, _ = walk_of()
    for host in HOSTS:
        job.controls[host].fails = gone(host)
    with pytest.raises(UnreachableError, match="all hosts are gone"):
        now(run(COUNT, spares=True))


def test_a_host_is_lost_for_good_where_the_others_settle_something_without_it():
    job, run, events = walk_of()
    job.controls["shop"].fails = gone("shop")
    now(run(LISTEN, spares=True))  # the others were told that it is there
    assert job.lost == []
    now(run(LISTEN, spares=True))
    assert job.lost == ["shop"]
    now(run(LISTEN, spares=True))
    lost = [e.lost for e in events if e.WhichOneof("what") == "lost"]
    assert lost == [PartyLost(party="shop", stage=STAGE)]


def test_before_the_others_settle_something_without_a_host_they_keep_where_they_stand():
    job, run, _ = walk_of()

    async def walk():
        for _ in run.rounds("tree", 1):
            await run(COUNT, spares=True)
            for _ in run.rounds("layer", 3, keeps=CheckpointPolicy.NOW_AND_THEN):
                await run(LISTEN, spares=True)
                job.controls["shop"].fails = gone("shop")
                await run(COUNT, spares=True)

    now(walk())
    assert job.controls[BANK].commits == [(0, 1)], "nothing more once it was lost"
    assert job.lost == ["shop"]


def test_a_later_attempt_does_without_who_was_lost_for_good():
    events = [
        Event(lost=PartyLost(party="shop", stage=STAGE, round=2)),
        Event(stage=StageDone(stage="align", seconds=4.0)),
    ]
    job, run, _ = walk_of()
    job.recall(events)
    assert job.everybody == (BANK, "telco", "mill", ADDER)
    assert job.lost == ["shop"]
    assert job.stage_seconds == {"align": 4.0}
    now(run(COUNT))
    assert list(calls_of(job, BANK)[0].among) == ["telco", "mill"]
    assert calls_of(job, "shop") == []


async def test_a_cancelled_walk_waits_for_nobody():
    job, run, _ = walk_of()

    async def never(_):
        await asyncio.Event().wait()

    job.controls["shop"].run_step = never
    walking = asyncio.create_task(run(COUNT, spares=True))
    await asyncio.sleep(0)
    walking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await walking
    assert job.waiting == {}


# What a stage told


def stage_done(trees):
    done = StageDone(stage=STAGE)
    done.told.counts.add(name="trees", count=trees)
    return Event(stage=done)


def test_what_a_stage_told_is_journalled_before_any_party_closes_it():
    """Who has closed it does not walk it again; where an answer is lost nothing else would be."""

    async def walk(run):
        await run(COUNT)

    job, _, events = walk_of(walk=walk)

    async def lost(_):
        raise gone("shop")

    job.controls["shop"].close_stage = lost
    with pytest.raises(UnreachableError, match="shop"):
        now(walk_job(job))
    assert [e.stage.stage for e in events if e.HasField("stage")] == [STAGE]


def test_of_a_stage_that_was_walked_to_its_end_twice_the_last_words_count():
    job, _, _ = walk_of()
    job.recall([stage_done(2), stage_done(3)])
    assert [(count.name, count.count) for count in job.told.counts] == [("trees", 3)]
