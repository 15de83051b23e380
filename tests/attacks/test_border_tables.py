"""One table under several names and places: each would get a budget of its own.

The defence is `same_tables`: tables are known by their files and by where their addresses lead.
"""

import os
from contextlib import closing, suppress
from dataclasses import replace

import pytest

from fedboost.data import sources
from fedboost.data.sources import Connection, SourceSpec
from fedboost.flow import DisclosureInfo
from fedboost.ground.errors import PolicyError
from fedboost.messages.exchange_pb2 import Envelope
from fedboost.runtime.config.policy import Policy
from fedboost.runtime.ledger.rows import Noted
from fedboost.runtime.policy.account import Account
from fedboost.runtime.policy.differences import alignments_today, count_alignment
from fedboost.runtime.policy.same_tables import OwnTables, owned_table
from fedboost.runtime.policy.spending import Spending
from fedboost.runtime.store.store import Store
from tests.support import accounts

MOST, EACH = 0.15, 0.1  # of the table; what a message tells


def hard_link(folder):
    (folder / "a.csv").write_text("id,x\n1,2\n")
    (folder / "b.csv").hardlink_to(folder / "a.csv")
    return folder / "a.csv", folder / "b.csv"


def symbolic_link(folder):
    (folder / "a.csv").write_text("id,x\n1,2\n")
    (folder / "b.csv").symlink_to(folder / "a.csv")
    return folder / "a.csv", folder / "b.csv"


def folder_and_file(folder):
    (folder / "credit").mkdir()
    (folder / "credit" / "part-0.parquet").write_bytes(b"PAR1")
    return folder / "credit", folder / "credit" / "part-0.parquet"


def linked_folder(folder):
    one, other = folder / "one", folder / "other"
    one.mkdir()
    other.mkdir()
    (one / "part-0.parquet").write_bytes(b"PAR1")
    (other / "part-7.parquet").hardlink_to(one / "part-0.parquet")
    return one, other


def at(*places):
    return lambda _: places


def asked(url):
    return SourceSpec(sql="select 1", connection=Connection(url=url))


def declared(place):
    return asked(place) if "postgresql" in str(place) else SourceSpec(path=str(place))


PAIRS = {
    "a hard link": hard_link,
    "a symbolic link": symbolic_link,
    "a folder beside its file": folder_and_file,
    "folders that share a file": linked_folder,
    "another query": at("s3://bank/a.parquet", "s3://bank/a.parquet?region=eu-central-1"),
    "a fragment": at("s3://bank/a.parquet", "s3://bank/a.parquet#again"),
    "another spelling": at("s3://bank/x/a.parquet", "s3://BANK//x/./a.parquet"),
    "a folder of a bucket": at("gs://bank/credit", "gs://bank/credit/2024/a.parquet"),
    "a user and a port": at("postgresql://db/credit", "postgresql://bank@DB:5432/credit?x=1"),
}


def told(folder, tables, *, store="store"):
    """What two guests get of two declared tables, and how often one of them aligns."""
    policy, aligned, got = Policy(disclosure_max=MOST), 0, 0.0
    with Store(folder / store, "party telco") as kept, closing(Account(kept.database)) as account:
        own = OwnTables(account.changes, lambda: tables)
        spending = Spending("telco", lambda: policy, own, account)
        for name in tables:
            table = owned_table(kept.transaction, tables, name)
            entry = replace(accounts.SUMS, job=name, dataset=name, source=table.source)
            spending._jobs[name] = entry
            envelope = Envelope(job=name, receiver="bank", payload_sha256=os.urandom(32))
            about = DisclosureInfo(charges=(accounts.sums(EACH),))
            with suppress(PolicyError), account.changes() as sql:
                spending.charge([Noted(envelope, envelope, about)], sql)
                got += EACH
            with suppress(PolicyError):
                count_alignment(kept, ["bank"], table, 1)
                aligned += 1
            assert alignments_today(kept, "bank", table) == 1
    return got, aligned


def both(made, folder):
    one, other = made(folder)
    return {"credit": declared(one), "loans": declared(other)}


@pytest.mark.parametrize("made", PAIRS.values(), ids=PAIRS)
def test_a_table_has_one_budget_under_whatever_place(made, tmp_path):
    tables = both(made, tmp_path)
    assert told(tmp_path, tables) == (EACH, 1)
    # The other way round, and by whoever is declared when another is no more.
    (first, one), (second, other) = tables.items()
    assert told(tmp_path, {second: other, first: one}, store="turned") == (EACH, 1)


@pytest.mark.parametrize("made", PAIRS.values(), ids=PAIRS)
def test_what_was_one_table_stays_one_when_its_first_place_is_declared_no_more(made, tmp_path):
    tables = both(made, tmp_path)
    with Store(tmp_path / "store", "party telco") as store:
        owned_table(store.transaction, tables, "credit")
    for name, spec in tables.items():
        told_now = told(tmp_path, {name: spec})
        assert told_now == ((EACH, 1) if name == "credit" else (0.0, 0))


def test_a_file_that_replaces_a_table_is_the_same_table_and_another_file_is_not(tmp_path):
    one, other = hard_link(tmp_path)
    with Store(tmp_path / "store", "party telco") as store:
        tables = {"credit": declared(one)}
        first = owned_table(store.transaction, tables, "credit")
        (tmp_path / "new.csv").write_text("id,x\n1,3\n")
        (tmp_path / "new.csv").replace(one)
        assert owned_table(store.transaction, tables, "credit") == first
    other.write_text("id,x\n1,4\n")
    (tmp_path / "c.csv").write_text("id,x\n1,4\n")
    apart = {"credit": declared(one), "cars": declared(tmp_path / "c.csv")}
    assert told(tmp_path, apart, store="another") == (2 * EACH, 2)


@pytest.mark.parametrize("made", PAIRS.values(), ids=PAIRS)
def test_a_table_has_a_budget_for_each_place_where_only_declarations_are_compared(
    made, tmp_path, monkeypatch
):
    monkeypatch.setattr(sources, "location_of", lambda address: address)
    monkeypatch.setattr(sources, "_resolved_path", str)
    for name in ("identity_marks", "folder_identities"):
        monkeypatch.setattr(SourceSpec, name, lambda _: frozenset())
    assert told(tmp_path, both(made, tmp_path)) == (2 * EACH, 2)
