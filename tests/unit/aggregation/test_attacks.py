"""What a lying aggregator, coordinator, party or network gets of a secure sum: a refusal."""

import numpy as np
import pytest

from fedboost.aggregation import aggregator
from fedboost.aggregation.contributor import Contributor
from fedboost.aggregation.standing import Tagging
from fedboost.ground import wire
from fedboost.ground.errors import PeerError, ProtocolError, UnreachableError
from fedboost.messages.protocol.aggregation_pb2 import (
    Masked,
    MaskKeys,
    RevealedShares,
    Survivors,
    Total,
)
from tests.support.aggregation import (
    MOST,
    circle,
    draws,
    fresh_circle,
    keys_from,
    rows_of,
    tampering,
)
from tests.support.federated import Hand

FIELD = 2**255 - 19
SMALL_ORDER = [
    0,
    1,
    325606250916557431795983626356110631294008115727848805560023387167927233504,
    39382357235489614581723060781553021112529911719440698176882885853963445705823,
    FIELD - 1,
]
NOT_CANONICAL = [FIELD, FIELD + 1, FIELD + 9, 2**255 - 1, 2**255 + 9, 2**256 - 1]
NOT_ONE_EACH = "not the sum of one vector from each"


# Keys


@pytest.mark.parametrize("number", [*SMALL_ORDER, *NOT_CANONICAL], ids=hex)
@pytest.mark.parametrize("mode", ["wait", "continue"])
def test_a_key_that_shares_nothing_or_is_written_another_way_is_refused_by_name(mode, number):
    """The party itself may sign it: it would share a secret that everybody knows."""

    def weak(made, offered):
        epoch = made.members["p01"].epoch
        signed = (made.members["p01"] if epoch is None else epoch)._text_to_sign
        changed = MaskKeys()
        changed.CopyFrom(offered)
        changed.keys.CopyFrom(keys_from(number, *[9] * offered.epoch))
        data = signed("p01", changed)
        changed.signature = Hand("p01").sign(data)
        return changed

    made = circle(3, dropout=mode)
    if mode == "continue":
        made.meet()
    tampering(made, MaskKeys, lambda offered: weak(made, offered), sender="p01")
    says = "a point of small order" if number in SMALL_ORDER else "not written as keys are"
    with pytest.raises(PeerError, match=f"a mask key of p01 is {says}"):
        made.meet() if mode == "wait" else made.deal(1)


@pytest.mark.parametrize("mode", ["wait", "continue"])
@pytest.mark.parametrize("field", ["keys", "signature", "commitments"])
def test_keys_replaced_on_their_way_are_refused(mode, field):
    def replaced(offered):
        other = circle(3, dropout="continue", attempt=9).members["p01"]
        theirs = other.offer_fresh(1) if offered.epoch else other.offer_key()
        if field == "signature":
            offered.signature = theirs.signature
        elif offered.epoch or field == "keys":
            getattr(offered, field).CopyFrom(getattr(theirs, field))
        else:
            offered.commitments.CopyFrom(theirs.keys)
        return offered

    made = circle(3, dropout=mode)
    if mode == "continue":
        made.meet()
    tampering(made, MaskKeys, replaced, sender="p01")
    with pytest.raises(PeerError, match=r"signature of p01|p01 offered keys of an epoch"):
        made.meet() if mode == "wait" else made.deal(1)


def test_keys_of_another_party_attempt_or_epoch_are_refused():
    def offers(attempt):
        made = circle(4, dropout="continue", attempt=attempt).meet()
        return made, {p: one.offer_fresh(1) for p, one in made.members.items()}

    made, given = offers(1)
    _, later = offers(2)
    guest = made.members["p00"]
    own = {p: one for p, one in given.items() if p != "p00"}
    with pytest.raises(PeerError, match="signature of p01"):
        guest.fresh.deal_shares({**own, "p01": given["p02"]})
    with pytest.raises(PeerError, match="signature of p01"):
        guest.fresh.deal_shares({**own, "p01": later["p01"]})
    guest.offer_fresh(1)
    with pytest.raises(PeerError, match="offered keys of epoch 1, not 2"):
        guest.fresh.deal_shares(own)


