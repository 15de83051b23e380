"""The lattice schemes: secrets for every tree, public polynomials of all nonces; the guest's side.

They have few bits (`crypto.lattice.budget`), so gradients are rounded up or down at random
(`core.fixed_point`), as in every job of few bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import ClassVar

import numpy as np

from fedboost.core import fixed_point
from fedboost.core.fixed_point import FixedPoint
from fedboost.crypto.lattice import parameters
from fedboost.crypto.lattice.budget import MESSAGE_BITS_LEAST, MESSAGE_BITS_MOST, Budget
from fedboost.crypto.lattice.decryption import AnsweredNode, decrypt, decrypt_packed
from fedboost.crypto.lattice.packing_keys import PackingSecret
from fedboost.crypto.lattice.parameters import LatticeParameters
from fedboost.crypto.lattice.polynomials import Origin, TreePolynomials
from fedboost.crypto.lattice.secret import TreeSecret
from fedboost.encrypted.lattice.answers import (
    VECTORS,
    best_slots,
    blocks_each,
    columns_of,
    epoch_of,
    in_words,
    sizes_of,
    slots_of,
)
from fedboost.encrypted.lattice.host import LatticeHost, accept_nonces
from fedboost.encrypted.scheme.ciphers import (
    AnswersSeen,
    CipherSizes,
    GuestCipher,
    GuestRows,
    NodeBounds,
    P,
    TreeScheme,
)
from fedboost.encrypted.scheme.host_noise import HostNoise, spare_rows
from fedboost.encrypted.scheme.params import EncryptedContext, EncryptedTreeParams
from fedboost.ground.arrays import Floats, Indices, Sums
from fedboost.ground.workers import Workers
from fedboost.messages.protocol import encrypted_pb2 as pb


@dataclass(frozen=True)
class LatticeGuestRows(GuestRows):
    """Rows under the secrets of their trees."""

    secret: TreeSecret
    hosts: tuple[str, ...]  # in the table's order
    workers: Workers
    seen: AnswersSeen
    least: Sums  # (2·outputs,) lower bounds of sums
    packing: PackingSecret | None  # of packed answers

    def parts(self) -> Iterator[pb.EncryptedGradients]:
        """Yield the rows, some blocks at a time."""
        first, held, data = 0, 0, bytearray()
        tree = self.secret.tree.number
        each = blocks_each(self.secret.tree.parameters, self.secret.outputs)
        for number, block in enumerate(self.secret.encrypt(), start=1):
            data += block.to_bytes()
            held += len(block)
            if number % each == 0:
                yield _message_part(tree, first, held, data)
                first, held, data = first + held, 0, bytearray()
        if held or not first:
            yield _message_part(tree, first, held, data)

    @cached_property
    def sizes(self) -> CipherSizes:
        """See `GuestRows`."""
        return sizes_of(self.secret.budget, self.secret.outputs, slots_of(self.packing))

    def key_for(self, host: str) -> bytes:
        """Return b' of every output, with the host's own a'. The packing key stands behind them,
        the same for all, if answers are packed; the tree's nonce stands before them if trees share
        secrets.
        """
        packing = self._packing_key if self.seen.takes_key(host) else b""
        public = self.secret.public_keys(self.hosts.index(host))
        return self.secret.nonce + public + packing

    @cached_property
    def _packing_key(self) -> bytes:
        return b"" if self.packing is None else self.packing.key()

    def read(self, answers: bytes, sums: Sequence[int], nodes: Sequence[NodeBounds]) -> Sums:
        """Return the sums of each node's answers, as wide as its rows make them."""
        self.seen.sums.append(sum(sums))
        if self.packing is not None:
            asked = [
                AnsweredNode(count, max(1, node.rows), node.most)
                for count, node in zip(sums, nodes, strict=True)
            ]
            return decrypt_packed(
                self.secret, self.packing, answers, asked, self.workers, self.least
            )
        sums_read, first = [np.empty((0, self.secret.outputs), np.int64)], 0
        for count, node in zip(sums, nodes, strict=True):
            answer = answers[first : first + self.n_bytes([count], [node])]
            rows = max(1, node.rows)
            sums_read.append(decrypt(self.secret, answer, count, rows, node.most, self.workers))
            first += len(answer)
        return np.concatenate(sums_read)


