"""Every table that does not fit the job is refused once, in words every party may read."""

import datetime as dt
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csc_array

from fedboost.data.columns import read_numbers, typed_column
from fedboost.data.features import feature_matrix
from fedboost.data.frame import Frame
from fedboost.data.ids import encode_ids
from fedboost.data.loading import frame_of, load_frame
from fedboost.data.reading import read_sheet, read_table
from fedboost.data.selection import Selection
from fedboost.data.sheet import Sheet
from fedboost.data.sources import SourceSpec
from fedboost.ground.errors import ConfigError, DataError
from fedboost.ground.settings import parse_settings

SECRET = "7654321"  # a cell that no error may show


@pytest.fixture
def table_file(tmp_path):
    """A function from columns to a parquet file that holds them."""

    def write(**columns: Any) -> SourceSpec:
        pq.write_table(pa.table(columns), tmp_path / "t.parquet")
        return SourceSpec(path=str(tmp_path / "t.parquet"))

    return write


@pytest.fixture
def csv_file(tmp_path):
    def write(text: str) -> SourceSpec:
        (tmp_path / "t.csv").write_text(text)
        return SourceSpec(path=str(tmp_path / "t.csv"))

    return write


def refusal(source, selection=None, *, needs_label=False):
    with pytest.raises((ConfigError, DataError)) as caught:
        load_frame(source, selection or Selection(), party="bank", needs_label=needs_label)
    error = caught.value
    assert error.where["party"] == "bank"
    assert error.todo
    assert error.exit_code == 2
    assert SECRET not in "".join(error.lines())
    if isinstance(error, DataError):
        assert list(error.where)[:2] == ["party", "file"]
    return error


# --- what a job may say ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        ({"id": []}, "id"),
        ({"id": ["a", "a"]}, "'id' names a column twice"),
        ({"columns": ["a", "a"]}, "'columns' names a column twice"),
        ({"label": "id"}, "column 'id' is named in 'id' and in 'label'"),
        ({"label": "y", "columns": ["y"]}, "column 'y' is named in 'label' and in 'columns'"),
        ({"columns": ["a"], "ignore": ["a"]}, "column 'a' is named in 'columns' and in 'ignore'"),
        ({"categorical": ["a", "a"]}, "'categorical' names a column twice"),
        ({"categorical": ["id"]}, "column 'id' is named in 'id' and in 'categorical'"),
        (
            {"label": "y", "categorical": ["y"]},
            "column 'y' is named in 'label' and in 'categorical'",
        ),
        (
            {"weight": "w", "categorical": ["w"]},
            "column 'w' is named in 'weight' and in 'categorical'",
        ),
        (
            {"ignore": ["a"], "categorical": ["a"]},
            "column 'a' is named in 'ignore' and in 'categorical'",
        ),
        (
            {"columns": ["a"], "categorical": ["a", "b"]},
            "column 'b' is named in 'categorical' and not in 'columns'",
        ),
        ({"lable": "y"}, "unknown key 'lable'"),
        ({"id": "id"}, "id: Input should be a valid list"),
    ],
)
def test_a_selection_that_contradicts_itself_is_refused(raw, said):
    with pytest.raises(ConfigError, match=said):
        parse_settings(Selection, raw)


def test_the_sample_of_the_interface_is_a_selection():
    chosen = parse_settings(Selection, {"dataset": "credit", "id": ["id"], "label": "y"})
    assert (chosen.dataset, chosen.id, chosen.label) == ("credit", ["id"], "y")
    assert parse_settings(Selection, {"dataset": "credit"}).id == ["id"]


# --- what is read ---------------------------------------------------------------------------


def test_columns_become_float32_features_and_ids_and_labels_do_not(table_file):
    source = table_file(
        id=["a", "b", "c"],
        y=[True, False, True],
        whole=pa.array([1, None, 3], pa.int8()),
        flag=[None, True, False],
        money=[Decimal("1.50"), Decimal("-2.25"), None],
        coded=pa.array(["1.5", "NA", "-2e3"]).dictionary_encode(),
        half=pa.array(np.array([1, 2, 3], dtype=np.float16)),
        empty=pa.nulls(3),
        constant=[7.0, 7.0, 7.0],
        note=["x", "y", "z"],
    )
    frame = load_frame(
        source, Selection(label="y", ignore=["note"]), party="bank", needs_label=True
    )
    assert frame.columns == ("whole", "flag", "money", "coded", "half", "empty", "constant")
    assert frame.values.dtype == np.float32
    assert frame.values.flags.f_contiguous
    nan = np.nan
    expected = [
        [1, nan, 1.5, 1.5, 1, nan, 7],
        [nan, 1, -2.25, nan, 2, nan, 7],
        [3, 0, nan, -2000, 3, nan, 7],
    ]
    np.testing.assert_array_equal(frame.values, np.array(expected, dtype=np.float32))
    assert frame.label is not None
    assert frame.label.tolist() == [1.0, 0.0, 1.0]
    assert frame.label.dtype == np.float64
    assert frame.ids == encode_ids([pa.chunked_array([["a", "b", "c"]])], ["id"])
    assert frame.id_columns == ("id",)
    assert frame.notes == ()


