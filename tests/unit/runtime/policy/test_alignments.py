"""Alignments are counted by peer, data set and day, and the count outlives the daemon."""

import pytest

from fedboost.ground.errors import PolicyError
from fedboost.runtime.policy.differences import count_alignment
from fedboost.runtime.policy.same_tables import Owned
from fedboost.runtime.store.store import Store

START = 1_700_000_000.0  # 2023-11-14, 22:13 UTC


class Clock:
    now = START

    def __call__(self):
        return self.now


def opened(folder, clock=None):
    return Store(folder, "party bank", clock or Clock())


def test_each_peer_and_data_set_has_its_own_count(tmp_path):
    with opened(tmp_path) as store:
        count_alignment(store, ("telco", "shop"), Owned("credit", "file a"), 2)
        count_alignment(store, ("telco",), Owned("credit", "file a"), 2)
        with pytest.raises(PolicyError, match="telco has had 2 today") as refused:
            count_alignment(store, ("shop", "telco"), Owned("credit", "file a"), 2)
        assert refused.value.where == {"key": "policy.alignments_per_day"}
        count_alignment(
            store, ("shop",), Owned("credit", "file a"), 2
        )  # the refused one was not counted
        count_alignment(store, ("telco",), Owned("cars", "file b"), 2)


def test_the_count_survives_a_restart_and_ends_with_the_day(tmp_path):
    clock = Clock()
    with opened(tmp_path, clock) as store:
        count_alignment(store, ("telco",), Owned("credit", "file a"), 1)
    with opened(tmp_path, clock) as store:
        with pytest.raises(PolicyError):
            count_alignment(store, ("telco",), Owned("credit", "file a"), 1)
        clock.now += 86_400
        count_alignment(store, ("telco",), Owned("credit", "file a"), 1)


def test_none_at_all_may_be_allowed(tmp_path):
    with opened(tmp_path) as store, pytest.raises(PolicyError, match="0 alignments"):
        count_alignment(store, ("telco",), Owned("credit", "file a"), 0)
