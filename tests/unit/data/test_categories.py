"""A category is what a cell says, whatever its type, its file's format and the other rows."""

import datetime as dt
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedboost.data import features
from fedboost.data.categories import canonical_text, codes_of, distinct_texts, refuse_many
from fedboost.data.columns import MISSING_WORDS
from fedboost.data.loading import frame_of, load_frame
from fedboost.data.selection import Selection
from fedboost.data.sheet import Sheet
from fedboost.data.sources import SourceSpec
from fedboost.ground.errors import DataError

SECRET = "7654321x"  # a cell that no error may show


def texts_of(cells, kind=None):
    """Per row its category, None where missing."""
    column = pa.chunked_array([pa.array(cells, kind)])
    codes = codes_of(distinct_texts(column))
    return [None if np.isnan(code) else codes.categories[int(code)] for code in codes.values]


def read(table: pa.Table, categorical):
    return frame_of(Sheet(table), Selection(categorical=categorical), needs_features=True)


@pytest.mark.parametrize(
    ("cells", "kind", "texts"),
    [
        ([17, -3, None], pa.int8(), ["17", "-3", None]),
        ([2**64 - 1, 0], pa.uint64(), ["18446744073709551615", "0"]),
        ([17.0, -0.0, 2.5, 1e20], pa.float64(), ["17", "0", "2.5", "100000000000000000000"]),
        ([0.1, float("nan"), 1e-7], pa.float32(), ["0.1", None, "1e-07"]),
        ([1.0, 0.5], pa.float16(), ["1", "0.5"]),
        ([float("inf"), -float("inf")], pa.float64(), ["inf", "-inf"]),
        ([True, False, None], pa.bool_(), ["true", "false", None]),
        ([Decimal("2.50"), Decimal("3.00")], pa.decimal128(9, 2), ["2.5", "3"]),
        ([Decimal("12345678901234567890.0")], pa.decimal128(30, 1), ["12345678901234567890"]),
        ([None, None], pa.null(), [None, None]),
        (["+17", "17.", "17.00", " 17 "], pa.string(), ["17"] * 4),
        (["-0", "-0.0", "1e-999"], pa.string(), ["0"] * 3),
        (["2.50", "2.5", "25e-1"], pa.large_string(), ["2.5"] * 3),
        (["007", "00.5", "7"], pa.string(), ["007", "00.5", "7"]),
        (["True", "FALSE", "truth"], pa.string_view(), ["true", "false", "truth"]),
        (["Infinity", "-INF", "info", "1e999"], pa.string(), ["inf", "-inf", "info", "1e999"]),
        (["Köln", "Ko\u0308ln", " Köln\t"], pa.string(), ["Köln"] * 3),
        (["1_0", "१", "1,5", "--1", "."], pa.string(), ["1_0", "१", "1,5", "--1", "."]),
        ([*MISSING_WORDS, " NA "], pa.string(), [None] * (len(MISSING_WORDS) + 1)),
    ],
)
def test_a_cell_is_written_canonically(cells, kind, texts):
    assert texts_of(cells, kind) == texts


def test_codes_follow_the_code_points_of_the_texts():
    codes = codes_of(
        distinct_texts(pa.chunked_array([["b", "a", None], ["é", "B", "a", "10", "9"]]))
    )
    assert codes.categories == ("10", "9", "B", "a", "b", "é")
    assert codes.values.dtype == np.float32
    np.testing.assert_array_equal(
        codes.values, np.array([4, 3, np.nan, 5, 2, 3, 0, 1]).astype(np.float32)
    )


def test_categories_come_beside_numbers():
    table = pa.table(
        {
            "id": [1, 2, 3],
            "age": [30.0, None, 41.0],
            "city": pa.array(["Ulm", None, "Bonn"]).dictionary_encode(),
            "branch": [7, 3, 7],
        }
    )
    frame = read(table, ["branch", "city"])
    assert frame.columns == ("age", "city", "branch")
    assert frame.categories == {"city": ("Bonn", "Ulm"), "branch": ("3", "7")}
    nan = np.nan
    expected = np.array([[30, 1, 1], [nan, nan, 0], [41, 0, 1]], dtype=np.float32)
    np.testing.assert_array_equal(frame.values, expected)
    assert "Ulm" not in f"{frame!r} {frame.notes}"


words = st.one_of(
    st.sampled_from(["1", "1.0", "01", "true", "True", "inf", "a b", "-0", "1e3", "é", "e\u0301"]),
    st.floats(allow_nan=False).map(repr),
    st.integers(-(10**20), 10**20).map(str),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
)


@given(words)
def test_a_canonical_text_is_its_own_canonical_text(text):
    assert canonical_text(canonical_text(text)) == canonical_text(text)


