"""Every scheme, with every switch: a layer of a tree comes out as the plain integers' sums."""

import itertools
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedboost.crypto import schemes
from fedboost.crypto.api import Ciphertexts
from fedboost.crypto.modular_kernels import numbers
from fedboost.crypto.packing import GhLayout
from fedboost.crypto.sparse import fill_skipped
from fedboost.ground.errors import ConfigError, PeerError, ProtocolError
from fedboost.ground.workers import Serial
from fedboost.runtime.process.workers import ProcessWorkers
from tests import tiers
from tests.support.ciphertexts import arrived, encrypted, gradients, naive_sums, short_keys

SCHEMES = sorted(schemes.KEYED_SCHEMES)
SECURE = [name for name in SCHEMES if schemes.KEYED_SCHEMES[name].secure]
COLUMNS, BINS, ROWS = 3, 4, 24
SWITCHES = list(itertools.product([True, False], [True, False], [1, 2, 3, 11]))


def cells_of(rng, rows):
    """A cell for each row and column, one in five missing."""
    cells = rng.integers(0, BINS, (rows, COLUMNS)) + BINS * np.arange(COLUMNS)
    return np.where(rng.random(cells.shape) < 0.2, -1, cells).astype(np.int32)


def layer(private, public, layout, seed):
    """Histogram, sibling by subtraction, running sums, release, decrypt; and what is right."""
    rng = np.random.default_rng(seed)
    gh = gradients(ROWS, layout.outputs, seed, layout.value_bits)
    ciphertexts = encrypted(private, gh, layout)
    assert ciphertexts.lanes == len(layout.lanes)
    public.check(ciphertexts)
    cells = cells_of(rng, ROWS)
    left = np.flatnonzero(rng.random(ROWS) < 0.4)
    n_cells = COLUMNS * BINS
    parent = public.segment_sum(ciphertexts, np.arange(ROWS), cells, n_cells)
    child = public.segment_sum(ciphertexts, left, cells[left], n_cells)
    sibling = public.subtract(parent, child)
    sums = public.prefix_sums(sibling, np.array([0, 4, 8, 8, 12]))
    public.check(sums)
    counts = [5, 0, 7]
    both = public.add(sums, child)
    released = [public.release(each, layout, public.blinders(), counts) for each in (sums, both)]
    assert all(len(each) == len(layout.packages(counts)) for each in released)
    got = [private.decrypt(arrived(each), layout, counts) for each in released]

    right = np.setdiff1d(np.arange(ROWS), left)
    clear = naive_sums(gh, right, cells[right], n_cells)
    clear = np.array([np.zeros(2 * layout.outputs, np.int64) + row for row in clear])
    clear = clear.reshape(COLUMNS, BINS, -1).cumsum(1).reshape(n_cells, -1)
    fell = naive_sums(gh, left, cells[left], n_cells)
    return got, [clear, clear + np.array([np.zeros_like(clear[0]) + row for row in fell])]


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize(("pack", "compress", "outputs"), SWITCHES)
def test_a_whole_layer_comes_out_as_the_clear_sums(scheme, pack, compress, outputs):
    private, public = short_keys(scheme)
    bits = public.plaintext_bits
    layout = GhLayout(30, ROWS, bits, outputs, pack=pack, compress=compress)
    got, expected = layer(private, public, layout, seed=outputs)
    for ours, clear in zip(got, expected, strict=True):
        assert ours.dtype == np.int64
        assert ours.tolist() == clear.tolist()


@settings(max_examples=tiers.examples(30), deadline=None)
@given(
    st.sampled_from(SCHEMES),
    st.sampled_from(SWITCHES),
    st.integers(1, 57),
    st.integers(0, 2**32),
)
def test_layers_are_exact_whatever_the_gradients(scheme, switches, value_bits, seed):
    private, public = short_keys(scheme)
    pack, compress, outputs = switches
    bits = public.plaintext_bits
    layout = GhLayout(value_bits, ROWS, bits, outputs, pack=pack, compress=compress)
    got, expected = layer(private, public, layout, seed)
    assert [each.tolist() for each in got] == [each.tolist() for each in expected]


