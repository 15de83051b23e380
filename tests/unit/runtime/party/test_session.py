"""A party's session refuses what is out of order, and every wait in it ends."""

import asyncio
import hashlib
import threading

import numpy as np
import pytest

from fedboost.ground import wire
from fedboost.ground.errors import JobError, PeerError, ProtocolError, StoreError, UnreachableError
from fedboost.messages.exchange_pb2 import Envelope
from fedboost.messages.party_pb2 import StepCall, Turn
from fedboost.messages.protocol.echo_pb2 import Answer, Call
from fedboost.runtime.config.policy import Policy
from fedboost.runtime.party.stage.step_work import PARTS_IN_FLIGHT_MAX
from tests.support.federated import GUEST, HOSTS, TERMS, frame_of, now, resealed, room_for

HOST = HOSTS[0]
NUMBERS = 4
CALL, ANSWER = "fedboost.echo.Call", "fedboost.echo.Answer"
STOPPED = JobError("cancelled by ann")


def echo(parties=(GUEST, HOST), *, parts=1, rounds=1, **more):
    """A room in which nothing has been said yet."""
    table = frame_of([b"a"], np.zeros((1, 1), np.float32))
    params = {"rounds": rounds, "parts": parts, "numbers": NUMBERS}
    return room_for("echo", dict.fromkeys(parties, table), params, **more)


def numbers(value=1, count=NUMBERS):
    return wire.encode(Call(numbers=wire.pack(np.full(count, value))))


def sealed(payload, **changes):
    """An envelope that the host takes with this payload, but for the changes."""
    fields = {
        "job": TERMS.job,
        "manifest_sha256": TERMS.manifest_sha256,
        "attempt": TERMS.attempt,
        "stage": "echo",
        "step": "call",
        "number": 1,
        "sender": GUEST,
        "receiver": HOST,
        "kind": CALL,
        "part": 0,
        "last": True,
        "payload_bytes": len(payload),
        "payload_sha256": hashlib.sha256(payload).digest(),
        "salt": bytes(16),
    }
    return Envelope(**{**fields, **changes})


def answered(total, **changes):
    """An answer of the host, under an envelope that the guest takes."""
    payload = wire.encode(Answer(total=wire.pack(np.array([total]))))
    own = {"step": "answer", "number": 2, "sender": HOST, "receiver": GUEST, "kind": ANSWER}
    return sealed(payload, **{**own, **changes}), payload


def step(name, number):
    return StepCall(turns=[Turn(step=name, number=number)])


async def refusal(waiting, kind):
    with pytest.raises(kind) as refused:
        await waiting
    return refused.value


# The whole conversation


@pytest.mark.parametrize("parts", [1, 2, 30])
def test_an_echo_is_heard_by_every_host_in_every_round(parts):
    room = echo((GUEST, *HOSTS[:3]), parts=parts, rounds=2)
    left = now(room.walk())
    assert left[GUEST].facts == {"calls": 2}
    assert all(left[host].facts == {"answers": 2} for host in HOSTS[:3])
    assert len(room.posted) == 2 * 3 * (parts + 1)
    assert room.recorded.count((HOST, "in", CALL)) == 2 * parts
    assert room.recorded.count((GUEST, "out", CALL)) == 2 * 3 * parts


def test_more_parties_than_threads_in_a_pool_do_not_wait_for_one_another():
    """Every reader of a stream blocks a thread, on however few cores."""
    hosts = tuple(f"host-{i}" for i in range(40))
    room = echo((GUEST, *hosts), parts=12, wait_s=10.0)
    now(room.walk())
    assert all(room.state(host).answers == 1 for host in hosts)


async def test_what_a_step_cost_and_sent_is_told():
    room = await echo((GUEST, *HOSTS[:2]), parts=3).open()
    reply = await room.sessions[GUEST].run_step(step("call", 1))
    [turn] = reply.turns
    sent = {link.peer: (link.bytes, link.messages) for link in turn.cost.sent}
    assert sent == {host: (3 * len(numbers()), 3) for host in HOSTS[:2]}
    assert turn.cost.party == GUEST


@pytest.mark.parametrize(("tells", "heard"), [((), []), (("metrics",), ["echo"])])
def test_a_policy_keeps_words_from_the_coordinator(tells, heard):
    room = echo(limits=Policy(tells=tells))
    now(room.walk())
    assert [m.name for told in room.told for m in told.metrics] == heard
    own = room.sessions[GUEST].told
    assert [m.name for told in own for m in told.metrics] == ["echo"]


