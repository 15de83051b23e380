"""The account: what jobs have told of a data set adds up, whatever became of the jobs."""

import json
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
import yaml
from click.testing import CliRunner

from fedboost.cli.groups import party_group
from fedboost.errors import StoreError
from fedboost.runtime.account import Account
from fedboost.runtime.forgetting import Forgetting
from fedboost.runtime.store import JobState, Store
from tests.accounts import SUMS

INF = float("inf")
NOISE = replace(SUMS, protocol="federboost-vertical", planned=0.0, round=0.0, epsilon=12.0)


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
        store.move(job, state)


def test_a_job_that_goes_on_counts_with_all_that_it_may_tell(store, account):
    begin(store)
    account.open(SUMS)
    assert account.sums("credit", "bank") == 0.08
    account.tell("j1")
    account.count("j1", 0.03)
    assert account.sums("credit", "bank") == 0.08
    assert account.entry("j1").state == "running"


@pytest.mark.parametrize("state", [JobState.FAILED, JobState.CANCELLED])
def test_a_job_that_ended_early_counts_with_what_it_kept_and_one_round_more(store, account, state):
    begin(store)
    account.open(SUMS)
    account.tell("j1")
    account.count("j1", 0.03)
    store.move("j1", state)
    assert account.sums("credit", "bank") == pytest.approx(0.034)
    account.count("j1", 0.079)
    assert account.sums("credit", "bank") == 0.08  # never more than it could tell


@pytest.mark.parametrize("state", [JobState.FAILED, JobState.CANCELLED])
def test_a_job_that_ended_before_a_message_left_counts_with_nothing(store, account, state):
    begin(store)
    account.open(replace(SUMS, epsilon=3.0))
    assert account.noise("credit") == 3.0
    store.move("j1", state)
    assert account.sums("credit", "bank") == account.noise("credit") == 0.0


def test_a_finished_job_counts_with_what_it_has_told(store, account):
    begin(store)
    account.open(SUMS)
    account.tell("j1")
    account.count("j1", 0.05, is_all=True)
    store.move("j1", JobState.FINISHED)
    assert account.sums("credit", "bank") == 0.05


def test_an_attempt_that_is_made_again_is_the_same_row_and_keeps_what_was_told(store, account):
    begin(store)
    account.open(SUMS)
    account.tell("j1")
    account.count("j1", 0.03)
    store.move("j1", JobState.FAILED)
    store.move("j1", JobState.RUNNING)
    account.open(SUMS)
    (entry,) = account.entries()
    assert (entry.told, entry.counted, entry.planned) == (1, 0.03, 0.08)
    assert account.sums("credit", "bank", besides="j1") == 0.0


def test_sums_add_up_for_each_guest_alone_and_noise_for_all_together(store, account):
    guests = {"j1": "bank", "j2": "bank", "j3": "shop"}
    for job, guest in guests.items():
        begin(store, job)
        account.open(replace(SUMS, job=job, guest=guest, epsilon=5.0))
    begin(store, "j4")
    account.open(replace(SUMS, job="j4", dataset="other", epsilon=1.0))
    assert account.sums("credit", "bank") == 0.16
    assert account.sums("credit", "bank", besides="j2") == 0.08
    assert account.sums("credit", "shop") == 0.08
    assert account.noise("credit") == 15.0
    assert account.noise("other") == 1.0


def test_values_without_noise_are_kept_as_such(store, account):
    begin(store)
    account.open(replace(NOISE, epsilon=INF))
    assert account.noise("credit") == INF


def test_a_row_outlives_its_job(store, account):
    begin(store)
    account.open(SUMS)
    account.tell("j1")
    account.count("j1", 0.05, is_all=True)
    store.move("j1", JobState.FINISHED)
    Forgetting(store).forget("j1")
    assert account.sums("credit", "bank") == 0.05
    assert account.entry("j1").state == ""


def test_rows_survive_a_restart_in_the_order_in_which_jobs_began(tmp_path):
    with Store(tmp_path, "party telco") as store:
        for job in ("j2", "j1"):
            begin(store, job)
        with closing(Account(store.database, clock=Clock())) as account:
            for job in ("j2", "j1"):
                account.open(replace(SUMS, job=job))
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
        store._connection.execute("DROP TABLE account")  # as an earlier version left it
        assert account.entries() == []


# fedboost party account


def shown(tmp_path, *flags, **policy):
    raw = {
        "name": "telco",
        "listen": "127.0.0.1:7102",
        "insecure_loopback": True,
        "coordinator": {"name": "coord", "address": "127.0.0.1:7100"},
        "store": str(tmp_path / "telco"),
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
        account.open(replace(SUMS, job=job, guest=guest))
    begin(store, "j3")
    account.open(replace(NOISE, job="j3"))
    said = shown(tmp_path, epsilon_row_max=40.0)
    assert "credit: bank has got 0.08 released sums per bin and row, of 0.15" in said
    assert "credit: shop has got 0.08 released sums per bin and row, of 0.15" in said
    assert "credit: epsilon per row 12, of 40" in said


def test_programs_read_the_same_with_null_for_no_limit(tmp_path, store, account):
    begin(store)
    account.open(replace(SUMS, epsilon=INF))
    found = json.loads(shown(tmp_path, "--json", disclosure_max=None))
    assert [(one["job"], one["planned"], one["epsilon"]) for one in found["jobs"]] == [
        ("j1", 0.08, None)
    ]
    sums, noise = found["spent"]
    assert (sums["sums"], sums["warn"], sums["max"]) == (0.08, 0.06, None)
    assert (noise["epsilon_row"], noise["max"]) == (None, None)


def test_an_account_without_rows_says_so(tmp_path, store, account):
    assert "no job has told anything" in shown(tmp_path)