def test_csv_and_parquet_give_the_same_frame(csv_file, table_file, tmp_path):
    rng = np.random.default_rng(3)
    columns = {
        "id": np.arange(50) * 3,
        "y": rng.integers(0, 2, 50),
        "a": rng.normal(size=50) * 1e3,
        "b": pa.array([None if n % 7 == 0 else n for n in range(50)]),
        "c": rng.integers(0, 2, 50).astype(bool),
    }
    selection = Selection(label="y")
    parquet = load_frame(table_file(**columns), selection, party="a", needs_label=True)
    pa_csv.write_csv(pa.table(columns), tmp_path / "t.csv")
    source = SourceSpec(path=str(tmp_path / "t.csv"))
    assert load_frame(source, selection, party="a", needs_label=True).digest() == parquet.digest()


def test_named_columns_come_in_the_order_named(table_file):
    source = table_file(id=[1], a=[1.0], b=[2.0], c=["text"])
    frame = load_frame(source, Selection(columns=["b", "a"]), party="x", needs_label=False)
    assert frame.columns == ("b", "a")
    assert frame.values.tolist() == [[2.0, 1.0]]


def test_several_id_columns_name_a_row_together(csv_file):
    source = csv_file("bank,account,a\n1,1,5\n1,2,6\n2,1,7\n")
    frame = load_frame(source, Selection(id=["bank", "account"]), party="x", needs_label=False)
    assert len(set(frame.ids)) == 3
    assert frame.columns == ("a",)


def test_an_index_that_pandas_stored_is_no_feature(table_file):
    source = table_file(id=[1, 2], a=[1.0, 2.0], __index_level_0__=[0, 1])
    assert load_frame(source, Selection(), party="x", needs_label=False).columns == ("a",)


def test_a_guest_may_have_a_label_and_no_features(table_file):
    source = table_file(id=[1, 2], y=[0, 1])
    frame = load_frame(source, Selection(label="y"), party="x", needs_label=True)
    assert frame.values.shape == (2, 0)


def test_rounded_whole_numbers_are_noted_not_refused(table_file):
    source = table_file(id=[1, 2, 3], a=[2**24 + 1, 2**25, 5], b=[2**24 + 0.5, 1e30, 1.0])
    frame = load_frame(source, Selection(), party="x", needs_label=False)
    assert frame.values[0, 0] == 2**24
    assert frame.notes == (
        "column a: whole numbers beyond 2^24 were rounded to 32-bit floats",
        "column b: whole numbers beyond 2^24 were rounded to 32-bit floats",
    )


# --- what is refused ------------------------------------------------------------------------


def test_a_guest_without_label_in_the_job_is_refused(table_file):
    error = refusal(table_file(id=[1], a=[1.0]), needs_label=True)
    assert isinstance(error, ConfigError)
    assert error.lines() == [
        "the job names no label",
        "where: party bank",
        "to do: add 'label' to data: bank:",
    ]


def test_an_absent_file_names_party_and_file(tmp_path):
    error = refusal(SourceSpec(path=str(tmp_path / "no.parquet")))
    assert error.lines() == [
        "cannot read the file: No such file or directory",
        "where: party bank, file no.parquet",
        "to do: check the path and its read permissions",
    ]


