"""What an aggregator and its helpers would get of a secure sum if it did not fail closed."""

import numpy as np
import pytest

from fedboost.aggregation.contributor import CHECK_WORDS, Contributor
from fedboost.aggregation.recovery import self_stream, share_of, sign_of
from fedboost.aggregation.standing import Tagging
from fedboost.crypto import shamir
from fedboost.crypto.masking import MaskKey, Pair, add_stream
from fedboost.flow import MemoryNotebook
from fedboost.ground import wire
from fedboost.ground.errors import PeerError, PolicyError, ProtocolError
from fedboost.messages.protocol.aggregation_pb2 import MaskKeys, RevealedShares, Total
from tests.support.aggregation import (
    WHAT,
    added,
    assert_sum,
    circle,
    draws,
    fresh_circle,
    keys_from,
    names,
    rows_of,
    tampering,
)
from tests.support.federated import Hand


def words_of(masked):
    return np.frombuffer(masked.words.data, "<u8").copy()


def in_clear(words):
    """A vector without its check words, as Python's numbers."""
    return words[:-CHECK_WORDS].view(np.int64).tolist()


# The sum minus one's own


def others_part(parties, least):
    """What the guest takes for the part of one other party: the sum minus its own."""
    made = circle(parties, least=least).meet()
    vectors = draws(made.parties)
    read = np.asarray(made.add(vectors)["p00"])
    return (read - vectors["p00"]).tolist(), vectors["p01"].tolist()


def test_one_of_three_does_not_get_anothers_part_and_two_never_add_up():
    got, theirs = others_part(3, least=3)
    assert got != theirs
    with pytest.raises(PolicyError, match="over 3 parties at least"):
        others_part(2, least=3)


def test_one_of_two_gets_the_others_part_where_the_owners_let_two_add_up():
    got, theirs = others_part(2, least=2)
    assert got == theirs


# A mask for two vectors


def difference_of_two_vectors():
    """What the aggregator sees between two vectors of one party, and what it is."""
    made = circle(3).meet()
    first, second = draws(made.parties), draws(made.parties, seed=2)
    for vectors in (first, second):
        made.add(vectors)
    seen = words_of(made.seen[4]) - words_of(made.seen[1])
    return in_clear(seen), (second["p01"] - first["p01"]).tolist()


def test_two_vectors_of_a_party_do_not_show_their_difference():
    seen, true = difference_of_two_vectors()
    assert seen != true
    assert max(map(abs, seen)) > 2**48


def test_two_vectors_under_one_mask_show_their_difference(monkeypatch):
    monkeypatch.setattr(Contributor, "_mask_context", lambda *_: bytes(32))
    seen, true = difference_of_two_vectors()
    assert seen == true


# Different totals for different parties


def part_of_the_one_that_was_lied_to():
    """An aggregator tells p02 of an odd total, so that p02 alone works on another node.

    Every party answers, in the next sum, at the place that the last total tells it.
    """
    made = circle(4).meet()
    own = {party: 10**6 + n for n, party in enumerate(made.parties)}

    def odd(total):
        words = np.frombuffer(total.words.data, "<i8").copy()
        words[0] |= 1
        return Total(number=total.number, words=wire.pack(words))

    tampering(made, Total, odd, receiver="p02")
    read = made.add({party: np.zeros(1, np.int64) for party in made.parties})
    made.tamper = lambda _, __, message: message
    following = {p: np.zeros(2, np.int64) for p in made.parties}
    for party, told in read.items():
        following[party][int(np.asarray(told)[0]) % 2] = own[party]
    whole = np.asarray(made.add(following)["p00"])
    return int(whole[1]), own["p02"]


@pytest.fixture
def aided(monkeypatch):
    """A contributor has given the aggregator the key for tags."""
    monkeypatch.setattr(Tagging, "fits_total", lambda *_: True)


def test_an_aggregator_alone_is_named_with_the_first_false_total():
    with pytest.raises(PeerError, match="sum sent a total that is not the sum"):
        part_of_the_one_that_was_lied_to()


@pytest.mark.usefixtures("aided")
def test_a_party_that_was_told_another_total_adds_nothing_up_any_more():
    with pytest.raises(PeerError, match="not the sum of one vector from each"):
        part_of_the_one_that_was_lied_to()


@pytest.mark.usefixtures("aided")
def test_a_party_that_was_told_another_total_is_read_alone_where_masks_do_not_bind(monkeypatch):
    monkeypatch.setattr(Contributor, "add_to_history", lambda *_: None)
    read, own = part_of_the_one_that_was_lied_to()
    assert read == own


# Keys replaced on their way


