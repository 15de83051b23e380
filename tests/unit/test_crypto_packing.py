"""Packing: what is packed and summed comes back, and what does not fit is refused."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedboost.crypto.packing import HEADROOM_BITS, GhLayout
from fedboost.errors import ConfigError


def test_field_widths_are_the_papers():
    """SecureBoost+, section 4.4: a million rows at r = 53 take 74 + 73 bits."""
    with pytest.raises(ConfigError, match="73 bits"):
        GhLayout(53, 1_000_000, 1023)
    layout = GhLayout(42, 1_000_000, 1023)
    assert (layout.g_bits, layout.h_bits, layout.n_bit) == (74 - 11, 73 - 11, 147 - 22)
    assert layout.capacity == (1023 - HEADROOM_BITS) // 125


@st.composite
def sums_in_a_layout(draw):
    n_rows = draw(st.integers(1, 2000))
    value_bits = draw(st.integers(1, 62 - (n_rows - 1).bit_length()))
    layout = GhLayout(value_bits, n_rows, draw(st.integers(400, 2047)))
    bound = n_rows << value_bits
    field = st.tuples(
        st.one_of(st.integers(-bound, bound), st.sampled_from([-bound, bound, 0, -1])),
        st.one_of(st.integers(0, bound), st.sampled_from([0, bound])),
    )
    return layout, draw(st.lists(field, min_size=1, max_size=layout.capacity))


@given(sums_in_a_layout(), st.integers(1, 2**60))
def test_packages_unpack_to_their_sums_below_any_headroom(case, headroom):
    layout, sums = case
    value = headroom << layout.package_bits
    for place, (G, H) in enumerate(sums):
        value += ((G << layout.h_bits) + H) << (place * layout.n_bit)
    assert value > 0
    assert layout.unpack(value, len(sums)) == sums
    assert all(np.int64(number) == number for pair in sums for number in pair)


@given(sums_in_a_layout())
def test_sums_out_of_range_are_refused_wherever_they_are(case):
    layout, sums = case
    place = len(sums) - 1
    top = 1 << layout.package_bits
    for G, H in ((layout.bound + 1, 0), (-layout.bound - 1, 0), (0, layout.bound + 1)):
        if H >> layout.h_bits or abs(G) >> layout.h_bits:
            continue  # does not fit the field at all
        value = top + (((G << layout.h_bits) + H) << (place * layout.n_bit))
        assert layout.unpack(value, len(sums)) is None


def test_fields_beyond_a_packages_size_must_be_empty():
    layout = GhLayout(20, 100, 2047)
    full = (1 << layout.package_bits) + (5 << layout.n_bit)
    assert layout.unpack(full, 2) == [(0, 0), (0, 5)]
    assert layout.unpack(full, 1) is None


@given(st.integers(1, 62), st.lists(st.tuples(st.integers(), st.integers()), max_size=20))
def test_rows_sum_as_their_fields_do(value_bits, drawn):
    most = 1 << value_bits
    g = np.array([a % (2 * most + 1) - most for a, _ in drawn], dtype=np.int64)
    h = np.array([b % (most + 1) for _, b in drawn], dtype=np.int64)
    n_rows = min(20, 1 << (62 - value_bits))
    g, h = g[:n_rows], h[:n_rows]
    layout = GhLayout(value_bits, n_rows, 400)
    layout.check_values(g, h)
    value = (1 << layout.package_bits) + sum(layout.pack(g, h))
    assert layout.unpack(value, 1) == [(sum(g.tolist()), sum(h.tolist()))]


def test_package_sizes_do_not_straddle_groups():
    layout = GhLayout(30, 1000, 2047)
    full = layout.capacity
    assert layout.package_sizes([2 * full + 3, 0, full, 1]) == [full, full, 3, full, 1]
    single = GhLayout(30, 1000, 2047, compress=False)
    assert single.package_sizes([2, 1]) == [1, 1, 1]
    assert single.n_bit == layout.n_bit


def test_at_least_41_bits_stay_free_for_blinding():
    for value_bits in range(1, 52):
        layout = GhLayout(value_bits, 1000, 2047)
        assert 2047 - layout.package_bits >= HEADROOM_BITS
        assert 2047 - layout.package_bits < HEADROOM_BITS + layout.n_bit


@pytest.mark.parametrize(
    ("value_bits", "n_rows", "plaintext_bits", "text"),
    [
        (53, 1024, 2047, "need 63 bits"),
        (0, 5, 2047, "cannot pack"),
        (10, 0, 2047, "cannot pack"),
        (52, 1024, 160, "do not fit a plaintext"),
    ],
)
def test_impossible_layouts_are_refused(value_bits, n_rows, plaintext_bits, text):
    with pytest.raises(ConfigError, match=text):
        GhLayout(value_bits, n_rows, plaintext_bits)


def test_values_beyond_the_declared_bits_are_refused():
    layout = GhLayout(4, 3, 400)
    good = np.array([-16, 0, 16], dtype=np.int64)
    layout.check_values(good, abs(good))
    for g, h in ((good + 1, abs(good)), (good - 1, abs(good)), (good, good), (good, abs(good) + 1)):
        with pytest.raises(ConfigError, match="outside the declared 4 bits"):
            layout.check_values(g, h)
    with pytest.raises(ConfigError, match="int64"):
        layout.check_values(good.astype(np.int32), abs(good))
    with pytest.raises(ConfigError, match="do not fit a layout for 3"):
        layout.check_values(np.zeros(4, np.int64), np.zeros(4, np.int64))
