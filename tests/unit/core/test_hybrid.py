"""HybridTree on pooled rows: against a naive tree in floats, and what its parts must keep to."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fedboost.core import binning, fixed_point, hybrid, local, objectives
from fedboost.core.hybrid import HybridParams
from fedboost.core.objectives import Summary
from fedboost.core.params import Goss, TreeParams
from fedboost.core.rules import Rules
from fedboost.ground.errors import ConfigError
from fedboost.ground.settings import parse_settings
from tests.support import pooled_hybrid
from tests.support.columns import chosen
from tests.support.pooled_hybrid import HostColumns

GAP_MAX = 1e-9  # of the naive trees, whose sums are floats

# One tree the naive way: every node tries every cut between two values that occur in it


def cuts(x):
    """The ways to divide a column, thresholds rising, missing values right and then left."""
    missing = np.isnan(x)
    present = np.unique(x[~missing])
    for value in present[1:]:
        yield x < value
        if missing.any():
            yield (x < value) | missing
    if missing.any() and len(present):
        yield ~missing


def score(g, h, params):
    below = h.sum() + params.reg_lambda
    return g.sum() ** 2 / below if below else 0.0


def gain(left, g, h, params):
    if min(h[left].sum(), h[~left].sum()) < params.min_child_weight:
        return -np.inf
    both = score(g[left], h[left], params) + score(g[~left], h[~left], params)
    return both - score(g, h, params)


def divided(x, g, h, rows, layers, params):
    """The leaves of some rows, each the rows in it; all arrays by row."""
    found = [
        (gain(left, g[rows], h[rows], params), left)
        for column in x[rows].T
        for left in cuts(column)
    ]
    best, left = max(found, key=lambda one: one[0], default=(0.0, None))
    if left is None or not layers or best <= 1e-6:
        return [rows]
    sides = (rows[left], rows[~left])
    return [leaf for side in sides for leaf in divided(x, g, h, side, layers - 1, params)]


def leaf_value(g, h, params):
    below = h.sum() + params.reg_lambda
    return -g.sum() / below if below else 0.0


def naive_values(guest, hosts, g, h, params):
    """What one tree says of each row; hosts are pairs of values and rows."""
    bottom, below = np.zeros(len(g)), np.zeros(len(g))
    holders = np.zeros(len(g))
    for _, rows in hosts:
        holders[rows] += 1
    for top in divided(guest, g, h, np.arange(len(g)), params.guest_depth, params):
        w = leaf_value(g[top], h[top], params)
        bottom[top] = w
        rest = g + h * w
        for values, rows in hosts:
            spread = np.full((len(g), values.shape[1]), np.nan)
            spread[rows] = values
            own = np.intersect1d(top, rows)
            for leaf in divided(spread, rest, h, own, params.host_depth, params):
                below[leaf] += leaf_value(rest[leaf], h[leaf], params)
    return bottom + below / np.maximum(holders, 1)


def grid(draw, rows, columns, missing=0.0):
    """Few different values, so that every one has a bin of its own."""
    values = draw.integers(-4, 5, (rows, columns)).astype(np.float32)
    values[draw.random(values.shape) < missing] = np.nan
    return values


def tables(seed, rows=60, hosts=2, missing=0.0, label="number"):
    """A guest's table, and hosts that have some of its rows; they overlap, and rows are left."""
    draw = np.random.default_rng(seed)
    guest = grid(draw, rows, 2, missing)
    parts = []
    pull = np.nansum(guest, axis=1)
    for _ in range(hosts):
        own = np.sort(draw.choice(rows, rows // 2, replace=False)).astype(np.int32)
        values = grid(draw, len(own), 2, missing)
        pull[own] += np.nansum(values, axis=1)
        parts.append(HostColumns(values, own))
    noisy = pull + draw.normal(size=rows)
    y = noisy if label == "number" else (noisy > 0).astype(np.float64)
    weight = draw.uniform(0.5, 2.0, rows)
    return local.TrainingTable(guest, y, weight), parts


def trained_once(table, parts, **said):
    params = HybridParams(n_estimators=1, learning_rate=1.0, **said)
    return params, pooled_hybrid.train(table, parts, params)


@pytest.mark.parametrize("label", ["number", "binary"])
@pytest.mark.parametrize("missing", [0.0, 0.2], ids=["", "missing"])
@pytest.mark.parametrize("hosts", [1, 2, 3])
@pytest.mark.parametrize("depths", [(1, 1), (2, 2), (1, 3)], ids=str)
def test_a_tree_is_the_naive_one(depths, hosts, missing, label):
    table, parts = tables(hosts + 10 * depths[0], hosts=hosts, missing=missing, label=label)
    objective = "reg:squarederror" if label == "number" else "binary:logistic"
    said = {"guest_depth": depths[0], "host_depth": depths[1], "reg_lambda": 0.5}
    params, trained = trained_once(table, parts, objective=objective, **said)
    loss = objectives.start_objective(params, Summary.of(params, table.y, table.weights))
    base = np.tile(loss.base_margin, (len(table.y), 1))
    g, h = (one[:, 0] for one in loss.gradients(base, table.y, table.weights))
    own = [(part.values, part.rows) for part in parts]
    expected = naive_values(table.values, own, g, h, params)
    found = trained.margin[:, 0] - loss.base_margin[0]
    np.testing.assert_allclose(found, expected, rtol=0, atol=GAP_MAX)
    [[tree]] = trained.trees
    assert all(below.splits for below in tree.hosts)
    assert np.ptp(expected) > 0.5


def values_of(trained, params, table, parts):
    """The only tree's values of all rows, without learning_rate, and its bottom nodes' alone."""
    loss = objectives.start_objective(params, Summary.of(params, table.y, table.weights))
    fixed = hybrid.encoding(params, loss, Summary.of(params, table.y, table.weights))
    rules = [Rules(params, own, fixed) for own in trained.binnings]
    every = [table.values, *(part.values for part in parts)]
    bins = [one.binning.transform(x) for one, x in zip(rules, every, strict=True)]
    [[tree]] = trained.trees
    found = pooled_hybrid.predict(tree, rules, bins, parts)
    leaves = tree.top.leaf_of_bins(bins[0], rules[0].binning.missing)
    return found, tree.top.value[leaves], tree.top.node[leaves]


def test_rows_that_nobody_has_keep_the_value_of_their_bottom_node():
    table, parts = tables(3)
    params, trained = trained_once(table, parts, objective="reg:squarederror")
    found, bottom, _ = values_of(trained, params, table, parts)
    alone = np.setdiff1d(np.arange(len(table.y)), np.concatenate([p.rows for p in parts]))
    held = np.setdiff1d(np.arange(len(table.y)), alone)
    assert len(alone) > 5
    assert found[alone].tobytes() == bottom[alone].tobytes()
    assert (found[held] != bottom[held]).mean() > 0.9


def test_a_host_adds_nothing_below_bottom_nodes_where_it_had_no_row_to_learn_from():
    table, _ = tables(4, hosts=0)
    said = {"objective": "reg:squarederror", "guest_depth": 2, "host_depth": 1}
    _, alone = trained_once(table, [], **said)
    top = alone.trees[0][0].top
    bins = alone.binnings[0].transform(table.values)
    at = top.node[top.leaf_of_bins(bins, alone.binnings[0].missing)]
    assert len(set(at.tolist())) == 4
    (seen,) = np.nonzero(at == at[0])  # the host learns below one bottom node of four
    draw = np.random.default_rng(0)
    learnt = [HostColumns(grid(draw, len(seen), 2), seen.astype(np.int32))]
    params, trained = trained_once(table, learnt, **said)
    everywhere = [HostColumns(grid(draw, len(at), 2), np.arange(len(at), dtype=np.int32))]
    found, bottom, again = values_of(trained, params, table, everywhere)
    assert again.tolist() == at.tolist()  # what a host has does not move the guest's part
    unseen = at != at[0]
    assert found[unseen].tobytes() == bottom[unseen].tobytes()
    assert (found[~unseen] != bottom[~unseen]).all()


def test_a_host_draws_among_its_own_rows_whatever_the_guest_draws():
    table, parts = tables(5, hosts=1)
    few = [HostColumns(parts[0].values[:1], parts[0].rows[:1])]
    params = HybridParams(objective="reg:squarederror", n_estimators=6, subsample=0.5)
    trained = pooled_hybrid.train(table, few, params)
    grown = [tree.hosts[0].values for (tree,) in trained.trees]
    assert all(grown)  # the one row that it has is drawn in every round
    more = [HostColumns(parts[0].values, parts[0].rows)]
    assert [tree.top.cover.tolist() for (tree,) in trained.trees[:1]] == [
        tree.top.cover.tolist() for (tree,) in pooled_hybrid.train(table, more, params).trees[:1]
    ]


def test_a_host_that_has_all_rows_continues_the_tree_where_the_guest_has_no_columns():
    """Without reg_lambda a subtree's gains on g + h·w are a tree's on g, and w + δ its leaves."""
    draw = np.random.default_rng(6)
    x, rows = grid(draw, 80, 3), np.arange(80, dtype=np.int32)
    y = np.nansum(x, axis=1) + draw.normal(size=80)
    weight = draw.uniform(0.5, 2.0, 80)
    said: dict[str, Any] = {"objective": "reg:squarederror", "reg_lambda": 0.0, "n_estimators": 3}
    blank = local.TrainingTable(np.empty((80, 0), np.float32), y, weight)
    found = pooled_hybrid.train(blank, [HostColumns(x, rows)], HybridParams(**said, host_depth=3))
    whole = local.train(local.TrainingTable(x, y, weight), TreeParams(**said, max_depth=3))
    expected = whole.margins(x)
    np.testing.assert_allclose(found.margin, expected, rtol=0, atol=GAP_MAX)
    for (tree,), (same,) in zip(found.trees, whole.rounds, strict=True):
        assert tree.top.n_nodes == 1
        splits = {node: (own.column, own.bin) for node, own in tree.hosts[0].splits.items()}
        inner = ~same.is_leaf
        named = zip(same.feature[inner].tolist(), same.bin[inner].tolist(), strict=True)
        assert splits == dict(zip(same.node[inner].tolist(), named, strict=True))


# Numbers that travel


def fixed_of(bits=40):
    return fixed_point.FixedPoint(bits, g_bound=32.0, h_bound=0.5)


def encoded(params, rows, g_bound, h_bound):
    """The encoding of a job whose objective and labels come to this."""
    objective: Any = SimpleNamespace(bounds=lambda _: (g_bound, h_bound))
    summary: Any = SimpleNamespace(rows=rows)
    return hybrid.encoding(params, objective, summary)


def test_a_residual_is_g_plus_h_times_the_leaf_to_half_a_unit():
    fixed, draw = fixed_of(), np.random.default_rng(8)
    g, h = draw.uniform(-1, 1, (50, 3)), draw.uniform(0, 0.5, (50, 3))
    value = draw.uniform(-2, 2, (50, 3))
    gh = fixed.encode(g, h)
    before = gh.copy()
    moved = hybrid.residual_gradients(gh, value, fixed)
    assert gh.tobytes() == before.tobytes()
    assert moved[:, 1::2].tobytes() == gh[:, 1::2].tobytes()
    exact = gh[:, 0::2] + fixed.decode_h(gh[:, 1::2]) * value / fixed.g_unit
    assert np.abs(moved[:, 0::2] - exact).max() <= 0.5
    assert hybrid.residual_gradients(gh, np.zeros((50, 3)), fixed).tobytes() == gh.tobytes()


def test_residuals_of_a_bottom_node_sum_up_to_what_reg_lambda_left():
    """Σ(g + h·w) = λ·G/(H + λ): nothing is left to say where λ is 0."""
    fixed, draw = fixed_of(), np.random.default_rng(9)
    gh = fixed.encode(draw.uniform(-1, 1, (50, 1)), draw.uniform(0.1, 0.5, (50, 1)))
    G, H = fixed.decode_g(gh[:, 0].sum()), fixed.decode_h(gh[:, 1].sum())
    for lam in (0.0, 1.0, 7.0):
        value = np.full((50, 1), -G / (H + lam))
        rest = fixed.decode_g(hybrid.residual_gradients(gh, value, fixed)[:, 0].sum())
        assert rest == pytest.approx(lam * G / (H + lam), abs=1e-9)


@given(
    g_bound=st.floats(1e-6, 1e6),
    h_bound=st.floats(1e-6, 1e6),
    rows=st.integers(1, 10**7),
    bits=st.none() | st.integers(8, 38),
    goss=st.booleans(),
)
@example(g_bound=1 / 17, h_bound=0.25, rows=1, bits=None, goss=False)  # a bound without slack
def test_no_residual_leaves_the_bounds_of_the_encoding(g_bound, h_bound, rows, bits, goss):
    sampled = Goss(top_rate=0.3, other_rate=0.1) if goss else None
    params = HybridParams(precision_bits=bits, goss=sampled)
    factor = sampled.factor if sampled else 1.0
    fixed = encoded(params, rows, g_bound, h_bound)
    g = np.array([[-1.0], [1.0], [-1.0], [1.0], [0.0]]) * (factor * g_bound)
    h = np.array([[1.0], [1.0], [1.0], [1.0], [1.0]]) * (factor * h_bound)
    most = hybrid.value_max(fixed)
    value = np.array([[-most], [most], [most], [-most], [most]])
    moved = hybrid.residual_gradients(fixed.encode(g, h), value, fixed)
    assert np.abs(moved).max() <= 1 << fixed.bits
    assert moved[:, 1].min() >= 0


def test_a_bottom_node_whose_hessians_are_almost_0_is_cut():
    x = np.array([[0.0], [0.0], [1.0], [1.0]], np.float32)
    params = HybridParams(reg_lambda=0.0, min_child_weight=0.0, guest_depth=1, learning_rate=0.5)
    fixed = encoded(params, 4, 1.0, 0.25)
    rules = Rules(params, binning.fit(x, params.max_bin), fixed)
    bins = rules.binning.transform(x)
    g = np.array([[1.0], [1.0], [-1e-3], [-1e-3]])
    h = np.array([[1e-9], [1e-9], [0.25], [0.25]])
    rows, columns = np.arange(4, dtype=np.int32), np.arange(1, dtype=np.int32)
    gh = fixed.encode(g, h)
    tree = hybrid.grow_top(rules, bins, gh, rows, chosen(columns), 1)
    most = hybrid.value_max(fixed)
    assert tree.value[1:, 0].tolist() == [-most, pytest.approx(4e-3)]
    lone = hybrid.grow_top(rules, bins, gh[:2], rows[:2], chosen(columns[:0]), 1)
    assert lone.value.tolist() == [[-most]]
    assert most > 16.0


# Settings


@pytest.mark.parametrize(
    ("raw", "word"),
    [
        ({"guest_depth": 0}, "guest_depth"),
        ({"host_depth": 0}, "host_depth"),
        ({"guest_depth": 14}, "guest_depth"),
        ({"guest_depth": 9, "host_depth": 6}, "make 15 layers; 14 is the most"),
        ({"guest_depth": 3, "host_depth": 2, "max_depth": 6}, "max_depth is 6"),
        ({"max_depth": 6}, "guest_depth and host_depth make 3"),
        ({"forest": {}}, "leave forest out"),
        ({"monotone_constraints": {"a": 1}}, "add further values"),
        ({"colsample_bynode": 0.5}, "use colsample_bylevel"),
        ({"max_leaves": 5, "grow_policy": "lossguide"}, "leave max_leaves out"),
        ({"split": "by chance"}, "split"),
    ],
)
def test_settings_that_no_tree_can_have_are_refused(raw, word):
    with pytest.raises(ConfigError) as refused:
        parse_settings(HybridParams, raw)
    assert word in " ".join(refused.value.lines())


@pytest.mark.parametrize(
    "raw", [{}, {"guest_depth": 13, "host_depth": 1}, {"guest_depth": 4, "max_depth": 5}]
)
def test_settings_that_agree_are_taken(raw):
    assert parse_settings(HybridParams, raw).split == "scored"
