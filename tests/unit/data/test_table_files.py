"""The ending of a file decides the format of the table that is written there."""

import datetime as dt
import json
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import feather

from fedboost.data.table_files import WRITERS, check_ending, write_tables
from fedboost.ground.errors import ConfigError

TABLE = pa.table(
    {
        "größe, in m": ["1,5", 'a "b"', "通话\n2", None],
        "account": pa.array([1234567890123456781, None, 3, 4]),
        "prediction": np.array([0.1, 1 / 3, 1e-300, 2.5]),
    }
)
READ = {
    ".parquet": pq.read_table,
    ".pq": pq.read_table,
    ".feather": feather.read_table,
    ".arrow": feather.read_table,
}


@pytest.mark.parametrize("ending", [*WRITERS, ".CSV"])
def test_each_ending_gives_a_file_of_its_format_without_loss(tmp_path, ending):
    path = tmp_path / f"scores{ending}"
    assert write_tables(path, iter([TABLE.slice(0, 2), TABLE.slice(2)])) == 4
    if ending in READ:
        assert READ[ending](path).equals(TABLE)
        return
    if ending in (".jsonl", ".ndjson"):
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        assert rows == TABLE.to_pylist()
        return
    sign = "\t" if ending == ".tsv" else ","
    read = pd.read_csv(path, sep=sign, dtype={"account": "Int64"})
    assert list(read) == TABLE.column_names
    assert [cell if isinstance(cell, str) else None for cell in read["größe, in m"]] == (
        TABLE.column(0).to_pylist()
    )
    assert [None if pd.isna(n) else int(n) for n in read["account"]] == TABLE[1].to_pylist()
    assert read["prediction"].tolist() == TABLE[2].to_pylist()


def test_json_has_words_for_dates_decimals_and_what_is_no_number(tmp_path):
    path = tmp_path / "t.jsonl"
    day, amount = dt.date(2024, 1, 31), Decimal("1.50")
    write_tables(path, [pa.table({"day": [day], "amount": [amount], "p": [float("nan")]})])
    assert json.loads(path.read_text()) == {"day": "2024-01-31", "amount": "1.50", "p": None}


@pytest.mark.parametrize("ending", WRITERS)
def test_a_table_without_rows_is_a_table(tmp_path, ending):
    path = tmp_path / f"t{ending}"
    assert write_tables(path, [TABLE.schema.empty_table()]) == 0
    if ending in READ:
        assert READ[ending](path).schema == TABLE.schema


@pytest.mark.parametrize("name", ["scores", "scores.xlsx", "scores.csv.gz", ".csv"])
def test_another_ending_is_refused_before_anything_is_written(tmp_path, name):
    def tables():
        raise AssertionError
        yield TABLE

    for act in (check_ending, lambda path: write_tables(path, tables())):
        with pytest.raises(ConfigError, match="says no format to write a table in") as refused:
            act(tmp_path / name)
        assert ".csv" in refused.value.todo
    assert not [*tmp_path.iterdir()]
