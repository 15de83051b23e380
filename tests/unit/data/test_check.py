"""`data check` says beforehand what a job would refuse."""

import datetime as dt
import json
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from fedboost.cli.groups import data_group
from fedboost.data import survey
from fedboost.data.reading import read_table
from fedboost.data.sheet import Sheet
from fedboost.data.sources import SourceSpec
from fedboost.data.survey import survey_sheet
from fedboost.ground.errors import DataError


def run(*arguments: str):
    return CliRunner().invoke(data_group, ["check", *arguments], env={"COLUMNS": "200"})


def look(**columns: Any):
    return survey_sheet("t.parquet", Sheet(pa.table(columns)))


def test_a_good_table_has_no_problems(tmp_path):
    table = pa.table({"id": [1, 2, 3], "y": [0, 1, 1], "age": [30.5, None, 41.0]})
    pq.write_table(table, tmp_path / "bank.parquet")
    result = run(str(tmp_path / "bank.parquet"))
    assert result.exception is None
    assert "bank.parquet: 3 rows, 3 columns; id: id; label: y" in result.stdout
    assert "no problems found" in result.stdout
    (line,) = [line for line in result.stdout.splitlines() if line.strip().startswith("age")]
    assert line.split() == ["age", "number", "feature", "33.3", "%", "2", "30.5", "41"]


def test_json_has_the_same_as_one_object(tmp_path):
    (tmp_path / "a.csv").write_text("customer_id,target,income,note\n01,1,5,x\n02,0,inf,y\n")
    result = run(str(tmp_path / "a.csv"), str(tmp_path / "no.csv"), "--json")
    told = json.loads(result.stdout.splitlines()[-1])
    assert told["problems"] == 2
    first, second = told["files"]
    assert (first["file"], first["rows"], first["id"], first["label"]) == (
        "a.csv",
        2,
        "customer_id",
        "target",
    )
    assert [column["role"] for column in first["columns"]] == ["id", "label", "", "categorical"]
    assert first["columns"][1] == {
        "name": "target",
        "type": "integer",
        "role": "label",
        "missing": 0.0,
        "distinct": 2,
        "least": 0.0,
        "greatest": 1.0,
    }
    assert first["problems"][0].startswith(
        "columns that have infinite values: income (1 of 2 rows)"
    )
    assert first["notes"] == [
        "text columns, features if the job names them in 'categorical' (distinct values): note (2)",
        "column target is called like a label: a host's job must name it in 'ignore', or in "
        "'columns' if it is a feature",
    ]
    assert second["problems"][0].startswith("cannot read the file: No such file or directory")
    assert isinstance(result.exception, DataError)
    assert result.exception.exit_code == 2
    assert result.exception.lines()[:2] == ["problems found: 2", "where: file a.csv, no.csv"]


@pytest.mark.parametrize(
    ("columns", "problem"),
    [
        ({"id": [1, 1], "a": [1, 2]}, "column id: 2 of 2 rows share their id with another row"),
        ({"id": [1, None], "a": [1, 2]}, "column id: 1 of 2 rows have no id"),
        ({"a": [1, 1], "b": [0.5, 1.5]}, "no column has a different id for every row"),
        ({"id": [1, 2], "y": [0, None]}, "1 of 2 rows have no label in y"),
        ({"id": [1, 2], "y": [0.0, float("inf")]}, "1 of 2 rows have an infinite label in y"),
        ({"id": [1, 2], "y": ["a", "b"]}, "the label y is not a number in every row"),
        (
            {"id": [1, 2], "a": ["1", "x"]},
            "columns that have cells that are not numbers: a (1 of 2",
        ),
        ({"id": [1, 2], "a": [[1], [2]]}, "columns that hold lists"),
        ({"id": [1, 2], "a": [dt.date(2024, 1, 1)] * 2}, "columns that hold dates: a"),
        ({"id": [1, 2], "a": [1e300, 0]}, "columns that have values beyond what 32-bit floats"),
    ],
)
def test_each_problem_is_found(columns, problem):
    (found,) = look(**columns).problems
    assert found.startswith(problem)
    assert "; " in found  # what to do


