"""Checks that gradients keep to their declared bits: sums with random signs, which the guest opens.

    host ── SignedSums ──────► guest   each row with a random sign, added up, an offset on top
    host ◄─ SumsCommitment ─── guest   a commitment to the sums that it read
    host ── SignSeed ────────► guest   signs and offsets
    host ◄─ OpenedSums ─────── guest   after it added up its own gradients with these signs

Gradients of b bits with random signs add up to about 2^b·√n, a number far above that to itself or
its opposite. A guest that lies has to know the signs before it sees them. A host that asks for
another sum than it announces learns nothing, and the job ends. Opened sums carry the guest's noise.

Sets of fewer rows have smaller sums, but a number that is too large is less often among them: three
nested sets are added up, each an eighth of the one before. With offsets, sums stay in the range of
answers, so they do not hide the sign of a number that takes up half of that. Numbers within
2·NORMAL·2^b·√n pass.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedboost.crypto.secrets import SEED_BYTES, Secrets
from fedboost.encrypted.guest.tree import GuestRules
from fedboost.encrypted.host.tree import HostTreeBatch
from fedboost.encrypted.scheme.ciphers import GuestRows, HostRows, NodeBounds
from fedboost.encrypted.scheme.params import EncryptedContext
from fedboost.flow import DisclosureInfo, Out
from fedboost.ground import wire
from fedboost.ground.arrays import Sums
from fedboost.ground.errors import PeerError
from fedboost.ground.slot import Slot
from fedboost.messages.protocol import encrypted_pb2 as pb

SETS = 3  # sets of rows, each a part of the one before
WITHIN = (128, 16, 2)  # of 128 values of a random byte without its sign: those in each set
SET_ROWS_LEAST = 32  # the least expected rows of a set: a sum of fewer would reveal single rows
NORMAL = 6.0  # signed sums of declared bits are within so many times 2^b·√n but once in 30 million
RANGE_FACTOR_MIN = (
    4  # the range of answers is at least so many times as wide as signed sums are either way
)
OFFSET_BYTES = 16  # random bytes of an offset, enough to make all offsets equally likely
COMMITMENT_BYTES = 32

Signs = NDArray[np.int8]


@dataclass(frozen=True, repr=False)
class SignedRows:
    """Signs, sets and offsets of some rows, all of them from one seed."""

    seed: bytes
    rows: int
    numbers: int  # of each row
    value_bits: int

    @cached_property
    def sets(self) -> dict[int, int]:
        """Return the bound of honest sums over each nested set that is added up, by the set's
        number: sets with enough rows, whose sums leave room for offsets. Empty for few rows.
        """
        expected = [self.rows * within // WITHIN[0] for within in WITHIN]
        bounds = [math.ceil(NORMAL * math.sqrt(rows) * (1 << self.value_bits)) for rows in expected]
        return {
            number: bounds[number]
            for number, rows in enumerate(expected)
            if rows >= SET_ROWS_LEAST and RANGE_FACTOR_MIN * bounds[number] <= self.most
        }

    @property
    def most(self) -> int:
        """Return the upper bound of a sum over all rows."""
        return self.rows * ((1 << self.value_bits) - 1)

    @cached_property
    def offsets(self) -> Sums:
        """Return the offset of each sum, int64 (sets, numbers), from the middle half of the
        range.
        """
        quarter = self.most // RANGE_FACTOR_MIN
        drawn = _draw_below(Secrets(self.seed), "offsets", [self.most - 2 * quarter] * self._n_sums)
        return (drawn + quarter).reshape(-1, self.numbers)

    def noise(self, secrets: Secrets) -> Sums:
        """Draw the guest's noise of the sums, int64 (sets, numbers): as wide as honest ones are."""
        wide = np.array([*self.sets.values()], np.int64).repeat(self.numbers)
        drawn = _draw_below(secrets, "noise", (2 * wide + 1).tolist())
        return (drawn - wide).reshape(-1, self.numbers)

    @property
    def cells(self) -> NDArray[np.int32]:
        """Return the cell that each row adds to, int32 (n,): for each sign, rows in all sets come
        first, then rows in one set fewer, and so on.
        """
        return ((self._row_signs < 0) * SETS + (SETS - 1 - self._smallest_set)).astype(np.int32)

    def sums(self, gradients: Sums) -> Sums:
        """Return the signed sums of the rows' numbers, int64 (n, numbers), as this process knows
        them.
        """
        smallest, signs = self._smallest_set, self._row_signs
        sums = [
            np.where(smallest >= number, signs, np.int8(0)).astype(np.int64) @ gradients
            for number in self.sets
        ]
        return np.array(sums, np.int64).reshape(-1, self.numbers)

    @property
    def _n_sums(self) -> int:
        return len(self.sets) * self.numbers

    @cached_property
    def _random_bytes(self) -> NDArray[np.uint8]:
        return np.frombuffer(Secrets(self.seed).bytes(self.rows, "signs"), np.uint8)

    @property
    def _row_signs(self) -> Signs:
        return (1 - 2 * (self._random_bytes & 1)).astype(np.int8)

    @property
    def _smallest_set(self) -> Signs:
        """Return the smallest set that each row is in."""
        return np.sum(
            [(self._random_bytes >> 1) < within for within in WITHIN[1:]], axis=0, dtype=np.int8
        )

    def __repr__(self) -> str:
        return f"SignedRows({self.rows}, hidden)"