@pytest.mark.parametrize(
    ("selection", "what", "todo"),
    [
        (Selection(id=["ID"]), "the table has no id column 'ID'", "did you mean 'id'?"),
        (
            Selection(label="label"),
            "the table has no label column 'label'",
            "see its columns with: fedboost data check FILE",
        ),
        (
            Selection(columns=["agee"]),
            "the table has no feature column 'agee'",
            "did you mean 'age'?",
        ),
        (
            Selection(categorical=["aeg"]),
            "the table has no categorical column 'aeg'",
            "did you mean 'age'?",
        ),
        (Selection(ignore=["Age"]), "the table has no ignored column 'Age'", "did you mean 'age'?"),
    ],
)
def test_an_absent_column_is_refused_with_the_nearest_name(table_file, selection, what, todo):
    error = refusal(table_file(id=[1], y=[0], age=[1.0]), selection)
    assert (error.what, error.todo) == (what, todo)
    assert error.where["file"] == "t.parquet"


def test_shared_ids_are_counted_and_not_shown(table_file):
    error = refusal(table_file(id=[7654321, 7654321, 7654321, 2, 3, 3], a=[1.0] * 6))
    assert error.what == "5 of 6 rows share their id with another row (2 ids)"
    assert error.where["column"] == "id"


def test_missing_ids_are_counted(csv_file):
    error = refusal(csv_file("id,a\n1,2\n,3\nNA,4\n"))
    assert error.what == "2 of 3 rows have no id"


def test_a_host_without_features_is_refused(table_file):
    error = refusal(table_file(id=[1], y=[0]), Selection(label="y"))
    assert error.what == "no columns are left as features"
    assert refusal(table_file(id=[1], a=[0]), Selection(columns=[])).what == error.what
    assert refusal(table_file(id=[1], a=[0]), Selection(ignore=["a"])).what == error.what


@pytest.mark.parametrize(
    ("label", "what"),
    [
        ([0.0, None, float("nan")], "2 of 3 rows have no label"),
        ([0.0, float("inf"), 1.0], "1 of 3 rows have an infinite label"),
        (["0", "1", SECRET + "x"], "1 of 3 rows have a label that is not a number"),
        (["good", "bad", None], "the label is text"),
        ([dt.date(2024, 1, 1)] * 3, "the label holds values of type date"),
        ([[1]] * 3, "the label holds values of type list"),
    ],
)
def test_a_label_that_is_no_number_everywhere_is_refused(table_file, label, what):
    source = table_file(id=[1, 2, 3], y=label, a=[1.0, 2.0, 3.0])
    error = refusal(source, Selection(label="y"), needs_label=True)
    assert error.what == what
    assert error.where["column"] == "y"


@pytest.mark.parametrize(
    ("cells", "what"),
    [
        (["1", SECRET + "x", "?"], "columns that have cells that are not numbers: a (2 of 3 rows)"),
        (["x", None, "y"], "columns that are text, not numbers: a"),
        ([1.0, float("inf"), -float("inf")], "columns that have infinite values: a (2 of 3 rows)"),
        (["1e999", "1", "-Infinity"], "columns that have infinite values: a (2 of 3 rows)"),
        (
            [1.0, 3.5e38, -1e300],
            "columns that have values beyond what 32-bit floats hold (3.4e38): a (2 of 3 rows)",
        ),
        ([dt.date(2024, 1, 1)] * 3, "columns that hold dates: a"),
        ([dt.datetime(2024, 1, 1)] * 3, "columns that hold dates: a"),
        ([dt.time(1)] * 3, "columns that cannot become numbers: a (time)"),
        ([dt.timedelta(1)] * 3, "columns that cannot become numbers: a (duration)"),
        ([{"x": 1}] * 3, "columns that cannot become numbers: a (struct)"),
        (pa.array([[("k", 1)]] * 3, pa.map_(pa.string(), pa.int8())), "numbers: a (map)"),
        ([b"x"] * 3, "columns that cannot become numbers: a (binary)"),
        (
            [[1.0]] * 3,
            "columns that hold lists; only svmlight is read sparsely: a (list)",
        ),
    ],
)
def test_a_column_that_is_no_feature_is_refused(table_file, cells, what):
    source = table_file(id=[1, 2, 3], good=[1.0, 2.0, None], a=cells)
    error = refusal(source)
    assert error.what.endswith(what)
    assert error.where == {"party": "bank", "file": "t.parquet", "column": "a", "rows": "3"}
    frame = load_frame(source, Selection(ignore=["a"]), party="bank", needs_label=False)
    assert frame.columns == ("good",)


def test_all_columns_with_the_same_fault_are_named_at_once(table_file):
    text = {f"t{place}": ["x"] for place in range(7)}
    error = refusal(table_file(id=[1], a=[float("inf")], **text))
    assert error.what == "columns that are text, not numbers: t0, t1, t2, t3, t4 and 2 more"
    assert "'ignore'" in error.todo
    assert "'categorical'" in error.todo


