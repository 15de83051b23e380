"""A host of an alignment: takes its exponent away from what is common, and finds its rows."""

from fedboost.crypto import id_digests
from fedboost.crypto.intersection import check_points, read_points, remove
from fedboost.crypto.set_sizes import check_common
from fedboost.errors import PeerError
from fedboost.flow import Out
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


def unblind(me: Member, got: CommonSet) -> Out:
    """The common points without the own exponent, to the host before, at last to the guest; not
    if they are fewer than our policy opens.
    """
    me.shared = got.points
    check_common(me.shared, me.seat.limits.intersection_min)
    points = read_points(got.points, got.data, "the common set")
    check_points(points, me.seat.workers)
    opened = remove(points, me.exponent, me.seat.workers)
    place = me.seat.table.hosts.index(me.seat.party)
    before = me.seat.table.hosts[place - 1] if place else me.seat.table.guest
    return Out(send={before: CommonSet(points=len(opened), data=opened.tobytes())})


def keep_rows(me: Member, got: CommonDigests) -> Out:
    """Finds the own rows by their digests, as many as we opened, and answers one digest over all
    of them.
    """
    if got.ids != me.shared:
        raise PeerError(f"the guest named {got.ids} common ids, {me.shared} were opened")
    common = id_digests.named_rows(me.ids, got.key, got.ids, got.data)
    digest = settle(me, common, got.key)
    return Out(send=RowsDigest(digest=digest, rows=len(common)))
