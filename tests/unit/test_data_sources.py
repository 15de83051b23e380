"""Tables are read as written, and a file that cannot be read is refused in plain words."""

import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedboost.data import svmlight
from fedboost.data.sources import SourceSpec, read_table
from fedboost.errors import ConfigError, DataError, FedboostError
from fedboost.settings import parse


def read(path: Path, content: bytes | str | None = None) -> pa.Table:
    if content is not None:
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return read_table(SourceSpec(path=str(path)), party="bank")


def refusal(path: Path, content: bytes | str | None = None) -> FedboostError:
    with pytest.raises((ConfigError, DataError)) as caught:
        read(path, content)
    assert list(caught.value.where)[:2] == ["party", "file"]
    assert caught.value.where["file"] == path.name
    assert str(path.parent) not in "\n".join(caught.value.lines())
    assert caught.value.todo
    return caught.value


# --- the declaration ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        ({}, "either 'path' or 'sql'"),
        ({"path": "a.csv", "sql": {"url": "u", "query": "q"}}, "either 'path' or 'sql'"),
        ({"sql": {"url": "u", "query": "q"}, "format": "csv"}, "'format' belongs to 'path'"),
        ({"path": "a.csv", "format": "xlsx"}, "format"),
        ({"paht": "a.csv"}, "unknown key 'paht'"),
        ({"sql": {"url": "u"}}, "the key 'sql.query' is missing"),
    ],
)
def test_a_declaration_names_one_place(raw, said):
    with pytest.raises(ConfigError, match=said):
        parse(SourceSpec, raw)


def test_an_url_with_a_password_is_not_printed():
    source = SourceSpec.model_validate({"sql": {"url": "postgres://u:secret@h/d", "query": "q"}})
    assert "secret" not in repr(source)
    with pytest.raises(ConfigError, match="cannot read tables from 'postgres' URLs") as caught:
        read_table(source)
    assert "secret" not in "".join(caught.value.lines())


def test_an_ending_without_format_needs_one_named(tmp_path):
    assert "cannot tell the format from the ending '.txt'" in refusal(tmp_path / "a.txt").what
    (tmp_path / "a.txt").write_text("id,a\n1,2\n")
    named = SourceSpec(path=str(tmp_path / "a.txt"), format="csv")
    assert read_table(named).to_pylist() == [{"id": "1", "a": "2"}]


# --- files ----------------------------------------------------------------------------------


def test_an_absent_file_is_refused(tmp_path):
    error = refusal(tmp_path / "a.csv")
    assert error.what == "cannot read the file: No such file or directory"
    assert str(tmp_path) in error.private


def test_a_folder_is_refused(tmp_path):
    (tmp_path / "a.parquet").mkdir()
    assert "Is a directory" in refusal(tmp_path / "a.parquet").what


@pytest.mark.parametrize("ending", ["csv", "parquet", "svmlight"])
def test_an_empty_file_is_refused(tmp_path, ending):
    assert refusal(tmp_path / f"a.{ending}", b"").what == "the file is empty"


@pytest.mark.parametrize("content", ["id,a\n", "# nothing\n"])
def test_a_table_without_rows_is_refused(tmp_path, content):
    path = tmp_path / ("a.csv" if "," in content else "a.svm")
    assert refusal(path, content).what == "the table has no rows"


@pytest.mark.parametrize("content", [b"x", b"PAR1 not really PAR1"])
def test_what_is_no_parquet_is_refused(tmp_path, content):
    assert refusal(tmp_path / "a.parquet", content).what == "the file is not readable parquet"


def test_damaged_parquet_is_refused(tmp_path):
    path = tmp_path / "a.parquet"
    rows = np.random.default_rng(0).random(1000)
    pq.write_table(pa.table({"a": rows}), path, compression="zstd")
    content = bytearray(path.read_bytes())
    content[20:3000] = bytes(2980)
    assert refusal(path, bytes(content)).what == "the file is not readable parquet"


