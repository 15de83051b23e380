"""Common parts of both sides of an alignment by an oblivious function: the key, the sample that is
counted first, the finished parts.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

import numpy as np

from fedboost.crypto.oprf.ids import IdDigests
from fedboost.crypto.oprf.session import OprfSession, ids_key
from fedboost.crypto.oprf.sizes import CHOICE_BYTES, NONCE_BYTES, OprfSizes, sample_cap
from fedboost.crypto.set_sizes import CURVE_IDS_MAX, SET_IDS_MAX, padded_size
from fedboost.flow import Artefact, Charge, DisclosureInfo, Place, Spent, StageContext
from fedboost.ground.arrays import Bits, Indices
from fedboost.ground.errors import PeerError, ProtocolError
from fedboost.ground.ids import EncodedIds
from fedboost.ground.slot import Slot
from fedboost.ground.workers import Pending, Workers
from fedboost.job import Alignment
from fedboost.messages.job_pb2 import StatusReport
from fedboost.messages.protocol.align_pb2 import Hint
from fedboost.messages.protocol.oblivious_pb2 import Part, Tags
from fedboost.oblivious.method import SAMPLE_GROWTH, SAMPLE_IDS

PARTS_AT_ONCE = 4  # of a round, behind which a job can go on: fewer than an inbox holds
SAMPLED_IDS_MAX = CURVE_IDS_MAX - (1 << 16)  # minus the padding of a sample
SMALL_BYTES = 1 << 14  # of messages that hold a few numbers, or a key with its signature

T = TypeVar("T")
S = TypeVar("S", bound="Side")


class Sampled(NamedTuple):
    """Ids that are counted on the curve."""

    rows: Indices  # of the party's ids
    size: int  # padding included
    label: bytes  # part of the hashed bytes


class Side:
    """One party. An attempt that continues after some parts keeps their key, with new transfers."""

    digests = Slot[IdDigests]("digests of ids, for which all must have told a nonce")
    key = Slot[bytes]("the key of the ids' digests")

    def __init__(
        self, context: StageContext[Alignment], ids: EncodedIds, earlier: Artefact | None = None
    ) -> None:
        """Begin, or go on from an earlier attempt; a PolicyError for more ids than padded to."""
        self.context, self.ids = context, ids
        self.size = padded_size(len(ids), context.limits.ids_padded_to)
        self.sizes = {context.party: self.size}  # of the sets that we know of
        self.nonce = context.secrets.attempt.bytes(NONCE_BYTES, "nonce")
        self.largest = 0  # of the hosts' sets, if parts and samples are cut by it
        self.number = 0  # of the sample
        self.passed = False  # enough ids are in common
        self.done = 0  # parts
        self.found: dict[str, Bits] = {}  # our ids in common, by peer
        self._key_sha256 = ""  # of the attempt that we go on from
        if earlier is not None:
            self._restore_parts(earlier)

    def draw_key(self, nonces: Sequence[bytes]) -> None:
        """Draw the key from the nonces of the guest and of the hosts, and digest the ids.

        A PeerError where a nonce is none, or it or the number of parts has changed in this job.
        """
        if any(len(nonce) != NONCE_BYTES for nonce in nonces):
            raise PeerError(f"a nonce of an alignment has {NONCE_BYTES} bytes")
        self.nonces, self.key = tuple(nonces), ids_key(self.context.attempt.origin, nonces)
        digest = hashlib.sha256(self.key + self.bins.to_bytes(4, "big")).hexdigest()
        if self._key_sha256 not in ("", digest):
            raise PeerError(
                "a party has another nonce, or far more ids, than when the alignment began"
            )
        self._key_sha256 = digest
        self.digests = IdDigests(self.ids, self.key, self.bins, self.context.services.workers)

    def session(self, host: str) -> OprfSession:
        """Return the terms of the pair of the guest and a host."""
        guest = self.context.table.guest
        sizes = OprfSizes(self.sizes[guest], self.sizes[host], self.largest)
        digest = self.context.attempt.digest
        return OprfSession(digest, guest, host, sizes, self.key)

    def admit(self, party: str, ids: int) -> None:
        """Note the size of another party's set; a PeerError where no table has so many ids."""
        if not 0 < ids <= SET_IDS_MAX:
            raise PeerError(f"{party} has a set of {ids} ids; {SET_IDS_MAX} is the most")
        self.sizes[party] = ids

    # The sample

    @property
    def sample_share(self) -> float:
        """Return the share of the ids that the sample at hand has."""
        guests = self.sizes[self.context.table.guest]
        return min(self._largest_share, SAMPLE_IDS * SAMPLE_GROWTH**self.number / guests)

    @property
    def is_last(self) -> bool:
        """Return whether no sample is larger: it has all ids, or the most that fit the curve."""
        return self.sample_share == self._largest_share

    @property
    def _largest_share(self) -> float:
        """Return the largest share that fits the curve for every set, padding included."""
        most = max(self.sizes[self.context.table.guest], self.largest)
        return 1.0 if most <= CURVE_IDS_MAX else SAMPLED_IDS_MAX / most

    def sampled_ids(self, *, settled: bool = False) -> Sampled:
        """Return the own ids of the sample at hand; none for a pair that is `settled`."""
        rows = np.empty(0, np.int64) if settled else self.digests.sample(self.sample_share)
        size = 0 if settled else sample_cap(self.size, self.sample_share)
        return Sampled(rows, size, b"\0sample %d" % self.number)

    def check_sampled(self, party: str, points: int, *, settled: bool = False) -> None:
        """Raise PeerError if a party's sample has the wrong size, once the size of its set is
        known.
        """
        if party not in self.sizes:
            return
        size = 0 if settled else sample_cap(self.sizes[party], self.sample_share)
        if points != size:
            raise PeerError(f"{party} sent {points} ids of a sample of {size}", party=party)

    # The parts

    @property
    def bins(self) -> int:
        """Return the number of parts."""
        guests = self.sizes[self.context.table.guest]
        return OprfSizes(guests, guests, self.largest).bins

    @property
    def parts(self) -> range:
        """Return the parts of the round at hand."""
        return range(self.done, min(self.bins, self.done + PARTS_AT_ONCE))

    def bytes_max(self, step: str) -> int:
        """Return the most bytes that a step's message has, by the sizes that we know."""
        table = self.context.table
        hosts = [host for host in table.hosts if host in self.sizes]
        if table.guest not in self.sizes or not hosts:
            return SMALL_BYTES
        guests = self.sizes[table.guest]
        of_pairs = [OprfSizes(guests, self.sizes[host], self.largest) for host in hosts]
        most = {
            "open_transfers": CHOICE_BYTES,
            "answer_with_tags": max(sizes.part_bytes for sizes in of_pairs),
            "answer_with_hints": max(sizes.part_bytes for sizes in of_pairs),
            "match_tags": max(sizes.tags_bytes for sizes in of_pairs),
            "match_hints": max(sizes.hint_bytes for sizes in of_pairs),
            "keep_named": max(sizes.named_bytes for sizes in of_pairs),
        }
        return most.get(step, 0) + SMALL_BYTES

    def note(self, peer: str, rows: Indices) -> None:
        """Note rows that are in common with a peer."""
        self.found.setdefault(peer, np.zeros(len(self.ids), np.bool_))[rows] = True

    def rows(self, peer: str) -> Indices:
        """Return the rows in common with a peer so far, ascending."""
        return np.flatnonzero(self.found.get(peer, np.zeros(0, np.bool_)))

    def snapshot(self) -> Artefact:
        """Return the state that a later attempt continues from."""
        facts = {"nonce": self.nonce.hex(), "key_sha256": self._key_sha256, "done": self.done}
        return Artefact(facts, {peer: np.packbits(bits) for peer, bits in self.found.items()})

    def _restore_parts(self, kept: Artefact) -> None:
        self._key_sha256, self.done = kept.facts["key_sha256"], kept.facts["done"]
        self.nonce = bytes.fromhex(kept.facts["nonce"])
        self.passed = True  # or no part would be done
        for peer, packed in kept.arrays.items():
            bits = np.unpackbits(np.asarray(packed, np.uint8), count=len(self.ids))
            self.found[peer] = bits.view(np.bool_)


