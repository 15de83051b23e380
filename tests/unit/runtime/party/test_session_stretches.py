"""Several steps at one call, two roles of one party, and peers that are gone."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from fedboost.aggregation import aggregator, contributor
from fedboost.flow import Artefact
from fedboost.ground.errors import PeerError, ProtocolError, UnreachableError
from fedboost.messages.exchange_pb2 import Envelope
from fedboost.messages.party_pb2 import StepCall, Turn
from tests.support import conversations
from tests.support.federated import GUEST, HOSTS, Room, frame_of, now, resealed, room_for

TELCO, SHOP = HOSTS[:2]
ADDER = "sum"
PARTIES = conversations.PARTIES


def echo(**more):
    """A guest and two hosts; nothing has been said yet."""
    table = frame_of([b"a"], np.zeros((1, 1), np.float32))
    params = {"rounds": 3, "parts": 1, "numbers": 4}
    return room_for("echo", dict.fromkeys((GUEST, TELCO, SHOP), table), params, **more)


def several(*turns, **more):
    """Steps that are asked for at once, as (name, number)."""
    return StepCall(turns=[Turn(step=s, number=n) for s, n in turns], awaits=True, **more)


class AtOnce(Room):
    """A room whose stretches are asked for at once, as the coordinator does."""

    async def __call__(self, *steps, at=None, among=(), spares=False):
        """Asks every party for all its steps, and ends with the first refusal."""
        turns: dict[str, list[Turn]] = {}
        for step in steps:
            self.number += 1
            for party in (at,) if at else self.table.among(step.roles, among):
                turns.setdefault(party, []).append(Turn(step=step.name, number=self.number))
        common = StepCall(awaits=len(steps) > 1, among=among, spares=spares)
        calls = {party: StepCall(turns=own) for party, own in turns.items()}
        for call in calls.values():
            call.MergeFrom(common)
        tasks = [asyncio.create_task(self.sessions[p].run_step(c)) for p, c in calls.items()]
        try:
            replies = await asyncio.gather(*tasks)
        except Exception:
            for task in tasks:
                task.cancel()
            raise
        for reply in replies:
            for turn in reply.turns:
                self.told.append(turn.told)
                self.ended = turn.told.ends or self.ended


def at_once(room: Room, adder: str = ADDER) -> AtOnce:
    """The same room, asked for several steps at once; `adder` adds up."""
    table = replace(room.table, aggregator=adder)
    contexts = {
        p: replace(s, table=table) for p, s in room.contexts.items() if p in (*PARTIES, adder)
    }
    return AtOnce(room.protocol, contexts, room.wait_s)


# One call, several steps


async def test_steps_of_one_call_are_done_in_turn_as_their_messages_come():
    room = await echo().open()
    guest = asyncio.create_task(
        room.sessions[GUEST].run_step(several(("call", 1), ("compare", 3), ("call", 4)))
    )
    hosts = [
        asyncio.create_task(room.sessions[h].run_step(several(("answer", 2), ("answer", 5))))
        for h in (TELCO, SHOP)
    ]
    reply = await guest
    await asyncio.gather(*hosts)
    await room.sessions[GUEST].run_step(several(("compare", 6)))
    assert len(reply.turns) == 3
    assert [turn.cost.party for turn in reply.turns] == [GUEST] * 3
    assert [bool(turn.cost.sent) for turn in reply.turns] == [True, False, True]
    assert [p.envelope.number for p in room.posted if p.envelope.receiver == TELCO] == [1, 4]
    assert room.state(TELCO).answers == 2


async def test_a_party_that_works_says_at_which_step_it_is_and_who_keeps_it_waiting():
    room = await echo().open()
    guest = room.sessions[GUEST]
    asked = asyncio.create_task(guest.run_step(several(("call", 1), ("compare", 3))))
    await room.sessions[TELCO].run_step(several(("answer", 2)))
    while not guest.sign_of_life().waits_for:
        await asyncio.sleep(0)
    sign = guest.sign_of_life()
    assert (sign.working, sign.step, list(sign.waits_for)) == (True, "compare", [SHOP])
    await room.sessions[SHOP].run_step(several(("answer", 2)))
    await asked
    assert list(guest.sign_of_life().waits_for) == []


async def test_the_same_several_steps_again_get_the_same_answer():
    room = await echo().open()
    guest, call = room.sessions[GUEST], several(("call", 1), ("compare", 3))
    twice = [asyncio.create_task(guest.run_step(call)) for _ in range(2)]
    await asyncio.gather(*(room.sessions[h].run_step(several(("answer", 2)))
                           for h in (TELCO, SHOP)))  # fmt: skip
    first, second = await asyncio.gather(*twice)
    assert first is second
    assert await guest.run_step(call) is first
    assert room.state(GUEST).calls == 1


@pytest.mark.parametrize(
    "turns",
    [
        [("call", 2), ("compare", 2)],
        [("call", 3), ("compare", 2)],
        [("call", 0), ("compare", 0)],
        [],
    ],
)
async def test_numbers_that_do_not_rise_are_refused(turns):
    room = await echo().open()
    with pytest.raises(ProtocolError, match="out of turn"):
        await room.sessions[GUEST].run_step(several(*turns))
    assert room.posted == []


async def test_a_call_that_begins_before_the_last_one_ended_is_refused():
    room = await echo().open()
    guest = room.sessions[GUEST]
    under_way = asyncio.create_task(guest.run_step(several(("call", 1), ("compare", 5))))
    await asyncio.sleep(0)
    for turns in ([("compare", 6)], [("compare", 3)], [("call", 1)]):
        with pytest.raises(ProtocolError, match="out of turn"):
            await guest.run_step(several(*turns))
    await asyncio.gather(*(room.sessions[h].run_step(several(("answer", 2)))
                           for h in (TELCO, SHOP)))  # fmt: skip
    await under_way
    with pytest.raises(ProtocolError, match="out of turn"):
        await guest.run_step(several(("call", 4), ("compare", 7)))


async def test_a_step_that_may_not_follow_ends_the_call_at_its_place():
    room = await echo().open()
    with pytest.raises(ProtocolError, match="call may not come after call"):
        await room.sessions[GUEST].run_step(several(("call", 1), ("call", 2)))
    assert room.state(GUEST).calls == 1


async def test_whoever_is_late_within_a_stretch_is_named():
    room = await echo(wait_s=0.05).open()
    guest = asyncio.create_task(room.sessions[GUEST].run_step(several(("call", 1), ("compare", 3))))
    await room.sessions[TELCO].run_step(several(("answer", 2)))
    with pytest.raises(UnreachableError, match=f"from {SHOP}") as late:
        await guest
    assert late.value.where == {"party": SHOP, "step": "compare"}


async def test_a_step_alone_does_not_wait_for_what_should_be_there():
    room = await echo().open()
    guest = room.sessions[GUEST]
    await guest.run_step(several(("call", 1)))
    with pytest.raises(ProtocolError, match="none has arrived"):
        await guest.run_step(StepCall(turns=[Turn(step="compare", number=3)]))


# Two roles of one party, and long sums


def arrays_of(left: Mapping[str, Artefact]):
    """The model's arrays, the same for all but the aggregator."""
    found = [left[party].arrays for party in PARTIES]
    for own in found[1:]:
        assert all(np.array_equal(own[name], found[0][name]) for name in found[0])
    return found[0]


