"""Cells in a file without a name are those that were written, and leave nothing behind."""

import errno
import hashlib
import os
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest

from fedboost.core import binning
from fedboost.data.frame import Frame
from fedboost.ground import ids, mapped
from fedboost.ground.errors import StoreError
from fedboost.ground.ids import EncodedIds
from fedboost.ground.mapped import (
    array_beside,
    copy_rows,
    free_pages,
    free_table_pages,
    mapped_array,
    mapped_table,
)


def filled(folder, values):
    cells = mapped_array(folder, values.shape, np.float32, order="F")
    cells[:] = values
    return cells


def is_mapped(values):
    return mapped.file_of(values) is not None


def test_a_matrix_keeps_its_cells_though_its_memory_goes(tmp_path):
    values = np.random.default_rng(1).normal(size=(5000, 3)).astype(np.float32)
    cells = filled(tmp_path / "store", values)
    assert is_mapped(cells)
    assert cells.flags.f_contiguous
    free_pages(cells)
    assert np.array_equal(cells, values)
    free_pages(values)  # no file: nothing happens
    assert list((tmp_path / "store").iterdir()) == []


def test_a_frame_of_mapped_values_gives_rows_in_a_file(tmp_path):
    values = np.arange(12, dtype=np.float32).reshape(4, 3)
    ids = EncodedIds.of([b"a", b"b", b"c", b"d"])
    frame = Frame(ids, filled(tmp_path, values), ("x", "y", "z"), None, ("id",))
    taken = frame.take([3, 1])
    assert is_mapped(taken.values)
    assert taken.values.tolist() == values[[3, 1]].tolist()
    assert not is_mapped(copy_rows(np.asfortranarray(values), np.array([2])))
    assert not is_mapped(frame.take([]).values)


def test_a_matrix_without_cells_needs_no_file(tmp_path):
    assert mapped_array(tmp_path, (7, 0), np.uint8).shape == (7, 0)


def no_room(*_):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_disk_without_room_is_refused_before_a_cell_is_written(tmp_path, monkeypatch):
    monkeypatch.setattr("fedboost.ground.mapped.os.posix_fallocate", no_room)
    with pytest.raises(StoreError, match="No space left") as refused:
        mapped_array(tmp_path, (7, 2), np.uint8)
    assert refused.value.todo == "free some space"
    assert list(tmp_path.iterdir()) == []


def test_tables_are_one_in_a_file(tmp_path):
    texts = [pa.array(list(word)).dictionary_encode() for word in ("abba", "cab")]
    parts = [pa.table({"id": some, "n": range(len(some))}) for some in texts]
    found = mapped_table(tmp_path, parts)
    free_table_pages(found)
    assert "".join(found["id"].to_pylist()) == "abbacab"
    assert found["n"].to_pylist() == [0, 1, 2, 3, 0, 1, 2]
    assert list(tmp_path.iterdir()) == []


# Limits


def test_files_of_a_folder_take_no_more_together_than_it_allows(tmp_path):
    mapped.limit_folder(tmp_path, 3000)
    first = mapped_array(tmp_path, (2000,), np.uint8)
    with pytest.raises(StoreError, match="more disk space than its files may take") as refused:
        mapped_array(tmp_path, (250, 5), np.uint8)
    assert refused.value.where == {"key": "disk_gb"}
    assert refused.value.private == f"{tmp_path}: 0.00 GB more, 0.00 GB taken, of 0.00 GB"
    assert list(tmp_path.iterdir()) == []
    mapped_array(tmp_path / "other", (4000,), np.uint8)  # of another folder's limit nothing is said
    part = first[5:]
    del first
    with pytest.raises(StoreError):
        mapped_array(tmp_path, (1250,), np.uint8)
    del part  # the last that holds the file
    assert mapped_array(tmp_path, (3000,), np.uint8).all() == 0


def test_what_a_full_disk_refused_does_not_count(tmp_path, monkeypatch):
    mapped.limit_folder(tmp_path, 3000)
    with monkeypatch.context() as patch:
        patch.setattr("fedboost.ground.mapped.os.posix_fallocate", no_room)
        with pytest.raises(StoreError, match="No space left"):
            mapped_array(tmp_path, (3000,), np.uint8)
    assert len(mapped_array(tmp_path, (3000,), np.uint8)) == 3000


def test_tables_in_files_count_as_well(tmp_path):
    mapped.limit_folder(tmp_path, 100)
    with pytest.raises(StoreError, match="more disk space"):
        mapped_table(tmp_path, [pa.table({"id": range(100)})])


# Beside others


def test_large_arrays_beside_one_in_a_file_lie_in_files(tmp_path, monkeypatch):
    monkeypatch.setattr(mapped, "FILE_BYTES_MIN", 80)
    cells = filled(tmp_path, np.ones((4, 3), np.float32))
    assert is_mapped(array_beside(cells, (10,), np.int64))
    assert is_mapped(array_beside(cells.T[1:], (10,), np.int64))
    assert not is_mapped(array_beside(cells, (9,), np.int64))  # too small
    assert not is_mapped(array_beside(np.ones(9), (10,), np.int64))
    assert not is_mapped(array_beside(None, (10,), np.int64))


def test_bins_of_values_in_a_file_lie_in_one_and_are_the_same(tmp_path, monkeypatch):
    monkeypatch.setattr(mapped, "FILE_BYTES_MIN", 1)
    values = np.random.default_rng(1).normal(size=(500, 3)).astype(np.float32)
    cuts = binning.fit(values, 8)
    bins = cuts.transform(filled(tmp_path, values))
    assert is_mapped(bins)
    assert np.array_equal(bins, cuts.transform(np.asfortranarray(values)))


KILLED = """
import sys, time
from pathlib import Path
from fedboost.ground.mapped import mapped_array
cells = mapped_array(Path(sys.argv[1]), (1 << 22,), "u1")
cells[:] = 1
print("written", flush=True)
time.sleep(60)
"""


def test_nothing_stays_of_a_process_that_is_killed(tmp_path):
    with subprocess.Popen([sys.executable, "-c", KILLED, str(tmp_path)], stdout=-1) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"written\n"
        assert list(tmp_path.iterdir()) == []
        writer.kill()
    assert list(tmp_path.iterdir()) == []


def test_ids_in_a_file_are_those_in_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(ids, "IDS_AT_ONCE", 16)
    monkeypatch.setattr(mapped, "FILE_BYTES_MIN", 1)
    monkeypatch.setattr(ids, "ROWS_PER_FREE", 64)
    draw = np.random.default_rng(3)
    listed = EncodedIds.of([b"%d" % number for number in draw.permutation(1000)])
    data = mapped_array(tmp_path, listed.data.shape, np.uint8)
    data[:] = listed.data
    stored, rows = EncodedIds(data, listed.offsets), draw.permutation(1000)[:300]
    taken = stored.take(rows)
    assert is_mapped(taken.data)
    assert is_mapped(taken.offsets)
    assert not is_mapped(stored.take(rows[:16]).data)
    assert taken == listed.take(rows)
    assert [id_ for some in stored.blocks(rows) for id_ in some] == [*taken]
    assert stored.order().tolist() == listed.order().tolist()
    assert [*stored.take(stored.order(rows))] == sorted(taken)
    digests = [hashlib.sha256() for _ in range(2)]
    for digest, some in zip(digests, (stored, listed), strict=True):
        some.update(digest)
    assert digests[0].digest() == digests[1].digest()
    said = listed.sizes.astype("<u4").tobytes() + listed.data.tobytes()
    assert digests[0].digest() == hashlib.sha256(said).digest()
