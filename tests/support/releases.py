"""Lattice answers of a host that has all cells itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedboost.crypto.api import BlindedPackages, Pairs
from fedboost.crypto.lattice import released
from fedboost.crypto.lattice.answers import AnswerRandomness, TreeKey
from fedboost.crypto.lattice.cells import LatticeSums
from fedboost.crypto.lattice.packing import Residual, add_residues, fractions, packed_batch
from fedboost.crypto.lattice.packing_keys import PackingKey
from fedboost.crypto.lattice.released import AnswerShape
from fedboost.crypto.secrets import Secrets
from fedboost.ground.arrays import Words
from fedboost.ground.workers import Serial, Workers

Sums = NDArray[np.int64]


@dataclass(frozen=True)
class NodeAnswers:
    """Sums of one node, and what they are released with."""

    sums: LatticeSums | Pairs[LatticeSums]
    width: int
    secrets: Secrets
    noise: Sums | None = None

    def __len__(self) -> int:
        return len(self.sums)

    def randomized(self) -> tuple[Pairs[LatticeSums], AnswerRandomness]:
        pairs = self.sums if isinstance(self.sums, Pairs) else Pairs.of(self.sums)
        seed = np.frombuffer(self.secrets.derive("answers"), np.uint8)
        seeds = np.tile(seed, (len(pairs), 1))
        binding = b"" if self.noise is None else self.noise.tobytes()
        return pairs, AnswerRandomness(self.width, binding, seeds, np.arange(len(pairs)))


def release(
    key: TreeKey,
    sums: LatticeSums | Pairs[LatticeSums],
    width: int,
    secrets: Secrets,
    workers: Workers | None = None,
    noise: Sums | None = None,
) -> BlindedPackages:
    """All of a node's answers as vectors."""
    pairs, randomness = NodeAnswers(sums, width, secrets, noise).randomized()
    shape = AnswerShape(key.tree.parameters, len(key.leading), width)
    blinded = key.vectors(pairs, randomness, np.arange(len(sums)), workers or Serial())
    return released.release(shape, len(sums), blinded, noise)


def release_packed(
    key: TreeKey,
    nodes: Sequence[NodeAnswers],
    packing: PackingKey,
    workers: Workers | None = None,
) -> BlindedPackages:
    """All nodes' answers packed."""
    threads = (workers or Serial()).threads
    asked, places = [node.randomized() for node in nodes], np.arange(sum(map(len, nodes)))
    noise = [
        np.zeros((len(node), packing.shape.outputs), np.int64) if node.noise is None else node.noise
        for node in nodes
    ]
    widths = np.repeat(np.array([node.width for node in nodes], np.uint64), [*map(len, nodes)])
    every = np.concatenate([np.empty((0, packing.shape.outputs), np.int64), *noise])
    blinded = key.packed(asked, places, packing, threads)
    return released.release_packed(packing.shape, widths, blinded, every, threads)


def residual(key: PackingKey, vectors: Words, widths: Words) -> Residual:
    """What all candidates of one batch add to it."""
    held = Residual.empty(key.shape, np.zeros(1, np.int64))
    add_residues(key, vectors, np.arange(len(widths)), widths, held, 0)
    return held


def batch(key: PackingKey, vectors: Words, scalars: Words, widths: Words) -> bytes:
    """A batch in bytes."""
    held = residual(key, vectors, widths)
    return packed_batch(key.shape, held.whole[0], held.numbers[0], scalars, widths)


def batch_fractions(
    key: PackingKey, vectors: Words, scalars: Words, widths: Words
) -> tuple[Words, Words]:
    """c1 and c0 of a batch of one group of outputs, as fractions."""
    held = residual(key, vectors[None], widths)
    return fractions(held.whole[0, 0], held.numbers[0], scalars, widths)
