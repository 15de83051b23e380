"""Apparent cells: those of a naive twin, none of too few rows, and the trees grown from them."""

from collections import Counter
from dataclasses import replace
from typing import Any
from unittest import mock

import numpy as np
import pytest
from scipy.sparse import csc_array

from fedboost.core import binning, local, own_rows
from fedboost.core.categories import BY_CATEGORY, NO_THRESHOLD, as_set
from fedboost.core.growth import GrowingState
from fedboost.core.local import TrainingTable
from fedboost.core.own_rows import OwnRows
from fedboost.core.partition import left_child, right_child
from fedboost.core.split import goes_right
from fedboost.core.tree import Split
from fedboost.ground.errors import ConfigError
from fedboost.ground.state import load_state
from tests.support.states import state_dict
from tests.unit.core.test_growth import assert_same, grow_together, homes, job, train_apart
from tests.unit.core.test_local import labels_for, params_for, sample

N, BINS = 300, 8
CATEGORY = 2  # the categorical column
KINDS: dict[str, dict[str, Any]] = {
    "dense": {},
    "sparse": {"sparse": True},
    "sampled": {"rows": 0.6},
    "few": {"rows": 0.05},
    "some columns": {"columns": [1, 3]},
}


def table(seed, sparse=False, rows=1.0, columns=(0, 1, 2, 3)):
    """Binning, bins, gradients with counts as hessians, and what of them a tree uses."""
    draw = np.random.default_rng(seed)
    values, _ = sample(seed, n=N, missing=draw.choice([0.005, 0.1]))
    values[:, CATEGORY] = np.floor(np.abs(4 * values[:, CATEGORY]))
    values[:, 3] = np.exp(3 * np.round(values[:, 3]))  # a bin of most rows, and bins of few
    if sparse:
        values[draw.random(values.shape) < 0.5] = 0.0
    cuts = binning.fit(values, BINS, () if sparse else (CATEGORY,))
    bins = cuts.transform(csc_array(values) if sparse else values)
    gh = np.column_stack([draw.integers(-99, 99, N), np.ones(N, np.int64)])
    gh[draw.random(N) < 0.02] = 0  # rows without weight
    kept = np.flatnonzero(draw.random(N) < rows).astype(np.int32)
    return cuts, bins, gh, kept, np.array(columns, np.int32)


def some_splits(draw, cuts, nodes):
    """Splits of some of the nodes, whether or not they are any good."""
    found = {}
    for node in nodes:
        if draw.random() < 0.8:
            column, lost = int(draw.integers(4)), bool(draw.random() < 0.5)
            last = int(draw.integers(cuts.n_bins[column]))
            held = as_set(draw.choice(BINS, 3, replace=False))
            by = column in cuts.categories
            rest = (BY_CATEGORY, NO_THRESHOLD) if by else (last, cuts.threshold(column, last))
            found[node] = Split(column, rest[0], rest[1], lost, 1.0, held if by else b"")
    return found


def joined(bins, ordered, missing, least):
    """Each row's apparent bin at the root, row by row."""
    rows = Counter(bins)
    group = {b: [b] for b in rows}
    if ordered:
        group, open_ = {}, []
        for b in sorted(b for b in rows if b != missing):
            open_.append(b)
            if sum(rows[one] for one in open_) >= least:
                group[max(open_, key=lambda one: rows[one])], open_ = open_, []
        if open_ and group:
            group[list(group)[-1]] += open_
        elif open_:
            group[max(open_, key=lambda one: rows[one])] = open_
        if missing in rows:
            group[missing] = [missing]
    held = {top: sum(rows[one] for one in own) for top, own in group.items()}
    full = min(held, key=lambda top: (-held[top], top))
    to = {b: top if held[top] >= least else full for top, own in group.items() for b in own}
    return [to[b] for b in bins]


def sides_of(cuts, dense, one, rows):
    """Which of some rows a split sends right."""
    cut = one.bin, one.missing_left, cuts.missing, one.left_bins
    return goes_right(dense[rows, one.column], *cut)


def decoys(cells, least, place):
    """Of what a node's cells hold on both sides those that go to the other side than they should,
    in the column at a place."""
    few = [min(map(len, sides)) for sides in cells]
    big = [
        n if n >= least and max(map(len, sides)) >= 2 * least else 0
        for n, sides in zip(few, cells, strict=True)
    ]
    if least == 1 or sum(n for n in few if n < least) >= least or not any(big):
        return []
    left, right = cells[big.index(max(big))]
    fuller = right if len(right) > len(left) else left
    first = place * least % (len(fuller) - least + 1)
    return fuller[first : first + least]


