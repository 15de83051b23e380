"""A pooled table is dealt out as the plan says, and nothing of it is lost or doubled."""

import fcntl
import json
import os
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from fedboost.cli.groups import data_group
from fedboost.data.loading import load_frame
from fedboost.data.selection import Selection
from fedboost.data.sources import SourceSpec
from fedboost.data.split import SplitPlan, split_table, write_tables
from fedboost.ground.errors import ConfigError, DataError, FedboostError
from fedboost.ground.settings import parse_settings
from tests import tiers

NAMES = ["a", "b", "c", "d", "e"]
N_ROWS = 200


def pooled(n_rows: int = N_ROWS, **more: Any) -> pa.Table:
    rng = np.random.default_rng(1)
    columns: dict[str, Any] = {"id": np.arange(n_rows) + 1000, "y": rng.integers(0, 3, n_rows)}
    return pa.table(columns | {name: rng.normal(size=n_rows) for name in NAMES} | more)


def deal(layout: str, *parties: str, table: pa.Table | None = None, **options: Any):
    named = [text.partition("=") for text in parties]
    raw = [
        {"name": name, "columns": [c for c in columns.split(",") if c] if sign else None}
        for name, sign, columns in named
    ]
    plan = parse_settings(SplitPlan, {"layout": layout, "parties": raw} | options)
    return split_table(pooled() if table is None else table, plan)


def rows_of(table: pa.Table) -> list[int]:
    return list(table["id"].to_pylist())


def assert_cells_are_the_pooled_ones(tables: dict[str, pa.Table], table: pa.Table) -> None:
    by_id = {row["id"]: row for row in table.to_pylist()}
    for dealt in tables.values():
        for row in dealt.to_pylist():
            assert row == {name: by_id[row["id"]][name] for name in dealt.column_names}


# --- vertical -------------------------------------------------------------------------------


def test_vertical_gives_the_guest_the_label_and_the_unnamed_party_the_rest():
    tables = deal("vertical", "bank=c,a", "telco", "shop=e")
    assert {name: table.column_names for name, table in tables.items()} == {
        "bank": ["id", "y", "c", "a"],
        "telco": ["id", "b", "d"],
        "shop": ["id", "e"],
    }
    assert all(rows_of(table) == rows_of(pooled()) for table in tables.values())
    assert_cells_are_the_pooled_ones(tables, pooled())


def test_vertical_may_leave_columns_out_and_the_guest_without_any():
    tables = deal("vertical", "bank=", "telco=a,b")
    assert tables["bank"].column_names == ["id", "y"]
    assert tables["telco"].column_names == ["id", "a", "b"]


# --- horizontal -----------------------------------------------------------------------------


@settings(max_examples=tiers.examples(25), deadline=None)
@given(st.integers(2, 6), st.integers(0, 99))
def test_horizontal_deals_every_row_once_and_evenly(n_parties, seed):
    tables = deal("horizontal", *[f"p{n}" for n in range(n_parties)], seed=seed)
    dealt = [rows_of(table) for table in tables.values()]
    assert sorted(row for rows in dealt for row in rows) == rows_of(pooled())
    sizes = [len(rows) for rows in dealt]
    assert max(sizes) - min(sizes) <= 1
    assert all(rows == sorted(rows) for rows in dealt)
    assert all(table.column_names == ["id", "y", *NAMES] for table in tables.values())


def test_the_seed_decides_who_gets_what():
    assert deal("horizontal", "a", "b", seed=3) == deal("horizontal", "a", "b", seed=3)
    assert deal("horizontal", "a", "b", seed=3) != deal("horizontal", "a", "b", seed=4)


def spread(tables: dict[str, pa.Table]) -> float:
    """How far the parties' class shares lie apart: mean absolute difference from the pool's."""
    whole = np.bincount(pooled(3000)["y"].to_numpy(), minlength=3) / 3000
    shares = [
        np.bincount(table["y"].to_numpy(), minlength=3) / table.num_rows
        for table in tables.values()
    ]
    return float(np.mean([np.abs(share - whole).mean() for share in shares]))


