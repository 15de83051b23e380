"""Which rows of a party's tables metrics of jobs were about, held-out or training rows: a set that
differs from another by few rows would tell, by the difference of their metrics, of these few.

A set is kept as a sketch of its ids, an invertible Bloom lookup table: two sketches show by how
many ids their sets differ, as long as these are few. The ids themselves are not kept.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from fedboost.runtime.policy.account import SAME, Owned
from fedboost.runtime.store.store import Store

DIFFERENCE_MAX = 100  # rows; sets that differ by more are not told from any others
PARTS, PART_CELLS = 3, 128  # an id lies in one cell of each part; up to 300 can be told apart
WORDS = 2  # of a cell: the ids in it, and their check words, each added up by XOR

Sketch = NDArray[np.uint64]  # (words, cells)
_ODD = np.uint64(0x9E3779B97F4A7C15)


def sketch(ids: Sequence[bytes]) -> Sketch:
    """The sketch of a set of ids."""
    digests = b"".join([hashlib.blake2b(one, digest_size=8).digest() for one in ids])
    none = np.zeros((WORDS, PARTS * PART_CELLS), np.uint64)
    return _added(none, np.frombuffer(digests, "<u8").astype(np.uint64))


def difference(left: Sketch, right: Sketch) -> int:
    """Return how many ids are in one of two sets only; of more than `DIFFERENCE_MAX`, at least so
    many.
    """
    cells, count = left ^ right, 0
    while cells.any():
        alone = (cells[0] != 0) & (_checks(cells[0]) == cells[1])
        ids = np.unique(cells[0][alone])
        if not len(ids):
            by_part = cells.any(axis=0).reshape(PARTS, PART_CELLS)
            return count + int(by_part.sum(axis=1).max())
        count += len(ids)
        _added(cells, ids)
    return count


def _added(cells: Sketch, ids: NDArray[np.uint64]) -> Sketch:
    for indices in _indices(ids):
        np.bitwise_xor.at(cells[0], indices, ids)
        np.bitwise_xor.at(cells[1], indices, _checks(ids))
    return cells


def _checks(ids: NDArray[np.uint64]) -> NDArray[np.uint64]:
    mixed = (ids ^ (ids >> np.uint64(29))) * _ODD
    return mixed ^ (mixed >> np.uint64(32))


def _indices(ids: NDArray[np.uint64]) -> Iterator[NDArray[np.int64]]:
    for part in range(PARTS):
        within = (ids >> np.uint64(20 * part)) % np.uint64(PART_CELLS)
        yield within.astype(np.int64) + part * PART_CELLS


class MeasuredRows:
    """The sets of rows of one store's tables that metrics were about; thread-safe."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def differs(self, table: Owned, classes: Mapping[str, Sequence[bytes]], least: int) -> bool:
        """Return whether a set differs from each earlier one of the table by `least` rows, or by
        none.

        By `least` in all, and in each of its `classes` in which it differs at all. It is kept if
        it does and is new.
        """
        least = min(least, DIFFERENCE_MAX)
        own = {name: sketch(ids) for name, ids in classes.items()}
        with self._store.transaction() as sql:
            text = f"SELECT classes, cells FROM held_out WHERE {SAME}"  # noqa: S608  our columns
            is_known = False
            for names, cells in sql.execute(text, vars(table)):
                fewest = _fewest(own, _read(names, cells))
                if 0 < fewest < least:
                    return False
                is_known = is_known or not fewest
            if not is_known:
                sql.execute(
                    "INSERT INTO held_out (dataset, source, classes, cells) VALUES (?, ?, ?, ?)",
                    (table.dataset, table.source, *_written(own)),
                )
            return True


def _fewest(left: Mapping[str, Sketch], right: Mapping[str, Sketch]) -> int:
    """The fewest rows in which two sets differ, of a class or of all; 0 where in none."""
    none = sketch(())
    found = [difference(_whole(left), _whole(right))]
    if left.keys() & right.keys():
        names = left.keys() | right.keys()
        found += [difference(left.get(name, none), right.get(name, none)) for name in names]
    return min((count for count in found if count), default=0)


def _whole(classes: Mapping[str, Sketch]) -> Sketch:
    whole: Sketch = np.bitwise_xor.reduce(list(classes.values()))
    return whole


def _written(classes: Mapping[str, Sketch]) -> tuple[str, bytes]:
    names = sorted(classes)
    return json.dumps(names), b"".join(classes[name].astype("<u8").tobytes() for name in names)


def _read(names: str, cells: bytes) -> dict[str, Sketch]:
    shape = (-1, WORDS, PARTS * PART_CELLS)
    found = np.frombuffer(cells, "<u8").astype(np.uint64).reshape(shape)
    return dict(zip(json.loads(names), found, strict=True))
