"""A tree's part at a worker: what travels of it, and divisions that it hears once or again."""

import pickle

import numpy as np

from fedboost.core.partition import Partition
from fedboost.encrypted.cells.tree_part import TreePart

N = 40_000


def part():
    """Most rows in one node and few in another one; a tenth has no gradients."""
    draw = np.random.default_rng(1)
    learns = np.flatnonzero(draw.random(N) < 0.9).astype(np.int32)
    few = draw.random(len(learns)) < 0.01
    partition = Partition(by_leaf={3: learns[~few], 4: learns[few]})
    place = np.cumsum(np.isin(np.arange(N), learns)) - 1
    return TreePart(partition, place, np.arange(2, dtype=np.int32), np.ones(9, np.bool_))


def test_a_part_travels_as_it_stands():
    own = part()
    data = pickle.dumps(own)
    other = pickle.loads(data)
    assert len(data) < 3 * N // 8  # a bit for each row, of those with gradients another one
    for node, rows in own._partition.by_leaf.items():
        assert other._partition.rows(node).dtype == np.int32
        assert np.array_equal(other._partition.rows(node), rows)
    assert np.array_equal(other._place, own._place)
    assert other.cells is not own.cells


def test_a_division_heard_again_changes_nothing():
    own = part()
    goes_right = np.arange(len(own._partition.rows(3))) % 3 == 0
    for _ in range(2):
        own.divide({3: np.packbits(goes_right)})
        assert own._partition.leaves() == [4, 7, 8]
        assert len(own._partition.rows(8)) == np.count_nonzero(goes_right)
