"""Where contributors' own records of sums stand: an attempt goes on where all of them agree."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from fedboost.aggregation.tag import KEY_BYTES
from fedboost.errors import PeerError, ProtocolError
from fedboost.flow import GUEST, START, Place, StageContext
from fedboost.messages.protocol.aggregation_pb2 import Stand, Standing


def begun(context: StageContext, members: tuple[str, ...]) -> bytes:
    """The history before the first sum: the job with its manifest, the stage, the contributors."""
    names = "\0".join(members).encode()
    return hashlib.sha256(b"fedboost sums 1" + context.origin + names).digest()


def shown(context: StageContext, history: bytes, tag_key: bytes) -> Standing:
    """Return what we have kept of the stage and where we stand, signed; a guest's with a key for
    tags.
    """
    kept = [Stand(place=place, history=bytes.fromhex(own)) for place, own in context.kept.items()]
    standing = Standing(history=history, kept=kept, tag_key=tag_key)
    standing.signature = context.signer.sign(_signed(context, context.party, standing))
    return standing


def check_signed(context: StageContext, got: Mapping[str, Standing]) -> None:
    """Refuses, by name, a standing that its party has not signed."""
    for party, theirs in got.items():
        context.signer.check(party, _signed(context, party, theirs), theirs.signature)


def agreed(context: StageContext, got: Mapping[str, Standing]) -> bytes:
    """Checks that the attempt goes on from the last place that all have kept alike; gives the key
    for tags.

    A PeerError names a party that has not kept our place with the same sums. A ProtocolError where
    there is a later place that all have kept.
    """
    common = {place for place, history in context.kept.items() if history} | {START}
    for party, theirs in got.items():
        kept = {tuple(one.place): one.history.hex() for one in theirs.kept}
        lacking = {place for place in common - {START} if kept.get(place) != context.kept[place]}
        if context.place in lacking:
            raise _apart(party, f"has not kept place {_named(context.place)} as we have")
        common -= lacking
    if max(common) != context.place:
        raise ProtocolError(
            f"the coordinator goes on from place {_named(context.place)}, the contributors have "
            f"all kept {_named(max(common))}",
            todo="ask the coordinator's operator: what was told since is not told again",
        )
    keys = {party: own.tag_key for party, own in got.items() if own.tag_key}
    if set(keys) - {context.table.guest}:
        raise PeerError(
            f"{min(set(keys) - {context.table.guest})} sent a key for tags, as the guest"
        )
    key = keys.get(context.table.guest, b"")
    if context.role is not GUEST and len(key) != KEY_BYTES:
        raise PeerError(f"{context.table.guest} sent a key for tags of {len(key)} bytes")
    return key


def same(history: bytes, got: Mapping[str, Standing]) -> None:
    """Refuses, by name, who has not heard the sums that we have."""
    for party, theirs in got.items():
        if theirs.history != history:
            raise _apart(party, "has another record of the sums so far")


def _apart(party: str, what: str) -> PeerError:
    return PeerError(
        f"{party} {what}",
        party=party,
        todo="its store lags behind or was restored, or the coordinator opened another place there",
    )


def _named(place: Place) -> str:
    return ".".join(map(str, place))


def _signed(context: StageContext, party: str, standing: Standing) -> bytes:
    unsigned = Standing()
    unsigned.CopyFrom(standing)
    unsigned.ClearField("signature")
    label = b"fedboost standing 1" + context.attempt_digest + party.encode() + b"\0"
    return label + unsigned.SerializeToString(deterministic=True)
