"""Growing from sums: parties that hold rows apart grow the trees of one table, bit for bit."""

from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csc_array

from fedboost.core import (
    binning,
    fixed_point,
    histogram,
    local,
    objectives,
    sampling,
    split,
)
from fedboost.core.binning import Binning
from fedboost.core.bins import Bins
from fedboost.core.growing_trees import GrowingTrees, plant_trees
from fedboost.core.growth import GrowingTree, best_splits
from fedboost.core.local import TrainingTable, Watched
from fedboost.core.objectives import Summary
from fedboost.core.params import TreeParams
from fedboost.core.partition import ROOT
from fedboost.core.rules import Rules
from fedboost.core.sampling import TreeColumns
from tests.support.columns import chosen
from tests.unit.core.test_local import labels_for, naive_tree, params_for, sample

N = 240


@dataclass
class Job:
    """What one table's tree grows from, and the rows that each party has of it."""

    rules: Rules
    values: np.ndarray
    gh: np.ndarray
    rows: np.ndarray
    columns: np.ndarray
    sparse: bool = False
    layers: list[np.ndarray] | None = None

    def growing(self, home=None):
        """The tree at its root, of all rows or of a party's."""
        home = np.arange(N) if home is None else home
        values = csc_array(self.values[home]) if self.sparse else self.values[home]
        bins: Bins = self.rules.binning.transform(values)
        rows = np.flatnonzero(np.isin(home, self.rows)).astype(np.int32)
        columns = chosen(self.columns, self.layers or ())
        depth = len(self.layers) if self.layers else None
        return GrowingTree(self.rules, bins, self.gh[home], rows, columns, depth)


def job(seed, outputs=1, categorical=(), zeros=False, rate=1.0, **params):
    values, _ = sample(seed, n=N)
    rng = np.random.default_rng(seed)
    for c in categorical:
        values[:, c] = np.clip(np.round(3 * values[:, c]), -5, 5) + 5
    if zeros:
        values[rng.random(values.shape) < 0.5] = 0.0
    pull = np.nan_to_num(values[:, :1] + values[:, 2:3])
    g = np.clip(rng.normal(pull, 0.3, (N, outputs)), -4, 4)
    h = rng.uniform(0.1, 1.0, (N, outputs))
    fixed = fixed_point.encoding_for_rows(N, None, 4.0, 1.0)
    settings = TreeParams(**{"max_bin": 8, "max_depth": 4, "min_child_weight": 2.0, **params})
    rules = Rules(settings, binning.fit(values, 8, categorical), fixed)
    rows = sampling.round_rows(seed, 0, N, rate)
    columns = TreeColumns.draw_columns(TreeParams(seed=seed, colsample_bytree=rate), 0, (4,)).all
    return Job(rules, values, fixed.encode(g, h), rows, columns, zeros)


def homes(seed, n_parties, n=N):
    """Random rows for each party; nobody's where there are more parties than luck allows."""
    party = np.random.default_rng(seed).integers(0, n_parties, n)
    return [np.flatnonzero(party == k) for k in range(n_parties)]


def added(parties):
    """What secure aggregation would tell everybody."""
    return reduce(np.add, [party.sums() for party in parties])


def grow_together(parties, layers=100):
    for _ in range(layers):
        if parties[0].is_over:
            return
        total = added(parties)
        for party in parties:
            party.take(total)


def assert_same(one, other):
    for name, array in one.to_arrays().items():
        assert array.tobytes() == other.to_arrays()[name].tobytes(), name


