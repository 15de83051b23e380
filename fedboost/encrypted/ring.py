"""Both sides of the lattice schemes: secrets for every tree, public polynomials of all nonces.

They have few bits (`crypto.lattice.budget`), so gradients are rounded up or down at random
(`core.fixed_point`), as in every job of few bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedboost.core import fixed_point
from fedboost.core.fixed_point import FixedPoint
from fedboost.crypto.lattice import parameters
from fedboost.crypto.lattice.answers import AnswerShape, TreeKey
from fedboost.crypto.lattice.budget import MESSAGE_BITS_LEAST, MESSAGE_BITS_MOST, Budget
from fedboost.crypto.lattice.cells import CellAdds, EncryptedRows, LatticeSums
from fedboost.crypto.lattice.decryption import decrypt
from fedboost.crypto.lattice.parameters import LatticeParameters
from fedboost.crypto.lattice.polynomials import Origin, TreePolynomials
from fedboost.crypto.lattice.secret import TreeSecret
from fedboost.crypto.lattice.words import Words, words_of
from fedboost.crypto.secrets import Secrets
from fedboost.crypto.workers import Workers
from fedboost.encrypted import keys
from fedboost.encrypted.ciphers import (
    AnswerPart,
    CipherSizes,
    Expected,
    GuestCipher,
    GuestRows,
    HostCipher,
    HostRows,
    NodeSums,
    P,
    Sums,
    TreeScheme,
)
from fedboost.encrypted.host_noise import HostNoise, spare_rows
from fedboost.encrypted.params import EncryptedTreeParams
from fedboost.errors import PeerError
from fedboost.flow import StageContext
from fedboost.messages.protocol import encrypted_pb2 as pb

BLOCKS_EACH = 16  # of N rows in one part of the stream of gradients
ANSWERS_EACH = 1024  # in one part of a host's answers: ten megabytes of `lattice`
PART_BYTES_MAX = 1 << 24  # of either, where outputs are many: fewer, but one at least


@dataclass(frozen=True)
class RingGuestRows(GuestRows):
    """Rows under secrets of their own."""

    secret: TreeSecret
    hosts: tuple[str, ...]  # in the table's order
    workers: Workers

    def parts(self) -> Iterator[pb.EncryptedGradients]:
        """Some blocks of rows at a time."""
        first, held, data = 0, 0, bytearray()
        tree = self.secret.tree.number
        each = blocks_each(self.secret.tree.parameters, self.secret.outputs)
        for number, block in enumerate(self.secret.encrypt(), start=1):
            data += block.to_bytes()
            held += len(block)
            if number % each == 0:
                yield _part(tree, first, held, data)
                first, held, data = first + held, 0, bytearray()
        if held or not first:
            yield _part(tree, first, held, data)

    @cached_property
    def sizes(self) -> CipherSizes:
        """See `GuestRows`."""
        return sizes_of(self.secret.budget, self.secret.outputs)

    def key_for(self, host: str) -> bytes:
        """b' of every output, with the host's own a'."""
        return self.secret.public_keys(self.hosts.index(host))

    def read(self, answers: bytes, sums: Sequence[int], nodes: Sequence[Expected]) -> Sums:
        """Each node's answers, as wide as its rows make them."""
        found, first = [np.empty((0, self.secret.outputs), np.int64)], 0
        for count, node in zip(sums, nodes, strict=True):
            own = answers[first : first + self.n_bytes([count], [node])]
            rows = max(1, node.rows)
            found.append(decrypt(self.secret, own, count, rows, node.most, self.workers))
            first += len(own)
        return np.concatenate(found)


@dataclass(frozen=True)
class RingGuest(GuestCipher):
    """What all of an attempt's trees come from."""

    context: StageContext
    scheme: RingScheme
    value_bits: int
    nonces: tuple[bytes, ...]  # ours, then each host's in the table's order

    def told(self, first_tree: int) -> pb.EncryptionKey:
        """The nonces."""
        return pb.EncryptionKey(
            scheme=self.scheme.parameters.name,
            value_bits=self.value_bits,
            first_tree=first_tree,
            nonces=self.nonces,
        )

    def rows(self, tree: int, gh: Sums, n_rows: int) -> RingGuestRows:
        """Fresh secrets for these rows."""
        budget = self.scheme.budget(self.context.params, n_rows, self.value_bits)
        origin = Origin(self.context.attempt_digest, self.nonces[0], self.nonces[1:])
        own = TreePolynomials(budget.parameters, origin, tree)
        secret = TreeSecret(own, budget, np.ascontiguousarray(gh), self.context.secrets)
        return RingGuestRows(secret, self.context.table.hosts, self.context.workers.threads)


