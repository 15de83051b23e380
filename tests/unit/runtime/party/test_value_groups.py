"""Tests of the groups of values that jobs may tell apart, and of their cut points."""

from __future__ import annotations

import datetime
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.sparse import csc_array

from fedboost.core import binning
from fedboost.data.frame import Frame
from fedboost.data.sources import SourceSpec
from fedboost.ground.errors import DataError
from fedboost.ground.ids import EncodedIds
from fedboost.runtime.party.job.value_groups import NumberGroups, ValueGroups
from fedboost.runtime.policy.same_tables import Owned
from fedboost.runtime.store.store import Store

TABLE = Owned("customers", "a" * 32)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store", "party telco")


def frame(*columns: NDArray[np.generic], texts: tuple[str, ...] = ()) -> Frame:
    names = tuple(f"c{number}" for number in range(len(columns)))
    values = np.asfortranarray(np.column_stack(columns).astype(np.float32))
    ids = EncodedIds.of([b"%06d" % row for row in range(len(values))])
    categories = {names[-1]: texts} if texts else {}
    return Frame(ids, values, names, None, ("id",), categories=categories)


def spec(bins_max: int | None, **columns: int) -> SourceSpec:
    return SourceSpec(path="customers.csv", bins_max=bins_max, column_bins_max=columns)


def drawn(seed: int, rows: int = 1000) -> NDArray[np.float64]:
    return np.random.default_rng(seed).normal(size=rows)


def coarse(
    values: NDArray[np.float32], cuts: NDArray[np.float32], group_values: NDArray[np.float32]
) -> list[float]:
    """What `apply` gives, value by value."""
    given = []
    for value in values.tolist():
        group = sum(cut <= value for cut in cuts.tolist())
        given.append(value if np.isnan(value) else float(group_values[group]))
    return given


@given(
    st.lists(st.floats(-100, 100, width=32), min_size=1, max_size=60),
    st.integers(2, 9),
    st.lists(st.floats(-100, 100, width=32), max_size=12, unique=True),
)
def test_groups_are_at_most_as_many_as_the_owner_allows(
    values: list[float], most: int, kept: list[float]
) -> None:
    distinct, counts = np.unique(np.array(values, np.float32), return_counts=True)
    before = np.sort(np.array(kept, np.float32))
    groups = NumberGroups.fixed(distinct, counts.astype(np.int64), most, before)
    assert len(groups.values) == len(groups.cuts) + 1 <= most
    assert (np.diff(groups.cuts) > 0).all()
    assert (
        np.searchsorted(groups.cuts, groups.values, side="right") == np.arange(len(groups.values))
    ).all()
    if len(before) < most:
        assert set(before) <= set(groups.cuts)
    else:
        assert set(groups.cuts) <= set(before)


def test_a_column_of_few_values_stays_as_it_is(store: Store) -> None:
    values = np.arange(1000) % 7 - 3.0
    given = ValueGroups(store).coarsen_frame(frame(values), TABLE, spec(32))
    np.testing.assert_array_equal(given.values[:, 0], values)


def test_each_value_becomes_a_short_number_of_its_group(store: Store) -> None:
    values = drawn(1)
    values[5] = np.nan
    given = ValueGroups(store).coarsen_frame(frame(values), TABLE, spec(8))
    cuts = given.group_cuts[0]
    assert len(cuts) == 7
    column = values.astype(np.float32)
    told = np.unique(given.values[~np.isnan(column), 0])
    assert told[1:].tolist() == cuts.tolist()
    assert told[0] <= np.nanmin(column)
    assert given.values[:, 0].tolist() == pytest.approx(coarse(column, cuts, told), nan_ok=True)
    assert all(len(str(number).strip("-0").replace(".", "")) <= 4 for number in told)
    assert not np.isin(told, column).any()  # nobody's own value


def test_cut_points_stay_whatever_the_table_holds_later(store: Store) -> None:
    groups = ValueGroups(store)
    first = groups.coarsen_frame(frame(drawn(1)), TABLE, spec(8)).group_cuts[0]
    renamed = Owned("again", TABLE.source)
    moved = Owned(TABLE.dataset, "b" * 32)
    for table in (TABLE, renamed, moved):
        later = groups.coarsen_frame(frame(drawn(2) * 3), table, spec(8))
        np.testing.assert_array_equal(later.group_cuts[0], first)
        assert len(np.unique(later.values)) <= 8


def test_more_groups_keep_the_cut_points_and_fewer_are_some_of_them(store: Store) -> None:
    groups = ValueGroups(store)
    eight = groups.coarsen_frame(frame(drawn(1)), TABLE, spec(8)).group_cuts[0]
    more = groups.coarsen_frame(frame(drawn(1)), TABLE, spec(12)).group_cuts[0]
    fewer = groups.coarsen_frame(frame(drawn(1)), TABLE, spec(4)).group_cuts[0]
    assert len(more) == 11
    assert set(eight) < set(more)
    assert len(fewer) == 3
    assert set(fewer) < set(more)


