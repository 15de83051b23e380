"""A modulus of as many primes as fit, of a changed guest that wants its hosts' blinding void.

All its primes are 1 modulo a small prime `ORDER`. Units modulo n then have logarithms modulo
`ORDER` at every prime, which the guest takes at once.
"""

import random
from functools import cache

import gmpy2
import numpy as np
from gmpy2 import mpz

from fedboost.crypto import moduli, okamoto_uchiyama, paillier_keys
from fedboost.crypto.okamoto_uchiyama import OuKey
from fedboost.crypto.paillier import PaillierKey

ORDER = 127
KEY_BITS = 1536  # too short for a job; proofs and blinding are the same


class ManyPrimes:
    """The guest's factors of n, and what it can do with them; gcd(n, φ(n)) = 1."""

    def __init__(self, primes):
        self.primes = [mpz(p) for p in primes]
        self.n = mpz(1)
        self.phi = mpz(1)
        for p in self.primes:
            self.n, self.phi = self.n * p, self.phi * (p - 1)
        self._generators = [self._generator(p) for p in self.primes]
        self._parts = [self.n // p * gmpy2.invert(self.n // p, p) for p in self.primes]
        self._tables = []
        for p, generator in zip(self.primes, self._generators, strict=True):
            base = gmpy2.powmod(generator, (p - 1) // ORDER, p)
            self._tables.append({gmpy2.powmod(base, log, p): log for log in range(ORDER)})

    def paillier(self):
        """A Paillier key with this modulus."""
        return PaillierKey(int(self.n))

    def okamoto_uchiyama(self):
        """An Okamoto-Uchiyama key with this modulus; every unit decrypts to 0, and g has logs 0."""
        return OuKey(int(self.n), int(gmpy2.powmod(3, ORDER, self.n)))

    def paillier_proof(self):
        """The key and its proof, all of it true."""
        n = int(self.n)
        drawn = [paillier_keys._challenge(n, i) for i in range(paillier_keys.PAILLIER_PROOF_ROOTS)]
        return moduli.join_numbers([n, *map(self._root, drawn)], KEY_BITS // 8)

    def okamoto_uchiyama_proof(self):
        """The key and its proof, all of it true: every unit is an n-th power."""
        key, width = self.okamoto_uchiyama(), KEY_BITS // 8
        parts = [moduli.join_numbers([key.n, key.g], width)]
        for i in range(okamoto_uchiyama.OU_PROOF_ROOTS):
            root = self._root(okamoto_uchiyama._challenge(key, i))
            parts.append(bytes(KEY_BITS // 24) + moduli.join_numbers([root], width))
        return b"".join(parts)

    def logs(self, number):
        """The logarithm modulo `ORDER` at every prime, int64."""
        return np.array(
            [
                table[gmpy2.powmod(number, (p - 1) // ORDER, p)]
                for p, table in zip(self.primes, self._tables, strict=True)
            ]
        )

    def unit(self, logs):
        """A random unit with these logarithms."""
        total = mpz(0)
        for p, generator, part, log in zip(
            self.primes, self._generators, self._parts, logs, strict=True
        ):
            hidden = gmpy2.powmod(random.randrange(1, p), ORDER, p)
            total += gmpy2.powmod(generator, int(log), p) * hidden % p * part
        return total % self.n

    def _root(self, number):
        return int(gmpy2.powmod(number, gmpy2.invert(self.n, self.phi), self.n))

    def _generator(self, p):
        """Return a number whose logarithm modulo `ORDER` is not 0, which is then taken for 1."""
        return next(x for x in range(2, 1000) if gmpy2.powmod(x, (p - 1) // ORDER, p) != 1)


@cache
def many_primes():
    """One such modulus of exactly `KEY_BITS` bits, of primes just above 2^16."""
    found: list[int] = []
    p = (1 << 16) // (2 * ORDER) * 2 * ORDER + 1
    while len(found) < 120:
        p += 2 * ORDER
        if gmpy2.is_prime(p):
            found.append(p)
    draw = random.Random(1)
    while True:
        chosen = draw.sample(found, 88 + draw.randrange(3))
        n = mpz(1)
        for p in chosen:
            n *= p
        if n.bit_length() != KEY_BITS or any(gmpy2.gcd(n, p - 1) != 1 for p in chosen):
            continue
        return ManyPrimes(chosen)


def reduced(rows):
    """A basis of what rows span modulo `ORDER`, in reduced echelon form, and its pivots."""
    pivots: list[int] = []
    rows = np.array(rows) % ORDER
    for column in range(rows.shape[1]):
        at = len(pivots)
        (nonzero,) = np.nonzero(rows[at:, column])
        if not len(nonzero):
            continue
        rows[[at, at + nonzero[0]]] = rows[[at + nonzero[0], at]]
        rows[at] = rows[at] * pow(int(rows[at, column]), -1, ORDER) % ORDER
        others = rows[:, column].copy()
        others[at] = 0
        rows = (rows - others[:, None] * rows[at]) % ORDER
        pivots.append(column)
        if len(pivots) == len(rows):
            break
    return rows[: len(pivots)], pivots
