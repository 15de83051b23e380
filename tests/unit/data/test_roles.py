"""A column that is called like a label is one for `data check`, and no feature by accident."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fedboost.data.loading import load_with_ids
from fedboost.data.selection import Selection
from fedboost.data.sheet import Sheet
from fedboost.data.sources import SourceSpec
from fedboost.data.survey import survey_sheet
from fedboost.ground.errors import DataError


def columns(tmp_path, names, *, source=None, **selection):
    """The features that a host brings to a job whose guest has the label `default`."""
    table = pa.table({"id": [1, 2, 3], **{name: [0.5, 1.5, 2.5] for name in names}})
    path = tmp_path / "telco.parquet"
    pq.write_table(table, path)
    frame, _ = load_with_ids(
        SourceSpec(path=str(path), **(source or {})),
        Selection(**selection),
        party="telco",
        needs_features=True,
        guest_label="default",
    )
    return frame.columns


@pytest.mark.parametrize("name", ["y", "Target", "label", "class", "default", "DEFAULT"])
def test_a_host_has_no_column_called_like_a_label_as_a_feature(tmp_path, name):
    with pytest.raises(DataError) as refused:
        columns(tmp_path, ["a", name])
    error = refused.value
    assert repr(name) in error.what
    assert error.where == {"party": "telco", "file": "telco.parquet", "column": name}
    assert error.todo.startswith("name it in 'ignore' of data: telco:, or in 'columns'")
    assert name not in error.redacted().what.split()
    checked = survey_sheet("t", Sheet(pa.table({"id": [1, 2], "a": [1, 2], name: [0, 1]})))
    if name.casefold() != "default":  # which only this job says is one
        assert checked.label == name
        assert checked.notes[-1].startswith(f"column {name} is called like a label: ")


def test_a_job_that_names_the_column_has_it_or_not(tmp_path):
    assert columns(tmp_path, ["a", "y"], columns=["a", "y"]) == ("a", "y")
    assert columns(tmp_path, ["a", "y"], categorical=["y"]) == ("a", "y")
    assert columns(tmp_path, ["a", "y"], ignore=["y"]) == ("a",)
    assert columns(tmp_path, ["a", "y"], source={"labels": ["y"]}) == ("a",)


def test_only_the_job_names_it_not_the_owner(tmp_path):
    with pytest.raises(DataError):
        columns(tmp_path, ["a", "y"], source={"columns": ["a", "y"]})


def test_many_different_values_make_a_label_no_feature():
    found = survey_sheet("t", Sheet(pa.table({"id": range(200), "y": range(200)})))
    assert (found.label, found.columns[1].role) == ("y", "label")
