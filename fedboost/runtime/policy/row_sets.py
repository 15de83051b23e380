"""Sets of a table's rows in sums and metrics of all jobs, and the atoms of these sets.

Rows in the same sets form one atom. Every value computed from released sums and metrics is about
whole atoms. So a job must not make an atom of few rows. Rows are identified by keyed hashes of
their ids.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedboost.crypto.id_digests import digests
from fedboost.ground.ids import EncodedIds
from fedboost.runtime.policy.same_tables import SAME, Owned
from fedboost.runtime.store.schema import damaged_store_error
from fedboost.runtime.store.store import Store

ALL_ROWS = ""  # names the partition of sets of rows; others are named by a label column
PART_ROWS = 1 << 22  # of one row of the database: far from the largest value that SQLite takes
DENSE = 8  # possible atoms per row, up to which an array counts all of them

_IN_ORDER = "ORDER BY dataset, source, part"

Hashes = NDArray[np.uint64]
AtomNumbers = NDArray[np.unsignedinteger]


@dataclass(frozen=True, eq=False)
class Atoms:
    """Atoms of a family of sets of rows, and of further families about the same rows.

    `hashes` uint64 (n,) ascending, all different: the rows. `numbers` (n,) each: by the name of a
    partition the number of each row's atom, from 1; 0 for rows in none of its sets.
    """

    hashes: Hashes
    numbers: Mapping[str, AtomNumbers]

    @classmethod
    def of(cls, hashes: Hashes, numbers: Mapping[str, AtomNumbers]) -> Atoms:
        """Return the atoms of rows in any order; rows in no set at all are left out."""
        is_used = np.logical_or.reduce([of_rows > 0 for of_rows in numbers.values()])
        order = np.argsort(hashes)
        if not is_used.all():
            order = order[is_used[order]]
        return cls(
            hashes[order],
            {name: _with_smallest_dtype(some)[order] for name, some in numbers.items()},
        )


def refine_atoms(known: Atoms, added: Atoms) -> tuple[Atoms, int | None]:
    """Return the atoms of two families of sets together, and the size of the smallest atom that
    `known` lacks; None where `known` has all of them.
    """
    hashes = _union_of_hashes(known.hashes, added.hashes)
    places = [_row_positions(hashes, known), _row_positions(hashes, added)]
    numbers: dict[str, AtomNumbers] = {}
    smallest: list[int] = []
    for name in {**known.numbers, **added.numbers}:
        old, new = (
            _numbers_of_all_rows(family.numbers.get(name), some, len(hashes))
            for family, some in zip((known, added), places, strict=True)
        )
        numbers[name], sizes = _split_atoms(old, new)
        smallest += [int(sizes.min())] if len(sizes) else []
    return Atoms(hashes, numbers), min(smallest, default=None)


def _with_smallest_dtype(numbers: AtomNumbers) -> AtomNumbers:
    return numbers.astype(np.min_scalar_type(numbers.max(initial=0)))


def _union_of_hashes(known: Hashes, added: Hashes) -> Hashes:
    """Return all hashes, ascending; `known` itself where `added` brings no others."""
    if not len(known):
        return added
    places = np.minimum(np.searchsorted(known, added), len(known) - 1)
    others = added[known[places] != added]
    if not len(others):
        return known
    return np.sort(np.concatenate([known, others]), kind="stable")  # merges the two


def _row_positions(hashes: Hashes, family: Atoms) -> NDArray[np.intp] | None:
    """Return where a family's rows are among all; None: at the same places."""
    if len(hashes) == len(family.hashes):
        return None
    return np.searchsorted(hashes, family.hashes)


def _numbers_of_all_rows(
    numbers: AtomNumbers | None, places: NDArray[np.intp] | None, rows: int
) -> AtomNumbers:
    """Return a family's numbers for all rows."""
    if numbers is None:
        return np.zeros(rows, np.uint8)
    if places is None:
        return numbers
    spread = np.zeros(rows, numbers.dtype)
    spread[places] = numbers
    return spread


def _split_atoms(old: AtomNumbers, new: AtomNumbers) -> tuple[AtomNumbers, NDArray[np.int64]]:
    """Return the atoms of two families on the same rows, and the sizes of the new atoms."""
    width = int(new.max(initial=0)) + 1
    span = (int(old.max(initial=0)) + 1) * width
    cells = old.astype(np.int64) * width + new
    if span <= DENSE * len(cells):
        keys, counts = np.arange(span), np.bincount(cells, minlength=span)
    else:
        keys, cells, counts = np.unique(cells, return_inverse=True, return_counts=True)
    atoms = np.flatnonzero((counts > 0) & (keys > 0))  # key 0: in no set of either
    parents = keys[atoms] // width
    is_new = (parents == 0) | (counts[atoms] < np.bincount(old, minlength=1)[parents])
    numbers = np.zeros(len(counts), np.min_scalar_type(len(atoms)))
    numbers[atoms] = np.arange(1, len(atoms) + 1)
    return numbers[cells], counts[atoms][is_new]