def test_single_columns_have_limits_of_their_own(store: Store) -> None:
    given = ValueGroups(store).coarsen_frame(frame(drawn(1), drawn(2)), TABLE, spec(None, c1=2))
    assert 0 not in given.group_cuts
    assert len(np.unique(given.values[:, 0])) == 1000
    assert len(np.unique(given.values[:, 1])) == 2


def test_rare_categories_are_missing(store: Store) -> None:
    codes = np.repeat([0, 1, 2], [500, 400, 100])
    texts = ("red", "green", "blue")
    given = ValueGroups(store).coarsen_frame(frame(codes, texts=texts), TABLE, spec(2))
    assert np.isnan(given.values[:, 0]).sum() == 100
    other = frame(np.repeat([0, 1], [10, 990]), texts=("blue", "red"))
    later = ValueGroups(store).coarsen_frame(other, TABLE, spec(2))
    assert np.isnan(later.values[:, 0]).sum() == 10


def test_a_sparse_table_keeps_its_zeros(store: Store) -> None:
    dense = np.where(np.random.default_rng(1).random((1000, 1)) < 0.7, 0.0, drawn(1)[:, None])
    values = csc_array(dense.astype(np.float32))
    whole = frame(*dense.T)
    sparse = Frame(whole.ids, values, whole.columns, None, ("id",))
    given = ValueGroups(store).coarsen_frame(sparse, TABLE, spec(8)).values
    expected = ValueGroups(store).coarsen_frame(whole, TABLE, spec(8)).values
    assert isinstance(given, csc_array)
    np.testing.assert_array_equal(given.toarray(), expected)
    assert (given.toarray()[dense == 0] == 0).all()


def test_a_job_cuts_a_column_between_its_groups_alone(store: Store) -> None:
    given = ValueGroups(store).coarsen_frame(frame(drawn(1)), TABLE, spec(16))
    training = np.random.default_rng(3).random(1000) < 0.1
    cuts = binning.fit(given.values, 5, rows=training, group_cuts=given.group_cuts).cuts[0]
    assert len(cuts) == 4
    assert set(cuts) < set(given.group_cuts[0])
    of_values = np.searchsorted(cuts, frame(drawn(1)).values[:, 0], side="right")
    of_groups = np.searchsorted(cuts, given.values[:, 0], side="right")
    np.testing.assert_array_equal(of_values, of_groups)


def test_a_table_to_predict_is_cut_like_the_one_that_a_model_was_trained_on(store: Store) -> None:
    groups = ValueGroups(store)
    cuts = groups.coarsen_frame(frame(drawn(1)), TABLE, spec(8)).group_cuts[0]
    june = Owned("june", "c" * 32)
    given = groups.coarsen_frame(frame(drawn(2) + 1), june, spec(8), {"c0": cuts[2:4]})
    np.testing.assert_array_equal(given.group_cuts[0], cuts)
    other = Owned("other", "d" * 32)
    strange = np.array([-0.5, 0.25], np.float32)
    given = groups.coarsen_frame(frame(drawn(2)), other, spec(8), {"c0": strange})
    assert set(strange) < set(given.group_cuts[0])
    assert len(given.group_cuts[0]) == 7


def test_parts_of_a_date_follow_its_groups(store: Store) -> None:
    days = np.random.default_rng(1).integers(0, 20_000, 1000).astype(np.float64)
    table = SourceSpec(path="customers.csv", bins_max=8, dates=["c0"])
    raw = frame(days, days % 12, days % 7)
    raw = replace(raw, columns=("c0", "c0_month", "c0_weekday"))
    given = ValueGroups(store).coarsen_frame(raw, TABLE, table)
    assert len(np.unique(given.values, axis=0)) == len(np.unique(given.values[:, 0])) <= 8
    whole = given.values.astype(np.float64)
    for day, month, weekday in np.unique(whole, axis=0):
        date = datetime.date(1970, 1, 1) + datetime.timedelta(days=int(np.floor(day)))
        assert (month, weekday) == (date.month, date.isoweekday())
    apart = replace(frame(days % 12), columns=("c0_month",))
    with pytest.raises(DataError, match="says more of 'c0'"):
        ValueGroups(store).coarsen_frame(apart, TABLE, table)


def test_a_column_is_read_as_the_first_job_read_it(store: Store) -> None:
    codes = np.repeat([0.0, 1.0], 500)
    groups = ValueGroups(store)
    groups.coarsen_frame(frame(codes), TABLE, spec(8))
    with pytest.raises(DataError, match="read the column 'c0' as numbers, this one as categories"):
        groups.coarsen_frame(frame(codes, texts=("18", "19")), TABLE, spec(8))
    other = Owned("other", "d" * 32)
    groups.coarsen_frame(frame(codes, texts=("18", "19")), other, spec(8))
    with pytest.raises(DataError, match="as categories, this one as numbers"):
        groups.coarsen_frame(frame(codes), other, spec(8))
