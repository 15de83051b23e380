"""A host of an alignment: takes its exponent away from what is common, and finds its rows."""

import hmac

import numpy as np

from fedboost.crypto import intersection
from fedboost.errors import PeerError
from fedboost.flow import Out
from fedboost.messages.protocol.align_pb2 import CommonDigests, CommonSet, RowsDigest
from fedboost.protocols.align.ring import (
    DIGEST_BYTES,
    Member,
    begin,
    blind_ids,
    bytes_max,
    close_ring,
    finish,
    pass_on,
    read_points,
    restore,
    settle,
    snapshot,
)

__all__ = (
    "begin", "blind_ids", "bytes_max", "close_ring", "finish", "keep_rows", "pass_on", "restore",
    "snapshot", "unblind",
)  # fmt: skip


def unblind(me: Member, got: CommonSet) -> Out:
    """The common points without the own exponent, to the host before, at last to the guest."""
    points = read_points(got.points, got.data, "the common set")
    intersection.check_points(points, me.seat.workers)
    opened = intersection.remove(points, me.exponent, me.seat.workers)
    place = me.seat.table.hosts.index(me.seat.party)
    before = me.seat.table.hosts[place - 1] if place else me.seat.table.guest
    return Out(send={before: CommonSet(points=len(opened), data=opened.tobytes())})


def keep_rows(me: Member, got: CommonDigests) -> Out:
    """Finds the own rows by their digests and answers one digest over all of them."""
    named = {
        got.data[start : start + DIGEST_BYTES] for start in range(0, len(got.data), DIGEST_BYTES)
    }
    own = [hmac.digest(got.key, each, "sha256")[:DIGEST_BYTES] for each in me.ids]
    common = np.array([row for row, digest in enumerate(own) if digest in named], np.int64)
    if len(got.data) != got.ids * DIGEST_BYTES or not len(common) == len(named) == got.ids:
        raise PeerError(
            f"the guest named {got.ids} common ids, of which {len(common)} are here",
            party=me.seat.party,
        )
    digest = settle(me, common, got.key)
    return Out(send=RowsDigest(digest=digest, rows=len(common)))
