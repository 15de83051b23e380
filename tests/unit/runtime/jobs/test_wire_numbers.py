"""Daemons of different builds agree on a number of the wire, or hear who has to be upgraded."""

import pytest

from fedboost.ground.build_version import build_version
from fedboost.ground.errors import ConfigError
from fedboost.ground.formats import WIRE_VERSION, WIRE_VERSIONS_SPOKEN
from fedboost.messages.job_pb2 import HelloReply
from fedboost.runtime.jobs.wire_numbers import SpokenNumbers, highest_common_number


def spoken(daemon, oldest, newest, version="0.4.0"):
    return SpokenNumbers(daemon, version, oldest, newest)


@pytest.mark.parametrize(
    ("numbers", "common"),
    [([(8, 8)], 8), ([(7, 8), (8, 9)], 8), ([(7, 8), (6, 7), (7, 7)], 7), ([(7, 8), (7, 8)], 8)],
)
def test_the_highest_number_that_all_speak_is_the_jobs(numbers, common):
    assert highest_common_number([spoken("bank", *pair) for pair in numbers]) == common


def test_without_a_common_number_those_behind_are_named():
    telco, shop = spoken("telco", 6, 7, "0.2.0"), spoken("shop", 7, 7, "0.3.0")
    with pytest.raises(ConfigError) as refused:
        highest_common_number([telco, spoken("bank", 8, 9), spoken("coord", 7, 8), shop])
    assert refused.value.what == (
        "telco runs fedboost 0.2.0 (wire 7), shop runs fedboost 0.3.0 (wire 7), bank needs wire 8"
    )
    assert refused.value.todo == "upgrade telco, shop"


def test_the_middle_of_three_does_not_hide_that_the_outer_two_differ():
    with pytest.raises(ConfigError, match="shop needs wire 8") as refused:
        highest_common_number([spoken("coord", 7, 8), spoken("telco", 6, 7), spoken("shop", 8, 9)])
    assert refused.value.todo == "upgrade telco"


def test_this_build_speaks_consecutive_numbers_up_to_its_own():
    assert [*WIRE_VERSIONS_SPOKEN][-1] == WIRE_VERSION
    ours = SpokenNumbers.of_this_build("bank")
    assert (ours.oldest, ours.newest) == (WIRE_VERSIONS_SPOKEN[0], WIRE_VERSION)
    assert ours.version == build_version()


@pytest.mark.parametrize(("oldest", "read"), [(0, 7), (6, 6), (7, 7), (9, 7)])
def test_a_reply_without_an_oldest_number_or_with_a_wrong_one_has_one_number(oldest, read):
    said = HelloReply(version="0.2.0", wire_version=7, wire_oldest=oldest)
    assert SpokenNumbers.of_reply("telco", said) == spoken("telco", read, 7, "0.2.0")
