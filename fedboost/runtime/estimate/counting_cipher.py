"""A cipher that counts instead of encrypting, to run a walk for an estimate.

Rows, cells and sums are numbers in the clear, so that trees grow as they do in the job. The cipher
counts, by the sizes that the job's scheme states: operations by party, bytes in memory, and the
additional bytes of each message.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from numpy.typing import NDArray

from fedboost.crypto.api import Pairs, sums_of_pairs
from fedboost.crypto.schemes import KEYED_SCHEMES as KEYED
from fedboost.crypto.secrets import Secrets
from fedboost.encrypted.cells.adding import PlacedTree
from fedboost.encrypted.cells.node_cells import RowSums
from fedboost.encrypted.cells.request import CellRequest
from fedboost.encrypted.scheme import loading, schemes
from fedboost.encrypted.scheme.ciphers import (
    AnswersSeen,
    CipherSizes,
    GuestCipher,
    GuestRows,
    HostCipher,
    HostRows,
    NodeBounds,
)
from fedboost.encrypted.scheme.host_noise import HostNoise, NoiseScale
from fedboost.encrypted.scheme.params import EncryptedTreeParams
from fedboost.encrypted.scheme.rehearsed import Cipher
from fedboost.ground.arrays import Floats, Sums
from fedboost.messages.protocol import encrypted_pb2 as pb
from fedboost.runtime.estimate.cipher_tally import (
    ADD,
    ADD_FEW,
    ANSWER,
    BLINDING,
    DECRYPT,
    ENCRYPT,
    KEY_TABLES,
    MAKE_KEY,
    PACK,
    RECEIVE,
    RUN,
    SUBTRACT,
    TAKE_KEY,
    CipherTally,
    Clear,
)

FEW_ROWS_SHARE = 0.5  # share of the rows: a layer that adds up fewer reads them scattered
WORD = 8  # bytes of a number in messages here
SLOTS_BYTES = 2  # of a tree's key: the number of sums per ciphertext


@dataclass(frozen=True)
class CountingCipher(Cipher):
    """The job's scheme at one party of a rehearsal on `share` of the job's rows."""

    params: EncryptedTreeParams
    secrets: Secrets  # the party's secrets of the job
    tally: CipherTally
    share: float

    def guest(self, value_bits: int, nonces: tuple[bytes, ...]) -> CountingGuest:
        """See `Cipher`."""
        self._count_tables()
        return CountingGuest(self, value_bits, nonces)

    def host_cipher(self, got: pb.EncryptionKey, n_rows: int) -> CountingHost:
        """See `Cipher`."""
        self._count_tables()
        if schemes.SCHEMES[self.params.encryption.scheme].has_modulus:
            self.count(BLINDING, 1.0)
        noise = None
        if self.params.host_noise:
            scale = NoiseScale.of(self.params, got.value_bits)
            noise = HostNoise(scale, self.secrets.child("host noise"))
        return CountingHost(self, self.sizes(n_rows), n_rows, noise)

    def _count_tables(self) -> None:
        if schemes.SCHEMES[self.params.encryption.scheme].has_modulus:
            self.count(KEY_TABLES, 1.0)

    def job_rows(self, rows: int) -> int:
        """Return the job's number of rows for a number of rows in the rehearsal."""
        return max(1, round(rows / self.share))

    def sizes(self, n_rows: int, slots: int = 0) -> CipherSizes:
        """Return the sizes of a host that has so many rows here."""
        return loading.tree_scheme(self.params).sizes(
            self.params, max(2, self.job_rows(n_rows)), slots
        )

    def slots(self, n_rows: int, seen: AnswersSeen) -> int:
        """Return the number of sums per ciphertext in the next trees' answers."""
        return loading.tree_scheme(self.params).slots(
            self.params, max(2, self.job_rows(n_rows)), seen
        )

    @property
    def item_bytes(self) -> int:
        """Bytes of a row or a sum in messages here: its numbers and the one of `written`."""
        return WORD * (2 * self.params.n_outputs // self.params.trees_per_round + 1)

    def count(self, operation: str, times: float) -> None:
        """Note an operation of the scheme."""
        self.tally.counts[f"{cipher_name(self.params)}: {operation}"] += times

    def written(self, items: Sums, ciphertexts: int, n_bytes: int) -> pb.Ciphertexts:
        """Return items as a message; an extra number in the first one is their scheme's bytes."""
        written = np.zeros((len(items), items.shape[1] + 1), np.int64)
        written[:, :-1] = items
        written[:1, -1] = n_bytes
        return pb.Ciphertexts(count=ciphertexts, data=written.tobytes())

    def read(self, data: bytes) -> Sums:
        """Return the numbers that `written` wrote."""
        return self._written_items(data)[:, :-1].copy()

    def n_bytes(self, message: Message) -> int:
        """Return the bytes of a message under the scheme."""
        total = message.ByteSize()
        for part in _ciphertexts(message):
            total += int(self._written_items(part.data)[:, -1].sum()) - len(part.data)
        return total

    def _written_items(self, data: bytes) -> Sums:
        return np.frombuffer(data, np.int64).reshape(-1, self.item_bytes // WORD)


@dataclass(frozen=True)
class CountingGuest(GuestCipher):
    """The cipher of an estimate's guest."""

    cipher: CountingCipher
    value_bits: int
    nonces: tuple[bytes, ...]
    seen: AnswersSeen = field(default_factory=AnswersSeen)

    def key_message(self, first_tree: int) -> pb.EncryptionKey:
        """Return a key of the scheme's size."""
        params = self.cipher.params
        return pb.EncryptionKey(
            scheme=params.encryption.scheme,
            key=bytes(loading.tree_scheme(params).key_bytes(params)),
            value_bits=self.value_bits,
            first_tree=first_tree,
            nonces=self.nonces,
        )

    def rows(self, tree: int, gh: Sums, n_rows: int) -> CountingGuestRows:
        """Return rows whose operations are counted when their parts are asked for."""
        epoch = loading.tree_scheme(self.cipher.params).epoch(self.cipher.params, tree)
        choose = partial(self.cipher.slots, n_rows, self.seen)
        slots = self.seen.begin(tree, max(2, self.cipher.job_rows(n_rows)), epoch, choose)
        sizes = self.cipher.sizes(n_rows, slots)
        shared = self.cipher.sizes(n_rows).tree_key_bytes
        return CountingGuestRows(self.cipher, sizes, tree, gh, self.seen, slots, shared)

    def answers_in_words(self) -> str:
        """Return the scheme's description of its answers."""
        return loading.tree_scheme(self.cipher.params).answers_in_words(
            self.cipher.params, self.seen
        )


@dataclass(frozen=True)
class _Counted:
    """Counted data of a cipher, and its sizes."""

    cipher: CountingCipher
    stated: CipherSizes

    @property
    def sizes(self) -> CipherSizes:
        """The sizes that the scheme states."""
        return self.stated


@dataclass(frozen=True)
class CountingGuestRows(_Counted, GuestRows):
    """Gradients in the clear, with messages as large as the scheme's."""

    tree: int
    gh: Sums
    seen: AnswersSeen
    slots: int
    shared_bytes: int  # of a tree's key if another tree has brought the rest

    def parts(self) -> Iterator[pb.EncryptedGradients]:
        """Yield parts as large as the scheme's."""
        sizes, cipher = self.sizes, self.cipher
        for first in range(0, max(1, len(self.gh)), sizes.rows_each):
            with cipher.tally.uncounted_time():
                gh = self.gh[first : first + sizes.rows_each]
                cipher.count(ENCRYPT, len(gh) * sizes.per_row)
                rows = cipher.written(gh, len(gh) * sizes.per_row, len(gh) * sizes.row_bytes)
            yield pb.EncryptedGradients(tree=self.tree, first_row=first, rows=rows)

    def key_for(self, host: str) -> bytes:
        """Return a key as large as the scheme's, which begins with the slots."""
        brings = self.seen.takes_key(host)
        n_bytes = self.sizes.tree_key_bytes if brings else self.shared_bytes
        self.cipher.count(MAKE_KEY, n_bytes)
        return self.slots.to_bytes(SLOTS_BYTES, "little").ljust(n_bytes, b"\0")[:n_bytes]

    def n_bytes(self, sums: Sequence[int], nodes: Sequence[NodeBounds]) -> int:
        """Return the bytes of answers here."""
        return sum(sums) * self.cipher.item_bytes

    def read(self, answers: bytes, sums: Sequence[int], nodes: Sequence[NodeBounds]) -> Sums:
        """Return the numbers in answers."""
        self.seen.sums.append(sum(sums))
        with self.cipher.tally.uncounted_time():
            self.cipher.count(DECRYPT, self.sizes.blinded(sum(sums), self.count(sums)))
            return self.cipher.read(answers)


@dataclass(frozen=True)
class CountingHost(_Counted, HostCipher):
    """The cipher of an estimate's host."""

    n_rows: int
    noise: HostNoise | None = None

    def read_part(self, data: bytes, rows: int) -> Sums:
        """Return the numbers of a part."""
        with self.cipher.tally.uncounted_time():
            self.cipher.count(RECEIVE, rows * self.sizes.per_row)
            return self.cipher.read(data)

    def rows(self, held: Sums, tree: int, key: bytes) -> CountingHostRows:
        """Return the rows of a tree."""
        self.cipher.count(TAKE_KEY, len(key))
        sizes = self.cipher.sizes(self.n_rows, int.from_bytes(key[:SLOTS_BYTES], "little"))
        clear, tally = Clear(self.cipher.tally, held, self.sizes.held_bytes), self.cipher.tally
        tally.rows = max(tally.rows, 2.0 * len(held) * self.sizes.held_bytes)
        rows = CountingRows(self.cipher, sizes, clear)
        return CountingHostRows(self.cipher, sizes, rows, self.noise)


@dataclass(frozen=True)
class CountingRows(_Counted, RowSums[Clear]):
    """Gradients at a host, and their sums in the clear, counted as the scheme's."""

    clear: Clear

    @property
    def adds(self) -> CountingRows:
        """The object that counts additions."""
        return self

    def sums(self, rows: NDArray[np.integer], cells: NDArray[np.int32], n_cells: int) -> Clear:
        """See `Adder.segment_sum`."""
        return self.segment_sum(self.clear, rows, cells, n_cells)

    def segment_sum(
        self, held: Clear, rows: NDArray[np.integer], cells: NDArray[np.int32], n_cells: int
    ) -> Clear:
        """See `Adder`."""
        with held.tally.uncounted_time():
            few = len(rows) < FEW_ROWS_SHARE * len(held)
            self._count_operation(ADD_FEW if few else ADD, int(np.count_nonzero(cells >= 0)))
            sums = np.zeros((n_cells + 1, held.data.shape[1]), np.int64)  # the last: of no cell
            values = held.data[rows]
            for cell in cells.T:
                for output in range(sums.shape[1]):
                    np.add.at(sums[:, output], cell, values[:, output])
            return Clear(held.tally, sums[:-1], self.sizes.cell_bytes)

    def add(self, a: Clear, b: Clear) -> Clear:
        """See `Adder`."""
        with a.tally.uncounted_time():
            self._count_operation(RUN, len(a))
            return a.like(a.data + b.data)

    def subtract(self, a: Clear, b: Clear) -> Clear:
        """See `Adder`."""
        with a.tally.uncounted_time():
            self._count_operation(SUBTRACT, len(a))
            return a.like(a.data - b.data)

    def siblings(self, parents: Sequence[Clear], others: Sequence[Clear]) -> list[Clear]:
        """Return the siblings, computed in place if the scheme does so; see `RowSums`."""
        if not loading.tree_scheme(self.cipher.params).takes_nonces:
            return super().siblings(parents, others)
        self._count_operation(SUBTRACT, sum(map(len, parents)))
        for parent, other in zip(parents, others, strict=True):
            parent.data = parent.data - other.data
        return [*parents]

    def prefix_sums(self, cells: Clear, offsets: NDArray[np.integer]) -> Clear:
        """See `Adder`."""
        with cells.tally.uncounted_time():
            self._count_operation(RUN, len(cells))
            running = np.cumsum(cells.data, axis=0)
            before = np.concatenate([np.zeros_like(running[:1]), running])[offsets[:-1]]
            return cells.like(running - np.repeat(before, np.diff(offsets), axis=0))

    def sum_pairs(self, pairs: Pairs[Clear]) -> Clear:
        """See `Adder`."""
        return sums_of_pairs(self, pairs)

    def _count_operation(self, operation: str, items: float) -> None:
        self.cipher.count(operation, items * self.sizes.per_row)


@dataclass(frozen=True)
class CountingHostRows(_Counted, HostRows[Clear]):
    """Gradients at a host, and answers about them."""

    rows: CountingRows
    noise: HostNoise | None = None

    @property
    def row_sums(self) -> CountingRows:
        """See `HostRows`."""
        return self.rows

    def number_bits(self, rows: int) -> Floats:
        """Return zeros: an estimate has no account; see `HostRows`."""
        return np.zeros(self.rows.clear.data.shape[1])

    def blind(self, requests: Mapping[PlacedTree[Clear], CellRequest]) -> Iterator[pb.Ciphertexts]:
        """Yield parts as large as the scheme's."""
        made = self.sums(requests)
        wanted = [(len(terms), self.cipher.job_rows(terms.rows)) for terms, _ in made]
        for part in self.sizes.parts(wanted):
            values = []
            for place, cut in part.sums:
                terms, pairs = made[place]
                noise = 0 if terms.noise is None else terms.noise[cut]
                values.append(self.rows.sum_pairs(pairs[cut]).data + noise)
            with self.cipher.tally.uncounted_time():
                items = np.concatenate(values)
                blinded = self.sizes.blinded(len(items), part.ciphertexts)
                packed = len(items) * self.sizes.per_row - blinded
                self.cipher.count(ANSWER, blinded)
                self.cipher.count(PACK, packed / self.sizes.capacity)
                message = self.cipher.written(items, part.ciphertexts, part.n_bytes)
            yield message


def cipher_name(params: EncryptedTreeParams) -> str:
    """Return the scheme with its key's bits, if it has a key of that kind."""
    encryption = params.encryption
    has_bits = encryption.scheme in KEYED and KEYED[encryption.scheme].key_bits
    return f"{encryption.scheme}-{encryption.key_bits}" if has_bits else encryption.scheme


def _ciphertexts(message: Message) -> Iterator[pb.Ciphertexts]:
    if isinstance(message, pb.Ciphertexts):
        yield message
        return
    for about, value in message.ListFields():
        if about.type == FieldDescriptor.TYPE_MESSAGE:
            for inner in value if about.is_repeated else (value,):
                yield from _ciphertexts(inner)
