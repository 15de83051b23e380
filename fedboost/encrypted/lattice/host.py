"""A host's side of the lattice schemes: rows, their sums and answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from typing import Any

import numpy as np

from fedboost.crypto.lattice.answers import AnswerRandomness, TreeKey, bound_to
from fedboost.crypto.lattice.budget import Budget
from fedboost.crypto.lattice.cells import EncryptedRows, LatticeSums
from fedboost.crypto.lattice.packing_keys import PackingKey, PackingShape
from fedboost.crypto.lattice.polynomials import NONCE_BYTES, Origin, TreePolynomials
from fedboost.crypto.lattice.released import AnswerShape, Blinded, release, release_packed
from fedboost.crypto.lattice.words import words_of
from fedboost.crypto.limbs import ByteArray
from fedboost.crypto.secrets import Secrets
from fedboost.encrypted.cells.adding import PlacedRows, PlacedTree
from fedboost.encrypted.cells.request import CandidateTerms, CellRequest
from fedboost.encrypted.lattice.answers import (
    VECTORS,
    epoch_of,
    sizes_of,
    slots_of,
    slots_possible,
    tree_key_bytes,
)
from fedboost.encrypted.lattice.parts import (
    LatticeRows,
    join_answers,
    make_answers,
    seeds_of,
)
from fedboost.encrypted.scheme import keys
from fedboost.encrypted.scheme.ciphers import AnswerPart, CipherSizes, HostCipher, HostRows
from fedboost.encrypted.scheme.host_noise import HostNoise
from fedboost.encrypted.scheme.params import EncryptedContext
from fedboost.ground.arrays import Floats, Words
from fedboost.ground.errors import PeerError
from fedboost.ground.part_workers import PartWorkers, PlacedParts
from fedboost.messages.protocol import encrypted_pb2 as pb


@dataclass(frozen=True)
class PackingAt:
    """A packing key, and its copies at workers."""

    key: PackingKey
    placed: PlacedParts = field(default_factory=PlacedParts)


@dataclass(frozen=True)
class LatticeHostRows(HostRows[LatticeSums]):
    """Rows with the keys of their trees."""

    rows: LatticeRows
    budget: Budget
    secrets: Secrets
    part_workers: PartWorkers
    packing: PackingAt | None  # None: answers are vectors
    noise: HostNoise | None = None

    @property
    def row_sums(self) -> LatticeRows:
        """See `HostRows`."""
        return self.rows

    @property
    def _packing_key(self) -> PackingKey | None:
        return None if self.packing is None else self.packing.key

    @cached_property
    def sizes(self) -> CipherSizes:
        """See `HostRows`."""
        columns = self.rows.encrypted.numbers.shape[1]
        return sizes_of(self.budget, columns, slots_of(self._packing_key))

    def number_bits(self, rows: int) -> Floats:
        """See `HostRows`: a number leaves modulo 2^W, and its flood hides the lower bits."""
        return np.full(self._outputs, self.budget.readable_bits(max(1, rows)))

    @cached_property
    def placed_rows(self) -> PlacedRows[LatticeSums]:
        """See `HostRows`: by columns, for a cell is larger than thousands of rows."""
        return PlacedRows(self.part_workers, lambda _: self.rows, by_rows=False)

    def blind(
        self, requests: Mapping[PlacedTree[LatticeSums], CellRequest]
    ) -> Iterator[pb.Ciphertexts]:
        """Yield the sums re-randomised, flooded, rounded and cut as wide as each node's rows make
        them.
        """
        drawn = self._randomized(requests)
        asked = [terms for request in drawn.values() for terms in request.sums]
        parts = list(self.sizes.parts([(len(terms), terms.rows) for terms in asked]))
        if not parts:
            return
        key = self._packing_key
        if key is None:
            yield from self._vector_parts(drawn, parts)
        else:
            yield from self._packed_parts(drawn, parts, key.shape)

    def _vector_parts(
        self, requests: Mapping[PlacedTree[LatticeSums], CellRequest], parts: Sequence[AnswerPart]
    ) -> Iterator[pb.Ciphertexts]:
        """Yield some sums of one node at a time; the last request drops the cells that do not
        stay.
        """
        asked = [(tree, terms) for tree, request in requests.items() for terms in request.sums]
        for part in parts:
            [(place, cut)] = part.sums
            owner, terms = asked[place][0], asked[place][1][cut]
            alone = {
                tree: replace(
                    request,
                    sums=[terms] if tree is owner else [],
                    kept=request.kept if part is parts[-1] else None,
                )
                for tree, request in requests.items()
            }
            shape = AnswerShape(self.budget.parameters, self._outputs, self._answer_width(terms))
            released = release(shape, part.ciphertexts, self._blinded(alone), terms.noise)
            yield pb.Ciphertexts(count=len(released), data=released.to_bytes())

    def _packed_parts(
        self,
        requests: Mapping[PlacedTree[LatticeSums], CellRequest],
        parts: Sequence[AnswerPart],
        shape: PackingShape,
    ) -> Iterator[pb.Ciphertexts]:
        """Yield the bytes of all sums, packed at once and cut into parts."""
        asked = [terms for request in requests.values() for terms in request.sums]
        each = np.array([self._answer_width(terms) for terms in asked], np.uint64)
        widths = np.repeat(each, [len(terms) for terms in asked])
        noises = [terms.noise for terms in asked if terms.noise is not None]
        noise = np.concatenate(noises) if noises else None
        blinded = self._blinded(requests)
        released = release_packed(shape, widths, blinded, noise, self.rows.workers)
        data, first = released.to_bytes(), 0
        for part in parts:
            yield pb.Ciphertexts(count=part.ciphertexts, data=data[first : first + part.n_bytes])
            first += part.n_bytes

    @property
    def _outputs(self) -> int:
        return len(self.rows.key.leading)

    def _answer_width(self, terms: CandidateTerms) -> int:
        return self.budget.width(max(1, terms.rows))

    def _randomized(
        self, requests: Mapping[PlacedTree[LatticeSums], CellRequest]
    ) -> dict[PlacedTree[LatticeSums], CellRequest]:
        """Return the requests with the randomness and the index of every answer."""
        drawn, first = {}, 0
        for tree, request in requests.items():
            sums = []
            for terms in request.sums:
                seeds = self._seeds_of(terms.tree, len(tree.starts) - 1)
                randomness = AnswerRandomness(
                    self._answer_width(terms),
                    bound_to(terms.node, terms.noise),
                    seeds[terms.columns(tree.starts)],
                    terms.numbers,
                )
                places = np.arange(first, first + len(terms))
                sums.append(replace(terms, places=places, randomness=randomness))
                first += len(terms)
            drawn[tree] = replace(request, sums=sums)
        return drawn

    def _seeds_of(self, tree: int, columns: int) -> ByteArray:
        """Return the secret of each column of a tree, drawn once; see `seeds_of`."""
        if (tree, columns) not in self._seeds_by_tree:
            self._seeds_by_tree[tree, columns] = seeds_of(self.secrets, tree, columns)
        return self._seeds_by_tree[tree, columns]

    @cached_property
    def _seeds_by_tree(self) -> dict[tuple[int, int], ByteArray]:
        return {}

    def _blinded(self, requests: Mapping[PlacedTree[LatticeSums], CellRequest]) -> Blinded[Any]:
        """Return the answers to all requests, from the workers that have the cells of the trees."""
        trees = [*requests]
        part_workers, (rows, bins, _) = trees[0].part_workers, trees[0].kept
        kept = rows, bins, self._packing_at_workers(trees[0]), *(tree.kept[2] for tree in trees)
        parts = [tree.parts(request) for tree, request in requests.items()]
        divided = [tree.divided for tree in trees]
        tasks = [*zip(zip(*divided, strict=True), zip(*parts, strict=True), strict=True)]
        made = part_workers.run(make_answers, kept, tasks, join_answers if self.packing else None)
        for tree in trees:
            tree.note_divisions_sent()
        return reduce(Blinded.joined, [blinded for blinded in made if blinded is not None])

    def _packing_at_workers(self, tree: PlacedTree[LatticeSums]) -> object:
        """Return the packing key at a tree's workers, or a note that there is none."""
        placed = self._placed_key if tree.part_workers is self.part_workers else PlacedParts()
        return placed.at(tree.part_workers, len(tree.shares), lambda _: self._packing_key)

    @cached_property
    def _placed_key(self) -> PlacedParts:
        return PlacedParts() if self.packing is None else self.packing.placed


