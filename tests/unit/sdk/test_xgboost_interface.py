"""XGBoost's own interface: parameters and attributes of its estimators, with fedboost imported."""

import inspect
import json
import math
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import xgboost as xgb

from fedboost.sdk import (
    FederBoostClassifier,
    GBUNClassifier,
    HybridTreeClassifier,
    SecureBoostClassifier,
    SecureBoostRegressor,
    SecureBoostRFClassifier,
    SecureBoostRFRegressor,
    model_files,
)
from fedboost.sdk.refusals import InvalidParameterError

RNG = np.random.default_rng(7)
X = RNG.integers(0, 20, (300, 5)).astype(float)
Y = (X[:, 0] - X[:, 4] + RNG.normal(0, 4, 300) > 0).astype(int)
CLASSES = np.digitize(X[:, 1] + RNG.normal(0, 2, 300), [4, 12])
SAME = {"n_estimators": 4, "max_depth": 3, "max_bin": 256, "base_score": None}
PLAIN = {"encryption": {"scheme": "plain"}, "precision_bits": None}
THEIRS = {
    name: parameter.default
    for name, parameter in inspect.signature(xgb.XGBModel.__init__).parameters.items()
    if parameter.kind is parameter.KEYWORD_ONLY
}


def pair(y=Y, *, ours=SecureBoostClassifier, theirs=xgb.XGBClassifier, **params):
    """Return the same model of both, fitted."""
    settings = {**SAME, **params}
    return ours(**settings, **PLAIN).fit(X, y), theirs(tree_method="hist", **settings).fit(X, y)


@pytest.fixture(scope="module")
def models():
    return pair()


@pytest.mark.parametrize("name", THEIRS)
def test_every_parameter_of_xgboost_is_taken_at_its_default(name):
    given = {name: THEIRS[name]}
    model = SecureBoostClassifier(**given, **PLAIN)
    assert name in inspect.signature(SecureBoostClassifier).parameters
    ours = model.get_params()[name]
    assert ours is THEIRS[name] or ours == THEIRS[name] or math.isnan(ours)
    assert set(model.said()) == {"encryption", "precision_bits"}


def test_a_model_of_all_defaults_of_xgboost_is_the_default_model():
    spelled = SecureBoostClassifier(**THEIRS, **PLAIN).fit(X, Y)
    silent = SecureBoostClassifier(**PLAIN).fit(X, Y)
    assert np.array_equal(spelled.predict_proba(X), silent.predict_proba(X))
    assert silent.shards_["guest"].facts["trees"] == 25  # fewer than XGBoost's, by design


def test_every_attribute_of_xgboost_is_there(models):
    ours, theirs = models
    of_sklearn = {"get_metadata_routing"}
    names = {
        name
        for name in dir(xgb.XGBClassifier)
        if not name.startswith("_") and not name.endswith("_request")
    }
    for name in names - of_sklearn:
        assert hasattr(ours, name) == hasattr(theirs, name), name


@pytest.mark.parametrize("kind", ["gain", "weight", "cover", "total_gain", "total_cover"])
def test_importances_are_xgboosts(models, kind):
    before = [model.get_params()["importance_type"] for model in models]
    for model in models:
        model.set_params(importance_type=kind)
    ours, theirs = (model.feature_importances_ for model in models)
    np.testing.assert_allclose(ours, theirs, atol=1e-4)
    for model, was in zip(models, before, strict=True):
        model.set_params(importance_type=was)


def test_an_unknown_importance_is_refused(models):
    model = SecureBoostClassifier(importance_type="foo", **PLAIN, n_estimators=1).fit(X, Y)
    with pytest.raises(ValueError, match="importance_type is 'foo'"):
        _ = model.feature_importances_


@pytest.mark.parametrize("params", [{}, {"scale_pos_weight": 3.0}, {"base_score": 0.3}], ids=str)
def test_the_intercept_is_xgboosts(params):
    ours, theirs = pair(**params)
    np.testing.assert_allclose(ours.intercept_, theirs.intercept_, atol=1e-5)
    assert ours.intercept_.dtype == theirs.intercept_.dtype
    np.testing.assert_allclose(ours.predict_proba(X), theirs.predict_proba(X), atol=1e-5)


