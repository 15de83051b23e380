"""The account: what jobs have told of a data set adds up, whatever became of the jobs."""

import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
import yaml
from click.testing import CliRunner

from fedboost.cli.groups import party_group
from fedboost.flow import Charge, Spent
from fedboost.ground.errors import StoreError
from fedboost.runtime.policy import account as accounts
from fedboost.runtime.policy.account import Account, sums_for_guests
from fedboost.runtime.policy.same_tables import Owned
from fedboost.runtime.store.forgetting import Forgetting
from fedboost.runtime.store.store import JobState, Store
from tests.support.accounts import SUMS, sums, tell

INF = float("inf")
NOISE = replace(SUMS, protocol="federboost-vertical", planned=0.0, epsilon=12.0)


class Clock:
    """A minute passes at each look."""

    def __init__(self):
        self.now = datetime(2026, 1, 31, tzinfo=UTC)

    def __call__(self):
        self.now += timedelta(minutes=1)
        return self.now


@pytest.fixture
def store(tmp_path):
    with Store(tmp_path / "telco", "party telco") as opened:
        yield opened


@pytest.fixture
def account(store):
    with closing(Account(store.database, clock=Clock())) as opened:
        yield opened


def begin(store, job="j1", *, state=JobState.RUNNING):
    store.add_job(job, "credit", b"manifest", JobState.RUNNING)
    if state is not JobState.RUNNING:
        store.move_to_state(job, state)


def test_a_job_that_goes_on_counts_with_what_is_expected_of_it_or_what_it_has_told(store, account):
    begin(store)
    account.expect(SUMS)
    assert account.entry("j1").sums == 0.08
    tell(account, SUMS, sums(0.03))
    assert (account.entry("j1").counted, account.entry("j1").sums) == (0.03, 0.08)
    tell(account, SUMS, sums(0.07))
    assert account.entry("j1").sums == pytest.approx(0.1)
    assert account.entry("j1").state == "running"


@pytest.mark.parametrize("state", [JobState.FAILED, JobState.CANCELLED, JobState.FINISHED])
def test_a_job_that_ended_counts_with_what_it_told(store, account, state):
    begin(store)
    account.expect(replace(SUMS, epsilon=3.0))
    assert account.entry("j1").noise == 3.0
    tell(account, SUMS, sums(0.03), Charge(Spent.EPSILON, 1.0, "income"))
    store.move_to_state("j1", state)
    assert (account.entry("j1").sums, account.entry("j1").noise) == (0.03, 1.0)


def test_an_attempt_that_is_made_again_is_the_same_row_and_adds_to_what_was_told(store, account):
    begin(store)
    account.expect(SUMS)
    tell(account, SUMS, sums(0.03))
    store.move_to_state("j1", JobState.FAILED)
    store.move_to_state("j1", JobState.RUNNING)
    account.expect(replace(SUMS, planned=0.05))
    tell(account, SUMS, sums(0.03))
    (entry,) = account.entries()
    assert (entry.counted, entry.planned) == (0.06, 0.05)


def test_what_jobs_told_of_one_column_adds_up_and_of_two_does_not(store, account):
    for job, column in {"j1": "income", "j2": "income", "j3": "age"}.items():
        begin(store, job, state=JobState.FAILED)
        tell(account, replace(SUMS, job=job), sums(0.02, column), sums(0.01, "other"))
    assert sums_for_guests(account.entries()) == pytest.approx(0.04)


@pytest.mark.parametrize("same", [{"source": "elsewhere"}, {"dataset": "renamed"}])
def test_a_table_is_the_same_by_its_name_or_by_its_source(store, account, same):
    begin(store, state=JobState.FAILED)
    tell(account, SUMS, sums(0.03), Charge(Spent.EPSILON, 1.0, "income"))
    table = Owned(**{"dataset": "credit", "source": "file", **same})
    (entry,) = account.others(table, besides="")
    assert entry.counted == 0.03
    sql = account._connection
    told = accounts.released_amounts(sql, table, lambda _: True)
    assert told == {Spent.SUMS: 0.03, Spent.EPSILON: 1.0}
    assert accounts.released_amounts(sql, table, lambda _: False) == told | {Spent.SUMS: 0.0}
    assert account.others(Owned("renamed", "elsewhere"), besides="") == []
    none = accounts.released_amounts(sql, Owned("renamed", "elsewhere"), lambda _: True)
    assert none == {Spent.SUMS: 0.0}


def test_rows_of_an_earlier_version_have_a_name_alone(store, account):
    begin(store, state=JobState.FAILED)
    tell(account, replace(SUMS, source=""), sums(0.03))
    assert len(account.others(Owned("credit", "file"), besides="")) == 1
    assert account.others(Owned("other", ""), besides="") == []


