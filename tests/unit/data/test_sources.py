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
from scipy.sparse import csc_array

from fedboost.data import sheet, svmlight
from fedboost.data.kinds import sqlite
from fedboost.data.reading import read_sheet, read_table
from fedboost.data.sheet import Sheet
from fedboost.data.sources import SourceSpec
from fedboost.ground.errors import ConfigError, DataError, FedboostError, UnreachableError
from fedboost.ground.settings import parse_settings
from tests import tiers

LOCAL = {"url": "sqlite:///a.db"}
KEYS = {"access_key": {"env": "A"}, "secret_key": {"file": "/run/b"}}


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
        ({"path": "a.csv", "sql": "q", "connection": LOCAL}, "either 'path' or 'sql'"),
        ({"sql": "q", "connection": LOCAL, "format": "csv"}, "'format', 'rows' and 'keys' belong"),
        ({"sql": "q"}, "'sql' and 'connection' belong together"),
        ({"sql": "q", "connection": {}}, "one of 'url', 'env' and 'file'"),
        ({"sql": "q", "connection": {"url": "mysql://h/d"}}, "begins with one of: sqlite, duckdb"),
        ({"path": "http://h/t.parquet"}, "begins with one of: s3, gs, hdfs"),
        ({"path": "a.parquet", "keys": KEYS}, "'keys' belongs to a path that begins with s3://"),
        ({"path": "t", "version": 3}, "'version' belongs to 'format: delta'"),
        (
            {"path": "a.csv", "rows": [{"column": "a", "below": 3}]},
            "'rows' belongs to parquet, Delta and Arrow tables",
        ),
        ({"path": "a.parquet", "rows": [{"column": "a"}]}, "rows are chosen by 'one_of', or by"),
        ({"path": "a.csv", "format": "xlsx"}, "format"),
        ({"paht": "a.csv"}, "unknown key 'paht'"),
    ],
)
def test_a_declaration_names_one_place(raw, said):
    with pytest.raises(ConfigError, match=said):
        parse_settings(SourceSpec, raw)


@pytest.mark.parametrize(
    "raw",
    [
        {"sql": "q", "connection": {"url": "postgres://u:hunter2@h/d"}},
        {"sql": "q", "connection": {"url": "postgresql://h/d?password=hunter2"}},
        {"sql": "q", "connection": {"url": "grpc+tls://h:1?token=hunter2"}},
        {"path": "s3://u:hunter2@bucket/table"},
    ],
)
def test_a_password_is_refused_in_a_declaration_and_not_printed(raw):
    with pytest.raises(ConfigError, match="the file would hold a password") as caught:
        parse_settings(SourceSpec, raw)
    assert "hunter2" not in "".join(caught.value.lines())


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


def test_a_folder_is_refused_where_a_file_is_read(tmp_path):
    (tmp_path / "a.csv").mkdir()
    assert refusal(tmp_path / "a.csv").what == "the path leads to a folder, not to a csv file"


@pytest.mark.parametrize("ending", ["csv", "parquet", "arrow", "svmlight"])
def test_an_empty_file_is_refused(tmp_path, ending):
    assert refusal(tmp_path / f"a.{ending}", b"").what == "the file is empty"


@pytest.mark.parametrize("content", ["id,a\n", "# nothing\n"])
def test_a_table_without_rows_is_refused(tmp_path, content):
    path = tmp_path / ("a.csv" if "," in content else "a.svm")
    assert refusal(path, content).what == "the table has no rows"


@pytest.mark.parametrize("content", [b"x", b"PAR1 not really PAR1"])
def test_what_is_no_parquet_is_refused(tmp_path, content):
    assert refusal(tmp_path / "a.parquet", content).what == "the file is not readable parquet"


def test_parquet_with_a_name_that_is_no_text_is_refused(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"abcde": [1.5]}), path)
    content = path.read_bytes().replace(b"abcde", b"\xffbcde")
    assert refusal(path, content).what == "the file is not readable parquet"


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
    assert refusal(path).what == "several columns have one name: a"
    error = refusal(tmp_path / "a.csv", "id,a,b,a,b\n1,2,3,4,5\n")
    assert error.what == "several columns have one name: a, b"
    assert error.where["column"] == "a"


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
    "content", [b"id,a\xff\n1,2\n", b"id,a\n1,\xfc\n", "id,a\n1,2\n".encode("utf-16-le")]
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
    assert error.what == f"the columns are separated by {sign!r}, not by ','"


# --- svmlight -------------------------------------------------------------------------------


def sheet_of(path: Path, content: str) -> Sheet:
    path.write_text(content)
    return read_sheet(SourceSpec(path=str(path)))


