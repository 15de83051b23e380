"""Over whole jobs of every protocol the ledgers of all parties say the same, entry for entry."""

import pytest

from fedboost import protocols
from fedboost.runtime.ledger.signed_heads import shared_fields
from tests.faults.grounds import ground
from tests.support.invariants import check
from tests.support.toys import TOYS

# What a party writes of the people behind a kind of message that it sends: which facts it knows.
KNOWN = {
    "BlindedSet": {"rows"},
    "CommonDigests": {"rows"},
    "RowsDigest": {"rows"},
    "EncryptedGradients": {"rows"},
    "CandidateSums": {"rows", "groups"},
    "RowDivisions": {"rows", "groups", "smallest_group"},
    "BucketIds": {"rows", "groups", "smallest_group", "epsilon"},
    "BottomRows": {"rows", "groups", "smallest_group"},
    "SharedRows": {"rows"},
    "Questions": {"rows", "groups", "smallest_group"},
    "Directions": {"rows"},
    "BottomPlaces": {"rows"},
    "LeafPlaces": {"rows"},
}


@pytest.mark.some(2)
@pytest.mark.parametrize("toy", TOYS)
def test_the_ledgers_of_all_parties_agree_entry_for_entry(toy):
    own = ground(toy)
    check(own.toy, own.whole, own.whole)  # every chain and signature, too
    ledgers = own.whole.ledgers
    for party, rows in ledgers.items():
        for peer in ledgers.keys() - {party}:
            here = [shared_fields(party, row) for row in rows if row.peer == peer]
            there = [shared_fields(peer, row) for row in ledgers[peer] if row.peer == party]
            assert len(set(here)) == len(here)
            assert set(here) == set(there)


@pytest.mark.some(2)
@pytest.mark.parametrize("toy", TOYS)
def test_every_row_says_how_many_people_it_is_about_where_its_sender_knows(toy):
    own = ground(toy).whole
    for rows in own.ledgers.values():
        for row in (row for row in rows if row.direction == "out"):
            facts = ("rows", "groups", "smallest_group", "epsilon")
            known = {name for name in facts if getattr(row, name) is not None}
            expected = KNOWN.get(row.kind.rpartition(".")[2], known)
            is_further = row.part > 0 or row.rows == 0
            assert known == expected or (is_further and known <= expected), row.kind
            if row.smallest_group is not None:
                assert row.rows is not None
                assert 0 < row.smallest_group <= row.rows


def test_the_toys_are_of_every_protocol_that_trains_or_predicts():
    named = {toy.protocol for toy in TOYS.values()}
    assert named | {"align", "align-pairs", "echo"} == set(protocols.load_all())
