"""The mathematics of private set intersection: ids as points of Curve25519, and secret exponents.

A point is its u-coordinate on the Montgomery curve, 32 bytes little-endian (RFC 7748), which
stands for P and −P alike; multiplying is X25519's ladder, three times cheaper than on Edwards
points.

* Ids hash to the prime-order subgroup: candidates drawn by SHA-512 are refused until one lies on
  the curve and not on its twist, then multiplied by the cofactor 8. The number of refusals depends
  on the id alone, and only the party that holds the id can see it.
* Exponents are multiples of 8 (X25519's form). A received point with a small-order part therefore
  loses that part in the first multiplication, and nothing about an exponent modulo 8 can be learnt;
  points of the twist, of small order and numbers beyond the field are refused.
* No party has the inverse of its exponent: it can open the points that it blinded only by
  remembering their ids.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from typing import NoReturn

import gmpy2
import numpy as np
from gmpy2 import mpz
from nacl.bindings import crypto_scalarmult
from numpy.typing import NDArray

from fedboost.ground.errors import PeerError
from fedboost.ground.workers import Workers, even_slices

POINT_BYTES = 32
CURVE_PRIME = mpz(2) ** 255 - 19
A = 486662
SMALL_ORDER = frozenset(  # u of the curve's points of order 1, 2, 4 and 8
    (
        mpz(0),
        mpz(1),
        mpz(325606250916557431795983626356110631294008115727848805560023387167927233504),
        mpz(39382357235489614581723060781553021112529911719440698176882885853963445705823),
    )
)
FEW_POINTS = 2048  # points: they are done before a first worker process would have started
_LABEL = b"fedboost id to curve25519 1"

Points = NDArray[np.uint8]  # (n, 32)


class Exponent:
    """A secret exponent; it prints nothing and cannot be pickled."""

    __slots__ = ("_scalar",)

    def __init__(self, scalar: bytes) -> None:
        self._scalar = scalar

    @classmethod
    def random(cls) -> Exponent:
        """Return a fresh exponent from the operating system's randomness."""
        return cls.from_seed(os.urandom(32))

    @classmethod
    def from_seed(cls, seed: bytes) -> Exponent:
        """Return the exponent of a secret seed (at least 32 bytes), the same for ever.

        It has X25519's form: 2^254 + 8·k below 2^255. It is a multiple of the group's order with a
        chance of 2^-251.
        """
        if len(seed) < 32:
            raise ValueError(f"a secret seed has 32 bytes at least, got {len(seed)}")
        drawn = hashlib.sha512(b"exponent" + seed).digest()
        scalar = (int.from_bytes(drawn, "little") % (1 << 254) & ~7) | (1 << 254)
        return cls(scalar.to_bytes(32, "little"))

    def seal(self) -> bytes:
        """Return the scalar, for the workers."""
        return self._scalar

    def __repr__(self) -> str:
        return "Exponent(hidden)"

    def __reduce__(self) -> NoReturn:
        raise TypeError("exponents are not pickled")


def hash_to_points(ids: Sequence[bytes], domain: bytes, workers: Workers) -> Points:
    """Return each id as a point of the prime-order subgroup, uint8 (n, 32).

    Equal ids of one `domain` (the kind of ids and the job) give equal points; as a function of the
    id it is a random oracle onto the subgroup's points up to sign.
    """
    tasks = [(list(ids[cut]), domain) for cut in even_slices(len(ids), workers.count, 256, 8192)]
    return _join_points(_workers_for(len(ids), workers).map(hash_ids, tasks))


def multiply(points: Points, exponent: Exponent, workers: Workers) -> Points:
    """Return every point times the secret exponent, uint8 (n, 32), in the same order.

    A PeerError on a point of small order.
    """
    tasks = [
        (points[cut], exponent.seal()) for cut in even_slices(len(points), workers.count, 64, 4096)
    ]
    parts = []
    for part in _workers_for(len(points), workers).map(multiply_points, tasks):
        if part is None:
            raise PeerError("a blinded id is a point of small order")
        parts.append(part)
    return _join_points(parts)


def read_points(count: int, data: bytes, what: str) -> Points:
    """Return the `count` points of a peer's message, uint8 (count, 32), in the same order.

    A PeerError that names the points as `what` unless `data` holds as many, all distinct. The
    caller that multiplies them has to call `check_points`: these may not be points of the curve.
    """
    if len(data) != count * POINT_BYTES:
        raise PeerError(f"{what} has {len(data)} bytes for {count} points")
    points = np.frombuffer(data, np.uint8).reshape(count, POINT_BYTES)
    if len(set(as_keys(points))) != count:
        raise PeerError(f"{what} holds the same point twice")
    return points


def as_keys(points: Points) -> list[bytes]:
    """Return points as bytes, to look up."""
    return [bytes(row) for row in points]


