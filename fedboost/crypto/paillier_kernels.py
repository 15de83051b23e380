"""What a host's worker processes do with Paillier ciphertexts: products modulo n².

A ciphertext of m is (1 + m·n)·r^n modulo n² (generator n + 1); multiplying adds, an inverse
subtracts, a power of 2^b shifts. Kernels take the key as the number n and ciphertexts as uint8
(count, width) arrays of big-endian numbers, and give the same.
"""

from __future__ import annotations

import functools
import secrets
from collections.abc import Callable, Iterable, Sequence

import gmpy2
import numpy as np
from gmpy2 import mpz
from numpy.typing import NDArray

from fedboost.crypto.joint_sums import sum_columns
from fedboost.crypto.packing import GhLayout

GCD_BATCH = 64  # ciphertexts multiplied together for one gcd with n

Octets = NDArray[np.uint8]
PairKernel = Callable[[int, Octets, Octets], Octets]


@functools.lru_cache(maxsize=8)
def modulus(n: int) -> tuple[mpz, mpz]:
    """n and n² as gmpy2 numbers."""
    return mpz(n), mpz(n) * mpz(n)


def ciphertext_bytes(n: int) -> int:
    """Width of a ciphertext: the bytes of n²."""
    return (2 * n.bit_length() + 7) // 8


def numbers(data: Octets) -> list[mpz]:
    """Big-endian rows as numbers."""
    width = data.shape[1]
    raw = data.tobytes()
    return [
        mpz.from_bytes(raw[start : start + width], "big") for start in range(0, len(raw), width)
    ]


def octets(values: Iterable[mpz], width: int) -> Octets:
    """Numbers as big-endian rows, uint8 (count, width)."""
    joined = b"".join([value.to_bytes(width, "big") for value in values])
    return np.frombuffer(joined, dtype=np.uint8).reshape(-1, width)


def sum_rows(n: int, data: Octets, cells: NDArray[np.int32]) -> tuple[NDArray[np.int64], Octets]:
    """Sums of the rows by cell: the cells that occur, ascending, and their ciphertexts."""
    sums = sum_columns(numbers(data), cells, modulus(n)[1])
    touched = sorted(sums)
    return np.array(touched, dtype=np.int64), octets((sums[c] for c in touched), data.shape[1])


def sum_runs(n: int, data: Octets, lengths: NDArray[np.int64]) -> Octets:
    """Sums of consecutive runs of these lengths, one or more each."""
    _, n2 = modulus(n)
    values = iter(numbers(data))
    sums = []
    for length in lengths.tolist():
        total = next(values)
        for _ in range(length - 1):
            total = total * next(values) % n2
        sums.append(total)
    return octets(sums, data.shape[1])


def add_pairs(n: int, a: Octets, b: Octets) -> Octets:
    """a[i] + b[i]."""
    _, n2 = modulus(n)
    pairs = zip(numbers(a), numbers(b), strict=True)
    return octets((x * y % n2 for x, y in pairs), a.shape[1])


def subtract_pairs(n: int, a: Octets, b: Octets) -> Octets:
    """a[i] − b[i], with one inverse for all (Montgomery's trick)."""
    _, n2 = modulus(n)
    divisors = numbers(b)
    products = [mpz(1)]  # products[i] = b[0] · … · b[i−1]
    for divisor in divisors:
        products.append(products[-1] * divisor % n2)
    inverse = gmpy2.invert(products[-1], n2)  # of b[0] · … · b[i], going down
    results = []
    for x, divisor, before in zip(
        reversed(numbers(a)), reversed(divisors), reversed(products[:-1]), strict=True
    ):
        results.append(x * (inverse * before % n2) % n2)
        inverse = inverse * divisor % n2
    return octets(reversed(results), a.shape[1])


def running_sums(n: int, data: Octets, lengths: NDArray[np.int64]) -> Octets:
    """Running sums within consecutive segments of these lengths."""
    _, n2 = modulus(n)
    values = iter(numbers(data))
    sums = []
    for length in lengths.tolist():
        total = None
        for _ in range(length):
            value = next(values)
            total = value if total is None else total * value % n2
            sums.append(total)
    return octets(sums, data.shape[1])


def are_units(n: int, data: Octets) -> bool:
    """Whether all are in 1..n²−1 and have no factor in common with n."""
    key, n2 = modulus(n)
    values = numbers(data)
    for start in range(0, len(values), GCD_BATCH):
        product = mpz(1)
        for value in values[start : start + GCD_BATCH]:
            if not 0 < value < n2:
                return False
            product = product * (value % key) % key
        if gmpy2.gcd(product, key) != 1:
            return False
    return True


def release_packages(
    n: int, data: Octets, sizes: Sequence[int], layout: GhLayout, blinders: Octets
) -> Octets:
    """Packages of `sizes` consecutive ciphertexts each, blinded; SecureBoost+, Algorithm 4.

    package = Σ x_i · 2^(i·n_bit) + k · 2^package_bits, k uniform in 1..K, where K is the largest
    that cannot wrap: the signed sum is above −2^(package_bits−1), and K·2^package_bits +
    2^package_bits is at most n. Each is multiplied by a blinder of its own, a random n-th residue.
    """
    key, n2 = modulus(n)
    shift = mpz(1) << layout.n_bit
    most = int(key >> layout.package_bits) - 1
    values, factors = numbers(data), numbers(blinders)
    packages, start = [], 0
    for size, factor in zip(sizes, factors, strict=True):
        fields = values[start : start + size]
        start += size
        package = fields.pop()
        while fields:
            package = gmpy2.powmod(package, shift, n2) * fields.pop() % n2
        headroom = mpz(1 + secrets.randbelow(most)) << layout.package_bits
        package = package * (1 + headroom * key) % n2
        packages.append(package * factor % n2)
    return octets(packages, data.shape[1])
