"""A host of an alignment: gives back what is common as it came, and finds its rows."""

import numpy as np

from fedboost.crypto import id_digests
from fedboost.crypto.intersection import Points, as_keys, read_points
from fedboost.crypto.set_sizes import check_common
from fedboost.errors import PeerError, ProtocolError
from fedboost.flow import Charge, DisclosureInfo, Out, Spent
from fedboost.messages.protocol.align_pb2 import CommonDigests, CommonSet, RowsDigest
from fedboost.protocols.align.ring import (
    Member,
    begin,
    blind_ids,
    bytes_max,
    close_ring,
    finish,
    pass_on,
    restore,
    settle,
    snapshot,
)

__all__ = (
    "begin", "blind_ids", "bytes_max", "close_ring", "finish", "keep_rows", "pass_on", "restore",
    "snapshot", "unblind",
)  # fmt: skip


def unblind(host: Member, got: CommonSet) -> Out:
    """The common points as they were before our exponent, to the host before, at last to the
    guest; not if they are fewer than our policy opens, nor any that is not of the guest's set.
    """
    host.shared = got.points
    check_common(host.shared, host.context.limits.intersection_min)
    points = read_points(got.points, got.data, "the common set")
    opened = given_back(host, points)
    place = host.context.table.hosts.index(host.context.party)
    before = host.context.table.hosts[place - 1] if place else host.context.table.guest
    message = CommonSet(points=len(opened), data=opened.tobytes())
    return Out(
        send={before: message}, about=DisclosureInfo(charges=(Charge(Spent.IDS, len(opened)),))
    )


def given_back(host: Member, points: Points) -> Points:
    """For points that we made of the guest's set what we made them of; a PeerError for any other.

    Whoever asks has sent us these before, so that opening tells which they are and nothing else.
    """
    if host.passed_on is None:
        raise ProtocolError("no set of the guest has passed this party")
    came, left = host.passed_on
    row_of = {point: row for row, point in enumerate(as_keys(left))}
    try:
        rows = np.array([row_of[point] for point in as_keys(points)], np.int64)
    except KeyError:
        raise PeerError("points are to be opened that are not of the guest's set") from None
    return came[rows]


def keep_rows(host: Member, got: CommonDigests) -> Out:
    """Finds the own rows by their digests, as many as we opened, and answers one digest over all
    of them.
    """
    if got.ids != host.shared:
        raise PeerError(f"the guest named {got.ids} common ids, {host.shared} were opened")
    common = id_digests.named_rows(host.ids, got.key, got.ids, got.data)
    digest = settle(host, common, got.key)
    return Out(send=RowsDigest(digest=digest, rows=len(common)))
