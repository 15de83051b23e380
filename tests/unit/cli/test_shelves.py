"""A model is named by its id, by a job's name, or as the latest one."""

import asyncio
import json

import pytest
from click.testing import CliRunner

from fedboost.cli.groups import model_group
from fedboost.cli.shelves import Shelves, open_shelves
from fedboost.flow import Artefact
from fedboost.ground.errors import ConfigError
from fedboost.messages.job_pb2 import JobStatus
from fedboost.model import shards
from fedboost.runtime.client.client import CoordinatorClient
from fedboost.runtime.store.store import JobState
from tests.e2e.world import ROOT
from tests.support.models import MODEL, PARTIES, random_model

NEWER, FRAUD, TWIN = "credit-11111111", "fraud-22222222", "credit-33333333"
ADDED = {NEWER: ("credit", "02-01"), FRAUD: ("fraud", "01-15"), TWIN: ("credit", "02-01")}


@pytest.fixture
def shelves(tmp_path):
    """A local cluster's stores with three models, of two jobs' names."""
    made = random_model(21)
    for party in PARTIES:
        store = tmp_path / "var" / party / "models"
        shards.save_shard(store / MODEL, made[party])
        for model in (NEWER, FRAUD):
            add(store, made[party], model)
    return Shelves({party: tmp_path / "var" / party for party in PARTIES}, cluster=tmp_path)


def add(store, shard, model):
    """Keep a shard as another model's."""
    name, day = ADDED[model]
    facts = {"job": model, "name": name, "created": f"2026-{day}T12:00:00+00:00"}
    shards.save_shard(store / model, Artefact({**shard.facts, **facts}, shard.arrays))


def test_a_models_holders_are_found_without_a_look_at_other_models(shelves, monkeypatch):
    monkeypatch.setattr(shards, "model_ids", None)
    assert set(shelves.holders(MODEL)) == set(PARTIES)
    assert len(shelves.holders(FRAUD)) == len(PARTIES)
    with pytest.raises(ConfigError, match=f"there is no model {TWIN} here"):
        shelves.holders(TWIN)


@pytest.mark.parametrize(
    ("text", "model"),
    [(MODEL, MODEL), (FRAUD, FRAUD), ("credit", NEWER), ("fraud", FRAUD), ("latest", NEWER)],
)
def test_an_id_a_jobs_name_and_latest_select_a_model(shelves, text, model):
    assert shelves.named(text) == model
    assert shelves.has(text)


def test_what_selects_no_model_is_refused_with_those_that_are_here(shelves, tmp_path):
    with pytest.raises(ConfigError, match="there is no model fraude here") as refused:
        shelves.named("fraude")
    assert f"write an id: {MODEL}, {NEWER}, {FRAUD}; or latest" in refused.value.todo
    assert not shelves.has("fraude")
    with pytest.raises(ConfigError, match="there is no model latest here") as refused:
        Shelves({"bank": tmp_path / "empty"}).named("latest")
    assert refused.value.todo.startswith("no models lie here")


@pytest.mark.parametrize("text", ["credit", "latest"])
def test_models_of_one_second_are_not_chosen_between(shelves, text):
    add(shelves.stores["bank"] / "models", shelves.shard(MODEL, "bank"), TWIN)
    with pytest.raises(ConfigError, match=f"{text} can mean 2 models") as refused:
        shelves.named(text)
    assert refused.value.todo.startswith(f"write an id: {NEWER}, {TWIN};")


@pytest.mark.parametrize(
    "args",
    [
        ["show"],
        ["rules"],
        ["export", "--format", "json", "--out", "own.json"],
        ["picture", "--out", "tree.svg"],
        ["delete", "--yes"],
    ],
    ids=lambda args: args[0],
)
def test_every_command_that_asks_for_a_model_takes_latest(shelves, args, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    command, *more = args
    words = [command, "latest", *more, "--cluster", str(shelves.cluster), "--json"]
    said = CliRunner().invoke(model_group, words, catch_exceptions=False)
    assert said.exit_code == 0, said.stderr
    assert json.loads(said.stdout)["model"] == NEWER


class Lists(CoordinatorClient):
    """A client whose coordinator has some jobs."""

    def __init__(self):
        pass

    async def jobs(self):
        """Two models of one name, a later prediction with one of them, and a failed job."""
        rows = [
            ("credit-1", "credit", "secureboost", JobState.FINISHED),
            ("credit-2", "credit", "federboost-vertical", JobState.FINISHED),
            ("scores-1", "scores", "predict", JobState.FINISHED),
            ("credit-3", "credit", "secureboost", JobState.FAILED),
        ]
        return [
            JobStatus(id=id_, name=name, protocol=protocol, state=state, created=1e9 + number)
            for number, (id_, name, protocol, state) in enumerate(rows)
        ]


@pytest.mark.parametrize(
    ("text", "model"),
    [
        ("latest", "credit-2"),
        ("credit", "credit-2"),
        ("credit-1", "credit-1"),
        ("elsewhere", "elsewhere"),
    ],
)
def test_a_job_file_names_its_model_as_a_command_does(text, model):
    spec = {"name": "scores", "params": {"model": text, "batch_rows": 5}}
    handed_in = json.loads(asyncio.run(Lists()._with_model(json.dumps(spec).encode())))
    assert handed_in == {"name": "scores", "params": {"model": model, "batch_rows": 5}}


def test_a_variable_names_the_party_where_no_option_does(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDBOOST_CONFIG", "configs/party-bank.yaml")
    monkeypatch.chdir(ROOT)
    found = open_shelves(None, None)
    assert list(found.stores) == ["bank"]
    (tmp_path / "var" / "telco" / "models").mkdir(parents=True)
    assert list(open_shelves(None, tmp_path).stores) == ["telco"]
