"""The pooled trainer: it grows the trees of the plainest possible trainer, whatever the order."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

from fedboost.core import binning, fixed_point, local, metrics, objectives, sampling
from fedboost.core.categories import set_members
from fedboost.core.growth import GrowingTree
from fedboost.core.local import TrainingTable
from fedboost.core.objectives import OBJECTIVES, Summary
from fedboost.core.params import TreeParams
from fedboost.core.rules import Rules
from fedboost.core.sampling import TreeColumns
from fedboost.ground.errors import ConfigError, DataError
from fedboost.ground.settings import parse_settings


def sample(seed, n=400, columns=4, missing=0.15):
    rng = np.random.default_rng(seed)
    values = rng.normal(0, 1, (n, columns)).astype(np.float32)
    values[:, 1] = np.round(values[:, 1] * 2)
    logit = 1.5 * values[:, 0] - np.abs(values[:, 1]) + rng.normal(0, 0.5, n)
    values[rng.random(values.shape) < missing] = np.nan
    return values, logit


def labels_for(objective, logit):
    if objective == "binary:logistic":
        return (logit > np.median(logit)).astype(float)
    if objective == "multi:softprob":
        return np.digitize(logit, np.quantile(logit, [0.3, 0.7])).astype(float)
    if objective in ("count:poisson", "reg:tweedie"):
        return np.maximum(np.round(logit + 2.0), 0.0)
    if objective == "reg:gamma":
        return np.exp(logit / 2.0)
    return logit


def params_for(objective, **more):
    if objective == "multi:softprob":
        more["num_class"] = 3
    return TreeParams(objective=objective, **{"max_bin": 8, "max_depth": 3, **more})


def naive_splits(rules, own, bins_of, c):
    """All splits of a column in canonical order: (last bin or set of bins, missing left)."""
    params, fixed, missing = rules.params, rules.fixed, rules.binning.missing
    lacking = missing in bins_of
    sides = (False, True)[: 1 + lacking]
    if c not in rules.binning.categories:
        n_bins = int(rules.binning.n_bins[c])
        return [(b, m) for b in range(n_bins - 1) for m in sides] + [(n_bins - 1, False)] * lacking
    sums = {b: own[np.array(bins_of) == b].sum(axis=0) for b in set(bins_of) - {missing}}
    scores = {  # of every output
        b: [
            float(g) * fixed.g_unit / (float(h) * fixed.h_unit + params.reg_lambda)
            for g, h in zip(total[0::2], total[1::2], strict=True)
        ]
        for b, total in sums.items()
    }
    columns = list(zip(*scores.values(), strict=True))
    widest = max(range(len(columns)), key=lambda k: max(columns[k]) - min(columns[k]), default=0)
    values = sorted({score[widest] for score in scores.values()})
    cuts = [frozenset(b for b in scores if scores[b][widest] <= value) for value in values]
    listed = [(cut, m) for cut in cuts[:-1] for m in sides]
    return listed + [(cut, False) for cut in cuts[-1:]] * lacking


def naive_tree(rules, bins, gh, rows, columns):
    """Row by row and split by split, in Python: {heap id: (column, bin or bins, missing_left) or
    sums}.
    """
    params, fixed, missing = rules.params, rules.fixed, rules.binning.missing

    def score(total):
        return sum(
            (float(g) * fixed.g_unit) ** 2 / (float(h) * fixed.h_unit + params.reg_lambda)
            for g, h in zip(total[0::2], total[1::2], strict=True)
        )

    def goes_left(b, last, missing_left):
        if b == missing:
            return missing_left
        return b in last if isinstance(last, frozenset) else b <= last

    def grow(node, own, depth):
        total = gh[own].sum(axis=0)
        best, won = 1e-6, None
        for c in columns if depth < params.max_depth else []:
            bins_of = [int(bins[row, c]) for row in own]
            for b, m in naive_splits(rules, gh[own], bins_of, c):
                is_left = np.array([goes_left(x, b, m) for x in bins_of])
                left = gh[own[is_left]].sum(axis=0)
                right = gh[own[~is_left]].sum(axis=0)
                weights = [sum(s[1::2]) * fixed.h_unit for s in (left, right)]
                if min(weights) < params.min_child_weight:
                    continue
                gain = score(left) + score(right) - score(total)
                if gain > best and gain >= params.gamma:
                    best, won = gain, (int(c), b, m, is_left)
        if won is None:
            return {node: total.tolist()}
        c, b, m, is_left = won
        return {
            node: (c, b, m),
            **grow(2 * node + 1, own[is_left], depth + 1),
            **grow(2 * node + 2, own[~is_left], depth + 1),
        }

    return grow(0, rows, 0)


@pytest.mark.parametrize("categorical", [(), (2,), (0, 1, 2, 3)], ids=str)
@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.parametrize("seed", range(3))
def test_a_tree_is_the_one_grown_row_by_row(seed, outputs, categorical):
    values, _ = sample(seed, n=150)
    rng = np.random.default_rng(seed)
    pull = np.nan_to_num(values[:, :1] + values[:, 2:3])
    g = rng.normal(pull, 0.3, (150, outputs))
    h = rng.uniform(0.1, 1.0, (150, outputs))
    g = np.clip(g, -4, 4)
    for c in categorical:  # more than there are bins, in an order that says nothing
        values[:, c] = (7 * np.clip(np.round(3 * values[:, c]), -5, 5) + 35) % 11
    fixed = fixed_point.encoding_for_rows(150, None, 4.0, 1.0)
    params = params_for("binary:logistic", gamma=0.3, min_child_weight=4.0)
    rules = Rules(params, binning.fit(values, 8, categorical), fixed)
    bins, gh = rules.binning.transform(values), fixed.encode(g, h)
    rows = sampling.round_rows(seed, 0, 150, 0.9)
    drawn = params.model_copy(update={"colsample_bytree": 0.8, "seed": seed})
    columns = TreeColumns.draw_columns(drawn, 0, (4,))
    tree = local.grow_tree(GrowingTree(rules, bins, gh, rows, columns))
    naive = naive_tree(rules, bins, gh, rows, columns.all)
    assert tree.node.tolist() == sorted(naive)
    assert tree.n_nodes > 3
    if len(categorical) == 4:
        assert tree.left_bins[~tree.is_leaf].any(axis=1).all()
    for i, node in enumerate(tree.node.tolist()):
        if not tree.is_leaf[i]:
            held = frozenset(set_members(tree.left_bins[i].tobytes()))
            divided = held or int(tree.bin[i])
            assert (int(tree.feature[i]), divided, bool(tree.missing_left[i])) == naive[node]
            continue
        total = np.array(naive[node])
        newton = -total[0::2] * fixed.g_unit / (total[1::2] * fixed.h_unit + 1.0)
        np.testing.assert_allclose(tree.value[i], 0.3 * newton, rtol=1e-12)
        assert tree.cover[i] == pytest.approx(total[1::2].sum() * fixed.h_unit)


def same_trees(one, other, columns=None):
    for trees, others in zip(one.rounds, other.rounds, strict=True):
        for a, b in zip(trees, others, strict=True):
            for name, array in a.to_arrays().items():
                assert np.array_equal(array, b.to_arrays()[name]), name


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_the_order_of_rows_does_not_change_one_bit(objective):
    values, logit = sample(1)
    y, weight = labels_for(objective, logit), np.random.default_rng(1).uniform(0.5, 2, 400)
    params = params_for(objective, n_estimators=4)
    order = np.random.default_rng(2).permutation(400)
    one = local.train(TrainingTable(values, y, weight), params)
    other = local.train(TrainingTable(values[order], y[order], weight[order]), params)
    same_trees(one, other)
    assert np.array_equal(one.base_margin, other.base_margin)


def test_threads_do_not_change_one_bit():
    values, logit = sample(2)
    table = TrainingTable(values, labels_for("binary:logistic", logit))
    params = params_for("binary:logistic", n_estimators=5, subsample=0.8, colsample_bytree=0.6)
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda _: local.train(table, params), range(6)))
    for other in results[1:]:
        same_trees(results[0], other)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_every_objective_learns_and_history_is_the_models_own_score(objective):
    values, logit = sample(3)
    y = labels_for(objective, logit)
    train, held = TrainingTable(values[:300], y[:300]), TrainingTable(values[300:], y[300:])
    params = params_for(objective, n_estimators=15)
    result = local.train(train, params, held)
    name = params.metrics[-1]
    first, last = result.history[0]["train"][name], result.history[-1]["train"][name]
    assert last < 0.85 * first
    assert len(result.rounds) == len(result.history) == 15
    for part, table in (("train", train), ("validation", held)):
        scored = metrics.evaluate(name, table.y, result.predict(table.values))
        assert result.history[-1][part][name] == pytest.approx(scored, rel=1e-12)
    nothing = objectives.transform(objective, np.tile(result.base_margin, (100, 1)))
    assert result.history[-1]["validation"][name] < metrics.evaluate(name, held.y, nothing)


def test_vector_leaves_learn_all_classes_with_one_tree_a_round():
    values, logit = sample(4)
    y = labels_for("multi:softprob", logit)
    params = params_for("multi:softprob", n_estimators=15, multi_output=True, eval_metric="merror")
    result = local.train(TrainingTable(values, y), params)
    assert all(len(trees) == 1 and trees[0].value.shape[1] == 3 for trees in result.rounds)
    assert result.history[-1]["train"]["merror"] < 0.25


def test_leaves_of_absolute_error_are_medians_of_residuals():
    values, logit = sample(5)
    result = local.train(
        TrainingTable(values, logit), params_for("reg:absoluteerror", n_estimators=1)
    )
    ((tree,),) = result.rounds
    leaves = tree.leaf_of_values(values)
    for leaf in np.unique(leaves):
        middle = np.median(logit[leaves == leaf]) - np.median(logit)
        assert tree.value[leaf, 0] == pytest.approx(0.3 * middle)


def test_early_stopping_predicts_with_the_best_round():
    values, logit = sample(6)
    y = labels_for("binary:logistic", logit + np.random.default_rng(0).normal(0, 2, 400))
    held = TrainingTable(values[200:], y[200:])
    params = params_for("binary:logistic", n_estimators=200, early_stopping_rounds=3)
    result = local.train(TrainingTable(values[:200], y[:200]), params, held)
    series = [one["validation"]["logloss"] for one in result.history]
    assert len(series) < 200
    assert result.best_round == int(np.argmin(series)) == len(series) - 4
    scored = metrics.evaluate("logloss", held.y, result.predict(held.values))
    assert scored == pytest.approx(series[result.best_round])


def test_validation_rows_do_not_influence_the_trees():
    values, logit = sample(7)
    y = labels_for("binary:logistic", logit)
    params = params_for("binary:logistic", n_estimators=3)
    alone = local.train(TrainingTable(values[:300], y[:300]), params)
    watched = local.train(
        TrainingTable(values[:300], y[:300]), params, TrainingTable(values[300:] * 9, y[300:])
    )
    same_trees(alone, watched)


def test_missing_values_learn_a_side():
    x = np.array([np.nan] * 50 + list(range(100)), dtype=np.float32)
    y = np.array([1.0] * 50 + [1.0] * 50 + [0.0] * 50)
    result = local.train(
        TrainingTable(x[:, None], y), params_for("binary:logistic", n_estimators=5)
    )
    assert metrics.evaluate("auc", y, result.predict(x[:, None])) > 0.99
    only = np.where(y == 1.0, np.nan, x).astype(np.float32)
    result = local.train(
        TrainingTable(only[:, None], y), params_for("binary:logistic", n_estimators=1)
    )
    assert result.history[0]["train"]["logloss"] < 0.6
    ((tree,),) = result.rounds
    assert not tree.missing_left[0]
    assert (tree.leaf_of_values(only[:, None]) == 1).tolist() == (y == 0.0).tolist()


def test_labels_without_gain_give_a_single_leaf():
    values, _ = sample(8)
    result = local.train(
        TrainingTable(values, np.full(400, 3.0)), params_for("reg:squarederror", n_estimators=2)
    )
    assert [trees[0].n_nodes for trees in result.rounds] == [1, 1]
    assert result.predict(values).tolist() == [[3.0]] * 400


def test_moving_columns_to_another_party_moves_only_their_numbers():
    values, logit = sample(9)
    y = labels_for("binary:logistic", logit)
    params = params_for("binary:logistic", n_estimators=3)
    here = local.train(TrainingTable(values, y), params)
    there = local.train(TrainingTable(values[:, [2, 3, 0, 1]], y), params, column_groups=(2, 2))
    assert np.array_equal(here.margins(values), there.margins(values[:, [2, 3, 0, 1]]))


def test_cut_points_and_summary_may_come_from_elsewhere():
    values, logit = sample(12)
    table = TrainingTable(values, labels_for("count:poisson", logit))
    params = params_for("count:poisson", n_estimators=3)
    plain = local.train(table, params)
    summary = objectives.Summary.of(params, table.y, table.weights)
    cuts = binning.fit(values, params.max_bin)
    again = local.train(table, params, cuts=cuts, summary=summary)
    same_trees(plain, again)
    coarse = replace(summary, mean=2.0, high=1024.0)
    other = local.train(table, params, cuts=binning.fit(values, 4), summary=coarse)
    assert other.base_margin[0] == np.log(2.0)
    assert max(int(tree.bin.max()) for trees in other.rounds for tree in trees) < 4


def test_parties_that_hold_the_rows_sample_their_own():
    values, logit = sample(13)
    y = labels_for("binary:logistic", logit)
    params = params_for("binary:logistic", n_estimators=3, subsample=0.5)
    alone = local.train(TrainingTable(values, y), params)
    same_trees(alone, local.train(TrainingTable(values, y, row_groups=(400,)), params))
    shared = local.train(TrainingTable(values, y, row_groups=(150, 250)), params)
    assert not np.array_equal(alone.margins(values), shared.margins(values))


@pytest.mark.parametrize(
    ("changes", "kind", "text"),
    [
        ({"params": {"early_stopping_rounds": 2}}, ConfigError, "needs validation rows"),
        ({"groups": (1, 2)}, ConfigError, "do not make up 4 columns"),
        ({"row_groups": (200, 199)}, ConfigError, "do not make up 400 rows"),
        ({"row_groups": (-1, 401)}, ConfigError, "do not make up 400 rows"),
        ({"y": np.zeros(399)}, DataError, "training values have the shape"),
        ({"y": np.zeros(400)}, DataError, "same class"),
        ({"held": np.full(400, np.nan)}, DataError, "400 of 400 labels are missing"),
    ],
)
def test_what_does_not_fit_together_is_refused(changes, kind, text):
    values, logit = sample(10)
    y = changes.get("y", labels_for("binary:logistic", logit))
    held = TrainingTable(values, changes["held"]) if "held" in changes else None
    params = params_for("binary:logistic", n_estimators=1, **changes.get("params", {}))
    table = TrainingTable(values, y, row_groups=changes.get("row_groups", ()))
    with pytest.raises(kind, match=text):
        local.train(table, params, held, changes.get("groups"))


def test_fewer_bits_of_precision_give_nearly_the_same_model():
    values, logit = sample(11)
    y = labels_for("binary:logistic", logit)
    losses = [
        local.train(
            TrainingTable(values, y),
            params_for("binary:logistic", n_estimators=8, precision_bits=bits),
        ).history[-1]["train"]["logloss"]
        for bits in (12, 40)
    ]
    assert losses[0] != losses[1]
    assert losses[0] == pytest.approx(losses[1], rel=0.02)


@pytest.mark.parametrize("more", [{}, {"goss": {"top_rate": 0.3, "other_rate": 0.3}}], ids=str)
def test_leaves_of_few_bits_are_those_of_the_gradients_themselves(more):
    """Also where one label far above the others leaves hessians less than a unit."""
    draw = np.random.default_rng(4)
    values = np.asfortranarray(draw.normal(size=(400, 3)).astype(np.float32))
    y = np.where(values[:, 0] > 0, draw.gamma(2.0, 1.0, 400), 0.0)
    y[7] = 500.0
    table = local.TrainingTable(values, y)
    said = {"n_estimators": 1, "max_depth": 3, "precision_bits": 7, "min_child_weight": 0.0}
    params = parse_settings(TreeParams, {"objective": "reg:tweedie", **said, **more})
    trained = local.train(table, params)
    objective = objectives.start_objective(params, Summary.of(params, y, table.weights))
    g, h = objective.gradients(np.tile(objective.base_margin, (400, 1)), y, table.weights)
    sample = sampling.round_sample(params, g, 0, 0)
    g, h = (part[sample.rows] * sample.factor[:, None] for part in (g, h))
    ((tree,),) = trained.rounds
    bins = trained.binning.transform(values)
    at = tree.leaf_of_bins(bins, trained.binning.missing)[sample.rows]
    for leaf in np.unique(at):
        total = g[at == leaf].sum() / (h[at == leaf].sum() + params.reg_lambda)
        assert tree.value[leaf, 0] == pytest.approx(-params.learning_rate * total, rel=1e-6)
    assert len(np.unique(at)) >= 3