def test_columns_named_twice_are_refused(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table([[1], [2], [3]], names=["id", "a", "a"]), path)
    assert refusal(path).what == "column names that appear more than once: 1"
    error = refusal(tmp_path / "a.csv", "id,a,b,a,b\n1,2,3,4,5\n")
    assert error.what == "column names that appear more than once: 2"
    assert error.where["column"] == "a, b"


def test_a_column_without_name_is_refused(tmp_path):
    assert refusal(tmp_path / "a.csv", ",id,a\n0,1,2\n").what == "column 1 of 3 has no name"


# --- csv ------------------------------------------------------------------------------------


def test_csv_cells_are_read_as_text_and_words_for_missing_as_missing(tmp_path):
    content = '\ufeffid,a,b\r\n007,NA,1.50\r\n\r\n8,"x, ""y""\nz",\r\n'
    assert read(tmp_path / "a.csv", content).to_pylist() == [
        {"id": "007", "a": None, "b": "1.50"},
        {"id": "8", "a": 'x, "y"\nz', "b": None},
    ]


def test_a_quoted_word_is_a_word(tmp_path):
    assert read(tmp_path / "a.csv", 'id\n"NA"\n').to_pylist() == [{"id": "NA"}]


@pytest.mark.parametrize(
    "content", [b"id,a\xff\n1,2\n", b"id,a\n1,\xfc\n", "id,a\n1,2\n".encode("utf-16")]
)
def test_csv_that_is_not_utf8_is_refused(tmp_path, content):
    assert refusal(tmp_path / "a.csv", content).what == "the file is not csv in UTF-8"


def test_ragged_csv_is_refused_without_showing_a_cell(tmp_path):
    error = refusal(tmp_path / "a.csv", "id,a\n1,2\n3\n4,5,secret\n6,7\n")
    assert error.what == "2 of 4 rows do not have 2 cells; the first of them has 1"
    assert error.where["row"] == "2"
    assert "secret" not in "".join(error.lines()) + error.private


def test_a_quoted_cell_without_end_is_refused(tmp_path):
    error = refusal(tmp_path / "a.csv", 'id,a\n1,"x\n2,3\n')
    assert "odd number of quotation marks" in error.what


@pytest.mark.parametrize("sign", [";", "\t", "|"])
def test_other_separators_are_named(tmp_path, sign):
    error = refusal(tmp_path / "a.csv", f"id{sign}a\n1{sign}2\n")
    assert error.what == f"the columns are separated by {sign!r}, not by commas"


# --- svmlight -------------------------------------------------------------------------------


def test_svmlight_rows_are_numbered_and_dense(tmp_path):
    table = read(tmp_path / "a.svm", "+1 1:0.5 3:2 # a remark\n\n-1 2:1e-3\n0\n")
    assert table.to_pydict() == {
        "id": [1, 2, 3],
        "y": [1.0, -1.0, 0.0],
        "f1": [0.5, 0.0, 0.0],
        "f2": [0.0, 1e-3, 0.0],
        "f3": [2.0, 0.0, 0.0],
    }


def test_svmlight_indices_may_start_at_zero_and_rows_may_be_empty(tmp_path):
    assert read(tmp_path / "a.svm", "1 0:4\n").column_names == ["id", "y", "f0"]
    assert read(tmp_path / "b.svm", "1\n").column_names == ["id", "y"]


@settings(max_examples=30)
@given(st.lists(st.dictionaries(st.integers(1, 6), st.floats(-9, 9)), min_size=1, max_size=6))
def test_svmlight_agrees_with_a_naive_reading(tmp_path_factory, rows):
    text = "\n".join(
        " ".join(["1", *(f"{index}:{row[index]!r}" for index in sorted(row))]) for row in rows
    )
    table = read(tmp_path_factory.mktemp("svm") / "a.svmlight", text)
    width = max((index for row in rows for index in row), default=0)
    for index in range(1, width + 1):
        assert table[f"f{index}"].to_pylist() == [row.get(index, 0.0) for row in rows]
    assert table.num_columns == width + 2