@pytest.fixture(scope="module")
def model():
    """What the parties learn from an aggregator that is none of them."""
    return arrays_of(now(conversations.federboost_horizontal().walk()))


@pytest.mark.once
@pytest.mark.parametrize("words", [2, 1 << 19])
@pytest.mark.parametrize("adder", [ADDER, GUEST, SHOP])
@pytest.mark.parametrize("dropout", ["wait", "continue"])
def test_whoever_adds_up_and_however_long_sums_are_the_model_is_the_same(
    dropout, adder, words, model, monkeypatch
):
    """With two words a part a party that adds up, too, has more parts than an inbox holds."""
    monkeypatch.setattr(contributor, "PART_WORDS", words)
    monkeypatch.setattr(aggregator, "PART_WORDS", words)
    room = at_once(conversations.federboost_horizontal(dropout=dropout), adder)
    found = arrays_of(now(room.walk()))
    assert set(found) == set(model)
    assert all(np.array_equal(found[name], model[name]) for name in model)


@pytest.mark.parametrize("adder", [GUEST, SHOP])
def test_what_a_party_tells_itself_is_in_no_ledger_and_costs_no_bytes(adder):
    room = at_once(conversations.federboost_horizontal(), adder)
    now(room.walk())
    assert not [p for p in room.posted if p.envelope.sender == p.envelope.receiver]
    assert adder not in room.sessions[adder].sent
    sums = sum(p.envelope.step == "add_up" for p in room.posted) // 2
    masked = [p for p in room.posted if p.envelope.kind.endswith(".Masked")]
    assert {p.envelope.receiver for p in masked} == {adder}
    assert len(masked) == 2 * sums
    own = [(direction, kind) for party, direction, kind in room.recorded if party == adder]
    assert own.count(("in", "fedboost.aggregation.Masked")) == 2 * sums
    assert ("out", "fedboost.aggregation.Masked") not in own
    assert own.count(("in", "fedboost.aggregation.Total")) == 0


