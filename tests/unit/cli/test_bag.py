"""Two label holders on the command line: trained in turn, both models asked, predictions bagged."""

import json
from pathlib import Path

import click
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from click.testing import CliRunner

from fedboost.cli import connect, predicting
from fedboost.cli.cluster import simulate
from fedboost.cli.groups import model_group
from fedboost.cli.predicting import Scored
from fedboost.data.predictions import predictions_tables, write_parquet
from fedboost.flow import Artefact
from fedboost.ground.errors import ConfigError, DataError, FedboostError, UnreachableError
from fedboost.ground.workers import Serial
from fedboost.messages.job_pb2 import JobJournal, JobStatus
from fedboost.model import shards
from fedboost.runtime.client import client
from fedboost.runtime.client.client import result_of
from fedboost.runtime.cluster import local
from fedboost.runtime.transport import faults
from tests.support import whole_models
from tests.support.federated import now
from tests.support.models import random_model

GUESTS = ("bank", "fund")
ROWS = {"bank": range(80), "fund": range(50, 150)}  # of each guest's table
BOTH = 30  # rows that both guests have
OTHER = "credit-11111111"
JOB = """
name: fraud
protocol: hybridtree
parties: {guests: [bank, fund], hosts: [telco]}
params: {n_estimators: 2, guest_depth: 2, host_depth: 1, encryption: {scheme: plain}}
"""


def run(command, *args):
    """What the command prints and returns; what it raises is raised."""
    words = [str(arg) for arg in args]
    return CliRunner().invoke(command, words, catch_exceptions=False, standalone_mode=False)


def model(*args):
    return run(model_group, *args)


def refused(*args, kind: type[FedboostError] = ConfigError):
    with pytest.raises(kind) as caught:
        model(*args)
    return caught.value


def in_process(spec, sources, folder, **_):
    """`run_job` without daemons."""

    async def work():
        async with local.cluster(folder, spec, sources, Serial()) as cluster:
            return await cluster.run(spec)

    journal = now(work())
    return journal, result_of(journal)


def settings_file(folder, party):
    """The settings of a party of the cluster, whose data set is its own table."""
    raw = {
        "name": party,
        "listen": "127.0.0.1:7101",
        "insecure_loopback": True,
        "coordinator": {"name": "coord", "address": "127.0.0.1:7100"},
        "store": str(folder / "cluster" / "var" / party),
        "datasets": {"cards": {"path": str(folder / f"{party}.parquet")}},
    }
    (folder / f"{party}.yaml").write_text(yaml.safe_dump(raw))
    return ("--config", folder / f"{party}.yaml")


@pytest.fixture(scope="module")
def town(tmp_path_factory):
    """A folder with tables, and a cluster's stores after both guests have trained."""
    folder: Path = tmp_path_factory.mktemp("bag")
    draw = np.random.default_rng(3)
    ages = draw.normal(size=150)
    for guest, rows in ROWS.items():
        own = draw.normal(size=(len(rows), 2))
        y = (own[:, 0] + ages[list(rows)] > 0).astype(int)
        columns = {"id": list(rows), "y": y, "amount": own[:, 0], "hour": own[:, 1]}
        pq.write_table(pa.table(columns), folder / f"{guest}.parquet")
    telco = pa.table({"id": list(range(0, 150, 2)), "age": ages[::2]})
    pq.write_table(telco, folder / "telco.parquet")
    (folder / "job.yaml").write_text(JOB)
    said = run(simulate, folder / "job.yaml", *data(folder), "--dir", folder / "cluster", "--json")
    assert said.return_value == 0, said.stderr
    return folder, json.loads(said.stdout)


def data(folder, parties=(*GUESTS, "telco")):
    return [word for p in parties for word in ("--data", f"{p}={folder / p}.parquet")]


def average(models, more):
    """What says that several models are averaged, where nothing else says how they join."""
    return () if len(models) == 1 or "--bag" in more else ("--average",)


def predict(monkeypatch, folder, models, *more, parties=(*GUESTS, "telco")):
    monkeypatch.setattr(predicting, "run_job", in_process)
    given = (*data(folder, parties), "--cluster", folder / "cluster", *more, *average(models, more))
    said = model("predict", *models, *given)
    assert said.return_value == 0, said.stderr
    return said.stdout