def vector_behind_replaced_keys():
    """Whoever carries the keys gives p01 its own in place of everybody's, and takes them off."""
    made = circle(3)
    middle = MaskKey(bytes(range(1, 33)))
    number = int.from_bytes(middle.public, "little")
    theirs = made.members["p01"].offer_key()

    def replaced(offered):
        offered.keys.CopyFrom(keys_from(number))
        return offered

    tampering(made, MaskKeys, replaced, receiver="p01")
    made.meet()
    made.tamper = lambda _, __, message: message
    vectors, liar = draws(made.parties), made.members["p01"]
    [masked] = liar.masked_parts(vectors["p01"], WHAT)
    # What the masks are bound to are the keys that p01 has heard: the ones it was given.
    pair = Pair(middle.shared(rows_of(theirs.keys)[0].tobytes()), liar._context.attempt.digest)
    words = words_of(masked)
    for peer in ("p00", "p02"):
        sign = sign_of("p01", peer, made.parties)
        add_stream(words, pair.stream_key(liar._sum_context), -sign)
    return in_clear(words), vectors["p01"].tolist()


def test_keys_of_somebody_in_the_middle_are_refused_for_their_signatures():
    with pytest.raises(PeerError, match="signature of"):
        vector_behind_replaced_keys()


def test_keys_of_somebody_in_the_middle_open_a_vector_where_signatures_are_not_checked(
    monkeypatch,
):
    monkeypatch.setattr(Hand, "check", lambda *_: None)
    read, own = vector_behind_replaced_keys()
    assert read == own


# Both shares of one party


def secret_of(shown, place, threshold):
    """What the shares that were given away of one member come to."""
    given = {party: rows_of(one.shares)[place] for party, one in shown.items()}
    return shamir.combine([share_of(row, party) for party, row in given.items()], threshold)


def vector_behind_both_shares(before_the_second):
    """p03 is in the sum, and then said to be lost: both its masks come off its vector."""
    made = fresh_circle(5)
    shown: list[dict[str, RevealedShares]] = []
    whole, without = made.parties, tuple(p for p in made.parties if p != "p03")
    vectors = draws(made.parties)
    given = made.masked(vectors, whole, 0)
    for left in (whole, without):
        if shown:
            before_the_second(made)
        signed = {p: made.members[p].sign(left) for p in left}
        shown.append({p: made.members[p].reveal_shares(made.to_all(p, signed)) for p in left})
    if not all(one.HasField("shares") for one in shown[1].values()):
        return None, vectors["p03"].tolist()
    first, place = shown[0]["p00"], made.parties.index("p03")
    salt, context = made.members["p00"]._context.attempt.digest, first.context
    words = words_of(given["p03"])
    self_mask = secret_of(shown[0], place, first.threshold)
    add_stream(words, self_stream(self_mask, salt, context), -1)
    key = MaskKey(secret_of(shown[1], place, first.threshold))
    for other, peer in enumerate(whole):
        if peer != "p03":
            public = rows_of(first.keys)[other].tobytes()
            stream = Pair(key.shared(public), salt).stream_key(context)
            add_stream(words, stream, -sign_of("p03", peer, whole))
    return in_clear(words), vectors["p03"].tolist()


def forget_the_sum(made):
    """No party remembers that it has given shares of this sum."""
    for member in made.members.values():
        member.fresh._revealed = -1


def forget_all(made):
    """Nor over whom, which it has noted."""
    forget_the_sum(made)
    for member in made.members.values():
        member._context.services.notebook.write({})


def test_both_shares_of_a_party_are_never_given():
    """A party that remembers the sum refuses; one that has its notes alone gives none."""
    with pytest.raises(ProtocolError, match="given away before"):
        vector_behind_both_shares(lambda _: None)
    read, _ = vector_behind_both_shares(forget_the_sum)
    assert read is None


def test_both_shares_of_a_party_open_its_vector_where_parties_forget_what_they_gave():
    read, own = vector_behind_both_shares(forget_all)
    assert read == own


# The same statistic over fewer parties


def sums_before_and_after_a_loss(pads):
    """A statistic that one attempt opens over all, and the next one without p03."""
    vectors, read = draws(names(5)), []
    for attempt, lost in ((1, {}), (2, {"p03": "give"})):
        own = {party: pads(attempt, party) for party in names(5)}
        made = circle(5, dropout="continue", pads=own, attempt=attempt).meet()
        made.deal(2)
        total, _ = made.open(vectors, fresh=4, lost=lost)
        read.append(total["p00"])
    return *read, vectors


def test_a_statistic_is_not_opened_again_over_those_that_are_left():
    kept = {party: MemoryNotebook() for party in names(5)}
    before, after, vectors = sums_before_and_after_a_loss(lambda _, party: kept[party])
    assert_sum({"p00": before}, vectors)
    assert after is None


def test_a_statistic_opened_again_over_those_that_are_left_shows_the_lost_one():
    before, after, vectors = sums_before_and_after_a_loss(lambda *_: MemoryNotebook())
    assert after.tolist() == added(vectors, [p for p in names(5) if p != "p03"])
    assert (before - after).tolist() == vectors["p03"].tolist()
