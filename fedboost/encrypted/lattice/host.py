"""A host's side of the lattice schemes: rows, their sums and answers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from typing import Any

import numpy as np

from fedboost.core.partition import Partition
from fedboost.crypto.api import Pairs
from fedboost.crypto.lattice.answers import AskedSums, Draws, TreeKey, bound_to
from fedboost.crypto.lattice.budget import Budget
from fedboost.crypto.lattice.cells import EncryptedRows, LatticeSums
from fedboost.crypto.lattice.packing_keys import PackingKey, PackingShape
from fedboost.crypto.lattice.polynomials import NONCE_BYTES, Origin, TreePolynomials
from fedboost.crypto.lattice.released import AnswerShape, Blinded, release, release_packed
from fedboost.crypto.lattice.words import words_of
from fedboost.crypto.secrets import Secrets
from fedboost.encrypted.cells.adding import AddingRows
from fedboost.encrypted.cells.row_cells import Cells
from fedboost.encrypted.lattice.answers import (
    VECTORS,
    Cut,
    epoch_of,
    sizes_of,
    slots_of,
    slots_possible,
    tree_key_bytes,
)
from fedboost.encrypted.lattice.parts import (
    AskedNode,
    LatticeRows,
    LatticeTree,
    answered,
    blinded_of,
    join_answers,
    seeds_of,
)
from fedboost.encrypted.scheme import keys
from fedboost.encrypted.scheme.ciphers import CipherSizes, HostCipher, HostRows, NodeSums
from fedboost.encrypted.scheme.host_noise import HostNoise
from fedboost.flow import StageContext
from fedboost.ground.arrays import Bits, Floats, Indices, Words
from fedboost.ground.errors import PeerError
from fedboost.ground.part_workers import PartWorkers, PlacedParts
from fedboost.messages.protocol import encrypted_pb2 as pb


@dataclass(frozen=True)
class PackingAt:
    """A packing key, and where workers have it."""

    key: PackingKey
    placed: PlacedParts = field(default_factory=PlacedParts)


@dataclass(frozen=True)
class LatticeHostRows(HostRows[LatticeSums]):
    """Rows with the keys of their trees."""

    rows: LatticeRows
    budget: Budget
    secrets: Secrets
    part_workers: PartWorkers
    packing: PackingAt | None  # where answers are packed
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
    def adding(self) -> AddingRows[LatticeSums]:
        """See `HostRows`: by columns, for a cell is larger than thousands of rows."""
        return AddingRows(self.part_workers, lambda _: self.rows, by_rows=False)

    def tree(self, cells: Cells, partition: Partition, begins: Bits, place: Indices) -> LatticeTree:
        """See `HostRows`: with the workers."""
        return LatticeTree(self.adding.take(cells, partition, begins, place), self.secrets)

    def blind(self, nodes: Sequence[NodeSums[Any]]) -> Iterator[pb.Ciphertexts]:
        """Re-randomised, flooded, rounded and cut as wide as each node's rows make them."""
        parts = list(self.sizes.parts([(len(node.sums), node.rows) for node in nodes]))
        if not parts:
            return
        key = self._packing_key
        if key is None:
            for number, part in enumerate(parts):
                [(place, cut)] = part.sums
                width, added = self._width(nodes[place]), nodes[place].noise
                shape = AnswerShape(self.budget.parameters, self._outputs, width)
                blinded = self._blinded(nodes, part.sums, is_last=number == len(parts) - 1)
                noise = None if added is None else added[cut]
                released = release(shape, part.ciphertexts, blinded, noise)
                yield pb.Ciphertexts(count=len(released), data=released.to_bytes())
            return
        every = [(place, slice(0, len(node.sums))) for place, node in enumerate(nodes)]
        counts = [len(node.sums) for node in nodes]
        widths = np.repeat(np.array([*map(self._width, nodes)], np.uint64), counts)
        noises = [node.noise for node in nodes if node.noise is not None]
        released = release_packed(
            key.shape,
            widths,
            self._blinded(nodes, every, is_last=True),
            np.concatenate(noises) if noises else None,
            self.rows.workers,
        )
        data, first = released.to_bytes(), 0
        for part in parts:
            yield pb.Ciphertexts(count=part.ciphertexts, data=data[first : first + part.n_bytes])
            first += part.n_bytes

    @property
    def _outputs(self) -> int:
        return len(self.rows.key.leading)

    def _width(self, node: NodeSums[Any]) -> int:
        return self.budget.width(max(1, node.rows))

    def _blinded(
        self, nodes: Sequence[NodeSums[Any]], cuts: Sequence[Cut], *, is_last: bool
    ) -> Blinded[Any]:
        """Answers to some sums of some of the nodes, wherever their cells lie, which are let go
        behind the last.
        """
        if isinstance(nodes[0].sums, Pairs):  # made here
            return self._answered_here(nodes, cuts)
        parts, trees = self.adding.parts, [*dict.fromkeys(node.sums.tree for node in nodes)]
        asked: list[list[AskedNode]] = [[] for _ in range(parts)]
        first = 0
        for place, cut in cuts:
            node, sums = nodes[place], nodes[place].sums[cut]
            seeds, binding = sums.tree.seeds(node.tree), bound_to(node.node, node.noise)
            for worker in range(parts):
                mine, columns, chosen = sums.tree.part(worker, sums.chosen)
                if len(mine):
                    numbers, places = sums.numbers[mine], first + mine
                    draws = Draws(self._width(node), binding, seeds[columns], numbers, places)
                    asked[worker].append(
                        AskedNode(trees.index(sums.tree), sums.node, chosen, draws)
                    )
            first += len(sums)
        makings = {node.sums.tree: node.sums.making for node in nodes}
        if not is_last:
            makings = {tree: replace(making, kept=None) for tree, making in makings.items()}
        adding = [tree.adding for tree in trees]
        rows, bins, _ = adding[0].kept
        kept = rows, bins, self._packing_at, *(tree.kept[2] for tree in adding)
        tasks = [
            (
                [(tree.adding.divided[worker], making) for tree, making in makings.items()],
                asked[worker],
            )
            for worker in range(parts)
        ]
        made = self.part_workers.run(answered, kept, tasks, join_answers if self.packing else None)
        for tree in adding:
            tree.note_told()
        return reduce(Blinded.joined, [blinded for blinded in made if blinded is not None])

    def _answered_here(self, nodes: Sequence[NodeSums[Any]], cuts: Sequence[Cut]) -> Blinded[Any]:
        """Answers to some sums that are at hand."""
        asked, first = [], 0
        for place, cut in cuts:
            node, numbers = nodes[place], np.arange(cut.start, cut.stop)
            seeds = seeds_of(self.secrets, node.tree, 1).repeat(len(numbers), axis=0)
            binding, places = bound_to(node.node, node.noise), np.arange(len(numbers)) + first
            draws = Draws(self._width(node), binding, seeds, numbers, places)
            asked.append(AskedSums(node.sums[cut], draws))
            first += len(numbers)
        return blinded_of(self.rows, self._packing_key, asked)

    @cached_property
    def _packing_at(self) -> object:
        """Return where workers have the packing key, or that there is none."""
        placed = PlacedParts() if self.packing is None else self.packing.placed
        return placed.at(self.part_workers, self.adding.parts, lambda _: self._packing_key)


