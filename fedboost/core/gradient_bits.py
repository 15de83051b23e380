"""Bits of an integer gradient without its sign: the bounds and the default."""

from __future__ import annotations

BITS_MAX = 53  # of a float64
BITS_MIN = 4  # no table was measured with fewer (docs/benchmarks/widths.md)
# Default of a job for gradients that hosts add up, and default limit of owners: each further bit
# lets a guest that marks rows read one more row from each sum.
BITS_ENCRYPTED = 7
