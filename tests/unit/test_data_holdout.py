"""Every party holds out the same rows, exactly as many as the job says."""

import hashlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedboost.data import holdout
from fedboost.data.holdout import canonical_order, validation_rows
from fedboost.errors import ConfigError

some_ids = st.lists(st.binary(min_size=1, max_size=8), unique=True, max_size=40)
fractions = st.floats(0.0, 1.0, exclude_max=True)


def naive(ids, fraction, seed):
    key = b"fedboost.validation.1/" + str(seed).encode() + b"/"
    ranked = sorted(ids, key=lambda row: hashlib.sha256(key + row).digest())
    chosen = set(ranked[: round(fraction * len(ids))])
    return [row in chosen for row in ids]


@given(some_ids, fractions, st.integers())
def test_rows_held_out_are_those_of_the_naive_ranking(ids, fraction, seed):
    rows = validation_rows(ids, fraction, seed)
    assert rows.dtype == np.bool_
    assert rows.tolist() == naive(ids, fraction, seed)


@given(some_ids, fractions, st.randoms())
def test_row_order_does_not_matter(ids, fraction, random):
    shuffled = random.sample(ids, len(ids))
    here = dict(zip(ids, validation_rows(ids, fraction, 7).tolist(), strict=True))
    there = dict(zip(shuffled, validation_rows(shuffled, fraction, 7).tolist(), strict=True))
    assert here == there


@given(st.lists(st.tuples(*[st.integers(0, 2)] * 4), min_size=1, max_size=30), st.data())
def test_ranks_that_agree_in_their_first_words_are_told_apart(words, data):
    count = data.draw(st.integers(1, len(words)))
    array = np.array(words, dtype=np.uint64)
    chosen = holdout._smallest(array, count)
    assert sorted(map(tuple, array[chosen].tolist())) == sorted(words)[:count]
    assert len(set(chosen.tolist())) == count


def test_the_share_is_exact_and_another_seed_holds_out_other_rows():
    ids = [str(number).encode() for number in range(30000)]
    rows = validation_rows(ids, 0.3, 7)
    assert rows.sum() == 9000
    assert (rows != validation_rows(ids, 0.3, 8)).any()
    # Held-out rows are spread evenly: 9000 * 1/2 ± 5 standard deviations in each half.
    assert abs(int(rows[:15000].sum()) - 4500) < 5 * np.sqrt(9000 * 0.25 * 0.7)


@pytest.mark.parametrize("fraction", [-0.1, 1.0, float("nan")])
def test_a_fraction_that_leaves_nothing_to_learn_from_is_refused(fraction):
    with pytest.raises(ConfigError, match="validation fraction"):
        validation_rows([b"a"], fraction, 0)


@given(some_ids)
def test_canonical_order_sorts_by_id_bytes(ids):
    order = canonical_order(ids)
    assert order.dtype == np.int64
    assert [ids[row] for row in order] == sorted(ids)
