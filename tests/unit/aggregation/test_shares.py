"""Shares that are wrong, another's or none, and words that an aggregator cannot follow."""

import functools
import random
from dataclasses import replace

import numpy as np
import pytest

from fedboost.aggregation import aggregator
from fedboost.aggregation.contributor import CHECK_WORDS
from fedboost.crypto.shamir import SHARING_PRIME
from fedboost.ground import wire
from fedboost.ground.errors import PeerError, ProtocolError, UnreachableError
from fedboost.messages.array_pb2 import Array
from fedboost.messages.protocol.aggregation_pb2 import DealtShares, RevealedShares
from tests.support.aggregation import (
    ADDER,
    assert_sum,
    circle,
    contexts,
    draws,
    fresh_circle,
    keys_from,
    rows_of,
    tampering,
)

# A party that lies in its shares


def share_changed(place, change):
    def changed(shown):
        rows = rows_of(shown.shares).copy()
        rows[place] = change(rows, place)
        shown.shares.CopyFrom(wire.pack(rows))
        return shown

    return changed


def flipped(rows, place):
    own = rows[place].copy()
    own[-1] ^= 1
    return own


@pytest.mark.parametrize("place", [0, 2, 3, 5])
@pytest.mark.parametrize("lost", [{}, {"p03": "give"}])
def test_who_gives_a_wrong_share_is_named(place, lost):
    made = fresh_circle(6, colluders=0)
    tampering(made, RevealedShares, share_changed(place, flipped), sender="p02")
    with pytest.raises(PeerError, match="p02 gave a wrong share") as refused:
        made.open(draws(made.parties), lost=lost)
    assert refused.value.where["party"] == "p02"


def test_two_who_give_wrong_shares_are_both_named():
    made = fresh_circle(8, colluders=0)
    change = share_changed(1, flipped)
    made.tamper = lambda source, _, m: (
        change(m) if isinstance(m, RevealedShares) and source in ("p02", "p05") else m
    )
    with pytest.raises(PeerError, match="p02, p05 gave a wrong share"):
        made.open(draws(made.parties))


def test_another_holders_share_is_refused():
    made = fresh_circle(4)
    shown: dict[int, RevealedShares] = {}
    tampering(made, RevealedShares, lambda m: shown.setdefault(len(shown), m))
    made.open(draws(made.parties))
    made = fresh_circle(4)
    tampering(made, RevealedShares, lambda _: shown[3], sender="p02")
    with pytest.raises(PeerError, match="p02 gave another party's share"):
        made.open(draws(made.parties))


def test_a_share_of_another_member_of_another_kind_or_epoch_is_wrong():
    made = fresh_circle(6, colluders=0)
    tampering(made, RevealedShares, share_changed(1, lambda rows, _: rows[4]), sender="p02")
    with pytest.raises(PeerError, match="p02 gave a wrong share"):
        made.open(draws(made.parties))
    made = fresh_circle(6, colluders=0)
    holder = made.members["p02"].fresh
    keys, selves = holder._held["p01"]
    holder._held["p01"] = selves, keys
    with pytest.raises(PeerError, match="p02 gave a wrong share"):
        made.open(draws(made.parties))
    made = fresh_circle(6, colluders=0)
    earlier = made.members["p02"].fresh._held
    made.deal(4)
    made.members["p02"].fresh._held["p01"] = earlier["p01"]
    with pytest.raises(PeerError, match="p02 gave a wrong share"):
        made.open(draws(made.parties))


@pytest.mark.parametrize("field", ["mask_keys", "self_masks"])
def test_shares_dealt_for_anothers_place_are_refused_and_the_dealer_named(field):
    made = circle(4, dropout="continue").meet()
    dealt: list[DealtShares] = []
    tampering(made, DealtShares, dealt.append, sender="p02")
    made.deal(1)

    def swapped(own):
        getattr(own, field).CopyFrom(getattr(dealt[0], field))
        return own

    made = circle(4, dropout="continue").meet()
    tampering(made, DealtShares, swapped, sender="p02", receiver="p03")
    with pytest.raises(PeerError, match="p02 dealt us shares that are meant for another"):
        made.deal(1)


@pytest.mark.parametrize("value", [SHARING_PRIME, 2**264 - 1])
def test_shares_beyond_the_prime_are_refused_as_they_are_dealt(value):
    made = circle(3, dropout="continue").meet()

    def beyond(own):
        rows = rows_of(own.self_masks).copy()
        rows[0, 1:] = np.frombuffer(value.to_bytes(33, "big"), np.uint8)
        own.self_masks.CopyFrom(wire.pack(rows))
        return own

    tampering(made, DealtShares, beyond, sender="p02")
    with pytest.raises(PeerError, match="p02 sent bytes that are no share"):
        made.deal(1)


