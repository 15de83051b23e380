"""Training that diverges: capped where it can be, else warned of, or ended with words that help."""

import numpy as np
import pyarrow as pa
import pytest

from fedboost.core.objectives import poisson
from fedboost.report.page import render_page
from tests.support import small_jobs
from tests.support.federated import run_job

TREES = ("secureboost", "federboost-vertical", "federboost-horizontal", "hybridtree")
COUNTS = {"objective": "count:poisson", "learning_rate": 1.0}
UNCAPPED = {**COUNTS, "max_delta_step": 0.0}


def skewed(name, most):
    """The tables of a toy job with counts as labels: almost all 0, a few up to `most`."""
    found = small_jobs.tables(name)
    for party, table in found.items():
        if "y" in table.column_names:
            rare = np.arange(table.num_rows) % 50 == 0
            counts = np.where(rare, most, np.array(table["y"])).astype(np.int64)
            place = table.column_names.index("y")
            found[party] = table.set_column(place, "y", pa.array(counts))
    return found


@pytest.mark.some(2)
@pytest.mark.parametrize("name", TREES)
def test_no_leaf_of_counts_is_above_xgboosts_step(tmp_path, name):
    done = run_job(tmp_path, skewed(name, 10_000), small_jobs.spec(name, **COUNTS))
    assert done.state == "finished"
    for shard in done.shards.values():
        for key in ("value", "leaf_value"):
            if key in shard.arrays:
                assert np.abs(shard.arrays[key]).max(initial=0.0) <= poisson.STEP_DEFAULT


@pytest.mark.some(2)
@pytest.mark.parametrize("name", TREES)
def test_margins_that_overflow_end_the_job_and_say_what_to_do(tmp_path, name):
    loose = {**UNCAPPED, "base_score": 1e-6, "reg_lambda": 0.0, "min_child_weight": 0.0}
    done = run_job(tmp_path, skewed(name, 1000), small_jobs.spec(name, **loose))
    assert done.state == "failed"
    assert done.error.what.startswith("training diverged in round 1")
    assert "set max_delta_step" in done.error.todo


def test_a_loss_that_grows_is_warned_of_in_result_and_status_and_report(tmp_path):
    params = {"scale_pos_weight": 100.0, "base_score": 0.5, "eval_metric": ["auc", "logloss"]}
    more = {"learning_rate": 0.1, "n_estimators": 5, "max_depth": 1}
    spec = small_jobs.spec("secureboost", **params, **more)
    done = run_job(tmp_path, small_jobs.tables("secureboost"), spec)
    [warning] = done.result["warnings"]
    assert warning.startswith("the training logloss grew 3 rounds in a row")
    assert warning in done.journal.status.warnings
    assert warning in render_page(done.journal)