def test_every_arrow_type_can_be_surveyed():
    kinds = [
        pa.null(),
        pa.bool_(),
        pa.float16(),
        pa.decimal128(5, 2),
        pa.date64(),
        pa.time32("s"),
        pa.timestamp("ns", "UTC"),
        pa.duration("s"),
        pa.month_day_nano_interval(),
        pa.binary(),
        pa.binary(3),
        pa.string_view(),
        pa.dictionary(pa.int8(), pa.string()),
        pa.list_(pa.int8()),
        pa.struct({"x": pa.int8()}),
        pa.map_(pa.string(), pa.int8()),
        pa.uuid(),
    ]
    table = {f"c{place}": pa.nulls(2, kind) for place, kind in enumerate(kinds)}
    found = look(id=[1, 2], **table)
    assert [column.missing for column in found.columns] == [0.0] + [1.0] * len(kinds)


def test_the_id_is_found_by_name_then_by_being_unique():
    assert look(a=["x", "y"], user_id=[5, 6], b=[1, 1]).id == "user_id"
    assert look(b=[1, 1], a=["x", "y"], c=["u", "v"]).id == "a"
    assert look(b=[1, 1], id=[1, 1]).id == "id"


def test_missing_distinct_and_bounds_agree_with_numpy():
    rng = np.random.default_rng(0)
    values = rng.integers(0, 50, 500).astype(float)
    values[rng.random(500) < 0.2] = np.nan
    column = look(id=np.arange(500), a=values).columns[1]
    seen = values[~np.isnan(values)]
    assert column.missing == np.isnan(values).mean()
    assert column.distinct == len(np.unique(seen))
    assert (column.least, column.greatest) == (seen.min(), seen.max())


def test_large_whole_numbers_are_noted():
    found = look(id=[1, 2], a=[2**24 + 1, 1])
    assert found.problems == ()
    assert found.notes == ("column a: whole numbers beyond 2^24 were rounded to 32-bit floats",)


def test_text_columns_are_noted_with_their_distinct_values():
    found = look(id=[1, 2, 3], city=["Ulm", "Bonn", "Ulm"], a=[1.5, 2.5, 3.5], sex=["m", None, "f"])
    assert found.problems == ()
    roles = [column.role for column in found.columns]
    assert roles == ["id", "categorical", "feature", "categorical"]
    assert found.notes == (
        "text columns, features if the job names them in 'categorical' (distinct values): "
        "city (2), sex (2)",
    )
    assert "Ulm" not in str(found)


def test_text_with_more_values_than_a_job_takes_is_noted_apart():
    found = look(id=range(100), name=[f"n{n}" for n in range(50)] * 2, sex=["m", "f"] * 50)
    assert [note.rpartition(": ")[2] for note in found.notes] == ["sex (2)", "name (50)"]
    assert "too many distinct values" in found.notes[1]


def test_text_with_too_many_values_is_a_problem(monkeypatch):
    monkeypatch.setattr(survey, "CATEGORIES_MAX", 2)
    found = look(id=[1, 2, 3], city=["a", "b", "c"], sex=["m", "m", "f"])
    (problem,) = found.problems
    assert problem.startswith("columns that have more than ")
    assert "city (3)" in problem
    assert found.columns[1].role == ""
    assert found.notes[0].endswith(": sex (2)")


def test_a_sparse_table_is_described_as_its_dense_twin(tmp_path):
    path = tmp_path / "a.svm"
    path.write_text("1 1:0.5 3:2 4:nan\n0 1:-1 4:nan\n1 4:16777217\n0 1:0.5 4:7\n")
    sparse = survey.survey_table(SourceSpec(path=str(path)))
    dense = survey_sheet("a.svm", Sheet(read_table(SourceSpec(path=str(path)))))
    assert sparse.columns == dense.columns
    assert (sparse.id, sparse.label, sparse.problems) == ("id", "y", ())
    assert (*sparse.notes[:2], sparse.notes[-1]) == (
        "a sparse table: 8 of 16 cells of its 4 features are not zero",
        "column f4: whole numbers beyond 2^24 were rounded to 32-bit floats",
        "columns with the same value in every row: f2",
    )
    assert dense.notes == sparse.notes[1:]


def test_a_sparse_table_has_the_problems_of_its_dense_twin(tmp_path):
    path = tmp_path / "a.svm"
    path.write_text("1 1:inf 3:2\n0 1:-inf 2:1e300\n")
    sparse = survey.survey_table(SourceSpec(path=str(path)))
    dense = survey_sheet("a.svm", Sheet(read_table(SourceSpec(path=str(path)))))
    assert len(sparse.problems) == 2
    assert (sparse.columns, sparse.problems) == (dense.columns, dense.problems)


