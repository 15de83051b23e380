"""Threshold sharing of 32-byte secrets (Shamir, "How to share a secret", 1979), modulo a prime.

A secret is the value at 0 of a polynomial with one coefficient per share needed; share x is its
value at x. Fewer shares are consistent with every secret alike. Shares do not prove themselves:
the caller checks the result of `combine`, and `wrong_shares` finds the wrong shares.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import gmpy2

from fedboost.crypto.secrets import DrawPurpose, Secrets
from fedboost.ground.errors import PeerError

SHARING_PRIME = (1 << 256) + 297  # the first prime above all secrets
SECRET_BYTES = 32
SHARE_VALUE_BYTES = 33
SHARE_BYTES = 1 + SHARE_VALUE_BYTES
HOLDERS_MAX = (
    64  # the most that `wrong_shares` can search within TRIES_MAX; more than parties of a job
)
THRESHOLD_MIN = 2  # below it a share is the secret
TRIES_MAX = 4096  # of `wrong_shares`, about a second; enough for two wrong shares of HOLDERS_MAX
_DRAW_BYTES = 48  # modulo the prime: uniform up to 2^-128


@dataclass(frozen=True, slots=True)
class SecretShare:
    """A holder's share: its number, 1 to HOLDERS_MAX, and the secret's value there."""

    x: int
    y: int = field(repr=False)

    def to_bytes(self) -> bytes:
        """Return the share as it travels, 34 bytes: x, then y big-endian."""
        return bytes((self.x,)) + self.y.to_bytes(SHARE_VALUE_BYTES, "big")

    @classmethod
    def from_bytes(cls, data: bytes) -> SecretShare:
        """Return the share that `to_bytes` wrote; a PeerError if no share has these bytes."""
        if len(data) != SHARE_BYTES:
            raise PeerError(f"expected a share of {SHARE_BYTES} bytes, got {len(data)}")
        share = cls(data[0], int.from_bytes(data[1:], "big"))
        if not 1 <= share.x <= HOLDERS_MAX:
            raise PeerError(f"a share's place is {share.x}, places are 1 to {HOLDERS_MAX}")
        if share.y >= SHARING_PRIME:
            raise PeerError("a share's value is beyond the prime")
        return share


def split_secret(
    secret: bytes, threshold: int, holders: int, secrets: Secrets, *purpose: DrawPurpose
) -> list[SecretShare]:
    """Return shares 1 to `holders` of a 32-byte secret; any `threshold` shares give it back.

    The same arguments give the same shares. Coefficients depend on the secret: a second secret
    under the same purpose gets others, as shares would otherwise reveal their difference. A
    ValueError for another length or a threshold that holders cannot reach or that hides nothing.
    """
    if len(secret) != SECRET_BYTES:
        raise ValueError(f"a shared secret has {SECRET_BYTES} bytes, got {len(secret)}")
    if not THRESHOLD_MIN <= threshold <= holders <= HOLDERS_MAX:
        raise ValueError(
            f"expected {THRESHOLD_MIN} <= threshold <= holders <= {HOLDERS_MAX}, "
            f"got {threshold} of {holders}"
        )
    drawn = secrets.bytes(
        _DRAW_BYTES * (threshold - 1), "shamir", threshold, holders, secret, *purpose
    )
    coefficients = [
        int.from_bytes(drawn[cut : cut + _DRAW_BYTES], "big") % SHARING_PRIME
        for cut in range(0, len(drawn), _DRAW_BYTES)
    ]
    polynomial = [int.from_bytes(secret, "big"), *coefficients]
    return [SecretShare(x, _horner(polynomial, x)) for x in range(1, holders + 1)]


def combine(shares: Sequence[SecretShare], threshold: int) -> bytes:
    """Return the secret, 32 bytes, from the first `threshold` of the shares, in any order.

    A PeerError for too few shares, two of one holder, or a value that is no secret. Wrong shares
    mostly give another secret without one: check it.
    """
    _check_shares(shares, threshold)
    secret = _secret_through(shares[:threshold])
    if secret is None:
        raise PeerError(f"{threshold} shares belong to no secret of {SECRET_BYTES} bytes")
    return secret


def wrong_shares(
    shares: Sequence[SecretShare], threshold: int, fits: Callable[[bytes], bool]
) -> list[int]:
    """Return the numbers of the wrong shares, ascending, if at most `findable` of them are wrong.

    `fits` must hold for the shared secret and nothing else. A PeerError as `combine`'s, and if more
    are wrong. Beyond `findable`, holders that lie together could make others look wrong.
    """
    _check_shares(shares, threshold)
    wrong_max = findable(len(shares), threshold)
    # Of these, with so many wrong at most, `threshold` are true: one of the choices is.
    for chosen in itertools.combinations(shares[: threshold + wrong_max], threshold):
        secret = _secret_through(chosen)
        if secret is None or not fits(secret):
            continue
        # The secret alone is not enough: two wrong shares can cancel in it.
        wrong = [share.x for share in shares if _value_at(chosen, share.x) != share.y]
        if len(wrong) <= wrong_max:
            return sorted(wrong)
    raise PeerError(
        f"more than {wrong_max} of {len(shares)} shares are wrong, and cannot be told apart"
    )


def findable(shares: int, threshold: int) -> int:
    """Return how many wrong ones among so many shares `wrong_shares` can name.

    (shares − threshold + 1) / 2, rounded down: two polynomials through the secret that each miss no
    more have `threshold` points in common, so they are equal. Fewer, but at least two, if trying
    every choice would take more than TRIES_MAX tries.
    """
    count = (shares - threshold + 1) // 2
    while math.comb(threshold + count, count) > TRIES_MAX:
        count -= 1
    return count


def _check_shares(shares: Sequence[SecretShare], threshold: int) -> None:
    if len(shares) < threshold:
        raise PeerError(f"a secret needs {threshold} shares, got {len(shares)}")
    if len({share.x for share in shares}) != len(shares):
        raise PeerError("two shares have the same place")


def _secret_through(shares: Sequence[SecretShare]) -> bytes | None:
    """Return the secret of the polynomial through all these shares; None if it has none."""
    value = _value_at(shares, 0)
    return None if value >> 8 * SECRET_BYTES else value.to_bytes(SECRET_BYTES, "big")


def _value_at(shares: Sequence[SecretShare], place: int) -> int:
    """Return the value of the polynomial through all these shares at `place` (Lagrange)."""
    total = 0
    for share in shares:
        numerator = denominator = 1
        for other in shares:
            if other is not share:
                numerator *= place - other.x
                denominator *= share.x - other.x
        total += share.y * numerator * int(gmpy2.invert(denominator, SHARING_PRIME))
    return total % SHARING_PRIME


def _horner(polynomial: Sequence[int], x: int) -> int:
    """Return the polynomial's value at x, the constant coefficient first."""
    value = 0
    for coefficient in reversed(polynomial):
        value = (value * x + coefficient) % SHARING_PRIME
    return value
