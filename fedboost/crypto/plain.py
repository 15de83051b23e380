"""No encryption at all behind the schemes' interface: for tests, and for the cost of the rest.

A "ciphertext" is the number itself modulo 2^256, big-endian. Everything else (packing, packages,
headroom, the types) is as with a real scheme.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from fedboost.crypto.api import (
    Blinders,
    Ciphertexts,
    Encrypted,
    Released,
    seal_encrypted,
    seal_released,
)
from fedboost.crypto.packing import GhLayout
from fedboost.crypto.workers import Workers, blocks
from fedboost.errors import PeerError, ProtocolError

WIDTH = 32  # bytes
PLAINTEXT_BITS = 8 * WIDTH - 1
KEY = b"plain"
LIMBS = WIDTH // 4
ENCRYPT_ROWS_MAX = 1 << 16

Limbs = NDArray[np.int64]  # (n, LIMBS) 32-bit digits, least first, carries allowed


class PlainBlinders:
    """Nothing to hide with."""

    def prepare(self, count: int) -> None:
        """Nothing to prepare."""

    def take(self, count: int) -> NDArray[np.uint8]:
        """Zeros, uint8 (count, width)."""
        return np.zeros((count, WIDTH), dtype=np.uint8)


class PlainPublic:
    """A host's side, which sees everything."""

    width = WIDTH
    plaintext_bits = PLAINTEXT_BITS

    def to_bytes(self) -> bytes:
        """The name that stands for a key."""
        return KEY

    def check(self, ciphertexts: Ciphertexts) -> None:
        """A PeerError unless the width is right."""
        if ciphertexts.width != WIDTH:
            raise PeerError(f"expected numbers of {WIDTH} bytes, got {ciphertexts.width} bytes")

    def segment_sum(
        self,
        ciphertexts: Ciphertexts,
        rows: NDArray[np.integer],
        cells: NDArray[np.int32],
        n_cells: int,
    ) -> Ciphertexts:
        """Adds `ciphertexts[rows[i]]` into each cell of `cells[i]`; see `api.PublicKey`."""
        if cells.ndim != 2 or len(rows) != len(cells) or (cells.size and cells.max() >= n_cells):
            raise ProtocolError(f"{len(rows)} rows do not go into {n_cells} cells by {cells.shape}")
        values = np.ascontiguousarray(_limbs(ciphertexts.data[rows]).T)
        sums = np.zeros((LIMBS, n_cells), dtype=np.int64)
        for column in cells.T:
            used = column >= 0
            into = column[used]
            for limb in range(LIMBS):
                np.add.at(sums[limb], into, values[limb][used])
        return Ciphertexts(_octets(sums.T))

    def add(self, a: Ciphertexts, b: Ciphertexts) -> Ciphertexts:
        """a[i] + b[i]."""
        return Ciphertexts(_octets(_limbs(a.data) + _limbs(b.data)))

    def subtract(self, a: Ciphertexts, b: Ciphertexts) -> Ciphertexts:
        """a[i] − b[i]."""
        return Ciphertexts(_octets(_limbs(a.data) - _limbs(b.data)))

    def prefix_sums(self, cells: Ciphertexts, offsets: NDArray[np.integer]) -> Ciphertexts:
        """Running sums within each segment; see `api.PublicKey`."""
        lengths = np.diff(offsets)
        whole = len(offsets) and offsets[0] == 0 and offsets[-1] == len(cells)
        if not whole or (lengths < 0).any():
            raise ProtocolError(f"the segments do not span the {len(cells)} cells")
        running = np.cumsum(_limbs(cells.data), axis=0)
        before = np.concatenate([np.zeros((1, LIMBS), dtype=np.int64), running])[offsets[:-1]]
        return Ciphertexts(_octets(running - np.repeat(before, lengths, axis=0)))

    def blinders(self) -> PlainBlinders:
        """Nothing to hide with."""
        return PlainBlinders()

    def release(
        self,
        ciphertexts: Ciphertexts,
        layout: GhLayout,
        blinders: Blinders,
        counts: Sequence[int] | None = None,
    ) -> Released:
        """Packages with random headroom; see `api.PublicKey`."""
        sizes = layout.package_sizes([len(ciphertexts)] if counts is None else counts)
        if sum(sizes) != len(ciphertexts) or layout.plaintext_bits > self.plaintext_bits:
            raise ProtocolError(f"{len(ciphertexts)} sums do not fill the declared packages")
        blinders.take(len(sizes))
        numbers = iter(_numbers(ciphertexts.data))
        most = (1 << (PLAINTEXT_BITS - layout.package_bits)) - 1
        packages = []
        for size in sizes:
            package = (1 + secrets.randbelow(most)) << layout.package_bits
            for place in range(size):
                package += next(numbers) << (place * layout.n_bit)
            packages.append((package % (1 << (8 * WIDTH))).to_bytes(WIDTH, "big"))
        return seal_released(np.frombuffer(b"".join(packages), np.uint8).reshape(-1, WIDTH))


