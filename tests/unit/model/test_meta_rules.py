"""Rules that trees share, by hand; trees that a rule determines; meta-rules that rows bear out."""

import numpy as np
import pytest

from benchmarks import hybridtree_rules
from fedboost.core import binning, local
from fedboost.core.categories import BY_CATEGORY, NO_THRESHOLD, as_set
from fedboost.core.params import TreeParams
from fedboost.core.tree import Node, Split, tree_of_nodes
from fedboost.model import conditions
from fedboost.model.conditions import CATEGORIES, Condition, RuleMatch


def asks(column, threshold, missing_left=False):
    return Node(np.zeros(1), 1.0, Split(column, 0, np.float32(threshold), missing_left, 1.0))


def asks_set(column, *held):
    split = Split(column, BY_CATEGORY, NO_THRESHOLD, False, 1.0, as_set(np.array(held)))
    return Node(np.zeros(1), 1.0, split)


def leaf(value=1.0):
    return Node(np.array([value]), 1.0)


def below(threshold):
    return Condition(high=threshold, missing=False)


def from_on(threshold):
    return Condition(low=threshold)


# Figure 2b: column 0 is asked first in one tree, column 1 in the other.
FIRST = tree_of_nodes({0: asks(0, 5), 1: leaf(1), 2: asks(1, 3), 5: leaf(2), 6: leaf(3)})
SECOND = tree_of_nodes({0: asks(1, 3), 2: leaf(4), 1: asks(0, 5), 3: leaf(5), 4: leaf(6)})


def rules_of(tree):
    return {one.rule for one in conditions.find_rules([tree])}


def test_a_leafs_rule_is_all_that_its_path_asks_by_column():
    assert rules_of(FIRST) == {
        ((0, below(5)),),
        ((0, from_on(5)), (1, below(3))),
        ((0, from_on(5)), (1, from_on(3))),
    }


def test_the_rule_of_figure_2b_is_found_in_both_trees_whatever_the_order():
    found = {one.rule: one.trees for one in conditions.find_rules([FIRST, SECOND, FIRST])}
    assert found == {
        ((0, below(5)),): (0, 2),
        ((0, from_on(5)), (1, below(3))): (0, 1, 2),
        ((0, from_on(5)), (1, from_on(3))): (0, 2),
        ((0, below(5)), (1, below(3))): (1,),
        ((1, from_on(3)),): (1,),
    }


def test_rules_of_most_trees_come_first_and_of_those_the_shortest():
    found = conditions.find_rules([FIRST, SECOND, FIRST])
    assert [(len(one.trees), len(one.rule)) for one in found] == [
        (3, 2), (2, 1), (2, 2), (1, 1), (1, 2),
    ]  # fmt: skip
    assert hybridtree_rules.largest_share(found, 3) == 1.0
    assert hybridtree_rules.largest_share(found[1:], 3) == pytest.approx(2 / 3)
    assert hybridtree_rules.largest_share([], 3) == 0.0
    assert hybridtree_rules.repeated_share(found, 4) == 0.75
    assert hybridtree_rules.repeated_share(found[3:], 4) == 0.0


def test_conditions_on_one_column_are_merged():
    once = tree_of_nodes({0: asks(0, 5), 2: leaf(), 1: asks(0, 2), 3: leaf(), 4: leaf()})
    other = tree_of_nodes({0: asks(0, 2), 1: leaf(), 2: asks(0, 5), 5: leaf(), 6: leaf()})
    assert rules_of(once) == rules_of(other)
    assert ((0, Condition(2, 5, missing=False)),) in rules_of(once)


def test_rules_differ_where_they_treat_missing_values_differently():
    other = tree_of_nodes({0: asks(0, 5, missing_left=True), 1: leaf(), 2: leaf()})
    same = tree_of_nodes({0: asks(0, 5), 1: leaf(), 2: leaf()})
    assert not rules_of(other) & rules_of(same)


def test_rules_of_categories_are_their_sets():
    tree = tree_of_nodes(
        {0: asks_set(3, 0, 2), 2: leaf(), 1: asks_set(3, 2, 4), 3: leaf(), 4: leaf()}
    )
    assert rules_of(tree) == {
        ((3, Condition(categories=1 << 2, missing=False)),),
        ((3, Condition(categories=1, missing=False)),),
        ((3, Condition(categories=CATEGORIES & ~0b101)),),
    }


def test_a_leaf_that_no_row_reaches_has_no_rule():
    tree = tree_of_nodes({0: asks(0, 5), 2: leaf(), 1: asks(0, 7), 3: leaf(), 4: leaf()})
    assert set(conditions.node_rules(tree)) == {0, 1, 2, 3}
    assert len(rules_of(tree)) == 2


def test_a_tree_of_one_leaf_has_no_rule_and_determines_nothing():
    one = tree_of_nodes({0: leaf()})
    assert conditions.find_rules([one, one]) == []
    assert hybridtree_rules.determined([((0, below(5)),)], [one]) == [()]


def test_thresholds_between_the_same_cut_points_are_one():
    cuts = binning.Binning(4, (np.array([1, 4], np.float32), np.array([3], np.float32)))
    trees = [
        tree_of_nodes({0: asks(0, t), 1: leaf(), 2: leaf()})
        for t in (0.5, 1.0, 1.5, 4.0, 9.0, 11.0)
    ]
    assert len(conditions.find_rules(trees)) == 12
    found = conditions.find_rules(trees, cuts)
    assert sorted({one.trees for one in found}) == [(0, 1), (2, 3), (4, 5)]
    assert hybridtree_rules.determined([found[0].rule], trees, cuts)[0] >= found[0].trees


