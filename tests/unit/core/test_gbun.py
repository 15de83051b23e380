"""Boosted networks on one table: every round solves the normal equations, whatever the loss."""

import itertools
import json
import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import csc_array

from fedboost.core import gbun, networks, objectives
from fedboost.core.column_readings import Scale
from fedboost.core.gbun import GbunParams, Normal
from fedboost.core.local import TrainingTable
from fedboost.core.networks import Network
from fedboost.core.objectives import Summary
from fedboost.ground.errors import ConfigError, DataError, JobError
from fedboost.ground.settings import parse_settings
from tests.conftest import ROOT
from tests.unit.core.test_local import labels_for
from tests.unit.core.test_networks import peak_mib

SMOOTH = ("binary:logistic", "multi:softprob", "reg:squarederror", "count:poisson", "reg:tweedie")


def params_of(objective="binary:logistic", **more):
    if objective == "multi:softprob":
        more.setdefault("num_class", 3)
    more = {"n_estimators": 4, "outputs": 8, "columns": "standard", **more}
    return GbunParams(objective=objective, **more)


def table(objective="binary:logistic", n=300, columns=5, seed=1, **how):
    """Random rows; `how`: weighted, the shares missing and zero, sparse."""
    draw = np.random.default_rng(seed)
    values = (draw.normal(size=(n, columns)) * [1, 10, 0.1, 1, 3][:columns] + 2).astype(np.float32)
    values[draw.random(values.shape) < how.get("zero", 0.0)] = 0.0
    logit = values[:, 0] + 0.2 * np.abs(values[:, -1]) - 2 + 0.3 * draw.normal(size=n)
    values[draw.random(values.shape) < how.get("missing", 0.0)] = np.nan
    weight = draw.uniform(0.1, 3.0, n) if how.get("weighted") else None
    own = csc_array(values) if how.get("sparse") else np.asfortranarray(values)
    return TrainingTable(own, labels_for(objective, logit), weight)


def some(rows, chosen):
    """Some of a table's rows."""
    weight = None if rows.weight is None else rows.weight[chosen]
    return TrainingTable(rows.values[chosen], rows.y[chosen], weight)


