"""The guest reads answers: sums of messages, exact, and refused where they cannot be sums."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedboost.crypto.lattice.answers import AnswerShape
from fedboost.crypto.lattice.secret import TreeSecret
from fedboost.crypto.lattice.words import ByteArray, Words, unpack
from fedboost.crypto.workers import Serial, Workers
from fedboost.errors import PeerError
from fedboost.kernels import kernel

_BATCH = 64  # answers whose vectors are unpacked at once: one megabyte of `lattice`

Sums = NDArray[np.int64]  # (n, outputs)


def decrypt(
    secret: TreeSecret,
    answers: bytes,
    count: int,
    node_rows: int,
    most: Sums | None = None,
    workers: Workers | None = None,
) -> Sums:
    """The sums in `count` answers about a node of so many rows, int64 (count, outputs).

    `most` int64 (outputs,) is what no sum can exceed either way: the node's own Σ|m|; without it
    what so many rows can be at most. One and the same PeerError for answers of another size or
    with bits where none belong, and for sums beyond that.
    """
    budget = secret.budget
    shape = AnswerShape(secret.tree.parameters, secret.outputs, budget.width(node_rows))
    sums = _rounded(opened(secret, answers, count, shape, workers), shape)
    bound = np.int64(node_rows * budget.message_most) if most is None else most
    if (np.abs(sums) > bound).any():
        raise PeerError("an answer does not decrypt into a sum of its node's rows")
    return sums


def opened(
    secret: TreeSecret,
    answers: bytes,
    count: int,
    shape: AnswerShape,
    workers: Workers | None = None,
) -> Sums:
    """Δ times the sums plus what noise there is, int64 (count, outputs); see `decrypt`."""
    if count < 0 or len(answers) != count * shape.n_bytes:
        raise PeerError(
            f"expected {count} answers of {shape.n_bytes} bytes, got {len(answers)} in all"
        )
    data = np.frombuffer(answers, dtype=np.uint8).reshape(count, shape.n_bytes)
    secrets = secret.reversed_secrets()
    tasks = [(data[first : first + _BATCH], secrets, shape) for first in range(0, count, _BATCH)]
    parts = (workers or Serial()).map(_opened_batch, tasks)
    return np.concatenate([np.empty((0, shape.outputs), np.int64), *parts])


def _opened_batch(data: ByteArray, secrets: NDArray[np.int8], shape: AnswerShape) -> Sums:
    found = np.empty((len(data), shape.outputs), dtype=np.int64)
    for group, spans in zip(shape.groups, shape.spans(), strict=True):
        found[:, group] = _opened_group(data, spans, secrets[group], shape)
    return found


def _opened_group(
    data: ByteArray, spans: tuple[slice, slice], secrets: NDArray[np.int8], shape: AnswerShape
) -> Sums:
    vectors = np.empty((len(data), shape.parameters.ring), dtype=np.uint64)
    numbers = np.empty((len(data), len(secrets)), dtype=np.uint64)
    clean = unpack(data[:, spans[0]], shape.vector_bits, vectors)
    if not unpack(data[:, spans[1]], shape.width, numbers) or not clean:
        raise PeerError("an answer does not decrypt into a sum of its node's rows")
    _subtract_products(vectors, secrets, np.uint64(shape.parameters.drop_bits), numbers)
    unused = 64 - shape.width
    return (numbers << np.uint64(unused)).view(np.int64) >> unused


def _rounded(numbers: Sums, shape: AnswerShape) -> Sums:
    scale = shape.parameters.scale_bits
    whole = numbers >> scale
    return whole + (numbers >> (scale - 1) & 1)


@kernel
def _subtract_products(
    vectors: Words, secrets: NDArray[np.int8], drop: np.uint64, numbers: Words
) -> None:
    """numbers −= ⟨vector, secret⟩ · 2^drop, modulo 2^64."""
    for n in range(vectors.shape[0]):
        for j in range(secrets.shape[0]):
            total = np.uint64(0)
            for w in range(vectors.shape[1]):
                total += vectors[n, w] * np.uint64(np.int64(secrets[j, w]))
            numbers[n, j] -= total << drop