def test_svmlight_rows_are_numbered_and_zeros_are_not_stored(tmp_path):
    found = sheet_of(tmp_path / "a.svm", "+1 1:0.5 3:2 # a remark\n\n-1 2:1e-3 3:0\n0\n")
    assert found.columns.to_pydict() == {"id": [1, 2, 3], "y": [1.0, -1.0, 0.0]}
    assert found.sparse is not None
    assert found.sparse.names == ("f1", "f2", "f3")
    assert found.sparse.values.nnz == 3
    assert found.sparse.values.has_canonical_format
    assert found.dense().to_pydict() == {
        "id": [1, 2, 3],
        "y": [1.0, -1.0, 0.0],
        "f1": [0.5, 0.0, 0.0],
        "f2": [0.0, 1e-3, 0.0],
        "f3": [2.0, 0.0, 0.0],
    }
    assert found.dense().equals(read(tmp_path / "a.svm"))


def test_svmlight_indices_may_start_at_zero_and_rows_may_be_empty(tmp_path):
    assert read(tmp_path / "a.svm", "1 0:4\n").column_names == ["id", "y", "f0"]
    assert read(tmp_path / "b.svm", "1\n").column_names == ["id", "y"]


def test_an_svmlight_column_of_zeros_up_to_the_last_index_is_a_column(tmp_path):
    found = sheet_of(tmp_path / "a.svm", "1 2:1 4:0\n")
    assert found.names == ("id", "y", "f1", "f2", "f3", "f4")
    assert found.column("f4").to_pylist() == [0.0]