class PlainPrivate:
    """The guest's side."""

    width = WIDTH
    plaintext_bits = PLAINTEXT_BITS

    def public_bytes(self) -> bytes:
        """The name that stands for a key."""
        return KEY

    def encrypt(
        self, g: NDArray[np.int64], h: NDArray[np.int64], layout: GhLayout
    ) -> Iterator[Encrypted]:
        """The packed rows themselves, as consecutive blocks; see `api.PrivateKey`."""
        layout.check_values(g, h)
        return self._stream(g, h, layout)

    def _stream(
        self, g: NDArray[np.int64], h: NDArray[np.int64], layout: GhLayout
    ) -> Iterator[Encrypted]:
        for cut in blocks(len(g), 1, 16, ENCRYPT_ROWS_MAX):
            fields = layout.pack(g[cut], h[cut])
            joined = b"".join([field.to_bytes(WIDTH, "big", signed=True) for field in fields])
            yield seal_encrypted(np.frombuffer(joined, np.uint8).reshape(-1, WIDTH))

    def decrypt(
        self, packages: Ciphertexts, layout: GhLayout, counts: Sequence[int]
    ) -> NDArray[np.int64]:
        """The sums (G, H), int64 (sum(counts), 2); see `api.PrivateKey`."""
        sizes = layout.package_sizes(counts)
        if len(sizes) != len(packages) or packages.width != WIDTH:
            raise PeerError(f"expected {len(sizes)} packages of {WIDTH} bytes, got {packages!r}")
        sums: list[tuple[int, int]] = []
        for package, size in zip(_numbers(packages.data), sizes, strict=True):
            fields = layout.unpack(package % (1 << (8 * WIDTH)), size)
            if fields is None:
                raise PeerError("a number does not unpack into the declared range")
            sums += fields
        return np.array(sums, dtype=np.int64).reshape(-1, 2)

    def to_bytes(self) -> bytes:
        """The name that stands for a key."""
        return KEY


def generate(key_bits: int, workers: Workers) -> PlainPrivate:
    """A key of no bits; both arguments are for real schemes."""
    return PlainPrivate()


def load_private(octets: bytes, workers: Workers) -> PlainPrivate:
    """The key that `to_bytes` wrote."""
    return PlainPrivate()


def load_public(octets: bytes, key_bits: int, workers: Workers) -> PlainPublic:
    """The key a peer sent; a PeerError if that is another scheme's."""
    if octets != KEY:
        raise PeerError("expected no encryption key, for the plain scheme has none")
    return PlainPublic()


def _limbs(data: NDArray[np.uint8]) -> Limbs:
    return np.ascontiguousarray(data).view(">u4")[:, ::-1].astype(np.int64)


def _octets(limbs: Limbs) -> NDArray[np.uint8]:
    """The numbers modulo 2^256, carries and borrows passed on, uint8 (n, WIDTH)."""
    digits = np.empty((len(limbs), LIMBS), dtype=">u4")
    carry = np.zeros(len(limbs), dtype=np.int64)
    for limb in range(LIMBS):
        total = limbs[:, limb] + carry
        digits[:, LIMBS - 1 - limb] = total & 0xFFFFFFFF
        carry = total >> 32
    return digits.view(np.uint8)


def _numbers(data: NDArray[np.uint8]) -> list[int]:
    """The numbers, signed."""
    raw = np.ascontiguousarray(data).tobytes()
    return [
        int.from_bytes(raw[i : i + WIDTH], "big", signed=True) for i in range(0, len(raw), WIDTH)
    ]
