"""`fedboost job sweep`: real daemons, one alignment, a job that fails, and going on."""

import json

import pytest
import yaml

from fedboost.runtime.ledger.ledger import Ledger
from tests.e2e import world
from tests.support import small_jobs
from tests.support.whole_jobs import written

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("sweep")]
TRIED = {"max_depth": [2, 3], "max_bin": [8]}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with the tables and file of a sweep."""
    folder = tmp_path_factory.mktemp("sweep")
    sources = written(folder / "data", small_jobs.tables("secureboost"))
    raw = small_jobs.raw("secureboost", n_estimators=2)
    del raw["data"], raw["validation"]
    sweep = {"params": TRIED, "folds": 2, "metric": "auc"}
    (folder / "sweep.yaml").write_text(yaml.safe_dump({**raw, "sweep": sweep}))
    data = [text for party, one in sources.items() for text in ("--data", f"{party}={one.path}")]
    return folder, ["job", "sweep", "sweep.yaml", *data]


@pytest.fixture(scope="module")
def ran(place):
    folder, command = place
    return world.fedboost(*command, "--fit-best", "--json", cwd=folder)


@world.JOBS
def test_a_sweep_on_daemons_finds_the_best_settings_and_trains_with_them(place, ran):
    folder, _ = place
    assert ran.code == 0, ran.err
    found = ran.last
    assert (found["state"], found["metric"], found["folds"]) == ("finished", "auc", 2)
    assert [one["rank"] for one in found["trials"]] == [1, 2]
    assert found["best"]["params"].keys() == TRIED.keys()
    assert all(len(one["values"]) == 2 for one in found["trials"])
    assert found["fit"]["state"] == "finished"
    assert "<html" in (folder / found["report"]).read_text()
    assert "2 trials on 2 folds: 4 jobs" in ran.err


@world.JOBS
def test_ids_travel_in_the_first_job_alone(place, ran):
    folder, _ = place
    store = folder / "fedboost-cluster" / "var" / "telco" / "store.sqlite"
    jobs = [job for one in ran.last["trials"] for job in one["jobs"]] + [ran.last["fit"]["job"]]
    ledger = Ledger(store, read_only=True)
    aligned = [job for job in jobs if any(row.stage == "align" for row in ledger.rows(job))]
    ledger.close()
    assert aligned == [ran.last["alignment"]]


@world.JOBS
def test_a_sweep_goes_on_where_jobs_are_missing(place, ran):
    folder, command = place
    again = world.fedboost(*command, "--json", cwd=folder)
    assert (again.code, "--resume" in again.err) == (2, True)
    record = folder / "secureboost-sweep" / "sweep.json"
    kept = json.loads(record.read_text())
    lost = "secureboost-t2-f2"
    kept["members"][lost] = {**kept["members"][lost], "state": "failed", "code": 1}
    record.write_text(json.dumps(kept))
    on = world.fedboost(*command, "--resume", "--json", cwd=folder)
    assert on.code == 0, on.err
    assert on.last["best"] | {"seconds": 0} == ran.last["best"] | {"seconds": 0}
    assert "[4/4]" in on.err
    assert "[3/4]" not in on.err


@world.JOBS
def test_what_a_policy_refuses_is_reported_and_the_other_trials_stand(tmp_path):
    sources = written(tmp_path / "data", small_jobs.tables("secureboost"))
    raw = small_jobs.raw("secureboost", n_estimators=2)
    del raw["validation"]
    # Of 150 rows that train a job tells 14 equations a bin with two layers at most, 30 with three.
    file = world.job_file(tmp_path, {**raw, "sweep": {"params": {"max_depth": [2, 3]}, "folds": 2}})
    with_limit = world.WarmCluster(tmp_path / "c", world.spec(raw), sources, workers=1)
    world.edit(with_limit, "telco", lambda own: own["policy"].update(disclosure_max=0.19))
    with with_limit as cluster:
        found = world.ask(cluster, "job", "sweep", file, "--out", tmp_path / "out", "--json")
    assert found.code == 4, found.err
    first, second = found.last["trials"]
    assert (first["params"], first["rank"], first["state"]) == ({"max_depth": 2}, 1, "finished")
    assert (second["rank"], second["state"], second["mean"]) == (None, "failed", None)
    assert {one["where"]["party"] for one in second["errors"]} == {"telco"}
    assert "not finished: 2 jobs" in found.err
    assert "so 2 of the 4 jobs" not in found.err  # rows in common are not known here
