"""Tables that lie in a real PostgreSQL, a real S3 storage and what speaks Flight SQL."""

import os

import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from fedboost.data.loading import load_frame
from fedboost.data.outline import read_outline
from fedboost.data.reading import columns_of, read_table
from fedboost.data.row_count import row_count_bound
from fedboost.data.selection import Selection
from fedboost.data.sources import SourceSpec
from fedboost.ground.errors import ConfigError, DataError, FedboostError, UnreachableError
from fedboost.ground.settings import parse_settings
from tests.e2e import world
from tests.support import servers

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("sources")]
PASSWORD = "tr0ub4dor"
SILENCE_S = 2.0
TABLE = pa.table(
    {
        "id": [f"p{n}" for n in range(40)],
        "age": [20 + n for n in range(40)],
        "rate": [n / 8 for n in range(40)],
        "year": pa.array([2020 + n % 3 for n in range(40)], pa.int32()),
    }
)
SECRETS = (PASSWORD, servers.OWNER_PASSWORD)


@pytest.fixture(scope="module")
def database():
    with servers.postgres() as server:
        server.write("people", TABLE)
        server.run(
            f"create role reader login password '{PASSWORD}'",
            "grant select on people to reader",
            "create table secret (id int)",
        )
        yield server


@pytest.fixture(scope="module")
def storage():
    with servers.s3() as server:
        write(server, "people", TABLE)
        yield server


def write(server, folder, table):
    by_year = ds.partitioning(pa.schema([("year", pa.int32())]), flavor="hive")
    ds.write_dataset(
        table,
        f"{servers.BUCKET}/{folder}",
        format="parquet",
        filesystem=server.files(),
        partitioning=by_year if "year" in table.column_names else None,
        existing_data_behavior="overwrite_or_ignore",
    )


def asked(database, folder, sql="select * from people", user="reader", password=PASSWORD, **more):
    """A query whose address lies in a file, which is what changes when a password does."""
    (folder / "dsn").write_text(database.address(user, password) + "\n")
    raw = {"sql": sql, "connection": {"file": str(folder / "dsn")}, "silence_s": SILENCE_S}
    return parse_settings(SourceSpec, {**raw, **more})


def stored(server, folder, table="people", keys=None, **more):
    keys = server.keys if keys is None else keys
    for name, text in keys.items():
        (folder / name).write_text(text)
    raw = {
        "path": f"s3://{servers.BUCKET}/{table}{server.query}",
        "keys": {name: {"file": str(folder / name)} for name in keys},
        "silence_s": SILENCE_S,
    }
    return parse_settings(SourceSpec, {**raw, **more})


def refusal(kind, source, read=read_table):
    with pytest.raises(FedboostError) as caught:
        read(source)
    error = caught.value
    assert type(error) is kind, error.lines()
    assert error.where["file"] == source.name
    assert error.todo
    for secret in (*SECRETS, "127.0.0.1"):
        assert secret not in "\n".join(error.lines())
    for secret in SECRETS:
        assert secret not in error.private
    return error


# --- PostgreSQL -----------------------------------------------------------------------------


def test_a_query_s_answer_is_read_in_the_order_of_its_ids(database, tmp_path):
    source = asked(database, tmp_path, "select * from people -- all of them\n;")
    found = read_table(source)
    assert found.to_pylist() == TABLE.sort_by("id").to_pylist()
    assert row_count_bound(source) == 40
    assert dict(read_outline(source).columns)["rate"] == "number"


def test_only_the_columns_that_a_job_uses_are_sent(database, tmp_path):
    """The reader may read two columns of the table, and no others."""
    database.run(
        f"create role narrow login password '{PASSWORD}'",
        "grant select (id, age) on people to narrow",
    )
    source = asked(database, tmp_path, "select id, age from people", user="narrow")
    frame = load_frame(source, Selection(columns=["age"]), party="bank", needs_label=False)
    assert frame.columns == ("age",)
    refused = asked(database, tmp_path, user="narrow")
    assert "refuses its key or password" in refusal(DataError, refused).what


