"""Answers: cells re-randomised, flooded, rounded and cut to W bits; the only way out of a host.

    u ← u + ext0(a'·v + e1)        ext0(r) = (−r_1, …, −r_{N−1}, r_0)
    b_j ← b_j + (b'_j·v)_0 + e2_j  v ternary, e1 an error, e2 Gaussian, all fresh for every answer
    u rounded to multiples of 2^t, then u and b modulo 2^W

A zero encryption is never shared among answers: its vectors would be rotations of one polynomial,
which differences cancel. Of one v at most 8 numbers are told, so that a guest with keys of its own
choice learns little of v; an answer of more outputs has a vector of its own for every 8.

What is drawn is bound to what leaves: it comes from the host's secret, the tree, the keys, the
width and the sums themselves. The same answers asked for again are the same bytes; anything else
meets other noise, so that no two answers ever share a v, whatever is retried or resumed.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fedboost.crypto.api import BlindedPackages, Pairs, seal_released
from fedboost.crypto.lattice import samples
from fedboost.crypto.lattice.cells import CellAdds, LatticeSums
from fedboost.crypto.lattice.parameters import LatticeParameters
from fedboost.crypto.lattice.polynomials import TreePolynomials
from fedboost.crypto.lattice.product import Spectrum, multiplier
from fedboost.crypto.lattice.words import (
    ByteArray,
    Words,
    bytes_of,
    field_bytes,
    low_bits,
    pack,
    words_of,
)
from fedboost.crypto.secrets import Secrets
from fedboost.crypto.workers import Serial, Workers
from fedboost.errors import PeerError, ProtocolError
from fedboost.kernels import kernel

Sums = NDArray[np.int64]  # (n, outputs)

OUTPUTS_EACH = 8  # numbers that leave with one vector
BATCH = 32  # answers made together; what is drawn depends on it


@dataclass(frozen=True)
class AnswerShape:
    """The layout of an answer: for every 8 outputs a vector, then their numbers."""

    parameters: LatticeParameters
    outputs: int
    width: int  # W: `Budget.width`

    @property
    def vector_bits(self) -> int:
        """Bits of a coefficient: W − t."""
        return self.width - self.parameters.drop_bits

    @property
    def groups(self) -> list[slice]:
        """The outputs that share a vector."""
        starts = range(0, self.outputs, OUTPUTS_EACH)
        return [slice(first, min(first + OUTPUTS_EACH, self.outputs)) for first in starts]

    def spans(self) -> list[tuple[slice, slice]]:
        """The bytes of each group's vector and of its numbers, in an answer."""
        found, place = [], 0
        for group in self.groups:
            vector = place + field_bytes(self.parameters.ring, self.vector_bits)
            numbers = vector + field_bytes(group.stop - group.start, self.width)
            found.append((slice(place, vector), slice(vector, numbers)))
            place = numbers
        return found

    @cached_property
    def n_bytes(self) -> int:
        """Size of an answer in bytes."""
        return self.spans()[-1][1].stop


@dataclass(frozen=True, repr=False, eq=False)
class TreeKey:
    """The public keys of a tree as a host holds them, and its own polynomial a'."""

    tree: TreePolynomials
    leading: Words  # (outputs, N): c with (b'·v)_0 = Σ c_k·v_k
    fixed: Spectrum  # of a'
    digest: bytes  # of the keys and everything that a' comes from

    @classmethod
    def received(cls, tree: TreePolynomials, host: int, data: bytes, outputs: int) -> TreeKey:
        """Read what `TreeSecret.public_keys` gave, for the host at that index of the manifest.

        A PeerError unless the size is right, every number below q, and every key as evenly spread
        as a random one: those of a guest that worked with an a' of its own, zero for instance, are
        not.
        """
        keys = words_of(data, (outputs, tree.parameters.ring), tree.parameters, "public keys")
        _check_spread(keys, tree.parameters)
        leading = np.concatenate([keys[:, :1], np.uint64(0) - keys[:, :0:-1]], axis=1)
        origin = tree.encoded(b"tree key", host)
        digest = hashlib.sha256(origin + bytes_of(keys, tree.parameters).tobytes()).digest()
        fixed = multiplier(tree.parameters).fixed(tree.of_answers(host))
        return cls(tree, leading, fixed, digest)

    def release(
        self,
        sums: LatticeSums | Pairs[LatticeSums],
        width: int,
        secrets: Secrets,
        workers: Workers | None = None,
        noise: Sums | None = None,
    ) -> BlindedPackages:
        """The sums as answers of `AnswerShape.bytes` each, for W = `Budget.width` of their node.

        `secrets` are the host's own, for this release; see above for what a second use of them
        tells: only whether whole batches of sums were equal. `noise` int64 (n, outputs) is added
        to the sums first, where the budget has room for any. A ProtocolError for cells of other
        outputs or another ring, and for a width that is no budget's.
        """
        shape = AnswerShape(self.tree.parameters, len(self.leading), width)
        if not shape.parameters.scale_bits < width <= shape.parameters.modulus_bits:
            raise ProtocolError(f"answers modulo 2^{width} hold no sums")
        pairs = sums if isinstance(sums, Pairs) else Pairs.of(sums)
        of = pairs.a
        if of.outputs != shape.outputs or of.parameters != shape.parameters:
            raise ProtocolError(f"{len(pairs)} cells do not go with the public keys of the tree")
        if noise is None:
            noise = np.zeros((len(pairs), shape.outputs), np.int64)
        if noise.shape != (len(pairs), shape.outputs):
            raise ProtocolError(f"{len(pairs)} sums do not have the noise that they leave with")
        tasks = []
        for first in range(0, len(pairs), BATCH):
            own, seed = slice(first, first + BATCH), secrets.derive("lattice answers", first)
            tasks.append((self, pairs[own], noise[own], shape, seed))
        parts = (workers or Serial()).map(answer, tasks)
        return seal_released(np.concatenate([np.empty((0, shape.n_bytes), np.uint8), *parts]))

    def __repr__(self) -> str:
        return f"TreeKey({len(self.leading)} outputs)"


