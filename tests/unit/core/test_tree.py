"""Tree: raw values and bins lead to the same leaf, arrays survive, foreign ones are refused."""

import numpy as np
import pytest

from fedboost.core import binning
from fedboost.core.categories import BY_CATEGORY, NO_THRESHOLD, as_set, set_members
from fedboost.core.tree import LEAF, Node, Split, Tree, tree_of_nodes
from fedboost.ground.errors import DataError
from tests.support.raw_values import model_values


def random_tree(seed, cuts, depth=4, outputs=2):
    rng = np.random.default_rng(seed)
    nodes, frontier = {}, [0]
    while frontier:
        node = frontier.pop()
        split = None
        if node < 3 or (node < 2**depth - 1 and rng.random() < 0.8):
            column = int(rng.integers(cuts.n_columns))
            bin_number = int(rng.integers(cuts.n_bins[column]))
            side, gain = bool(rng.random() < 0.5), rng.random()
            if column in cuts.categories:
                held = np.flatnonzero(rng.random(cuts.n_bins[column]) < 0.5)
                left_bins = as_set(np.union1d(held, [bin_number]))
                split = Split(column, BY_CATEGORY, NO_THRESHOLD, side, gain, left_bins)
            else:
                split = Split(column, bin_number, cuts.threshold(column, bin_number), side, gain)
            frontier += [2 * node + 1, 2 * node + 2]
        nodes[node] = Node(rng.normal(0, 1, outputs), float(rng.random()), split)
    return tree_of_nodes(nodes), nodes


def sample(seed):
    rng = np.random.default_rng(seed)
    values = rng.normal(0, 1, (300, 4)).astype(np.float32)
    values[rng.random(values.shape) < 0.2] = np.nan
    values[:, 3] = np.round(values[:, 3])
    return values, binning.fit(values, 8)


def categorical_sample(seed):
    """As `sample`, with categories in two columns, of which one has more than it has bins."""
    values, _ = sample(seed)
    rng = np.random.default_rng(seed)
    values[:, 1] = np.where(np.isnan(values[:, 1]), np.nan, rng.integers(0, 12, len(values)))
    values[:, 3] = np.where(np.isnan(values[:, 3]), np.nan, rng.integers(0, 3, len(values)))
    return values, binning.fit(values[:200], 8, (1, 3))


def naive_leaf(nodes, row):
    at = 0
    while nodes[at].split is not None:
        split = nodes[at].split
        x = row[split.column]
        if np.isnan(x):
            left = split.missing_left
        elif split.left_bins:
            left = int(x) in set_members(split.left_bins)
        else:
            left = bool(x < split.threshold)
        at = 2 * at + 1 if left else 2 * at + 2
    return at


@pytest.mark.parametrize("made", [sample, categorical_sample], ids=["numbers", "categories"])
@pytest.mark.parametrize("seed", range(8))
def test_values_and_bins_lead_to_the_leaf_found_step_by_step(seed, made):
    values, cuts = made(seed)
    tree, nodes = random_tree(seed, cuts)
    assert tree.left_bins.any() == bool(cuts.categories)
    read = model_values(cuts, values)
    by_hand = [naive_leaf(nodes, row) for row in read]
    bins = cuts.transform(values)
    assert tree.node[tree.leaf_of_values(read)].tolist() == by_hand
    assert tree.node[tree.leaf_of_bins(bins, cuts.missing)].tolist() == by_hand
    expected = np.array([nodes[leaf].value for leaf in by_hand])
    assert np.array_equal(tree.predict(read), expected)
    margin = np.ones_like(expected)
    tree.add_to_margin(margin, bins, cuts.missing)
    assert np.array_equal(margin, 1.0 + expected)


def test_the_last_bin_that_a_column_can_have_is_found_in_a_set():
    values = np.arange(255, dtype=np.float32)[:, None]
    cuts = binning.fit(values, 255, (0,))
    split = Split(0, BY_CATEGORY, NO_THRESHOLD, True, 1.0, as_set(np.array([3, 254])))
    leaf = Node(np.array([1.0]), 1.0)
    tree = tree_of_nodes({0: Node(np.array([0.0]), 2.0, split), 1: leaf, 2: leaf})
    bins = cuts.transform(values)
    for leaves in (tree.leaf_of_values(values), tree.leaf_of_bins(bins, cuts.missing)):
        assert np.flatnonzero(leaves == 1).tolist() == [3, 254]
    missing = np.array([[np.nan], [254.0]], np.float32)
    assert tree.leaf_of_values(missing).tolist() == [1, 1]
    assert tree.leaf_of_bins(cuts.transform(missing), cuts.missing).tolist() == [1, 1]


@pytest.mark.parametrize("made", [sample, categorical_sample], ids=["numbers", "categories"])
def test_a_tree_survives_its_arrays(made):
    tree, _ = random_tree(3, made(3)[1])
    arrays = tree.to_arrays()
    back = Tree.from_arrays({name: np.array(array.tolist()) for name, array in arrays.items()})
    for name, array in back.to_arrays().items():
        assert array.dtype == arrays[name].dtype
        assert np.array_equal(array, arrays[name])


def test_a_single_leaf_is_a_tree():
    tree = tree_of_nodes({0: Node(np.array([0.5]), 3.0)})
    assert tree.n_nodes == 1
    assert tree.is_leaf.all()
    assert tree.predict(np.zeros((2, 0), np.float32)).tolist() == [[0.5], [0.5]]


def broken(**changes):
    split = Split(0, 0, np.float32(1.0), False, 1.0)
    leaf = Node(np.array([1.0]), 1.0)
    arrays = tree_of_nodes({0: Node(np.array([0.0]), 2.0, split), 1: leaf, 2: leaf}).to_arrays()
    return {**arrays, **{name: np.array(array) for name, array in changes.items()}}


@pytest.mark.parametrize(
    "changes",
    [
        {"left": [0, LEAF, LEAF]},  # a circle
        {"left": [2, LEAF, LEAF]},  # no right child
        {"left": [-7, LEAF, LEAF]},
        {"left": [1, LEAF]},
        {"node": [0, 1, 3]},
        {"node": [0, 2, 1]},
        {"node": [1, 3, 4]},
        {"feature": [-1, LEAF, LEAF]},
        {"value": [0.0, 1.0, 1.0]},
        {"left_bins": [[0] * 31] * 3},
        {"left_bins": [[0] * 32] * 2},
        {"weather": [1, 2, 3]},
    ],
)
def test_arrays_that_are_no_tree_are_refused(changes):
    assert Tree.from_arrays(broken()).n_nodes == 3
    with pytest.raises(DataError):
        Tree.from_arrays(broken(**changes))


def test_a_tree_of_more_columns_than_there_are_is_refused():
    tree = Tree.from_arrays(broken(feature=[5, LEAF, LEAF]))
    with pytest.raises(DataError, match="column number 5 and there are 2"):
        tree.predict(np.zeros((3, 2), np.float32))
    with pytest.raises(DataError, match="column number 5"):
        tree.add_to_margin(np.zeros((3, 1)), np.zeros((3, 2), np.uint8), 8)