@pytest.mark.parametrize("change", ["UPDATE charges SET amount = 0.01", "DELETE FROM charges"])
def test_nothing_lowers_what_was_told(store, account, change):
    begin(store)
    tell(account, SUMS, sums(0.03))
    with pytest.raises(sqlite3.IntegrityError, match="only add up"):
        account._connection.execute(change)


def test_values_without_noise_are_kept_as_such(store, account):
    begin(store)
    tell(account, NOISE, Charge(Spent.EPSILON, INF, "income"))
    told = accounts.released_amounts(account._connection, Owned("credit", "file"), lambda _: True)
    assert told[Spent.EPSILON] == INF


def test_rows_of_a_job_are_predicted_once_however_often_they_are_asked_for(store, account):
    begin(store)
    sql = account._connection
    assert accounts.count_new_rows(sql, "j1", "bank", 40) == 40
    tell(account, SUMS, Charge(Spent.ROWS, 40))
    assert accounts.count_new_rows(sql, "j1", "bank", 40) == 0
    assert accounts.count_new_rows(sql, "j1", "bank", 45) == 5
    assert accounts.count_new_rows(sql, "j1", "shop", 40) == 40
    assert accounts.count_new_rows(sql, "j2", "bank", 40) == 40


def test_a_row_outlives_its_job(store, account):
    begin(store)
    account.expect(SUMS)
    tell(account, SUMS, sums(0.05))
    store.move_to_state("j1", JobState.FINISHED)
    Forgetting(store).forget("j1")
    assert (account.entry("j1").sums, account.entry("j1").state) == (0.05, "")


def test_rows_survive_a_restart_in_the_order_in_which_jobs_began(tmp_path):
    with Store(tmp_path, "party telco") as store:
        for job in ("j2", "j1"):
            begin(store, job)
        with closing(Account(store.database, clock=Clock())) as account:
            for job in ("j2", "j1"):
                account.expect(replace(SUMS, job=job))
            before = account.entries()
    with closing(Account(tmp_path / "store.sqlite", read_only=True)) as again:
        assert again.entries() == before
        assert [entry.job for entry in before] == ["j2", "j1"]


def test_a_store_that_is_not_there_or_has_told_nothing(tmp_path):
    with pytest.raises(StoreError, match="no store yet"):
        Account(tmp_path / "store.sqlite", read_only=True)
    with (
        Store(tmp_path, "party telco") as store,
        closing(Account(store.database, read_only=True)) as account,
    ):
        assert account.entries() == []
        store._connection.execute("DROP TABLE charges")  # as an earlier version left it
        assert account.entries() == []


# fedboost party account


def shown(tmp_path, *flags, **policy):
    raw = {
        "name": "telco",
        "listen": "127.0.0.1:7102",
        "insecure_loopback": True,
        "coordinator": {"name": "coord", "address": "127.0.0.1:7100"},
        "store": str(tmp_path / "telco"),
        "peers": {"shop": "127.0.0.1:7103"},
        "policy": policy,
    }
    (tmp_path / "telco.yaml").write_text(yaml.safe_dump(raw))
    config = ["account", "--config", str(tmp_path / "telco.yaml")]
    done = CliRunner().invoke(party_group, [*config, *flags], catch_exceptions=False)
    assert done.exit_code == 0
    return done.output


def test_the_owner_sees_what_each_guest_has_got_of_which_limit(tmp_path, store, account):
    for job, guest in {"j1": "bank", "j2": "shop"}.items():
        begin(store, job)
        account.expect(replace(SUMS, job=job, guest=guest))
    begin(store, "j3")
    account.expect(replace(NOISE, job="j3"))
    said = shown(tmp_path, epsilon_row_max=40.0)
    assert "credit: 0.16 released sums per bin and row to bank, shop, of 0.15" in said
    assert "credit: epsilon per row 12, of 40" in said
    said = shown(tmp_path, disclosure_apart=["shop"], peers=["shop"])
    assert "credit: 0.08 released sums per bin and row to bank, of 0.15" in said
    assert "credit: 0.08 released sums per bin and row to shop, of 0.15" in said


def test_programs_read_the_same_with_null_for_no_limit(tmp_path, store, account):
    begin(store)
    account.expect(replace(SUMS, epsilon=INF))
    found = json.loads(shown(tmp_path, "--json", disclosure_max=None))
    assert [(one["job"], one["planned"], one["epsilon"]) for one in found["jobs"]] == [
        ("j1", 0.08, None)
    ]
    sums, noise = found["spent"]
    assert (sums["sums"], sums["warn"], sums["max"]) == (0.08, 0.06, None)
    assert (noise["epsilon_row"], noise["max"]) == (None, None)


def test_an_account_without_rows_says_so(tmp_path, store, account):
    assert "no job has released anything" in shown(tmp_path)