def test_a_smaller_skew_sets_class_shares_further_apart():
    def mean_spread(skew):
        seeds = range(10)
        table = pooled(3000)
        return np.mean(
            [spread(deal("horizontal", "p", "q", table=table, seed=s, skew=skew)) for s in seeds]
        )

    strong, weak, none = mean_spread(0.5), mean_spread(20.0), mean_spread(None)
    assert strong > 3 * weak > 3 * none


def test_skewed_rows_are_dealt_once():
    tables = deal("horizontal", "p", "q", "r", skew=1.0, seed=2)
    assert sorted(row for table in tables.values() for row in rows_of(table)) == rows_of(pooled())
    assert_cells_are_the_pooled_ones(tables, pooled())


# --- hybrid ---------------------------------------------------------------------------------


def test_hybrid_gives_the_guest_all_rows_and_deals_them_to_the_hosts():
    tables = deal("hybrid", "net=a,b", "h1", "h2", "h3", seed=5)
    guest = tables.pop("net")
    assert guest.column_names == ["id", "y", "a", "b"]
    assert rows_of(guest) == rows_of(pooled())
    assert all(table.column_names == ["id", "c", "d", "e"] for table in tables.values())
    assert sorted(row for table in tables.values() for row in rows_of(table)) == rows_of(pooled())
    assert_cells_are_the_pooled_ones(tables, pooled())


@settings(max_examples=tiers.examples(30), deadline=None)
@given(st.integers(0, 999))
def test_hybrid_draws_the_guests_columns_and_leaves_some(seed):
    tables = deal("hybrid", "net", "h1", "h2", seed=seed)
    guest = tables["net"].column_names[2:]
    assert 1 <= len(guest) <= 4
    assert tables["h1"].column_names[1:] == [name for name in NAMES if name not in guest]


def test_hybrid_draws_other_columns_from_another_seed():
    drawn = {tuple(deal("hybrid", "net", "h1", seed=seed)["net"].column_names) for seed in range(9)}
    assert len(drawn) > 3


def test_hybrid_hosts_may_name_their_own_columns():
    tables = deal("hybrid", "net", "h1=a,b", "h2=b,c")
    assert tables["net"].column_names == ["id", "y", "d", "e"]
    assert tables["h1"].column_names == ["id", "a", "b"]
    assert tables["h2"].column_names == ["id", "b", "c"]


@settings(max_examples=tiers.examples(25), deadline=None)
@given(st.sampled_from([0.0, 0.05, 0.25, 0.5, 1.0]), st.integers(2, 4), st.integers(0, 9))
def test_overlap_is_the_exact_share_of_rows_that_two_hosts_hold(overlap, n_hosts, seed):
    hosts = [f"h{n}" for n in range(n_hosts)]
    tables = deal("hybrid", "net=a", *hosts, overlap=overlap, seed=seed)
    counts = dict.fromkeys(rows_of(pooled()), 0)
    for host in hosts:
        rows = rows_of(tables[host])
        assert len(set(rows)) == len(rows)
        for row in rows:
            counts[row] += 1
    assert set(counts.values()) <= {1, 2}
    assert sum(count == 2 for count in counts.values()) == overlap * N_ROWS


def test_drop_columns_takes_a_share_of_each_hosts_columns():
    tables = deal("hybrid", "net=a", "h1", "h2", "h3", "h4", drop_columns=0.5, seed=1)
    kept = [tuple(tables[f"h{n}"].column_names[1:]) for n in range(1, 5)]
    assert {len(columns) for columns in kept} == {2}
    assert len(set(kept)) > 1
    tables = deal("hybrid", "net=a,b,c,d", "h1", drop_columns=0.9)
    assert tables["h1"].column_names == ["id", "e"]


def test_hybrid_may_be_skewed_by_the_guests_label():
    table = pooled(3000)
    labels = dict(zip(rows_of(table), table["y"].to_pylist(), strict=True))
    tables = deal("hybrid", "net=a", "h1", "h2", skew=0.1, seed=4, table=table)
    shares = [
        np.bincount([labels[row] for row in rows_of(tables[host])], minlength=3) / 3000
        for host in ("h1", "h2")
    ]
    assert np.abs(shares[0] - shares[1]).max() > 0.2


# --- ids ------------------------------------------------------------------------------------