@pytest.mark.parametrize(
    "line", ["x 1:2", "1 1", "1 2:1 1:1", "1 1:1 1:2", "1 qid:3 1:2", "1 -1:2", "1 1:x", "1 1:1_0"]
)
def test_a_bad_svmlight_line_is_named(tmp_path, line):
    error = refusal(tmp_path / "a.svm", f"1 1:1\n{line}\n")
    assert error.what == "a line is not 'label index:value …' with rising indices"
    assert error.where["line"] == "2"
    assert "qid" in error.todo


@pytest.mark.parametrize("index", [2**40, 2**70])
def test_an_svmlight_file_too_large_to_be_dense_is_refused(tmp_path, index):
    error = refusal(tmp_path / "a.svm", f"1 {index}:1\n")
    expected = "more than 2^27 cells" if index < 2**63 else "rising indices"
    assert expected in error.what


def test_the_limit_of_svmlight_is_in_cells(tmp_path, monkeypatch):
    monkeypatch.setattr(svmlight, "CELLS_MAX", 8)
    assert read(tmp_path / "a.svm", "1 4:1\n1 1:1\n").num_rows == 2
    assert (
        "2 rows of 5 columns are more than 2^3 cells"
        in refusal(tmp_path / "a.svm", "1 5:1\n1\n").what
    )


# --- sql ------------------------------------------------------------------------------------


@pytest.fixture
def database(tmp_path):
    path = tmp_path / "a#b.db"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("create table t (id integer, a, b, c, d, e)")
        connection.executemany(
            "insert into t values (?, ?, ?, ?, ?, ?)",
            [(1, 1, 1.5, "x", None, b"x"), (2**60 + 1, None, 2, 3, None, b"y")],
        )
    return path


def query(path: Path, text: str) -> pa.Table:
    raw = {"sql": {"url": f"sqlite:///{path}", "query": text}}
    return read_table(parse(SourceSpec, raw), party="bank")


def test_a_query_gives_a_table_typed_by_its_widest_cells(database):
    table = query(database, "select id, a, b, c, d from t order by id")
    assert [str(kind) for kind in table.schema.types] == [
        "int64",
        "int64",
        "double",
        "string",
        "null",
    ]
    assert table.to_pylist() == [
        {"id": 1, "a": 1, "b": 1.5, "c": "x", "d": None},
        {"id": 2**60 + 1, "a": None, "b": 2.0, "c": "3", "d": None},
    ]
    assert query(database, "with r as (select e from t) select * from r").schema.types == [
        pa.binary()
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("select id from absent", "the query cannot be run: no such table"),
        ("select absent from t", "the query cannot be run: no such column"),
        ("selct", "the query cannot be run: SQLite refuses it"),
        ("insert into t (id) values (3)", "the query cannot be run: SQLite refuses it"),
        ("attach database 'other.db' as o", "the query cannot be run: SQLite refuses it"),
        ("pragma user_version = 3", "the query cannot be run: SQLite refuses it"),
        ("select 1; select 2", "the query cannot be run: SQLite refuses it"),
        ("-- nothing", "the query selects no columns"),
        ("select e from t union all select c from t", "a column mixes binary and other cells"),
        ("select id from t where id < 0", "the table has no rows"),
        ("select id, a as id from t", "column names that appear more than once: 1"),
    ],
)
def test_a_query_that_is_no_table_is_refused(database, text, said):
    before = database.read_bytes()
    with pytest.raises((ConfigError, DataError)) as caught:
        query(database, text)
    assert caught.value.what == said
    assert caught.value.where["party"] == "bank"
    assert caught.value.where["file"] == "a#b.db"
    assert database.read_bytes() == before
    assert not Path("other.db").exists()


def test_an_absent_database_is_refused_and_not_created(tmp_path):
    with pytest.raises(DataError, match="No such file"):
        query(tmp_path / "no.db", "select 1")
    assert not (tmp_path / "no.db").exists()


def test_a_file_that_is_no_database_is_refused(tmp_path):
    (tmp_path / "a.db").write_text("id,a\n" * 300)
    with pytest.raises(ConfigError, match="file is not a database"):
        query(tmp_path / "a.db", "select * from t")
