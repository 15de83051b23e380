"""Sums whose vectors have all come: nobody signs for them, and still only one is ever opened."""

import itertools

import pytest

from fedboost.aggregation import aggregator
from fedboost.aggregation.recovery import threshold
from fedboost.flow import MemoryNotebook
from fedboost.ground.errors import PeerError, ProtocolError, UnreachableError
from fedboost.messages.protocol.aggregation_pb2 import Gathered, Masked
from tests.support.aggregation import (
    MOST,
    assert_sum,
    circle,
    draws,
    fresh_circle,
    names,
    tampering,
)


def gathered(made, vectors, fresh=0):
    """Word that all vectors are there."""
    given = made.masked(vectors, made.parties, fresh)
    return aggregator.gather(made.adder, iter([given])).send


def opened(made, shown, among):
    """What those `among` make of the total that the shares shown open."""
    totals = [out.send for out in aggregator.open_whole(made.adder, shown)]
    return made.told(totals, MOST, among)


@pytest.mark.parametrize("lost", [(), ("p03",)], ids=["nobody", "one"])
def test_a_sum_of_all_is_opened_without_signatures_also_where_one_is_lost_meanwhile(lost):
    made = fresh_circle(4, colluders=0)
    vectors = draws(made.parties)
    here = gathered(made, vectors)
    left = [party for party in made.parties if party not in lost]
    shown = {party: made.members[party].reveal_whole(here) for party in left}
    assert_sum(opened(made, shown, left), vectors)


def test_word_of_another_sum_opens_nothing():
    made = fresh_circle(3)
    gathered(made, draws(made.parties))
    with pytest.raises(PeerError, match="the vectors of sum 2 are there, 1 is due"):
        made.members["p00"].reveal_whole(Gathered(number=2))


def test_a_sum_that_is_not_fresh_is_not_opened_by_shares():
    made = fresh_circle(3)
    made.masked(draws(made.parties), made.parties, None)
    with pytest.raises(ProtocolError, match="only a fresh sum is opened by shares"):
        made.members["p00"].reveal_whole(Gathered(number=1))


def test_vectors_of_which_one_may_be_lost_come_whole():
    made = fresh_circle(3)
    given = made.masked(draws(made.parties), made.parties, 0)
    with pytest.raises(PeerError, match="came in parts"):
        aggregator.gather(made.adder, iter([given, given]))


def test_a_false_word_that_all_vectors_are_there_opens_nothing_without_one():
    made = fresh_circle(4, colluders=0)
    vectors = draws(made.parties)
    given = made.masked(vectors, made.parties, 0)
    del given["p03"]
    aggregator.keep_masked(made.adder, given)
    shown = {p: made.members[p].reveal_whole(Gathered(number=1)) for p in made.parties}
    with pytest.raises(PeerError, match="not all here"):
        opened(made, shown, made.parties)


def test_who_has_opened_a_sum_of_all_gives_no_shares_of_a_lost_party():
    made = fresh_circle(5)
    here = gathered(made, draws(made.parties))
    without = tuple(p for p in made.parties if p != "p03")
    for party in without:
        made.members[party].reveal_whole(here)
    signed = {p: made.members[p].sign(without) for p in without}
    for party in without:
        with pytest.raises(ProtocolError, match="were given away before"):
            made.members[party].reveal_shares(made.to_all(party, signed))


@pytest.mark.parametrize(("count", "colluders"), [(3, 0), (4, 0), (4, 1), (5, 1), (6, 2)])
def test_of_a_party_that_some_believe_lost_only_one_share_finds_enough(count, colluders):
    """The honest are told either; in a second attempt each is told the other."""
    parties, lost = names(count), names(count)[-1]
    honest = parties[: count - 1 - colluders]
    for believing in itertools.product((True, False), repeat=len(honest)):
        pads = {party: MemoryNotebook() for party in parties}
        whole, without = {lost}, set[str]()  # who gave shares of the one and of the other
        for attempt in (1, 2):
            said = {"dropout": "continue", "colluders": colluders}
            made = circle(count, **said, pads=pads, attempt=attempt).meet()
            made.deal(1)
            here = gathered(made, draws(parties))
            signed = {p: made.members[p].sign(parties[:-1]) for p in parties[:-1]}
            for party, believes in zip(honest, believing, strict=True):
                one, stays = made.members[party], believes == (attempt == 1)
                got = made.to_all(party, signed)
                shown = one.reveal_whole(here) if stays else one.reveal_shares(got)
                if shown.HasField("shares"):
                    (whole if stays else without).add(party)
        assert not whole & without
        assert len(whole | without) == len(honest) + 1
        needed = threshold(count, colluders) - colluders  # whose accomplices give both
        assert min(len(whole), len(without)) < needed


