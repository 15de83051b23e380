"""The guest's side of one tree: its secrets, the encryption of its rows, its public keys.

Draws of `Secrets` are bound to the tree's origin and to all of its messages. A tree that begins
again with another nonce or one other message gets secrets and errors that have nothing to
do with the first ones; with the same, it gets the same bytes. (Two encryptions under one a·s would
reveal the difference of their messages.)

If trees share an epoch, s, e' and packing keys are the epoch's. Then a comes from a nonce, which
is bound to the tree's origin and messages instead, as its rows' errors are.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from fedboost.crypto.api import Encrypted, seal_encrypted
from fedboost.crypto.lattice import samples
from fedboost.crypto.lattice.budget import Budget
from fedboost.crypto.lattice.packing_keys import PackingSecret, PackingShape
from fedboost.crypto.lattice.polynomials import Polynomial, TreePolynomials, number_bytes
from fedboost.crypto.lattice.product import multiplier
from fedboost.crypto.lattice.words import bytes_of
from fedboost.crypto.secrets import Secrets
from fedboost.ground.arrays import Words
from fedboost.ground.errors import ConfigError

Messages = NDArray[np.int64]  # (n, outputs)


class TreeSecret:
    """Secrets for one tree and its messages; it prints nothing and cannot be pickled.

    `messages` int64 (n, outputs): one number per row and output (g and h, of each class), at most
    `budget.message_most` either way; a ConfigError for others. `secrets` are the guest's own for
    the job. With an `epoch` s is that of all trees of this number, and hosts need `nonce` (32
    bytes) with the rows; otherwise s is fresh and `nonce` empty.
    """

    def __init__(
        self,
        tree: TreePolynomials,
        budget: Budget,
        messages: Messages,
        secrets: Secrets,
        epoch: int | None = None,
    ) -> None:
        _check_messages(messages, budget, tree)
        self.budget = budget
        self.outputs = messages.shape[1]
        self._messages = messages
        digest = hashlib.sha256(np.ascontiguousarray(messages, dtype="<i8").data).digest()
        place = tree.encoded(b"secrets", self.outputs)
        if epoch is None:
            origin = hashlib.sha256(place).digest()
            self.tree, self.nonce = tree, b""
            self._secrets = self._lasting = secrets.child("lattice tree", origin, digest)
        else:
            origin = hashlib.sha256(place + number_bytes(epoch)).digest()
            self.nonce = secrets.derive("lattice tree nonce", origin, digest)
            self.tree = tree.in_epoch(epoch, self.nonce)
            self._secrets = secrets.child("lattice tree", origin, digest)
            attempt = hashlib.sha256(tree.of_attempt(b"secrets") + number_bytes(self.outputs))
            self._lasting = secrets.child("lattice epoch", attempt.digest(), epoch)
        parameters = tree.parameters
        wanted = self.outputs * samples.ternary_bytes(parameters.ring)
        data = np.frombuffer(self._lasting.bytes(wanted, "secrets"), dtype=np.uint8)
        self._ternary = samples.ternary(data.reshape(self.outputs, -1), parameters.ring)
        self._multiplier = multiplier(parameters)
        self._values = self._multiplier.values(self._ternary)

    def encrypt(self) -> Iterator[Encrypted]:
        """Yield the rows, a block of N at a time, as `EncryptedRows.received` reads them: one
        ciphertext a row, its outputs' numbers one after the other.
        """
        return self._encrypted_blocks()

    def _encrypted_blocks(self) -> Iterator[Encrypted]:
        for numbers in self.blocks():
            yield seal_encrypted(bytes_of(numbers, self.tree.parameters))

    def blocks(self) -> Iterator[Words]:
        """Yield b of each block's rows, uint64 (at most N, outputs) below q."""
        parameters = self.tree.parameters
        scale = np.uint64(parameters.scale_bits)
        for block, first in enumerate(range(0, len(self._messages), parameters.ring)):
            messages = self._messages[first : first + parameters.ring].view(np.uint64)
            masked = self._masked_secrets(self.tree.of_rows(block), self._secrets, "rows", block)
            yield (masked[: len(messages)] + (messages << scale)) & parameters.mask

    def public_keys(self, host: int) -> bytes:
        """Return b' of every output for the host at that index of the manifest, as
        `TreeKey.received` reads them; the same for all trees of an epoch.
        """
        keys = self._masked_secrets(self.tree.of_answers(host), self._lasting, "answers", host)
        return bytes_of(keys.T & self.tree.parameters.mask, self.tree.parameters).tobytes()

    def packing(self, slots: int) -> PackingSecret:
        """Return the secret of the packing keys for so many answers a batch; the same for all trees
        of an epoch.
        """
        shape = PackingShape(self.tree.parameters, self.outputs, slots)
        origin = self.tree.packing_origin
        return PackingSecret(shape, self._lasting, origin, self.reversed_secrets())

    def reversed_secrets(self) -> NDArray[np.int8]:
        """The secrets as windows are paired with them, highest coefficient first, int8
        (outputs, N): for decryption and packing keys, and nothing else.
        """
        return np.ascontiguousarray(self._ternary[:, ::-1])

    def _masked_secrets(
        self, polynomial: Polynomial, secrets: Secrets, use: str, number: int
    ) -> Words:
        """Return polynomial · s + fresh e for each output, uint64 (N, outputs), modulo 2^64."""
        parameters = self.tree.parameters
        each = samples.ERROR_BYTES * parameters.ring
        drawn = secrets.bytes(self.outputs * each, "errors", use, number)
        data = np.frombuffer(drawn, dtype=np.uint8).reshape(self.outputs, each)
        noise = (
            samples.binomial_errors(data, parameters.error_bits).astype(np.int64).view(np.uint64)
        )
        fixed = self._multiplier.fixed(polynomial)
        return (self._multiplier.multiply(fixed, self._values) + noise).T

    def __repr__(self) -> str:
        return f"TreeSecret({len(self._messages)} rows × {self.outputs} outputs, hidden)"

    def __reduce__(self) -> NoReturn:
        raise TypeError("secrets are not pickled")


def _check_messages(messages: Messages, budget: Budget, tree: TreePolynomials) -> None:
    if messages.dtype != np.int64 or messages.ndim != 2 or messages.shape[1] < 1:
        raise ConfigError(
            f"messages must be int64 (n, outputs), got {messages.dtype} {messages.shape}"
        )
    if budget.parameters != tree.parameters or len(messages) > budget.rows:
        raise ConfigError(
            f"{len(messages)} rows do not go with a budget for {budget.rows} "
            f"of {budget.parameters.name}"
        )
    most = budget.message_most
    if (messages > most).any() or (messages < -most).any():
        raise ConfigError(
            f"a message is outside the {budget.message_bits} bits that the budget leaves it",
            todo="scale gradients and hessians to the budget's message_most",
        )
