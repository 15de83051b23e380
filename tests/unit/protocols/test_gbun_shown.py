"""What people see of boosted networks: models in the terminal and in files, jobs on their page."""

import io
import json
from dataclasses import replace

import numpy as np
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from rich.console import Console

from fedboost.cli.groups import model_group
from fedboost.flow import Artefact
from fedboost.ground.errors import ConfigError, DataError
from fedboost.model import kinds, networks, shards
from fedboost.report.page import render_page
from fedboost.report.progress import Progress, result_summary
from tests.support.federated import GUEST, HOSTS, now, run_job
from tests.support.gbun_jobs import made
from tests.support.horizontal_jobs import arrow_tables, spec_of
from tests.support.models import own_shard
from tests.support.secureboost_jobs import CLASSES

ROUNDS = 3


@pytest.fixture(scope="module")
def job():
    return made({**CLASSES, "n_estimators": ROUNDS, "eval_metric": ["mlogloss", "map"]})


@pytest.fixture(scope="module")
def done(job, tmp_path_factory):
    """The job as a whole cluster has finished it."""
    spec = spec_of(job).model_copy(update={"protocol": "gbun"})
    finished = run_job(tmp_path_factory.mktemp("gbun"), arrow_tables(job), spec)
    assert finished.state == "finished", finished.journal.status
    return finished


@pytest.fixture(scope="module")
def folder(job, done, tmp_path_factory):
    """A local cluster's folder with the model, and a table to score."""
    found = tmp_path_factory.mktemp("cluster")
    for party, shard in done.shards.items():
        shards.save_shard(found / "var" / party / "models" / done.result["model"], shard)
    pq.write_table(arrow_tables(job)[HOSTS[0]], found / "new.parquet")
    return found


def said(*words):
    """What `fedboost model` says."""
    ran = CliRunner().invoke(model_group, [str(word) for word in words])
    if ran.exception is not None and not isinstance(ran.exception, SystemExit):
        raise ran.exception
    assert ran.exit_code == 0, ran.output
    return ran.output


# Models


def test_networks_have_no_rules_that_trees_could_share(folder, done):
    with pytest.raises(ConfigError, match="networks, which have no split rules"):
        said("rules", done.result["model"], "--cluster", folder)


def test_a_model_is_listed_and_shown_by_its_rounds(folder, done):
    model = done.result["model"]
    listed = json.loads(said("list", "--cluster", folder, "--json"))["models"]
    assert [(one["rounds"], one["trees"], one["protocol"]) for one in listed] == [(3, 0, "gbun")]
    shown = said("show", model, "--cluster", folder)
    assert "rounds:     3" in shown
    assert "networks:   8 outputs each, " in shown
    assert "columns:    5 of every party, which holds the whole model" in shown
    assert "round 0: network 0, weights from " in shown
    for word in ("trees:", "importance", "splits"):
        assert word not in shown
    found = json.loads(said("show", model, "--cluster", folder, "--json"))
    assert (found["importance"], found["outputs"]) == ([], 8)
    assert found["metrics"]["validation"] == done.result["metrics"]["validation"]


@pytest.mark.parametrize("party", [GUEST, HOSTS[1]])
def test_any_party_exports_all_rounds_as_json(folder, done, party, tmp_path):
    out = tmp_path / "model.json"
    where = ("--cluster", folder, "--format", "json", "--party", party, "--out", out)
    said("export", done.result["model"], *where)
    read, shard = json.loads(out.read_text()), done.shards[party]
    assert (read["format"], read["party"], read["rounds"]) == ("fedboost-shard", party, ROUNDS)
    assert read["columns"] == ["f0", "f1", "f2", "f3", "f4"]
    for name in ("column_mean", "column_deviation"):
        assert read[name] == shard.arrays[name].tolist()
    assert [one["network"] for one in read["networks"]] == [0, 1, 2]
    for name in ("mean", "deviation"):
        assert [one[name] for one in read["networks"]] == shard.arrays[name].tolist()
    weights = np.array([one["weights"] for one in read["networks"]], np.float32)
    np.testing.assert_array_equal(weights, shard.arrays["weights"])


def test_xgboost_reads_no_networks(folder, done, tmp_path):
    with pytest.raises(ConfigError) as refused:
        said("export", done.result["model"], "--cluster", folder, "--out", tmp_path / "x.json")
    assert refused.value.what == "XGBoost reads trees, and the model is made of networks"
    assert refused.value.todo.endswith("--format json")


