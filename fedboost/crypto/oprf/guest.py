"""The guest of one pair: learns the function's values at its own ids, and the host nothing."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedboost.crypto.oprf.base_transfers import TransferSender
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
from fedboost.crypto.oprf.rows import add_words
from fedboost.crypto.oprf.session import OprfSession
from fedboost.crypto.oprf.sizes import CODE_WORD_BYTES
from fedboost.crypto.oprf.store import decode_values, encode_store
from fedboost.crypto.secrets import Secrets
from fedboost.ground.arrays import Words
from fedboost.ground.errors import ProtocolError
from fedboost.ground.slot import Slot


@dataclass(frozen=True, repr=False, eq=False)
class AskedPart:
    """A part for the host, with the guest's values to recognise the host's answer."""

    data: bytes
    rows: NDArray[np.uint32]  # (n,): of the guest's table
    outputs: NDArray[np.uint32]  # (n, 8): the function's values


class OprfGuest:
    """The receiver of Pinkas, Rosulek, Trieu and Yanai, 2020, in parts that are independent.

    `secrets` are of this attempt and this host alone: two parts of one number under the same
    secrets reveal the difference of their sets.
    """

    pairs = Slot[list[tuple[bytes, bytes]]]("keys of the base transfers")
    name = Slot[bytes]("the run's name")

    def __init__(self, session: OprfSession, ids: IdDigests, secrets: Secrets) -> None:
        self.session = session
        self.sizes = session.sizes
        self.ids = ids
        self._secrets = secrets
        self._transfers = TransferSender(secrets)
        self._output_state = key_state(session.output_key)

    @property
    def start(self) -> bytes:
        """Return the guest's first message."""
        return self._transfers.start

    def open(self, choice: bytes) -> None:
        """Accept the host's choices; a PeerError for an invalid message."""
        self.pairs = self._transfers.keys(self.session.transfers, choice)
        self.name = self.session.name(self.start, choice)

    def ask_part(self, b: int) -> AskedPart:
        """Make part `b`, the same every time; a PeerError if the ids fit no store."""
        if not 0 <= b < self.sizes.bins:
            raise ProtocolError(f"there is no part {b} of {self.sizes.bins}")
        part = self.ids.part(b, self.sizes.guest_cap)
        keys = part.keys(self.sizes.segment)
        store = self._drawn_values(b)
        encode_store(keys, part.values(), store)
        rows, words = self._columns(b)
        add_words(store, code_tables(), words)
        packed = words.view(np.uint8).reshape(-1, 64)[:, :CODE_WORD_BYTES].tobytes()
        seed = check_seed(self.name, b, packed)
        weights = check_weights(seed, self.sizes.first_check_row)
        check = np.concatenate([check_sums(weights, rows), check_sums(weights, store)], axis=1)
        outputs = self._outputs(part, decode_values(keys, rows))
        return AskedPart(packed + check.tobytes(), part.rows, outputs)

    def _drawn_values(self, b: int) -> Words:
        """Draw values of 76 bits, uint64 (rows, 2)."""
        drawn = bytearray(self._secrets.bytes(16 * self.sizes.rows, "store", b))
        store = np.frombuffer(drawn, np.uint64).reshape(-1, 2)
        store &= VALUE_MASK
        return store

    def _columns(self, b: int) -> tuple[Words, Words]:
        """Return the rows of the first keys, and the sum of both keys' rows."""
        first = stretch([pair[0] for pair in self.pairs], b, self.sizes.rows)
        both = stretch([pair[1] for pair in self.pairs], b, self.sizes.rows)
        both ^= first
        return rows_of(first, self.sizes.rows), rows_of(both, self.sizes.rows)

    def _outputs(self, part: PartIds, read: Words) -> NDArray[np.uint32]:
        outputs = np.empty((len(read), 8), np.uint32)
        digest_rows(read, part.digests, self._output_state, outputs)
        return outputs

    def __repr__(self) -> str:
        return "OprfGuest(hidden)"
