"""Sums that continue after a party is lost: fresh keys, their shares, and rules of opening.

For every fresh sum of an epoch a party has a mask key and a self-mask, and every other contributor
holds a share of both. When all vectors have arrived, or all remaining parties have signed the list
of survivors, each reveals one share for every member: of the self-mask if its vector is in the sum,
of the mask key if the member is lost. Because more than (n + colluders) / 2 shares are needed, both
secrets of a member cannot be collected (Bonawitz et al., 2017, section 6). Other sums are opened
over all members or not at all: one more key, never shared, masks them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import numpy as np

from fedboost.aggregation.sums import Aggregation
from fedboost.crypto import shamir
from fedboost.crypto.limbs import ByteArray
from fedboost.crypto.masking import MASK_KEY_BYTES, MaskKey, Pair
from fedboost.crypto.secrets import Secrets
from fedboost.crypto.shamir import SHARE_BYTES, SecretShare
from fedboost.flow import EVERYBODY, StageContext
from fedboost.ground import wire
from fedboost.ground.errors import PeerError, ProtocolError, UnreachableError
from fedboost.messages.array_pb2 import Array
from fedboost.messages.protocol.aggregation_pb2 import (
    DealtShares,
    MaskKeys,
    RevealedShares,
    Survivors,
)

FIELD_PRIME = (1 << 255) - 19  # of Curve25519: a public key has one way to be written below it


@dataclass(frozen=True)
class Offered:
    """Public keys and commitments of one party, one of each for every fresh sum of the epoch."""

    keys: ByteArray = field(repr=False)  # (sums + 1, 32), the last one for sums that are not fresh
    commitments: ByteArray = field(repr=False)  # (sums, 32)


def threshold(contributors: int, colluders: int) -> int:
    """Return the number of shares that open a secret: the least one above (n + colluders) / 2."""
    return (contributors + colluders) // 2 + 1


class Epoch:
    """Keys for the next `sums` fresh sums, and for all others until the next epoch."""

    def __init__(self, context: StageContext[Aggregation], number: int, sums: int) -> None:
        """`number` tells the epochs of a stage apart, from 1."""
        self.number, self.sums = number, sums
        self.members: tuple[str, ...] = ()  # parties whose keys go into the masks
        self.survivors: tuple[str, ...] = ()  # parties of the current sum
        self.index = -1  # of the sum at hand
        self._context, self._table = context, context.table.of(EVERYBODY)
        self._secrets: Secrets = context.secrets.attempt.child("epoch", number)
        self._keys = [MaskKey(self._secrets.derive("mask key", i)) for i in range(sums + 1)]
        self._selves = [self._secrets.derive("self mask", i) for i in range(sums)]
        self._offers: dict[str, Offered] = {}
        self._pairs: dict[str, list[Pair]] = {}  # by peer, one for each sum
        self._held: dict[
            str, tuple[ByteArray, ByteArray]
        ] = {}  # by owner: shares of keys, of self-masks
        self._threshold = 0
        self._revealed = -1  # the last sum whose shares we revealed

    # Keys and shares

    def offer_keys(self) -> MaskKeys:
        """Return our public keys and commitments to our self-masks, signed."""
        keys = self._own_offer()
        offered = MaskKeys(
            epoch=self.number, keys=wire.pack(keys.keys), commitments=wire.pack(keys.commitments)
        )
        text = self._text_to_sign(self._context.party, offered)
        offered.signature = self._context.services.signer.sign(text)
        return offered

    def deal_shares(self, got: Mapping[str, MaskKeys]) -> dict[str, DealtShares]:
        """Return the shares of our secrets for each contributor, after checking their keys."""
        for party, offered in got.items():
            theirs = self._offers[party] = self._read_offer(party, offered)
            self._pairs[party] = [
                pair_of(key, public, self._context.attempt.digest, party)
                for key, public in zip(self._keys, theirs.keys, strict=True)
            ]
        self._offers[self._context.party] = self._own_offer()
        count = len(self._offers)
        self._threshold = threshold(count, self._context.params.colluders)
        self._check_left(self._offers)
        dealt = [
            [self._split_secret(data, kind, i) for i, data in enumerate(secrets)]
            for kind, secrets in (
                ("mask key", [key.seal() for key in self._keys[: self.sums]]),
                ("self mask", self._selves),
            )
        ]
        shares = {
            party: tuple(_share_rows([row[place] for row in kind]) for kind in dealt)
            for place, party in enumerate(self._table)
            if party in self._offers
        }
        keys, selves = shares[self._context.party]
        self._held[self._context.party] = keys, selves
        return {
            party: DealtShares(
                epoch=self.number, mask_keys=wire.pack(keys), self_masks=wire.pack(selves)
            )
            for party, (keys, selves) in shares.items()
            if party != self._context.party
        }

    def hold_shares(self, got: Mapping[str, DealtShares], present: tuple[str, ...]) -> bytes:
        """Store the other parties' shares and set the members to `present`; return the members'
        public keys and commitments.
        """
        for party, dealt in got.items():
            if dealt.epoch != self.number:
                raise PeerError(f"{party} dealt shares of epoch {dealt.epoch}, not {self.number}")
            self._held[party] = (
                self._shares_from(party, dealt.mask_keys),
                self._shares_from(party, dealt.self_masks),
            )
        self._check_left(present)
        lacking = [p for p in present if p not in self._held or p not in self._offers]
        if lacking:
            raise ProtocolError(f"no keys, or no shares, have come from {lacking[0]}")
        if self._context.party not in present:
            raise ProtocolError("we were asked to add up without a part in the sum")
        self.members = self.survivors = present
        told = [self._offers[party] for party in present]
        return b"".join(total.keys.tobytes() + total.commitments.tobytes() for total in told)

    # Masks

    def streams(self, context: bytes) -> list[tuple[bytes, int]]:
        """Return the stream keys of the next fresh sum with the sign of each; used once."""
        self.index += 1
        if self.index >= self.sums:
            raise ProtocolError(f"an epoch of {self.sums} sums has no keys for another one")
        stream = self_stream(self._selves[self.index], self._context.attempt.digest, context)
        return [(stream, 1), *self._pair_streams(self.index, context)]

    def whole_streams(self, context: bytes) -> list[tuple[bytes, int]]:
        """Return the stream keys of a sum that is opened over all members or not at all."""
        return self._pair_streams(self.sums, context)

    def _pair_streams(self, index: int, context: bytes) -> list[tuple[bytes, int]]:
        us = self._context.party
        return [
            (self._pairs[peer][index].stream_key(context), sign_of(us, peer, self._table))
            for peer in self.members
            if peer != us
        ]

    # Survivors, and rules of opening

    def sign(self, present: tuple[str, ...], number: int, context: bytes) -> Survivors:
        """Sign the list of parties over which this sum may be opened; raise if they are too few."""
        self.survivors = tuple(party for party in self.members if party in present)
        self._check_left(self.survivors)
        listed = Survivors(number=number, parties=self.survivors)
        listed.signature = self._context.services.signer.sign(_survivors_text(listed, context))
        return listed

    def check_agreement(self, got: Mapping[str, Survivors], number: int, context: bytes) -> None:
        """Refuse to open a sum unless enough other parties have signed the same list."""
        for party, theirs in got.items():
            if theirs.number < number:
                continue  # of a party that has been gone since
            self._context.services.signer.check(
                party, _survivors_text(theirs, context), theirs.signature
            )
            if tuple(theirs.parties) != self.survivors:
                raise PeerError(f"{party} received other survivors than we did")
        signed = {party for party, theirs in got.items() if theirs.number == number}
        self._check_left([*signed, self._context.party])

    def note_all_sent(self) -> None:
        """Record that all members have sent their vectors, so the sum may hold all of them."""
        self.survivors = self.members
        self._check_left(self.survivors)

    def reveal_shares(self, number: int, context: bytes, *, opens: bool) -> RevealedShares:
        """Return one share of each member's secrets for this sum: never both, and never twice."""
        if self._revealed >= self.index:
            raise ProtocolError(f"the shares of sum {number} were given away before")
        self._revealed = self.index
        shown = RevealedShares(
            number=number,
            survivors=self.survivors,
            members=self.members,
            context=context,
            threshold=self._threshold,
        )
        if not opens:
            return shown
        held = [self._held[party][party in self.survivors][self.index] for party in self.members]
        offers = [self._offers[party] for party in self.members]
        shown.shares.CopyFrom(wire.pack(np.array(held)))
        shown.keys.CopyFrom(wire.pack(np.array([offer.keys[self.index] for offer in offers])))
        commitments = [offer.commitments[self.index] for offer in offers]
        shown.commitments.CopyFrom(wire.pack(np.array(commitments)))
        return shown

    def opened(self) -> None:
        """Record that the sum was opened: lost parties have no part in later sums."""
        self.members = self.survivors

    # Inside

    def _check_left(self, left: Collection[str]) -> None:
        """Raise UnreachableError if the remaining parties are too few for a sum."""
        least = max(self._threshold, self._context.limits.aggregation_parties_min)
        if len(left) < least:
            gone = [party for party in self._table if party not in left]
            raise UnreachableError(
                f"{len(left)} parties are left, a sum needs {least}",
                party=gone[0],
                todo="when the others are back: fedboost job resume",
            )

    def _own_offer(self) -> Offered:
        keys = [np.frombuffer(key.public, np.uint8) for key in self._keys]
        commitments = [np.frombuffer(commitment(self_mask), np.uint8) for self_mask in self._selves]
        return Offered(np.array(keys), np.array(commitments))

    def _read_offer(self, party: str, offered: MaskKeys) -> Offered:
        if offered.epoch != self.number:
            raise PeerError(f"{party} offered keys of epoch {offered.epoch}, not {self.number}")
        self._context.services.signer.check(
            party, self._text_to_sign(party, offered), offered.signature
        )
        keys = keys_of(offered, self.sums + 1, party)
        what = f"the commitments of {party}"
        commitments = wire.unpack(offered.commitments, "u1", (self.sums, MASK_KEY_BYTES), what)
        return Offered(keys, commitments.view(np.uint8))

    def _shares_from(self, party: str, array: Array) -> ByteArray:
        """Return the shares that a party dealt to us; raise PeerError if they are meant for another
        party.
        """
        what = f"the shares of {party}"
        rows = wire.unpack(array, "u1", (self.sums, SHARE_BYTES), what).view(np.uint8)
        place = self._table.index(self._context.party) + 1
        if any(share_of(row, party).x != place for row in rows):
            raise PeerError(f"{party} dealt us shares that are meant for another party")
        return rows

    def _text_to_sign(self, party: str, offered: MaskKeys) -> bytes:
        label = b"fedboost mask keys 1" + self._context.attempt.digest + party.encode()
        epoch = offered.epoch.to_bytes(8, "big")
        return label + epoch + offered.keys.data + offered.commitments.data

    def _split_secret(self, secret: bytes, kind: str, index: int) -> list[SecretShare]:
        purpose = ("shares of a", kind, index)
        return shamir.split_secret(
            secret, self._threshold, len(self._table), self._secrets, *purpose
        )


