"""FixedPoint: encoding within its budget, exact sums, and refusals."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedboost.core import fixed_point
from fedboost.core.fixed_point import FixedPoint
from fedboost.ground.errors import ConfigError, JobError


@given(st.integers(1, 2**40), st.floats(1e-300, 1e300), st.floats(1e-300, 1e300))
def test_sums_of_all_rows_at_the_bound_fit_int64_with_room_for_a_difference(n, g_bound, h_bound):
    fixed = fixed_point.encoding_for_rows(n, None, g_bound, h_bound)
    assert n * 2**fixed.bits <= 2**62
    assert fixed.bits == 53 or (n * 2 ** (fixed.bits + 1) > 2**62)
    assert g_bound <= fixed.g_bound < 2 * g_bound
    assert h_bound <= fixed.h_bound < 2 * h_bound


@given(st.lists(st.floats(-1.0, 1.0), min_size=1), st.integers(8, 53))
def test_a_value_is_off_by_half_a_unit_at_most(values, bits):
    fixed = FixedPoint(bits, 1.0, 0.5)
    g, h = np.array(values)[:, None], np.abs(np.array(values))[:, None] / 2
    gh = fixed.encode(g, h)
    assert gh.dtype == np.int64
    assert np.abs(gh[:, 0]).max() <= 2**bits
    assert 0 <= gh[:, 1].min() <= gh[:, 1].max() <= 2**bits
    assert np.all(np.abs(fixed.decode_g(gh[:, 0]) - g[:, 0]) <= fixed.g_unit / 2)
    assert np.all(np.abs(fixed.decode_h(gh[:, 1]) - h[:, 0]) <= fixed.h_unit / 2)


def test_outputs_are_interleaved():
    g, h = np.array([[1.0, -1.0]]), np.array([[0.5, 0.25]])
    assert FixedPoint(8, 1.0, 1.0).encode(g, h).tolist() == [[256, 128, -256, 64]]


def test_few_bits_are_rounded_up_or_down_by_fractions_and_more_are_not():
    g, h = np.array([[0.3, -0.3]]), np.array([[0.7, 0.5]])
    few, more = FixedPoint(4, 1.0, 1.0), FixedPoint(16, 1.0, 1.0)

    def all_of(fraction):
        return lambda width: np.full((1, width), fraction)

    assert few.encode(g, h).tolist() == [[5, 11, -5, 8]]
    assert few.encode(g, h, all_of(0.0)).tolist() == [[4, 11, -5, 8]]
    assert few.encode(g, h, all_of(0.9)).tolist() == [[5, 12, -4, 8]]
    assert (more.encode(g, h, all_of(0.9)) == more.encode(g, h)).all()


def test_rows_of_few_bits_are_rounded_block_by_block_as_each_by_itself(monkeypatch):
    draw = np.random.default_rng(5)
    g, h, fractions = (draw.random(size) for size in ((50, 2), (50, 2), (50, 4)))
    fixed = FixedPoint(9, 1.0, 1.0)
    monkeypatch.setattr(fixed_point, "ROUNDED_AT_ONCE", 16)
    whole = fixed.encode(g, h, lambda _: fractions)

    def alone(row):
        return fixed.encode(g[row : row + 1], h[row : row + 1], lambda _: fractions[row : row + 1])

    assert all((whole[row] == alone(row)).all() for row in range(50))


@pytest.mark.parametrize("bits", [8, 12, 15])
def test_of_few_bits_the_bounds_are_the_greatest_integers(bits):
    fixed, most = fixed_point.encoding_for_rows(1000, bits, 1.0, 0.25), 2**bits - 1
    ends = np.array([[1.0], [-1.0], [0.0]]), np.array([[0.25], [0.0], [0.25]])
    for seed in range(20):
        draw = np.random.default_rng(seed)
        found = fixed.encode(*ends, lambda width: draw.random((3, width)))  # noqa: B023  called now
        assert found.tolist() == [[most, most], [-most, 0], [0, most]]
    assert fixed.decode_g(np.array([most]))[0] == pytest.approx(1.0, rel=1e-12)


def test_up_or_down_has_no_bias():
    values = np.repeat(np.array([[0.25, -0.25], [3.9, -7.0], [1e-3, 1e4 + 0.5]]), 40_000, axis=0)
    found = fixed_point.up_or_down(values, np.random.default_rng(1).random(values.shape))
    assert found.dtype == np.int64
    assert (np.abs(found - values) < 1).all()
    for value in np.unique(values):
        own = found[values == value]
        spread = np.sqrt((value % 1) * (1 - value % 1) / len(own))
        assert abs(own.mean() - value) <= 4 * spread


@given(st.floats(-30_000, 30_000), st.integers(0, 50))
def test_up_or_down_gives_the_floor_or_the_next(value, seed):
    fractions = np.random.default_rng(seed).random((4, 1))
    found = fixed_point.up_or_down(np.full((4, 1), value), fractions)
    assert set(found.ravel().tolist()) <= {int(np.floor(value)), int(np.ceil(value))}


@pytest.mark.parametrize(
    ("g", "h"), [(1.5, 0.1), (np.nan, 0.1), (0.0, -0.1), (0.0, 1.5), (0.0, np.nan), (np.inf, 0.0)]
)
def test_values_beyond_the_declared_bound_are_refused(g, h):
    with pytest.raises(JobError, match="bounds"):
        FixedPoint(20, 1.0, 1.0).encode(np.array([[g]]), np.array([[h]]))


def test_bits_that_do_not_fit_are_refused_not_corrected():
    assert fixed_point.encoding_for_rows(2**20, 42, 1.0, 1.0).bits == 42
    with pytest.raises(
        ConfigError, match="precision_bits is 43; sums of 1048576 rows need 4 to 42"
    ):
        fixed_point.encoding_for_rows(2**20, 43, 1.0, 1.0)


@pytest.mark.parametrize("bound", [0.0, -1.0, np.inf, np.nan])
def test_a_bound_that_is_none_is_refused(bound):
    with pytest.raises(JobError):
        fixed_point.power_of_two_above(bound)


def test_powers_of_two_stay():
    assert [fixed_point.power_of_two_above(x) for x in (0.25, 0.3, 1.0, 5.0)] == [0.25, 0.5, 1, 8]
