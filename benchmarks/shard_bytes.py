"""What travels between a host and workers that add up its rows: bytes of rows, tasks and sums.

Weighed in one process, by what each part comes to as bytes; content does not matter to that.
"""

import pickle
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

import numpy as np

from benchmarks.harness import Shown
from fedboost.core.partition import parent
from fedboost.crypto import paillier
from fedboost.crypto.api import Ciphertexts, PublicKey
from fedboost.crypto.lattice import parameters
from fedboost.crypto.lattice.answers import TreeKey
from fedboost.crypto.lattice.budget import Budget
from fedboost.crypto.lattice.cells import EncryptedRows
from fedboost.crypto.lattice.packing_keys import PackingKey
from fedboost.crypto.lattice.parameters import LatticeParameters
from fedboost.crypto.lattice.polynomials import Origin, TreePolynomials
from fedboost.crypto.lattice.secret import TreeSecret
from fedboost.crypto.secrets import Secrets
from fedboost.crypto.workers import Serial
from fedboost.encrypted.adding import AddingRows, KeyedRows
from fedboost.encrypted.cells import DenseCells
from fedboost.encrypted.ciphers import NodeSums
from fedboost.encrypted.node_cells import Chosen, Making
from fedboost.encrypted.ring_host import PackingAt, RingHostRows
from fedboost.encrypted.ring_shards import RingRows
from fedboost.shards import Embedded, MakePart

T = TypeVar("T")

ROWS, COLUMNS, BINS, NODES, SHARDS = 16_384, 10, 32, 8, 2
SLOTS = 128  # sums in a packed answer


class Weighing(Embedded):
    """Shards of this process that weigh what would travel."""

    def __init__(self, count: int) -> None:
        super().__init__(count)
        self.given = self.answered = 0
        self.asked = Counter[int]()  # by the place of an argument

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
        for task in tasks:
            self.asked.update({place: weight(what) for place, what in enumerate(task)})
        self.answered += sum(map(weight, results))
        return results


@dataclass(frozen=True)
class Carried:
    """Bytes of each unit of a tree, to the shards and back."""

    scheme: str
    row_bytes: float  # a row, once a tree, with its bins
    key_bytes: float  # keys, to each shard, once a tree or once for several
    layer_row_bytes: float  # a row that is added up
    asked_bytes: float  # a sum that is asked for
    answer_bytes: float  # back, of each candidate answered (lattices), or cell added up

    def __iter__(self) -> Iterator[tuple[str, float]]:
        yield "row_bytes", self.row_bytes
        yield "key_bytes", self.key_bytes
        yield "layer_row_bytes", self.layer_row_bytes
        yield "asked_bytes", self.asked_bytes
        yield "answer_bytes", self.answer_bytes


def weight(what: object) -> int:
    """Return how many bytes something takes where it travels."""
    return len(pickle.dumps(what, protocol=pickle.HIGHEST_PROTOCOL))


def measure() -> list[Carried]:
    """A scheme that cuts columns, and one that cuts rows."""
    return [carried(scheme) for scheme in ("lattice", "paillier")]


def carried(scheme: str, columns: int = COLUMNS, count: int = SHARDS) -> Carried:
    """What one scheme comes to with so many columns, and shards in all."""
    bins = np.random.default_rng(2).integers(0, BINS, (ROWS, columns)).astype(np.uint8)
    cells = DenseCells(bins, np.full(columns, BINS, np.int64), leave_out=False)
    ring = parameters.BY_NAME.get(scheme)
    return (
        _paillier(cells, Weighing(count)) if ring is None else _ring(ring, cells, Weighing(count))
    )


def _ring(own: LatticeParameters, cells: DenseCells, shards: Weighing) -> Carried:
    """Half of the rows are added up, in 8 nodes, and these and their siblings are answered."""
    draw, secrets, budget = np.random.default_rng(1), Secrets.from_os(), Budget(own, ROWS)
    tree = TreePolynomials(own, Origin(bytes(32), bytes(32), (bytes(32),)), 0)
    secret = TreeSecret(tree, budget, draw.integers(-9, 9, (ROWS, 2)), secrets)
    data = b"".join(part.to_bytes() for part in secret.encrypt())
    rows = RingRows(
        EncryptedRows.received(tree, data, (ROWS, 2)),
        TreeKey.received(tree, 0, secret.public_keys(0), 2),
        Serial(),
    )
    key = None
    if own.packs:
        packing = secret.packing(SLOTS)
        key = PackingKey.received(packing.shape, tree.packing_origin, packing.key())
    held = RingHostRows(rows, budget, secrets, shards, PackingAt(key) if key else None)
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
        shards.asked, shards.answered = Counter(), 0
        sums = at.sums(making, dict.fromkeys(nodes, chosen))
        order = draw.permutation(len(first))
        asked = [NodeSums(0, node, ROWS, sums[node][order]) for node in nodes]
        for _ in held.blind(asked):
            pass
        added = {node: own for node, own in node_rows.items() if node % 2}
        others = {node + 1: node for node in added}
        making = Making(added, others, {}, set())
    keys, candidates = weight(key) + weight(rows.key), len(node_rows) * len(first)
    per_row = (shards.given - shards.count * keys) / ROWS
    _, makings, draws = (shards.asked[place] for place in range(3))
    back = shards.answered / candidates
    return Carried(own.name, per_row, keys, makings / (ROWS / 2), draws / candidates, back)


@cache
def _key() -> PublicKey:
    return paillier.load_public(paillier.generate(2048, Serial()).public_bytes(), 2048, Serial())


def _paillier(cells: DenseCells, shards: Weighing) -> Carried:
    key = _key()
    data = np.random.default_rng(1).integers(0, 256, (ROWS, 1, key.width)).astype(np.uint8)
    data[:, :, 0] = 0

    def rows(first: int, stop: int) -> KeyedRows:
        return KeyedRows(key, Ciphertexts(data[first:stop]))

    tree = AddingRows.cut(shards, ROWS, rows).take(cells, np.arange(ROWS))
    half = np.arange(0, ROWS, 2, dtype=np.int32)
    tree.added_up(np.array_split(half, NODES))
    per_row = (shards.given - shards.count * weight(key)) / ROWS
    asked, n_cells = sum(shards.asked.values()) / len(half), NODES * cells.n_cells
    return Carried("paillier", per_row, weight(key), asked, 0.0, shards.answered / n_cells)


def table(schemes: Sequence[Carried]) -> Shown:
    """One row for each scheme."""
    heads = ("scheme", "a row, once a tree", "keys", "a row added up", "a sum asked for", "back")
    rows = [(one.scheme, *(f"{value:,.0f} B" for _, value in one)) for one in schemes]
    title = f"To and from {SHARDS} workers, {COLUMNS} columns of {BINS} bins"
    return Shown(title, heads, rows)