@pytest.mark.parametrize("base_score", [None, 0.5])
def test_margins_of_several_classes_are_xgboosts(base_score):
    ours, theirs = pair(CLASSES, base_score=base_score)
    np.testing.assert_allclose(
        ours.predict(X, output_margin=True), theirs.predict(X, output_margin=True), atol=1e-4
    )
    parts = ours.predict(X, pred_contribs=True)
    np.testing.assert_allclose(parts.sum(axis=2), ours.predict(X, output_margin=True), atol=1e-4)
    first = ours.predict(X, output_margin=True, iteration_range=(0, 1))
    np.testing.assert_allclose(
        first, theirs.predict(X, output_margin=True, iteration_range=(0, 1)), atol=1e-4
    )
    assert (ours.n_classes_, ours.intercept_.shape) == (3, (3,))


def test_the_counts_of_trees_are_xgboosts():
    model = SecureBoostClassifier(random_state=np.random.default_rng(3), n_estimators=7)
    assert model.get_num_boosting_rounds() == 7
    assert isinstance(model.get_xgb_params()["random_state"], int)
    assert SecureBoostClassifier(n_estimators=None).get_num_boosting_rounds() == 25


@pytest.mark.parametrize("objective", ["binary:logistic", "multi:softmax", None])
def test_the_labels_decide_between_two_classes_and_more(objective):
    for y, outputs in ((Y, 1), (CLASSES, 3)):
        model = SecureBoostClassifier(objective=objective, n_estimators=1, **PLAIN).fit(X, y)
        assert len(model.shards_["guest"].facts["base_margin"]) == outputs


def test_parallel_trees_are_a_forest():
    params = {"num_parallel_tree": 3, "subsample": 0.5, "multi_strategy": "one_output_per_tree"}
    model = SecureBoostRegressor(**{**SAME, **params}, **PLAIN).fit(X, X[:, 0])
    assert model.get_booster().num_boosted_rounds() == 4
    assert len(model.get_booster().get_dump()) == 12
    config = json.loads(model.get_booster().save_config())["learner"]["gradient_booster"]
    assert config["gbtree_model_param"]["num_parallel_tree"] == "3"
    with pytest.raises(ValueError, match="num_parallel_tree and forest"):
        SecureBoostRegressor(num_parallel_tree=3, forest={"n_trees": 2}, **PLAIN).fit(X, X[:, 0])
    with pytest.raises(ValueError, match="num_parallel_tree is 2"):
        SecureBoostRegressor(num_parallel_tree=2.5, **PLAIN).fit(X, X[:, 0])


def test_trees_with_a_value_for_each_class_are_asked_for_as_in_xgboost():
    model = SecureBoostClassifier(multi_strategy="multi_output_tree", **SAME, **PLAIN)
    assert model.fit(X, CLASSES).shards_["guest"].facts["trees"] == 4


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"booster": "gblinear"}, "boosted trees"),
    ({"booster": "dart"}, "dropout"),
    ({"tree_method": "gpu_hist"}, "binned columns"),
    ({"sampling_method": "gradient_based"}, "goss="),
    ({"interaction_constraints": [[0, 1]]}, "no protocol constrains"),
    ({"device": "cuda"}, "compute on processors"),
    ({"feature_types": ["c"] * 4}, "in `categorical`"),
    ({"feature_types": ["x"] * 5}, "in `categorical`"),
    ({"feature_weights": np.ones(5)}, "draws all columns alike"),
    ({"max_cat_to_onehot": 2}, "ordered by their gradients"),
    ({"multi_strategy": "one"}, "multi_output_tree"),
    ({"verbosity": "loud"}, "give 0 to 3"),
    ({"objective": "rank:ndcg"}, "rank rows by the scores"),
    ({"objective": "reg:gamma"}, "use SecureBoostRegressor for it"),
    ({"objective": "binary:hinge"}, "labels decide it"),
    ({"objective": lambda y, p: (p - y, y)}, "name one of XGBoost's objectives"),
    ({"eval_metric": max}, "score predictions with the function"),
    ({"callbacks": [xgb.callback.EarlyStopping(3, min_delta=0.1)]}, "any better value counts"),
    ({"callbacks": [xgb.callback.EarlyStopping(3, metric_name="auc")]}, "a job by logloss"),
    ({"callbacks": [xgb.callback.EarlyStopping(3, data_name="train")]}, "a job by validation_0"),
    ({"callbacks": [xgb.callback.LearningRateScheduler([0.1])]}, "set learning_rate"),
    ({"callbacks": [xgb.callback.TrainingCheckPoint(".")]}, "with save_model"),
]


