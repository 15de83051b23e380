"""Checks of keys that are hard-to-factor numbers, and numbers derived by hashing."""

from __future__ import annotations

import functools
import hashlib

import gmpy2
import numpy as np
from gmpy2 import mpz
from numpy.typing import NDArray

from fedboost.crypto.secrets import RandomSource
from fedboost.ground.errors import ConfigError, PeerError

KEY_BITS_MAX = 8192
SMALL_PRIMES_BELOW = 1 << 16
PRIME_TESTS = 40  # Miller-Rabin rounds: a composite passes with probability 2^-80


def check_key_bits(scheme: str, key_bits: int, least: int) -> None:
    """Raise a ConfigError unless keys of this length are safe and sensible."""
    if not least <= key_bits <= KEY_BITS_MAX or key_bits % 16:
        raise ConfigError(
            f"key_bits is {key_bits}; {scheme} needs {least} to {KEY_BITS_MAX}, "
            "and a multiple of 16",
            todo="leave key_bits out, or write a multiple of 16 between them",
        )


def check_modulus(n: int, key_bits: int) -> None:
    """Raise a PeerError unless n is odd, has `key_bits` bits, no prime factor below 2^16 and is no
    power.
    """
    if n <= 0 or n.bit_length() != key_bits:
        raise PeerError(f"the encryption key has {n.bit_length()} bits, expected {key_bits}")
    number = mpz(n)
    if number % 2 == 0 or gmpy2.gcd(number, _small_prime_product() % number) != 1:
        raise PeerError("the encryption key has a small prime factor")
    if gmpy2.is_power(number) or gmpy2.is_prime(number):
        raise PeerError("the encryption key is a prime or a power, not a product of two primes")


def is_unit(number: int, n: int) -> bool:
    """Return whether a number is in 1..n−1 and has no factor in common with n."""
    return 0 < number < n and bool(gmpy2.gcd(number, n) == 1)


def challenge(label: bytes, index: int, seed: bytes, n: int) -> int:
    """Return a number that a hash draws from all of these, uniform below n but for 2^-128."""
    drawn = hashlib.shake_256(label + index.to_bytes(4, "big") + seed)
    return int.from_bytes(drawn.digest((n.bit_length() + 7) // 8 + 16), "big") % n


def drawn_prime(bits: int, source: RandomSource) -> int:
    """Return a random prime of exactly `bits` bits whose two highest are set, so that the product
    of two has twice as many.
    """
    while True:
        number = int.from_bytes(source.take(-(-bits // 8)), "big") % (1 << bits)
        candidate = number | 3 << (bits - 2) | 1
        if gmpy2.is_prime(candidate, PRIME_TESTS):
            return candidate


def join_numbers(values: list[int], width: int) -> bytes:
    """Return numbers as they travel: big-endian, each of `width` bytes."""
    return b"".join([int(value).to_bytes(width, "big") for value in values])


def split_numbers(data: bytes, width: int) -> list[int]:
    """Return the numbers that `join_numbers` wrote."""
    return [int.from_bytes(data[i : i + width], "big") for i in range(0, len(data), width)]


@functools.lru_cache(maxsize=1)
def small_primes() -> NDArray[np.int64]:
    """Return all primes below 2^16."""
    prime = np.ones(SMALL_PRIMES_BELOW, dtype=np.bool_)
    prime[:2] = False
    for number in range(2, 256):
        if prime[number]:
            prime[number * number :: number] = False
    return np.flatnonzero(prime)


def _small_prime_product() -> mpz:
    return gmpy2.primorial(SMALL_PRIMES_BELOW)
