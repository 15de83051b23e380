"""Two rows have the same encoded id exactly if they are the same id, whatever their types."""

import datetime as dt
import unicodedata
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedboost.data.ids import ID_PART_BYTES_MAX, encode_ids, shared_ids
from fedboost.data.sources import IdFormat
from fedboost.ground.errors import DataError
from fedboost.ground.ids import EncodedIds

whole = st.integers(-(2**53) + 1, 2**53 - 1)
# What a file may hold: no lone surrogates, not blank, short.
texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12).filter(
    lambda text: bool(text.strip()) and bool(unicodedata.normalize("NFC", text).strip())
)


def column(cells, kind=None):
    return pa.chunked_array([pa.array(cells, type=kind)])


def encode(*columns):
    return list(encode_ids(columns, [f"part{place}" for place in range(len(columns))]))


def naive(*parts: int | float | str) -> bytes:
    """One id, part by part, as the module's first sentences say it."""
    encoded = b""
    for part in parts:
        if isinstance(part, str):
            # Arrow trims what Unicode calls white space.
            text = unicodedata.normalize("NFC", part).strip()
            digits = text.removesuffix(".0").removeprefix("-")
            plain = digits == "0" or (digits[:1] not in ("0", "") and digits.isascii())
            if plain and digits.isdigit():
                text = str(int(text.removesuffix(".0")))
        else:
            text = str(int(part))
        encoded += len(text.encode()).to_bytes(4, "big") + text.encode()
    return encoded


@given(st.lists(whole, min_size=1, max_size=20))
def test_a_whole_number_is_one_id_as_integer_float_decimal_and_text(numbers):
    expected = [naive(number) for number in numbers]
    assert encode(column(numbers, pa.int64())) == expected
    assert encode(column([float(number) for number in numbers], pa.float64())) == expected
    assert encode(column([Decimal(number) for number in numbers], pa.decimal128(20, 2))) == expected
    assert encode(column([str(number) for number in numbers])) == expected
    assert encode(column([f" {number}.0 " for number in numbers])) == expected
    assert encode(column([str(n) for n in numbers]).dictionary_encode()) == expected


@given(st.lists(st.one_of(texts, whole.map(str)), min_size=1, max_size=20))
def test_text_ids_agree_with_the_naive_encoding(cells):
    # Python and Arrow may differ in what white space is beyond Unicode's own property.
    cells = [cell for cell in cells if not set(cell) & set("\x1c\x1d\x1e\x1f\x85\u200b")] or ["x"]
    assert encode(column(cells, pa.string())) == [naive(cell) for cell in cells]
    assert encode(column(cells, pa.large_string())) == [naive(cell) for cell in cells]


part = st.text(st.sampled_from("ab1.0\x00\x01é,|"), min_size=1, max_size=4)


@given(st.lists(st.tuples(part, part), min_size=2, max_size=30, unique=True))
def test_no_two_different_pairs_collide(pairs):
    left, right = zip(*pairs, strict=True)
    ids = encode(column(left), column(right))
    canonical = {(encode(column([a]))[0], encode(column([b]))[0]) for a, b in pairs}
    assert len(set(ids)) == len(canonical)


@given(st.lists(part, min_size=1, max_size=4), st.lists(part, min_size=1, max_size=4))
def test_ids_of_different_numbers_of_parts_differ(left, right):
    first, second = encode(*[column([p]) for p in left]), encode(*[column([p]) for p in right])
    same = [encode(column([p])) for p in left] == [encode(column([p])) for p in right]
    assert (first == second) == same


def test_leading_zeros_signs_and_other_spellings_stay_text():
    cells = ["17", "017", "+17", "17.00", "1e1", "-0", "0", "A", "a"]
    ids = encode(column(cells))
    assert len(set(ids)) == len(cells) - 1  # only -0 and 0 are the same
    assert ids[1] == b"\x00\x00\x00\x03017"


