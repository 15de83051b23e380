"""A host's side of the lattice schemes: rows, their sums and answers; `ring` is the guest's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedboost.crypto.lattice.answers import NodeAnswers, TreeKey
from fedboost.crypto.lattice.budget import Budget
from fedboost.crypto.lattice.cells import CellAdds, EncryptedRows, LatticeSums
from fedboost.crypto.lattice.packing_keys import PackingKey, PackingShape
from fedboost.crypto.lattice.polynomials import NONCE_BYTES, Origin, TreePolynomials
from fedboost.crypto.lattice.words import Words, words_of
from fedboost.crypto.secrets import Secrets
from fedboost.crypto.shards import Shards
from fedboost.crypto.workers import Serial, Workers
from fedboost.encrypted import keys
from fedboost.encrypted.adding import AddingRows
from fedboost.encrypted.ciphers import CipherSizes, HostCipher, HostRows, NodeSums
from fedboost.encrypted.host_noise import HostNoise
from fedboost.encrypted.ring_answers import (
    VECTORS,
    epoch_of,
    sizes_of,
    slots_of,
    slots_possible,
    tree_key_bytes,
)
from fedboost.errors import PeerError
from fedboost.flow import StageContext
from fedboost.messages.protocol import encrypted_pb2 as pb


@dataclass(frozen=True)
class RingRowSums:
    """Rows whose sums are all that is asked for; elsewhere without these threads."""

    held: EncryptedRows
    workers: Workers

    @property
    def adds(self) -> CellAdds:
        """Additions that wrap."""
        return CellAdds()

    def sums(
        self, rows: NDArray[np.integer], cells: NDArray[np.int32], n_cells: int
    ) -> LatticeSums:
        """Sums of windows."""
        return self.held.segment_sum(rows, cells, n_cells, self.workers)

    def __reduce__(self) -> tuple[Any, ...]:
        return RingRowSums, (self.held, Serial())


@dataclass(frozen=True)
class RingHostRows(HostRows[LatticeSums]):
    """Rows with the keys of their trees."""

    held: EncryptedRows
    key: TreeKey
    budget: Budget
    secrets: Secrets
    workers: Workers
    shards: Shards
    packing: PackingKey | None  # where answers are packed
    noise: HostNoise | None = None

    @property
    def adds(self) -> CellAdds:
        """Additions that wrap."""
        return self._row_sums.adds

    @cached_property
    def sizes(self) -> CipherSizes:
        """See `HostRows`."""
        return sizes_of(self.budget, self.held.numbers.shape[1], slots_of(self.packing))

    def sums(
        self, rows: NDArray[np.integer], cells: NDArray[np.int32], n_cells: int
    ) -> LatticeSums:
        """Sums of windows."""
        return self._row_sums.sums(rows, cells, n_cells)

    @cached_property
    def adding(self) -> AddingRows[LatticeSums]:
        """See `HostRows`: by columns, for a cell is larger than thousands of rows."""
        return AddingRows.whole(self.shards, self._row_sums)

    @property
    def _row_sums(self) -> RingRowSums:
        return RingRowSums(self.held, self.workers)

    def running(self, cells: LatticeSums, offsets: NDArray[np.integer]) -> LatticeSums:
        """See `HostRows`; in place."""
        cells.run(offsets, self.workers)
        return cells

    def siblings(
        self, parents: Sequence[LatticeSums], others: Sequence[LatticeSums]
    ) -> list[LatticeSums]:
        """See `HostRows`; in place."""
        for parent, other in zip(parents, others, strict=True):
            parent.take_off(other, self.workers)
        return [*parents]

    def blind(self, nodes: Sequence[NodeSums[LatticeSums]]) -> Iterator[pb.Ciphertexts]:
        """Re-randomised, flooded, rounded and cut as wide as each node's rows make them."""
        if self.packing is not None:
            yield from self._packed(nodes, self.packing)
            return
        for part in self.sizes.parts([(len(node.sums), node.rows) for node in nodes]):
            [(place, cut)] = part.sums
            node = nodes[place]
            width = self.budget.width(max(1, node.rows))
            noise = None if node.noise is None else node.noise[cut]
            secrets = self.secrets.child("lattice answers", node.tree, node.node, cut.start)
            released = self.key.release(node.sums[cut], width, secrets, self.workers, noise)
            yield pb.Ciphertexts(count=len(released), data=released.to_bytes())

    def _packed(
        self, nodes: Sequence[NodeSums[LatticeSums]], packing: PackingKey
    ) -> Iterator[pb.Ciphertexts]:
        asked = [
            NodeAnswers(
                node.sums,
                self.budget.width(max(1, node.rows)),
                self.secrets.child("lattice answers", node.tree, node.node, 0),
                node.noise,
            )
            for node in nodes
        ]
        parts = self.sizes.parts([(len(node.sums), node.rows) for node in nodes])
        released = self.key.release_packed(asked, packing, self.workers)
        data, first = released.to_bytes(), 0
        for part in parts:
            yield pb.Ciphertexts(count=part.ciphertexts, data=data[first : first + part.n_bytes])
            first += part.n_bytes


@dataclass
class LastingKey:
    """The packing key of trees that share one, at a host."""

    epoch: int = -1
    packing: PackingKey | None = None

    def of(self, epoch: int | None) -> PackingKey | None:
        """Return that of these trees; None where it has not come, or each tree has its own."""
        return self.packing if epoch == self.epoch else None

    def keep(self, epoch: int | None, packing: PackingKey | None) -> None:
        """Note what goes with these trees."""
        if epoch is not None:
            self.epoch, self.packing = epoch, packing


@dataclass(frozen=True)
class RingHost(HostCipher):
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

    def rows(self, parts: Sequence[Words], tree: int, key: bytes) -> RingHostRows:
        """The rows with the windows of our own derivation."""
        context, place = self.context, self.context.table.hosts.index(self.context.party)
        of = TreePolynomials(self.budget.parameters, self.origin, tree)
        epoch = epoch_of(context.params, tree)
        if epoch is not None:
            of, key = of.in_epoch(epoch, key[:NONCE_BYTES]), key[NONCE_BYTES:]
        public = tree_key_bytes(self.budget.parameters, self.columns, VECTORS)
        packing = self._packing(of, epoch, key, public)
        keys = TreeKey.received(of, place, key[:public], self.columns)
        held = EncryptedRows.of(of, np.concatenate(parts))
        self.lasting.keep(epoch, packing)
        return RingHostRows(
            held,
            keys,
            self.budget,
            context.secrets,
            context.workers.threads,
            context.shards,
            packing,
            self.noise,
        )

    def _packing(
        self, of: TreePolynomials, epoch: int | None, key: bytes, public: int
    ) -> PackingKey | None:
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
        return PackingKey.received(shape, of.packing_origin, key[public:])


def accept_nonces(context: StageContext, got: pb.EncryptionKey) -> Origin:
    """Return what public polynomials come from; refuses, by a PeerError, nonces without our own."""
    hosts = context.table.hosts
    if got.key or len(got.nonces) != 1 + len(hosts):
        raise PeerError(f"the guest sent {len(got.nonces)} nonces for {1 + len(hosts)} parties")
    if got.nonces[1 + hosts.index(context.party)] != keys.nonce(context):
        raise PeerError("the guest put another nonce in the place of ours")
    return Origin(context.attempt_digest, got.nonces[0], tuple(got.nonces[1:]))
