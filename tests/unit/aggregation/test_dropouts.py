"""Whoever is lost at whatever moment: the right sum, a sum that stays closed, or a named pause."""

import itertools
import random

import pytest

from fedboost.aggregation.recovery import threshold
from fedboost.flow import MemoryNotebook
from fedboost.ground.errors import ProtocolError, UnreachableError
from tests.support.aggregation import PHASES, added, assert_sum, circle, draws, fresh_circle, names

STAYS = "stays"


def expected(parties, lost, colluders, fresh):
    """What a sum comes to, from who is lost when: the survivors, "closed" or "pause"."""

    def without(group, *phases):
        return [p for p in group if lost.get(p) not in phases]

    dealing = without(parties, "offer")
    members = without(dealing, "deal")
    needed = threshold(len(dealing), colluders)
    if not fresh and len(members) >= max(2, needed):
        return members if without(members, "hold", "give") == members else "closed"
    survivors = without(members, "hold", "give", "gave")
    signing = without(survivors, "sign")
    revealing = without(signing, "reveal")
    if min(len(dealing), len(members)) < 2 or len(signing) < needed:
        return "pause"
    return "pause" if len(revealing) < needed else survivors


def outcome(count, lost, colluders, fresh):
    made = circle(count, dropout="continue", colluders=colluders).meet()
    vectors = draws(made.parties, 2)
    try:
        left = made.deal(1, lost)
        read, _ = made.open(vectors, fresh=0 if fresh else None, left=left, lost=lost)
    except UnreachableError as error:
        return "pause" if error.where["party"] in lost and "job resume" in error.todo else error
    found = {None if own is None else tuple(own.tolist()) for own in read.values()}
    assert len(found) == 1
    [total] = found
    if total is None:
        return "closed"
    epoch = made.members["p00"].fresh
    own = epoch.survivors if fresh else epoch.members
    assert list(total) == added(vectors, own)
    return list(own)


def cases(hosts):
    """Each way in which some of the hosts are lost, once; who is who changes from case to case."""
    indices = list(range(1, hosts + 1))
    for case in itertools.combinations_with_replacement((STAYS, *PHASES), hosts):
        random.Random(str(case)).shuffle(indices)
        yield {f"p{place:02d}": phase for place, phase in zip(indices, case, strict=True)}


@pytest.mark.some(1)
@pytest.mark.parametrize("fresh", [True, False], ids=["fresh", "again"])
@pytest.mark.parametrize(("hosts", "colluders"), [(2, 0), (2, 1), (3, 0), (3, 1), (4, 0), (4, 1)])
def test_whoever_is_lost_whenever_the_sum_is_right_or_closed_or_the_job_pauses(
    hosts, colluders, fresh
):
    found = set()
    for lost in cases(hosts):
        want = expected(names(hosts + 1), lost, colluders, fresh)
        assert outcome(hosts + 1, lost, colluders, fresh) == want, lost
        found.add(want if isinstance(want, str) else len(want))
    assert {"pause", hosts + 1} <= found  # the cases do tell something


def test_a_vector_that_came_before_its_party_was_lost_is_left_out():
    made = fresh_circle(4, colluders=0)
    vectors = draws(made.parties)
    read, left = made.open(vectors, lost={"p02": "gave"})
    assert left == ("p00", "p01", "p03")
    assert_sum(read, vectors, left)


def test_a_vector_is_in_the_sum_though_its_party_was_lost_before_it_signed():
    made = fresh_circle(4, colluders=0)
    vectors = draws(made.parties)
    read, left = made.open(vectors, lost={"p02": "sign"})
    assert left == ("p00", "p01", "p03")
    assert_sum(read, vectors)


# One sum after the other


def test_sums_go_on_over_those_that_a_fresh_sum_was_opened_over():
    made = fresh_circle(5)
    vectors = draws(made.parties)
    _, left = made.open(vectors, fresh=0, lost={"p03": "give"})
    for _ in range(2):
        read, left = made.open(vectors, fresh=None, left=left)
        assert_sum(read, vectors, left)
    assert left == ("p00", "p01", "p02", "p04")


def test_a_sum_stays_closed_until_a_fresh_one_is_opened_over_the_rest():
    made = fresh_circle(5)
    vectors = draws(made.parties)
    read, _ = made.open(vectors, fresh=0)
    assert_sum(read, vectors)
    read, left = made.open(vectors, fresh=None, lost={"p03": "give"})
    assert set(read.values()) == {None}
    read, left = made.open(vectors, fresh=None, left=left)
    assert set(read.values()) == {None}
    read, left = made.open(vectors, fresh=1, left=left)
    assert_sum(read, vectors, left)


def test_a_sum_that_an_earlier_attempt_has_begun_goes_on_over_the_same_parties_only():
    made = fresh_circle(5)
    vectors = draws(made.parties)
    for one in made.members.values():
        one.begun = made.parties
    read, _ = made.open(vectors, fresh=None)
    assert_sum(read, vectors)
    left = made.deal(4, {"p03": "offer"})  # gone since
    read, left = made.open(vectors, fresh=None, left=left)
    assert set(read.values()) == {None}, "the difference would be what p03 had added"
    for fresh in (1, None, None):
        read, left = made.open(vectors, fresh=fresh, left=left)
        assert_sum(read, vectors, left)


def test_two_are_lost_one_after_the_other():
    made = fresh_circle(6)
    vectors = draws(made.parties)
    _, left = made.open(vectors, fresh=0, lost={"p03": "give"})
    read, left = made.open(vectors, fresh=1, left=left, lost={"p05": "sign"})
    over = ("p00", "p01", "p02", "p04", "p05")
    assert_sum(read, vectors, over)
    read, left = made.open(vectors, fresh=2, left=left)
    assert left == ("p00", "p01", "p02", "p04")
    assert_sum(read, vectors, left)


