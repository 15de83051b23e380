"""Untrained networks: hashes as anybody makes them, weights that are even, rows in any blocks."""

import tracemalloc

import numpy as np
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csc_array
from scipy.stats import kstest

from fedboost.core import networks
from fedboost.core.networks import DenseInputs, Network, SparseInputs, hashed_weight
from tests import tiers
from tests.support.pair_hashes import pair_hashes

WORD = st.integers(0, 2**32 - 1)


def table(rows=300, columns=40, share=0.1, seed=1):
    """A sparse table whose rows have very different numbers of values."""
    draw = np.random.default_rng(seed)
    some = draw.random((rows, columns)) < share * draw.gamma(1.0, size=(rows, 1))
    values = np.where(some, draw.normal(size=(rows, columns)), 0.0).astype(np.float32)
    return csc_array(values)


def sparse(values, ids=None):
    return SparseInputs(values, np.arange(values.shape[1], dtype=np.uint32) if ids is None else ids)


def dense_weights(network, ids):
    """Weight by weight what a sparse network's matrix would be, float64 (columns, outputs)."""
    found = np.empty((len(ids), network.outputs))
    for c, column in enumerate(ids.tolist()):
        for k, seed in enumerate(network.hash_seeds.tolist()):
            data = column.to_bytes(4, "little") + network.number.to_bytes(4, "little")
            word = xxhash.xxh32(data, seed=seed).intdigest()
            number = np.array((word & 0x7FFFFF) | 0x3F800000, np.uint32).view(np.float32)
            found[c, k] = np.float32(2.0 * float(number) - 3.0)  # [1, 2) to [−1, 1)
    return found


def whole(inputs, network):
    """All blocks' outputs."""
    return np.concatenate(
        [inputs.forward(rows, network) for rows in inputs.blocks(network.outputs)]
    )


# Hashes


@settings(max_examples=tiers.examples(300))
@given(st.lists(WORD, min_size=1, max_size=5), WORD, st.lists(WORD, min_size=1, max_size=5))
def test_hashes_are_those_of_the_xxhash_package(first, second, seeds):
    found = pair_hashes(np.array(first, np.uint32), np.uint32(second), np.array(seeds, np.uint32))
    assert found.dtype == np.uint32
    for i, own in enumerate(first):
        data = own.to_bytes(4, "little") + second.to_bytes(4, "little")
        for j, seed in enumerate(seeds):
            assert found[i, j] == xxhash.xxh32(data, seed=seed).intdigest()


def test_column_and_round_do_not_run_into_one_another():
    """As text, column 1 of round 23 and column 12 of round 3 would be the same."""
    pairs = [(a, b) for a in range(200) for b in range(200)]
    seed = np.zeros(1, np.uint32)
    found = [
        pair_hashes(np.array([a], np.uint32), np.uint32(b), seed)[0, 0] for a, b in pairs[:2000]
    ]
    assert len(set(found)) == 2000


# Weights


def test_weights_of_a_sparse_network_are_the_mantissa_trick_of_the_hash():
    network, ids = Network(5, 3, 7), np.array([0, 1, 17, 2**31, 2**32 - 1], np.uint32)
    expected = dense_weights(network, ids)
    seeds = network.hash_seeds
    found = [[hashed_weight(c, np.uint32(5), k) for k in seeds] for c in ids]
    np.testing.assert_array_equal(np.array(found, np.float64), expected)


def test_weights_of_a_sparse_network_are_even_between_minus_one_and_one():
    seeds = Network(0, 0, 256).hash_seeds
    found = np.array(
        [hashed_weight(np.uint32(c), np.uint32(9), k) for c in range(80) for k in seeds]
    )
    assert found.min() >= -1.0
    assert found.max() < 1.0
    assert kstest(found, "uniform", args=(-1.0, 2.0)).pvalue > 0.01
    assert abs(found.mean()) < 4 * np.sqrt(1 / 3 / len(found))
    assert found.var() == pytest.approx(1 / 3, rel=0.03)
    by_output = found.reshape(80, 256)
    assert np.abs(np.corrcoef(by_output.T) - np.eye(256)).max() < 0.6  # of 80 columns


def test_weights_of_a_dense_network_are_nine_tenths_zero_and_otherwise_even():
    found = Network(2, 11, 128).weights(400).ravel()
    kept = found[found != 0.0]
    assert len(kept) / len(found) == pytest.approx(0.1, abs=4 * np.sqrt(0.09 / len(found)) + 5e-4)
    assert kept.min() >= -1.0
    assert kept.max() < 1.0
    assert kstest(kept, "uniform", args=(-1.0, 2.0)).pvalue > 0.01
    assert kept.var() == pytest.approx(1 / 3, rel=0.05)


def test_every_round_job_and_output_has_a_network_of_its_own():
    one = Network(0, 0, 8)
    for other in (Network(1, 0, 8), Network(0, 1, 8)):
        assert (one.weights(50) != other.weights(50)).any()
    assert not set(Network(0, 4, 1024).hash_seeds) & set(Network(0, 5, 1024).hash_seeds)
    assert Network(0, 0, 5).hash_seeds.tolist() == [0, 1, 2, 3, 4]
    big = Network(0, 2**63 - 1, 1024).hash_seeds
    assert big.dtype == np.uint32
    assert len(set(big.tolist())) == 1024


