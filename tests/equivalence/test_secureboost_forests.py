"""Forests per round: do parties grow the trees of one table, in as many exchanges as one tree?"""

from collections import Counter
from typing import Any

import numpy as np
import pytest

from fedboost.core import forest
from fedboost.core.params import TreeParams
from fedboost.flow import MODEL
from fedboost.model import rounds, vertical
from fedboost.model.xgboost_json import feature_names, xgboost_json
from tests.equivalence.test_secureboost_warm_start import FIRST, assert_one_job, continued
from tests.support.federated import GUEST, HOSTS, now, room_for
from tests.support.secureboost_jobs import CLASSES, VECTORS, assert_naive, assert_pooled, made

STILL: dict[str, Any] = {"forest": {"n_trees": 3, "subsample": 0.5, "colsample_bytree": 0.7}}
MOVING: dict[str, Any] = {"forest": {"dynamic": {"n_trees": [4, 1], "subsample": [0.2, 0.7]}}}
KINDS = {"still": STILL, "moving": MOVING}
OBJECTIVES: dict[str, dict[str, Any]] = {
    "binary": {},
    "classes": CLASSES,
    "vectors": VECTORS,
    "medians": {"objective": "reg:absoluteerror"},
    "counts": {"objective": "count:poisson"},
}


@pytest.mark.some(2)
@pytest.mark.parametrize("widths", [(2, 3), (2, 3, 2)], ids=str)
@pytest.mark.parametrize("objective", OBJECTIVES.values(), ids=OBJECTIVES)
@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_forests_grow_the_pooled_trees(kind, objective, widths):
    job = made({**objective, **kind, "n_estimators": 4}, widths, rows=200)
    done = assert_pooled(job)
    sizes = [len(trees) // job.own.trees_per_round for trees in done.trained.rounds]
    assert sizes == forest.trees_each_round(job.own).tolist()
    facts = done.shards[GUEST].facts
    assert facts["forest"] == sizes
    assert (
        facts["trees"]
        == sum(sizes) * job.own.trees_per_round
        == rounds.trees_after_rounds(facts)[-1]
    )


@pytest.mark.some(2)
@pytest.mark.parametrize("mode", ["mix", "layered"])
@pytest.mark.parametrize("objective", [{}, CLASSES], ids=["binary", "classes"])
@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_forests_grow_in_every_mode(kind, objective, mode):
    assert_naive(made({**objective, **kind, "mode": mode, "n_estimators": 4}, rows=200))


@pytest.mark.parametrize("scheme", ["paillier", "okamoto-uchiyama"])
def test_forests_grow_under_encryption(scheme):
    small = {"n_estimators": 2, "max_depth": 2, "max_bin": 4, "encryption": {"scheme": scheme}}
    assert_pooled(made({**MOVING, **small}, (1, 2), rows=60))


def test_forests_divide_categories_and_missing_values():
    assert_pooled(made({**STILL, "n_estimators": 3}, (2, 3), rows=200, categories=5, missing=0.2))


@pytest.mark.parametrize("n_trees", [1, 6])
def test_exchanges_do_not_depend_on_the_number_of_trees(n_trees):
    said = {"n_trees": n_trees, "subsample": 0.8}
    room = made({"forest": said, "n_estimators": 2, "max_depth": 3}, (2, 3, 2), rows=300).room()
    now(room.walk())
    first = [p.envelope for p in room.posted if p.envelope.part == 0]
    steps = Counter((envelope.step, envelope.receiver) for envelope in first)
    for host in HOSTS[:2]:
        assert steps["encrypt_gradients", host] == 2
        assert steps["open_layer", host] == steps["choose_splits", host] == 2 * 3
    assert steps["sum_candidates", GUEST] == steps["divide_rows", GUEST] == 2 * 2 * 3


def test_only_rows_that_some_tree_uses_are_encrypted_and_only_once():
    job = made({"forest": {"n_trees": 3, "subsample": 0.2}, "n_estimators": 2}, rows=400)
    room = job.room()
    now(room.walk())
    kept = int((~job.out).sum())
    sent = [p for p in room.posted if p.envelope.step == "encrypt_gradients"]
    to_one = [p for p in sent if p.envelope.receiver == HOSTS[0]]
    for begun in (p for p in to_one if p.envelope.part == 0):
        count = sum(p.message.rows.count for p in to_one if p.message.tree == begun.message.tree)
        assert 0.35 * kept < count < 0.65 * kept  # 1 − 0.8³ of the rows
        bits = np.unpackbits(np.frombuffer(begun.message.trees.data, np.uint8))
        inside = bits[: 3 * count].reshape(3, -1)
        assert inside.any(axis=0).all()
        assert (inside.sum(axis=0) > 1).any()


def test_a_host_draws_columns_of_its_own_for_every_tree():
    job = made({"forest": {"n_trees": 4, "colsample_bytree": 0.34}, "n_estimators": 1}, (1, 3))
    room = job.room()
    now(room.walk())
    drawn = {tree._columns.tobytes() for tree in room.state(HOSTS[0]).tree_batch.trees}
    assert all(len(tree._columns) == 1 for tree in room.state(HOSTS[0]).tree_batch.trees)
    assert len(drawn) > 1


@pytest.mark.parametrize("objective", [{}, CLASSES, VECTORS], ids=["binary", "classes", "vectors"])
def test_predictions_average_within_a_round(objective):
    job = made({**objective, **MOVING, "n_estimators": 4}, (2, 3, 2), rows=200)
    room = job.room()
    model = now(room.walk())
    frames = {party: context.frame for party, context in job.room().contexts.items()}
    artefacts = {party: {MODEL: shard} for party, shard in model.items()}
    params = {"model": "job-1", "output_margin": True}
    done = now(room_for("predict", frames, params, artefacts=artefacts).walk())
    assert done[GUEST].arrays["prediction"].tobytes() == room.state(GUEST).margin.tobytes()


@pytest.mark.parametrize("objective", [{}, CLASSES, VECTORS], ids=["binary", "classes", "vectors"])
def test_xgboost_reads_a_forest_round_by_round(objective):
    xgb = pytest.importorskip("xgboost")
    job = made({**objective, **MOVING, "n_estimators": 4}, (2, 3), rows=200)
    room = job.room()
    shards = now(room.walk())
    who = {"job": "m", "guest": GUEST, "hosts": list(HOSTS[:1])}
    named = {p: {**shard.facts, **who, "party": p} for p, shard in shards.items()}
    for party, shard in shards.items():
        shard.facts.update(named[party])
    whole = vertical.join_shards(shards[GUEST], {HOSTS[0]: shards[HOSTS[0]]})
    booster = xgb.Booster(model_file=bytearray(xgboost_json(whole).encode()))
    assert booster.num_boosted_rounds() == 4
    rows = xgb.DMatrix(job.values, feature_names=feature_names(whole))
    margin = booster.predict(rows, output_margin=True)
    ours = room.state(GUEST).margin
    np.testing.assert_allclose(margin.reshape(ours.shape), ours, rtol=0, atol=5e-6)


def test_forests_are_continued_where_they_do_not_move():
    assert_one_job(continued(made({**STILL, "max_depth": 2}, (2, 3, 2), 120)))


def test_a_moving_forest_begins_anew_behind_an_earlier_model():
    done = continued(made({**MOVING, "max_depth": 2}, (2, 3), 120), more=3)
    sizes = [
        forest.trees_each_round(TreeParams(n_estimators=n, **MOVING)).tolist() for n in (FIRST, 3)
    ]
    assert done.found[GUEST].facts["forest"] == [*sizes[0], *sizes[1]]


def test_early_stopping_keeps_whole_forests():
    params = {**MOVING, "n_estimators": 12, "early_stopping_rounds": 2, "learning_rate": 1.0}
    done = assert_pooled(made(params, (2, 3), rows=150))
    facts = done.shards[GUEST].facts
    assert len(facts["forest"]) == done.trained.best_round + 1 < len(done.trained.rounds)
