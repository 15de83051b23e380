"""`fedboost model` on stores on disk: lists, shows, exports, deletes, and what it refuses."""

import json
import re

import click
import numpy as np
import pytest
import yaml
from click.testing import CliRunner

from fedboost.cli.groups import model_group
from fedboost.cli.predicting import PredictionRequest, Target
from fedboost.flow import Artefact, Table
from fedboost.ground.errors import ConfigError
from fedboost.model import shards
from fedboost.model.xgboost_json import xgboost_json
from fedboost.runtime.store.rows_in_common import Disclosures
from tests.support.models import (
    MODEL,
    PARTIES,
    own_shard,
    random_model,
    shared_rules,
    whole,
)

OTHER = "fraud-11111111"
TABLE = Table("bank", ("telco", "shop"))


@pytest.fixture
def made():
    return random_model(21)


@pytest.fixture
def folder(made, tmp_path):
    """A local cluster's folder with one model, and the settings file of each party."""
    for party in PARTIES:
        store = tmp_path / "var" / party
        shards.save_shard(store / "models" / MODEL, made[party])
        raw = {
            "name": party,
            "listen": "127.0.0.1:7101",
            "insecure_loopback": True,
            "coordinator": {"name": "coord", "address": "127.0.0.1:7100"},
            "store": str(store),
            "datasets": {"credit": {"path": "none.parquet"}},
        }
        (tmp_path / f"{party}.yaml").write_text(yaml.safe_dump(raw))
    return tmp_path


def model(*args, **more):
    """What the command prints and returns; what it raises is raised."""
    words = [str(arg) for arg in args]
    more |= {"catch_exceptions": False, "standalone_mode": False}
    return CliRunner().invoke(model_group, words, **more)


def refused(*args):
    with pytest.raises(ConfigError) as caught:
        model(*args)
    return caught.value


def test_list_shows_every_model_once_as_its_guest_knows_it(made, folder):
    shards.save_shard(folder / "var" / "shop" / "models" / OTHER, made["shop"])
    found = json.loads(model("list", "--cluster", folder, "--json").stdout)["models"]
    assert [one["here"] for one in found] == [["bank", "shop", "telco"], ["shop"]]
    first = found[0]
    assert first["model"] == MODEL
    assert (first["role"], first["party"], first["trees"]) == ("guest", "bank", 4)
    assert first["metrics"] == {"train": {"auc": pytest.approx(0.8)}}
    text = model("list", "--cluster", folder).stdout
    assert MODEL in text
    assert "binary:logistic" in text


def test_list_of_a_party_shows_its_own_shards(folder):
    found = json.loads(model("list", "--config", folder / "telco.yaml", "--json").stdout)
    assert [(one["model"], one["role"]) for one in found["models"]] == [(MODEL, "host")]
    shards.delete_model(folder / "var" / "telco" / "models" / MODEL)
    assert model("list", "--config", folder / "telco.yaml").stdout == "no models\n"


def test_show_names_own_columns_and_other_owners(folder):
    text = model("show", MODEL, "--cluster", folder, "--trees", 4).stdout
    assert "telco's split" in text
    assert "income" in text
    assert "calls" not in text
    assert re.search(r"^rounds: +4\ntrees: +4$", text, re.MULTILINE)
    raw = json.loads(model("show", MODEL, "--cluster", folder, "--json").stdout)
    assert (raw["rounds"], raw["trees"]) == (4, 4)
    assert {one["party"] for one in raw["importance"]} <= set(PARTIES)
    assert raw["objective"] == "binary:logistic"


def test_show_of_one_tree_prints_that_tree_alone(folder):
    text = model("show", MODEL, "--cluster", folder, "--tree", 2).stdout
    assert [line for line in text.splitlines() if line.startswith("tree ")] == ["tree 2"]
    host = ("show", MODEL, "--cluster", folder, "--party", "telco", "--json")
    lines = [json.loads(model(*host, *more).stdout)["text"] for more in ((), ("--tree", 1))]
    assert lines[1] == [line for line in lines[0] if line.startswith("tree 1,")]
    assert "no tree 4" in refused("show", MODEL, "--cluster", folder, "--tree", 4).what


def test_show_of_a_host_has_its_splits_without_gain(folder):
    args = ("show", MODEL, "--cluster", folder, "--party", "telco", "--json")
    raw = json.loads(model(*args).stdout)
    assert raw["role"] == "host"
    assert {one["gain"] for one in raw["importance"]} == {None}


def test_words_of_a_column_cannot_steer_the_terminal(made, folder):
    facts = {**made["telco"].facts, "columns": ["a\x1b[2J", "[red]b", "c", "city"]}
    shards.save_shard(folder / "var/telco/models" / MODEL, Artefact(facts, made["telco"].arrays))
    text = model("show", MODEL, "--config", folder / "telco.yaml", "--trees", 4).stdout
    assert "\x1b" not in text
    assert "[red]b" in text


