"""Pauses between tries grow, up to a bound, and no two parties keep the same ones."""

from itertools import islice

import pytest

from fedboost.runtime.process.clock import growing_pauses


def test_pauses_double_up_to_the_longest():
    for given, most in zip(
        islice(growing_pauses(0.5, 5.0), 7), [0.5, 1, 2, 4, 5, 5, 5], strict=True
    ):
        assert most / 2 <= given <= most


def test_a_first_pause_is_no_longer_than_the_longest():
    assert next(growing_pauses(60.0, 2.0)) <= 2.0


def test_two_that_begin_at_once_do_not_come_at_once():
    assert list(islice(growing_pauses(1.0, 8.0), 5)) != pytest.approx(
        list(islice(growing_pauses(1.0, 8.0), 5))
    )