@pytest.mark.parametrize(("params", "text"), REFUSED, ids=[str(next(iter(p))) for p, _ in REFUSED])
def test_what_has_no_effect_here_is_refused_with_what_to_do(params, text):
    with pytest.raises(InvalidParameterError, match=text):
        SecureBoostClassifier(**params, **PLAIN).fit(X, Y)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("nthread", "write 'n_jobs'"),
        ("use_label_encoder", "classes may have any names"),
        ("num_class", "follows from the labels"),
        ("updater", "grown in one way"),
        ("rate_drop", "without dropout"),
        ("quantile_alpha", "learns the median"),
        ("eta", "write 'learning_rate'"),
    ],
)
def test_parameters_of_no_estimator_say_what_to_do(name, text):
    with pytest.raises(InvalidParameterError, match=text):
        SecureBoostClassifier(**{name: 1})


def test_columns_of_the_type_c_are_categories():
    types = ["c", "q", "float", "int", "i"]
    by_type = SecureBoostClassifier(feature_types=types, max_cat_to_onehot=1, **PLAIN, **SAME)
    by_name = SecureBoostClassifier(categorical=["f0"], **PLAIN, **SAME)
    numbers = SecureBoostClassifier(**PLAIN, **SAME).fit(X, Y).predict_proba(X)
    found = by_type.fit(X, Y, eval_set=[(X, Y)]).predict_proba(X)
    assert np.array_equal(found, by_name.fit(X, Y, eval_set=[(X, Y)]).predict_proba(X))
    assert not np.array_equal(found, numbers)
    with pytest.raises(InvalidParameterError, match="in `categorical`"):
        by_type.fit({"bank": X[:, :2], "telco": X[:, 2:]}, Y)


def test_a_saved_model_is_continued(tmp_path):
    earlier = SecureBoostClassifier(**SAME, **PLAIN).fit(X, Y)
    earlier.save_model(tmp_path / "kept")
    model = SecureBoostClassifier(**SAME, **PLAIN)
    found = model.fit(X, Y, xgb_model=str(tmp_path / "kept")).predict_proba(X)
    assert np.array_equal(found, model.fit(X, Y, xgb_model=earlier).predict_proba(X))
    assert model.get_booster().num_boosted_rounds() == 8
    with pytest.raises(InvalidParameterError, match="no estimator was saved there"):
        model.fit(X, Y, xgb_model=str(tmp_path / "absent"))


@pytest.mark.parametrize("name", ["m.json", "m.ubj", "m"])
def test_a_saved_model_is_one_file_that_xgboost_reads(models, tmp_path, name):
    ours, _ = models
    ours.save_model(tmp_path / name)
    loaded = SecureBoostClassifier()
    loaded.load_model(str(tmp_path / name))
    assert np.array_equal(loaded.predict_proba(X), ours.predict_proba(X))
    assert loaded.get_params() == ours.get_params()
    assert np.array_equal(loaded.classes_, ours.classes_)
    theirs = xgb.XGBClassifier()
    theirs.load_model(bytearray((tmp_path / name).read_bytes()))
    assert theirs.n_classes_ == 2
    names = ours.get_booster().feature_names
    margins = theirs.get_booster().predict(xgb.DMatrix(X, feature_names=names), output_margin=True)
    np.testing.assert_allclose(margins, ours.predict(X, output_margin=True), atol=1e-5)


def test_a_file_of_another_class_is_a_type_error(models, tmp_path):
    ours, theirs = models
    ours.save_model(tmp_path / "m.json")
    for other in (SecureBoostRegressor(), FederBoostClassifier(), xgb.XGBRegressor()):
        with pytest.raises(TypeError):
            other.load_model(tmp_path / "m.json")
    with pytest.raises(InvalidParameterError, match="use SecureBoostClassifier"):
        FederBoostClassifier().load_model(tmp_path / "m.json")
    theirs.save_model(tmp_path / "theirs.json")
    with pytest.raises(InvalidParameterError, match="load it with xgboost"):
        SecureBoostClassifier().load_model(tmp_path / "theirs.json")


def test_files_whose_trees_have_changed_are_refused(models, tmp_path):
    ours, _ = models
    file = tmp_path / "m.json"
    ours.save_model(file)
    shorter = xgb.Booster(model_file=file)[:2]
    shorter.set_attr(**xgb.Booster(model_file=file).attributes())
    shorter.save_model(file)
    with pytest.raises(ValueError, match="the trees were changed after save_model"):
        SecureBoostClassifier().load_model(file)
    shorter.set_attr(fedboost="{}")
    shorter.save_model(file)
    with pytest.raises(ValueError, match="the estimator in the file is damaged"):
        SecureBoostClassifier().load_model(file)
    file.write_text("no model")
    with pytest.raises(ValueError, match="the file is no model"):
        SecureBoostClassifier().load_model(file)


