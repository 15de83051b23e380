"""Padding of sets of ids, and the least that is opened of what two sets share."""

import numpy as np
import pytest

from fedboost.crypto.intersection import as_keys, check_points, hash_to_points
from fedboost.crypto.set_sizes import (
    CURVE_IDS_MAX,
    SET_IDS_MAX,
    check_common,
    check_curve,
    padded_points,
    padded_size,
)
from fedboost.ground.errors import ConfigError, DataError, PolicyError
from fedboost.ground.workers import Serial

IDS = [b"ann", b"bob", b"cid"]


def test_ids_come_first_and_nobodys_behind_them_are_points_like_theirs():
    points = padded_points(IDS, b"demo", 10, Serial())
    assert points.shape == (10, 32)
    assert np.array_equal(points[:3], hash_to_points(IDS, b"demo", Serial()))
    assert len(set(as_keys(points))) == 10
    check_points(points, Serial())


def test_nobodys_ids_are_others_every_time():
    first, second = (set(as_keys(padded_points([], b"demo", 5, Serial()))) for _ in range(2))
    assert not first & second


@pytest.mark.parametrize("size", [None, 3])
def test_without_room_there_is_no_padding(size):
    assert len(padded_points(IDS, b"demo", size, Serial())) == 3


def test_more_ids_than_the_padded_size_are_refused_without_their_number():
    with pytest.raises(PolicyError) as refused:
        padded_points(IDS, b"demo", 2, Serial())
    assert refused.value.where == {"key": "policy.ids_padded_to"}
    assert "3" not in " ".join(refused.value.lines())


def test_the_curve_takes_fewer_ids_than_a_set_may_have_and_says_what_takes_them():
    check_curve(CURVE_IDS_MAX)
    with pytest.raises(ConfigError, match="on the curve at most 16777216") as refused:
        padded_points(IDS, b"demo", CURVE_IDS_MAX + 1, Serial())
    assert "method: oprf" in refused.value.todo
    assert str(SET_IDS_MAX) in refused.value.todo


def test_more_ids_than_any_set_has_are_refused():
    assert padded_size(SET_IDS_MAX, None) == SET_IDS_MAX
    with pytest.raises(DataError, match="cannot be aligned"):
        padded_size(SET_IDS_MAX + 1, None)


def test_too_few_in_common_are_refused_without_their_number():
    check_common(20, 20)
    with pytest.raises(PolicyError) as refused:
        check_common(19, 20)
    assert refused.value.where == {"key": "policy.intersection_min"}
    assert "intersection_min" in refused.value.todo
    assert "19" not in " ".join(refused.value.lines())
    assert "19" in refused.value.private
