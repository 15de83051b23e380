"""More of a stream than there is room for: what a peer sends before anything can be used."""

import asyncio
from contextlib import ExitStack, suppress

import pytest

from fedboost.ground.errors import PeerError, UnreachableError
from fedboost.messages.exchange_pb2 import Envelope
from fedboost.runtime.party.node import node
from fedboost.runtime.party.node.node import BYTES_AT_ONCE_MAX, MESSAGES_AT_ONCE_MAX, Admission
from fedboost.runtime.party.stage import session
from fedboost.runtime.party.stage.session import PARTS_HELD_MAX
from tests.support.federated import now
from tests.unit.runtime.party.test_session import CALL, HOST, echo, numbers, sealed

PARTS = 300


async def out_of_order():
    """Parts of a stream whose first one is missing, so that none can be used.

    How many a host has recorded and decoded, and what it says of the others.
    """
    room = await echo(parts=PARTS + 1).open()
    host, refused = room.sessions[HOST], []

    async def send(part):
        try:
            await host.accept(sealed(numbers(), part=part, last=False), numbers())
        except PeerError as error:
            refused.append(error.what)

    sending = [asyncio.create_task(send(part)) for part in range(1, PARTS + 1)]
    for _ in range(5):
        await asyncio.sleep(0)
    await host._notes.came()
    recorded = room.recorded.count((HOST, "in", CALL))
    await host.stop(UnreachableError("the test is over"))
    with suppress(UnreachableError):
        await asyncio.gather(*sending)
    return recorded, refused


def test_parts_that_cannot_be_used_are_refused_before_they_are_recorded_or_decoded():
    recorded, refused = now(out_of_order())
    assert recorded == PARTS_HELD_MAX
    assert len(refused) == PARTS - PARTS_HELD_MAX
    assert f"sent more than {PARTS_HELD_MAX} parts before one of them could be used" in refused[0]


def test_parts_that_cannot_be_used_are_recorded_and_decoded_where_room_is_judged_last(monkeypatch):
    monkeypatch.setattr(session, "PARTS_HELD_MAX", PARTS)
    recorded, refused = now(out_of_order())
    assert (recorded, refused) == (PARTS, [])


def sending(door, count, payload_bytes=1, sender="bank"):
    """How many of so many messages get room at once."""
    with ExitStack() as under_way:
        for n in range(count):
            envelope = Envelope(job="job-1", sender=sender, payload_bytes=payload_bytes)
            try:
                under_way.enter_context(door.room(envelope))
            except UnreachableError:
                return n
        if sender == "bank":  # others are not to blame
            assert sending(door, 1, sender="shop") == 1
    return count


def test_a_peer_sends_a_few_messages_at_once_and_no_more():
    door = Admission()
    for _ in range(2):  # what has come makes room
        assert sending(door, 1000) == MESSAGES_AT_ONCE_MAX
        assert sending(door, 1000, BYTES_AT_ONCE_MAX // 4) == 4
        assert sending(door, 1, 2 * BYTES_AT_ONCE_MAX) == 1, "one alone is judged by its step"
    assert door._sending == {}


def test_a_peer_sends_as_much_at_once_as_it_wants_where_nobody_counts(monkeypatch):
    monkeypatch.setattr(node, "MESSAGES_AT_ONCE_MAX", 1000)
    monkeypatch.setattr(node, "BYTES_AT_ONCE_MAX", float("inf"))
    assert sending(Admission(), 1000, BYTES_AT_ONCE_MAX) == 1000


def test_a_message_that_breaks_off_leaves_its_room():
    door = Admission()
    for _ in range(2 * MESSAGES_AT_ONCE_MAX):
        with pytest.raises(ConnectionError), door.room(Envelope(job="job-1", sender="bank")):
            raise ConnectionError