def answer(
    key: TreeKey, pairs: Pairs[LatticeSums], noise: Sums, shape: AnswerShape, seed: bytes
) -> ByteArray:
    """A batch of answers, uint8 (n, shape.bytes), drawn from this secret seed and the sums with
    their noise.
    """
    cells, mask = CellAdds().pairs(pairs), low_bits(shape.width)
    added = noise.view(np.uint64) << np.uint64(shape.parameters.scale_bits)
    vectors, scalars = cells.vectors & mask, (cells.scalars + added) & mask
    hashed = hashlib.sha256(key.digest + shape.width.to_bytes(8, "little"))
    hashed.update(np.ascontiguousarray(vectors, dtype="<u8").data)
    hashed.update(np.ascontiguousarray(scalars, dtype="<u8").data)
    secrets = Secrets(seed).child("batch", hashed.digest())
    data = np.zeros((len(vectors), shape.n_bytes), dtype=np.uint8)
    for number, group in enumerate(shape.groups):
        sums = [vectors, np.ascontiguousarray(scalars[:, group])]
        sums = _blinded(key, sums, group, secrets.child("group", number))
        whole, low = sums[0], shape.parameters.drop_bits
        if low:
            whole = (whole + np.uint64(1 << (low - 1))) >> np.uint64(low)
        spans = shape.spans()[number]
        pack(whole & low_bits(shape.vector_bits), shape.vector_bits, data[:, spans[0]])
        pack(sums[1] & mask, shape.width, data[:, spans[1]])
    return data


def _blinded(key: TreeKey, sums: list[Words], group: slice, secrets: Secrets) -> list[Words]:
    """Vectors and numbers of a group plus a fresh zero encryption and the flood, modulo 2^64."""
    parameters, count = key.tree.parameters, len(sums[0])
    ring, outputs = parameters.ring, group.stop - group.start
    ternary = samples.ternary(_drawn(secrets, count, samples.ternary_bytes(ring), "v"), ring)
    errors = _drawn(secrets, count, samples.ERROR_BYTES * ring, "e1")
    flood = _drawn(secrets, count, samples.FLOOD_BYTES * outputs, "e2")
    product = multiplier(parameters)
    zeros = product.multiply(key.fixed, product.values(ternary))
    vectors = np.empty_like(zeros)
    _extend(sums[0], zeros, samples.errors(errors, parameters.error_bits), vectors)
    numbers = sums[1] + samples.flood(flood, parameters.flood).view(np.uint64)
    _add_leading(key.leading[group], ternary, numbers)
    return [vectors, numbers]


def _drawn(secrets: Secrets, count: int, each: int, use: str) -> ByteArray:
    data = np.frombuffer(secrets.bytes(count * each, use), dtype=np.uint8)
    return data.reshape(count, each)


def _check_spread(keys: Words, parameters: LatticeParameters) -> None:
    """A PeerError unless about half of each key's coefficients lie near zero modulo q.

    Of N random ones at least a quarter and at most three quarters do, but for one key in 2^360
    (Hoeffding).
    """
    quarter = np.uint64(1 << (parameters.modulus_bits - 2))
    near = ((keys + quarter) & parameters.mask) < (quarter << np.uint64(1))
    share = near.mean(axis=1)
    if (share < 0.25).any() or (share > 0.75).any():
        raise PeerError("a public key is not random, as if its polynomial were not the derived one")


@kernel
def _extend(sums: Words, zeros: Words, errors: NDArray[np.int8], vectors: Words) -> None:
    """vectors = sums + ext0(zeros + errors), modulo 2^64."""
    last = sums.shape[1] - 1
    for n in range(sums.shape[0]):
        for w in range(last):
            vectors[n, w] = sums[n, w] - zeros[n, w + 1] - np.uint64(np.int64(errors[n, w + 1]))
        vectors[n, last] = sums[n, last] + zeros[n, 0] + np.uint64(np.int64(errors[n, 0]))


@kernel
def _add_leading(leading: Words, ternary: NDArray[np.int8], numbers: Words) -> None:
    """numbers += the lowest coefficient of each b'·v, modulo 2^64."""
    for n in range(ternary.shape[0]):
        for j in range(leading.shape[0]):
            total = np.uint64(0)
            for k in range(leading.shape[1]):
                total += leading[j, k] * np.uint64(np.int64(ternary[n, k]))
            numbers[n, j] += total