@pytest.mark.some(2)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_keys_of_the_default_length_do_as_short_ones(scheme):
    """A key as a job has it, made, sent, read and stored."""
    row = schemes.KEYED_SCHEMES[scheme]
    private = row.generate(row.key_bits, Serial())
    public = row.load_public(private.public_bytes(), row.key_bits, Serial())
    assert public.plaintext_bits == private.plaintext_bits == row.plaintext_bits(row.key_bits)
    assert public.width == private.width
    assert public.to_bytes() == private.public_bytes()
    layout = GhLayout(44, ROWS, public.plaintext_bits, 2)
    again = row.load_private(private.to_bytes(), Serial())
    for owner in (private, again):
        got, expected = layer(owner, public, layout, seed=1)
        assert [each.tolist() for each in got] == [each.tolist() for each in expected]
    assert again.public_bytes() == private.public_bytes()


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("pack", [True, False])
def test_skipped_bins_are_the_nodes_total_minus_the_others(scheme, pack):
    """Section 6.2: two nodes, three columns; the middle column leaves nothing out."""
    private, public = short_keys(scheme)
    layout = GhLayout(30, ROWS, public.plaintext_bits, 2, pack=pack)
    rng = np.random.default_rng(4)
    gh = gradients(ROWS, 2, seed=4)
    ciphertexts = encrypted(private, gh, layout)
    node = rng.integers(0, 2, ROWS)
    dense = rng.integers(0, BINS, (ROWS, COLUMNS)) + BINS * np.arange(COLUMNS)
    dense = (dense + COLUMNS * BINS * node[:, None]).astype(np.int32)
    dense[:, 0] = np.where(rng.random(ROWS) < 0.7, COLUMNS * BINS * node + 2, dense[:, 0])
    n_cells, rows = 2 * COLUMNS * BINS, np.arange(ROWS)
    skipped = np.array([2, -1, 8, 14, -1, 23])
    sparse = np.where(np.isin(dense, skipped), -1, dense).astype(np.int32)
    cells = public.segment_sum(ciphertexts, rows, sparse, n_cells)
    totals = public.segment_sum(ciphertexts, rows, node[:, None].astype(np.int32), 2)
    offsets = np.arange(0, n_cells + 1, BINS)
    before = cells.data.copy()
    filled = fill_skipped(public, cells, offsets, skipped, totals)
    assert np.array_equal(cells.data, before)
    public.check(filled)
    expected = naive_sums(gh, rows, dense, n_cells)
    released = public.release(filled, layout, public.blinders())
    got = private.decrypt(arrived(released), layout, [n_cells])
    assert got.tolist() == [(np.zeros(4, np.int64) + each).tolist() for each in expected]
    holding = Ciphertexts(before.copy())  # whatever stands in skipped cells does not matter
    holding.data[skipped[skipped >= 0]] = totals.data[0]
    again = fill_skipped(public, holding, offsets, skipped, totals)
    assert np.array_equal(again.data, filled.data)
    nothing = fill_skipped(public, cells, offsets, np.full(6, -1), totals)
    assert np.array_equal(nothing.data, before)


def test_skipped_bins_must_lie_in_their_columns():
    private, public = short_keys("plain")
    layout = GhLayout(30, ROWS, public.plaintext_bits)
    cells = encrypted(private, gradients(6), layout)
    offsets = np.array([0, 3, 6])
    with pytest.raises(ProtocolError, match="outside its column"):
        fill_skipped(public, cells, offsets, np.array([3, -1]), cells[:1])
    with pytest.raises(ProtocolError, match="do not fit"):
        fill_skipped(public, cells, offsets, np.array([0, 3]), cells[:0])
    with pytest.raises(ProtocolError, match="do not fit"):
        fill_skipped(public, cells, offsets, np.array([0]), cells[:1])


@pytest.mark.parametrize("scheme", SECURE)
def test_workers_and_one_process_give_the_same_sums(scheme):
    """Several lanes, with worker processes and without: the same bytes, the same decryption."""
    private, public = short_keys(scheme)
    layout = GhLayout(30, 200, public.plaintext_bits, 11)
    assert len(layout.lanes) > 1
    gh = gradients(200, 11, seed=5)
    rng = np.random.default_rng(5)
    cells, rows = cells_of(rng, 200), np.arange(200)
    with ProcessWorkers(2) as workers:
        parallel_public = type(public)(public.key, workers)
        parallel_private = type(private)(private._secret, workers)
        ciphertexts = encrypted(parallel_private, gh, layout)
        results = []
        for key in (parallel_public, public):
            sums = key.segment_sum(ciphertexts, rows, cells, 12)
            prefixes = key.prefix_sums(sums, np.arange(0, 13, 4))
            results.append(key.subtract(prefixes, sums).data.tobytes())
        assert results[0] == results[1]
        released = parallel_public.release(sums, layout, parallel_public.blinders())
        got = parallel_private.decrypt(arrived(released), layout, [12])
    expected = naive_sums(gh, rows, cells, 12)
    assert got.tolist() == [each.tolist() for each in expected]


