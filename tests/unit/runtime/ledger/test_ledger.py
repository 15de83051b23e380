"""The ledger: whatever is changed, taken away or moved in it is noticed, and named by its row."""

import hashlib
import json
import sqlite3
import threading
from contextlib import closing
from dataclasses import asdict, fields, replace
from datetime import UTC, datetime, timedelta

import pytest
import yaml
from click.testing import CliRunner

from fedboost.cli.groups import ledger_group
from fedboost.ground.errors import DataError, StoreError
from fedboost.runtime.ledger.ledger import Ledger
from fedboost.runtime.ledger.rows import GENESIS, DisclosureRow, Head, Row, row_hash
from fedboost.runtime.store.store import JobState, Store

SENT = DisclosureRow(
    direction="out",
    job="j1",
    attempt=1,
    stage="secureboost",
    step="sum_candidates",
    number=7,
    part=0,
    kind="CandidateSums",
    peer="bank",
    bytes=12_345,
    values=640,
    rows=20_000,
    groups=640,
    smallest_group=20,
    epsilon=None,
    protection="paillier-2048 blinded",
    reveals="To the key holder, this host's candidate sums without column, bin or row count.",
    sha256=hashlib.sha256(b"payload").hexdigest(),
    salt=bytes(range(16)).hex(),
)


OTHERS = [f'"{column.name}"' for column in fields(Row) if column.name != "n"]


class Clock:
    """A second passes at each look."""

    def __init__(self) -> None:
        self.now = datetime(2026, 1, 31, tzinfo=UTC)

    def __call__(self) -> datetime:
        self.now += timedelta(seconds=1)
        return self.now


@pytest.fixture
def path(tmp_path):
    """A ledger of four rows."""
    file = tmp_path / "store.sqlite"
    with closing(Ledger(file, clock=Clock())) as ledger:
        for n in range(4):
            ledger.record(replace(SENT, job=f"j{n % 2}", bytes=n, direction=("out", "in")[n % 2]))
    return file


def tamper(path, *statements):
    """Change the file as somebody would who knows SQLite."""
    with closing(sqlite3.connect(path)) as connection:
        for table in ("ledger", "ledger_signed"):
            connection.execute(f"DROP TRIGGER {table}_keeps")
            connection.execute(f"DROP TRIGGER {table}_stays")
        for statement, values in statements:
            assert connection.execute(statement, values).rowcount == 1
        connection.commit()


def broken(path) -> str:
    with closing(Ledger(path, read_only=True)) as ledger, pytest.raises(DataError) as caught:
        ledger.verify()
    return caught.value.what


def test_a_row_says_what_was_recorded(path):
    with closing(Ledger(path, clock=Clock())) as ledger:
        [row] = ledger.record(SENT)
        assert ledger.rows()[-1] == row
        assert {key: getattr(row, key) for key in asdict(SENT)} == asdict(SENT)
        assert (row.n, row.at) == (5, "2026-01-31T00:00:01.000000+00:00")


def test_the_chain_is_the_naive_one(path):
    with closing(Ledger(path)) as ledger:
        rows, head = ledger.rows(), ledger.verify()
    previous = hashlib.sha256(b"fedboost ledger 2").hexdigest()
    for n, row in enumerate(rows, 1):
        content = asdict(row)
        assert (row.n, content.pop("previous"), content.pop("hash")) == (n, previous, row.hash)
        text = json.dumps(content, sort_keys=True, separators=(",", ":"))
        said = hashlib.sha256(text.encode()).hexdigest()
        previous = hashlib.sha256(f"{previous} {said}".encode()).hexdigest()
        assert row.hash == previous
    assert head == Head(4, previous)


def test_an_empty_ledger_is_whole(tmp_path):
    with closing(Ledger(tmp_path / "new.sqlite")) as ledger:
        assert ledger.verify() == ledger.head() == Head(0, GENESIS)


def test_rows_of_one_job_are_found(path):
    with closing(Ledger(path)) as ledger:
        assert [row.n for row in ledger.rows("j1")] == [2, 4]
        assert ledger.rows("j9") == []


def test_a_ledger_goes_on_after_a_restart(path):
    with closing(Ledger(path)) as ledger:
        ledger.record(SENT)
    with closing(Ledger(path)) as ledger:
        assert ledger.verify().n == 5


@pytest.mark.parametrize("column", [column.name for column in fields(Row)])
@pytest.mark.parametrize("n", [1, 2, 4])
def test_a_changed_field_is_noticed_at_its_row(path, column, n):
    with closing(Ledger(path)) as ledger:
        old = getattr(ledger.rows()[n - 1], column)
    if isinstance(old, str):
        new: object = ("0" if old[0] != "0" else "1") + old[1:]
    else:
        new = 90 if old is None else old + 90
    tamper(path, (f'UPDATE ledger SET "{column}" = ? WHERE n = ?', (new, n)))
    assert f"row {n} " in broken(path)


