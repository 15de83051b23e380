"""Sparse tables: the trees, margins and predictions of the same numbers written out in full."""

from dataclasses import replace
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy.sparse import csc_array

from fedboost.core import bins, local
from fedboost.core.bins import SparseBins
from fedboost.core.params import TreeParams
from fedboost.data.loading import load_frame
from fedboost.data.selection import Selection
from fedboost.data.sources import SourceSpec
from fedboost.encrypted.cells import row_cells
from fedboost.flow import MODEL
from tests.support.federated import GUEST, HOSTS, Room, now, room_for
from tests.support.secureboost_jobs import CLASSES, VECTORS, made

AUC_GAP_MAX = 0.01


def sparse(values):
    """The same numbers as a sparse array; missing ones are stored."""
    return csc_array(values)


def rooms_of(job, parties):
    """A job's room, and the same with the tables of some parties sparse."""
    room = job.room()
    contexts = {}
    for party, context in job.room().contexts.items():
        frame = context.frame
        if party in parties:
            frame = replace(frame, values=sparse(frame.values))
        contexts[party] = replace(context, frame=frame)
    return room, Room(room.protocol, contexts)


def assert_same(job, parties):
    """Both rooms come to the same shards, margins and metrics; gives the shards."""
    dense, other = rooms_of(job, parties)
    expected, found = now(dense.walk()), now(other.walk())
    for party, shard in expected.items():
        assert found[party].facts == shard.facts
        for name, array in shard.arrays.items():
            assert found[party].arrays[name].tobytes() == array.tobytes(), (party, name)
    assert other.state(GUEST).margin.tobytes() == dense.state(GUEST).margin.tobytes()
    return found


@pytest.mark.some(2)
@pytest.mark.parametrize("parties", [HOSTS[:1], (GUEST,), (GUEST, *HOSTS[:2])], ids=str)
@pytest.mark.parametrize("missing", [0.0, 0.1], ids=["", "missing"])
@pytest.mark.parametrize("zero", [0.5, 0.95])
def test_sparse_tables_grow_the_dense_trees(parties, missing, zero):
    job = made({"max_depth": 4}, (2, 3, 2), rows=200, zero=zero, missing=missing)
    found = assert_same(job, parties)
    assert any(len(found[host].arrays["tree"]) for host in HOSTS[:2])


@pytest.mark.parametrize("said", [{}, {"sparse_histograms": False}], ids=["left out", "added"])
def test_sparse_tables_have_the_groups_of_dense_ones(said):
    assert_same(made(said, rows=240, least=9, zero=0.7, missing=0.05), HOSTS[:2])


KINDS = {
    "classes": CLASSES,
    "vectors": VECTORS,
    "goss": {"goss": {"top_rate": 0.2, "other_rate": 0.3}},
    "columns": {"colsample_bytree": 0.5, "subsample": 0.8},
    "mix": {"mode": "mix"},
    "layered": {"mode": "layered"},
    "medians": {"objective": "reg:absoluteerror"},
    "added up": {"histogram_subtraction": False},
    "zeros added": {"sparse_histograms": False},
}


@pytest.mark.parametrize("params", KINDS.values(), ids=KINDS)
def test_every_kind_of_job_grows_the_dense_trees(params):
    assert_same(made(params, (2, 3, 2), rows=150, zero=0.8), (GUEST, *HOSTS[:2]))


@pytest.mark.parametrize("scheme", ["paillier", "okamoto-uchiyama"])
def test_encrypted_sums_of_sparse_tables_are_the_dense_ones(scheme):
    small = {"n_estimators": 1, "max_depth": 2, "encryption": {"scheme": scheme}}
    assert_same(made(small, (1, 3), rows=60, zero=0.9), HOSTS[:1])


def test_a_host_adds_its_entries_and_never_its_zeros():
    job = made({"n_estimators": 1, "max_depth": 3}, (1, 4), rows=300, zero=0.9, missing=0.0)
    asked: list[tuple[row_cells.Additions, int]] = []

    def noting(self, node_rows):
        found = plain(self, node_rows)
        asked.append((found, sum(len(rows) for rows in node_rows)))
        return found

    plain = row_cells.SparseCells.additions
    with mock.patch.object(row_cells.SparseCells, "additions", noting):
        _, other = rooms_of(job, HOSTS[:1])
        now(other.walk())
    stored = int((job.columns[HOSTS[0]][~job.out] != 0).sum())
    assert 0 < len(asked[0][0].rows) <= stored < asked[0][1] * 4 / 5
    assert all(found.cells.shape == (len(found.rows), 1) for found, _ in asked)


