"""The plain scheme: the same interface and the same sums, without encryption."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedboost.crypto import plain, residues, schemes
from fedboost.crypto.limbs import bytes_of, integers, rows_of
from fedboost.crypto.packing import GhLayout
from fedboost.ground.errors import PeerError, ProtocolError
from fedboost.ground.workers import Serial
from tests.support.ciphertexts import arrived, encrypted, short_keys, single

SCHEME = schemes.KEYED_SCHEMES["plain"]


@given(
    st.lists(
        st.tuples(st.integers(-(2**255), 2**255 - 1), st.integers(-(2**255), 2**255 - 1)),
        min_size=1,
        max_size=9,
    )
)
def test_arithmetic_is_that_of_numbers_modulo_two_to_256(pairs):
    _, public = short_keys("plain")
    a, b = (single(rows_of([pair[i] for pair in pairs], 32)) for i in (0, 1))
    for result, sign in ((public.add(a, b), 1), (public.subtract(a, b), -1)):
        for row, (x, y) in zip(result.data, pairs, strict=True):
            assert int.from_bytes(row.tobytes(), "big") == (x + sign * y) % 2**256


def test_headroom_is_never_nothing_and_fits():
    bits = np.repeat([1, 2, 41, 64, 255], 50)
    drawn = [integers(row[None])[0] for row in bytes_of(residues._draw_blinding(bits), 32)]
    assert all(1 <= number < 1 << most for number, most in zip(drawn, bits.tolist(), strict=True))
    assert len(set(drawn[100:])) == 150
    assert residues._draw_blinding(np.empty(0, np.int64)).shape[0] == 0


def test_missing_cells_and_missing_rows_add_nothing():
    private, public = short_keys("plain")
    layout = GhLayout(4, 3, public.plaintext_bits)
    rows = encrypted(private, np.array([[1, 4], [2, 5], [3, 6]]), layout)
    cells = np.array([[-1, 1], [0, -1]], dtype=np.int32)
    sums = public.segment_sum(rows, np.array([2, 0]), cells, 3)
    released = public.release(sums, layout, public.blinders())
    assert private.decrypt(arrived(released), layout, [3]).tolist() == [[1, 4], [3, 6], [0, 0]]


def test_what_does_not_fit_is_refused():
    private, public = short_keys("plain")
    layout = GhLayout(4, 3, public.plaintext_bits)
    rows = encrypted(private, np.array([[1, 1]]), layout)
    with pytest.raises(PeerError, match="expected no encryption key"):
        SCHEME.load_public(b"paillier", 0, Serial())
    with pytest.raises(PeerError, match="numbers of 32 bytes"):
        public.check(single(rows.each[:, 1:]))
    with pytest.raises(ProtocolError):
        public.segment_sum(rows, np.array([0]), np.array([[7]], np.int32), 7)
    with pytest.raises(ProtocolError):
        public.prefix_sums(rows, np.array([0, 2]))
    with pytest.raises(PeerError, match="expected 2 packages"):
        private.decrypt(rows, layout, [1, 1])
    bad = single(rows_of([layout.bound + 1], 32))
    with pytest.raises(PeerError, match="declared range"):
        private.decrypt(bad, layout, [1])
    assert SCHEME.load_private(private.to_bytes(), Serial()).width == plain.PLAIN_WIDTH
