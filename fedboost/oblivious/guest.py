"""A guest's side of an alignment by an oblivious function, with all its hosts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Protocol

from fedboost.crypto.oprf.guest import OprfGuest
from fedboost.crypto.oprf.hints import HintGuest
from fedboost.crypto.oprf.sizes import OprfSizes, announced_size, check_part_size
from fedboost.crypto.oprf.tags import TagGuest
from fedboost.crypto.set_sizes import check_common, padded_size
from fedboost.flow import Artefact, Out, StageContext
from fedboost.ground.arrays import Indices
from fedboost.ground.ids import EncodedIds
from fedboost.ground.slot import Slot
from fedboost.job import Alignment
from fedboost.messages.job_pb2 import RoundTold, StatusReport
from fedboost.messages.protocol.align_pb2 import Hint
from fedboost.messages.protocol.oblivious_pb2 import (
    Choice,
    Greeting,
    Named,
    Part,
    SampleCount,
    Start,
    Tags,
)
from fedboost.oblivious.method import ECDH, OPRF, PART, SAMPLE, method_for
from fedboost.oblivious.side import (
    Aligning,
    Side,
    check_part,
    numbered_parts,
    results_in_order,
    side_of,
)


class Finder(Protocol):
    """A guest's requests to each host, and its search for ids in the answers."""

    def part(self, host: str, b: int) -> bytes:
        """Return the request to a host for part `b`."""

    def find(self, b: int, answers: Mapping[str, bytes]) -> dict[str, tuple[Indices, bytes]]:
        """Return the rows in common with each host, and the bytes that name them to it."""


class ByTags:
    """Ids in common with each host separately."""

    def __init__(self, oprfs: Mapping[str, OprfGuest]) -> None:
        self._guests = {host: TagGuest(oprf) for host, oprf in oprfs.items()}

    def part(self, host: str, b: int) -> bytes:
        """Return the request to a host for part `b`."""
        return self._guests[host].part(b)

    def find(self, b: int, answers: Mapping[str, bytes]) -> dict[str, tuple[Indices, bytes]]:
        """Return the rows in common with each host, and the bytes that name them to it."""
        return {host: self._guests[host].read_tags(b, data) for host, data in answers.items()}


class ByHints:
    """Ids in common with all hosts, of two or more."""

    def __init__(self, oprfs: Mapping[str, OprfGuest]) -> None:
        self._hosts = list(oprfs)
        self._guest = HintGuest(list(oprfs.values()))

    def part(self, host: str, b: int) -> bytes:
        """Return the request to a host for part `b`."""
        return self._guest.part(self._hosts.index(host), b)

    def find(self, b: int, answers: Mapping[str, bytes]) -> dict[str, tuple[Indices, bytes]]:
        """Return the rows in common with all hosts, and the bytes that name them to each."""
        rows, named = self._guest.read_hints(b, [answers[host] for host in self._hosts])
        return {host: (rows, data) for host, data in zip(self._hosts, named, strict=True)}


