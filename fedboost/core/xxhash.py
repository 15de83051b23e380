"""xxHash32 of two whole numbers (XXH32, Collet, 2014).

Any other implementation gives the same for the eight bytes of both numbers, little-endian.
"""

from __future__ import annotations

import numpy as np

from fedboost.ground.kernels import inlined

PRIME_2, PRIME_3 = np.uint32(2246822519), np.uint32(3266489917)
PRIME_4, PRIME_5 = np.uint32(668265263), np.uint32(374761393)
INPUT_BYTES = np.uint32(8)


@inlined
def pair_hash(first: np.uint32, second: np.uint32, seed: np.uint32) -> np.uint32:
    """Return XXH32 of the eight bytes of `first` and `second`, uint32, for use in other kernels."""
    h = np.uint32(seed + PRIME_5 + INPUT_BYTES)
    for word in (first, second):
        h = np.uint32(h + np.uint32(word * PRIME_3))
        h = np.uint32(np.uint32(np.uint32(h << np.uint32(17)) | (h >> np.uint32(15))) * PRIME_4)
    h = np.uint32((h ^ (h >> np.uint32(15))) * PRIME_2)
    h = np.uint32((h ^ (h >> np.uint32(13))) * PRIME_3)
    return np.uint32(h ^ (h >> np.uint32(16)))