@dataclass
class LastingKey:
    """The packing key of trees that share one, at a host."""

    epoch: int = -1
    packing: PackingAt | None = None

    def of(self, epoch: int | None) -> PackingAt | None:
        """Return that of these trees; None where it has not come, or each tree has its own."""
        return self.packing if epoch == self.epoch else None

    def keep(self, epoch: int | None, packing: PackingAt | None) -> None:
        """Note what goes with these trees."""
        if epoch is not None:
            self.epoch, self.packing = epoch, packing


@dataclass(frozen=True)
class LatticeHost(HostCipher):
    """What all of an attempt's trees come from, at a host."""

    context: StageContext
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

    def received(self, data: bytes, rows: int) -> Words:
        """Numbers below q."""
        return words_of(data, (rows, self.columns), self.budget.parameters, "rows")

    def rows(self, held: Words, tree: int, key: bytes) -> LatticeHostRows:
        """The rows with the windows of our own derivation."""
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
            LatticeRows(rows, keys, context.workers.threads),
            self.budget,
            context.secrets,
            context.part_workers,
            packing,
            None if self.noise is None else self.noise.bound_to(held, key),
        )

    def _packing(
        self, of: TreePolynomials, epoch: int | None, key: bytes, public: int
    ) -> PackingAt | None:
        """The packing key behind the public ones, or that of the tree's epoch; None of vectors."""
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


def accept_nonces(context: StageContext, got: pb.EncryptionKey) -> Origin:
    """Return what public polynomials come from; refuses, by a PeerError, nonces without our own."""
    hosts = context.table.hosts
    if got.key or len(got.nonces) != 1 + len(hosts):
        raise PeerError(f"the guest sent {len(got.nonces)} nonces for {1 + len(hosts)} parties")
    if got.nonces[1 + hosts.index(context.party)] != keys.nonce(context):
        raise PeerError("the guest put another nonce in the place of ours")
    return Origin(context.attempt_digest, got.nonces[0], tuple(got.nonces[1:]))
