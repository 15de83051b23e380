"""What encrypted training must at least cost: primitives counted, and their price in bare loops.

Nothing here is shared with `fedboost.crypto`: the counts come from the finished trees and the
table, the prices from a small Paillier of its own, timed in bare gmpy2 loops on all cores at once.
"""

from __future__ import annotations

import multiprocessing
import os
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from multiprocessing.synchronize import Barrier
from typing import Any

import gmpy2
import numpy as np
from gmpy2 import mpz
from numpy.typing import NDArray

from benchmarks.harness import cores
from fedboost.core import binning
from fedboost.core.gradient_bits import BITS_ENCRYPTED
from fedboost.flow import Artefact
from fedboost.model import vertical

HEADROOM_BITS = 41  # of a package, kept free for blinding
EXPONENT_SLACK_BITS = 160  # a blinding's exponents are this much longer than the key
BLIND_WINDOW = 8  # digits of this many bits; one byte
BATCH, COPIES = 1024, 16  # numbers of a batch, and batches of rows that are added up
BARRIER_S = 300.0


@dataclass(frozen=True)
class Counts:
    """How often each primitive is needed."""

    encryptions: int = 0  # one a training row and tree
    additions: int = 0  # one a row of the smaller child (all rows at the root) and host column
    subtractions: int = 0  # one a cell of the larger child
    prefix_sums: int = 0  # running sums over bins, and adding the missing rows to them
    shifts: int = 0  # one a candidate, but for the first of each package
    blindings: int = 0  # one a package
    decryptions: int = 0  # one a package

    def __add__(self, other: Counts) -> Counts:
        return Counts(
            **{f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(self)}
        )


NAMES = tuple(field.name for field in fields(Counts))