def test_a_table_without_id_gets_row_numbers():
    tables = deal("vertical", "p=a", "q=b", table=pooled().drop_columns("id"))
    assert rows_of(tables["p"]) == rows_of(tables["q"]) == list(range(1, N_ROWS + 1))


def test_another_id_column_becomes_id():
    table = pooled().rename_columns(["key", "y", *NAMES])
    tables = deal("vertical", "p=a", "q", id="key", table=table)
    assert tables["q"].column_names == ["id", "b", "c", "d", "e"]
    assert rows_of(tables["q"]) == rows_of(pooled())


# --- what is refused ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "options", "said"),
    [
        (
            ("diagonal", "p", "q"),
            {},
            "layout: Input should be 'vertical', 'horizontal' or 'hybrid'",
        ),
        (("vertical", "p"), {}, "parties: List should have at least 2 items"),
        (("vertical", "p=a", "p=b"), {}, "party 'p' is named twice"),
        (("vertical", "p=a", "../q"), {}, "parties.1.name: String should match pattern"),
        (("vertical", "p=a", "q\n"), {}, "parties.1.name: String should match pattern"),
        (("vertical", "p", "q"), {}, "2 parties are named without columns: p, q"),
        (("vertical", "p=a", "q="), {}, "this party would get no columns"),
        (("vertical", "p=a", "q=a"), {}, "column 'a' belongs to p already"),
        (("vertical", "p=a,a", "q"), {}, "column 'a' belongs to p already"),
        (("hybrid", "p", "q=a,a"), {}, "column 'a' belongs to q already"),
        (("vertical", "p=y", "q"), {}, "column 'y' is the label or the id"),
        (("vertical", "p=a", "q=id"), {}, "column 'id' is the label or the id"),
        (("vertical", "p=a", "q=A"), {}, "the table has no feature column 'A'"),
        (("vertical", "p=a", "q"), {"skew": 1.0}, "'skew' splits rows"),
        (("vertical", "p=a", "q"), {"overlap": 0.1}, "belong to the hybrid layout"),
        (("horizontal", "p", "q"), {"drop_columns": 0.1}, "belong to the hybrid layout"),
        (("horizontal", "p=a", "q"), {}, "a horizontal layout gives every party all columns"),
        (("horizontal", "p", "q"), {"skew": 0.0}, "skew: Input should be greater than 0"),
        (("horizontal", "p", "q"), {"seed": -1}, "seed: Input should be greater"),
        (("hybrid", "p", "q"), {"overlap": 0.1}, "'overlap' needs at least two hosts"),
        (("hybrid", "p", "q", "r"), {"overlap": 1.1}, "overlap: Input should be less than"),
        (("hybrid", "p", "q"), {"drop_columns": 1.0}, "drop_columns: Input should be less than 1"),
        (("hybrid", "p=a,b,c,d,e", "q"), {}, "this party would get no columns"),
        (("hybrid", "p", "q=a,b,c,d", "r"), {}, "this party would get no columns"),
        (("horizontal", "p", "q"), {"label": "z"}, "the table has no label column 'z'"),
        (("horizontal", "p", "q"), {"id": "key"}, "the table has no id column 'key'"),
        (("horizontal", "p", "q"), {"id": "a"}, "are not whole numbers"),
        (("horizontal", "p", "q"), {"label": "id"}, "column 'id' is taken"),
        (("horizontal", "p", "q"), {"skew": 1e-9}, "this party would get no rows"),
    ],
)
def test_a_plan_that_does_not_fit_is_refused(arguments, options, said):
    table = pooled().set_column(1, "y", pa.array([0] * N_ROWS)) if "skew" in options else None
    with pytest.raises((ConfigError, DataError), match=said.replace("(", r"\(")):
        deal(*arguments, table=table, **options)


def test_pooled_ids_that_are_shared_are_refused():
    table = pooled().set_column(0, "id", pa.array([7] * N_ROWS))
    with pytest.raises(DataError, match="200 of 200 rows share their id"):
        deal("horizontal", "p", "q", table=table)


