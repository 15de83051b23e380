"""How many bits an integer gradient may have, its sign not among them, and has by default."""

from __future__ import annotations

BITS_MAX = 53  # a float64 has no more
BITS_MIN = 4  # fewer have been measured on no table (docs/benchmarks/widths.md)
# Of a gradient that hosts add up, unless a job says otherwise, and that owners allow unless they
# do: a guest that marks rows reads as many more in each sum as this is greater.
BITS_ENCRYPTED = 7