@dataclass(frozen=True)
class Packing:
    """Bits of one packed (G, H) sum, and how many a ciphertext takes."""

    h_bits: int
    capacity: int

    @property
    def field_bits(self) -> int:
        """A signed G and an unsigned H."""
        return 2 * self.h_bits + 1

    @classmethod
    def for_rows(cls, rows: int, key_bits: int) -> Packing:
        """With the bits that gradients have by default."""
        h_bits = (rows << BITS_ENCRYPTED).bit_length()
        return cls(h_bits, (key_bits - 1 - HEADROOM_BITS) // (2 * h_bits + 1))


@dataclass(frozen=True, eq=False)
class HostTable:
    """A host's training rows: bins per column int (columns,), and which values are missing."""

    bins: NDArray[np.int64]
    missing: NDArray[np.bool_]  # (n, columns)

    @classmethod
    def of(cls, values: NDArray[np.float32], max_bin: int) -> HostTable:
        """Of the training rows' values, float32 (n, columns), NaN where missing."""
        return cls(binning.fit(values, max_bin).n_bins.astype(np.int64), np.isnan(values))


@dataclass(frozen=True)
class Layers:
    """Which nodes a job opens."""

    max_depth: int
    min_child_weight: float


def tree_rows(
    guest: Artefact, host: Artefact, host_name: str, values: NDArray[np.float32]
) -> list[dict[int, tuple[NDArray[np.int64], float]]]:
    """For each tree, every node's rows and its hessian sum, by heap id.

    `values` float32 (n, columns) hold the guest's columns, then the host's.
    """
    whole = vertical.join_shards(guest, {host_name: host})
    arrays = whole.arrays
    place = {
        key: i
        for i, key in enumerate(zip(arrays["tree"].tolist(), arrays["node"].tolist(), strict=True))
    }
    trees: list[dict[int, tuple[NDArray[np.int64], float]]] = []
    for tree in range(guest.facts["trees"]):
        rows = {0: np.arange(len(values))}
        found = {}
        for node in sorted(n for t, n in place if t == tree):  # parents before children
            i, own = place[tree, node], rows[node]
            found[node] = (own, float(arrays["cover"][i]))
            if arrays["owner"][i] == vertical.LEAF:
                continue
            x = values[own, arrays["feature"][i]]
            right = np.where(np.isnan(x), ~arrays["missing_left"][i], ~(x < arrays["threshold"][i]))
            rows[2 * node + 1], rows[2 * node + 2] = own[~right], own[right]
        trees.append(found)
    return trees


def count_tree(
    nodes: dict[int, tuple[NDArray[np.int64], float]],
    layers: Layers,
    host: HostTable,
    capacity: int,
) -> Counts:
    """What one tree needs; `nodes` as `tree_rows` gives them."""
    opened = opened_nodes(nodes, layers)
    total = Counts(encryptions=len(nodes[0][0]))
    for node in added_nodes(nodes, opened):
        total += Counts(additions=len(nodes[node][0]) * len(host.bins))
    for node in opened:
        rows = nodes[node][0]
        missing = host.missing[rows].any(axis=0)
        # Without missing rows the last bin's sum is the node's, which is no candidate.
        running = int((host.bins - 2 + missing).clip(0).sum())
        candidates = int(np.where(missing, 2 * host.bins - 1, host.bins - 1).sum())
        packages = -(-candidates // capacity)
        total += Counts(
            prefix_sums=running + int((host.bins[missing] - 1).sum()),
            shifts=candidates - packages,
            blindings=packages,
            decryptions=packages,
        )
        if node not in added_nodes(nodes, [node]):
            parents = nodes[(node - 1) // 2][0]
            cells = int(host.bins.sum()) + int(host.missing[parents].any(axis=0).sum())
            total += Counts(subtractions=cells)
    return total


def opened_nodes(nodes: dict[int, tuple[NDArray[np.int64], float]], layers: Layers) -> list[int]:
    """The root, and below it, above the last layer, every node that two children could fit into."""
    least = 2 * layers.min_child_weight
    return [
        node
        for node, (_, cover) in sorted(nodes.items())
        if node == 0 or ((node + 1).bit_length() <= layers.max_depth and cover >= least)
    ]


def added_nodes(
    nodes: dict[int, tuple[NDArray[np.int64], float]], opened: Sequence[int]
) -> set[int]:
    """For each opened node the smaller of it and its sibling, whose rows are added up."""
    added = set()
    for node in opened:
        pair = [node, node + 1 if node % 2 else node - 1] if node else [0]
        added.add(min(pair, key=lambda one: (len(nodes[one][0]), one)))
    return added


class Mini:
    """Paillier with generator n + 1: c = (1 + m·n)·r^n mod n²; encrypts and decrypts by p and q."""

    def __init__(self, p: int, q: int, window: int = 12) -> None:
        assert window == 12  # `_digits` cuts three bytes in two
        self.p, self.q = mpz(p), mpz(q)
        self.n = self.p * self.q
        self.n2 = self.n * self.n
        self.p2, self.q2 = self.p * self.p, self.q * self.q
        self.window = window
        self._q2_inverse = gmpy2.invert(self.q2, self.p2)
        self._p_inverse = gmpy2.invert(self.p, self.q)
        self._factor_p = gmpy2.invert((self.p - 1) * self.q % self.p, self.p)
        self._factor_q = gmpy2.invert((self.q - 1) * self.p % self.q, self.q)
        self._rows_p = _table(self._residue(self.p), self.p2, p.bit_length(), window)
        self._rows_q = _table(self._residue(self.q), self.q2, q.bit_length(), window)
        bits = int(self.n).bit_length() + EXPONENT_SLACK_BITS
        # Powers of one base, which take as long as those of as many bases.
        self._blind_rows = _table(self._nth(), self.n2, bits, BLIND_WINDOW)

    @classmethod
    def fresh(cls, key_bits: int) -> Mini:
        """With a new key of exactly so many bits."""
        return cls(*new_primes(key_bits))

    def encrypt(self, plaintexts: Sequence[int]) -> list[mpz]:
        """One fresh ciphertext each."""
        n, p2, q2, back = self.n, self.p2, self.q2, self._q2_inverse
        at_p = self._powers(self._rows_p, p2, int(self.p) - 1, len(plaintexts))
        at_q = self._powers(self._rows_q, q2, int(self.q) - 1, len(plaintexts))
        found = []
        for m, r_p, r_q in zip(plaintexts, at_p, at_q, strict=True):
            c = 1 + m * n
            c_p, c_q = c * r_p % p2, c * r_q % q2
            found.append(c_q + q2 * ((c_p - c_q) * back % p2))
        return found

    def decrypt(self, ciphertext: mpz) -> mpz:
        """The plaintext in 0..n−1."""
        p, q = self.p, self.q
        m_p = (gmpy2.powmod(ciphertext % self.p2, p - 1, self.p2) - 1) // p * self._factor_p % p
        m_q = (gmpy2.powmod(ciphertext % self.q2, q - 1, self.q2) - 1) // q * self._factor_q % q
        return m_p + p * ((m_q - m_p) * self._p_inverse % q)

    def subtract(self, a: Sequence[mpz], b: Sequence[mpz]) -> list[mpz]:
        """a[i] − b[i], with one inverse for all."""
        n2 = self.n2
        ahead = [mpz(1)]
        for x in b:
            ahead.append(ahead[-1] * x % n2)
        inverse = gmpy2.invert(ahead[-1], n2)
        found = []
        for i in range(len(b) - 1, -1, -1):
            found.append(a[i] * (inverse * ahead[i] % n2) % n2)
            inverse = inverse * b[i] % n2
        return found[::-1]

    def blind(self, ciphertexts: Sequence[mpz], above: int) -> list[mpz]:
        """The same plaintexts modulo 2^above: fresh factors, and noise above those bits."""
        n, n2 = self.n, self.n2
        most = int(n >> above) - 1
        width = len(self._blind_rows)
        powers = [mpz(1)] * len(ciphertexts)
        digits = np.frombuffer(os.urandom(width * len(powers)), np.uint8).reshape(width, -1)
        for row, chosen in zip(self._blind_rows, digits.tolist(), strict=True):
            powers = [x * row[d] % n2 for x, d in zip(powers, chosen, strict=True)]
        found = []
        for c, power in zip(ciphertexts, powers, strict=True):
            noise = 1 + (mpz(1 + secrets.randbelow(most)) << above) * n
            found.append(c * noise % n2 * power % n2)
        return found

    def _residue(self, prime: mpz) -> mpz:
        """A random n-th residue modulo prime², which is a prime-th one."""
        return gmpy2.powmod(2 + secrets.randbelow(int(prime) - 3), prime, prime * prime)

    def _nth(self) -> mpz:
        return gmpy2.powmod(2 + secrets.randbelow(int(self.n) - 3), self.n, self.n2)

    def _powers(self, rows: list[list[mpz]], modulus: mpz, below: int, count: int) -> list[mpz]:
        """Random powers of a table's base, window after window: its entries stay in cache."""
        found = [mpz(1)] * count
        for row, digits in zip(rows, self._digits(below, len(rows), count), strict=True):
            found = [x * row[d] % modulus for x, d in zip(found, digits, strict=True)]
        return found

    @staticmethod
    def _digits(below: int, windows: int, count: int) -> list[list[int]]:
        """Digits of 12 bits of `count` random exponents below `below`, a list for each window."""
        width = -(-windows // 2) * 3
        raw = b"".join([secrets.randbelow(below).to_bytes(width, "little") for _ in range(count)])
        data = np.frombuffer(raw, np.uint8).reshape(count, width // 3, 3).astype(np.int64)
        low = data[:, :, 0] | (data[:, :, 1] & 15) << 8
        high = data[:, :, 1] >> 4 | data[:, :, 2] << 4
        both = np.stack([low, high], axis=2).reshape(count, -1)[:, :windows]
        digits: list[list[int]] = both.T.tolist()
        return digits


def _table(base: mpz, modulus: mpz, exponent_bits: int, window: int) -> list[list[mpz]]:
    rows = []
    for _ in range(-(-exponent_bits // window)):
        row = [mpz(1)]
        for _ in range((1 << window) - 1):
            row.append(row[-1] * base % modulus)
        rows.append(row)
        base = row[-1] * base % modulus
    return rows


def new_primes(key_bits: int) -> tuple[int, int]:
    """Two random primes whose product has exactly `key_bits` bits."""
    half = key_bits // 2
    while True:
        p, q = (gmpy2.next_prime(mpz(3) << half - 2 | secrets.randbits(half - 2)) for _ in "pq")
        if p != q and (p * q).bit_length() == key_bits:
            return int(p), int(q)


Batch = Callable[[], int]  # does a batch of one primitive and says how many that were


def batches(
    mini: Mini, packing: Packing, columns: int, bins: int, copies: int = COPIES
) -> dict[str, Batch]:
    """A batch of each primitive, on ciphertexts as scattered in memory as a job's."""
    n2, draw = mini.n2, np.random.default_rng(1)
    plaintexts = [secrets.randbits(packing.field_bits - 1) for _ in range(BATCH)]
    rows = [c for _ in range(copies) for c in mini.encrypt(plaintexts)]
    cells = (draw.integers(0, bins, (len(rows), columns)) + bins * np.arange(columns)).tolist()
    sums = rows[: bins * columns]
    shift = mpz(1) << packing.field_bits
    halves = rows[:BATCH], rows[BATCH : 2 * BATCH]
    above = packing.capacity * packing.field_bits

    def additions() -> int:
        for value, own in zip(rows, cells, strict=True):
            for cell in own:
                sums[cell] = sums[cell] * value % n2
        return len(rows) * columns

    def prefix_sums() -> int:
        total = mpz(1)
        running = []
        for value in rows:
            total = total * value % n2
            running.append(total)
        return len(running)

    def shifts() -> int:
        package = mpz(1)
        for value in rows[:BATCH]:
            package = gmpy2.powmod(package, shift, n2) * value % n2
        return BATCH

    return {
        "encryptions": lambda: len(mini.encrypt(plaintexts)),
        "additions": additions,
        "subtractions": lambda: len(mini.subtract(*halves)),
        "prefix_sums": prefix_sums,
        "shifts": shifts,
        "blindings": lambda: len(mini.blind(rows[:256], above)),
        "decryptions": lambda: len([mini.decrypt(c) for c in rows[:64]]),
    }


_held: list[Any] = []  # in a pricing process: its batches and the barrier of all


def _prepare(
    primes: tuple[int, int], shape: tuple[Packing, int, int, int], barrier: Barrier
) -> None:
    _held[:] = [batches(Mini(*primes), *shape), barrier]


def _price(least_s: float) -> dict[str, tuple[int, float]]:
    """Of each primitive, how many were done in how many CPU seconds; all cores do the same."""
    todo, barrier = _held
    measured = {}
    for name in NAMES:
        barrier.wait(BARRIER_S)
        done, started = 0, time.process_time()
        while time.process_time() - started < least_s:
            done += todo[name]()
        measured[name] = (done, time.process_time() - started)
    return measured


def prices(
    packing: Packing, columns: int, bins: int, least_s: float = 0.5, copies: int = COPIES
) -> dict[str, float]:
    """CPU seconds of each primitive, each timed for `least_s` on all cores at once."""
    processes = cores()
    context = multiprocessing.get_context("spawn")
    given = (new_primes(2048), (packing, columns, bins, copies), context.Barrier(processes))
    with context.Pool(processes, _prepare, given) as pool:
        measured = pool.map(_price, [least_s] * processes, chunksize=1)
    return {
        name: sum(one[name][1] for one in measured) / sum(one[name][0] for one in measured)
        for name in NAMES
    }


def cost(counts: Counts, each_s: dict[str, float]) -> dict[str, float]:
    """CPU seconds of all primitives by name, at `each_s` seconds each."""
    return {name: number * each_s[name] for name, number in asdict(counts).items()}