def keys_of(offered: MaskKeys, count: int, party: str) -> ByteArray:
    """Return a party's public keys, uint8 (count, 32).

    Raise PeerError for another number of keys, or for a key that is not in its one valid encoding.
    """
    what = f"the mask keys of {party}"
    keys = wire.unpack(offered.keys, "u1", (count, MASK_KEY_BYTES), what).view(np.uint8)
    if any(int.from_bytes(key.tobytes(), "little") >= FIELD_PRIME for key in keys):
        raise PeerError(f"a mask key of {party} is not written as keys are")
    return keys


def pair_of(key: MaskKey, public: ByteArray, salt: bytes, party: str) -> Pair:
    """Return the pair secret with a party; raise PeerError if its key has small order."""
    try:
        return Pair(key.shared(public.tobytes()), salt)
    except PeerError:
        raise PeerError(f"a mask key of {party} is a point of small order") from None


def sign_of(party: str, peer: str, table: tuple[str, ...]) -> int:
    """Return whether the first of a pair adds their stream (1) or takes it away (−1)."""
    return 1 if table.index(party) < table.index(peer) else -1


def commitment(self_mask: bytes) -> bytes:
    """Return the commitment to a self-mask, 32 bytes; parties exchange it before the mask can be
    opened.
    """
    return hashlib.sha256(b"fedboost self mask 1" + self_mask).digest()


def self_stream(self_mask: bytes, salt: bytes, context: bytes) -> bytes:
    """Return the stream key of a party's self-mask for one sum."""
    return Pair(self_mask, salt).stream_key(context + b"self")


def share_of(data: ByteArray, party: str) -> SecretShare:
    """Decode a share of 34 bytes; raise PeerError with the sender's name if it is invalid."""
    try:
        return SecretShare.from_bytes(data.tobytes())
    except PeerError as error:
        raise PeerError(f"{party} sent bytes that are no share: {error.what}") from None


def _survivors_text(survivors: Survivors, context: bytes) -> bytes:
    names = "\0".join(survivors.parties).encode()
    return b"fedboost survivors 1" + context + survivors.number.to_bytes(8, "big") + names


def _share_rows(shares: list[SecretShare]) -> ByteArray:
    return np.array([np.frombuffer(share.to_bytes(), np.uint8) for share in shares])