def test_a_wide_table_is_printed_in_part(tmp_path):
    (tmp_path / "a.svm").write_text("1 1:1 300:1\n0 7:1\n")
    result = run(str(tmp_path / "a.svm"))
    assert result.exception is None
    assert "and 102 more columns, which --json describes" in result.stdout
    assert "f198" in result.stdout
    assert "f199" not in result.stdout
    told = json.loads(run(str(tmp_path / "a.svm"), "--json").stdout.splitlines()[-1])
    assert len(told["files"][0]["columns"]) == 302


def test_names_with_markup_are_printed_as_they_are(tmp_path):
    (tmp_path / "a.csv").write_text("id,[red]x[/red]\n1,2\n")
    assert "[red]x[/red]" in run(str(tmp_path / "a.csv")).stdout


def test_check_needs_a_file():
    assert run().exit_code == 2


def test_the_public_tables_are_fine_but_for_lists(data_file):
    for name, n_problems in (("default_credit", 0), ("adult_test", 0), ("reuters_moneyfx_test", 1)):
        result = run(str(data_file(f"{name}.parquet")), "--json")
        assert json.loads(result.stdout.splitlines()[-1])["problems"] == n_problems, name


def test_the_ids_that_tables_have_in_common_are_counted(tmp_path):
    (tmp_path / "a.csv").write_text("id,x\n1,5\n2,6\n3,7\n4,8\n")
    pq.write_table(pa.table({"nr": [2, 3, 9], "z": [0.5, 1.5, 2.5]}), tmp_path / "b.parquet")
    files = [str(tmp_path / "a.csv"), str(tmp_path / "b.parquet")]
    result = run(*files)
    assert result.exception is None
    assert "common ids: 2 (50 % of a.csv, 66.7 % of b.parquet)" in result.stdout
    told = json.loads(run(*files, "--json").stdout.splitlines()[-1])
    assert told["common_ids"] == {"count": 2, "shares": [0.5, 2 / 3]}
    assert "common" not in run(files[0]).stdout


def test_declared_ids_are_the_ones_compared(tmp_path):
    (tmp_path / "a.csv").write_text("id,code\n1,A7\n2,B8\n")
    (tmp_path / "b.csv").write_text("id,x\na7,1\nb8,2\na7,3\n")
    declared = f"path: {tmp_path / 'a.csv'}\nid: [code]\nid_format: {{lower: true}}\n"
    (tmp_path / "a.yaml").write_text(declared)
    result = run(str(tmp_path / "a.yaml"), str(tmp_path / "b.csv"))
    assert "common ids: 2 (100 % of a.csv, 100 % of b.csv)" in result.stdout
    assert "2 of 3 rows share their id" in result.stdout


def test_tables_without_readable_ids_have_no_known_ids_in_common(tmp_path):
    (tmp_path / "a.csv").write_text("id,x\n1,5\n,6\n")
    (tmp_path / "b.csv").write_text("id,x\n1,5\n")
    for other in ("b.csv", "absent.csv"):
        files = [str(tmp_path / "a.csv"), str(tmp_path / other)]
        assert "common ids: unknown" in run(*files).stdout
        assert json.loads(run(*files, "--json").stdout.splitlines()[-1])["common_ids"] is None


def test_an_empty_table_has_no_ids_in_common(tmp_path):
    (tmp_path / "a.csv").write_text("id,x\n1,5\n2,6\n")
    pq.write_table(pa.table({"id": pa.array([], pa.int64())}), tmp_path / "b.parquet")
    result = run(str(tmp_path / "a.csv"), str(tmp_path / "b.parquet"))
    assert isinstance(result.exception, DataError)
    assert "problems found" in str(result.exception)


def test_columns_that_teach_nothing_are_noted():
    n = 20
    notes = look(
        id=[*range(n)],
        none=pa.nulls(n),
        same=["7"] * n,
        one_missing=[7.0] * (n - 1) + [None],
        account=[f"k{place}" for place in range(n)],
        measured=[place / 3 for place in range(n)],
    ).notes
    assert "columns without any value: none" in notes
    assert "columns with the same value in every row: same" in notes
    assert "columns with a different value in every row, as ids have: account" in notes
