"""Messages of a host: answers, joined from the parts of the holders of the cells (`answers`).

Numbers b are written last, so that the host adds its noise itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Generic, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedboost.crypto.api import BlindedPackages, seal_released
from fedboost.crypto.lattice.packing import Residual, packed_batch
from fedboost.crypto.lattice.packing_keys import PackingShape
from fedboost.crypto.lattice.parameters import LatticeParameters, groups_of
from fedboost.crypto.lattice.words import field_bytes, low_bits, pack_fields
from fedboost.crypto.limbs import ByteArray
from fedboost.ground.arrays import Indices, Words
from fedboost.ground.errors import ProtocolError
from fedboost.ground.workers import Workers

Sums = NDArray[np.int64]  # (n, outputs)


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


class Joining(Protocol):
    """The part of some answers beside b."""

    def joined(self, other: Self) -> Self:
        """Return the parts of both."""


A = TypeVar("A", bound=Joining)


@dataclass(frozen=True, repr=False, eq=False)
class Vectors:
    """Answers as vectors, one after the other, without their numbers b yet."""

    data: ByteArray  # (n, `AnswerShape.n_bytes`)

    def joined(self, other: Vectors) -> Vectors:
        """Return these, then the others."""
        return Vectors(np.concatenate([self.data, other.data]))


@dataclass(frozen=True, repr=False, eq=False)
class Blinded(Generic[A]):
    """Answers without their numbers b yet, so that noise may be added to them."""

    places: Indices  # (n,)
    scalars: Words  # (n, outputs): b modulo 2^64
    vectors: A  # u of each, or their summands in packed batches

    def joined(self, other: Blinded[A]) -> Blinded[A]:
        """Return the answers of both."""
        places = np.concatenate([self.places, other.places])
        scalars = np.concatenate([self.scalars, other.scalars])
        return Blinded(places, scalars, self.vectors.joined(other.vectors))

    def ordered(self, count: int, noise: Sums | None, scale_bits: int) -> tuple[Indices, Words]:
        """Return the order that sorts all `count` sums, and their b in it, with noise int64 (count,
        outputs); a ProtocolError if some are missing.
        """
        order = np.argsort(self.places)
        if not np.array_equal(self.places[order], np.arange(count)):
            raise ProtocolError(f"{len(order)} answers have come of {count}")
        scalars = self.scalars[order]
        if noise is not None:
            if noise.shape != scalars.shape:
                raise ProtocolError(f"{count} sums do not have the noise that they leave with")
            scalars += noise.view(np.uint64) << np.uint64(scale_bits)
        return order, scalars


def release(
    shape: AnswerShape, count: int, blinded: Blinded[Vectors], noise: Sums | None = None
) -> BlindedPackages:
    """Return all `count` answers as vectors, with noise int64 (count, outputs) if there is any; a
    ProtocolError if some are missing.
    """
    order, scalars = blinded.ordered(count, noise, shape.parameters.scale_bits)
    data = blinded.vectors.data
    if not np.array_equal(order, np.arange(count)):
        data = data[order]
    for group, (_, span) in zip(shape.groups, shape.spans(), strict=True):
        numbers = np.ascontiguousarray(scalars[:, group]) & low_bits(shape.width)
        pack_fields(numbers, shape.width, data[:, span])
    return seal_released(data)


def release_packed(
    shape: PackingShape,
    widths: Words,
    blinded: Blinded[Residual],
    noise: Sums | None,
    workers: Workers,
) -> BlindedPackages:
    """Return all answers packed, of these W, uint64 (n,); as one package of all batches' bytes.

    A batch has `shape.slots` sums, of as many nodes as it takes, and the last batch the rest:
    `PackingShape.batches`. A ProtocolError if some are missing.
    """
    count, held = len(widths), blinded.vectors
    _, scalars = blinded.ordered(count, noise, shape.parameters.scale_bits)
    cuts = [slice(first, first + shape.slots) for first in range(0, count, shape.slots)]
    tasks = [
        (shape, held.whole[number], held.numbers[number], scalars[cut], widths[cut])
        for number, cut in enumerate(cuts)
    ]
    return seal_released(np.frombuffer(b"".join(workers.map(packed_batch, tasks)), np.uint8)[None])
