"""Columns of categories: do parties grow the trees that one table would, whoever has them?"""

import numpy as np
import pyarrow.parquet as pq
import pytest

from fedboost.core import local, metrics
from fedboost.core.params import TreeParams
from fedboost.data.columns import kind_of
from fedboost.data.loading import load_frame
from fedboost.data.selection import Selection
from fedboost.data.sources import SourceSpec
from fedboost.model import columns
from tests.support.federated import GUEST
from tests.support.secureboost_jobs import (
    CLASSES,
    SAMPLES,
    SWITCHES,
    VECTORS,
    assert_naive,
    assert_pooled,
    made,
    owners,
)

AUC_GAP_MAX = 0.005


def by_category(rounds):
    """How many splits of these trees divide categories."""
    return sum(int(tree.left_bins.any(axis=1).sum()) for trees in rounds for tree in trees)


@pytest.mark.parametrize("missing", [0.0, 0.15], ids=["", "missing"])
@pytest.mark.parametrize("widths", [(1, 1), (2, 3), (2, 3, 2), (1, 2, 2, 2)], ids=str)
def test_categories_grow_the_pooled_trees(widths, missing):
    job = made({"n_estimators": 4}, widths, rows=200, missing=missing, categories=6)
    done = assert_pooled(job)
    assert by_category(done.trained.rounds) > 2
    assert owners(done.trained.rounds, job.widths) == set(job.widths)


@pytest.mark.parametrize("objective", [CLASSES, VECTORS], ids=["trees", "vectors"])
def test_classes_rank_categories_as_one_table_does(objective):
    done = assert_pooled(made({**objective, "n_estimators": 2}, rows=200, categories=5))
    assert by_category(done.trained.rounds) > 0


@pytest.mark.parametrize("sample", SAMPLES.values(), ids=SAMPLES)
def test_samples_leave_categories_where_they_are(sample):
    assert_pooled(made(sample, (2, 3, 4), rows=200, categories=5))


@pytest.mark.parametrize("mode", [{"mode": "mix"}, {"mode": "layered"}], ids=["mix", "layered"])
def test_modes_divide_categories_too(mode):
    done = assert_naive(made({**mode, "n_estimators": 3}, rows=200, categories=5))
    assert by_category(done.twin.rounds) > 0


@pytest.mark.parametrize("off", [*SWITCHES, "all"])
@pytest.mark.parametrize("scheme", ["paillier", "okamoto-uchiyama"])
def test_no_switch_changes_a_split_of_categories(off, scheme):
    said = dict.fromkeys(SWITCHES if off == "all" else (off,), False)
    encryption = {"scheme": scheme, "key_bits": 2048}
    small = {"n_estimators": 1, "max_depth": 2, "max_bin": 4, "encryption": encryption}
    assert_pooled(made({**said, **small}, (1, 2), rows=60, categories=4))


def test_more_categories_than_bins_go_with_the_missing_ones():
    job = made({"max_bin": 4, "n_estimators": 4}, (1, 2), rows=300, categories=9, missing=0.0)
    done = assert_pooled(job)
    rare = [tree.missing_left[tree.left_bins.any(axis=1)] for (tree,) in done.trained.rounds]
    assert any(indices.any() for indices in rare)
    known = done.shards[GUEST].facts["categories"]["c0"]
    assert len(known) == 4
    codes = job.columns[GUEST][~job.out, -1]
    counts = {f"{GUEST} {code}": int((codes == code).sum()) for code in range(9)}
    assert min(counts[text] for text in known) >= max(
        count for text, count in counts.items() if text not in known
    )


def test_a_category_that_training_never_saw_counts_as_missing():
    job = made({"n_estimators": 3}, (1, 2), rows=200, categories=6)
    for values in job.columns.values():
        held = np.flatnonzero(job.out)
        values[held[: len(held) // 2], -1] = 5  # validation rows only
        trained_on = np.flatnonzero(~job.out)
        values[trained_on[values[trained_on, -1] == 5], -1] = 4
    assert_pooled(job)


@pytest.mark.some(1, of="models of real tables")
def test_adult_scores_as_xgboost_with_its_own_categories(data_file):
    xgb = pytest.importorskip("xgboost")
    paths = {part: data_file(f"adult_{part}.parquet") for part in ("train", "test")}
    schema = pq.read_schema(paths["train"])
    texts = [field.name for field in schema if kind_of(field.type) == "text"]
    frames = {
        part: load_frame(
            *(SourceSpec(path=str(path)), Selection(label="y", categorical=texts)),
            party=GUEST,
            needs_label=True,
        )
        for part, path in paths.items()
    }
    train, test = frames["train"], frames["test"]
    assert train.label is not None
    assert test.label is not None
    known = {"columns": train.columns, "categories": train.categories}
    values = {part: columns.model_values(known, frame) for part, frame in frames.items()}
    params = TreeParams(n_estimators=25, max_depth=5, max_bin=64)
    table = local.TrainingTable(values["train"], train.label, categorical=train.categorical)
    ours = local.train(table, params)
    kinds = ["c" if name in texts else "float" for name in train.columns]
    rows = {
        part: xgb.DMatrix(values[part], frame.label, feature_types=kinds, enable_categorical=True)
        for part, frame in frames.items()
    }
    said = {"objective": "binary:logistic", "max_depth": 5, "eta": 0.3, "max_bin": 64}
    theirs = xgb.train({**said, "max_cat_to_onehot": 1}, rows["train"], 25)
    weight = np.ones(test.n_rows)
    mine = metrics.evaluate("auc", test.label, ours.predict(values["test"]), weight)
    other = metrics.evaluate("auc", test.label, theirs.predict(rows["test"])[:, None], weight)
    assert by_category(ours.rounds) > 100
    assert mine > other - AUC_GAP_MAX
