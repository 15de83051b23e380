"""The hash of kernels, called from Python: for many numbers and many seeds at once."""

import numpy as np
from numpy.typing import NDArray

from fedboost.core.xxhash import pair_hash
from fedboost.ground.kernels import kernel

Words = NDArray[np.uint32]


@kernel
def pair_hashes(first: Words, second: np.uint32, seeds: Words) -> Words:
    """uint32 (n, k): XXH32 of each `first` (n,) with `second` under each of the seeds (k,)."""
    found = np.empty((len(first), len(seeds)), np.uint32)
    for i in range(len(first)):
        for j in range(len(seeds)):
            found[i, j] = pair_hash(first[i], second, seeds[j])
    return found
