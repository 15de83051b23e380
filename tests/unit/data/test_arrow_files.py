"""Arrow's files are read like parquet: types, gaps, dates, batches, folders; others are refused."""

from datetime import date, datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import feather

from fedboost.data.loading import load_frame
from fedboost.data.outline import read_outline
from fedboost.data.reading import columns_of, read_batches, read_sheet, read_table
from fedboost.data.row_count import row_count_bound
from fedboost.data.selection import Selection
from fedboost.data.sources import SourceSpec
from fedboost.ground.errors import ConfigError, DataError, FedboostError
from fedboost.ground.settings import parse_settings

ROWS = 6
TABLE = pa.table(
    {
        "id": [f"p{n}" for n in range(ROWS)],
        "age": pa.array([*range(ROWS - 1), None], pa.int32()),
        "rate": [0.5, None, float("nan"), 1e30, -0.0, 3.25],
        "member": [True, None, False, True, True, False],
        "city": ["Bern", None, "Köln", "", "Bern", "Ulm"],
        "price": [Decimal("1.50"), None, Decimal("-3.25"), *[Decimal("0.00")] * 3],
        "born": [date(1969, 12, 31), None, date(2024, 2, 29), *[date(2000, 1, 1)] * 3],
        "seen": pa.array(
            [datetime(2024, 1, 31, 10, 5), None, *[datetime(1960, 1, 1)] * 4], pa.timestamp("ns")
        ),
        "photo": [b"\xff", None, b"", b"x", b"y", b"z"],
        "visits": [[1, 2], None, [], [3], [4], [5]],
        "plan": pa.array(["a", None, "b", "a", "a", "b"]).dictionary_encode(),
        "fax": pa.nulls(ROWS),
    }
)


def written(path, table=TABLE, **more):
    feather.write_feather(table, path, **more)
    return SourceSpec(path=str(path))


def refusal(source, read=read_table):
    with pytest.raises(FedboostError) as caught:
        read(source)
    assert caught.value.todo
    return caught.value


def test_cells_types_and_gaps_are_those_that_were_written(tmp_path):
    source = written(tmp_path / "a.FEATHER")
    found = read_table(source)
    assert found.schema.names == TABLE.schema.names
    assert str(found.to_pylist()) == str(TABLE.to_pylist())
    kinds = dict(read_outline(source).columns)
    assert read_outline(source).rows == row_count_bound(source) == ROWS
    assert list(kinds.values()) == [
        *("text", "integer", "number", "boolean", "text", "decimal", "date", "timestamp"),
        *("binary", "list", "text", "empty"),
    ]
    assert columns_of(source) == TABLE.column_names


def test_dates_become_days_months_and_weekdays_as_of_parquet(tmp_path):
    here = written(tmp_path / "a.arrow").model_copy(update={"dates": ["born", "seen"]})
    pq.write_table(TABLE, tmp_path / "a.parquet")
    there = here.model_copy(update={"path": str(tmp_path / "a.parquet")})
    chosen = Selection(columns=["age", "rate", "born", "born_month", "seen_weekday", "price"])
    frame, same = (load_frame(one, chosen, party="a", needs_label=False) for one in (here, there))
    np.testing.assert_array_equal(frame.values, same.values)
    assert frame.digest() == same.digest()
    assert frame.values[0, 2] == -1.0


def test_batches_of_a_file_and_of_a_reader_are_the_rows_in_their_order(tmp_path, monkeypatch):
    monkeypatch.setattr("fedboost.data.frame.BATCH_ROWS", 700)
    rows = 30_000
    draw = np.random.default_rng(1)
    table = pa.table({"id": np.arange(rows), "x": draw.random(rows), "x.y": draw.random(rows)})
    source = written(tmp_path / "a.arrow", table, chunksize=10_000)
    assert pa.ipc.open_file(source.path).num_record_batches == 3
    sheets = [*read_batches(source)]
    assert max(sheet.n_rows for sheet in sheets) <= 700
    assert pa.concat_tables([sheet.columns for sheet in sheets]).equals(table)
    some = read_sheet(source, needs=lambda _: ["x.y", "id"])
    assert some.columns.equals(table.select(["id", "x.y"]))
    assert some.unread == ("x",)


def test_a_folder_of_files_is_one_table_with_the_columns_of_its_folders(tmp_path):
    for year in (2021, 2020):
        (tmp_path / f"year={year}").mkdir()
        written(
            tmp_path / f"year={year}" / "a.arrow", TABLE.select(["id", "age"]).slice(year - 2020)
        )
    raw = {"path": str(tmp_path), "format": "arrow"}
    found = read_table(parse_settings(SourceSpec, raw))
    assert found["year"].to_pylist() == [2020] * ROWS + [2021] * (ROWS - 1)
    chosen = {"rows": [{"column": "year", "one_of": [2021]}, {"column": "age", "below": 3}]}
    source = parse_settings(SourceSpec, raw | chosen)
    assert read_table(source)["id"].to_pylist() == ["p1", "p2"]
    assert row_count_bound(source) == 2


@pytest.mark.parametrize("content", [b"x", b"ARROW1\0\0 not really ARROW1", b"x" * 5000])
def test_a_file_that_is_none_is_refused(tmp_path, content):
    (tmp_path / "a.arrow").write_bytes(content)
    error = refusal(SourceSpec(path=str(tmp_path / "a.arrow")))
    assert error.what == "the file is not readable Arrow"
    assert error.where == {"file": "a.arrow"}
    assert str(tmp_path) not in "\n".join(error.lines())


def test_parquet_called_arrow_and_arrow_called_parquet_are_refused(tmp_path):
    pq.write_table(TABLE, tmp_path / "a.arrow")
    assert (
        refusal(SourceSpec(path=str(tmp_path / "a.arrow"))).what == "the file is not readable Arrow"
    )
    written(tmp_path / "a.parquet")
    wrong = refusal(SourceSpec(path=str(tmp_path / "a.parquet")))
    assert wrong.what == "the file is not readable parquet"


def test_damaged_batches_are_refused(tmp_path):
    draw = np.random.default_rng(0)
    words = pa.table({"a": [f"word {number}" for number in draw.integers(0, 10**9, 1000)]})
    source = written(tmp_path / "a.arrow", words, compression="zstd")
    content = bytearray((tmp_path / "a.arrow").read_bytes())
    content[20:3000] = bytes(2980)
    (tmp_path / "a.arrow").write_bytes(content)
    assert refusal(source).what == "the file is not readable Arrow"


def test_absent_empty_and_doubled_are_refused_as_elsewhere(tmp_path):
    source = SourceSpec(path=str(tmp_path / "a.arrow"))
    assert refusal(source).what == "cannot read the file: No such file or directory"
    written(tmp_path / "a.arrow", TABLE.slice(0, 0))
    assert refusal(source).what == "the table has no rows"
    written(tmp_path / "a.arrow", pa.table([[1], [2], [3]], names=["id", "a", "a"]))
    twice = refusal(source)
    assert isinstance(twice, DataError)
    assert twice.what == "several columns have one name: a"
    (tmp_path / "people").mkdir()
    bare = SourceSpec(path=str(tmp_path / "people"), format="arrow")
    assert refusal(bare).what == "the table is not there"


def test_a_folder_of_a_delta_table_is_no_folder_of_arrow(tmp_path):
    (tmp_path / "_delta_log").mkdir()
    (tmp_path / "_delta_log" / "0.json").write_text("{}")
    error = refusal(SourceSpec(path=str(tmp_path), format="arrow"))
    assert isinstance(error, ConfigError)
    assert error.todo == "write: format: delta"
