"""Columns that are read together are what they are when each is read alone."""

import numpy as np
import pyarrow as pa
import pytest

from fedboost.data import column_blocks, features, survey
from fedboost.data.column_blocks import COLUMNS_MIN, number_blocks
from fedboost.data.columns import typed_column
from fedboost.data.features import feature_matrix, read_feature
from fedboost.data.sheet import Sheet

CELLS = ("1", "-3", "2.5", "1e3", "0.1", "007", "-0", "+4", None, "16777217", "inf", "nan", "x")
PLAIN = (*CELLS[:7], None)


def columns_of(seed, n_rows, cells):
    """Forty columns of text, a few of which have cells that no block takes."""
    rng = np.random.default_rng(seed)
    drawn = {}
    for place in range(40):
        some = CELLS if cells is CELLS and place % 13 == 0 else PLAIN
        kept = rng.choice(len(some), size=min(3, len(some)), replace=False)
        texts = [some[kept[at]] for at in rng.integers(0, len(kept), n_rows)]
        drawn[f"c{place}"] = pa.chunked_array([pa.array(texts, pa.string())])
    return drawn


@pytest.mark.parametrize("cells", [PLAIN, CELLS])
@pytest.mark.parametrize("n_rows", [1, 2, 7])
def test_blocks_change_nothing(monkeypatch, n_rows, cells):
    for seed in range(12):
        drawn = columns_of(seed, n_rows, cells)
        alone = survey.survey_sheet("t.csv", Sheet(pa.table(drawn)))
        usable = [
            name for name, column in drawn.items() if read_feature(name, column).fault is None
        ]
        together = feature_matrix(dict(drawn), n_rows, usable)
        for name, values in zip(usable, together.values.T, strict=True):
            numbers = read_feature(name, drawn[name]).numbers
            assert numbers is not None
            assert np.array_equal(values, numbers.values.astype(np.float32), equal_nan=True)
        with monkeypatch.context() as patched:
            patched.setattr(column_blocks, "CELLS_MAX", 0)  # no block
            assert survey.survey_sheet("t.csv", Sheet(pa.table(drawn))) == alone


def test_types_in_a_block_are_those_of_single_columns():
    drawn = [*columns_of(5, 6, PLAIN).values()]
    found = 0
    for part, block in number_blocks(drawn, 6):
        for column, typed in zip(drawn[part], block.typed_columns(), strict=True):
            assert typed.equals(typed_column(column)), column
            found += 1
    assert found == len(drawn)


def test_one_text_among_many_columns_is_read_with_few_neighbours(monkeypatch):
    read = []

    def counted(name, column):
        read.append(name)
        return read_feature(name, column)

    monkeypatch.setattr(features, "read_feature", counted)
    columns = {f"g{place}": pa.chunked_array([["1.5", "2"]]) for place in range(3000)}
    columns["g1700"] = pa.chunked_array([["true", "false"]])
    found = feature_matrix(columns, 2, [*columns])
    assert found.values[:, 1700].tolist() == [1, 0]
    assert "g1700" in read
    assert len(read) <= COLUMNS_MIN
    assert not columns