def test_show_names_categories_and_they_cannot_steer_the_terminal_either(made, folder):
    shown = ("show", MODEL, "--config", folder / "telco.yaml", "--trees", 4)
    assert "city in {'city " in model(*shown).stdout
    cities = [f"\x1b[2J\u202e\n[red]{i}" for i in range(12)]
    facts = {**made["telco"].facts, "categories": {"city": cities}}
    shards.save_shard(folder / "var/telco/models" / MODEL, Artefact(facts, made["telco"].arrays))
    text = model(*shown).stdout
    assert "city in {'\\x1b[2J\\u202e\\n[red]" in text
    assert text.replace("\n", "").isprintable()


def test_rules_of_a_guest_say_how_many_it_does_not_know(folder):
    bank = random_model(2)["bank"]  # some of its leaves lie below its own splits alone
    shards.save_shard(folder / "var/bank/models" / MODEL, bank)
    text = model("rules", MODEL, "--cluster", folder).stdout
    rules, unknown = shared_rules(bank)
    assert f"{unknown} leaves lie below splits of other parties" in text
    assert rules[0].rule[0] in text
    assert "calls" not in text
    raw = json.loads(model("rules", MODEL, "--config", folder / "bank.yaml", "--json").stdout)
    assert (raw["model"], raw["unknown_leaves"]) == (MODEL, unknown)
    assert [one["rule"] for one in raw["rules"]] == [one.rule for one in rules[:10]]


def test_rules_of_nothing_and_of_a_host_are_refused_or_none(made, folder):
    error = refused("rules", MODEL, "--config", folder / "telco.yaml")
    assert "its guest bank" in error.what
    error = refused("rules", MODEL, "--cluster", folder, "--columns", "calls")
    assert error.where == {"column": "calls"}
    one = {name: array[:1] for name, array in made["bank"].arrays.items()}
    one |= {"owner": np.array([-1], np.int16)}
    shards.save_shard(folder / "var/bank/models" / OTHER, Artefact(made["bank"].facts, one))
    assert model("rules", OTHER, "--config", folder / "bank.yaml").stdout == "no rules\n"


def test_words_of_a_rule_cannot_steer_the_terminal(folder):
    names = ["\x1b[2Jage", "[red]income", "branch"]
    categories = {"branch": ["\x1b[31mnorth", "south\n", "west"]}
    bank = random_model(2)["bank"]
    facts = {**bank.facts, "columns": names, "categories": categories}
    shards.save_shard(folder / "var/bank/models" / MODEL, Artefact(facts, bank.arrays))
    text = model("rules", MODEL, "--cluster", folder, "--top", 100).stdout
    assert "\x1b" not in text
    assert "[red]income" in text


def test_export_of_a_cluster_takes_every_shard_from_its_stores(made, folder):
    model("export", MODEL, "--cluster", folder, "--out", folder / "m.json")
    assert (folder / "m.json").read_text() == xgboost_json(whole(made))


def test_a_shard_that_nobody_has_signed_is_no_consent(made, folder):
    out, own = folder / "m.json", folder / "telco.json"
    host = ("--config", folder / "telco.yaml")
    model("export", MODEL, *host, "--format", "json", "--out", own)
    assert own.read_text() == own_shard(made["telco"])
    error = refused("export", MODEL, "--config", folder / "bank.yaml", "--with", own, "--out", out)
    assert error.what == "the file is no release of a model"
    assert error.where == {"file": str(own)}
    assert not out.exists()


def test_a_party_without_a_certificate_cannot_consent(folder):
    host, out = ("--config", folder / "telco.yaml"), folder / "telco.json"
    policy = {"policy": {"peers": ["bank"]}, "peers": {"bank": "127.0.0.1:7102"}}
    raw = yaml.safe_load((folder / "telco.yaml").read_text()) | policy
    (folder / "telco.yaml").write_text(yaml.safe_dump(raw))
    error = refused("release", MODEL, *host, "--to", "bank", "--out", out, "--yes")
    assert error.what.startswith("insecure_loopback has no certificate")
    assert not out.exists()


