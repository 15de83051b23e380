"""Ids in one buffer do what lists of them do."""

import hashlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedboost.ground.hashes import sha256_each
from fedboost.ground.ids import IDS_AT_ONCE, INSERTION_SORT_MAX, EncodedIds, frame_ids

# Short ones of few letters, which are equal or begin alike; and ones of several words.
some_ids = st.lists(
    st.one_of(
        st.text("ab\0", max_size=3).map(str.encode),
        st.binary(max_size=40),
        st.integers(0, 99).map(b"begins alike, and is long: %02d".__mod__),
    ),
    max_size=3 * int(INSERTION_SORT_MAX),
)


def places_in(some, wanted):
    return [some.index(one) if one in some else -1 for one in wanted]


@given(some_ids)
def test_they_are_a_sequence_of_bytes(ids):
    encoded = EncodedIds.of(ids)
    assert list(encoded) == ids
    assert [encoded[row] for row in range(len(encoded))] == ids
    assert encoded[-1:] == EncodedIds.of(ids[-1:])
    assert encoded[3:1] == EncodedIds.of([])
    assert list(encoded[1::2]) == ids[1::2]
    assert (encoded == EncodedIds.of([*ids, b""])) is False


@given(some_ids, st.randoms())
def test_rows_are_taken_as_from_a_list(ids, random):
    rows = [random.randrange(len(ids)) for _ in ids]
    assert list(EncodedIds.of(ids).take(np.array(rows, np.int64))) == [ids[row] for row in rows]


def test_a_row_that_is_not_there_is_not_taken():
    encoded = EncodedIds.of([b"a", b"b"])
    with pytest.raises(IndexError):
        encoded.take(np.array([2]))
    with pytest.raises(IndexError):
        encoded[2]


@given(some_ids)
def test_the_order_is_that_of_their_bytes_and_equal_ones_stay(ids):
    assert EncodedIds.of(ids).order().tolist() == sorted(range(len(ids)), key=ids.__getitem__)


def test_thousands_are_in_order_whether_alike_for_long_or_not():
    draw = np.random.default_rng(3)
    ids = [b"%s%d" % (b"x" * size, n) for size, n in draw.integers(0, 60, (5000, 2)).tolist()]
    ids += [draw.bytes(12) for _ in range(5000)]
    assert EncodedIds.of(ids).order().tolist() == sorted(range(len(ids)), key=ids.__getitem__)


@given(some_ids, some_ids)
def test_an_id_is_found_where_it_stands_first(ids, wanted):
    assert EncodedIds.of(ids).find(EncodedIds.of(wanted)).tolist() == places_in(ids, wanted)
    assert EncodedIds.of(ids).first().tolist() == places_in(ids, ids)


@given(st.lists(st.tuples(st.binary(max_size=9), st.binary(max_size=300)), max_size=20))
def test_parts_are_framed_by_their_lengths(rows):
    parts = [EncodedIds.of(part) for part in zip(*rows, strict=True)] or [EncodedIds.of([])]
    for end in ("big", "little"):
        expected = [b"".join(len(p).to_bytes(4, end) + p for p in row) for row in rows]
        assert list(frame_ids(*parts, little_endian=end == "little")) == expected


def test_blocks_are_all_of_them():
    ids = EncodedIds.of(b"%d" % n for n in range(IDS_AT_ONCE + 5))
    assert [len(some) for some in ids.blocks()] == [IDS_AT_ONCE, 5]
    assert [one for some in ids.blocks() for one in some] == list(ids)


def test_neither_their_text_nor_their_bytes_can_be_had_by_accident():
    ids = EncodedIds.of([b"secret"])
    assert repr(ids) == "EncodedIds(1)"
    with pytest.raises(ValueError, match="read-only"):
        ids.data[0] = 0


@pytest.mark.parametrize("size", [0, 1, 27, 55, 56, 63, 64, 65, 128, 200])
def test_sha256_is_that_of_hashlib_for_all_lengths(size):
    prefix = bytes(range(size))
    rows = [bytes(range(256)) * 2 for _ in range(300)]
    rows = [row[:length] for length, row in enumerate(rows)]
    np.random.default_rng(size).shuffle(rows)  # so that a register holds all lengths
    found = sha256_each(prefix, EncodedIds.of(rows))
    assert [row.tobytes() for row in found] == [
        hashlib.sha256(prefix + row).digest() for row in rows
    ]
