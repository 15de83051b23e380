"""What travels between a host and workers that add up its rows: bytes of rows, tasks and sums.

Weighed in one process, by what each part comes to as bytes; content does not matter to that.
"""

import pickle
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from typing import Any, TypeVar

import numpy as np

from benchmarks.rows import Row, Shown
from fedboost.core.binning import Binning
from fedboost.core.params import TreeParams
from fedboost.core.partition import Partition
from fedboost.core.sampling import TreeColumns
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
from fedboost.encrypted.cells.adding import PlacedRows, PlacedTree
from fedboost.encrypted.cells.request import CandidateTerms, CellRequest
from fedboost.encrypted.cells.row_cells import BinnedTable, TreeCells
from fedboost.encrypted.lattice.host import LatticeHostRows, PackingAt
from fedboost.encrypted.lattice.parts import LatticeRows
from fedboost.encrypted.number.packed import KeyedRows
from fedboost.ground.part_workers import Embedded, MakePart
from fedboost.ground.workers import Serial

T = TypeVar("T")

ROWS, COLUMNS, BINS, LAYERS, WORKERS = 16_384, 10, 32, 3, 2
SLOTS = 128  # sums in a packed answer


class Weighing(Embedded):
    """Workers of this process that weigh what would travel."""

    def __init__(self, count: int) -> None:
        super().__init__(count)
        self.given = Counter[str]()  # by the kind of part
        self.answered = 0
        self.asked = Counter[int]()  # by the place of an argument

    def keep(self, parts: int, make: MakePart) -> list[Any]:
        """See `PartWorkers`."""
        made = [make(i) for i in range(parts)]
        for part in made:
            self.given[type(part).__name__] += weight(part)
        return [pickle.loads(pickle.dumps(part)) for part in made]

    def run(
        self,
        kernel: Callable[..., T],
        kept: Sequence[Any],
        tasks: Sequence[tuple[Any, ...]],
        join: Callable[..., T] | None = None,
    ) -> list[T]:
        """See `PartWorkers`."""
        for task in tasks:
            self.asked.update({place: weight(what) for place, what in enumerate(task)})
        results = super().run(kernel, kept, tasks, join)
        self.answered += sum(map(weight, results))
        return results


@dataclass(frozen=True)
class Carried:
    """Bytes of each unit, to the workers and back."""

    scheme: str
    bins_bytes: float  # a row's bins, once an attempt
    row_bytes: float  # a row, once a tree
    key_bytes: float  # keys, to each worker, once a tree or once for several
    layer_row_bytes: float  # a row that divides
    asked_bytes: float  # a sum that is asked for
    answer_bytes: float  # back, of each candidate answered (lattices), or cell added up


def weight(what: object) -> int:
    """Return how many bytes something takes where it travels."""
    return len(pickle.dumps(what, protocol=pickle.HIGHEST_PROTOCOL))


def measure() -> list[Carried]:
    """A scheme that cuts columns, and one that cuts rows."""
    return [carried(scheme) for scheme in ("lattice", "paillier")]


def carried(scheme: str, columns: int = COLUMNS, count: int = WORKERS) -> Carried:
    """What one scheme comes to with so many columns, and workers in all."""
    bins = np.random.default_rng(2).integers(0, BINS, (ROWS, columns)).astype(np.uint8)
    cuts = tuple(np.arange(BINS - 1, dtype=np.float32) for _ in range(columns))
    binned = BinnedTable.of(Binning(BINS, cuts, {}), bins, leave_out=False)
    cells = TreeCells(binned, TreeColumns.draw_columns(TreeParams(), 0, (columns,)))
    lattice = parameters.BY_NAME.get(scheme)
    return (
        _paillier(cells, Weighing(count))
        if lattice is None
        else _lattice(lattice, cells, Weighing(count))
    )


class Growing:
    """Rows in nodes of which each divides into halves."""

    def __init__(self) -> None:
        self.partition = Partition.at_root(np.arange(ROWS, dtype=np.int32))
        self.told = 0  # bytes of divisions that workers have not heard of

    def divide(self, tree: PlacedTree[Any]) -> list[int]:
        """All leaves divide; returns the children."""
        divisions = []
        for node in self.partition.leaves():
            goes_right = np.arange(len(self.partition.rows(node))) % 2 == 1
            self.partition.divide(node, goes_right)
            divisions.append((node, goes_right))
        tree.divide(divisions)
        self.told = sum(bits.nbytes for told in tree.divided for bits in told.values())
        return self.partition.leaves()


