"""Forests that become smaller are grown by real daemons, told of as rounds, and carried on."""

import re

import pytest

from fedboost.core import forest
from fedboost.core.params import TreeParams
from fedboost.ground.settings import parse_settings
from tests.e2e import world

PARTIES = ["bank", "telco", "shop"]
FOREST = {"dynamic": {"n_trees": [4, 1], "subsample": [0.3, 0.8]}, "colsample_bytree": 0.7}
ROUNDS = 5
SIZES = forest.trees_each_round(
    parse_settings(TreeParams, {"n_estimators": ROUNDS, "forest": FOREST})
).tolist()

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("forests")]


def job():
    """Layers of the hosts, then layers of the guest, in trees of which each round has fewer."""
    raw = world.job(
        params={
            "n_estimators": ROUNDS,
            "forest": FOREST,
            "mode": "layered",
            "host_depth": 2,
            "guest_depth": 1,
        },
        validation={"fraction": 0.3, "seed": 7},
    )
    del raw["params"]["max_depth"]
    return raw


@pytest.fixture(scope="module")
def trained(tmp_path_factory, data_file):
    """Daemons that have trained a model, and what the user who watched has seen."""
    folder = tmp_path_factory.mktemp("forest")
    sources = world.shares(data_file("breast.parquet"), folder, PARTIES)
    with world.WarmCluster(folder / "c", world.spec(job()), sources, workers=1) as cluster:
        file = world.job_file(folder, job())
        said = world.ask(cluster, "job", "submit", file, "--watch", "--json")
        assert said.code == 0, said.err
        yield cluster, said
        assert world.tracebacks(cluster) == []


@world.JOBS
def test_daemons_grow_the_forests_of_the_schedule(trained):
    cluster, said = trained
    result = said.last
    assert sorted(SIZES, reverse=True) == SIZES
    assert (SIZES[0], SIZES[-1]) == (4, 1)
    assert (result["rounds"], result["trees"]) == (ROUNDS, sum(SIZES))
    assert result["metrics"]["validation"]["auc"] > 0.9
    facts, arrays = world.model(cluster, "bank", result["model"])
    assert facts["forest"] == SIZES
    assert set(arrays["tree"].tolist()) == set(range(sum(SIZES)))


@world.JOBS
def test_terminal_and_report_count_rounds_and_trees(trained):
    cluster, said = trained
    assert f"round {ROUNDS} of {ROUNDS}" in said.err
    assert not re.search(r"tree \d+ of", said.err)
    result = said.last
    report = (cluster.store("bank") / "reports" / f"{result['job']}.html").read_text()
    assert "Trees per round" in report
    assert "Share of the rows that a tree sees" in report
    for party in PARTIES:
        config = cluster.config(party)
        shown = world.fedboost("model", "show", result["model"], "--config", config, "--json")
        assert shown.code == 0, shown.err
        assert (shown.last["rounds"], shown.last["trees"]) == (ROUNDS, sum(SIZES))


@world.KILLS
def test_a_party_that_dies_amid_a_forest_carries_on_with_the_same_trees(trained):
    cluster, said = trained
    id_ = world.submit(cluster, job())
    events = world.watch(cluster, id_, world.in_round(2, "open_layer"))
    assert events[-1].WhichOneof("what") == "step", "the job ended before anybody was killed"
    cluster.kill("telco")
    events = world.watch(cluster, id_, after=events[-1].number)
    assert events[-1].state.state == "paused"
    cluster.start("telco")
    cluster.wait("telco")
    world.result(world.gone_on(cluster, id_))
    world.assert_same_model(cluster, id_, said.last["model"])