def test_a_total_that_comes_before_its_reader_was_called_is_kept_for_it():
    """Who takes a total depends on the step that is called for."""
    room = conversations.dropout()
    now(room.walk())  # one step at a time: every total lies there before its reader is called
    assert sum(p.envelope.step == "open_total" for p in room.posted) == 6


# Peers that are gone


async def test_a_step_that_tolerates_takes_what_has_come():
    room = await conversations.dropout().until("sum_histograms")
    await room.call("sum_histograms", GUEST, SHOP)
    await room.call("keep_masked", ADDER)
    assert sorted(room.state(ADDER).kept) == [GUEST, SHOP]


async def test_a_step_that_does_not_names_whose_message_is_missing():
    room = await conversations.federboost_horizontal().until("add_up")
    room.sessions[ADDER]._inbox._waiting.pop(("fedboost.aggregation.Masked", TELCO))
    room.sessions[ADDER]._inbox._wait_s = 0.05
    with pytest.raises(UnreachableError, match=f"from {TELCO}") as late:
        await room.call("add_up", ADDER)
    assert late.value.where["party"] == TELCO


@pytest.mark.parametrize("among", [(TELCO, SHOP), (SHOP,), ()])
def test_a_step_that_hears_who_is_left_is_told_guest_first(among):
    async def run():
        room = await conversations.dropout().until("sign_survivors")
        left = [GUEST, *[h for h in (TELCO, SHOP) if h in among or not among]]
        if len(left) < 3:  # too few for the policy: nothing is signed
            with pytest.raises(UnreachableError, match="2 parties are left"):
                await room.call("sign_survivors", GUEST, among=among)
            return
        await room.call("sign_survivors", GUEST, among=among)
        told = [p for p in room.posted if p.envelope.step == "sign_survivors"]
        assert [list(p.message.parties) for p in told] == [left, left]

    now(run())


@pytest.mark.parametrize("spares", [True, False])
async def test_a_delivery_to_a_peer_that_is_gone_is_passed_over_only_where_the_walk_says_so(spares):
    room = await echo().open()
    deliver, reached = room.deliver, []

    async def without_telco(envelope, payload):
        if envelope.receiver == TELCO:
            raise UnreachableError("telco is not there", party=TELCO)
        reached.append(envelope.receiver)
        await deliver(envelope, payload)

    room.deliver = without_telco
    call = StepCall(turns=[Turn(step="call", number=1)], spares=spares)
    calling = room.sessions[GUEST].run_step(call)
    if spares:
        await calling
    else:
        with pytest.raises(UnreachableError) as gone:
            await calling
        assert gone.value.where["party"] == TELCO
    assert reached == [SHOP]
    assert room.sessions[GUEST].passed_over == ({TELCO} if spares else set())


async def test_a_refusal_is_passed_over_by_nobody():
    room = await echo().open()

    async def refused(_, __):
        raise PeerError("it does not fit")

    room.deliver = refused
    call = StepCall(turns=[Turn(step="call", number=1)], spares=True)
    with pytest.raises(PeerError, match="does not fit"):
        await room.sessions[GUEST].run_step(call)


async def test_a_vector_sent_twice_is_used_once_and_another_in_its_place_is_refused():
    room = await conversations.federboost_horizontal().until("add_up")
    [masked] = [p for p in room.posted if p.envelope.sender == TELCO
                and p.envelope.step == "count_rows"]  # fmt: skip
    adder = room.sessions[ADDER]
    assert await adder.accept(masked.envelope, masked.payload) is True
    other = resealed(masked.envelope, masked.payload[:-1] + b"x")
    with pytest.raises(PeerError, match="two different messages in one place"):
        await adder.accept(*other)
    await room.call("add_up", ADDER)
    assert await adder.accept(masked.envelope, masked.payload) is True
    again = Envelope()
    again.CopyFrom(masked.envelope)
    again.part = 1
    with pytest.raises(PeerError, match="a second"):
        await adder.accept(again, masked.payload)


def test_a_vector_of_an_earlier_sum_is_refused_as_a_later_one():
    """Under the envelope of the step that is due."""
    first = []

    def replayed(envelope, payload):
        if not envelope.kind.endswith(".Masked") or envelope.sender != TELCO:
            return envelope, payload
        first.append(payload)
        return resealed(envelope, first[0])

    with pytest.raises(PeerError, match=f"{TELCO} sent a vector of sum 1, 2 is due") as refused:
        now(conversations.federboost_horizontal(replayed).walk())
    assert refused.value.where == {"party": ADDER, "step": "add_up"}
