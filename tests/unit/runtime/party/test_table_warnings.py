"""A job whose tables make one doubt its model says so in its result, its report and the log."""

import logging

import numpy as np
import pyarrow as pa
import pytest

from fedboost.core.metrics import ranks_label
from fedboost.data.frame import Frame
from fedboost.ground.ids import EncodedIds
from fedboost.report.page import render_page
from fedboost.runtime.party.job import table_warnings
from tests.support import small_jobs
from tests.support.federated import PLAIN, job_spec, now, run_job, run_jobs

ROWS = 1000
PARAMS = {"n_estimators": 2, "max_depth": 2, **PLAIN}


def frame(label, **columns):
    values = np.asfortranarray(np.stack(list(columns.values()), axis=1), np.float32)
    ids = EncodedIds.of(f"{n}".encode() for n in range(len(label)))
    return Frame(ids, values, tuple(columns), np.asarray(label, np.float64), ("id",))


def tables(rng, *, guest=(), host=()):
    """Two parties' tables; the columns in `guest` and `host` hold the label with a little noise."""
    y = rng.integers(0, 2, ROWS)
    y[:20] = [0, 1] * 10
    ids = [f"p{n}" for n in range(ROWS)]
    leak = y + rng.uniform(0, 0.4, ROWS)
    bank = {"id": ids, "y": y, "age": rng.normal(size=ROWS), **dict.fromkeys(guest, leak)}
    telco = {"id": ids, "calls": rng.normal(size=ROWS), **dict.fromkeys(host, leak)}
    return {"bank": pa.table(bank), "telco": pa.table(telco)}


def run(tmp_path, given, declared=None, **params):
    spec = job_spec("secureboost", ("bank", "telco"), params={**PARAMS, **params})
    return run_job(tmp_path, given, spec, declared=declared)


def test_a_column_of_the_guest_that_ranks_the_labels_alone_is_a_warning(tmp_path, caplog):
    given = tables(np.random.default_rng(1), guest=["paid"])
    with caplog.at_level(logging.WARNING):
        done = run(tmp_path, given)
    (warning,) = done.result["warnings"]
    assert warning == (
        "bank: paid alone nearly gives the answer (AUC beyond 0.95). If unknown at prediction "
        "time, add it to 'ignore'."
    )
    assert list(done.journal.status.warnings) == [warning]
    assert warning.replace("'", "&#39;") in render_page(done.journal)
    assert warning in caplog.text


@pytest.mark.parametrize("trees", ["one", "forest", "buckets"])
def test_a_column_of_a_host_that_ranks_the_labels_alone_is_a_warning(tmp_path, trees):
    given = tables(np.random.default_rng(2), host=["paid"])
    if trees == "buckets":
        params = {"n_estimators": 2, "max_depth": 2, "epsilon": None}
        spec = job_spec("federboost-vertical", ("bank", "telco"), params=params)
        done = run_job(tmp_path, given, spec)
    else:
        forest = {"forest": {"n_trees": 3, "colsample_bytree": 0.5}} if trees == "forest" else {}
        done = run(tmp_path, given, **forest)
    (warning,) = done.result["warnings"]
    assert warning.startswith("telco: a column alone nearly gives")
    assert "paid" not in warning  # the guest does not know its name


def test_under_label_protection_nobody_hears_what_a_host_s_split_says(tmp_path):
    given = tables(np.random.default_rng(2), host=["paid"])
    assert "warnings" not in run(tmp_path, given, label_protection={}).result


def test_a_table_without_such_a_column_has_no_warning(tmp_path):
    done = run(tmp_path, tables(np.random.default_rng(3)))
    assert "warnings" not in done.result
    assert "Warning:" not in render_page(done.journal)


def test_others_read_no_name_unless_the_owner_tells_figures():
    (one,) = table_warnings.frame_warnings("bank", frame([0, 1] * 10, paid=[0.0, 1.0] * 10))
    assert "paid" in one.text
    assert "paid" not in one.public_text
    assert one.public_text.startswith("bank: a column alone nearly gives the answer; ")