@dataclass(frozen=True)
class Unchecked:
    """Encrypted rows whose sums may not leave yet, and the host's question about them."""

    rows: HostRows[Any]
    count: int
    question: SignedRows | None = None
    commitment: bytes = b""


class CheckingHost:
    """A host's encrypted rows, before and after their check."""

    context: EncryptedContext
    tree_batch: HostTreeBatch
    value_bits: int  # that the guest declares
    gradients = Slot[HostRows[Any]]("gradients of this attempt, checked where the job has it so")
    unchecked = Slot[Unchecked]("gradients to check")

    def take_gradients(self, rows: HostRows[Any], count: int) -> None:
        """Accept this many rows for the trees that grow now."""
        if self.context.params.gradient_check:
            del self.gradients
            self.unchecked = Unchecked(rows, count)
        else:
            self.gradients = rows


def sign_rows(host: CheckingHost) -> Out:
    """Send signed sums of the rows, blinded; none if there are too few rows."""
    held, tree = host.unchecked, host.tree_batch.first
    rows, numbers = held.rows, len(held.rows.number_bits(held.count))
    seed = host.context.secrets.attempt.derive("gradient check", tree)
    question = SignedRows(seed, held.count, numbers, host.value_bits)
    host.unchecked = replace(held, question=question)
    about = DisclosureInfo(held.count)
    if not question.sets:
        return Out(send=pb.SignedSums(), about=about)
    places, sums = np.arange(held.count, dtype=np.int32), rows.row_sums
    added = sums.sums(places, question.cells[:, None], 2 * SETS)
    running = sums.running_sums(added, np.array([0, SETS, 2 * SETS]))
    signed = sums.adds.subtract(running[:SETS], running[SETS:])
    chosen = signed[SETS - 1 - np.array([*question.sets])]
    blinded = rows.blind_signed(tree, chosen, question.offsets, held.count)
    return Out(send=pb.SignedSums(sums=blinded), about=about)


def show_signs(host: CheckingHost, got: pb.SumsCommitment) -> Out:
    """Send the signs, now that the guest has committed to sums."""
    held = host.unchecked
    if held.question is None or held.commitment or len(got.digest) != COMMITMENT_BYTES:
        raise PeerError("the guest sent no commitment to sums")
    host.unchecked = replace(held, commitment=got.digest)
    return Out(send=pb.SignSeed(seed=held.question.seed))


def check_sums(host: CheckingHost, got: pb.OpenedSums) -> Out:
    """Release the rows for adding up if the guest opens small sums that match its commitment."""
    held, question = host.unchecked, host.unchecked.question
    if question is None or not held.commitment:
        raise PeerError("the guest opened sums that it was not asked for")
    sums = read_sums(got.sums, question)
    if len(got.salt) != SEED_BYTES or commitment_of(sums, got.salt) != held.commitment:
        raise PeerError("the guest opened other sums than it had committed to")
    most = 2 * np.array([*question.sets.values()], np.int64)[:, None]  # the guest's noise, too
    if (np.abs(sums - question.offsets) > most).any():
        raise PeerError(
            "the guest's gradients are larger than it declares: with random signs they add up "
            "to more than declared ones can",
            todo="ask the guest's owner; no sum of these gradients has left",
        )
    host.gradients = held.rows
    del host.unchecked
    return Out()


