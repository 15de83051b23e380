"""Paillier keys: made, proved and checked.

A public key travels with a proof that raising to the power n permutes the units modulo n, i.e. that
n and φ(n) have no common factor (Goldberg, Reyzin, Sagga, Baldimtsi, "Efficient noninteractive
certification of RSA moduli and beyond", 2019, section 3). Without it a guest could make a key with
few n-th residues, e.g. q = 2p + 1, and a host's blinding would hide nothing. The proof: n-th
roots of numbers that a hash draws from n. If a prime beyond 2^16 divides both n and φ(n), one
drawn unit in 2^16 has a root; smaller primes are excluded by trial division.

That n has two prime factors is not proved: `blinding` hides for any n that passes. Nor does the
proof name a job or a receiver. Copied with its n it proves as much, and the copier cannot decrypt.
"""

from __future__ import annotations

from dataclasses import dataclass

import gmpy2

from fedboost.crypto import moduli
from fedboost.crypto.secrets import Secrets, SecretSource
from fedboost.ground.errors import PeerError

KEY_BITS_MIN = 2048
PAILLIER_PROOF_ROOTS = 8  # 16 bits each: a bad key passes with probability 2^-128
_LABEL = b"fedboost paillier key proof 1"


@dataclass(frozen=True, repr=False)
class SecretPrimes:
    """The two prime factors of a key."""

    p: int
    q: int

    @property
    def n(self) -> int:
        """The public key n."""
        return self.p * self.q

    def __repr__(self) -> str:
        return f"SecretPrimes({self.n.bit_length()} bits, hidden)"


def check_key_bits(key_bits: int) -> None:
    """Raise a ConfigError unless keys of this length are safe and sensible."""
    moduli.check_key_bits("paillier", key_bits, KEY_BITS_MIN)


def generate(key_bits: int) -> SecretPrimes:
    """Return a fresh key of exactly `key_bits` bits, from the operating system's randomness."""
    from phe.paillier import generate_paillier_keypair

    check_key_bits(key_bits)
    while True:
        public, private = generate_paillier_keypair(n_length=key_bits)
        p, q = int(private.p), int(private.q)
        n = int(public.n)
        if n.bit_length() == key_bits and gmpy2.gcd(n, (p - 1) * (q - 1)) == 1:
            return SecretPrimes(p, q)


def draw_primes(key_bits: int, secrets: Secrets) -> SecretPrimes:
    """Return the key of exactly `key_bits` bits that a secret gives."""
    check_key_bits(key_bits)
    source = SecretSource(secrets.derive("paillier primes", key_bits))
    while True:
        p, q = (moduli.drawn_prime(key_bits // 2, source) for _ in range(2))
        if p != q and gmpy2.gcd(p * q, (p - 1) * (q - 1)) == 1:
            return SecretPrimes(p, q)


def proved_key(secret: SecretPrimes) -> bytes:
    """Return the public key as it travels: n, then the n-th roots of its proof."""
    n = secret.n
    inverse = int(gmpy2.invert(n, (secret.p - 1) * (secret.q - 1)))
    width = (n.bit_length() + 7) // 8
    roots = [int(gmpy2.powmod(_challenge(n, i), inverse, n)) for i in range(PAILLIER_PROOF_ROOTS)]
    return moduli.join_numbers([n, *roots], width)


def read_public(data: bytes, key_bits: int) -> int:
    """Return n, from the output of `proved_key`; a PeerError unless it is a sound key of exactly
    `key_bits` bits.
    """
    width = key_bits // 8
    if len(data) != (1 + PAILLIER_PROOF_ROOTS) * width:
        raise PeerError(
            f"expected a key of {key_bits} bits and its proof, "
            f"{(1 + PAILLIER_PROOF_ROOTS) * width} bytes, got {len(data)} bytes"
        )
    n, *roots = moduli.split_numbers(data, width)
    moduli.check_modulus(n, key_bits)
    for i, root in enumerate(roots):
        if not moduli.is_unit(root, n) or gmpy2.powmod(root, n, n) != _challenge(n, i):
            raise PeerError("the proof of the encryption key does not hold")
    return n


def _challenge(n: int, index: int) -> int:
    """Return the number that a proof gives the n-th root of: drawn from n."""
    return moduli.challenge(_LABEL, index, n.to_bytes((n.bit_length() + 7) // 8, "big"), n)
