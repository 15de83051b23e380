"""Tables as programs have them: numpy, scipy, pandas, polars and Arrow, read as a party's own."""

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from scipy.sparse import coo_array, csc_array, csr_matrix, dok_array

from fedboost.ground.errors import DataError
from fedboost.sdk import labels, seats
from fedboost.sdk.tables import DeclaredTable, rows_of

NUMBERS = np.array([[1.0, np.nan], [2.5, -3.0], [0.0, 7.0]])


def frame(rows, categorical=()):
    return rows.frame(rows.names, categorical or rows.categorical)


def test_an_array_has_numbered_columns_and_no_categories():
    rows = rows_of(NUMBERS)
    assert (rows.names, rows.is_named, rows.categorical) == (("f0", "f1"), False, ())
    np.testing.assert_array_equal(frame(rows).values, NUMBERS.astype(np.float32))


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.int8, np.uint16, np.bool_, object])
def test_arrays_of_any_numbers_are_read(kind):
    given = np.array([[1, 0], [0, 1]]).astype(kind)
    np.testing.assert_array_equal(frame(rows_of(given)).values, [[1.0, 0.0], [0.0, 1.0]])


def test_data_frames_of_all_kinds_are_the_same_table():
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    plain = {"age": [20, 31, None], "town": ["b", "a", None]}
    arrow = pa.table({"age": plain["age"], "town": pa.array(plain["town"]).dictionary_encode()})
    coded = pandas.DataFrame(plain).astype({"town": "category"})
    columnar = polars.DataFrame(plain, schema_overrides={"town": polars.Categorical})
    found = [frame(rows_of(one)) for one in (arrow, coded, columnar)]
    for one in found:
        assert one.columns == ("age", "town")
        assert one.categories == {"town": ("a", "b")}
        np.testing.assert_array_equal(one.values, [[20, 1], [31, 0], [np.nan, np.nan]])


def test_a_sparse_table_stays_sparse_and_numbers_its_columns():
    for kind in (csr_matrix, coo_array, dok_array):
        rows = rows_of(kind(np.array([[0.0, 2.0, 0.0], [1.0, 0.0, 0.0]])))
        found = rows.select(["f2", "f1"]).frame(["f2", "f1"], ())
        assert isinstance(found.values, csc_array)
        np.testing.assert_array_equal(found.values.toarray(), [[0.0, 2.0], [0.0, 0.0]])


def test_a_pandas_index_is_a_column_by_its_name():
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame({"a": [1, 2]}, index=pandas.Index([7, 9], name="nr"))
    assert rows_of(table).column("nr").to_pylist() == [7, 9]
    assert rows_of(table.rename_axis(None)).column("index").to_pylist() == [7, 9]
    assert rows_of(table).names == ("a",)


def test_columns_of_pandas_are_named_by_texts():
    pandas = pytest.importorskip("pandas")
    rows = rows_of(pandas.DataFrame(NUMBERS, columns=["a", 0]))
    assert (rows.names, rows.is_named) == (("a", "0"), True)
    assert rows_of(pandas.DataFrame(NUMBERS)).names == ("0", "1")
    pairs = pandas.MultiIndex.from_tuples([("a", 1), ("a", 2)])
    assert rows_of(pandas.DataFrame(NUMBERS, columns=pairs)).names == ("a 1", "a 2")
    with pytest.raises(DataError, match="several columns of one name: 0"):
        rows_of(pandas.DataFrame(NUMBERS, columns=["0", 0]))


def test_a_series_is_a_table_of_one_column():
    pandas = pytest.importorskip("pandas")
    column = pandas.Series([1.0, 2.0], index=[5, 6])
    assert rows_of(column).names == ("f0",)
    named = rows_of(column.rename("age"))
    assert (named.names, named.n_rows) == (("age",), 2)
    assert named.column("index").to_pylist() == [5, 6]


def test_absent_entries_are_missing_and_written_zeros_are_zero():
    sparse = csc_array((np.array([0.0, 2.0]), ([0, 1], [0, 1])), shape=(2, 2))
    dense = rows_of(sparse).select(["f1", "f0"]).with_absent_missing()
    np.testing.assert_array_equal(
        dense.frame(["f1", "f0"], ()).values, [[np.nan, 0.0], [2.0, np.nan]]
    )


def test_a_sparse_table_too_large_for_missing_entries_is_refused():
    wide = replace(rows_of(csc_array((2, 1))), n_rows=1 << 29)
    with pytest.raises(DataError, match="536,870,912 cells"):
        wide.with_absent_missing()


