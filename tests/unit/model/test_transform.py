"""Theorems 2 and 3 of HybridTree: hosts' splits last, the same function, the same expectations."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedboost.core import binning, fixed_point, split
from fedboost.core.categories import BY_CATEGORY, NO_THRESHOLD, as_set
from fedboost.core.params import MAX_DEPTH, TreeParams
from fedboost.core.tree import LEAF, Node, Split, Tree, grown
from fedboost.errors import ConfigError
from fedboost.model.transform import hosts_last
from tests import tiers
from tests.support.whole_models import cells, table, trained

HOST, GUEST = 0, 1  # columns of the small trees below


def asks(column, threshold):
    return Split(column, 0, np.float32(threshold), missing_left=False, gain=1.0)


def leaf(value):
    return Node(np.array([float(value)]), 1.0)


def inner(column, threshold):
    return Node(np.zeros(1), 2.0, asks(column, threshold))


def shape(tree, at=0):
    """The tree as nested tuples: (column, threshold, yes, no), and a leaf's value."""
    if tree.left[at] == LEAF:
        return tree.value[at].tolist()
    below = tree.left[at]
    asked = (int(tree.feature[at]), float(tree.threshold[at]))
    return (*asked, shape(tree, below), shape(tree, below + 1))


# Figure 3b, tree A: the host's split decides alone on one side, the guest's divides the other.
TREE_A = {0: inner(HOST, 5), 1: leaf(1), 2: inner(GUEST, 3), 5: leaf(2), 6: leaf(3)}


def test_the_tree_of_figure_3b_is_reordered_as_printed():
    moved = hosts_last(grown(TREE_A), {HOST})
    assert shape(moved) == (GUEST, 3, (HOST, 5, [1], [2]), (HOST, 5, [1], [3]))


def test_the_tree_of_figure_7_is_reordered_below_the_guests_split_on_top():
    tree = grown(
        {
            0: inner(1, 0), 1: inner(0, 5), 2: inner(3, 9),
            3: leaf(1), 4: inner(2, 7), 5: leaf(4), 6: leaf(5),
            9: leaf(2), 10: leaf(3),
        }
    )  # fmt: skip
    moved = hosts_last(tree, {0, 3})
    below = (2, 7, (0, 5, [1], [2]), (0, 5, [1], [3]))
    assert shape(moved) == (1, 0, below, (3, 9, [4], [5]))


def test_splits_that_the_path_has_answered_are_left_out():
    tree = grown(
        {
            0: inner(HOST, 5), 1: inner(GUEST, 3), 2: inner(GUEST, 8),
            3: leaf(1), 4: leaf(2), 5: leaf(3), 6: leaf(4),
        }
    )  # fmt: skip
    moved = hosts_last(tree, {HOST})
    assert shape(moved) == (
        *(GUEST, 3, (HOST, 5, [1], [3])),
        (GUEST, 8, (HOST, 5, [2], [3]), (HOST, 5, [2], [4])),
    )


def test_trees_with_nothing_to_reorder_stay_as_they_are():
    tree = grown(TREE_A)
    assert shape(hosts_last(tree, {GUEST})) == shape(tree)
    assert shape(hosts_last(tree, set())) == shape(tree)
    assert shape(hosts_last(tree, {HOST, GUEST})) == shape(tree)
    assert shape(hosts_last(grown({0: leaf(4)}), {HOST})) == [4.0]


def test_gains_and_covers_of_the_new_tree_are_not_made_up():
    moved = hosts_last(grown(TREE_A), {HOST})
    assert not moved.gain.any()
    assert not moved.cover.any()


# Random trees

CUTS = binning.Binning(
    8,
    tuple(np.array([-1.0, 0.0, 1.0, 2.0], np.float32) if c < 4 else np.empty(0, np.float32)
          for c in range(6)),
    {4: np.arange(6, dtype=np.int32), 5: np.arange(3, dtype=np.int32)},
)  # fmt: skip


def random_tree(seed, depth, outputs=2):
    """Of numbers and categories; some splits ask whether a value is there, some ask twice."""
    rng = np.random.default_rng(seed)
    nodes, opened = {}, [0]
    while opened:
        node = opened.pop()
        if node >= 2**depth - 1 or (node and rng.random() < 0.2):
            nodes[node] = Node(rng.normal(size=outputs), 1.0)
            continue
        column, side = int(rng.integers(CUTS.n_columns)), bool(rng.random() < 0.5)
        if column in CUTS.categories:
            held = as_set(np.flatnonzero(rng.random(CUTS.n_bins[column]) < 0.5))
            won = Split(column, BY_CATEGORY, NO_THRESHOLD, side, 1.0, held)
        else:
            place = int(rng.integers(CUTS.n_bins[column]))
            won = Split(column, place, CUTS.threshold(column, place), side, 1.0)
        nodes[node] = Node(np.zeros(outputs), 1.0, won)
        opened += [2 * node + 1, 2 * node + 2]
    return grown(nodes)


