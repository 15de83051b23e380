"""Randomised response: a value of few is told truly with a known chance, else as another one.

Local differential privacy of ε: whatever is told, no two true values make it more than e^ε times
as likely one as the other (FederBoost, section 4.1, after Warner, 1965).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from fedboost.crypto.secrets import Purpose, Secrets

Values = NDArray[np.uint8]
WORDS = 1 << 64


def move_chance(epsilon: float, values: int) -> float:
    """The chance that one of `values` values is told as another: (values − 1) / (e^ε + values − 1).

    Exact to a few units in the last place however small it is, which 1 − its complement is not.
    """
    others = (values - 1) * math.exp(-epsilon)
    return others / (1.0 + others)


def randomised(
    true: Values, values: int, epsilon: float, secrets: Secrets, *purpose: Purpose
) -> Values:
    """What is told of values below `values`, uint8 (n,): each alone, moved ones evenly.

    The same secret and purpose give the same answer: told twice, it tells nothing more. A value
    moves with a chance rounded up to a multiple of 2^-64, so that a huge ε keeps some noise; each
    other value is told with an even share of it, up to 2^-56 of that share.
    """
    if values < 2 or not len(true):
        return true.copy()
    words = np.frombuffer(secrets.bytes(16 * len(true), "noise", *purpose), dtype="<u8")
    moving = math.ceil(move_chance(epsilon, values) * WORDS)
    moves = words[: len(true)] < np.uint64(max(1, moving))
    step = 1 + words[len(true) :] % np.uint64(values - 1)
    moved = (true.astype(np.uint64) + step) % np.uint64(values)
    return np.where(moves, moved.astype(np.uint8), true)
