"""A host of an alignment: returns the common points as they came, and finds its rows."""

from collections.abc import Iterator, Mapping

import numpy as np

from fedboost.crypto import id_digests
from fedboost.crypto.intersection import Points, as_keys, read_points
from fedboost.crypto.masking import MaskKey, Pair
from fedboost.crypto.set_sizes import check_common
from fedboost.flow import Charge, Out, Spent
from fedboost.ground.errors import PeerError, ProtocolError
from fedboost.messages.protocol.align_pb2 import CommonDigests, CommonSet, Hint, PairKey, RowsDigest
from fedboost.messages.protocol.oblivious_pb2 import Part, SampleCount
from fedboost.oblivious.host import answer_with_tags, greet, hear_start, host_side, keep_named
from fedboost.oblivious.side import refuse_sampled, restore, snapshot
from fedboost.protocols.align.ring import (
    Member,
    begin,
    blind_ids,
    bytes_max,
    close_ring,
    finish,
    keep_common_rows,
    pass_on,
)

__all__ = (
    "answer_with_hints", "answer_with_tags", "begin", "blind_ids", "bytes_max", "choose_seeds",
    "close_ring", "finish", "greet", "hear_count", "hear_pair_keys", "hear_start", "keep_named",
    "keep_rows", "offer_pair_key", "pass_on", "restore", "snapshot", "tell_rows", "unblind",
)  # fmt: skip

PAIR_KEY = b"fedboost align pair key 1"


def unblind(host: Member, got: CommonSet) -> Out:
    """Unblind the common points for the party before us, the guest at last.

    Refuses fewer points than our policy opens, and points outside the guest's set.
    """
    refuse_sampled(host.side)
    host.shared = got.points
    check_common(host.shared, host.context.limits.intersection_min)
    points = read_points(got.points, got.data, "the common set")
    opened = points_as_received(host, points)
    place = host.context.table.hosts.index(host.context.party)
    before = host.context.table.hosts[place - 1] if place else host.context.table.guest
    message = CommonSet(points=len(opened), data=opened.tobytes())
    return Out(send={before: message}, about=host.charged(Charge(Spent.IDS, len(opened))))


def points_as_received(host: Member, points: Points) -> Points:
    """Return points of the guest's set as they came, for points that we made of them.

    A PeerError for any other points. The sender has sent us these points before, so opening them
    reveals which points they are and no more.
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
    """Find our rows by their digests, as many as we opened, and send one digest over them."""
    if got.ids != host.shared:
        raise PeerError(f"the guest named {got.ids} common ids, {host.shared} were opened")
    common = id_digests.named_rows(host.ids, got.key, got.ids, got.data)
    digest = keep_common_rows(host, common, got.key)
    return Out(send=RowsDigest(digest=digest, rows=len(common)))


# By an oblivious function


def offer_pair_key(host: Member) -> Out:
    """Send the signed public half of our key to every other host."""
    public = _mask_key(host).public
    signature = host.context.services.signer.sign(_signed_text(host, host.context.party, public))
    return Out(send=PairKey(key=public, signature=signature))


def hear_pair_keys(host: Member, got: Mapping[str, PairKey]) -> Out:
    """Derive a secret with each other host from its key; a PeerError for a forged key."""
    mask_key, salt = _mask_key(host), host.context.attempt.digest
    signer = host.context.services.signer
    for party, offered in got.items():
        signer.check(party, _signed_text(host, party, offered.key), offered.signature)
        host.pair_keys[party] = Pair(mask_key.shared(offered.key), salt).stream_key(PAIR_KEY)
    return Out()


def hear_count(host: Member, got: SampleCount) -> Out:
    """Refuse to go on if fewer ids are in common than our policy opens."""
    return host_side(host).take_count(got, may_be_none=False)


def choose_seeds(host: Member) -> Out:
    """Send our half of the transfers; that of several hosts reveals nothing without the others."""
    others = [party for party in host.context.table.hosts if party != host.context.party]
    if set(others) != set(host.pair_keys):
        raise ProtocolError("the other hosts' keys have not come")
    return host_side(host).send_transfers(host, [host.pair_keys[party] for party in others])


def answer_with_hints(host: Member, got: Iterator[Part]) -> Iterator[Out]:
    """Yield the values under shares that cancel if all hosts have an id."""
    yield from host_side(host).answer(got, Hint)


def tell_rows(host: Member) -> Out:
    """Send one digest over all our common rows; refuse fewer than our policy opens."""
    side = host_side(host)
    rows = side.rows(host.context.table.guest)
    check_common(len(rows), side.least)
    return Out(send=RowsDigest(digest=keep_common_rows(host, rows, side.key), rows=len(rows)))


def _mask_key(host: Member) -> MaskKey:
    return MaskKey(host.context.secrets.attempt.derive("pair key"))


def _signed_text(host: Member, party: str, key: bytes) -> bytes:
    return PAIR_KEY + host.context.attempt.digest + party.encode() + key
