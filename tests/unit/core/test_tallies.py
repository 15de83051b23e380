"""Metrics from sums over parties: those of the pooled rows, ranking ones to a stated resolution."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedboost.core import metrics
from fedboost.core.objectives import OBJECTIVES, metrics_of
from fedboost.core.params import TreeParams
from fedboost.core.tallies import SCORE_BINS, SCORE_WORDS_MAX, Tally
from fedboost.ground.errors import DataError, JobError
from tests import tiers
from tests.support.rankings import resolution

RANKED: tuple[metrics.MetricName, ...] = ("auc", "aucpr", "map", "ks")
ZERO = np.zeros(1)


def params(objective="binary:logistic", names=None, num_class=None):
    names = metrics_of(objective) if names is None else names
    return TreeParams(objective=objective, eval_metric=names, num_class=num_class)


def total_of(tally, y, p, w, n_parties=1, seed=0):
    """The sums of the rows dealt out to several parties, some of whom may have none."""
    owner = np.random.default_rng(seed).integers(0, n_parties, len(y))
    own = [owner == party for party in range(n_parties)]
    return np.sum([tally.of(y[rows], p[rows], w[rows]) for rows in own], axis=0)


def binary(seed, n, spread=1.5, base=-2.0):
    rng = np.random.default_rng(seed)
    margin = base + spread * rng.normal(0, 1, n)
    y = (rng.random(n) < 1 / (1 + np.exp(-margin))).astype(float)
    y[:2] = 0.0, 1.0
    return y, 1 / (1 + np.exp(-margin)), rng.uniform(0.1, 3.0, n)


@pytest.mark.parametrize("n_parties", [1, 2, 5])
@pytest.mark.parametrize("weighted", [True, False])
def test_binary_metrics_are_those_of_the_pooled_rows(n_parties, weighted):
    y, p, w = binary(n_parties, 4000)
    w = w if weighted else np.ones(len(y))
    tally = Tally(params(), len(y), float(w.max()), 1.0, np.array([-2.0]))
    total = total_of(tally, y, p[:, None], w, n_parties)
    assert total.dtype == np.int64
    assert total.shape == (tally.n_sums,)
    found, most = tally.read_metrics(total), resolution(tally, total)
    assert list(found) == list(params().metrics)
    assert set(most) == set(RANKED)
    for name in params().metrics:
        off = abs(found[name] - metrics.evaluate(name, y, p, w))
        assert off < (3e-3 if name in RANKED else 1e-9), name
        assert off <= most.get(name, 1.0) + 1e-12, name
    assert abs(found["auc"] - metrics.evaluate("auc", y, p, w)) < 1e-4


@pytest.mark.parametrize("n_parties", [1, 3, 5])
@pytest.mark.parametrize("weighted", [True, False])
def test_metrics_of_several_classes_are_those_of_the_pooled_rows(n_parties, weighted):
    rng = np.random.default_rng(n_parties)
    y = rng.integers(0, 4, 300).astype(float)
    p = rng.dirichlet(np.ones(6), 300) + 0.3 * np.eye(6)[y.astype(int)]  # classes 4, 5: no row
    p /= p.sum(axis=1, keepdims=True)
    w = rng.uniform(0.1, 3.0, 300) if weighted else np.ones(300)
    tally = Tally(params("multi:softprob", num_class=6), 300, 3.0, 1.0, np.zeros(6))
    total = total_of(tally, y, p, w, n_parties)
    found, most = tally.read_metrics(total), resolution(tally, total)
    assert set(found) == {"mlogloss", "merror", "accuracy", "f1", "map"}
    assert set(most) == {"map"}
    for name in params("multi:softprob", num_class=6).metrics:
        off = abs(found[name] - metrics.evaluate(name, y, p, w))
        assert off <= most.get(name, 0.0) + 1e-9, name
    assert abs(found["map"] - metrics.evaluate("map", y, p, w)) < 5e-3
    without = Tally(params("multi:softprob", ("f1",), num_class=6), 300, 3.0, 1.0, np.zeros(6))
    assert resolution(without, total_of(without, y, p, w)) == {}


def test_scores_of_rare_classes_are_told_apart_around_their_own_base_margin():
    rng = np.random.default_rng(4)
    y = rng.choice(3, 6000, p=[0.97, 0.02, 0.01]).astype(float)
    base = np.log([0.97, 0.02, 0.01])
    margin = base + 1e-3 * (np.eye(3)[y.astype(int)] + rng.normal(size=(6000, 3)))
    p = np.exp(margin) / np.exp(margin).sum(axis=1, keepdims=True)
    w = np.ones(6000)
    tally = Tally(params("multi:softprob", ("map",), 3), 6000, 1.0, 1.0, base)
    found = tally.read_metrics(total_of(tally, y, p, w, 3))["map"]
    assert found == pytest.approx(metrics.evaluate("map", y, p, w), abs=1e-2)
    assert found > 0.4  # all scores of a class in one bin would be worth a third


@pytest.mark.parametrize(("classes", "bins"), [(2, 2047), (16, 2047), (17, 1927), (100, 327),
                                               (1000, 31)])  # fmt: skip
def test_histograms_of_many_classes_are_coarser_so_that_no_round_sends_more(classes, bins):
    own = params("multi:softprob", ("map",), classes)
    tally = Tally(own, 50, 1.0, 1.0, np.zeros(classes))
    assert tally.n_sums == 1 + 2 * bins * classes <= 1 + SCORE_WORDS_MAX
    y = np.arange(50.0) % classes
    p = np.full((50, classes), 0.1 / (classes - 1))
    p[np.arange(50), y.astype(int)] = 0.9
    found = tally.read_metrics(tally.of(y, p, np.ones(50)))
    assert found["map"] == pytest.approx(1.0)


def test_f1_leaves_classes_out_that_are_neither_label_nor_guess():
    y = np.array([0.0, 0.0, 1.0, 1.0])
    p = np.eye(5)[[0, 0, 1, 3]]
    tally = Tally(params("multi:softprob", ("f1",), 5), 4, 1.0, 1.0, ZERO)
    found = tally.read_metrics(tally.of(y, p, np.ones(4)))["f1"]
    assert found == pytest.approx((1.0 + 2 / 3 + 0.0) / 3)
    assert found == pytest.approx(metrics.evaluate("f1", y, p))


@pytest.mark.parametrize(
    "objective", [name for name, record in OBJECTIVES.items() if not record.classifies]
)
def test_regressions_are_measured_as_the_pooled_rows(objective):
    rng = np.random.default_rng(5)
    y, w = rng.gamma(2.0, 30.0, 500), rng.uniform(0.0, 2.0, 500)
    p = np.maximum(y + rng.normal(0, 8, 500), 0.1)
    tally = Tally(params(objective), 500, 2.0, 512.0, ZERO)
    found = tally.read_metrics(total_of(tally, y, p, w, 4))
    assert {"rmse", "mae"} < set(found)
    for name, value in found.items():
        assert value == pytest.approx(metrics.evaluate(name, y, p, w), abs=1e-9), name


def test_the_pseudo_huber_error_has_the_jobs_slope():
    y, p, w = np.array([0.0, 4.0]), np.array([3.0, 8.0]), np.ones(2)
    own = TreeParams(objective="reg:pseudohubererror", huber_slope=3.0)
    tally = Tally(own, 2, 1.0, 8.0, ZERO)
    expected = 9.0 * (np.sqrt(2.0) - 1.0 + 5.0 / 3.0 - 1.0) / 2.0
    assert metrics.evaluate("mphe", y, p, w, own) == pytest.approx(expected)
    assert tally.read_metrics(tally.of(y, p, w)) == pytest.approx({"mphe": expected})


def test_a_prediction_far_below_its_label_adds_a_limited_deviance():
    y, p = np.array([1.0, 1.0]), np.array([1e-300, 1.0])
    tally = Tally(params("reg:gamma", names=("gamma-deviance",)), 2, 1.0, 1.0, ZERO)
    found = tally.read_metrics(tally.of(y, p, np.ones(2)))
    assert found == pytest.approx({"gamma-deviance": metrics.DEVIANCE_MAX})


def test_a_prediction_far_outside_the_labels_counts_as_four_label_bounds_away():
    y, w = np.array([1.0, -1.0]), np.ones(2)
    tally = Tally(params("reg:squarederror"), 2, 1.0, 1.0, ZERO)
    found = tally.read_metrics(tally.of(y, np.array([1e300, -1.0]), w))
    assert found == pytest.approx(
        {"rmse": np.sqrt(16 / 2), "mae": 4 / 2, "mphe": (17**0.5 - 1) / 2}
    )


def test_certain_and_wrong_is_as_finite_as_pooled():
    y, p = np.array([1.0, 0.0]), np.array([0.0, 1.0])
    tally = Tally(params(names=("logloss", "auc")), 2, 1.0, 1.0, ZERO)
    found = tally.read_metrics(tally.of(y, p, np.ones(2)))
    assert found["logloss"] == pytest.approx(metrics.evaluate("logloss", y, p), abs=1e-9)
    assert found["auc"] == 0.0


@settings(max_examples=tiers.examples(150), deadline=None)
@given(
    st.lists(
        st.tuples(st.booleans(), st.floats(-40, 40), st.sampled_from([0.0, 0.5, 1.0, 3.0])),
        min_size=2,
        max_size=60,
    ),
    st.integers(0, 3),
    st.floats(-3, 3),
)
def test_the_resolution_bounds_the_error_of_every_ranking(rows, narrow, base):
    margin = base + np.array([margin for _, margin, _ in rows]) / 100.0**narrow
    y = np.array([float(label) for label, _, _ in rows])
    w = np.array([weight for _, _, weight in rows])
    p = 1 / (1 + np.exp(-margin))
    tally = Tally(params(names=RANKED), len(y), 3.0, 1.0, np.array([base]))
    total = tally.of(y, p, w)
    if w[y == 1].sum() == 0 or w[y == 0].sum() == 0:
        with pytest.raises(DataError):
            tally.read_metrics(total)
        return
    found, most = tally.read_metrics(total), resolution(tally, total)
    for name in RANKED:
        off = abs(found[name] - metrics.evaluate(name, y, p, w))
        assert off <= most[name] + 1e-9, name


def test_positives_of_one_bin_may_follow_one_by_one():
    # Their precision then starts far below that of the whole bin.
    y = np.repeat([0.0, 1.0], [100, 10])
    margin = np.concatenate([np.full(100, 8.0), 5.0 + 1e-6 * np.arange(10)])
    p, w = 1 / (1 + np.exp(-margin)), np.ones(110)
    tally = Tally(params(names=("map",)), 110, 1.0, 1.0, ZERO)
    total = tally.of(y, p, w)
    off = tally.read_metrics(total)["map"] - metrics.evaluate("map", y, p, w)
    assert 0.03 < off <= resolution(tally, total)["map"]


def test_scores_near_the_base_margin_are_told_apart_as_after_a_first_slow_tree():
    # One tree of 64 leaves with learning_rate 0.01: even bins in the logit would hold them all.
    rng = np.random.default_rng(6)
    leaf = rng.integers(0, 64, 20_000)
    y = (rng.random(20_000) < 0.02 + leaf / 200).astype(float)
    margin = -2.5 + (leaf - 20) * 4e-4
    p, w = 1 / (1 + np.exp(-margin)), np.ones(20_000)
    tally = Tally(params(names=RANKED), 20_000, 1.0, 1.0, np.array([-2.5]))
    found = tally.read_metrics(tally.of(y, p, w))
    assert found["auc"] == pytest.approx(metrics.evaluate("auc", y, p, w), abs=1e-4)


def test_sums_do_not_depend_on_who_has_which_row():
    y, p, w = binary(7, 500)
    tally = Tally(params(), 500, 4.0, 1.0, ZERO)
    whole = total_of(tally, y, p, w)
    for n_parties in (2, 3, 8):
        assert np.array_equal(total_of(tally, y, p, w, n_parties, seed=n_parties), whole)


def test_sums_of_as_many_rows_as_declared_stay_within_int64():
    for rows in (1, 7, 2**20, 2**31 - 1):
        tally = Tally(params(names=("logloss", "f1")), rows, 5.0, 1.0, ZERO)
        one = tally.of(np.array([1.0]), np.array([0.0]), np.array([5.0]))
        assert max(one.tolist()) * rows <= 2**62
        assert one.max() * rows >= 2**51  # and no bit is wasted


def test_only_what_the_metrics_need_is_summed():
    assert Tally(params(names=("logloss",)), 9, 1.0, 1.0, ZERO).n_sums == 2
    assert Tally(params(names=("f1",)), 9, 1.0, 1.0, ZERO).n_sums == 4
    assert Tally(params(names=("auc", "ks")), 9, 1.0, 1.0, ZERO).n_sums == 1 + 2 * SCORE_BINS
    assert Tally(params("multi:softprob", ("f1",), 5), 9, 1.0, 1.0, ZERO).n_sums == 1 + 15
    assert SCORE_BINS <= 2048


@pytest.mark.parametrize("name", RANKED)
def test_one_class_at_all_parties_is_refused_as_it_is_pooled(name):
    tally = Tally(params(names=(name,)), 3, 1.0, 1.0, ZERO)
    total = tally.of(np.ones(3), np.array([0.1, 0.2, 0.3]), np.ones(3))
    for read in (tally.read_metrics, partial(resolution, tally)):
        with pytest.raises(DataError, match="one class only"):
            read(total)


def test_a_part_without_rows_is_refused_and_a_party_without_rows_is_not():
    tally = Tally(params(), 50, 3.0, 1.0, ZERO)
    none = tally.of(np.zeros(0), np.zeros((0, 1)), np.zeros(0))
    assert not none.any()
    with pytest.raises(DataError, match="at least one row"):
        tally.read_metrics(none)
    y, p, w = binary(8, 50)
    assert tally.read_metrics(none + tally.of(y, p, w)) == tally.read_metrics(tally.of(y, p, w))


def test_rows_without_weight_do_not_count():
    y, p, w = binary(9, 400)
    w[200:] = 0.0
    tally = Tally(params(), 400, 3.0, 1.0, ZERO)
    assert tally.read_metrics(tally.of(y, p, w)) == tally.read_metrics(
        tally.of(y[:200], p[:200], w[:200])
    )


@pytest.mark.parametrize("bad", ["negative", "huge", "another score", "more hits", "short", "wrap"])
def test_sums_that_no_rows_add_up_to_are_refused(bad):
    y, p, w = binary(10, 100)
    tally = Tally(params(names=("logloss", "f1", "auc")), 100, 3.0, 1.0, ZERO)
    total = tally.of(y, p, w)
    if bad == "negative":
        total[1] = -1
    elif bad == "huge":
        total[1] = 2**62 + 1
    elif bad == "another score":
        total[-1] += 1
    elif bad == "more hits":
        total[2] = total[3] + 1
    elif bad == "short":
        total = total[:-1]
    else:
        total[-32:] += 2**59
    for read in (tally.read_metrics, partial(resolution, tally)):
        with pytest.raises(JobError, match="impossible"):
            read(total)


@pytest.mark.parametrize("bad", ["prediction", "weight", "negative weight", "label"])
def test_rows_outside_the_declared_bounds_are_refused_without_their_values(bad):
    y, p, w = np.array([40.5, 1.0]), np.array([1.0, 2.0]), np.ones(2)
    tally = Tally(params("reg:squarederror"), 2, 1.0, 64.0, ZERO)
    if bad == "prediction":
        p[0] = np.nan
    elif bad == "label":
        y[0] = 64.25
    else:
        w[0] = 1.25 if bad == "weight" else -0.25
    with pytest.raises(JobError, match="of 2") as caught:
        tally.of(y, p, w)
    assert "25" not in str(caught.value.lines())
