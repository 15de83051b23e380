"""Packing: what is packed and summed comes back, and what does not fit is refused."""

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedboost.crypto.layout import HEADROOM_BITS
from fedboost.crypto.limbs import integers, rows_of
from fedboost.crypto.packing import GhLayout
from fedboost.ground.errors import ConfigError
from tests.support.ciphertexts import gradients, pairs_in

SWITCHES = list(itertools.product([True, False], [True, False]))


def test_field_widths_are_the_papers():
    """SecureBoost+, section 4.4: a million rows at r = 53 take 74 + 73 bits."""
    with pytest.raises(ConfigError, match="73 bits"):
        GhLayout(53, 1_000_000, 1023)
    layout = GhLayout(42, 1_000_000, 1023)
    assert (layout.g_bits, layout.h_bits, layout.n_bit) == (74 - 11, 73 - 11, 147 - 22)
    (lane,) = layout.lanes
    assert (lane.bits, lane.capacity) == (125, (1023 - HEADROOM_BITS) // 125)


def test_classes_share_ciphertexts_as_in_algorithm_7():
    """Section 5.3, equations 20 and 21 (rounded up): 7 pairs of 125 bits fit 1023 − 41 bits."""
    layout = GhLayout(42, 1_000_000, 1023, outputs=11)
    assert [(lane.bits, lane.capacity) for lane in layout.lanes] == [(7 * 125, 1), (4 * 125, 1)]
    columns = [digit.column for lane in layout.lanes for digit in lane.digits]
    assert sorted(columns) == list(range(22))
    # What the last ciphertext leaves free, compressing uses.
    few = GhLayout(42, 1_000_000, 1023, outputs=9)
    assert [(lane.bits, lane.capacity) for lane in few.lanes] == [(7 * 125, 1), (2 * 125, 3)]
    two = GhLayout(42, 1_000_000, 1023, outputs=2)
    assert [(lane.bits, lane.capacity) for lane in two.lanes] == [(250, 3)]


def test_without_packing_every_number_is_a_ciphertext_and_compresses_with_its_like():
    layout = GhLayout(42, 1_000_000, 1023, outputs=2, pack=False)
    assert [(lane.bits, lane.capacity) for lane in layout.lanes] == [(63, 15), (62, 15)] * 2
    assert [lane.digits[0].column for lane in layout.lanes] == [0, 1, 2, 3]
    bare = GhLayout(42, 1_000_000, 1023, outputs=2, pack=False, compress=False)
    assert [lane.capacity for lane in bare.lanes] == [1] * 4


@pytest.mark.some(2)
@pytest.mark.parametrize(("pack", "compress"), SWITCHES)
@given(data=st.data())
def test_sums_come_back_from_their_packages_below_any_headroom(pack, compress, data):
    """A naive twin packs: Python's shifts, one field after the other."""
    n_rows = data.draw(st.integers(1, 2000))
    value_bits = data.draw(st.integers(1, 62 - (n_rows - 1).bit_length()))
    plaintext_bits, outputs = data.draw(st.integers(170, 2047)), data.draw(st.integers(1, 13))
    layout = GhLayout(value_bits, n_rows, plaintext_bits, outputs, pack=pack, compress=compress)
    counts = data.draw(st.lists(st.integers(0, 2 * layout.lanes[0].capacity + 1), max_size=3))
    extremes = st.sampled_from([-layout.bound, layout.bound, 0, -1])
    drawn = st.one_of(st.integers(-layout.bound, layout.bound), extremes)
    row = st.lists(drawn, min_size=2 * outputs, max_size=2 * outputs)
    sums = data.draw(st.lists(row, min_size=sum(counts), max_size=sum(counts)))
    sums = [[abs(x) if i % 2 else x for i, x in enumerate(row)] for row in sums]
    values = []
    first = 0
    for count in counts:
        group = sums[first : first + count]
        first += count
        for lane in layout.lanes:
            for start in range(0, count, lane.capacity):
                value = data.draw(st.integers(1, 2**50)) << lane.package_bits
                for place, own in enumerate(group[start : start + lane.capacity]):
                    for digit in lane.digits:
                        value += own[digit.column] << (place * lane.bits + digit.shift)
                values.append(value)
    assert len(values) == len(layout.packages(counts))
    got = layout.unpack_sums(rows_of(values, plaintext_bits // 8 + 50), counts)
    assert got is not None
    assert got.dtype == np.int64
    assert got.tolist() == sums


@pytest.mark.parametrize(("pack", "compress"), SWITCHES)
@pytest.mark.parametrize("outputs", [1, 2, 3, 11])
def test_rows_sum_as_their_fields_do(pack, compress, outputs):
    gh = gradients(20, outputs, seed=outputs, bits=57)
    layout = GhLayout(57, 20, 500, outputs, pack=pack, compress=compress)
    layout.check_values(gh)
    rows = integers(layout.row_plaintexts(gh), signed=True)
    lanes = len(layout.lanes)
    values = [
        (1 << lane.package_bits) + sum(rows[number::lanes])
        for number, lane in enumerate(layout.lanes)
    ]
    got = layout.unpack_sums(rows_of(values, 64), [1])
    assert got is not None
    assert got.tolist() == [[sum(column) for column in gh.T.tolist()]]


def test_one_pair_a_row_is_g_shifted_above_h():
    layout = GhLayout(20, 100, 2047)
    gh = np.array([[-5, 3], [2**20, 2**20], [-(2**20), 0]], dtype=np.int64)
    fields = integers(layout.row_plaintexts(gh), signed=True)
    assert fields == [(g << layout.h_bits) + h for g, h in gh.tolist()]


@st.composite
def sums_in_a_package(draw):
    n_rows = draw(st.integers(1, 2000))
    value_bits = draw(st.integers(1, 62 - (n_rows - 1).bit_length()))
    layout = GhLayout(value_bits, n_rows, draw(st.integers(400, 2047)))
    return layout, draw(st.integers(1, layout.lanes[0].capacity))


@given(sums_in_a_package())
def test_sums_out_of_range_are_refused_wherever_they_are(case):
    layout, size = case
    (lane,) = layout.lanes
    top = 1 << lane.package_bits
    for G, H in ((layout.bound + 1, 0), (-layout.bound - 1, 0), (0, layout.bound + 1)):
        if H >> layout.h_bits or abs(G) >> layout.h_bits:
            continue  # does not fit the field at all
        value = top + (((G << layout.h_bits) + H) << ((size - 1) * layout.n_bit))
        assert pairs_in(layout, value, size) is None


def test_fields_beyond_a_packages_size_must_be_empty():
    layout = GhLayout(20, 100, 2047)
    full = (1 << layout.lanes[0].package_bits) + (5 << layout.n_bit)
    assert pairs_in(layout, full, 2) == [(0, 0), (0, 5)]
    assert pairs_in(layout, full, 1) is None


def naive_packages(layout, counts):
    """Lane, first sum and size of each package, counted one by one."""
    found, first = [], 0
    for count in counts:
        for number, lane in enumerate(layout.lanes):
            for start in range(0, count, lane.capacity):
                found.append((number, first + start, min(lane.capacity, count - start)))
        first += count
    return found


@given(
    st.integers(1, 9),
    st.booleans(),
    st.booleans(),
    st.lists(st.integers(0, 70), max_size=5),
    st.integers(200, 2047),
)
def test_packages_do_not_straddle_groups_or_lanes(outputs, pack, compress, counts, bits):
    layout = GhLayout(30, 1000, bits, outputs, pack=pack, compress=compress)
    packages = layout.packages(counts)
    listed = list(
        zip(packages.lane.tolist(), packages.first.tolist(), packages.size.tolist(), strict=True)
    )
    assert listed == naive_packages(layout, counts)
    assert layout.package_count(counts) == len(listed)
    lanes = len(layout.lanes)
    members = [(first + i) * lanes + lane for lane, first, size in listed for i in range(size)]
    assert packages.members(lanes).tolist() == members
    assert sorted(members) == list(range(lanes * sum(counts)))


def test_at_least_41_bits_stay_free_for_blinding():
    for value_bits in range(1, 52):
        (lane,) = GhLayout(value_bits, 1000, 2047).lanes
        assert 2047 - lane.package_bits >= HEADROOM_BITS
        assert 2047 - lane.package_bits < HEADROOM_BITS + lane.bits


@pytest.mark.parametrize(
    ("value_bits", "n_rows", "plaintext_bits", "more", "text"),
    [
        (53, 1024, 2047, {}, "need 63 bits"),
        (0, 5, 2047, {}, "cannot pack"),
        (10, 0, 2047, {}, "cannot pack"),
        (10, 5, 2047, {"outputs": 0}, "cannot pack"),
        (52, 1024, 160, {}, "field of 127 bits and 41 bits of blinding do not fit"),
        (52, 1024, 104, {"pack": False}, "field of 64 bits and 41 bits of blinding do not fit"),
    ],
)
def test_impossible_layouts_are_refused(value_bits, n_rows, plaintext_bits, more, text):
    with pytest.raises(ConfigError, match=text):
        GhLayout(value_bits, n_rows, plaintext_bits, **more)


def test_values_beyond_the_declared_bits_are_refused():
    layout = GhLayout(4, 3, 400, outputs=2)
    good = np.array([[-16, 0, 16, 16], [0, 0, 0, 0], [16, 1, 2, 3]], dtype=np.int64)
    layout.check_values(good)
    for row, column, value in ((2, 0, 17), (0, 0, -17), (1, 1, -1), (0, 3, 17)):
        bad = good.copy()
        bad[row, column] = value
        with pytest.raises(ConfigError, match="outside the declared 4 bits"):
            layout.check_values(bad)
    ill_typed: list[Any] = [good.astype(np.int32), good[:, :2], good[:, 0]]
    for wrong in ill_typed:
        with pytest.raises(ConfigError, match=r"int64 \(n, 4\)"):
            layout.check_values(wrong)
    with pytest.raises(ConfigError, match="do not fit a layout for 3"):
        layout.check_values(np.zeros((4, 4), np.int64))