def test_rows_below_one_another_find_their_columns_by_name():
    upper, lower = pa.table({"a": [1], "b": [2.5]}), pa.table({"b": [3], "a": [4.5]})
    both = rows_of(upper).with_rows_below(rows_of(lower))
    np.testing.assert_array_equal(frame(both).values, [[1, 2.5], [4.5, 3]])
    stacked = rows_of(csr_matrix(NUMBERS[:1])).with_rows_below(rows_of(csr_matrix(NUMBERS[1:])))
    np.testing.assert_array_equal(frame(stacked).values.toarray(), NUMBERS)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (np.zeros(3), "1 dimensions"),
        (np.zeros((0, 2)), r"0 sample\(s\)"),
        (np.zeros((2, 0)), r"0 feature\(s\)"),
        (np.zeros((2, 2), complex), "Complex data not supported"),
        ({"a": [1]}, "not a table"),
        (np.array([[{}, 1]], object), "not a number"),
        (csr_matrix(np.zeros((0, 2))), r"0 sample\(s\)"),
    ],
)
def test_what_is_no_table_is_refused_as_a_value_error(given, text):
    with pytest.raises(DataError, match=text) as refused:
        rows_of(given)
    assert isinstance(refused.value, ValueError)


@pytest.mark.some(3, of="processes of their own")
def test_importing_the_package_imports_no_kind_of_data_frame():
    code = "import sys, fedboost.sdk; sys.exit(len({'pandas', 'polars'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# Who has which table


def test_rows_belong_together_by_place_or_by_what_ids_names():
    tables = {"bank": NUMBERS, "telco": NUMBERS[:, :1]}
    found = seats.from_tables(tables, None)
    assert seats.partner_rows(found, "bank")["telco"].tolist() == [0, 1, 2]
    bank = pa.table({"nr": ["10", "11", "12"], "a": [1, 2, 3]})
    telco = pa.table({"b": [5, 6], "customer": [12, 10]})
    found = seats.from_tables({"bank": bank, "telco": telco}, {"bank": "nr", "telco": "customer"})
    assert found["telco"].rows.names == ("b",)
    assert seats.partner_rows(found, "bank")["telco"].tolist() == [1, -1, 0]


def test_data_frames_whose_indexes_differ_are_not_joined_by_place():
    pandas = pytest.importorskip("pandas")
    one = pandas.DataFrame({"a": [1, 2, 3]})
    found = seats.from_tables({"bank": one, "telco": one.sort_index(ascending=False)}, None)
    with pytest.raises(DataError, match="different indexes"):
        seats.partner_rows(found, "bank")
    found = seats.from_tables({"bank": one, "telco": one.sort_index(ascending=False)}, "index")
    assert seats.partner_rows(found, "bank")["telco"].tolist() == [2, 1, 0]


def test_a_column_of_another_library_is_a_table_if_it_has_a_name():
    polars = pytest.importorskip("polars")
    rows = rows_of(polars.Series("a", [1.5, 2.0]))
    assert (rows.names, rows.is_named) == (("a",), True)
    assert frame(rows).values.tolist() == [[1.5], [2.0]]
    with pytest.raises(ValueError, match="X has no columns: it is of the type ChunkedArray"):
        rows_of(pa.chunked_array([[1.5]]))


@pytest.mark.parametrize("given", [["a", "b", "c"], [5, 3, 4]])
def test_labels_with_the_rows_index_in_another_order_are_refused(given):
    pandas = pytest.importorskip("pandas")
    rows = rows_of(pandas.DataFrame({"x": [1.0, 2.0, 3.0]}, index=given))
    y = pandas.Series([0, 1, 1], index=given)
    with pytest.raises(ValueError, match="y has the index of X in another order") as refused:
        labels.check_order(y.iloc[[2, 0, 1]], rows.index, "y")
    assert "y.loc[X.index]" in str(refused.value)
    for other in (y, y.reset_index(drop=True), y.to_numpy(), y.tolist(), None):
        labels.check_order(other, rows.index, "y")
    labels.check_order(y, rows_of(NUMBERS).index, "y")


