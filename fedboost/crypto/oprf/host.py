"""The host of one pair: can compute the function at any id, and answers parts that pass the check.

A part could reveal the host's secret selection s through values or errors that depend on s. None
of them leaves before the check has passed.
"""

from __future__ import annotations

import hmac
import threading
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from fedboost.crypto.oprf.base_transfers import choose_keys
from fedboost.crypto.oprf.blake2s import digest_rows, key_state
from fedboost.crypto.oprf.code import VALUE_MASK, code_tables
from fedboost.crypto.oprf.extension import (
    check_seed,
    check_sums,
    check_weights,
    rows_of,
    stretch,
)
from fedboost.crypto.oprf.ids import IdDigests, PartIds
from fedboost.crypto.oprf.rows import add_selected, add_words
from fedboost.crypto.oprf.session import OprfSession
from fedboost.crypto.oprf.sizes import CHECK_ROWS, CODE_COLUMNS, CODE_WORD_BYTES, PART_IDS
from fedboost.crypto.oprf.store import decode_values
from fedboost.crypto.secrets import Secrets
from fedboost.ground.arrays import Words
from fedboost.ground.errors import PeerError


class OprfHost:
    """The sender of Pinkas, Rosulek, Trieu and Yanai, 2020, with the check of Orrù, Orsini and
    Scholl, 2017.

    `secrets` are of this attempt and this guest alone. A PeerError if `start` is no point.
    """

    def __init__(
        self, session: OprfSession, ids: IdDigests, secrets: Secrets, start: bytes
    ) -> None:
        self.session = session
        self.sizes = session.sizes
        self.ids = ids
        self.secrets = secrets
        drawn = secrets.bytes(CODE_WORD_BYTES, "selection")
        self._selection = np.frombuffer(drawn + bytes(64 - CODE_WORD_BYTES), np.uint64)
        bits = np.unpackbits(np.frombuffer(drawn, np.uint8), bitorder="little").tolist()
        assert len(bits) == CODE_COLUMNS
        self.choice, self._keys = choose_keys(session.transfers, start, bits, secrets)
        self.name = session.name(start, self.choice)
        self._selected_words = code_tables() & self._selection
        self._output_state = key_state(session.output_key)
        self._answered: dict[int, bytes] = {}  # the check's seed, a hash of each received part
        self._refused = False
        self._lock = threading.Lock()

    def open(self, b: int, data: bytes) -> Words:
        """Return the rows of part `b`, uint64 (rows, 8), which hold the host's values.

        A PeerError for a part that no honest guest sends, or another than the earlier one of this
        number; and for all parts once one has not passed the check.
        """
        if not 0 <= b < self.sizes.bins:
            raise PeerError(f"there is no part {b} of {self.sizes.bins}")
        if len(data) != self.sizes.part_bytes:
            raise PeerError(f"a part has {len(data)} bytes instead of {self.sizes.part_bytes}")
        packed = data[: CODE_WORD_BYTES * self.sizes.rows]
        seed = check_seed(self.name, b, packed)
        self._admit_part(b, seed)
        rows = rows_of(stretch(self._keys, b, self.sizes.rows), self.sizes.rows)
        words = np.frombuffer(packed, np.uint8).reshape(-1, CODE_WORD_BYTES)
        add_selected(words, self._selection, rows)
        weights = check_weights(seed, self.sizes.first_check_row)
        if not self._passes_check(check_sums(weights, rows), data[len(packed) :]):
            with self._lock:
                self._refused = True
            raise PeerError("a part does not pass the check")
        return rows

    def outputs(self, rows: Words, part: PartIds) -> NDArray[np.uint32]:
        """Return the function's values at ids of the part, uint32 (n, 8)."""
        outputs = np.empty((len(part.rows), 8), np.uint32)
        for block in _slices_of_ids(len(part.rows)):
            some = part.slice_ids(block)
            read = decode_values(some.keys(self.sizes.segment), rows)
            add_words(some.values(), self._selected_words, read)
            digest_rows(read, some.digests, self._output_state, outputs[block])
        return outputs

    def part_ids(self, b: int) -> PartIds:
        """Return the host's own ids of a part."""
        return self.ids.part(b, self.sizes.host_cap)

    def _admit_part(self, b: int, seed: bytes) -> None:
        """Refuse another part for a number that was answered, and all
        parts once one was refused.
        """
        with self._lock:
            if self._refused:
                raise PeerError("a part did not pass the check: this attempt answers no others")
            if self._answered.setdefault(b, seed) != seed:
                raise PeerError(f"part {b} came before with other bytes")

    def _passes_check(self, sums: Words, check: bytes) -> bool:
        """Return whether the guest's sums of rows and values give the host's sums of rows."""
        said = np.frombuffer(check, np.uint64).reshape(CHECK_ROWS, 10)
        expected = said[:, :8].copy()
        add_words(said[:, 8:] & VALUE_MASK, self._selected_words, expected)
        are_values = not (said[:, 8:] & ~VALUE_MASK).any()
        return hmac.compare_digest(sums.tobytes(), expected.tobytes()) and are_values

    def __repr__(self) -> str:
        return "OprfHost(hidden)"


def _slices_of_ids(count: int) -> Iterator[slice]:
    """Yield slices of a part of a host with many more ids than the guest."""
    for start in range(0, count, PART_IDS):
        yield slice(start, min(start + PART_IDS, count))
