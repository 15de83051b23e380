"""A table in batches of rows is the table: the same cells, ids and refusals as all rows at once."""

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from pyarrow import feather

from fedboost.data import row_batches
from fedboost.data.loading import load_with_ids
from fedboost.data.reading import TableInMemory, read_batches, read_sheet
from fedboost.data.row_batches import RowBatches
from fedboost.data.selection import Selection
from fedboost.data.sheet import Sheet
from fedboost.data.sources import Connection, SourceSpec
from fedboost.ground.errors import DataError, FedboostError
from fedboost.ground.ids import EncodedIds

ROWS = 250
CHOSEN = Selection(id=["id"], columns=["x", "city"], categorical=["city"])


def table(**more):
    draw = np.random.default_rng(3)
    cells = {
        "id": [str(number) for number in range(ROWS)],
        "x": pa.array(draw.normal(size=ROWS), mask=draw.random(ROWS) < 0.1),
        "city": [f"city {number}" for number in draw.integers(0, 7, ROWS)],
        "a.x": draw.normal(size=ROWS),  # a point is no way into another column
    }
    return pa.table(cells | more)


def written(folder, kind, rows):
    path = folder / f"new.{kind}"
    if kind == "csv":
        pa.csv.write_csv(rows, path)
    elif kind == "arrow":
        feather.write_feather(rows, path)
    else:
        pq.write_table(rows, path, row_group_size=64)
    return SourceSpec(path=str(path))


def of_svmlight(folder):
    path = folder / "new.svmlight"
    path.write_text("".join(f"0 0:{row}.5 3:1\n" for row in range(ROWS)))
    return SourceSpec(path=str(path))


@pytest.fixture(params=["csv", "parquet", "arrow", "folder", "sqlite", "memory"])
def source(request, tmp_path, monkeypatch):
    """The table where it can lie, read in small pieces."""
    monkeypatch.setattr("fedboost.data.frame.BATCH_ROWS", 48)
    if request.param == "memory":
        return TableInMemory.of(Sheet(table()), "rows")
    if request.param == "sqlite":
        import sqlite3

        with sqlite3.connect(tmp_path / "a.db") as database:
            database.execute('CREATE TABLE t (id TEXT, x REAL, city TEXT, "a.x" REAL)')
            rows = [tuple(row.values()) for row in table().to_pylist()]
            database.executemany("INSERT INTO t VALUES (?, ?, ?, ?)", rows)
        url = f"sqlite:///{tmp_path / 'a.db'}"
        return SourceSpec(sql="SELECT * FROM t", connection=Connection(url=url))
    if request.param == "folder":  # of which one column is in the folders' names
        for part in range(2):
            (tmp_path / f"day={part}").mkdir()
            some = table().slice(part * 125, 125)
            pq.write_table(some, tmp_path / f"day={part}" / "a.parquet", row_group_size=64)
        return SourceSpec(path=str(tmp_path), format="parquet")
    return written(tmp_path, request.param, table())


def scored(source, rows, selection=CHOSEN):
    """All batches put together: ids, values with categories by name, cells of ids."""
    ids: list[bytes] = []
    values, cells = [], []
    for frame, some in RowBatches.of(source, selection).frames(rows):
        ids += frame.ids
        texts = frame.categories.get("city", ())
        named = [texts[int(code)] for code in frame.values[:, 1].tolist()] if texts else []
        values += [*zip(frame.values[:, 0].tolist(), named, strict=False)]
        cells.append(some)
    return ids, values, pa.concat_tables(cells)


@pytest.mark.parametrize("rows", [1, 100, 125, 1000])
def test_batches_are_the_rows_of_the_whole_table(source, rows):
    frame, cells = load_with_ids(source, CHOSEN, party="", needs_features=True)
    ids, values, same = scored(source, rows)
    assert ids == list(frame.ids)
    assert same.to_pydict() == cells.to_pydict()
    texts = frame.categories["city"]
    whole = [texts[int(code)] for code in frame.values[:, 1].tolist()]
    assert str(values) == str([*zip(frame.values[:, 0].tolist(), whole, strict=True)])


def test_a_sheet_in_batches_is_the_sheet(source):
    sheets = list(read_batches(source))
    assert pa.concat_tables([one.columns for one in sheets]).equals(read_sheet(source).columns)
    pieces = [one.columns.column_names for one in read_batches(source, needs=lambda _: ["city"])]
    kept = TableInMemory if isinstance(source, TableInMemory) else None
    assert {*map(tuple, pieces)} == ({tuple(table().column_names)} if kept else {("city",)})