def test_the_next_keys_are_exchanged_among_those_that_are_left():
    made = fresh_circle(5, colluders=0)
    vectors = draws(made.parties)
    _, left = made.open(vectors, lost={"p03": "reveal"})
    left = made.deal(2, dict.fromkeys(set(made.parties) - set(left), "offer"))
    assert made.members["p00"].fresh.members == left
    read, _ = made.open(vectors, fresh=1, left=left)
    assert_sum(read, vectors, left)


def test_keys_last_for_as_many_sums_as_they_were_made_for():
    made = fresh_circle(3, 1, colluders=0)
    vectors = draws(made.parties)
    made.open(vectors, fresh=0)
    with pytest.raises(ProtocolError, match="an epoch of 1 sums"):
        made.open(vectors, fresh=1)


def test_nothing_is_added_up_before_there_are_fresh_keys():
    guest = circle(3, dropout="continue").members["p00"]
    with pytest.raises(ProtocolError, match="no fresh keys yet"):
        guest.reveal_shares({})


def test_too_few_for_the_owners_policy_is_a_pause_not_a_refusal():
    made = fresh_circle(4, colluders=0, least=4)
    vectors = draws(made.parties)
    with pytest.raises(UnreachableError, match="3 parties are left, a sum needs 4") as paused:
        made.open(vectors, lost={"p02": "give"})
    assert paused.value.where == {"party": "p02"}


def test_keys_are_not_dealt_among_too_few():
    for when in ("offer", "deal"):
        made = circle(4, dropout="continue", colluders=0, least=4).meet()
        with pytest.raises(UnreachableError, match="3 parties are left"):
            made.deal(1, {"p01": when})


# What an earlier attempt has opened


class Attempts:
    """Begins attempts of the same parties, with the same notebooks."""

    def __init__(self):
        self.pads = {party: MemoryNotebook() for party in names(5)}
        self._number = 0

    def __call__(self):
        """The next one, with keys for six sums."""
        self._number += 1
        made = circle(5, dropout="continue", pads=self.pads, attempt=self._number).meet()
        made.deal(6)
        return made


@pytest.fixture
def again():
    """Attempts of one job."""
    return Attempts()


def opened(made, fresh, lost=None):
    """Over whom a statistic is opened; None where it stays closed."""
    vectors = draws(made.parties)
    left = made.members["p00"].fresh.survivors
    read, left = made.open(vectors, fresh=fresh, left=left, lost=lost)
    if read["p00"] is None:
        return None
    survivors = made.members["p00"].fresh.survivors
    assert_sum(read, vectors, survivors)
    return survivors


def test_what_an_attempt_has_opened_is_opened_again_over_the_same_parties_only(again):
    assert opened(again(), 4) == names(5)
    assert opened(again(), 4) == names(5)
    assert opened(again(), 4, {"p03": "give"}) is None
    assert opened(again(), 4) == names(5)


def test_what_was_opened_without_a_party_is_not_opened_with_it(again):
    without = tuple(p for p in names(5) if p != "p03")
    assert opened(again(), 4, {"p03": "give"}) == without
    assert opened(again(), 4) is None
    assert opened(again(), 4, {"p03": "give"}) == without


def test_a_statistic_that_later_ones_have_passed_over_stays_closed(again):
    made = again()
    for number in (1, 2, 4, 5):
        assert opened(made, number) == names(5)
    late = again()
    assert opened(late, 0) is None  # nobody knows whether it was opened, and over whom
    assert opened(late, 3) is None
    assert opened(late, 2) == names(5)
    assert opened(late, 5) == names(5)
    assert opened(late, 6) == names(5)


def test_notes_are_few_and_name_numbers_and_parties(again):
    made = again()
    for number in range(5):
        opened(made, number)
    opened(made, 5, {"p03": "give"})
    without = [p for p in names(5) if p != "p03"]
    assert again.pads["p01"].facts == {"opened": [[0, 4, list(names(5))], [5, 5, without]]}


def test_a_statistic_that_is_not_fresh_leaves_no_note(again):
    opened(again(), None)
    assert again.pads["p01"].facts == {}


def test_one_party_that_knows_of_an_earlier_opening_keeps_the_sum_closed(again):
    """The others may have been stopped before they could note it."""
    again.pads["p02"].write({"opened": [[4, 4, list(names(5)[:4])]]})
    made = again()
    assert opened(made, 4) is None
    assert opened(made, 5) == names(5)


def test_whom_the_others_would_have_left_out_stays_a_member_of_a_sum_that_one_keeps_closed(again):
    again.pads["p02"].write({"opened": [[4, 4, list(names(5))]]})
    made = again()
    assert opened(made, 4, {"p03": "give"}) is None
    assert all(one.fresh.members == names(5) for one in made.members.values())
    vectors, left = draws(made.parties), tuple(p for p in names(5) if p != "p03")
    read, _ = made.open(vectors, fresh=None, left=left)
    assert set(read.values()) == {None}
    read, _ = made.open(vectors, fresh=5, left=left)
    assert_sum(read, vectors, left)


def test_what_is_opened_is_noted_before_a_share_is_given(again):
    made = again()
    vectors = draws(made.parties)
    given = made.masked(vectors, made.parties, 4)
    assert len(given) == 5
    signed = {p: one.sign(made.parties) for p, one in made.members.items()}
    pad = again.pads["p01"]

    class BrokenDiskError(Exception):
        """Nothing can be written."""

    def broken(_):
        raise BrokenDiskError

    pad.write = broken
    with pytest.raises(BrokenDiskError):
        made.members["p01"].reveal_shares(made.to_all("p01", signed))
    assert made.members["p01"].fresh._revealed == -1