class GuestSide(Side):
    """State of the guest."""

    finder = Slot[Finder]("the hosts' choices")

    def __init__(
        self, context: StageContext[Alignment], ids: EncodedIds, earlier: Artefact | None = None
    ) -> None:
        super().__init__(context, ids, earlier)
        self.oprfs: dict[str, OprfGuest] = {}
        self.least: dict[str, int] = {}  # least number of common ids that may be opened to a host
        self.counts: dict[str, int] = {}  # ids in common with a host in the largest sample
        self.settled: set[str] = set()  # hosts that need no larger sample

    def start(self, guest: Aligning, got: Mapping[str, Greeting], *, joint: bool) -> Out:
        """Agree on the key; to each host the own half of the transfers. No sample is counted where
        one id in common may be opened, and none where an earlier attempt has counted it.

        With `joint` an id is in common that all have, and none is opened of fewer than all ask for.
        """
        hosts = self.context.table.hosts
        most = max(greeting.least for greeting in got.values())
        for host in hosts:
            self.admit(host, got[host].ids)
        most_ids = max(self.sizes[host] for host in hosts)
        self.largest = announced_size(self.size, most_ids)
        check_part_size(OprfSizes(self.size, most_ids, self.largest))
        for host in hosts:
            least = most if joint else got[host].least
            self.least[host] = max(least, self.context.limits.intersection_min)
        self.draw_key((self.nonce, *(got[host].nonce for host in hosts)))
        starts, about = {}, {}
        for host in hosts:
            guest.count_brought(host, self.session(host).sizes.host_room)
            about[host] = guest.charged()
            secrets = self.context.secrets.attempt.child("oprf", host)
            self.oprfs[host] = OprfGuest(self.session(host), self.digests, secrets)
            point = self.oprfs[host].start
            starts[host] = Start(
                ids=self.size, nonces=self.nonces, point=point, largest=self.largest
            )
        self.passed |= max(self.least.values()) <= 1
        ends = SAMPLE if self.passed else ""
        return Out(send=starts, told=StatusReport(ends=ends), about=about)

    def count(self, counts: Mapping[str, int], *, may_be_none: bool) -> Out:
        """Tell each host the number of sampled ids in common; a larger sample follows if they are
        too few. Raise PolicyError if the last sample has too few; with `may_be_none`, zero is
        allowed.
        """
        for host, count in counts.items():
            if self.is_last and (count or self.sample_share < 1.0 or not may_be_none):
                check_common(count, self.least[host])
            if self.is_last or count >= self.least[host]:
                self.settled.add(host)
        self.counts |= counts
        self.passed = len(self.settled) == len(self.context.table.hosts)
        self.number += not self.passed
        messages = {
            host: SampleCount(ids=count, is_last=host in self.settled)
            for host, count in self.counts.items()
        }
        return Out(send=messages, told=StatusReport(ends=SAMPLE if self.passed else ""))

    def open(self, got: Mapping[str, Choice], *, hints: bool) -> Out:
        """Take the hosts' halves of the transfers; no part follows where all are done."""
        tasks = [(host, choice.points) for host, choice in got.items()]
        self.context.services.workers.threads.map(self._open_session, tasks)
        self.finder = ByHints(self.oprfs) if hints else ByTags(self.oprfs)
        return Out(told=StatusReport(ends=PART if self.done == self.bins else ""))

    def _open_session(self, host: str, points: bytes) -> None:
        self.oprfs[host].open(points)

    def part_messages(self) -> Iterator[Out]:
        """Yield the round's parts of our set, encoded for each host under its own keys."""
        tasks = (partial(self._batch_part, b) for b in self.parts)
        for parts in results_in_order(self.context.services.workers, tasks):
            yield Out(send=parts)

    def _batch_part(self, b: int) -> dict[str, Part]:
        return {
            host: Part(number=b, ids=oprf.session.sizes.guest_cap, data=self.finder.part(host, b))
            for host, oprf in self.oprfs.items()
        }

    def find(self, got: Iterable[Mapping[str, Tags | Hint]]) -> Iterator[Out]:
        """Find the ids in common in the hosts' answers, and name them to the hosts."""
        last = self.parts[-1]
        for b, answers in numbered_parts(self.parts, got, "a host"):
            for host, oprf in self.oprfs.items():
                sizes = oprf.session.sizes
                check_part(host, answers[host], b, sizes.host_cap)
            matches = self.finder.find(b, {host: answer.data for host, answer in answers.items()})
            named = {}
            for host, (rows, data) in matches.items():
                self.note(host, rows)
                named[host] = Named(number=b, ids=len(rows), data=data)
            yield Out(send=named, told=self._progress(b) if b == last else None)
        self.done = last + 1

    def _progress(self, b: int) -> StatusReport:
        """Return the progress after part `b`."""
        done = RoundTold(round=PART, done=b + 1, of=self.bins)
        return StatusReport(ends=PART if b + 1 == self.bins else "", rounds=[done])


def guest_side(guest: Aligning) -> GuestSide:
    """Return the guest's side; a ProtocolError where the alignment takes another method."""
    return side_of(GuestSide, guest.side)


# Steps of every alignment


def choose_method(guest: Aligning) -> Out:
    """Choose by the own size, and end the loop of the other method."""
    size = padded_size(len(guest.ids), guest.context.limits.ids_padded_to)
    method = method_for(guest.context.params, size)
    if method == OPRF:
        guest.side = GuestSide(guest.context, guest.ids, guest.earlier)
    return Out(told=StatusReport(ends=ECDH if method == OPRF else OPRF, alignment=method))


def ask_parts(guest: Aligning) -> Iterator[Out]:
    """Yield the next parts of our set, encoded for each host."""
    yield from guest_side(guest).part_messages()