def every_kind_of_row(seed, n=400):
    """Values on, between and beyond the thresholds, infinite ones, strange categories, none."""
    rng = np.random.default_rng(seed)
    numbers = np.array([-np.inf, -1.5, -1, -0.5, 0, 0.5, 1, 1.5, 2, 9, np.inf, np.nan], np.float32)
    values = rng.choice(numbers, (n, CUTS.n_columns)).astype(np.float32)
    codes = np.array([-1, 0, 1, 2, 3, 4, 5, 6, 255, 256, 300, np.nan], np.float32)
    values[:, 4:] = rng.choice(codes, (n, 2))
    return values


def columns_on_paths(tree, at=0, above=()):
    if tree.left[at] == LEAF:
        yield above
        return
    for child in (tree.left[at], tree.left[at] + 1):
        yield from columns_on_paths(tree, child, (*above, int(tree.feature[at])))


@settings(max_examples=tiers.examples(200))
@given(st.integers(0, 2**32), st.integers(1, 4), st.sets(st.integers(0, 5)))
def test_every_row_gets_the_value_it_got_and_hosts_splits_are_last(seed, depth, hosts):
    tree = random_tree(seed, depth)
    moved = hosts_last(tree, hosts)
    rows = every_kind_of_row(seed)
    assert np.array_equal(moved.predict(rows), tree.predict(rows))
    for path in columns_on_paths(moved):
        owners = [column in hosts for column in path]
        assert owners == sorted(owners)  # False, of the guest, before True
    again = hosts_last(moved, hosts)
    assert shape(again) == shape(moved)
    assert Tree.from_arrays(moved.to_arrays()).n_nodes == moved.n_nodes


@settings(max_examples=tiers.examples(50))
@given(st.integers(0, 2**32), st.sets(st.integers(0, 5)))
def test_rows_in_bins_get_the_value_they_got(seed, hosts):
    tree = random_tree(seed, depth=4)
    rng = np.random.default_rng(seed)
    bins = (rng.random((200, CUTS.n_columns)) * (CUTS.n_bins + 1)).astype(np.uint8)
    bins[bins == CUTS.n_bins] = CUTS.missing
    bins = np.asfortranarray(bins)
    expected = tree.predict_bins(bins, CUTS.missing)
    assert np.array_equal(hosts_last(tree, hosts).predict_bins(bins, CUTS.missing), expected)


def test_trained_trees_keep_their_predictions():
    frame = table(2)
    model = trained(frame)
    rows = model.binning.model_values(cells(frame))
    for (tree,) in model.rounds:
        moved = hosts_last(tree, {0, 1})
        assert np.array_equal(moved.predict(rows), tree.predict(rows))
        assert len(set(moved.feature.tolist())) > 2


def combed(layers):
    """The host's splits one below the other, and right of each a guest's on a column of its own."""
    nodes, at = {}, 0
    for layer in range(layers):
        nodes[at] = inner(0, -layer)
        nodes[2 * at + 2] = inner(1 + layer, 0)
        nodes[4 * at + 5], nodes[4 * at + 6] = leaf(layer), leaf(-layer)
        at = 2 * at + 1
    return grown({**nodes, at: leaf(99)})


def test_a_tree_that_would_be_too_deep_is_refused_where_one_that_just_fits_is_not():
    fits = MAX_DEPTH // 2
    moved = hosts_last(combed(fits), {0})
    assert int(moved.node.max() + 1).bit_length() - 1 == 2 * fits == MAX_DEPTH
    with pytest.raises(ConfigError, match=f"deeper than {MAX_DEPTH} layers") as caught:
        hosts_last(combed(fits + 1), {0})
    assert "max_depth" in caught.value.todo


# Leaf values of given rows


def refitted(tree, leaves, gh, params, fixed):
    """The tree with leaf values −G/(H + λ) (core.split.leaf_value) and covers from given rows.

    leaves int32 (n,): the leaf of each row, as `leaf_of_values` finds it; gh int64 (n, 2·outputs)
    in units of `fixed`. A leaf that no row reaches keeps its value. With these values Theorem 3
    says: where a host's split condition is a meta-rule, the tree and its `hosts_last` have the same
    expectations. Its equations have no λ: above 0 it draws leaves of fewer rows closer to 0.
    """
    assert gh.shape == (len(leaves), 2 * tree.value.shape[1])
    totals = np.zeros((tree.n_nodes, gh.shape[1]), np.int64)
    np.add.at(totals, leaves, gh)
    rows = np.bincount(leaves, minlength=tree.n_nodes)
    for node in np.flatnonzero(~tree.is_leaf)[::-1]:  # children come after their parents
        totals[node] = totals[tree.left[node]] + totals[tree.left[node] + 1]
    fresh = split.leaf_value(totals[:, 0::2], totals[:, 1::2], params, fixed)
    value = np.where((rows > 0)[:, None], fresh, tree.value)
    return replace(tree, value=value, cover=split.cover(totals[:, 1::2], fixed))