# Sums that stay closed


def withheld(begun, **settings):
    """A circle in which the sum at hand would be over others than before."""
    made = fresh_circle(4, colluders=0, **settings)
    for one in made.members.values():
        one.begun = begun
    return made


def test_no_words_leave_of_what_was_begun_with_others():
    made = withheld((*names(4), "p09"))
    given = made.masked(draws(made.parties), made.parties, None)
    assert all(one.withheld and not one.HasField("words") for one in given.values())
    totals = [out.send for out in aggregator.add_up(made.adder, iter([given]))]
    assert set(made.told(totals, MOST).values()) == {None}


def test_a_total_of_what_was_withheld_is_refused():
    made = withheld((*names(4), "p09"))
    other = fresh_circle(4, colluders=0)
    other.open(draws(other.parties), fresh=None)
    made.masked(draws(made.parties), made.parties, None)
    with pytest.raises(PeerError, match="a total came of a sum that we keep closed"):
        made.told(other.totals, MOST)


def test_one_party_that_withholds_closes_the_sum_for_all():
    made = fresh_circle(4, colluders=0)
    made.members["p02"].begun = (*names(4), "p09")
    read, _ = made.open(draws(made.parties), fresh=None)
    assert set(read.values()) == {None}


def test_a_vector_that_is_sent_and_withheld_is_refused_by_name():
    for fresh, says in ((0, "p01 took a fresh sum for"), (None, "p01 sent a vector that it with")):
        made = fresh_circle(4, colluders=0)
        tampering(made, Masked, lambda m: setattr(m, "withheld", True), sender="p01")
        with pytest.raises(PeerError, match=says) as refused:
            made.open(draws(made.parties), fresh=fresh)
        assert refused.value.where["party"] == "p01"


def test_vectors_under_masks_of_different_members_are_refused():
    made = fresh_circle(4, colluders=0)
    tampering(made, Masked, lambda m: m.members.append("p09"), sender="p01")
    with pytest.raises(PeerError, match="masked among different sets"):
        made.open(draws(made.parties), fresh=None)


def test_a_sum_without_a_members_vector_stays_closed_whatever_the_members_are_called():
    made = fresh_circle(4, colluders=0)
    vectors = draws(made.parties)
    read, _ = made.open(vectors, fresh=None, lost={"p02": "give"})
    assert set(read.values()) == {None}
    made = fresh_circle(4, colluders=0)
    tampering(made, Masked, lambda m: m.ClearField("members"))
    with pytest.raises(PeerError):  # the masks with the missing one are left
        made.open(vectors, fresh=None, lost={"p02": "give"})


def test_keys_of_sums_over_all_are_never_shared():
    made = fresh_circle(4, 2, colluders=0)
    epoch = made.members["p00"].fresh
    assert len(epoch._keys) == 3
    assert all(len(keys) == len(selves) == 2 for keys, selves in epoch._held.values())
    for _ in range(3):
        read, _ = made.open(draws(made.parties), fresh=None)
        assert_sum(read, draws(made.parties))


def test_too_few_who_give_shares_of_a_sum_of_all_are_a_pause():
    made = fresh_circle(4)
    here = gathered(made, draws(made.parties))
    shown = {p: made.members[p].reveal_whole(here) for p in ("p00", "p01")}
    with pytest.raises(UnreachableError, match="2 parties gave shares, a sum needs 3"):
        opened(made, shown, ("p00",))
