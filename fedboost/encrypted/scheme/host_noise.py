"""Noise that a host adds to every sum which it releases, before it blinds it (job: `host_noise`).

Each sum at a threshold and each sum of a category has noise of its own, from the discrete Gaussian:
not each cell, whose noise would pile up in the running sums that the trees are made of and leave
single cells better known than these. What could be averaged is widened, so that nobody gets below
the σ of the job from all that one node releases:

    thresholds, nobody missing   σ                 running sums and cells determine one another
    thresholds, some missing     √2·σ, and the     a cut is released twice, so is one cell; the
                                 same √2·σ more    cell of missing rows is in every second sum, so
                                 with missing left its noise is one for all of them
    k categories                 σ·√(k/(k − 1))    the guest knows the total of all

Parent and children have noises of their own: nothing adds up exactly across nodes.

Noise comes from the job's sealed secret, bound to what it protects: the encrypted rows, the tree,
the node, its rows and what is offered. The same ciphertexts asked about again are answered with the
same noise. Other ciphertexts meet other noise, whether or not the gradients in them are the same: a
host cannot tell, and noise that two sets of gradients share is lost in the difference of their
sums. So another attempt, whose key is fresh, is another observation, as a new job is. Each is
charged in full, and a mean of many costs as many times the equations of one.
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
from fedboost.crypto.secrets import Purpose, Secrets
from fedboost.encrypted.cells.candidates import NodeCandidates
from fedboost.encrypted.scheme.params import EncryptedTreeParams
from fedboost.ground.arrays import Rows, Sums

HASHED_ROWS = 1 << 14  # encrypted rows at a time
FIELD_MOST = 2  # a field is at most so many times as wide as its rows need: a power of two
# No noise is beyond 12 σ of its node. The widest has 2 σ, of which fewer than one in 10^8 is cut.
MOST = 12


@dataclass(frozen=True, eq=False)
class NoiseScale:
    """How much noise a sum has, in the integers that gradients are."""

    sigma: Sums  # (2·outputs,) of a field as wide as its rows need; 0: none
    spare: int = 0  # rows that a field has room for beside those of its node

    @classmethod
    def of(cls, params: EncryptedTreeParams, value_bits: int) -> Self:
        """Return the scale of a job whose gradients have so many bits: rounded down to whole
        numbers, 1 at least where there is any.
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
        """No noise is beyond this, either way; int64 (2·outputs,)."""
        return FIELD_MOST * MOST * self.sigma


@dataclass(frozen=True, eq=False, repr=False)
class HostNoise:
    """What a host adds to its sums; it prints nothing."""

    scale: NoiseScale
    secrets: Secrets  # of the job, the same in every attempt; of encrypted rows, once bound to some

    def bound_to(self, rows: NDArray[Any], key: bytes) -> HostNoise:
        """Return the noise of sums of encrypted rows, (n, …), with the key that came with them."""
        hashed = hashlib.sha256(len(key).to_bytes(8, "little") + key)
        for first in range(0, len(rows), HASHED_ROWS):
            hashed.update(np.ascontiguousarray(rows[first : first + HASHED_ROWS]).data)
        return HostNoise(self.scale, self.secrets.child("encrypted rows", hashed.digest()))

    def of_node(self, node: tuple[int, int], rows: Rows, candidates: NodeCandidates) -> Sums:
        """The noise of a node's sums in canonical order, int64 (n, 2·outputs).

        `node` are its tree and its heap id, rows int32 those that its tree learns from.
        """
        secrets = self.secrets.child(*node, _digest(rows, candidates))
        own = self.scale.sigma_of(len(rows))
        drawn = [_at_thresholds(own, candidates.listed, secrets)]
        for place, column in enumerate(candidates.categorical):
            sigma = widened(own, column.n_sums, max(1, column.n_sums - 1))
            sigmas = np.tile(sigma, (column.n_sums, 1))
            drawn.append(discrete_gaussian(sigmas, secrets, "categories", place))
        return np.clip(np.concatenate(drawn), -MOST * own, MOST * own)

    def words(self, shape: tuple[int, ...], *purpose: Purpose) -> NDArray[np.uint64]:
        """Return random words, the same ones for the same encrypted rows and purpose."""
        data = self.secrets.bytes(8 * math.prod(shape), "words", *purpose)
        return np.frombuffer(data, "<u8").astype(np.uint64).reshape(shape)

    def __repr__(self) -> str:
        return "HostNoise(hidden)"


def spare_rows(params: EncryptedTreeParams) -> int:
    """Return how many rows' gradients the noise of one sum is worth at most."""
    return math.ceil(FIELD_MOST * MOST * params.host_noise)


def spare_rows_added(params: EncryptedTreeParams) -> int:
    """The same of all sums that a guest adds up: those of a column's categories."""
    return math.ceil(FIELD_MOST * MOST * params.host_noise * (MAX_BIN + 1))


def as_masks(noise: Sums) -> Masks:
    """Noise int64 (sums, 2·outputs) as what `release` joins to sums."""
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
    """Values of a leaf."""
    return params.n_outputs // params.trees_per_round


def _digest(rows: Rows, candidates: NodeCandidates) -> bytes:
    """Return what a node's question is, but for its place in the tree: 32 bytes."""
    hashed, listed = hashlib.sha256(), candidates.listed
    grouped = np.array([column.n_sums for column in candidates.categorical], np.int64)
    for part in (rows, listed.column, listed.bin, listed.missing_left, grouped):
        data = np.ascontiguousarray(part).tobytes()
        hashed.update(len(data).to_bytes(8, "little") + data)
    return hashed.digest()
