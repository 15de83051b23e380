"""Keys for the packing of answers at a host: the guest's secrets s_j, encrypted piece by piece.

The ring is Z_Q[X]/(X^M + 1) with Q of three primes (`transforms`). A key is for K candidates a
batch: B = M/K coordinates of s_j make a piece, and there are N/B pieces,

    S_ij = Σ over b < B of s_j[b·pieces + i] · X^(−K·b)
    B_ij = −A_i·z_j + e_ij − Δ'·S_ij                      Δ' = Q / 2^39, rounded

with s_j as windows are paired with it (`TreeSecret.reversed_secrets`), z_j ternary and secret,
and A_i derived by both sides. All are kept as values. Nothing encrypts z_j.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from fedboost.crypto.lattice import samples
from fedboost.crypto.lattice.parameters import PACKED_BITS, SLOTS, LatticeParameters, groups_of
from fedboost.crypto.lattice.polynomials import PACKING, number_bytes
from fedboost.crypto.lattice.product import Spectrum, multiplier_of
from fedboost.crypto.lattice.transforms import (
    DEGREE,
    MODULI,
    MODULUS,
    PRIMES,
    RESIDUE_BITS,
    TRANSFORM_LANES,
    Residues,
    forward,
)
from fedboost.crypto.lattice.words import field_bytes, low_bits, pack_fields, unpack_fields
from fedboost.crypto.secrets import Secrets
from fedboost.ground.arrays import Words
from fedboost.ground.errors import ConfigError, FedboostError, PeerError
from fedboost.ground.kernels import kernel

PUBLIC_WORD_BYTES = 4
SPARE = 64  # words that may be skipped: in a piece 2.5 are, and 65 once in 2^190
PACKED_SCALE = (MODULUS + (1 << (PACKED_BITS - 1))) >> PACKED_BITS  # Δ'
LESS_SCALE: Residues = np.array([-PACKED_SCALE % prime for prime in PRIMES], np.uint32)

Small = NDArray[np.int8]


@dataclass(frozen=True)
class PackingShape:
    """The layout of packing keys and batches; a ConfigError for an unknown number of slots, and for
    parameters whose sums would not survive it.
    """

    parameters: LatticeParameters
    outputs: int
    slots: int  # K

    def __post_init__(self) -> None:
        if self.slots not in SLOTS:
            raise ConfigError(
                f"a batch of packed answers cannot have {self.slots} slots",
                todo=f"take one of {', '.join(map(str, SLOTS))}",
            )
        if not self.parameters.can_pack:
            raise ConfigError(f"packed answers of {self.parameters.name} would be wrong")
        if self.pieces % TRANSFORM_LANES or not self.pieces:
            raise ConfigError(
                f"{self.slots} slots make {self.pieces} pieces of a ring of "
                f"{self.parameters.ring}, which must be a multiple of {TRANSFORM_LANES}"
            )

    @property
    def each(self) -> int:
        """Coordinates of a secret in a piece, B."""
        return DEGREE // self.slots

    @property
    def pieces(self) -> int:
        """Pieces of a secret, N/B."""
        return self.parameters.ring // self.each

    @property
    def chunks(self) -> int:
        """Groups of pieces that are transformed together."""
        return self.pieces // TRANSFORM_LANES

    @property
    def groups(self) -> list[slice]:
        """The outputs that share a vector."""
        return groups_of(self.outputs)

    @property
    def key_bytes(self) -> int:
        """Size of a key as it travels."""
        return self.outputs * self.pieces * len(PRIMES) * field_bytes(DEGREE, RESIDUE_BITS)

    def batch_bytes(self, count: int, width: int) -> int:
        """Return the size of a batch of that many candidates, the widest of them modulo 2^width.

        For each group of outputs c1, and then c0 of each output, in whole bytes.
        """
        vector, number = self.parameters.packed_bits(width)
        numbers = self.outputs * field_bytes(count, number)
        return len(self.groups) * field_bytes(DEGREE, vector) + numbers

    def batches(self, counts: Sequence[int], widths: Sequence[int]) -> list[Words]:
        """Return W of each candidate of each batch, uint64, for nodes with
        so many candidates of W.
        """
        each = _of_each(counts, widths)
        return [each[first : first + self.slots] for first in range(0, len(each), self.slots)]

    def answer_bytes(self, counts: Sequence[int], widths: Sequence[int]) -> int:
        """Return the size of all batches about nodes with so many candidates of W."""
        each = _of_each(counts, widths)
        if not len(each):
            return 0
        *widest, last = np.maximum.reduceat(each, np.arange(0, len(each), self.slots)).tolist()
        full = sum(n * self.batch_bytes(self.slots, width) for width, n in Counter(widest).items())
        return full + self.batch_bytes(len(each) - len(widest) * self.slots, last)

    def public(self, origin: bytes, piece: int) -> Residues:
        """Return A_i as values, uint32 (primes, M): both sides derive it from the same origin."""
        derived = np.empty((len(PRIMES), DEGREE), np.uint32)
        for n, prime in enumerate(PRIMES):
            place = (self.parameters.ring, self.slots, piece, n)
            absorbed = hashlib.shake_256(PACKING + origin + b"".join(map(number_bytes, place)))
            words = np.frombuffer(absorbed.digest(PUBLIC_WORD_BYTES * (DEGREE + SPARE)), "<u4")
            words = words & np.uint32(low_bits(RESIDUE_BITS))
            words = words[words < prime]
            if len(words) < DEGREE:
                raise FedboostError("the bytes of a public polynomial ran out")
            derived[n] = words[:DEGREE]
        return derived

    def public_chunks(self, origin: bytes) -> Iterator[Residues]:
        """Yield A_i of 16 pieces at a time, uint32 (16, primes, M)."""
        for first in range(0, self.pieces, TRANSFORM_LANES):
            yield np.stack([self.public(origin, first + lane) for lane in range(TRANSFORM_LANES)])


class PackingSecret:
    """The guest's side of a packing key: a ternary z_j for each output; it prints nothing and
    cannot be pickled.

    `reversed_secrets` are s_j, int8 (outputs, N), and `secrets` their source. All draws are bound
    to origin, K and s_j: one z_j, or one error, must never meet two secrets.
    """

    def __init__(
        self, shape: PackingShape, secrets: Secrets, origin: bytes, reversed_secrets: Small
    ) -> None:
        self.shape = shape
        self._origin, self._encrypted = origin, reversed_secrets
        bound = hashlib.sha256(origin + reversed_secrets.tobytes()).digest()
        place = (shape.parameters.ring, shape.slots, shape.outputs)
        self._secrets = secrets.child("lattice packing", *place, bound)
        drawn = self._secrets.bytes(shape.outputs * samples.ternary_bytes(DEGREE), "z")
        data = np.frombuffer(drawn, np.uint8).reshape(shape.outputs, -1)
        self._ternary = samples.ternary(data, DEGREE)

    def key(self) -> bytes:
        """Return the key as `PackingKey.received` reads it: the same bytes each time.

        For each output, piece and prime, M fields of 28 bits.
        """
        shape = self.shape
        fields = (
            shape.outputs,
            shape.chunks,
            TRANSFORM_LANES * len(PRIMES),
            field_bytes(DEGREE, RESIDUE_BITS),
        )
        data = np.zeros(fields, np.uint8)
        errors = [self._errors(output) for output in range(shape.outputs)]
        values = [
            _small_values(ternary[None].repeat(TRANSFORM_LANES, axis=0))
            for ternary in self._ternary
        ]
        # Coordinate b·pieces + 16·chunk + l of s_j as [j, b, chunk, l].
        parts = self._encrypted.reshape(shape.outputs, shape.each, shape.chunks, TRANSFORM_LANES)
        scratch = np.empty((TRANSFORM_LANES, len(PRIMES), DEGREE), np.uint64)
        for chunk, public in enumerate(shape.public_chunks(self._origin)):
            pieces = slice(TRANSFORM_LANES * chunk, TRANSFORM_LANES * (chunk + 1))
            for j in range(shape.outputs):
                part = np.ascontiguousarray(parts[j, :, chunk])
                _encrypt(errors[j][pieces], part, public, values[j], scratch)
                pack_fields(scratch.reshape(-1, DEGREE), RESIDUE_BITS, data[j, chunk])
        return data.tobytes()

    @cached_property
    def multiplied(self) -> Spectrum:
        """Values of all z_j, for products with c1."""
        return multiplier_of(DEGREE, PACKED_BITS).values(self._ternary)

    def _errors(self, output: int) -> Small:
        drawn = self._secrets.bytes(
            self.shape.pieces * DEGREE * samples.ERROR_BYTES, "errors", output
        )
        data = np.frombuffer(drawn, np.uint8).reshape(self.shape.pieces, -1)
        return samples.binomial_errors(data, self.shape.parameters.error_bits)

    def __repr__(self) -> str:
        return f"PackingSecret({self.shape.outputs} outputs, hidden)"

    def __reduce__(self) -> NoReturn:
        raise TypeError("secrets are not pickled")


@dataclass(frozen=True, repr=False, eq=False)
class PackingKey:
    """A packing key as a host holds it."""

    shape: PackingShape
    values: tuple[Residues, ...]  # A_i and B_ij by group, (chunks, primes, M, 1 + outputs, 16)

    @classmethod
    def received(cls, shape: PackingShape, origin: bytes, data: bytes) -> PackingKey:
        """Read the output of `PackingSecret.key`, for the origin that both sides know.

        A PeerError unless the size is right and every number below its prime: with larger ones sums
        would overflow.
        """
        if len(data) != shape.key_bytes:
            raise PeerError(
                f"expected a packing key of {shape.key_bytes} bytes, got {len(data)} bytes"
            )
        fields = np.frombuffer(data, np.uint8)
        fields = fields.reshape(shape.outputs, shape.chunks, TRANSFORM_LANES * len(PRIMES), -1)
        values = tuple(
            np.empty(
                (shape.chunks, len(PRIMES), DEGREE, 1 + group.stop - group.start, TRANSFORM_LANES),
                np.uint32,
            )
            for group in shape.groups
        )
        words = np.empty((TRANSFORM_LANES, len(PRIMES), DEGREE), np.uint64)
        for chunk, public in enumerate(shape.public_chunks(origin)):
            for group, held in zip(shape.groups, values, strict=True):
                held[chunk, :, :, 0] = public.transpose(1, 2, 0)
                for output in range(group.start, group.stop):
                    unpack_fields(fields[output, chunk], RESIDUE_BITS, words.reshape(-1, DEGREE))
                    if (words >= MODULI[:, None]).any():
                        raise PeerError("a number is out of range, of the packing key")
                    held[chunk, :, :, 1 + output - group.start] = words.transpose(1, 2, 0)
        return cls(shape, values)

    def __repr__(self) -> str:
        return f"PackingKey({self.shape.outputs} outputs, {self.shape.slots} slots)"


def _of_each(counts: Sequence[int], widths: Sequence[int]) -> Words:
    """Return W of each candidate, uint64, for nodes with so many candidates of W."""
    return np.repeat(np.array(widths, np.uint64), np.array(counts, np.int64))


def _small_values(polynomials: Small) -> Residues:
    """Return the values of 16 small polynomials, interleaved, uint32 (primes, 16·M)."""
    values = np.empty((len(PRIMES), DEGREE * TRANSFORM_LANES), np.uint32)
    for n in range(len(PRIMES)):
        _interleave(polynomials, n, values[n])
        forward(values[n], n)
    return values


@kernel
def _interleave(polynomials: Small, n: int, values: Residues) -> None:
    """Write small numbers modulo prime n, int8 (16, M) to uint32 (16·M,)."""
    p = np.int64(MODULI[n])
    for lane in range(TRANSFORM_LANES):
        for x in range(DEGREE):
            values[TRANSFORM_LANES * x + lane] = np.uint32(p + polynomials[lane, x])


@kernel
def _encrypt(errors: Small, part: Small, public: Residues, secret: Residues, words: Words) -> None:
    """Write B of 16 pieces, uint64 (16, primes, M): errors int8 (16, M),
    coordinates int8 (B, 16).
    """
    each, values = len(part), np.empty(DEGREE * TRANSFORM_LANES, np.uint32)
    for n in range(len(PRIMES)):
        p, less = np.uint64(MODULI[n]), np.int64(LESS_SCALE[n])
        _interleave(errors, n, values)
        for b in range(each):
            # X^(−K·b) is −X^(M − K·b), but for b = 0.
            first = TRANSFORM_LANES * ((DEGREE - DEGREE // each * b) % DEGREE)
            for lane in range(TRANSFORM_LANES):
                sign = np.int64(part[b, lane]) if b == 0 else -np.int64(part[b, lane])
                added = np.int64(values[first + lane]) + sign * less
                values[first + lane] = np.uint32(added % np.int64(MODULI[n]))
        forward(values, n)
        for lane in range(TRANSFORM_LANES):
            for x in range(DEGREE):
                product = np.uint64(public[lane, n, x]) * np.uint64(
                    secret[n, TRANSFORM_LANES * x + lane]
                )
                word = np.uint64(values[TRANSFORM_LANES * x + lane])
                words[lane, n, x] = (word + ((p * p - product % p) % p)) % p
