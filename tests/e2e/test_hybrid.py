"""Real daemons grow and use trees in two parts, whoever dies on the way."""

import time

import numpy as np
import pyarrow.parquet as pq
import pytest

from tests.e2e import world

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("hybrid")]
PARTIES = ("bank", "telco", "shop")
ROWS, ALONE = 160, 20
TREES = 6


def shares(pooled, folder):
    """The guest has 160 rows, the hosts most of these and 30 others, shared in part."""
    sources = world.shares(pooled, folder, list(PARTIES))
    indices = {"bank": (0, ROWS), "telco": (ALONE, 90), "shop": (60, 130)}
    for party, (first, count) in indices.items():
        table = pq.read_table(sources[party].path).slice(first, count)
        world.write(folder / f"{party}.parquet", table)
    return sources


def job(split, **params):
    """A job of hybridtree on these tables."""
    raw = world.job(protocol="hybridtree", params={"max_bin": 8, "eval_metric": "logloss"})
    del raw["params"]["max_depth"]
    raw["params"] |= {"guest_depth": 2, "host_depth": 2, "split": split, **params}
    return raw


def logloss(table, predictions):
    """That of predictions, by the guest's labels."""
    label = dict(zip(table["id"].to_pylist(), table["y"].to_pylist(), strict=True))
    y = np.array([label[i] for i in predictions["id"].to_pylist()], float)
    p = predictions["prediction"].to_numpy()
    return float(-np.mean(y * np.log(p) + (1 - y) * np.log(1 - p)))


def assert_scores(folder, result, *where, env=None):
    """The model scores all rows of the guest, as its training had them."""
    out = folder / "scores.parquet"
    said = world.fedboost("model", "predict", result["model"], *where, "--out", out, env=env)
    assert said.code == 0, said.err
    table = pq.read_table(folder / "bank.parquet")
    found = pq.read_table(out)
    assert found["id"].equals(table["id"])
    assert logloss(table, found) == pytest.approx(result["metrics"]["train"]["logloss"], abs=1e-9)


def words(sources):
    """The tables as a command takes them."""
    return [word for p in PARTIES for word in ("--data", f"{p}={sources[p].path}")]


@world.JOBS
def test_a_cluster_trains_and_another_one_scores(tmp_path, data_file):
    sources = shares(data_file("breast.parquet"), tmp_path)
    raw = job("unscored", encryption={"scheme": "okamoto-uchiyama"})
    del raw["data"]
    kept = ("--dir", tmp_path / "c")
    file = world.job_file(tmp_path, raw)
    said = world.fedboost("cluster", "run", file, *words(sources), *kept, "--json")
    assert said.code == 0, said.err
    result = said.last
    assert (result["state"], result["trees"]) == ("finished", 2)
    assert result["rows"]["alone"] == ALONE
    assert_scores(tmp_path, result, "--cluster", tmp_path / "c", *words(sources))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory, data_file):
    folder = tmp_path_factory.mktemp("hybrid")
    sources = shares(data_file("breast.parquet"), folder)
    spec = world.spec(job("scored"))
    with world.WarmCluster(folder / "c", spec, sources, timers=world.TIMERS, workers=1) as made:
        yield made
        assert world.tracebacks(made) == []


def killed_and_resumed(cluster, raw, step):
    """A job of which a host was killed in the third round; its journal in the end."""
    id_ = world.submit(cluster, raw)
    events = world.watch(cluster, id_, world.in_round(2, step))
    assert events[-1].WhichOneof("what") == "step", "the job ended before the kill"
    cluster.kill("shop")
    killed = time.monotonic()
    events = world.watch(cluster, id_, after=events[-1].number)
    assert events[-1].state.state == "paused"
    assert time.monotonic() - killed < world.SHOWN_S
    cluster.start("shop")
    cluster.wait("shop")
    journal = world.gone_on(cluster, id_)
    rounds = [event for event in journal.events if event.WhichOneof("what") == "round"]
    assert len(rounds) <= TREES + 1, "more than one tree was grown again"
    assert journal.status.attempt == 2
    return journal


@world.KILLS
@pytest.mark.parametrize(
    ("split", "step", "scheme"),
    [("scored", "sum_candidates", "plain"), ("unscored", "answer_rows", "okamoto-uchiyama")],
)
def test_a_job_whose_host_was_killed_comes_to_the_model_of_all_its_rounds(
    cluster, split, step, scheme
):
    """With scored splits that of an undisturbed job. Unscored cuts are each job's own; values kept
    under a key that is no longer the guest's would not score as the training did.
    """
    raw = job(split, n_estimators=TREES, encryption={"scheme": scheme})
    result = world.result(killed_and_resumed(cluster, raw, step))
    assert result["trees"] == TREES
    if split == "scored":
        assert result["metrics"] == world.result(world.run(cluster, raw))["metrics"]
    data = [word for party in PARTIES for word in ("--data", f"{party}=data")]
    where = ("--config", cluster.config("bank"), *data)
    assert_scores(cluster.folder.parent, result, *where, env=world.client_env(cluster))
