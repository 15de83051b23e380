"""Untrained one-layer networks: K random outputs of a row, the same for all parties with the seed.

Dense rows go through a matrix of random weights, sparse rows through weights from hashing
(Simhash++), so that no matrix is as long as there are columns. GBUN (Zhang et al.), "Forwarding
high-dimensional sparse data" and its appendix.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from fedboost.core import sampling
from fedboost.core.sampling import Purpose
from fedboost.core.xxhash import pair_hash
from fedboost.ground.arrays import Floats, Rows
from fedboost.ground.kernels import kernel

if TYPE_CHECKING:
    from scipy.sparse import csc_array, csr_array


ZERO_SHARE = 0.9  # of a dense network's weights
BLOCK_CELLS = 1 << 18  # rows × outputs at a time: 2 MiB, which fit a core's cache
SEED_STEP = 1024  # between two jobs' hash seeds: the most outputs of a network


class Inputs(Protocol):
    """A table's rows as networks read them."""

    @property
    def n_rows(self) -> int:
        """Return the number of rows."""

    def blocks(self, outputs: int) -> Iterable[slice]:
        """Return the rows in blocks."""

    def forward(self, rows: slice, network: Network) -> Floats:
        """Return a network's outputs for a block of rows, float64 (rows, outputs)."""

    def reach(self) -> float:
        """Return the greatest sum of |values| of a row, which no output of a network exceeds."""


@dataclass(frozen=True)
class Network:
    """An untrained network: its number, the job's seed, and its number of outputs."""

    number: int
    seed: int
    outputs: int

    def weights(self, columns: int) -> Floats:
        """Return the weights of dense rows: float64 (columns, outputs), nine tenths 0, the others
        uniform in [−1, 1).
        """
        return _draw_weights(self, columns)

    @property
    def hash_seeds(self) -> NDArray[np.uint32]:
        """Return xxHash's seed for each output of sparse rows; 0 to outputs − 1 in a
        job of seed 0.
        """
        first = (self.seed * SEED_STEP) % (1 << 32)
        return ((first + np.arange(self.outputs)) % (1 << 32)).astype(np.uint32)


@lru_cache(maxsize=2)  # each pass over each block of rows uses it
def _draw_weights(network: Network, columns: int) -> Floats:
    n = columns * network.outputs
    words = sampling.random_words(network.seed, Purpose.NETWORK, network.number, n=n)
    # The low bits decide whether a weight is 0, the 53 high ones are its value as a float.
    kept = (words & np.uint64(0x3FF)) >= np.uint64(round(ZERO_SHARE * 1024))
    values = (words >> np.uint64(11)).astype(np.float64) * 2.0**-52 - 1.0
    return np.where(kept, values, 0.0).reshape(columns, network.outputs)