@dataclass(frozen=True, repr=False)
class Committed:
    """The sums that the guest has read from a host's question, and the sums that it will open."""

    read: Sums  # (sets, numbers)
    noise: Sums
    salt: bytes

    @property
    def opened(self) -> Sums:
        """Return the sums that the host hears."""
        return self.read + self.noise

    def open(self, got: pb.SignSeed, gradients: Sums, value_bits: int, host: str) -> pb.OpenedSums:
        """Return the message that opens the commitment; a PeerError if these are not sums with the
        signs of `got`.

        `gradients` int64 (n, numbers) belong to the rows that the host has.
        """
        if len(got.seed) != SEED_BYTES:
            raise PeerError(f"{host} sent signs of {len(got.seed)} bytes")
        rows, numbers = gradients.shape
        question = SignedRows(got.seed, rows, numbers, value_bits)
        if not np.array_equal(question.sums(gradients) + question.offsets, self.read):
            raise PeerError(
                f"{host} asked for other sums than the signs that it sent define: nothing of them "
                "was opened",
                todo="ask the host's owner",
            )
        return pb.OpenedSums(sums=wire.pack(self.opened), salt=self.salt)

    def __repr__(self) -> str:
        return "Committed(hidden)"


class CheckedGuest:
    """A guest's gradients as hosts have them."""

    context: EncryptedContext
    rules: GuestRules
    trees_closed: int
    committed = Slot[dict[str, Committed]]("sums that hosts have asked for")  # by host

    def sent(self) -> Mapping[str, tuple[GuestRows, Sums]]:
        """Return each host's rows as they were encrypted, and their gradients int64 (n,
        2·outputs).
        """
        raise NotImplementedError


def commit_sums(guest: CheckedGuest, got: Mapping[str, pb.SignedSums]) -> Out:
    """Read the signed sums of hosts, and commit to them."""
    sent, bits = guest.sent(), guest.rules.fixed.bits
    guest.committed = {}
    for host, message in got.items():
        secrets = guest.context.secrets.attempt.child("gradient check", host, guest.trees_closed)
        guest.committed[host] = _committed(message, *sent[host], bits, secrets)
    digests = {host: commitment_of(c.opened, c.salt) for host, c in guest.committed.items()}
    return Out(send={host: pb.SumsCommitment(digest=digests[host]) for host in digests})


def open_sums(guest: CheckedGuest, got: Mapping[str, pb.SignSeed]) -> Out:
    """Open the sums to each host whose question matches the signs that it shows."""
    sent, bits, opened = guest.sent(), guest.rules.fixed.bits, {}
    for host, message in got.items():
        _, gradients = sent[host]
        opened[host] = guest.committed[host].open(message, gradients, bits, host)
    del guest.committed
    return Out(send=opened)


def _committed(
    got: pb.SignedSums, rows: GuestRows, gradients: Sums, value_bits: int, secrets: Secrets
) -> Committed:
    """Read a host's question about these gradients; a PeerError if its ciphertexts do not
    decrypt.
    """
    n_rows, numbers = gradients.shape
    plain = SignedRows(bytes(SEED_BYTES), n_rows, numbers, value_bits)  # as large as any
    expected = rows.count([len(plain.sets)]) if plain.sets else 0
    if got.sums.count != expected:
        raise PeerError(f"a host sent {got.sums.count} ciphertexts of signed sums, not {expected}")
    read = np.empty((0, plain.numbers), np.int64)
    if plain.sets:
        most = np.full(plain.numbers, plain.most, np.int64)
        read = rows.read(got.sums.data, [len(plain.sets)], [NodeBounds(plain.rows, most)])
    return Committed(read, plain.noise(secrets), secrets.derive("salt"))


def read_sums(array: Any, question: SignedRows) -> Sums:
    """Return the signed sums that were opened, int64 (sets, numbers)."""
    shape = (len(question.sets), question.numbers)
    return wire.unpack(array, "i8", shape, "the opened sums").astype(np.int64)


def commitment_of(sums: Sums, salt: bytes) -> bytes:
    """Return a commitment that binds to sums and hides them, with a salt of 32 random bytes."""
    return hashlib.sha256(salt + np.ascontiguousarray(sums, "<i8").tobytes()).digest()


def _draw_below(secrets: Secrets, purpose: str, counts: Sequence[int]) -> NDArray[np.int64]:
    """Return random numbers from 0 to below each count."""
    data = secrets.bytes(OFFSET_BYTES * len(counts), purpose)
    words = [data[i : i + OFFSET_BYTES] for i in range(0, len(data), OFFSET_BYTES)]
    drawn = [int.from_bytes(word, "little") % n for word, n in zip(words, counts, strict=True)]
    return np.array(drawn, np.int64)
