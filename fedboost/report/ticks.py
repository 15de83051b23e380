"""Round numbers for axes."""

from __future__ import annotations

import math
from itertools import pairwise


def tick_values(low: float, high: float, most: int = 6, *, whole: bool = False) -> list[float]:
    """Return at most `most` (2 or more) multiples of 1, 2 or 5 times a power of ten from low to
    high.

    Needs finite low < high. `whole` keeps to whole numbers.
    """
    assert most >= 2
    assert math.isfinite(low)
    assert math.isfinite(high)
    assert low < high
    power = math.floor(math.log10((high - low) / most))
    power = max(power, 0) if whole else power
    powers = (10.0**exponent for exponent in range(power, power + 3))
    steps = (factor * unit for unit in powers for factor in (1.0, 2.0, 5.0))
    for step in steps:
        first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
        if last - first < most:
            return [_rounded_tick(number * step, step) for number in range(first, last + 1)]
    raise AssertionError("some step of the three decades above is wide enough")


def widened_range(low: float, high: float, *, margin: float = 0.06) -> tuple[float, float]:
    """Return the range with a margin on both sides; a range around the value if low equals high."""
    if high > low:
        return low - margin * (high - low), high + margin * (high - low)
    around = abs(low) * 0.1 or 1.0
    return low - around, low + around


def tick_labels(values: list[float]) -> list[str]:
    """Return the ticks as text, all with the same number of decimals."""
    gap = min((b - a for a, b in pairwise(values)), default=0.0)
    largest = max((abs(value) for value in values), default=0.0)
    if gap <= 0.0 or largest >= 1e6 or gap < 1e-6:
        return [f"{value:.6g}" for value in values]
    decimals = max(0, -math.floor(math.log10(gap) + 1e-9))
    return [f"{value:,.{decimals}f}" for value in values]


def _rounded_tick(value: float, step: float) -> float:
    """Round errors of binary fractions away, and make −0.0 an ordinary 0.0."""
    return round(value, max(0, 2 - math.floor(math.log10(step)))) + 0.0
