"""Labels one by one: a fold of one row, whose metric is that person's label.

The coordinator and the submitter read metrics alone; the defence is `Judge.judge_row_counts`, of
sets that overlap `Judge.judge_row_sets`.
"""

import math

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from fedboost.data.holdout import fold_rows, validation_rows
from fedboost.data.ids import encode_ids
from fedboost.data.sources import SourceSpec
from fedboost.flow import Spent
from fedboost.ground.workers import Serial
from fedboost.runtime.cluster import local
from fedboost.runtime.config.policy import Policy
from fedboost.runtime.policy.judgement import Judge
from fedboost.runtime.transport import faults
from tests.support.federated import PLAIN, job_spec, now

BANK, TELCO, MILL = "bank", "telco", "mill"
ROWS, FOLDS_TRIED = 60, 4
PEOPLE = [f"p{n}" for n in range(ROWS)]
LABELS = np.random.default_rng(3).integers(0, 2, ROWS)
PARAMS = {"n_estimators": 1, "max_depth": 1, "max_bin": 2, "eval_metric": ["logloss"], **PLAIN}
SURE = {"base_score": 0.9, "learning_rate": 1e-6}  # a label of 0 costs much more than one of 1
LOSS = {**PARAMS, **SURE}
EVERYBODY = job_spec("secureboost", [BANK, TELCO, MILL], params=LOSS)


def job(fold, folds):
    return held_job(fold=fold, folds=folds)


def held_job(**held):
    return job_spec("secureboost", [BANK, TELCO], params=LOSS, validation=held)


def measured(folder, jobs, split="validation", **rules):
    """How each job stands, the last logloss of a part of the rows, and what bank was charged."""
    tables = {
        BANK: {"id": PEOPLE, "y": LABELS},
        TELCO: {"id": PEOPLE, "x": np.arange(ROWS) * 1.0},
        MILL: {"id": PEOPLE[1:], "x": np.arange(1, ROWS) * 1.0},
    }
    sources = {}
    for party, columns in tables.items():
        pq.write_table(pa.table(columns), folder / f"{party}.parquet")
        sources[party] = SourceSpec(path=str(folder / f"{party}.parquet"))

    async def run():
        async with local.open_cluster(folder / "c", EVERYBODY, sources, Serial()) as cluster:
            node = cluster.parties[BANK]
            policy = node.config.policy.model_copy(update={"holdout_rows_min": 20, **rules})
            node.config = node.config.model_copy(update={"policy": policy})
            node.judge.config = node.config
            found = []
            for spec in jobs:
                journal = await cluster.run(spec)
                told = [e.round.metrics for e in journal.events if e.WhichOneof("what") == "round"]
                losses = [m.value for one in told for m in one if m.split == split]
                found.append((journal.status, losses[-1] if losses else None))
            entries = node.spending.account.entries()
            return found, [sum(one.charged.get(Spent.METRICS, {}).values()) for one in entries]

    return now(run())


def held_out(fold):
    ids = encode_ids([pa.chunked_array([pa.array(PEOPLE)])], ["id"])
    return LABELS[fold_rows(ids, fold, ROWS, 0)].tolist()


def test_no_metric_is_about_a_single_person(tmp_path):
    [(status, loss)], told = measured(tmp_path, [job(0, ROWS)])
    assert (status.state, loss, sum(told)) == ("failed", None, 0)
    error = faults.error_of_fault(status.reason)
    assert (error.code, error.where["key"]) == ("policy", "policy.holdout_rows_min")
    assert "1" not in error.what


def test_the_metric_of_a_fold_of_one_row_was_its_label(tmp_path, monkeypatch):
    for judgement in ("judge_row_counts", "judge_row_sets"):
        monkeypatch.setattr(Judge, judgement, lambda *_: lambda: None)
    found, _ = measured(tmp_path, [job(fold, ROWS) for fold in range(FOLDS_TRIED)])
    learned = [int(loss < -math.log(0.5)) for _, loss in found]
    assert [[label] for label in learned] == [held_out(fold) for fold in range(FOLDS_TRIED)]


