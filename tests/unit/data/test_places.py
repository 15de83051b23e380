"""Folders, Delta tables and DuckDB's answers are tables like files; only what is needed is read."""

import threading
import time

import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from pyarrow import feather

from fedboost.data import stored
from fedboost.data.addresses import without_secrets
from fedboost.data.kinds import s3
from fedboost.data.loading import load_frame
from fedboost.data.outline import read_outline
from fedboost.data.reading import columns_of, read_sheet, read_table
from fedboost.data.row_count import row_count_bound
from fedboost.data.selection import Selection
from fedboost.data.sources import Connection, SourceSpec
from fedboost.ground.errors import ConfigError, DataError, UnreachableError, install_advice
from fedboost.ground.settings import SecretReference, parse_settings

TABLE = pa.table(
    {
        "id": [f"p{n:02}" for n in range(12)],
        "age": range(12),
        "day": pa.array(range(12), pa.int32()).cast(pa.date32()),
        "year": [2020 + n // 6 for n in range(12)],
    }
)


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "people"
    by_year = ds.partitioning(pa.schema([("year", pa.int64())]), flavor="hive")
    ds.write_dataset(TABLE, path, format="parquet", partitioning=by_year)
    (path / "_SUCCESS").write_text("")
    return path


def refusal(kind, source, read=read_table):
    with pytest.raises(kind) as caught:
        read(source)
    assert caught.value.todo
    return caught.value


# --- folders --------------------------------------------------------------------------------


def test_a_folder_of_parquet_is_one_table_in_the_order_of_its_files(folder):
    source = SourceSpec(path=str(folder))
    assert read_table(source).cast(TABLE.schema).equals(TABLE)
    assert columns_of(source) == TABLE.column_names
    assert (read_outline(source).rows, row_count_bound(source)) == (12, 12)


@pytest.mark.parametrize(
    ("rows", "ages"),
    [
        ({"column": "year", "one_of": [2021]}, range(6, 12)),
        ({"column": "age", "at_least": 2, "below": 5}, range(2, 5)),
        ({"column": "day", "below": "1970-01-03"}, range(2)),
        ({"column": "id", "one_of": ["p07", "p01"]}, (1, 7)),
    ],
)
def test_rows_are_chosen_by_what_a_column_holds(folder, rows, ages):
    source = parse_settings(SourceSpec, {"path": str(folder), "rows": [rows]})
    assert read_table(source)["age"].to_pylist() == list(ages)
    assert row_count_bound(source) == len(list(ages))


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ({"column": "ear", "below": 3}, "the table has no column 'ear' that 'rows' of"),
        ({"column": "day", "below": "yesterday"}, "do not fit cells of type date32"),
    ],
)
def test_rows_that_cannot_be_chosen_so_are_refused(folder, rows, said):
    source = parse_settings(SourceSpec, {"path": str(folder), "rows": [rows]})
    assert said in refusal(DataError, source).what


def test_a_folder_without_files_is_no_table(tmp_path):
    (tmp_path / "people").mkdir()
    source = SourceSpec(path=str(tmp_path / "people"))
    assert refusal(DataError, source).what == "the table is not there"


def test_a_delta_table_is_read_by_its_log(tmp_path):
    deltalake = pytest.importorskip("deltalake")
    path = str(tmp_path / "people")
    deltalake.write_deltalake(path, TABLE)
    deltalake.DeltaTable(path).delete("age >= 3")
    assert read_table(SourceSpec(path=path, format="delta")).num_rows == 3
    assert row_count_bound(SourceSpec(path=path, format="delta", version=0)) == 12
    assert refusal(DataError, SourceSpec(path=path, format="delta", version=9)).what == (
        "the table is not there"
    )
    assert refusal(ConfigError, SourceSpec(path=path)).todo == "write: format: delta"
    (tmp_path / "people" / "_delta_log" / "00000000000000000001.json").write_text("{broken")
    broken = refusal(DataError, SourceSpec(path=path, format="delta"))
    assert broken.what == "the Delta table cannot be read"


def test_what_a_delta_table_calls_the_keys_of_s3(tmp_path):
    (tmp_path / "key").write_text("abc\n")
    reference = {"file": str(tmp_path / "key")}
    path = "s3://lake/people?region=eu&scheme=http&endpoint_override=h:9"
    keys = {"access_key": reference, "secret_key": reference, "session_token": reference}
    source = parse_settings(SourceSpec, {"path": path, "format": "delta", "keys": keys})
    options = s3.delta_options(source)
    assert options["aws_endpoint"] == "http://h:9"
    assert options["aws_secret_access_key"] == options["aws_session_token"] == "abc"
    assert source.name == "people"


# --- queries --------------------------------------------------------------------------------


def test_duckdb_joins_files(tmp_path):
    pq.write_table(TABLE, tmp_path / "a.parquet")
    pa.csv.write_csv(pa.table({"id": ["p01", "p00"], "rate": [0.5, 1.5]}), tmp_path / "b.csv")
    sql = f"select id, age, rate from '{tmp_path}/a.parquet' join '{tmp_path}/b.csv' using (id)"
    source = SourceSpec(sql=sql, connection=Connection(url="duckdb:"))
    assert read_table(source).to_pylist() == [
        {"id": "p00", "age": 0, "rate": 1.5},
        {"id": "p01", "age": 1, "rate": 0.5},
    ]