def test_a_file_that_unpacks_to_more_than_a_model_is_refused(models, tmp_path, monkeypatch):
    model, file = models[0], tmp_path / "m.json"
    model.save_model(file)
    monkeypatch.setattr(model_files, "UNPACKED_BYTES_MAX", 1000)
    with pytest.raises(ValueError, match="the estimator in the file is damaged"):
        type(model)().load_model(file)


def test_models_that_xgboost_cannot_hold_are_saved_in_folders(tmp_path):
    model = GBUNClassifier(n_estimators=1).fit(X, Y)
    with pytest.raises(InvalidParameterError, match="write a folder with save"):
        model.save_model(tmp_path / "m.json")
    model.save(tmp_path / "m")
    loaded = GBUNClassifier()
    loaded.load_model(tmp_path / "m")
    assert np.array_equal(loaded.predict(X), model.predict(X))


def test_exact_trees_are_grown_on_bins_with_a_warning():
    with pytest.warns(UserWarning, match="tree_method='exact' grows trees on bins"):
        SecureBoostClassifier(tree_method="exact", n_estimators=1, **PLAIN).fit(X, Y)


def test_the_evaluation_monitor_of_xgboost_hears_the_rounds(capsys):
    monitor = xgb.callback.EvaluationMonitor()
    model = SecureBoostClassifier(n_estimators=2, callbacks=[monitor], **PLAIN)
    model.fit(X[:200], Y[:200], eval_set=[(X[200:], Y[200:])])
    assert "validation_0-logloss" in capsys.readouterr().out
    assert set(model.evals_result()) == {"validation_0"}
    assert len(model.evals_result()["validation_0"]["logloss"]) == 2


def test_early_stopping_of_xgboost_stops_as_the_parameter_does():
    held: dict[str, Any] = {"eval_set": [(X[200:], Y[200:])], "verbose": False}
    settings = {"n_estimators": 30, "learning_rate": 1.0, **PLAIN}
    stopping = xgb.callback.EarlyStopping(2, metric_name="logloss", data_name="validation_0")
    by_callback = SecureBoostClassifier(callbacks=[stopping], **settings)
    by_callback.fit(X[:200], Y[:200], **held)
    by_parameter = SecureBoostClassifier(early_stopping_rounds=2, **settings)
    by_parameter.fit(X[:200], Y[:200], **held)
    assert by_callback.best_iteration == by_parameter.best_iteration < 29
    assert by_callback.evals_result() == by_parameter.evals_result()


def test_rounds_after_the_last_one_kept_are_refused(models):
    ours, _ = models
    with pytest.raises(InvalidParameterError, match="the model has 4"):
        ours.predict(X, iteration_range=(0, 5))
    with pytest.raises(ValueError, match="no rows were validated on"):
        ours.evals_result()


def test_rows_of_the_training_may_be_validated_on_too():
    sets = [(X, Y), (X[:90], Y[:90])]
    model = SecureBoostClassifier(n_estimators=2, **PLAIN).fit(X, Y, eval_set=sets, verbose=False)
    found = model.evals_result()
    assert found == {
        "validation_0": model.evals_result_["train"],
        "validation_1": model.evals_result_["validation"],
    }


@pytest.mark.parametrize("y", [Y, CLASSES], ids=["two classes", "several"])
def test_each_set_of_rows_is_measured_in_every_round_as_by_xgboost(y):
    sets = [(X[:90], y[:90]), (X[90:200], y[90:200]), (X[200:], y[200:])]
    several: dict[str, Any] = {"eval_set": sets, "verbose": False}
    several["sample_weight_eval_set"] = [None, RNG.uniform(1, 3, 110), None]
    ours = SecureBoostClassifier(**SAME, **PLAIN).fit(X, y, **several).evals_result()
    theirs = xgb.XGBClassifier(tree_method="hist", **SAME).fit(X, y, **several).evals_result()
    assert list(ours) == list(theirs)
    for name, measured in theirs.items():
        (metric,) = measured
        np.testing.assert_allclose(ours[name][metric], measured[metric], rtol=1e-5)


