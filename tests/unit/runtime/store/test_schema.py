"""The tables of a store: a fresh one has what all versions, one after the other, have made."""

import sqlite3
from contextlib import closing

import pytest

from fedboost.ground.formats import STORE_VERSION
from fedboost.runtime.store import schema


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
