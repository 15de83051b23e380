"""Every party holds out the same rows, exactly as many as the job says."""

import hashlib
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedboost.data import holdout
from fedboost.data.holdout import (
    canonical_order,
    canonical_rows,
    validation_rows,
    validation_rows_by_id,
)
from fedboost.ground.errors import ConfigError
from fedboost.ground.ids import EncodedIds

some_ids = st.lists(st.binary(min_size=1, max_size=8), unique=True, max_size=40)
fractions = st.floats(0.0, 1.0, exclude_max=True)


def naive(ids, fraction, seed):
    key = b"fedboost.validation.1/" + str(seed).encode() + b"/"
    ranked = sorted(ids, key=lambda row: hashlib.sha256(key + row).digest())
    chosen = set(ranked[: round(fraction * len(ids))])
    return [row in chosen for row in ids]


@given(some_ids, fractions, st.integers())
def test_rows_held_out_are_those_of_the_naive_ranking(ids, fraction, seed):
    rows = validation_rows(EncodedIds.of(ids), fraction, seed)
    assert rows.dtype == np.bool_
    assert rows.tolist() == naive(ids, fraction, seed)


@given(some_ids, fractions, st.randoms())
def test_row_order_does_not_matter(ids, fraction, random):
    shuffled = random.sample(ids, len(ids))
    here = dict(zip(ids, validation_rows(EncodedIds.of(ids), fraction, 7).tolist(), strict=True))
    there = dict(
        zip(shuffled, validation_rows(EncodedIds.of(shuffled), fraction, 7).tolist(), strict=True)
    )
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
    rows = validation_rows(EncodedIds.of(ids), 0.3, 7)
    assert rows.sum() == 9000
    assert (rows != validation_rows(EncodedIds.of(ids), 0.3, 8)).any()
    # Held-out rows are spread evenly: 9000 * 1/2 ± 5 standard deviations in each half.
    assert abs(int(rows[:15000].sum()) - 4500) < 5 * np.sqrt(9000 * 0.25 * 0.7)


@pytest.mark.parametrize("hold_out", [validation_rows, validation_rows_by_id])
@pytest.mark.parametrize("fraction", [-0.1, 1.0, float("nan")])
def test_a_fraction_that_leaves_nothing_to_learn_from_is_refused(hold_out, fraction):
    with pytest.raises(ConfigError, match="validation fraction"):
        hold_out(EncodedIds.of([b"a"]), fraction, 0)


# Each id for itself


@given(some_ids, fractions, st.integers())
def test_an_id_is_held_out_where_its_rank_is_below_the_fraction(ids, fraction, seed):
    key = b"fedboost.validation.1/" + str(seed).encode() + b"/"
    ranks = [int.from_bytes(hashlib.sha256(key + row).digest()[:8], "big") for row in ids]
    rows = validation_rows_by_id(EncodedIds.of(ids), fraction, seed)
    assert rows.dtype == np.bool_
    assert rows.tolist() == [Fraction(rank) < Fraction(fraction) * 2**64 for rank in ranks]


@given(some_ids, some_ids, fractions)
def test_parties_that_hold_different_ids_agree_about_those_they_share(here, there, fraction):
    ours = dict(
        zip(here, validation_rows_by_id(EncodedIds.of(here), fraction, 7).tolist(), strict=True)
    )
    theirs = dict(
        zip(there, validation_rows_by_id(EncodedIds.of(there), fraction, 7).tolist(), strict=True)
    )
    assert all(ours[row] == theirs[row] for row in ours.keys() & theirs.keys())


def test_an_exact_share_of_different_ids_would_not_agree():
    """What `validation_rows_by_id` is for: the exact count moves the cut with the other ids."""
    ids = EncodedIds.of(str(number).encode() for number in range(2000))
    ours, theirs = validation_rows(ids, 0.3, 7), validation_rows(ids[:1000], 0.3, 7)
    assert (ours[:1000] != theirs).any()
    ours, theirs = validation_rows_by_id(ids, 0.3, 7), validation_rows_by_id(ids[:1000], 0.3, 7)
    assert (ours[:1000] == theirs).all()


@pytest.mark.parametrize("fraction", [0.05, 0.3, 0.5, 0.9])
def test_the_share_of_ids_that_decide_alone_is_near_the_fraction(fraction):
    ids = [str(number).encode() for number in range(30000)]
    rows = validation_rows_by_id(EncodedIds.of(ids), fraction, 7)
    assert abs(int(rows.sum()) - 30000 * fraction) < 5 * np.sqrt(30000 * fraction * (1 - fraction))
    assert (rows != validation_rows_by_id(EncodedIds.of(ids), fraction, 8)).any()
    assert not validation_rows_by_id(EncodedIds.of(ids), 0.0, 7).any()


def test_the_largest_fraction_has_a_threshold():
    assert validation_rows_by_id(
        EncodedIds.of([b"a", b"b"]), float(np.nextafter(1.0, 0.0)), 7
    ).all()


# In which order


@given(some_ids)
def test_canonical_order_sorts_by_id_bytes(ids):
    order = canonical_order(EncodedIds.of(ids))
    assert order.dtype == np.int64
    assert [ids[row] for row in order] == sorted(ids)


@given(some_ids, st.randoms())
def test_some_rows_stand_in_canonical_order_too(ids, random):
    some = random.sample(range(len(ids)), random.randint(0, len(ids)))
    rows = canonical_rows(EncodedIds.of(ids), np.array(some, np.int64))
    assert rows.dtype == np.int64
    assert [ids[row] for row in rows] == sorted(ids[row] for row in some)