def test_two_guests_train_in_turn_a_model_each(town):
    folder, said = town
    assert (said["name"], said["protocol"], said["state"]) == ("fraud", "hybridtree", "finished")
    assert said["models"] == [said["guests"][guest]["model"] for guest in GUESTS]
    for guest, one in said["guests"].items():
        assert (one["name"], one["state"], one["trees"]) == (f"fraud-{guest}", "finished", 2)
        assert one["rows"]["train"] == len(ROWS[guest])
        stores = folder / "cluster" / "var"
        assert shards.names(stores / guest / "models") == [one["model"]]
        facts = shards.load_facts(stores / guest / "models" / one["model"])
        assert (facts["guest"], facts["hosts"]) == (guest, ["telco"])
        assert Path(one["report"]).is_file()
        assert f"{guest}->telco" in one["bytes"]
    held = shards.names(folder / "cluster" / "var" / "telco" / "models")
    assert sorted(held) == sorted(said["models"])


def test_rows_that_one_or_both_models_score_get_the_mean_or_the_votes(town, monkeypatch, tmp_path):
    folder, said = town
    models, alone = said["models"], {}
    for guest, one in zip(GUESTS, models, strict=True):
        own = ("--out", tmp_path / f"{guest}.parquet")
        predict(monkeypatch, folder, [one], *own, parties=(guest, "telco"))
        found = pq.read_table(tmp_path / f"{guest}.parquet")
        assert found.schema.metadata == {b"fedboost.objective": b"binary:logistic"}
        alone[guest] = dict(zip(*(found[k].to_pylist() for k in ("id", "prediction")), strict=True))
        assert list(alone[guest]) == list(ROWS[guest])
    text = predict(monkeypatch, folder, models, "--out", tmp_path / "P.parquet")
    assert text.splitlines() == [
        f"80 rows predicted: by {models[0]}",
        f"100 rows predicted: by {models[1]}",
        f"150 rows, the mean of 2 models: {tmp_path / 'P.parquet'}",
    ]
    mean = pq.read_table(tmp_path / "P.parquet")
    assert mean["id"].to_pylist() == list(range(150))
    scores = [[a[row] for a in alone.values() if row in a] for row in range(150)]
    assert mean["models"].to_pylist() == [len(one) for one in scores]
    assert mean["models"].to_pylist().count(2) == BOTH
    assert mean["prediction"].to_pylist() == [sum(one) / len(one) for one in scores]

    vote = ("--bag", "vote", "--out", tmp_path / "V.parquet", "--json")
    last = json.loads(predict(monkeypatch, folder, models, *vote))
    assert (last["bag"], last["rows"], last["out"]) == ("vote", 150, str(tmp_path / "V.parquet"))
    assert [one["model"] for one in last["models"]] == models
    assert [one["rows"] for one in last["models"]] == [80, 100]
    votes = pq.read_table(tmp_path / "V.parquet")["prediction"].to_pylist()
    assert votes == [sum(v >= 0.5 for v in one) / len(one) for one in scores]

    for by, whole in (("mean", "P"), ("vote", "V")):
        files = [tmp_path / f"{guest}.parquet" for guest in GUESTS]
        model("bag", *files, "--by", by, "--out", tmp_path / "B.parquet")
        assert pq.read_table(tmp_path / "B.parquet").equals(
            pq.read_table(tmp_path / f"{whole}.parquet")
        )


def test_a_job_that_does_not_finish_leaves_no_bag(town, monkeypatch, tmp_path):
    folder, said = town
    status = JobStatus(id="p-1", name="p", state="failed")
    status.reason.CopyFrom(faults.to_message(DataError("the ids of nobody meet")))
    monkeypatch.setattr(predicting, "run_job", lambda *_, **__: (JobJournal(status=status), {}))
    out = ("--out", tmp_path / "P.parquet", "--json")
    where = ("--cluster", folder / "cluster", "--average")
    ended = model("predict", *said["models"], *data(folder), *where, *out)
    assert ended.return_value == 2
    assert json.loads(ended.stdout)["error"]["what"] == "the ids of nobody meet"
    assert list(tmp_path.iterdir()) == []


def test_simulations_without_a_folder_keep_no_models(town):
    folder, _ = town
    said = json.loads(run(simulate, folder / "job.yaml", *data(folder), "--json").stdout)
    assert (said["state"], said["models"]) == ("finished", [])
    assert {one["report"] for one in said["guests"].values()} == {""}


# What a bag refuses before any model is asked


def asked(town, *args, models=None, parties=(*GUESTS, "telco")):
    folder, said = town
    where = ("--cluster", folder / "cluster", "--out", folder / "none.parquet")
    models = models or said["models"]
    more = (*where, *args, *average(models, args))
    error = refused("predict", *models, *data(folder, parties), *more)
    assert not (folder / "none.parquet").exists()
    return error