def test_stage_keys_of_strangers_or_of_too_few_are_refused():
    made = circle(4)
    offered = {p: one.offer_key() for p, one in made.members.items() if p != "p00"}
    guest = made.members["p00"]
    with pytest.raises(ProtocolError, match="others than the job's contributors"):
        guest.hear({p: one for p, one in offered.items() if p != "p03"})


# A party that lies in its vector


def test_a_party_that_adds_anothers_digit_is_found_out(monkeypatch):
    made = circle(4).meet()
    liar = made.members["p02"]
    monkeypatch.setattr(
        liar, "_check_digit", lambda party=None: Contributor._check_digit(liar, party or "p03")
    )
    with pytest.raises(PeerError, match=NOT_ONE_EACH):
        made.add(draws(made.parties))


@pytest.mark.parametrize("mode", ["wait", "continue"])
@pytest.mark.parametrize("count", [0, 2, 3])
def test_a_vector_that_is_missing_or_added_several_times_is_found_out(mode, count, monkeypatch):
    """Without the masks; with them it is noise anyway."""
    monkeypatch.setattr("fedboost.aggregation.contributor.add_stream", lambda *_: None)
    monkeypatch.setattr(aggregator, "add_stream", lambda *_: None)
    made = circle(4, dropout=mode).meet()

    def several(masked):
        words = np.frombuffer(masked.words.data, "<i8") * count
        return Masked(number=masked.number, words=wire.pack(words))

    tampering(made, Masked, several, sender="p02")
    vectors = draws(made.parties)
    if mode == "continue":
        made.deal(1)
    with pytest.raises(PeerError, match=NOT_ONE_EACH):
        made.add(vectors) if mode == "wait" else made.open(vectors)


# An aggregator that lies about the sum


def words_changed(change):
    def changed(total):
        words = np.frombuffer(total.words.data, "<i8")
        return Total(number=total.number, words=wire.pack(change(words)))

    return changed


LIES = {
    "a word less": words_changed(lambda words: words[:-1]),
    "a word more": words_changed(lambda words: np.append(words, 0)),
    "no words": words_changed(lambda words: words[:0]),
    "a digit more": words_changed(lambda words: words + (np.arange(len(words)) == 5)),
    "another sum's number": lambda total: Total(number=total.number + 1, words=total.words),
    "an older number": lambda total: Total(number=total.number - 1, words=total.words),
    "no array": lambda total: Total(number=total.number),
    "floats": lambda total: Total(number=total.number, words=wire.pack(np.zeros(9))),
    "two axes": lambda total: Total(
        number=total.number, words=wire.pack(np.zeros((9, 1), np.int64))
    ),
}


@pytest.mark.parametrize("mode", ["wait", "continue"])
@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
def test_a_total_that_cannot_be_the_sum_is_refused(mode, lie):
    made = circle(3).meet() if mode == "wait" else fresh_circle(3)
    tampering(made, Total, lie, receiver="p01")
    vectors = draws(made.parties)
    with pytest.raises(PeerError):
        made.add(vectors) if mode == "wait" else made.open(vectors)


def test_a_total_in_no_part_at_all_is_refused():
    made = circle(3).meet()
    made.streams(draws(made.parties))
    with pytest.raises(PeerError, match="a total has 0 words, expected 9"):
        made.members["p00"].total(iter([]), MOST)


def test_a_total_after_the_sum_was_read_is_refused():
    made = circle(3).meet()
    made.add(draws(made.parties))
    with pytest.raises(PeerError, match="a total of sum 1 came"):
        made.members["p00"].total(iter(made.totals), MOST)


def test_an_old_total_is_not_the_next_one():
    made = circle(3).meet()
    made.add(draws(made.parties))
    [old] = made.totals
    tampering(made, Total, lambda _: old, receiver="p02")
    with pytest.raises(PeerError, match="a total of sum 1 came, 2 is due"):
        made.add(draws(made.parties, seed=2))


def test_a_sum_that_nobody_may_close_is_not_closed():
    made = circle(3).meet()
    tampering(made, Total, lambda total: Total(number=total.number, closed=True))
    with pytest.raises(PeerError, match="closed that no party asked"):
        made.add(draws(made.parties))


