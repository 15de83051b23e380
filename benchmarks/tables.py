"""The public tables that benchmarks train on: loaded, dealt to parties, trained in one piece."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from fedboost.data.frame import Frame
from fedboost.data.holdout import validation_rows
from fedboost.data.ids import encode_ids
from fedboost.data.sources import SourceSpec
from fedboost.ground.errors import ConfigError

ROOT = Path(__file__).resolve().parent.parent
GUEST, HOST = "guest", "host"
SEED = 7  # of samples
ONE_CLASS = {"covtype": 1}  # against the rest; classes count from 0, so the papers' second

# Vertical partitions that the papers' code uses (shared/data/README.md).
HOST_COLUMNS = {
    "default_credit": (
        *("LIMIT_BAL", "SEX", "EDUCATION", "MARRIAGE", "AGE"),
        *("PAY_0", "PAY_2", "PAY_3", "PAY_4", "PAY_5"),
    ),
    "give_credit": (
        *("RevolvingUtilizationOfUnsecuredLines", "age", "DebtRatio", "MonthlyIncome"),
        "NumberOfTime30-59DaysPastDueNotWorse",
    ),
}


@dataclass(frozen=True, eq=False)
class Table:
    """A labelled table: `values` float32 (n, columns), NaN where missing; `y` int64 (n,)."""

    name: str
    id: NDArray[np.int64]
    y: NDArray[np.int64]
    values: NDArray[np.float32]
    columns: tuple[str, ...]

    def sample(self, rows: int | None, seed: int = SEED) -> Table:
        """So many rows, drawn without replacement and kept in order; all if there are no more."""
        if rows is None or rows >= len(self.y):
            return self
        kept = np.sort(np.random.default_rng(seed).choice(len(self.y), rows, replace=False))
        return replace(self, id=self.id[kept], y=self.y[kept], values=self.values[kept])

    def first(self, rows: int) -> Table:
        """So many rows, the first ones."""
        return replace(self, id=self.id[:rows], y=self.y[:rows], values=self.values[:rows])

    def where(self, kept: NDArray[np.bool_]) -> Table:
        """The rows where bool (n,) `kept` says so."""
        values = np.asfortranarray(self.values[kept])
        return replace(self, id=self.id[kept], y=self.y[kept], values=values)

    def first_columns(self, count: int) -> Table:
        """The table without the columns behind the first ones."""
        values = np.asfortranarray(self.values[:, :count])
        return replace(self, values=values, columns=self.columns[:count])

    @property
    def classes(self) -> int:
        """How many labels there are."""
        return int(self.y.max()) + 1

    @property
    def size(self) -> dict[str, int]:
        """Rows and columns."""
        return {"rows": len(self.y), "columns": len(self.columns)}

    def held_out(self, fraction: float, seed: int) -> NDArray[np.bool_]:
        """The validation rows that the parties of a job would hold out, bool (n,)."""
        ids = encode_ids([pa.chunked_array([pa.array(self.id)])], ["id"])
        return validation_rows(ids, fraction, seed)


def data_folder() -> Path:
    """FEDBOOST_DATA, or shared/data beside the project."""
    return Path(os.environ.get("FEDBOOST_DATA", ROOT.parent / "shared" / "data"))


def load(name: str) -> Table:
    """A table by the name of its file; a ConfigError where it is absent."""
    path = data_folder() / f"{name}.parquet"
    if not path.exists():
        raise ConfigError(
            f"the data set {name}.parquet is not there", todo="set FEDBOOST_DATA to its folder"
        )
    whole = pq.read_table(path)
    columns = tuple(column for column in whole.column_names if column not in ("id", "y"))
    values = [whole[column].to_numpy().astype(np.float32) for column in columns]
    return Table(
        name=name,
        id=whole["id"].to_numpy().astype(np.int64),
        y=whole["y"].to_numpy().astype(np.int64),
        values=np.asfortranarray(np.stack(values, axis=1)),
        columns=columns,
    )


def binary(name: str) -> Table:
    """A table with two classes."""
    table = load(name)
    one = ONE_CLASS.get(name)
    return table if one is None else replace(table, y=(table.y == one).astype(np.int64))


def party_names(count: int) -> tuple[str, ...]:
    """The guest and its hosts."""
    return (GUEST, *(f"{HOST}{number}" for number in range(1, count)))


def shares(table: Table, parties: int) -> dict[str, Table]:
    """All rows in equal shares drawn by a seed, each row at one party."""
    owner = np.random.default_rng(SEED).permutation(len(table.y)) % parties
    return {name: table.where(owner == place) for place, name in enumerate(party_names(parties))}


def vertical(table: Table) -> dict[str, tuple[str, ...]]:
    """Who has which columns, the guest first."""
    host = HOST_COLUMNS[table.name]
    return {GUEST: tuple(c for c in table.columns if c not in host), HOST: host}


def deal(table: Table, parts: Mapping[str, tuple[str, ...]], folder: Path) -> dict[str, SourceSpec]:
    """Writes each party's columns as a file of its own; the first party also gets the labels."""
    guest = next(iter(parts))
    return {
        party: _written(table, columns, folder / f"{party}.parquet", labelled=party == guest)
        for party, columns in parts.items()
    }


def deal_rows(shares: Mapping[str, Table], folder: Path) -> dict[str, SourceSpec]:
    """Writes each party's rows as a file of its own, with labels."""
    return {
        party: _written(share, share.columns, folder / f"{party}.parquet", labelled=True)
        for party, share in shares.items()
    }


def frame(table: Table, columns: tuple[str, ...], *, labelled: bool) -> Frame:
    """Some columns as a party holds them."""
    values = np.asfortranarray(table.values[:, [table.columns.index(one) for one in columns]])
    label = table.y.astype(np.float64) if labelled else None
    ids = encode_ids([pa.chunked_array([pa.array(table.id)])], ["id"])
    return Frame(ids, values, columns, label, ("id",))


def _written(table: Table, columns: tuple[str, ...], path: Path, *, labelled: bool) -> SourceSpec:
    written: dict[str, Any] = {"id": pa.array(table.id)}
    if labelled:
        written["y"] = pa.array(table.y)
    for column in columns:
        values = table.values[:, table.columns.index(column)]
        written[column] = pa.array(values, mask=np.isnan(values))
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(written), path)
    return SourceSpec(path=str(path))


def xgboost_scores(
    table: Table, held: NDArray[np.bool_], params: Mapping[str, Any], threads: int
) -> dict[str, float]:
    """Scores of XGBoost's histogram trees on the whole table, per part.

    AUC with two classes, accuracy with more.
    """
    import xgboost
    from sklearn.metrics import roc_auc_score

    model = xgboost.XGBClassifier(tree_method="hist", n_jobs=threads, **params)
    model.fit(table.values[~held], table.y[~held])

    def score(rows: NDArray[np.bool_]) -> float:
        predicted, y = model.predict_proba(table.values[rows]), table.y[rows]
        if predicted.shape[1] == 2:
            return float(roc_auc_score(y, predicted[:, 1]))
        return float((predicted.argmax(axis=1) == y).mean())

    return {"train": score(~held), "validation": score(held)}