def test_a_second_id_column_is_refused():
    table = pooled(key=np.arange(N_ROWS))
    with pytest.raises(ConfigError, match="column 'id' is taken"):
        deal("horizontal", "p", "q", table=table, id="key")


def test_a_label_without_classes_cannot_be_skewed():
    table = pooled(3000, number=np.random.default_rng(0).random(3000))
    with pytest.raises(ConfigError, match="the label has 3000 different values"):
        deal("horizontal", "p", "q", table=table, label="number", skew=1.0)


# --- the command ----------------------------------------------------------------------------


def run(*arguments: str):
    return CliRunner().invoke(data_group, ["split", *arguments])


def test_split_writes_what_a_job_reads(tmp_path):
    pq.write_table(pooled(), tmp_path / "pool.parquet")
    out = tmp_path / "new" / "out"
    given = ["--layout", "vertical", "--party", "bank=a, b", "--party", "telco", "--label", "y"]
    result = run(str(tmp_path / "pool.parquet"), *given, "--out", str(out), "--json")
    assert result.exception is None
    told = json.loads(result.stdout.splitlines()[-1])
    assert [one["party"] for one in told["parties"]] == ["bank", "telco"]
    assert told["parties"][0] == {
        "party": "bank",
        "file": str(out / "bank.parquet"),
        "rows": N_ROWS,
        "columns": ["a", "b"],
        "label": "y",
    }
    guest = SourceSpec(path=str(out / "bank.parquet"))
    host = SourceSpec(path=str(out / "telco.parquet"))
    bank = load_frame(guest, Selection(label="y"), party="bank", needs_label=True)
    telco = load_frame(host, Selection(), party="telco", needs_label=False)
    assert bank.ids == telco.ids
    assert telco.columns == ("c", "d", "e")
    assert sorted(path.name for path in out.iterdir()) == ["bank.parquet", "telco.parquet"]


def test_split_makes_svmlight_dense(tmp_path):
    (tmp_path / "pool.svm").write_text("1 1:0.5\n0 3:2\n")
    parties = ["--party", "bank=f1", "--party", "telco", "--out", str(tmp_path / "o")]
    result = run(str(tmp_path / "pool.svm"), "--layout", "vertical", *parties)
    assert result.exception is None
    assert pq.read_table(tmp_path / "o" / "bank.parquet").to_pydict() == {
        "id": [1, 2],
        "y": [1, 0],
        "f1": [0.5, 0.0],
    }
    telco = pq.read_table(tmp_path / "o" / "telco.parquet").to_pydict()
    assert telco == {"id": [1, 2], "f2": [0.0, 0.0], "f3": [0.0, 2.0]}


def test_split_refuses_svmlight_that_is_too_large_to_be_dense(tmp_path):
    (tmp_path / "pool.svm").write_text(f"1 {2**20}:1\n" * 200)
    parties = ["--party", "a", "--party", "b", "--out", str(tmp_path / "o")]
    result = run(str(tmp_path / "pool.svm"), "--layout", "horizontal", *parties)
    assert isinstance(result.exception, DataError)
    assert "more than 2^27 cells" in result.exception.what
    assert result.exception.where["file"] == "pool.svm"
    assert "write fewer columns" in result.exception.todo
    assert not (tmp_path / "o").exists()


def test_split_reads_csv_and_types_its_columns(tmp_path):
    (tmp_path / "pool.csv").write_text("id,y,a,b,zip\n01,0,1,0.5,007\n02,1,,NA,010\n")
    result = run(
        str(tmp_path / "pool.csv"),
        *["--layout", "horizontal", "--party", "p", "--party", "q", "--out", str(tmp_path / "o")],
    )
    assert result.exception is None
    tables = [pq.read_table(tmp_path / "o" / f"{name}.parquet") for name in "pq"]
    assert {str(field.type) for field in tables[0].schema} == {"string", "int64", "double"}
    rows = sorted((row for table in tables for row in table.to_pylist()), key=lambda r: r["id"])
    assert rows == [
        {"id": "01", "y": 0, "a": 1, "b": 0.5, "zip": "007"},
        {"id": "02", "y": 1, "a": None, "b": None, "zip": "010"},
    ]
    assert "columns that a job must ignore or, if text, name in 'categorical': zip" in result.stdout


