"""A host's side of an alignment by an oblivious function."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial

from fedboost.crypto.oprf.base_transfers import check_point
from fedboost.crypto.oprf.hints import HintHost
from fedboost.crypto.oprf.host import OprfHost
from fedboost.crypto.oprf.sizes import OprfSizes, announced_size, sample_cap
from fedboost.crypto.oprf.tags import TagHost
from fedboost.crypto.set_sizes import SET_IDS_MAX, check_common
from fedboost.flow import Artefact, Charge, DisclosureInfo, Out, Spent, StageContext
from fedboost.ground.errors import PeerError, ProtocolError
from fedboost.ground.ids import EncodedIds
from fedboost.ground.slot import Slot
from fedboost.job import Alignment
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
from fedboost.oblivious.method import OPRF, check_method
from fedboost.oblivious.side import (
    Aligning,
    Side,
    check_part,
    numbered_parts,
    results_in_order,
    side_of,
)


class HostSide(Side):
    """State of a host."""

    oprf = Slot[OprfHost]("the guest's half of the transfers")
    answers = Slot[TagHost | HintHost]("its half of the transfers")

    def __init__(
        self, context: StageContext[Alignment], ids: EncodedIds, earlier: Artefact | None = None
    ) -> None:
        super().__init__(context, ids, earlier)
        self.least: int = context.limits.intersection_min
        self.passed |= self.least <= 1
        self.settled = False  # no larger sample is counted

    def send_greeting(self) -> Out:
        """Send the size of the own set, a nonce and the least number of ids that we open."""
        return Out(send=Greeting(ids=self.size, nonce=self.nonce, least=self.least))

    def hear(self, host: Aligning, start: Start) -> Out:
        """Agree on the key; a PeerError for a wrong size, or another nonce of ours than we sent.

        A PolicyError where the parts have room for more ids than a peer may bring: a size that no
        host has makes more parts, each padded.
        """
        guest, hosts = self.context.table.guest, self.context.table.hosts
        self.admit(guest, start.ids)
        self.largest = start.largest
        told = announced_size(start.ids, max(start.largest, self.size))
        is_ours = len(hosts) > 1 or start.largest == announced_size(start.ids, self.size)
        if not (is_ours and start.largest == told <= SET_IDS_MAX):
            raise PeerError(f"{guest} cuts its parts by a wrong size", party=guest)
        sizes = OprfSizes(start.ids, self.size, start.largest)
        host.count_brought(guest, sizes.guest_room)
        check_method(self.context.params, start.ids, OPRF, guest)
        index = 1 + hosts.index(self.context.party)
        if len(start.nonces) != 1 + len(hosts) or start.nonces[index] != self.nonce:
            raise PeerError(f"{guest} did not pass on the nonces of all hosts", party=guest)
        self.draw_key(start.nonces)
        check_point(start.point)
        self._point = start.point
        return Out()

    def take_count(self, got: SampleCount, *, may_be_none: bool) -> Out:
        """Raise PolicyError if too few ids are in common to open them; with `may_be_none`, zero is
        allowed.
        """
        guest = self.context.table.guest
        most = min(sample_cap(size, self.sample_share) for size in (self.size, self.sizes[guest]))
        if got.ids > most:
            raise PeerError(f"{guest} counts {got.ids} ids in common in a sample of {most}")
        self.number += not got.is_last
        if got.is_last:
            if got.ids or self.sample_share < 1.0 or not may_be_none:
                check_common(got.ids, self.least)
            self.passed = self.settled = True
        return Out()

    def send_transfers(self, host: Aligning, keys: Sequence[bytes] = ()) -> Out:
        """Send our half of the transfers, under `keys` with the hosts that must have an id too."""
        secrets = self.context.secrets.attempt.child("oprf", self.context.table.guest)
        session = self.session(self.context.party)
        self.oprf = OprfHost(session, self.digests, secrets, self._point)
        self.answers = HintHost(self.oprf, keys) if keys else TagHost(self.oprf)
        return Out(send=Choice(points=self.oprf.choice), about=host.charged())

    def answer(self, got: Iterable[Part], kind: type[Tags] | type[Hint]) -> Iterator[Out]:
        """Check each part, and answer it with the function's values of our ids in it.

        Charged are as many ids as the guest can find by it.
        """
        if not self.passed:
            raise ProtocolError("a sample of the ids comes before the parts, and none was counted")
        parts = numbered_parts(self.parts, got, self.context.table.guest)
        tasks = (partial(self._answer_part, b, part, kind) for b, part in parts)
        for message, most in results_in_order(self.context.services.workers, tasks):
            yield Out(send=message, about=DisclosureInfo(charges=(Charge(Spent.IDS, most),)))

    def _answer_part(
        self, b: int, part: Part, kind: type[Tags] | type[Hint]
    ) -> tuple[Tags | Hint, int]:
        """Return the answer to a part, and the largest number of ids that the guest can find."""
        sizes = self.oprf.session.sizes
        check_part(self.context.table.guest, part, b, sizes.guest_cap)
        data = self.answers.answer(b, part.data)
        most = min(self.digests.count(b), sizes.guest_cap)
        return kind(number=b, ids=sizes.host_cap, data=data), most

    def keep(self, got: Iterable[Named]) -> Out:
        """Note our rows that the guest names, part after part."""
        guest, last = self.context.table.guest, self.parts[-1]
        for b, named in numbered_parts(self.parts, got, guest):
            if named.number != b:
                raise PeerError(f"{guest} named ids of part {named.number}, expected part {b}")
            rows = self.answers.read_named(b, named.data)
            if len(rows) != named.ids:
                raise PeerError(
                    f"{guest} named {named.ids} ids, but only {len(rows)} of them are here"
                )
            self.note(guest, rows)
        self.done = last + 1
        return Out()


def host_side(host: Aligning) -> HostSide:
    """Return the host's side; a ProtocolError where the alignment takes another method."""
    return side_of(HostSide, host.side)


# Steps of every alignment


def greet(host: Aligning) -> Out:
    """Send the size of our set and a nonce."""
    host.side = side = HostSide(host.context, host.ids, host.earlier)
    return side.send_greeting()


def hear_start(host: Aligning, got: Start) -> Out:
    """Store the guest's size and half of the transfers, and the nonces that make the key of the
    ids' digests.
    """
    return host_side(host).hear(host, got)


def answer_with_tags(host: Aligning, got: Iterator[Part]) -> Iterator[Out]:
    """Yield the function's values of our ids, part by part; no more than the guest's set has."""
    yield from host_side(host).answer(got, Tags)


def keep_named(host: Aligning, got: Iterator[Named]) -> Out:
    """Find the own rows that the guest names."""
    return host_side(host).keep(got)