def test_a_host_that_adds_nothing_to_the_model_is_a_warning(tmp_path):
    given = tables(np.random.default_rng(3))
    columns = {"id": given["telco"]["id"], "a": [7.0] * ROWS, "b": pa.nulls(ROWS)}
    done = run(tmp_path, {**given, "telco": pa.table(columns)})
    assert done.result["warnings"] == [
        "telco: every column is constant or missing, so it adds nothing to the model; check how "
        "the table was made"
    ]


def test_a_column_whose_large_whole_numbers_merge_is_a_warning(tmp_path):
    given = tables(np.random.default_rng(3))
    large = pa.array([2**53 + n for n in range(ROWS)])
    telco = given["telco"].append_column("stamp", large)
    (warning,) = run(tmp_path, {**given, "telco": telco}).result["warnings"]
    assert warning.startswith("telco: column stamp: different whole numbers become the same 32-bit")


def test_a_label_beyond_32_bit_floats_ends_the_job_with_its_remedy(tmp_path):
    given = tables(np.random.default_rng(3))
    bank = given["bank"].drop(["y"]).append_column("y", pa.array([1e300] * ROWS))
    params = {**PARAMS, "objective": "reg:squarederror"}
    spec = job_spec("secureboost", ("bank", "telco"), params=params)
    done = run_job(tmp_path, {**given, "bank": bank}, spec)
    assert done.state == "failed"
    assert "beyond what 32-bit floats hold" in done.error.what
    assert done.error.todo == "rescale the label"


def test_dates_named_as_categories_end_the_job_and_its_remedy_works(tmp_path):
    given = tables(np.random.default_rng(3))
    days = [str(np.datetime64("2020-01-01") + n) for n in range(ROWS)]
    both = {**given, "telco": given["telco"].append_column("when", pa.array(days))}
    spec = job_spec("secureboost", ("bank", "telco"), params=PARAMS,
                    data={"telco": {"categorical": ["when"]}})  # fmt: skip
    refused = run_job(tmp_path / "refused", both, spec)
    assert refused.state == "failed"
    assert "'when' has 1000 different values; at most 100" in refused.error.what
    assert refused.error.todo == "name it in 'dates' of the data set, not in 'categorical'"
    done = run(tmp_path, both, declared={"telco": {"dates": ["when"]}})
    assert done.state == "finished"
    assert "warnings" not in done.result


def spelled(ids, text):
    """Two tables, with `ids` at the guest and `text` at the host."""
    rng = np.random.default_rng(4)
    y = rng.integers(0, 2, ROWS)
    bank = {"id": ids, "y": y, "age": rng.normal(size=ROWS)}
    telco = {"id": text, "calls": rng.normal(size=ROWS)}
    return {"bank": pa.table(bank), "telco": pa.table(telco)}


def test_a_result_says_how_many_ids_matched_and_why_others_may_not(tmp_path, caplog):
    numbers = np.arange(ROWS) + 80
    given = spelled(numbers, [f"{n:04d}" for n in numbers])
    done = run(tmp_path, given)
    assert done.result["ids"] == {
        "bank": {"brought": 1000, "matched": 80},
        "telco": {"brought": 1000, "matched": 80},
    }
    bank, telco = sorted(w for w in done.result["warnings"] if "matched (8 %)" in w)
    assert bank.startswith("bank: 80 of 1000 ids matched (8 %). Of the others: 100 % of them have ")
    assert bank.endswith("declare id_format: {zfill: 4}")
    assert "100 % of them begin with a zero" in telco
    assert bank in caplog.text
    assert telco in caplog.text
    page = render_page(done.journal)
    assert "80 of 1,000 ids matched" in page
    assert "begin with a zero" in page


