"""How many modular products fedboost makes for a tree: its own plan, run on stand-ins.

Unlike `floor`, this runs `fedboost.crypto`, on stand-ins that only count.
"""

from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from benchmarks import harness
from fedboost.core import binning
from fedboost.crypto import modular_kernels as kernels
from fedboost.crypto.api import Ciphertexts
from fedboost.crypto.joint_sums import sum_columns
from fedboost.crypto.limbs import ByteArray
from fedboost.crypto.modular import ModularPublic
from fedboost.crypto.montgomery import Montgomery, Numbers
from fedboost.crypto.paillier import PaillierKey
from fedboost.ground.workers import Serial


class _Tally:
    """Stands for a modulus and counts the products of numbers that nobody looks at."""

    def __init__(self) -> None:
        self.products = 0

    def run_products(
        self, numbers: Numbers, order: NDArray[np.int64], lengths: NDArray[np.int64]
    ) -> Numbers:
        """As many as runs; one of a run of k takes k − 1 products."""
        self.products += int((lengths - 1).sum())
        return numbers[: len(lengths)]

    def restored(self, numbers: Numbers, counts: NDArray[np.int64]) -> Numbers:
        """The numbers: a product or two for a cell are not counted."""
        return numbers


class _Counting(Serial):
    """Workers that count the products of `segment_sum` and compute nothing."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.tally = _Tally()

    def map(self, kernel: Callable[..., Any], tasks: Sequence[tuple[Any, ...]]) -> list[Any]:
        """As each kernel would answer, in shape."""
        return [self._answer(kernel, *task) for task in tasks]

    def _answer(self, kernel: Callable[..., Any], key: Any, data: ByteArray, how: Any) -> Any:
        if kernel is kernels.sum_runs:
            self.tally.products += int((how - 1).sum())
            return data[: len(how)]
        assert kernel is kernels.sum_rows
        numbers = np.zeros((len(data), 1), np.uint32)
        touched, _ = sum_columns(numbers, how, cast(Montgomery, self.tally))
        return touched, np.zeros((len(touched), data.shape[1]), np.uint8)


def products_made(
    values: NDArray[np.float32], layers: Sequence[list[NDArray[np.int64]]], max_bin: int
) -> int:
    """Products in which fedboost's host adds up these rows of its columns, layer by layer.

    `values` float32 (n, columns) are all training rows; a layer is a list of nodes' row numbers.
    """
    fitted = binning.fit(values, max_bin)
    n_bins = fitted.n_bins.astype(np.int64)
    bins = np.minimum(fitted.transform(values), n_bins)  # missing: after the last
    starts = np.cumsum(n_bins + 1) - (n_bins + 1)
    per_node = int((n_bins + 1).sum())
    workers = _Counting(harness.cores())
    key = ModularPublic(PaillierKey((1 << 16) + 1), workers)
    for nodes in layers:
        slot = np.repeat(np.arange(len(nodes)), [len(rows) for rows in nodes])
        rows = np.concatenate(nodes)
        cells = (bins[rows] + starts + per_node * slot[:, None]).astype(np.int32)
        zeros = Ciphertexts(np.zeros((len(values), 1, key.width), np.uint8))
        key.segment_sum(zeros, rows, cells, per_node * len(nodes))
    return workers.tally.products