@dataclass
class LastingKey:
    """The packing key of trees that share one, at a host."""

    epoch: int = -1
    packing: PackingAt | None = None

    def of(self, epoch: int | None) -> PackingAt | None:
        """Return the key of this epoch; None if it has not arrived, or each tree has a separate
        key.
        """
        return self.packing if epoch == self.epoch else None

    def keep(self, epoch: int | None, packing: PackingAt | None) -> None:
        """Note the key of these trees."""
        if epoch is not None:
            self.epoch, self.packing = epoch, packing


@dataclass(frozen=True)
class LatticeHost(HostCipher):
    """The source of all trees of an attempt, at a host."""

    context: EncryptedContext
    budget: Budget
    origin: Origin
    columns: int  # numbers of a row
    noise: HostNoise | None = None
    lasting: LastingKey = field(default_factory=LastingKey)

    @cached_property
    def sizes(self) -> CipherSizes:
        """See `HostCipher`; with the largest key."""
        largest = NONCE_BYTES + max(self._slots_by_size)
        return replace(sizes_of(self.budget, self.columns, VECTORS), tree_key_bytes=largest)

    @cached_property
    def _slots_by_size(self) -> dict[int, int]:
        """The slots of the keys that may come with rows, by their size in bytes."""
        lattice = self.budget.parameters
        possible = slots_possible(self.context.params, lattice)
        return {tree_key_bytes(lattice, self.columns, slots): slots for slots in possible}

    def read_part(self, data: bytes, rows: int) -> Words:
        """Return the numbers, each below q."""
        return words_of(data, (rows, self.columns), self.budget.parameters, "rows")

    def rows(self, held: Words, tree: int, key: bytes) -> LatticeHostRows:
        """Return the rows with the windows of our own derivation."""
        context, place = self.context, self.context.table.hosts.index(self.context.party)
        of = TreePolynomials(self.budget.parameters, self.origin, tree)
        epoch = epoch_of(context.params, tree)
        if epoch is not None:
            of, key = of.in_epoch(epoch, key[:NONCE_BYTES]), key[NONCE_BYTES:]
        public = tree_key_bytes(self.budget.parameters, self.columns, VECTORS)
        packing = self._packing(of, epoch, key, public)
        keys = TreeKey.received(of, place, key[:public], self.columns)
        rows = EncryptedRows.of(of, held)
        self.lasting.keep(epoch, packing)
        return LatticeHostRows(
            LatticeRows(rows, keys, context.services.workers.threads),
            self.budget,
            context.secrets.attempt,
            context.services.part_workers,
            packing,
            None if self.noise is None else self.noise.bound_to(held, key),
        )

    def _packing(
        self, of: TreePolynomials, epoch: int | None, key: bytes, public: int
    ) -> PackingAt | None:
        """Return the packing key behind the public ones, or that of the tree's epoch; None for
        vectors.
        """
        kept = self.lasting.of(epoch)
        if kept is not None and len(key) == public:
            return kept
        slots = self._slots_by_size.get(len(key))
        if slots is None or kept is not None:
            raise PeerError(
                f"the guest sent a key of {len(key)} bytes, which the job does not have"
            )
        if slots == VECTORS:
            return None
        shape = PackingShape(self.budget.parameters, self.columns, slots)
        return PackingAt(PackingKey.received(shape, of.packing_origin, key[public:]))


def accept_nonces(context: EncryptedContext, got: pb.EncryptionKey) -> Origin:
    """Return the origin of public polynomials; a PeerError for nonces that lack ours."""
    hosts = context.table.hosts
    if got.key or len(got.nonces) != 1 + len(hosts):
        raise PeerError(f"the guest sent {len(got.nonces)} nonces for {1 + len(hosts)} parties")
    if got.nonces[1 + hosts.index(context.party)] != keys.own_nonce(context):
        raise PeerError("the guest put another nonce in the place of ours")
    return Origin(context.attempt.digest, got.nonces[0], tuple(got.nonces[1:]))