@pytest.mark.parametrize(
    ("tables", "ids", "text"),
    [
        ({"bank": NUMBERS, "telco": NUMBERS[:2]}, None, "telco has 2 rows and bank 3"),
        ({"bank": pa.table({"i": [1, 1]}), "telco": pa.table({"i": [1, 2]})}, "i", "share their"),
        ({"bank": pa.table({"i": [1]}), "telco": pa.table({"j": [1]})}, "i", "no column 'i'"),
        ({"Bank": NUMBERS, "telco": NUMBERS}, None, "'Bank' is no party's name"),
        ({"user": NUMBERS, "telco": NUMBERS}, None, "no party can be called 'user'"),
        ({"bank": NUMBERS, "telco": NUMBERS}, {"bank": "a"}, "no column 'a'"),
    ],
)
def test_tables_that_cannot_belong_together_are_refused(tables, ids, text):
    with pytest.raises(ValueError, match=text):
        seats.partner_rows(seats.from_tables(tables, ids), next(iter(tables)))


def test_a_single_table_is_dealt_by_columns_or_by_rows():
    assert seats.dealt_columns("abcde", 2) == {"guest": ["a", "b"], "host": ["c", "d", "e"]}
    assert seats.dealt_columns("a", 2) == {"guest": [], "host": ["a"]}
    said = {"bank": ["b"], "telco": None}
    assert seats.dealt_columns("abc", said) == {"bank": ["b"], "telco": ["a", "c"]}
    assert [rows.tolist() for rows in seats.dealt_rows(5, 2)] == [[0, 2, 4], [1, 3]]
    assert seats.names_of(3, horizontal=True) == ["party-1", "party-2", "party-3"]


@pytest.mark.parametrize(
    ("parties", "text"),
    [
        (1, "expected 2 to 64"),
        (["bank"], "names one party"),
        (5, "3 columns, but 4 hosts"),
        ({"bank": ["a"], "telco": ["b"]}, "1 columns of X belong to no party"),
        ({"bank": ["a"], "telco": ["z"]}, "a column 'z' that is not in X"),
        ({"bank": ["a", "b"], "telco": ["b", "c"]}, "a column to two parties"),
    ],
)
def test_parties_that_cannot_share_a_table_are_refused(parties, text):
    with pytest.raises(ValueError, match=text):
        seats.dealt_columns("abc", parties)


GERMAN = {
    "nr": ["7", "12", "103"],
    "income": ["1,5", "2.500,25", None],
    "since": ["31.01.2024", "01.02.2024", "29.02.2024"],
}


def test_a_declared_table_has_decimal_commas_dates_and_ids_as_its_owner_says():
    declared = DeclaredTable(pa.table(GERMAN), decimal=",", dates=["since"], id_format={"zfill": 3})
    found = seats.from_tables({"a": declared, "b": pa.table({"nr": ["007", "012", "103"]})}, "nr")
    assert found["a"].id_tokens == found["b"].id_tokens
    rows = found["a"].rows
    assert rows.names == ("income", "since", "since_month", "since_weekday")
    np.testing.assert_array_equal(
        frame(rows).values,
        np.array([[1.5, 19753, 1, 3], [2500.25, 19754, 2, 4], [np.nan, 19782, 2, 4]], np.float32),
    )


@pytest.mark.parametrize(
    ("declared", "text"),
    [
        ({"decimal": ";"}, "decimal: Input should be"),
        ({"id_format": {"upper": True}}, "unknown key 'id_format.upper'"),
    ],
)
def test_a_declaration_that_says_nothing_known_is_refused(declared, text):
    with pytest.raises(ValueError, match=text) as error:
        DeclaredTable(GERMAN, **declared)
    assert "to do: " in str(error.value)


def test_a_declared_date_that_is_none_is_refused():
    with pytest.raises(ValueError, match="'income', declared in 'dates', holds something else"):
        rows_of(DeclaredTable(pa.table(GERMAN), dates=["income"]))


@pytest.mark.parametrize("kind", ["object", "category", "boolean", "string"])
def test_missing_labels_are_counted_whatever_their_type(kind):
    pandas = pytest.importorskip("pandas")
    words = [True, False, True] if kind == "boolean" else ["yes", "no", "yes"]
    y = pandas.Series(words, dtype=kind).where([True, True, False])
    with pytest.raises(ValueError, match="1 of 3 labels are missing"):
        labels.label_column(y, 3, "X")


@pytest.mark.parametrize("kind", [">f8", ">f4", ">i4", ">u2", "<f8"])
def test_numbers_are_read_in_either_order_of_their_bytes(kind):
    pandas = pytest.importorskip("pandas")
    given = np.array([[1], [2]]).astype(kind)
    assert frame(rows_of(given)).values.tolist() == [[1.0], [2.0]]
    assert frame(rows_of(pandas.DataFrame({"a": given[:, 0]}))).values.tolist() == [[1.0], [2.0]]
