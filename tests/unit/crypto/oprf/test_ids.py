"""Digests of ids by part, beside what a naive reader makes of them."""

import pytest

from fedboost.crypto.oprf.ids import IdDigests
from fedboost.ground.errors import PeerError
from fedboost.ground.ids import EncodedIds
from fedboost.ground.workers import Serial
from tests.support.oprf_pairs import naive_digest, numbered

KEY = bytes(range(32))


def made(ids, bins, workers=None):
    return IdDigests(EncodedIds.of(ids), KEY, bins, workers or Serial())


def words(digest):
    return [int.from_bytes(digest[at : at + 4], "little") for at in range(0, 32, 4)]


def test_parts_places_masks_and_values_are_those_of_the_digests():
    ids, bins, segment = numbered(range(2000)), 7, 123
    own = made(ids, bins)
    seen = []
    for b in range(bins):
        part = own.part(b, 2000)
        keys, values = part.keys(segment), part.values()
        for k, row in enumerate(part.rows.tolist()):
            w = words(naive_digest(KEY, ids[row]))
            assert part.digests[k].tolist() == w
            assert w[0] * bins >> 32 == b
            places = [j * segment + ((w[1 + j] >> 8) * segment >> 24) for j in range(3)]
            assert keys.places[k].tolist() == places
            assert keys.masks[k] == w[4] | w[5] << 32
            assert values[k].tolist() == [w[6] | w[7] << 32, w[1] & 0xFF | (w[2] & 0xF) << 8]
        assert keys.sparse_rows == 3 * segment
        first = [words(digest.tobytes())[1] >> 24 for digest in part.digests]
        assert first == sorted(first)
        seen.extend(part.rows.tolist())
    assert sorted(seen) == list(range(2000))


def test_many_blocks_are_hashed_as_one():
    class Four(Serial):
        count = 4

    ids = numbered(range(70_000))
    for b in range(2):
        several, one = (made(ids, 2, workers).part(b, 70_000) for workers in (Four(), None))
        assert (several.rows == one.rows).all()
        assert (several.digests == one.digests).all()


@pytest.mark.parametrize("bins", [1, 3])
def test_a_party_without_ids_has_empty_parts(bins):
    own = made([], bins)
    assert len(own) == 0
    assert [len(own.part(b, 0).rows) for b in range(bins)] == [0] * bins
    assert len(own.part(0, 0).keys(8)) == 0
    assert not len(own.sample(1.0))


def test_more_ids_than_a_part_holds_are_refused_without_their_number():
    own = made(numbered(range(100)), 1)
    own.part(0, 100)
    with pytest.raises(PeerError, match="more ids fall into a part") as error:
        own.part(0, 99)
    assert "100" not in str(error.value)


def test_samples_agree_about_the_ids_that_both_hold():
    ours, theirs = numbered(range(4000)), numbered(range(1000, 9000))
    samples = [{ids[row] for row in made(ids, 1).sample(0.1)} for ids in (ours, theirs)]
    common = set(ours) & set(theirs)
    assert samples[0] & common == samples[1] & common
    assert 250 < len(samples[0] & common) < 350
    assert len(made(ours, 1).sample(1.0)) == 4000
