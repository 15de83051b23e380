"""Thousands and decimal commas are told apart, or nothing is read and nothing advised."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from fedboost.data.loading import load_frame
from fedboost.data.reading import read_batches, read_sheet
from fedboost.data.row_batches import RowBatches
from fedboost.data.selection import Selection
from fedboost.data.sources import SourceSpec
from fedboost.data.survey import survey_table
from fedboost.data.written_numbers import signs_to_declare
from fedboost.ground.errors import ConfigError, DataError
from fedboost.ground.settings import parse_settings


def source(tmp_path, cells, **said):
    path = tmp_path / "t.csv"
    rows = "".join(f'{at},"{cell}"\n' for at, cell in enumerate(cells))
    path.write_text(f"id,a\n{rows}")
    return parse_settings(SourceSpec, {"path": str(path), **said})


def values(given):
    (column,) = load_frame(given, Selection(), party="bank", needs_label=False).values.T
    return column.tolist()


@pytest.mark.parametrize(
    ("cells", "signs"),
    [
        (["150", "150,000", "12,500", "12"], {"thousands": ","}),
        (["1,234,567.5", "-12,345", "", "7.25"], {"thousands": ","}),
        (["1.234,5", "12.500", "-1.234.567"], {"thousands": ".", "decimal": ","}),
        (["1 234,5", "12 500"], {"thousands": " ", "decimal": ","}),
        (["1'234.5", "12'500"], {"thousands": "'"}),
        (["1,5", "2500,25", "1,250"], {"decimal": ","}),
    ],
)
def test_declared_signs_give_the_numbers_that_pandas_reads(tmp_path, cells, signs):
    given = source(tmp_path, cells, **signs)
    expected = pd.read_csv(given.path, **signs)["a"].to_numpy(np.float32)
    assert np.array_equal(values(given), expected, equal_nan=True)
    batches = RowBatches.of(given, Selection()).frames(2)
    parts = [frame.values[:, 0] for frame, _ in batches]
    assert np.array_equal(np.concatenate(parts), expected, equal_nan=True)


@pytest.mark.parametrize("blank", ["\u00a0", "\u202f"])
def test_blanks_that_do_not_break_divide_thousands_too(tmp_path, blank):
    assert values(source(tmp_path, [f"1{blank}500"], thousands=" ")) == [1500]


@pytest.mark.parametrize(
    ("cells", "advice"),
    [
        (["150", "150,000", "12,500", "12"], "with a sign between thousands: a; declare that sign"),
        (["1,234.5"], "with a sign between thousands: a; declare that sign"),
        (["1.234.567"], "with a sign between thousands: a; declare that sign"),
        (["1'500", "2"], "with a sign between thousands: a; declare that sign"),
        (["1,5", "150,000"], 'with decimal commas: a; declare decimal: ","'),
        (["0,125", "1,250"], 'with decimal commas: a; declare decimal: ","'),
        (["1.234.567,5"], 'with decimal commas: a; declare decimal: ","'),
    ],
)
def test_advice_says_which_sign_the_numbers_have(tmp_path, cells, advice):
    given = source(tmp_path, cells)
    (problem,) = survey_table(given).problems
    assert advice in problem
    with pytest.raises(DataError, match=r"hold numbers with") as refused:
        load_frame(given, Selection(), party="bank", needs_label=False)
    assert refused.value.todo == problem.partition("; ")[2]


@pytest.mark.parametrize("cells", [["a,b"], ["1,2,3"], ["10,20 m"]])
def test_nothing_is_advised_about_other_text(cells):
    column = pa.chunked_array([pa.array(cells)])
    assert signs_to_declare(column) is None


def test_a_label_with_thousands_has_the_same_remedy(tmp_path):
    given = source(tmp_path, ["1,500", "12,250"])
    with pytest.raises(DataError) as refused:
        load_frame(given, Selection(label="a"), party="bank", needs_label=True)
    assert "'thousands'" in refused.value.todo


def test_points_beside_decimal_commas_are_read_one_way_or_refused(tmp_path):
    proven = source(tmp_path, ["1.500", "2,5"], decimal=",")
    assert values(proven) == [1500, 2.5]
    decimal = source(tmp_path, ["0.125", "1.500"], decimal=",")
    assert values(decimal) == [0.125, 1.5]
    assert values(source(tmp_path, ["1.500"], decimal=",", thousands=".")) == [1500]
    unknown = source(tmp_path, ["1.500", "2.250"], decimal=",")
    for read in (read_sheet, lambda given: [*read_batches(given)], values):
        with pytest.raises(DataError, match=r"1\.500 in column 'a' may have a decimal point") as no:
            read(unknown)
        assert 'thousands: "."' in no.value.todo


def test_one_sign_for_both_is_refused(tmp_path):
    with pytest.raises(ConfigError) as refused:
        source(tmp_path, ["1"], thousands=",", decimal=",")
    assert "one sign" in str(refused.value)
