"""Rows to validate on that a program chooses: do jobs hold out these, and no others?"""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedboost.data.holdout import validation_rows, validation_rows_by_id
from fedboost.data.ids import encode_ids
from fedboost.ground.errors import DataError
from fedboost.sdk import holdout


def ids(numbers):
    return encode_ids([pa.chunked_array([numbers])], ["id"])


@given(train=st.integers(1, 200), held=st.integers(1, 200))
def test_a_job_holds_out_the_chosen_rows_whichever_way_it_counts(train, held):
    fraction = holdout.fraction_of([(train, held)])
    free, out = holdout.new_ids(train, held, fraction)
    both = np.concatenate([free, out])
    chosen = np.arange(train + held) >= train
    assert len(set(both.tolist())) == train + held
    found = validation_rows(ids(both), fraction, holdout.SEED)
    np.testing.assert_array_equal(found, chosen)
    each = validation_rows_by_id(ids(both), fraction, holdout.SEED)
    np.testing.assert_array_equal(each, chosen)


@given(train=st.lists(st.integers(1, 200), min_size=1, max_size=6), held=st.integers(1, 300))
def test_rows_dealt_to_validate_on_are_a_share_of_each_partys(train, held):
    dealt = holdout.held_counts(train, held)
    assert sum(dealt) == held
    fraction = holdout.fraction_of(list(zip(train, dealt, strict=True)))
    for own, out in zip(train, dealt, strict=True):
        numbers = np.concatenate(holdout.new_ids(own, out, fraction))
        found = validation_rows(ids(numbers), fraction, holdout.SEED)
        np.testing.assert_array_equal(found, np.arange(own + out) >= own)


def test_shares_that_no_job_could_hold_out_are_refused():
    with pytest.raises(DataError, match="shares of rows to validate on differ"):
        holdout.fraction_of([(100, 10), (100, 30)])
    with pytest.raises(DataError, match="no rows in common to all parties"):
        holdout.fraction_of([(100, 0)])