def test_decimal_numbers_are_numbers(database, tmp_path):
    sql = "select id, (rate * 2)::numeric(10, 2) as price from people"
    frame = load_frame(asked(database, tmp_path, sql), Selection(), party="bank", needs_label=False)
    assert frame.values[:, 0].tolist() == [2 * row["rate"] for row in sorted_rows()]


def sorted_rows():
    return TABLE.sort_by("id").to_pylist()


@pytest.mark.parametrize(
    ("sql", "kind", "said"),
    [
        ("select * from nothing", DataError, "the table is not there"),
        ("selct", ConfigError, "the query cannot be run"),
        ("select 1; select 2", ConfigError, "the query cannot be run"),
        ("delete from people returning *", ConfigError, "the query cannot be run"),
        ("select * from secret", DataError, "refuses its key or password, or access"),
        ("select 1 as id, 2 as id", DataError, "several columns have one name: id"),
        ("select * from people where age < 0", DataError, "the table has no rows"),
    ],
)
def test_a_query_that_gives_no_table_is_refused(database, tmp_path, sql, kind, said):
    assert said in refusal(kind, asked(database, tmp_path, sql)).what


def test_a_wrong_password_is_refused_without_showing_it(database, tmp_path):
    wrong = asked(database, tmp_path, password="wr0ng" + PASSWORD)
    assert "refuses its key or password" in refusal(DataError, wrong).what
    absent = parse_settings(
        SourceSpec, {"sql": "select 1", "connection": {"env": "FEDBOOST_NO_SUCH"}}
    )
    assert "refuses its key" in refusal(DataError, absent).what


def test_what_does_not_answer_is_waited_for(database, tmp_path):
    """Nobody there; a query that takes too long; a connection that is cut in the middle."""
    (tmp_path / "dsn").write_text(f"postgresql://reader:{PASSWORD}@127.0.0.1:9/postgres")
    raw = {"sql": "select 1 as id", "connection": {"file": str(tmp_path / "dsn")}}
    refusal(UnreachableError, parse_settings(SourceSpec, raw))
    slow = "select id, pg_sleep(20) from people"
    refusal(UnreachableError, asked(database, tmp_path, slow, silence_s=0.5))
    cut = "select *, pg_terminate_backend(pg_backend_pid()) from people"
    refusal(UnreachableError, asked(database, tmp_path, cut))


def test_flight_sql_is_asked_like_a_database(tmp_path):
    people = "select 'p' || n as id, n * 2 as age from range(5) t(n)"
    with servers.flight_sql(PASSWORD) as port:
        for word, kind in ((PASSWORD, None), ("wr0ng", DataError)):
            (tmp_path / "dsn").write_text(f"grpc://reader:{word}@127.0.0.1:{port}")
            raw = {"sql": people, "connection": {"file": str(tmp_path / "dsn")}}
            source = parse_settings(SourceSpec, raw)
            if kind is None:
                frame = load_frame(source, Selection(), party="bank", needs_label=False)
                assert frame.values[:, 0].tolist() == [0, 2, 4, 6, 8]
            else:
                assert "refuses its key or password" in refusal(kind, source).what
    refusal(UnreachableError, source.model_copy(update={"silence_s": 5.0}))


# --- S3 -------------------------------------------------------------------------------------


def test_a_folder_in_a_storage_is_one_table(storage, tmp_path):
    source = stored(storage, tmp_path)
    assert read_table(source).sort_by("age").select(TABLE.column_names).equals(TABLE)
    assert (columns_of(source)[-1], read_outline(source).rows) == ("year", 40)


def test_rows_are_chosen_before_they_are_fetched(storage, tmp_path):
    source = stored(storage, tmp_path, rows=[{"column": "year", "one_of": [2020]}])
    assert row_count_bound(source) == read_table(source).num_rows == 14
    newer = stored(storage, tmp_path, rows=[{"column": "year", "at_least": 2021, "below": 2022}])
    assert {row["year"] for row in read_table(newer).to_pylist()} == {2021}


