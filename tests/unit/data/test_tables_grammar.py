"""Tables of a grammar are the frames that pandas and DuckDB read, or are refused in words."""

import unicodedata

import numpy as np
import pandas as pd
import pytest

from fedboost.data.categories import canonical_text
from fedboost.data.loading import load_frame
from fedboost.data.reading import read_batches, read_sheet
from fedboost.data.selection import Selection
from fedboost.data.sources import SourceSpec
from fedboost.data.survey import survey_table
from fedboost.ground.errors import ConfigError, DataError
from fedboost.ground.settings import parse_settings
from tests.support.table_grammar import DAY_ONE, drawn

TABLES, DAMAGED = 300, 100


def frame_or_refusal(found):
    """The frame of a drawn table, or the error that refuses it; anything else is raised."""
    words = [name for name, kind in found.kinds.items() if kind == "word"]
    selection = Selection(id=[found.id], categorical=words)
    try:
        source = parse_settings(SourceSpec, found.declared)
        return load_frame(source, selection, party="bank", needs_label=False), None
    except (ConfigError, DataError) as refused:
        return None, refused


def numbers(column, kind):
    """A column of another reader as the numbers that a frame has, float32 (n,)."""
    values = [None if cell is None or cell is pd.NA or cell != cell else cell for cell in column]
    if kind == "day":
        days = [np.nan if cell is None else _days(cell) for cell in values]
        return np.array(days, np.float32)
    flags = {"True": 1.0, "False": 0.0, "true": 1.0, "false": 0.0}
    read = [np.nan if cell is None else flags.get(str(cell), cell) for cell in values]
    return np.array([float(cell) for cell in read]).astype(np.float32)


def _days(cell):
    day = cell.date() if hasattr(cell, "date") else cell
    return (day - DAY_ONE).days


def texts(column):
    cells = [None if cell is None or cell != cell else str(cell) for cell in column]
    known = [None if cell is None else unicodedata.normalize("NFC", cell.strip()) for cell in cells]
    return [None if cell is None else canonical_text(cell) for cell in known]


@pytest.mark.some(40)
@pytest.mark.parametrize("seed", range(TABLES))
def test_a_table_is_what_pandas_and_duckdb_read(tmp_path, seed):
    found = drawn(seed, tmp_path)
    frame, refused = frame_or_refusal(found)
    if refused is not None:  # of 1.500 beside decimal commas only the owner knows what it means
        assert "may have a decimal point" in refused.what, (found.said, str(refused))
        assert (found.declared["decimal"], found.declared["thousands"]) == (",", None)
        return
    assert len(frame.ids) == len(found.expected), found.said
    assert set(frame.columns) >= set(found.kinds), found.said
    for name, kind in found.kinds.items():
        values = frame.values[:, frame.columns.index(name)]
        column = found.expected[name]
        if kind == "word":
            known = frame.categories[name]
            read = [None if np.isnan(code) else known[int(code)] for code in values]
            assert read == texts(column), (name, found.said)
        else:
            expected = numbers(column, kind)
            assert np.array_equal(values, expected, equal_nan=True), (name, kind, found.said)
    source = parse_settings(SourceSpec, found.declared)
    whole = read_sheet(source).columns
    parts = [sheet.columns for sheet in read_batches(source)]
    assert sum(part.num_rows for part in parts) == whole.num_rows
    assert survey_table(source).columns[0].name == whole.column_names[0]


@pytest.mark.some(15)
@pytest.mark.parametrize("seed", range(DAMAGED))
def test_a_damaged_file_is_refused_in_words_or_read(tmp_path, seed):
    found, rng = drawn(1000 + seed, tmp_path), np.random.default_rng(seed)
    (path, *_) = sorted(file for file in tmp_path.rglob("*") if file.is_file())
    data = bytearray(path.read_bytes())
    first, last = sorted(rng.integers(0, len(data), 2))
    match rng.integers(4):
        case 0:
            data = data[:first]
        case 1:
            data[first:last] = b""
        case 2:
            data[first:last] = rng.bytes(last - first)
        case _:
            data[first:first] = data[first:last]
    path.write_bytes(data)
    _, refused = frame_or_refusal(found)
    if refused is not None:
        assert refused.what
        assert refused.todo
        assert str(tmp_path) not in str(refused)
