"""Real daemons tell noisy buckets once, train on them twice, and predict."""

import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml

from tests.e2e import world

PARTIES = ["bank", "telco", "shop"]
ROWS = 569
EPSILON, MOST = 2.0, 20.0  # of a value; of a row at telco, which has ten columns

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("federboost")]


def job(**params):
    """A job on noisy buckets; None leaves a parameter out."""
    said = {"buckets": 8, "epsilon": EPSILON, "n_estimators": 6, "max_depth": 3, **params}
    raw = world.job(protocol="federboost-vertical", validation={"fraction": 0.3, "seed": 7})
    return {**raw, "params": {name: value for name, value in said.items() if value is not None}}


def again(told, **params):
    """A job on what an earlier one disclosed."""
    return job(buckets=None, epsilon=None, reuse=told, **params)


@pytest.fixture(scope="module")
def trained(tmp_path_factory, data_file):
    """Daemons, one of which bounds its noise, a job on them, and one that trains again."""
    folder = tmp_path_factory.mktemp("noise")
    sources = world.shares(data_file("breast.parquet"), folder, PARTIES)
    cluster = world.WarmCluster(folder / "c", world.spec(job()), sources, workers=1)

    def bounded(raw):
        raw["policy"] |= {"epsilon_element_max": EPSILON, "epsilon_row_max": MOST}

    world.edit(cluster, "telco", bounded)
    with cluster:
        first = world.result(world.run(cluster, job()))
        second = world.result(world.run(cluster, again(first["job"], n_estimators=9)))
        yield cluster, folder, first, second
        assert world.tracebacks(cluster) == []


@world.JOBS
def test_daemons_train_on_noisy_buckets_and_say_what_they_are_worth(trained):
    cluster, _, first, _ = trained
    assert first["trees"] == 6
    told = first["privacy"]
    assert set(told) == set(PARTIES[1:])
    assert told["telco"]["epsilon_element"] == EPSILON
    assert told["telco"]["epsilon_row"] == 10 * EPSILON
    assert told["telco"]["moved"] == pytest.approx(7 / (np.exp(EPSILON) + 7))
    assert first["metrics"]["validation"]["logloss"] < 0.6
    assert first["bytes"]["telco->bank"] >= ROWS * 10 * 3 / 8
    report = (cluster.store("bank") / "reports" / f"{first['job']}.html").read_text()
    assert "Local differential privacy" in report


@world.JOBS
def test_training_again_asks_nothing_of_hosts(trained):
    cluster, _, first, second = trained
    assert second["trees"] == 9
    assert not [link for link in second["bytes"] if not link.startswith("bank->")]
    assert second["privacy"] == first["privacy"]
    shown = world.fedboost(
        *("ledger", "show", "--config", cluster.config("telco")), "--job", second["job"], "--json"
    )
    assert "BucketIds" not in shown.out
    assert "OwnSplits" in shown.out
    same = world.result(world.run(cluster, again(first["job"])))
    for party in PARTIES:
        one, other = (world.model(cluster, party, r["model"])[1] for r in (first, same))
        for name, array in one.items():
            np.testing.assert_array_equal(array, other[name], strict=True)


@world.JOBS
def test_a_job_that_wants_to_know_too_much_is_refused_by_the_host(trained):
    cluster, folder, _, _ = trained
    said = world.ask(
        *(cluster, "job", "submit", world.job_file(folder, job(epsilon=2.1))), "--watch", "--json"
    )
    assert said.code == 4
    error = said.last["error"]
    assert error["where"]["key"] == "policy.epsilon_element_max"
    assert error["where"]["party"] == "telco"


@world.JOBS
def test_the_model_predicts_on_the_daemons(trained):
    cluster, folder, _, second = trained
    out = folder / "scores.parquet"
    data = [word for party in PARTIES for word in ("--data", f"{party}=data")]
    guest = ("--config", cluster.config("bank"))
    said = world.ask(cluster, "model", "predict", second["model"], *guest, *data, "--out", out)
    assert said.code == 0, said.err
    scores = pq.read_table(out)
    y = pq.read_table(folder / "bank.parquet", columns=["id", "y"])
    assert scores["id"].equals(y["id"])
    assert ((scores["prediction"].to_numpy() > 0.5) == y["y"].to_numpy()).mean() > 0.9


@world.JOBS
def test_one_command_needs_no_policy_file_and_simulate_wants_the_folder(trained):
    _, folder, _, _ = trained
    data = [w for p in PARTIES for w in ("--data", f"{p}={folder / p}.parquet")]
    raw = job(epsilon=None)
    raw["params"]["epsilon"] = None
    del raw["data"]
    file = world.job_file(folder, raw)
    place = ("--dir", folder / "alone", "--json")
    begun = world.fedboost("simulate", file, *data, *place)
    assert begun.code == 0, begun.err
    assert begun.last["privacy"]["telco"] == {
        "epsilon_element": None, "epsilon_row": None, "moved": 0.0,
    }  # fmt: skip
    raw["params"] = again(begun.last["job"])["params"]
    file.write_text(yaml.safe_dump(raw))
    alone = world.fedboost("simulate", file, *data)
    assert alone.code == 2
    assert "give --dir" in alone.err
    more = world.fedboost("cluster", "run", file, *data, *place)
    assert more.code == 0, more.err
    assert more.last["trees"] == 6
