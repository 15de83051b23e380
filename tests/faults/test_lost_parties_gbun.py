"""A party is lost in boosted networks: its round begins anew with another network, or waits."""

from typing import Any

import numpy as np
import pytest

from fedboost.core import gbun, objectives
from fedboost.core.column_readings import Scale
from fedboost.core.gbun import GbunParams, Normal
from fedboost.data.holdout import validation_rows
from fedboost.data.loading import load_frame
from fedboost.data.selection import Selection
from fedboost.ground.settings import parse_settings
from fedboost.job import JobSpec
from fedboost.model import networks
from fedboost.report.page import render_page
from fedboost.runtime.cluster import local
from tests import tiers
from tests.faults import test_lost_parties as trees
from tests.faults.test_lost_parties import (
    AGGREGATOR,
    HELD,
    PARTIES,
    assert_paused,
    assert_same,
    run,
)
from tests.support.fates import LOST, SOME, Fate

pytestmark = SOME
ROUNDS = 4
PARAMS: dict[str, Any] = {
    "n_estimators": ROUNDS,
    "outputs": 8,
    "columns": "standard",
    "learning_rate": 0.5,
    "eval_metric": ["logloss", "auc"],
}
tables = trees.tables


def spec_of(aggregator=AGGREGATOR, **params):
    """A job of four parties."""
    raw = {
        "name": "lost",
        "protocol": "gbun",
        "parties": {"guest": PARTIES[0], "hosts": list(PARTIES[1:]), "aggregator": aggregator},
        "data": {party: {"dataset": local.DATASET, "label": "y"} for party in PARTIES},
        "validation": HELD,
        "params": {**PARAMS, **params},
    }
    return parse_settings(JobSpec, raw)


whole_run = trees.undisturbed(spec_of)


def rounds_of(ended):
    """Every round that was counted, by its number; one that began anew counts once."""
    events = ended.journals[-1].events
    found = [e.round.progress for e in events if e.round.progress.round == "round"]
    assert {progress.of for progress in found} == {ROUNDS}
    return list(dict.fromkeys(progress.done for progress in found))


def table_of(tables, parties):
    """The training rows of some parties, as they came from their files."""
    frames = [
        load_frame(tables[p], Selection(label="y"), party=p, needs_label=True) for p in parties
    ]
    own = [~validation_rows(frame.ids, **HELD) for frame in frames]
    x = np.concatenate([f.values[rows] for f, rows in zip(frames, own, strict=True)])
    y = np.concatenate([np.asarray(f.label)[rows] for f, rows in zip(frames, own, strict=True)])
    return x, y


def whose(tables, model, left):
    """Of each round whether its sums were over all parties ("all") or those that were left."""
    params = GbunParams(**PARAMS)
    scale = Scale(model.arrays["column_mean"], model.arrays["column_deviation"])
    groups = {"all": table_of(tables, PARTIES), "left": table_of(tables, left)}
    margins = {
        name: np.full((len(y), 1), model.facts["base_margin"][0]) for name, (_, y) in groups.items()
    }
    found = []
    for one in networks.load_rounds(model):
        fits = []
        for name, (x, y) in groups.items():
            inputs = scale.inputs(x)
            normal = Normal.from_sums(len(y), *gbun.output_sums(inputs, one.network), 1.0)
            p = objectives.transform("binary:logistic", margins[name])
            gradients = p - y[:, None], p * (1 - p)
            system = gbun.normal_equations(inputs, one.network, normal, gradients)
            weights = gbun.solve_weights(*system, params)
            near = np.allclose(one.normal.mean, normal.mean, rtol=0, atol=1e-9)
            if near and np.allclose(one.weights, weights, rtol=1e-4, atol=1e-5):
                fits.append(name)
            margins[name] += one.added(inputs)
        assert len(fits) == 1, (one.network.number, fits)
        found.append(fits[0])
    return found


# With `dropout: continue`: what is lost when, and how many networks that makes

STEPS = ("offer_fresh_keys", "deal_shares", "hold_shares", "sum_outputs", "normalise",
         "sum_system", "solve", "measure", "read_metrics")  # fmt: skip
FATES: list[tuple[str, str, int]] = [(step, "asked", 2) for step in STEPS]
FATES += [(step, "done", 2) for step in ("hold_shares", "sum_outputs", "solve", "measure")]
FATES += [("reveal_whole", when, number) for when in ("asked", "sends", "sent")
          for number in (3, 4)]  # fmt: skip
FATES += [("sum_outputs", "sends", 2), ("sum_system", "sends", 2), ("measure", "sends", 2)]
FATES += [("sum_system", "sent", 2), ("gather", "told", 3), ("open_total", "told", 3)]
FATES += [(call, "asked", 1) for call in ("close_model", "close_stage", "finish")]


CHOSEN = tiers.of_each(FATES, lambda fate: fate[0])


@pytest.mark.parametrize("fate", CHOSEN, ids=lambda fate: "-".join(map(str, fate)))
def test_a_job_goes_on_without_a_host_that_is_lost(tables, tmp_path, monkeypatch, fate):
    lost = Fate(*fate)
    ended = run(tmp_path, tables, spec_of(dropout="continue"), monkeypatch, [lost])
    assert lost.is_lost
    assert ended.status.state == "finished", ended.status
    assert ended.result["lost"] == [LOST]
    assert rounds_of(ended) == list(range(1, ROUNDS + 1))
    left = [party for party in PARTIES if party != LOST]
    for party in left[1:]:
        assert_same(ended.shards["bank"], ended.shards[party])
    model = ended.shards["bank"]
    assert model.facts["rounds"] == ROUNDS
    found = whose(tables, model, left)
    assert found == sorted(found)  # "all" comes before "left": nobody comes back
    assert found[0] == "all"
    numbers = model.arrays["networks"].tolist()
    assert numbers == sorted(set(numbers))
    assert len(set(range(numbers[-1] + 1)) - set(numbers)) <= 1


