"""Partition and histogram: stable division, and sums equal to adding row by row."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedboost.core import histogram
from fedboost.core.bins import Bins, SparseBins
from fedboost.core.partition import ROOT, Partition, parent, sibling, smaller_child
from tests import tiers


def naive(bins, node_rows, gh, n_cells):
    sums = np.zeros((len(node_rows), bins.shape[1], n_cells, gh.shape[1]), dtype=np.int64)
    for node, rows in enumerate(node_rows):
        for row in rows:
            for column in range(bins.shape[1]):
                sums[node, column, bins[row, column]] += gh[row]
    return sums


def sample(seed, n=60, columns=3, n_cells=6, outputs=1):
    rng = np.random.default_rng(seed)
    bins = np.asfortranarray(rng.integers(0, n_cells, (n, columns)).astype(np.uint8))
    gh = rng.integers(-(2**50), 2**50, (n, 2 * outputs))
    node = rng.integers(0, 3, n)
    return bins, gh, [np.flatnonzero(node == i).astype(np.int32) for i in range(3)]


@settings(max_examples=tiers.examples(30), deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 3))
def test_sums_are_those_of_adding_row_by_row(seed, outputs):
    bins, gh, rows = sample(seed, outputs=outputs)
    assert np.array_equal(histogram.build(bins, rows, gh, 6), naive(bins, rows, gh, 6))


def test_totals_are_those_of_rows_picked_out():
    _, gh, rows = sample(3, outputs=2)
    for inside in (*rows, np.empty(0, np.int32)):
        assert np.array_equal(histogram.signed_total(gh, inside), gh[inside].sum(axis=0))
        assert np.array_equal(histogram.absolute_total(gh, inside), np.abs(gh[inside]).sum(axis=0))


@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.parametrize("sparse", [False, True])
def test_only_the_columns_asked_for_are_added_up(outputs, sparse):
    bins, gh, rows = sample(1, outputs=outputs)
    every = histogram.build(bins, rows, gh, 6)
    own: Bins = bins
    if sparse:
        columns, indices = np.nonzero(bins.T)
        starts = np.searchsorted(columns, range(4))
        kept = bins[indices, columns]
        own = SparseBins(60, starts, indices.astype(np.int32), kept, np.zeros(3, np.uint8))
        assert np.array_equal(own.dense(), bins)
    some = histogram.build(own, rows, gh, 6, np.array([0, 2], dtype=np.int32))
    assert np.array_equal(some, every[:, [0, 2]])


def test_children_by_subtraction_are_children_added_up():
    bins, gh, _ = sample(2, outputs=2)
    partition = Partition.at_root(np.arange(60, dtype=np.int32))
    columns = np.arange(3, dtype=np.int32)
    cells = {ROOT: histogram.build(bins, [partition.rows(ROOT)], gh, 6)[0]}
    partition.divide(ROOT, bins[:, 0] > 1)
    cells = histogram.child_histograms(bins, partition, gh, cells, columns)
    assert list(cells) == [1, 2]
    partition.divide(2, bins[partition.rows(2), 1] > 2)
    cells |= histogram.child_histograms(bins, partition, gh, {2: cells[2]}, columns)
    for node in partition.leaves():
        assert np.array_equal(cells[node], naive(bins, [partition.rows(node)], gh, 6)[0])


@settings(max_examples=tiers.examples(50))
@given(st.integers(0, 2**32))
def test_divided_rows_keep_their_order_and_none_is_lost(seed):
    rng = np.random.default_rng(seed)
    start = np.sort(rng.choice(100, 40, replace=False)).astype(np.int32)
    partition = Partition.at_root(start)
    home = dict.fromkeys(start.tolist(), ROOT)
    for node in (0, 1, 2, 5):
        right = rng.random(len(partition.rows(node))) < 0.4
        for row, to_right in zip(partition.rows(node).tolist(), right, strict=True):
            home[row] = 2 * node + 1 + int(to_right)
        partition.divide(node, right)
    assert partition.leaves() == [3, 4, 6, 11, 12]
    for node in partition.leaves():
        assert np.all(np.diff(partition.rows(node)) > 0)
    nodes = partition.node_of_rows(100)
    assert {row: int(nodes[row]) for row in home} == home
    assert np.all(nodes[np.setdiff1d(np.arange(100), start)] == -1)
    with pytest.raises(KeyError):
        partition.rows(ROOT)


def test_the_smaller_child_is_the_left_one_if_equal():
    partition = Partition.at_root(np.arange(4, dtype=np.int32))
    partition.divide(ROOT, np.array([True, False, True, False]))
    assert smaller_child(partition, ROOT) == 1
    partition.divide(1, np.array([False, False]))
    assert smaller_child(partition, 1) == 4
    assert [sibling(3), sibling(4), parent(3), parent(4)] == [4, 3, 1, 1]
