"""A model is trained, continued and used by real daemons, and on one machine by one command."""

import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml

from fedboost.model import shards
from tests.e2e import world

PARTIES = ["bank", "telco", "shop"]
FIRST, MORE = 4, 3  # rounds

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("warm_start")]


def job(rounds, **params):
    """A job that draws rows and columns, so that each round is another."""
    sampled = {"subsample": 0.7, "colsample_bytree": 0.6, "seed": 5}
    return world.job(
        params={"n_estimators": rounds, **sampled, **params},
        validation={"fraction": 0.3, "seed": 7},
    )


@pytest.fixture(scope="module")
def place(tmp_path_factory, data_file):
    """A folder, and the tables of three parties in it."""
    folder = tmp_path_factory.mktemp("warm")
    return folder, world.shares(data_file("breast.parquet"), folder, PARTIES)


@pytest.fixture(scope="module")
def trained(place):
    """Daemons that have trained a model, one that continues it, and both in one go."""
    folder, sources = place
    with world.WarmCluster(folder / "c", world.spec(job(FIRST)), sources, workers=1) as cluster:
        first = world.result(world.run(cluster, job(FIRST)))["model"]
        more = job(MORE, warm_start=first)
        said = world.ask(
            cluster, "job", "submit", world.job_file(folder, more), "--watch", "--json"
        )
        assert said.code == 0, said.err
        whole = world.result(world.run(cluster, job(FIRST + MORE)))["model"]
        yield cluster, first, said.last, whole
        assert world.tracebacks(cluster) == []


@world.JOBS
def test_daemons_continue_a_model_as_if_it_had_never_ended(trained):
    cluster, first, result, whole = trained
    assert result["trees"] == FIRST + MORE
    assert result["earlier_rounds"] == FIRST
    assert result["seconds"].keys() == {"total", "align", "predict", "train", "per_tree"}
    for party in PARTIES:
        facts, arrays = world.model(cluster, party, result["model"])
        other_facts, other = world.model(cluster, party, whole)
        assert facts.pop("params", {}).get("warm_start") == (first if party == "bank" else None)
        other_facts.pop("params", None)
        assert repr(facts) == repr(other_facts)
        for name, array in other.items():
            np.testing.assert_array_equal(arrays[name], array, strict=True)


@world.JOBS
def test_the_ledgers_and_the_report_tell_of_the_scores(trained):
    cluster, _, result, _ = trained
    config = cluster.config("telco")
    shown = world.fedboost("ledger", "show", "--config", config, "--job", result["job"], "--json")
    assert shown.code == 0, shown.err
    assert '"fedboost.predict.Questions"' in shown.out
    report = (cluster.store("bank") / "reports" / f"{result['job']}.html").read_text()
    assert "rounds of the model before" in report
    assert not list(cluster.store("bank").glob("predictions/*"))


@world.KILLS
def test_a_party_that_dies_between_the_old_trees_and_the_new_loses_neither(trained):
    cluster, first, result, _ = trained
    id_ = world.submit(cluster, job(MORE, warm_start=first))
    events = world.watch(cluster, id_, world.in_round(2, "open_layer"))
    assert events[-1].WhichOneof("what") == "step", "the job ended before anybody was killed"
    cluster.kill("shop")
    events = world.watch(cluster, id_, after=events[-1].number)
    assert events[-1].state.state == "paused"
    cluster.start("shop")
    cluster.wait("shop")
    world.result(world.gone_on(cluster, id_))
    world.assert_same_model(cluster, id_, result["model"])


@world.JOBS
def test_one_command_continues_a_model_in_the_folder_that_holds_it(place):
    folder, sources = place
    data = [text for p in PARTIES for text in ("--data", f"{p}={sources[p].path}")]
    raw = job(FIRST)
    del raw["data"]
    file = world.job_file(folder, raw)
    begun = world.fedboost("cluster", "run", file, *data, "--dir", folder / "one", "--json")
    assert begun.code == 0, begun.err
    raw["params"] |= {"warm_start": begun.last["model"], "n_estimators": MORE}
    file.write_text(yaml.safe_dump(raw))
    alone = world.fedboost("simulate", file, *data)
    assert alone.code == 2
    assert "give --dir, the folder of that job" in alone.err
    there = (*data, "--dir", folder / "one", "--json")
    run, simulated = (
        world.fedboost(*command, file, *there) for command in (("cluster", "run"), ("simulate",))
    )
    assert (run.code, simulated.code) == (0, 0), run.err + simulated.err
    for party in PARTIES:
        models = folder / "one" / "var" / party / "models"
        one, other = (shards.load_shard(models / said.last["model"]) for said in (run, simulated))
        for name, array in one.arrays.items():
            np.testing.assert_array_equal(array, other.arrays[name], strict=True)

    out = folder / "scores.parquet"
    model = run.last["model"]
    said = world.fedboost(
        "model", "predict", model, "--cluster", folder / "one", *data, "--out", out
    )
    assert said.code == 0, said.err
    assert len(pq.read_table(out)) == 569
    whole = folder / "model.json"
    said = world.fedboost("model", "export", model, "--cluster", folder / "one", "--out", whole)
    assert said.code == 0, said.err
