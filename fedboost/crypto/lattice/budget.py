"""How many bits a message has, given how many rows are to be added up; what a sum may be.

    ┌ W ────────────────────────────────────────────┐
      sum of n_node messages, signed │ scale: noise │
      p + ⌈log2 n_node⌉              │ 24 or 35     │     below q: p + ⌈log2 n⌉ ≤ 29

More precision is not better: sums that are exact to the last bit tell subsets apart.
"""

from __future__ import annotations

from dataclasses import dataclass

from fedboost.crypto.lattice.parameters import LatticeParameters
from fedboost.errors import ConfigError

MESSAGE_BITS_MOST = 16
MESSAGE_BITS_LEAST = 8  # with fewer the trees get worse
FAILURE_MOST = 1e-9  # of one sum; `lattice` has 3e-11


@dataclass(frozen=True)
class Budget:
    """Bounds on messages and sums of a job with so many rows.

    A ConfigError where messages would have too few bits or sums would be wrong too often.
    """

    parameters: LatticeParameters
    rows: int  # the most that any sum adds up: those of the job
    bits: int = MESSAGE_BITS_MOST  # a message is to have no more, also where more fit
    spare: int = 0  # how many rows' messages the noise is worth that a host adds to a sum

    def __post_init__(self) -> None:
        if self.rows < 1:
            raise ConfigError(f"cannot add up {self.rows} rows")
        if self.message_bits < MESSAGE_BITS_LEAST:
            most = (1 << (self._room - MESSAGE_BITS_LEAST)) - self.spare
            raise ConfigError(
                f"sums of {self.rows} rows leave messages {self.message_bits} bits, "
                f"and {MESSAGE_BITS_LEAST} are the least",
                todo=f"train on at most {most} rows, or take okamoto-uchiyama or paillier",
            )
        if self.failure > FAILURE_MOST:
            raise ConfigError(
                f"one sum of {self.rows} rows in {1 / self.failure:.3g} would be wrong",
                todo="take the scheme's own parameters",
            )

    @property
    def _room(self) -> int:
        return self.parameters.modulus_bits - self.parameters.scale_bits

    @property
    def message_bits(self) -> int:
        """Bits of a message, its sign included: p."""
        return min(self.bits, MESSAGE_BITS_MOST, self._room - _log2(self.rows + self.spare))

    @property
    def message_most(self) -> int:
        """No message is beyond this, either way: 2^(p−1) − 1."""
        return (1 << (self.message_bits - 1)) - 1

    @property
    def failure(self) -> float:
        """Probability that one decrypted sum of all rows is wrong."""
        return self.parameters.failure(self.rows)

    def width(self, node_rows: int) -> int:
        """W: an answer about a node with so many rows leaves modulo 2^W.

        A ConfigError for no rows or more than the job's.
        """
        if not 1 <= node_rows <= self.rows:
            raise ConfigError(f"a node of {node_rows} rows in a job of {self.rows}")
        return self.parameters.scale_bits + self.message_bits + _log2(node_rows + self.spare)


def _log2(rows: int) -> int:
    return (rows - 1).bit_length()
