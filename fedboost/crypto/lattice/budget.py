"""Bits of a message by the number of rows to be added up, and bounds of sums.

    ┌ W ────────────────────────────────────────────┐
      sum of n_node messages, signed │ scale: noise │
      p + ⌈log2 n_node⌉              │ 24, 27 or 35 │     below q: p + ⌈log2 n⌉ ≤ 29, 37 or 29

More precision is not better: sums that are exact to the last bit tell subsets apart. More rows have
more errors, which the flood has to hide: `LEAK_MOST`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

from fedboost.crypto.lattice.parameters import BY_NAME, FAILURE_MOST, LEAK_MOST, LatticeParameters
from fedboost.ground.errors import ConfigError

MESSAGE_BITS_MOST = 16
MESSAGE_BITS_LEAST = 8  # with fewer the trees get worse


@dataclass(frozen=True)
class Budget:
    """Bounds on messages and sums of a job with so many rows.

    A ConfigError if messages would have too few bits, answers would reveal too much about the rows
    that they add up, or sums would be wrong too often.
    """

    parameters: LatticeParameters
    rows: int  # the most that any sum adds up: those of the job
    bits: int = MESSAGE_BITS_MOST  # the most bits of a message, even if more fit
    spare: int = 0  # rows whose messages equal a host's noise on a sum

    def __post_init__(self) -> None:
        if self.rows < 1:
            raise ConfigError(f"cannot add up {self.rows} rows")
        added, most = self.rows + self.spare, rows_most(self.parameters)
        if added > most:
            larger = [
                name for name, parameters in BY_NAME.items() if added <= rows_most(parameters)
            ]
            others = " or ".join([*larger, "okamoto-uchiyama", "paillier"])
            raise ConfigError(
                f"{self.parameters.name} does not add up {self.rows} rows",
                todo=f"train on at most {max(0, most - self.spare)} rows, or take {others}",
            )
        if self.failure > FAILURE_MOST:
            raise ConfigError(
                f"one sum of {self.rows} rows in {1 / self.failure:.3g} would be wrong",
                todo="take the scheme's own parameters",
            )

    @property
    def message_bits(self) -> int:
        """Bits of a message, its sign included: p."""
        room = _room_bits(self.parameters) - _log2(self.rows + self.spare)
        return min(self.bits, MESSAGE_BITS_MOST, room)

    @property
    def message_most(self) -> int:
        """Bound of messages, either way: 2^(p−1) − 1."""
        return (1 << (self.message_bits - 1)) - 1

    @property
    def failure(self) -> float:
        """Probability that one decrypted sum of all rows is wrong."""
        return self.parameters.failure(self.rows)

    def width(self, node_rows: int) -> int:
        """Return W: an answer about a node with so many rows leaves modulo 2^W.

        A ConfigError for no rows or more than the job's.
        """
        if not 1 <= node_rows <= self.rows:
            raise ConfigError(f"a node of {node_rows} rows in a job of {self.rows}")
        return self.parameters.scale_bits + self.message_bits + _log2(node_rows + self.spare)

    def readable_bits(self, node_rows: int) -> float:
        """Return the most bits that an answer modulo 2^W reveals, for any messages: W less the
        entropy of the flood, log2(σ·√(2πe)).

        Messages alone take less; a guest may also fill the bits of their scale above the flood.
        """
        flood = math.log2(self.parameters.flood * math.sqrt(2 * math.pi * math.e))
        return self.width(node_rows) - flood


@cache
def rows_most(parameters: LatticeParameters) -> int:
    """Return the most rows that sums add up, a power of two: for messages of enough bits, and
    answers that reveal little enough.
    """
    powers = [1 << bits for bits in range(_room_bits(parameters) - MESSAGE_BITS_LEAST + 1)]
    return max((rows for rows in powers if parameters.leaked_bits(rows) <= LEAK_MOST), default=0)


def _room_bits(parameters: LatticeParameters) -> int:
    return parameters.modulus_bits - parameters.scale_bits


def _log2(rows: int) -> int:
    return (rows - 1).bit_length()