def test_a_bag_needs_the_data_of_all_its_parties_and_of_nobody_else(town, tmp_path):
    folder, said = town
    assert (
        asked(town, "--data", "mill=x").what == "--data names mill, which has no part in the models"
    )
    assert asked(town, parties=("bank", "telco")).what.startswith("--data is missing for fund")
    lost = ("--out", folder / "nowhere" / "P.parquet")
    assert "--out does not exist" in asked(town, *lost).what
    assert asked(town, models=said["models"][:1] * 2).what == "the model is named twice"
    assert asked(town, models=[*said["models"], "none-1"]).what == "there is no model none-1 here"


def test_models_that_do_not_fit_each_other_are_refused(town):
    folder, said = town
    store = folder / "cluster" / "var" / "fund" / "models"
    shard = shards.load(store / said["models"][1])
    changes: list[tuple[dict[str, object], str]] = [
        ({"objective": "reg:squarederror"}, "it has reg:squarederror, "),
        ({"base_margin": [0.0, 0.0, 0.0]}, "it has outputs 3, "),
        ({"ids": {"fund": ["id", "day"]}}, "it has id id, day, "),
    ]
    for change, says in changes:
        shards.save(store / OTHER, Artefact({**shard.facts, "job": OTHER, **change}, shard.arrays))
        error = asked(town, models=[said["models"][0], OTHER])
        assert error.what.startswith(f"{OTHER} does not fit the others: {says}")
        shards.delete(store / OTHER)


def test_numbers_do_not_vote(town):
    folder, said = town
    names = []
    for guest, one in zip(GUESTS, said["models"], strict=True):
        store = folder / "cluster" / "var" / guest / "models"
        shard, name = shards.load(store / one), f"{guest}-22222222"
        facts = {**shard.facts, "job": name, "objective": "count:poisson"}
        shards.save(store / name, Artefact(facts, shard.arrays))
        names.append(name)
    assert "numbers cannot vote" in asked(town, "--bag", "vote", models=names).what
    for guest, name in zip(GUESTS, names, strict=True):
        shards.delete(folder / "cluster" / "var" / guest / "models" / name)


def test_a_whole_model_predicts_alone(tmp_path):
    frame = whole_models.table(1)
    whole_models.stored(tmp_path, frame, whole_models.trained(frame))
    shards.save(tmp_path / "var" / "bank" / "models" / OTHER, random_model(21)["bank"])
    where = ("--cluster", tmp_path, "--data", "bank=x", "--out", tmp_path / "P.parquet")
    error = refused("predict", whole_models.MODEL, OTHER, "--average", *where)
    assert error.what.startswith("every party holds the model whole")
    assert "fedboost model bag" in error.todo


def test_one_model_makes_no_bag(town):
    folder, said = town
    where = ("--cluster", folder / "cluster", "--out", folder / "none.parquet")
    for how in (("--bag", "mean"), ("--average",)):
        with pytest.raises(click.UsageError, match="--bag belong to several models"):
            model("predict", said["models"][0], *data(folder), *where, *how)


def test_several_models_are_averaged_only_where_the_command_says_so(town):
    folder, said = town
    where = ("--cluster", folder / "cluster", "--out", folder / "none.parquet")
    error = refused("predict", *said["models"], *data(folder), *where)
    assert error.what == "2 models are named, and each row gets one prediction"
    assert "--average" in error.todo
    with pytest.raises(click.UsageError, match="exclude each other"):
        model("predict", *said["models"], *data(folder), *where, "--bag", "vote", "--average")


# The models of guests on other machines


class Coordinator:
    """Knows who the guest of every job was."""

    def __init__(self, config):
        assert config == "where the coordinator is"

    async def __aenter__(self):
        return self

    async def __aexit__(self, *error):
        return None

    async def journal(self, job):
        if "fund" not in job:
            raise ConfigError("there is no such job")
        return JobJournal(spec=json.dumps({"parties": {"guest": "fund"}}).encode())


@pytest.mark.parametrize("party", ["bank", "telco"])
def test_a_daemon_says_whose_the_other_models_are_and_what_to_do(town, monkeypatch, party):
    folder, said = town
    monkeypatch.setattr(connect, "settings", lambda *_: "where the coordinator is")
    monkeypatch.setattr(client, "CoordinatorClient", Coordinator)
    where = (*settings_file(folder, party), "--out", folder / "P.parquet", "--data", "bank=cards")
    models = said["models"] if party == "bank" else said["models"][::-1]
    error = refused("predict", *models, "--average", *where)
    assert error.what.startswith("the model lies at its guest fund, whose predictions are its own")
    assert "fedboost model bag P1.parquet P2.parquet --out P.parquet" in error.todo
    assert error.where == {"model": said["models"][1]}


