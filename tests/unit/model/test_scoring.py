"""A table of any number of rows is scored batch after batch, with the bits of all rows at once."""

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from fedboost.core import networks
from fedboost.data.predictions import unknown_shares
from fedboost.data.sources import SourceSpec
from fedboost.flow import Artefact
from fedboost.ground.errors import ConfigError, DataError
from fedboost.model import kinds
from fedboost.model import networks as network_models
from fedboost.model.kinds import kind
from fedboost.model.scoring import score_table
from fedboost.sdk.models import Model, load_model
from tests.support import gbun_jobs
from tests.support.whole_models import (
    CITIES,
    CLASSES,
    COLUMNS,
    MODEL,
    framed,
    model_of,
    stored,
    table,
    trained,
)

ROWS = 1000


@pytest.fixture(autouse=True)
def few(monkeypatch):
    """Batches of few rows, and blocks of networks' rows that are no power of two."""
    monkeypatch.setattr(kind, "BATCH_ROWS", 128)
    monkeypatch.setattr("fedboost.model.kinds.networks.BATCH_ROWS", 128)
    monkeypatch.setattr(networks, "BLOCK_CELLS", 8 * 50)


def in_file(path, frame, ids):
    columns = {
        name: pa.array(cells) for name, cells in zip(frame.columns, frame.values.T, strict=True)
    }
    if "city" in columns:
        codes = frame.values[:, 1].tolist()
        columns["city"] = [None if np.isnan(code) else CITIES[int(code)] for code in codes]
    rows = pa.table({"id": ids, **columns})
    (pa.csv.write_csv if path.suffix == ".csv" else pq.write_table)(rows, path)
    return SourceSpec(path=str(path))


@pytest.mark.parametrize("ending", ["csv", "parquet"])
@pytest.mark.parametrize("params", [{}, CLASSES])
def test_batches_are_scored_as_the_whole_table(tmp_path, params, ending):
    frame = table(5, rows=ROWS)
    shard = model_of(frame, trained(frame, **params))
    said, out = [], tmp_path / "p.parquet"
    ids = [str(row * 7 % ROWS) for row in range(ROWS)]
    source = in_file(tmp_path / f"new.{ending}", frame, ids)
    assert score_table(shard, source, out, tell=lambda *rows: said.append(rows)).rows == ROWS
    assert said == [(min(end, ROWS), ROWS) for end in range(128, ROWS + 128, 128)]
    scored = pq.read_table(out)
    assert scored["id"].to_pylist() == [int(one) for one in ids]  # whole numbers throughout
    expected = kinds.kind_of(shard.facts).predict_alone(shard, frame)
    found = np.stack([column.to_numpy() for column in scored.columns[1:]], axis=1)
    assert np.array_equal(found, expected)


def test_ids_stay_text_where_one_of_a_later_batch_is_no_number(tmp_path):
    frame = table(5, rows=ROWS)
    shard = model_of(frame, trained(frame))
    ids = [str(row) for row in range(ROWS - 1)] + ["x"]
    out = tmp_path / "p.parquet"
    score_table(shard, in_file(tmp_path / "new.csv", frame, ids), out)
    assert pq.read_table(out)["id"].to_pylist() == ids


@pytest.mark.parametrize("columns", ["standard", "rank", "bins"])
def test_networks_round_as_over_the_whole_table(tmp_path, columns):
    job = gbun_jobs.made({"columns": columns, "n_estimators": 3}, sizes=(90, 70, 80), outputs=8)
    left = network_models.make_shard(gbun_jobs.pooled(job), job.frame.columns, is_sparse=False)
    shard = Artefact({**left.facts, "id": ["id"], "job": MODEL}, left.arrays)
    draw = np.random.default_rng(1)
    values = draw.normal(size=(ROWS, len(job.frame.columns))).astype(np.float32, order="F")
    frame = framed(values, job.frame.columns)
    ids = [f"row {row}" for row in range(ROWS)]
    out = tmp_path / "p.parquet"
    score_table(shard, in_file(tmp_path / "new.parquet", frame, ids), out)
    expected = kinds.kind_of(shard.facts).predict_alone(shard, frame)
    assert np.array_equal(pq.read_table(out)["prediction"].to_numpy(), expected[:, 0])
    assert kinds.kind_of(shard.facts).batch_rows(shard.facts) == 100
    sparse = {**shard.facts, "sparse": True}
    assert kinds.kind_of(sparse).batch_rows(sparse) > ROWS  # their blocks follow the values of all


def test_what_is_refused_leaves_the_older_file(tmp_path):
    frame = table(5, rows=ROWS)
    shard, out = model_of(frame, trained(frame)), tmp_path / "p.parquet"
    out.write_bytes(b"old")
    frame.values.flags.writeable = True
    frame.values[900, 0] = np.inf
    source = in_file(tmp_path / "new.parquet", frame, [f"row {row}" for row in range(ROWS)])
    with pytest.raises(DataError, match="infinite values: age") as refused:
        score_table(shard, source, out, party="bank")
    assert refused.value.where["rows"] == "897 to 1000"
    assert (refused.value.where["party"], refused.value.where["file"]) == ("bank", "new.parquet")
    assert out.read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir() if path.suffix == ".new"] == []


def test_python_scores_a_file(tmp_path):
    frame = table(5, rows=ROWS)
    found = trained(frame)
    stored(tmp_path, frame, found)
    source = in_file(tmp_path / "new.parquet", frame, [f"row {row}" for row in range(ROWS)])
    model = load_model(tmp_path / "var" / "bank" / "models" / MODEL)
    assert model.predict_table(source.path, tmp_path / "p.parquet") == ROWS
    scored = pq.read_table(tmp_path / "p.parquet")["prediction"].to_numpy()
    assert np.array_equal(scored, found.predict(frame.values)[:, 0])
    shard = model_of(frame, found)
    part = Model(Artefact({**shard.facts, "whole": False, "role": "guest"}, shard.arrays))
    part.is_whole = False
    with pytest.raises(ConfigError, match="only the shard of bank"):
        part.predict_table(source.path, tmp_path / "p.parquet")
    assert model.columns == COLUMNS


@pytest.mark.parametrize(("limit", "is_refused"), [(0.1, True), (0.2, False)])
def test_unknown_categories_of_all_batches_are_refused_or_noted(tmp_path, limit, is_refused):
    frame = table(5, rows=ROWS)
    shard, out = model_of(frame, trained(frame)), tmp_path / "p.parquet"
    out.write_bytes(b"old")
    source = in_file(tmp_path / "new.parquet", frame, [f"row {row}" for row in range(ROWS)])
    new = pq.read_table(source.path)
    cells = new["city"].to_pylist()
    strange = [row for row, cell in enumerate(cells) if cell is not None][::6]
    for row in strange:
        cells[row] = "Atlantis"
    place = new.column_names.index("city")
    pq.write_table(new.set_column(place, "city", pa.array(cells)), source.path)
    share = len(strange) / sum(cell is not None for cell in cells)
    if is_refused:
        with pytest.raises(DataError, match="categories that the model does not know"):
            score_table(shard, source, out, unknown_max=limit)
        assert out.read_bytes() == b"old"
        return
    assert score_table(shard, source, out, unknown_max=limit).unknown.shares == {"city": share}
    assert unknown_shares(out) == {"city": share}