def twin(cuts, dense, rows, columns, least, layers):
    """By column place each row's apparent node and bin, after some layers of splits."""
    rows = rows.tolist()
    found = []
    for place, column in enumerate(columns.tolist() if len(rows) >= least else ()):
        own = [int(dense[row, column]) for row in rows]
        bins = joined(own, column not in cuts.categories, cuts.missing, least)
        node = [0] * len(rows)
        for splits in layers:
            for parent, one in splits.items():
                inside = [i for i in range(len(rows)) if node[i] == parent]
                right = sides_of(cuts, dense, one, [rows[i] for i in inside])
                cells = [
                    [[i for i, to in zip(inside, right, strict=True) if bins[i] == b and to == side]
                     for side in (False, True)]
                    for b in range(cuts.n_cells)
                ]  # fmt: skip
                away = decoys(cells, least, place)
                for left, other in cells:
                    few = min(len(left), len(other))
                    follow = left_child if len(left) > len(other) else right_child
                    for child, twin_, held in (
                        (left_child, right_child, left), (right_child, left_child, other)
                    ):  # fmt: skip
                        for i in held:
                            to = twin_ if i in away else child
                            node[i] = (follow if 0 < few < least else to)(parent)
        found.append(list(zip(rows, node, bins, strict=True)))
    return found


def sums_of(cells, shape, nodes, gh):
    found = np.zeros(shape, np.int64)
    for place, own in enumerate(cells):
        for row, node, cell in own:
            if node in nodes:
                found[nodes.index(node), place, cell] += gh[row]
    return found


@pytest.mark.parametrize("least", [1, 2, 5, 20])
@pytest.mark.parametrize("kind", KINDS)
def test_cells_are_those_of_the_twin_and_of_no_rows_or_enough(kind, least):
    small = 0
    for seed in range(6):
        cuts, bins, gh, rows, columns = table(seed, **KINDS[kind])
        dense = bins.dense() if kind == "sparse" else bins
        draw, nodes = np.random.default_rng(seed), [0]
        layers: list[dict[int, Split]] = []
        with mock.patch.object(own_rows, "COLUMNS_AT_ONCE", 3):
            own = OwnRows(cuts, bins, gh, rows, (columns, 0), least)
            above = own.sums([0])
            for _ in range(4):
                found = own.sums(nodes)
                cells = twin(cuts, dense, rows[gh[rows].any(axis=1)], columns, least, layers)
                assert np.array_equal(found, sums_of(cells, found.shape, nodes, gh))
                counts = found[..., 1]
                assert not ((counts > 0) & (counts < least)).any()
                small += int(((counts > 0) & (counts < 20)).sum())
                if layers:  # what is found by subtraction is the sibling
                    assert np.array_equal(above - found[0::2], found[1::2])
                if least == 1 and not layers:
                    assert counts[0].sum() == len(columns) * gh[rows, 1].sum()
                splits = some_splits(draw, cuts, nodes)
                own.divide(splits)
                layers.append(splits)
                above = found[[nodes.index(node) for node in splits]]
                nodes = [c for node in splits for c in (left_child(node), right_child(node))]
                if not nodes:
                    break
    assert (small > 0) == (least < 20), "the table has no cells of few rows"


def test_of_fewer_rows_than_the_least_nothing_is_added_up():
    cuts, bins, gh, rows, columns = table(1)
    learnt = rows[gh[rows].any(axis=1)]
    for many, some in ((4, False), (5, True)):
        own = OwnRows(cuts, bins, gh, learnt[:many], (columns, 0), 5)
        assert own.sums([0]).any() == some
        own.divide({0: Split(0, 2, cuts.threshold(0, 2), False, 1.0)})
        assert own.sums([1, 2]).any() == some


def apart(own, rows):
    """Of the nodes behind a split, by how many rows each two columns see them apart."""
    nodes = own._dense.nodes
    counts = []
    for node in (1, 2):
        inside = nodes == node
        counts += [int((inside[a] ^ inside[b]).sum()) for a in range(len(inside)) for b in range(a)]
    return counts


def test_columns_do_not_see_a_node_few_rows_apart():
    """Where few rows follow others in a view, decoys do as well."""
    least, few = 5, list[int]()
    for seed in range(20):
        draw = np.random.default_rng(seed)
        values = draw.normal(size=(4000, 4)).astype(np.float32)
        values[:, 1] += 2 * values[:, 0]  # so that some cells divide badly
        cuts = binning.fit(values, 32, ())
        bins, rows = cuts.transform(values), np.arange(4000, dtype=np.int32)
        gh = np.ones((4000, 2), np.int64)
        own = OwnRows(cuts, bins, gh, rows, (np.arange(4, dtype=np.int32), 0), least)
        own.divide({0: Split(0, 9, cuts.threshold(0, 9), False, 1.0)})
        found = [count for count in apart(own, rows) if count]
        assert min(found) >= least
        few += [len(found)]
    assert sum(few) > 100