def test_a_duckdb_file_is_read_and_not_written(tmp_path):
    duckdb = pytest.importorskip("duckdb")
    path = tmp_path / "a.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute("create table t as select 'a' as id, 1.5 as x")
    here = Connection(url=f"duckdb:///{path}")
    assert read_table(SourceSpec(sql="select * from t", connection=here)).num_rows == 1
    for sql in ("drop table t", "copy t to 'out.csv'", "select 1; drop table t"):
        refused = refusal(ConfigError, SourceSpec(sql=sql, connection=here))
        assert refused.what == "the query cannot be run: the database refuses it"
    for sql, url in (("select * from u", here.url), ("select 1", f"{here.url}x")):
        absent = refusal(DataError, SourceSpec(sql=sql, connection=Connection(url=url)))
        assert absent.what == "the table is not there"


def test_a_library_that_is_not_installed_is_named(monkeypatch):
    for name in ("duckdb", "deltalake", "adbc_driver_postgresql"):
        monkeypatch.setitem(__import__("sys").modules, name, None)
    for url in ("duckdb:", "postgresql://h/d"):
        asked = SourceSpec(sql="select 1", connection=Connection(url=url))
        assert refusal(DataError, asked).todo.endswith(install_advice("sql"))
    delta = SourceSpec(path=".", format="delta")
    assert refusal(DataError, delta).todo.endswith(install_advice("delta"))


def test_a_secret_stands_in_no_text_of_a_log(monkeypatch):
    address = "postgresql://u:p%40ss-word@h/d?sslpassword=hush%21"
    monkeypatch.setenv("BANK_DSN", address)
    connection = Connection(env="BANK_DSN")
    assert connection.read() == address
    text = without_secrets(f"{address} p@ss-word p%40ss-word hush! h", address, str(connection))
    assert text == "env BANK_DSN env BANK_DSN env BANK_DSN env BANK_DSN h"
    assert "word" not in repr(SourceSpec(sql="select 1", connection=connection))


def test_a_reference_that_leads_nowhere_is_refused(tmp_path):
    (tmp_path / "dsn").write_text("hunter2")
    source = SourceSpec(sql="select 1", connection=Connection(file=str(tmp_path / "dsn")))
    error = refusal(DataError, source)
    assert "refuses its key or password" in error.what
    assert "holds no address of a database" in error.private
    assert "hunter2" not in error.private + str(error)
    with pytest.raises(ConfigError, match="either in 'env', a variable, or in 'file'"):
        parse_settings(SecretReference, {"env": "A", "file": "b"})


def test_queries_at_one_connection_spend_one_budget():
    one, other = (SourceSpec(sql=q, connection=Connection(env="DSN")) for q in ("a", "b"))
    assert one.identity == other.identity
    assert one.identity != SourceSpec(sql="a", connection=Connection(env="DSN2")).identity


# --- only what is needed --------------------------------------------------------------------


@pytest.mark.parametrize("ending", ["csv", "parquet", "arrow"])
def test_columns_that_a_job_does_not_use_are_not_read(tmp_path, ending):
    path = tmp_path / f"a.{ending}"
    write = {"csv": pa.csv.write_csv, "parquet": pq.write_table, "arrow": feather.write_feather}[
        ending
    ]
    write(TABLE, path)
    sheet = read_sheet(SourceSpec(path=str(path)), needs=lambda names: {"id", "age"})
    assert (sheet.names, sheet.unread) == (("id", "age"), ("day", "year"))
    source = SourceSpec(path=str(path), dates=["day"])
    chosen = Selection(columns=["day_month", "age"])
    narrow = load_frame(source, chosen, party="bank", needs_label=False)
    assert narrow.columns == ("day_month", "age")
    ignoring = load_frame(source, Selection(ignore=["year"]), party="bank", needs_label=False)
    assert ignoring.columns == ("age", "day", "day_month", "day_weekday")
    with pytest.raises(DataError, match="no feature column 'agee'") as caught:
        load_frame(source, Selection(columns=["agee"]), party="bank", needs_label=False)
    assert caught.value.todo == "did you mean 'age'?"


# --- patience -------------------------------------------------------------------------------


def test_a_source_that_falls_silent_is_given_up():
    release = threading.Event()

    def rows():
        yield 1
        release.wait()

    items = stored.items_in_time(rows(), 0.05)
    assert next(items) == 1
    with pytest.raises(UnreachableError, match="does not answer"):
        next(items)
    release.set()


def test_an_error_on_the_way_is_raised_where_rows_are_taken():
    def rows():
        yield 1
        raise KeyError("x")

    items = stored.items_in_time(rows(), 5.0)
    assert next(items) == 1
    with pytest.raises(KeyError):
        next(items)
    assert list(stored.items_in_time(iter([1, 2]), 5.0)) == [1, 2]


def test_nobody_reads_on_for_whom_nobody_waits(monkeypatch):
    monkeypatch.setattr(stored, "PUT_TIMEOUT_S", 0.01)
    closed = threading.Event()

    def rows():
        try:
            yield from range(1000)
        finally:
            closed.set()

    items = stored.items_in_time(rows(), 5.0)
    next(items)
    items.close()
    time.sleep(0)
    assert closed.wait(5.0)
