"""An encryption scheme as trees need it: the exactness of sums, and its two sides.

    guest   GuestCipher ── rows of some trees ──► GuestRows ── parts ──────► wire ─► host
    host    HostCipher  ── parts, checked ──────► HostRows  ── blind ──────► wire ─► guest

`number` has both for the schemes whose ciphertexts are numbers under one key, `lattice` for the
lattice schemes, which have separate secrets for every tree. `schemes` chooses.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedboost.core.fixed_point import FixedPoint
from fedboost.crypto.api import H, Pairs
from fedboost.encrypted.cells.adding import PlacedRows, PlacedTree
from fedboost.encrypted.cells.node_cells import RowSums
from fedboost.encrypted.cells.request import CandidateTerms, CellRequest
from fedboost.encrypted.scheme.host_noise import HostNoise
from fedboost.encrypted.scheme.params import EncryptedContext, EncryptedTreeParams
from fedboost.ground.arrays import Floats, Indices, Sums
from fedboost.ground.errors import ConfigError
from fedboost.ground.part_workers import Embedded
from fedboost.messages.protocol import encrypted_pb2 as pb

WHOLE_TREE = (1 << 63) - 1  # stands for a node in sums over all rows of a tree with signs

P = TypeVar("P", bound=EncryptedTreeParams)


@dataclass(frozen=True)
class NodeBounds:
    """The guest's knowledge of a node whose sums will arrive."""

    rows: int  # rows that its tree learns from
    most: Sums  # (2·outputs,) Σ|g| and Σh of the rows, plus noise: the bound of every sum


@dataclass(frozen=True)
class AnswerPart:
    """A part of an answer: some sums of each of some nodes, and its size."""

    sums: Sequence[tuple[int, slice]]  # index of a node, and a slice of its sums
    ciphertexts: int
    n_bytes: int


@dataclass(frozen=True)
class CipherSizes:
    """Sizes of the rows, cells and answers of a job under a scheme."""

    per_row: int  # ciphertexts of a row, a cell or a sum
    row_bytes: int  # of a row's gradients on the wire
    held_bytes: int  # and at a host
    cell_bytes: int  # of a cell in memory
    rows_each: int  # at most, in a part of the stream of gradients
    # The parts of an answer about nodes, each with so many sums and rows.
    parts: Callable[[Sequence[tuple[int, int]]], Iterator[AnswerPart]]
    # How large one of them can be, about nodes with at most so many sums and any rows.
    answer_bytes_max: Callable[[Sequence[int]], int]
    tree_key_bytes: int = 0  # of a host's key for some trees
    capacity: int = 1  # sums that share a blinding, at most

    @property
    def bytes_max(self) -> int:
        """The largest size of a part's rows, with the key of their trees."""
        return self.rows_each * self.row_bytes + self.tree_key_bytes

    def blinded(self, sums: int, ciphertexts: int) -> int:
        """Return the number of blindings for so many sums, which leave in so many ciphertexts."""
        return sums * self.per_row if self.capacity == 1 else ciphertexts


@dataclass
class AnswersSeen:
    """Sizes of the hosts' answers about the trees so far: the next ones are like the last."""

    tree: int = -1
    n_rows: int = 1  # the most that its receivers can have
    hosts: int = 0  # that rows went to
    sums: list[int] = field(default_factory=list)  # of each of their answers
    last: tuple[int, list[int]] | None = None  # hosts and sums of the tree before
    # Trees that share a key: their epoch, the sums of a ciphertext, the hosts with the key.
    epoch: int = -1
    slots: int = 0
    told: set[str] = field(default_factory=set)

    def begin(self, tree: int, n_rows: int, epoch: int | None, choose: Callable[[], int]) -> int:
        """Return how many sums share a ciphertext of a tree whose rows are about to travel: as
        chosen now, or at the beginning of the `epoch` that it shares a key with.
        """
        if tree != self.tree:
            self.close()
            self.tree = tree
        self.n_rows = n_rows
        if epoch is None:
            return choose()
        if epoch != self.epoch:
            self.epoch, self.slots, self.told = epoch, choose(), set()
        return self.slots

    def takes_key(self, host: str) -> bool:
        """Note that a host gets rows; return whether it lacks the key for its answers."""
        self.hosts += 1
        if self.epoch < 0:
            return True
        lacks = host not in self.told
        self.told.add(host)
        return lacks

    def close(self) -> None:
        """Note that all answers to the tree have arrived."""
        if self.sums:
            self.last = self.hosts, self.sums
        self.hosts, self.sums = 0, []


