"""The few oblivious transfers that all others extend: Masny and Rindal, 2019, section 4.

The guest publishes A = y·B once. For each transfer the host draws a point r_{1−c} and makes
r_c = k·B − H(r_{1−c}), c its secret choice. The guest's key number b is derived from
y·(r_b + H(r_{1−b})); the host's from k·A, which equals that of b = c and says nothing of the other.
Points are of the prime-order subgroup of edwards25519; H adds two Elligator points, which makes it
a random oracle onto the group.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from nacl.bindings import (
    crypto_core_ed25519_add as add,
)
from nacl.bindings import (
    crypto_core_ed25519_from_uniform as from_uniform,
)
from nacl.bindings import (
    crypto_core_ed25519_is_valid_point as is_valid_point,
)
from nacl.bindings import (
    crypto_core_ed25519_scalar_reduce as reduced,
)
from nacl.bindings import (
    crypto_core_ed25519_sub as subtract,
)
from nacl.bindings import (
    crypto_scalarmult_ed25519_base_noclamp as times_base,
)
from nacl.bindings import (
    crypto_scalarmult_ed25519_noclamp as multiply,
)

from fedboost.crypto.oprf.sizes import CHOICE_BYTES, CODE_COLUMNS
from fedboost.crypto.secrets import Secrets
from fedboost.ground.errors import PeerError

TRANSFER_KEY_BYTES = 16
POINT_BYTES = 32
_WIDE_BYTES = 64  # drawn for a scalar: reduced, it is uniform to 2^−259


class TransferSender:
    """The guest's side: two keys for each transfer; the host learns one of them."""

    __slots__ = ("_scalar", "start")

    def __init__(self, secrets: Secrets) -> None:
        self._scalar = reduced(secrets.bytes(_WIDE_BYTES, "transfer", "start"))
        self.start: bytes = times_base(self._scalar)

    def keys(self, session: bytes, choice: bytes) -> list[tuple[bytes, bytes]]:
        """Return both keys of every transfer; a PeerError for a message
        that no honest host sends.
        """
        if len(choice) != CHOICE_BYTES:
            raise PeerError(f"expected {CHOICE_BYTES} bytes of choices, got {len(choice)}")
        return [
            self._key_pair(session, number, choice[at : at + 32], choice[at + 32 : at + 64])
            for number, at in enumerate(range(0, CHOICE_BYTES, 2 * POINT_BYTES))
        ]

    def _key_pair(
        self, session: bytes, number: int, first: bytes, second: bytes
    ) -> tuple[bytes, bytes]:
        check_point(first)
        check_point(second)
        try:
            shared = [
                multiply(self._scalar, add(chosen, _hashed_point(session, number, bit, other)))
                for bit, chosen, other in ((0, first, second), (1, second, first))
            ]
        except RuntimeError:  # the library's error for a product that is zero
            raise PeerError("a choice was made so that a key is none") from None
        told = self.start + first + second
        return (
            _derived(session, number, 0, told + shared[0]),
            _derived(session, number, 1, told + shared[1]),
        )

    def __repr__(self) -> str:
        return "TransferSender(hidden)"


def choose_keys(
    session: bytes, start: bytes, bits: Sequence[int], secrets: Secrets
) -> tuple[bytes, list[bytes]]:
    """Return the host's message and its key of each transfer; a PeerError for a bad `start`."""
    check_point(start)
    message, keys = [], []
    for number, bit in enumerate(bits):
        other = times_base(reduced(secrets.bytes(_WIDE_BYTES, "transfer", number, "other")))
        scalar = reduced(secrets.bytes(_WIDE_BYTES, "transfer", number, "own"))
        blinded = subtract(times_base(scalar), _hashed_point(session, number, bit, other))
        told = other + blinded if bit else blinded + other
        message.append(told)
        keys.append(_derived(session, number, bit, start + told + multiply(scalar, start)))
    assert len(keys) == CODE_COLUMNS
    return b"".join(message), keys


def check_point(data: bytes) -> None:
    """Raise a PeerError unless it is a point of the prime-order subgroup, in its one spelling."""
    if len(data) != POINT_BYTES or not is_valid_point(data):
        raise PeerError("a point of a transfer is not one of the group")


def _hashed_point(session: bytes, number: int, bit: int, point: bytes) -> bytes:
    said = b"fb-psi H2G" + session + _transfer_label(number, bit) + point
    drawn = hashlib.sha512(said).digest()
    return bytes(add(from_uniform(drawn[:32]), from_uniform(drawn[32:])))


def _derived(session: bytes, number: int, bit: int, told: bytes) -> bytes:
    said = b"fb-psi OT" + session + _transfer_label(number, bit) + told
    return hashlib.sha256(said).digest()[:TRANSFER_KEY_BYTES]


def _transfer_label(number: int, bit: int) -> bytes:
    return number.to_bytes(2, "little") + bytes((bit,))