def test_composed_and_decomposed_letters_are_the_same_id():
    assert encode(column(["é"])) == encode(column(["e\u0301"]))


def test_dates_are_written_as_in_a_csv_file():
    day = dt.date(2024, 1, 31)
    assert encode(column([day])) == encode(column(["2024-01-31"]))
    assert encode(column([day], pa.date64())) == encode(column(["2024-01-31"]))


def refusal(cells, kind=None):
    with pytest.raises(DataError) as caught:
        encode(column(cells, kind))
    assert caught.value.where["column"] == "part0"
    assert caught.value.todo
    return caught.value.what


@pytest.mark.parametrize("cells", [["a", None, " "], [1.0, np.nan, None]])
def test_missing_ids_are_counted(cells):
    assert refusal(cells) == "2 of 3 rows have no id"


def test_an_empty_column_has_no_ids():
    assert refusal([None, None]) == "2 of 2 rows have no id"


@pytest.mark.parametrize(
    ("cells", "kind"),
    [
        ([1.5, 2.0], pa.float64()),
        ([float("inf"), 2.0], pa.float64()),
        ([2.0**53, 1.0], pa.float64()),
        ([2.0**24, 1.0], pa.float32()),
    ],
)
def test_floats_that_do_not_count_exactly_are_no_ids(cells, kind):
    assert refusal(cells, kind) == (
        f"1 of 2 ids in a column of type {kind} are not whole numbers that it holds exactly"
    )


def test_decimals_with_a_fraction_are_no_ids():
    assert "are not whole numbers" in refusal([Decimal("1.5")])


@pytest.mark.parametrize(
    ("cells", "kind"),
    [([True], "bool"), ([dt.datetime(2024, 1, 1)], "timestamp[us]"), ([b"a"], "binary")],
)
def test_types_that_name_nothing_are_refused(cells, kind):
    assert refusal(cells) == f"a column of type {kind} cannot hold ids"


def test_an_id_has_a_longest_length():
    assert encode(column(["x" * ID_PART_BYTES_MAX]))
    assert refusal(["x" * (ID_PART_BYTES_MAX + 1)]) == "1 of 1 ids are longer than 1024 bytes"


@given(st.lists(st.sampled_from([b"a", b"b", b"c", b"d"]), max_size=12))
def test_shared_ids_counts_rows_and_ids(ids):
    rows = sum(ids.count(row) > 1 for row in ids)
    assert shared_ids(EncodedIds.of(ids)) == (rows, sum(ids.count(row) > 1 for row in set(ids)))


spellings = st.text("aA0-+.é\u00a0 \t1", max_size=6)


def cells_as(cell, how):
    """A cell's text in another spelling."""
    text = naive(cell)[4:].decode()
    if how.strip:
        text = "".join(text.split())
    text = text.lower() if how.lower else text
    return text.zfill(how.zfill) if how.zfill and text else text


@given(
    st.lists(spellings.filter(lambda cell: cell.strip()), min_size=1, max_size=20),
    st.builds(IdFormat, strip=st.booleans(), lower=st.booleans(), zfill=st.sampled_from([0, 1, 5])),
)
def test_a_spelling_is_pythons(cells, how):
    found = encode_ids([column(cells, pa.large_string())], ["id"], how)
    expected = [cells_as(cell, how).encode() for cell in cells]
    assert list(found) == [len(text).to_bytes(4, "big") + text for text in expected]


def test_ids_are_read_from_pieces_of_a_column_as_from_the_whole():
    cells = pa.array(["a", "b", "", "cc", "d"], pa.large_string())
    pieces = pa.chunked_array([cells.slice(0, 2), cells.slice(3, 1), cells.slice(4), cells[:0]])
    assert list(encode_ids([pieces], ["id"])) == encode(column(["a", "b", "cc", "d"]))
    assert list(encode_ids([pieces[1:3]], ["id"])) == encode(column(["b", "cc"]))
    assert not len(encode_ids([pieces[:0]], ["id"]))
