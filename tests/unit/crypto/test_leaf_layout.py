"""Where leaf values lie in plaintexts: what is packed comes back, what does not fit is refused."""

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedboost.crypto import schemes
from fedboost.crypto.layout import HEADROOM_BITS
from fedboost.crypto.leaf_values import MASK_SLACK_BITS, LeafLayout
from fedboost.crypto.limbs import integers, rows_of
from fedboost.crypto.masking import answer_masks
from fedboost.ground.errors import ConfigError
from tests.support.ciphertexts import masks_of, wrapped


@st.composite
def layouts(draw, holders_least=1):
    value_bits, fraction_bits = draw(st.integers(1, 25)), draw(st.integers(0, 20))
    return LeafLayout(
        value_bits,
        draw(st.integers(1, 2000)),
        fraction_bits,
        draw(st.integers(170, 2047)),
        draw(st.integers(1, 9)),
        draw(st.integers(holders_least, 9)),
        draw(st.integers(1, 50)),
    )


@st.composite
def packed_answers(draw, holders_least=1):
    """A layout, group sizes, and answers within what it allows."""
    layout = draw(layouts(holders_least))
    most = layout.most
    counts = draw(st.lists(st.integers(0, 2 * layout.lanes[0].capacity + 1), max_size=3))
    extremes = st.sampled_from([-most, most, 0, -1, layout.bound, 2**64, -(2**63)])
    drawn = st.one_of(st.integers(-most, most), extremes.filter(lambda x: -most <= x <= most))
    row = st.lists(drawn, min_size=layout.outputs, max_size=layout.outputs)
    return layout, counts, draw(st.lists(row, min_size=sum(counts), max_size=sum(counts)))


def naive_packages(layout, counts, answers):
    """Python's shifts, one field after the other."""
    values, first = [], 0
    for count in counts:
        group = answers[first : first + count]
        first += count
        for lane in layout.lanes:
            for start in range(0, count, lane.capacity):
                value = 0
                for place, own in enumerate(group[start : start + lane.capacity]):
                    for digit in lane.digits:
                        value += own[digit.column] << (place * lane.bits + digit.shift)
                values.append((value, lane))
    return values