def test_with_the_switch_off_a_host_keeps_its_bins_in_full():
    job = made({"sparse_histograms": False, "n_estimators": 1}, (1, 3), zero=0.9)
    _, other = rooms_of(job, HOSTS[:1])
    now(other.walk())
    assert isinstance(other.state(HOSTS[0]).bins, np.ndarray)
    job = made({"n_estimators": 1}, (1, 3), zero=0.9)
    _, other = rooms_of(job, HOSTS[:1])
    now(other.walk())
    assert isinstance(other.state(HOSTS[0]).bins, SparseBins)


def test_predictions_from_sparse_tables_are_the_dense_ones():
    job = made({"max_depth": 4, "n_estimators": 4}, (2, 3, 2), rows=200, zero=0.7)
    room = job.room()
    model = now(room.walk())
    found = []
    for as_read in (np.asfortranarray, sparse):
        frames = {
            party: replace(context.frame, values=as_read(context.frame.values))
            for party, context in job.room().contexts.items()
        }
        artefacts = {party: {MODEL: shard} for party, shard in model.items()}
        params = {"model": "job-1", "output_margin": True, "batch_rows": 64}
        done = now(room_for("predict", frames, params, artefacts=artefacts).walk())
        found.append(done[GUEST].arrays["prediction"])
    assert found[0].tobytes() == found[1].tobytes()
    assert found[0].tobytes() == room.state(GUEST).margin.tobytes()


def svmlight(path, table):
    """Rows of `indices` and `values` as a file; its labels are y."""
    rows = zip(
        table["y"].to_pylist(), table["indices"].to_pylist(), table["values"].to_pylist(),
        strict=True,
    )  # fmt: skip
    lines = [
        f"{label} " + " ".join(f"{i + 1}:{v!r}" for i, v in zip(own, values, strict=True))
        for label, own, values in rows
    ]
    path.write_text("\n".join(lines) + "\n")
    return SourceSpec(path=str(path), format="svmlight")


@pytest.mark.full
def test_reuters_stays_sparse_and_scores_as_xgboost(data_file, tmp_path):
    xgb = pytest.importorskip("xgboost")
    parts = {}
    for part in ("train", "test"):
        table = pq.read_table(data_file(f"reuters_moneyfx_{part}.parquet"))
        table = table.set_column(0, "id", pa.array(range(len(table))))
        source = svmlight(tmp_path / f"{part}.svm", table)
        parts[part] = load_frame(source, Selection(label="y"), party=GUEST, needs_label=True)
    train, test = parts["train"], parts["test"]
    assert train.is_sparse
    assert train.label is not None
    params = TreeParams(n_estimators=25, max_depth=5)
    wide = min(train.values.shape[1], test.values.shape[1])
    trained_on, tested_on = (csc_array(one.values[:, :wide]) for one in (train, test))
    with mock.patch.object(bins.SparseBins, "dense", side_effect=AssertionError):
        ours = local.train(local.TrainingTable(trained_on, train.label), params)
        predicted = ours.predict(tested_on)[:, 0]
    said = {"objective": "binary:logistic", "max_depth": 5, "eta": 0.3, "max_bin": 32}
    # XGBoost takes what a sparse matrix does not store for missing; written out it has zeros.
    rows = xgb.DMatrix(trained_on.toarray(), train.label)
    theirs = xgb.train({**said, "tree_method": "hist"}, rows, 25)
    other = theirs.predict(xgb.DMatrix(tested_on.toarray()))
    mine, its = (_auc(test.label, score) for score in (predicted, other))
    assert mine > 0.97
    assert mine > its - AUC_GAP_MAX


def _auc(y, score):
    from fedboost.core.metrics import evaluate

    return evaluate("auc", y, score[:, None].astype(np.float64), np.ones(len(y)))