@pytest.mark.parametrize("scheme", SCHEMES)
def test_what_does_not_fit_is_refused_at_the_step_that_received_it(scheme):
    private, public = short_keys(scheme)
    layout = GhLayout(30, ROWS, public.plaintext_bits, 2, pack=False)
    rows = encrypted(private, gradients(2, 2), layout)
    narrow = Ciphertexts(rows.data[:, :, 4:])
    with pytest.raises(PeerError, match=f"got {public.width - 4} bytes"):
        public.check(narrow)
    with pytest.raises(PeerError, match="expected 4 packages"):
        private.decrypt(rows, layout, [1])
    with pytest.raises(PeerError, match="in all"):
        Ciphertexts.received(b"123", 1, 4)
    with pytest.raises(ProtocolError, match="no pairs"):
        public.add(rows, rows[:1])
    with pytest.raises(ProtocolError, match="do not span"):
        public.prefix_sums(rows, np.array([0, 1]))
    with pytest.raises(ProtocolError, match="do not go into"):
        public.segment_sum(rows, np.arange(2), np.array([[0], [1]], np.int32), 1)
    with pytest.raises(ProtocolError, match="do not fill"):
        public.release(rows, layout, public.blinders(), [1])
    one_lane = GhLayout(3, ROWS, public.plaintext_bits)
    with pytest.raises(ProtocolError, match="do not fill"):
        public.release(rows, one_lane, public.blinders(), [2])
    longer = GhLayout(30, ROWS, public.plaintext_bits + 1, 2, pack=False)
    with pytest.raises(ProtocolError, match="do not fill"):
        public.release(rows, longer, public.blinders(), [2])
    with pytest.raises(ConfigError, match="outside the declared"):
        private.encrypt(gradients(2, 2, bits=31), layout)
    with pytest.raises(ConfigError, match=r"int64 \(n, 4\)"):
        private.encrypt(gradients(2, 3), layout)


@pytest.mark.parametrize("scheme", SECURE)
@pytest.mark.parametrize("pack", [True, False])
def test_the_highest_headroom_does_not_wrap(scheme, pack, monkeypatch):
    """The extremes of what `release` draws and of what fields hold, at once."""
    private, public = short_keys(scheme)
    monkeypatch.setattr("fedboost.crypto.modular_kernels.secrets.randbelow", lambda most: most - 1)
    layout = GhLayout(30, ROWS, public.plaintext_bits, pack=pack)
    full = layout.lanes[0].capacity
    for g in (2**30, -(2**30)):
        gh = np.array([[g, 2**30]], dtype=np.int64)
        rows = encrypted(private, gh, layout)[np.zeros(full, np.int64)]
        released = public.release(rows, layout, public.blinders())
        got = private.decrypt(arrived(released), layout, [full])
        assert got.tolist() == gh.tolist() * full


@pytest.mark.parametrize("scheme", SECURE)
def test_ciphertexts_of_another_key_are_one_uniform_error(scheme):
    """Mixed keys of one length cannot be told from their bytes: decryption gives them away."""
    row = schemes.KEYED_SCHEMES[scheme]
    keys = [row.generate(row.key_bits_min, Serial()) for _ in "ab"]
    public: Any = row.load_public(keys[1].public_bytes(), row.key_bits_min, Serial())
    layout = GhLayout(30, 5, public.plaintext_bits)
    rows = encrypted(keys[0], gradients(50, bits=29), GhLayout(30, 50, public.plaintext_bits))
    below = next(i for i, c in enumerate(numbers(rows.data)) if c < public.key.modulus)
    public.check(rows[below : below + 1])
    released = public.release(rows[below : below + 1], layout, public.blinders())
    with pytest.raises(PeerError, match="does not decrypt into the declared range"):
        keys[1].decrypt(arrived(released), layout, [1])


@pytest.mark.parametrize("scheme", ["iterative-affine", *SECURE])
@pytest.mark.parametrize("key_bits", [0, 512, 1008, 2042, 65536])
def test_key_lengths_outside_the_rule_are_refused(scheme, key_bits):
    row = schemes.KEYED_SCHEMES[scheme]
    with pytest.raises(ConfigError, match=f"{scheme} needs {row.key_bits_min}"):
        row.generate(key_bits, Serial())
    with pytest.raises(ConfigError, match=f"{scheme} needs {row.key_bits_min}"):
        row.load_public(b"", key_bits, Serial())


def test_the_table_says_what_is_safe():
    assert SECURE == ["okamoto-uchiyama", "paillier"]
    for row in schemes.KEYED_SCHEMES.values():
        assert row.key_bits >= row.key_bits_min
        if row.secure:
            assert row.key_bits_min >= 2048
    capacities = {row.name: row.plaintext_bits(2048) for row in schemes.KEYED_SCHEMES.values()}
    assert capacities["okamoto-uchiyama"] == 681
    assert capacities["paillier"] == 2047


@pytest.mark.parametrize("scheme", SCHEMES)
def test_keys_print_no_secret(scheme):
    private, public = short_keys(scheme)
    for text in (repr(private), str(private._secret), repr(private.encrypt), repr(public)):
        assert re.search("[0-9a-f]{20,}", text) is None
        assert len(text) < 200