@given(packed_answers())
def test_answers_come_back_modulo_2_64_below_any_headroom(case):
    layout, counts, answers = case
    values = [
        value + ((7 + i) << lane.package_bits)
        for i, (value, lane) in enumerate(naive_packages(layout, counts, answers))
    ]
    got = layout.unpack_sums(rows_of(values, layout.plaintext_bits // 8 + 9), counts)
    assert got is not None
    assert got.dtype == np.int64
    assert got.tolist() == [[wrapped(x) for x in row] for row in answers]


@given(packed_answers(holders_least=2))
def test_masks_are_packed_as_answers_are(case):
    layout, counts, numbers = case
    if numbers:
        masks = masks_of(numbers, layout.mask_bits)
    else:
        masks = answer_masks((0, layout.outputs), layout.mask_bits, [])
    packed = integers(layout.packed(masks, layout.packages(counts)), signed=True)
    assert packed == [value for value, _ in naive_packages(layout, counts, numbers)]


@given(layouts(), st.data())
def test_answers_out_of_range_are_refused_wherever_they_are(layout, data):
    number = data.draw(st.integers(0, len(layout.lanes) - 1))
    lane = layout.lanes[number]
    size = data.draw(st.integers(1, lane.capacity))
    place, digit = data.draw(st.integers(0, size - 1)), data.draw(st.sampled_from(lane.digits))
    single = [(1 << other.package_bits) for other in layout.lanes]
    shift = place * lane.bits + digit.shift
    for excess, refused in (
        (layout.most + 1, True),
        (-layout.most - 1, True),
        (layout.most, False),
        (-layout.most, False),
    ):
        packages = list(single)
        packages[number] += excess << shift
        beyond = abs(excess) >> (digit.bits - 1) or size > min(x.capacity for x in layout.lanes)
        if beyond:
            continue  # does not fit the field, or the lanes have several packages
        found = layout.unpack_sums(rows_of(packages, layout.plaintext_bits // 8 + 9), [size])
        assert (found is None) == refused


@given(layouts(), st.sampled_from([1, -1, 2**64, -(2**64)]))
def test_fields_beyond_a_packages_size_must_be_empty(layout, number):
    """Also where what is there is a multiple of 2^64, which 64 bits do not show."""
    lane = layout.lanes[0]
    if lane.capacity < 2 or abs(number) > layout.most:
        return
    packages = [(1 << x.package_bits) for x in layout.lanes]
    packages[0] += number << lane.bits
    width = layout.plaintext_bits // 8 + 9
    assert layout.unpack_sums(rows_of(packages, width), [1]) is None
    packages[0] -= number << lane.bits
    assert layout.unpack_sums(rows_of(packages, width), [1]) is not None


@given(layouts(), st.data())
def test_the_bound_holds_for_every_leaf_and_its_factor(layout, data):
    size = data.draw(st.integers(1, layout.n_rows))
    reg_lambda = data.draw(st.floats(0, 100))
    exact = Fraction(2**layout.fraction_bits) / (size + Fraction(reg_lambda))
    if exact <= Fraction(1, 2):
        with pytest.raises(ConfigError, match="no value"):
            layout.factors([size], reg_lambda)
        return
    (factor,) = layout.factors([size], reg_lambda).tolist()
    assert abs(factor - exact) <= Fraction(1, 2)
    assert layout.terms * factor * (size << layout.value_bits) <= layout.bound


def test_widths_are_what_the_values_and_their_masks_need():
    layout = LeafLayout(30, 1_000_000, 20, 2047, holders=3)
    assert layout.bound == 2**50 + 1_000_000 * 2**29
    assert layout.mask_bits == 51 + MASK_SLACK_BITS == 91
    assert layout.most == layout.bound + 2 * 2**91
    assert layout.width == 94
    (lane,) = layout.lanes
    assert lane.capacity == (2047 - HEADROOM_BITS) // 94 == 21
    alone = LeafLayout(30, 1_000_000, 20, 2047)
    assert (alone.most, alone.width) == (layout.bound, 52)
    years = LeafLayout(30, 1_000_000, 20, 2047, outputs=25, holders=3, terms=100)
    assert years.bound == 100 * layout.bound
    assert [len(each.digits) for each in years.lanes] == [19, 6]
    assert [each.capacity for each in years.lanes] == [1, 3]


def test_the_shorter_plaintexts_of_okamoto_uchiyama_hold_a_few_rows():
    bits = schemes.KEYED_SCHEMES["okamoto-uchiyama"].plaintext_bits(2048)
    layout = LeafLayout(30, 1_000_000, 20, bits, outputs=8, holders=3)
    assert [len(lane.digits) for lane in layout.lanes] == [6, 2]
    assert [lane.capacity for lane in layout.lanes] == [1, 3]
    assert all(lane.package_bits + HEADROOM_BITS <= bits for lane in layout.lanes)


@pytest.mark.parametrize(
    ("value_bits", "n_rows", "fraction_bits", "plaintext_bits", "more", "text"),
    [
        (40, 1000, 22, 2047, {}, "1 trees and 1 holders need 63 bits"),
        (30, 1000, 20, 2047, {"terms": 2**12}, "4096 trees and 1 holders need 63 bits"),
        (30, 1000, 20, 2047, {"holders": 2**12}, "1 trees and 4096 holders need 63 bits"),
        (0, 5, 3, 2047, {}, "cannot pack"),
        (5, 0, 3, 2047, {}, "cannot pack"),
        (5, 5, -1, 2047, {}, "cannot pack"),
        (5, 5, 3, 2047, {"outputs": 0}, "cannot pack"),
        (5, 5, 3, 2047, {"holders": 0}, "cannot pack"),
        (5, 5, 3, 2047, {"terms": 0}, "cannot pack"),
        (30, 1000, 20, 92, {}, "field of 52 bits and 41 bits of blinding do not fit"),
        (30, 1000, 20, 133, {"holders": 2}, "field of 93 bits and 41 bits of blinding do not fit"),
    ],
)
def test_impossible_layouts_are_refused(
    value_bits, n_rows, fraction_bits, plaintext_bits, more, text
):
    with pytest.raises(ConfigError, match=text):
        LeafLayout(value_bits, n_rows, fraction_bits, plaintext_bits, **more)


def test_layouts_at_the_edge_are_allowed():
    assert LeafLayout(40, 1000, 21, 2047).plaintext_bits == 2047
    assert LeafLayout(30, 1000, 20, 93).n_rows == 1000
    assert LeafLayout(30, 1000, 20, 134, holders=2).holders == 2


def test_gradients_beyond_the_declared_bits_are_refused():
    layout = LeafLayout(4, 3, 2, 400, outputs=2)
    good = np.array([[-16, 16], [0, 0], [16, -16]], dtype=np.int64)
    layout.check_values(good)
    for row, column, value in ((2, 0, 17), (0, 1, -17)):
        bad = good.copy()
        bad[row, column] = value
        with pytest.raises(ConfigError, match="outside the declared 4 bits"):
            layout.check_values(bad)
    ill_typed: list[Any] = [good.astype(np.int32), good[:, :1], good[:, 0]]
    for wrong in ill_typed:
        with pytest.raises(ConfigError, match=r"int64 \(n, 2\)"):
            layout.check_values(wrong)
    with pytest.raises(ConfigError, match="do not fit a layout for 3"):
        layout.check_values(np.zeros((4, 2), np.int64))


def test_a_leaf_too_large_for_the_fraction_is_refused():
    layout = LeafLayout(4, 100, 3, 400)
    assert layout.factors([1, 2, 15], 0.0).tolist() == [8, 4, 1]
    with pytest.raises(ConfigError, match="a leaf of 17 rows has no value"):
        layout.factors([1, 17], 0.0)
    assert layout.factors([], 1.0).tolist() == []