@dataclass
class Aligning:
    """State of every party of an alignment."""

    context: StageContext[Alignment]
    ids: EncodedIds
    side: Side | None = field(default=None, kw_only=True)  # in messages of an oblivious function
    earlier: Artefact | None = field(default=None, kw_only=True)  # kept by an earlier attempt
    # Of sets that have arrived, which our next message is charged with.
    uncharged: list[Charge] = field(default_factory=list, kw_only=True)

    def count_brought(self, party: str, ids: int) -> None:
        """Note that a party has brought a set that asks about so many ids; a PolicyError for more
        than a peer may bring in a day.
        """
        self.context.limits.judge_peer_ids(party, ids)
        self.uncharged.append(Charge(Spent.PEER_IDS, ids, peer=party))

    def charged(self, *charges: Charge) -> DisclosureInfo:
        """Return what our next message is charged with: `charges`, and the sets that have arrived
        since the last one.
        """
        due, self.uncharged = (*charges, *self.uncharged), []
        return DisclosureInfo(charges=due)


def snapshot(party: Aligning, _: Place) -> Artefact:
    """Return the finished parts; an alignment on the curve keeps nothing."""
    return Artefact() if party.side is None else party.side.snapshot()


def restore(party: Aligning, kept: Artefact) -> StatusReport:
    """Go on behind the parts that are done; on the curve an alignment starts anew."""
    party.earlier = kept
    return StatusReport()


def results_in_order(workers: Workers, tasks: Iterable[Callable[[], T]]) -> Iterator[T]:
    """Yield the results of tasks in order; run one task per thread at a time."""
    threads = workers.threads
    waiting: deque[Pending[T]] = deque()
    for task in tasks:
        if len(waiting) >= threads.count:
            yield waiting.popleft().result()
        waiting.append(threads.submit(task))
    while waiting:
        yield waiting.popleft().result()


def numbered_parts(parts: range, got: Iterable[T], sender: str) -> Iterator[tuple[int, T]]:
    """Yield each part's number and message; raise PeerError if a stream has more or fewer."""
    left = iter(parts)
    for message in got:
        b = next(left, None)
        if b is None:
            raise PeerError(f"{sender} sent more than {len(parts)} parts")
        yield b, message
    if next(left, None) is not None:
        raise PeerError(f"{sender} sent fewer than {len(parts)} parts")


def check_part(sender: str, got: Part | Tags | Hint, b: int, ids: int) -> None:
    """Raise PeerError unless a message is about part `b` and has the expected size."""
    if (got.number, got.ids) != (b, ids):
        raise PeerError(
            f"{sender} sent part {got.number} of {got.ids} ids, expected part {b} of {ids}",
            party=sender,
        )


def refuse_sampled(side: Side | None) -> None:
    """Raise ProtocolError if the ids to be opened are a sample."""
    if side is not None:
        raise ProtocolError("a sample of the ids is counted and never opened")


def side_of(kind: type[S], side: Side | None) -> S:
    """Return a party's side; raise ProtocolError if its alignment takes another method."""
    if not isinstance(side, kind):
        raise ProtocolError("this alignment uses no oblivious function, so it has no such step")
    return side
