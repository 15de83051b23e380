"""Sums by products: the sums of windows, bit for bit, where rows are many for their cells."""

import numpy as np
import pytest

from fedboost.crypto.lattice import dense_sums
from fedboost.crypto.lattice.cells import sum_windows
from fedboost.crypto.lattice.dense_sums import (
    DENSE_BOUND_MOST,
    add_dense,
    error_bound,
    transform_of,
)
from fedboost.ground.workers import Serial
from tests.support.lattices import LATTICE, LATTICE_LARGE, RINGS


class Many(Serial):
    """More workers than columns."""

    count = 5


def windows_of(own, blocks, polynomials=None):
    draw = np.random.default_rng(blocks)
    if polynomials is None:
        shape = blocks, own.ring
        polynomials = draw.integers(0, 2**63, shape, np.uint64) * np.uint64(2) & own.mask
        polynomials |= draw.integers(0, 2, shape, np.uint64)
    return np.concatenate([np.negative(polynomials), polynomials], axis=1)


def by_windows(own, windows, rows, cells, n_cells):
    sums = np.zeros((n_cells, own.ring), np.uint64)
    sum_windows(windows, rows, cells, sums, 0, own.ring)
    return sums & own.mask


def by_products(own, windows, rows, cells, n_cells, workers=None):
    """The sums, and the parts of the rows that are left."""
    sums = np.zeros((n_cells, own.ring), np.uint64)
    bits = own.modulus_bits
    left = add_dense(windows, bits, rows, cells, sums, workers or Serial())
    return sums & own.mask, left


@pytest.mark.parametrize("workers", [Serial(), Many()], ids=["one", "five"])
@pytest.mark.parametrize("own", RINGS, ids=lambda own: own.name)
def test_sums_by_products_are_the_sums_of_windows(own, workers):
    draw = np.random.default_rng(own.modulus_bits)
    blocks = transform_of(own.ring, own.modulus_bits).blocks + 2  # of more than one group
    windows, n_rows = windows_of(own, blocks), blocks * own.ring - 5
    rows = np.flatnonzero(draw.random(n_rows) < 0.6)
    few, fewer = draw.integers(0, 7, len(rows)), draw.integers(0, 2, len(rows))
    cells = np.stack([few, 20 + fewer], axis=1).astype(np.int32)
    sums, left = by_products(own, windows, rows, cells, 22, workers)
    assert left == []
    assert (sums == by_windows(own, windows, rows, cells, 22)).all()


@pytest.mark.parametrize("own", RINGS, ids=lambda own: own.name)
@pytest.mark.parametrize("value", [0, 1, -1, 2**20, -(2**20)], ids=str)
def test_the_greatest_numbers_of_every_row_are_added_up_exactly(own, value):
    """Half of the modulus and what is near, whose limbs are as great as they can be."""
    blocks = transform_of(own.ring, own.modulus_bits).blocks
    greatest = np.uint64((2 ** (own.modulus_bits - 1) + value) % 2**own.modulus_bits)
    windows = windows_of(own, blocks, np.full((blocks, own.ring), greatest))
    rows, cells = np.arange(blocks * own.ring), np.zeros((blocks * own.ring, 1), np.int32)
    sums, left = by_products(own, windows, rows, cells, 1)
    assert left == []
    assert (sums == by_windows(own, windows, rows, cells, 1)).all()


def test_nodes_of_many_rows_are_added_and_the_others_left():
    rows = np.concatenate([np.arange(4096), np.arange(1, 100), np.arange(50), np.arange(4096)])
    cells = np.concatenate([np.zeros(4096), np.arange(149) % 9, np.zeros(4096)]).astype(np.int32)
    sums, left = by_products(LATTICE, windows_of(LATTICE, 2), rows, cells[:, None], 9)
    assert left == [slice(4096, 4245)]
    alone = by_windows(LATTICE, windows_of(LATTICE, 2), rows[:4096], cells[:4096, None], 9)
    assert (sums == np.uint64(2) * alone & LATTICE.mask).all()


@pytest.mark.parametrize(
    "cells",
    [
        np.zeros((4096, 2), np.int32),  # columns share a cell
        np.stack([np.arange(4096) % 2 - 1], axis=1).astype(np.int32),  # some rows add to none
        np.stack([np.arange(4096) % 11], axis=1).astype(np.int32),  # too few a cell
        np.zeros((4096, 0), np.int32),
    ],
    ids=["shared", "none", "few", "no columns"],
)
def test_rows_that_products_do_not_fit_are_left(cells):
    sums, left = by_products(
        LATTICE_LARGE, windows_of(LATTICE_LARGE, 1), np.arange(4096), cells, 86
    )
    assert left == [slice(0, 4096)]
    assert not sums.any()


def test_of_no_rows_nothing_is_left():
    cells = np.zeros((0, 3), np.int32)
    _, left = by_products(LATTICE, windows_of(LATTICE, 1), np.arange(0), cells, 3)
    assert left == []


@pytest.mark.parametrize("own", RINGS, ids=lambda own: own.name)
def test_as_many_blocks_are_added_up_as_are_proven_exact(own):
    of = transform_of(own.ring, own.modulus_bits)
    bits, most = of.multiplier.limb_bits, dense_sums.BLOCKS_MOST
    assert error_bound(own.ring, bits, of.blocks) <= DENSE_BOUND_MOST < 0.5
    assert of.blocks == most or error_bound(own.ring, bits, of.blocks + 1) > DENSE_BOUND_MOST
