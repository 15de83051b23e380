"""The plain scheme: the same interface and the same sums, without encryption."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedboost.crypto import plain, schemes
from fedboost.crypto.api import Ciphertexts
from fedboost.crypto.packing import GhLayout
from fedboost.crypto.workers import Serial
from fedboost.errors import PeerError, ProtocolError

SCHEME = schemes.scheme("plain")


def keys():
    private = SCHEME.generate(0, Serial())
    return private, SCHEME.load_public(private.public_bytes(), 0, Serial())


def encrypted(private, g, h, layout):
    parts = list(private.encrypt(g, h, layout))
    return Ciphertexts.concat([Ciphertexts.received(p.to_bytes(), len(p), p.width) for p in parts])


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 50), st.integers(1, 55), st.booleans())
def test_a_whole_layer_comes_out_as_the_clear_sums(seed, rows, value_bits, compress):
    private, public = keys()
    rng = np.random.default_rng(seed)
    most = 2**value_bits
    g = rng.integers(-most, most, rows, endpoint=True)
    h = rng.integers(0, most, rows, endpoint=True)
    layout = GhLayout(value_bits, rows, public.plaintext_bits, compress)
    ciphertexts = encrypted(private, g, h, layout)
    public.check(ciphertexts)
    cells = rng.integers(-1, 10, (rows, 3)).astype(np.int32)
    left = np.flatnonzero(rng.random(rows) < 0.5)
    cells %= 5  # within −1..4 a cell of its own for each
    cells = (cells + 5 * np.arange(3)).astype(np.int32)
    parent = public.segment_sum(ciphertexts, np.arange(rows), cells, 15)
    child = public.segment_sum(ciphertexts, left, cells[left], 15)
    sums = public.prefix_sums(public.subtract(parent, child), np.array([0, 5, 10, 15]))
    assert public.add(sums, child).data.shape == (15, public.width)
    counts = [4, 11]
    released = public.release(sums, layout, public.blinders(), counts)
    packages = Ciphertexts.received(released.to_bytes(), len(released), released.width)
    got = private.decrypt(packages, layout, counts)
    right = np.setdiff1d(np.arange(rows), left)
    for column, clear in enumerate((g, h)):
        expected = np.zeros(15, dtype=np.int64)
        np.add.at(expected, cells[right], clear[right, None])
        assert got[:, column].tolist() == expected.reshape(3, 5).cumsum(1).ravel().tolist()


@given(
    st.lists(
        st.tuples(st.integers(-(2**255), 2**255 - 1), st.integers(-(2**255), 2**255 - 1)),
        min_size=1,
        max_size=9,
    )
)
def test_arithmetic_is_that_of_numbers_modulo_two_to_256(pairs):
    _, public = keys()
    a, b = (
        Ciphertexts(
            np.frombuffer(
                b"".join(pair[i].to_bytes(32, "big", signed=True) for pair in pairs), np.uint8
            ).reshape(-1, 32)
        )
        for i in (0, 1)
    )
    for result, sign in ((public.add(a, b), 1), (public.subtract(a, b), -1)):
        for row, (x, y) in zip(result.data, pairs, strict=True):
            assert int.from_bytes(row.tobytes(), "big") == (x + sign * y) % 2**256


def test_missing_cells_and_missing_rows_add_nothing():
    private, public = keys()
    layout = GhLayout(4, 3, public.plaintext_bits)
    rows = encrypted(private, np.array([1, 2, 3]), np.array([4, 5, 6]), layout)
    cells = np.array([[-1, 1], [0, -1]], dtype=np.int32)
    sums = public.segment_sum(rows, np.array([2, 0]), cells, 3)
    released = public.release(sums, layout, public.blinders())
    packages = Ciphertexts.received(released.to_bytes(), len(released), released.width)
    assert private.decrypt(packages, layout, [3]).tolist() == [[1, 4], [3, 6], [0, 0]]


def test_what_does_not_fit_is_refused():
    private, public = keys()
    layout = GhLayout(4, 3, public.plaintext_bits)
    rows = encrypted(private, np.array([1]), np.array([1]), layout)
    with pytest.raises(PeerError, match="expected no encryption key"):
        SCHEME.load_public(b"paillier", 0, Serial())
    with pytest.raises(PeerError, match="numbers of 32 bytes"):
        public.check(Ciphertexts(rows.data[:, 1:]))
    with pytest.raises(ProtocolError):
        public.segment_sum(rows, np.array([0]), np.array([[7]], np.int32), 7)
    with pytest.raises(ProtocolError):
        public.prefix_sums(rows, np.array([0, 2]))
    with pytest.raises(PeerError, match="expected 2 packages"):
        private.decrypt(rows, layout, [1, 1])
    bad = (layout.bound + 1).to_bytes(32, "big")
    with pytest.raises(PeerError, match="declared range"):
        private.decrypt(Ciphertexts.received(bad, 1, 32), layout, [1])
    assert SCHEME.load_private(private.to_bytes(), Serial()).width == plain.WIDTH
