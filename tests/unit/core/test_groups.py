"""Minimum groups: no sum that a tree lets go is of few rows."""

import itertools
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedboost.core import binning, split
from fedboost.core.categories import as_set
from fedboost.core.groups import Minimum, Segments, coarsen_groups, released_mask
from fedboost.core.partition import ROOT, Partition, left_child, parent, right_child

MISSING = 8  # the last cell of every column


def table(draw, rows, columns=3, lost=0.1, by_category=()):
    values = draw.integers(0, MISSING, (rows, columns)).astype(np.float32)
    values[draw.random(values.shape) < lost] = np.nan
    cuts = binning.fit(np.asfortranarray(values), MISSING, by_category)
    return SimpleNamespace(cuts=cuts, bins=cuts.transform(np.asfortranarray(values)))


def minimum(made, least):
    columns = np.arange(made.bins.shape[1], dtype=np.int32)
    every = np.full(len(columns), least, np.int32)
    return Minimum.of(made.cuts, made.bins, columns, every)


def random_split(draw, made, column):
    """What `split.goes_right` takes of a split of one column."""
    bins = int(made.cuts.n_bins[column])
    left = bool(draw.integers(2))
    if made.cuts.is_categorical[column]:
        inside = np.flatnonzero(draw.random(bins) < 0.5)
        return 0, left, as_set(inside if len(inside) else np.array([0]))
    return int(draw.integers(bins)), left, b""


def grown(draw, made, least, layers=3):
    """Layer after layer: the open nodes with their groups and rows; splits are random."""
    own = minimum(made, least)
    training = Partition.at_root(np.arange(made.bins.shape[0], dtype=np.int32))
    opened = [ROOT]
    ruled: dict[int, Any] = {}
    seen: dict[int, Any] = {}
    for _ in range(layers):
        own.open(opened, training)
        seen |= {node: (own.groups(node), training.rows(node)) for node in opened}
        following = []
        for node in opened:
            column = int(draw.integers(made.bins.shape[1]))
            place, lost, held = random_split(draw, made, column)
            rows = training.rows(node)
            right = split.goes_right(made.bins[rows, column], place, lost, MISSING, held)
            if draw.random() < 0.7:  # a split of these columns, else of somebody else's
                own.divide(node, column, place, lost, held)
                ruled[node] = (column, place, lost, held)
            else:
                right = draw.random(len(rows)) < 0.3
            training.divide(node, right)
            following += [left_child(node), right_child(node)]
        opened = following
    return seen, ruled


def is_ruled_out(node, column, cells, ruled):
    """Whether splits of the column above a node leave none of these cells."""
    left = np.array(cells)
    while node != ROOT and len(left):
        above = parent(node)
        if above in ruled and ruled[above][0] == column:
            _, place, lost, held = ruled[above]
            right = split.goes_right(left.astype(np.uint8), place, lost, MISSING, held)
            left = left[right] if node == right_child(above) else left[~right]
        node = above
    return not len(left)


def cells_of(made, column):
    return [*range(int(made.cuts.n_bins[column])), MISSING]


@pytest.mark.parametrize("least", [2, 5, 20, 60])
@pytest.mark.parametrize("by_category", [(), (1,)], ids=["numbers", "categories"])
def test_no_released_sum_nor_difference_of_sums_is_of_few_rows(least, by_category):
    draw = np.random.default_rng(least)
    for _ in range(20):
        made = table(draw, 300, by_category=by_category)
        seen, ruled = grown(draw, made, least)
        for node, (own, rows) in seen.items():
            for column in range(len(own)):
                for number in set(own[column][cells_of(made, column)].tolist()):
                    cells = [c for c in cells_of(made, column) if own[column][c] == number]
                    held = int(np.isin(made.bins[rows, column], cells).sum())
                    alone = len(set(own[column][cells_of(made, column)].tolist())) == 1
                    assert alone or held >= least or is_ruled_out(node, column, cells, ruled)


def test_without_a_minimum_sums_of_few_rows_are_released():
    draw = np.random.default_rng(1)
    made = table(draw, 300)
    seen, _ = grown(draw, made, 2)
    fewest = [
        int((made.bins[rows, c] == cell).sum())
        for _, rows in seen.values()
        for c in range(3)
        for cell in cells_of(made, c)
    ]
    assert 0 < min(held for held in fewest if held) < 5


@pytest.mark.parametrize("least", [2, 8, 30])
def test_groups_of_children_are_unions_of_their_parents_and_the_same_for_siblings(least):
    draw = np.random.default_rng(least)
    made = table(draw, 400, by_category=(2,))
    seen, _ = grown(draw, made, least, layers=4)
    for node, (own, _) in seen.items():
        if node == ROOT:
            continue
        above = seen[parent(node)][0]
        for column in range(len(own)):
            for number in set(above[column].tolist()):
                cells = np.flatnonzero(above[column] == number)
                used = [c for c in cells.tolist() if c in cells_of(made, column)]
                assert len(set(own[column][used].tolist())) == 1
        pair = [left_child(parent(node)), right_child(parent(node))]
        assert np.array_equal(*(seen[one][0] for one in pair))