@pytest.mark.parametrize("case", [{}, {"categorical": (1, 2)}, {"zeros": True}, {"outputs": 3}])
def test_trees_with_a_least_of_one_are_those_without_any(case):
    for seed in range(3):
        own = job(seed, **case)
        plain = local.grow_tree(own.growing())
        for least, groups in (((1,), ()), ((1, 1), (100, 140))):
            own.rules = replace(own.rules, own_rows_min=least, row_groups=groups)
            assert_same(local.grow_tree(own.growing()), plain)


def test_views_that_join_and_move_nothing_leave_trees_as_they_are():
    for seed in range(3):
        own = job(seed, categorical=(1,))
        plain = local.grow_tree(own.growing())
        own.rules = replace(own.rules, own_rows_min=(9,))
        with mock.patch.object(own_rows.OwnRows, "__init__", loose(OwnRows.__init__)):
            assert_same(local.grow_tree(own.growing()), plain)
        assert local.grow_tree(own.growing()).cover.tobytes() != plain.cover.tobytes()


def loose(begin):
    """A view of somebody who asks for no more than one row."""
    return lambda self, *given: begin(self, *given[:-1], 1)


@pytest.mark.parametrize("case", [{}, {"categorical": (1, 2)}, {"zeros": True}, {"rate": 0.7}])
def test_a_tree_taken_up_between_two_layers_grows_on_as_it_would_have(case):
    for layer in (1, 2, 3):
        own = job(layer, **case)
        own.rules = replace(own.rules, own_rows_min=(7,))
        whole, begun, later = own.growing(), own.growing(), own.growing()
        for _ in range(layer):
            begun.take(begun.sums())
        later.load_state(load_state(GrowingState, *state_dict(GrowingState, begun)))
        assert np.array_equal(later.sums(), begun.sums())
        assert_same(local.grow_tree(later), local.grow_tree(whole))


@pytest.mark.parametrize("outputs", [1, 2])
def test_covers_of_children_add_up_and_none_is_negative(outputs):
    for seed in range(4):
        own = job(seed, outputs, categorical=(2,), min_child_weight=0.0, max_depth=6)
        own.rules = replace(own.rules, own_rows_min=(5,))
        tree = local.grow_tree(own.growing())
        cover = dict(zip(tree.node.tolist(), tree.cover.tolist(), strict=True))
        assert min(cover.values()) >= 0.0
        assert len(cover) > 7
        for node, is_leaf in zip(tree.node.tolist(), tree.is_leaf.tolist(), strict=True):
            if not is_leaf:
                both = cover[left_child(node)] + cover[right_child(node)]
                assert both == pytest.approx(cover[node])


def test_parties_with_a_least_each_grow_the_tree_of_one_table():
    for seed in range(4):
        own = job(seed, categorical=(2,))
        apart, least = homes(seed, 3), (1, 5, 9)
        order = np.concatenate(apart)
        whole = replace(own, rules=replace(
            own.rules, own_rows_min=least, row_groups=tuple(map(len, apart))
        ))  # fmt: skip
        parties = [
            replace(own, rules=replace(own.rules, own_rows_min=(m,))).growing(home)
            for m, home in zip(least, apart, strict=True)
        ]
        grow_together(parties)
        expected = local.grow_tree(whole.growing(order))
        for party in parties:
            assert_same(party.tree(), expected)


@pytest.mark.parametrize(
    "how",
    [
        {"objective": "binary:logistic", "subsample": 0.6, "colsample_bytree": 0.5},
        {"objective": "binary:logistic", "goss": {}},
        {"objective": "binary:logistic", "forest": {"n_trees": 3, "subsample": 0.5}},
        {"objective": "multi:softprob", "multi_output": True},
        {"objective": "multi:softprob"},
    ],
    ids=str,
)
def test_rounds_with_a_least_are_those_of_one_table(how):
    values, logit = sample(14)
    params = params_for(**{"n_estimators": 3, **how})
    y = labels_for(params.objective, logit)
    whole = TrainingTable(values, y, row_groups=(90, 10, 200, 100), own_rows_min=(5, 5, 3, 8))
    expected, free = local.train(whole, params), local.train(TrainingTable(values, y), params)
    for found, trees in zip(train_apart(whole, params, 4), expected.rounds, strict=True):
        for own in found:
            for one, other in zip(own, trees, strict=True):
                assert_same(one, other)
    assert expected.rounds[0][0].cover.tobytes() != free.rounds[0][0].cover.tobytes()


def test_a_least_is_said_of_every_party():
    values, logit = sample(3)
    y = labels_for("binary:logistic", logit)
    for groups, least in (((), (5, 5)), ((100, 300), (5,))):
        with pytest.raises(ConfigError, match="own_rows_min is said of"):
            local.train(
                TrainingTable(values, y, row_groups=groups, own_rows_min=least),
                params_for("binary:logistic"),
            )
