"""Metrics: the numbers of sklearn and XGBoost, with ties and weights."""

import numpy as np
import pytest

from fedboost.core import metrics, roc_curves
from fedboost.ground.errors import DataError

sk = pytest.importorskip("sklearn.metrics")


def sample(seed, n=300, ties=True):
    rng = np.random.default_rng(seed)
    y = (rng.random(n) < 0.3).astype(float)
    p = np.clip(0.3 * y + rng.random(n) * 0.7, 0.001, 0.999)
    return y, np.round(p, 1) if ties else p, rng.uniform(0.1, 3.0, n)


@pytest.mark.parametrize("ties", [True, False])
@pytest.mark.parametrize("weighted", [True, False])
def test_binary_metrics_are_sklearns(ties, weighted):
    y, p, w = sample(1, ties=ties)
    p = np.clip(p, 0.01, 0.99)
    w = w if weighted else np.ones(len(y))
    ours = {name: metrics.evaluate(name, y, p, w) for name in metrics.METRICS if name[0] != "m"}
    ours["map"] = metrics.evaluate("map", y, p, w)
    ours["mae"] = metrics.evaluate("mae", y, p[:, None], w)
    fpr, tpr, _ = sk.roc_curve(y, p, sample_weight=w, drop_intermediate=False)
    theirs: dict[metrics.MetricName, float] = {
        "auc": sk.roc_auc_score(y, p, sample_weight=w),
        "map": sk.average_precision_score(y, p, sample_weight=w),
        "ks": np.abs(tpr - fpr).max(),
        "logloss": sk.log_loss(y, p, sample_weight=w),
        "error": 1 - sk.accuracy_score(y, p > 0.5, sample_weight=w),
        "accuracy": sk.accuracy_score(y, p > 0.5, sample_weight=w),
        "f1": sk.f1_score(y, p > 0.5, sample_weight=w),
        "rmse": np.sqrt(sk.mean_squared_error(y, p, sample_weight=w)),
        "mae": sk.mean_absolute_error(y, p, sample_weight=w),
    }
    for name, expected in theirs.items():
        assert ours[name] == pytest.approx(expected, abs=1e-12), name


@pytest.mark.parametrize("weighted", [True, False])
def test_metrics_of_several_classes_are_sklearns(weighted):
    rng = np.random.default_rng(2)
    y = rng.integers(0, 4, 200).astype(float)
    p = rng.dirichlet(np.ones(4), 200) + 0.4 * np.eye(4)[y.astype(int)]
    p /= p.sum(axis=1, keepdims=True)
    w = rng.uniform(0.1, 3, 200) if weighted else np.ones(200)
    guess = p.argmax(axis=1)
    f1 = sk.f1_score(y, guess, average="macro", sample_weight=w)
    accuracy = sk.accuracy_score(y, guess, sample_weight=w)
    assert metrics.evaluate("mlogloss", y, p, w) == pytest.approx(
        sk.log_loss(y, p, sample_weight=w)
    )
    assert metrics.evaluate("merror", y, p, w) == pytest.approx(1 - accuracy)
    assert metrics.evaluate("accuracy", y, p, w) == pytest.approx(accuracy)
    assert metrics.evaluate("f1", y, p, w) == pytest.approx(f1)
    average = sk.average_precision_score(np.eye(4)[y.astype(int)], p, sample_weight=w)
    assert metrics.evaluate("map", y, p, w) == pytest.approx(average, abs=1e-12)


def test_the_mean_average_precision_leaves_classes_out_that_no_row_has():
    y, p = np.array([0.0, 1.0, 1.0, 0.0]), np.random.default_rng(1).dirichlet(np.ones(3), 4)
    own = [sk.average_precision_score(y == c, p[:, c]) for c in (0, 1)]
    assert metrics.evaluate("map", y, p) == pytest.approx(np.mean(own), abs=1e-12)
    with pytest.raises(DataError, match="hold one class only"):
        metrics.evaluate("map", np.zeros(4), p)


