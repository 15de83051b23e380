"""Tables of predictions: ids as their party wrote them, numbers behind them, read back alike."""

import numpy as np
import pyarrow as pa
import pytest

from fedboost.data import predictions
from fedboost.data.predictions import prediction_values, predictions_tables


@pytest.mark.parametrize("outputs", [1, 3])
def test_predictions_are_read_back_as_they_were_written(outputs):
    values = np.random.default_rng(outputs).normal(size=(4, outputs))
    (table,) = predictions_tables(pa.table({"id": ["d", "c", "b", "a"]}), np.arange(4), values)
    assert np.array_equal(prediction_values(table, outputs), values)
    assert table["id"].to_pylist() == ["d", "c", "b", "a"]


def test_columns_of_ids_may_have_the_names_of_predictions():
    ids = pa.table({"prediction": ["x"], "prediction_": ["y"]})
    (table,) = predictions_tables(ids, np.arange(1), np.array([[0.5]]))
    assert table.column_names == ["prediction", "prediction_", "prediction__"]
    assert prediction_values(table, 1).tolist() == [[0.5]]


def test_rows_come_in_the_order_of_the_table_and_text_of_numbers_becomes_numbers(monkeypatch):
    monkeypatch.setattr(predictions, "BATCH_ROWS", 2)
    ids = pa.table({"id": ["10", "11", "12", "13"], "day": ["1", "2", "x", "4"]})
    values = np.array([[0.3], [0.0], [0.1]])
    made = pa.concat_tables(predictions_tables(ids, np.array([3, 0, 1]), values))
    assert made.to_pydict() == {
        "id": [10, 11, 13],
        "day": [1, 2, 4],
        "prediction": [0.0, 0.1, 0.3],
    }
