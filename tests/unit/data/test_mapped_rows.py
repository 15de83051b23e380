"""A table to train on whose cells lie in a file is the table that is read at once."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from fedboost.data import mapped_rows, svmlight
from fedboost.data.loading import load_with_ids
from fedboost.data.mapped_rows import rows_to_train
from fedboost.data.reading import TableInMemory, read_batches
from fedboost.data.row_batches import RowBatches
from fedboost.data.selection import Selection
from fedboost.data.sheet import Sheet
from fedboost.data.sources import SourceSpec
from fedboost.ground.errors import FedboostError
from fedboost.ground.mapped import CellFile
from tests.unit.data.test_row_batches import ROWS, of_svmlight, table, written

CHOSEN = Selection(
    id=["id"], columns=["x", "city", "a.x"], label="y", weight="w", categorical=["city"]
)


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr("fedboost.data.frame.BATCH_ROWS", 48)
    monkeypatch.setattr(mapped_rows, "BATCH_ROWS", 60)


def labelled(**more):
    draw = np.random.default_rng(5)
    cities = [f"city {(ROWS - row) // 40}" for row in range(ROWS)]  # the first in order come last
    cells = {"y": draw.integers(0, 2, ROWS), "w": draw.random(ROWS), "city": cities}
    return table(**cells | more)


def in_file(values):
    while isinstance(values, np.ndarray | memoryview):
        values = values.base if isinstance(values, np.ndarray) else values.obj
    return isinstance(values, CellFile)


def of_large(source, folder, selection=CHOSEN, **more):
    return rows_to_train(source, selection, folder, party="a", needs_features=True, **more)


def at_once(source, selection=CHOSEN, **more):
    return load_with_ids(source, selection, party="a", needs_features=True, **more)[0]


@pytest.mark.parametrize("kind", ["csv", "parquet", "arrow"])
def test_it_is_the_table_that_is_read_at_once(tmp_path, kind):
    source = written(tmp_path, kind, labelled())
    frame, whole = of_large(source, tmp_path / "cells"), at_once(source)
    assert all(map(in_file, (frame.values, frame.ids.data, frame.ids.offsets)))
    assert not in_file(whole.values)
    assert frame.categories == whole.categories == {"city": tuple(f"city {i}" for i in range(7))}
    assert frame.digest() == whole.digest()
    assert (frame.notes, frame.merged) == (whole.notes, whole.merged)
    rows = np.random.default_rng(7).permutation(ROWS)[:90]
    taken, moved = frame.take(rows), of_large(source, tmp_path / "cells").take_in_place(rows)
    assert taken.digest() == moved.digest() == whole.take(rows).digest()
    assert list((tmp_path / "cells").iterdir()) == []


def test_labels_of_any_names_are_numbered_as_at_once(tmp_path):
    words = ["no"] * 100 + ["yes"] * (ROWS - 100)
    source = written(tmp_path, "csv", labelled(y=words))
    selection = CHOSEN.model_copy(update={"label_values": ["no", "yes"]})
    frame = of_large(source, tmp_path, selection)
    assert frame.digest() == at_once(source, selection).digest()


def test_whole_numbers_that_are_rounded_are_noted_once(tmp_path):
    source = written(tmp_path, "csv", labelled(x=[2**24 + 1] * ROWS))
    assert of_large(source, tmp_path).notes == at_once(source).notes
    assert len(at_once(source).notes) == 1


def test_a_table_of_one_batch_is_read_into_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(mapped_rows, "BATCH_ROWS", ROWS)
    source = written(tmp_path, "csv", labelled())
    assert not in_file(of_large(source, tmp_path).values)


def seldom(value, other=None):
    """A value in one row of the last batch, and another in all others."""
    return [*[other] * (ROWS - 1), value]


COMMAS = [f"1.{row:03},5" for row in range(ROWS)]
DAYS = [f"2024-01-{1 + row % 28:02}" for row in range(ROWS)]


@pytest.mark.parametrize("kind", ["csv", "parquet", "arrow"])
@pytest.mark.parametrize(
    ("cells", "declared"),
    [
        ({"x": COMMAS}, {"decimal": ","}),
        ({"x": seldom("1,5", "1.234")}, {"decimal": ","}),
        ({"x": seldom("1.5", "1.234")}, {"decimal": ","}),  # no number with a comma: a point it is
        ({"x": seldom("-7,5")}, {"decimal": ","}),
        ({"id": COMMAS, "x": COMMAS}, {"decimal": ","}),
        ({"id": COMMAS}, {"decimal": ",", "id": ["id"]}),
        ({"x": DAYS}, {"dates": ["x"]}),
        ({"x": seldom("2024/01/31 10:00Z")}, {"dates": ["x"]}),
        ({"x": seldom("31.01.2024", "29.02.2024")}, {"dates": ["x"], "decimal": ","}),
        ({"x": pa.array(DAYS).cast(pa.timestamp("s"))}, {"dates": ["x"]}),
        ({"x": pa.array(seldom(7), pa.date32())}, {"dates": ["x"]}),
        ({"x": pa.array(seldom(None), pa.string())}, {"dates": ["x"]}),  # days that nobody knows
    ],
)
def test_columns_that_are_judged_as_a_whole_are_read_as_at_once(tmp_path, kind, cells, declared):
    source = written(tmp_path, kind, labelled(**cells)).model_copy(update=declared)
    columns = ["x", *(["x_month", "x_weekday"] if "dates" in declared else [])]
    selection = CHOSEN.model_copy(update={"columns": columns, "categorical": []})
    frame, whole = of_large(source, tmp_path, selection), at_once(source, selection)
    assert in_file(frame.values)
    assert frame.digest() == whole.digest()


def sparse_lines(least):
    """Rows whose columns begin at `least`, and reach the last one far down."""
    for row in range(ROWS):
        entries = {least if row == 200 else 1: row + 0.5, 3: row % 3, 7: 2**24 + 1, 9: "nan"}
        shown = [f"{index}:{value}" for index, value in entries.items() if (row + index) % 4]
        last = [f"{20 + row // 100}:1e-50"] if row % 50 == 1 else []
        yield f"{row % 2} {' '.join([*shown, *last])}" + " # a remark" * (row % 7 == 0)


@pytest.mark.parametrize("least", [0, 1])
@pytest.mark.parametrize("more", [{}, {"columns": ["f7", "f1", "f900"]}, {"missing": 1.5}])
def test_a_sparse_table_is_the_one_that_is_read_at_once(tmp_path, monkeypatch, least, more):
    monkeypatch.setattr(svmlight, "TEXT_BLOCK_BYTES", 500)
    monkeypatch.setattr("fedboost.ground.mapped.FILE_BYTES_MIN", 1)
    path = tmp_path / "new.svmlight"
    path.write_text("# of all\n" + "\n".join(sparse_lines(least)) + "\n\n")
    source, selection = SourceSpec(path=str(path)), Selection(id=["id"], label="y", **more)
    frame, whole = of_large(source, tmp_path, selection), at_once(source, selection)
    assert in_file(frame.values.data)
    assert in_file(frame.values.indices)
    assert frame.values.indices.dtype == whole.values.indices.dtype
    assert frame.digest() == whole.digest()
    assert {*frame.notes} == {*whole.notes}
    assert frame.take([170, 3]).digest() == whole.take([170, 3]).digest()
    at_most = [part.n_rows for part, _ in RowBatches.of(source, selection).frames(10)]
    assert sum(at_most) == ROWS
    assert len(at_most) > 3
    assert [one.n_rows for one, _ in RowBatches.of(source, selection).frames(ROWS)] == [ROWS]


def test_a_sparse_table_of_many_columns_is_read_in_few_parts(tmp_path, monkeypatch):
    monkeypatch.setattr(svmlight, "TEXT_BLOCK_BYTES", 500)
    monkeypatch.setattr("fedboost.ground.mapped.FILE_BYTES_MIN", 1)
    path = tmp_path / "new.svmlight"
    path.write_text("\n".join([*sparse_lines(1), "1 100000:1"]))
    whole = svmlight.read_extent(path)
    assert len([*svmlight.read_parts(path, whole)]) == 1


def test_a_table_in_memory_is_one_batch(tmp_path):
    held = TableInMemory.of(Sheet(labelled()), "rows")
    assert [sheet.n_rows for sheet in read_batches(held)] == [ROWS]


# Refusals


def refusal(work, *args, **more):
    with pytest.raises(FedboostError) as caught:
        work(*args, **more)
    return caught.value


def test_a_column_called_like_a_label_is_refused_as_at_once(tmp_path):
    source = written(tmp_path, "parquet", labelled())
    selection = Selection(id=["id"], categorical=["city"])
    here = refusal(of_large, source, tmp_path, selection, guest_label="Y")
    assert here.lines() == refusal(at_once, source, selection, guest_label="Y").lines()
    assert here.where["column"] == "y"


@pytest.mark.parametrize(
    ("cells", "name"),
    [
        (seldom("2024-01-31", "31.01.2024"), "x"),  # two ways of writing, one for each batch
        (seldom("soon", "2024-01-31"), "x"),
        (seldom("2024-02-30", "2024-01-31"), "x"),
        (DAYS, "y"),
        (DAYS, "z"),
    ],
)
def test_what_is_no_date_is_refused_as_at_once(tmp_path, cells, name):
    source = written(tmp_path, "parquet", labelled(x=cells))
    source = source.model_copy(update={"dates": [name]})
    here, there = refusal(of_large, source, tmp_path), refusal(at_once, source)
    assert here.lines() == there.lines()
    assert here.kind == there.kind


def test_what_is_wrong_with_a_sparse_table_is_said_as_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr(svmlight, "TEXT_BLOCK_BYTES", 500)
    monkeypatch.setattr("fedboost.ground.mapped.FILE_BYTES_MIN", 1)
    path = tmp_path / "new.svmlight"
    source, selection = SourceSpec(path=str(path)), Selection(id=["id"], label="y")
    for last in ("1 3:x", "1 3:1 2:1", f"1 {2**21}:1", "# no rows"):
        path.write_text("\n".join([*([] if "rows" in last else sparse_lines(1)), last]))
        here, there = (refusal(work, *rest) for work, *rest in (
            (of_large, source, tmp_path, selection), (at_once, source, selection)
        ))  # fmt: skip
        assert here.lines() == there.lines()
    path.write_text("\n".join([*sparse_lines(1), "1 3:inf"]))
    said = refusal(of_large, source, tmp_path, selection)
    assert said.what.startswith("columns that have infinite values: f3 (1 of ")
    assert said.where["rows"].endswith(f" to {ROWS + 1}")


def test_a_sparse_table_that_gets_columns_between_the_looks_is_refused(tmp_path):
    source = of_svmlight(tmp_path)
    looked = RowBatches.of(source, Selection(id=["id"]))
    Path(source.path).write_text("0 0:1\n0 9:1\n" * ROWS)
    said = refusal(lambda: [*looked.frames(9)])
    assert said.what == "the file has other columns than a moment ago"
    assert said.where["file"] == "new.svmlight"


def test_ids_that_got_longer_since_the_first_look_are_refused(tmp_path, monkeypatch):
    source = written(tmp_path, "parquet", labelled())
    looked = RowBatches.of

    def then_changed(*args):
        batches = looked(*args)
        written(tmp_path, "parquet", labelled(id=[f"longer {row}" for row in range(ROWS)]))
        return batches

    monkeypatch.setattr(RowBatches, "of", then_changed)
    said = refusal(of_large, source, tmp_path)
    assert said.what == "the table has other ids than a moment ago"


def test_more_categories_than_a_model_can_have_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(mapped_rows, "CATEGORIES_MAX", 5)
    source = written(tmp_path, "csv", labelled())
    said = refusal(of_large, source, tmp_path)
    assert "have more than" in said.what
    assert said.where["column"] == "city"


def test_ids_that_have_become_equal_since_the_first_look_are_refused(tmp_path, monkeypatch):
    source = written(tmp_path, "parquet", labelled())
    looked, ids = RowBatches.of, [str(row % 200) for row in range(ROWS)]

    def then_changed(*args):
        batches = looked(*args)
        written(tmp_path, "parquet", labelled(id=ids))
        return batches

    monkeypatch.setattr(RowBatches, "of", then_changed)
    said = refusal(of_large, source, tmp_path)
    assert said.what == "100 of 250 rows share their id with another row (50 ids)"