def test_a_key_that_has_run_out_is_refused(storage, tmp_path):
    old = storage.new_key()
    source = stored(storage, tmp_path, keys=old)
    assert read_table(source).num_rows == 40
    storage.drop_key(old)
    assert "refuses its key" in refusal(DataError, source).what
    stored(storage, tmp_path)  # renewed where it lies
    assert read_table(source).num_rows == 40


def test_a_table_that_is_not_in_the_storage_is_absent(storage, tmp_path):
    assert refusal(DataError, stored(storage, tmp_path, "nobody")).what == "the table is not there"
    source = stored(storage, tmp_path)
    elsewhere = source.model_copy(update={"path": source.path.replace(servers.BUCKET, "puddle")})
    assert refusal(DataError, elsewhere).what == "the table is not there"


def test_a_storage_that_does_not_answer_is_waited_for(storage, tmp_path):
    source = stored(storage, tmp_path)
    with servers.silent(storage.process.pid):
        refusal(UnreachableError, source)
    nobody = source.path.replace(str(storage.port), "9")
    refusal(UnreachableError, source.model_copy(update={"path": nobody, "silence_s": 20.0}))


def test_other_storages_are_asked_by_their_own_keys(monkeypatch):
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "/nonexistent")
    google = parse_settings(SourceSpec, {"path": "gs://lake/people", "silence_s": 20.0})
    assert "refuses its key" in refusal(DataError, google).what
    hadoop = parse_settings(SourceSpec, {"path": "hdfs://127.0.0.1:9/people", "silence_s": 20.0})
    if "CLASSPATH" not in os.environ:
        assert "needs Hadoop's own library" in refusal(ConfigError, hadoop).what
    wrong = parse_settings(SourceSpec, {"path": "s3://lake/people?regoin=eu"})
    assert "knows no option 'regoin'" in refusal(ConfigError, wrong).what


def test_csv_is_not_read_from_a_storage(storage, tmp_path):
    assert (
        "is not read from a storage"
        in refusal(ConfigError, stored(storage, tmp_path, "a.csv")).what
    )


def test_a_delta_table_lies_in_a_storage_too(storage, tmp_path):
    import deltalake

    place, keys = f"s3://{servers.BUCKET}/ledger", storage.keys
    options = {
        "aws_endpoint": f"http://127.0.0.1:{storage.port}",
        "aws_allow_http": "true",
        "aws_region": servers.REGION,
        "aws_access_key_id": keys["access_key"],
        "aws_secret_access_key": keys["secret_key"],
    }
    for part in (TABLE.slice(0, 30), TABLE.slice(30)):
        deltalake.write_deltalake(place, part, mode="append", storage_options=options)
    source = stored(storage, tmp_path, "ledger", format="delta")
    assert read_table(source).sort_by("age").equals(TABLE)
    first = stored(storage, tmp_path, "ledger", format="delta", version=0)
    assert row_count_bound(first) == 30
    never = stored(storage, tmp_path, "ledger", format="delta", version=7)
    assert refusal(DataError, never).what == "the table is not there"
    unnamed = stored(storage, tmp_path, "ledger")
    assert "the folder is a Delta table" in refusal(ConfigError, unnamed).what
    wrong = stored(storage, tmp_path, "ledger", format="delta", keys={**keys, "secret_key": "x"})
    assert "refuses its key" in refusal(DataError, wrong).what


# --- a job ----------------------------------------------------------------------------------