class GuestRows(ABC):
    """Encrypted gradients of growing trees, for some hosts."""

    @property
    @abstractmethod
    def sizes(self) -> CipherSizes:
        """The sizes of the rows, and of answers about them."""

    @abstractmethod
    def parts(self) -> Iterator[pb.EncryptedGradients]:
        """Yield all rows, in parts; the caller may add fields to the first."""

    def key_for(self, host: str) -> bytes:
        """Return the host's key for these trees; empty if one key serves all."""
        del host
        return b""

    def count(self, sums: Sequence[int]) -> int:
        """Return the number of ciphertexts in answers about nodes with so many sums."""
        return sum(part.ciphertexts for part in self.sizes.parts([(n, 1) for n in sums]))

    def n_bytes(self, sums: Sequence[int], nodes: Sequence[NodeBounds]) -> int:
        """Return the size of all those ciphertexts, about these nodes."""
        asked = [(n, node.rows) for n, node in zip(sums, nodes, strict=True)]
        return sum(part.n_bytes for part in self.sizes.parts(asked))

    @abstractmethod
    def read(self, answers: bytes, sums: Sequence[int], nodes: Sequence[NodeBounds]) -> Sums:
        """Return the nodes' sums, node after node, int64 (sum(sums), 2·outputs).

        A PeerError if answers do not decrypt into sums of their rows.
        """

    def bytes_max(self, sums: Sequence[int]) -> int:
        """Return the largest size of a part of a host's answers, about nodes with at most so many
        sums.
        """
        return self.sizes.answer_bytes_max(sums)


class GuestCipher(ABC):
    """The guest's cipher for an attempt's trees."""

    @abstractmethod
    def key_message(self, first_tree: int) -> pb.EncryptionKey:
        """Return the message to the hosts; `first_tree` counts the trees of the model that the job
        continues.
        """

    @abstractmethod
    def rows(self, tree: int, gh: Sums, n_rows: int) -> GuestRows:
        """Return rows int64 (n, 2·outputs) for trees that grow at once, the first one's number
        `tree`.

        `n_rows`: the most that their receiver can have.
        """

    def answers_in_words(self) -> str:
        """Describe the form of hosts' answers, if a scheme has several; empty if it has one."""
        return ""


class HostRows(ABC, Generic[H]):
    """The encrypted gradients of growing trees, and the operations on them."""

    noise: HostNoise | None  # added to sums; None if the job asks for none

    @property
    @abstractmethod
    def row_sums(self) -> RowSums[H]:
        """The rows as this process adds them up."""

    @property
    @abstractmethod
    def sizes(self) -> CipherSizes:
        """The sizes of the rows, and of their cells."""

    @abstractmethod
    def number_bits(self, rows: int) -> Floats:
        """Return the most bits that the guest can read of each number of a sum over so many rows,
        noise aside, float64 (2·outputs,).
        """

    def sums_together(self) -> Indices:
        """Return the number of sums in each number's plaintext, int64 (2·outputs,): a number that
        is too large for its field changes the next ones; 1 if each has its own plaintext.
        """
        return np.ones(len(self.number_bits(1)), np.int64)

    @cached_property
    def placed_rows(self) -> PlacedRows[H]:
        """The rows at the workers that add up cells: by default, this process."""
        return PlacedRows(Embedded(), lambda _: self.row_sums, by_rows=False)

    def sums(
        self, requests: Mapping[PlacedTree[H], CellRequest]
    ) -> list[tuple[CandidateTerms, Pairs[H]]]:
        """Return the requested terms and their sums, node after node; this process has the cells,
        which others may have added up.
        """
        made = [tree.sums(asked, self.row_sums) for tree, asked in requests.items()]
        asked = (request.sums for request in requests.values())
        return [*zip(chain.from_iterable(asked), chain.from_iterable(made), strict=True)]

    @abstractmethod
    def blind(self, requests: Mapping[PlacedTree[H], CellRequest]) -> Iterator[pb.Ciphertexts]:
        """Yield the requested sums with their noise, blinded, node after node: one part or
        several.
        """

    def blind_cells(self, cells: H, asked: Sequence[CandidateTerms]) -> Iterator[pb.Ciphertexts]:
        """Return the same kind of answers about present cells, the same for each node."""
        tree = PlacedTree.of_cells({terms.node: cells for terms in asked}, self.row_sums)
        return self.blind({tree: CellRequest([], {}, None, asked)})

    def blind_signed(self, tree: int, sums: H, offsets: Sums, rows: int) -> pb.Ciphertexts:
        """Return sums over so many rows with signs, blinded; `offsets` int64 (sums, 2·outputs)
        bring them into the range of sums without signs.
        """
        terms = CandidateTerms.of_cells(tree, WHOLE_TREE, rows, len(sums), offsets)
        parts = [*self.blind_cells(sums, [terms])]
        count, data = sum(part.count for part in parts), b"".join(part.data for part in parts)
        return pb.Ciphertexts(count=count, data=data)