def coarsened_naively(before, sides, bins, least):
    """Of one column: the finest groups of consecutive cells that one gets from left to right."""
    fits = [
        lambda cells, rows=rows, may=may: (
            sum(rows[c] for c in cells) >= least or not any(may[c] for c in cells)
        )
        for rows, may in sides
    ]
    missing = len(before) - 1

    def good(cells):
        return all(side(cells) for side in fits)

    apart = before[missing] != before[bins - 1] and good([missing])
    made, held = [], []
    for _, cells in itertools.groupby(range(bins), key=lambda c: before[c]):
        held += list(cells)
        if good(held):
            made.append(held)
            held = []
    tail = held if apart else [*held, missing]
    while made and not (good(tail) and (apart or tail != [missing])):
        tail = made.pop() + tail
    if apart and not good(tail):
        tail, apart = [*tail, missing], False
    made += [tail] if tail else []
    return made + ([[missing]] if apart else [])


counts = st.lists(st.integers(0, 12), min_size=MISSING + 1, max_size=MISSING + 1)
allowed = st.lists(st.booleans(), min_size=MISSING + 1, max_size=MISSING + 1)


@given(
    counts=st.lists(counts, min_size=1, max_size=2),
    allowed=st.lists(allowed, min_size=2, max_size=2),
    steps=allowed,
    bins=st.integers(1, MISSING),
    least=st.integers(2, 30),
)
def test_the_kernel_groups_as_its_naive_twin(counts, allowed, steps, bins, least):
    before = np.cumsum([0, *steps[1:]]).astype(np.uint16)
    before[bins:] = before[bins - 1] + steps[0]
    rows = np.array(counts, np.int64)
    may = np.array(allowed[: len(rows)])
    rows[~may] = 0  # what is ruled out holds nobody
    sides = [(r[None], m[None]) for r, m in zip(rows, may, strict=True)]
    n_bins, asked = np.array([bins]), np.array([least])
    (found,) = coarsen_groups(before[None], sides, n_bins, asked)
    expected = coarsened_naively(before.tolist(), list(zip(rows, may, strict=True)), bins, least)
    got: dict[int, list[int]] = {}
    for cell in [*range(bins), MISSING]:
        got.setdefault(int(found[cell]), []).append(cell)
    assert list(got.values()) == expected


def test_a_column_that_asks_for_one_row_keeps_every_cell():
    made = table(np.random.default_rng(4), 50)
    columns = np.arange(3, dtype=np.int32)
    mixed = Minimum.of(made.cuts, made.bins, columns, np.array([1, 20, 1], np.int32))
    assert mixed is not None
    mixed.open([ROOT], Partition.at_root(np.arange(50, dtype=np.int32)))
    own = mixed.groups(ROOT)
    assert [len(set(own[c].tolist())) for c in (0, 2)] == [made.cuts.n_bins[c] + 1 for c in (0, 2)]
    assert len(set(own[1].tolist())) < made.cuts.n_bins[1]
    assert Minimum.of(made.cuts, made.bins, columns, np.ones(3, np.int32)) is None
    assert Minimum.of(made.cuts, made.bins, columns, None) is None


def test_candidates_lie_between_groups_only():
    own = np.array([[[0, 0, 1, 1, 2], [0, 1, 1, 1, 1]]], np.uint16)
    listed = split.candidates(np.array([4, 4], np.int32), np.array([True, True]))
    found = released_mask(own, listed, np.array([4, 4]))[0]
    kept = zip(listed.column[found], listed.bin[found], listed.missing_left[found], strict=True)
    assert [tuple(map(int, one)) for one in kept] == [
        (0, 1, 0),
        (0, 1, 1),
        (0, 3, 0),
        (1, 0, 0),  # rows without a value belong to the last group: they go right
    ]


def test_segments_say_where_groups_begin_and_whose_missing_rows_are():
    found = Segments.of(np.array([0, 0, 1, 2, 3], np.uint8), 4)
    assert (found.bounds.tolist(), found.apart) == ([0, 2, 3, 4], True)
    found = Segments.of(np.array([0, 1, 1, 9, 1], np.uint8), 3)
    assert (found.bounds.tolist(), found.apart) == ([0, 1, 3], False)
    found = Segments(np.array([0, 2, 3, 4]), apart=True)
    assert found.members(np.array([2, 0])).tolist() == [0, 1, 3]