# What may arrive


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"job": "job-2"}, "another job, attempt or stage"),
        ({"manifest_sha256": bytes(31) + b"\1"}, "another job, attempt or stage"),
        ({"manifest_sha256": b""}, "another job, attempt or stage"),
        ({"attempt": 2}, "another job, attempt or stage"),
        ({"attempt": 0}, "another job, attempt or stage"),
        ({"stage": "align"}, "another job, attempt or stage"),
        ({"receiver": GUEST}, "meant for 'bank'"),
        ({"receiver": "x" * 10_000}, "meant for"),
        ({"kind": "fedboost.align.CommonSet"}, "takes no 'fedboost.align.CommonSet'"),
        ({"kind": ANSWER}, "takes no"),
        ({"kind": "fedboost.StepCall"}, "takes no"),
        ({"kind": "x" * 10_000}, "takes no"),
        ({"sender": HOSTS[1]}, "may not send"),
        ({"sender": "stranger"}, "may not send"),
        ({"sender": ""}, "may not send"),
        ({"step": "answer"}, "may not send"),
        ({"step": "compare"}, "may not send"),
        ({"step": "x" * 10_000}, "may not send"),
        ({"payload_bytes": 8 * NUMBERS + 65}, "is the most"),
        ({"payload_bytes": 2**63}, "is the most"),
        ({"salt": b""}, "that no ledger can record"),
        ({"salt": bytes(17)}, "that no ledger can record"),
        ({"number": 2**63}, "that no ledger can record"),
    ],
    ids=lambda v: str(v)[:40],
)
async def test_an_envelope_that_does_not_fit_is_refused_before_its_payload(changes, says):
    room = await echo((GUEST, *HOSTS[:2])).open()
    with pytest.raises(PeerError) as refused:
        room.sessions[HOST].admit(sealed(numbers(), **changes))
    assert says in refused.value.what
    assert len(refused.value.what) < 300
    # Nothing has changed: the right one is taken.
    assert await room.sessions[HOST].accept(sealed(numbers()), numbers()) is False
    await room.sessions[HOST].run_step(step("answer", 2))


def test_a_message_before_the_stage_has_begun_is_refused():
    with pytest.raises(PeerError, match="before the stage was open"):
        echo().sessions[HOST].admit(sealed(numbers()))


@pytest.mark.parametrize("changes", [{"part": 1}, {"last": False}])
async def test_parts_of_a_message_that_travels_whole_are_refused(changes):
    room = await echo().open()
    envelope, _ = answered(4, **changes)
    with pytest.raises(PeerError, match="in parts, which travels whole"):
        room.sessions[GUEST].admit(envelope)


@pytest.mark.parametrize(
    ("envelope", "payload"),
    [
        (sealed(numbers(1)), numbers(2)),
        (sealed(numbers()), numbers()[:-1]),
        (sealed(numbers()), numbers() + b"\0"),
        (sealed(numbers(), payload_bytes=len(numbers()) - 1), numbers()),
        (sealed(numbers(), payload_sha256=b""), numbers()),
    ],
    ids=["other", "truncated", "extended", "size", "no hash"],
)
async def test_a_payload_that_does_not_match_its_envelope_is_refused(envelope, payload):
    room = await echo().open()
    error = await refusal(room.sessions[HOST].accept(envelope, payload), PeerError)
    assert "does not match its envelope" in error.what
    assert room.recorded == []


async def test_the_same_message_again_is_acknowledged_and_used_once():
    room = await echo().open()
    host = room.sessions[HOST]
    assert await host.accept(sealed(numbers()), numbers()) is False
    assert await host.accept(sealed(numbers()), numbers()) is True
    await host.run_step(step("answer", 2))
    assert await host.accept(sealed(numbers()), numbers()) is True
    assert room.recorded.count((HOST, "in", CALL)) == 1
    assert room.state(HOST).answers == 1


async def test_other_bytes_in_the_place_of_a_message_are_refused():
    room = await echo().open()
    host = room.sessions[HOST]
    await host.accept(sealed(numbers(1)), numbers(1))
    error = await refusal(host.accept(sealed(numbers(2)), numbers(2)), PeerError)
    assert "two different messages in one place" in error.what


