"""Steps that guest and host share: blind our set, and pass on the sets of others."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fedboost.crypto import id_digests, intersection, set_sizes
from fedboost.crypto.intersection import POINT_BYTES, Exponent, Points, check_points, read_points
from fedboost.crypto.set_sizes import CURVE_IDS_MAX
from fedboost.data.holdout import canonical_rows
from fedboost.flow import Artefact, Out, StageContext, Table
from fedboost.ground.errors import PeerError
from fedboost.ground.slot import Slot
from fedboost.job import Alignment
from fedboost.messages.protocol.align_pb2 import BlindedSet, FullSet
from fedboost.oblivious.method import ECDH, check_method
from fedboost.oblivious.side import Aligning

OF_POINTS = {"pass_on", "close_ring", "intersect", "count_common"}  # of others' sets
RING_DOMAIN = b"fedboost align v2 "  # ids hash to other points in any other use of the group


@dataclass
class Member(Aligning):
    """State of a party while the sets go round."""

    exponent: Exponent
    own: Points = field(default_factory=lambda: np.empty((0, POINT_BYTES), np.uint8))
    passed: int = 0  # sets shuffled so far
    shared: int = 0  # points in every set
    digest: bytes = b""  # over the rows the guest keeps
    brought: dict[str, int] = field(default_factory=dict)  # ids in each party's set, at the guest
    passed_on: tuple[Points, Points] | None = None  # of a host: the guest's set as it came and left
    pair_keys: dict[str, bytes] = field(default_factory=dict, repr=False)  # with each other host
    kept = Slot[Points]("a fully blinded set that ended at this party")
    rows = Slot[NDArray[np.int64]]("rows that all share")

    @property
    def next(self) -> str:
        """Name of the party after us in the ring."""
        return party_behind(self.context.table, self.context.party, 1)


def party_behind(table: Table, party: str, steps: int) -> str:
    """Return the party `steps` behind another one in the ring; before it if `steps` is negative."""
    ring = (table.guest, *table.hosts)
    return ring[(ring.index(party) + steps) % len(ring)]


def domain_of(context: StageContext[Alignment]) -> bytes:
    """Return the domain that ids are hashed in; it differs in every job, stage and attempt."""
    return RING_DOMAIN + context.attempt.digest


def check_origin(origin: str, expected: str, sender: str) -> None:
    """Raise a PeerError unless the set belongs to the party whose turn it is."""
    if origin != expected:
        raise PeerError(f"{sender} sent a set that is not said to be of {expected}", party=sender)


def begin(context: StageContext[Alignment]) -> Member:
    """Return a party with its ids and a fresh exponent."""
    return Member(context, context.data.ids, Exponent.random())


def blind_ids(party: Member) -> Out:
    """Send our ids, or a sample of them, as points under our exponent to the next in the ring.

    The points are in secret order, and padded if our policy sets a size.
    """
    ids, domain, workers = party.ids, domain_of(party.context), party.context.services.workers
    size = party.context.limits.ids_padded_to
    if party.side is not None:
        sample = party.side.sampled_ids()
        ids, size = ids.take(sample.rows), sample.size
        domain, party.exponent = domain + sample.label, Exponent.random()
    points = set_sizes.padded_points(ids, domain, size, workers)
    blinded = intersection.multiply(points, party.exponent, workers)
    party.own = blinded[: len(ids)]
    data = _shuffled(party, blinded)
    message = BlindedSet(origin=party.context.party, points=len(data), data=data.tobytes())
    return Out(send={party.next: message}, about=party.charged())


def pass_on(party: Member, got: BlindedSet) -> Out:
    """Blind another party's set once more, shuffle it, and send it to the next in the ring."""
    data = _blind_again(party, got)
    message = BlindedSet(origin=got.origin, points=len(data), data=data.tobytes())
    return Out(send={party.next: message}, about=party.charged())


def close_ring(party: Member, got: BlindedSet) -> Out:
    """Blind a set for the last time: the guest keeps it, a host sends it to the guest."""
    data = _blind_again(party, got)
    if party.context.party == party.context.table.guest:
        party.kept = data
        return Out()
    message = FullSet(origin=got.origin, points=len(data), data=data.tobytes())
    return Out(send={party.context.table.guest: message}, about=party.charged())


def keep_common_rows(party: Member, common: NDArray[np.int64], key: bytes) -> bytes:
    """Keep the common rows in canonical order; return the keyed digest that all compare."""
    party.rows = canonical_rows(party.ids, common)
    return id_digests.digest_of_all(party.ids, key, party.rows)


def finish(party: Member) -> Artefact:
    """Return the rows of our table that all parties share, in the order that all share."""
    return Artefact(arrays={"rows": party.rows})


def bytes_max(party: Member, step: str) -> int:
    """Return the largest size of a message: sets of others up to the policy's limit, else our size.

    Common ids are never more than our own.
    """
    if step in OF_POINTS:
        return min(CURVE_IDS_MAX, party.context.limits.peer_ids_max) * POINT_BYTES + 1024
    if party.side is not None:
        return party.side.bytes_max(step)
    return len(party.ids) * POINT_BYTES + 1024


def _blind_again(member: Member, got: BlindedSet) -> Points:
    table, party = member.context.table, member.context.party
    origin = party_behind(table, party, -member.passed)  # the sets come in the order of the ring
    check_origin(got.origin, origin, party_behind(table, party, -1))
    points = read_points(got.points, got.data, f"the set of {origin}")
    if member.side is None or origin not in member.side.sizes:
        member.count_brought(origin, len(points))
    check_points(points, member.context.services.workers)
    blinded = intersection.multiply(points, member.exponent, member.context.services.workers)
    if member.side is not None:
        member.side.check_sampled(origin, len(points))
    elif origin == table.guest:
        check_method(member.context.params, len(points), ECDH, origin)
        member.passed_on = points, blinded
    return _shuffled(member, blinded)


def _shuffled(party: Member, points: Points) -> Points:
    party.passed += 1
    return points[party.context.secrets.attempt.permutation(len(points), "order", party.passed)]
