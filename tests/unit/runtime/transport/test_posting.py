"""The stream in which a party posts to another: receipts, refusals, and how it ends."""

import asyncio
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import grpc
import pytest

from fedboost.ground import wire
from fedboost.ground.errors import PeerError, PolicyError, UnreachableError
from fedboost.messages import exchange_pb2, exchange_pb2_grpc
from fedboost.messages.exchange_pb2 import Envelope, Parcel, Receipt
from fedboost.runtime.transport import posting, server
from fedboost.runtime.transport.addresses import Timers
from fedboost.runtime.transport.channel import Dialer
from fedboost.runtime.transport.identity import Peer
from fedboost.runtime.transport.peers import PeerLinks
from fedboost.runtime.transport.posting import OutgoingStream, OutgoingStreams
from fedboost.runtime.transport.server import CallerGate, Servicer, bind_server

TIMERS = Timers(peer_lost_s=2.0, retry_first_s=0.05)
EXCHANGE = exchange_pb2.DESCRIPTOR.services_by_name["Exchange"]
SLOW = "slow"  # the job whose messages wait for room


class Shop:
    """A receiver: what it was told, and what it does with it."""

    def __init__(self):
        self.told: list[tuple[str, bytes]] = []
        self.began = 0
        self.room = asyncio.Event()
        self.peers = {"bank"}

    async def recall(self, _, __):
        """Nobody asks."""

    def check_peer(self, caller):
        """As a party's node does."""
        if caller.name not in self.peers:
            raise PolicyError(f"{caller} is not known here")

    @contextmanager
    def admit(self, caller, envelope):
        """As a party's node does."""
        self.check_peer(caller)
        if envelope.stage == "later":
            raise PeerError("bank sent a message of another stage")
        yield

    async def accept(self, _, envelope, payload):
        """Takes a message in, once there is room for those of its job."""
        self.began += 1
        if envelope.job == SLOW:
            await self.room.wait()
        self.told.append((envelope.job, payload))
        return self.told.count((envelope.job, payload)) > 1


class Town:
    """A party that serves, as a rule the shop, and the bank's links to it."""

    def __init__(self, caller="bank", name="shop"):
        self.shop = Shop()
        self.dialer = Dialer(None, TIMERS, claim=f"party:{caller}")
        self.port = 0
        self.links = PeerLinks(self.dialer, lambda: {name: f"127.0.0.1:{self.port}"})
        self.back = OutgoingStreams()  # of the party that serves

    async def open(self):
        """Serve, on the port of before."""
        self.servicer: Any = Servicer(self.shop, CallerGate(None), EXCHANGE, self.back)
        self.server, self.port = bind_server(None, f"127.0.0.1:{self.port}", TIMERS)
        exchange_pb2_grpc.add_ExchangeServicer_to_server(self.servicer, self.server)
        await self.server.start()

    async def close(self):
        """Serve no more, as a daemon does at its end."""
        self.servicer.end_streams()
        await self.server.stop(5.0)

    def post(self, payload, job="quick", links=None, **more):
        """A message of the bank under way."""
        envelope = Envelope(job=job, sender="bank", receiver="shop", payload_bytes=len(payload))
        envelope.MergeFrom(Envelope(**more))
        return asyncio.ensure_future((links or self.links).deliver(envelope, payload))

    async def until(self, count):
        """So many messages have begun to be taken in."""
        async with asyncio.timeout(5.0):
            while self.shop.began < count:
                await asyncio.sleep(0.01)


@asynccontextmanager
async def town():
    made = Town()
    await made.open()
    try:
        async with asyncio.timeout(20.0):
            yield made
    finally:
        await made.dialer.close()
        await made.close()


def streams(made):
    """How many streams the shop holds open."""
    return sum(len(own) for own in made.servicer._streams._open.values())


async def test_all_jobs_share_one_stream_and_none_waits_for_another():
    async with town() as made:
        waiting = [made.post(b"%d" % n, SLOW) for n in range(3)]
        await made.until(3)
        for n in range(20):
            await made.post(b"%d" % n)
        assert not any(one.done() for one in waiting)
        assert streams(made) == 1
        made.shop.room.set()
        await asyncio.gather(*waiting)
        assert [text for job, text in made.shop.told if job == SLOW] == [b"0", b"1", b"2"]
        assert [text for job, text in made.shop.told if job != SLOW] == [
            b"%d" % n for n in range(20)
        ]


