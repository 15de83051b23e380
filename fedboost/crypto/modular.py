"""Keys whose ciphertexts multiply, on whole arrays: shared code of Paillier and Okamoto-Uchiyama.

The host's side adds, subtracts and releases; the guest's side encrypts and decrypts. Sums,
packages and encryption run in threads (`montgomery`), the rest on gmpy2 in worker processes.

`release` has limits (SECURITY.md, section 2). A guest that fills plaintext bits above the declared
package reads at most the topmost 40 bits' worth of the blinding range, and its plaintexts' bits
above the range that the scheme promises to all (none for Paillier, a few for Okamoto-Uchiyama).
Inside a package fields are neighbours: a guest that lets one field overflow reads it in the next,
so the most it can read from a package is the package's declared width in bits, as with gradients
chosen inside their own width. `GhLayout.compress=False` gives every sum a separate headroom.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedboost.crypto import blinding
from fedboost.crypto import modular_kernels as kernels
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
from fedboost.crypto.limbs import ByteArray
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
from fedboost.ground.errors import PeerError
from fedboost.ground.workers import Pending, Serial, Workers, even_slices

SUM_ROWS_MAX = 1 << 15  # rows a task: their products stay near 40 MB at 2048 bits
SCALE_MAX = 512  # ciphertexts a block: 0.2 s of a worker
DRAWN_FOR_WORKERS = 8  # blocks of rows whose encryption can be made again
OUT_OF_RANGE = "a ciphertext does not decrypt into the declared range"


class ModularPublic:
    """A host's side: sums of encrypted numbers."""

    def __init__(self, key: kernels.ModularKey, workers: Workers, proof: bytes = b"") -> None:
        """Begin with a key already checked; a scheme's `load_public` reads and checks a peer's."""
        self.key = key
        self.workers = workers
        self.width = kernels.ciphertext_bytes(key)
        self.plaintext_bits = key.plaintext_space.bit_length() - 1
        self._proof = proof

    def to_bytes(self) -> bytes:
        """Return the key with its proof, as it was received."""
        return self._proof

    def __reduce__(self) -> tuple[Any, ...]:
        return ModularPublic, (self.key, Serial())  # elsewhere without these workers

    def check(self, ciphertexts: Ciphertexts) -> None:
        """Raise a PeerError unless every one is of this key's width,
        below its modulus and a unit.
        """
        if ciphertexts.width != self.width:
            raise PeerError(
                f"expected ciphertexts of {self.width} bytes, got {ciphertexts.width} bytes"
            )
        each = ciphertexts.each
        cuts = even_slices(len(each), self.workers.count, 64, 4096)
        tasks = [(self.key, each[cut]) for cut in cuts]
        if not all(self.workers.threads.map(kernels.are_units, tasks)):
            raise PeerError("a ciphertext is out of range or shares a factor with the key")

    def segment_sum(
        self,
        held: Ciphertexts,
        rows: NDArray[np.integer],
        cells: NDArray[np.int32],
        n_cells: int,
    ) -> Ciphertexts:
        """Add row `rows[i]` into each cell of `cells[i]`; see `api.Adder`.

        Lane after lane, the workers take blocks of rows. Each converts a row once, adds rows that
        share cells once (`joint_sums`), and gives the cells it touched; these are added up by
        ranges of cells.
        """
        check_cells(rows, cells, n_cells)
        sums = np.zeros((n_cells, held.lanes, self.width), dtype=np.uint8)
        sums[:, :, -1] = 1
        if cells.size:
            # Rows of one node lie together then, and few blocks touch its cells.
            order = np.argsort(cells.max(axis=1), kind="stable")
            for lane in range(held.lanes):
                tasks = [
                    (self.key, held.data[rows[order[cut]], lane], cells[order[cut]])
                    for cut in self._row_cuts(len(rows))
                ]
                parts = self.workers.threads.map(kernels.sum_rows, tasks)
                cell, data = self._sum_parts(parts)
                sums[cell, lane] = data
        return Ciphertexts(sums)

    def add(self, a: Ciphertexts, b: Ciphertexts) -> Ciphertexts:
        """Return a[i] + b[i]."""
        return self._map_pairs(kernels.add_pairs, a, b)

    def subtract(self, a: Ciphertexts, b: Ciphertexts) -> Ciphertexts:
        """Return a[i] − b[i]."""
        return self._map_pairs(kernels.subtract_pairs, a, b)

    def scale(self, ciphertexts: Ciphertexts, factors: NDArray[np.int64]) -> Ciphertexts:
        """Return factors[i] · ciphertexts[i] in all lanes; see `api.PublicKey`."""
        check_factors(ciphertexts, factors)
        each, each_factor = ciphertexts.each, np.repeat(factors, ciphertexts.lanes)
        cuts = even_slices(len(each), self.workers.count, 8, SCALE_MAX)
        parts = self.workers.map(
            kernels.scale_each, [(self.key, each[cut], each_factor[cut]) for cut in cuts]
        )
        return ciphertexts.from_single(self._join_arrays(parts))

    def prefix_sums(self, cells: Ciphertexts, offsets: NDArray[np.integer]) -> Ciphertexts:
        """Return running sums within each segment of cells; see `api.Adder`."""
        lengths = np.tile(check_segments(cells, offsets), cells.lanes)
        ends = np.cumsum(lengths)
        by_lane = cells.data.swapaxes(0, 1).reshape(-1, self.width)
        tasks = []
        for cut in even_slices(len(lengths), self.workers.count, 1, 1 << 12):
            data = by_lane[ends[cut.start] - lengths[cut.start] : ends[cut.stop - 1]]
            tasks.append((self.key, data, lengths[cut]))
        sums = self._join_arrays(self.workers.map(kernels.running_sums, tasks))
        return Ciphertexts(sums.reshape(cells.lanes, -1, self.width).swapaxes(0, 1))

    def sum_pairs(self, pairs: Pairs[Ciphertexts]) -> Ciphertexts:
        """Return the sums of the pairs."""
        return sums_of_pairs(self, pairs)

    def blinders(self) -> BlinderPool:
        """Return a new pool of random n-th powers."""
        return BlinderPool(self.key, self.workers)

    def release(
        self,
        ciphertexts: Ciphertexts,
        layout: Layout,
        blinders: Blinders,
        counts: Sequence[int] | None = None,
        masks: Masks | None = None,
    ) -> BlindedPackages:
        """Return compressed and blinded packages, the only way out; see `api.PublicKey`."""
        packages = check_released(ciphertexts, layout, self.plaintext_bits, counts, masks)
        held = ciphertexts.each[packages.members(len(layout.lanes))]
        widths = [(lane.bits, lane.package_bits) for lane in layout.lanes]
        factors = blinders.take(len(packages))
        added = None if masks is None else layout.packed(masks, packages)
        ends = np.concatenate([[0], np.cumsum(packages.size)])
        tasks = []
        for cut in even_slices(len(packages), self.workers.count, 32, 256):
            data = held[ends[cut.start] : ends[cut.stop]]
            room = [widths[lane] for lane in packages.lane[cut]]
            above = None if added is None else added[cut]
            tasks.append((self.key, data, packages.size[cut].tolist(), room, factors[cut], above))
        parts = self.workers.threads.map(kernels.release_packages, tasks)
        return seal_released(self._join_arrays(parts))

    def _row_cuts(self, rows: int) -> list[slice]:
        """Return even blocks of rows; their number is a multiple of the workers'."""
        count = self.workers.count
        each = count * -(-rows // (count * SUM_ROWS_MAX))
        ends = [rows * i // each for i in range(each + 1)]
        return [slice(start, stop) for start, stop in pairwise(ends) if stop > start]

    def _sum_parts(
        self, parts: Sequence[tuple[NDArray[np.int64], ByteArray]]
    ) -> tuple[NDArray[np.int64], ByteArray]:
        """Return the cells that any block touched, and one ciphertext for each."""
        touched = np.concatenate([part[0] for part in parts])
        order = np.argsort(touched, kind="stable")
        data = np.concatenate([part[1] for part in parts])[order]
        cell, lengths = np.unique(touched, return_counts=True)
        return cell, self._sum_runs(data, lengths)

    def _sum_runs(self, data: ByteArray, lengths: NDArray[np.int64]) -> ByteArray:
        """Return one ciphertext for each run of `data`; runs of one stay as they are."""
        ends = np.cumsum(lengths)
        sums = data[ends - lengths]
        several = np.flatnonzero(lengths > 1)
        tasks = []
        for cut in even_slices(len(several), self.workers.count, 64, 4096):
            chosen = several[cut]
            within = np.concatenate([np.arange(ends[i] - lengths[i], ends[i]) for i in chosen])
            tasks.append((self.key, data[within], lengths[chosen]))
        sums[several] = self._join_arrays(self.workers.threads.map(kernels.sum_runs, tasks))
        return sums

    def _map_pairs(self, kernel: kernels.PairKernel, a: Ciphertexts, b: Ciphertexts) -> Ciphertexts:
        check_pairs(a, b)
        x, y = a.each, b.each
        cuts = even_slices(len(x), self.workers.count, 64, 4096)
        parts = self.workers.map(kernel, [(self.key, x[cut], y[cut]) for cut in cuts])
        return a.from_single(self._join_arrays(parts))

    def _join_arrays(self, parts: Sequence[ByteArray]) -> ByteArray:
        empty = np.empty((0, self.width), dtype=np.uint8)
        return np.concatenate([empty, *parts])


class BlinderPool:
    """Random n-th powers, made in the background; each is given once."""

    BLOCK = 128  # factors a task: 40 ms of a worker, so that other work gets its turn

    def __init__(self, key: kernels.ModularKey, workers: Workers) -> None:
        self._key = key
        self._workers = workers
        self._ready = np.empty((0, kernels.ciphertext_bytes(key)), dtype=np.uint8)
        self._coming: deque[tuple[int, Pending[ByteArray]]] = deque()

    def prepare(self, count: int) -> None:
        """Start making `count` factors in the background, and return at once."""
        lacking = count - len(self._ready) - sum(size for size, _ in self._coming)
        for cut in even_slices(max(lacking, 0), self._workers.count, 1, self.BLOCK):
            size = cut.stop - cut.start
            made = self._workers.threads.submit(blinding.make_blinders, self._key, size)
            self._coming.append((size, made))

    def take(self, count: int) -> NDArray[np.uint8]:
        """Return `count` factors, uint8 (count, width), each of them for the first time; wait until
        they are made.
        """
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
        return f"BlinderPool({len(self._ready)} ready)"


class ModularPrivate:
    """The guest's side: the key's owner."""

    def __init__(self, secret: kernels.ModularSecret, workers: Workers) -> None:
        self._secret = secret
        self.workers = workers
        self.width = kernels.ciphertext_bytes(secret.key)
        self.plaintext_bits = secret.key.plaintext_space.bit_length() - 1

    def public_bytes(self) -> bytes:
        """Return the public key with its proof, as `load_public` reads it."""
        return self._secret.proved_key()

    def encrypt(
        self, gh: Sums, layout: Layout, secrets: Secrets | None = None
    ) -> Iterator[Encrypted]:
        """Yield fresh encryptions of the rows, as consecutive blocks; see `api.PrivateKey`.

        The workers are a few blocks ahead of the reader.
        """
        layout.check_values(gh)
        return self._encrypted_blocks(gh, layout, secrets)

    def _encrypted_blocks(
        self, gh: Sums, layout: Layout, secrets: Secrets | None
    ) -> Iterator[Encrypted]:
        coming: deque[Pending[ByteArray]] = deque()
        most = layout.block_rows(self.width)
        # Blocks that can be made again do not depend on the number of workers. Their draws are
        # bound to all rows: no other rows get the same numbers.
        share, own = self.workers.count, None
        if secrets is not None:
            digest = hashlib.sha256(np.ascontiguousarray(gh, "<i8").data).digest()
            share, own = DRAWN_FOR_WORKERS, secrets.child("rows", digest)
        for cut in even_slices(len(gh), share, min(16, most), most):
            fields = layout.row_plaintexts(gh[cut])
            key = None if own is None else own.derive("block", cut.start)
            coming.append(
                self.workers.threads.submit(kernels.encrypt_rows, self._secret, fields, key)
            )
            if len(coming) > 2 * self.workers.count:
                yield seal_encrypted(coming.popleft().result())
        while coming:
            yield seal_encrypted(coming.popleft().result())

    def decrypt(self, packages: Ciphertexts, layout: Layout, counts: Sequence[int]) -> Sums:
        """Return the sums in a host's packages, int64 (sum(counts),
        columns); see `api.PrivateKey`.
        """
        check_packages(packages, layout, counts, self.width)
        cuts = even_slices(len(packages), self.workers.count, 1, 256)
        tasks = [(self._secret, packages.each[cut]) for cut in cuts]
        parts = self.workers.map(kernels.decrypt_packages, tasks)
        done = [part for part in parts if part is not None]
        sums = None
        if len(done) == len(parts):
            empty = np.empty((0, kernels.plaintext_bytes(self._secret.key)), dtype=np.uint8)
            sums = layout.unpack_sums(np.concatenate([empty, *done]), counts)
        if sums is None:
            raise PeerError(OUT_OF_RANGE)
        return sums

    def to_bytes(self) -> bytes:
        """Return the secret key, for the party's own sealed store."""
        return self._secret.to_bytes()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({8 * self.width} bits a ciphertext, hidden)"
