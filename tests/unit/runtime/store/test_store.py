"""The store: what was written is there after any death, and nothing else is accepted."""

import hashlib
import math
import os
import resource
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest

from fedboost.ground.disk import write_file
from fedboost.ground.errors import JobError, ProtocolError, StoreError
from fedboost.runtime.policy.account import Account, count_peer_ids
from fedboost.runtime.policy.approval import Decisions
from fedboost.runtime.policy.differences import count_alignment
from fedboost.runtime.policy.same_tables import Owned
from fedboost.runtime.store.checkpoints import Checkpoints
from fedboost.runtime.store.forgetting import Forgetting
from fedboost.runtime.store.schema import (
    _ACCOUNT_3,
    _JOBS_4,
    COUNTERS,
    HASHED,
    VERSIONS,
    _hash_statements,
    with_row_hash,
)
from fedboost.runtime.store.store import FINAL, JobState, Store
from tests.conftest import ROOT
from tests.support.accounts import SUMS, predict, sums, tell

START = 1_700_000_000.0  # 2023-11-14 22:13:20 UTC
ARRAYS = {"gradient": np.arange(6.0).reshape(2, 3), "file": np.array(["a", "b"])}


class Clock:
    """A clock that stands until it is set."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def store(tmp_path, clock):
    with Store(tmp_path / "bank", "party bank", clock) as opened:
        yield opened


def begin(store, id_="j1", state=JobState.RUNNING):
    return store.add_job(id_, "credit", b"\0manifest", state)


def test_a_job_is_what_was_added(store):
    job = begin(store, state=JobState.WAITING)
    assert (job.id, job.name, job.manifest) == ("j1", "credit", b"\0manifest")
    assert (job.state, job.attempt, job.result) == (JobState.WAITING, 0, None)
    assert job.created == job.since == job.updated == START
    assert store.jobs() == [job]
    assert "manifest" not in repr(job)


def test_everything_survives_a_restart(tmp_path):
    with Store(tmp_path, "party bank") as first:
        begin(first, state=JobState.WAITING)
        first.move_to_state("j1", JobState.RUNNING)
        first.next_attempt("j1")
        first.add_event("j1", {"step": "encrypt"})
        first.move_to_state("j1", JobState.RUNNING, result={"auc": 0.5})
        predict(first, "telco", 5)
        secret = first.vault.seed("j1")
        job, events = first.job("j1"), first.events("j1")
    with Store(tmp_path, "party bank") as second:
        assert second.job("j1") == job
        assert (job.attempt, job.result) == (1, {"auc": 0.5})
        assert second.events("j1") == events
        assert second.vault.seed("j1") == secret
        assert predict(second, "telco", 6) == 11


@pytest.mark.parametrize("start", sorted(FINAL))
@pytest.mark.parametrize("end", JobState)
def test_a_job_that_is_over_stays_what_it_is(store, start, end):
    begin(store)
    store.move_to_state("j1", start)
    with pytest.raises(ProtocolError, match=f"is {start} already"):
        store.move_to_state("j1", end)
    assert store.job("j1").state == start


def test_a_user_sees_seven_states():
    assert list(dict.fromkeys(state.shown.value for state in JobState)) == [
        "waiting for approval", "queued", "paused", "running", "failed", "cancelled", "finished",
    ]  # fmt: skip
    assert [state for state in JobState if state.shown is not state] == [JobState.AGREED]
    assert {JobState.CANCELLED, JobState.FINISHED} == FINAL


def test_jobs_are_counted_by_the_state_that_people_read(store):
    for id_, state in (("j1", JobState.AGREED), ("j2", JobState.PAUSED), ("j3", JobState.RUNNING)):
        begin(store, id_, state)
    assert store.counts() == {JobState.PAUSED: 2, JobState.RUNNING: 1}


def test_a_pause_says_for_whom_and_since_when(store, clock):
    begin(store)
    clock.now += 10
    store.move_to_state("j1", JobState.PAUSED, waiting_for="telco", reason="telco is silent")
    clock.now += 10
    job = store.move_to_state("j1", JobState.PAUSED, waiting_for="shop")
    assert (job.waiting_for, job.since, job.updated) == ("shop", START + 10, START + 20)
    job = store.move_to_state("j1", JobState.RUNNING)
    assert (job.waiting_for, job.reason, job.since) == ("", "", START + 20)


def test_jobs_are_listed_by_state_and_age(store, clock):
    for id_ in ("b", "a", "c"):
        begin(store, id_)
        clock.now += 1
    store.move_to_state("a", JobState.FAILED)
    assert [job.id for job in store.jobs()] == ["b", "a", "c"]
    assert [job.id for job in store.jobs(JobState.RUNNING)] == ["b", "c"]


def test_what_makes_no_sense_is_refused(store):
    begin(store)
    with pytest.raises(ProtocolError, match="already"):
        begin(store)
    with pytest.raises(ProtocolError, match="cannot begin"):
        begin(store, "j2", JobState.FINISHED)
    with pytest.raises(JobError, match="no such job"):
        store.job("nobody")
    assert not store.events("nobody")
    with pytest.raises(JobError):
        store.add_event("nobody", {})
    store.set_attempt("j1", 3)
    with pytest.raises(ProtocolError, match="is over"):
        store.set_attempt("j1", 2)
    assert store.next_attempt("j1") == 4


@pytest.mark.parametrize(
    "id_", ["", "..", "../x", "a/b", "/etc", ".x", "a\0", "a" * 65, "ä", "a\n"]
)
def test_a_jobs_id_cannot_lead_out_of_the_store(store, id_):
    for act in (store.job_folder, store.vault.seed):
        with pytest.raises(ProtocolError):
            act(id_)
    with pytest.raises(ProtocolError):
        begin(store, id_)


def test_a_journal_is_numbered_per_job(store):
    begin(store, "a")
    begin(store, "b")
    assert [store.add_event("a", {"k": k}) for k in range(3)] == [1, 2, 3]
    assert store.add_event("b", {}) == 1
    assert [(event.n, event.event["k"]) for event in store.events("a", after=1)] == [(2, 1), (3, 2)]


def test_the_rounds_of_a_journal_are_read_without_the_rest(store):
    begin(store, "j1")
    for event in ({"step": {"step": "x"}}, {"round": {"stage": "a"}}, {"round": {"stage": "b"}}):
        store.add_event("j1", event)
    assert store.rounds("j1") == [{"stage": "a"}, {"stage": "b"}]


def test_the_newest_jobs_of_some_states_are_read_alone(store):
    for name in "abcd":
        begin(store, name)
    store.move_to_state("b", JobState.FINISHED)
    store.move_to_state("d", JobState.FINISHED)
    assert [job.id for job in store.newest_jobs([JobState.FINISHED], 1)] == ["d"]
    assert [job.id for job in store.newest_jobs([JobState.FINISHED])] == ["d", "b"]
    assert {job.id for job in store.newest_jobs([*JobState])} == set("abcd")


def test_threads_lose_no_event(store):
    begin(store)

    def write() -> None:
        for _ in range(20):
            store.add_event("j1", {})
            store.next_attempt("j1")

    threads = [threading.Thread(target=write) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [event.n for event in store.events("j1")] == list(range(1, 81))
    assert store.job("j1").attempt == 80


def test_predictions_are_counted_per_peer_and_day(store, clock):
    assert predict(store, "telco", 6) == 6
    assert predict(store, "telco", 4) == 10
    assert predict(store, "shop", 10) == 10
    clock.now += 86_400
    assert predict(store, "telco", 10) == 10


# --- the folder


def test_the_store_is_closed_to_others(store):
    begin(store)
    store.vault.seed("j1")
    Checkpoints().save(store.job_folder("j1"), (1,), {}, ARRAYS)
    for path in [store.folder, *store.folder.rglob("*")]:
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0 or path.name.startswith(
            "store.sqlite-"
        )
        if path.is_dir():
            assert stat.S_IMODE(path.stat().st_mode) == 0o700


def test_an_open_folder_is_closed(tmp_path):
    tmp_path.chmod(0o755)
    Store(tmp_path, "party bank").close()
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o700


def test_two_daemons_cannot_share_a_store(store):
    with pytest.raises(StoreError, match=f"process {os.getpid()}"):
        Store(store.folder, "party bank")
    begin(store)  # the first one goes on


def test_the_lock_is_seen_by_other_processes_and_freed_by_death(tmp_path):
    code = (
        "import sys, time\nfrom pathlib import Path\n"
        "from fedboost.runtime.store.store import Store\n"
        "Store(Path(sys.argv[1]), 'party bank')\nprint('held', flush=True)\ntime.sleep(60)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, cwd=ROOT
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        with pytest.raises(StoreError, match=f"process {other.pid}"):
            Store(tmp_path, "party bank")
        other.send_signal(signal.SIGKILL)
        other.wait()
    Store(tmp_path, "party bank").close()


def test_a_forked_child_does_not_keep_the_lock(tmp_path):
    first = Store(tmp_path, "party bank")
    ready, go = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(go)
        os.read(ready, 1)
        os._exit(0)
    os.close(ready)
    first.close()
    Store(tmp_path, "party bank").close()
    os.close(go)
    os.waitpid(child, 0)


def test_a_failed_opening_frees_the_lock(tmp_path):
    Store(tmp_path, "party bank").close()
    with pytest.raises(StoreError, match="belongs to party bank, not to party telco"):
        Store(tmp_path, "party telco")
    Store(tmp_path, "party bank").close()


def test_a_newer_store_is_refused(tmp_path):
    Store(tmp_path, "party bank").close()
    with sqlite3.connect(tmp_path / "store.sqlite") as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(StoreError, match="has version 99"):
        Store(tmp_path, "party bank")


@pytest.mark.parametrize(
    "content", [b"not a database" * 100, b"SQLite format 3\0" + b"\xff" * 5000]
)
def test_a_damaged_store_is_a_typed_error(tmp_path, content):
    (tmp_path / "store.sqlite").write_bytes(content)
    with pytest.raises(StoreError):
        Store(tmp_path, "party bank")


def test_a_store_that_is_a_file_is_a_typed_error(tmp_path):
    (tmp_path / "bank").write_text("")
    with pytest.raises(StoreError, match="cannot read or write"):
        Store(tmp_path / "bank", "party bank")


def test_no_space_in_the_database_is_a_typed_error_and_loses_nothing(store):
    begin(store)
    pages = store._connection.execute("PRAGMA page_count").fetchone()[0]
    store._connection.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(StoreError, match="full") as caught:
        store.add_event("j1", {"text": "x" * 100_000})
    assert "space" in caught.value.todo
    store._connection.execute("PRAGMA max_page_count = 100000")
    assert store.events("j1") == []
    assert store.add_event("j1", {}) == 1


def test_no_space_for_a_file_keeps_the_old_one(tmp_path):
    path = tmp_path / "state"
    write_file(path, b"old", 0o600)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    former = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        with pytest.raises(StoreError, match="cannot read or write"):
            write_file(path, b"x" * 5000, 0o600)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, former)
    assert path.read_bytes() == b"old"
    assert [found.name for found in tmp_path.iterdir()] == ["state"]


def test_an_error_names_the_file_and_keeps_its_folder_from_peers(tmp_path):
    with pytest.raises(StoreError) as caught:
        write_file(tmp_path / "absent" / "state", b"", 0o600)
    assert caught.value.where == {"file": "state"}
    assert str(tmp_path) in caught.value.private
    assert str(tmp_path) not in "".join(caught.value.lines())


def test_deleting_a_job_leaves_nothing_of_it(store):
    begin(store)
    store.add_event("j1", {})
    Checkpoints().save(store.job_folder("j1"), (1,), {}, ARRAYS)
    forgetting = Forgetting(store)
    with pytest.raises(JobError, match="running"):
        forgetting.forget("j1")
    store.move_to_state("j1", JobState.FAILED)
    forgetting.forget("j1")
    assert not store.job_folder("j1").exists()
    assert store.jobs() == []
    begin(store)
    assert store.events("j1") == []


@pytest.mark.parametrize("column", ["state", "result"])
def test_a_value_that_nobody_wrote_is_a_damaged_store(tmp_path, column):
    with Store(tmp_path / "s", "party bank") as store:
        store.add_job("job-1", "toy", b"manifest", JobState.RUNNING)
        store._connection.execute(f"UPDATE jobs SET {column} = '}}runnin'")
    with pytest.raises(StoreError, match="the store is damaged") as refused:
        Store(tmp_path / "s", "party bank")
    assert "runnin" not in "".join(refused.value.lines())


CHANGES = {
    "name": ("jobs", "name = 'toz'"),
    "outline": ("jobs", "outline = x'00'"),
    "manifest": ("manifests", "text = x'00'"),
    "state": ("jobs", "state = 'failed'"),
    "attempt": ("jobs", "attempt = 3"),
    "created": ("jobs", "created = created + 1"),
    "a metric": ("events", "json = '{\"auc\": 0.85}'"),
    "a time": ("events", "at = at + 1"),
    "rows that were predicted": ("predictions", "rows = 0"),
    "who asked for them": ("predictions", "peer = 'telcp'"),
    "an alignment's day": ("alignments", "day = '2026-01-32'"),
    "what was told": ("charges", "amount = 1.0"),
    "who was told it": ("charges", "peer = 'bang'"),
    "what is expected": ("account", "planned = 0.0"),
    "ids that a peer has brought": ("peer_ids", "ids = 0"),
}


@pytest.mark.parametrize(("table", "change"), CHANGES.values(), ids=CHANGES)
def test_a_row_in_which_something_else_stands_than_was_written_is_damaged(tmp_path, table, change):
    with Store(tmp_path / "s", "party bank") as store:
        begin(store)
        store.add_event("j1", {"auc": 0.75})
        predict(store, "telco", 40)
        count_alignment(store, ("telco",), Owned("credit", ""), 2)
        with store.transaction() as sql:
            count_peer_ids(sql, "telco", "credit", store.today(), 1000)
        with closing(Account(store.database)) as account:
            account.expect(replace(SUMS, epsilon=math.inf))
            tell(account, SUMS, sums(0.03))
    with closing(sqlite3.connect(tmp_path / "s" / "store.sqlite")) as connection, connection:
        connection.execute(f"DROP TRIGGER {table}_update")
        connection.execute(f"UPDATE {table} SET {change}")

    def read():
        with Store(tmp_path / "s", "party bank") as store:
            return store.job("j1").manifest, store.events("j1")

    with pytest.raises(StoreError, match="the store is damaged"):
        read()


def test_a_journal_that_lacks_an_entry_is_damaged(store):
    begin(store)
    store.add_event("j1", *({"n": n} for n in range(4)))
    store._connection.execute("DELETE FROM events WHERE n = 2")
    with pytest.raises(StoreError, match="the store is damaged"):
        store.events("j1")
    assert [event.n for event in store.events("j1", after=2)] == [3, 4]


ACCOUNT_3 = """CREATE TABLE account (
    job TEXT PRIMARY KEY, at TEXT NOT NULL, dataset TEXT NOT NULL, guest TEXT NOT NULL,
    protocol TEXT NOT NULL, rows INTEGER NOT NULL, planned REAL NOT NULL,
    round REAL NOT NULL, counted REAL NOT NULL, epsilon REAL NOT NULL, told INTEGER NOT NULL
) STRICT"""
OLD = (
    ("j1", "2026", "credit", "bank", "secureboost", 10, 0.08, 0.004, 0.03, 0.0, 1),  # half way
    ("j2", "2026", "credit", "bank", "secureboost", 10, 0.08, 0.0, 0.08, 0.0, 1),  # finished
    ("j3", "2026", "credit", "bank", "secureboost", 10, 0.08, 0.004, 0.0, 4.0, 0),  # told nothing
    ("j4", "2026", "credit", "shop", "federboost-vertical", 10, 0.0, 0.0, 0.0, 4.0, 1),
)


def with_manifests(connection):
    """Puts the texts of jobs back into the rows of jobs, as before version 11, without a hash."""
    for when in ("insert", "update"):
        connection.execute(f"DROP TRIGGER jobs_{when}")
    kept = connection.execute(
        "SELECT id, name, text, state, reason, waiting_for, since, created, updated, attempt,"
        " result FROM jobs JOIN manifests ON manifests.job = jobs.id"
    ).fetchall()
    connection.execute("PRAGMA foreign_keys = OFF")
    connection.execute("DROP TABLE manifests")
    connection.execute("DROP TABLE jobs")
    [made] = [text for text in VERSIONS[1] if text.startswith("CREATE TABLE jobs")]
    connection.execute(made.replace("approved_by TEXT NOT NULL DEFAULT '', ", ""))
    connection.executemany(f"INSERT INTO jobs VALUES ({'?, ' * 10}?)", kept)


@pytest.mark.parametrize("owner", ["party bank", "coordinator coord"])
def test_what_a_party_had_agreed_to_was_paused_in_version_7(tmp_path, owner):
    with Store(tmp_path, owner) as store:
        for id_ in ("agreed", "begun", "gone"):
            begin(store, id_, JobState.PAUSED)
        store.set_attempt("begun", 1)
        store.move_to_state("gone", JobState.FAILED)
    with closing(sqlite3.connect(tmp_path / "store.sqlite")) as connection, connection:
        with_row_hash(connection)
        connection.execute("DROP TABLE tags")
        connection.execute("DROP TABLE value_groups")
        connection.execute("DROP TABLE aliases")
        with_manifests(connection)
        for statement in _hash_statements("jobs", _JOBS_4):
            connection.execute(statement)
        connection.execute("DROP TABLE peer_ids")
        connection.execute("DROP TABLE noisy_values")
        connection.execute("DROP TABLE atoms")
        connection.execute("PRAGMA user_version = 7")
    with Store(tmp_path, owner) as store:
        states = {job.id: job.state for job in store.jobs()}
    never_begun = JobState.AGREED if owner == "party bank" else JobState.PAUSED
    assert states == {
        "agreed": never_begun, "begun": JobState.PAUSED, "gone": JobState.FAILED,
    }  # fmt: skip


NEWER = {
    "charges",
    "decisions",
    "atoms",
    "summed",
    "tags",
    "aliases",
    "manifests",
    "value_groups",
    "peer_ids",
    "noisy_values",
}  # than version 3


@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_store_of_an_earlier_version_is_read_and_its_rows_get_their_hashes(tmp_path, version):
    folder = tmp_path / "s"
    with Store(folder, "party bank", clock=Clock()) as store:
        begin(store)
        store.add_event("j1", {"auc": 0.75}, {"auc": 0.5})
        predict(store, "telco", 40)
        known = store.job("j1"), store.events("j1")
    with closing(sqlite3.connect(folder / "store.sqlite")) as connection, connection:
        with_row_hash(connection)
        connection.execute("DROP TABLE decisions")
        connection.execute("DROP TABLE charges")
        connection.execute("DROP TABLE atoms")
        connection.execute("DROP TABLE summed")
        connection.execute("DROP TABLE tags")
        connection.execute("DROP TABLE value_groups")
        connection.execute("DROP TABLE aliases")
        connection.execute("DROP TABLE peer_ids")
        connection.execute("DROP TABLE noisy_values")
        connection.execute("DROP TABLE account")
        connection.execute(ACCOUNT_3)
        connection.executemany(f"INSERT INTO account VALUES ({'?, ' * 10}?)", OLD)
        for statement in _hash_statements("account", _ACCOUNT_3):
            connection.execute(statement)
        with_manifests(connection)
        for statement in _hash_statements("jobs", _JOBS_4):
            connection.execute(statement)
        for table in HASHED.keys() - NEWER:
            if version == 1 or (version == 2 and table in COUNTERS):
                for when in ("insert", "update"):
                    connection.execute(f"DROP TRIGGER {table}_{when}")
                connection.execute(f"ALTER TABLE {table} DROP COLUMN hash")
        if version < 3:
            connection.execute("DROP TABLE alignments")  # nobody has asked for an alignment yet
        connection.execute("ALTER TABLE jobs ADD COLUMN approved_by TEXT NOT NULL DEFAULT 'ana'")
        connection.execute(f"PRAGMA user_version = {version}")
    with pytest.raises(StoreError, match="belongs to party bank"):
        Store(folder, "party telco")
    for _ in range(2):
        with Store(folder, "party bank", clock=Clock()) as store:
            assert (store.job("j1"), store.events("j1")) == known
            assert predict(store, "telco", 0) == 40
            count_alignment(store, ("telco",), Owned("credit", ""), 2)
            decided = Decisions(store).last_decision(
                "j1", hashlib.sha256(store.job("j1").manifest).digest()
            )
            assert decided is not None
            assert (decided.verdict, decided.user) == ("approved", "ana")
            with closing(Account(store.database)) as account:
                told = {entry.job: (entry.counted, entry.noise) for entry in account.entries()}
            assert told == {"j1": (0.034, 0.0), "j2": (0.08, 0.0), "j3": (0, 0), "j4": (0, 4.0)}
    with Store(folder, "party bank") as store:
        store.move_to_state("j1", JobState.FAILED)
        assert store.job("j1").state is JobState.FAILED


def left_of(store, id_):
    """Every file and folder that names the job, but for the database."""
    return sorted(str(p.relative_to(store.folder)) for p in store.folder.rglob(f"*{id_}*"))


def names_in(store, id_):
    """What lies in the job's own folder."""
    return sorted(path.name for path in store.job_folder(id_).iterdir())


