"""Decimal commas and dates: found, explained, and read as numbers where their owner says so."""

import datetime as dt

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fedboost.data.loading import load_frame
from fedboost.data.outline import read_outline
from fedboost.data.reading import read_batches, read_sheet
from fedboost.data.selection import Selection
from fedboost.data.sources import SourceSpec
from fedboost.data.survey import survey_table
from fedboost.ground.errors import DataError
from fedboost.ground.settings import parse_settings

DAY = (dt.date(2024, 1, 31) - dt.date(1970, 1, 1)).days


def source(tmp_path, text, **said):
    path = tmp_path / "t.csv"
    path.write_text(text)
    return parse_settings(SourceSpec, {"path": str(path), **said})


def read(given, **selection):
    return load_frame(given, parse_settings(Selection, selection), party="bank", needs_label=False)


COMMAS = 'id,a,b\n1,"1,5",x\n2,"-1.234,25",y\n3,,z\n4,7,z\n'
DATES = "id,when,a\n1,2024-01-31,1\n2,1969-12-31,2\n3,,3\n"


def test_decimal_commas_are_found_and_their_remedy_works(tmp_path):
    given = source(tmp_path, COMMAS)
    (problem,) = survey_table(given).problems
    assert problem.startswith("columns that hold numbers with decimal commas: a; declare decimal")
    with pytest.raises(DataError, match="decimal commas: a") as refused:
        read(given, ignore=["b"])
    assert 'decimal: ","' in refused.value.todo
    declared = source(tmp_path, COMMAS, decimal=",")
    assert survey_table(declared).problems == ()
    found = read(declared, ignore=["b"]).values[:, 0]
    assert np.array_equal(found, np.array([1.5, -1234.25, np.nan, 7], np.float32), equal_nan=True)


def test_a_label_with_decimal_commas_has_the_same_remedy(tmp_path):
    text = 'id,y\n1,"1,5"\n2,"2,5"\n'
    with pytest.raises(DataError) as refused:
        load_frame(source(tmp_path, text), Selection(label="y"), party="bank", needs_label=True)
    assert 'decimal: ","' in refused.value.todo
    given = source(tmp_path, text, decimal=",")
    label = load_frame(given, Selection(label="y"), party="bank", needs_label=True).label
    assert label is not None
    assert label.tolist() == [1.5, 2.5]


def test_ids_with_commas_stay_what_they_are(tmp_path):
    text = 'id,a\n"1,5",1\n"1.5",2\n'
    assert len(set(read(source(tmp_path, text, decimal=",")).ids)) == 2


def test_dates_are_found_and_become_days_month_and_weekday(tmp_path):
    given = source(tmp_path, DATES)
    (problem,) = survey_table(given).problems
    assert problem.startswith("columns that hold dates: when; name them in 'dates' of the data set")
    with pytest.raises(DataError, match="hold dates: when"):
        read(given)
    frame = read(source(tmp_path, DATES, dates=["when"]))
    assert frame.columns == ("when", "a", "when_month", "when_weekday")
    expected = [[DAY, 1, 1, 3], [-1, 2, 12, 3], [np.nan, 3, np.nan, np.nan]]
    assert np.array_equal(frame.values, np.array(expected, np.float32), equal_nan=True)
    assert survey_table(source(tmp_path, DATES, dates=["when"])).problems == ()


@pytest.mark.parametrize(
    "cells",
    [
        ["31.01.2024"],
        ["2024/01/31"],
        ["2024-01-31 12:00"],
        ["2024-01-31T12:00:00Z"],
        [dt.date(2024, 1, 31)],
        [dt.datetime(2024, 1, 31, 12, tzinfo=dt.UTC)],
        pa.array([dt.datetime(2024, 1, 31, 12)], pa.timestamp("ns")),
        pa.array(["2024-01-31"]).dictionary_encode(),
    ],
)
def test_dates_of_any_spelling_and_type_are_read(tmp_path, cells):
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"id": [1], "when": cells}), path)
    given = SourceSpec(path=str(path), dates=["when"])
    days, month, weekday = read(given).values[0]
    assert int(days) == DAY
    assert (month, weekday) == (1, 3)
    assert "when_month" in dict(read_outline(given).columns)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("id,a\n1,2\n", "declared in 'dates', is absent"),
        ("id,when\n1,soon\n", "holds something else than dates"),
        ("id,when\n1,01/02/2024\n", "holds something else than dates"),
        ("id,when\n1,2024-02-31\n", "dates that no calendar has"),
        ("id,when,when_month\n1,2024-01-31,1\n", "has a column when_month"),
    ],
)
def test_what_is_no_date_is_refused_with_a_remedy(tmp_path, text, what):
    with pytest.raises(DataError, match=what) as refused:
        read(source(tmp_path, text, dates=["when"]))
    assert refused.value.todo
    assert "when" not in refused.value.redacted().what


def test_open_ends_that_spark_wrote_as_int96_stay_the_latest_dates(tmp_path):
    ends = [dt.datetime(9999, 12, 31), dt.datetime(2024, 1, 31), dt.datetime(1, 1, 1)]
    table = pa.table({"id": [1, 2, 3], "end": pa.array(ends, pa.timestamp("us"))})
    folder = tmp_path / "folder"
    for path in (tmp_path / "t.parquet", folder / "year=2024" / "1.parquet"):
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, path, use_deprecated_int96_timestamps=True)
    expected = [(end.date() - dt.date(1970, 1, 1)).days for end in ends]
    for path in (tmp_path / "t.parquet", folder):
        given = SourceSpec(path=str(path), dates=["end"])
        whole = read_sheet(given).columns["end"].to_pylist()
        parts = [day for sheet in read_batches(given) for day in sheet.columns["end"].to_pylist()]
        assert whole == parts == expected


def test_dates_with_a_zone_are_what_its_clocks_show(tmp_path):
    midnight = dt.datetime(2023, 12, 31, 23)  # in UTC; in Berlin it is Monday, 1 January
    for zone in ("Europe/Berlin", "+01:00"):
        cells = pa.array([midnight], pa.timestamp("us", tz=zone))
        pq.write_table(pa.table({"id": [1], "when": cells}), tmp_path / "t.parquet")
        given = SourceSpec(path=str(tmp_path / "t.parquet"), dates=["when"])
        assert read(given).values.tolist() == [[19723, 1, 1]]


@pytest.mark.parametrize(
    "cells",
    [
        pa.array([2**31 - 1], pa.date32()),
        pa.array([2**63 - 1], pa.timestamp("us")),
        pa.array([-(2**63) + 1], pa.timestamp("us", tz="Europe/Berlin")),
    ],
)
def test_a_date_that_a_database_calls_infinity_is_refused(tmp_path, cells):
    pq.write_table(pa.table({"id": [1], "end": cells}), tmp_path / "t.parquet")
    given = SourceSpec(path=str(tmp_path / "t.parquet"), dates=["end"])
    with pytest.raises(DataError, match="such as infinity") as refused:
        read(given)
    assert "9999-12-31" in refused.value.todo


def test_a_zone_that_the_machine_does_not_know_is_named(tmp_path):
    cells = pa.array([0], pa.timestamp("us", tz="Nowhere/Else"))
    pq.write_table(pa.table({"id": [1], "when": cells}), tmp_path / "t.parquet")
    with pytest.raises(DataError, match="time zone 'Nowhere/Else' of column 'when'"):
        read(SourceSpec(path=str(tmp_path / "t.parquet"), dates=["when"]))
