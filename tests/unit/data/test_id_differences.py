"""Ids that one party writes otherwise than another: brought together, or at least explained."""

import numpy as np
import pyarrow as pa
import pytest

from fedboost.data import id_differences
from fedboost.data.id_differences import likely_cause
from fedboost.data.ids import encode_ids, parts_of
from fedboost.data.sources import IdFormat
from fedboost.ground.errors import DataError
from fedboost.ground.ids import EncodedIds


def ids(*cells, **how):
    return encode_ids([pa.chunked_array([list(cells)])], ["id"], IdFormat(**how))


@pytest.mark.parametrize(
    ("how", "one", "other"),
    [
        ({"zfill": 4}, [7, 1234], ["0007", "1234"]),
        ({"zfill": 4}, [-7, 12345], ["-007", "12345"]),
        ({"lower": True}, ["AB-1", "Ä"], ["ab-1", "ä"]),
        ({"strip": True}, ["AB 1\u00a02"], ["AB12"]),
        ({"strip": True, "lower": True, "zfill": 3}, [" A 1"], ["0a1"]),
    ],
)
def test_ids_of_another_spelling_become_the_same(how, one, other):
    assert ids(*one) != ids(*other)
    assert ids(*one, **how) == ids(*other)
    assert ids(*other, **how) == ids(*other)


def test_each_part_of_an_id_is_formatted():
    columns = [pa.chunked_array([["A", "B"]]), pa.chunked_array([[1, 2]])]
    found = encode_ids(columns, ["a", "b"], IdFormat(lower=True, zfill=2))
    assert [parts_of(one) for one in found] == [["0a", "01"], ["0b", "02"]]


def test_an_id_without_anything_but_blanks_has_none_left():
    with pytest.raises(DataError, match="1 of 2 rows have no id"):
        ids("a", "  ", strip=True)


def cause(matched, unmatched):
    found = EncodedIds.of([*ids(*matched), *ids(*unmatched)])
    return likely_cause(found, np.arange(len(found)) < len(matched))


@pytest.mark.parametrize(
    ("matched", "unmatched", "what", "key"),
    [
        (["100", "200"], ["007", "012"], "begin with a zero", "zfill: 3"),
        ([100, 200], [7, 12], "have fewer digits", "zfill: 3"),
        (["ab", "cd"], ["AB", "Ef"], "have capital letters", "lower: true"),
        (["a1", "b2"], ["a 1", "b 2"], "have blanks inside", "strip: true"),
        (["17", "18"], ["17.00", "1e3"], "are numbers written as text", "whole numbers"),
    ],
)
def test_the_spelling_that_only_unmatched_ids_have_is_named(matched, unmatched, what, key):
    found = cause(matched * 10, unmatched * 10)
    assert what in found
    assert key in found


def test_of_many_ids_some_are_looked_at_from_first_to_last(monkeypatch):
    read = []
    monkeypatch.setattr(id_differences, "LOOKED_AT", 50)

    def noted(one):
        read.append(one)
        return parts_of(one)

    monkeypatch.setattr(id_differences, "parts_of", noted)
    assert "have fewer digits" in cause([*range(100, 999)], [*range(100)])
    assert len(read) == 50
    assert read[-1] == ids(99)[0]


def test_nothing_is_named_where_matched_ids_look_alike():
    assert cause(["007", "AB"] * 10, ["008", "CD"] * 10) == ""
    assert cause(["007"], []) == ""