def test_adult_needs_its_text_columns_ignored_or_named_as_categorical(data_file):
    source = SourceSpec(path=str(data_file("adult_train.parquet")))
    error = refusal(source, Selection(label="y"), needs_label=True)
    assert error.what == (
        "columns that are text, not numbers: workclass, education, marital-status, occupation, "
        "relationship and 3 more"
    )
    texts = ["workclass", "education", "marital-status", "occupation", "relationship", "race"]
    chosen = Selection(label="y", categorical=[*texts, "sex", "native-country"])
    frame = load_frame(source, chosen, party="bank", needs_label=True)
    assert len(frame.columns) == 14
    assert set(frame.categories) == {*chosen.categorical}
    assert frame.categories["sex"] == ("Female", "Male")


def test_sparse_reuters_is_refused_by_name(data_file):
    source = SourceSpec(path=str(data_file("reuters_moneyfx_test.parquet")))
    assert "only svmlight is read sparsely" in refusal(source, Selection(label="y")).what


def test_give_credit_keeps_its_missing_cells(data_file):
    source = SourceSpec(path=str(data_file("give_credit.parquet")))
    frame = load_frame(source, Selection(label="y"), party="bank", needs_label=True)
    assert frame.values.shape == (105044, 10)
    assert np.isnan(frame.values).sum() == 23569
    assert frame.label is not None
    assert abs(frame.label.mean() - 0.0662) < 1e-4


# --- sparse tables --------------------------------------------------------------------------


@pytest.fixture
def svm_file(tmp_path):
    def write(text: str) -> SourceSpec:
        (tmp_path / "t.svm").write_text(text)
        return SourceSpec(path=str(tmp_path / "t.svm"))

    return write


def dense_twin(frame: Frame) -> np.ndarray:
    assert isinstance(frame.values, csc_array)
    return np.asarray(frame.values.toarray())


def test_svmlight_stays_sparse_and_has_label_and_features(svm_file):
    source = svm_file("1 1:0.5 3:nan\n0 2:7\n1\n")
    frame = load_frame(source, Selection(label="y"), party="bank", needs_label=True)
    assert frame.columns == ("f1", "f2", "f3")
    assert frame.label is not None
    assert frame.label.tolist() == [1.0, 0.0, 1.0]
    assert frame.ids == encode_ids([pa.chunked_array([[1, 2, 3]])], ["id"])
    expected = np.array([[0.5, 0, np.nan], [0, 7, 0], [0, 0, 0]], dtype=np.float32)
    np.testing.assert_array_equal(dense_twin(frame), expected)


@pytest.mark.parametrize(
    "selection",
    [
        Selection(),  # then y is a feature like any other
        Selection(label="y"),
        Selection(label="y", ignore=["f2"]),
        Selection(columns=["f3", "f1"]),
        Selection(columns=["f3", "y", "f1"]),
        Selection(id=["f1"], label="f2", weight="y"),
    ],
    ids=repr,
)
def test_a_sparse_table_gives_what_its_dense_twin_gives(svm_file, selection):
    source = svm_file("1 1:5 2:1 3:16777217\n0 1:6 2:2 4:1e-60\n1 1:7 2:3 3:-2.5\n")
    sparse = frame_of(read_sheet(source), selection, needs_features=True)
    dense = frame_of(Sheet(read_table(source)), selection, needs_features=True)
    assert sparse.columns == dense.columns
    np.testing.assert_array_equal(dense_twin(sparse), dense.values)
    assert (sparse.ids, sparse.notes, sparse.id_columns) == (
        dense.ids,
        dense.notes,
        dense.id_columns,
    )
    for ours, theirs in ((sparse.label, dense.label), (sparse.weight, dense.weight)):
        assert (ours is None) == (theirs is None)
        if ours is not None:
            np.testing.assert_array_equal(ours, theirs)


def test_a_feature_that_no_sparse_row_reaches_is_a_column_of_zeros(svm_file):
    chosen = Selection(columns=["f9", "f2", "f0"], label="y")
    frame = load_frame(svm_file("1 2:3\n0 1:1\n"), chosen, party="bank", needs_label=True)
    assert dense_twin(frame).tolist() == [[0.0, 3.0, 0.0], [0.0, 0.0, 0.0]]