def _carried(scheme: str, part_workers: Weighing, keys: int, told: int, *sums: float) -> Carried:
    """What is per row, of all that has been weighed."""
    bins = part_workers.given["BinnedPart"]
    row = (sum(part_workers.given.values()) - bins - part_workers.count * keys) / ROWS
    return Carried(scheme, bins / ROWS, row, keys, told / ROWS, *sums)


def _lattice(own: LatticeParameters, cells: TreeCells, part_workers: Weighing) -> Carried:
    """8 nodes divide, and their children are answered."""
    draw, secrets, budget = np.random.default_rng(1), Secrets.from_os(), Budget(own, ROWS)
    tree = TreePolynomials(own, Origin(bytes(32), bytes(32), (bytes(32),)), 0)
    secret = TreeSecret(tree, budget, draw.integers(-9, 9, (ROWS, 2)), secrets)
    data = b"".join(part.to_bytes() for part in secret.encrypt())
    rows = LatticeRows(
        EncryptedRows.received(tree, data, (ROWS, 2)),
        TreeKey.received(tree, 0, secret.public_keys(0), 2),
        Serial(),
    )
    key = None
    if own.can_pack:
        packing = secret.packing(SLOTS)
        key = PackingKey.received(packing.shape, tree.packing_origin, packing.key())
    held = LatticeHostRows(rows, budget, secrets, part_workers, PackingAt(key) if key else None)
    numbers, grown = cells.numbers, Growing()
    begins = np.zeros(numbers.n_cells, np.bool_)
    begins[np.concatenate([numbers.starts[:-1], numbers.starts[1:] - 1])] = True
    at = held.placed_rows.take(cells, grown.partition, begins, np.arange(ROWS))
    first = np.setdiff1d(np.arange(numbers.n_cells), numbers.starts[1:] - 1)
    order = draw.permutation(len(first))

    def answer(nodes: Sequence[int], siblings: Mapping[int, int], kept: Collection[int]) -> None:
        part_workers.asked, part_workers.answered = Counter(), 0
        sums = [
            CandidateTerms.of_cells(0, node, ROWS, numbers.n_cells)[first][order] for node in nodes
        ]
        for _ in held.blind({at: CellRequest(nodes, siblings, kept, sums)}):
            pass

    for _ in range(LAYERS):
        nodes = grown.divide(at)
    answer(nodes, {}, {*nodes})
    children, told = grown.divide(at), grown.told
    answer(children, {node + 1: node for node in children[::2]}, set())
    keys, candidates = weight(key) + weight(rows.key), len(children) * len(first)
    asked, back = part_workers.asked[1] / candidates, part_workers.answered / candidates
    return _carried(own.name, part_workers, keys, told, asked, back)


@cache
def _key() -> PublicKey:
    return paillier.load_public(paillier.generate(2048, Serial()).public_bytes(), 2048, Serial())


def _paillier(cells: TreeCells, part_workers: Weighing) -> Carried:
    key, grown = _key(), Growing()
    data = np.random.default_rng(1).integers(0, 256, (ROWS, 1, key.width)).astype(np.uint8)
    data[:, :, 0] = 0
    rows = PlacedRows(
        part_workers, lambda chosen: KeyedRows(key, Ciphertexts(data[chosen])), by_rows=True
    )
    begins = np.ones(cells.numbers.n_cells, np.bool_)
    tree = rows.take(cells, grown.partition, begins, np.arange(ROWS))
    for _ in range(LAYERS):
        nodes = grown.divide(tree)
    tree.added_up(nodes[:1])
    part_workers.asked, part_workers.answered = Counter(), 0
    children = grown.divide(tree)
    tree.added_up(children[::2])
    back = part_workers.answered / ((1 << LAYERS) * cells.numbers.n_cells)
    return _carried("paillier", part_workers, weight(key), grown.told, 0.0, back)


def table(rows: Sequence[Row]) -> Shown:
    """One row for each scheme."""
    once = "a row's bins, once", "a row, once a tree", "keys"
    heads = ("scheme", *once, "a row that divides", "a sum asked for", "back")
    names = [field.name for field in fields(Carried)][1:]
    lines = [
        (row["scheme"], *(f"{row[name]:,.{2 * (row[name] < 10)}f} B" for name in names))
        for row in rows
    ]
    title = f"To and from {WORKERS} workers, {COLUMNS} columns of {BINS} bins"
    return Shown(title, heads, lines)
