"""Kernels of worker processes, for ciphertexts whose product is an encryption of the sum.

Multiplying adds, an inverse subtracts, a power of 2^b shifts, all modulo the key's `modulus`.
Kernels take the key and ciphertexts as uint8 (count, width) arrays of big-endian numbers, and give
the same.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Hashable, Sequence
from typing import Protocol

import gmpy2
import numpy as np
from gmpy2 import mpz
from numpy.typing import NDArray

from fedboost.crypto.joint_sums import sum_columns
from fedboost.crypto.limbs import ByteArray, as_bytes, integers, rows_of
from fedboost.crypto.montgomery import montgomery
from fedboost.crypto.secrets import SYSTEM_SOURCE, RandomSource, SecretSource


class ModularKey(Hashable, Protocol):
    """A public key, as a frozen dataclass that travels to the worker processes."""

    @property
    def n(self) -> int:
        """The number n: ciphertexts are units modulo n, and random factors are n-th powers."""

    @property
    def modulus(self) -> mpz:
        """The modulus of products; n or a power of it."""

    @property
    def plaintext_space(self) -> int:
        """Bound of plaintexts: numbers 0 ≤ m < space do not wrap."""

    def bare_encryptions(self, plaintexts: list[int]) -> list[mpz]:
        """Return encryptions without randomness."""


class ModularSecret(Hashable, Protocol):
    """A private key, as a frozen dataclass that travels to the owner's worker processes."""

    @property
    def key(self) -> ModularKey:
        """The public part."""

    def encrypt(self, plaintexts: list[int], source: RandomSource = SYSTEM_SOURCE) -> list[mpz]:
        """Return a fresh encryption of each; a negative number stands for its remainder."""

    def decrypt(self, ciphertexts: list[mpz]) -> list[int] | None:
        """Return the plaintexts, not negative; None if one is no ciphertext."""

    def proved_key(self) -> bytes:
        """Return the public key with its proof, the same bytes every time."""

    def to_bytes(self) -> bytes:
        """Return the secret, for the party's own sealed store."""


PairKernel = Callable[[ModularKey, ByteArray, ByteArray], ByteArray]


def ciphertext_bytes(key: ModularKey) -> int:
    """Return the width of a ciphertext: the bytes of the modulus."""
    return (key.modulus.bit_length() + 7) // 8


def numbers(data: ByteArray) -> list[mpz]:
    """Return big-endian rows as numbers."""
    width = data.shape[-1]
    raw = data.tobytes()
    return [
        mpz.from_bytes(raw[start : start + width], "big") for start in range(0, len(raw), width)
    ]


def sum_rows(
    key: ModularKey, data: ByteArray, cells: NDArray[np.int32]
) -> tuple[NDArray[np.int64], ByteArray]:
    """Return sums of the rows by cell: the cells that occur, ascending, and their ciphertexts."""
    field = montgomery(key.modulus)
    touched, sums = sum_columns(field.numbers(data), cells, field)
    return touched, field.data(sums)


def sum_runs(key: ModularKey, data: ByteArray, lengths: NDArray[np.int64]) -> ByteArray:
    """Return sums of consecutive runs of these lengths, one or more each."""
    field = montgomery(key.modulus)
    sums = field.run_products(field.numbers(data), np.arange(len(data)), lengths)
    return field.data(field.restored(sums, lengths))


def add_pairs(key: ModularKey, a: ByteArray, b: ByteArray) -> ByteArray:
    """Return a[i] + b[i]."""
    modulus = key.modulus
    pairs = zip(numbers(a), numbers(b), strict=True)
    return as_bytes((x * y % modulus for x, y in pairs), a.shape[1])


def subtract_pairs(key: ModularKey, a: ByteArray, b: ByteArray) -> ByteArray:
    """Return a[i] − b[i], with one inverse for all (Montgomery's trick)."""
    modulus = key.modulus
    divisors = numbers(b)
    products = [mpz(1)]  # products[i] = b[0] · … · b[i−1]
    for divisor in divisors:
        products.append(products[-1] * divisor % modulus)
    inverse = gmpy2.invert(products[-1], modulus)  # of b[0] · … · b[i], going down
    results = []
    for x, divisor, before in zip(
        reversed(numbers(a)), reversed(divisors), reversed(products[:-1]), strict=True
    ):
        results.append(x * (inverse * before % modulus) % modulus)
        inverse = inverse * divisor % modulus
    return as_bytes(reversed(results), a.shape[1])


