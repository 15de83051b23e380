"""Rows added up by others, in parts: the trees of rows in one place, bit for bit."""

import pickle
from dataclasses import replace

import numpy as np
import pytest

from fedboost.core import local
from fedboost.core.growth import GrowingState
from fedboost.core.row_parts import PlainTablePart, PlainTreePart, SharedTable
from fedboost.core.tree import Split
from fedboost.ground.part_workers import Embedded
from fedboost.ground.state import load_state
from tests.support.elsewhere import Elsewhere
from tests.support.states import state_dict
from tests.unit.core.test_growth import assert_same, job

CASES = [
    {},
    {"categorical": (1, 2)},
    {"zeros": True},
    {"outputs": 3},
    {"rate": 0.6},
    {"max_leaves": 5, "grow_policy": "lossguide"},
    {"max_depth": 1},
]


def shared(own, count, least=1):
    """The same job, whose rows so many others add up."""
    rules = replace(own.rules, own_rows_min=(least,))
    bins = own.growing()._bins
    elsewhere = SharedTable.of(Elsewhere(count), bins, rules.binning, least)
    return replace(own, rules=replace(rules, elsewhere=elsewhere))


@pytest.mark.parametrize("least", [1, 7])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_any_number_of_holders_grows_the_tree_of_one_table(case, least):
    for seed, count in enumerate((1, 2, 3, 9)):
        own = job(seed, **case)
        own.rules = replace(own.rules, own_rows_min=(least,))
        expected = local.grow_tree(own.growing())
        assert expected.n_nodes > 1
        assert_same(local.grow_tree(shared(own, count, least).growing()), expected)


@pytest.mark.parametrize("least", [1, 7])
def test_a_tree_is_taken_up_between_two_layers(least):
    own = shared(job(1), 2, least)
    begun, later = own.growing(), own.growing()
    begun.take(begun.sums())
    begun.take(begun.sums())
    later.load_state(load_state(GrowingState, *state_dict(GrowingState, begun)))
    assert np.array_equal(later.sums(), begun.sums())
    assert_same(local.grow_tree(later), local.grow_tree(begun))


@pytest.mark.parametrize("least", [1, 7])
def test_a_holder_that_begins_again_or_hears_an_earlier_layer_gives_the_same_sums(least):
    own = job(4)
    own.rules = replace(own.rules, own_rows_min=(least,))
    growing = own.growing()
    layers: list[dict[int, Split]] = []
    said = []
    while not growing.is_over:
        said.append((tuple(layers), tuple(growing.asked), growing.sums()))
        growing.take(growing.sums())
        nodes = growing.splits.keys() - {node for splits in layers for node in splits}
        layers.append({node: growing.splits[node] for node in nodes})
    assert len(said) > 2
    table = PlainTablePart(growing._bins, own.rules.binning, least)
    tree = PlainTreePart(own.gh, own.rows, (own.columns, 0))
    for above, asked, expected in (*said, said[-1], said[1]):
        assert np.array_equal(tree.sums(table, above, asked), expected)
        again = pickle.loads(pickle.dumps(tree))
        assert np.array_equal(again.sums(table, above, asked), expected)


def test_nobody_is_given_gradients_who_does_not_take_any():
    own = job(0)
    assert SharedTable.of(Embedded(), own.growing()._bins, own.rules.binning) is None


def test_holders_see_bins_and_no_values():
    own = shared(job(1, categorical=(1,)), 2)
    growing = own.growing()
    local.grow_tree(growing)
    assert own.rules.elsewhere
    for table in own.rules.elsewhere.kept:
        assert not any(map(len, (*table.binning.cuts, *table.binning.categories.values())))
    [view] = growing._views
    cuts = [cut for splits in view._layers for cut in splits.values()]
    assert len(cuts) > 2
    assert not np.isfinite([cut.threshold for cut in cuts]).any()
