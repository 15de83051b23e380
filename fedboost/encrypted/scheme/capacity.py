"""How many bits the sums of a node can tell of a column, whatever the guest encrypts.

A host sees no plaintexts: it cannot know whether a row's gradient keeps to its declared bits. What
bounds a sum is the field in which it leaves, and its noise:

    numbers of a ciphertext   its width in the package
    numbers of a lattice      log2 of the modulus 2^W over the flood's entropy
    a host's noise            log2(1 + range / (σ·√(2πe))), as of a channel whose input has a peak
                              (McKellips, "Simple tight bounds on capacity for the peak-limited
                              discrete-time channel", 2004)

No sum says more than its rows hold: the entropy of a column's bins, row by row. The
numbers of a package lie in one plaintext, so that a sum that is larger than its field shows in the
fields above it: where the guest knows these, all that the package holds may be about one column.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedboost.encrypted.scheme import loading
from fedboost.encrypted.scheme.host_noise import NoiseScale
from fedboost.ground.arrays import Bits, Floats
from fedboost.job import AUTO

if TYPE_CHECKING:
    from fedboost.encrypted.cells.candidates import NodeCandidates
    from fedboost.encrypted.scheme.ciphers import HostRows
    from fedboost.encrypted.scheme.params import EncryptedTreeParams

ENTROPY_UNIT = math.sqrt(2 * math.pi * math.e)  # a Gaussian of σ has an entropy of log2 of σ times


@dataclass(frozen=True)
class NodeField:
    """What the guest can read of the sums of one node."""

    rows: int  # that its tree learns from
    bits: Mapping[int, float]  # of one sum, by how many sums lie in one plaintext
    is_exact: bool = True  # no noise of the host's, which is another one for each sum

    @classmethod
    def of(cls, encrypted: HostRows[Any], rows: int) -> NodeField:
        """Return that of a node with so many rows."""
        bits, noise = encrypted.number_bits(rows), encrypted.noise
        if noise is not None:
            bits = under_noise(bits, noise.scale.sigma.astype(np.float64))
        together = encrypted.sums_together()
        by_size = {int(size): float(bits[together == size].sum()) for size in np.unique(together)}
        return cls(rows, by_size, noise is None)

    @property
    def has_differences(self) -> bool:
        """Return whether sums follow from a sibling's: not where others or noise mix in."""
        return self.is_exact and set(self.bits) == {1}

    def follows(
        self, candidates: NodeCandidates, beside: TellingNode, n_bins: NDArray[np.integer[Any]]
    ) -> Floats:
        """Return how many of the bits of `told` follow from a sibling's sums and the parent's,
        float64 (columns,): where a number leaves modulo less, its lower bits alone.
        """
        sums = np.minimum(
            _independent(candidates, n_bins, is_exact=True),
            _independent(beside.candidates, n_bins, is_exact=True),
        )
        bits = min(self.bits[1], beside.field.bits[1])
        return np.asarray(np.log2(2.0 * n_bins + 2.0) + bits * sums, np.float64)

    def told(self, candidates: NodeCandidates, n_bins: NDArray[np.integer[Any]]) -> Floats:
        """Return the most bits that the node's sums can tell of each column, float64 (columns,).

        `n_bins` are the columns' bins. How many candidates there are tells something as well.
        """
        columns = len(n_bins)
        told = np.log2(2.0 * n_bins + 2.0) * candidates.tells(columns)
        for together, bits in self.bits.items():
            if together > 1:
                told += bits * _in_packages(candidates, columns, together)
            else:
                told += bits * _independent(candidates, n_bins, is_exact=self.is_exact)
        return np.asarray(told, np.float64)


@dataclass(frozen=True, eq=False)
class TellingNode:
    """What a node of a layer tells."""

    columns: Bits  # bool (columns,): those of which it has sums
    candidates: NodeCandidates
    field: NodeField


def forecast(
    params: EncryptedTreeParams, nodes: int, independent: int, columns: int | None
) -> Callable[[int, int], float]:
    """Return the most bits that the sums of so many nodes can tell of a column, as a function of
    its bins and the rows, of which each node may have all.

    `independent` of the nodes do not follow from others. Of a scheme that is not chosen yet, and
    of unknown columns that share plaintexts, no bound is known.
    """

    def most(bins: int, rows: int) -> float:
        if params.encryption.scheme == AUTO:
            return math.inf
        scheme, is_exact = loading.tree_scheme(params), not params.host_noise
        bits, together = scheme.field_of(params, rows)
        if not is_exact:
            sigma = NoiseScale.of(params, scheme.bits_of(params, rows)).sigma
            bits = under_noise(bits, sigma.astype(np.float64))
        shape = math.log2(2 * bins + 2)
        if (together == 1).all():
            sums, counted = (bins, independent) if is_exact else (2 * bins, nodes)
            return counted * (sums * float(bits.sum()) + shape)
        every = math.inf if columns is None else 2.0 * (bins + 1) * columns
        return nodes * (every * float(bits.sum()) + shape)

    return most


def under_noise(bits: Floats, sigma: Floats) -> Floats:
    """Return the bits of numbers whose fields have so many, once noise of σ is added to them."""
    return np.asarray(np.log2(1.0 + np.exp2(bits) / (sigma * ENTROPY_UNIT)), np.float64)


def _independent(
    candidates: NodeCandidates, n_bins: NDArray[np.integer[Any]], *, is_exact: bool
) -> NDArray[np.int64]:
    """Count each column's sums; those that follow from others are none, but for their noise.

    The guest knows the total of the node, and the rows without a value are one group more.
    """
    listed, columns = candidates.listed, len(n_bins)
    column = listed.column.astype(np.int64)
    if is_exact:
        cuts, left = np.unique(column << 16 | listed.bin), np.unique(column[listed.missing_left])
        sums = np.bincount(cuts >> 16, minlength=columns)
        sums[left] += 1
        sums = np.minimum(sums, n_bins)
    else:
        sums = np.bincount(column, minlength=columns)
    for grouped in candidates.categorical:
        sums[grouped.column] += grouped.n_sums - is_exact
    return sums.astype(np.int64)


def _in_packages(candidates: NodeCandidates, columns: int, together: int) -> NDArray[np.int64]:
    """Count the sums of all packages in which a column has one, for each column."""
    owner = np.concatenate(
        [
            candidates.listed.column.astype(np.int64),
            *(np.full(of.n_sums, of.column, np.int64) for of in candidates.categorical),
        ]
    )[candidates.order]
    packages = -(-len(owner) // together)
    sizes = np.bincount(np.arange(len(owner)) // together, minlength=packages)
    held = np.unique(owner * packages + np.arange(len(owner)) // together)
    return np.bincount(held // packages, sizes[held % packages], minlength=columns).astype(np.int64)