@given(st.lists(st.one_of(st.none(), words), min_size=1, max_size=12), st.randoms())
def test_the_order_and_company_of_rows_change_no_text(cells, random):
    alone = [texts_of([cell], pa.string())[0] for cell in cells]
    assert texts_of(cells, pa.string()) == alone
    column = pa.chunked_array([pa.array(cells, pa.string())])
    shuffled = random.sample(cells, len(cells))
    moved = pa.chunked_array([pa.array(shuffled, pa.string())])
    assert codes_of(distinct_texts(moved)).categories == codes_of(distinct_texts(column)).categories


numbers = st.one_of(
    st.tuples(st.just(pa.int64()), st.lists(st.integers(-(2**63), 2**63 - 1), min_size=2)),
    st.tuples(st.just(pa.bool_()), st.lists(st.booleans(), min_size=2)),
    st.tuples(st.just(pa.float64()), st.lists(st.floats(allow_nan=False), min_size=2)),
    st.tuples(st.just(pa.float32()), st.lists(st.floats(width=32), min_size=2)),
    st.tuples(
        st.just(pa.decimal128(38, 3)),
        st.lists(st.decimals(-(10**30), 10**30, places=3, allow_nan=False), min_size=2),
    ),
)


@given(numbers)
def test_csv_and_parquet_have_the_same_categories(tmp_path_factory, column):
    kind, cells = column
    folder = tmp_path_factory.mktemp("categories")
    table = pa.table({"id": range(len(cells)), "a": pa.array(cells, kind)})
    pq.write_table(table, folder / "t.parquet")
    pa_csv.write_csv(table, folder / "t.csv")
    frames = [
        load_frame(
            SourceSpec(path=str(folder / name)),
            Selection(categorical=["a"]),
            party="bank",
            needs_label=False,
        )
        for name in ("t.parquet", "t.csv")
    ]
    assert frames[0].categories == frames[1].categories
    assert frames[0].digest() == frames[1].digest()


@pytest.mark.parametrize(
    ("cells", "what"),
    [
        ([dt.date(2024, 1, 1)] * 2, "columns that hold dates: a"),
        ([{"x": 1}] * 2, "columns that cannot become numbers: a (struct)"),
        ([SECRET.encode()] * 2, "columns that cannot become numbers: a (binary)"),
        (
            [["x"]] * 2,
            "columns that hold lists; only svmlight is read sparsely: a (list)",
        ),
        (
            [SECRET * 200, "b"],
            "columns that have categories longer than 1024 bytes: a (1 of them)",
        ),
    ],
)
def test_a_column_without_categories_is_refused(cells, what):
    with pytest.raises(DataError) as caught:
        read(pa.table({"id": [1, 2], "a": cells}), ["a"])
    assert caught.value.what == what
    assert caught.value.todo
    assert SECRET not in "".join(caught.value.lines()) + caught.value.private


def test_too_many_categories_are_refused(monkeypatch):
    monkeypatch.setattr(features, "CATEGORIES_MAX", 2)
    assert read(pa.table({"id": [1, 2, 3], "a": ["x", "y", "x"]}), ["a"]).n_rows == 3
    with pytest.raises(DataError) as caught:
        read(pa.table({"id": [1, 2, 3], "a": [SECRET, "y", "z"]}), ["a"])
    assert caught.value.what.startswith("columns that have more than ")
    assert caught.value.what.endswith(" categories: a (3)")
    assert SECRET not in "".join(caught.value.lines())


# Too many of them


def many(count, write=str):
    return {"city": tuple(write(n) for n in range(count))}


@pytest.mark.parametrize(
    ("count", "n_rows", "max_bin"),
    [(33, 50, 32), (101, 1000, 32), (513, 10**6, 32), (65, 10**6, 4)],
)
def test_a_category_for_almost_each_row_is_refused(count, n_rows, max_bin):
    refuse_many(many(count - 1), n_rows, max_bin)
    with pytest.raises(DataError, match=f"'city' has {count} different values") as refused:
        refuse_many(many(count), n_rows, max_bin)
    assert refused.value.todo.startswith("group its values into ")
    assert "city" not in refused.value.redacted().what


@pytest.mark.parametrize(
    ("write", "todo"),
    [
        (lambda n: f"{n},5", 'decimal: ","'),
        (lambda n: f"2024-01-{1 + n % 28:02d} 00:{n // 28:02d}", "'dates' of the data set"),
    ],
)
def test_numbers_with_commas_and_dates_are_no_categories(write, todo):
    with pytest.raises(DataError) as refused:
        refuse_many(many(200, write), 200, 32)
    assert todo in refused.value.todo
