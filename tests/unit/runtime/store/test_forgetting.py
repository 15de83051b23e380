"""Deleted jobs leave nothing but their names; what is needed stays; no crash leaves half of one."""

import json
from dataclasses import replace

import pytest

from fedboost.flow import Artefact
from fedboost.ground.errors import ConfigError, JobError, PolicyError
from fedboost.model import shards
from fedboost.runtime.ledger.ledger import Ledger
from fedboost.runtime.policy.account import Account
from fedboost.runtime.store import forgetting as module
from fedboost.runtime.store.forgetting import DAY_S, Forgetting, refuse_used
from fedboost.runtime.store.store import OVER, JobState, Store
from tests.unit.runtime.ledger.test_ledger import SENT

NOW = 1_700_000_000.0


class Clock:
    """A clock that stands until it is set."""

    def __init__(self):
        self.now = NOW

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def store(tmp_path, clock):
    with Store(tmp_path / "bank", "party bank", clock) as opened:
        yield opened


def manifest(**params):
    return json.dumps({"spec": {"name": "credit", "params": params}}).encode()


def add(store, id_="job-1", state=JobState.FINISHED, **params):
    """A job in a state, with everything that a job can leave."""
    store.add_job(id_, "credit", manifest(**params), JobState.WAITING)
    store.move_to_state(id_, state)
    store.add_event(id_, {"step": {}})
    for kind in ("models", "disclosures"):
        shards.save_shard(store.folder / kind / id_, Artefact({"job": id_}))
    for path in (f"predictions/{id_}.parquet", f"reports/{id_}.html", f"jobs/{id_}/result.json"):
        (store.folder / path).parent.mkdir(parents=True, exist_ok=True)
        (store.folder / path).write_bytes(b"x")


def left(store, id_="job-1"):
    """What lies in files of a job."""
    found = [path for path in store.folder.rglob(f"*{id_}*")]
    return sorted(str(path.relative_to(store.folder)) for path in found)


@pytest.mark.parametrize("state", OVER)
def test_a_job_that_is_over_goes_with_all_its_files(store, state):
    add(store, state=state)
    add(store, "job-2")
    assert Forgetting(store).forget("job-1").state == state
    assert left(store) == []
    assert [job.id for job in store.jobs()] == ["job-2"]
    assert store.events("job-1") == []
    assert len(left(store, "job-2")) == 5


@pytest.mark.parametrize("state", [state for state in JobState if state not in OVER])
def test_a_job_that_waits_runs_or_is_paused_is_never_touched(store, clock, state):
    add(store, state=state)
    before = left(store)
    with pytest.raises(JobError, match=f"the job is {state}"):
        Forgetting(store).forget("job-1")
    clock.now += 1000 * DAY_S
    assert Forgetting(store).jobs_due(1.0) == []
    assert Forgetting(store).models_due(1.0) == []
    assert left(store) == before


def test_a_model_may_stay_with_what_others_use_again(store):
    add(store)
    Forgetting(store).forget("job-1", keeps_model=True)
    assert left(store) == ["disclosures/job-1", "models/job-1"]


def test_a_job_that_was_forgotten_is_refused_for_ever(tmp_path, store):
    add(store)
    forgetting = Forgetting(store)
    forgetting.refuse_deleted("job-1", "bank")
    forgetting.forget("job-1")
    for again in (forgetting, Forgetting(store)):
        with pytest.raises(PolicyError, match="bank's owner has deleted the job"):
            again.refuse_deleted("job-1", "bank")


@pytest.mark.parametrize("when", ["before the files", "between the files", "before the note"])
def test_a_crash_in_the_middle_leaves_nothing_half_deleted(tmp_path, monkeypatch, when):
    class PowerCutError(Exception):
        """Nothing more happens."""

    def cut(*_, **__):
        raise PowerCutError

    def files_only(forgetting, id_, *, keeps_model):
        forgetting._store.discard(id_)
        raise PowerCutError

    with Store(tmp_path / "bank", "party bank") as store:
        add(store)
        with monkeypatch.context() as patched:
            if when == "before the files":
                patched.setattr(type(store.vault), "destroy_secrets", cut)
            elif when == "between the files":
                patched.setattr("fedboost.runtime.store.store.shutil.rmtree", cut)
            else:
                patched.setattr(Forgetting, "_delete_files", files_only)
            with pytest.raises(PowerCutError):
                Forgetting(store).forget("job-1")
    with Store(tmp_path / "bank", "party bank") as store:
        assert store.jobs() == []
        Forgetting(store)
        assert left(store) == []
        add(store, "job-2")
        Forgetting(store)
        assert len(left(store, "job-2")) == 5, "nothing else goes with it"


def test_what_a_dead_process_left_of_a_deleted_model_goes_at_the_next_start(store):
    add(store)
    (store.folder / "models" / "job-1").rename(store.folder / "models" / ".job-1.old")
    Forgetting(store)
    assert "models/.job-1.old" not in left(store)


def test_the_ledger_and_the_account_outlive_their_job(store):
    ledger, account = Ledger(store.database), Account(store.database)
    ledger.record(replace(SENT, job="job-1"))
    add(store)
    Forgetting(store).forget("job-1")
    assert ledger.verify().n == 1
    assert [row.job for row in ledger.rows("job-1")] == ["job-1"]
    account.close()
    ledger.close()


def test_age_counts_from_the_end_of_a_job_and_from_the_making_of_a_model(store, clock, monkeypatch):
    add(store, "old")
    clock.now += 10 * DAY_S
    add(store, "new")
    forgetting = Forgetting(store)
    assert forgetting.jobs_due(None) == []
    assert forgetting.models_due(None) == []
    assert forgetting.jobs_due(5.0) == ["old"]
    assert forgetting.jobs_due(20.0) == []
    clock.now = max(p.stat().st_mtime for p in store.folder.glob("models/*/*")) + 2 * DAY_S
    assert sorted(forgetting.models_due(1.0)) == ["new", "old"]
    assert forgetting.models_due(3.0) == []


def test_a_model_that_a_going_job_names_is_kept(store, clock):
    add(store, "model-1")
    add(store, "model-2")
    add(store, "score-1", JobState.PAUSED, model="model-1")
    clock.now += 1e9
    forgetting = Forgetting(store)
    assert forgetting.models_due(1.0) == ["model-2"]
    with pytest.raises(ConfigError, match="score-1, which is paused, needs the model"):
        refuse_used(store.folder, "model-1")
    refuse_used(store.folder, "model-2")
    store.move_to_state("score-1", JobState.CANCELLED)
    refuse_used(store.folder, "model-1")


def test_models_of_a_folder_without_a_daemon_can_be_deleted(tmp_path):
    shards.save_shard(tmp_path / "models" / "job-1", Artefact({}))
    refuse_used(tmp_path, "job-1")
    module.delete_model(tmp_path, "job-1")
    assert not (tmp_path / "models" / "job-1").exists()
