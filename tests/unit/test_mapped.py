"""Cells in a file without a name are those that were written, and leave nothing behind."""

import errno
import hashlib
import os

import numpy as np
import pyarrow as pa
import pytest

from fedboost import encoded_ids, mapped
from fedboost.data.frame import Frame
from fedboost.encoded_ids import EncodedIds
from fedboost.errors import StoreError
from fedboost.mapped import (
    array_beside,
    let_go,
    let_go_table,
    mapped_array,
    mapped_table,
    rows_of,
)


def filled(folder, values):
    cells = mapped_array(folder, values.shape, np.float32, order="F")
    cells[:] = values
    return cells


def is_mapped(values):
    return mapped._file_of(values) is not None


def test_a_matrix_keeps_its_cells_though_its_memory_goes(tmp_path):
    values = np.random.default_rng(1).normal(size=(5000, 3)).astype(np.float32)
    cells = filled(tmp_path / "store", values)
    assert is_mapped(cells)
    assert cells.flags.f_contiguous
    let_go(cells)
    assert np.array_equal(cells, values)
    let_go(values)  # no file: nothing happens
    assert list((tmp_path / "store").iterdir()) == []


def test_a_frame_of_mapped_values_gives_rows_in_a_file(tmp_path):
    values = np.arange(12, dtype=np.float32).reshape(4, 3)
    ids = EncodedIds.of([b"a", b"b", b"c", b"d"])
    frame = Frame(ids, filled(tmp_path, values), ("x", "y", "z"), None, ("id",))
    taken = frame.take([3, 1])
    assert is_mapped(taken.values)
    assert taken.values.tolist() == values[[3, 1]].tolist()
    assert not is_mapped(rows_of(np.asfortranarray(values), np.array([2])))
    assert not is_mapped(frame.take([]).values)


def test_a_matrix_without_cells_needs_no_file(tmp_path):
    assert mapped_array(tmp_path, (7, 0), np.uint8).shape == (7, 0)


def test_a_disk_without_room_is_refused_before_a_cell_is_written(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("fedboost.mapped.os.posix_fallocate", full)
    with pytest.raises(StoreError, match="No space left") as refused:
        mapped_array(tmp_path, (7, 2), np.uint8)
    assert refused.value.todo == "free some space"
    assert list(tmp_path.iterdir()) == []


def test_tables_are_one_in_a_file(tmp_path):
    texts = [pa.array(list(word)).dictionary_encode() for word in ("abba", "cab")]
    parts = [pa.table({"id": some, "n": range(len(some))}) for some in texts]
    found = mapped_table(tmp_path, parts)
    let_go_table(found)
    assert "".join(found["id"].to_pylist()) == "abbacab"
    assert found["n"].to_pylist() == [0, 1, 2, 3, 0, 1, 2]
    assert list(tmp_path.iterdir()) == []


def test_arrays_lie_beside_others_or_in_memory(tmp_path):
    cells = mapped_array(tmp_path, (3, 2), np.uint32)
    assert (cells.dtype.name, cells.shape) == ("uint32", (3, 2))
    beside = array_beside(cells[1:], (4,), np.float64)
    beside[:] = range(4)
    let_go(cells, beside)
    assert is_mapped(beside)
    assert beside.tolist() == [0, 1, 2, 3]
    assert not is_mapped(array_beside(np.zeros(3), (4,), np.float64))


def test_ids_in_a_file_are_those_in_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(encoded_ids, "BLOCK", 16)
    monkeypatch.setattr(encoded_ids, "LET_GO_ROWS", 64)
    draw = np.random.default_rng(3)
    listed = EncodedIds.of([b"%d" % number for number in draw.permutation(1000)])
    data = mapped_array(tmp_path, listed.data.shape, np.uint8)
    data[:] = listed.data
    ids, rows = EncodedIds(data, listed.offsets), draw.permutation(1000)[:300]
    taken = ids.take(rows)
    assert is_mapped(taken.data)
    assert is_mapped(taken.offsets)
    assert not is_mapped(ids.take(rows[:16]).data)
    assert taken == listed.take(rows)
    assert [id_ for some in ids.blocks(rows) for id_ in some] == [*taken]
    assert ids.order().tolist() == listed.order().tolist()
    assert [*ids.take(ids.order(rows))] == sorted(taken)
    digests = [hashlib.sha256() for _ in range(2)]
    for digest, some in zip(digests, (ids, listed), strict=True):
        some.update(digest)
    assert digests[0].digest() == digests[1].digest()
    said = listed.sizes.astype("<u4").tobytes() + listed.data.tobytes()
    assert digests[0].digest() == hashlib.sha256(said).digest()
