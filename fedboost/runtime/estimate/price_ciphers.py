"""A batch of every operation of an encryption scheme, as both sides of a job do them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from fedboost.crypto.api import Pairs
from fedboost.crypto.workers import Serial
from fedboost.encrypted import keys, schemes
from fedboost.encrypted.ciphers import Expected, NodeSums
from fedboost.encrypted.params import EncryptedTreeParams
from fedboost.flow import Table
from fedboost.runtime.estimate import counting_cipher as operations
from fedboost.runtime.estimate.rehearsal import context_of

Batch = Callable[[], float]  # does some of one primitive and says how many that were
Timed = Callable[[Batch], float]
Found = dict[str, float]

GUEST, HOST = "guest", "host"
JOB_ROWS = 100_000  # whose sums are to fit
PARTS = 4  # of what travels together, a fourth is timed
COPIES = 16  # of encrypted rows: sums read ciphertexts as scattered in memory as a job's
BINS, COLUMNS = 32, 3
SPARSE = 20  # of so many rows one is in a node further down
CANDIDATES = 640  # enough that a host makes its blinding from tables, as in a job


def measure(cipher: str, timed: Timed) -> Found:
    """The price of every operation of a scheme, ``NAME`` or ``NAME-BITS``; empty for others."""
    scheme, _, bits = cipher.rpartition("-")
    encryption: dict[str, Any] = {"scheme": cipher}
    if cipher not in schemes.SCHEMES:
        encryption = {"scheme": scheme, "key_bits": int(bits) if bits.isdigit() else 0}
    if encryption["scheme"] not in schemes.SCHEMES or encryption.get("key_bits") == 0:
        return {}
    params = EncryptedTreeParams(encryption=encryption, allow_insecure=True)  # type: ignore[arg-type]
    return {f"{cipher}: {name}": price for name, price in _prices(params, timed)}


def _prices(params: EncryptedTreeParams, timed: Timed) -> Iterator[tuple[str, float]]:
    scheme, table = schemes.of(params), Table(GUEST, (HOST,))
    guest, host = (context_of(party, table, params, Serial()) for party in (GUEST, HOST))
    bits, sizes = scheme.bits_of(params, JOB_ROWS), scheme.sizes(params, JOB_ROWS)
    nonces = (keys.nonce(guest), keys.nonce(host)) if scheme.takes_nonces else ()
    ours = scheme.guest_side(guest, bits, [JOB_ROWS], nonces)
    theirs = scheme.host_side(host, ours.told(0), JOB_ROWS, 0, None)
    draw, count = np.random.default_rng(1), sizes.rows_each // PARTS
    gh = draw.integers(0, 1 << bits, (count, 2), dtype=np.int64)
    gh[:, 0] -= 1 << (bits - 1)

    def encrypted() -> float:
        return float(sum(part.rows.count for part in ours.rows(0, gh, JOB_ROWS).parts()))

    started = time.process_time()
    n_rows = encrypted()
    first = time.process_time() - started
    price = timed(encrypted)
    yield operations.ENCRYPT, price
    yield operations.START, max(0.0, first - n_rows * price)

    given = ours.rows(0, gh, JOB_ROWS)
    sent = list(given.parts())

    def received(copies: int = 1) -> Any:
        parts = [theirs.received(part.rows.data, part.rows.count) for part in sent]
        return theirs.rows(parts * copies, 0, given.key_for(HOST))

    yield operations.RECEIVE, timed(lambda: n_rows * bool(received()))
    many = received(COPIES)
    bins = draw.integers(0, BINS, (count * COPIES, COLUMNS), dtype=np.int32)
    cells = bins + BINS * np.arange(COLUMNS, dtype=np.int32)

    def added(rows: Any, chosen: Any) -> float:
        rows.sums(chosen, cells[chosen], BINS * COLUMNS)
        return float(chosen.size * COLUMNS)

    every = np.arange(len(cells))
    yield operations.ADD, timed(partial(added, many, every))
    yield operations.ADD_FEW, timed(partial(added, many, every[::SPARSE]))
    rows = received()
    sums = rows.sums(every[:count], cells[:count], BINS * COLUMNS)
    yield operations.SUBTRACT, timed(lambda: float(len(rows.adds.subtract(sums, sums[::-1]))))
    offsets = np.arange(0, len(sums) + 1, BINS)
    yield operations.RUN, timed(lambda: float(len(rows.adds.prefix_sums(sums, offsets))))
    asked = Pairs.of(rows.adds.prefix_sums(sums, offsets))[np.arange(CANDIDATES) % len(sums)]
    node, alone = [NodeSums(0, 1, count, asked)], CANDIDATES // sizes.capacity

    def answered(nodes: Any) -> float:
        return float(sum(part.count for part in rows.blind(nodes)))

    if sizes.capacity == 1:
        yield operations.ANSWER, timed(partial(answered, node))
        yield operations.PACK, 0.0
    else:  # a sum alone takes its blinding, and those of a full package to be put together
        apart = [NodeSums(0, n + 1, count, asked[n : n + 1]) for n in range(alone)]
        blinded = timed(partial(answered, apart))
        whole = timed(partial(answered, node))
        yield operations.ANSWER, blinded
        yield operations.PACK, max(0.0, whole - blinded) / (1 - 1 / sizes.capacity)
    data = b"".join(part.data for part in rows.blind(node))
    expected = [Expected(count, np.abs(gh).sum(axis=0))]

    def decrypted() -> float:
        given.read(data, [CANDIDATES], expected)
        return float(given.count([CANDIDATES]))

    yield operations.DECRYPT, timed(decrypted)
