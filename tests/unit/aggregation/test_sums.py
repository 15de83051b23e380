"""Sums under masks are exact, whoever adds them up, and nobody gets a sum that is none."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from fedboost.aggregation import aggregator, contributor
from fedboost.aggregation.contributor import CHECK_WORDS, Contributor
from fedboost.aggregation.recovery import threshold
from fedboost.ground.errors import ConfigError, PeerError, PolicyError, ProtocolError
from fedboost.messages.protocol.aggregation_pb2 import Total
from fedboost.runtime.config.policy import Policy
from tests.support.aggregation import (
    MOST,
    WHAT,
    assert_sum,
    circle,
    contexts,
    draws,
    fresh_circle,
    names,
)

LARGEST, LEAST = 2**63 - 1, -(2**63)
BOTH = pytest.mark.parametrize("mode", ["wait", "continue"])


def sums(mode, count, vectors, most=MOST):
    """The sum as everybody reads it, in one of both modes."""
    if mode == "wait":
        return circle(count).meet().add(vectors, most)
    return fresh_circle(count, 1, colluders=0).open(vectors)[0]


@BOTH
@pytest.mark.parametrize("count", [2, 3, 4, 5, 6, 7, 8, 32])
def test_everybody_reads_the_exact_sum(mode, count):
    vectors = draws(names(count))
    read = sums(mode, count, vectors)
    assert set(read) == set(vectors)
    assert_sum(read, vectors)


@pytest.mark.some(1, of="models of many")
def test_sixty_four_and_sixty_five_parties_add_up():
    for count in (64, 65):
        vectors = draws(names(count), 2)
        read = circle(count).meet().add(vectors)
        assert_sum(read, vectors)


@pytest.mark.some(1, of="models of many")
def test_sixty_four_parties_go_on_without_lost_ones():
    made = circle(64, dropout="continue").meet()
    vectors = draws(made.parties, 2)
    lost = {p: phase for p, phase in zip(made.parties[5::7], itertools.cycle(["give", "sign"]))}
    left = made.deal(1)
    read, _ = made.open(vectors, left=left, lost=lost)
    over = [p for p in made.parties if lost.get(p) != "give"]
    assert_sum(read, vectors, over)


@BOTH
@pytest.mark.parametrize(
    "columns",
    [
        [LARGEST, -1, 0],
        [LARGEST, LEAST, 1],
        [LEAST, LARGEST, -MOST],
        [-1, -1, -1],
        [MOST, -MOST, MOST],
    ],
)
def test_numbers_up_to_the_ends_of_64_bits_add_up(mode, columns):
    """Partial sums may wrap, as long as the whole one does not."""
    vectors = {p: np.array([v, v // 3], np.int64) for p, v in zip(names(3), columns, strict=True)}
    made = circle(3, dropout=mode, colluders=0).meet()
    if mode == "wait":
        read = made.add(vectors, LARGEST)
    else:
        made.deal(1)
        read, _ = made.open(vectors, most=LARGEST)
    assert_sum(read, vectors)


@BOTH
def test_a_sum_of_no_words_is_empty_and_still_checked(mode):
    empty = {p: np.empty(0, np.int64) for p in names(3)}
    read = sums(mode, 3, empty)
    assert_sum(read, empty)


@pytest.mark.parametrize("words", [0, 1, 5, 6, 7, 8, 38])
def test_a_long_vector_goes_in_parts_and_comes_back_whole(words, monkeypatch):
    monkeypatch.setattr(contributor, "PART_WORDS", 4)
    monkeypatch.setattr(aggregator, "PART_WORDS", 4)
    made = circle(3).meet()
    vectors = draws(made.parties, words)
    read = made.add(vectors)
    assert_sum(read, vectors)
    parts = -(-(words + CHECK_WORDS) // 4)
    assert len(made.seen) == 3 * parts
    assert len(made.totals) == parts


@pytest.mark.parametrize("words", [0, 1, 7, 38])
def test_with_drop_outs_a_vector_goes_whole_and_comes_back_in_parts(words, monkeypatch):
    """A lost party has sent all of it or none."""
    monkeypatch.setattr(contributor, "PART_WORDS", 4)
    monkeypatch.setattr(aggregator, "PART_WORDS", 4)
    made = fresh_circle(3, colluders=0)
    vectors = draws(made.parties, words)
    read, _ = made.open(vectors)
    assert_sum(read, vectors)
    assert len(made.seen) == 3
    assert len(made.totals) == -(-(words + CHECK_WORDS) // 4)


def test_many_sums_follow_one_another_each_with_its_own_length():
    made = circle(4).meet()
    for seed, words in enumerate([3, 0, 17, 1, 1]):
        vectors = draws(made.parties, words, seed)
        assert_sum(made.add(vectors), vectors)


def test_the_vector_given_is_left_as_it_was():
    made = circle(3).meet()
    vectors = draws(made.parties)
    before = {p: own.copy() for p, own in vectors.items()}
    made.add(vectors)
    assert all(np.array_equal(vectors[p], before[p]) for p in vectors)


# What no sum can be


def test_a_word_beyond_what_the_parts_can_add_up_to_is_refused():
    vectors = {p: np.array([10, -10], np.int64) for p in names(3)}
    assert circle(3).meet().add(vectors, 30)
    with pytest.raises(PeerError, match="outside the range of sums of its parts"):
        circle(3).meet().add(vectors, 29)


def test_the_least_number_of_all_is_beyond_every_bound():
    vectors = {p: np.array([LEAST // 4], np.int64) for p in names(4)}
    with pytest.raises(PeerError, match="outside the range"):
        circle(4).meet().add(vectors, LARGEST)


def test_vectors_of_different_lengths_are_not_added():
    made = circle(3).meet()
    vectors = {p: np.zeros(2 + (p == "p02"), np.int64) for p in made.parties}
    with pytest.raises(PeerError, match="different lengths"):
        made.add(vectors)


def test_a_second_vector_before_the_sum_of_the_first_is_refused():
    made = circle(3).meet()
    guest = made.members["p00"]
    list(guest.masked_parts(np.zeros(3, np.int64), WHAT))
    with pytest.raises(ProtocolError, match="before the sum of the last one"):
        list(guest.masked_parts(np.ones(3, np.int64), WHAT))


def test_a_sum_that_was_refused_is_not_followed_by_another():
    made = circle(3).meet()
    vectors = {p: np.array([10], np.int64) for p in made.parties}
    made.streams(vectors)
    guest = made.members["p00"]
    with pytest.raises(PeerError):
        guest.total(iter([Total(number=2)]), 1)
    with pytest.raises(ProtocolError):
        list(guest.masked_parts(np.zeros(1, np.int64), WHAT))


# How many it takes


@pytest.mark.parametrize(
    ("count", "colluders", "needed"),
    [(2, 0, 2), (3, 0, 2), (3, 1, 3), (4, 0, 3), (4, 1, 3), (5, 1, 4), (5, 2, 4), (8, 1, 5),
     (8, 3, 6), (32, 1, 17), (64, 63, 64), (64, 0, 33)],
)  # fmt: skip
def test_more_than_half_of_parties_and_colluders_open_a_sum(count, colluders, needed):
    assert threshold(count, colluders) == needed
    assert 2 * needed > count + colluders
    assert 2 * (needed - 1) <= count + colluders


def test_two_lists_of_survivors_never_both_find_enough_signatures():
    """Whoever signs both colludes; with as many as the job allows for it is not enough."""
    for count, colluders in itertools.product(range(2, 65), range(64)):
        if colluders < count:
            honest = count - colluders
            assert 2 * threshold(count, colluders) > honest + 2 * colluders


@pytest.mark.parametrize(("count", "colluders"), [(3, 3), (3, 63), (4, 4), (8, 8)])
def test_more_colluders_than_a_sum_can_bear_are_refused_before_anything_is_told(count, colluders):
    with pytest.raises(ConfigError, match=f"colluders is {colluders}") as refused:
        circle(count, dropout="continue", colluders=colluders)
    assert f"colluders: {count - 1}" in refused.value.todo
    circle(count, dropout="continue", colluders=count - 1)
    circle(count, dropout="wait", colluders=colluders)


def test_more_parties_than_shares_have_places_are_refused_with_drop_outs():
    with pytest.raises(ConfigError, match="64 parties at most"):
        circle(65, dropout="continue")


# Whom a policy lets add up


@BOTH
def test_two_parties_are_refused_by_every_contributor(mode):
    """The sum of two gives the other's vector away."""
    for name, context in contexts(2, dropout=mode).items():
        with pytest.raises(PolicyError, match="3 parties at least, there are 2") as refused:
            Contributor(replace(context, limits=Policy()))
        assert refused.value.where == {
            "party": name, "key": "policy.aggregation_parties_min"
        }  # fmt: skip


def test_two_parties_add_up_where_each_owner_allows_it():
    vectors = draws(names(2))
    read = circle(2, least=2).meet().add(vectors)
    assert_sum(read, vectors)


def test_an_owner_may_ask_for_more_than_three():
    circle(5, least=5)
    with pytest.raises(PolicyError, match="5 parties at least, there are 4"):
        circle(4, least=5)
