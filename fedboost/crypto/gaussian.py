"""Whole numbers from the discrete Gaussian, exactly: integers and random words, no rounded floats.

P(x) ∝ exp(−x² / (2σ²)) for every whole x, σ whole. Rejection as in Karney, "Sampling exactly from
the normal distribution" (2016), algorithm D; chances of e^−γ as in Canonne, Kamath and Steinke,
"The discrete Gaussian for differential privacy" (2020), algorithm 1. Every bit of a number is
random, the lowest as well: low bits of a noisy sum reveal nothing of the sum.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from fedboost.crypto.secrets import DrawPurpose, Secrets
from fedboost.ground.errors import FedboostError
from fedboost.ground.kernels import kernel

WholeNumbers = NDArray[np.int64]

SIGMA_MOST = 1 << 56  # more than 60 of them do not fit an int64
# A number takes fewer than 30 words on average, most if σ is just above a power of two. With so
# many they run out once in more than 2^100 calls.
_WORDS_EACH, _WORDS_SPARE = 48, 4096
_BLOCK = 1 << 14  # numbers whose words are drawn at once: six megabytes


def discrete_gaussian(
    sigmas: WholeNumbers, secrets: Secrets, *purpose: DrawPurpose
) -> WholeNumbers:
    """Return a number for each of `sigmas`, int64 of any shape: Gaussian of that σ, 0 for a σ of 0.

    The same secret, purpose and sigmas give the same numbers. A ValueError for a σ below 0 or above
    2^56.
    """
    flat = np.ascontiguousarray(sigmas, dtype=np.int64).ravel()
    if len(flat) and not 0 <= int(flat.min()) <= int(flat.max()) <= SIGMA_MOST:
        raise ValueError(f"a standard deviation is from 0 to {SIGMA_MOST}")
    drawn = np.zeros(len(flat), np.int64)
    for first in range(0, len(flat), _BLOCK):
        block = slice(first, first + _BLOCK)
        count = 8 * (_WORDS_EACH * len(flat[block]) + _WORDS_SPARE)
        data = secrets.bytes(count, "gaussian", first, *purpose)
        words = (np.frombuffer(data, dtype="<u8") >> np.uint64(1)).astype(np.int64)
        try:
            _fill_numbers(words, flat[block], drawn[block])
        except IndexError:
            raise FedboostError("the random words of a Gaussian ran out") from None
    return drawn.reshape(sigmas.shape)


def widened(sigma: WholeNumbers, over: int, under: int) -> WholeNumbers:
    """Return σ·√(over / under), rounded up to whole numbers; 0 stays 0."""
    squares = [int(value) ** 2 * over for value in sigma.ravel()]
    roots = [math.isqrt((square - 1) // under) + 1 if square else 0 for square in squares]
    return np.array(roots, np.int64).reshape(sigma.shape)


@kernel
def _fill_numbers(words: WholeNumbers, sigmas: WholeNumbers, drawn: WholeNumbers) -> None:
    """Write a number for each σ that is not 0; words are uniform below 2^63."""
    at = np.zeros(1, np.int64)  # the next word
    for i in range(len(sigmas)):
        if sigmas[i] > 0:
            drawn[i] = _draw_number(words, at, sigmas[i])


@kernel
def _draw_number(words: WholeNumbers, at: WholeNumbers, sigma: int) -> int:
    """Return ±(k + x)·σ with x = j/σ below 1, accepted with chance
    exp(−(k + x)²/2); algorithm D.
    """
    while True:
        k = 0
        while _root_of_e(words, at):
            k += 1
        if not _repeated_root(words, at, k * (k - 1)):  # k is drawn with chance ∝ exp(−k/2)
            continue
        is_negative = _draw_below(words, at, 2) == 1
        j = _draw_below(words, at, sigma)
        if is_negative and k == 0 and j == 0:
            continue  # 0 has one sign
        if _fraction_stays(words, at, k, j, sigma):
            number = k * sigma + j
            return -number if is_negative else number


@kernel
def _fraction_stays(words: WholeNumbers, at: WholeNumbers, k: int, j: int, sigma: int) -> bool:
    """Return True with chance exp(−x·(2k + x)/2), x = j/σ: k + 1 times
    that of its (k + 1)-th part.
    """
    for _ in range(k + 1):
        n = 1
        while _part_stays(words, at, k, j, sigma) and _draw_below(words, at, n) == 0:
            n += 1
        if n % 2 == 0:
            return False
    return True


@kernel
def _part_stays(words: WholeNumbers, at: WholeNumbers, k: int, j: int, sigma: int) -> bool:
    """Return True with chance x·(2k + x) / (2k + 2), x = j/σ."""
    if _draw_below(words, at, sigma) >= j:
        return False
    place = _draw_below(words, at, 2 * k + 2)
    return place < 2 * k or (place == 2 * k and _draw_below(words, at, sigma) < j)


@kernel
def _repeated_root(words: WholeNumbers, at: WholeNumbers, times: int) -> bool:
    """Return True with chance exp(−times/2)."""
    left = times
    while left and _root_of_e(words, at):
        left -= 1
    return left == 0


@kernel
def _root_of_e(words: WholeNumbers, at: WholeNumbers) -> bool:
    """Return True with chance exp(−1/2)."""
    n = 1
    while _draw_below(words, at, 2) == 0 and _draw_below(words, at, n) == 0:
        n += 1
    return n % 2 == 1


@kernel
def _draw_below(words: WholeNumbers, at: WholeNumbers, most: int) -> int:
    """Return a uniform number below `most`; it takes no word if that is 1."""
    if most == 1:
        return 0
    mask = most - 1
    for shift in (1, 2, 4, 8, 16, 32):
        mask |= mask >> shift
    while True:
        if at[0] >= len(words):
            raise IndexError
        word = words[at[0]] & mask
        at[0] += 1
        if word < most:
            return word