@dataclass(frozen=True)
class RingHostRows(HostRows[LatticeSums]):
    """Rows with the keys of their trees."""

    held: EncryptedRows
    key: TreeKey
    budget: Budget
    secrets: Secrets
    workers: Workers
    noise: HostNoise | None = None

    @property
    def adds(self) -> CellAdds:
        """Additions that wrap."""
        return CellAdds()

    @cached_property
    def sizes(self) -> CipherSizes:
        """See `HostRows`."""
        return sizes_of(self.budget, self.held.numbers.shape[1])

    def sums(
        self, rows: NDArray[np.integer], cells: NDArray[np.int32], n_cells: int
    ) -> LatticeSums:
        """Sums of windows."""
        return self.held.segment_sum(rows, cells, n_cells, self.workers)

    def blind(self, nodes: Sequence[NodeSums[LatticeSums]]) -> Iterator[pb.Ciphertexts]:
        """Re-randomised, flooded, rounded and cut as wide as each node's rows make them."""
        for part in self.sizes.parts([(len(node.sums), node.rows) for node in nodes]):
            [(place, cut)] = part.sums
            node = nodes[place]
            width = self.budget.width(max(1, node.rows))
            noise = None if node.noise is None else node.noise[cut]
            secrets = self.secrets.child("lattice answers", node.tree, node.node, cut.start)
            released = self.key.release(node.sums[cut], width, secrets, self.workers, noise)
            yield pb.Ciphertexts(count=len(released), data=released.to_bytes())


@dataclass(frozen=True)
class RingHost(HostCipher):
    """What all of an attempt's trees come from, at a host."""

    context: StageContext
    budget: Budget
    origin: Origin
    columns: int  # numbers of a row
    noise: HostNoise | None = None

    @cached_property
    def sizes(self) -> CipherSizes:
        """See `HostCipher`."""
        return sizes_of(self.budget, self.columns)

    def received(self, data: bytes, rows: int) -> Words:
        """Numbers below q."""
        return words_of(data, (rows, self.columns), self.budget.parameters, "rows")

    def rows(self, parts: Sequence[Words], tree: int, key: bytes) -> RingHostRows:
        """The rows with the windows of our own derivation."""
        own, place = self.context, self.context.table.hosts.index(self.context.party)
        of = TreePolynomials(self.budget.parameters, self.origin, tree)
        held = EncryptedRows.of(of, np.concatenate(parts))
        keys = TreeKey.received(of, place, key, self.columns)
        threads = own.workers.threads
        return RingHostRows(held, keys, self.budget, own.secrets, threads, self.noise)


def sizes_of(budget: Budget, columns: int) -> CipherSizes:
    """Return the sizes of rows with so many numbers, which travel together: one answer a sum, as
    wide as its node's rows make it.
    """
    own = budget.parameters

    def parts(nodes: Sequence[tuple[int, int]]) -> Iterator[AnswerPart]:
        for place, (sums, rows) in enumerate(nodes):
            width = budget.width(max(1, min(budget.rows, rows)))
            n_bytes = AnswerShape(own, columns, width).n_bytes
            for cut in answer_parts(sums, n_bytes):
                count = cut.stop - cut.start
                yield AnswerPart([(place, cut)], count, count * n_bytes)

    def answer_bytes_max(sums: Sequence[int]) -> int:
        widest = AnswerShape(own, columns, budget.width(budget.rows)).n_bytes
        return max(widest, min(PART_BYTES_MAX, min(sum(sums), ANSWERS_EACH) * widest))

    return CipherSizes(
        per_row=1,
        row_bytes=columns * own.word_bytes,
        held_bytes=2 * columns * own.word_bytes,  # with the windows of the host's derivation
        cell_bytes=8 * (own.ring + columns),
        rows_each=own.ring * blocks_each(own, columns),
        parts=parts,
        answer_bytes_max=answer_bytes_max,
        tree_key_bytes=own.ring * columns * own.word_bytes,
    )


