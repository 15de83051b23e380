"""What both of a pair do alike: blind ids, and blind the other's points once more."""

from __future__ import annotations

from fedboost.crypto.intersection import Exponent, Points, check_points, multiply, read_points
from fedboost.crypto.set_sizes import check_common, padded_points
from fedboost.flow import StageContext
from fedboost.ground.ids import EncodedIds
from fedboost.job import Alignment
from fedboost.messages.protocol.align_pairs_pb2 import GuestSet, HostSet
from fedboost.oblivious.side import Sampled

DOMAIN = b"fedboost align-pairs v2 "  # ids hash to other points in any other use of the group


def points_of(
    ids: EncodedIds, host: str, context: StageContext[Alignment], sample: Sampled | None = None
) -> Points:
    """The ids, or a sample of them, as points for the pair with that host, uint8 (n, 32), behind
    them nobody's up to the size that the party's policy says; they must not leave as such.

    An id is another point for every host. So a guest that sent one host's points to another
    to have them blinded, and the other's to the first, could not compare what comes back. And it is
    another in every job and attempt.
    """
    domain = DOMAIN + context.attempt.digest + host.encode()
    size = context.limits.ids_padded_to
    if sample is not None:
        ids, size, domain = ids.take(sample.rows), sample.size, domain + sample.label
    return padded_points(ids, domain, size, context.services.workers)


def named(sample: Sampled | None) -> tuple[bytes, ...]:
    """Return what a secret order is further drawn for, where there is a sample."""
    return () if sample is None else (sample.label,)


def check_opened(common: int, context: StageContext[Alignment]) -> None:
    """Refuses with a PolicyError to go on with a few ids in common; none is not one too few."""
    if common:
        check_common(common, context.limits.intersection_min)


def blind_again(
    got: GuestSet | HostSet, exponent: Exponent, context: StageContext[Alignment], whose: str
) -> Points:
    """The points of the other one's set times the own exponent, uint8 (n, 32), in its order.

    A PeerError unless all are points of the curve, none of small order, none twice.
    """
    points = read_points(got.points, got.data, f"the set of {whose}")
    check_points(points, context.services.workers)
    return multiply(points, exponent, context.services.workers)