def test_a_stored_model_predicts_what_it_predicted_in_training(folder, done, job, tmp_path):
    out, party = tmp_path / "p.parquet", HOSTS[0]
    data = ("--data", f"{party}={folder / 'new.parquet'}")
    said("predict", done.result["model"], "--cluster", folder, *data, "--out", out)
    scored = pq.read_table(out)
    expected = kinds.kind_of(done.shards[party].facts).predict_alone(
        done.shards[party], job.frames()[party]
    )
    found = np.stack([scored.column(name) for name in scored.column_names[-3:]], axis=1)
    np.testing.assert_allclose(found, expected, atol=1e-12)


FORMS = ("standard", "rank", "bins", "auto")


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("form", FORMS)
def test_shards_come_back_from_disk_as_they_were(form, sparse, tmp_path):
    job = made({"n_estimators": 3, "columns": form}, sparse=sparse, missing=0.0)
    shard = now(job.room().walk())[GUEST]
    shards.save_shard(tmp_path / "model", shard)
    again = shards.load_shard(tmp_path / "model")
    expected = networks.margins(shard, job.frame)
    assert networks.margins(again, job.frame).tobytes() == expected.tobytes()
    assert len(own_shard(Artefact({**shard.facts, "party": GUEST}, shard.arrays))) > 100


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("form", FORMS)
def test_tables_are_scored_alike_whether_they_are_sparse_or_not(form, sparse):
    job = made({"columns": form}, sparse=sparse, missing=0.0, zero=0.5)
    shard, other = now(job.room().walk())[GUEST], replace(job, is_sparse=not sparse)
    expected = networks.margins(shard, job.frame)
    np.testing.assert_allclose(networks.margins(shard, other.frame), expected, atol=1e-9)


@pytest.mark.parametrize("form", ["bins", "auto"])
def test_a_model_without_its_cuts_is_refused_and_shows_them(form):
    shard = now(made({"columns": form}).room().walk())[GUEST]
    for name in ("cuts", "cut_counts", "lacks"):
        lost = {own: array for own, array in shard.arrays.items() if own != name}
        with pytest.raises(DataError, match=f"array {name} is not there"):
            networks.load_rounds(Artefact(shard.facts, lost))
    unsaid = {name: fact for name, fact in shard.facts.items() if name != "reading"}
    with pytest.raises(DataError, match="has no reading"):
        networks.load_rounds(Artefact(unsaid, shard.arrays))
    facts, _ = kinds.kind_of(shard.facts).exported_parts(shard)
    assert facts["cuts"] == shard.arrays["cuts"].tolist()
    assert (
        facts["reading"] == kinds.kind_of(shard.facts).summary(own_facts(shard))["reading"] == form
    )


def own_facts(shard):
    """A shard's facts as a party keeps them."""
    said = dict.fromkeys(("job", "name", "protocol", "party", "role", "guest", "hosts"), "")
    return {**shard.facts, **said}


def test_a_damaged_model_is_refused(done):
    shard = done.shards[GUEST]
    for name in ("networks", "mean", "deviation", "weights", "column_mean"):
        short = {**shard.arrays, name: shard.arrays[name][:-1]}
        with pytest.raises(DataError, match=f"array {name} is not there, or not of its shape"):
            networks.load_rounds(Artefact(shard.facts, short))
        lost = {own: array for own, array in shard.arrays.items() if own != name}
        with pytest.raises(DataError, match=f"array {name} is not there"):
            networks.load_rounds(Artefact(shard.facts, lost))
    with pytest.raises(DataError, match="made of trees, expected networks"):
        networks.load_rounds(Artefact({**shard.facts, "kind": "trees"}, shard.arrays))


# Jobs


def test_a_finished_job_speaks_of_rounds_not_of_trees(done):
    assert (done.result["trees"], done.result["rounds"]) == (0, ROUNDS)
    assert done.result["seconds"]["per_tree"] == done.result["seconds"]["per_round"]
    assert done.result["seconds"]["per_round"] > 0
    text = io.StringIO()
    console = Console(file=text, width=200)
    shown = Progress(console, "job")
    for event in done.journal.events:
        shown.event(event)
    console.print(result_summary(done.result))
    words = text.getvalue()
    assert "finished with 3 rounds in" in words
    assert "per round" in words
    assert "round 3 of 3" in words
    assert "tree" not in words


def test_the_page_of_a_job_has_rounds_and_no_importance(done):
    page = render_page(done.journal)
    assert "a round (median)" in page
    assert "One round (median)" in page
    assert 'id="importance"' not in page
    assert 'href="#importance"' not in page
    assert "a tree" not in page
    assert "trees in the model" not in page
    assert "map" in page