@pytest.mark.parametrize("when", ["asked", "sends"])
def test_a_round_that_a_party_left_half_way_begins_anew_with_another_network(
    tables, tmp_path, monkeypatch, when
):
    """The sums of its network are over all, those of its equations would be over the others."""
    lost = Fate("sum_system", when, 2)
    ended = run(tmp_path, tables, spec_of(dropout="continue"), monkeypatch, [lost])
    model = ended.shards["bank"]
    assert model.arrays["networks"].tolist() == [0, 2, 3, 4]
    left = [party for party in PARTIES if party != LOST]
    assert whose(tables, model, left) == ["all", "left", "left", "left"]
    page = render_page(ended.journals[-1])
    assert f"Lost {LOST}, continued without it" in page


@pytest.mark.parametrize("step", ["deal_shares", "sum_outputs"])
def test_a_round_that_was_begun_with_a_host_is_given_up_once_that_is_lost(
    tables, tmp_path, monkeypatch, step
):
    """The guest's restart pauses the second round amid its sums; then shop stays away."""
    guest, lost = Fate("sum_system", "asked", 2, "bank"), Fate(step, "asked")
    spec = spec_of(dropout="continue")
    ended = run(tmp_path, tables, spec, monkeypatch, [guest], [lost])
    assert_paused(ended, "bank")
    assert ended.status.state == "finished", ended.status
    assert ended.result["lost"] == [LOST]
    model = ended.shards["bank"]
    assert model.arrays["networks"].tolist() == [0, 2, 3, 4]
    left = [party for party in PARTIES if party != LOST]
    assert whose(tables, model, left) == ["all", "left", "left", "left"]


@pytest.mark.parametrize("step", ["sum_outputs", "sum_system", "measure"])
def test_what_was_settled_without_a_host_in_the_first_round_is_carried_on(
    tables, tmp_path, monkeypatch, step
):
    lost, guest = Fate(step, "asked"), Fate("read_metrics", "asked", 1, "bank")
    spec = spec_of(dropout="continue")
    ended = run(tmp_path, tables, spec, monkeypatch, [lost, guest], [])
    assert_paused(ended, "bank")
    assert ended.status.state == "finished", ended.status
    assert ended.result["lost"] == [LOST]
    left = [party for party in PARTIES if party != LOST]
    assert whose(tables, ended.shards["bank"], left) == ["left"] * ROUNDS


def test_an_undisturbed_job_draws_no_network_in_vain(tables, whole_run):
    for ended in whole_run.values():
        assert ended.shards["bank"].arrays["networks"].tolist() == [0, 1, 2, 3]
        assert "lost" not in ended.result
        left = [party for party in PARTIES if party != LOST]
        assert whose(tables, ended.shards["bank"], left) == ["all"] * ROUNDS


# Where the job waits

IN_WAIT = [("show_inputs", "told"), ("offer_keys", "sends"), ("count_rows", "sends")]
IN_WAIT += [("sum_columns", "sent"), ("show_reach", "sends"), ("sum_outputs", "sends")]
IN_WAIT += [("sum_system", "sends"), ("measure", "sent"), ("close_stage", "asked")]


@pytest.mark.parametrize("fate", IN_WAIT, ids="-".join)
def test_a_job_waits_for_a_lost_party_and_ends_as_if_nothing_had_happened(
    tables, tmp_path, monkeypatch, whole_run, fate
):
    ended = run(tmp_path, tables, spec_of(), monkeypatch, [Fate(*fate)], [])
    assert ended.status.state == "finished", ended.status
    assert_paused(ended, LOST)
    assert "lost" not in ended.result
    for party in PARTIES:
        assert_same(ended.shards[party], whole_run["wait"].shards["bank"])


@pytest.mark.parametrize("party", ["bank", AGGREGATOR])
@pytest.mark.parametrize("mode", ["wait", "continue"])
def test_nobody_goes_on_without_the_guest_or_the_aggregator(
    tables, tmp_path, monkeypatch, whole_run, party, mode
):
    fate = Fate("sum_system", "sends" if party == "bank" else "told", 2, party)
    ended = run(tmp_path, tables, spec_of(dropout=mode), monkeypatch, [fate], [])
    assert ended.status.state == "finished", ended.status
    assert_paused(ended, party)
    assert "lost" not in ended.result
    assert_same(ended.shards["telco"], whole_run[mode].shards["bank"])


@pytest.mark.parametrize("step", ["count_rows", "sum_columns", "show_reach"])
def test_before_there_are_rounds_a_job_waits_for_everybody(
    tables, tmp_path, monkeypatch, whole_run, step
):
    spec = spec_of(dropout="continue")
    ended = run(tmp_path, tables, spec, monkeypatch, [Fate(step, "sends")], [])
    assert ended.status.state == "finished", ended.status
    assert_paused(ended, LOST)
    assert_same(ended.shards["mill"], whole_run["continue"].shards["bank"])


def test_who_is_lost_stays_away_when_the_job_is_resumed(tables, tmp_path, monkeypatch):
    lost, guest = Fate("sum_system", "asked", 2), Fate("offer_fresh_keys", "asked", 4, "bank")
    spec = spec_of(dropout="continue")
    ended = run(tmp_path, tables, spec, monkeypatch, [lost, guest], [])
    assert ended.journals[0].status.state == "paused"
    assert ended.status.state == "finished", ended.status
    assert ended.result["lost"] == [LOST]
    left = [party for party in PARTIES if party != LOST]
    assert whose(tables, ended.shards["bank"], left) == ["all", "left", "left", "left"]
