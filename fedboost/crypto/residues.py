"""Keys whose ciphertexts are residues and simply add up, for `plain` and `iterative_affine`.

A host adds and shifts numbers modulo a public one. Nothing here hides anything: these schemes are
for tests, for reproducing a paper, and for the cost of everything but cryptography.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fedboost.crypto.api import (
    BlindedPackages,
    Blinders,
    Ciphertexts,
    Encrypted,
    Pairs,
    seal_encrypted,
    seal_released,
    sums_of_pairs,
)
from fedboost.crypto.layout import Layout, Sums
from fedboost.crypto.limbs import (
    LIMB_BITS,
    ByteArray,
    Limbs,
    bytes_of,
    integers,
    limbs_of,
    rows_of,
)
from fedboost.crypto.masking import Masks
from fedboost.crypto.secrets import Secrets
from fedboost.crypto.shapes import (
    check_cells,
    check_factors,
    check_packages,
    check_pairs,
    check_released,
    check_segments,
)
from fedboost.ground.errors import ConfigError, PeerError
from fedboost.ground.kernels import kernel
from fedboost.ground.workers import even_slices

SPARE_BYTES = 8  # above a residue, for the carries of a sum


class NoBlinders:
    """A pool of blinders for schemes that hide nothing."""

    def __init__(self, width: int) -> None:
        self._width = width

    def prepare(self, count: int) -> None:
        """Do nothing."""

    def take(self, count: int) -> NDArray[np.uint8]:
        """Return zeros, uint8 (count, width)."""
        return np.zeros((count, self._width), dtype=np.uint8)


class ResiduePublic:
    """A host's side: numbers modulo `modulus`, each of `width` bytes (a multiple of 4).

    `headroom`: whether a plaintext is its own encryption, so that the host can blind headroom.
    """

    def __init__(self, modulus: int, plaintext_bits: int, data: bytes, *, headroom: bool) -> None:
        self.modulus = modulus
        self.plaintext_bits = plaintext_bits
        self.width = residue_bytes(modulus)
        self._bytes = data
        self._headroom = headroom

    def to_bytes(self) -> bytes:
        """Return the key as it was received."""
        return self._bytes

    def check(self, ciphertexts: Ciphertexts) -> None:
        """Raise a PeerError unless the width is right and every number is below the modulus."""
        if ciphertexts.width != self.width:
            raise PeerError(
                f"expected numbers of {self.width} bytes, got {ciphertexts.width} bytes"
            )
        if self._wraps_itself:
            return
        most = self.modulus.to_bytes(self.width, "big")
        raw, width = ciphertexts.each.tobytes(), self.width
        if any(raw[i : i + width] >= most for i in range(0, len(raw), width)):
            raise PeerError("a ciphertext is out of the key's range")

    def segment_sum(
        self,
        held: Ciphertexts,
        rows: NDArray[np.integer],
        cells: NDArray[np.int32],
        n_cells: int,
    ) -> Ciphertexts:
        """Add row `rows[i]` into each cell of `cells[i]`; see `api.Adder`."""
        check_cells(rows, cells, n_cells)
        wide = held.lanes * self.width // 4
        values = limbs_of(held[rows].each).reshape(-1, wide)
        sums = np.zeros((n_cells, wide), dtype=np.int64)
        if cells.size:
            _add_rows(values, np.ascontiguousarray(cells), sums)
        return self._reduced(sums, held.lanes)

    def add(self, a: Ciphertexts, b: Ciphertexts) -> Ciphertexts:
        """Return a[i] + b[i]."""
        check_pairs(a, b)
        return self._reduced(limbs_of(a.each) + limbs_of(b.each), a.lanes)

    def subtract(self, a: Ciphertexts, b: Ciphertexts) -> Ciphertexts:
        """Return a[i] − b[i]."""
        check_pairs(a, b)
        return self._reduced(limbs_of(a.each) - limbs_of(b.each), a.lanes)

    def scale(self, ciphertexts: Ciphertexts, factors: NDArray[np.int64]) -> Ciphertexts:
        """Return factors[i] · ciphertexts[i] in all lanes; see `api.PublicKey`."""
        self._check_knows()
        check_factors(ciphertexts, factors)
        factor_of = np.repeat(factors, ciphertexts.lanes).tolist()
        values = zip(integers(ciphertexts.each), factor_of, strict=True)
        scaled = rows_of([value * factor % self.modulus for value, factor in values], self.width)
        return ciphertexts.from_single(scaled)

    def prefix_sums(self, cells: Ciphertexts, offsets: NDArray[np.integer]) -> Ciphertexts:
        """Return running sums within each segment of cells; see `api.Adder`."""
        lengths = check_segments(cells, offsets)
        wide = cells.lanes * self.width // 4
        running = np.zeros((len(cells) + 1, wide), dtype=np.int64)
        np.cumsum(limbs_of(cells.each).reshape(-1, wide), axis=0, out=running[1:])
        sums = running[1:] - np.repeat(running[offsets[:-1]], lengths, axis=0)
        return self._reduced(sums, cells.lanes)

    def sum_pairs(self, pairs: Pairs[Ciphertexts]) -> Ciphertexts:
        """Return the sums of the pairs."""
        return sums_of_pairs(self, pairs)

    def blinders(self) -> NoBlinders:
        """Return a pool that hides nothing."""
        return NoBlinders(self.width)

    def release(
        self,
        ciphertexts: Ciphertexts,
        layout: Layout,
        blinders: Blinders,
        counts: Sequence[int] | None = None,
        masks: Masks | None = None,
    ) -> BlindedPackages:
        """Return packages, their headroom blinded if the host can; see `api.PublicKey`."""
        packages = check_released(ciphertexts, layout, self.plaintext_bits, counts, masks)
        blinders.take(len(packages))
        wide = np.array([lane.bits for lane in layout.lanes])[packages.lane]
        above = np.array([lane.package_bits for lane in layout.lanes])[packages.lane]
        places = int(above.max(initial=0)) // LIMB_BITS + self.width // 4 + 2
        limbs = np.zeros((len(packages), places), np.int64)
        package = np.repeat(np.arange(len(packages)), packages.size)
        place = np.arange(len(package)) - np.repeat(
            np.cumsum(packages.size) - packages.size, packages.size
        )
        sums = limbs_of(ciphertexts.each[packages.members(len(layout.lanes))])
        _add_shifted(sums, place * wide[package], package, limbs)
        if masks is not None:
            self._check_knows()
            added = layout.packed(masks, packages)
            limbs[:, : added.shape[1] // 4] += limbs_of(added)
            limbs[:, added.shape[1] // 4] -= added[:, 0] >> 7  # of negative ones
        if self._headroom:
            drawn = _draw_blinding(self.plaintext_bits - above)
            _add_shifted(drawn, above, np.arange(len(packages)), limbs)
        return seal_released(self._numbers(limbs))

    def _check_knows(self) -> None:
        """Raise a ConfigError if a number that the host knows is no ciphertext."""
        if not self._headroom:
            raise ConfigError(
                "the encryption scheme cannot multiply or add numbers that the host knows",
                todo="take paillier or okamoto-uchiyama",
            )

    @property
    def _wraps_itself(self) -> bool:
        """Whether the bytes' own overflow is the reduction."""
        return self.modulus == 1 << (8 * self.width)

    def _reduced(self, sums: Limbs, lanes: int) -> Ciphertexts:
        """Return sums of limbs, modulo the key's number."""
        each = self._numbers(sums.reshape(-1, self.width // 4))
        return Ciphertexts(each.reshape(-1, lanes, self.width))

    def _numbers(self, limbs: Limbs) -> ByteArray:
        """Return the numbers in limbs (n, any), modulo the key's number."""
        if self._wraps_itself:
            return bytes_of(limbs, self.width)
        wide = integers(bytes_of(limbs, 4 * limbs.shape[1] + SPARE_BYTES), signed=True)
        return rows_of([value % self.modulus for value in wide], self.width)


class ResidueSecret(Protocol):
    """The private operations of a key's owner on numbers; for `plain`, none."""

    @property
    def modulus(self) -> int:
        """The modulus, above all ciphertexts."""

    @property
    def plaintext_bits(self) -> int:
        """Bits of a plaintext: any number below 2^plaintext_bits can be encrypted."""

    def encrypt(self, fields: ByteArray, width: int) -> ByteArray:
        """Return signed plaintexts as ciphertexts, uint8 (n, width)."""

    def decrypt(self, data: ByteArray) -> ByteArray | None:
        """Return ciphertexts as plaintexts in two's complement; None if one is no ciphertext."""

    def public_bytes(self) -> bytes:
        """Return the public key for a host."""

    def to_bytes(self) -> bytes:
        """Return the secret, for the party's own sealed store."""


class ResiduePrivate:
    """The guest's side: the key's owner."""

    def __init__(self, secret: ResidueSecret) -> None:
        self._secret = secret
        self.width = residue_bytes(secret.modulus)
        self.plaintext_bits = secret.plaintext_bits

    def public_bytes(self) -> bytes:
        """Return the public key for a host, as `load_public` reads it."""
        return self._secret.public_bytes()

    def encrypt(
        self, gh: Sums, layout: Layout, secrets: Secrets | None = None
    ) -> Iterator[Encrypted]:
        """Yield encryptions of the rows, as consecutive blocks; see `api.PrivateKey`."""
        del secrets  # nothing is drawn
        layout.check_values(gh)
        return self._encrypted_blocks(gh, layout)

    def _encrypted_blocks(self, gh: Sums, layout: Layout) -> Iterator[Encrypted]:
        most = layout.block_rows(self.width)
        for cut in even_slices(len(gh), 1, min(16, most), most):
            yield seal_encrypted(self._secret.encrypt(layout.row_plaintexts(gh[cut]), self.width))

    def decrypt(self, packages: Ciphertexts, layout: Layout, counts: Sequence[int]) -> Sums:
        """Return the sums in a host's packages, int64 (sum(counts),
        columns); see `api.PrivateKey`.
        """
        check_packages(packages, layout, counts, self.width)
        plaintexts = self._secret.decrypt(packages.each)
        sums = None if plaintexts is None else layout.unpack_sums(plaintexts, counts)
        if sums is None:
            raise PeerError("a number does not unpack into the declared range")
        return sums

    def to_bytes(self) -> bytes:
        """Return the secret key, for the party's own sealed store."""
        return self._secret.to_bytes()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({8 * self.width} bits a ciphertext, hidden)"


def residue_bytes(modulus: int) -> int:
    """Return the width of a number below the modulus: a multiple of 4 bytes."""
    return ((modulus - 1).bit_length() + 31) // 32 * 4


@kernel
def _add_rows(values: Limbs, cells: NDArray[np.int32], sums: Limbs) -> None:
    """Add values[i] to sums[cells[i, j]] for every j; negative cells skip."""
    for i in range(cells.shape[0]):
        for j in range(cells.shape[1]):
            cell = cells[i, j]
            if cell >= 0:
                for limb in range(values.shape[1]):
                    sums[cell, limb] += values[i, limb]


@kernel
def _add_shifted(
    values: Limbs, shifts: NDArray[np.int64], into: NDArray[np.int64], sums: Limbs
) -> None:
    """Add values[i] · 2^shifts[i] to sums[into[i]], which has a spare limb for the carries."""
    for i in range(len(values)):
        first, within = shifts[i] // LIMB_BITS, shifts[i] % LIMB_BITS
        low = (1 << (LIMB_BITS - within)) - 1
        for limb in range(values.shape[1]):
            sums[into[i], first + limb] += (values[i, limb] & low) << within
            sums[into[i], first + limb + 1] += values[i, limb] >> (LIMB_BITS - within)


def _draw_blinding(bits: NDArray[np.int64]) -> Limbs:
    """Return a number from 1 to 2^bits[i] − 1 for each of `bits`, each as
    likely, from the system.
    """
    places = -(-int(bits.max(initial=1)) // LIMB_BITS)
    held = np.clip(bits[:, None] - LIMB_BITS * np.arange(places), 0, LIMB_BITS)
    data = np.frombuffer(secrets.token_bytes(4 * held.size), np.uint32).reshape(held.shape)
    drawn: Limbs = data & ((1 << held) - 1)
    zeros = ~drawn.any(axis=1)
    if zeros.any():
        others = _draw_blinding(bits[zeros])
        drawn[zeros, : others.shape[1]] = others
    return drawn
