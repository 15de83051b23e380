"""Files of a folder are one table: all their columns by name, of types that hold all values."""

import datetime as dt
from decimal import Decimal

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import feather

from fedboost.data.outline import read_outline
from fedboost.data.reading import columns_of, read_batches, read_sheet
from fedboost.data.sources import SourceSpec
from fedboost.ground.errors import DataError

WRITE = {"parquet": pq.write_table, "arrow": feather.write_feather}
DAY = dt.datetime(2024, 1, 31)


def folder(tmp_path, *tables, kind="parquet"):
    path = tmp_path / "people"
    path.mkdir()
    for number, table in enumerate(tables):
        WRITE[kind](pa.table(table), path / f"{number}.{kind}")
    return SourceSpec(path=str(path), format=kind)


def read(source):
    whole = read_sheet(source).columns
    parts = pa.concat_tables([sheet.columns for sheet in read_batches(source)])
    assert parts.equals(whole)
    return whole


@pytest.mark.parametrize("kind", WRITE)
def test_columns_that_only_some_files_have_are_empty_in_the_others(tmp_path, kind):
    first, second = {"id": [1], "a": [1.5]}, {"c": ["x"], "id": [2]}
    source = folder(tmp_path, first, second, kind=kind)
    expected = pd.concat([pd.DataFrame(first), pd.DataFrame(second)])
    assert columns_of(source) == list(expected)
    assert read(source).to_pydict() == {"id": [1, 2], "a": [1.5, None], "c": [None, "x"]}
    assert read_outline(source).rows == 2


@pytest.mark.parametrize(
    ("first", "second", "kind"),
    [
        (pa.nulls(1), pa.array(["x"]), "string"),
        (pa.array(["x"]), pa.nulls(1), "string"),
        (pa.array([1], pa.int32()), pa.array([2**40]), "int64"),
        (pa.array([1]), pa.array([0.5]), "double"),
        (pa.array([0.5], pa.float32()), pa.array([1e300]), "double"),
        (pa.array(["x"]).dictionary_encode(), pa.array(["y"]), "string"),
        (pa.array(["x"], pa.large_string()), pa.array(["y"]), "large_string"),
        (pa.array([Decimal("1.5")]), pa.array([Decimal("10.125")]), "decimal128(5, 3)"),
        (pa.array([DAY], pa.timestamp("s")), pa.array([DAY], pa.timestamp("us")), "timestamp[us]"),
    ],
)
def test_types_of_a_column_become_one_that_holds_all_values(tmp_path, first, second, kind):
    found = read(folder(tmp_path, {"a": first}, {"a": second}))["a"]
    assert str(found.type) == kind
    assert found.to_pylist() == [*first.to_pylist(), *second.to_pylist()]


def test_columns_in_names_of_folders_stay(tmp_path):
    for year in (2023, 2024):
        path = tmp_path / f"year={year}"
        path.mkdir()
        pq.write_table(pa.table({"id": [year], f"a{year}": [1]}), path / "1.parquet")
    assert read(SourceSpec(path=str(tmp_path), format="parquet")).to_pydict() == {
        "id": [2023, 2024],
        "a2023": [1, None],
        "a2024": [None, 1],
        "year": [2023, 2024],
    }


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (pa.array([1]), pa.array(["x"])),
        (pa.array([True]), pa.array([1])),
        (pa.array([DAY.date()]), pa.array([DAY])),
        (pa.array([DAY], pa.timestamp("us", "UTC")), pa.array([DAY])),
    ],
)
def test_types_that_do_not_fit_are_refused_with_file_and_column(tmp_path, first, second):
    source = folder(tmp_path, {"id": [1], "a": first}, {"id": [2], "a": second})
    with pytest.raises(DataError) as refused:
        read(source)
    types = f"{second.type} in 1.parquet and {first.type} in files before it"
    assert refused.value.what == f"column 'a' has the type {types}"
    assert refused.value.where["column"] == "a"
    assert "people" in refused.value.where["file"]


@pytest.mark.parametrize(("first", "second"), [([2**53 + 1], [0.5]), ([2**63], [-1])])
def test_values_beyond_the_common_type_are_refused_with_their_file(tmp_path, first, second):
    kind = pa.uint64() if first == [2**63] else None
    source = folder(tmp_path, {"a": pa.array(first, kind)}, {"a": second})
    with pytest.raises(DataError, match=r"the file 0\.parquet is damaged, or has values beyond"):
        read(source)


@pytest.mark.parametrize("name", ["README.md", "0.csv", "z/notes"])
def test_a_file_of_another_type_is_named_with_a_remedy(tmp_path, name):
    source = folder(tmp_path, {"id": [1]})
    beside = tmp_path / "people" / name
    beside.parent.mkdir(exist_ok=True)
    beside.write_text("id,a\n1,2\n")
    with pytest.raises(DataError) as refused:
        read(source)
    assert refused.value.what == f"the file {name} in the folder is not readable parquet"
    assert "begin its name with _" in refused.value.todo
    beside.rename(beside.with_name(f"_{beside.name}"))
    assert read(source).num_rows == 1
