"""Which categories of a table does a model not know, and what sets their spelling apart?"""

import numpy as np
import pytest

from fedboost.data.frame import Frame
from fedboost.ground.errors import DataError
from fedboost.ground.ids import EncodedIds
from fedboost.model.unknown_categories import (
    RARE,
    UNKNOWN_MAX,
    UnknownCategories,
    category_counts,
    likely_cause,
    present_categories,
)

FACTS = {"categories": {"kind": ["basic", "gold"]}, RARE: {"kind": ["trial"]}}


def frame(cells, unlisted=0):
    """A table with the column `kind`."""
    texts = tuple(sorted({cell for cell in cells if cell is not None} | {"nobody"}))
    codes = [np.nan if cell is None else texts.index(cell) for cell in cells]
    values = np.asfortranarray(np.array(codes, np.float32)[:, None])
    ids = EncodedIds.of(f"{n}".encode() for n in range(len(cells)))
    left_out = {"kind": unlisted} if unlisted else {}
    known = {"kind": texts}
    return Frame(ids, values, ("kind",), None, ("id",), categories=known, unlisted=left_out)


def counted(*frames):
    unknown = UnknownCategories(FACTS)
    for one in frames:
        unknown.add(one)
    return unknown


def test_shares_are_of_values_and_rare_categories_are_known():
    unknown = counted(frame(["basic", "trial", None, None, "GOLD"]), frame(["gold", "Alien"]))
    assert unknown.shares == {"kind": 2 / 5}
    assert unknown.listed() == "kind (2 of 5 values)"
    assert unknown.warning("telco").startswith("telco: a column has categories that the model")
    assert counted(frame(["basic", None])).shares == {}
    assert counted(frame(["basic", None])).warning() == ""


def test_categories_that_a_reader_left_out_are_unknown():
    assert counted(frame(["basic", None, None, None], unlisted=3)).shares == {"kind": 3 / 4}


@pytest.mark.parametrize(("strange", "is_refused"), [(2, False), (3, True)])
def test_more_than_the_limit_is_refused_and_others_read_no_figure(strange, is_refused):
    unknown = counted(frame(["basic"] * (10 - strange) + ["Gold"] * strange))
    if not is_refused:
        unknown.check(UNKNOWN_MAX)
        return
    with pytest.raises(DataError) as refused:
        unknown.check(UNKNOWN_MAX)
    assert refused.value.what == (
        "3 of 10 values are categories that the model does not know; unknown_max allows 20 %"
    )
    assert refused.value.where == {"column": "kind"}
    quiet = str(refused.value.redacted())
    assert "more values than unknown_max allows are categories" in quiet
    assert not {"3 of 10", "kind"} & {*quiet.split(", ")}
    unknown.check(0.3)


@pytest.mark.parametrize(
    ("unknown", "known", "advice"),
    [
        ({"GOLD", "Basic"}, ["basic", "gold"], "write capital letters as"),
        ({"7", "12"}, ["007", "012"], "write leading zeros as"),
        ({"1", "0"}, ["false", "true"], "write true and false, not 1 and 0"),
        ({"true"}, ["0", "1"], "write 1 and 0, not true and false"),
        ({"Alien"}, ["basic", "gold"], "write categories as the training table did"),
        (set(), ["basic"], "write categories as the training table did"),
    ],
)
def test_an_advice_names_what_sets_the_spelling_apart(unknown, known, advice):
    assert likely_cause(unknown, known).startswith(advice)


def test_only_categories_that_rows_have_are_present(monkeypatch):
    monkeypatch.setattr("fedboost.model.unknown_categories.BATCH_ROWS", 2)
    given = frame(["gold", "basic", "gold", None, "gold"])
    assert category_counts(given, 0).tolist() == [1, 3, 0]
    assert present_categories(given) == {"kind": {"basic", "gold"}}