def check_points(points: Points, workers: Workers) -> None:
    """Raise a PeerError unless all are canonical, on the curve (not its twist) and not of small
    order.

    A part of small order beside one of the prime order is not looked for: see the module's text.
    """
    if points.ndim != 2 or points.shape[1] != POINT_BYTES:
        raise PeerError(f"expected points of {POINT_BYTES} bytes")
    tasks = [(points[cut],) for cut in even_slices(len(points), workers.count, 256, 8192)]
    if not all(_workers_for(len(points), workers).map(are_points, tasks)):
        raise PeerError("a blinded id is not a point of the curve, or of small order")


def hash_ids(ids: Sequence[bytes], domain: bytes) -> Points:
    """Return the points of ids; the kernel of `hash_to_points`."""
    prefix = hashlib.sha512(_LABEL + len(domain).to_bytes(4, "big") + domain)
    numerators, denominators = [], []
    for data in ids:
        X, Z = _hash_one(prefix, data)
        numerators.append(X)
        denominators.append(Z)
    return _points_of(
        [x * z % CURVE_PRIME for x, z in zip(numerators, _inverses(denominators), strict=True)]
    )


def multiply_points(points: Points, scalar: bytes) -> Points | None:
    """Return the points times the scalar, the kernel of `multiply`; None if a product is the point
    at infinity.
    """
    raw = points.tobytes()
    products = []
    try:
        for start in range(0, len(raw), POINT_BYTES):
            products.append(crypto_scalarmult(scalar, raw[start : start + POINT_BYTES]))
    except RuntimeError:  # the library's error for a product that is zero
        return None
    return np.frombuffer(b"".join(products), dtype=np.uint8).reshape(-1, POINT_BYTES)


def are_points(points: Points) -> bool:
    """Return whether all are points; the kernel of `check_points`."""
    for u in _numbers(points):
        if u >= CURVE_PRIME or u in SMALL_ORDER or gmpy2.legendre(_right_side(u), CURVE_PRIME) != 1:
            return False
    return True


def _workers_for(count: int, workers: Workers) -> Workers:
    """Return the workers for `count` points: processes, or threads of this one for a few."""
    return workers if count > FEW_POINTS else workers.threads


def _hash_one(prefix: hashlib._Hash, data: bytes) -> tuple[mpz, mpz]:
    """Return eight times the first drawn number that lies on the curve, as X/Z."""
    for attempt in range(1 << 16):
        state = prefix.copy()
        state.update(attempt.to_bytes(4, "big") + data)
        u = mpz.from_bytes(state.digest(), "little") % CURVE_PRIME
        if u not in SMALL_ORDER and gmpy2.legendre(_right_side(u), CURVE_PRIME) == 1:
            return _times_eight(u)
    raise AssertionError("half of all numbers lie on the curve")


def _right_side(u: mpz) -> mpz:
    """Return v² = u³ + A·u² + u of the point with this u, if there is one."""
    return (u * u + A * u + 1) * u % CURVE_PRIME


def _times_eight(u: mpz) -> tuple[mpz, mpz]:
    """Return three doublings of u/1 in projective coordinates (RFC 7748's formulas, Montgomery
    1987).
    """
    X, Z = u, mpz(1)
    for _ in range(3):
        xx, zz, xz = X * X % CURVE_PRIME, Z * Z % CURVE_PRIME, X * Z % CURVE_PRIME
        X, Z = (xx - zz) ** 2 % CURVE_PRIME, 4 * xz * (xx + A * xz + zz) % CURVE_PRIME
    return X, Z


def _inverses(numbers: list[mpz]) -> list[mpz]:
    """Invert all numbers modulo the field's prime with one inversion (Montgomery's trick)."""
    products = [mpz(1)]
    for number in numbers:
        products.append(products[-1] * number % CURVE_PRIME)
    inverse = gmpy2.invert(products[-1], CURVE_PRIME)
    results = []
    for number, before in zip(reversed(numbers), reversed(products[:-1]), strict=True):
        results.append(inverse * before % CURVE_PRIME)
        inverse = inverse * number % CURVE_PRIME
    return results[::-1]


def _join_points(parts: Sequence[Points]) -> Points:
    return np.concatenate([np.empty((0, POINT_BYTES), dtype=np.uint8), *parts])


def _numbers(points: Points) -> list[mpz]:
    raw = points.tobytes()
    return [mpz.from_bytes(raw[i : i + 32], "little") for i in range(0, len(raw), 32)]


def _points_of(numbers: Sequence[mpz]) -> Points:
    joined = b"".join([number.to_bytes(POINT_BYTES, "little") for number in numbers])
    return np.frombuffer(joined, dtype=np.uint8).reshape(-1, POINT_BYTES)