def test_a_job_survives_what_happens_to_its_tables(database, storage, tmp_path):
    """Between alignment and the last tree: a password runs out, a row changes, a table is gone, a
    storage hangs. Each time the job says so, and at last it leaves the model of quiet times.
    """
    rows = world.toy(label=True, rows=80)
    database.write("credit", rows)
    database.run("grant select on credit to reader")
    write(storage, "calls", world.toy(columns=3, rows=80))
    for name in ("bank", "telco"):
        (tmp_path / name).mkdir()
    raw = world.job(hosts=("telco",), params={"n_estimators": 60})
    sources = {
        "bank": asked(database, tmp_path / "bank", "select * from credit", silence_s=60.0),
        "telco": stored(storage, tmp_path / "telco", "calls", silence_s=5.0),
    }
    cluster = world.WarmCluster(
        tmp_path / "c", world.spec(raw), sources, timers=world.TIMERS, workers=1
    )
    with cluster:
        quiet = world.run(cluster, raw)
        doctor = world.fedboost("doctor", "--config", cluster.config("bank"), "--json")
        found = {one["what"]: one for one in doctor.last["findings"]}
        assert found["data set data (a query's answer)"]["note"] == "sql, 4 columns"
        id_ = world.submit(cluster, raw)
        world.watch(cluster, id_, world.in_round(2, "open_layer"))
        database.run("alter role reader valid until '2001-01-01'")
        cluster.kill("bank")
        world.watch(cluster, id_)
        cluster.start("bank")
        cluster.wait("bank")
        world.wait_for(lambda: state(cluster, id_) == "failed", 60, "the password is refused")
        assert "refuses its key or password" in reason(cluster, id_)
        database.run("alter role reader valid until 'infinity'", "update credit set x0 = x0 + 1")
        assert again(cluster, id_) == "failed"
        assert "the table has changed since the job began" in reason(cluster, id_)
        database.run("update credit set x0 = x0 - 1", "alter table credit rename to gone")
        assert again(cluster, id_) == "failed"
        assert "the table is not there" in reason(cluster, id_)
        database.run("alter table gone rename to credit")
        with servers.silent(storage.process.pid):
            assert again(cluster, id_) == "paused"
            assert "does not answer" in reason(cluster, id_)
        journal = world.gone_on(cluster, id_)
        assert world.result(journal)["metrics"] == world.result(quiet)["metrics"]
        world.assert_same_model(cluster, id_, quiet.status.id)
        assert world.tracebacks(cluster) == []
    for file in (tmp_path / "c").rglob("*"):
        for secret in (*SECRETS, storage.keys["secret_key"]):
            assert not file.is_file() or secret.encode() not in file.read_bytes(), file


def state(cluster, id_):
    return world.call(cluster, "status", id_).state


def reason(cluster, id_):
    return world.call(cluster, "status", id_).reason.what


def again(cluster, id_):
    after = world.journalled(cluster, id_)
    world.call(cluster, "resume", id_)
    world.watch(cluster, id_, after=after)
    return state(cluster, id_)


ZONED = "moment AT TIME ZONE 'Europe/Berlin' AS moment"


def days_in(address, query, monkeypatch):
    monkeypatch.setenv("MOMENTS", address)
    raw = {"connection": {"env": "MOMENTS"}, "sql": query, "id": ["id"], "dates": ["moment"]}
    return read_table(parse_settings(SourceSpec, raw)).drop_columns("id").to_pylist()


def refuse_and_read_moments(address, monkeypatch):
    """Midnight of a Monday in Berlin, in a zone that only the query can name."""
    with pytest.raises(DataError, match="depend on the time zone") as refused:
        days_in(address, "SELECT id, moment FROM moments", monkeypatch)
    assert ZONED in refused.value.todo
    (day,) = days_in(address, f"SELECT id, {ZONED} FROM moments", monkeypatch)
    assert day == {"moment": 19723.0, "moment_month": 1, "moment_weekday": 1}


def test_moments_of_postgresql_need_a_zone(database, monkeypatch):
    database.run(
        "create table moments (id int, moment timestamptz)",
        "insert into moments values (1, '2024-01-01 00:00:00+01')",
    )
    refuse_and_read_moments(database.address(), monkeypatch)


def test_moments_of_duckdb_need_a_zone(tmp_path, monkeypatch):
    import duckdb

    file = tmp_path / "moments.duckdb"
    with duckdb.connect(str(file)) as connection:
        connection.execute(
            "CREATE TABLE moments AS SELECT 1 AS id, TIMESTAMPTZ '2024-01-01 00:00:00+01' AS moment"
        )
    refuse_and_read_moments(f"duckdb:///{file}", monkeypatch)
