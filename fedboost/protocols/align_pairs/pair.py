"""Functions that both parties of a pair share: blind ids, and blind the other's points again."""

from __future__ import annotations

from fedboost.crypto.intersection import Exponent, Points, check_points, multiply, read_points
from fedboost.crypto.set_sizes import check_common, padded_points
from fedboost.flow import StageContext
from fedboost.ground.ids import EncodedIds
from fedboost.job import Alignment
from fedboost.messages.protocol.align_pairs_pb2 import GuestSet, HostSet
from fedboost.oblivious.side import Sampled

PAIR_DOMAIN = b"fedboost align-pairs v2 "  # ids hash to other points in any other use of the group


def points_of(
    ids: EncodedIds, host: str, context: StageContext[Alignment], sample: Sampled | None = None
) -> Points:
    """Return the ids, or a sample, as points for the pair with that host, uint8 (n, 32).

    Points of no id follow, up to the size that the party's policy says. The points must not leave
    without blinding. An id is another point for every host: so a guest that had one host blind
    another host's points could not compare the results. It is also another point in every job and
    attempt.
    """
    domain = PAIR_DOMAIN + context.attempt.digest + host.encode()
    size = context.limits.ids_padded_to
    if sample is not None:
        ids, size, domain = ids.take(sample.rows), sample.size, domain + sample.label
    return padded_points(ids, domain, size, context.services.workers)


def sample_purpose(sample: Sampled | None) -> tuple[bytes, ...]:
    """Return the purpose that a sample adds to a secret order; nothing without a sample."""
    return () if sample is None else (sample.label,)


def check_opened(common: int, context: StageContext[Alignment]) -> None:
    """Refuse, by a PolicyError, to go on with few ids in common; none at all are not too few."""
    if common:
        check_common(common, context.limits.intersection_min)


def blind_again(
    got: GuestSet | HostSet, exponent: Exponent, context: StageContext[Alignment], whose: str
) -> Points:
    """Return the points of the other party's set times our exponent, uint8 (n, 32), in its order.

    A PeerError unless all are points of the curve, none of small order, none twice.
    """
    points = read_points(got.points, got.data, f"the set of {whose}")
    check_points(points, context.services.workers)
    return multiply(points, exponent, context.services.workers)
