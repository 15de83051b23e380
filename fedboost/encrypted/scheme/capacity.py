"""The bits that the sums of a node can reveal of a column, for any plaintexts of the guest.

A host sees no plaintexts: it cannot know whether a row's gradient keeps to its declared bits. A sum
is bounded by the field that it leaves in, and by its noise:

    numbers of a ciphertext   its width in the package
    numbers of a lattice      log2 of the modulus 2^W over the flood's entropy
    a host's noise            log2(1 + range / (σ·√(2πe))), as of a channel whose input has a peak
                              (McKellips, "Simple tight bounds on capacity for the peak-limited
                              discrete-time channel", 2004)

No sum says more than its rows hold: the entropy of a column's bins, row by row. The numbers of a
package lie in one plaintext, so a sum that is larger than its field changes the fields above it. If
the guest knows these, the whole package may be about one column.
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
    """The bits that the guest can read of the sums of one node."""

    rows: int  # rows that its tree learns from
    bits: Mapping[int, float]  # bits of one sum, by the number of sums in one plaintext
    is_exact: bool = True  # without the host's noise, which differs for each sum

    @classmethod
    def of(cls, encrypted: HostRows[Any], rows: int) -> NodeField:
        """Return the field of a node with so many rows."""
        bits, noise = encrypted.number_bits(rows), encrypted.noise
        if noise is not None:
            bits = under_noise(bits, noise.scale.sigma.astype(np.float64))
        together = encrypted.sums_together()
        by_size = {int(size): float(bits[together == size].sum()) for size in np.unique(together)}
        return cls(rows, by_size, noise is None)

    @property
    def has_differences(self) -> bool:
        """Whether sums follow from a sibling's: false if other sums or noise mix in."""
        return self.is_exact and set(self.bits) == {1}

    def following_bits(
        self, candidates: NodeCandidates, beside: TellingNode, n_bins: NDArray[np.integer[Any]]
    ) -> Floats:
        """Return how many bits of `bits_by_column` follow from the sums of sibling and parent,
        float64 (columns,). Of a number that leaves under a smaller modulus only the lower bits
        follow.
        """
        sums = np.minimum(
            _independent(candidates, n_bins, is_exact=True),
            _independent(beside.candidates, n_bins, is_exact=True),
        )
        bits = min(self.bits[1], beside.field.bits[1])
        return np.asarray(np.log2(2.0 * n_bins + 2.0) + bits * sums, np.float64)

    def bits_by_column(
        self, candidates: NodeCandidates, n_bins: NDArray[np.integer[Any]]
    ) -> Floats:
        """Return the most bits that the node's sums can reveal of each column, float64 (columns,).

        `n_bins` are the columns' bins. The number of candidates reveals something as well.
        """
        columns = len(n_bins)
        told = np.log2(2.0 * n_bins + 2.0) * candidates.columns_with_sums(columns)
        for together, bits in self.bits.items():
            if together > 1:
                told += bits * _in_packages(candidates, columns, together)
            else:
                told += bits * _independent(candidates, n_bins, is_exact=self.is_exact)
        return np.asarray(told, np.float64)


@dataclass(frozen=True, eq=False)
class TellingNode:
    """A node of a layer, with its columns, candidates and field."""

    columns: Bits  # bool (columns,): the columns with sums
    candidates: NodeCandidates
    field: NodeField


def forecast(
    params: EncryptedTreeParams, nodes: int, independent: int, columns: int | None
) -> Callable[[int, int], float]:
    """Return the most bits that the sums of so many nodes can reveal of a column, as a function of
    its bins and the rows; each node may have all rows.

    `independent` of the nodes do not follow from others. No bound is known of a scheme that is not
    chosen yet, and of unknown columns that share plaintexts.
    """

    def most(bins: int, rows: int) -> float:
        """Return the most bits about a column of so many bins and rows."""
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
    """Return the bits of numbers after noise of σ is added, given the bits of their fields."""
    return np.asarray(np.log2(1.0 + np.exp2(bits) / (sigma * ENTROPY_UNIT)), np.float64)


def _independent(
    candidates: NodeCandidates, n_bins: NDArray[np.integer[Any]], *, is_exact: bool
) -> NDArray[np.int64]:
    """Return the number of each column's sums; exact sums that follow from others do not count.

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
    """Return for each column the number of sums in all packages with at least one sum of the
    column.
    """
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
