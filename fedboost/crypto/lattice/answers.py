"""Answers: cells re-randomised, flooded, rounded and cut to W bits; the only way out of a host.

    u ← u + ext0(a'·v + e1)        ext0(r) = (−r_1, …, −r_{N−1}, r_0)
    b_j ← b_j + (b'_j·v)_0 + e2_j  v ternary, e1 an error, e2 Gaussian, all fresh for every answer
    vectors: u rounded to multiples of 2^t, then u and b modulo 2^W
    packed:  u and b modulo 2^W, then many of them in one ciphertext (`packing`)

A zero encryption is never shared among answers: its vectors would be rotations of one polynomial,
which differences cancel. Of one v at most 8 numbers are told, so that a guest with keys of its own
choice learns little of v; an answer of more outputs has a vector of its own for every 8.

What is drawn is bound to what leaves: it comes from the host's secret, the tree, the keys, the
width and the sums themselves. The same answers asked for again are the same bytes; anything else
meets other noise, so that no two answers ever share a v, whatever is retried or resumed.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fedboost.crypto.api import BlindedPackages, Pairs, seal_released
from fedboost.crypto.lattice import samples
from fedboost.crypto.lattice.cells import LatticeSums, fill_pairs
from fedboost.crypto.lattice.packing import packed
from fedboost.crypto.lattice.packing_keys import PackingKey
from fedboost.crypto.lattice.parameters import LatticeParameters, groups_of
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

DRAWN_TOGETHER = 32  # answers of a node; what is drawn depends on it
ROUND = 256  # answers, about, that wait to be packed: four megabytes of `lattice`


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
        return groups_of(self.outputs)

    def spans(self) -> list[tuple[slice, slice]]:
        """The bytes of each group's vector and of its numbers, in an answer."""
        cuts, place = [], 0
        for group in self.groups:
            vector = place + field_bytes(self.parameters.ring, self.vector_bits)
            numbers = vector + field_bytes(group.stop - group.start, self.width)
            cuts.append((slice(place, vector), slice(vector, numbers)))
            place = numbers
        return cuts

    @cached_property
    def n_bytes(self) -> int:
        """Size of an answer in bytes."""
        return self.spans()[-1][1].stop


@dataclass(frozen=True, repr=False, eq=False)
class NodeAnswers:
    """Sums of one node that are to be released, and what they are released with.

    `secrets` are the host's own, for this release. What a second use of them tells is whether
    whole batches of sums were equal, and no more. `noise` int64 (n, outputs) is added to the sums
    first, where the budget has room for any.
    """

    sums: LatticeSums | Pairs[LatticeSums]
    width: int  # W: `Budget.width` of the node
    secrets: Secrets
    noise: Sums | None = None

    def __len__(self) -> int:
        return len(self.sums)


@dataclass(frozen=True, repr=False, eq=False)
class DrawnAnswers:
    """A batch of one node's sums, whose zero encryptions and flood are drawn together."""

    pairs: Pairs[LatticeSums]
    noise: Sums
    width: int
    seed: bytes  # secret

    def __len__(self) -> int:
        return len(self.pairs)


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
        origin = tree.of_draws(host)
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

        `secrets` and `noise` are those of `NodeAnswers`. A ProtocolError for cells of other
        outputs or another ring, and for a width that is no budget's.
        """
        shape = AnswerShape(self.tree.parameters, len(self.leading), width)
        node = NodeAnswers(sums, width, secrets, noise)
        tasks = [(self, drawn, shape) for drawn in self._batches(node)]
        parts = (workers or Serial()).map(answer, tasks)
        return seal_released(np.concatenate([np.empty((0, shape.n_bytes), np.uint8), *parts]))

    def release_packed(
        self,
        nodes: Sequence[NodeAnswers],
        packing: PackingKey,
        workers: Workers | None = None,
    ) -> BlindedPackages:
        """All nodes' sums, one after the other, packed; as one package of all batches' bytes.

        A batch has `packing.shape.slots` sums, of as many nodes as it takes, and the last what is
        left: `PackingShape.batches`. A ProtocolError as of `release`, and for a packing key of
        other parameters or outputs.
        """
        shape = packing.shape
        if (shape.parameters, shape.outputs) != (self.tree.parameters, len(self.leading)):
            raise ProtocolError("the packing key does not go with the public keys of the tree")
        batches = [drawn for node in nodes for drawn in self._batches(node)]
        parts = _packed_batches(self, batches, packing, (workers or Serial()).threads)
        return seal_released(np.frombuffer(b"".join(parts), np.uint8)[None])

    def _batches(self, node: NodeAnswers) -> Iterator[DrawnAnswers]:
        """Yield what of a node is drawn together; a ProtocolError for what is not this tree's."""
        parameters, outputs, count = self.tree.parameters, len(self.leading), len(node)
        if not parameters.scale_bits < node.width <= parameters.modulus_bits:
            raise ProtocolError(f"answers modulo 2^{node.width} hold no sums")
        pairs = node.sums if isinstance(node.sums, Pairs) else Pairs.of(node.sums)
        if pairs.a.outputs != outputs or pairs.a.parameters != parameters:
            raise ProtocolError(f"{count} cells do not go with the public keys of the tree")
        noise = np.zeros((count, outputs), np.int64) if node.noise is None else node.noise
        if noise.shape != (count, outputs):
            raise ProtocolError(f"{count} sums do not have the noise that they leave with")
        for first in range(0, count, DRAWN_TOGETHER):
            block = slice(first, first + DRAWN_TOGETHER)
            seed = node.secrets.derive("lattice answers", first)
            yield DrawnAnswers(pairs[block], noise[block], node.width, seed)

    def __repr__(self) -> str:
        return f"TreeKey({len(self.leading)} outputs)"


