"""What travels between a host and workers that add up its rows: bytes of rows, tasks and sums.

Weighed in one process, by what each part comes to as bytes; content does not matter to that.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from benchmarks.harness import Shown
from fedboost.core.partition import parent
from fedboost.crypto import paillier
from fedboost.crypto.api import Ciphertexts
from fedboost.crypto.lattice import parameters
from fedboost.crypto.lattice.answers import TreeKey
from fedboost.crypto.lattice.budget import Budget
from fedboost.crypto.lattice.cells import EncryptedRows
from fedboost.crypto.lattice.packing_keys import PackingKey
from fedboost.crypto.lattice.polynomials import Origin, TreePolynomials
from fedboost.crypto.lattice.secret import TreeSecret
from fedboost.crypto.secrets import Secrets
from fedboost.crypto.shards import Embedded, MakePart
from fedboost.crypto.workers import Serial
from fedboost.encrypted.adding import AddingRows, KeyedRows
from fedboost.encrypted.cells import DenseCells
from fedboost.encrypted.ciphers import NodeSums
from fedboost.encrypted.node_cells import Chosen, Making
from fedboost.encrypted.ring_host import PackingAt, RingHostRows
from fedboost.encrypted.ring_shards import RingRows

T = TypeVar("T")

ROWS, COLUMNS, BINS, NODES, SHARDS = 16_384, 10, 32, 8, 2
SLOTS = 128  # sums in a packed answer


class Weighing(Embedded):
    """Shards of this process that weigh what would travel."""

    def __init__(self, count: int) -> None:
        super().__init__(count)
        self.given = self.asked = self.answered = 0

    def keep(self, parts: int, make: MakePart) -> list[Any]:
        """See `Shards`."""
        made = super().keep(parts, make)
        self.given += sum(map(weight, made))
        return made

    def run(
        self,
        kernel: Callable[..., T],
        kept: Sequence[Any],
        tasks: Sequence[tuple[Any, ...]],
        join: Callable[..., T] | None = None,
    ) -> list[T]:
        """See `Shards`."""
        results = super().run(kernel, kept, tasks, join)
        self.asked += sum(map(weight, tasks))
        self.answered += sum(map(weight, results))
        return results


@dataclass(frozen=True)
class Carried:
    """Bytes of a tree and of a layer in which half of the rows are added up, in 8 nodes, and 16 are
    answered.
    """

    scheme: str
    row_bytes: float  # to the shards, once a tree, with the bins
    key_bytes: float  # to each shard, once a tree, or once for several
    layer_row_bytes: float  # to the shards, of each row that is added up
    layer_bytes: float  # back

    def __iter__(self) -> Iterator[tuple[str, float]]:
        yield "row_bytes", self.row_bytes
        yield "key_bytes", self.key_bytes
        yield "layer_row_bytes", self.layer_row_bytes
        yield "layer_bytes", self.layer_bytes


def weight(what: object) -> int:
    """Return how many bytes something takes where it travels."""
    return len(pickle.dumps(what, protocol=pickle.HIGHEST_PROTOCOL))


def measure() -> list[Carried]:
    """A scheme that cuts columns, and one that cuts rows."""
    return [_lattice(), _paillier()]


def _lattice() -> Carried:
    shards, own, draw = Weighing(SHARDS), parameters.named("lattice"), np.random.default_rng(1)
    budget, secrets = Budget(own, ROWS), Secrets.from_os()
    tree = TreePolynomials(own, Origin(bytes(32), bytes(32), (bytes(32),)), 0)
    secret = TreeSecret(tree, budget, draw.integers(-9, 9, (ROWS, 2)), secrets)
    data = b"".join(part.to_bytes() for part in secret.encrypt())
    rows = RingRows(
        EncryptedRows.received(tree, data, (ROWS, 2)),
        TreeKey.received(tree, 0, secret.public_keys(0), 2),
        Serial(),
    )
    packing = secret.packing(SLOTS)
    key = PackingKey.received(packing.shape, tree.packing_origin, packing.key())
    held = RingHostRows(rows, budget, secrets, shards, PackingAt(key))
    cells = _cells()
    begins = np.zeros(cells.n_cells, np.bool_)
    begins[np.concatenate([cells.starts[:-1], cells.starts[1:] - 1])] = True
    at = held.tree(cells, begins, np.arange(ROWS))
    halves = np.array_split(np.arange(ROWS, dtype=np.int32), 2 * NODES)
    node_rows = dict(zip(range(2 * NODES - 1, 4 * NODES - 1), halves, strict=True))
    above = {parent(node): np.concatenate([node_rows[node], node_rows[node + 1]])
             for node in node_rows if node % 2}  # fmt: skip
    making = Making(above, {}, {}, set(above))
    first = np.flatnonzero(np.diff(cells.starts.searchsorted(np.arange(cells.n_cells + 1), "right"))
                           == 0)[:-1]  # fmt: skip
    chosen = Chosen(first, np.full(len(first), -1), [])
    for nodes in ([*above], [*node_rows]):
        shards.asked = shards.answered = 0
        sums = at.sums(making, dict.fromkeys(nodes, chosen))
        order = draw.permutation(len(first))
        asked = [NodeSums(0, node, ROWS, sums[node][order]) for node in nodes]
        for _ in held.blind(asked):
            pass
        added = {node: own for node, own in node_rows.items() if node % 2}
        others = {node + 1: node for node in added}
        making = Making(added, others, {}, set())
    keys = weight(key) + weight(rows.key)
    per_row = (shards.given - SHARDS * keys) / ROWS
    return Carried("lattice", per_row, keys, shards.asked / (ROWS / 2), shards.answered)


def _paillier() -> Carried:
    shards = Weighing(SHARDS)
    key = paillier.load_public(paillier.generate(2048, Serial()).public_bytes(), 2048, Serial())
    data = np.random.default_rng(1).integers(0, 256, (ROWS, 1, key.width)).astype(np.uint8)
    data[:, :, 0] = 0

    def rows(first: int, stop: int) -> KeyedRows:
        return KeyedRows(key, Ciphertexts(data[first:stop]))

    tree = AddingRows.cut(shards, ROWS, rows).take(_cells(), np.arange(ROWS))
    half = np.arange(0, ROWS, 2, dtype=np.int32)
    tree.added_up(np.array_split(half, NODES))
    per_row = (shards.given - SHARDS * weight(key)) / ROWS
    return Carried("paillier", per_row, weight(key), shards.asked / len(half), shards.answered)


def _cells() -> DenseCells:
    bins = np.random.default_rng(2).integers(0, BINS, (ROWS, COLUMNS)).astype(np.uint8)
    return DenseCells(bins, np.full(COLUMNS, BINS, np.int64), leave_out=False)


def table(schemes: Sequence[Carried]) -> Shown:
    """One row for each scheme."""
    heads = ("scheme", "a row, once a tree", "keys", "a row added up", "a layer back")
    rows = [(one.scheme, *(f"{value:,.0f} B" for _, value in one)) for one in schemes]
    title = f"To and from {SHARDS} workers, {COLUMNS} columns of {BINS} bins"
    return Shown(title, heads, rows)