def fill(store, id_):
    """What a job may have left when it ends."""
    store.vault.seed(id_)
    Checkpoints().save(store.job_folder(id_) / "secureboost", (1,), {}, ARRAYS)
    for folder in (store.folder / "models" / id_, store.folder / "disclosures" / id_):
        folder.mkdir(parents=True)
        (folder / "model.json").write_text("{}")
    (store.folder / "predictions" / f"{id_}.parquet").write_bytes(b"x")
    (store.folder / "reports" / f"{id_}.html").write_text("x")


def test_what_is_discarded_leaves_its_neighbours(store):
    for id_ in ("job-1", "job-12"):
        begin(store, id_)
        fill(store, id_)
    before = left_of(store, "job-12")
    store.discard("job-1")
    assert left_of(store, "job-1") == before == left_of(store, "job-12")
    store.discard("job-1")


def test_a_finished_job_keeps_its_result_and_what_an_audit_reads(store):
    begin(store)
    store.clear("j1")
    fill(store, "j1")
    (store.job_folder("j1") / "result.json").write_text("{}")
    (store.job_folder("j1") / "transcript").mkdir()
    around = left_of(store, "j1")
    store.clear("j1")
    assert names_in(store, "j1") == ["result.json", "transcript"]
    assert left_of(store, "j1") == around