def answer(key: TreeKey, drawn: DrawnAnswers, shape: AnswerShape) -> ByteArray:
    """A batch of answers as vectors, uint8 (n, shape.n_bytes)."""
    vectors = np.empty((len(shape.groups), len(drawn), shape.parameters.ring), np.uint64)
    scalars = np.empty((len(drawn), shape.outputs), np.uint64)
    _blind(key, drawn, vectors, scalars)
    data = np.zeros((len(drawn), shape.n_bytes), dtype=np.uint8)
    low = shape.parameters.drop_bits
    half = np.uint64(1 << low >> 1)
    for group, spans, whole in zip(shape.groups, shape.spans(), vectors, strict=True):
        rounded = (whole + half) >> np.uint64(low)
        pack(rounded & low_bits(shape.vector_bits), shape.vector_bits, data[:, spans[0]])
        numbers = np.ascontiguousarray(scalars[:, group]) & low_bits(shape.width)
        pack(numbers, shape.width, data[:, spans[1]])
    return data


def _packed_batches(
    key: TreeKey, batches: Sequence[DrawnAnswers], packing: PackingKey, threads: Workers
) -> Iterator[bytes]:
    """The bytes of batches of K answers: some are blinded, packed and forgotten before the next."""
    shape, waiting = packing.shape, deque(batches)
    together = shape.slots * threads.count
    together *= max(1, ROUND // together)
    room = min(together + DRAWN_TOGETHER - 1, sum(map(len, waiting)))
    vectors = np.empty((len(shape.groups), room, shape.parameters.ring), np.uint64)
    scalars, widths = np.empty((room, shape.outputs), np.uint64), np.empty(room, np.uint64)
    held = 0
    while waiting or held:
        tasks: list[tuple[object, ...]] = []
        while waiting and held < together:
            drawn = waiting.popleft()
            block = slice(held, held + len(drawn))
            tasks.append((key, drawn, vectors[:, block], scalars[block]))
            widths[block], held = drawn.width, block.stop
        threads.map(_blind, tasks)
        ready = held // shape.slots * shape.slots if waiting else held
        cuts = [slice(at, min(at + shape.slots, ready)) for at in range(0, ready, shape.slots)]
        tasks = [(packing, vectors[:, cut], scalars[cut], widths[cut]) for cut in cuts]
        yield from threads.map(packed, tasks)
        for array in (*vectors, scalars, widths):
            array[: held - ready] = array[ready:held]
        held -= ready


def _blind(key: TreeKey, drawn: DrawnAnswers, vectors: Words, scalars: Words) -> None:
    """A batch's u of each group, uint64 (groups, n, N), and b, uint64 (n, outputs), modulo 2^64.

    Written into both arrays. What counts is below 2^W, and so are the sums that noise meets.
    """
    mask, whole, numbers = low_bits(drawn.width), vectors[0], np.empty_like(scalars)
    fill_pairs(drawn.pairs, mask, whole, numbers)
    added = drawn.noise.view(np.uint64) << np.uint64(key.tree.parameters.scale_bits)
    numbers = (numbers + added) & mask
    hashed = hashlib.sha256(key.digest + drawn.width.to_bytes(8, "little"))
    hashed.update(np.ascontiguousarray(whole, dtype="<u8").data)
    hashed.update(np.ascontiguousarray(numbers, dtype="<u8").data)
    secrets = Secrets(drawn.seed).child("batch", hashed.digest())
    for number, group in reversed(
        [*enumerate(groups_of(numbers.shape[1]))]
    ):  # `whole` is the first's
        sums = [whole, np.ascontiguousarray(numbers[:, group])]
        group_secrets = secrets.child("group", number)
        scalars[:, group] = _blinded(key, sums, group, group_secrets, vectors[number])


def _blinded(
    key: TreeKey, sums: list[Words], group: slice, secrets: Secrets, vectors: Words
) -> Words:
    """Numbers of a group plus a fresh zero encryption and the flood, modulo 2^64.

    The vectors of the same are written into `vectors`.
    """
    parameters, count = key.tree.parameters, len(sums[0])
    ring, outputs = parameters.ring, group.stop - group.start
    ternary = samples.ternary(_drawn(secrets, count, samples.ternary_bytes(ring), "v"), ring)
    errors = _drawn(secrets, count, samples.ERROR_BYTES * ring, "e1")
    flood = _drawn(secrets, count, samples.FLOOD_BYTES * outputs, "e2")
    product = multiplier(parameters)
    zeros = product.multiply(key.fixed, product.values(ternary))
    _extend(sums[0], zeros, samples.errors(errors, parameters.error_bits), vectors)
    numbers = sums[1] + samples.flood(flood, parameters.flood).view(np.uint64)
    _add_leading(key.leading[group], ternary, numbers)
    return numbers


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
