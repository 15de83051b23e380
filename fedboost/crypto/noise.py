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


def stay_chance(epsilon: float, values: int) -> float:
    """The chance that one of `values` values is told truly: e^ε / (e^ε + values − 1)."""
    return 1.0 / (1.0 + (values - 1) * math.exp(-epsilon))


def randomised(
    true: Values, values: int, epsilon: float, secrets: Secrets, *purpose: Purpose
) -> Values:
    """What is told of values below `values`, uint8 (n,): each alone, moved ones evenly.

    The same secret and purpose give the same answer: told twice, it tells nothing more. Chances
    are off by less than 2^-56.
    """
    if values < 2 or not len(true):
        return true.copy()
    words = np.frombuffer(secrets.bytes(16 * len(true), "noise", *purpose), dtype="<u8")
    least = min(WORDS - 1, int(stay_chance(epsilon, values) * WORDS))
    stays = words[: len(true)] < np.uint64(least)
    step = 1 + words[len(true) :] % np.uint64(values - 1)
    moved = (true.astype(np.uint64) + step) % np.uint64(values)
    return np.where(stays, true, moved.astype(np.uint8))
