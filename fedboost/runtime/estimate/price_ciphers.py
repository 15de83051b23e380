"""Measures every operation of an encryption scheme in batches, as both sides of a job do them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from fedboost.encrypted.cells.request import CandidateTerms
from fedboost.encrypted.scheme import keys, loading, schemes
from fedboost.encrypted.scheme.ciphers import (
    CipherSizes,
    GuestCipher,
    HostCipher,
    NodeBounds,
)
from fedboost.encrypted.scheme.params import EncryptedTreeParams
from fedboost.flow import Table
from fedboost.ground.workers import Serial
from fedboost.runtime.estimate import cipher_tally as operations
from fedboost.runtime.estimate.rehearsal import context_of

Batch = Callable[[], float]  # runs some of one primitive and returns their number
Timed = Callable[[Batch], float]
Found = dict[str, float]
Priced = Iterator[tuple[str, float]]

GUEST, HOST = "guest", "host"
JOB_ROWS = 100_000  # their sums have to fit
MESSAGE_PARTS = 4  # a fourth of the rows in one message is timed
ROW_COPIES = 16  # of encrypted rows: sums read ciphertexts scattered in memory, as in a job
BINS, COLUMNS = 32, 3
SPARSE = 20  # one of so many rows is in a deeper node
CANDIDATES = 640
FIRST_ANSWERS = 300  # enough for a host to use tables for its blinding, as in a job


def measure(cipher: str, timed: Timed) -> Found:
    """Return the price of every operation of a scheme, ``NAME`` or ``NAME-BITS``."""
    name, _, bits = cipher.rpartition("-")
    encryption: dict[str, Any] = {"scheme": cipher}
    if cipher not in schemes.SCHEMES and name in schemes.SCHEMES and bits.isdigit():
        encryption = {"scheme": name, "key_bits": int(bits)}
    params = EncryptedTreeParams.model_validate({"encryption": encryption, "allow_insecure": True})
    scheme, table = loading.tree_scheme(params), Table(GUEST, (HOST,))
    guest, host = (context_of(party, table, params, Serial()) for party in (GUEST, HOST))
    nonces = (keys.own_nonce(guest), keys.own_nonce(host)) if scheme.takes_nonces else ()
    bits_each, sizes = scheme.bits_of(params, JOB_ROWS), scheme.sizes(params, JOB_ROWS)
    ours = scheme.guest_side(guest, bits_each, [JOB_ROWS], nonces)
    theirs = scheme.host_side(host, ours.key_message(0), JOB_ROWS, 0, None)
    gh = np.random.default_rng(1).integers(0, 1 << bits_each, (sizes.rows_each // MESSAGE_PARTS, 2))
    gh[:, 0] -= 1 << (bits_each - 1)
    has_modulus = schemes.SCHEMES[params.encryption.scheme].has_modulus
    firsts = FIRST_ANSWERS if has_modulus else 0
    answers = _answer_prices(ours, theirs, gh, sizes, timed, firsts=firsts)
    prices = (*_row_prices(ours, theirs, gh, timed), *answers)
    return {f"{cipher}: {operation}": price for operation, price in prices}


def _received_rows(ours: GuestCipher, theirs: HostCipher, gh: Any, copies: int = 1) -> Any:
    given = ours.rows(0, gh, JOB_ROWS)
    parts = [theirs.read_part(part.rows.data, part.rows.count) for part in given.parts()]
    return theirs.rows(np.concatenate(parts * copies), 0, given.key_for(HOST))


def _row_prices(ours: GuestCipher, theirs: HostCipher, gh: Any, timed: Timed) -> Priced:
    """Yield the prices of operations on rows."""

    def encrypt_rows() -> float:
        return float(sum(part.rows.count for part in ours.rows(0, gh, JOB_ROWS).parts()))

    started = time.process_time()
    count = encrypt_rows()
    first = time.process_time() - started
    price = timed(encrypt_rows)
    yield operations.ENCRYPT, price
    yield operations.KEY_TABLES, max(0.0, first - count * price)
    given = ours.rows(0, gh, JOB_ROWS)
    sent, key = list(given.parts()), given.key_for(HOST)
    few = [part.rows for part in ours.rows(0, gh[:1], JOB_ROWS).parts()]

    def receive_rows(rows: Any) -> float:
        parts = [theirs.read_part(part.data, part.count) for part in rows]
        theirs.rows(np.concatenate(parts), 0, key)
        return 1.0

    with_key = timed(partial(receive_rows, few))
    with_rows = timed(partial(receive_rows, [part.rows for part in sent]))
    yield operations.RECEIVE, max(0.0, with_rows - with_key) / count
    yield operations.TAKE_KEY, with_key / len(key) if key else 0.0
    make = timed(lambda: float(len(ours.rows(0, gh[:1], JOB_ROWS).key_for(HOST)) or 1))
    yield operations.MAKE_KEY, make if key else 0.0
    many, cells = _received_rows(ours, theirs, gh, ROW_COPIES), _random_cells(len(gh) * ROW_COPIES)

    def add_rows(chosen: Any) -> float:
        many.row_sums.sums(chosen, cells[chosen], BINS * COLUMNS)
        return float(cells[chosen].size)

    every = np.arange(len(cells))
    yield operations.ADD, timed(partial(add_rows, every))
    yield operations.ADD_FEW, timed(partial(add_rows, every[::SPARSE]))


def _answer_prices(
    ours: GuestCipher,
    theirs: HostCipher,
    gh: Any,
    sizes: CipherSizes,
    timed: Timed,
    *,
    firsts: int,
) -> Priced:
    """Yield the prices of operations on sums, and on answers' ciphertexts but the first."""
    rows, count, offsets = _received_rows(ours, theirs, gh), len(gh), np.arange(COLUMNS + 1) * BINS
    adds = rows.row_sums.adds
    sums = rows.row_sums.sums(np.arange(count), _random_cells(count), BINS * COLUMNS)
    yield (
        operations.SUBTRACT,
        timed(lambda: float(len(adds.subtract(sums, sums[::-1])))),
    )
    yield operations.RUN, timed(lambda: float(len(adds.prefix_sums(sums, offsets))))
    cells = adds.prefix_sums(sums, offsets)
    chosen = np.arange(CANDIDATES) % len(sums)
    nodes = [CandidateTerms.of_cells(0, 1, count, len(cells))[chosen]]

    def answer_nodes(nodes: Any) -> float:
        count = sum(part.count for part in rows.blind_cells(cells, nodes))
        return float(sizes.blinded(sum(map(len, nodes)), count))

    started, answers = time.process_time(), 0.0
    while answers < firsts:
        answers += answer_nodes(nodes)
    first = time.process_time() - started
    price, pack = timed(partial(answer_nodes, nodes)), 0.0
    yield operations.BLINDING, max(0.0, first - answers * price)
    if sizes.capacity > 1:  # a single sum costs its blinding, a full package its packing too
        alone = [
            CandidateTerms.of_cells(0, n + 1, count, len(cells))[chosen[n : n + 1]]
            for n in range(CANDIDATES // sizes.capacity)
        ]
        full, price = price, timed(partial(answer_nodes, alone))
        pack = max(0.0, full - price) / (1 - 1 / sizes.capacity)
    yield operations.ANSWER, price
    yield operations.PACK, pack
    given, data = (
        ours.rows(0, gh, JOB_ROWS),
        b"".join(part.data for part in rows.blind_cells(cells, nodes)),
    )
    expected = [NodeBounds(count, np.abs(gh).sum(axis=0))]

    def decrypt_answers() -> float:
        given.read(data, [CANDIDATES], expected)
        return float(sizes.blinded(CANDIDATES, given.count([CANDIDATES])))

    yield operations.DECRYPT, timed(decrypt_answers)


def _random_cells(rows: int) -> Any:
    bins = np.random.default_rng(2).integers(0, BINS, (rows, COLUMNS), dtype=np.int32)
    return bins + BINS * np.arange(COLUMNS, dtype=np.int32)