def test_a_sum_is_not_closed_after_some_of_it_was_told():
    made = fresh_circle(3)
    guest = made.members["p00"]
    vectors = draws(made.parties)
    made.open(vectors)
    made.masked(vectors, made.parties, 1)
    words = wire.pack(np.zeros(3, np.int64))
    told = [Total(number=guest.number, words=words), Total(number=guest.number, closed=True)]
    with pytest.raises(PeerError, match="closed"):
        guest.total(iter(told), MOST)


@pytest.mark.parametrize("mode", ["wait", "continue"])
@pytest.mark.parametrize("receiver", ["p02", None], ids=["to one", "to all"])
@pytest.mark.parametrize("place", [0, 4, 5, 6, 7, 8], ids=lambda place: f"word {place}")
def test_an_aggregator_that_changes_any_word_of_a_total_is_named(mode, receiver, place):
    made = circle(3).meet() if mode == "wait" else fresh_circle(3)
    change = words_changed(lambda words: words + (np.arange(len(words)) == place))
    tampering(made, Total, change, receiver=receiver)
    vectors = draws(made.parties)
    with pytest.raises(PeerError) as caught:
        made.add(vectors) if mode == "wait" else made.open(vectors)
    if place not in (5, 6):  # digits
        assert "not the sum of the parties' vectors" in caught.value.what
        assert caught.value.where["party"] == "sum"


@pytest.mark.parametrize("mode", ["wait", "continue"])
def test_parties_that_were_told_different_totals_never_add_up_again(mode, monkeypatch):
    """What was told goes into the masks of all that follows, also where a contributor has given the
    aggregator the key for tags."""
    monkeypatch.setattr(Tagging, "fits_total", lambda *_: True)
    made = circle(4).meet() if mode == "wait" else fresh_circle(4)
    vectors = draws(made.parties)

    def add():
        return made.add(vectors) if mode == "wait" else made.open(vectors)

    def moved(words):
        changed = words.copy()
        changed[0] += 1
        return changed

    tampering(made, Total, words_changed(moved), receiver="p02")
    add()
    made.tamper = lambda _, __, message: message
    with pytest.raises(PeerError):
        add()


def test_a_party_that_was_told_that_a_sum_is_closed_has_no_part_in_the_next():
    made = fresh_circle(4)
    vectors = draws(made.parties)
    tampering(made, Total, lambda t: Total(number=t.number, closed=True), receiver="p02")
    read, _ = made.open(vectors)
    assert [party for party, own in read.items() if own is None] == ["p02"]
    made.tamper = lambda _, __, message: message
    with pytest.raises(PeerError):
        made.open(vectors, fresh=1)


# Replays


@pytest.mark.parametrize("mode", ["wait", "continue"])
def test_an_old_vector_is_no_vector_of_this_sum(mode):
    made = circle(3).meet() if mode == "wait" else fresh_circle(3)
    vectors = draws(made.parties)
    if mode == "wait":
        made.add(vectors)
    else:
        made.open(vectors)
    old = made.seen[1]
    tampering(made, Masked, lambda _: old, sender="p01")
    with pytest.raises(PeerError):
        made.add(vectors) if mode == "wait" else made.open(vectors, fresh=1)


def test_an_old_vector_with_a_new_number_is_noise():
    made = circle(3).meet()
    vectors = draws(made.parties)
    made.add(vectors)
    old = Masked(number=2, words=made.seen[1].words)
    tampering(made, Masked, lambda _: old, sender="p01")
    with pytest.raises(PeerError):
        made.add(vectors)


def test_a_vector_of_another_attempt_is_noise():
    vectors = draws(("p00", "p01", "p02"))
    other = circle(3, attempt=2).meet()
    other.add(vectors)
    made = tampering(circle(3).meet(), Masked, lambda _: other.seen[1], sender="p01")
    with pytest.raises(PeerError):
        made.add(vectors)


def test_an_old_list_of_survivors_signs_nothing_new():
    made = fresh_circle(3)
    vectors = draws(made.parties)
    old: dict[bytes, Survivors] = {}
    tampering(made, Survivors, lambda own: old.setdefault(own.signature, own))
    made.open(vectors)
    [first, *_] = old.values()
    tampering(made, Survivors, lambda _: first, sender="p01")
    with pytest.raises(UnreachableError, match="2 parties are left"):
        made.open(vectors, fresh=1)
    renamed = Survivors(number=2, parties=first.parties, signature=first.signature)
    made = fresh_circle(3)
    made.open(vectors)
    tampering(made, Survivors, lambda _: renamed, sender="p01")
    with pytest.raises(PeerError, match="signature of p01"):
        made.open(vectors, fresh=1)