class HostCipher(ABC):
    """The host's cipher, which checks the guest's encrypted rows."""

    @property
    @abstractmethod
    def sizes(self) -> CipherSizes:
        """The sizes of incoming rows."""

    @abstractmethod
    def read_part(self, data: bytes, rows: int) -> NDArray[Any]:
        """Return so many rows of a part, (rows, …), checked."""

    @abstractmethod
    def rows(self, held: NDArray[Any], tree: int, key: bytes) -> HostRows[Any]:
        """Return the rows of all parts; `key` is ours for these trees, which begin at number
        `tree`.
        """


class TreeScheme(ABC):
    """An encryption scheme as trees use it."""

    bits_least: ClassVar[int]  # least bits of a gradient, without its sign
    takes_nonces: ClassVar[bool]  # whether every party first gives one, for public polynomials

    @abstractmethod
    def bits_most(self, params: EncryptedTreeParams, n_rows: int) -> int:
        """Return the most bits that a gradient of a job with `n_rows` training rows can have."""

    def bits_of(self, params: EncryptedTreeParams, n_rows: int) -> int:
        """Return the bits of one gradient of such a job, without its sign.

        A ConfigError if `precision_bits` are more than the scheme can add up.
        """
        asked, most = params.precision_bits, self.bits_most(params, n_rows)
        if asked is not None and asked > most:
            noise = " and their noise" if params.host_noise else ""
            raise ConfigError(
                f"precision_bits is {asked}; {params.encryption.scheme} adds up {n_rows} "
                f"rows{noise} of at most {most} bits",
                todo=f"set precision_bits to at most {most}, or leave it out",
            )
        return asked or most

    @abstractmethod
    def encoding(self, params: P, n_rows: int, of: Callable[[P], FixedPoint]) -> FixedPoint:
        """Return the encoding of gradients into the job's integers; `of` makes the objective's
        own.
        """

    @abstractmethod
    def sizes(self, params: EncryptedTreeParams, n_rows: int, slots: int = 0) -> CipherSizes:
        """Return the sizes of a job with hosts of at most `n_rows` training rows; `slots` as the
        guest chooses them.
        """

    @abstractmethod
    def field_of(self, params: EncryptedTreeParams, n_rows: int) -> tuple[Floats, Indices]:
        """Return the most bits of each number of a sum over so many rows, and the number of sums
        that share its plaintext; see `HostRows`.
        """

    def slots(self, params: EncryptedTreeParams, n_rows: int, seen: AnswersSeen) -> int:
        """Return how many sums share a ciphertext of the next trees' answers, if the guest chooses
        that by the answers it has seen; 0 if it has no choice.
        """
        del params, n_rows, seen
        return 0

    def answers_in_words(self, params: EncryptedTreeParams, seen: AnswersSeen) -> str:
        """See `GuestCipher.answers_in_words`."""
        del params, seen
        return ""

    def epoch(self, params: EncryptedTreeParams, tree: int) -> int | None:
        """Return the number of the epoch whose trees share a key with this one; None if no tree
        does, or all do.
        """
        del params, tree
        return None

    def key_bytes(self, params: EncryptedTreeParams) -> int:
        """Return the size of a public key with its proof; 0 without one."""
        del params
        return 0

    @abstractmethod
    def guest_side(
        self,
        context: EncryptedContext,
        value_bits: int,
        rows: Iterable[int],
        nonces: tuple[bytes, ...],
    ) -> GuestCipher:
        """Return the guest's cipher of an attempt; see `keys.guest_side`."""

    @abstractmethod
    def host_side(
        self,
        context: EncryptedContext,
        got: pb.EncryptionKey,
        n_rows: int,
        offered: int,
        noise: HostNoise | None,
    ) -> HostCipher:
        """Return the cipher of a host that offers about so many sums for a node.

        The caller has checked `got`, except for facts that only the scheme knows; a PeerError for
        those.
        """


def addressed(
    first: pb.EncryptedGradients, rows: GuestRows, hosts: Sequence[str]
) -> pb.EncryptedGradients | dict[str, pb.EncryptedGradients]:
    """Return the first part of a stream with each host's key; one part for all if no host has a
    key.
    """
    parts = {}
    for host in hosts:
        key = rows.key_for(host)
        if not key:
            return first
        parts[host] = pb.EncryptedGradients(tree_key=key)
        parts[host].MergeFrom(first)
    return parts