def test_shares_of_another_epoch_or_of_nobody_who_offered_keys_are_refused():
    made = circle(3, dropout="continue").meet()
    dealt: list[DealtShares] = []
    tampering(made, DealtShares, dealt.append)
    made.deal(1)
    made.tamper = lambda _, __, message: message
    tampering(made, DealtShares, lambda _: dealt[0], sender="p01", receiver="p00")
    with pytest.raises(PeerError, match="dealt shares of epoch 1, not 2"):
        made.deal(1)
    made = circle(4, dropout="continue", colluders=0).meet()
    offered = {p: one.offer_fresh(1) for p, one in made.members.items()}
    few = {p: own for p, own in offered.items() if p != "p03"}
    given = {
        p: one.fresh.deal_shares(made.to_all(p, few if p == "p00" else offered))
        for p, one in made.members.items()
    }
    got = {p: given[p]["p00"] for p in ("p01", "p02", "p03")}
    with pytest.raises(ProtocolError, match="come from p03"):
        made.members["p00"].hold_shares(got, made.parties)


def test_a_party_adds_nothing_up_in_which_it_has_no_part():
    made = circle(4, dropout="continue", colluders=0).meet()
    offered = {p: one.offer_fresh(1) for p, one in made.members.items()}
    given = {p: one.fresh.deal_shares(made.to_all(p, offered)) for p, one in made.members.items()}
    got = {p: given[p]["p03"] for p in made.parties if p != "p03"}
    with pytest.raises(ProtocolError, match="without a part in the sum"):
        made.members["p03"].hold_shares(got, made.parties[:3])


# Words that an aggregator cannot follow


def shown_by(count=4, **settings):
    """An aggregator that has kept a sum's vectors, and the shares that would open it."""
    made = fresh_circle(count, **settings)
    shown: dict[str, RevealedShares] = {}
    tampering(made, RevealedShares, lambda m: shown.setdefault(made.parties[len(shown)], m))
    vectors = draws(made.parties)
    made.open(vectors)
    adder = aggregator.begin(contexts(count, dropout="continue", **settings)[ADDER])
    aggregator.keep_masked(adder, dict(zip(made.parties, made.seen, strict=True)))
    return adder, shown, made, vectors


def opened(adder, shown):
    return [out.send for out in aggregator.open_total(adder, shown)]


def test_the_shares_as_they_were_given_open_the_sum():
    adder, shown, made, vectors = shown_by()
    words = np.frombuffer(opened(adder, shown)[0].words.data, "<i8")
    assert_sum({"sum": words[:-CHECK_WORDS]}, vectors)
    assert made.parties == tuple(shown)


def names_set(field, *values):
    def change(shown):
        del getattr(shown, field)[:]
        getattr(shown, field).extend(values)

    return change


UNHEARD_OF = {
    "members not at the table": names_set("members", "p00", "p01", "p02", "x"),
    "survivors not at the table": names_set("survivors", "p00", "p01", "p02", "x"),
    "the aggregator as a member": names_set("members", "p00", "p01", "p02", "p03", ADDER),
    "a member twice": names_set("members", "p00", "p00", "p01", "p02"),
    "a survivor twice": names_set("survivors", "p00", "p01", "p02", "p03", "p03"),
    "members in another order": names_set("members", "p03", "p02", "p01", "p00"),
    "survivors in another order": names_set("survivors", "p03", "p02", "p01", "p00"),
    "nobody": names_set("members"),
    "no survivors": names_set("survivors"),
    "endless names": names_set("members", *["p" * 10_000] * 100),
    "survivors that are no members": names_set("members", "p00", "p01", "p02"),
    "no threshold": lambda shown: setattr(shown, "threshold", 0),
    "a threshold of one": lambda shown: setattr(shown, "threshold", 1),
    "a threshold below the job's": lambda shown: setattr(shown, "threshold", 2),
    "an endless number": lambda shown: setattr(shown, "number", 2**64 - 1),
    "no shares of some": lambda shown: shown.shares.CopyFrom(
        wire.pack(np.zeros((3, 34), np.uint8))
    ),
    "empty shares": lambda shown: shown.shares.CopyFrom(wire.pack(np.zeros((4, 34), np.uint8))),
    "no keys": lambda shown: shown.ClearField("keys"),
    "other commitments": lambda shown: shown.commitments.CopyFrom(keys_from(1, 2, 3, 4)),
    "numbers as shares": lambda shown: shown.shares.CopyFrom(wire.pack(np.zeros((4, 34)))),
}