@dataclass(frozen=True)
class LatticeGuest(GuestCipher):
    """The source of all trees of an attempt."""

    context: EncryptedContext
    scheme: LatticeScheme
    value_bits: int
    nonces: tuple[bytes, ...]  # ours, then each host's in the table's order
    seen: AnswersSeen = field(default_factory=AnswersSeen)

    def key_message(self, first_tree: int) -> pb.EncryptionKey:
        """Return the message of the nonces."""
        return pb.EncryptionKey(
            scheme=self.scheme.parameters.name,
            value_bits=self.value_bits,
            first_tree=first_tree,
            nonces=self.nonces,
        )

    def rows(self, tree: int, gh: Sums, n_rows: int) -> LatticeGuestRows:
        """Return these rows under secrets: fresh, or those of the trees that share them."""
        params = self.context.params
        budget = self.scheme.budget(params, n_rows, self.value_bits)
        origin = Origin(self.context.attempt.digest, self.nonces[0], self.nonces[1:])
        derived, epoch = TreePolynomials(budget.parameters, origin, tree), epoch_of(params, tree)
        secret = TreeSecret(
            derived, budget, np.ascontiguousarray(gh), self.context.secrets.attempt, epoch
        )
        choose = partial(best_slots, params, budget, self.seen)
        slots = self.seen.begin(tree, n_rows, epoch, choose)
        packing = None if slots == VECTORS else secret.packing(slots)
        least = np.full(secret.outputs, np.iinfo(np.int64).min)
        if not params.host_noise and (gh[:, 1::2] >= 0).all():
            least[1::2] = 0  # the hessians
        hosts, threads = self.context.table.hosts, self.context.services.workers.threads
        return LatticeGuestRows(secret, hosts, threads, self.seen, least, packing)

    def answers_in_words(self) -> str:
        """See `GuestCipher`."""
        return self.scheme.answers_in_words(self.context.params, self.seen)


def _message_part(tree: int, first: int, held: int, data: bytearray) -> pb.EncryptedGradients:
    rows = pb.Ciphertexts(count=held, data=bytes(data))
    return pb.EncryptedGradients(tree=tree, first_row=first, rows=rows)


@dataclass(frozen=True)
class LatticeScheme(TreeScheme):
    """A lattice scheme with its parameters."""

    parameters: LatticeParameters
    bits_least: ClassVar[int] = MESSAGE_BITS_LEAST - 1
    takes_nonces: ClassVar[bool] = True

    def bits_most(self, params: EncryptedTreeParams, n_rows: int) -> int:
        """Return the bits of a message without its sign."""
        return self.budget(params, n_rows).message_bits - 1

    def encoding(self, params: P, n_rows: int, of: Callable[[P], FixedPoint]) -> FixedPoint:
        """Return the encoding for the objective's own bounds. The greatest gradient is the greatest
        message.
        """
        usual = of(params.model_copy(update={"precision_bits": None}))
        return fixed_point.encoding(self.bits_of(params, n_rows), usual.g_bound, usual.h_bound)

    def budget(
        self, params: EncryptedTreeParams, n_rows: int, value_bits: int | None = None
    ) -> Budget:
        """Return the scheme's room for sums; `value_bits` are the bits of a gradient if the job
        sets them.
        """
        bits = MESSAGE_BITS_MOST if value_bits is None else value_bits + 1
        return Budget(self.parameters, n_rows, bits, spare_rows(params))

    def _budget_of_job(self, params: EncryptedTreeParams, n_rows: int) -> Budget:
        """Return the budget of messages as wide as the job has them."""
        return self.budget(params, n_rows, self.bits_of(params, n_rows))

    def sizes(self, params: EncryptedTreeParams, n_rows: int, slots: int = VECTORS) -> CipherSizes:
        """Return the sizes of the job's messages."""
        return sizes_of(self._budget_of_job(params, n_rows), columns_of(params), slots)

    def field_of(self, params: EncryptedTreeParams, n_rows: int) -> tuple[Floats, Indices]:
        """See `TreeScheme`: no sums share a plaintext."""
        columns = columns_of(params)
        bits = self._budget_of_job(params, n_rows).readable_bits(n_rows)
        return np.full(columns, bits), np.ones(columns, np.int64)

    def slots(self, params: EncryptedTreeParams, n_rows: int, seen: AnswersSeen) -> int:
        """See `best_slots`."""
        return best_slots(params, self._budget_of_job(params, n_rows), seen)

    def answers_in_words(self, params: EncryptedTreeParams, seen: AnswersSeen) -> str:
        """See `in_words`."""
        seen.close()
        return in_words(params, self._budget_of_job(params, seen.n_rows), seen)

    def epoch(self, params: EncryptedTreeParams, tree: int) -> int | None:
        """See `epoch_of`."""
        return epoch_of(params, tree)

    def guest_side(
        self,
        context: EncryptedContext,
        value_bits: int,
        rows: Iterable[int],
        nonces: tuple[bytes, ...],
    ) -> LatticeGuest:
        """Return the guest's side from the nonces."""
        del rows
        return LatticeGuest(context, self, value_bits, nonces)

    def host_side(
        self,
        context: EncryptedContext,
        got: pb.EncryptionKey,
        n_rows: int,
        offered: int,
        noise: HostNoise | None,
    ) -> LatticeHost:
        """Return the host's side from the nonces."""
        del offered
        origin = accept_nonces(context, got)
        budget = self.budget(context.params, n_rows, got.value_bits)
        return LatticeHost(context, budget, origin, columns_of(context.params), noise)


def tree_scheme(name: str) -> LatticeScheme:
    """Return the scheme with the lattice parameters of that name."""
    return LatticeScheme(parameters.by_name(name))
