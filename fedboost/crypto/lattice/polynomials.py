"""Public polynomials, which both sides derive from what both have agreed on; none is ever received.

A polynomial of the guest's choice would let it read which rows a cell adds up: with a' = 0 an
answer's zero encryption hides nothing. So each is the output of SHAKE256 on

    length and text of the label │ length and name of the parameters │ manifest hash │ guest nonce
    number of host nonces │ host nonces │ tree │ block or host

with numbers of 8 bytes, little-endian: 8 bytes for each coefficient, little-endian, modulo q.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedboost.crypto.lattice.parameters import LatticeParameters
from fedboost.errors import PeerError

DIGEST_BYTES = 32  # of the manifest: SHA-256
NONCE_BYTES = 32
ROWS = b"fedboost lattice rows 1"  # a release that derives differently must change these
ANSWERS = b"fedboost lattice answers 1"
PACKING = b"fedboost lattice packing 1"
COEFFICIENT_BYTES = 8

Polynomial = NDArray[np.uint64]


@dataclass(frozen=True)
class Origin:
    """The inputs from which one attempt of a job derives its polynomials.

    Nonces are drawn afresh by each party for each attempt, the hosts' in the manifest's order. A
    PeerError for one of another size.
    """

    manifest: bytes
    guest_nonce: bytes
    host_nonces: tuple[bytes, ...]

    def __post_init__(self) -> None:
        if len(self.manifest) != DIGEST_BYTES:
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
        """a of rows N·block to N·(block + 1) − 1, uint64 (N,) below q."""
        return self._derived(ROWS, block)

    def of_answers(self, host: int) -> Polynomial:
        """a' of the host at that place of the manifest, uint64 (N,) below q."""
        return self._derived(ANSWERS, host)

    @property
    def packing_origin(self) -> bytes:
        """What the public polynomials of packing keys come from: the same for all hosts."""
        return self.encoded(PACKING, 0)

    def encoded(self, label: bytes, number: int) -> bytes:
        """Return the bytes to hash for this label and this block or host."""
        names = _sized(label) + _sized(self.parameters.name.encode())
        return names + self.origin.encoded() + number_bytes(self.number) + number_bytes(number)

    def _derived(self, label: bytes, number: int) -> Polynomial:
        absorbed = hashlib.shake_256(self.encoded(label, number))
        data = absorbed.digest(COEFFICIENT_BYTES * self.parameters.ring)
        return np.frombuffer(data, dtype="<u8").astype(np.uint64) & self.parameters.mask


def _sized(data: bytes) -> bytes:
    return number_bytes(len(data)) + data


def number_bytes(value: int) -> bytes:
    """Return a count or a place as it is hashed: 8 bytes, little-endian."""
    return value.to_bytes(8, "little")
