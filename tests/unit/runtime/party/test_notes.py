"""What has come reaches the ledger with what leaves next, or soon; nobody hears of it before."""

import asyncio
import threading

import pytest

from fedboost.flow import DisclosureInfo
from fedboost.ground.errors import StoreError
from fedboost.messages.exchange_pb2 import Envelope
from fedboost.messages.protocol.echo_pb2 import Call
from fedboost.runtime.ledger.rows import Noted
from fedboost.runtime.party.stage import notes
from fedboost.runtime.party.stage.notes import Notes

FULL = StoreError("database or disk is full")
A, B, OUT = (Noted(Envelope(step=step), Call(), DisclosureInfo()) for step in ("a", "b", "out"))


class Written(list[tuple[list[Noted], list[Noted]]]):
    """What was written together; refuses while the disk is full."""

    is_full = False

    def __call__(self, coming, leaving):
        if self.is_full:
            raise FULL
        self.append(([*coming], [*leaving]))


async def test_messages_that_come_together_are_written_together_and_soon():
    written = Written()
    kept = Notes(written)
    first, second = kept.came(A), kept.came(B)
    assert written == []
    await asyncio.gather(first, second)
    assert written == [([A, B], [])]
    await kept.came()  # nothing is left to wait for
    assert len(written) == 1


async def test_what_leaves_is_written_behind_what_has_come_in_one_go():
    written = Written()
    kept = Notes(written)
    arrived = kept.came(A)
    kept.write_now(OUT)
    assert written == [([A], [OUT])]
    await arrived
    for _ in range(2 * notes.ANSWER_TURNS):
        await asyncio.sleep(0)
    assert len(written) == 1


async def test_a_message_that_is_waited_for_with_others_is_written_with_them_or_somewhat_later():
    written = Written()
    kept = Notes(written)
    first = kept.came(A, later=True)
    for _ in range(2 * notes.ANSWER_TURNS):
        await asyncio.sleep(0)
    assert written == []
    await asyncio.gather(first, kept.came(B))
    assert written == [([A, B], [])]
    await kept.came(A, later=True)
    assert written[1:] == [([A], [])]


async def test_a_write_sets_the_time_anew_for_what_comes_behind_it(monkeypatch):
    monkeypatch.setattr(notes, "LATER_S", 0.02)
    written = Written()
    kept = Notes(written)
    kept.came(A, later=True)
    await asyncio.sleep(0.015)
    kept.write_now(OUT)
    arrived = kept.came(B, later=True)
    await asyncio.sleep(0.01)
    assert written == [([A], [OUT])]
    await arrived
    assert written[1:] == [([B], [])]


async def test_a_thread_that_writes_ends_the_loops_waits():
    written = Written()
    kept = Notes(written)
    arrived = kept.came(A)
    thread = threading.Thread(target=kept.write_now, args=(OUT,))
    thread.start()
    thread.join()
    assert not arrived.done()  # its own loop ends it
    await arrived
    assert written == [([A], [OUT])]


async def test_whoever_waits_hears_that_the_disk_is_full_and_nothing_leaves_without_what_has_come():
    written = Written()
    kept = Notes(written)
    written.is_full = True
    arrived = kept.came(A)
    with pytest.raises(StoreError):
        kept.write_now(OUT)
    with pytest.raises(StoreError):
        await arrived
    written.is_full = False
    kept.write_now(OUT)
    assert written == [([A], [OUT])]
