"""The tables of a store: a fresh one has what all versions, one after the other, have made."""

import gzip
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from fedboost.ground.errors import ConfigError
from fedboost.ground.formats import STORE_VERSION
from fedboost.runtime.jobs.manifest import read_outline
from fedboost.runtime.ledger.ledger import Ledger
from fedboost.runtime.store import schema
from fedboost.runtime.store.store import Store


def made(path, version):
    """What a store of a version holds once it was brought up to ours."""
    with closing(schema.with_row_hash(sqlite3.connect(path, isolation_level=None))) as connection:
        for number in range(1, version + 1):
            for statement in schema.VERSIONS[number]:
                connection.execute(statement)
        if version:
            connection.execute("INSERT INTO owner VALUES ('party bank')")
        connection.execute(f"PRAGMA user_version = {version}")
        schema.migrate(connection, "party bank", path)
        assert connection.execute("PRAGMA user_version").fetchone() == (STORE_VERSION,)
        assert connection.execute("SELECT name FROM owner").fetchall() == [("party bank",)]
        found = "SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY type, name"
        return connection.execute(found).fetchall()


@pytest.mark.parametrize("version", sorted(schema.VERSIONS))
def test_a_fresh_store_is_what_each_older_one_becomes(tmp_path, version):
    fresh = made(tmp_path / "fresh", 0)
    assert {name for kind, name, *_ in fresh if kind == "table"} > set(schema.HASHED)
    assert made(tmp_path / "older", version) == fresh


def contents(path, *, of_all_but):
    """The rows of every table of a store's file but one."""
    with closing(sqlite3.connect(path)) as connection:
        names = "SELECT name FROM sqlite_master WHERE type = 'table' AND name != ?"
        tables = [name for (name,) in connection.execute(names, (of_all_but,))]
        return {name: connection.execute(f"SELECT * FROM {name}").fetchall() for name in tables}


def test_a_store_that_version_11_wrote_is_brought_up_when_a_daemon_starts(tmp_path):
    """telco's, as a daemon of version 11 left it: one job finished, one paused in its trees."""
    path = tmp_path / "store.sqlite"
    path.write_bytes(gzip.decompress(Path(__file__).with_name("store-11.sqlite.gz").read_bytes()))
    before = contents(path, of_all_but="jobs")
    with Store(tmp_path, "party telco") as store, closing(Ledger(path)) as ledger:
        states = {job.id: job.state for job in store.jobs()}
        outlines = [read_outline(job.outline) for job in store.jobs()]
        assert ledger.verify().n == 52
    assert states == {"secureboost-c62a331b": "finished", "secureboost-3a808f36": "paused"}
    assert {(one.version, one.wire_version) for one in outlines} == {("0.2.0", 1)}
    with pytest.raises(ConfigError, match=r"the job began under fedboost 0\.2\.0 \(wire 1\)"):
        outlines[0].check_spoken()
    assert contents(path, of_all_but="jobs") == before
