"""What is done for a column takes as long in a table of many columns as in one of few."""

import time

import pyarrow as pa

from fedboost.data.conversions import without_value
from fedboost.data.loading import frame_of
from fedboost.data.selection import Selection
from fedboost.data.sheet import Sheet

WIDTH = 20_000
SECONDS_MAX = 15  # of this process; what looks through all columns for each of them takes a minute
NAMES = [f"gene_{place}" for place in range(WIDTH)]


def test_columns_that_are_ignored_and_not_read():
    sheet = Sheet(pa.table({"id": [1, 2, 3], "x": [1.0, 2.0, 3.0]}), unread=tuple(NAMES))
    began = time.process_time()
    frame = frame_of(sheet, Selection(ignore=NAMES), needs_features=True)
    assert frame.columns == ("x",)
    assert time.process_time() - began < SECONDS_MAX


def test_columns_with_a_number_for_missing():
    table = pa.table({"id": [1, 2], **{name: [1.5, -9.0] for name in NAMES}})
    began = time.process_time()
    sheet = without_value(Sheet(table), NAMES, -9.0)
    assert sheet.columns[NAMES[-1]].to_pylist() == [1.5, None]
    assert time.process_time() - began < SECONDS_MAX
