"""A batch of every operation of an encryption scheme, as a job does them (`counting_cipher`)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from fedboost.core import fixed_point
from fedboost.crypto.api import Ciphertexts, PrivateKey, PublicKey
from fedboost.crypto.lattice import parameters
from fedboost.crypto.lattice.answers import TreeKey
from fedboost.crypto.lattice.budget import Budget
from fedboost.crypto.lattice.cells import EncryptedRows, LatticeSums
from fedboost.crypto.lattice.decryption import decrypt
from fedboost.crypto.lattice.parameters import LatticeParameters
from fedboost.crypto.lattice.polynomials import DIGEST_BYTES, NONCE_BYTES, Origin, TreePolynomials
from fedboost.crypto.lattice.secret import TreeSecret
from fedboost.crypto.packing import GhLayout
from fedboost.crypto.schemes import SCHEMES
from fedboost.crypto.secrets import Secrets
from fedboost.crypto.workers import Serial
from fedboost.runtime.estimate import counting_cipher as operations

Batch = Callable[[], float]  # does some of one primitive and says how many that were
Timed = Callable[[Batch], float]
Found = dict[str, float]

JOB_ROWS = 100_000  # whose sums are to fit
COPIES = 16  # of encrypted rows: sums read ciphertexts as scattered in memory as a job's
BINS, COLUMNS, OUTPUTS = 32, 3, 2
SPARSE = 20  # of so many rows one is in a node further down
CANDIDATES = 640  # enough that a host makes its blinding from tables, as in a job
MODULAR_ROWS, RING_ROWS = 256, 50_000


def measure(scheme: str, timed: Timed) -> Found:
    """The price of every operation of a scheme, ``NAME`` or ``NAME-BITS``; empty for others."""
    if scheme in parameters.BY_NAME:
        return {f"{scheme}: {op}": p for op, p in _ring(parameters.BY_NAME[scheme], timed)}
    name, _, bits = scheme.rpartition("-")
    if scheme in SCHEMES:
        name, bits = scheme, "0"
    if name not in SCHEMES or not bits.isdigit():
        return {}
    return {f"{scheme}: {op}": price for op, price in _modular(name, int(bits), timed)}


def _modular(name: str, bits: int, timed: Timed) -> Iterator[tuple[str, float]]:
    scheme = SCHEMES[name]
    key = scheme.generate(bits, Serial())
    public = scheme.load_public(key.public_bytes(), bits, Serial())
    layout = GhLayout(fixed_point.bits_for(JOB_ROWS), JOB_ROWS, key.plaintext_bits)
    batches = Operations(key, public, layout)
    started = time.process_time()
    batches.encrypted()
    first = time.process_time() - started
    price = timed(batches.encrypted)
    yield operations.ENCRYPT, price
    yield operations.START, max(0.0, first - MODULAR_ROWS * price)
    for operation, batch in batches.named():
        yield operation, timed(batch)


@dataclass(eq=False)
class Operations:
    """A batch of each operation under one key."""

    key: PrivateKey
    public: PublicKey
    layout: GhLayout

    def __post_init__(self) -> None:
        draw = np.random.default_rng(1)
        most = 1 << self.layout.value_bits
        self.gh = draw.integers(0, most, (MODULAR_ROWS, 2), dtype=np.int64)
        self.gh[:, 0] -= most // 2

    def encrypted(self) -> float:
        """Fresh ciphertexts."""
        self.data = b"".join(block.to_bytes() for block in self.key.encrypt(self.gh, self.layout))
        return MODULAR_ROWS

    def named(self) -> Iterator[tuple[str, Batch]]:
        """The others, by name."""
        yield operations.RECEIVE, lambda: float(len(self._received()))
        many = Ciphertexts.concat([self._received()] * COPIES)
        bins = np.random.default_rng(2).integers(0, BINS, (len(many), COLUMNS), dtype=np.int32)
        cells = bins + BINS * np.arange(COLUMNS, dtype=np.int32)
        few = np.arange(0, len(many), SPARSE)
        for name, chosen in ((operations.ADD, np.arange(len(many))), (operations.ADD_FEW, few)):
            yield name, partial(self._added, many, chosen, cells[chosen])
        sums = self.public.segment_sum(many, np.arange(len(many)), cells, BINS * COLUMNS)
        yield operations.SUBTRACT, lambda: float(len(self.public.subtract(sums, sums[::-1])))
        offsets = np.arange(0, len(sums) + 1, BINS)
        yield operations.RUN, lambda: float(len(self.public.prefix_sums(sums, offsets)))
        asked = sums[np.resize(np.arange(len(sums)), CANDIDATES)]
        released = self._released(asked)
        yield operations.ANSWER, lambda: float(len(self._released(asked)) and CANDIDATES)
        yield (
            operations.DECRYPT,
            lambda: float(len(self.key.decrypt(released, self.layout, [CANDIDATES]))),
        )

    def _received(self) -> Ciphertexts:
        held = Ciphertexts.received(self.data, MODULAR_ROWS, self.public.width)
        self.public.check(held)
        return held

    def _added(self, held: Ciphertexts, chosen: Any, cells: Any) -> float:
        self.public.segment_sum(held, chosen, cells, BINS * COLUMNS)
        return float(cells.size)

    def _released(self, sums: Ciphertexts) -> Ciphertexts:
        """Release sums with blinding of their own, made here and now."""
        found = self.public.release(sums, self.layout, self.public.blinders(), [len(sums)])
        return Ciphertexts.received(found.to_bytes(), len(found), found.width)


def _ring(own: LatticeParameters, timed: Timed) -> Iterator[tuple[str, float]]:
    draw = np.random.default_rng(1)
    budget = Budget(own, RING_ROWS)
    tree = TreePolynomials(
        own, Origin(bytes(DIGEST_BYTES), bytes(NONCE_BYTES), (bytes(NONCE_BYTES),)), 0
    )
    most = budget.message_most
    messages = draw.integers(-most, most + 1, (RING_ROWS, OUTPUTS), dtype=np.int64)
    secrets, host = Secrets.from_os(), Secrets.from_os()

    def encrypted() -> float:
        fresh = TreeSecret(tree, budget, messages, secrets)
        b"".join(block.to_bytes() for block in fresh.encrypt())
        return RING_ROWS

    yield operations.ENCRYPT, timed(encrypted)
    yield operations.START, 0.0
    secret = TreeSecret(tree, budget, messages, secrets)
    data = b"".join(block.to_bytes() for block in secret.encrypt())
    yield (
        operations.RECEIVE,
        timed(lambda: float(len(EncryptedRows.received(tree, data, messages.shape)))),
    )
    held = EncryptedRows.received(tree, data, messages.shape)
    bins = draw.integers(0, BINS, (RING_ROWS, COLUMNS), dtype=np.int32)
    few = np.flatnonzero(draw.random(RING_ROWS) < 1 / SPARSE)
    for name, chosen in ((operations.ADD, np.arange(RING_ROWS)), (operations.ADD_FEW, few)):
        yield name, timed(partial(_summed, held, chosen, bins[chosen]))
    cells = LatticeSums.concat(list(held.segment_sums(few, bins[few], BINS)))
    yield operations.SUBTRACT, timed(lambda: float(len(cells.subtract(cells[::-1]))))
    offsets = np.arange(0, len(cells) + 1, BINS)
    yield operations.RUN, timed(lambda: float(len(cells.prefix_sums(offsets))))
    running = cells.prefix_sums(offsets)
    key = TreeKey.received(tree, 0, secret.public_keys(0), OUTPUTS)
    width = budget.width(len(few))
    count = len(running)
    yield operations.ANSWER, timed(lambda: float(len(key.release(running, width, host))))
    answers = key.release(running, width, host).to_bytes()
    yield operations.DECRYPT, timed(lambda: float(len(decrypt(secret, answers, count, len(few)))))


def _summed(held: EncryptedRows, rows: Any, bins: Any) -> float:
    list(held.segment_sums(rows, bins, BINS))
    return float(bins.size)