class RowSets:
    """The atoms of the tables of one store; thread-safe."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def hashes(self, ids: EncodedIds) -> Hashes:
        """Return a hash of each id under a key of the store, uint64 (n,)."""
        key, hashes, at = self._store.vault.row_key, np.empty(len(ids), np.uint64), 0
        for some in ids.blocks():
            hashes[at : at + len(some)] = digests(some, key).view(np.uint64)[:, 0]
            at += len(some)
        return hashes

    def smallest_with(self, table: Owned, sets: Atoms) -> int | None:
        """Return the size of the smallest atom that sets of a table's rows would make, or None."""
        return _atoms_with_sets(table, self._read_parts(table), sets)[1]

    def add(self, table: Owned, sets: Atoms, least: int) -> int | None:
        """Keep sets of a table's rows, unless their smallest new atom has fewer than `least` rows:
        then return its size.

        The judged sets are the kept sets: sets of another job in between are included.
        """
        while True:
            kept = self._read_parts(table)
            atoms, smallest = _atoms_with_sets(table, kept, sets)
            if smallest is not None and smallest < least:
                return smallest
            is_kept = smallest is None and any(one.table == table for one in kept)
            if is_kept or self._replace_atoms(table, atoms, kept):
                return None

    def _read_parts(self, table: Owned) -> list[_Part]:
        columns = "dataset, source, part, partitions, sha256, cells"
        text = f"SELECT {columns} FROM atoms WHERE {SAME} {_IN_ORDER}"  # noqa: S608  our columns
        with self._store.transaction() as sql:
            found = sql.execute(text, vars(table)).fetchall()
        parts = [_Part(Owned(*row[:2]), *row[2:]) for row in found]
        if any(hashlib.sha256(one.cells).hexdigest() != one.sha256 for one in parts):
            raise damaged_store_error(self._store.database)
        return parts

    def _replace_atoms(self, table: Owned, atoms: Atoms, kept: Sequence[_Part]) -> bool:
        """Replace a table's atoms by finer ones; return False if the stored ones differ from
        `kept`.
        """
        with self._store.transaction() as sql:
            if _stored_names(sql, table) != [one.sha256 for one in kept]:
                return False
            sql.executemany(
                "INSERT INTO atoms (dataset, source, part, partitions, rows, sha256, cells)"
                " VALUES (?, ?, ?, ?, ?, ?, ?)"
                " ON CONFLICT (dataset, source, part) DO UPDATE SET rows = excluded.rows,"
                " partitions = excluded.partitions, sha256 = excluded.sha256,"
                " cells = excluded.cells",
                ((table.dataset, table.source, *values) for values in _rows_of_atoms(atoms)),
            )
            return True


@dataclass(frozen=True)
class _Part:
    """Some rows of a table's atoms in the form of the store."""

    table: Owned
    part: int
    partitions: str  # JSON: by partition the type of its numbers
    sha256: str
    cells: bytes  # the hashes, then the numbers of each partition


def _stored_names(sql: sqlite3.Connection, table: Owned) -> list[str]:
    text = f"SELECT sha256 FROM atoms WHERE {SAME} {_IN_ORDER}"  # noqa: S608  our columns
    return [sha256 for (sha256,) in sql.execute(text, vars(table))]


def _atoms_with_sets(table: Owned, kept: Sequence[_Part], sets: Atoms) -> tuple[Atoms, int | None]:
    """Return the atoms of a table under all its names with further sets, and the size of the
    smallest new one; the table's own atoms are refined.
    """
    tables = sorted({one.table for one in kept}, key=lambda other: other != table)
    families = [_atoms_of([one for one in kept if one.table == each]) for each in tables]
    atoms = families[0] if families else Atoms(np.zeros(0, np.uint64), {})
    smallest: list[int] = []
    for family in (*families[1:], sets):
        atoms, size = refine_atoms(atoms, family)
        smallest += [] if size is None else [size]
    return atoms, min(smallest, default=None)


def _rows_of_atoms(atoms: Atoms) -> Iterator[tuple[int, str, int, str, bytes]]:
    partitions = json.dumps({name: some.dtype.str for name, some in atoms.numbers.items()})
    for part, start in enumerate(range(0, len(atoms.hashes), PART_ROWS)):
        cut = slice(start, start + PART_ROWS)
        arrays = [atoms.hashes[cut], *(some[cut] for some in atoms.numbers.values())]
        cells = b"".join(array.tobytes() for array in arrays)
        yield part, partitions, len(arrays[0]), hashlib.sha256(cells).hexdigest(), cells


def _atoms_of(parts: Iterable[_Part]) -> Atoms:
    hashes: list[Hashes] = []
    numbers: dict[str, list[AtomNumbers]] = {}
    for one in parts:
        types = {name: np.dtype(text) for name, text in json.loads(one.partitions).items()}
        rows = len(one.cells) // (8 + sum(kind.itemsize for kind in types.values()))
        hashes.append(np.frombuffer(one.cells, np.uint64, rows))
        at = hashes[-1].nbytes
        for name, kind in types.items():
            numbers.setdefault(name, []).append(np.frombuffer(one.cells, kind, rows, at))
            at += numbers[name][-1].nbytes
    return Atoms(
        _concatenated(hashes), {name: _concatenated(some) for name, some in numbers.items()}
    )


def _concatenated(arrays: Sequence[NDArray[Any]]) -> NDArray[Any]:
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)
