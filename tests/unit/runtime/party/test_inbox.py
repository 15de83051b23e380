"""The inbox hands out each message once, in order and in bounds."""

import asyncio

import pytest

from fedboost.ground.errors import JobError, PeerError, UnreachableError
from fedboost.messages.protocol.echo_pb2 import Call
from fedboost.runtime.party.stage.inbox import (
    MESSAGES_WAITING_MAX,
    PARTS_WAITING_MAX,
    Arrived,
    Inbox,
)

KIND = "fedboost.echo.Call"


def inbox(wait_s=5.0):
    return Inbox(wait_s, "telco")


async def put(box, number, part=0, *, last=True, sender="bank", digest=b"d"):
    key = (sender, number, "answer", part)
    await box.put(KIND, key, digest, Arrived(Call(), number, part, last))


async def test_a_message_is_taken_once():
    box = inbox()
    await put(box, 1)
    assert box.senders(KIND, 2) == ["bank"]
    box.take(KIND, "bank", 2)
    assert box.senders(KIND, 2) == []


async def test_a_message_of_a_later_step_is_not_there_yet():
    box = inbox()
    await put(box, 5)
    assert box.senders(KIND, 5) == []
    assert box.senders(KIND, 6) == ["bank"]


async def test_a_second_message_for_one_step_is_refused():
    box = inbox()
    await put(box, 1)
    await put(box, 2)
    with pytest.raises(PeerError, match="a second"):
        box.take(KIND, "bank", 3)


async def test_a_message_for_a_step_that_is_over_is_refused():
    box = inbox()
    await put(box, 4)
    box.take(KIND, "bank", 5)
    for number in (1, 4):
        with pytest.raises(PeerError, match="a second"):
            await put(box, number)
    await put(box, 6)


async def test_more_messages_than_two_are_refused():
    box = inbox()
    for number in range(1, MESSAGES_WAITING_MAX + 1):
        await put(box, number)
    with pytest.raises(PeerError, match="a third"):
        await put(box, 9)
    await put(box, 9, sender="telco")  # others are not to blame


async def test_the_same_bytes_are_known_and_others_in_their_place_refused():
    box = inbox()
    key = ("bank", 1, "answer", 0)
    assert not box.seen(key, b"d")
    await put(box, 1)
    assert box.seen(key, b"d")
    with pytest.raises(PeerError, match="two different messages in one place") as refused:
        box.seen(key, b"e")
    assert refused.value.where["step"] == "answer"


async def test_parts_that_overtake_one_another_are_read_in_order():
    box = inbox()
    for part in (2, 0, 3, 1):
        await put(box, 1, part, last=part == 3)
    parts = [(await box.next(KIND, "bank")).part for _ in range(4)]
    assert parts == [0, 1, 2, 3]


async def test_a_reader_waits_for_the_part_that_comes_next():
    box = inbox()
    await put(box, 1, 1, last=True)
    reading = asyncio.create_task(box.next(KIND, "bank"))
    await asyncio.sleep(0)
    assert not reading.done()
    await put(box, 1, 0, last=False)
    assert (await reading).part == 0
    assert (await box.next(KIND, "bank")).last


async def test_a_part_after_the_last_is_refused():
    box = inbox()
    await put(box, 1, 0, last=False)
    await put(box, 1, 1, last=True)
    for _ in range(2):
        await box.next(KIND, "bank")
    with pytest.raises(PeerError, match="a second"):
        await put(box, 1, 2)


async def test_the_sender_of_a_stream_waits_while_too_many_parts_lie_here():
    box = inbox()
    for part in range(PARTS_WAITING_MAX):
        await put(box, 1, part, last=False)
    waiting = asyncio.create_task(put(box, 1, PARTS_WAITING_MAX, last=True))
    await asyncio.sleep(0)
    assert not waiting.done()
    assert (await box.next(KIND, "bank")).part == 0
    await waiting
    rest = [(await box.next(KIND, "bank")).part for _ in range(PARTS_WAITING_MAX)]
    assert rest == list(range(1, PARTS_WAITING_MAX + 1))


async def test_the_part_that_is_waited_for_finds_room_in_a_full_inbox():
    box = inbox()
    for part in range(1, PARTS_WAITING_MAX + 1):
        await put(box, 1, part, last=part == PARTS_WAITING_MAX)
    await put(box, 1, 0, last=False)
    assert (await box.next(KIND, "bank")).part == 0


async def test_the_same_part_on_two_ways_at_once_is_kept_once():
    box = inbox()
    for part in range(PARTS_WAITING_MAX):
        await put(box, 1, part, last=False)
    twice = [asyncio.create_task(put(box, 1, PARTS_WAITING_MAX)) for _ in range(2)]
    await asyncio.sleep(0)
    for _ in range(PARTS_WAITING_MAX):
        await box.next(KIND, "bank")
    await asyncio.gather(*twice)
    assert (await box.next(KIND, "bank")).part == PARTS_WAITING_MAX
    assert box.senders(KIND, 2) == []


async def test_what_never_comes_is_waited_for_no_longer_than_the_deadline():
    with pytest.raises(UnreachableError, match=r"waited 0.01 s for .* from bank") as late:
        await inbox(0.01).next(KIND, "bank")
    assert late.value.where["party"] == "bank"


async def test_who_is_late_is_named_and_not_who_came_in_the_meantime():
    box = inbox(0.05)
    waiting = asyncio.create_task(box.wait_for_messages(KIND, ["bank", "shop", "mill"], 2))
    await asyncio.sleep(0)
    await put(box, 1, sender="bank")
    await put(box, 1, sender="mill")
    with pytest.raises(UnreachableError, match=r"waited 0.05 s for .* from shop") as late:
        await waiting
    assert late.value.where == {"party": "shop"}


async def test_all_messages_of_a_step_are_waited_for():
    box = inbox()
    await put(box, 1, sender="bank")
    waiting = asyncio.create_task(box.wait_for_messages(KIND, ["bank", "shop"], 2))
    await put(box, 3, sender="shop")  # of a later step
    assert not waiting.done()
    await put(box, 1, sender="shop")
    await waiting


async def test_a_party_never_waits_for_room_in_its_own_inbox():
    """It reads in one role only after all has been given in the other."""
    box = inbox()
    parts = 3 * PARTS_WAITING_MAX
    for part in range(parts):
        await put(box, 1, part, last=part == parts - 1, sender="telco")
    assert [(await box.next(KIND, "telco")).part for _ in range(parts)] == list(range(parts))


async def test_a_stop_ends_every_wait_now_and_later():
    box, reason = inbox(), JobError("cancelled by ann")
    for part in range(PARTS_WAITING_MAX):
        await put(box, 1, part, last=False)
    waiting = [
        asyncio.create_task(put(box, 1, PARTS_WAITING_MAX)),
        asyncio.create_task(box.next(KIND, "telco")),
    ]
    await asyncio.sleep(0)
    await box.stop(reason)
    assert await asyncio.gather(*waiting, return_exceptions=True) == [reason, reason]
    with pytest.raises(JobError):
        await box.next(KIND, "bank")
