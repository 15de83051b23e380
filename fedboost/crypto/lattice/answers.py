"""Answers: cells re-randomised, flooded, rounded and cut to W bits; the only way out of a host.

    u ← u + ext0(a'·v + e1)        ext0(r) = (−r_1, …, −r_{N−1}, r_0)
    b_j ← b_j + (b'_j·v)_0 + e2_j  v ternary, e1 an error, e2 Gaussian, all fresh for every answer
    vectors: u rounded to multiples of 2^t, then u and b modulo 2^W
    packed:  u and b modulo 2^W, then many of them in one ciphertext (`packing`)

A zero encryption is never shared among answers: its vectors would be rotations of one polynomial,
which differences cancel. One v serves at most 8 numbers, so that a guest with keys of its own
choice learns little of v; an answer of more outputs has a separate vector for every 8.

Draws are bound to the answer: they come from the host's secret, the tree, the keys, the
width and the sum itself. The same answer requested again is the same bytes; any other answer gets
other noise, so that no two answers ever share a v after retries or resumptions. An answer
depends on no other one, so the holder of cells blinds their answers. On release, b and the packed
parts of u are joined (`release`, `release_packed`), with noise that the host adds.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedboost.crypto.api import Pairs
from fedboost.crypto.lattice import samples
from fedboost.crypto.lattice.cells import LatticeSums, fill_pairs
from fedboost.crypto.lattice.packing import Residual, add_residues
from fedboost.crypto.lattice.packing_keys import PackingKey
from fedboost.crypto.lattice.parameters import LatticeParameters, groups_of
from fedboost.crypto.lattice.polynomials import TreePolynomials
from fedboost.crypto.lattice.product import Spectrum, multiplier
from fedboost.crypto.lattice.released import AnswerShape, Blinded, Vectors
from fedboost.crypto.lattice.words import bytes_of, low_bits, pack_fields, words_of
from fedboost.crypto.limbs import ByteArray
from fedboost.crypto.secrets import Streams
from fedboost.ground.arrays import Indices, Words
from fedboost.ground.errors import PeerError, ProtocolError
from fedboost.ground.kernels import kernel
from fedboost.ground.workers import Workers

Sums = NDArray[np.int64]  # (n, outputs)

SEEDS_MOST = 256  # seeds whose streams a thread remembers
TOGETHER = 32  # answers of a node that are made at once
ROUND = 256  # answers, about, that wait to be packed: four megabytes of `lattice`


@dataclass(frozen=True, repr=False, eq=False)
class AnswerRandomness:
    """The randomness of answers to sums of one node.

    A seed is a secret of the host for one tree. A second use of it, with the same binding and
    number, reveals whether both sums were equal, and no more.
    """

    width: int  # W: `Budget.width` of the node
    binding: bytes  # of the node and the noise on its sums: `bound_to`
    seeds: ByteArray  # (n, 32) of each sum
    numbers: Indices  # int64 (n,): no two sums of a binding and seed share one

    def __getitem__(self, cut: slice | Indices) -> AnswerRandomness:
        """Return the randomness of some sums."""
        return AnswerRandomness(self.width, self.binding, self.seeds[cut], self.numbers[cut])


@dataclass(frozen=True, repr=False, eq=False)
class TreeKey:
    """The public keys of a tree as a host holds them, and its own polynomial a'."""

    tree: TreePolynomials
    leading: Words  # (outputs, N): c with (b'·v)_0 = Σ c_k·v_k
    fixed: Spectrum  # of a'
    digest: bytes  # of the keys and all inputs of a'

    @classmethod
    def received(cls, tree: TreePolynomials, host: int, data: bytes, outputs: int) -> TreeKey:
        """Return the keys that `TreeSecret.public_keys` gave, for the host at that index of the
        manifest.

        A PeerError unless the size is right, every number below q, and every key as evenly spread
        as a random one. Keys of a guest that worked with another a', zero for instance, are not.
        """
        keys = words_of(data, (outputs, tree.parameters.ring), tree.parameters, "public keys")
        _check_spread(keys, tree.parameters)
        leading = np.concatenate([keys[:, :1], np.uint64(0) - keys[:, :0:-1]], axis=1)
        origin = tree.of_draws(host)
        digest = hashlib.sha256(origin + bytes_of(keys, tree.parameters).tobytes()).digest()
        fixed = multiplier(tree.parameters).fixed(tree.of_answers(host))
        return cls(tree, leading, fixed, digest)

    def vectors(
        self,
        sums: Pairs[LatticeSums],
        randomness: AnswerRandomness,
        places: Indices,
        workers: Workers,
    ) -> Blinded[Vectors]:
        """Return the sums as answers of `AnswerShape.n_bytes` each, uint8 (n, n_bytes), without b.

        `places` (n,), rising, are their indices among all sums that leave together. A ProtocolError
        for cells of other outputs or another ring, and for a width that is no budget's.
        """
        self._check_sums(sums, randomness)
        shape = AnswerShape(self.tree.parameters, len(self.leading), randomness.width)
        data = np.zeros((len(sums), shape.n_bytes), np.uint8)
        scalars = np.empty((len(sums), shape.outputs), np.uint64)
        tasks = [
            (self, sums[cut], randomness[cut], shape, data[cut], scalars[cut])
            for cut in _slices_at_once(0, len(sums))
        ]
        workers.map(_as_vectors, tasks)
        return Blinded(places, scalars, Vectors(data))

    def packed(
        self,
        nodes: Sequence[tuple[Pairs[LatticeSums], AnswerRandomness]],
        places: Indices,
        packing: PackingKey,
        threads: Workers,
    ) -> Blinded[Residual]:
        """Return the summands of nodes' sums in batches of the key's slots; `places` as of
        `vectors`, node after node.

        Some are blinded, packed and forgotten before the next. A ProtocolError as of `vectors`, and
        for a packing key of other parameters or outputs.
        """
        shape, outputs = packing.shape, len(self.leading)
        if (shape.parameters, shape.outputs) != (self.tree.parameters, outputs):
            raise ProtocolError("the packing key does not go with the public keys of the tree")
        for sums, randomness in nodes:
            self._check_sums(sums, randomness)
        ends = np.cumsum([0, *(len(sums) for sums, _ in nodes)])
        each = np.array([randomness.width for _, randomness in nodes], np.uint64)
        widths = np.repeat(each, np.diff(ends))
        batches, first = np.unique(places // shape.slots, return_index=True)
        stops = np.append(first, len(places))
        held, scalars = Residual.empty(shape, batches), np.empty((len(places), outputs), np.uint64)
        rounds = _batch_rounds(stops, threads.count)
        room = max((stops[b] - stops[a] for a, b in rounds), default=0)
        vectors = np.empty((len(shape.groups), room, shape.parameters.ring), np.uint64)
        for first_batch, behind in rounds:
            begin, stop = int(stops[first_batch]), int(stops[behind])
            tasks: list[tuple[object, ...]] = []
            for (sums, randomness), start, end in zip(nodes, ends[:-1], ends[1:], strict=True):
                for cut in _slices_at_once(max(begin, int(start)), min(stop, int(end))):
                    own = slice(cut.start - int(start), cut.stop - int(start))
                    into = vectors[:, cut.start - begin : cut.stop - begin]
                    tasks.append((self, sums[own], randomness[own], into, scalars[cut]))
            threads.map(_blind_sums, tasks)
            tasks = []
            for number in range(first_batch, behind):
                cut = slice(int(stops[number]), int(stops[number + 1]))
                into = vectors[:, cut.start - begin : cut.stop - begin]
                slots = places[cut] % shape.slots
                tasks.append((packing, into, slots, widths[cut], held, number))
            threads.map(add_residues, tasks)
        return Blinded(places, scalars, held)

    def _check_sums(self, sums: Pairs[LatticeSums], randomness: AnswerRandomness) -> None:
        """Raise a ProtocolError for sums or randomness of another tree."""
        parameters, cells = self.tree.parameters, sums.a
        if not parameters.scale_bits < randomness.width <= parameters.modulus_bits:
            raise ProtocolError(f"answers modulo 2^{randomness.width} hold no sums")
        if cells.outputs != len(self.leading) or cells.parameters != parameters:
            raise ProtocolError(f"{len(sums)} cells do not go with the public keys of the tree")

    def __repr__(self) -> str:
        return f"TreeKey({len(self.leading)} outputs)"


def bound_to(node: int, noise: NDArray[np.int64] | None) -> bytes:
    """Return the binding of the randomness of a node's answers, beside its sums."""
    added = b"" if noise is None else noise.astype("<i8", copy=False).tobytes()
    return hashlib.sha256(node.to_bytes(8, "little") + added).digest()


def _slices_at_once(first: int, stop: int) -> Iterator[slice]:
    """Yield slices of the answers that are made at once."""
    for start in range(first, stop, TOGETHER):
        yield slice(start, min(start + TOGETHER, stop))


def _batch_rounds(stops: Indices, threads: int) -> list[tuple[int, int]]:
    """Return batches that are packed together, the first and the one behind: about ROUND sums of
    them, and at least as many as there are threads. `stops` are the starts of all batches and the
    end.
    """
    rounds, first = [], 0
    while first < len(stops) - 1:
        behind = int(np.searchsorted(stops, stops[first] + ROUND, side="right")) - 1
        behind = min(max(behind, first + threads), len(stops) - 1)
        rounds.append((first, behind))
        first = behind
    return rounds


def _as_vectors(
    key: TreeKey,
    sums: Pairs[LatticeSums],
    randomness: AnswerRandomness,
    shape: AnswerShape,
    data: ByteArray,
    scalars: Words,
) -> None:
    """Write answers as vectors, uint8 (n, shape.n_bytes), and their b."""
    vectors = np.empty((len(shape.groups), len(sums), shape.parameters.ring), np.uint64)
    _blind_sums(key, sums, randomness, vectors, scalars)
    low = shape.parameters.drop_bits
    half = np.uint64(1 << low >> 1)
    for (span, _), whole in zip(shape.spans(), vectors, strict=True):
        rounded = (whole + half) >> np.uint64(low)
        pack_fields(rounded & low_bits(shape.vector_bits), shape.vector_bits, data[:, span])


def _blind_sums(
    key: TreeKey,
    sums: Pairs[LatticeSums],
    randomness: AnswerRandomness,
    vectors: Words,
    scalars: Words,
) -> None:
    """Write some sums' u of each group, uint64 (groups, n, N), and b, uint64 (n, outputs), modulo
    2^64.

    Only bits below 2^W count, in the results as in the sums that draws are bound to.
    """
    mask, whole, numbers = low_bits(randomness.width), vectors[0], np.empty_like(scalars)
    fill_pairs(sums, mask, whole, numbers)
    groups, drawn = groups_of(numbers.shape[1]), _secret_bytes(key, randomness, whole, numbers)
    for number in reversed(range(len(groups))):  # `whole` is the first's
        group = groups[number]
        made = whole, np.ascontiguousarray(numbers[:, group])
        scalars[:, group] = _blinded(key, made, group, drawn[3 * number :], vectors[number])


def _secret_bytes(
    key: TreeKey, randomness: AnswerRandomness, whole: Words, numbers: Words
) -> list[ByteArray]:
    """Return secret bytes for v, e1 and e2 of each group in turn, uint8 (n, any) each. Each sum has
    a stream under its seed, numbered by a digest of the sum and its binding.
    """
    ring, count = key.tree.parameters.ring, len(numbers)
    drawn = [
        np.empty((count, size), np.uint8)
        for group in groups_of(numbers.shape[1])
        for size in (
            samples.ternary_bytes(ring),
            samples.ERROR_BYTES * ring,
            samples.FLOOD_BYTES * (group.stop - group.start),
        )
    ]
    vectors, rest = whole.astype("<u8", copy=False), np.empty((count, 1 + numbers.shape[1]), "<u8")
    rest[:, 0], rest[:, 1:] = randomness.numbers, numbers
    bound = key.digest + randomness.width.to_bytes(8, "little") + randomness.binding
    seeds = [*map(bytes, randomness.seeds)]
    of_seed = {seed: (_BEGUN.of(seed), hashlib.sha256(seed + bound)) for seed in set(seeds)}
    for seed, few, many, *parts in zip(seeds, rest, vectors, *drawn, strict=True):
        streams, begun = of_seed[seed]
        hashed = begun.copy()
        hashed.update(few.data)
        hashed.update(many.data)
        streams.fill_buffers(hashed.digest()[:12], [part.data for part in parts])
    return drawn


class _Begun(threading.local):
    """The streams of the seeds that a thread has used last."""

    def __init__(self) -> None:
        self._of: dict[bytes, Streams] = {}

    def of(self, seed: bytes) -> Streams:
        """Return the streams of a seed."""
        if seed not in self._of:
            if len(self._of) >= SEEDS_MOST:
                self._of.clear()
            self._of[seed] = Streams(hashlib.sha256(b"streams" + seed).digest())
        return self._of[seed]


_BEGUN = _Begun()


def _blinded(
    key: TreeKey,
    sums: tuple[Words, Words],
    group: slice,
    drawn: Sequence[ByteArray],
    vectors: Words,
) -> Words:
    """Return numbers of a group plus a fresh zero encryption and the flood, modulo 2^64.

    Their vectors are written into `vectors`.
    """
    parameters = key.tree.parameters
    ternary = samples.ternary(drawn[0], parameters.ring)
    product = multiplier(parameters)
    zeros = product.multiply(key.fixed, product.values(ternary))
    _add_extended(sums[0], zeros, samples.binomial_errors(drawn[1], parameters.error_bits), vectors)
    numbers = sums[1] + samples.gaussian_flood(drawn[2], parameters.flood).view(np.uint64)
    _add_leading(key.leading[group], ternary, numbers)
    return numbers


def _check_spread(keys: Words, parameters: LatticeParameters) -> None:
    """Raise a PeerError unless about half of each key's coefficients lie near zero modulo q.

    Of N random ones at least a quarter and at most three quarters do, but for one key in 2^360
    (Hoeffding).
    """
    quarter = np.uint64(1 << (parameters.modulus_bits - 2))
    near = ((keys + quarter) & parameters.mask) < (quarter << np.uint64(1))
    share = near.mean(axis=1)
    if (share < 0.25).any() or (share > 0.75).any():
        raise PeerError("a public key is not random, as if its polynomial were not the derived one")


@kernel
def _add_extended(sums: Words, zeros: Words, errors: NDArray[np.int8], vectors: Words) -> None:
    """Write vectors = sums + ext0(zeros + errors), modulo 2^64."""
    last = sums.shape[1] - 1
    for n in range(sums.shape[0]):
        for w in range(last):
            vectors[n, w] = sums[n, w] - zeros[n, w + 1] - np.uint64(np.int64(errors[n, w + 1]))
        vectors[n, last] = sums[n, last] + zeros[n, 0] + np.uint64(np.int64(errors[n, 0]))


@kernel
def _add_leading(leading: Words, ternary: NDArray[np.int8], numbers: Words) -> None:
    """Add the lowest coefficient of each b'·v to `numbers`, modulo 2^64."""
    for n in range(ternary.shape[0]):
        for j in range(leading.shape[0]):
            total = np.uint64(0)
            for k in range(leading.shape[1]):
                total += leading[j, k] * np.uint64(np.int64(ternary[n, k]))
            numbers[n, j] += total