def test_split_tells_which_columns_nobody_got(tmp_path):
    pq.write_table(pooled(), tmp_path / "pool.parquet")
    given = ["--layout", "vertical", "--party", "p=a", "--party", "q=b", "--out", str(tmp_path)]
    result = run(str(tmp_path / "pool.parquet"), *given)
    assert "columns that no party got: c, d, e" in result.stdout


def refused(result) -> FedboostError:
    assert isinstance(result.exception, FedboostError)
    assert result.exception.exit_code == 2
    return result.exception


def test_split_never_overwrites_the_pooled_file(tmp_path):
    pq.write_table(pooled(), tmp_path / "p.parquet")
    before = (tmp_path / "p.parquet").read_bytes()
    given = ["--layout", "horizontal", "--party", "p", "--party", "q", "--out", str(tmp_path)]
    assert refused(run(str(tmp_path / "p.parquet"), *given)).what == (
        "the pooled file would be overwritten"
    )
    assert (tmp_path / "p.parquet").read_bytes() == before


def test_split_into_what_is_no_folder_is_refused_and_leaves_nothing(tmp_path):
    pq.write_table(pooled(), tmp_path / "pool.parquet")
    (tmp_path / "o" / "q.parquet" / "full").mkdir(parents=True)
    given = ["--layout", "horizontal", "--party", "q", "--party", "p", "--out", str(tmp_path / "o")]
    assert (
        "cannot write into the folder" in refused(run(str(tmp_path / "pool.parquet"), *given)).what
    )
    assert [path.name for path in (tmp_path / "o").iterdir()] == ["q.parquet"]


def test_split_names_the_file_in_its_errors(tmp_path):
    pq.write_table(pooled(), tmp_path / "pool.parquet")
    given = ["--layout", "vertical", "--party", "p=a", "--party", "q=bb", "--out", str(tmp_path)]
    error = refused(run(str(tmp_path / "pool.parquet"), *given))
    assert error.where == {"file": "pool.parquet", "party": "q", "column": "bb"}
    assert not (tmp_path / "q.parquet").exists()


def test_split_needs_its_options(tmp_path):
    result = run(str(tmp_path / "pool.parquet"), "--layout", "vertical")
    assert result.exit_code == 2
    assert "--party" in result.stderr


@pytest.mark.parametrize(
    ("cells", "kind"),
    [
        ([str(1234567890123456781 + n) for n in range(4)], "int64"),
        ([str(2**63 + n) for n in range(4)], "uint64"),
        ([str(10**20 + n) for n in range(4)], "string"),
        ([f"{1234567890123456781 + n}.5" for n in range(4)], "string"),
        (["NA", "-9007199254740993", "9007199254740993", "9007199254740992"], "int64"),
        (["0.1", "2", "3.25", "1e300"], "double"),
    ],
)
def test_split_loses_no_digit_of_what_csv_says(tmp_path, cells, kind):
    lines = "".join(f"{n},{n % 2},1,{cell}\n" for n, cell in enumerate(cells))
    (tmp_path / "t.csv").write_text("id,y,x,account\n" + lines)
    arguments = ("--layout", "vertical", "--label", "y", "--party", "a=x", "--party", "b=account")
    run(str(tmp_path / "t.csv"), *arguments, "--out", str(tmp_path))
    account = pq.read_table(tmp_path / "b.parquet")["account"]
    assert str(account.type) == kind
    expected = [None if cell == "NA" else cell for cell in cells]
    if kind == "double":
        expected = [float(cell) for cell in cells]
        assert account.to_pylist() == expected
    else:
        assert account.cast(pa.string()).to_pylist() == expected


def test_two_splits_never_mix_their_files(tmp_path):
    tables = {"a": pa.table({"id": [1]}), "b": pa.table({"id": [2]})}
    other = os.open(tmp_path, os.O_RDONLY)
    try:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(ConfigError, match="another split is writing into the folder"):
            write_tables(tables, tmp_path, tmp_path / "pooled.parquet")
    finally:
        os.close(other)
    assert [*tmp_path.iterdir()] == []
    assert write_tables(tables, tmp_path, tmp_path / "pooled.parquet")["b"].exists()