async def test_a_stream_out_of_turn_is_refused_and_leaves_nothing_behind():
    room = await echo(parts=2).open()
    host = room.sessions[HOST]
    await host.accept(sealed(numbers(1), last=False), numbers(1))
    # `answer` may follow `answer`, so the second stream waits for the first to end.
    await host.accept(sealed(numbers(1), part=1), numbers(1))
    reply = await host.run_step(step("answer", 2))
    assert reply.turns[0].cost.party == HOST
    with pytest.raises(PeerError, match="a second"):
        await host.accept(sealed(numbers(1), part=2), numbers(1))
    assert room.state(HOST).answers == 1


# What may be asked


async def test_the_same_call_again_gets_the_same_answer():
    room = await echo().open()
    guest = room.sessions[GUEST]
    first = await guest.run_step(step("call", 1))
    assert await guest.run_step(step("call", 1)) is first
    assert room.state(GUEST).calls == 1


@pytest.mark.parametrize(
    ("party", "name", "says"),
    [
        (GUEST, "answer", "has no step 'answer'"),
        (HOST, "call", "has no step 'call'"),
        (GUEST, "begin", "has no step 'begin'"),
        (GUEST, "finish", "has no step"),
        (GUEST, "__class__", "has no step"),
        (GUEST, "", "has no step"),
        (GUEST, "compare", "may not come after the start"),
    ],
)
async def test_a_step_that_is_not_ours_or_not_next_is_refused(party, name, says):
    room = await echo().open()
    error = await refusal(room.sessions[party].run_step(step(name, 1)), ProtocolError)
    assert says in error.what


async def test_a_round_is_kept_when_it_is_over_and_not_amid_a_step():
    """A commit that was late would keep half of the next round under the last one's number."""
    gate = asyncio.Event()
    room = await echo().open()
    deliver = room.deliver

    async def slow(envelope, payload):
        await gate.wait()
        await deliver(envelope, payload)

    room.deliver = slow
    guest = room.sessions[GUEST]
    calling = asyncio.create_task(guest.run_step(step("call", 1)))
    await asyncio.sleep(0)
    error = await refusal(guest.snapshot(), ProtocolError)
    assert "a step is at work" in error.what
    gate.set()
    await calling
    assert (await guest.snapshot()).facts == {"calls": 1}


async def test_a_message_that_comes_again_while_it_waits_for_room_is_recorded_once():
    room = await echo(parts=20).open()
    host = room.sessions[HOST]
    early = sealed(numbers(), part=12, last=False)
    for part in range(1, 9):  # the first one is missing, so nothing is used
        await host.accept(sealed(numbers(), part=part, last=False), numbers())
    coming = [asyncio.create_task(host.accept(early, numbers())) for _ in range(2)]
    await asyncio.sleep(0)
    await host._notes.came()
    assert room.recorded.count((HOST, "in", CALL)) == 9
    coming[0].cancel()  # the link it came by is gone; the message stays
    await asyncio.sleep(0)
    assert not coming[1].done()
    other = sealed(numbers(2), part=12, last=False)
    lying = asyncio.create_task(host.accept(other, numbers(2)))
    await host.accept(sealed(numbers(), last=False), numbers())
    assert await coming[1] is True
    assert "two different messages" in (await refusal(lying, PeerError)).what
    assert room.recorded.count((HOST, "in", CALL)) == 10


async def test_a_call_that_comes_as_the_first_part_is_taken_in_starts_no_second_step():
    room = await echo(parts=2).open()
    host = room.sessions[HOST]
    first = asyncio.create_task(host.accept(sealed(numbers(), last=False), numbers()))
    await asyncio.sleep(0)
    called = asyncio.create_task(host.run_step(step("answer", 2)))
    assert await first is False
    await host.accept(sealed(numbers(), part=1), numbers())
    await called
    assert room.state(HOST).answers == 1


async def test_no_byte_leaves_before_the_ledger_has_its_hash():
    room = await echo((GUEST, *HOSTS[:2]), parts=3).open()
    deliver, left = room.deliver, []

    async def watched(envelope, payload):
        left.append(envelope.receiver)
        assert room.recorded.count((GUEST, "out", CALL)) >= len(left)
        await deliver(envelope, payload)

    room.deliver = watched
    await room.call("call", GUEST)
    assert len(left) == 2 * 3


