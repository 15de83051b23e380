"""The linear code of the extension: 76 bits to words of 472 columns, any two 132 apart.

A narrow BCH code of length 511, dimension 76 and distance at least 171: x^9 + x^4 + 1 makes the
field, the generator has the roots α^1 … α^170, a word is message(x)·generator(x). Of its columns
the last 39 are left out, so that 171 − 39 = 132 are left of every distance.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from fedboost.crypto.oprf.sizes import CODE_COLUMNS, VALUE_BITS
from fedboost.ground.arrays import Words

LENGTH = 511
FIELD_POLYNOMIAL = 0x211  # x^9 + x^4 + 1
CODE_ROOTS = 170  # consecutive powers of α: the distance is at least one more (Bose, Ray-Chaudhuri)
CODE_VALUE_BYTES = 10
VALUE_MASK = np.array([(1 << 64) - 1, (1 << VALUE_BITS - 64) - 1], np.uint64)  # of both words


@cache
def generator() -> int:
    """Return the generator, bit i of x^i: the product of its roots' minimal polynomials."""
    powers = [1]
    for _ in range(LENGTH - 1):
        doubled = powers[-1] << 1
        powers.append(doubled ^ FIELD_POLYNOMIAL if doubled & 0x200 else doubled)
    logs = {value: i for i, value in enumerate(powers)}
    product, seen = 1, set[int]()
    for root in range(1, CODE_ROOTS + 1):
        if root not in seen:
            conjugates = sorted({(root << i) % LENGTH for i in range(9)})
            seen.update(conjugates)
            product = _multiply(product, _minimal(conjugates, powers, logs))
    assert product.bit_length() - 1 == LENGTH - VALUE_BITS
    return product


@cache
def code_tables() -> Words:
    """Return the words of each byte of a value, uint64 (10, 256, 8).

    Column j is bit j % 64 of word j // 64. The word of a value is the sum of those of its bytes.
    """
    tables = np.zeros((CODE_VALUE_BYTES, 256, 8), np.uint64)
    columns = (1 << CODE_COLUMNS) - 1
    for bit in range(VALUE_BITS):
        word = (generator() << bit & columns).to_bytes(64, "little")
        has_bit = np.arange(256) >> bit % 8 & 1 == 1
        tables[bit // 8, has_bit] ^= np.frombuffer(word, "<u8")
    return tables


def _multiply(a: int, b: int) -> int:
    """Multiply two polynomials over one bit."""
    product = 0
    for i in range(b.bit_length()):
        if b >> i & 1:
            product ^= a << i
    return product


def _minimal(conjugates: list[int], powers: list[int], logs: dict[int, int]) -> int:
    """Multiply x − α^j over these j; the product's coefficients are bits."""
    coefficients = [1]  # of x^0, x^1, …
    for j in conjugates:
        scaled = [powers[(logs[c] + j) % LENGTH] if c else 0 for c in coefficients]
        shifted = [0, *coefficients]
        coefficients = [a ^ b for a, b in zip([*scaled, 0], shifted, strict=True)]
    assert set(coefficients) <= {0, 1}
    return sum(c << i for i, c in enumerate(coefficients))