@settings(max_examples=tiers.examples(30))
@given(
    st.lists(
        st.dictionaries(st.integers(1, 6), st.floats(-9, 9) | st.just(np.nan)),
        min_size=1,
        max_size=6,
    ),
    st.sampled_from([1, 16, 2**24]),
)
def test_svmlight_agrees_with_a_naive_reading(tmp_path_factory, rows, block_bytes):
    text = "\n".join(
        " ".join(["1", *(f"{index}:{row[index]!r}" for index in sorted(row))]) for row in rows
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(svmlight, "TEXT_BLOCK_BYTES", block_bytes)
        table = read(tmp_path_factory.mktemp("svm") / "a.svmlight", text)
    width = max((index for row in rows for index in row), default=0)
    for index in range(1, width + 1):
        cells = [row.get(index, 0.0) for row in rows]
        np.testing.assert_array_equal(table[f"f{index}"].to_numpy(), np.array(cells))
    assert table.num_columns == width + 2


signs = st.sampled_from([*"0123456789", *"0123456789", *"+-.eE:", *" \t\r\x0b\n#", ":1 ", " 7:"])
numerals = st.sampled_from(
    ["1", "+1", "-1", "+-1", "0", "01", "1.", ".5", "-.5e3", "1e", "1e999", "1e-999", "1_0"]
)
pairs = st.builds("{}:{}".format, st.integers(0, 9), numerals)
lines = st.builds(
    lambda label, rest: " ".join([label, *sorted(rest)]), numerals, st.lists(pairs, max_size=3)
)


@settings(max_examples=tiers.examples(400))
@given(st.lists(st.one_of(lines, lines, st.lists(signs, max_size=12).map("".join)), max_size=4))
def test_reading_many_svmlight_rows_at_once_agrees_with_reading_each(rows):
    block = "\n".join(rows).encode()
    fast = svmlight._plain_rows(block)
    try:
        slow = svmlight._read_rows(block, 1)
    except DataError:
        assert fast is None
        return
    if fast is None:  # words such as nan, or nothing but what Python alone reads
        return
    for part in ("labels", "sizes", "indices", "values"):
        ours, theirs = getattr(fast, part), getattr(slow, part)
        assert ours.dtype == theirs.dtype
        np.testing.assert_array_equal(ours, theirs)


def test_usual_svmlight_rows_are_read_at_once():
    block = b"+1 1:0.5 3:-2e-3 # x\n\n-1\t2:.5\r\n0 10:7"
    assert svmlight._plain_rows(block) is not None
    assert svmlight._plain_rows(b"1 1:nan\n") is None


@pytest.mark.parametrize(
    "line", ["x 1:2", "1 1", "1 2:1 1:1", "1 1:1 1:2", "1 qid:3 1:2", "1 -1:2", "1 1:x", "1 1:1_0"]
)
def test_a_bad_svmlight_line_is_named(tmp_path, line):
    error = refusal(tmp_path / "a.svm", f"1 1:1\n{line}\n")
    assert error.what == "a line is not 'label index:value …' with rising indices"
    assert error.where["line"] == "2"
    assert "qid" in error.todo


def test_the_bad_line_is_counted_over_blocks_and_remarks(tmp_path, monkeypatch):
    monkeypatch.setattr(svmlight, "TEXT_BLOCK_BYTES", 5)
    error = refusal(tmp_path / "a.svm", "# 1\n\n1 1:1 # 2:x\n0 4:1\n0 4:1 3:1\n0 x\n")
    assert error.where["line"] == "5"


@pytest.mark.parametrize("index", [2**20 + 1, 2**40, 2**70])
def test_an_svmlight_index_without_bounds_is_refused(tmp_path, index):
    error = refusal(tmp_path / "a.svm", f"1 {index}:1\n")
    expected = "a column's index is beyond 2^20" if index < 2**63 else "rising indices"
    assert expected in error.what


def test_an_svmlight_file_may_be_far_too_large_to_be_dense(tmp_path):
    found = sheet_of(tmp_path / "a.svm", f"1 {2**20}:3\n" * 200)
    assert (found.n_rows, len(found.names)) == (200, 2**20 + 2)
    with pytest.raises(DataError, match=r"200 rows of 1048576 columns are more than 2\^27 cells"):
        read(tmp_path / "a.svm")


def test_the_entries_of_an_svmlight_file_are_limited(tmp_path, monkeypatch):
    monkeypatch.setattr(svmlight, "ENTRIES_MAX", 4)
    assert sheet_of(tmp_path / "a.svm", "1 1:1 2:1\n0 1:1 2:1\n").n_rows == 2
    error = refusal(tmp_path / "a.svm", "1 1:1 2:1\n0 1:1 2:1 3:0\n")
    assert error.what == "the file has more than 2^2 entries"


def test_the_limit_of_dense_tables_is_in_cells(tmp_path, monkeypatch):
    monkeypatch.setattr(sheet, "DENSE_CELLS_MAX", 8)
    assert read(tmp_path / "a.svm", "1 4:1\n1 1:1\n").num_rows == 2
    error = refusal(tmp_path / "a.svm", "1 5:1\n1\n")
    assert "2 rows of 5 columns are more than 2^3 cells" in error.what


# --- sparse columns -------------------------------------------------------------------------


@given(st.lists(st.integers(-1, 4), max_size=9))
def test_picked_columns_are_those_of_the_dense_twin(indices):
    dense = np.array([[1, 0, 2, 0, 0], [0, 0, np.nan, 3, 0], [4, 0, 5, 6, 0]])
    wide = np.hstack([dense, np.zeros((3, 1))])
    picked = sheet.pick_columns(csc_array(dense), indices)
    np.testing.assert_array_equal(picked.toarray(), wide[:, indices] if indices else dense[:, :0])
    assert picked.has_canonical_format


def test_a_column_beyond_the_last_can_be_given_and_is_not_held(tmp_path):
    found = sheet_of(tmp_path / "a.svm", "1 2:1\n")
    names = ["y", "f1", "f2", "f3", "f0", f"f{2**20}", f"f{2**20 + 1}", "f01", "g1", "f-1", "f"]
    assert [name for name in names if found.has_column(name)] == ["y", "f1", "f2"]
    assert [name for name in names if found.can_be_feature(name)] == names[:6]


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
    raw = {"sql": text, "connection": {"url": f"sqlite:///{path}"}}
    return read_table(parse_settings(SourceSpec, raw), party="bank")


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
        ("select id, a as id from t", "several columns have one name: id"),
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


def test_a_job_waits_for_a_database_that_somebody_writes(database, monkeypatch):
    monkeypatch.setattr(sqlite, "LOCK_WAIT_S", 0.01)
    with closing(sqlite3.connect(database)) as writer:
        writer.execute("begin exclusive")
        with pytest.raises(UnreachableError, match="does not answer") as waits:
            query(database, "select id from t")
        writer.rollback()
    assert waits.value.private == "database is locked"
    assert query(database, "select id from t").num_rows == 2


def test_text_of_a_database_that_is_not_utf8_is_named_without_its_cell(database):
    with closing(sqlite3.connect(database)) as writer, writer:
        writer.execute("update t set c = cast(x'7365637265e9' as text)")
    with pytest.raises(DataError) as refused:
        query(database, "select id, c from t")
    assert refused.value.what == "a text of column 'c' is not UTF-8"
    assert "secre" not in str(refused.value) + refused.value.private
    assert refused.value.where["column"] == "c"


@pytest.mark.parametrize("code", [sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY_DIRECTORY])
def test_a_database_that_sqlite_cannot_open_is_no_fault_of_the_query(database, monkeypatch, code):
    error = sqlite3.OperationalError("unable to open database file")
    error.sqlite_errorcode = code

    def refuse(*_, **__):
        raise error

    monkeypatch.setattr("sqlite3.connect", refuse)
    with pytest.raises(DataError, match="in WAL mode needs a folder") as refused:
        query(database, "select id from t")
    assert "journal_mode=DELETE" in refused.value.todo


def test_an_absent_database_is_refused_and_not_created(tmp_path):
    with pytest.raises(DataError, match="No such file"):
        query(tmp_path / "no.db", "select 1")
    assert not (tmp_path / "no.db").exists()


def test_a_file_that_is_no_database_is_refused(tmp_path):
    (tmp_path / "a.db").write_text("id,a\n" * 300)
    with pytest.raises(ConfigError, match="file is not a database"):
        query(tmp_path / "a.db", "select * from t")