def params(**more):
    return TreeParams(objective="reg:squarederror", learning_rate=1.0, **more)


def fit(tree, rows, y, settings):
    """Leaf values for rows whose margin is 0: g = −y, h = 1, as in the paper's equations."""
    fixed = fixed_point.for_rows(len(y), None, 1.0, 1.0)
    gh = fixed.encode(-y[:, None], np.ones((len(y), 1)))
    return refitted(tree, tree.leaf_of_values(rows), gh, settings, fixed), gh, fixed


def test_refitted_leaves_have_the_value_and_cover_of_their_rows():
    rng = np.random.default_rng(3)
    rows, y = rng.normal(4, 3, (500, 2)).astype(np.float32), rng.random(500)
    tree = grown(TREE_A)
    again, gh, fixed = fit(tree, rows, y, params(reg_lambda=2.0))
    reached = tree.leaf_of_values(rows)
    for at in np.flatnonzero(tree.is_leaf):
        own = gh[reached == at].sum(axis=0)
        expected = split.leaf_value(own[:1], own[1:], params(reg_lambda=2.0), fixed)
        assert again.value[at] == expected
        assert again.value[at, 0] == pytest.approx(
            y[reached == at].sum() / (fixed.decode_h(own[1:])[0] + 2.0)
        )
    assert again.cover[0] == 500.0
    assert again.cover[2] == again.cover[3] + again.cover[4]
    assert np.array_equal(again.threshold, tree.threshold)
    assert not again.value[~tree.is_leaf].any()


def test_a_leaf_that_no_row_reaches_keeps_the_value_of_its_region():
    rows = np.array([[4, 1], [4, 9]], np.float32)  # the host's condition holds in both
    moved = hosts_last(grown(TREE_A), {HOST})
    again, _, _ = fit(moved, rows, np.array([0.5, 0.25]), params(reg_lambda=0.0))
    assert shape(again) == (GUEST, 3, (HOST, 5, [0.5], [2]), (HOST, 5, [0.25], [3]))


def differences(share_of, draws=400, n=4000):
    """Of each row kind the mean over draws of labels, tree B's prediction less tree A's, over its
    standard error; `share_of` gives the chance of label 1 by whether host and guest say yes.
    """
    rng = np.random.default_rng(11)
    rows = np.stack([rng.choice([4, 6], n), rng.choice([2, 4], n)], axis=1).astype(np.float32)
    chance = np.array([share_of(host < 5, guest < 3) for host, guest in rows.tolist()])
    a, b = grown(TREE_A), hosts_last(grown(TREE_A), {HOST})
    kinds = np.array([[4, 2], [4, 4], [6, 2], [6, 4]], np.float32)
    gaps = []
    for _ in range(draws):
        y = (rng.random(n) < chance).astype(np.float64)
        fitted = [fit(tree, rows, y, params(reg_lambda=0.0))[0] for tree in (a, b)]
        gaps.append(fitted[1].predict(kinds)[:, 0] - fitted[0].predict(kinds)[:, 0])
    found = np.array(gaps)
    error = found.std(axis=0) / np.sqrt(draws)
    mean = found.mean(axis=0)
    return np.divide(mean, error, out=np.zeros(4), where=error > 0.0), found


def test_expectations_stay_where_the_hosts_condition_is_a_meta_rule():
    # Theorem 2: given the host's condition, the label does not depend on the guest's column.
    scores, gaps = differences(lambda host, guest: 0.8 if host else 0.2 + 0.4 * guest)
    assert np.abs(scores).max() < 4.0
    assert gaps[:, :2].std() > 0.0  # single draws differ: it is the expectation that stays
    assert np.abs(gaps[:, 2:]).max() < 1e-12  # relocated leaves have the same rows as before


def test_expectations_move_where_the_hosts_condition_is_no_meta_rule():
    scores, _ = differences(lambda host, guest: 0.8 - 0.1 * guest if host else 0.2)
    assert scores[0] < -30.0
    assert scores[1] > 30.0


def test_with_a_penalty_leaves_of_fewer_rows_are_drawn_to_zero():
    # The theorems' equations have no λ; with one, a region divided further moves its expectation.
    rng = np.random.default_rng(5)
    rows = np.stack([np.full(60, 4.0), rng.choice([2, 4], 60)], axis=1).astype(np.float32)
    y, tree = np.ones(60), grown(TREE_A)
    pulled = params(reg_lambda=10.0)
    before, after = fit(tree, rows, y, pulled)[0], fit(hosts_last(tree, {0}), rows, y, pulled)[0]
    assert np.all(after.predict(rows) < before.predict(rows))
    free = params(reg_lambda=0.0)
    after = fit(hosts_last(tree, {0}), rows, y, free)[0]
    assert np.array_equal(after.predict(rows), fit(tree, rows, y, free)[0].predict(rows))
