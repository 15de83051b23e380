"""Paillier's encryption on whole arrays: keys from phe, arithmetic on gmpy2 in worker processes.

The host's side adds, subtracts and lets go; the guest's side encrypts and decrypts by Chinese
remainders. What the workers do is in `paillier_kernels` and `fixed_base`.

What `release` hides, and what not (SECURITY.md, section 2): a guest that fills plaintext bits above
the declared package reads nothing but, at most, the topmost 40 bits' worth of the blinding range.
Inside a package fields are neighbours: a guest that lets one field overflow reads it in the next,
so the most it can read from a package is the package's declared width in bits, as with gradients
chosen inside their own width. `GhLayout.compress=False` gives every sum headroom of its own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import pairwise

import gmpy2
import numpy as np
from gmpy2 import mpz
from numpy.typing import NDArray

from fedboost.crypto import fixed_base
from fedboost.crypto import paillier_kernels as kernels
from fedboost.crypto.api import (
    Blinders,
    Ciphertexts,
    Encrypted,
    Released,
    seal_encrypted,
    seal_released,
)
from fedboost.crypto.packing import GhLayout
from fedboost.crypto.paillier_keys import SecretPrimes, check_key_bits, prove, read_public
from fedboost.crypto.paillier_keys import generate as generate_primes
from fedboost.crypto.workers import Pending, Workers, blocks
from fedboost.errors import PeerError, ProtocolError

SUM_ROWS_MAX = 1 << 14  # rows a task: their products stay near 100 MB at 2048 bits
ENCRYPT_ROWS_MAX = 1024  # rows a block: 0.4 s of a worker, half a megabyte
OUT_OF_RANGE = "a ciphertext does not decrypt into the declared range"


class PaillierPublic:
    """A host's side: sums without seeing."""

    def __init__(self, n: int, workers: Workers, proof: bytes = b"") -> None:
        """For a key already checked; `load_public` reads and checks what a peer sent."""
        self.n = n
        self.workers = workers
        self.width = kernels.ciphertext_bytes(n)
        self.plaintext_bits = n.bit_length() - 1
        self._proof = proof

    def to_bytes(self) -> bytes:
        """The key with its proof, as it was received."""
        return self._proof

    def check(self, ciphertexts: Ciphertexts) -> None:
        """A PeerError unless every one is of this key's width, in 1..n²−1 and a unit modulo n."""
        if ciphertexts.width != self.width:
            raise PeerError(
                f"expected ciphertexts of {self.width} bytes, got {ciphertexts.width} bytes"
            )
        cuts = blocks(len(ciphertexts), self.workers.count, 64, 4096)
        tasks = [(self.n, ciphertexts.data[cut]) for cut in cuts]
        if not all(self.workers.map(kernels.are_units, tasks)):
            raise PeerError("a ciphertext is out of range or shares a factor with the key")

    def segment_sum(
        self,
        ciphertexts: Ciphertexts,
        rows: NDArray[np.integer],
        cells: NDArray[np.int32],
        n_cells: int,
    ) -> Ciphertexts:
        """Adds ciphertext `rows[i]` into each cell of `cells[i]`; see `api.PublicKey`.

        The workers take blocks of rows. Each converts a row once, adds rows that share cells once
        (`joint_sums`), and gives the cells it touched; these are added up by ranges of cells.
        """
        if cells.ndim != 2 or len(rows) != len(cells) or (cells.size and cells.max() >= n_cells):
            raise ProtocolError(f"{len(rows)} rows do not go into {n_cells} cells by {cells.shape}")
        parts = []
        if cells.size:
            # Rows of one node lie together then, and few blocks touch its cells.
            order = np.argsort(cells.max(axis=1), kind="stable")
            tasks = [
                (self.n, ciphertexts.data[rows[order[cut]]], cells[order[cut]])
                for cut in self._row_cuts(len(rows))
            ]
            parts = self.workers.map(kernels.sum_rows, tasks)
        sums = np.zeros((n_cells, self.width), dtype=np.uint8)
        sums[:, -1] = 1
        if parts:
            touched = np.concatenate([part[0] for part in parts])
            order = np.argsort(touched, kind="stable")
            data = np.concatenate([part[1] for part in parts])[order]
            cell, lengths = np.unique(touched, return_counts=True)
            sums[cell] = self._sum_runs(data, lengths)
        return Ciphertexts(sums)

    def add(self, a: Ciphertexts, b: Ciphertexts) -> Ciphertexts:
        """a[i] + b[i]."""
        return self._pairs(kernels.add_pairs, a, b)

    def subtract(self, a: Ciphertexts, b: Ciphertexts) -> Ciphertexts:
        """a[i] − b[i]."""
        return self._pairs(kernels.subtract_pairs, a, b)

    def prefix_sums(self, cells: Ciphertexts, offsets: NDArray[np.integer]) -> Ciphertexts:
        """Running sums within each segment cells[offsets[s]:offsets[s + 1]]; see
        `api.PublicKey`.
        """
        lengths = np.diff(offsets).astype(np.int64)
        whole = len(offsets) and offsets[0] == 0 and offsets[-1] == len(cells)
        if not whole or (lengths < 0).any():
            raise ProtocolError(f"the segments do not span the {len(cells)} cells")
        tasks = []
        for cut in blocks(len(lengths), self.workers.count, 1, 1 << 12):
            data = cells.data[offsets[cut.start] : offsets[cut.stop]]
            tasks.append((self.n, data, lengths[cut]))
        return self._joined(self.workers.map(kernels.running_sums, tasks))

    def blinders(self) -> PaillierBlinders:
        """A new pool of random n-th residues modulo n²."""
        return PaillierBlinders(self.n, self.workers)

    def release(
        self,
        ciphertexts: Ciphertexts,
        layout: GhLayout,
        blinders: Blinders,
        counts: Sequence[int] | None = None,
    ) -> Released:
        """Compresses into packages and blinds them: the only way out; see `api.PublicKey`."""
        groups = [len(ciphertexts)] if counts is None else counts
        sizes = layout.package_sizes(groups)
        if sum(sizes) != len(ciphertexts) or layout.plaintext_bits > self.plaintext_bits:
            raise ProtocolError(f"{len(ciphertexts)} sums do not fill the declared packages")
        factors = blinders.take(len(sizes))
        ends = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
        tasks = []
        for cut in blocks(len(sizes), self.workers.count, 1, 64):
            data = ciphertexts.data[ends[cut.start] : ends[cut.stop]]
            tasks.append((self.n, data, sizes[cut], layout, factors[cut]))
        parts = self.workers.map(kernels.release_packages, tasks)
        return seal_released(self._joined(parts).data)

    def _row_cuts(self, rows: int) -> list[slice]:
        """Even blocks of rows, a multiple of the workers' number of them."""
        count = self.workers.count
        each = count * -(-rows // (count * SUM_ROWS_MAX))
        ends = [rows * i // each for i in range(each + 1)]
        return [slice(start, stop) for start, stop in pairwise(ends) if stop > start]

    def _sum_runs(self, data: kernels.Octets, lengths: NDArray[np.int64]) -> kernels.Octets:
        """One ciphertext for each run of `data`; runs of one are what they are."""
        ends = np.cumsum(lengths)
        sums = data[ends - lengths]
        several = np.flatnonzero(lengths > 1)
        tasks = []
        for cut in blocks(len(several), self.workers.count, 64, 4096):
            chosen = several[cut]
            within = np.concatenate([np.arange(ends[i] - lengths[i], ends[i]) for i in chosen])
            tasks.append((self.n, data[within], lengths[chosen]))
        sums[several] = self._joined(self.workers.map(kernels.sum_runs, tasks)).data
        return sums

    def _pairs(self, kernel: kernels.PairKernel, a: Ciphertexts, b: Ciphertexts) -> Ciphertexts:
        if len(a) != len(b):
            raise ProtocolError(f"{len(a)} and {len(b)} ciphertexts are no pairs")
        cuts = blocks(len(a), self.workers.count, 64, 4096)
        return self._joined(
            self.workers.map(kernel, [(self.n, a.data[cut], b.data[cut]) for cut in cuts])
        )

    def _joined(self, parts: Sequence[kernels.Octets]) -> Ciphertexts:
        empty = np.empty((0, self.width), dtype=np.uint8)
        return Ciphertexts(np.concatenate([empty, *parts]))


class PaillierBlinders:
    """Random n-th residues, made in the background; each is given once."""

    BLOCK = 32  # residues a task: 40 ms of a worker, so that other work gets its turn

    def __init__(self, n: int, workers: Workers) -> None:
        self._n = n
        self._workers = workers
        self._ready = np.empty((0, kernels.ciphertext_bytes(n)), dtype=np.uint8)
        self._coming: deque[tuple[int, Pending[kernels.Octets]]] = deque()

    def prepare(self, count: int) -> None:
        """Has at least `count` made ready in the background; returns at once."""
        lacking = count - len(self._ready) - sum(size for size, _ in self._coming)
        for cut in blocks(max(lacking, 0), self._workers.count, 1, self.BLOCK):
            size = cut.stop - cut.start
            made = self._workers.submit(fixed_base.make_blinders, self._n, size)
            self._coming.append((size, made))

    def take(self, count: int) -> NDArray[np.uint8]:
        """`count` residues never given before, uint8 (count, width); waits for those that lack."""
        self.prepare(count)
        parts = [self._ready]
        have = len(self._ready)
        while have < count:
            size, made = self._coming.popleft()
            parts.append(made.result())
            have += size
        together = np.concatenate(parts)
        self._ready = together[count:].copy()
        return together[:count]

    def __repr__(self) -> str:
        return f"PaillierBlinders({len(self._ready)} ready)"


class PaillierPrivate:
    """The guest's side: the key's owner."""

    def __init__(self, secret: SecretPrimes, workers: Workers) -> None:
        self._secret = secret
        self.workers = workers
        self.width = kernels.ciphertext_bytes(secret.n)
        self.plaintext_bits = secret.n.bit_length() - 1

    def public_bytes(self) -> bytes:
        """The public key with its proof, as `load_public` reads it."""
        return prove(self._secret)

    def encrypt(
        self, g: NDArray[np.int64], h: NDArray[np.int64], layout: GhLayout
    ) -> Iterator[Encrypted]:
        """Fresh encryptions of the rows' (g, h), as consecutive blocks; see `api.PrivateKey`.

        The workers are a few blocks ahead of whoever takes them.
        """
        layout.check_values(g, h)
        return self._stream(g, h, layout)

    def _stream(
        self, g: NDArray[np.int64], h: NDArray[np.int64], layout: GhLayout
    ) -> Iterator[Encrypted]:
        p, q = self._secret.p, self._secret.q
        coming: deque[Pending[kernels.Octets]] = deque()
        for cut in blocks(len(g), self.workers.count, 16, ENCRYPT_ROWS_MAX):
            coming.append(
                self.workers.submit(fixed_base.encrypt_rows, p, q, g[cut], h[cut], layout)
            )
            if len(coming) > 2 * self.workers.count:
                yield seal_encrypted(coming.popleft().result())
        while coming:
            yield seal_encrypted(coming.popleft().result())

    def decrypt(
        self, packages: Ciphertexts, layout: GhLayout, counts: Sequence[int]
    ) -> NDArray[np.int64]:
        """The sums (G, H) in a host's packages, int64 (sum(counts), 2); see `api.PrivateKey`."""
        sizes = layout.package_sizes(counts)
        if len(sizes) != len(packages) or packages.width != self.width:
            raise PeerError(
                f"expected {len(sizes)} packages of {self.width} bytes, "
                f"got {len(packages)} of {packages.width}"
            )
        tasks = [
            (self._secret.p, self._secret.q, packages.data[cut], sizes[cut], layout)
            for cut in blocks(len(sizes), self.workers.count, 1, 256)
        ]
        parts = self.workers.map(decrypt_packages, tasks)
        sums = [np.empty((0, 2), dtype=np.int64)]
        for part in parts:
            if part is None:
                raise PeerError(OUT_OF_RANGE)
            sums.append(part)
        return np.concatenate(sums)

    def to_bytes(self) -> bytes:
        """The two primes, for the party's own sealed store."""
        width = (self._secret.n.bit_length() + 15) // 16
        return b"".join(
            [prime.to_bytes(width, "big") for prime in (self._secret.p, self._secret.q)]
        )

    def __repr__(self) -> str:
        return f"PaillierPrivate({self._secret.n.bit_length()} bits, hidden)"


def decrypt_packages(
    p: int, q: int, data: kernels.Octets, sizes: Sequence[int], layout: GhLayout
) -> NDArray[np.int64] | None:
    """The sums in packages, int64 (sum(sizes), 2); None if one is no ciphertext or out of range."""
    at_p, at_q = (_Prime(mpz(p), mpz(q)), _Prime(mpz(q), mpz(p)))
    p_inverse = gmpy2.invert(mpz(p), mpz(q))
    n2 = (mpz(p) * mpz(q)) ** 2
    sums: list[tuple[int, int]] = []
    for ciphertext, size in zip(kernels.numbers(data), sizes, strict=True):
        if not 0 < ciphertext < n2 or ciphertext % p == 0 or ciphertext % q == 0:
            return None
        m_p, m_q = at_p.decrypt(ciphertext), at_q.decrypt(ciphertext)
        plaintext = int(m_p + p * ((m_q - m_p) * p_inverse % q))
        fields = layout.unpack(plaintext, size)
        if fields is None:
            return None
        sums += fields
    return np.array(sums, dtype=np.int64).reshape(-1, 2)


class _Prime:
    """Decryption modulo one of the two primes: m = L(c^(p−1) mod p²) / (−q) mod p."""

    def __init__(self, prime: mpz, other: mpz) -> None:
        self.prime, self.square = prime, prime * prime
        self.factor = gmpy2.invert(-other % prime, prime)

    def decrypt(self, ciphertext: mpz) -> mpz:
        """The plaintext modulo the prime."""
        power = gmpy2.powmod(ciphertext % self.square, self.prime - 1, self.square)
        return (power - 1) // self.prime * self.factor % self.prime


def generate(key_bits: int, workers: Workers) -> PaillierPrivate:
    """A fresh key of exactly `key_bits` bits; a ConfigError below 2048."""
    return PaillierPrivate(generate_primes(key_bits), workers)


def load_private(octets: bytes, workers: Workers) -> PaillierPrivate:
    """The key that `PaillierPrivate.to_bytes` wrote."""
    half = len(octets) // 2
    p, q = int.from_bytes(octets[:half], "big"), int.from_bytes(octets[half:], "big")
    return PaillierPrivate(SecretPrimes(p, q), workers)


def load_public(octets: bytes, key_bits: int, workers: Workers) -> PaillierPublic:
    """The key a peer sent; a PeerError unless it is sound and of exactly `key_bits` bits."""
    check_key_bits(key_bits)
    return PaillierPublic(read_public(octets, key_bits), workers, octets)
