"""A number that means missing: of features alone, whatever type their cells have."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedboost.data.loading import load_frame
from fedboost.data.selection import Selection
from fedboost.data.sources import SourceSpec
from fedboost.data.survey import survey_table
from fedboost.flow import Role
from fedboost.ground.errors import ConfigError, DataError, PolicyError
from fedboost.ground.settings import parse_settings
from fedboost.runtime.policy.declared import Use, judge_use

CELLS = "id,a,town,b,y\n-9,1.5,-9,-9,0\n2,-9.0,x,,1\n3,-9,-9.00,4,1\n"


def source(tmp_path, text=CELLS, name="t.csv", **said):
    path = tmp_path / name
    path.write_text(text)
    return parse_settings(SourceSpec, {"path": str(path), **said})


def read(given, **selection):
    chosen = {"label": "y", "categorical": ["town"], **selection}
    return load_frame(given, parse_settings(Selection, chosen), party="bank", needs_label=True)


@pytest.mark.parametrize("by", ["owner", "job"])
def test_cells_with_the_number_are_missing_as_the_owner_or_the_job_says(tmp_path, by):
    declared = source(tmp_path, **({"missing": -9} if by == "owner" else {}))
    frame = read(declared, **({"missing": -9} if by == "job" else {}))
    expected = [[1.5, np.nan, np.nan], [np.nan, 0, np.nan], [np.nan, np.nan, 4]]
    assert np.array_equal(frame.values, np.array(expected, np.float32), equal_nan=True)
    assert frame.categories == {"town": ("x",)}


def test_ids_and_labels_keep_the_number(tmp_path):
    frame = read(source(tmp_path), missing=1, ignore=["a", "b"])
    assert frame.label is not None
    assert frame.label.tolist() == [0, 1, 1]
    same = read(source(tmp_path), missing=-9, ignore=["a", "b"])
    assert same.ids == read(source(tmp_path), ignore=["a", "b"]).ids


@pytest.mark.parametrize(
    "column",
    [
        pa.array([1, -9, 3], pa.int64()),
        pa.array([1.0, -9.0, 3.0], pa.float32()),
        pa.array(["1", " -9.0", "3"]),
        pa.array(["1", "-9", "3"]).dictionary_encode(),
    ],
)
def test_cells_of_every_type_are_compared_as_numbers(tmp_path, column):
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"id": [1, 2, 3], "a": column, "y": [0, 1, 1]}), path)
    found = read(SourceSpec(path=str(path), missing=-9.0), categorical=[]).values[:, 0]
    assert np.array_equal(found, np.array([1, np.nan, 3], np.float32), equal_nan=True)


@given(st.floats(-1e6, 1e6, width=32), st.lists(st.floats(-1e6, 1e6, width=32), max_size=5))
def test_a_number_is_missing_exactly_where_its_32_bits_are(tmp_path_factory, missing, others):
    cells = np.array([missing, *others], np.float32)
    path = tmp_path_factory.getbasetemp() / "missing.parquet"
    rows = range(len(cells))
    pq.write_table(pa.table({"id": rows, "a": cells.astype(np.float64), "y": rows}), path)
    found = read(SourceSpec(path=str(path)), missing=missing, categorical=[]).values[:, 0]
    expected = np.where(cells == np.float32(missing), np.float32(np.nan), cells)
    assert np.array_equal(found, expected, equal_nan=True)


def test_a_sparse_table_has_other_missing_numbers_than_zero(tmp_path):
    text = "0 1:-9 2:3\n1 2:-9\n1 1:5\n"
    given = source(tmp_path, text, "t.svmlight", missing=-9)
    values = read(given, categorical=[]).values.toarray()
    expected = [[np.nan, 3], [0, np.nan], [5, 0]]
    assert np.array_equal(values, np.array(expected, np.float32), equal_nan=True)
    with pytest.raises(DataError, match="0 cannot mean missing in a sparse table") as refused:
        read(source(tmp_path, text, "t.svmlight"), categorical=[], missing=0)
    assert refused.value.todo


def test_a_survey_counts_what_the_owner_calls_missing(tmp_path):
    found = survey_table(source(tmp_path, missing=-9, labels=["y"]))
    shares = {one.name: one.missing for one in found.columns}
    assert (shares["id"], shares["a"], shares["b"]) == (0, 2 / 3, 2 / 3)


def test_a_job_cannot_call_another_number_missing_than_the_owner(tmp_path):
    use = Use("t", Selection(missing=0), Role.HOST, ())
    judge_use(source(tmp_path, missing=0), use)
    for declared, allowed in ((None, "none"), (-9, "-9")):
        with pytest.raises(PolicyError, match=f"'0' of t, but its owner allows {allowed}") as no:
            judge_use(source(tmp_path, missing=declared), use)
        assert no.value.where["key"] == "datasets.t.missing"


def test_a_job_that_says_none_is_written_as_before():
    assert "missing" not in Selection().model_dump(mode="json")
    assert Selection(missing=0).model_dump(mode="json")["missing"] == 0
    with pytest.raises(ConfigError, match="missing"):
        parse_settings(Selection, {"missing": float("nan")})