def blocks_each(own: LatticeParameters, columns: int) -> int:
    """Return how many blocks of N rows go into a part."""
    return max(1, min(BLOCKS_EACH, PART_BYTES_MAX // (own.ring * columns * own.word_bytes)))


def answer_parts(sums: int, n_bytes: int) -> Iterator[slice]:
    """Yield which of a node's sums go into each part of an answer, where one sum takes so many
    bytes.
    """
    each = max(1, min(ANSWERS_EACH, PART_BYTES_MAX // n_bytes))
    for start in range(0, sums, each):
        yield slice(start, min(start + each, sums))


def _part(tree: int, first: int, held: int, data: bytearray) -> pb.EncryptedGradients:
    rows = pb.Ciphertexts(count=held, data=bytes(data))
    return pb.EncryptedGradients(tree=tree, first_row=first, rows=rows)


@dataclass(frozen=True)
class RingScheme(TreeScheme):
    """A lattice."""

    parameters: LatticeParameters
    bits_least: ClassVar[int] = MESSAGE_BITS_LEAST - 1
    takes_nonces: ClassVar[bool] = True

    def bits_most(self, params: EncryptedTreeParams, n_rows: int) -> int:
        """Return the bits of a message, which is signed."""
        return self.budget(params, n_rows).message_bits - 1

    def encoding(self, params: P, n_rows: int, of: Callable[[P], FixedPoint]) -> FixedPoint:
        """For the objective's own bounds. The greatest gradient is the greatest message."""
        own = of(params.model_copy(update={"precision_bits": None}))
        return fixed_point.encoding(self.bits_of(params, n_rows), own.g_bound, own.h_bound)

    def budget(
        self, params: EncryptedTreeParams, n_rows: int, value_bits: int | None = None
    ) -> Budget:
        """Return what it can add up; `value_bits` where the job says how many there are."""
        bits = MESSAGE_BITS_MOST if value_bits is None else value_bits + 1
        return Budget(self.parameters, n_rows, bits, spare_rows(params))

    def sizes(self, params: EncryptedTreeParams, n_rows: int) -> CipherSizes:
        """Those of the widest messages that fit."""
        return sizes_of(self.budget(params, n_rows), columns_of(params))

    def guest_side(
        self, context: StageContext, value_bits: int, rows: Iterable[int], nonces: tuple[bytes, ...]
    ) -> RingGuest:
        """Return what the nonces come to."""
        del rows
        return RingGuest(context, self, value_bits, nonces)

    def host_side(
        self,
        context: StageContext,
        got: pb.EncryptionKey,
        n_rows: int,
        offered: int,
        noise: HostNoise | None,
    ) -> RingHost:
        """Return what the nonces come to."""
        del offered
        origin = accept_nonces(context, got)
        budget = self.budget(context.params, n_rows, got.value_bits)
        return RingHost(context, budget, origin, columns_of(context.params), noise)


def columns_of(params: EncryptedTreeParams) -> int:
    """Return how many numbers a row has."""
    return 2 * params.n_outputs // params.trees_per_round


def tree_scheme(name: str) -> RingScheme:
    """Return the scheme with the lattice parameters of that name."""
    return RingScheme(parameters.named(name))


def accept_nonces(context: StageContext, got: pb.EncryptionKey) -> Origin:
    """Return what public polynomials come from; refuses, by a PeerError, nonces without our own."""
    hosts = context.table.hosts
    if got.key or len(got.nonces) != 1 + len(hosts):
        raise PeerError(f"the guest sent {len(got.nonces)} nonces for {1 + len(hosts)} parties")
    if got.nonces[1 + hosts.index(context.party)] != keys.nonce(context):
        raise PeerError("the guest put another nonce in the place of ours")
    return Origin(context.attempt_digest, got.nonces[0], tuple(got.nonces[1:]))