def scale_each(key: ModularKey, data: ByteArray, factors: NDArray[np.int64]) -> ByteArray:
    """Return factors[i] · data[i]."""
    modulus = key.modulus
    scaled = (
        gmpy2.powmod(value, factor, modulus)
        for value, factor in zip(numbers(data), factors.tolist(), strict=True)
    )
    return as_bytes(scaled, data.shape[1])


def running_sums(key: ModularKey, data: ByteArray, lengths: NDArray[np.int64]) -> ByteArray:
    """Return running sums within consecutive segments of these lengths."""
    modulus = key.modulus
    values = iter(numbers(data))
    sums = []
    for length in lengths.tolist():
        total = None
        for _ in range(length):
            value = next(values)
            total = value if total is None else total * value % modulus
            sums.append(total)
    return as_bytes(sums, data.shape[1])


def are_units(key: ModularKey, data: ByteArray) -> bool:
    """Return whether all are in 1..modulus−1 and have no factor in common with n."""
    field, every = montgomery(key.modulus), np.arange(len(data))
    values = field.numbers(data)
    if not np.array_equal(field.data(values), data):  # which is below the modulus
        return False
    (product,) = numbers(field.data(field.run_products(values, every, np.array([len(data)]))))
    return bool(gmpy2.gcd(product, key.n) == 1)


def release_packages(
    key: ModularKey,
    data: ByteArray,
    sizes: Sequence[int],
    widths: Sequence[tuple[int, int]],
    blinders: ByteArray,
    masks: ByteArray | None = None,
) -> ByteArray:
    """Return packages of `sizes` consecutive ciphertexts each, blinded; SecureBoost+, Algorithm 4.

    `widths` are each package's bits for one sum and for all. package = Σ s_i · 2^(i·bits) + k ·
    2^package_bits, k uniform in 1..K, with the largest K that cannot wrap: the signed sum is above
    −2^(package_bits−1), and K·2^package_bits + 2^package_bits is at most the plaintext space. Each
    is multiplied by a separate blinder, a random n-th power. `masks` are signed numbers, one a
    package, that are added to the fields: with them the signed sum is still above
    −2^(package_bits−1), and they cost nothing, for the headroom is encrypted anyway.
    """
    added = [0] * len(widths) if masks is None else integers(masks, signed=True)
    headroom = []
    for (_, package_bits), mask in zip(widths, added, strict=True):
        most = (key.plaintext_space >> package_bits) - 1
        headroom.append(((1 + secrets.randbelow(most)) << package_bits) + mask)
    field, size, ends = montgomery(key.modulus), np.array(sizes), np.cumsum(sizes)
    each, bits = np.arange(len(ends)), np.array([bits for bits, _ in widths])
    # Every sum times R, so that a product of two of them is one again.
    sums = field.numbers(data)
    once = np.zeros(len(sums), np.int64)
    sums = field.products(sums, np.arange(len(sums)), field.radix_square, once)
    packages = sums[ends - 1]
    for place in range(int(size.max(initial=1)) - 2, -1, -1):
        for shift in np.unique(bits):
            chosen = np.flatnonzero((size > place + 1) & (bits == shift))
            shifted = field.squared(packages[chosen], int(shift))
            member = (ends - size)[chosen] + place
            packages[chosen] = field.products(shifted, np.arange(len(chosen)), sums, member)
    for factors in (field.of(key.bare_encryptions(headroom)), field.numbers(blinders)):
        packages = field.products(packages, each, factors, each)
    return field.data(field.restored(packages, np.full(len(packages), 2)))


def encrypt_rows(secret: ModularSecret, fields: ByteArray, key: bytes | None = None) -> ByteArray:
    """Return fresh encryptions of signed plaintexts, uint8 (count, ciphertext width); random
    numbers are drawn from a `key` of 32 bytes, or from the operating system.
    """
    source = SYSTEM_SOURCE if key is None else SecretSource(key)
    plaintexts = integers(fields, signed=True)
    return as_bytes(secret.encrypt(plaintexts, source), ciphertext_bytes(secret.key))


def decrypt_packages(secret: ModularSecret, data: ByteArray) -> ByteArray | None:
    """Return the plaintexts, uint8 (count, width); None if one is no ciphertext."""
    plaintexts = secret.decrypt(numbers(data))
    return None if plaintexts is None else rows_of(plaintexts, plaintext_bytes(secret.key))


def plaintext_bytes(key: ModularKey) -> int:
    """Return the width of a plaintext, which may be a few bits more than the space that all may
    use.
    """
    return key.plaintext_space.bit_length() // 8 + 2