def test_no_metric_is_about_few_people_of_a_class(tmp_path):
    [(status, _)], _ = measured(tmp_path, [job(0, 2)])  # 30 rows, of which fewer than 20 have a 1
    error = faults.error_of_fault(status.reason)
    assert "of each class" in error.what


def test_metrics_that_are_told_are_counted(tmp_path):
    found, told = measured(tmp_path, [job(0, 2), job(1, 2)], holdout_rows_min=5)
    assert [status.state for status, _ in found] == ["finished", "finished"]
    assert told[0] == told[1] > 0


# More and more of them


def test_metrics_beyond_the_owners_limit_are_not_told(tmp_path):
    jobs = [job(0, 2), job(1, 2)]
    found, told = measured(tmp_path, jobs, holdout_rows_min=5, metrics_max=1)
    errors = [faults.error_of_fault(status.reason) for status, _ in found]
    assert [one.where["key"] for one in errors] == ["policy.metrics_max"] * 2
    assert [loss for _, loss in found] == [None, None]
    assert sum(told) <= 1


def test_metrics_are_told_without_end_where_nobody_adds_them_up(tmp_path, monkeypatch):
    monkeypatch.setattr(Policy, "judge_told_metrics", lambda *_: None)
    jobs = [job(0, 2), job(1, 2)]
    found, told = measured(tmp_path, jobs, holdout_rows_min=5, metrics_max=1)
    assert [status.state for status, _ in found] == ["finished", "finished"]
    assert sum(told) > 2


# Two sets, the difference of whose metrics is one person's label


NESTED = [held_job(fraction=held / ROWS) for held in (24, 25)]


def test_no_two_metrics_differ_by_a_single_person(tmp_path):
    found, _ = measured(tmp_path, [*NESTED, NESTED[0]], holdout_rows_min=4)
    assert [status.state for status, _ in found] == ["finished", "failed", "finished"]
    error = faults.error_of_fault(found[1][0].reason)
    assert error.where["key"] == "policy.holdout_rows_min"
    assert "with this job it would be fewer" in error.what


def test_the_difference_of_two_metrics_was_a_persons_label(tmp_path, monkeypatch):
    monkeypatch.setattr(Judge, "judge_row_sets", lambda *_: lambda: None)
    found, _ = measured(tmp_path, NESTED, holdout_rows_min=4)
    [(_, few), (_, more)] = found
    ids = encode_ids([pa.chunked_array([pa.array(PEOPLE)])], ["id"])
    sets = [validation_rows(ids, held / ROWS, 0) for held in (24, 25)]
    [label] = LABELS[sets[1] & ~sets[0]]
    assert int(25 * more - 24 * few < -math.log(0.5)) == label


# The same of training rows: a host that lacks one person leaves the others in common


ALL_TRAIN = [job_spec("secureboost", [BANK, host], params=LOSS) for host in (TELCO, MILL)]


def test_no_two_metrics_of_training_rows_differ_by_a_single_person(tmp_path):
    found, _ = measured(tmp_path, [*ALL_TRAIN, ALL_TRAIN[0]], "train", holdout_rows_min=4)
    assert [status.state for status, _ in found] == ["finished", "failed", "finished"]
    assert [loss is None for _, loss in found] == [False, True, False]


def test_the_difference_of_two_metrics_of_training_rows_was_a_persons_label(tmp_path, monkeypatch):
    monkeypatch.setattr(Judge, "judge_row_sets", lambda *_: lambda: None)
    [(_, more), (_, few)], _ = measured(tmp_path, ALL_TRAIN, "train", holdout_rows_min=4)
    assert int(60 * more - 59 * few < -math.log(0.5)) == LABELS[0]