def test_sets_before_the_last_one_do_not_change_the_training():
    stopped: dict[str, Any] = {"n_estimators": 30, "early_stopping_rounds": 2, **PLAIN}
    alone = SecureBoostClassifier(**stopped).fit(X[:200], Y[:200], eval_set=[(X[200:], Y[200:])])
    model = SecureBoostClassifier(**stopped)
    model.fit(X[:200], Y[:200], eval_set=[(X[:90], Y[:90]), (X[200:], Y[200:])])
    assert model.best_iteration == alone.best_iteration < len(model.history_) - 1
    assert model.evals_result()["validation_1"] == alone.evals_result()["validation_0"]
    measured = model.evals_result()["validation_0"]["logloss"]
    assert len(measured) == len(model.history_)
    assert np.isnan(measured[model.best_iteration + 1 :]).all()
    assert np.isfinite(measured[: model.best_iteration + 1]).all()


def test_training_rows_with_weights_are_validated_on_without_them():
    weight = np.where(Y == 1, 5.0, 1.0)
    sets: dict[str, Any] = {"eval_set": [(X, Y), (X[:90], Y[:90])], "sample_weight": weight}
    ours = SecureBoostClassifier(**SAME, **PLAIN).fit(X, Y, **sets).evals_result()
    theirs = xgb.XGBClassifier(**SAME).fit(X, Y, **sets, verbose=False).evals_result()
    for name in theirs:
        np.testing.assert_allclose(ours[name]["logloss"], theirs[name]["logloss"], rtol=1e-5)


def test_each_set_is_measured_on_rows_that_parties_share_by_columns_or_have_alone():
    tables = {"bank": X[:, :2], "telco": X[:, 2:]}
    first = {name: table[:90] for name, table in tables.items()}
    model = SecureBoostClassifier(n_estimators=2, **PLAIN)
    found = model.fit(tables, Y, eval_set=[(first, Y[:90]), (tables, Y)]).evals_result()
    chances = model.predict_proba(first)[np.arange(90), Y[:90]]
    assert found["validation_0"]["logloss"][-1] == pytest.approx(-np.log(chances).mean(), rel=1e-5)
    own = FederBoostClassifier(layout="horizontal", n_estimators=2)
    rows, truth = {"a": X[:150], "b": X[150:]}, {"a": Y[:150], "b": Y[150:]}
    first, labels = {"a": X[:90], "b": X[:40]}, {"a": Y[:90], "b": Y[:40]}
    found = own.fit(rows, truth, eval_set=[(first, labels), (rows, truth)]).evals_result()
    scored = own.predict_proba(first)
    chances = np.concatenate([scored[p][np.arange(len(labels[p])), labels[p]] for p in "ab"])
    assert found["validation_0"]["logloss"][-1] == pytest.approx(-np.log(chances).mean(), rel=1e-5)


@pytest.mark.parametrize("model", [HybridTreeClassifier(), GBUNClassifier()])
def test_models_that_xgboost_cannot_hold_are_measured_on_one_set(model):
    with pytest.raises(ValueError, match="eval_set has 2 sets"):
        model.fit(X, Y, eval_set=[(X[:90], Y[:90]), (X[90:], Y[90:])])


def test_weights_of_validation_rows_are_those_of_their_set():
    weight = np.where(np.arange(90) < 30, 5.0, 1.0)
    given: dict[str, Any] = {"eval_set": [(X[:90], Y[:90])], "sample_weight_eval_set": [weight]}
    model = SecureBoostClassifier(n_estimators=2, **PLAIN)
    weighted = model.fit(X, Y, **given).evals_result()
    plain = model.fit(X, Y, eval_set=given["eval_set"]).evals_result()
    both = model.fit(X, Y, eval_set=(X[:90], Y[:90], weight)).evals_result()
    assert weighted == both != plain
    with pytest.raises(ValueError, match="sample_weight_eval_set has 2 entries"):
        model.fit(X, Y, eval_set=given["eval_set"], sample_weight_eval_set=[weight, weight])


@pytest.mark.parametrize("name", ["base_margin", "base_margin_eval_set", "feature_weights"])
def test_options_of_fit_without_a_meaning_here_say_what_has_one(name):
    nothing: dict[str, Any] = {name: None}
    something: dict[str, Any] = {name: np.ones(300)}
    model = SecureBoostClassifier(n_estimators=1, **PLAIN).fit(X, Y, **nothing)
    with pytest.raises(InvalidParameterError, match=f"{name} has no effect"):
        model.fit(X, Y, **something)


