"""Keyed digests name rows to whoever has them, and tell whether two keep the same."""

import hmac

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedboost.crypto.id_digests import (
    ID_DIGEST_BYTES,
    ID_KEY_BYTES,
    digest_of_all,
    digests,
    fresh_key,
    named_rows,
)
from fedboost.ground.errors import PeerError
from fedboost.ground.ids import EncodedIds

KEY = bytes(range(ID_KEY_BYTES))
IDS = [b"%03d" % i for i in range(20)]
some_ids = st.lists(st.binary(max_size=6), unique=True, max_size=12)


def test_a_digest_is_the_head_of_an_hmac():
    found = digests(EncodedIds.of(IDS), KEY)
    assert found.shape == (len(IDS), ID_DIGEST_BYTES)
    assert found.tobytes() == naive_names(IDS)


def naive_names(ids):
    """The names of some ids, one after the other."""
    return b"".join([hmac.digest(KEY, row, "sha256")[:ID_DIGEST_BYTES] for row in ids])


def test_every_use_has_a_key_of_its_own():
    keys = {fresh_key() for _ in range(8)}
    assert len(keys) == 8
    assert {len(key) for key in keys} == {ID_KEY_BYTES}


@given(some_ids, st.randoms())
def test_a_party_finds_the_rows_that_are_named_in_whatever_order(ids, random):
    wanted = random.sample(ids, random.randint(0, len(ids)))
    rows = named_rows(EncodedIds.of(ids), KEY, len(wanted), naive_names(wanted))
    assert rows.dtype == np.int64
    assert [ids[row] for row in rows] == [row for row in ids if row in set(wanted)]


NAMED = naive_names(IDS[3:6])


@pytest.mark.parametrize(
    ("count", "data"),
    [
        (3, NAMED[:-1]),
        (3, NAMED + b"\0"),
        (4, NAMED),
        (2, NAMED),
        (3, NAMED[:32] + NAMED[:16]),
        (4, NAMED + NAMED[:16]),
        (3, NAMED[:32] + bytes(16)),
        (1 << 60, NAMED),
        (0, NAMED),
        (1, b""),
    ],
)
def test_names_that_are_not_as_many_different_rows_of_ours_are_refused(count, data):
    with pytest.raises(PeerError, match=f"named {count} common ids; "):
        named_rows(EncodedIds.of(IDS), KEY, count, data)


@pytest.mark.parametrize("key", [b"", KEY[:-1], KEY + b"\0"])
def test_a_key_of_another_size_is_refused(key):
    with pytest.raises(PeerError, match=f"a key of {len(key)} bytes"):
        named_rows(EncodedIds.of(IDS), key, 3, NAMED)


def test_nothing_may_be_named():
    assert named_rows(EncodedIds.of(IDS), KEY, 0, b"").tolist() == []
    assert digest_of_all(EncodedIds.of([]), KEY) == hmac.digest(KEY, b"", "sha256")


@given(some_ids)
def test_the_digest_of_all_is_an_hmac_of_each_behind_its_length(ids):
    text = b"".join([len(row).to_bytes(4, "big") + row for row in ids])
    assert digest_of_all(EncodedIds.of(ids), KEY) == hmac.digest(KEY, text, "sha256")
    some = np.arange(len(ids))[::-2].copy()
    of_some = digest_of_all(EncodedIds.of(ids), KEY, some)
    assert of_some == digest_of_all(EncodedIds.of(ids).take(some), KEY)


@pytest.mark.parametrize(
    "other", [IDS[::-1], IDS[:-1], [], [IDS[0] + IDS[1], *IDS[2:]], [b"", *IDS]]
)
def test_digests_of_other_rows_or_another_order_differ(other):
    own = EncodedIds.of(IDS)
    assert digest_of_all(EncodedIds.of(other), KEY) != digest_of_all(own, KEY)
    assert digest_of_all(own, KEY[::-1]) != digest_of_all(own, KEY)
