"""The coordinator's hand over parties that answer, refuse or are gone, without a network."""

import asyncio

import pytest

from fedboost import flow, protocols
from fedboost.errors import JobError, PeerError, UnreachableError
from fedboost.flow import EVERYBODY, GUEST, HOST, Keeps, Step
from fedboost.messages import job_pb2, party_pb2
from fedboost.messages.job_pb2 import Event, PartyLost, StageDone, StepCost, Told
from fedboost.messages.party_pb2 import StepReply, TurnReply
from fedboost.messages.protocol.echo_pb2 import Answer, Call
from fedboost.runtime import local, stage
from fedboost.runtime.config import Timers
from fedboost.runtime.manifest import Manifest, Member
from fedboost.runtime.stage import COMMIT_S, StageWalk
from fedboost.runtime.walker import JobWalk
from fedboost.settings import parse
from tests.federated import job_spec, now

BANK, HOSTS, ADDER = "bank", ("telco", "shop", "mill"), "sum"
PARTIES = (BANK, *HOSTS)
STAGE = "federboost-horizontal"

SPEAK = Step("speak", GUEST, gives=Call)
ANSWER = Step("answer", HOST, takes=Call, gives=Answer)
COUNT = Step("count", EVERYBODY)
LISTEN = Step("listen", EVERYBODY, hears=EVERYBODY)


class FakeControl:
    """A party that does whatever it is asked for, and remembers it; `fails` is raised instead."""

    def __init__(self, party):
        self.party = party
        self.calls = []
        self.commits = []
        self.fails = None
        self.ends = ""
        self.kept: tuple[int, ...] = ()  # rounds of its checkpoints
        self.opened = -1  # the round at which the stage was opened

    async def run_step(self, call):
        """Every step costs a second of work and sends ten bytes to the bank."""
        self.calls.append(call)
        if self.fails is not None:
            raise self.fails
        turns = []
        for _ in call.turns:
            cost = StepCost(party=self.party, seconds=1.0, cpu_seconds=1.0)
            cost.sent.add(peer=BANK, bytes=10, messages=1)
            turns.append(TurnReply(told=Told(ends=self.ends), cost=cost))
        return StepReply(turns=turns)

    async def commit(self, request):
        """Keeps a round."""
        if self.fails is not None:
            raise self.fails
        self.commits.append(request.round)
        return party_pb2.CommitReply()

    async def propose(self, _):
        """Agrees."""
        return party_pb2.Agreement(signature=self.party.encode())

    async def begin(self, _):
        """Says which rounds it has kept."""
        kept = [party_pb2.Kept(stage=STAGE, round=number) for number in self.kept]
        return party_pb2.BeginReply(kept=kept)

    async def open_stage(self, request):
        """Opens at a round."""
        self.opened = request.round
        return party_pb2.StageReply()

    async def close_stage(self, _):
        """Closes."""
        return party_pb2.StageReply()

    async def finish(self, _):
        """Nothing is left."""
        return party_pb2.FinishReply()

    async def stop(self, _):
        """Hears of the end."""
        return party_pb2.StopReply()


def walk_of(aggregator=ADDER, events=(), walk=None):
    """A job at its first attempt; `walk` stands for the protocol's own."""
    spec = job_spec(STAGE, PARTIES, data={p: {"label": "y"} for p in PARTIES},
                    params={"n_estimators": 3})  # fmt: skip
    parties = spec.parties.model_copy(update={"aggregator": aggregator})
    spec = spec.model_copy(update={"parties": parties})
    protocol = protocols.named(STAGE)
    if walk is not None:
        protocol = flow.Protocol(**{**vars_of(protocol), "walk": walk})
    table = parties.table()
    terms = Manifest(
        job="job-1",
        coordinator=local.COORDINATOR,
        submitter="ann",
        spec=spec,
        members=[Member(name=p, certificate="none") for p in table.of(tuple(flow.Role))],
    )
    journal = job_pb2.JobJournal(events=events)
    emitted: list[Event] = []
    job = JobWalk(
        terms=terms,
        attempt=1,
        params=parse(protocol.params, spec.params, section="params"),
        protocol=protocol,
        protocols={STAGE: protocol},
        controls={p: FakeControl(p) for p in table.of(tuple(flow.Role))},
        emit=emitted.append,
        journal=lambda: journal,
        timers=Timers(),
    )
    return job, StageWalk(job, protocol, 0), emitted


def vars_of(protocol):
    """The fields of a protocol."""
    return {name: getattr(protocol, name) for name in flow.Protocol.__dataclass_fields__}


def gone(party):
    return UnreachableError(f"{party} is not there", party=party)


def calls_of(job, party):
    return job.controls[party].calls


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

    async def looking(call):
        seen.update({p: w.step for p, w in job.waiting.items()})
        return StepReply(turns=[TurnReply() for _ in call.turns])

    job.controls["shop"].run_step = looking
    now(run(*(SPEAK, ANSWER) * 2))
    assert seen["shop"] == "speak, answer"
    assert job.waiting == {}


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


def test_a_later_attempt_does_without_who_was_lost_for_good():
    events = [
        Event(lost=PartyLost(party="shop", stage=STAGE, round=2)),
        Event(stage=StageDone(stage="align", seconds=4.0)),
    ]
    job, run, _ = walk_of(events=events)
    job.recall()
    assert job.everybody == (BANK, "telco", "mill", ADDER)
    assert job.lost == ["shop"]
    assert job.stage_seconds == {"align": 4.0}
    now(run(COUNT))
    assert list(calls_of(job, BANK)[0].among) == ["telco", "mill"]
    assert calls_of(job, "shop") == []


# Rounds and checkpoints


class Clock:
    """A clock that a test moves."""

    def __init__(self):
        self.now = 100.0

    def monotonic(self):
        """The time it was set to."""
        return self.now


@pytest.fixture
def clock(monkeypatch):
    """The coordinator's clock while it walks."""
    made = Clock()
    monkeypatch.setattr(stage, "time", made)
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


def test_a_cancelled_walk_waits_for_nobody():
    job, run, _ = walk_of()

    async def never(_):
        await asyncio.Event().wait()

    job.controls["shop"].run_step = never

    async def cancelled():
        walking = asyncio.create_task(run(COUNT, spares=True))
        await asyncio.sleep(0)
        walking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await walking

    now(cancelled())
    assert job.waiting == {}