def block_rows(outputs: int) -> int:
    """Return the number of rows of a block, at least one."""
    return max(1, BLOCK_CELLS // outputs)


def blocks_of(rows: int, outputs: int) -> list[slice]:
    """Return rows in blocks whose outputs fit a core's cache."""
    step = block_rows(outputs)
    return [slice(i, min(i + step, rows)) for i in range(0, rows, step)]


@dataclass(frozen=True)
class DenseInputs:
    """Rows as one matrix, float64 (n, columns), without missing values."""

    values: Floats = field(repr=False)

    @property
    def n_rows(self) -> int:
        """See Inputs."""
        return len(self.values)

    def blocks(self, outputs: int) -> Iterable[slice]:
        """See Inputs."""
        return blocks_of(self.n_rows, outputs)

    def forward(self, rows: slice, network: Network) -> Floats:
        """See Inputs."""
        product: Floats = self.values[rows] @ network.weights(self.values.shape[1])
        return product

    def reach(self) -> float:
        """See Inputs."""
        return float(np.abs(self.values).sum(axis=1).max(initial=0.0))


@dataclass(frozen=True)
class SparseInputs:
    """Rows of a sparse table; float32 (n, columns), as read."""

    values: csc_array = field(repr=False)
    ids: NDArray[np.uint32] = field(repr=False)  # (columns,) hashed for each column

    @property
    def n_rows(self) -> int:
        """See Inputs."""
        return int(self.values.shape[0])

    def blocks(self, outputs: int) -> Iterable[slice]:
        """See Inputs; blocks have about equally many stored values."""
        return self._even_slices(outputs)

    def forward(self, rows: slice, network: Network) -> Floats:
        """See Inputs; column by column, so that each weight is hashed once a block."""
        part = self._filled_columns(rows)
        outputs = np.zeros((rows.stop - rows.start, network.outputs))
        number, seeds = np.uint32(network.number), network.hash_seeds
        _add_columns(part.listed, part.columns, number, seeds, outputs)
        return outputs

    def reach(self) -> float:
        """See Inputs."""
        sums = np.asarray(abs(self.values).sum(axis=1, dtype=np.float64))
        return float(sums.max(initial=0.0))

    @cached_property
    def _by_row(self) -> csr_array:
        return self.values.tocsr()

    @cached_property
    def _cached_blocks(self) -> dict[tuple[int, int], SparseRows]:
        return {}

    def _even_slices(self, outputs: int) -> list[slice]:
        """Cut rows so that stored values are shared out evenly, within the longest block."""
        most = block_rows(outputs)
        count = -(-self.n_rows // most)
        ends = self._by_row.indptr
        cuts = np.searchsorted(ends, np.linspace(0, ends[-1], count + 1)[1:-1])
        edges = np.unique([0, *cuts.tolist(), self.n_rows])
        slices = []
        for start, stop in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
            slices += [slice(i, min(i + most, stop)) for i in range(start, stop, most)]
        return slices

    def _filled_columns(self, rows: slice) -> SparseRows:
        """Return a block's columns that have values; kept, as every round uses all blocks."""
        key = rows.start, rows.stop
        if key not in self._cached_blocks:
            block = self._by_row[rows].tocsc()
            (columns,) = np.nonzero(np.diff(block.indptr))
            ends = np.concatenate([block.indptr[columns], block.indptr[-1:]]).astype(np.int64)
            listed = ends, block.indices.astype(np.int32, copy=False), block.data
            self._cached_blocks[key] = SparseRows(listed, self.ids[columns])
        return self._cached_blocks[key]


@dataclass(frozen=True)
class SparseRows:
    """Some rows of a sparse table, by their columns that have values."""

    listed: tuple[NDArray[np.int64], Rows, NDArray[np.float32]]  # indptr, indices, data
    columns: NDArray[np.uint32]  # hashed for each of these columns


@kernel
def hashed_weight(column: np.uint32, network: np.uint32, seed: np.uint32) -> np.float32:
    """Return a weight of a sparse network, float32 in [−1, 1): the hash's low 23 bits as a
    mantissa.

    With the sign and exponent of 1 they are a number in [1, 2), which is moved to [−1, 1).
    """
    mantissa = np.float64(pair_hash(column, network, seed) & np.uint32(0x007FFFFF)) * 2.0**-23
    return np.float32(2.0 * mantissa - 1.0)


@kernel
def _add_columns(
    part: tuple[NDArray[np.int64], Rows, NDArray[np.float32]],
    columns: NDArray[np.uint32],
    network: np.uint32,
    seeds: NDArray[np.uint32],
    outputs: Floats,
) -> None:
    """Add to `outputs` (rows, outputs) the part of each column, as a csc array lists it."""
    indptr, indices, data = part
    weights = np.empty(len(seeds))
    for c in range(len(columns)):
        for k in range(len(seeds)):
            weights[k] = hashed_weight(columns[c], network, seeds[k])
        for i in range(indptr[c], indptr[c + 1]):
            row, value = outputs[indices[i]], np.float64(data[i])
            for k in range(len(seeds)):
                row[k] += value * weights[k]
