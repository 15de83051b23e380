"""TreeParams: what a job may say about trees, and what its writer reads when it may not."""

import pytest

from fedboost.core.metrics import METRICS
from fedboost.core.objectives import OBJECTIVES, ObjectiveParams, metrics_of
from fedboost.core.params import TreeParams
from fedboost.ground.errors import ConfigError
from fedboost.ground.settings import parse_settings


def test_the_defaults_are_valid_and_metrics_follow_the_objective():
    params = parse_settings(TreeParams, {})
    assert params.metrics == ("auc", "logloss")
    assert params.n_outputs == params.trees_per_round == 1


def test_lists_and_single_names_of_metrics_are_taken_as_yaml_gives_them():
    assert parse_settings(TreeParams, {"eval_metric": ["auc", "ks"]}).metrics == ("auc", "ks")
    assert parse_settings(TreeParams, {"eval_metric": "auc"}).metrics == ("auc",)


def test_classes_decide_the_trees_of_a_round():
    raw = {"objective": "multi:softprob", "num_class": 4}
    assert parse_settings(TreeParams, raw).trees_per_round == 4
    raw |= {"multi_output": True}
    params = parse_settings(TreeParams, raw)
    assert (params.trees_per_round, params.n_outputs) == (1, 4)


def test_every_objective_has_metrics_that_exist():
    assert {name for one in OBJECTIVES for name in metrics_of(one)} == set(METRICS)


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ({"max_depth": 15}, "max_depth"),
        ({"max_bin": 257}, "max_bin"),
        ({"learning_rate": float("nan")}, "learning_rate"),
        ({"max_depth": "5"}, "max_depth"),
        ({"objective": "multi:softprob"}, "num_class is missing"),
        ({"num_class": 3}, "num_class is only for multi:softprob"),
        ({"multi_output": True}, "multi_output needs multi:softprob"),
        ({"objective": "count:poisson", "scale_pos_weight": 2.0}, "scale_pos_weight needs"),
        ({"eval_metric": ["mlogloss"]}, "eval_metric mlogloss does not fit binary:logistic"),
        ({"eval_metric": ["auc", "auc"]}, "twice"),
        ({"base_score": 1.5}, "base_score is 1.5"),
        ({"objective": "reg:tweedie", "base_score": 0.0}, "base_score is 0.0"),
        ({"max_delta_step": -0.1}, "max_delta_step"),
        ({"objective": "reg:absoluteerror", "max_delta_step": 1.0}, "medians as leaf values"),
        ({"objective": "count:poisson", "max_delta_step": 101.0}, "100 is the most"),
        ({"objective": "reg:gamma", "base_score": 0.0}, "reg:gamma needs one above 0"),
        ({"huber_slope": 2.0}, "huber_slope needs reg:pseudohubererror, not binary:logistic"),
        ({"tweedie_variance_power": 1.2}, "tweedie_variance_power needs reg:tweedie"),
        ({"objective": "reg:huber"}, "there is no objective 'reg:huber', but binary:logistic,"),
        ({"max_leaves": 8}, "set grow_policy: lossguide"),
        ({"max_leaves": 1, "grow_policy": "lossguide"}, "give 2 or more"),
        ({"colsample_bylevel": 0.0}, "colsample_bylevel"),
        ({"max_dept": 3}, "unknown key 'max_dept'"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_name(raw, text):
    with pytest.raises(ConfigError, match=text):
        parse_settings(TreeParams, raw)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_parameters_are_kept_without_the_settings_of_other_objectives(objective):
    classes = {"num_class": 3} if OBJECTIVES[objective].has_many_classes else {}
    params = parse_settings(TreeParams, {"objective": objective, **classes})
    kept = params.model_dump(mode="json")
    others = set(ObjectiveParams.model_fields) - set(OBJECTIVES[objective].settings)
    assert set(kept) == set(TreeParams.model_fields) - others
    assert parse_settings(TreeParams, kept) == params