@pytest.mark.parametrize("ties", [True, False])
@pytest.mark.parametrize("weighted", [True, False])
def test_aucpr_is_xgboosts(ties, weighted):
    xgb = pytest.importorskip("xgboost")
    y, p, w = sample(3, ties=ties)
    # A booster without trees whose margins are the scores measures them for us.
    p = np.clip(p, 0.01, 0.99).astype(np.float32)
    w = w.astype(np.float32) if weighted else np.ones(len(y), dtype=np.float32)
    table = xgb.DMatrix(np.zeros((len(y), 1)), y, weight=w, base_margin=np.log(p / (1 - p)))
    booster = xgb.Booster(
        {"objective": "binary:logistic", "eval_metric": ["aucpr", "auc", "error"]}, [table]
    )
    theirs = [float(part.split(":")[1]) for part in booster.eval(table).split()[1:]]
    ours = [metrics.evaluate(name, y, p.astype(float), w) for name in ("aucpr", "auc", "error")]
    assert ours[:2] == pytest.approx(theirs[:2], abs=1e-5)
    if not ties:  # with ties some scores are 0.5 up to float32 rounding
        assert ours[2] == pytest.approx(theirs[2], abs=1e-5)


def test_a_perfect_ranking_is_perfect():
    y, p = np.array([0.0, 0.0, 1.0, 1.0]), np.array([0.1, 0.2, 0.8, 0.9])
    for name in ("auc", "aucpr", "map", "ks", "f1", "accuracy"):
        assert metrics.evaluate(name, y, p) == pytest.approx(1.0)


def test_certain_and_wrong_is_finite():
    assert metrics.evaluate("logloss", np.array([1.0]), np.array([0.0])) == pytest.approx(
        36.84, 1e-3
    )


@pytest.mark.parametrize(
    "name", [name for name in metrics.METRICS if not name.startswith(("me", "ml"))]
)
def test_rows_without_weight_do_not_count(name):
    y, p, w = sample(6)
    p[:20], w[:20] = 0.9999, 0.0  # the highest scores
    expected = metrics.evaluate(name, y[20:], p[20:], w[20:])
    assert metrics.evaluate(name, y, p, w) == pytest.approx(expected, abs=1e-12)


def test_a_class_without_weight_does_not_count_in_f1():
    y, p = np.array([0.0, 1.0, 2.0]), np.eye(3)
    assert metrics.evaluate("f1", y, p, np.array([1.0, 1.0, 0.0])) == 1.0


@pytest.mark.parametrize("name", ["auc", "aucpr", "map", "ks"])
def test_ranking_one_class_is_refused(name):
    with pytest.raises(DataError, match="one class only"):
        metrics.evaluate(name, np.ones(3), np.array([0.1, 0.2, 0.3]))


def test_no_rows_are_refused():
    with pytest.raises(DataError, match="at least one row"):
        metrics.evaluate("rmse", np.zeros(0), np.zeros(0))


def test_curves_are_points_of_the_full_curves_and_keep_ends_and_ks():
    y, p, _ = sample(4, n=5000, ties=False)
    points = roc_curves.curves(y, p, points_max=50)
    assert len(points.threshold) <= 50
    for i in range(len(points.threshold)):
        called = p >= points.threshold[i]
        assert points.share[i] == pytest.approx(called.mean())
        assert points.true_positive_rate[i] == pytest.approx(called[y == 1].mean())
        assert points.false_positive_rate[i] == pytest.approx(called[y == 0].mean())
        assert points.precision[i] == pytest.approx(y[called].mean())
    assert points.threshold[0] == p.max()
    assert points.share[-1] == 1.0
    gap = np.abs(points.true_positive_rate - points.false_positive_rate).max()
    assert gap == pytest.approx(metrics.evaluate("ks", y, p))


def test_curves_of_few_scores_keep_all_points():
    y, p, _ = sample(5, ties=True)
    assert np.array_equal(roc_curves.curves(y, p).threshold, np.unique(p)[::-1])
