"""What worker processes do with ciphertexts whose product is an encryption of the sum.

Multiplying adds, an inverse subtracts, a power of 2^b shifts, all modulo the key's `modulus`.
Kernels take the key and ciphertexts as uint8 (count, width) arrays of big-endian numbers, and give
the same.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Protocol

import gmpy2
import numpy as np
from gmpy2 import mpz
from numpy.typing import NDArray

from fedboost.crypto.joint_sums import sum_columns
from fedboost.crypto.limbs import ByteArray, integers, rows_of

GCD_BATCH = 64  # ciphertexts multiplied together for one gcd with n


class ModularKey(Hashable, Protocol):
    """A public key, as a frozen dataclass that travels to the worker processes."""

    @property
    def n(self) -> int:
        """Ciphertexts are units modulo n, and random factors are n-th powers."""

    @property
    def modulus(self) -> mpz:
        """Products are taken modulo this; n or a power of it."""

    @property
    def space(self) -> int:
        """Plaintexts 0 ≤ m < space are what they are: nothing wraps."""

    def bare(self, plaintexts: list[int]) -> list[mpz]:
        """Encryptions without randomness."""


class ModularSecret(Hashable, Protocol):
    """A private key, as a frozen dataclass that travels to the owner's worker processes."""

    @property
    def key(self) -> ModularKey:
        """The public part."""

    def encrypt(self, plaintexts: list[int]) -> list[mpz]:
        """A fresh encryption of each; a negative number stands for its remainder."""

    def decrypt(self, ciphertexts: list[mpz]) -> list[int] | None:
        """The plaintexts, not negative; None if one is no ciphertext."""

    def proved(self) -> bytes:
        """The public key with its proof, the same bytes every time."""

    def to_bytes(self) -> bytes:
        """The secret, for the party's own sealed store."""


PairKernel = Callable[[ModularKey, ByteArray, ByteArray], ByteArray]


def ciphertext_bytes(key: ModularKey) -> int:
    """Width of a ciphertext: the bytes of the modulus."""
    return (key.modulus.bit_length() + 7) // 8


def numbers(data: ByteArray) -> list[mpz]:
    """Big-endian rows as numbers."""
    width = data.shape[-1]
    raw = data.tobytes()
    return [
        mpz.from_bytes(raw[start : start + width], "big") for start in range(0, len(raw), width)
    ]


def as_bytes(values: Iterable[mpz], width: int) -> ByteArray:
    """Numbers as big-endian rows, uint8 (count, width)."""
    joined = b"".join([value.to_bytes(width, "big") for value in values])
    return np.frombuffer(joined, dtype=np.uint8).reshape(-1, width)


def sum_rows(
    key: ModularKey, data: ByteArray, cells: NDArray[np.int32]
) -> tuple[NDArray[np.int64], ByteArray]:
    """Sums of the rows by cell: the cells that occur, ascending, and their ciphertexts."""
    sums = sum_columns(numbers(data), cells, key.modulus)
    touched = sorted(sums)
    return np.array(touched, dtype=np.int64), as_bytes((sums[c] for c in touched), data.shape[1])


def sum_runs(key: ModularKey, data: ByteArray, lengths: NDArray[np.int64]) -> ByteArray:
    """Sums of consecutive runs of these lengths, one or more each."""
    modulus = key.modulus
    values = iter(numbers(data))
    sums = []
    for length in lengths.tolist():
        total = next(values)
        for _ in range(length - 1):
            total = total * next(values) % modulus
        sums.append(total)
    return as_bytes(sums, data.shape[1])


def add_pairs(key: ModularKey, a: ByteArray, b: ByteArray) -> ByteArray:
    """a[i] + b[i]."""
    modulus = key.modulus
    pairs = zip(numbers(a), numbers(b), strict=True)
    return as_bytes((x * y % modulus for x, y in pairs), a.shape[1])


def subtract_pairs(key: ModularKey, a: ByteArray, b: ByteArray) -> ByteArray:
    """a[i] − b[i], with one inverse for all (Montgomery's trick)."""
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
    """factors[i] · data[i]."""
    modulus = key.modulus
    scaled = (
        gmpy2.powmod(value, factor, modulus)
        for value, factor in zip(numbers(data), factors.tolist(), strict=True)
    )
    return as_bytes(scaled, data.shape[1])


def running_sums(key: ModularKey, data: ByteArray, lengths: NDArray[np.int64]) -> ByteArray:
    """Running sums within consecutive segments of these lengths."""
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
    """Return True if all are in 1..modulus−1 and have no factor in common with n."""
    n, modulus = mpz(key.n), key.modulus
    values = numbers(data)
    for start in range(0, len(values), GCD_BATCH):
        product = mpz(1)
        for value in values[start : start + GCD_BATCH]:
            if not 0 < value < modulus:
                return False
            product = product * (value % n) % n
        if gmpy2.gcd(product, n) != 1:
            return False
    return True


def release_packages(
    key: ModularKey,
    data: ByteArray,
    sizes: Sequence[int],
    widths: Sequence[tuple[int, int]],
    blinders: ByteArray,
    masks: ByteArray | None = None,
) -> ByteArray:
    """Packages of `sizes` consecutive ciphertexts each, blinded; SecureBoost+, Algorithm 4.

    `widths` are each package's bits for one sum and for all. package = Σ s_i · 2^(i·bits) +
    k · 2^package_bits, k uniform in 1..K, where K is the largest that cannot wrap: the signed sum
    is above −2^(package_bits−1), and K·2^package_bits + 2^package_bits is at most the plaintext
    space. Each is multiplied by a blinder of its own, a random n-th power. `masks` are signed
    numbers, one a package, that are added to the fields: with them the signed sum is still above
    −2^(package_bits−1), and they cost nothing, for the headroom is encrypted anyway.
    """
    modulus = key.modulus
    added = [0] * len(widths) if masks is None else integers(masks, signed=True)
    headroom = []
    for (_, package_bits), mask in zip(widths, added, strict=True):
        most = (key.space >> package_bits) - 1
        headroom.append(((1 + secrets.randbelow(most)) << package_bits) + mask)
    sums = iter(numbers(data))
    packages = []
    for size, (bits, _), high, factor in zip(
        sizes, widths, key.bare(headroom), numbers(blinders), strict=True
    ):
        held = [next(sums) for _ in range(size)]
        package = held.pop()
        while held:
            package = gmpy2.powmod(package, mpz(1) << bits, modulus) * held.pop() % modulus
        packages.append(package * high % modulus * factor % modulus)
    return as_bytes(packages, data.shape[1])


def encrypt_rows(secret: ModularSecret, fields: ByteArray) -> ByteArray:
    """Fresh encryptions of signed plaintexts, uint8 (count, ciphertext width)."""
    return as_bytes(secret.encrypt(integers(fields, signed=True)), ciphertext_bytes(secret.key))


def decrypt_packages(secret: ModularSecret, data: ByteArray) -> ByteArray | None:
    """The plaintexts, uint8 (count, width); None if one is no ciphertext."""
    plaintexts = secret.decrypt(numbers(data))
    return None if plaintexts is None else rows_of(plaintexts, plaintext_bytes(secret.key))


def plaintext_bytes(key: ModularKey) -> int:
    """Width of a plaintext, which may be a few bits more than the space that all may use."""
    return key.space.bit_length() // 8 + 2
