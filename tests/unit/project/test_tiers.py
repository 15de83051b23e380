"""What the shortest tier runs: all that is asked for, little of it, the same in every process."""

from itertools import combinations, product
from typing import Any

import pytest

from tests import tiers
from tests.support.each import each
from tests.tiers import Tier

CASES = list(product("abcdef", "xyz", range(4)))


@pytest.fixture(autouse=True)
def _change(monkeypatch):
    """As on a change, in whichever tier these tests run."""
    monkeypatch.setattr(tiers, "_run", Tier.CHANGE)


def under(seed, monkeypatch):
    monkeypatch.setattr(tiers, "seed", lambda: seed)


def test_a_sample_is_the_same_wherever_it_is_drawn_and_others_try_the_rest(monkeypatch):
    met = set()
    for seed in range(40):
        under(str(seed), monkeypatch)
        drawn = tiers.sampled(CASES, 10)
        assert len(drawn) == 10
        assert drawn == sorted(drawn) == tiers.sampled(CASES, 10)
        met |= set(drawn)
    assert met == set(CASES)


def test_every_value_is_met_in_as_few_cases_as_the_longest_list_has(monkeypatch):
    for seed in ("a", "b", "c"):
        under(seed, monkeypatch)
        few = tiers.of_each(CASES, *(lambda case, at=at: case[at] for at in range(3)))
        assert len(few) == 6
        for at in range(3):
            assert {case[at] for case in few} == {case[at] for case in CASES}


def test_every_two_values_meet_in_few_cases():
    shown = [set(combinations(enumerate(case), 2)) for case in CASES]
    indices = tiers._covering(shown, [tiers.rank(case) for case in CASES])
    assert set().union(*(shown[place] for place in indices)) == set().union(*shown)
    assert 24 <= len(indices) <= 32 < len(CASES)


def test_all_runs_everything(monkeypatch):
    monkeypatch.setattr(tiers, "_run", Tier.ALL)
    assert tiers.sampled(CASES, 3) == tiers.of_each(CASES, len) == CASES


def test_every_case_is_tried_and_the_failure_names_all_that_failed():
    tried = []

    def is_even(case):
        tried.append(case)
        assert case % 2 == 0

    with pytest.raises(ExceptionGroup, match="failed: 1; 3") as failed:
        each(range(5), is_even)
    assert tried == list(range(5))
    assert len(failed.value.exceptions) == 2


class Item:
    """A collected test with one mark, or none."""

    def __init__(self, nodeid, mark=None):
        self.nodeid, self.mark = nodeid, mark

    def get_closest_marker(self, name):
        return self.mark if self.mark is not None and self.mark.name == name else None


def test_tests_of_several_files_that_show_the_same_are_drawn_from_together(monkeypatch):
    deaths = pytest.mark.some(2, of="deaths").mark
    marked = [Item(f"{file}.py::test_dies[{n}]", deaths) for file in "ab" for n in range(3)]
    others = [Item("a.py::test_lives"), Item("b.py::test_one", pytest.mark.some(1).mark)]
    items: list[Any] = [*marked[:3], *others, *marked[3:]]
    drawn = set()
    for seed in range(20):
        under(str(seed), monkeypatch)
        kept = tiers.chosen(items)
        assert kept == [item for item in items if item in kept]
        assert set(others) < set(kept)
        assert len(kept) == len(others) + 2
        drawn |= set(kept)
    assert drawn == set(items)