async def test_nothing_leaves_when_the_ledger_takes_no_row():
    def full(coming, leaving):
        raise StoreError("database or disk is full")

    room = await echo((GUEST, *HOSTS[:2])).open()
    room.sessions[GUEST]._notes._record = full
    error = await refusal(room.sessions[GUEST].run_step(step("call", 1)), StoreError)
    assert error.where == {"party": GUEST, "step": "call"}
    assert room.posted == []


async def test_steps_come_in_the_order_of_the_table():
    room = await echo().open()
    guest = room.sessions[GUEST]
    await guest.run_step(step("call", 1))
    error = await refusal(guest.run_step(step("call", 2)), ProtocolError)
    assert error.what == "call may not come after call"
    assert room.state(GUEST).calls == 1


async def test_a_call_of_an_earlier_number_is_refused():
    room = await echo().open()
    await room.sessions[GUEST].run_step(step("call", 5))
    error = await refusal(room.sessions[GUEST].run_step(step("compare", 4)), ProtocolError)
    assert "out of turn" in error.what


async def test_a_step_whose_message_has_not_arrived_is_refused():
    room = await echo((GUEST, *HOSTS[:2])).open()
    await room.call("call", GUEST)
    await room.call("answer", HOST)
    room.number += 1
    error = await refusal(
        room.sessions[GUEST].run_step(step("compare", room.number)), ProtocolError
    )
    assert error.what == f"compare needs a {ANSWER} and none has arrived from {HOSTS[1]}"


async def test_a_round_of_a_loop_is_not_waited_for_once_the_loop_has_ended():
    room = await echo(rounds=3).open()
    host = room.sessions[HOST]
    turns = [Turn(step="answer", number=number) for number in (2, 5, 8)]
    call = StepCall(turns=turns, awaits=True, loop="call")
    answering = asyncio.create_task(host.run_step(call))
    guest = room.sessions[GUEST]
    for number in (1, 4):
        await guest.run_step(step("call", number))
        compared = [Turn(step="compare", number=number + 2)]
        await guest.run_step(StepCall(turns=compared, awaits=True))
    with pytest.raises(ProtocolError, match="not asked for"):
        await host.end_loop(5)
    assert not answering.done()
    await host.end_loop(8)
    assert len((await answering).turns) == 2
    assert await host.run_step(call) == await answering  # asked again
    await host.end_loop(8)


async def test_a_second_answer_of_one_host_is_refused():
    room = await echo().open()
    await room.call("call", GUEST)
    guest, total = room.sessions[GUEST], room.state(GUEST).total
    for number in (2, 3):
        await guest.accept(*answered(total, number=number))
    error = await refusal(guest.run_step(step("compare", 4)), PeerError)
    assert "a second" in error.what


async def test_an_answer_from_the_future_is_not_there_yet():
    room = await echo().open()
    await room.call("call", GUEST)
    guest, total = room.sessions[GUEST], room.state(GUEST).total
    await guest.accept(*answered(total, number=99))
    await refusal(guest.run_step(step("compare", 3)), ProtocolError)


async def test_a_third_answer_is_refused_when_it_arrives():
    room = await echo().open()
    guest = room.sessions[GUEST]
    for number in (2, 3):
        await guest.accept(*answered(1, number=number))
    error = await refusal(guest.accept(*answered(1, number=4)), PeerError)
    assert "a third" in error.what


async def test_a_wrong_answer_is_refused_with_party_and_step():
    room = await echo().open()
    await room.call("call", GUEST)
    await room.sessions[GUEST].accept(*answered(room.state(GUEST).total + 1))
    error = await refusal(room.sessions[GUEST].run_step(step("compare", 3)), PeerError)
    assert "another sum" in error.what
    assert error.where == {"party": GUEST, "step": "compare"}


# Streams


def replacing(place, payload):
    """An `alter` that swaps the payload of one part of a call."""

    def alter(envelope, old):
        if envelope.kind == CALL and envelope.part == place:
            return resealed(envelope, payload)
        return envelope, old

    return alter


@pytest.mark.parametrize("bad", [0, 3, 7])
async def test_a_stream_that_its_reader_refuses_stops_the_sender_too(bad):
    room = await echo(parts=8, alter=replacing(bad, numbers(1, NUMBERS - 1))).open()
    outcome = await asyncio.gather(room.call("call", GUEST), return_exceptions=True)
    answer = room.sessions[HOST].run_step(step("answer", 2))
    error = await refusal(answer, PeerError)
    assert "a call's numbers must be i8" in error.what
    assert error.where == {"party": HOST, "step": "answer"}
    assert all(one is None or isinstance(one, PeerError) for one in outcome)


