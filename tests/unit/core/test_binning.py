"""Binning: cuts from quantiles or distinct values, and bins that agree with `x < cut`."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.sparse import csc_array

from fedboost.core import binning
from fedboost.ground.errors import DataError
from tests import tiers
from tests.support.raw_values import model_values

columns = hnp.arrays(
    np.float32,
    st.integers(0, 80),
    elements=st.one_of(
        st.just(np.nan), st.integers(-3, 3), st.floats(-(2.0**100), 2.0**100, width=32)
    ),
)


def naive_bin(x, cuts, missing):
    return missing if np.isnan(x) else sum(bool(x >= cut) for cut in cuts)


@settings(max_examples=tiers.examples(200), deadline=None)
@given(columns, st.integers(2, 20))
def test_bins_are_what_comparing_with_every_cut_gives(column, max_bin):
    found = binning.fit(column[:, None], max_bin)
    cuts = found.cuts[0]
    assert len(cuts) < max_bin
    assert np.all(np.diff(cuts) > 0)
    bins = found.transform(column[:, None])
    assert bins.dtype == np.uint8
    assert bins.flags.f_contiguous
    assert bins[:, 0].tolist() == [naive_bin(x, cuts, max_bin) for x in column]


@settings(max_examples=tiers.examples(100), deadline=None)
@given(columns, st.integers(2, 90))
def test_few_distinct_values_get_a_bin_each(column, max_bin):
    distinct = np.unique(column[~np.isnan(column)])
    found = binning.fit(column[:, None], max_bin)
    used = np.unique(found.transform(column[:, None]))
    if len(distinct) <= max_bin:
        assert found.n_bins[0] == max(1, len(distinct))
    # No bin of the rows it was fitted on is empty.
    assert len(used[used != max_bin]) == (found.n_bins[0] if len(distinct) else 0)


def test_distinct_values_are_cut_midway():
    found = binning.fit(np.array([[1.0], [4.0], [2.0], [np.nan], [1.0]], np.float32), 4)
    assert found.cuts[0].tolist() == [1.5, 3.0]
    assert found.threshold(0, 1) == 3.0
    assert found.threshold(0, 2) == np.inf


def test_neighbouring_floats_are_still_told_apart():
    low = np.float32(1.0)
    high = np.nextafter(low, np.float32(2.0))
    found = binning.fit(np.array([[low], [high]], np.float32), 8)
    assert found.transform(np.array([[low], [high]], np.float32))[:, 0].tolist() == [0, 1]


def test_many_distinct_values_fill_bins_evenly():
    values = np.random.default_rng(1).permutation(10_000).astype(np.float32)[:, None]
    bins = binning.fit(values, 32).transform(values)
    counts = np.bincount(bins[:, 0], minlength=32)
    assert len(counts) == 32
    assert counts.min() >= 312
    assert counts.max() <= 313


def test_a_frequent_value_gets_a_bin_of_its_own_and_the_others_share_the_rest():
    rng = np.random.default_rng(2)
    values = np.where(rng.random(9000) < 0.6, 0.0, rng.normal(0, 1, 9000)).astype(np.float32)
    found = binning.fit(values[:, None], 16)
    bins = found.transform(values[:, None])[:, 0]
    assert found.n_bins[0] == 16
    assert np.unique(values[bins == bins[values == 0.0][0]]).tolist() == [0.0]
    others = np.bincount(bins[values != 0.0], minlength=16)
    share = np.count_nonzero(values) / 15
    assert np.all((others == 0) | (np.abs(others - share) < 0.5 * share))


def naive_ends(counts, max_bin):
    """The rule for equal-frequency bins, in fractions."""
    total, ends, held = sum(counts), [], []
    frequent = [Fraction(count) >= Fraction(total, max_bin) for count in counts]
    bins = max_bin - sum(frequent)
    for i, count in enumerate(counts[:-1]):
        if not frequent[i]:
            held.append(count)
            left = sum(counts[j] for j in range(len(counts)) if not frequent[j] and j > i)
            fair = Fraction(left + sum(held), bins)
            if frequent[i + 1]:
                full = left == 0 or (bins > 1 and sum(held) >= fair / 2)
            else:
                full = bins > 1 and sum(held) + Fraction(counts[i + 1], 2) > fair
            if not full:
                continue
            bins -= 1
        ends.append(i)
        held = []
    return ends


@settings(max_examples=tiers.examples(300), deadline=None)
@given(
    st.lists(st.one_of(st.integers(1, 9), st.integers(1, 90)), min_size=3, max_size=60),
    st.integers(2, 12),
)
def test_equal_frequency_bins_follow_the_rule_and_are_never_too_many(counts, max_bin):
    if len(counts) <= max_bin:
        counts = counts + [1] * (max_bin + 1 - len(counts))
    values = np.repeat(np.arange(len(counts)), counts).astype(np.float32)[:, None]
    found = binning.fit(values, max_bin)
    assert found.cuts[0].tolist() == [end + 0.5 for end in naive_ends(counts, max_bin)]
    assert found.n_bins[0] <= max_bin


def test_columns_are_binned_independently():
    values = np.random.default_rng(3).normal(0, 1, (500, 4)).astype(np.float32)
    whole = binning.fit(values, 10)
    part = binning.fit(values[:, 1:3], 10)
    assert all(
        np.array_equal(a, b) for a, b in zip(whole.columns(1, 3).cuts, part.cuts, strict=True)
    )


def test_infinite_values_are_refused_with_column_and_count():
    values = np.array([[1.0, np.inf], [2.0, -np.inf]], np.float32)
    with pytest.raises(DataError, match="2 of 2 values are infinite") as caught:
        binning.fit(values, 8)
    assert caught.value.where == {"column": "1"}


# Categories

codes = hnp.arrays(
    np.float32, st.integers(0, 60), elements=st.one_of(st.just(np.nan), st.integers(0, 12))
)


def naive_categories(column, max_bin, known):
    """The codes that get a bin: known ones, then the most frequent, of equals the lower ones."""
    rest = {int(x) for x in column if not np.isnan(x)} - set(known)
    ranked = sorted(rest, key=lambda code: (-int(np.count_nonzero(column == code)), code))
    return [*known, *sorted(ranked[: max_bin - len(known)])]


@settings(max_examples=tiers.examples(200), deadline=None)
@given(codes, st.integers(2, 14), st.lists(st.integers(0, 12), max_size=4, unique=True))
def test_known_categories_then_the_most_frequent_get_bins(column, max_bin, known):
    known = known[:max_bin]
    fixed = {0: np.array(known, np.int32)} if known else None
    found = binning.fit(column[:, None], max_bin, (0,), fixed)
    kept = naive_categories(column, max_bin, known)
    assert found.categories[0].tolist() == kept
    assert found.categories[0].dtype == np.int32
    assert found.cuts[0].size == 0
    assert found.n_bins.tolist() == [max(1, len(kept))]
    assert found.is_categorical.tolist() == [True]
    place = {code: i for i, code in enumerate(kept)}
    expected = [max_bin if np.isnan(x) else place.get(int(x), max_bin) for x in column]
    bins = found.transform(column[:, None])
    assert bins.dtype == np.uint8
    assert bins.flags.f_contiguous
    assert bins[:, 0].tolist() == expected
    read = model_values(found, column[:, None])
    assert read.dtype == np.float32
    np.testing.assert_array_equal(
        read[:, 0], [np.nan if b == max_bin else np.float32(b) for b in expected]
    )


def test_of_equally_frequent_categories_the_lower_codes_are_kept():
    column = np.array([5, 5, 1, 1, 3, 3, 0], np.float32)[:, None]
    assert binning.fit(column, 2, (0,)).categories[0].tolist() == [1, 3]
    assert binning.fit(column[::-1], 2, (0,)).categories[0].tolist() == [1, 3]


def test_codes_that_training_never_saw_count_as_missing():
    cuts = binning.fit(np.array([[2.0], [4.0], [np.nan]], np.float32), 8, (0,))
    fresh = np.array([[4.0], [0.0], [3.0], [9000.0], [np.nan], [2.0]], np.float32)
    assert cuts.transform(fresh)[:, 0].tolist() == [1, 8, 8, 8, 8, 0]
    assert np.isnan(model_values(cuts, fresh)[:, 0]).tolist() == [False, *[True] * 4, False]
    assert fresh[3, 0] == 9000.0  # the table itself stays as it is


def test_as_many_categories_as_bins_can_be_numbered_are_told_apart():
    column = np.arange(300, dtype=np.float32)[:, None]
    cuts = binning.fit(column, 255, (0,))
    assert cuts.missing == 255
    assert cuts.transform(column)[:, 0].tolist() == [*range(255), *[255] * 45]


def test_numbers_beside_categories_are_read_as_they_are():
    values = np.array([[1.5, 7.0], [2.5, 3.0], [np.nan, 7.0]], np.float32)
    cuts = binning.fit(values, 8, (1,))
    np.testing.assert_array_equal(model_values(cuts, values)[:, 0], values[:, 0])
    assert model_values(cuts, values)[:, 1].tolist() == [1, 0, 1]
    plain = binning.fit(values, 8)
    np.testing.assert_array_equal(model_values(plain, values), values)
    assert plain.is_categorical.tolist() == [False, False]


def test_a_party_bins_its_own_categories_as_the_pooled_table_does():
    draw = np.random.default_rng(4)
    values = draw.integers(0, 9, (200, 5)).astype(np.float32)
    whole, part = binning.fit(values, 6, (1, 3, 4)), binning.fit(values[:, 2:4], 6, (1,))
    own = whole.columns(2, 4)
    assert list(own.categories) == list(part.categories) == [1]
    assert own.categories[1].tolist() == part.categories[1].tolist()
    assert own.is_categorical.tolist() == [False, True]
    assert own.n_bins.tolist() == part.n_bins.tolist()
    assert np.array_equal(own.transform(values[:, 2:4]), whole.transform(values)[:, 2:4])


@pytest.mark.parametrize("form", [np.asfortranarray, csc_array])
def test_cuts_of_some_rows_are_those_of_a_table_of_them(form):
    draw = np.random.default_rng(3)
    values = draw.normal(size=(200, 3)).astype(np.float32).round(1)
    values[:, 2] = draw.integers(0, 5, 200)
    rows, by_category = draw.random(200) < 0.6, (2,) if form is np.asfortranarray else ()
    found = binning.fit(form(values), 16, by_category, rows=rows)
    alone = binning.fit(form(values[rows]), 16, by_category)
    assert [cuts.tolist() for cuts in found.cuts] == [cuts.tolist() for cuts in alone.cuts]
    assert [codes.tolist() for codes in found.categories.values()] == [
        codes.tolist() for codes in alone.categories.values()
    ]


def test_an_infinite_value_is_refused_by_its_column_unless_its_row_is_held_out():
    values = np.zeros((4, 2), np.float32)
    values[3, 1] = np.inf
    assert binning.fit(values, 4, rows=np.array([True, True, True, False])).n_columns == 2
    with pytest.raises(DataError) as refused:
        binning.fit(values, 4, rows=np.array([True, False, True, True]))
    assert refused.value.where["column"] == "1"
    assert "1 of 3 values" in str(refused.value)
