"""Cells: sums of windows and numbers, exact modulo q, whoever adds them up and in what order."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedboost.crypto.api import Outgoing
from fedboost.crypto.lattice.cells import CELLS_MOST, LatticeSums
from fedboost.ground.errors import ProtocolError
from fedboost.runtime.process.threads import ThreadWorkers
from tests import tiers
from tests.support.lattices import (
    LATTICE,
    RINGS,
    TINY,
    drawn_cells,
    drawn_messages,
    grown,
    segment_sums,
)

OWN = grown(drawn_messages(5000))


def summed(of, rows, cells, n_cells):
    """The naive twin: one row after the other, on Python's numbers."""
    own = of.rows.tree.parameters
    vectors = [[0] * own.ring for _ in range(n_cells)]
    scalars = [[0] * of.rows.numbers.shape[1] for _ in range(n_cells)]
    for row, cell in zip(rows, cells, strict=True):
        if cell < 0:
            continue
        block, place = divmod(row, own.ring)
        a = of.rows.tree.of_rows(block).tolist()
        window = ([-x for x in a] + a)[place + 1 : place + 1 + own.ring]
        vectors[cell] = [x + y for x, y in zip(vectors[cell], window, strict=True)]
        numbers = of.rows.numbers[row].tolist()
        scalars[cell] = [x + y for x, y in zip(scalars[cell], numbers, strict=True)]
    q = 2**own.modulus_bits
    return [[x % q for x in row] for row in vectors], [[x % q for x in row] for row in scalars]


@given(st.data())
@settings(max_examples=tiers.examples(40))
def test_cells_are_the_sums_of_pythons_numbers(data):
    rows = data.draw(st.integers(1, 60), "rows")
    of = grown(drawn_messages(rows, TINY, data.draw(st.integers(1, 3), "outputs")), TINY)
    n_cells = data.draw(st.integers(1, 5), "cells")
    chosen = data.draw(st.lists(st.integers(0, rows - 1), max_size=80), "chosen")
    cell = st.integers(-1, n_cells - 1)
    cells = data.draw(st.lists(cell, min_size=len(chosen), max_size=len(chosen)), "cell of each")
    column = np.array(cells, np.int32).reshape(-1, 1)
    found = next(segment_sums(of.rows, np.array(chosen, np.int64), column, n_cells))
    vectors, scalars = summed(of, chosen, cells, n_cells)
    assert found.vectors.tolist() == vectors
    assert found.scalars.tolist() == scalars


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_threads_add_up_the_same(count):
    rows = np.arange(0, 5000, 3)
    cells = drawn_cells(len(rows), 2, 20)
    alone = list(segment_sums(OWN.rows, rows, cells, 20))
    with ThreadWorkers(count) as workers:
        together = list(segment_sums(OWN.rows, rows, cells, 20, workers))
    for one, other in zip(alone, together, strict=True):
        assert (one.vectors == other.vectors).all()
        assert (one.scalars == other.scalars).all()


def test_the_order_of_rows_does_not_matter():
    cells = drawn_cells(5000, 1, 9)
    order = np.random.default_rng(4).permutation(5000)
    own = next(segment_sums(OWN.rows, np.arange(5000), cells, 9))
    shuffled = next(segment_sums(OWN.rows, order, cells[order], 9))
    assert (own.vectors == shuffled.vectors).all()
    assert (own.scalars == shuffled.scalars).all()


@pytest.mark.parametrize("own", RINGS, ids=lambda own: own.name)
def test_a_sibling_is_its_parent_less_the_other(own):
    of = grown(drawn_messages(3000, own, 3), own)
    left = np.sort(np.random.default_rng(5).permutation(3000)[:1000])
    right = np.setdiff1d(np.arange(3000), left)
    cells = drawn_cells(3000, 1, 7)
    parent, one, other = (
        next(segment_sums(of.rows, rows, cells[rows], 7)) for rows in (np.arange(3000), left, right)
    )
    less = parent.subtract(one)
    assert (less.vectors == other.vectors).all()
    assert (less.scalars == other.scalars).all()


def test_running_sums_stay_within_their_segments():
    cells = next(segment_sums(OWN.rows, np.arange(5000), drawn_cells(5000, 1, 9), 9))
    offsets = np.array([0, 4, 4, 9])
    found = cells.prefix_sums(offsets)
    for own, running in ((cells.vectors, found.vectors), (cells.scalars, found.scalars)):
        for first, stop in ((0, 4), (4, 9)):
            expected = np.cumsum(own[first:stop], axis=0, dtype=np.uint64) & LATTICE.mask
            assert (running[first:stop] == expected).all()
    assert len(cells[:0].prefix_sums(np.array([0]))) == 0


@pytest.mark.parametrize("offsets", [[], [0, 8], [1, 9], [0, 5, 4, 9]])
def test_segments_that_do_not_span_the_cells_are_refused(offsets):
    cells = next(segment_sums(OWN.rows, np.arange(9), np.arange(9, dtype=np.int32)[:, None], 9))
    with pytest.raises(ProtocolError):
        cells.prefix_sums(np.array(offsets, np.int64))


def test_cells_are_chosen_joined_and_paired():
    cells = next(segment_sums(OWN.rows, np.arange(5000), drawn_cells(5000, 1, 9), 9))
    joined = LatticeSums.concat([cells[:2], cells[np.array([5, 3])]])
    assert (joined.vectors == cells.vectors[[0, 1, 5, 3]]).all()
    assert len(joined) == 4
    with pytest.raises(ProtocolError):
        cells.subtract(joined)


@pytest.mark.parametrize(
    ("rows", "cells", "n_cells"),
    [
        ([0, 1], np.zeros((3, 1), np.int32), 1),
        ([0, 1], np.zeros((2, 1), np.int64), 1),
        ([0, 1], np.zeros(2, np.int32), 1),
        ([0, 1], np.ones((2, 1), np.int32), 1),
        ([0, 5000], np.zeros((2, 1), np.int32), 1),
        ([-1, 0], np.zeros((2, 1), np.int32), 1),
        ([0, 1], np.zeros((2, 1), np.int32), CELLS_MOST + 1),
    ],
)
def test_rows_and_cells_that_are_not_there_are_refused(rows, cells, n_cells):
    with pytest.raises(ProtocolError):
        OWN.rows.segment_sum(np.array(rows), cells, n_cells)


def test_cells_cannot_be_sent_and_print_their_shape():
    cells = next(segment_sums(OWN.rows, np.arange(9), drawn_cells(9, 1, 3), 3))
    assert not isinstance(cells, Outgoing)
    assert not hasattr(cells, "to_bytes")
    assert repr(cells) == "Cells(3 × (2048 + 2))"
