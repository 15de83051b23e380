"""An exported model is what XGBoost predicts with: the same leaves, the same numbers."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedboost.core import local, objectives
from fedboost.core.objectives import OBJECTIVES
from fedboost.core.params import TreeParams
from fedboost.flow import Artefact
from fedboost.model import columns
from fedboost.model import whole as everybodys
from fedboost.model.xgboost_json import feature_names, xgboost_json
from tests import tiers
from tests.support.models import leaves, margins, random_model, random_rows, whole
from tests.support.whole_models import KINDS, labels, model_of, table, trained

xgb = pytest.importorskip("xgboost")

MARGIN_GAP_MAX = 2e-6  # four leaves of about 1, each rounded to 32 bits


def loaded(model):
    return xgb.Booster(model_file=bytearray(xgboost_json(model).encode()))


def summed_as_xgboost_does(model, values):
    """float32 (n, outputs): the base margin and, tree after tree, the leaves, each sum rounded.

    The base margin is XGBoost's own, which takes a logarithm that may differ in its last bit.
    """
    raw = json.loads(xgboost_json(model))
    outputs, trees = len(model.facts["base_margin"]), raw["learner"]["gradient_booster"]["model"]
    reached, width = leaves(model, values), model.arrays["value"].shape[1]
    added = []
    for number, tree in enumerate(trees["trees"]):
        value = np.array(tree["split_conditions"], np.float32)
        added.append(value[reached[:, number // width]])
        ends = np.array(tree["left_children"]) == -1
        tree["split_conditions"] = np.where(ends, np.float32(0), value).tolist()
    bare = xgb.Booster(model_file=bytearray(json.dumps(raw).encode()))
    base = bare.predict(rows_of(model, values), output_margin=True)
    total = base.reshape(len(values), outputs).astype(np.float32)
    for value, output in zip(added, trees["tree_info"], strict=True):
        total[:, output] += value
    return total


def rows_of(model, values):
    types = ["c" if known else "float" for known in model.categories]
    return xgb.DMatrix(
        values, feature_names=feature_names(model), feature_types=types, enable_categorical=True
    )


@pytest.mark.parametrize("seed", range(8))
def test_rows_reach_the_same_leaves(seed):
    model = whole(random_model(seed))
    values = random_rows(seed, 300, model.categories)
    reached = loaded(model).predict(rows_of(model, values), pred_leaf=True)
    assert np.array_equal(reached.astype(np.int64), leaves(model, values))


@given(
    seed=st.integers(0, 2**20),
    kind=st.sampled_from([("binary:logistic", 1, 1), ("reg:squarederror", 1, 1),
                          ("count:poisson", 1, 1), ("reg:tweedie", 1, 1),
                          ("reg:gamma", 1, 1), ("reg:pseudohubererror", 1, 1),
                          ("multi:softprob", 3, 1), ("multi:softprob", 1, 3)]),
    trees=st.sampled_from([3, 9]),
)  # fmt: skip
@settings(max_examples=tiers.examples(12), deadline=None)
def test_margins_of_merged_models_are_the_32_bit_sums_to_the_bit(seed, kind, trees):
    objective, outputs, per_round = kind
    model = whole(random_model(seed, objective, outputs, trees, per_round))
    values = random_rows(seed, 40, model.categories)
    theirs = loaded(model).predict(rows_of(model, values), output_margin=True)
    assert theirs.tobytes() == summed_as_xgboost_does(model, values).tobytes()
    np.testing.assert_allclose(
        theirs.reshape(40, -1), margins(model, values), rtol=0, atol=2 * MARGIN_GAP_MAX
    )


@given(
    seed=st.integers(0, 2**20),
    kind=st.sampled_from(sorted(KINDS)),
    params=st.fixed_dictionaries(
        {
            "n_estimators": st.integers(1, 4),
            "max_depth": st.integers(1, 6),
            "max_bin": st.integers(2, 24),
            "learning_rate": st.sampled_from([0.05, 0.3, 1.0]),
            "early_stopping_rounds": st.sampled_from([None, 1]),
        }
    ),
)
@settings(max_examples=tiers.examples(20), deadline=None)
def test_any_trained_model_predicts_in_xgboost_what_it_predicts_here(seed, kind, params):
    frame = table(seed, rows=50)
    stops = params.pop("early_stopping_rounds") is not None
    settings_ = {**KINDS[kind], **params}
    check = table(seed + 1, rows=30) if stops else None
    found = trained(frame, **settings_) if check is None else stopped(frame, check, settings_)
    shard = model_of(frame, found)
    model, values = (
        everybodys.as_joined(shard),
        np.asarray(columns.model_values(shard.facts, frame)),
    )
    booster, rows = loaded(model), rows_of(model, values)
    ours = everybodys.margins(shard, frame)
    theirs = booster.predict(rows, output_margin=True).reshape(ours.shape)
    assert theirs.tobytes() == summed_as_xgboost_does(model, values).tobytes()
    np.testing.assert_allclose(theirs, ours, rtol=2e-6, atol=2e-6)
    assert booster.num_boosted_rounds() == len(shard.facts["forest"]) == found.best_round + 1


def stopped(frame, check, params):
    """A model whose training has stopped early, or might have."""
    wanted = {"max_bin": 6, "early_stopping_rounds": 1, **params}
    own = TreeParams(**wanted)
    one, other = (
        local.TrainingTable(f.values, labels(f, own), categorical=f.categorical)
        for f in (frame, check)
    )
    return local.train(one, own, other)


@pytest.mark.parametrize(
    "objective",
    [name for name, record in OBJECTIVES.items() if not record.has_many_classes],
)
def test_predictions_are_ours(objective):
    model = whole(random_model(5, objective))
    values = random_rows(5, 300, model.categories)
    ours = margins(model, values)
    booster = loaded(model)
    theirs = booster.predict(rows_of(model, values), output_margin=True)
    np.testing.assert_allclose(theirs, ours[:, 0], rtol=0, atol=MARGIN_GAP_MAX)
    predicted = objectives.transform(objective, ours)[:, 0]
    found = booster.predict(rows_of(model, values))
    np.testing.assert_allclose(found, predicted, rtol=MARGIN_GAP_MAX, atol=MARGIN_GAP_MAX)


def test_a_tree_with_a_leaf_for_each_class_becomes_a_tree_for_each_class():
    model = whole(random_model(6, "multi:softprob", outputs=3))
    values = random_rows(6, 300, model.categories)
    booster = loaded(model)
    assert booster.num_boosted_rounds() == 4
    predicted = objectives.transform("multi:softprob", margins(model, values))
    found = booster.predict(rows_of(model, values))
    np.testing.assert_allclose(found, predicted, rtol=0, atol=MARGIN_GAP_MAX)
    reached = booster.predict(rows_of(model, values), pred_leaf=True).reshape(300, 4, 3)
    assert np.array_equal(reached[:, :, 2].astype(np.int64), leaves(model, values))


def test_trees_of_a_class_each_are_the_classes_trees():
    model = whole(random_model(6, "multi:softprob", trees=12, per_round=3))
    values = random_rows(6, 300, model.categories)
    booster = loaded(model)
    assert booster.num_boosted_rounds() == 4
    ours = margins(model, values)
    assert ours.shape == (300, 3)
    theirs = booster.predict(rows_of(model, values), output_margin=True)
    np.testing.assert_allclose(theirs, ours, rtol=0, atol=MARGIN_GAP_MAX)
    found = booster.predict(rows_of(model, values))
    predicted = objectives.transform("multi:softprob", ours)
    np.testing.assert_allclose(found, predicted, rtol=0, atol=MARGIN_GAP_MAX)
    reached = booster.predict(rows_of(model, values), pred_leaf=True)
    assert np.array_equal(reached.astype(np.int64).reshape(300, 12), leaves(model, values))


@pytest.mark.parametrize("margin", [-120.0, -9.0, -2.65, 0.0, 2.0, 4.0, 9.0, 40.0])
def test_every_base_margin_of_a_probability_is_kept(margin):
    made = random_model(7)
    bank = made["bank"]
    made["bank"] = Artefact({**bank.facts, "base_margin": [margin]}, bank.arrays)
    model = whole(made)
    values = random_rows(7, 50, model.categories)
    theirs = loaded(model).predict(rows_of(model, values), output_margin=True)
    np.testing.assert_allclose(theirs, margins(model, values)[:, 0], rtol=1e-6, atol=3e-6)


def test_the_file_is_strict_json_with_names_that_xgboost_takes():
    def refuse(word):
        raise AssertionError(f"{word} is not JSON")

    model = whole(random_model(8))
    raw = json.loads(xgboost_json(model), parse_constant=refuse)
    assert feature_names(model) == [
        "bank.age",
        "bank.income",
        "bank.branch",
        "telco.calls",
        "telco.age",
        "telco.odd _a_b_",
        "telco.city",
        "shop.spent",
    ]
    assert raw["learner"]["feature_names"] == feature_names(model)
    booster = loaded(model)
    assert booster.feature_names == feature_names(model)
    assert len(booster.get_dump()) == 4


def named(name):
    """A model whose last column has such a name."""
    made = random_model(8)
    facts = {**made["shop"].facts, "columns": [name]}
    made["shop"] = Artefact(facts, made["shop"].arrays)
    return whole(made)


@pytest.mark.parametrize("name", ["größe", "通话", "😀", 'a "b"', "a\\b", "a\tb", "e\u0301"])
def test_a_name_of_any_letters_is_read_by_xgboost_as_it_is(name):
    found = named(name)
    booster = loaded(found)
    assert booster.feature_names == feature_names(found)
    assert booster.feature_names[-1].endswith(name)
    booster.predict(rows_of(found, np.zeros((1, len(found.columns)), np.float32)))


@pytest.mark.parametrize("sign", ["\0", "\b", "\f", "\x1f", "<"])
def test_a_sign_that_xgboost_does_not_read_back_is_an_underscore(sign):
    found = named(f"a{sign}b")
    assert loaded(found).feature_names == feature_names(found)
    assert feature_names(found)[-1].endswith("a_b")


def test_names_that_fall_together_are_told_apart():
    made = random_model(8)
    telco = made["telco"]
    facts = {**telco.facts, "columns": ["a[", "a]", "a_", "city"]}
    made["telco"] = Artefact(facts, telco.arrays)
    assert feature_names(whole(made))[3:6] == ["telco.a_", "telco.a__2", "telco.a__3"]


def test_gain_and_cover_are_where_xgboost_keeps_them():
    model = whole(random_model(9))
    scores = loaded(model).get_score(importance_type="total_gain")
    ours: dict[str, float] = {}
    for feature, owner, gain in zip(
        model.arrays["feature"], model.arrays["owner"], model.arrays["gain"], strict=True
    ):
        if owner >= 0:
            name = feature_names(model)[feature]
            ours[name] = ours.get(name, 0.0) + gain
    assert set(scores) == set(ours)
    for name, gain in ours.items():
        assert scores[name] == pytest.approx(gain, rel=1e-5)


@pytest.mark.parametrize(("step", "written"), [(None, 0.7), (0.2, 0.2), (0.0, 0.0)])
def test_a_model_of_counts_goes_on_with_its_own_max_delta_step(step, written):
    model = whole(random_model(5, "count:poisson"))
    model.facts["params"]["max_delta_step"] = step
    settings_ = json.loads(loaded(model).save_config())["learner"]["objective"]
    assert float(settings_["poisson_regression_param"]["max_delta_step"]) == pytest.approx(written)
