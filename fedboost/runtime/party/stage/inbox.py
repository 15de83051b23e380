"""The messages that have arrived for a party in one stage and are not used yet.

Each message is taken in once, and their number and bytes are limited.
"""

from __future__ import annotations

import asyncio
import bisect
from collections.abc import Callable, Coroutine, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

from google.protobuf.message import Message

from fedboost.ground.errors import FedboostError, PeerError, UnreachableError

PARTS_WAITING_MAX = 8  # of a stream, before its sender has to wait
MESSAGES_WAITING_MAX = 2  # one to be used, and one of a sender that is a step ahead

Key = tuple[str, int, str, int]  # of a message: sender, number, the step that takes it, part


@dataclass(frozen=True)
class Arrived:
    """One message, or one part of a stream."""

    message: Message
    number: int  # of the step that gave it
    part: int
    last: bool
    n_bytes: int = 0  # on the wire

    @property
    def place(self) -> tuple[int, int]:
        """The message's place among the others of its kind and sender."""
        return self.number, self.part


# Waits in a step's thread for a coroutine of the event loop.
Wait: TypeAlias = Callable[[Coroutine[Any, Any, Arrived]], Arrived]


class Inbox:
    """Messages by kind and sender. All methods but two belong to the event loop's thread."""

    def __init__(self, wait_s: float, party: str) -> None:
        """Every wait in the inbox of `party` ends after `wait_s` at the latest."""
        self._wait_s, self._party = wait_s, party
        self._waiting: dict[tuple[str, str], list[Arrived]] = {}  # in order of their places
        self._next_part: dict[tuple[str, str], int] = {}  # of the stream that is being read
        self._used: dict[tuple[str, str], int] = {}  # the step whose message was used last
        self._seen: dict[Key, bytes] = {}
        self.coming: dict[Key, int] = {}  # bytes of messages that have come and are not queued yet
        self._waits: list[Callable[[], list[str]]] = []  # each lists senders it waits for
        self._changed = asyncio.Condition()
        self._stopped: FedboostError | None = None
        self.gives_up = False  # the messages that `comes` waits for will not come

    @property
    def awaited_parties(self) -> list[str]:
        """The parties that messages are waited for from."""
        return sorted({party for of in self._waits for party in of()})

    def waiting(self, kind: str, sender: str) -> int:
        """Return the number of a sender's messages that are not used yet."""
        return len(self._waiting.get((kind, sender), ()))

    def check_room(self, key: Key, n_bytes: int, most: int) -> None:
        """Raise a PeerError if a new message and its sender's other messages exceed `most` bytes.

        Memory is not extended for a size that a peer announces. Messages that are here already may
        repeat.
        """
        sender = key[0]
        if key in self._seen or key in self.coming:
            return
        queues = [queue for (_, party), queue in self._waiting.items() if party == sender]
        held = sum(arrived.n_bytes for queue in queues for arrived in queue)
        held += sum(size for (party, *_), size in self.coming.items() if party == sender)
        if held + n_bytes > most:
            raise PeerError(
                f"{sender} announced {n_bytes} bytes beside {held} that are not used yet; there is "
                f"memory for {most}",
                step=key[2],
            )

    def seen(self, key: Key, digest: bytes) -> bool:
        """Return whether a message of that key came before; a PeerError if with other bytes."""
        before = self._seen.get(key)
        if before is not None and before != digest:
            raise PeerError(f"{key[0]} sent two different messages in one place", step=key[2])
        return before is not None

    async def put(self, kind: str, key: Key, digest: bytes, arrived: Arrived) -> None:
        """Queue a message until it is taken; a stream's sender waits while many parts are queued.

        The party itself does not wait in another role: its steps run one after another, so its
        stream is read only after all of it has been given. Parts may overtake one another. A
        PeerError for a third message, and for a message of a step whose message was used.
        """
        sender, place = key[0], (kind, key[0])
        queue = self._waiting.setdefault(place, [])
        if arrived.number <= self._used.get(place, 0):
            raise PeerError(f"{sender} sent a second {kind} where one was expected")
        if arrived.part == 0 and sum(a.part == 0 for a in queue) >= MESSAGES_WAITING_MAX:
            raise PeerError(f"{sender} sent a third {kind} before the first was used")
        if sender != self._party:
            await self._wait_until(
                lambda: (
                    len(queue) < PARTS_WAITING_MAX or arrived.part == self._next_part.get(place, 0)
                ),
                f"room for {kind} from {sender}",
            )
        self.coming.pop(key, None)
        if self.seen(key, digest):  # the same message came on a second link while this one waited
            return
        bisect.insort(queue, arrived, key=lambda message: message.place)
        self._seen[key] = digest
        async with self._changed:
            self._changed.notify_all()

    async def next(self, kind: str, sender: str) -> Arrived:
        """Return the next part of a stream; waits for it until the deadline."""
        place = (kind, sender)
        queue = self._waiting.setdefault(place, [])
        part = self._next_part.get(place, 0)
        await self._wait_until(
            lambda: bool(queue) and queue[0].part == part, kind, lambda: [sender]
        )
        arrived = queue.pop(0)
        self._next_part[place] = 0 if arrived.last else part + 1
        if arrived.last:
            self._used[place] = arrived.number
        async with self._changed:
            self._changed.notify_all()
        return arrived

    async def wait_for_messages(self, kind: str, senders: list[str], before: int) -> None:
        """Wait until each of the senders has sent a message that `take` would return.

        A PeerError if one has sent a later message first, which honest parties do not do.
        """

        missing = partial(self._missing_senders, kind, senders, before)
        if missing():
            await self._wait_until(lambda: not missing(), kind, missing)

    async def comes(self, kind: str, senders: list[str], before: int) -> bool:
        """Wait as `wait_for_messages` does; return False if the inbox gives up first."""
        missing = partial(self._missing_senders, kind, senders, before)
        await self._wait_until(lambda: not missing() or self.gives_up, kind, missing)
        return not missing()

    async def give_up(self) -> None:
        """End the wait of `comes`, until the next call of the coordinator."""
        self.gives_up = True
        async with self._changed:
            self._changed.notify_all()

    def _missing_senders(self, kind: str, senders: list[str], before: int) -> list[str]:
        """Return the senders without a message; a PeerError if one has sent a later message."""
        there = self.senders(kind, before)
        left = [sender for sender in senders if sender not in there]
        for sender in left:
            if self._waiting.get((kind, sender)):
                raise _later_step_error(kind, sender)
        return left

    def take(self, kind: str, sender: str, before: int) -> Message:
        """Return the one message of a step before number `before`; a PeerError if there are two."""
        queue = self._waiting[kind, sender]
        arrived = queue.pop(0)
        if not arrived.last:
            raise PeerError(f"{sender} sent a {kind} in parts, which travels whole here")
        if queue and queue[0].number < before:
            raise PeerError(f"{sender} sent a second {kind} where one was expected")
        self._used[kind, sender] = arrived.number
        return arrived.message

    def senders(self, kind: str, before: int) -> list[str]:
        """Return the senders of unused messages of that kind from steps before number `before`."""
        return [
            sender
            for (known, sender), queue in self._waiting.items()
            if known == kind and queue and queue[0].number < before
        ]

    def check_read_ahead(self, kind: str, before: int) -> None:
        """Raise a PeerError if a stream read ahead came from step `before` or a later one."""
        for (known, sender), number in self._used.items():
            if known == kind and number >= before:
                raise _later_step_error(kind, sender)

    async def stop(self, reason: FedboostError) -> None:
        """End every wait with `reason`, now and from now on."""
        self._stopped = reason
        async with self._changed:
            self._changed.notify_all()

    async def _wait_until(
        self, ready: Callable[[], bool], what: str, of: Callable[[], list[str]] = list
    ) -> None:
        """Wait until `ready()`; `of` lists the senders, and a timeout names the first of them."""
        if self._stopped is None and ready():
            return
        self._waits.append(of)
        try:
            async with asyncio.timeout(self._wait_s), self._changed:
                await self._changed.wait_for(lambda: self._stopped is not None or ready())
        except TimeoutError:
            late = of()
            text = " from ".join([what, *late[:1]])
            error = UnreachableError(
                f"waited {self._wait_s:g} s for {text}", todo="see `fedboost job status`"
            )
            raise (error.at(party=late[0]) if late else error) from None
        finally:
            self._waits.remove(of)
        if self._stopped is not None:
            raise self._stopped

    # For the thread that reads a stream after its first part

    def parts(self, kind: str, sender: str, first: Arrived, wait: Wait) -> Iterator[Message]:
        """Yield the parts of a stream."""
        arrived = first
        yield arrived.message
        while not arrived.last:
            arrived = wait(self.next(kind, sender))
            if arrived.number != first.number:
                raise PeerError(f"{sender} sent parts of two steps as one {kind}")
            yield arrived.message

    def parts_by_sender(
        self, kind: str, firsts: Mapping[str, Arrived], wait: Wait
    ) -> Iterator[dict[str, Message]]:
        """Yield the next part of each open stream, by sender, until all have ended."""
        streams = {
            sender: self.parts(kind, sender, first, wait) for sender, first in firsts.items()
        }
        while True:
            parts = {sender: next(stream, None) for sender, stream in streams.items()}
            going_on = {sender: part for sender, part in parts.items() if part is not None}
            if not going_on:
                return
            yield going_on


def _later_step_error(kind: str, sender: str) -> PeerError:
    return PeerError(f"{sender} sent a {kind} of a later step than the one awaited")