@pytest.mark.parametrize(
    "selection",
    [Selection(ignore=["f3"]), Selection(label="f3"), Selection(columns=["g1"])],
    ids=repr,
)
def test_other_columns_that_a_sparse_table_lacks_are_refused(svm_file, selection):
    assert refusal(svm_file("1 2:3\n"), selection).what.startswith("the table has no ")


def test_categorical_columns_of_a_sparse_table_are_refused(svm_file):
    error = refusal(svm_file("1 1:2 2:3\n"), Selection(label="y", categorical=["f1"]))
    assert isinstance(error, ConfigError)
    assert error.what == "a sparse table has no categorical columns"
    assert error.where == {"party": "bank", "file": "t.svm", "column": "f1"}
    assert "csv or parquet" in error.todo


@pytest.mark.parametrize("cells", ["1:inf 2:3", "1:3 2:-1e300", "1:1e999 2:inf"])
def test_sparse_values_that_are_no_features_are_refused_as_in_a_dense_table(svm_file, cells):
    source = svm_file(f"1 {cells}\n0 1:1\n")
    error = refusal(source, Selection(label="y"))
    with pytest.raises(DataError) as caught:
        frame_of(Sheet(read_table(source)), Selection(label="y"), needs_features=True)
    assert error.lines()[0] == caught.value.lines()[0]
    assert error.todo == caught.value.todo


def test_a_sparse_table_without_features_is_refused(svm_file):
    assert refusal(svm_file("1\n0\n"), Selection(label="y")).what.startswith("no columns are")


# --- numbers in text ------------------------------------------------------------------------

MISSING = {"", "NA", "N/A", "n/a", "#N/A", "<NA>", "NaN", "nan", "-nan", "NULL", "null"}
cells = st.one_of(
    st.none(),
    st.sampled_from(["", " NA ", "null", "inf", "-Infinity", "true", "1_0", "0x1", "1,5", "."]),
    st.integers(-(10**20), 10**20).map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.sampled_from(["+5", ".5", "5.", " 1e3 ", "1E-2", "1e", "--1", "१"]),
)


def naive_number(cell):
    """A cell as Python's float reads it, or None if it is no number as we write them."""
    text = (cell or "").strip()
    if text in MISSING:
        return np.nan
    if "_" in text or not text.isascii() or text.lower().startswith("nan"):
        return None
    try:
        return float(text)
    except ValueError:
        return None


@given(st.lists(cells, min_size=1, max_size=20))
def test_text_is_read_as_python_reads_numbers(column):
    words = [cell for cell in column if (cell or "").strip() not in MISSING]
    if all(word == "true" for word in words):
        return  # a column of booleans, tested above
    numbers = read_numbers(pa.chunked_array([pa.array(column, pa.string())]))
    expected = [naive_number(cell) for cell in column]
    assert numbers.text_cells == expected.count(None)
    np.testing.assert_array_equal(numbers.values, np.array(expected, dtype=np.float64))
    narrowed = typed_column(pa.chunked_array([pa.array(column, pa.string())]))
    if narrowed.type in (pa.int64(), pa.float64()):
        np.testing.assert_array_equal(read_numbers(narrowed).values, numbers.values)


@pytest.mark.parametrize(
    ("written", "kind"),
    [
        (["1", "-20", None], "int64"),
        (["1", "2.5"], "double"),
        (["True", "false", "NA"], "bool"),
        (["007", "1"], "string"),
        (["1", "x"], "string"),
        ([None, "NA"], "null"),
        (["1234567890123456789", "1"], "int64"),
    ],
)
def test_a_text_column_is_narrowed_to_what_its_cells_say(written, kind):
    assert str(typed_column(pa.chunked_array([pa.array(written, pa.string())])).type) == kind


def test_frame_of_reads_a_table_in_chunks():
    chunked = pa.concat_tables(
        [pa.table({"id": [1], "a": [1.0]}), pa.table({"id": [2], "a": [None]})],
        promote_options="permissive",
    )
    frame = frame_of(Sheet(chunked), Selection(), needs_features=True)
    assert frame.values[0, 0] == 1.0
    assert np.isnan(frame.values[1, 0])


def test_columns_are_let_go_as_they_become_features():
    table = pa.table({"a": [1.0, 2.0], "b": [3.0, None], "c": ["x", "y"]})
    columns = dict(zip(table.column_names, table.columns, strict=True))
    read = feature_matrix(columns, 2, ["b", "a"])
    assert [*columns] == ["c"]
    np.testing.assert_array_equal(read.values, [[3.0, 1.0], [np.nan, 2.0]])
