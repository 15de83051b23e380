"""The rings of the lattice schemes, and the guard that refuses weaker ones.

Security rests on the ring, the modulus, the ternary secrets and the error. For `lattice` the
lattice estimator (Albrecht, Player, Scott, "On the concrete hardness of learning with errors",
2015; cost model of MATZOV, 2022) gives 128.8 bits classically and about 122 bits with quantum
sieving, so 53 bits are the most for 2048 coefficients, though the table of the Homomorphic
Encryption Standard (2018, table 1, ternary secrets, 128 bits) allows 54. For 4096 it allows 109
bits. The other schemes take 64 of them (up to 75 bits the table has 192 bits of security):
`lattice-4096` for a flood that hides everything, `lattice-large` for sums of many rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fedboost.crypto.lattice import transforms
from fedboost.ground.errors import ConfigError

# The largest modulus for 128 bits, in bits, by coefficients (`lattice`'s, the Standard's table 1).
MODULUS_BITS_MOST = {2048: 53, 4096: 109, 8192: 218, 16384: 438}
WORD_BITS = 64  # polynomials are arrays of machine words, whose overflow must be harmless
ERROR_BITS_LEAST = 21  # a centred binomial error of 2 · 21 bits has σ = 3.24, and 3.2 is asked
FLOOD_LEAST = 2.0**20  # enough to drown a sum of row errors: 3.3e3 for 2^20 rows
OUTPUTS_EACH = 8  # numbers that leave with one vector
FAILURE_MOST = 1e-9  # of one sum; `lattice` has 3e-11
LEAK_MOST = 3.62e-6  # bits, of one number of an answer: `lattice` has 3.61e-6 at 2^21 rows
SLOTS = (32, 64, 128, 256, 512)  # candidates in a full batch of packed answers, K
PACKED_BITS = 39  # packed bits of a coefficient of an answer's vector, its upper ones
PACKED_BITS_LEAST = 20  # least bits of a coefficient of a packed batch, even of narrow answers


@dataclass(frozen=True)
class LatticeParameters:
    """Polynomials of `ring` coefficients modulo 2^modulus_bits, with their scale, errors and flood.

    A ConfigError for anything weaker than `lattice`, or if answers could not be decrypted.
    """

    name: str
    ring: int  # coefficients of a polynomial, N
    modulus_bits: int  # q = 2^modulus_bits
    scale_bits: int  # a message is encrypted as Δ = 2^scale_bits times itself
    drop_bits: int  # the vector of an answer leaves as multiples of 2^drop_bits
    flood: float  # standard deviation of the Gaussian in an answer's numbers, σ_f
    error_bits: int = ERROR_BITS_LEAST  # a centred binomial error is their sum minus another

    def __post_init__(self) -> None:
        check_strength(self)

    @cached_property
    def mask(self) -> np.uint64:
        """Mask of numbers below q: q − 1."""
        return np.uint64((1 << self.modulus_bits) - 1)

    @property
    def word_bytes(self) -> int:
        """Size of one number modulo q on the wire."""
        return -(-self.modulus_bits // 8)

    @property
    def error_variance(self) -> float:
        """Variance σ² of an error."""
        return self.error_bits / 2

    @property
    def blinding_variance(self) -> float:
        """Variance σ² that an answer's zero encryption, flood and rounding add to a decrypted
        number.

        e'·v and e1·s are N products of an error and a ternary number, of variance 2/3; a number
        rounded to 2^t is off by σ² = 4^t / 12, N times, times a ternary number again.
        """
        rounding = 4.0**self.drop_bits * self.ring / 18 if self.drop_bits else 0.0
        return self._zero_variance + rounding

    @property
    def _zero_variance(self) -> float:
        return self.error_variance * 4 * self.ring / 3 + self.flood**2

    def sigma(self, rows: int) -> float:
        """Return the standard deviation of the noise in a decrypted sum of that many rows."""
        return math.sqrt(rows * self.error_variance + self.blinding_variance)

    def failure(self, rows: int) -> float:
        """Return the probability that a decrypted sum of that many rows is wrong by a unit of its
        grid.
        """
        return self._failure_at(self.sigma(rows))

    def leaked_bits(self, rows: int) -> float:
        """Return the most bits that one number of an answer reveals about the choice of its rows,
        of so many, beyond the sum.

        The guest knows the rows' errors; the sum of the chosen rows' errors is a signal of variance
        n·σ²/4 at most (each row in or out with even chances), in Gaussian noise of variance σ_f².
        """
        signal = rows * self.error_variance / 4
        return math.log1p(signal / self.flood**2) / (2 * math.log(2))

    @cached_property
    def can_pack(self) -> bool:
        """Return whether sums of any width can leave packed without being wrong too often."""
        return self.packed_failure(1, self.modulus_bits, SLOTS[-1]) <= FAILURE_MOST

    def packed_bits(self, widest: int) -> tuple[int, int]:
        """Return the bits of a coefficient of c1 and of c0 in a batch of packed answers up to that
        wide.
        """
        bits = widest - self.drop_bits + 1, widest - self.drop_bits - 2
        return max(PACKED_BITS_LEAST, bits[0]), max(PACKED_BITS_LEAST, bits[1])

    def packing_variance(self, width: int, widest: int, count: int) -> float:
        """Return the variance σ² that packing adds to a number modulo 2^width, in a batch of
        `count` answers up to modulo 2^widest.

        Of u, N numbers are rounded to 39 bits and meet a ternary number each. c0 has an error of
        the key for each of N coefficients of each answer. c1 is rounded, M times, and meets a
        ternary number; c0 is rounded.
        """
        vector, number = self.packed_bits(widest)
        below = max(0, width - PACKED_BITS)
        cut = 4.0**below * self.ring / 18 if below else 0.0
        scaled = (2.0**width / transforms.MODULUS) ** 2 * 4.0**PACKED_BITS / 12
        rounding = 4.0 ** (width - vector) * transforms.DEGREE / 18 + 4.0 ** (width - number) / 12
        return cut + scaled * self.ring * count * self.error_variance + rounding

    def packed_sigma(self, rows: int, width: int, widest: int, count: int) -> float:
        """Return the standard deviation of the noise in a sum of that many rows from a packed
        answer.
        """
        added = self.packing_variance(width, widest, count)
        return math.sqrt(rows * self.error_variance + self._zero_variance + added)

    def packed_failure(self, rows: int, width: int, count: int) -> float:
        """Return the probability that a sum from a batch of equally wide answers is wrong."""
        return self._failure_at(self.packed_sigma(rows, width, width, count))

    def _failure_at(self, sigma: float) -> float:
        return math.erfc(2.0**self.scale_bits / (2 * math.sqrt(2) * sigma))


def check_strength(parameters: LatticeParameters) -> None:
    """Raise a ConfigError unless the parameters are at least as strong as `lattice`."""
    most = MODULUS_BITS_MOST.get(parameters.ring)
    if most is None or not 0 < parameters.modulus_bits <= min(most, WORD_BITS):
        raise ConfigError(
            f"a modulus of {parameters.modulus_bits} bits in a ring of {parameters.ring} "
            "coefficients has less than 128 bits of security",
            todo=f"take one of {', '.join(BY_NAME)}",
        )
    if parameters.error_bits < ERROR_BITS_LEAST or parameters.flood < FLOOD_LEAST:
        raise ConfigError(
            f"an error of {parameters.error_bits} bits and a flood of {parameters.flood:.0f} "
            f"hide too little: {ERROR_BITS_LEAST} and {FLOOD_LEAST:.0f} are the least",
            todo=f"take one of {', '.join(BY_NAME)}",
        )


BY_NAME: dict[str, LatticeParameters] = {}
BY_NAME["lattice"] = LatticeParameters(
    "lattice", 2048, 53, scale_bits=24, drop_bits=16, flood=2.0**20
)
BY_NAME["lattice-4096"] = LatticeParameters(
    "lattice-4096", 4096, 64, scale_bits=35, drop_bits=26, flood=2.0**31
)
BY_NAME["lattice-large"] = LatticeParameters(
    "lattice-large", 4096, 64, scale_bits=27, drop_bits=18, flood=2.0**23
)


def groups_of(outputs: int) -> list[slice]:
    """Return the outputs that share a vector."""
    starts = range(0, outputs, OUTPUTS_EACH)
    return [slice(first, min(first + OUTPUTS_EACH, outputs)) for first in starts]


def by_name(name: str) -> LatticeParameters:
    """Return the parameters of that name; a ConfigError that lists the names otherwise."""
    if name not in BY_NAME:
        raise ConfigError(
            f"there are no lattice parameters {name!r}", todo=f"one of {', '.join(BY_NAME)}"
        )
    return BY_NAME[name]