def test_a_row_whose_text_has_become_bytes_is_named(path):
    master = "UPDATE sqlite_master SET sql = ? WHERE name = 'ledger'"
    with closing(sqlite3.connect(path)) as connection:
        (strict,) = connection.execute(
            "SELECT sql FROM sqlite_master WHERE name = 'ledger'"
        ).fetchone()
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute(master, (strict.removesuffix(" STRICT"),))
        connection.commit()
    tamper(path, ("UPDATE ledger SET peer = CAST(peer AS BLOB) WHERE n = 3", ()))
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute(master, (strict,))
        connection.commit()
    with closing(Ledger(path, read_only=True)) as ledger:
        with pytest.raises(DataError, match="row 3 is damaged"):
            ledger.verify()
        with pytest.raises(DataError, match="row 3 is damaged"):
            ledger.rows()


def test_a_changed_row_with_a_fitting_hash_breaks_the_next(path):
    with closing(Ledger(path)) as ledger:
        row = replace(ledger.rows()[1], peer="nobody")
    tamper(path, ("UPDATE ledger SET peer = ?, hash = ? WHERE n = 2", ("nobody", row_hash(row))))
    assert "row 3 does not follow row 2" in broken(path)


def test_a_changed_last_row_with_a_fitting_hash_is_noticed(path):
    with closing(Ledger(path)) as ledger:
        row = replace(ledger.rows()[3], peer="nobody")
    tamper(path, ("UPDATE ledger SET peer = ?, hash = ? WHERE n = 4", ("nobody", row_hash(row))))
    assert "row 4 is not the row that was recorded last" in broken(path)


@pytest.mark.parametrize("n", [1, 2, 4])
def test_a_deleted_row_is_named(path, n):
    tamper(path, ("DELETE FROM ledger WHERE n = ?", (n,)))
    assert f"row {n} is missing" in broken(path)


def test_a_deleted_row_is_named_even_when_the_others_close_ranks(path):
    tamper(
        path,
        ("DELETE FROM ledger WHERE n = 2", ()),
        ("UPDATE ledger SET n = 2 WHERE n = 3", ()),
        ("UPDATE ledger SET n = 3 WHERE n = 4", ()),
    )
    assert "row 2 does not follow row 1" in broken(path)


def test_reordered_rows_are_noticed(path):
    tamper(
        path,
        ("UPDATE ledger SET n = 99 WHERE n = 2", ()),
        ("UPDATE ledger SET n = 2 WHERE n = 3", ()),
        ("UPDATE ledger SET n = 3 WHERE n = 99", ()),
    )
    assert "row 2 does not follow row 1" in broken(path)


def test_an_added_row_is_noticed(path):
    tamper(
        path,
        (
            f"INSERT INTO ledger SELECT 5, {', '.join(OTHERS)} FROM ledger WHERE n = 4",
            (),
        ),
    )
    assert "row 5 does not follow row 4" in broken(path)


def test_a_changed_head_is_noticed(path):
    tamper(path, ("UPDATE ledger_head SET n = 3", ()))
    assert "row 4 is not the row that was recorded last" in broken(path)


def test_the_file_itself_refuses_changes(path):
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("INSERT INTO ledger_signed VALUES (1, 'j', 'bank', x'00', x'00')")
        for statement in (
            "DELETE FROM ledger",
            "UPDATE ledger SET peer = 'x'",
            "DELETE FROM ledger_signed",
            "UPDATE ledger_signed SET text = x'01'",
        ):
            with pytest.raises(sqlite3.IntegrityError, match="append-only"):
                connection.execute(statement)