def test_a_job_on_rows_that_an_earlier_one_aligned_says_the_same(tmp_path):
    spec = job_spec("secureboost", ("bank", "telco"), params=PARAMS)

    def again(before):
        return spec.model_copy(update={"alignment": before.journal.status.id})

    given = tables(np.random.default_rng(3))
    first, second = now(run_jobs(tmp_path, given, [spec, again]))
    assert second.result["ids"] == first.result["ids"]


def test_a_hybrid_job_says_how_many_ids_of_each_host_matched(tmp_path):
    given = small_jobs.tables("hybridtree")
    spec = small_jobs.spec("hybridtree")
    done = run_job(tmp_path, given, spec)
    own = {party: set(table["id"].to_pylist()) for party, table in given.items()}
    bank = own.pop("bank")
    expected = {"bank": {"brought": len(bank), "matched": len(bank & set.union(*own.values()))}}
    for host, ids in own.items():
        expected[host] = {"brought": len(ids), "matched": len(ids & bank)}
    assert done.result["ids"] == expected


def test_an_id_format_brings_the_ids_together(tmp_path):
    numbers = np.arange(ROWS) + 80
    given = spelled(numbers, [f"{n:04d}" for n in numbers])
    done = run(tmp_path, given, declared={"bank": {"id_format": {"zfill": 4}}})
    assert done.result["ids"]["bank"] == {"brought": 1000, "matched": 1000}
    assert "warnings" not in done.result


def test_a_few_ids_that_do_not_match_are_counted_and_not_warned_of(tmp_path):
    ids = [f"p{n}" for n in range(ROWS)]
    done = run(tmp_path, spelled(ids, [*ids[:950], *(f"q{n}" for n in range(50))]))
    assert done.result["ids"]["telco"] == {"brought": 1000, "matched": 950}
    assert "warnings" not in done.result


@pytest.mark.parametrize(
    ("label", "values"),
    [
        ([0, 1] * 9, [0.0, 1.0] * 9),  # too few rows
        (list(range(20)), [float(n) for n in range(20)]),  # more than two classes
        ([0, 1] * 20, [0.0, 1.0, 1.0, 0.0] * 10),
    ],
)
def test_nothing_is_said_of_few_rows_of_numbers_and_of_honest_columns(label, values):
    assert table_warnings.frame_warnings("bank", frame(label, a=values)) == ()


def test_missing_cells_and_falling_values_give_a_label_away_too():
    label = np.array([0.0, 1.0] * 20)
    assert ranks_label(label, np.where(label == 1.0, np.nan, 3.0))
    assert ranks_label(label, -label)
    assert not ranks_label(label, np.zeros(40))


def test_more_bins_than_an_owners_groups_are_warned_of():
    (warning,) = table_warnings.group_warnings("telco", 32, 64)
    assert "telco lets jobs tell 32 groups of a column's values apart" in warning.text
    assert not [*table_warnings.group_warnings("telco", 32, 32)]
    assert not [*table_warnings.group_warnings("telco", None, 256)]
    assert not [*table_warnings.group_warnings("telco", 32, None)]


def test_thresholds_inside_groups_of_a_table_to_predict_are_warned_of():
    (warning,) = table_warnings.threshold_warnings("telco", 3)
    assert "3 of its thresholds" in warning.text
    assert not [*table_warnings.threshold_warnings("telco", 0)]


def test_more_categories_than_bins_are_warned_of_with_the_share_that_is_merged():
    values = np.asfortranarray(np.array([[0.0], [0.0], [1.0], [2.0], [np.nan]], np.float32))
    ids = EncodedIds.of(f"{n}".encode() for n in range(5))
    table = Frame(ids, values, ("town",), None, ("id",), categories={"town": ("a", "b", "c")})
    (warning,) = table_warnings.of_many_categories("telco", table, {"town": 2})
    assert "town has 3 and keeps 2; the others are 25 % of its values" in warning.text
    assert "raise max_bin" in warning.text
    assert "town" not in warning.public_text
    assert not [*table_warnings.of_many_categories("telco", table, {"town": 3})]
    assert not [*table_warnings.of_many_categories("telco", table, {"town": None})]