def test_old_shares_open_nothing():
    made = fresh_circle(3)
    vectors = draws(made.parties)
    old: list[RevealedShares] = []
    tampering(made, RevealedShares, old.append, sender="p01")
    made.open(vectors)
    tampering(made, RevealedShares, lambda _: old[0], sender="p01")
    with pytest.raises(UnreachableError, match="2 parties gave shares, a sum needs 3"):
        made.open(vectors, fresh=1)

    def renumbered(shown):
        shown.shares.CopyFrom(old[0].shares)
        return shown

    made = fresh_circle(3)
    made.open(vectors)
    tampering(made, RevealedShares, renumbered, sender="p01")
    with pytest.raises(PeerError):
        made.open(vectors, fresh=1)


# An aggregator, with the coordinator, that lies about who is lost


def signed_by(made, vectors, lists):
    """Everybody's signature, each under the list that the coordinator has shown to it."""
    made.masked(vectors, made.parties, 0)
    return {p: one.sign(lists(p)) for p, one in made.members.items()}


def test_parties_that_were_told_of_different_survivors_open_nothing():
    made = fresh_circle(5)
    fewer = tuple(p for p in made.parties if p != "p03")
    given = signed_by(
        made, draws(made.parties), lambda p: made.parties if p in ("p00", "p01") else fewer
    )
    for party in fewer:
        with pytest.raises(PeerError, match="received other survivors than we did"):
            made.members[party].reveal_shares(made.to_all(party, given))
        assert made.members[party].fresh._revealed == -1


def test_a_list_that_too_few_have_signed_opens_nothing():
    """So that no two lists are ever opened: the aggregator would have both shares of a party."""
    made = fresh_circle(5)
    given = signed_by(made, draws(made.parties), lambda _: made.parties)
    few = {p: given[p] for p in ("p00", "p01", "p02")}
    with pytest.raises(UnreachableError, match="3 parties are left, a sum needs 4"):
        made.members["p00"].reveal_shares(made.to_all("p00", few))


def test_whose_self_mask_was_given_away_is_not_claimed_to_be_lost_afterwards():
    """With both shares of enough parties its vector would be open."""
    made = fresh_circle(5)
    vectors = draws(made.parties)
    made.open(vectors)
    without = tuple(p for p in made.parties if p != "p03")
    given = {p: made.members[p].sign(without) for p in without}
    for party in without:
        with pytest.raises(ProtocolError, match="were given away before"):
            made.members[party].reveal_shares(made.to_all(party, given))


def test_no_party_ever_gives_both_shares_of_another():
    made = fresh_circle(5, colluders=0)
    shown: list[RevealedShares] = []
    tampering(made, RevealedShares, shown.append)
    vectors = draws(made.parties)
    _, left = made.open(vectors, lost={"p03": "give"})
    made.open(vectors, fresh=1, left=left, lost={"p01": "sign"})
    held = made.members["p00"].fresh._held
    given = {row.tobytes() for one in shown for row in rows_of(one.shares)}
    for index in range(2):
        for owner in made.parties:
            both = [own[index].tobytes() in given for own in held[owner]]
            assert sum(both) <= 1


@pytest.mark.parametrize("short", ["p00", "p02"])
def test_a_party_whose_vector_ends_before_the_others_is_refused_by_name(short, monkeypatch):
    """Streams of a session end when their senders say so."""
    monkeypatch.setattr("fedboost.aggregation.contributor.PART_WORDS", 2)
    made = circle(3).meet()
    given = made.streams(draws(made.parties))
    parts = [dict(zip(given, row, strict=True)) for row in zip(*given.values(), strict=True)]
    assert len(parts) > 1
    del parts[-1][short]
    with pytest.raises(PeerError, match=f"{short} sent fewer parts than others") as refused:
        list(aggregator.add_up(made.adder, iter(parts)))
    assert refused.value.where["party"] == short