# Rows


@pytest.mark.parametrize("ids", [None, np.array([7, 2**31, *range(100, 138)], np.uint32)])
def test_sparse_rows_come_to_the_product_with_the_matrix_that_is_never_made(ids):
    values, network = table(), Network(3, 1, 19)
    inputs = sparse(values, ids)
    expected = values.toarray().astype(np.float64) @ dense_weights(network, inputs.ids)
    np.testing.assert_allclose(whole(inputs, network), expected, rtol=0, atol=1e-12)


def test_dense_rows_come_to_the_product_with_the_drawn_matrix():
    values, network = np.random.default_rng(1).normal(size=(50, 9)), Network(3, 1, 19)
    expected = values @ network.weights(9)
    np.testing.assert_allclose(whole(DenseInputs(values), network), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("cells", [1, 64, 1 << 10])
@pytest.mark.parametrize("kind", ["sparse", "dense"])
def test_the_size_of_a_block_changes_no_output(kind, cells, monkeypatch):
    values, network = table(), Network(0, 0, 16)

    def found():
        dense = DenseInputs(values.toarray().astype(np.float64))
        return whole(sparse(values) if kind == "sparse" else dense, network)

    expected = found()
    monkeypatch.setattr(networks, "BLOCK_CELLS", cells)
    np.testing.assert_allclose(found(), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("outputs", [1, 16, 1000])
@pytest.mark.parametrize("rows", [0, 1, 299, 300])
def test_blocks_hold_every_row_once_and_none_is_too_long(rows, outputs, monkeypatch):
    monkeypatch.setattr(networks, "BLOCK_CELLS", 4096)
    values = table()[:rows]
    for inputs in (sparse(csc_array(values)), DenseInputs(values.toarray().astype(np.float64))):
        blocks = list(inputs.blocks(outputs))
        seen = [row for block in blocks for row in range(block.start, block.stop)]
        assert seen == list(range(rows))
        assert all(0 < b.stop - b.start <= max(1, 4096 // outputs) for b in blocks)


def test_blocks_of_sparse_rows_share_the_stored_values_evenly(monkeypatch):
    monkeypatch.setattr(networks, "BLOCK_CELLS", 333 * 16)
    draw = np.random.default_rng(3)
    values = np.zeros((1000, 200), np.float32)
    for row, count in enumerate(np.linspace(80, 150, 1000).astype(int)):  # ever fuller rows
        values[row, draw.choice(200, count, replace=False)] = 1.0
    ends = csc_array(values).tocsr().indptr
    blocks = list(sparse(csc_array(values)).blocks(16))
    stored = [int(ends[block.stop] - ends[block.start]) for block in blocks]
    rows = [block.stop - block.start for block in blocks]
    assert len(blocks) == 4
    assert max(stored) < 1.02 * min(stored)
    assert max(rows) > 1.4 * min(rows)  # as many rows in each would not be even


def test_the_reach_is_the_greatest_sum_of_a_rows_values():
    values, network = table(), Network(8, 8, 64)
    dense = DenseInputs(values.toarray().astype(np.float64))
    for inputs in (sparse(values), dense):
        assert inputs.reach() == pytest.approx(np.abs(values.toarray()).sum(axis=1).max())
        assert np.abs(whole(inputs, network)).max() <= inputs.reach()
    assert sparse(csc_array((0, 3), dtype=np.float32)).reach() == 0.0


def peak_mib(work):
    """The most memory that a piece of work takes beside what is there."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1] / 2**20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("kind", ["sparse", "dense"])
def test_memory_does_not_grow_with_rows_times_outputs(kind):
    """60,000 rows through 256 outputs would be 117 MiB, a block is 2 MiB."""
    draw, rows, network = np.random.default_rng(2), 60_000, Network(0, 0, 256)
    inputs: SparseInputs | DenseInputs
    if kind == "dense":
        inputs = DenseInputs(draw.normal(size=(rows, 4)))
    else:
        place = draw.integers(0, 50, 2 * rows)
        entries = (np.ones(2 * rows, np.float32), (np.repeat(np.arange(rows), 2), place))
        inputs = sparse(csc_array(entries, shape=(rows, 50)))

    def passed():
        for block in inputs.blocks(network.outputs):
            inputs.forward(block, network)

    passed()  # compiles, and keeps the blocks' columns
    assert peak_mib(passed) < 20


def test_sparse_columns_are_never_made_a_matrix_of_weights():
    """A million columns of 256 outputs would be 2 GiB."""
    draw, rows = np.random.default_rng(2), 500
    indices = draw.integers(0, 1_000_000, rows)
    entries = (np.ones(rows, np.float32), (np.arange(rows), indices))
    inputs = sparse(csc_array(entries, shape=(rows, 1_000_000)))
    whole(inputs, Network(0, 0, 256))
    assert peak_mib(lambda: whole(inputs, Network(1, 0, 256))) < 30