@pytest.mark.parametrize(
    ("name", "text"), [("eval_metric", "give it to the estimator"), ("qid", "ranks rows")]
)
def test_options_that_fit_has_lost_say_where_they_are(name, text):
    option: dict[str, Any] = {name: "auc"}
    with pytest.raises(TypeError, match=text):
        SecureBoostClassifier(**PLAIN).fit(X, Y, **option)


def test_a_silent_fit_does_not_warn(recwarn):
    SecureBoostClassifier(n_estimators=2, **PLAIN).fit(X, Y, verbose=False)
    SecureBoostClassifier(n_estimators=2, verbosity=0, **PLAIN).fit(X, Y)
    SecureBoostClassifier(n_estimators=2, tree_method="exact", verbosity=0, **PLAIN).fit(X, Y)
    FederBoostClassifier(layout="horizontal", n_estimators=1).fit(X, Y, verbose=False)
    assert not recwarn.list
    SecureBoostClassifier(n_estimators=2, **PLAIN).fit(X, Y)
    assert recwarn.list


def test_a_search_shows_a_warning_once(recwarn):
    from sklearn.model_selection import GridSearchCV

    model = SecureBoostClassifier(n_estimators=2, parties=["bank", "once-only"], **PLAIN)
    GridSearchCV(model, {"max_depth": [1, 2]}, cv=2, error_score="raise").fit(X, Y)
    texts = [str(one.message) for one in recwarn.list if "once-only" in str(one.message)]
    assert len(texts) == len({"".join(c for c in text if c.isalpha()) for text in texts}) > 0


def test_a_search_in_several_processes_shows_a_warning_once():
    search = """
from sklearn.datasets import make_classification
from sklearn.model_selection import GridSearchCV
from fedboost.sdk import SecureBoostClassifier
X, y = make_classification(100, 4, random_state=0)
plain = {"encryption": {"scheme": "plain"}, "precision_bits": None}
model = SecureBoostClassifier(n_estimators=1, tree_method="exact", **plain)
GridSearchCV(model, {"max_depth": [1, 2, 3]}, cv=2, n_jobs=2).fit(X, y)
"""
    done = subprocess.run(
        [sys.executable, "-c", search], capture_output=True, text=True, check=True, timeout=120
    )
    assert done.stderr.count("UserWarning: tree_method='exact' grows trees on bins") == 1


@pytest.mark.parametrize("all_rows", [True, False])
def test_a_random_forest_is_one_round_of_trees_as_in_xgboost(all_rows):
    drawn = {"subsample": 1.0, "colsample_bynode": 1.0} if all_rows else {}
    ours, theirs = pair(ours=SecureBoostRFClassifier, theirs=xgb.XGBRFClassifier, **drawn)
    assert len(ours.get_booster().get_dump()) == len(theirs.get_booster().get_dump()) == 4
    assert ours.get_booster().num_boosted_rounds() == ours.get_num_boosting_rounds() == 1
    assert ours.get_xgb_params()["num_parallel_tree"] == 4
    for name in ("learning_rate", "subsample", "colsample_bynode", "reg_lambda"):
        assert ours.get_params()[name] == theirs.get_params()[name]
    found, expected = ours.predict_proba(X)[:, 1], theirs.predict_proba(X)[:, 1]
    if all_rows:
        np.testing.assert_allclose(found, expected, atol=1e-4)
    assert np.corrcoef(found, expected)[0, 1] > 0.9  # each draws its own rows and columns
    numbers = SecureBoostRFRegressor(n_estimators=3, subsample=0.5, **PLAIN).fit(X, X[:, 0])
    assert numbers.score(X, X[:, 0]) > 0.5


@pytest.mark.parametrize("name", ["early_stopping_rounds", "num_parallel_tree"])
def test_a_random_forest_has_no_further_rounds(name):
    with pytest.raises(InvalidParameterError, match="one round of n_estimators trees"):
        SecureBoostRFClassifier(**{name: 3}, **PLAIN).fit(X, Y)


def test_small_tables_have_fewer_bins_with_a_warning():
    model = FederBoostClassifier(layout="horizontal", n_estimators=1)
    with pytest.warns(UserWarning, match="300 training rows allow max_bin=3, not 32"):
        model.fit(X, Y)
    assert model.shards_["party-1"].facts["params"]["max_bin"] == 3
    with pytest.warns(UserWarning, match="240 training rows allow max_bin=3"):
        model.set_params(validation={"fraction": 0.2, "seed": 0}).fit(X, Y)
    with pytest.raises(ValueError, match="max_bin is 5"):
        model.set_params(max_bin=5).fit(X, Y)