CASES: dict[str, dict[str, Any]] = {
    "binary": {},
    "three outputs": {"outputs": 3},
    "categories": {"categorical": (1, 2)},
    "sparse": {"zeros": True},
    "sampled": {"rate": 0.7},
    "penalised": {"reg_alpha": 0.5, "gamma": 1.0, "outputs": 2},
    "light children": {"min_child_weight": 0.0, "max_depth": 7},
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("n_parties", [1, 2, 3, 8])
def test_parties_that_hold_the_rows_grow_the_tree_of_one_table(case, n_parties):
    for seed in range(3):
        own = job(seed, **CASES[case])
        whole, apart = own.growing(), homes(seed, n_parties)
        expected = local.grow_tree(whole)
        assert expected.n_nodes > 3
        parties = [own.growing(home) for home in apart]
        grow_together(parties)
        leaves = whole.partition.node_of_rows(N)
        for home, party in zip(apart, parties, strict=True):
            assert_same(party.tree(), expected)
            assert np.array_equal(party.partition.node_of_rows(len(home)), leaves[home])


def test_a_party_without_rows_grows_the_same_tree():
    own = job(5)
    parties = [own.growing(np.arange(N)), own.growing(np.arange(0))]
    grow_together(parties)
    assert_same(parties[0].tree(), parties[1].tree())
    assert parties[0].tree().n_nodes > 3


def test_layers_may_have_columns_of_their_own():
    own = job(6, rate=0.9)
    layers = [own.columns[1:], own.columns[:1], own.columns]
    own.layers = layers
    expected = local.grow_tree(own.growing())
    depth = np.log2(expected.node + 1).astype(int)
    for layer, usable in enumerate(layers):
        assert set(expected.feature[(depth == layer) & ~expected.is_leaf]) <= set(usable)
    assert depth.max() == len(layers)
    parties = [own.growing(home) for home in homes(6, 3)]
    grow_together(parties)
    assert_same(parties[0].tree(), expected)
    for usable in layers:
        stump = replace(own, layers=[usable])
        alone = replace(job(6, max_depth=1), rows=own.rows, columns=usable)
        assert_same(local.grow_tree(stump.growing()), local.grow_tree(alone.growing()))


def test_missing_rows_that_add_up_to_nothing_count_as_none():
    """As a trainer that looks at rows takes them: they go right, and no split is better for it."""
    for seed in range(4):
        own = job(seed, min_child_weight=0.0)
        own.gh[np.isnan(own.values).any(axis=1)] = 0
        tree = local.grow_tree(own.growing())
        bins = own.rules.binning.transform(own.values)
        naive = naive_tree(own.rules, bins, own.gh, own.rows, own.columns)
        assert tree.node.tolist() == sorted(naive)
        inner = np.flatnonzero(~tree.is_leaf)
        assert len(inner) > 2
        for i in inner:
            found = int(tree.feature[i]), int(tree.bin[i]), bool(tree.missing_left[i])
            assert found == naive[int(tree.node[i])]
            assert not found[2]


# Few leaves


def naive_leaves(tree, most):
    """The nodes that a whole tree divides first, by gain: one look at all of them for each."""
    gain = dict(zip(tree.node.tolist(), tree.gain.tolist(), strict=True))
    inner, divided, open_nodes = set(tree.node[~tree.is_leaf].tolist()), list[int](), [ROOT]
    while len(divided) < most - 1:
        ready = [node for node in open_nodes if node in inner]
        if not ready:
            break
        best = max(ready, key=lambda node: gain[node])
        open_nodes.remove(best)
        open_nodes += [2 * best + 1, 2 * best + 2]
        divided.append(best)
    return set(divided)


@pytest.mark.parametrize("leaves", [2, 3, 5, 8, 100])
@pytest.mark.parametrize("seed", range(4))
def test_few_leaves_are_those_that_the_greatest_gains_of_the_whole_tree_make(seed, leaves):
    said = {"max_depth": 5, "max_leaves": leaves, "grow_policy": "lossguide"}
    own, whole = job(seed, **said), local.grow_tree(job(seed, max_depth=5).growing())
    tree = local.grow_tree(own.growing())
    divided = naive_leaves(whole, leaves)
    assert set(tree.node[~tree.is_leaf].tolist()) == divided
    assert tree.is_leaf.sum() == min(leaves, whole.is_leaf.sum())
    place = {node: i for i, node in enumerate(whole.node.tolist())}
    for i, node in enumerate(tree.node.tolist()):
        j = place[node]
        assert tree.cover[i] == whole.cover[j]
        if node in divided:
            assert (tree.feature[i], tree.bin[i]) == (whole.feature[j], whole.bin[j])
    bins = own.rules.binning.transform(own.values)
    leaf = tree.leaf_of_bins(bins, own.rules.binning.missing)[own.rows]
    for i in np.flatnonzero(tree.is_leaf).tolist():
        G, H = own.gh[own.rows[leaf == i]].sum(axis=0).reshape(-1, 2).T
        expected = split.leaf_value(G[None], H[None], own.rules.params, own.rules.fixed)
        assert np.array_equal(tree.value[i], expected[0])
    parties = [own.growing(home) for home in homes(seed, 3)]
    grow_together(parties)
    assert_same(parties[0].tree(), tree)


def test_no_node_is_asked_for_that_few_leaves_cannot_hold():
    own = job(3, max_depth=4, max_leaves=2, grow_policy="lossguide").growing()
    own.take(own.sums())
    assert own.is_over
    assert set(own.splits) == {ROOT}
    more = job(3, max_depth=4, max_leaves=3, grow_policy="lossguide").growing()
    while not more.is_over:
        more.take(more.sums())
    assert len(more.splits) <= 3


# What is asked for


def test_the_lighter_child_is_asked_for_and_the_left_one_if_equal():
    rules = Rules(
        TreeParams(max_depth=2, min_child_weight=0.0),
        Binning(4, (np.array([0.5], np.float32), np.array([0.5], np.float32))),
        fixed_point.encoding_for_rows(8, 20, 4.0, 4.0),
    )
    bins = np.column_stack([np.repeat([0, 1], 4), np.tile([0, 1], 4)]).astype(np.uint8, order="F")
    gradient = np.repeat([3, -3], 4)
    rows, columns = np.arange(8, dtype=np.int32), np.arange(2, dtype=np.int32)
    for weights, lighter in (((2, 2), 1), ((3, 2), 2), ((2, 3), 1)):
        gh = np.column_stack([gradient, np.repeat(weights, 4)]).astype(np.int64) << 18
        growing = GrowingTree(rules, bins, gh, rows, chosen(columns))
        assert growing.shape == (1, 2, 5, 2)
        growing.take(growing.sums())
        own = growing.partition.rows(lighter)
        assert len(own) == 4
        assert np.array_equal(growing.sums(), histogram.build(bins, [own], gh, 5))


def test_only_usable_columns_are_asked_for():
    own = job(7, rate=0.5)
    growing = own.growing()
    assert growing.shape == (1, 2, 9, 2)
    assert growing.sums().shape == growing.shape
    growing.take(growing.sums())
    assert growing.sums().shape == growing.shape


# An early end


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_a_tree_closed_early_is_a_shallower_one(layers):
    own = job(8)
    shallow = replace(own, rules=replace(own.rules, params=TreeParams(
        max_bin=8, max_depth=layers, min_child_weight=2.0
    )))  # fmt: skip
    parties = [own.growing(home) for home in homes(8, 3)]
    grow_together(parties, layers)
    assert not parties[0].is_over
    for party in parties:
        party.close()
        assert party.is_over
        assert_same(party.tree(), local.grow_tree(shallow.growing()))


def test_a_tree_closed_before_its_root_is_a_leaf_of_nothing():
    growing = job(9, reg_lambda=0.0).growing()
    growing.close()
    tree = growing.tree()
    assert (tree.node.tolist(), tree.value.tolist(), tree.cover.tolist()) == ([ROOT], [[0.0]], [0])
    assert growing.shape[0] == 0


# Many trees at once


def shared(table, params):
    """Rules, objective and cut points of a table whose rows many parties hold."""
    summary = Summary.of(params, table.y, table.weights)
    objective = objectives.start_objective(params, summary)
    fixed = objectives.encoding(params, objective, summary)
    cuts = binning.fit(table.values, params.max_bin, table.categorical)
    return Rules(params, cuts, fixed), objective


def train_apart(table, params, n_columns):
    """Rounds of trees of parties that hold the rows, and tell one another sums only."""
    rules, objective = shared(table, params)
    indices = np.split(np.arange(len(table.y)), np.cumsum(table.row_groups)[:-1])
    contexts = [
        Watched.of(TrainingTable(table.values[own], table.y[own]), rules.binning, objective)
        for own in indices
    ]
    rounds = []
    for number in range(params.n_estimators):
        tree_batches = []
        for party, context in enumerate(contexts):
            gradients = objective.gradients(context.margin, context.y, context.weight)
            drawn = sampling.round_sample(params, gradients[0], number, number, party)
            own = replace(rules, own_rows_min=table.own_rows_min[party : party + 1])
            trees = plant_trees(own, context.bins, gradients, drawn, number, (n_columns,))
            tree_batches.append(GrowingTrees(list(trees)))
        while not tree_batches[0].is_over:
            total = added(tree_batches)
            assert len(total) == sum(tree_batches[0].sizes)
            for tree_batch in tree_batches:
                tree_batch.take(total)
        of_forest = len(tree_batches[0].trees) // params.trees_per_round
        whole = [[tree.tree() for tree in tree_batch.trees] for tree_batch in tree_batches]
        found = [[replace(t, value=t.value / of_forest) for t in own] for own in whole]
        for own, context in zip(found, contexts, strict=True):
            context.advance(own, rules.binning.missing)
        rounds.append(found)
    return rounds


@pytest.mark.parametrize(
    "how",
    [
        {"objective": "binary:logistic"},
        {"objective": "binary:logistic", "subsample": 0.6, "colsample_bytree": 0.5},
        {"objective": "binary:logistic", "goss": {}},
        {"objective": "binary:logistic", "forest": {"n_trees": 3, "colsample_bytree": 0.7}},
        {"objective": "multi:softprob", "goss": {}},
        {"objective": "multi:softprob", "multi_output": True},
        {"objective": "multi:softprob", "forest": {"n_trees": 2, "subsample": 0.5}},
        {"objective": "reg:squarederror"},
        {"objective": "count:poisson", "subsample": 0.5},
    ],
    ids=str,
)
def test_rounds_of_parties_that_hold_the_rows_are_those_of_one_table(how):
    values, logit = sample(14)
    params = params_for(**{"n_estimators": 3, **how})
    table = TrainingTable(
        values, labels_for(params.objective, logit), row_groups=(90, 10, 200, 100)
    )
    expected = local.train(table, params)
    for found, trees in zip(train_apart(table, params, 4), expected.rounds, strict=True):
        for own in found:
            for one, other in zip(own, trees, strict=True):
                assert_same(one, other)
    assert max(tree.n_nodes for trees in expected.rounds for tree in trees) > 3


def test_a_grove_goes_on_while_one_tree_grows_and_closes_all():
    values, logit = sample(15)
    params = params_for("binary:logistic", max_depth=2, forest={"n_trees": 3})
    rules, objective = shared(TrainingTable(values, labels_for("binary:logistic", logit)), params)
    context = Watched.of(
        TrainingTable(values, labels_for("binary:logistic", logit)), rules.binning, objective
    )
    gradients = objective.gradients(context.margin, context.y, context.weight)
    drawn = sampling.round_sample(params, gradients[0], 0, 0)

    def tree_batch():
        return GrowingTrees(list(plant_trees(rules, context.bins, gradients, drawn, 0, (4,))))

    early, whole = tree_batch(), tree_batch()
    early.trees[1].close()
    assert early.sizes == [4 * 9 * 2, 0, 4 * 9 * 2]
    for one in (early, whole):
        while not one.is_over:
            one.take(one.sums())
    assert early.trees[1].tree().n_nodes == 1
    for place in (0, 2):
        assert_same(early.trees[place].tree(), whole.trees[place].tree())
    closed = tree_batch()
    closed.close()
    assert closed.is_over
    assert closed.sums().size == 0


# Choosing


@pytest.mark.parametrize("categorical", [(), (1,), (0, 1, 2, 3)], ids=str)
@pytest.mark.parametrize("outputs", [1, 2])
def test_nodes_scored_together_have_the_splits_of_nodes_scored_alone(outputs, categorical):
    own = job(10, outputs, categorical, min_child_weight=0.5)
    rng = np.random.default_rng(10)
    bins = own.rules.binning.transform(own.values)
    complete = np.flatnonzero(~np.isnan(own.values).any(axis=1)).astype(np.int32)
    nodes = [complete]
    nodes += [np.sort(rng.choice(N, 40, replace=False)).astype(np.int32) for _ in range(6)]
    nodes += [complete[:2], complete[:0]]
    columns = np.array([0, 1, 3], np.int32)
    cells = histogram.build(bins, nodes, own.gh, 9, columns)
    totals = np.array([own.gh[rows].sum(axis=0) for rows in nodes])
    together = best_splits(own.rules, cells, totals, columns)
    alone = [
        best_splits(own.rules, one[None], total[None], columns)[0]
        for one, total in zip(cells, totals, strict=True)
    ]
    assert together[-1] is None
    assert None not in together[:7]
    for found, single in zip(together, alone, strict=True):
        if found is None or single is None:
            assert found is single is None
            continue
        assert found[0] == single[0]
        assert np.array_equal(found[1], single[1])
        assert found[0].column in columns


def test_of_equal_gains_the_lowest_column_wins_be_it_of_categories_or_not():
    values = np.repeat([[0.0], [1.0]], 4, axis=0) * np.ones((8, 3))
    gh = np.column_stack([np.repeat([-2, 2], 4), np.full(8, 4)]).astype(np.int64) << 18
    fixed = fixed_point.encoding_for_rows(8, 20, 4.0, 4.0)
    rows, every = [np.arange(8, dtype=np.int32)], np.arange(3, dtype=np.int32)
    for categorical in ((), (0,), (1, 2), (0, 1, 2)):
        cuts = binning.fit(values.astype(np.float32), 4, categorical)
        rules = Rules(TreeParams(max_bin=4), cuts, fixed)
        bins = cuts.transform(values.astype(np.float32))
        for columns in (every, every[1:], every[::2][1:]):
            cells = histogram.build(bins, rows, gh, 5, columns)
            (found,) = best_splits(rules, cells, gh.sum(axis=0)[None], columns)
            assert found is not None
            won, left = found
            assert won.column == columns[0]
            assert bool(won.left_bins) == (columns[0] in categorical)
            assert left.tolist() == gh[:4].sum(axis=0).tolist()
