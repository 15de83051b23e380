"""Comparison of the contributors' own records of sums: an attempt continues where all agree."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from fedboost.crypto.masking import add_stream
from fedboost.flow import GUEST, START, Place, StageContext
from fedboost.ground.arrays import Words
from fedboost.ground.errors import PeerError, ProtocolError
from fedboost.ground.kernels import kernel
from fedboost.ground.settings import Settings
from fedboost.messages.protocol.aggregation_pb2 import Stand, Standing

TAG_PRIME = (1 << 89) - 1
TAG_WORDS = 2  # of 45 and 44 bits: sums of 2^18 tags do not overflow
KEY_BYTES = 32
_LOW_BITS = 45
_HALF, _LOW_HALF = np.uint64(32), np.uint64((1 << 32) - 1)

Vector = NDArray[np.int64]


class Tagging:
    """The secret r and s of one sum of vectors int64 (n,); it prints nothing."""

    __slots__ = ("_pad", "_stream")

    def __init__(self, key: bytes, context: bytes, words: int) -> None:
        """Derive r and s from the contributors' shared `key`; `context` identifies one sum for
        ever.
        """
        stream_key = hmac.digest(key, b"fedboost tag 1" + context, hashlib.sha512)
        self._stream = np.zeros(words, np.uint64)
        add_stream(self._stream, stream_key[:KEY_BYTES], 1)
        self._pad = int.from_bytes(stream_key[KEY_BYTES:], "big") % TAG_PRIME

    def of(self, vector: Vector, *, adds_pad: bool) -> Vector:
        """Return the tag of a party's own vector, (TAG_WORDS,); one party alone adds the pad s."""
        tag = (inner_product(self._stream, vector) + adds_pad * self._pad) % TAG_PRIME
        return np.array([tag & ((1 << _LOW_BITS) - 1), tag >> _LOW_BITS], np.int64)

    def fits_total(self, total: Vector, tag: Vector) -> bool:
        """Return whether a total has this sum of tags."""
        low, high = tag.tolist()
        return (
            low + (high << _LOW_BITS) - inner_product(self._stream, total) - self._pad
        ) % TAG_PRIME == 0

    def __repr__(self) -> str:
        return "Tagging(hidden)"


def inner_product(left: Words, right: Vector) -> int:
    """Return ⟨left, right⟩ over the integers; uint64 (n,) and int64 (n,)."""
    low, middle, high, wrapped, carried = _inner_words(left, right.view(np.uint64)).tolist()
    # A negative number is 2^64 less than its word.
    return low + (middle - wrapped << 64) + (high - carried << 128)


@kernel
def _inner_words(left: Words, right: Words) -> Words:
    """Return Σ left·right in three words, least first; then in two words Σ left over the entries
    with right's first bit set.
    """
    sums = np.zeros(5, np.uint64)
    for i in range(len(left)):
        a, b = left[i], right[i]
        a_low, a_high, b_low, b_high = a & _LOW_HALF, a >> _HALF, b & _LOW_HALF, b >> _HALF
        least, crossed, other = a_low * b_low, a_low * b_high, a_high * b_low
        middle = (least >> _HALF) + (crossed & _LOW_HALF) + (other & _LOW_HALF)
        low = (middle << _HALF) | (least & _LOW_HALF)
        high = a_high * b_high + (crossed >> _HALF) + (other >> _HALF) + (middle >> _HALF)
        sums[0] += low
        high += np.uint64(sums[0] < low)
        sums[1] += high
        sums[2] += np.uint64(sums[1] < high)
        if b_high >> np.uint64(31):
            sums[3] += a
            sums[4] += np.uint64(sums[3] < a)
    return sums


def first_history(context: StageContext[Settings], members: tuple[str, ...]) -> bytes:
    """The history before the first sum: the job with its manifest, the stage, the contributors."""
    names = "\0".join(members).encode()
    return hashlib.sha256(b"fedboost sums 1" + context.attempt.origin + names).digest()


def signed_standing(context: StageContext[Settings], history: bytes, tag_key: bytes) -> Standing:
    """Return, signed, what we have kept and where we stand; a guest's with a key for tags."""
    kept = [
        Stand(place=place, history=bytes.fromhex(digest))
        for place, digest in context.attempt.kept.items()
    ]
    standing = Standing(history=history, kept=kept, tag_key=tag_key)
    standing.signature = context.services.signer.sign(
        _text_to_sign(context, context.party, standing)
    )
    return standing


def check_signed(context: StageContext[Settings], got: Mapping[str, Standing]) -> None:
    """Refuses, by name, a standing that its party has not signed."""
    for party, theirs in got.items():
        context.services.signer.check(
            party, _text_to_sign(context, party, theirs), theirs.signature
        )


def agreed_tag_key(context: StageContext[Settings], got: Mapping[str, Standing]) -> bytes:
    """Checks that the attempt goes on from the last place that all have kept alike; gives the key
    for tags.

    Raise PeerError for a party that has not kept our place with the same sums, ProtocolError if all
    have kept a later place.
    """
    common = {place for place, history in context.attempt.kept.items() if history} | {START}
    for party, theirs in got.items():
        kept = {tuple(stand.place): stand.history.hex() for stand in theirs.kept}
        lacking = {
            place for place in common - {START} if kept.get(place) != context.attempt.kept[place]
        }
        if context.attempt.place in lacking:
            raise _divergence_error(
                party, f"has not kept place {_place_text(context.attempt.place)} as we have"
            )
        common -= lacking
    if max(common) != context.attempt.place:
        raise ProtocolError(
            f"the coordinator goes on from place {_place_text(context.attempt.place)}, "
            f"the contributors have all kept {_place_text(max(common))}",
            todo="ask the coordinator's operator: what was told since is not told again",
        )
    keys = {party: standing.tag_key for party, standing in got.items() if standing.tag_key}
    if set(keys) - {context.table.guest}:
        raise PeerError(
            f"{min(set(keys) - {context.table.guest})} sent a key for tags, as the guest"
        )
    key = keys.get(context.table.guest, b"")
    if context.role is not GUEST and len(key) != KEY_BYTES:
        raise PeerError(f"{context.table.guest} sent a key for tags of {len(key)} bytes")
    return key


def check_same_history(history: bytes, got: Mapping[str, Standing]) -> None:
    """Refuse, by name, a party with another history of sums."""
    for party, theirs in got.items():
        if theirs.history != history:
            raise _divergence_error(party, "has another record of the sums so far")


def _divergence_error(party: str, what: str) -> PeerError:
    return PeerError(
        f"{party} {what}",
        party=party,
        todo="its store lags behind or was restored, or the coordinator opened another place there",
    )


def _place_text(place: Place) -> str:
    return ".".join(map(str, place))


def _text_to_sign(context: StageContext[Settings], party: str, standing: Standing) -> bytes:
    unsigned = Standing()
    unsigned.CopyFrom(standing)
    unsigned.ClearField("signature")
    label = b"fedboost standing 1" + context.attempt.digest + party.encode() + b"\0"
    return label + unsigned.SerializeToString(deterministic=True)