def test_inner_nodes_have_rules_where_they_are_asked_for():
    assert conditions.find_rules([FIRST], inner=True)[0].rule in [
        ((0, below(5)),),
        ((0, from_on(5)),),
    ]
    assert len(conditions.find_rules([FIRST], inner=True)) == 4
    assert len(conditions.find_rules([FIRST])) == 3


def test_a_rule_asks_a_column_or_does_not():
    found = RuleMatch(((1, below(3)), (4, below(2))), (0,))
    assert found.has_condition_on({4, 9})
    assert not found.has_condition_on({0, 2})


def test_a_rule_determines_every_tree_that_it_leads_to_one_leaf():
    # 0 < 4 implies 0 < 5: figure 2's "deterministic if the condition is true", whatever the path.
    deep, wide = ((0, below(4)),), ((0, below(6)),)
    both = ((0, from_on(5)), (1, below(3)))
    assert hybridtree_rules.determined([deep, wide, both], [FIRST, SECOND]) == [(0,), (), (0, 1)]


def test_every_rule_determines_the_trees_whose_leaf_it_is():
    rng = np.random.default_rng(4)
    values = rng.normal(size=(500, 3)).astype(np.float32)
    y = (values[:, 0] * values[:, 1] > 0).astype(np.float64)
    trained = local.train(local.TrainingTable(values, y), TreeParams(n_estimators=8, max_depth=3))
    trees = [tree for (tree,) in trained.rounds]
    found = conditions.find_rules(trees)
    assert len(found[0].trees) > 1
    ended = hybridtree_rules.determined([one.rule for one in found], trees)
    assert all(set(one.trees) <= set(own) for one, own in zip(found, ended, strict=True))


# Definition 1 on rows


def labelled(seed, n=4000):
    """Rows of a number, a category and noise; where the number is below 0 nothing else counts."""
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(n, 4)).astype(np.float32)
    values[:, 1] = rng.integers(0, 4, n)
    values[rng.random(n) < 0.1, 2] = np.nan
    chance = np.where(values[:, 0] < 0, 0.8, np.where(values[:, 1] == 2, 0.7, 0.3))
    cuts = binning.fit(values, 16, (1,))
    return values, (rng.random(n) < chance).astype(np.float64), cuts


def gains(seed):
    values, y, cuts = labelled(seed)
    nodes = np.where(values[:, 0] < 0, 1, 2).astype(np.int32)
    return hybridtree_rules.further_gains(nodes, cuts.transform(values), y, cuts), values, y, cuts


def test_a_meta_rule_is_borne_out_and_another_rule_is_not():
    found, values, _, cuts = gains(1)
    limit = hybridtree_rules.chance(cuts)
    assert found[1][0] == np.count_nonzero(values[:, 0] < 0)
    assert found[1][1] <= limit
    assert found[2][1] > 5 * limit


def test_few_meta_rules_are_taken_for_none():
    limit = hybridtree_rules.chance(labelled(0)[2])
    assert sum(gains(seed)[0][1][1] > limit for seed in range(60)) <= 0.05 * 60
    assert max(gains(seed)[0][1][1] for seed in range(20)) > 0.3 * limit  # it is no idle test


def test_rare_labels_are_no_evidence_by_themselves():
    values, _, cuts = labelled(0, n=3000)
    bins, nodes = cuts.transform(values), np.zeros(3000, np.int32)
    limit, above = hybridtree_rules.chance(cuts), 0
    for seed in range(60):
        y = (np.random.default_rng(seed).random(3000) < 0.01).astype(np.float64)
        above += hybridtree_rules.further_gains(nodes, bins, y, cuts)[0][1] > limit
    assert above <= 0.05 * 60


def test_the_gain_of_two_classes_is_pearsons_statistic():
    found, values, y, _ = gains(1)
    own = values[:, 0] >= 0
    best = 0.0
    for left in ({2}, {0, 2}, {1, 2}, {2, 3}):
        side = np.isin(values[own, 1], list(left))
        seen = np.array([[np.sum((side == s) & (y[own] == c)) for c in (0, 1)] for s in (0, 1)])
        hoped = seen.sum(axis=1, keepdims=True) * seen.sum(axis=0) / seen.sum()
        best = max(best, float(((seen - hoped) ** 2 / hoped).sum()))
    assert found[2][1] == pytest.approx(best, rel=1e-9)


def test_where_labels_are_equal_or_rows_too_few_nothing_is_gained():
    values, y, cuts = labelled(3, n=200)
    nodes = np.full(200, 9, np.int32)
    nodes[:7] = 4
    found = hybridtree_rules.further_gains(nodes, cuts.transform(values), y, cuts)
    assert found[4] == (7, 0.0)
    same = hybridtree_rules.further_gains(nodes, cuts.transform(values), np.full(200, 0.1), cuts)
    assert same == {4: (7, 0.0), 9: (193, 0.0)}


def test_the_limit_of_chance_rises_with_the_conditions_tried():
    one = binning.Binning(4, (np.array([0.0], np.float32),))
    assert hybridtree_rules.chance(one, 0.15) == pytest.approx(3.841459, rel=1e-6)  # 5 % at 3 tries
    several = binning.Binning(255, (np.arange(254, dtype=np.float32),) * 3)
    wide = binning.Binning(255, (np.empty(0, np.float32),), {0: np.arange(255, dtype=np.int32)})
    limits = [hybridtree_rules.chance(cuts) for cuts in (one, several, wide)]
    assert limits == sorted(limits)
    assert np.isfinite(limits).all()
