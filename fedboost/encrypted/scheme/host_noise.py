"""Noise that a host adds to every sum before it is blinded and released (job: `host_noise`).

Each sum at a threshold and each sum of a category has separate noise from the discrete Gaussian.
Cells have none: their noise would pile up in the running sums of the trees and leave single cells
better known than these. Noise that could be averaged is widened, so that all sums released of a
node together leave nothing known below the σ of the job:

    thresholds, nobody missing   σ                 running sums and cells determine one another
    thresholds, some missing     √2·σ, and the     a cut is released twice, so is one cell; the
                                 same √2·σ more    cell of missing rows is in every second sum, so
                                 with missing left its noise is one for all of them
    k categories                 σ·√(k/(k − 1))    the guest knows the total of all

Parent and children have separate noise: nothing adds up exactly across nodes.

Noise comes from the job's sealed secret, bound to the encrypted rows, the tree, the node, its rows
and the offer. A second question about the same ciphertexts gets the same noise. Other ciphertexts
get other noise, whether or not the gradients in them are the same: a host cannot tell, and noise
that two sets of gradients share is lost in the difference of their sums. So another attempt, whose
key is fresh, is another observation, as a new job is. Each is charged in full, and a mean of many
costs as many times the equations of one.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fedboost.core.params import MAX_BIN
from fedboost.core.split import Candidates
from fedboost.crypto.gaussian import discrete_gaussian, widened
from fedboost.crypto.masking import Masks
from fedboost.crypto.secrets import DrawPurpose, Secrets
from fedboost.encrypted.cells.candidates import NodeCandidates
from fedboost.encrypted.scheme.params import EncryptedTreeParams
from fedboost.ground.arrays import Rows, Sums

HASHED_ROWS = 1 << 14  # encrypted rows at a time
FIELD_MOST = 2  # a field is at most so many times as wide as its rows need: a power of two
# Noise is cut at 12 σ of its node. The widest has 2 σ: fewer than one in 10^8 is cut.
MOST = 12


@dataclass(frozen=True, eq=False)
class NoiseScale:
    """The noise of a sum, in the integers of gradients."""

    sigma: Sums  # (2·outputs,) of a field as wide as its rows need; 0: none
    spare: int = 0  # rows that a field has room for beside those of its node

    @classmethod
    def of(cls, params: EncryptedTreeParams, value_bits: int) -> Self:
        """Return the scale of a job whose gradients have so many bits: rounded down to whole
        numbers, at least 1 if there is noise.
        """
        if not params.host_noise:
            return cls(np.zeros(2 * _outputs(params), np.int64))
        units = (value_bits - params.gradient_spare_bits, value_bits)  # of a gradient, of a hessian
        pair = [max(1, int(math.ldexp(params.host_noise, bits))) for bits in units]
        return cls(np.array(pair * _outputs(params), np.int64), spare_rows(params))

    def sigma_of(self, rows: int) -> Sums:
        """Return σ of the sums of a node with so many rows, int64 (2·outputs,): as much wider as
        their field is than its rows need, up to twice.
        """
        needed = rows + self.spare
        field = 1 << (needed - 1).bit_length()
        return np.array([sigma * field // needed for sigma in self.sigma.tolist()], np.int64)

    @property
    def most(self) -> Sums:
        """The bound of all noise in both directions, int64 (2·outputs,)."""
        return FIELD_MOST * MOST * self.sigma


@dataclass(frozen=True, eq=False, repr=False)
class HostNoise:
    """The noise that a host adds to its sums; it prints nothing."""

    scale: NoiseScale
    secrets: Secrets  # the job's, the same in every attempt; after `bound_to`, the encrypted rows'

    def bound_to(self, rows: NDArray[Any], key: bytes) -> HostNoise:
        """Return the noise of sums of encrypted rows, (n, …), with the key that came with them."""
        hashed = hashlib.sha256(len(key).to_bytes(8, "little") + key)
        for first in range(0, len(rows), HASHED_ROWS):
            hashed.update(np.ascontiguousarray(rows[first : first + HASHED_ROWS]).data)
        return HostNoise(self.scale, self.secrets.child("encrypted rows", hashed.digest()))

    def of_node(self, node: tuple[int, int], rows: Rows, candidates: NodeCandidates) -> Sums:
        """Return the noise of a node's sums in canonical order, int64 (n, 2·outputs).

        `node` are its tree and its heap id, rows int32 its tree's training rows.
        """
        secrets = self.secrets.child(*node, _question_digest(rows, candidates))
        own = self.scale.sigma_of(len(rows))
        drawn = [_at_thresholds(own, candidates.listed, secrets)]
        for place, column in enumerate(candidates.categorical):
            sigma = widened(own, column.n_sums, max(1, column.n_sums - 1))
            sigmas = np.tile(sigma, (column.n_sums, 1))
            drawn.append(discrete_gaussian(sigmas, secrets, "categories", place))
        return np.clip(np.concatenate(drawn), -MOST * own, MOST * own)

    def words(self, shape: tuple[int, ...], *purpose: DrawPurpose) -> NDArray[np.uint64]:
        """Return random words, the same ones for the same encrypted rows and purpose."""
        data = self.secrets.bytes(8 * math.prod(shape), "words", *purpose)
        return np.frombuffer(data, "<u8").astype(np.uint64).reshape(shape)

    def __repr__(self) -> str:
        return "HostNoise(hidden)"


def spare_rows(params: EncryptedTreeParams) -> int:
    """Return the bound of one sum's noise, counted in rows of the greatest gradient."""
    return math.ceil(FIELD_MOST * MOST * params.host_noise)


def spare_rows_added(params: EncryptedTreeParams) -> int:
    """Return the same bound for all sums that a guest adds up: those of a column's categories."""
    return math.ceil(FIELD_MOST * MOST * params.host_noise * (MAX_BIN + 1))


def as_masks(noise: Sums) -> Masks:
    """Return noise int64 (sums, 2·outputs) as masks that `release` joins to sums."""
    return Masks(noise[..., None], bits=63, streams=1)


def _at_thresholds(sigma: Sums, listed: Candidates, secrets: Secrets) -> Sums:
    left = listed.missing_left
    lacking = np.unique(listed.column[left])
    wider = widened(sigma, 2, 1)
    sigmas = np.where(np.isin(listed.column, lacking)[:, None], wider, sigma)
    drawn = discrete_gaussian(sigmas, secrets, "thresholds")
    shared = discrete_gaussian(np.tile(wider, (len(lacking), 1)), secrets, "missing")
    drawn[left] += shared[np.searchsorted(lacking, listed.column[left])]
    return drawn


def _outputs(params: EncryptedTreeParams) -> int:
    """Return the number of values of a leaf."""
    return params.n_outputs // params.trees_per_round


def _question_digest(rows: Rows, candidates: NodeCandidates) -> bytes:
    """Return a digest of a node's question, except its position in the tree: 32 bytes."""
    hashed, listed = hashlib.sha256(), candidates.listed
    grouped = np.array([column.n_sums for column in candidates.categorical], np.int64)
    for part in (rows, listed.column, listed.bin, listed.missing_left, grouped):
        data = np.ascontiguousarray(part).tobytes()
        hashed.update(len(data).to_bytes(8, "little") + data)
    return hashed.digest()
