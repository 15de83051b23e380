"""Packed answers: the numbers of up to K candidates leave in one ring-LWE ciphertext.

From (u_k, b_kj) of an answer to candidate k (`answers`) and a key of the guest (`packing_keys`):

    û_k   the upper 39 of W bits of u_k, signed
    P_i   Σ_k Σ_b û_k[b·pieces + i] · X^(k + K·b)
    c1    Σ_i P_i·A_i
    c0_j  Σ_i P_i·B_ij; once b_kj is added, coefficient k < K is b_kj − ⟨u_k, s_j⟩ under z_j

This is the linear step of HintlessPIR (Li, Micciancio, Raykova, Schultz-Wu, 2023) without
rotations. Nothing secret of the host is used and nothing is drawn: a batch is a function of the
answers and of the key. Modulo Q, the summands of candidates add up in any order, from any worker
(`Residual`); the sum is rounded when it is complete.

Numbers modulo 2^W and Q are held as fractions of these, of 64 bits, in units of 2^-64.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedboost.crypto.lattice.packing_keys import PackingKey, PackingShape
from fedboost.crypto.lattice.parameters import PACKED_BITS
from fedboost.crypto.lattice.transforms import (
    BLOCK_VALUES,
    DEGREE,
    MODULI,
    MODULUS,
    PRIMES,
    RESIDUE_BITS,
    TRANSFORM_LANES,
    Residues,
    fold_word,
    forward,
    inverse_across,
    inverse_within,
    shoup_product,
)
from fedboost.crypto.lattice.words import field_bytes, pack_fields
from fedboost.ground.arrays import Indices, Words
from fedboost.ground.kernels import inlined, kernel

FOLD_EACH = 8  # chunks whose 16 products below 2^56.03 a sum of 64 bits holds
MASK = np.uint64((1 << RESIDUE_BITS) - 1)
REST: Words = np.array([(1 << RESIDUE_BITS) - prime for prime in PRIMES], np.uint64)  # 2^28 mod p
TWICE: Residues = 2 * MODULI[:, None]
CUT = np.uint64(64 - PACKED_BITS)
# Half a unit for rounding, and half of all, which makes negative numbers positive until LESS.
ROUNDING_OFFSET = np.uint64((1 << (63 - PACKED_BITS)) + (1 << 63))
LESS: Residues = np.array([-(1 << (PACKED_BITS - 1)) % prime for prime in PRIMES], np.uint32)


def _parts_of_one() -> Words:
    """Return the factors of a coefficient c, for each prime: uint64 (primes, 4).

    (M·Q/p)^-1 modulo p as Shoup's pair, which makes y of M·c; then 2^96/p in two words of 32 bits,
    the share of y in the fraction c/Q.
    """
    rows = []
    for prime in PRIMES:
        scale = pow(DEGREE * (MODULUS // prime), -1, prime)
        share = (1 << 96) // prime
        rows.append((scale, (scale << 32) // prime, share >> 32, share & 0xFFFFFFFF))
    return np.array(rows, np.uint64)


SHARES = _parts_of_one()


@dataclass(frozen=True, repr=False, eq=False)
class Residual:
    """The summands of some candidates in batches, modulo each prime and below twice that."""

    batches: Indices  # numbers of the batches, rising
    whole: Residues  # of c1, uint32 (batches, groups, primes, M)
    numbers: Residues  # of c0, uint32 (batches, outputs, primes, K)

    @classmethod
    def empty(cls, shape: PackingShape, batches: Indices) -> Residual:
        """Return a residual with room for these batches."""
        whole = (len(batches), len(shape.groups), len(PRIMES), DEGREE)
        numbers = (len(batches), shape.outputs, len(PRIMES), shape.slots)
        return cls(batches, np.empty(whole, np.uint32), np.empty(numbers, np.uint32))

    def joined(self, other: Residual) -> Residual:
        """Return the sum of both; batches of one alone are as they are."""
        batches = np.union1d(self.batches, other.batches)
        parts = []
        for mine, theirs in ((self.whole, other.whole), (self.numbers, other.numbers)):
            total = np.zeros((len(batches), *mine.shape[1:]), np.uint32)
            total[np.searchsorted(batches, self.batches)] = mine
            at = np.searchsorted(batches, other.batches)
            summed = total[at] + theirs
            total[at] = np.minimum(summed, summed - TWICE)
            parts.append(total)
        return Residual(batches, *parts)


def add_residues(
    key: PackingKey, vectors: Words, slots: Indices, widths: Words, held: Residual, place: int
) -> None:
    """Put the summands of n ≤ K candidates into the batch at a `place` of `held`.

    `vectors` are u of each group of outputs, uint64 (groups, n, N), `slots` k of each, int64 (n,),
    and `widths` W, uint64 (n,). Bits of u above 2^W do not matter.
    """
    shifts = np.uint64(64) - widths
    for number, (group, values) in enumerate(zip(key.shape.groups, key.values, strict=True)):
        sums = np.zeros((len(PRIMES), BLOCK_VALUES, values.shape[3], BLOCK_VALUES), np.uint64)
        _add_chunks(vectors[number], shifts, slots, key.shape.slots, values, sums)
        _to_coefficients(sums, held.whole[place, number], held.numbers[place, group])


def packed_batch(
    shape: PackingShape, whole: Residues, numbers: Residues, scalars: Words, widths: Words
) -> bytes:
    """Return a batch of n ≤ K candidates in bytes; see `PackingShape.batch_bytes`.

    `whole` and `numbers` are the sums over all of them (`Residual`), `scalars` b, uint64 (n,
    outputs), whose bits above 2^W do not matter.
    """
    widest = int(widths.max())
    bits, count = shape.parameters.packed_bits(widest), len(widths)
    data = np.zeros(shape.batch_bytes(count, widest), np.uint8)
    place = 0
    for number, group in enumerate(shape.groups):
        parts = fractions(whole[number], numbers[group], scalars[:, group], widths)
        for values, width in zip(parts, bits, strict=True):
            n_bytes = field_bytes(values.shape[1], width)
            block = data[place : place + len(values) * n_bytes].reshape(len(values), n_bytes)
            pack_fields(_rounded(values, width), width, block)
            place += block.size
    return data.tobytes()


def fractions(
    whole: Residues, numbers: Residues, scalars: Words, widths: Words
) -> tuple[Words, Words]:
    """Return c1, uint64 (1, M), and c0 with b added, uint64 (outputs, n), of a group of outputs.

    As fractions of 2^64, less than 4 units too small.
    """
    shares = np.zeros((1, DEGREE), np.uint64), np.zeros((len(numbers), len(widths)), np.uint64)
    _add_shares(whole[None], shares[0])
    _add_shares(numbers, shares[1])
    shifted: Words = scalars << (np.uint64(64) - widths)[:, None]
    return shares[0], shares[1] + shifted.T


def _rounded(values: Words, bits: int) -> Words:
    return (values + np.uint64(1 << (63 - bits))) >> np.uint64(64 - bits)


@kernel
def _load_chunk(
    vectors: Words, shifts: Words, taken: Indices, slots: int, chunk: int, polynomials: Residues
) -> None:
    """Write coefficients of a chunk's P_i, uint32 (primes, 16·M), interleaved, below 1.01·2^28.

    Coefficient k + K·b of its polynomial l is û_k[b·pieces + 16·chunk + l], so that neighbours stay
    neighbours; 0 of each k that is not `taken`.
    """
    count, each = len(vectors), DEGREE // slots
    if count < slots:
        polynomials[:] = 0
    given = vectors.reshape(
        (count, each, vectors.shape[1] // (each * TRANSFORM_LANES), TRANSFORM_LANES)
    )
    placed = polynomials.reshape((len(PRIMES), each, slots, TRANSFORM_LANES))
    for b in range(each):  # outermost: writes that are 64·K bytes apart would share cache lines
        for k in range(count):
            part, shift = given[k, b, chunk], shifts[k]
            slot = taken[k]
            first, second, third = placed[0, b, slot], placed[1, b, slot], placed[2, b, slot]
            for x in range(TRANSFORM_LANES):
                positive = ((part[x] << shift) + ROUNDING_OFFSET) >> CUT
                low = np.uint32(positive & MASK)
                high = np.uint32(positive >> np.uint64(RESIDUE_BITS))
                first[x] = _residue(low, high, 0)
                second[x] = _residue(low, high, 1)
                third[x] = _residue(low, high, 2)


@inlined
def _residue(low: np.uint32, high: np.uint32, n: int) -> np.uint32:
    """Return low + 2^28·high − 2^38 modulo prime n, of 28 and 11 bits: below 2^30 before it is
    folded.
    """
    return fold_word(np.uint32(low + high * np.uint32(REST[n]) + LESS[n]), MODULI[n])


@kernel
def _add_products(polynomials: Residues, values: Residues, sums: Words) -> None:
    """Add Σ over 16 polynomials of uint32 (M, 16) times (M, 1 + outputs, 16), turned."""
    for x in range(DEGREE):
        block, inside = x // BLOCK_VALUES, x % BLOCK_VALUES
        for c in range(values.shape[1]):
            total = np.uint64(0)
            for lane in range(TRANSFORM_LANES):
                total += np.uint64(polynomials[x, lane]) * np.uint64(values[x, c, lane])
            sums[inside, c, block] += total


@inlined
def _fold_sum(word: np.uint64, n: int) -> np.uint64:
    return (word & MASK) + (word >> np.uint64(RESIDUE_BITS)) * REST[n]


@kernel
def _add_chunks(
    vectors: Words, shifts: Words, taken: Indices, slots: int, values: Residues, sums: Words
) -> None:
    """Add Σ P_i·A_i and Σ P_i·B_ij as values, turned, uint64 (primes, 64, 1 + outputs, 64)."""
    polynomials = np.empty((len(PRIMES), DEGREE * TRANSFORM_LANES), np.uint32)
    for chunk in range(len(values)):
        _load_chunk(vectors, shifts, taken, slots, chunk, polynomials)
        for n in range(len(PRIMES)):
            forward(polynomials[n], n)
            _add_products(
                polynomials[n].reshape((DEGREE, TRANSFORM_LANES)), values[chunk, n], sums[n]
            )
            if chunk % FOLD_EACH == FOLD_EACH - 1:
                flat = sums[n].reshape(sums[n].size)
                for x in range(len(flat)):
                    flat[x] = _fold_sum(flat[x], n)


@kernel
def _to_coefficients(sums: Words, whole: Residues, numbers: Residues) -> None:
    """Write M times the coefficients modulo each prime: of c1 all, of c0 only those with a slot."""
    small = np.empty((BLOCK_VALUES, sums.shape[2], BLOCK_VALUES), np.uint32)
    line = np.empty(DEGREE, np.uint32)
    for n in range(len(PRIMES)):
        given, flat = sums[n].reshape(sums[n].size), small.reshape(small.size)
        for x in range(len(flat)):
            word = _fold_sum(_fold_sum(given[x], n), n)
            flat[x] = np.uint32(_fold_sum(_fold_sum(word, n), n))
        inverse_within(small, n)
        for c in range(small.shape[1]):
            for block in range(BLOCK_VALUES):
                for x in range(BLOCK_VALUES):
                    line[BLOCK_VALUES * block + x] = small[x, c, block]
            run = DEGREE if c == 0 else max(BLOCK_VALUES, numbers.shape[2])
            inverse_across(line, run, n)
            if c == 0:
                whole[n] = line
            else:
                _add_runs(line, run, n)
                numbers[c - 1, n] = line[: numbers.shape[2]]


@kernel
def _add_runs(line: Residues, run: int, n: int) -> None:
    """Add all runs to the first, below 2^28 + 2^25."""
    for k in range(run):
        total = np.uint64(0)
        for first in range(0, DEGREE, run):
            total += np.uint64(line[first + k])
        line[k] = np.uint32(_fold_sum(total, n))


@kernel
def _add_shares(lines: Residues, shares: Words) -> None:
    """Add for each prime ⌊2^64·y/p⌋, less one at most, for M times as many coefficients as `shares`
    has: uint32 (n, primes, any) to uint64 (n, wanted).
    """
    for c in range(len(lines)):
        line, total = lines[c], shares[c]
        for n in range(len(PRIMES)):
            p, scale, shoup = MODULI[n], np.uint32(SHARES[n, 0]), np.uint32(SHARES[n, 1])
            high, low = SHARES[n, 2], SHARES[n, 3]
            for k in range(len(total)):
                twice = shoup_product(line[n, k], scale, shoup, p)
                y = np.uint64(min(twice, np.uint32(twice - p)))
                total[k] += y * high + ((y * low) >> np.uint64(32))
