"""Numbers that a job cannot hold: merged values are counted, labels beyond float32 are refused."""

import numpy as np
import pyarrow as pa
import pytest

from fedboost.data.loading import frame_of
from fedboost.data.selection import Selection
from fedboost.data.sheet import Sheet
from fedboost.data.survey import survey_sheet
from fedboost.ground.errors import DataError
from fedboost.ground.settings import parse_settings

BASE = 2**53


def read(**columns):
    return frame_of(Sheet(pa.table(columns)), Selection(), needs_features=True)


@pytest.mark.parametrize("kind", [pa.int64(), pa.uint64(), pa.decimal128(20, 0), pa.string()])
def test_whole_numbers_that_become_the_same_are_counted_in_any_type(kind):
    cells = pa.array([BASE + n for n in range(100)], pa.int64())
    frame = read(id=range(100), a=cells.cast(kind), b=[n * 2**30 for n in range(100)])
    assert frame.merged == ("a",)
    assert frame.take([3, 1]).merged == ("a",)


def test_few_merged_values_and_small_numbers_are_no_matter():
    few = [2**24 + 1, 2**24 + 2, *(n * 2**30 for n in range(1, 400))]
    assert read(id=range(401), a=few, b=np.linspace(0, 1, 401)).merged == ()


def test_check_notes_merged_values_with_a_remedy():
    found = survey_sheet("t", Sheet(pa.table({"id": [1, 2, 3], "a": [BASE, BASE + 1, BASE + 2]})))
    (note,) = found.notes
    assert note.startswith("column a: different whole numbers become the same 32-bit float; ")
    assert "subtract" in note


@pytest.mark.parametrize("role", ["label", "weight"])
def test_a_label_or_weight_beyond_32_bit_floats_is_refused(role):
    table = Sheet(pa.table({"id": [1, 2], "a": [0, 1], "t": [0.0, 1e300]}))
    with pytest.raises(DataError, match=f"1 of 2 rows have a {role} beyond what 32-bit") as refused:
        frame_of(table, parse_settings(Selection, {role: "t"}), needs_features=True)
    assert refused.value.todo == f"rescale the {role}"


def test_check_finds_a_label_beyond_32_bit_floats():
    (problem,) = survey_sheet("t", Sheet(pa.table({"id": [1, 2], "y": [0.0, 1e300]}))).problems
    assert problem.startswith("1 of 2 rows have a label beyond what 32-bit floats hold (3.4e38)")