async def test_a_larger_message_has_a_call_of_its_own():
    async with town() as made:
        await made.post(bytes(posting.POSTED_BYTES_MAX + 1))
        assert streams(made) == 0
        await made.post(bytes(posting.POSTED_BYTES_MAX))
        assert streams(made) == 1
        assert len(made.shop.told) == 2


async def test_one_message_is_refused_and_the_others_are_not():
    async with town() as made:
        waiting = made.post(b"a", SLOW)
        with pytest.raises(PeerError, match="bank sent a message of another stage"):
            await made.post(b"b", stage="later")
        made.shop.room.set()
        await waiting
        assert streams(made) == 1


async def test_whoever_is_no_peer_opens_no_stream():
    async with town() as made:
        made.shop.peers = {"mill"}
        for _ in range(50):  # always by its own words
            with pytest.raises(PolicyError, match="party bank is not known here"):
                await made.post(b"a")
        assert streams(made) == 0
        made.shop.peers = {"bank"}
        await made.post(b"a")
        made.shop.peers = set()  # its owner has changed the settings file meanwhile
        with pytest.raises(PolicyError, match="party bank is not known here"):
            await made.post(b"b")


async def test_what_a_daemon_has_not_answered_at_its_end_is_posted_to_the_next():
    async with town() as made:
        waiting = made.post(b"a", SLOW)
        await made.until(1)
        began = asyncio.get_running_loop().time()
        await made.close()
        assert asyncio.get_running_loop().time() - began < 2.0, "a stream keeps no daemon alive"
        made.shop.room.set()
        await made.open()
        await waiting
        assert made.shop.told == [(SLOW, b"a")]


async def test_nobody_there_is_unreachable_after_the_window():
    async with town() as made:
        await made.post(b"a")
        await made.close()
        with pytest.raises(UnreachableError):
            await made.post(b"b")
        await made.open()
        await made.post(b"c")


async def test_a_message_without_a_receipt_is_given_up(monkeypatch):
    async with town() as made:
        made.dialer.timers = TIMERS.model_copy(update={"step_s": 0.1})
        with pytest.raises(UnreachableError, match="shop did not answer in time"):
            await made.post(b"a", SLOW)
        await made.post(b"b")  # in the same stream
        assert streams(made) == 1


async def test_a_sender_that_gives_up_holds_nobody_up():
    async with town() as made:
        waiting = [made.post(b"%d" % n, SLOW) for n in range(2)]
        await made.until(2)
        waiting[0].cancel()
        await made.post(b"a")
        made.shop.room.set()
        await waiting[1]


async def test_a_stream_has_so_many_messages_at_once_and_the_next_ones_wait(monkeypatch):
    monkeypatch.setattr(posting, "UNANSWERED_MAX", 3)
    async with town() as made:
        waiting = [made.post(b"%d" % n, SLOW) for n in range(5)]
        await made.until(3)
        await asyncio.sleep(0.1)
        assert made.shop.began == 3
        made.shop.room.set()
        await asyncio.gather(*waiting)
        assert made.shop.began == 5


async def test_of_too_many_streams_of_a_peer_the_oldest_ends(monkeypatch):
    monkeypatch.setattr(posting, "PEER_STREAMS_MAX", 2)
    async with town() as made:
        others = [PeerLinks(made.dialer, made.links._addresses) for _ in range(2)]
        await made.post(b"a")
        for links in others:
            await made.post(b"a", links=links)
        await asyncio.sleep(0.1)
        assert streams(made) == 2
        await made.post(b"b")  # by a new one
        assert streams(made) == 2


async def test_a_piece_that_was_damaged_is_refused(monkeypatch):
    whole = wire.cut_payload

    def damaged(payload):
        [piece] = whole(payload)
        piece.crc32 ^= 1
        yield piece

    monkeypatch.setattr(wire, "cut_payload", damaged)
    async with town() as made:
        with pytest.raises(PeerError, match="a piece whose checksum does not match"):
            await made.post(b"a")


async def test_a_fault_in_the_daemon_is_told_as_one_and_the_stream_lives():
    async with town() as made:
        made.shop.accept, accept = None, made.shop.accept
        with pytest.raises(Exception, match="unexpected TypeError"):
            await made.post(b"a")
        made.shop.accept = accept
        await made.post(b"b")
        assert streams(made) == 1


