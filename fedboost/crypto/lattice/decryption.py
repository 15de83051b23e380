"""Decryption of answers at the guest: exact sums of messages; impossible sums are refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedboost.crypto.lattice.packing_keys import PackingSecret
from fedboost.crypto.lattice.product import multiplier_of
from fedboost.crypto.lattice.released import AnswerShape
from fedboost.crypto.lattice.secret import TreeSecret
from fedboost.crypto.lattice.transforms import DEGREE
from fedboost.crypto.lattice.words import field_bytes, unpack_fields
from fedboost.crypto.limbs import ByteArray
from fedboost.ground.arrays import Words
from fedboost.ground.errors import PeerError
from fedboost.ground.kernels import kernel
from fedboost.ground.workers import Serial, Workers

_BATCH = 64  # answers whose vectors are unpacked at once: one megabyte of `lattice`

NO_SUM = "an answer does not decrypt into a sum of its node's rows"

Sums = NDArray[np.int64]  # (n, outputs)


@dataclass(frozen=True)
class AnsweredNode:
    """The guest's knowledge of a node whose packed answers arrive."""

    count: int  # of its answers
    rows: int
    most: Sums | None = None  # (outputs,) see `decrypt`


def decrypt(
    secret: TreeSecret,
    answers: bytes,
    count: int,
    node_rows: int,
    most: Sums | None = None,
    workers: Workers | None = None,
) -> Sums:
    """Return the sums in `count` answers about a node of so many rows, int64 (count, outputs).

    `most` int64 (outputs,) is the bound of sums either way: the node's own Σ|m|; without it, the
    greatest sum of so many rows. One and the same PeerError for answers of another size or with
    unexpected bits, and for sums beyond that.
    """
    budget = secret.budget
    shape = AnswerShape(secret.tree.parameters, secret.outputs, budget.width(node_rows))
    sums = _rounded(
        open_vectors(secret, answers, count, shape, workers), shape.parameters.scale_bits
    )
    bound = np.int64(node_rows * budget.message_most) if most is None else most
    if (np.abs(sums) > bound).any():
        raise PeerError(NO_SUM)
    return sums


def decrypt_packed(
    secret: TreeSecret,
    packing: PackingSecret,
    data: bytes,
    nodes: Sequence[AnsweredNode],
    workers: Workers | None = None,
    least: Sums | None = None,
) -> Sums:
    """Return all nodes' sums from the output of `released.release_packed`, int64 (answers,
    outputs).

    `least` int64 (outputs,) is the lower bound of sums: 0 for messages that are not negative, if no
    noise was added. One and the same PeerError for another size, for unexpected bits, and for sums
    beyond these bounds and those of `decrypt`.
    """
    budget, scale = secret.budget, secret.tree.parameters.scale_bits
    counts = [node.count for node in nodes]
    widths = [budget.width(node.rows) for node in nodes]
    if min(counts, default=0) < 0 or len(data) != packing.shape.answer_bytes(counts, widths):
        raise PeerError(NO_SUM)
    tasks, place = [], 0
    for batch in packing.shape.batches(counts, widths):
        span = slice(place, place + packing.shape.batch_bytes(len(batch), int(batch.max())))
        tasks.append((packing, data[span], batch))
        place = span.stop
    parts = (workers or Serial()).threads.map(open_packed, tasks)
    whole = np.concatenate([np.empty((0, secret.outputs), np.int64), *parts])
    sums, first = _rounded(whole, scale), 0
    for node in nodes:
        of_node = sums[first : first + node.count]
        bound = node.rows * budget.message_most if node.most is None else node.most
        lower = np.negative(bound) if least is None else np.maximum(np.negative(bound), least)
        if (of_node > bound).any() or (of_node < lower).any():
            raise PeerError(NO_SUM)
        first += node.count
    return sums


def open_packed(packing: PackingSecret, data: bytes, widths: Words) -> Sums:
    """Return Δ times the sums of a batch plus their noise, int64 (n, outputs), modulo 2^W each.

    `widths` are W, uint64 (n,). A PeerError for unexpected bits.
    """
    shifts = np.uint64(64) - widths[:, None]
    return fractions_of(packing, data, widths).view(np.int64) >> shifts.view(np.int64)


def fractions_of(packing: PackingSecret, data: bytes, widths: Words) -> Words:
    """Return the numbers of a batch as fractions of 2^W, in units of 2^-64, uint64 (n, outputs)."""
    shape, count = packing.shape, len(widths)
    bits = shape.parameters.packed_bits(int(widths.max()))
    product = multiplier_of(DEGREE, bits[0])
    fractions = np.empty((count, shape.outputs), np.uint64)
    place, raw = 0, np.frombuffer(data, np.uint8)
    for group in shape.groups:
        parts = []
        for rows, each, width in ((1, DEGREE, bits[0]), (group.stop - group.start, count, bits[1])):
            n_bytes = field_bytes(each, width)
            block = raw[place : place + rows * n_bytes].reshape(rows, n_bytes)
            parts.append(np.empty((rows, each), np.uint64))
            if not unpack_fields(block, width, parts[-1]):
                raise PeerError(NO_SUM)
            place += block.size
        masks = product.first(product.fixed(parts[0][0]), packing.multiplied[group], count)
        numbers = parts[1] << np.uint64(64 - bits[1])
        fractions[:, group] = (numbers + (masks << np.uint64(64 - bits[0]))).T
    return fractions


def open_vectors(
    secret: TreeSecret,
    answers: bytes,
    count: int,
    shape: AnswerShape,
    workers: Workers | None = None,
) -> Sums:
    """Return Δ times the sums plus their noise, int64 (count, outputs); see `decrypt`."""
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
    sums = np.empty((len(data), shape.outputs), dtype=np.int64)
    for group, spans in zip(shape.groups, shape.spans(), strict=True):
        sums[:, group] = _opened_group(data, spans, secrets[group], shape)
    return sums


def _opened_group(
    data: ByteArray, spans: tuple[slice, slice], secrets: NDArray[np.int8], shape: AnswerShape
) -> Sums:
    vectors = np.empty((len(data), shape.parameters.ring), dtype=np.uint64)
    numbers = np.empty((len(data), len(secrets)), dtype=np.uint64)
    clean = unpack_fields(data[:, spans[0]], shape.vector_bits, vectors)
    if not unpack_fields(data[:, spans[1]], shape.width, numbers) or not clean:
        raise PeerError(NO_SUM)
    _subtract_products(vectors, secrets, np.uint64(shape.parameters.drop_bits), numbers)
    unused = 64 - shape.width
    return (numbers << np.uint64(unused)).view(np.int64) >> unused


def _rounded(numbers: Sums, scale: int) -> Sums:
    whole = numbers >> scale
    return whole + (numbers >> (scale - 1) & 1)


@kernel
def _subtract_products(
    vectors: Words, secrets: NDArray[np.int8], drop: np.uint64, numbers: Words
) -> None:
    """Subtract ⟨vector, secret⟩ · 2^drop from `numbers`, modulo 2^64."""
    for n in range(vectors.shape[0]):
        for j in range(secrets.shape[0]):
            total = np.uint64(0)
            for w in range(vectors.shape[1]):
                total += vectors[n, w] * np.uint64(np.int64(secrets[j, w]))
            numbers[n, j] -= total << drop