def test_export_refuses_what_cannot_be(folder):
    bank, out = ("--config", folder / "bank.yaml"), ("--out", folder / "m.json")
    host = ("--config", folder / "telco.yaml")
    assert "its guest bank" in refused("export", MODEL, *host, *out).what
    assert "no model none" in refused("export", "none", *bank, *out).what
    assert "no model ../bank here" in refused("export", "../bank", *bank, *out).what
    assert "splits of telco, shop are missing" in refused("export", MODEL, *bank, *out).what
    absent = refused("export", MODEL, *bank, *out, "--with", "none.json")
    assert absent.where == {"file": "none.json"}
    both = refused("export", MODEL, "--cluster", folder, *out, "--with", "none.json")
    assert both.what.startswith("--with needs --config")
    with pytest.raises(click.UsageError, match="requires --format json"):
        model("export", MODEL, *bank, *out, "--party", "bank")
    with pytest.raises(click.UsageError, match="requires --format xgboost-json"):
        model("export", MODEL, *bank, *out, "--format", "json", "--with", "none.json")
    assert not (folder / "m.json").exists()


def test_delete_asks_first_and_then_deletes_every_shard_here(folder):
    kept = model("delete", MODEL, "--cluster", folder, input="n\n")
    assert kept.return_value == 1
    assert shards.model_ids(folder / "var" / "bank" / "models") == [MODEL]
    said = json.loads(model("delete", MODEL, "--cluster", folder, "--yes", "--json").stdout)
    assert said == {"model": MODEL, "deleted": ["bank", "shop", "telco"]}
    assert all(shards.model_ids(folder / "var" / p / "models") == [] for p in PARTIES)
    assert "no model" in refused("delete", MODEL, "--cluster", folder, "--yes").what


def test_delete_at_one_party_leaves_the_others(folder):
    model("delete", MODEL, "--config", folder / "telco.yaml", "--yes")
    left = {p: shards.model_ids(folder / "var" / p / "models") for p in PARTIES}
    assert left == {"bank": [MODEL], "telco": [], "shop": [MODEL]}


def test_delete_removes_what_the_training_disclosed_and_nothing_of_other_jobs(folder):
    indices = [Disclosures(folder / "var" / party) for party in PARTIES]
    for each in indices:
        for job in (MODEL, OTHER):
            each.save(job, Artefact({"epsilon": 4.0}), "federboost-vertical", TABLE)
    model("delete", MODEL, "--cluster", folder, "--yes")
    for each in indices:
        with pytest.raises(ConfigError, match="is kept here"):
            each.check(MODEL, "federboost-vertical", TABLE)
        each.check(OTHER, "federboost-vertical", TABLE)
        each.delete(MODEL)  # what is not there is no error


def test_whose_models_are_meant_must_be_clear(folder, tmp_path_factory):
    both = refused("list", "--config", folder / "bank.yaml", "--cluster", folder)
    assert "exclude each other" in both.what
    nowhere = tmp_path_factory.mktemp("empty")
    assert refused("list", "--cluster", nowhere).where == {"folder": str(nowhere)}


ALL = ("--data", "bank=a", "--data", "telco=b", "--data", "shop=c")


def test_predict_wants_data_of_every_party_of_the_model(folder):
    where = ("--cluster", folder, "--out", folder / "p.parquet")
    assert "missing for shop" in refused("predict", MODEL, *where, *ALL[:4]).what
    error = refused("predict", MODEL, *where, *ALL, "--data", "mill=d")
    assert error.what == "--data names mill, which has no part in the model"
    assert refused("predict", MODEL, *where, *ALL).where == {"party": "bank", "file": "a"}
    lost = ("--cluster", folder, "--out", folder / "none" / "p.parquet")
    assert "--out does not exist" in refused("predict", MODEL, *lost, *ALL).what
    odd = ("--cluster", folder, "--out", folder / "p.txt")
    assert "says no format" in refused("predict", MODEL, *odd, *ALL).what


def test_predict_over_daemons_wants_the_guest_and_its_declared_data(folder):
    out = ("--out", folder / "p.parquet")
    error = refused("predict", MODEL, "--config", folder / "bank.yaml", *out, *ALL)
    assert "declared no data set 'a'" in error.what
    assert "credit" in error.todo
    error = refused("predict", MODEL, "--config", folder / "shop.yaml", *out, *ALL)
    assert "its guest bank" in error.what


def test_the_job_of_a_prediction_has_the_ids_of_the_training(made, tmp_path):
    facts = {**made["bank"].facts, "ids": {"bank": ["key"], "telco": ["a", "b"], "shop": ["id"]}}
    data = dict.fromkeys(PARTIES, "new")
    target = Target(tmp_path / "p.parquet")
    wish = PredictionRequest.of(Artefact(facts, made["bank"].arrays), data, target)
    spec = wish.job(data)
    assert {party: one.id for party, one in spec.data.items()} == facts["ids"]
    assert {one.dataset for one in spec.data.values()} == {"new"}
    assert (spec.protocol, spec.params) == ("predict", {"model": MODEL})
    assert (spec.parties.guest, tuple(spec.parties.hosts)) == (PARTIES[0], PARTIES[1:])