async def test_a_new_certificate_opens_a_new_stream_and_the_old_one_ends_when_it_is_answered():
    async with town() as made:
        waiting = made.post(b"a", SLOW)
        await made.until(1)
        old = list(made.dialer._links.values())
        made.dialer._links.clear()  # as where a certificate was renewed
        for link in old:
            link.is_old = True
        await made.post(b"b")
        assert streams(made) == 2
        made.shop.room.set()
        await waiting
        await asyncio.sleep(0.2)
        assert streams(made) == 1


def test_a_peer_whose_certificate_counts_no_more_is_looked_for_every_second():
    assert server.JUDGED_AGAIN_S <= 1.0


# Receipts that go along


@asynccontextmanager
async def both_ways(monkeypatch):
    """The bank's way to the shop and the shop's to the bank; and which receipts went along."""
    went: list[bool] = []
    carry = OutgoingStream.carry_receipt

    async def noted(stream, number):
        went.append(await carry(stream, number))
        return went[-1]

    monkeypatch.setattr(OutgoingStream, "carry_receipt", noted)
    async with town() as there:
        back = Town("shop", "bank")
        there.back, back.back = back.links.streams, there.links.streams
        await there.close()
        await there.open()
        await back.open()
        back.shop.peers = {"shop"}
        try:
            async with asyncio.timeout(20.0):
                yield there, back, went
        finally:
            await back.dialer.close()
            await back.close()


def answered(there, back):
    """Has the shop post an answer to each message as soon as it holds it."""
    accept = there.shop.accept

    async def accept_and_answer(caller, envelope, payload):
        held = await accept(caller, envelope, payload)
        there.answers.append(answer(back, payload))
        return held

    there.answers = []
    there.shop.accept = accept_and_answer


def answer(back, payload):
    envelope = Envelope(job="back", sender="shop", receiver="bank", payload_bytes=len(payload))
    return asyncio.ensure_future(back.links.deliver(envelope, payload))


async def test_a_receipt_goes_along_with_the_answer(monkeypatch):
    async with both_ways(monkeypatch) as (there, back, went):
        answered(there, back)
        for n in range(10):
            await there.post(b"%d" % n)
            await there.answers[-1]
        assert went.count(True) >= 8, "the first has nothing to go along with"
        assert [text for _, text in back.shop.told] == [b"%d" % n for n in range(10)]


async def test_a_receipt_whose_answer_does_not_arrive_comes_back_by_itself(monkeypatch):
    async with both_ways(monkeypatch) as (there, back, went):
        await answer(back, b"opens the stream")
        back.shop.peers = set()
        [own] = back.servicer._streams._open["shop"]
        own._caller = lambda: back.shop.check_peer(Peer("party", "shop", "", 0))
        answered(there, back)
        await there.post(b"a")  # the bank takes the answer in no more, and reads no receipt
        with pytest.raises(PolicyError):
            await there.answers[-1]
        assert went == [False]


async def test_where_a_peer_may_not_read_on_its_receipts_go_by_themselves(monkeypatch):
    monkeypatch.setattr(posting, "UNANSWERED_MAX", 1)
    async with both_ways(monkeypatch) as (there, back, went):
        waiting = asyncio.ensure_future(
            back.links.deliver(Envelope(job=SLOW, receiver="bank", payload_bytes=1), b"w")
        )
        await back.until(1)
        await there.post(b"a")
        assert went == [False]
        back.shop.room.set()
        await waiting


async def test_a_receipt_for_what_was_never_sent_says_nothing(monkeypatch):
    async with both_ways(monkeypatch) as (there, back, _):
        waiting = there.post(b"a", SLOW)
        await there.until(1)
        back.back.hear("mill", Receipt(number=1))
        back.back.hear("shop", Receipt(number=1))
        await there.post(b"b")
        assert not waiting.done()
        there.shop.room.set()
        await waiting


async def test_more_receipts_than_a_peer_can_have_been_sent_end_its_stream():
    async with town() as made:
        await made.post(b"a")
        [[(_, stream)]] = made.links.streams._streams.values()
        [piece] = wire.cut_payload(b"b")
        parcel = Parcel(piece=piece, held=range(posting.UNANSWERED_MAX + 1))
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await stream.post(parcel, 5.0)
        assert refused.value.code() is grpc.StatusCode.DATA_LOSS
        assert made.shop.told == [("quick", b"a")]