def test_where_nobody_knows_the_guest_the_way_is_said_all_the_same(town, monkeypatch):
    folder, said = town

    def unknown(*_):
        raise UnreachableError("there is no coordinator")

    where = (*settings_file(folder, "bank"), "--out", folder / "P.parquet", "--data", "bank=cards")
    monkeypatch.setattr(connect, "settings", unknown)
    error = refused("predict", *said["models"], "--average", *where)
    assert error.what.startswith("the model lies at another guest")
    monkeypatch.setattr(connect, "settings", lambda *_: "where the coordinator is")
    monkeypatch.setattr(client, "CoordinatorClient", Coordinator)
    error = refused("predict", said["models"][0], "else-1", "--average", *where)
    assert error.what.startswith("the model lies at another guest")


def test_models_of_one_guest_are_bagged_over_running_daemons(town, monkeypatch):
    folder, said = town
    store, own = folder / "cluster" / "var" / "bank" / "models", said["models"][0]
    shard = shards.load(store / own)
    shards.save(store / OTHER, Artefact({**shard.facts, "job": OTHER}, shard.arrays))
    seen = []

    def over_daemons(wish, config, coordinator):
        where = coordinator.address, coordinator.tls
        seen.append((wish.model, wish.data, config.name, *where))
        written(wish.out, ["x"], [0.25 * len(seen)])
        return Scored(wish, JobJournal(), {"job": "p-1", "rows": {"predicted": 1}}, 3)

    monkeypatch.setattr(predicting, "over_daemons", over_daemons)
    given = {"bank": "cards", "telco": "calls"}
    words = [word for party, name in given.items() for word in ("--data", f"{party}={name}")]
    where = (*settings_file(folder, "bank"), "--coordinator", "c:1", "--tls", folder)
    how = ("--average", "--out", folder / "P.parquet")
    text = model("predict", own, OTHER, *words, *where, *how).stdout
    shards.delete(store / OTHER)
    assert seen == [(name, given, "bank", "c:1", folder) for name in (own, OTHER)]
    assert text.count("2 rows of bank's table are not predicted") == 2
    assert pq.read_table(folder / "P.parquet")["prediction"].to_pylist() == [0.375]


# `fedboost model bag`


def written(path, ids, values, objective=""):
    path.parent.mkdir(exist_ok=True)
    column = np.array(values)[:, None]
    tables = predictions_tables(pa.table({"id": ids}), np.arange(len(ids)), column, objective)
    write_parquet(path, tables)
    return path


def test_files_that_guests_hand_over_become_one(tmp_path):
    ours = written(tmp_path / "bank" / "P.parquet", ["x", "y"], [0.25, 1.0])
    theirs = written(tmp_path / "fund" / "P.parquet", ["y"], [0.5])
    out = tmp_path / "B.parquet"
    assert (
        model("bag", ours, theirs, "--out", out).stdout == f"2 rows, the mean of 2 models: {out}\n"
    )
    bag = pq.read_table(out).to_pydict()
    assert bag == {"id": ["x", "y"], "prediction": [0.25, 0.75], "models": [1, 2]}
    said = json.loads(model("bag", ours, theirs, "--by", "vote", "--out", out, "--json").stdout)
    files = [{"file": str(ours), "rows": 2}, {"file": str(theirs), "rows": 1}]
    assert said == {"bag": "vote", "models": files, "rows": 2, "out": str(out)}
    assert pq.read_table(out)["prediction"].to_pylist() == [0.0, 1.0]


def test_files_that_make_no_bag_are_refused_by_name(tmp_path):
    ours = written(tmp_path / "a.parquet", ["x"], [0.25], "binary:logistic")
    theirs = written(tmp_path / "b.parquet", ["x"], [0.25], "reg:tweedie")
    other = written(tmp_path / "fund" / "a.parquet", ["x"], [0.25], "reg:tweedie")
    twice = written(tmp_path / "c.parquet", ["x", "x"], [0.5, 0.5])
    out = ("--out", tmp_path / "B.parquet")
    assert "two files" in refused("bag", ours, *out).what
    assert "each named once" in refused("bag", ours, theirs, ours, *out).what
    assert "b.parquet does not fit the others" in refused("bag", ours, theirs, *out).what
    assert f"{other} does not fit the others" in refused("bag", ours, other, *out).what
    assert refused("bag", ours, twice, *out, kind=DataError).where == {"file": "c.parquet"}
    absent = refused("bag", ours, tmp_path / "d.parquet", *out, kind=DataError)
    assert absent.where == {"file": "d.parquet"}
    model("bag", ours, written(tmp_path / "e.parquet", ["x"], [0.75]), *out)
    again = refused("bag", ours, tmp_path / "B.parquet", *out, kind=DataError)
    assert again.where == {"file": "B.parquet"}
    nowhere = ("--out", tmp_path / "none" / "B.parquet")
    assert "--out does not exist" in refused("bag", ours, twice, *nowhere).what