@pytest.mark.parametrize("who", [("p00",), ("p02",), ("p00", "p01", "p02", "p03")], ids=len)
@pytest.mark.parametrize("change", UNHEARD_OF.values(), ids=UNHEARD_OF)
def test_an_aggregator_refuses_words_that_no_party_means(change, who):
    """Whether one says so, or all do alike."""
    adder, shown, _, _ = shown_by()
    for party in who:
        change(shown[party])
    with pytest.raises(PeerError) as refused:
        opened(adder, shown)
    assert len(refused.value.what) < 300


@pytest.mark.parametrize("context", [b"", bytes(32)])
def test_another_context_opens_noise_only(context):
    adder, shown, _, vectors = shown_by()
    shown["p02"].context = context
    with pytest.raises(PeerError, match="do not agree"):
        opened(adder, shown)
    adder, shown, _, vectors = shown_by()
    for one in shown.values():
        one.context = context
    words = np.frombuffer(opened(adder, shown)[0].words.data, "<i8")
    assert np.abs(words).min() > sum(np.abs(own).max() for own in vectors.values())


def test_a_threshold_that_cannot_be_reached_is_a_pause():
    adder, shown, _, _ = shown_by()
    for one in shown.values():
        one.threshold = 2**32 - 1
    with pytest.raises(UnreachableError, match="4 parties gave shares, a sum needs 4294967295"):
        opened(adder, shown)


@pytest.mark.parametrize("alone", ["p00", "p03"])
def test_one_party_alone_opens_nothing_whatever_it_says(alone):
    adder, shown, _, _ = shown_by()
    with pytest.raises(UnreachableError, match="1 parties gave shares"):
        opened(adder, {alone: shown[alone]})
    shown[alone].threshold = 1
    with pytest.raises(PeerError):
        opened(adder, {alone: shown[alone]})
    with pytest.raises(PeerError, match="no party sent shares"):
        opened(adder, {})


def test_shares_of_who_is_not_in_the_sum_are_refused():
    adder, shown, _, _ = shown_by(5, colluders=0)
    for one in shown.values():
        names_set("survivors", "p00", "p01", "p02", "p03")(one)
    with pytest.raises(PeerError, match="whose vector is not in the sum"):
        opened(adder, shown)


def test_survivors_whose_vectors_never_came_are_not_added_up():
    adder, shown, _, _ = shown_by()
    del adder.kept["p02"]
    with pytest.raises(PeerError, match="not all here"):
        opened(adder, shown)


def test_an_aggregator_meets_random_words_with_typed_errors():
    draw = random.Random(11)
    ends = set()
    for _ in range(400):
        adder, shown = fuzzed(draw)
        try:
            ends.add(type(opened(adder, shown)))
        except (PeerError, UnreachableError) as error:
            ends.add(type(error))
    assert ends == {list, PeerError, UnreachableError}


@functools.cache
def one_sum():
    """An aggregator with its vectors, and the shares that open their sum."""
    return shown_by()[:2]


def fuzzed(draw):
    """The shares of a sum with some fields of some parties drawn at random."""
    kept, given = one_sum()
    adder = replace(kept, kept=dict(kept.kept))
    shown = {}
    for party, one in given.items():
        if draw.random() < 0.1:
            continue
        shown[party] = RevealedShares.FromString(one.SerializeToString())
    changes = draw.sample(["names", "threshold", "array", "number", "context"], draw.randint(0, 2))
    alike = list(shown) if draw.random() < 0.5 else draw.sample(list(shown), min(1, len(shown)))
    seed = draw.random()
    for party in alike:
        for change in changes:
            spoil(shown[party], change, random.Random(seed))
    return adder, shown


def spoil(shown, change, draw):
    pool = ["p00", "p01", "p02", "p03", "x", "", ADDER]
    if change == "names":
        names_set(draw.choice(["members", "survivors"]), *draw.choices(pool, k=draw.randint(0, 6)))(
            shown
        )
    elif change == "threshold":
        shown.threshold = draw.choice([0, 1, 2, 3, 4, 5, 65, 2**32 - 1])
    elif change == "number":
        shown.number = draw.choice([0, 1, 2, 2**64 - 1])
    elif change == "context":
        shown.context = draw.randbytes(draw.choice([0, 31, 32]))
    else:
        field = draw.choice(["shares", "keys", "commitments"])
        shape = [draw.choice([0, 3, 4, 2**63]), draw.choice([32, 34])]
        count = min(shape[0], 4) * shape[1]
        getattr(shown, field).CopyFrom(Array(dtype="u1", shape=shape, data=draw.randbytes(count)))
