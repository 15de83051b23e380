"""An attempt goes on where all contributors' own records agree, whatever a coordinator says."""

from dataclasses import replace

import numpy as np
import pytest

from fedboost.aggregation import aggregator
from fedboost.aggregation.contributor import Contributor
from fedboost.aggregation.statistic import Statistic
from fedboost.ground.errors import PeerError, ProtocolError
from fedboost.messages.protocol.aggregation_pb2 import Standing
from tests.support.aggregation import WHAT, Circle, circle, contexts, draws, tampering
from tests.support.contexts import altered
from tests.support.federated import Hand

A, B, C = (f"{n:02x}" * 32 for n in (1, 2, 3))
MATCH = {
    "a party lacks our place": ((2,), {(1,): A, (2,): B}, {"p01": {(1,): A}}, PeerError,
                                "p01 has not kept place 2 as we have"),
    "other sums until there": ((2,), {(1,): A, (2,): B}, {"p02": {(1,): A, (2,): C}}, PeerError,
                               "p02 has not kept place 2 as we have"),
    "all have a later place": ((1,), {(1,): A, (2,): B}, {}, ProtocolError,
                               "goes on from place 1, the contributors have all kept 2"),
    "sent back to the start": ((0,), {(0, 0): A, (1,): B}, {}, ProtocolError,
                               "goes on from place 0, the contributors have all kept 1"),
}  # fmt: skip


def standing_at(place, kept, others=()):
    """Contributors that have kept these places, and others where named, opened at one of them."""
    own = contexts(3)
    adder = own.pop("sum")
    made = {}
    for name, context in own.items():
        at = dict(others).get(name, kept)
        made[name] = Contributor(altered(context, attempt={"place": place, "kept": at}))
        if place in at:
            made[name].history = bytes.fromhex(at[place])
    return Circle(made, aggregator.begin(adder))


@pytest.mark.parametrize("case", MATCH.values(), ids=MATCH)
def test_a_place_that_is_not_the_last_all_have_alike_is_refused(case):
    place, kept, others, kind, says = case
    with pytest.raises(kind, match=says):
        standing_at(place, kept, others).meet()


@pytest.mark.parametrize(
    ("place", "others"),
    [
        ((2,), {}),
        ((1,), {"p01": {(1,): A}}),
        ((1,), {"p02": {(0, 0): C, (1,): A}}),
        ((0,), {"p01": {}}),  # its store is gone
        ((0,), {"p01": {(1,): C, (2,): C}}),
    ],
)
def test_the_last_place_that_all_have_alike_is_gone_on_from(place, others):
    standing_at(place, {(1,): A, (2,): B}, others).meet()


def test_records_that_tell_of_other_sums_are_refused_by_name():
    made = circle(3)
    made.members["p02"].add_to_history(b"a total that nobody else heard")
    with pytest.raises(PeerError, match="p02 has another record of the sums so far") as caught:
        made.meet()
    assert caught.value.where["party"] == "p02"


def test_a_party_that_went_on_otherwise_is_found_behind_the_last_sum():
    made = circle(3).meet()
    made.add(draws(made.parties))
    made.members["p01"].add_to_history(b"another tree")
    shown = {party: one.signed_standing() for party, one in made.members.items()}
    assert {one.tag_key for one in shown.values()} == {b""}
    with pytest.raises(PeerError, match="p01 has another record of the sums so far"):
        made.members["p00"].compare_standings(made.to_all("p00", shown))


@pytest.mark.parametrize("field", ["history", "tag_key", "signature"])
def test_a_standing_changed_on_its_way_is_refused(field):
    made = circle(3)

    def changed(shown):
        setattr(shown, field, bytes(32))
        return shown

    tampering(made, Standing, changed, sender="p00")
    with pytest.raises(PeerError, match="signature of p00"):
        made.meet()


@pytest.mark.parametrize(("sender", "key"), [("p01", bytes(32)), ("p00", b""), ("p00", bytes(31))])
def test_the_key_for_tags_is_the_guests_and_has_its_length(sender, key):
    made = circle(3)

    def changed(shown):
        shown.tag_key = key
        shown.ClearField("signature")
        text = (
            b"fedboost standing 1"
            + made.members["p00"]._context.attempt.digest
            + sender.encode()
            + b"\0"
        )
        shown.signature = Hand(sender).sign(text + shown.SerializeToString(deterministic=True))
        return shown

    tampering(made, Standing, changed, sender=sender)
    with pytest.raises(PeerError, match="a key for tags"):
        made.meet()


def test_nothing_is_added_up_before_records_were_compared():
    made = circle(3)
    offered = {party: one.offer_key() for party, one in made.members.items()}
    for party, one in made.members.items():
        one.hear(made.to_all(party, offered))
    with pytest.raises(ProtocolError, match="no key for tags"):
        list(made.members["p01"].masked_parts(np.zeros(2, np.int64), WHAT))


@pytest.mark.parametrize(
    "other",
    [
        replace(WHAT, name="another"),
        replace(WHAT, place=(1,)),
        replace(WHAT, schema={"columns": ["x1", "x0"]}),
        replace(WHAT, fresh=2),
    ],
    ids=["step", "place", "schema", "fresh"],
)
def test_vectors_of_different_statistics_add_up_to_noise(other):
    made = circle(3).meet()
    members, vectors = made.members, draws(made.parties)
    own = {
        p: one.masked_parts(vectors[p], other if p == "p01" else WHAT) for p, one in members.items()
    }
    words = np.sum([np.frombuffer(next(one).words.data, "<u8") for one in own.values()], axis=0)
    assert np.abs(words.view(np.int64)[:5]).max() > 2**48


def test_statistics_name_the_length_of_their_vector():
    assert Statistic("a").digest(2) != Statistic("a").digest(3)
    assert Statistic("a").digest(2) == Statistic("a").digest(2)
