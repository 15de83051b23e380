"""Can each of the invariants fail? What one run left is spoilt, a little each time."""

import re
from dataclasses import replace

import numpy as np
import pytest

from fedboost.flow import Artefact
from fedboost.messages.exchange_pb2 import Envelope, Parcel
from tests.faults.grounds import ground
from tests.support.invariants import BrokenError, check
from tests.support.toys import PARTIES, SIZES

BANK, TELCO, _ = PARTIES


@pytest.fixture(scope="module", params=["vertical", "horizontal"])
def own(request):
    """A toy's ground; its undisturbed job keeps all six."""
    found = ground(request.param)
    check(found.toy, found.whole, found.whole)
    return found


def broken(own, name, left):
    with pytest.raises(BrokenError, match=f"^{name}: ") as error:
        check(own.toy, left, own.whole)
    return str(error.value)


def spoilt(left, array, change):
    shard = left.shards[BANK]
    arrays = {**shard.arrays, array: change(shard.arrays[array])}
    return {**left.shards, BANK: Artefact(shard.facts, arrays)}


@pytest.mark.some(1)
def test_another_model_is_noticed(own):
    left = replace(own.whole, shards=spoilt(own.whole, "value", lambda v: v + 1e-12))
    assert BANK in broken(own, "I1", left)


def test_more_than_a_layer_grown_again_in_an_attempt_is_noticed():
    found = ground("horizontal")
    for attempts, again, holds in [(1, 1, False), (2, 1, True), (2, 2, False), (3, 2, True)]:
        left = replace(found.whole, attempts=attempts, layers=found.whole.layers + again)
        if holds:
            check(found.toy, left, found.whole)
        else:
            with pytest.raises(BrokenError, match=r"^lost work: "):
                check(found.toy, left, found.whole)


@pytest.mark.some(1)
def test_another_result_is_noticed(own):
    left = replace(own.whole, result={**own.whole.result, "trees": 2})
    assert "trees" in broken(own, "I1", left)


@pytest.mark.parametrize(("rows", "digits"), [(-SIZES[1], "[1, 0, 1, 0]"), (SIZES[1], "[1, 2, 1")])
def test_rows_that_are_missing_or_there_twice_are_noticed(rows, digits):
    found = ground("horizontal")
    shards = spoilt(found.whole, "cover", lambda cover: cover + np.float64(rows))
    spoilt_whole = replace(found.whole, shards=shards)
    with pytest.raises(BrokenError, match=f"^I2: tree 0 has the digits {re.escape(digits)}"):
        check(found.toy, spoilt_whole, spoilt_whole)


def test_two_messages_in_one_place_are_noticed(own):
    trip = next(t for t in own.whole.trips if t.method == "Post" and t.envelope.job)
    parcel = Parcel.FromString(trip.pieces[0])
    parcel.envelope.payload_sha256 = bytes(32)
    envelope = Envelope.FromString(parcel.envelope.SerializeToString())
    other = replace(trip, pieces=(parcel.SerializeToString(),), envelope=envelope)
    broken(own, "I3", replace(own.whole, trips=[*own.whole.trips, other]))


def test_a_mask_used_twice_is_noticed(own):
    broken(own, "I3", replace(own.whole, masks_twice=1))


def test_a_chain_that_is_broken_is_noticed(own):
    broken(own, "I4", replace(own.whole, broken=["bank: row 3 was changed"]))


@pytest.mark.parametrize("direction", ["in", "out"])
def test_a_message_in_one_ledger_only_is_noticed(own, direction):
    rows = own.whole.ledgers[TELCO]
    gone = next(row for row in rows if row.direction == direction)
    ledgers = {**own.whole.ledgers, TELCO: [row for row in rows if row is not gone]}
    broken(own, "I4", replace(own.whole, ledgers=ledgers))


@pytest.mark.parametrize(
    "change",
    [
        {"state": "paused"},
        {"seconds": 1e6},
        {"errors": ["a call failed unexpectedly"]},
        {"left": ["thread"]},
        {"files": {}},
    ],
    ids=str,
)
def test_a_job_that_does_not_end_or_leaves_something_is_noticed(own, change):
    broken(own, "I5", replace(own.whole, **change))


def test_a_message_too_many_is_noticed_though_both_ledgers_have_it(own):
    ledgers = {party: list(rows) for party, rows in own.whole.ledgers.items()}
    told = next(r for r in ledgers[TELCO] if r.direction == "out" and r.peer == BANK)
    heard = next(r for r in ledgers[BANK] if r.direction == "in" and r.sha256 == told.sha256)
    ledgers[TELCO].append(told)
    ledgers[BANK].append(heard)
    left = replace(own.whole, ledgers=ledgers)
    broken(own, "I6", left)
    broken(own, "I6", replace(left, attempts=1, ledgers={**ledgers}))


def test_a_resumed_job_may_tell_again_and_not_more_often(own):
    ledgers = {
        party: [row for row in rows for _ in range(2)] for party, rows in own.whole.ledgers.items()
    }
    check(own.toy, replace(own.whole, attempts=2, ledgers=ledgers), own.whole)
    thrice = {party: rows + rows[::2] for party, rows in ledgers.items()}
    broken(own, "I6", replace(own.whole, attempts=2, ledgers=thrice))
