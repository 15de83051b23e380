"""The tables of the GBUN benchmark: parts to learn, choose and test with; rows dealt to parties."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from scipy.sparse import csc_array, csr_array

from benchmarks import tables
from benchmarks.gbun_plan import TEST, VALIDATION
from benchmarks.tables import Table
from fedboost.core import local
from fedboost.core.binning import Values
from fedboost.data.sources import SourceSpec

SEED = 7  # of samples
OWN_TEST = {"reuters_moneyfx": ("reuters_moneyfx_train", "reuters_moneyfx_test")}


@dataclass(frozen=True, eq=False)
class Split:
    """A data set in three parts: models learn from `fit`; `validation` and `test` score them."""

    name: str
    fit: local.TrainingTable
    validation: local.TrainingTable
    test: local.TrainingTable
    classes: int

    @property
    def metric(self) -> str:
        """What a model is judged by."""
        return "auc" if self.classes == 2 else "accuracy"

    @property
    def columns(self) -> int:
        """How many there are."""
        return int(self.fit.values.shape[1])

    @property
    def rows(self) -> dict[str, int]:
        """How many each part has."""
        return {name: len(getattr(self, name).y) for name in ("fit", "validation", "test")}


def split(name: str, rows: int, seed: int) -> Split:
    """A data set cut by `seed`; of at most so many rows."""
    if name in OWN_TEST:
        (values, y), (test_values, test_y) = (_sparse(file) for file in OWN_TEST[name])
        values, y = values[:rows], y[:rows]
        test = local.TrainingTable(csc_array(test_values), test_y)
    else:
        table = tables.load(name).sample(rows, SEED)
        out = table.held_out(TEST, seed)
        own = table.y.astype(np.float64)
        test = local.TrainingTable(np.asfortranarray(table.values[out]), own[out])
        values, y = table.values[~out], own[~out]
    held = np.random.default_rng(seed).random(len(y)) < VALIDATION
    return Split(
        name=name,
        fit=local.TrainingTable(_columnwise(values[~held]), y[~held]),
        validation=local.TrainingTable(_columnwise(values[held]), y[held]),
        test=test,
        classes=int(y.max()) + 1,
    )


def _columnwise(values: NDArray[np.float32] | csr_array) -> Values:
    return csc_array(values) if isinstance(values, csr_array) else np.asfortranarray(values)


def _sparse(file: str) -> tuple[csr_array, NDArray[np.float64]]:
    """The rows of a file that lists indices and values; both parts have 8,315 columns."""
    whole = pq.read_table(tables.data_folder() / f"{file}.parquet")
    indices = whole["indices"].combine_chunks()
    ends = indices.offsets.to_numpy()
    values = whole["values"].combine_chunks().flatten().to_numpy().astype(np.float32)
    shape = (whole.num_rows, SPARSE_COLUMNS)
    found = csr_array((values, indices.flatten().to_numpy(), ends - ends[0]), shape=shape)
    return found, whole["y"].to_numpy().astype(np.float64)


SPARSE_COLUMNS = 8315  # of Reuters


# Rows of parties


def party_names(count: int) -> tuple[str, ...]:
    """The guest and its hosts."""
    return ("guest", *(f"host{number}" for number in range(1, count)))


def deal_rows(table: Table, parties: Sequence[str], folder: Path) -> dict[str, SourceSpec]:
    """Writes each party's rows, in equal shares and in order, as a file of its own."""
    folder.mkdir(parents=True, exist_ok=True)
    sources = {}
    for party, rows in zip(parties, shares(len(table.y), len(parties)), strict=True):
        content = {"id": pa.array(table.id[rows]), "y": pa.array(table.y[rows])}
        for column, values in zip(table.columns, table.values[rows].T, strict=True):
            content[column] = pa.array(values, mask=np.isnan(values))
        path = folder / f"{party}.parquet"
        pq.write_table(pa.table(content), path)
        sources[party] = SourceSpec(path=str(path))
    return sources


def shares(rows: int, parties: int) -> list[slice]:
    """The rows of each party."""
    edges = np.linspace(0, rows, parties + 1).astype(int).tolist()
    return [slice(start, stop) for start, stop in pairwise(edges)]


def deal_sparse(
    columns: int, parties: Sequence[str], folder: Path, rows: int = 400, stored: int = 20
) -> dict[str, SourceSpec]:
    """Writes random rows of so many columns with some values each, as svmlight files."""
    draw = np.random.default_rng(columns)
    folder.mkdir(parents=True, exist_ok=True)
    sources = {}
    for party in parties:
        lines = []
        for _ in range(rows):
            indices = np.unique(np.append(draw.integers(0, columns, stored), columns - 1))
            cells = " ".join(f"{place + 1}:{draw.random():.3f}" for place in indices.tolist())
            lines.append(f"{draw.integers(0, 2)} {cells}")
        path = folder / f"{party}.svmlight"
        path.write_text("\n".join(lines) + "\n")
        sources[party] = SourceSpec(path=str(path))
    return sources
