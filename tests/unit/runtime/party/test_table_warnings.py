"""A job whose tables make one doubt its model says so in its result, its report and the log."""

import logging

import numpy as np
import pyarrow as pa
import pytest

from fedboost.core.metrics import ranks_alone
from fedboost.data.frame import Frame
from fedboost.report.page import render
from fedboost.runtime.party import table_warnings
from tests.support.federated import PLAIN, job_spec, run_job

ROWS = 1000
PARAMS = {"n_estimators": 2, "max_depth": 2, **PLAIN}


def frame(label, **columns):
    values = np.asfortranarray(np.stack(list(columns.values()), axis=1), np.float32)
    ids = [f"{n}".encode() for n in range(len(label))]
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


def run(tmp_path, given, **data):
    spec = job_spec("secureboost", ("bank", "telco"), params=PARAMS, data=data)
    return run_job(tmp_path, given, spec)


def test_a_column_of_the_guest_that_ranks_the_labels_alone_is_a_warning(tmp_path, caplog):
    given = tables(np.random.default_rng(1), guest=["paid"])
    with caplog.at_level(logging.WARNING):
        done = run(tmp_path, given)
    (warning,) = done.result["warnings"]
    assert warning.startswith("bank: each of these columns alone ranks the labels almost perfectly")
    assert "(AUC beyond 0.95): paid; name in 'ignore'" in warning
    assert list(done.journal.status.warnings) == [warning]
    assert f"Warning: {warning}".replace("'", "&#39;") in render(done.journal)
    assert warning in caplog.text


def test_a_column_of_a_host_that_ranks_the_labels_alone_is_a_warning(tmp_path):
    given = tables(np.random.default_rng(2), host=["paid"])
    (warning,) = run(tmp_path, given).result["warnings"]
    assert warning.startswith("telco: one split of its column alone ranks the labels almost")
    assert "paid" not in warning  # the guest does not know its name


def test_a_table_without_such_a_column_has_no_warning(tmp_path):
    done = run(tmp_path, tables(np.random.default_rng(3)))
    assert "warnings" not in done.result
    assert "Warning:" not in render(done.journal)


def test_others_read_no_name_unless_the_owner_tells_figures():
    (one,) = table_warnings.of_frame("bank", frame([0, 1] * 10, paid=[0.0, 1.0] * 10))
    assert "paid" in one.text
    assert "paid" not in one.quiet
    assert one.quiet.startswith("bank: a column alone ranks the labels almost perfectly; ")


@pytest.mark.parametrize(
    ("label", "values"),
    [
        ([0, 1] * 9, [0.0, 1.0] * 9),  # too few rows
        (list(range(20)), [float(n) for n in range(20)]),  # more than two classes
        ([0, 1] * 20, [0.0, 1.0, 1.0, 0.0] * 10),
    ],
)
def test_nothing_is_said_of_few_rows_of_numbers_and_of_honest_columns(label, values):
    assert table_warnings.of_frame("bank", frame(label, a=values)) == ()


def test_missing_cells_and_falling_values_give_a_label_away_too():
    label = np.array([0.0, 1.0] * 20)
    assert ranks_alone(label, np.where(label == 1.0, np.nan, 3.0))
    assert ranks_alone(label, -label)
    assert not ranks_alone(label, np.zeros(40))
