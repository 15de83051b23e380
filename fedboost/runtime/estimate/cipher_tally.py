"""Counts of cipher operations at a party of a rehearsal, and numbers in place of ciphertexts."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fedboost.crypto.api import Index
from fedboost.ground.arrays import Sums

# Each of a ciphertext: a row, a cell or a sum may have several.
ENCRYPT, RECEIVE, ADD, ADD_FEW = "encrypt", "receive", "add", "add, few rows"
MAKE_KEY, TAKE_KEY = "make a key", "take a key in"  # of a byte of a tree's key for one host
SUBTRACT, RUN, ANSWER, DECRYPT = "subtract", "prefix sum", "answer", "decrypt"
PACK = "pack"  # of a ciphertext full of sums, except its first one
KEY_TABLES = "tables of a key"  # for each core of a party that encrypts or answers
BLINDING = "tables of a key's blinding"  # of a host: the extra time of its first answers
OPERATIONS = (
    *(ENCRYPT, RECEIVE, MAKE_KEY, TAKE_KEY, ADD, ADD_FEW),
    *(SUBTRACT, RUN, PACK, ANSWER, DECRYPT, KEY_TABLES, BLINDING),
)


@dataclass
class CipherTally:
    """The operations and the memory of one party's cipher."""

    counts: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    seconds: float = 0.0  # that the counting itself has taken
    held: float = 0.0  # bytes
    most: float = 0.0
    rows: float = 0.0  # of these, the peak of rows of the last trees and of arriving rows

    def note_held(self, n_bytes: float) -> None:
        """Note that so many more bytes are held; a negative number releases bytes."""
        self.held += n_bytes
        self.most = max(self.most, self.held)

    @contextmanager
    def uncounted_time(self) -> Iterator[None]:
        """Subtract the time inside the context from the step's: it stands for the cipher's work."""
        started = time.thread_time()
        try:
            yield
        finally:
            self.seconds += time.thread_time() - started


class Clear:
    """Rows, cells or sums in the clear, int64 (n, 2·outputs), each `n_bytes` large if encrypted.

    A part of a `source` holds no bytes itself.
    """

    def __init__(
        self, tally: CipherTally, data: Sums, n_bytes: float, source: Clear | None = None
    ) -> None:
        self.tally, self.data, self.n_bytes, self.whole = tally, data, n_bytes, source
        self._own = 0.0 if source is not None else n_bytes * len(data)
        tally.note_held(self._own)

    def __del__(self) -> None:
        self.tally.note_held(-self._own)

    def like(self, data: Sums) -> Clear:
        """Return other data of the same kind."""
        return Clear(self.tally, data, self.n_bytes)

    def joined(self, others: Sequence[Clear]) -> Clear:
        """Return this data followed by the others'."""
        with self.tally.uncounted_time():
            return self.like(np.concatenate([self.data, *(other.data for other in others)]))

    def replaced(self, indices: NDArray[np.integer], values: Clear) -> Clear:
        """Return a copy with `values` at these indices."""
        with self.tally.uncounted_time():
            data = self.data.copy()
            data[indices] = values.data
            return self.like(data)

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: Index) -> Clear:
        with self.tally.uncounted_time():
            source = self if isinstance(index, slice) else None
            return Clear(self.tally, self.data[index], self.n_bytes, source)