def test_threads_and_the_store_write_one_chain(tmp_path):
    with Store(tmp_path, "party bank") as store:
        store.add_job("j1", "credit", b"", JobState.RUNNING)
        ledger = Ledger(store.database)

        def write() -> None:
            for _ in range(15):
                ledger.record(SENT)
                store.add_event("j1", {})

        threads = [threading.Thread(target=write) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert ledger.verify().n == len(store.events("j1")) == 60
        ledger.close()


def test_a_reader_works_beside_the_writer_and_cannot_write(path):
    with closing(Ledger(path)) as writer, closing(Ledger(path, read_only=True)) as reader:
        writer.record(SENT)
        assert reader.verify() == writer.head()
        with pytest.raises(StoreError):
            reader.record(SENT)
        assert reader.verify().n == 5


def test_a_ledger_that_is_not_there_is_a_typed_error(tmp_path):
    with pytest.raises(StoreError, match="no store yet"):
        Ledger(tmp_path / "store.sqlite", read_only=True)
    assert not list(tmp_path.iterdir())
    Store(tmp_path, "party bank").close()
    with pytest.raises(StoreError, match="no ledger"):
        Ledger(tmp_path / "store.sqlite", read_only=True)


def test_a_peer_cannot_fill_the_disk_through_a_text(tmp_path):
    with closing(Ledger(tmp_path / "l.sqlite")) as ledger:
        for text in ("x" * 2001, "a\0b"):
            with pytest.raises(DataError):
                ledger.record(replace(SENT, peer=text))
        assert ledger.head().n == 0


# --- the commands


@pytest.fixture
def config(path):
    content = {
        "name": "telco",
        "listen": "127.0.0.1:7102",
        "insecure_loopback": True,
        "coordinator": {"name": "coord", "address": "127.0.0.1:7100"},
        "store": str(path.parent),
    }
    file = path.parent / "party.yaml"
    file.write_text(yaml.safe_dump(content))
    return str(file)


def run(*args: str) -> str:
    done = CliRunner().invoke(ledger_group, list(args), catch_exceptions=False)
    assert done.exit_code == 0
    return done.output


def test_show_lists_rows_and_sizes(config):
    shown = run("show", "--config", config)
    assert "left: 2 payloads" in shown
    assert "came: 2 payloads" in shown
    found = json.loads(run("show", "--config", config, "--job", "j1", "--json").splitlines()[-1])
    assert [row["n"] for row in found["rows"]] == [2, 4]
    assert found["rows"][0]["reveals"] == SENT.reveals
    assert found["head"]["n"] == 4
    assert "in job j9" in run("show", "--config", config, "--job", "j9")


def test_show_does_not_obey_what_a_peer_calls_itself(config, path):
    with closing(Ledger(path)) as ledger:
        ledger.record(replace(SENT, job="odd", step="[red]x[/]", kind="\x1b[2J"))
    shown = run("show", "--config", config, "--job", "odd")
    assert "\x1b" not in shown


def test_the_latest_rows_come_first_some_at_a_time(path):
    with closing(Ledger(path, read_only=True)) as ledger:
        assert [row.n for row in ledger.latest_rows("", "", 5, 3)] == [4, 3, 2]
        assert [row.n for row in ledger.latest_rows("", "", 2, 3)] == [1]
        assert [row.n for row in ledger.latest_rows("j1", "", 5, 3)] == [4, 2]
        assert ledger.latest_rows("j9", "", 5, 3) == []


def test_a_jobs_rows_add_up_by_way_peer_and_message(path):
    with closing(Ledger(path)) as ledger:
        ledger.record(replace(SENT, job="j0", kind="Other"), replace(SENT, job="j0", bytes=10))
        ledger.record(replace(SENT, job="j9", kind="Other"))
        found = [tuple(vars(one).values())[:-1] for one in ledger.amounts("j0")]
        every = ledger.amounts()
        sums = {one.of: one for one in ledger.amounts(last=3)}
        for one in ledger.amounts(after=3):
            sums[one.of] = sums[one.of].plus(one) if one.of in sums else one
        newest = ledger.latest_rows("j9", "", 99, 1)[0]
    assert found == [
        ("out", "bank", "CandidateSums", 3, 0 + 2 + 10, 3 * 640, "j0"),
        ("out", "bank", "Other", 1, 12_345, 640, "j0"),
    ]
    assert list(sums.values()) == every
    assert next(one.last for one in every if one.job == "j9") == newest.at


def test_each_row_has_a_sentence_that_a_person_understands(config, path):
    with closing(Ledger(path)) as ledger:
        ledger.record(replace(SENT, job="said", epsilon=2.0))
        ledger.record(replace(SENT, job="said", direction="in", rows=None, groups=None,
                              smallest_group=None))  # fmt: skip
    shown = run("show", "--config", config, "--job", "said", "--long")
    told = (
        "Sent to bank (12,345 bytes, about 20,000 rows, 640 groups, the smallest of 20 rows, "
        f"epsilon 2 a value): {SENT.reveals} Protected: {SENT.protection}"
    )
    assert told in shown
    assert f"Received from bank (12,345 bytes): {SENT.reveals}" in shown
    found = json.loads(run("show", "--config", config, "--job", "said", "--json").splitlines()[-1])
    assert found["rows"][0]["sentence"] == told


def test_a_ledger_of_an_earlier_version_is_refused_and_left_as_it_is(tmp_path):
    path = tmp_path / "store.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE ledger (n INTEGER PRIMARY KEY, at TEXT NOT NULL) STRICT")
        connection.execute("INSERT INTO ledger VALUES (1, 'then')")
        connection.commit()
    for read_only in (True, False):
        with pytest.raises(StoreError, match="another version of fedboost"):
            Ledger(path, read_only=read_only)
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT * FROM ledger").fetchall() == [(1, "then")]


def test_verify_says_whole_or_names_the_row(config, path):
    assert "4 rows" in run("verify", "--config", config)
    assert json.loads(run("verify", "--config", config, "--json"))["whole"] is True
    tamper(path, ("UPDATE ledger SET bytes = 77 WHERE n = 3", ()))
    with pytest.raises(DataError, match="row 3 was changed"):
        run("verify", "--config", config)