def test_a_store_that_opens_ends_what_a_crash_has_interrupted(tmp_path, clock):
    states = (JobState.CANCELLED, JobState.PAUSED, JobState.FINISHED)
    with Store(tmp_path / "bank", "party bank", clock) as store:
        for id_, state in zip(("job-a", "job-b", "job-c"), states, strict=True):
            begin(store, id_)
            store.move_to_state(id_, state)
            fill(store, id_)
            (store.job_folder(id_) / "result.json").write_text("{}")
        kept = left_of(store, "job-b")
        (store.folder / "models" / ".job-b.new").mkdir()
        (store.job_folder("job-b") / "result.json.new").write_bytes(b"half")
    with Store(tmp_path / "bank", "party bank", clock) as store:
        assert left_of(store, "job-a") == []
        assert left_of(store, "job-b") == kept
        assert names_in(store, "job-b") == ["result.json", "secret", "secureboost"]
        assert names_in(store, "job-c") == ["result.json"]
        assert not list(store.folder.rglob("*.new"))


def test_a_state_and_its_event_are_noted_together_or_not_at_all(store):
    begin(store)
    with pytest.raises(TypeError):
        store.move_to_state("j1", JobState.PAUSED, event={"at": object()})
    assert (store.job("j1").state, store.events("j1")) == (JobState.RUNNING, [])
    store.move_to_state("j1", JobState.PAUSED, reason="gone", event={"state": "paused"})
    assert [row.event for row in store.events("j1")] == [{"state": "paused"}]
    assert store.job("j1").state is JobState.PAUSED