async def test_a_stream_has_few_parts_under_way():
    room = await echo(parts=40).open()
    gate, begun, five = asyncio.Event(), [], asyncio.Event()
    deliver = room.deliver

    async def slow(envelope, payload):
        begun.append(envelope.part)
        if len(begun) == PARTS_IN_FLIGHT_MAX + 1:
            five.set()
        await gate.wait()
        await deliver(envelope, payload)

    room.deliver = slow
    calling = asyncio.create_task(room.sessions[GUEST].run_step(step("call", 1)))
    await five.wait()
    for _ in range(20):  # the sender's thread could run on if nothing held it
        await asyncio.to_thread(int)
    assert begun == list(range(PARTS_IN_FLIGHT_MAX + 1))
    gate.set()
    await calling
    assert begun == list(range(40))
    await room.sessions[HOST].run_step(step("answer", 2))


def test_parts_that_overtake_one_another_are_added_once_each():
    async def run():
        room = await echo(parts=12).open()
        deliver, waiting = room.deliver, []

        async def swapped(envelope, payload):
            """Every even part, but the last, arrives behind the odd one that follows it."""
            if envelope.part % 2 == 0:
                waiting.append(asyncio.Event())
                await waiting[-1].wait()
                return await deliver(envelope, payload)
            await deliver(envelope, payload)
            waiting[envelope.part // 2].set()
            return None

        room.deliver = lambda e, p: swapped(e, p) if e.kind == CALL else deliver(e, p)
        await room.call("call", GUEST)
        await room.call("answer", HOST)
        await room.call("compare", GUEST)
        order = [p.envelope.part for p in room.posted if p.envelope.kind == CALL]
        assert order != sorted(order)

    now(run())


async def test_a_part_that_never_comes_is_named_when_the_deadline_is_over():
    room = await echo(parts=2, wait_s=0.05).open()
    host = room.sessions[HOST]
    await host.accept(sealed(numbers(), last=False), numbers())
    error = await refusal(host.run_step(step("answer", 2)), UnreachableError)
    assert "waited 0.05 s" in error.what
    assert error.where["step"] == "answer"


# The end


async def test_a_stop_ends_a_step_that_waits_for_parts():
    room = await echo(parts=2).open()
    host = room.sessions[HOST]
    await host.accept(sealed(numbers(), last=False), numbers())
    answering = asyncio.create_task(host.run_step(step("answer", 2)))
    await asyncio.sleep(0)
    await host.stop(STOPPED)
    assert await refusal(answering, JobError) is STOPPED


async def test_a_stop_ends_a_step_that_nobody_has_asked_for_yet():
    room = await echo().open()
    host = room.sessions[HOST]
    await host.accept(sealed(numbers()), numbers())
    (eager,) = host._eager.values()
    await host.stop(STOPPED)
    assert await refusal(eager.task, JobError) is STOPPED


async def test_a_stopped_session_does_and_takes_nothing_more():
    room = await echo().open()
    await room.sessions[HOST].stop(STOPPED)
    await room.sessions[GUEST].stop(STOPPED)
    taking = room.sessions[HOST].accept(sealed(numbers()), numbers())
    assert await refusal(taking, JobError) is STOPPED
    assert await refusal(room.sessions[GUEST].run_step(step("call", 1)), JobError) is STOPPED
    assert room.posted == []


async def test_what_the_loop_comes_to_after_a_stop_does_not_leave():
    """A message is on its way to the loop when an owner denies the job: a loop still takes the
    first step of what is cancelled before it.
    """
    room = await echo().open()
    session, left = room.sessions[GUEST], []
    start = session._bridge.start

    async def watched(envelope, _):
        left.append(envelope.receiver)

    def late(loop, *works):
        held = threading.Event()
        loop.call_soon_threadsafe(held.wait)
        asyncio.run_coroutine_threadsafe(session.stop(STOPPED), loop)
        started = start(loop, *works)
        held.set()
        return started

    room.deliver, session._bridge.start = watched, late
    assert await refusal(session.run_step(step("call", 1)), JobError) is STOPPED
    assert left == []