def naive(rows, params):
    """Algorithm 1 with whole matrices; gives margins after each round, and each round's weights."""
    if isinstance(rows.values, csc_array):
        x = rows.values.toarray().astype(np.float64)
    else:
        x = rows.values.astype(np.float64)
        x = x - np.nanmean(x, axis=0)
        deviation = np.nanstd(x, axis=0, ddof=1)
        x = np.nan_to_num(x / np.where(deviation > 0, deviation, 1.0))
    objective = objectives.start_objective(params, Summary.of(params, rows.y, rows.weights))
    margin = np.tile(objective.base_margin, (len(x), 1))
    for number in range(params.n_estimators):
        network = Network(number, params.seed, params.outputs)
        if isinstance(rows.values, csc_array):
            ids = range(x.shape[1])
            matrix = np.array([[networks.hashed_weight(np.uint32(c), np.uint32(number), k)
                                for k in network.hash_seeds] for c in ids], np.float64)  # fmt: skip
        else:
            matrix = network.weights(x.shape[1])
        z = x @ matrix
        spread = z.std(axis=0, ddof=1)
        z = (z - z.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
        p = np.exp(z) / np.exp(z).sum(axis=1, keepdims=True)
        g, h = objective.gradients(margin, rows.y, rows.weights)
        found = [
            np.linalg.solve(
                p.T @ (h[:, [c]] * p) + params.reg_lambda * np.eye(params.outputs), -p.T @ g[:, c]
            )
            for c in range(g.shape[1])
        ]
        weights = params.learning_rate * np.stack(found, axis=1)
        margin = margin + p @ weights
        yield margin, weights


def assert_naive(rows, params):
    """The trainer comes to what whole matrices come to; gives what it has trained."""
    trained = gbun.train(rows, params)
    rounds = list(naive(rows, params))
    for one, (_, weights) in zip(trained.rounds, rounds, strict=True):
        np.testing.assert_allclose(one.weights, weights, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(trained.margins(rows.values), rounds[-1][0], rtol=1e-6, atol=1e-6)
    return trained


# Rounds


@pytest.mark.parametrize("weighted", [False, True], ids=["", "weighted"])
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("objective", SMOOTH)
def test_every_round_solves_the_normal_equations(objective, sparse, weighted):
    rows = table(objective, weighted=weighted, sparse=sparse, zero=0.7 if sparse else 0.0)
    assert_naive(rows, params_of(objective))


@pytest.mark.parametrize("reg_lambda", [0.1, 1.0, 20.0])
@pytest.mark.parametrize("learning_rate", [0.05, 1.0])
@pytest.mark.parametrize("outputs", [2, 3, 33])
def test_size_shrinkage_and_lambda_are_those_of_the_paper(outputs, learning_rate, reg_lambda):
    more = {"outputs": outputs, "learning_rate": learning_rate, "reg_lambda": reg_lambda}
    assert_naive(table(), params_of(**more, seed=5))


def test_positive_rows_count_as_often_as_the_job_says():
    rows = table(weighted=True)
    trained = assert_naive(rows, params_of(scale_pos_weight=3.0))
    plain = gbun.train(rows, params_of())
    assert (trained.rounds[0].weights != plain.rounds[0].weights).any()


def loss(objective, margin, y):
    """The loss itself but for what no margin changes; Poisson's and Tweedie's are no metrics."""
    if objective == "multi:softprob":
        return -np.log(
            objectives.transform(objective, margin)[np.arange(len(y)), y.astype(int)]
        ).sum()
    m = margin[:, 0]
    if objective == "binary:logistic":
        return np.logaddexp(0.0, np.where(y > 0.5, -m, m)).sum()
    if objective == "reg:squarederror":
        return ((m - y) ** 2).sum()
    if objective == "count:poisson":
        return (np.exp(m) - y * m).sum()
    return (2.0 * np.exp(0.5 * m) + 2.0 * y * np.exp(-0.5 * m)).sum()  # of power 1.5


@pytest.mark.parametrize("objective", SMOOTH)
def test_at_a_small_learning_rate_the_loss_falls_every_round(objective):
    """With the printed algorithm's second minus sign it would rise."""
    rows = table(objective)
    trained = gbun.train(rows, params_of(objective, learning_rate=0.05, n_estimators=20))
    inputs, margin = trained.reading.inputs(rows.values), np.tile(trained.base_margin, (300, 1))
    losses = [loss(objective, margin, rows.y)]
    for one in trained.rounds:
        margin += one.added(inputs)
        losses.append(loss(objective, margin, rows.y))
    assert all(later < earlier for earlier, later in itertools.pairwise(losses))


def test_all_classes_share_one_network_and_have_weights_of_their_own():
    trained = gbun.train(table("multi:softprob"), params_of("multi:softprob"))
    assert [one.network.number for one in trained.rounds] == [0, 1, 2, 3]
    for one in trained.rounds:
        assert one.weights.shape == (8, 3)
        assert one.weights.dtype == np.float32
        assert (one.weights[:, 0] != one.weights[:, 1]).any()


def test_the_size_of_a_block_moves_nothing_but_the_last_bits(monkeypatch):
    rows, params = table("multi:softprob", weighted=True), params_of("multi:softprob")
    expected = gbun.train(rows, params).margins(rows.values)
    monkeypatch.setattr(networks, "BLOCK_CELLS", 100)
    np.testing.assert_allclose(gbun.train(rows, params).margins(rows.values), expected, atol=1e-6)


def test_training_twice_gives_the_same_bits_and_another_seed_another_model():
    rows = table()
    first, again = (gbun.train(rows, params_of()) for _ in range(2))
    other = gbun.train(rows, params_of(seed=1))
    assert first.margins(rows.values).tobytes() == again.margins(rows.values).tobytes()
    assert np.abs(other.margins(rows.values) - first.margins(rows.values)).max() > 1e-3


def test_training_takes_no_memory_of_rows_times_outputs():
    """80,000 rows of 128 outputs would be 78 MiB."""
    rows = table(n=80_000, columns=2)
    params = params_of(outputs=128, n_estimators=1, eval_metric=("logloss",))
    gbun.train(table(n=100, columns=2), params)
    assert peak_mib(lambda: gbun.train(rows, params)) < 40


# Tables


@pytest.mark.parametrize("share", [0.1, 0.6])
def test_missing_values_count_as_the_columns_mean(share):
    rows = table(missing=share)
    trained = assert_naive(rows, params_of())
    filled = np.where(np.isnan(rows.values), np.nanmean(rows.values, axis=0), rows.values)
    margins = trained.margins(filled.astype(np.float32))
    np.testing.assert_allclose(margins, trained.margins(rows.values), atol=1e-4)


def test_missing_values_of_sparse_rows_count_as_absent():
    rows = table(sparse=True, zero=0.5)
    values = rows.values.toarray()
    values[:30, 0] = np.nan
    holed = csc_array(values)
    trained = gbun.train(replace(rows, values=holed), params_of())
    zeroed = csc_array(np.nan_to_num(values))
    assert trained.margins(holed).tobytes() == trained.margins(zeroed).tobytes()
    assert np.isnan(holed.data).sum() == 30  # what came stays as it was


@pytest.mark.parametrize("value", [0.0, 1.1, -3e4, np.nan], ids=str)
def test_a_constant_column_tells_nothing_and_is_told_apart_by_no_rounding(value):
    rows = table()
    rows.values[:, 3] = value
    trained = assert_naive(rows, params_of(outputs=32)) if value == value else gbun.train(
        rows, params_of(outputs=32)
    )  # fmt: skip
    assert trained.reading.scale is not None
    assert trained.reading.scale.deviation[3] == 1.0
    without = rows.values.copy()
    without[:, 3] = 7.0
    assert np.isfinite(trained.margins(without)).all()


def test_an_output_that_is_the_same_for_all_rows_has_the_deviation_one():
    normal = Normal.from_sums(4, np.array([8.0, 0.0, 10.0]), np.array([16.0, 0.0, 30.0]), 1.0)
    np.testing.assert_allclose(normal.mean, [2.0, 0.0, 2.5])
    np.testing.assert_allclose(normal.deviation, [1.0, 1.0, np.sqrt((30 - 25) / 3)])


def test_the_deviation_is_that_of_n_minus_one_values():
    values = np.array([[1.0], [2.0], [np.nan], [6.0]], np.float32)
    scale = Scale.from_values(values)
    assert scale.mean[0] == pytest.approx(3.0)
    assert scale.deviation[0] == pytest.approx(np.std([1, 2, 6], ddof=1))
    inputs = scale.inputs(values)
    assert inputs.values[2, 0] == 0.0


# What cannot be


@pytest.mark.parametrize("rounding", [False, True], ids=["", "rounded"])
def test_equations_without_a_single_solution_are_named(rounding):
    """Of one column nine tenths of the outputs are the same."""
    rows = table(columns=1, n=200)
    rows.values[:, 0] = np.arange(200) % 7 if rounding else rows.values[:, 0]
    with pytest.raises(JobError, match="30 equations of a round have no single solution") as error:
        gbun.train(rows, params_of(reg_lambda=0.0, outputs=30))
    assert error.value.todo == "raise reg_lambda, or lower outputs"
    assert_naive(rows, params_of(reg_lambda=0.1, outputs=30))


def test_without_lambda_equations_that_have_a_solution_are_solved():
    rows = table(sparse=True, zero=0.3)
    assert_naive(rows, params_of(reg_lambda=0.0, outputs=3))


def test_medians_are_refused():
    with pytest.raises(ConfigError) as error:
        parse_settings(GbunParams, {"objective": "reg:absoluteerror"})
    assert "reg:absoluteerror moves by medians" in " ".join(error.value.lines())


@pytest.mark.parametrize("outputs", [1, 1025, 0])
def test_outputs_are_bounded(outputs):
    with pytest.raises(ConfigError, match="outputs"):
        parse_settings(GbunParams, {"outputs": outputs})


def test_weights_that_are_all_zero_and_labels_of_one_class_are_refused():
    rows = table()
    with pytest.raises(DataError, match="weights are 0"):
        gbun.train(replace(rows, weight=np.zeros(300)), params_of())
    with pytest.raises(DataError, match="nothing to learn"):
        gbun.train(replace(rows, y=np.ones(300)), params_of())


# Early stopping


def test_rounds_end_where_the_last_metric_no_longer_gets_better():
    rows = table(n=400)
    draw = np.random.default_rng(0)
    noise = replace(rows, y=draw.integers(0, 2, 400).astype(float))
    parts = some(noise, slice(0, 300)), some(noise, slice(300, 400))
    params = params_of(n_estimators=60, early_stopping_rounds=3, eval_metric=("auc", "logloss"))
    trained = gbun.train(parts[0], params, parts[1])
    losses = [found["validation"]["logloss"] for found in trained.history]
    assert len(losses) == trained.best_round + 4 < 60
    assert trained.best_round == int(np.argmin(losses))
    short = gbun.train(parts[0], params.model_copy(
        update={"n_estimators": trained.best_round + 1, "early_stopping_rounds": None}
    ))  # fmt: skip
    values = parts[1].values
    assert trained.margins(values).tobytes() == short.margins(values).tobytes()


def test_early_stopping_needs_rows_to_look_at():
    with pytest.raises(DataError, match="needs validation rows"):
        gbun.train(table(), params_of(early_stopping_rounds=2))


def test_every_matrix_library_has_one_thread_also_one_that_is_loaded_late():
    """In a process of its own: SciPy's comes with the first product that wants it."""
    code = """
import threadpoolctl
from fedboost.core import gbun
with gbun.one_thread():
    from scipy.linalg import blas
    found = [one for one in threadpoolctl.threadpool_info() if one["user_api"] == "blas"]
    print([one["num_threads"] for one in found])
"""
    words = [sys.executable, "-c", code]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "3"}
    done = subprocess.run(words, capture_output=True, text=True, env=env, check=False)
    threads = json.loads(done.stdout or "[]")
    assert set(threads) == {1}, done.stderr
    assert len(threads) > 1
