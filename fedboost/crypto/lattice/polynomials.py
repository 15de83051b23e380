"""Public polynomials, which both sides derive from agreed inputs; none is ever received.

A polynomial of the guest's choice would let it read which rows a cell adds up: with a' = 0 an
answer's zero encryption hides nothing. So each is the output of SHAKE256 on

    length and text of the label │ length and name of the parameters │ manifest hash │ guest nonce
    number of host nonces │ host nonces │ tree │ block or host

with numbers of 8 bytes, little-endian: 8 bytes for each coefficient, little-endian, modulo q.

Trees of an epoch share the guest's secrets s. So each has a nonce of the guest's, bound to its
messages, that follows the tree's number in the inputs of `a`: two encryptions under one a·s
would show the difference of their messages. `a'` comes from the epoch's number, once a host.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedboost.crypto.lattice.parameters import LatticeParameters
from fedboost.ground.errors import PeerError

MANIFEST_DIGEST_BYTES = 32  # of the manifest: SHA-256
NONCE_BYTES = 32
ROWS = b"fedboost lattice rows 1"  # a release that derives differently must change these
ANSWERS = b"fedboost lattice answers 1"
PACKING = b"fedboost lattice packing 1"
EPOCH_ROWS = b"fedboost lattice rows 2"
EPOCH_ANSWERS = b"fedboost lattice answers 2"
COEFFICIENT_BYTES = 8

Polynomial = NDArray[np.uint64]


@dataclass(frozen=True)
class Origin:
    """The inputs that the polynomials of one attempt of a job are derived from.

    Nonces are drawn afresh by each party for each attempt, the hosts' in the manifest's order. A
    PeerError for one of another size.
    """

    manifest: bytes
    guest_nonce: bytes
    host_nonces: tuple[bytes, ...]

    def __post_init__(self) -> None:
        if len(self.manifest) != MANIFEST_DIGEST_BYTES:
            raise PeerError(f"the manifest's hash has {len(self.manifest)} bytes")
        for nonce in (self.guest_nonce, *self.host_nonces):
            if len(nonce) != NONCE_BYTES:
                raise PeerError(f"expected a nonce of {NONCE_BYTES} bytes, got {len(nonce)}")

    def encoded(self) -> bytes:
        """Return all of it as bytes; no two origins are equal, for every part has a
        known length.
        """
        hosts = number_bytes(len(self.host_nonces)) + b"".join(self.host_nonces)
        return self.manifest + self.guest_nonce + hosts


@dataclass(frozen=True)
class TreePolynomials:
    """A tree of an attempt, and the polynomials that belong to it."""

    parameters: LatticeParameters
    origin: Origin
    number: int

    def of_rows(self, block: int) -> Polynomial:
        """Return a of rows N·block to N·(block + 1) − 1, uint64 (N,) below q."""
        return self._derived(ROWS, block)

    def of_answers(self, host: int) -> Polynomial:
        """Return a' of the host at that index of the manifest, uint64 (N,) below q."""
        return self._derived(ANSWERS, host)

    @property
    def packing_origin(self) -> bytes:
        """Return the origin of the public polynomials of packing keys: the same for all hosts."""
        return self.encoded(PACKING, 0)

    def of_draws(self, host: int) -> bytes:
        """Return the binding of a host's draws, besides the keys: all
        inputs of a', and the tree.
        """
        return self.encoded(b"tree key", host)

    def in_epoch(self, epoch: int, nonce: bytes) -> EpochTreePolynomials:
        """Return the same tree among those of an epoch, with the guest's nonce for it."""
        return EpochTreePolynomials(self.parameters, self.origin, self.number, epoch, nonce)

    def encoded(self, label: bytes, number: int) -> bytes:
        """Return the bytes to hash for this label and this block or host."""
        return self.of_attempt(label) + number_bytes(self.number) + number_bytes(number)

    def of_attempt(self, label: bytes) -> bytes:
        """Return the bytes to hash for this label and the inputs that all trees share."""
        return (
            _length_prefixed(label)
            + _length_prefixed(self.parameters.name.encode())
            + self.origin.encoded()
        )

    def _derived(self, label: bytes, number: int) -> Polynomial:
        return _polynomial(self.parameters, self.encoded(label, number))


@dataclass(frozen=True)
class EpochTreePolynomials(TreePolynomials):
    """The polynomials of a tree whose guest has the same secrets for all trees of an epoch.

    A PeerError for a nonce of another size.
    """

    epoch: int
    nonce: bytes  # the guest's, for the tree and its messages

    def __post_init__(self) -> None:
        if len(self.nonce) != NONCE_BYTES:
            raise PeerError(
                f"expected a tree's nonce of {NONCE_BYTES} bytes, got {len(self.nonce)}"
            )

    def of_rows(self, block: int) -> Polynomial:
        """See `TreePolynomials`: of the nonce, too."""
        return self._derived(EPOCH_ROWS, block)

    def of_answers(self, host: int) -> Polynomial:
        """See `TreePolynomials`: the same for every tree of the epoch, so without its nonce."""
        place = number_bytes(self.epoch) + number_bytes(host)
        return _polynomial(self.parameters, self.of_attempt(EPOCH_ANSWERS) + place)

    @property
    def packing_origin(self) -> bytes:
        """See `TreePolynomials`: the same for every tree of the epoch."""
        return self.of_attempt(PACKING) + number_bytes(self.epoch)

    def of_draws(self, host: int) -> bytes:
        """See `TreePolynomials`: keys tell the trees of an epoch apart no longer."""
        return super().of_draws(host) + number_bytes(self.epoch)

    def encoded(self, label: bytes, number: int) -> bytes:
        """Return the bytes to hash for this label and this block or host, with tree and nonce."""
        tree = number_bytes(self.number) + self.nonce
        return self.of_attempt(label) + tree + number_bytes(number)


def _polynomial(parameters: LatticeParameters, place: bytes) -> Polynomial:
    data = hashlib.shake_256(place).digest(COEFFICIENT_BYTES * parameters.ring)
    return np.frombuffer(data, dtype="<u8").astype(np.uint64) & parameters.mask


def _length_prefixed(data: bytes) -> bytes:
    return number_bytes(len(data)) + data


def number_bytes(value: int) -> bytes:
    """Return a count or an index as it is hashed: 8 bytes, little-endian."""
    return value.to_bytes(8, "little")
