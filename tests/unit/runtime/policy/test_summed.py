"""Sets of parties whose sums, put together in any way, tell of too few of them."""

import itertools
from fractions import Fraction

import numpy as np
import pytest

from fedboost.runtime.policy.differences import Summed, isolated_parties
from fedboost.runtime.policy.same_tables import Owned
from fedboost.runtime.store.store import Store

TABLE = Owned("credit", "parquet:/data/credit.parquet")


def sets(*named):
    return [frozenset(one) for one in named]


@pytest.mark.parametrize(
    ("known", "least", "found"),
    [
        (["abc"], 3, None),
        (["abc", "abcd"], 1, None),
        (["abc", "abcd"], 2, "d"),
        (["abc", "abcd"], 3, "d"),
        (["abc", "abcde"], 2, None),
        (["abc", "abcde"], 3, "de"),
        (["abc", "abcdef"], 3, None),
        (["abcd", "abce"], 2, None),  # d less e: of two parties
        (["abcd", "abce"], 3, "de"),
        (["abc", "def"], 3, None),
        (["ab", "bc", "ac"], 2, "a"),  # no two of them differ by a single one
    ],
)
def test_a_combination_about_fewer_than_the_least_is_found(known, least, found):
    got = isolated_parties(sets(*known), least)
    assert got == (None if found is None else frozenset(found))


def rank(rows):
    """By elimination in fractions."""
    left, found = [[Fraction(x) for x in row] for row in rows], 0
    for column in range(len(rows[0])):
        pivot = next((row for row in left if row[column]), None)
        if pivot is None:
            continue
        found += 1
        left.remove(pivot)
        left = [
            [x - row[column] / pivot[column] * y for x, y in zip(row, pivot, strict=True)]
            for row in left
        ]
    return found


def naive(known, least):
    """Whether anything but 0 in the span of the sets is about few parties only."""
    parties = sorted(frozenset().union(*known))
    rows = [[int(p in one) for p in parties] for one in known]
    for count in range(1, least):
        for some in itertools.combinations(range(len(parties)), count):
            others = [[x for i, x in enumerate(row) if i not in some] for row in rows]
            if not others[0] or rank(others) < rank(rows):
                return True
    return False


@pytest.mark.parametrize("seed", range(25))
def test_random_sets_isolate_whom_exact_algebra_says(seed):
    draw = np.random.default_rng(seed)
    parties = [chr(ord("a") + i) for i in range(draw.integers(3, 8))]
    known = []
    for _ in range(draw.integers(1, 5)):
        size = draw.integers(2, len(parties), endpoint=True)
        known.append(frozenset(draw.choice(parties, size, replace=False)))
    for least in (1, 2, 3, 4):
        got = isolated_parties(known, least)
        assert (got is not None) == naive(known, least)
        assert got is None or 0 < len(got) < least


@pytest.fixture
def store(tmp_path):
    with Store(tmp_path / "store", "party bank") as own:
        yield own


def test_sets_are_remembered_by_table_and_only_where_they_isolate_nobody(store):
    summed = Summed(store)
    assert summed.keep_unless_isolating(TABLE, "abc", 3) is None
    assert summed.keep_unless_isolating(TABLE, "cba", 3) is None
    assert summed.keep_unless_isolating(TABLE, "abcd", 3) == frozenset("d")
    assert summed.keep_unless_isolating(TABLE, "abcd", 3) == frozenset("d")  # it was not kept
    assert summed.keep_unless_isolating(TABLE, "abcd", 1) is None  # its owner allows it
    assert summed.keep_unless_isolating(TABLE, "abcd", 3) is None  # and it is told
    other = Owned("other", "parquet:/data/other.parquet")
    assert summed.keep_unless_isolating(other, "abce", 3) is None
    renamed = Owned("loans", TABLE.source)
    assert Summed(store).keep_unless_isolating(renamed, "abe", 3) is not None