# Refusals


def refusal(work):
    with pytest.raises(FedboostError) as caught:
        list(work())
    return caught.value


@pytest.mark.parametrize("kind", ["csv", "parquet", "arrow"])
def test_an_id_that_occurs_again_in_a_later_batch_is_refused_as_ever(tmp_path, monkeypatch, kind):
    monkeypatch.setattr("fedboost.data.frame.BATCH_ROWS", 48)
    ids = [str(number) for number in range(ROWS)]
    ids[240] = ids[245] = ids[3]
    source = written(tmp_path, kind, table(id=ids))
    whole = refusal(lambda: load_with_ids(source, CHOSEN, party="", needs_features=True))
    here = refusal(lambda: RowBatches.of(source, CHOSEN).frames(100))
    assert here.what == whole.what == "3 of 250 rows share their id with another row (1 ids)"
    assert (here.todo, here.kind) == (whole.todo, whole.kind)


def test_ids_of_one_hash_are_not_one_id(tmp_path, monkeypatch):
    monkeypatch.setattr(EncodedIds, "hashes", lambda ids: np.zeros(len(ids), np.uint64))
    source = written(tmp_path, "parquet", table())
    assert RowBatches.of(source, CHOSEN).rows == ROWS


def test_a_table_without_the_id_or_without_rows_is_refused(tmp_path):
    source = written(tmp_path, "parquet", table())
    absent = refusal(lambda: RowBatches.of(source, Selection(id=["ID"], columns=["x"])).frames(9))
    assert absent.what == "the table has no id column 'ID'"
    for kind in ("csv", "parquet", "arrow"):
        empty = written(tmp_path, kind, table().slice(0, 0))
        said = refusal(lambda source=empty: read_batches(source, party="bank"))
        assert said.what == "the table has no rows"
        assert said.where == {"party": "bank", "file": f"new.{kind}", "rows": "0"}


def test_rows_of_another_length_are_counted_and_found(tmp_path):
    path = tmp_path / "new.csv"
    path.write_text("id,x\n" + "".join(f"{row},1\n" for row in range(50)) + "50\n")
    source = SourceSpec(path=str(path))
    said = refusal(lambda: read_batches(source))
    assert said.what == refusal(lambda: [read_sheet(source)]).what
    assert said.where["row"] == "51"
    path.write_bytes("id,x\nä,1\n".encode("latin-1"))
    assert refusal(lambda: read_batches(source)).what == "the file is not csv in UTF-8"


def test_what_is_wrong_in_a_later_batch_says_of_which_rows(tmp_path):
    cells = ["1"] * ROWS
    cells[130] = "inf"
    source = written(tmp_path, "csv", table(x=cells))
    said = refusal(lambda: RowBatches.of(source, CHOSEN).frames(100))
    assert said.what == "columns that have infinite values: x (1 of 100 rows)"
    assert said.where["rows"] == "101 to 200"


def test_a_table_that_changes_between_the_looks_is_refused(tmp_path):
    source = written(tmp_path, "parquet", table())
    looked = RowBatches.of(source, CHOSEN)
    written(tmp_path, "parquet", table().slice(0, 200))
    said = refusal(lambda: looked.frames(100))
    assert isinstance(said, DataError)
    assert said.what == "the table had 250 rows and has 200 now"


def test_batches_hold_as_many_rows_as_were_asked_for(tmp_path, monkeypatch):
    monkeypatch.setattr("fedboost.data.frame.BATCH_ROWS", 33)
    source = written(tmp_path, "parquet", table())
    sheets = row_batches._regrouped_sheets(read_batches(source), 100)
    assert [sheet.n_rows for sheet in sheets] == [100, 100, 50]


def test_words_for_yes_and_no_are_missing_values_as_in_the_whole_table(tmp_path):
    words = ["true"] * 150 + ["perhaps"] * (ROWS - 150)
    source = written(tmp_path, "csv", table(city=words)).model_copy(update={"missing": 1.0})
    whole, _ = load_with_ids(source, CHOSEN, party="", needs_features=True)
    ((frame, _),) = RowBatches.of(source, CHOSEN).frames(100)
    np.testing.assert_array_equal(frame.values, whole.values)
    assert frame.categories == whole.categories == {"city": ("perhaps", "true")}
