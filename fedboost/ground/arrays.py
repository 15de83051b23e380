"""Names for numpy arrays by dtype; the shape stands in each function's docstring."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]
Bits = NDArray[np.bool_]
Words = NDArray[np.uint64]
Rows = NDArray[np.int32]
Sums = NDArray[np.int64]
