"""What a data set is, told without reading more of it than needed, and without a cell."""

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from fedboost.data.outline import Outline, file_stamp, read_outline
from fedboost.data.sources import Connection, SourceSpec
from fedboost.ground.errors import DataError

TABLE = pa.table({"id": ["a", "b", "c"], "age": [1, 2, 3], "rate": [0.5, None, 1.5]})


def test_parquet_is_described_by_its_footer(tmp_path):
    path = tmp_path / "t.parquet"
    pq.write_table(TABLE, path)
    source = SourceSpec(path=str(path))
    found = read_outline(source)
    assert found == Outline(3, (("id", "text"), ("age", "integer"), ("rate", "number")))
    assert source.kind.name == "parquet"


def test_csv_is_read_as_a_job_would_read_it(tmp_path):
    path = tmp_path / "t.csv"
    pa.csv.write_csv(TABLE, path)
    found = read_outline(SourceSpec(path=str(path)))
    assert (found.rows, [name for name, _ in found.columns]) == (3, ["id", "age", "rate"])


def test_svmlight_has_its_features(tmp_path):
    path = tmp_path / "t.svm"
    path.write_text("1 1:0.5 3:2\n0 2:1\n")
    source = SourceSpec(path=str(path))
    assert source.kind.name == "svmlight"
    found = read_outline(source)
    assert found.rows == 2
    assert [name for name, _ in found.columns] == ["id", "y", "f1", "f2", "f3"]


def test_what_no_job_could_read_says_why(tmp_path):
    path = tmp_path / "t.parquet"
    path.write_bytes(b"PAR1 not really")
    with pytest.raises(DataError, match="not readable parquet"):
        read_outline(SourceSpec(path=str(path)))
    with pytest.raises(DataError):
        read_outline(SourceSpec(path=str(tmp_path / "absent.parquet")))


def test_a_file_that_was_written_again_has_another_stamp(tmp_path):
    path = tmp_path / "t.csv"
    source = SourceSpec(path=str(path))
    assert file_stamp(source) is None
    path.write_text("id\n1\n")
    before = file_stamp(source)
    path.write_text("id\n1\n2\n")
    assert file_stamp(source) != before
    asked = SourceSpec(sql="SELECT 1", connection=Connection(url="sqlite:///x.db"))
    assert file_stamp(asked) is None
    assert asked.kind.name == "sql"
