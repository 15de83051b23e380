"""A party's shard of a model for Python: its facts, and its predictions if it is whole.

model = load_model("models/credit-1a2b3c4d")
model.predict(new_rows)
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedboost.data.frame import Frame
from fedboost.data.sources import source_at
from fedboost.flow import Artefact
from fedboost.ground.errors import ConfigError, DataError
from fedboost.model import kinds, shards
from fedboost.model.kinds.kind import ImportanceShare
from fedboost.model.scoring import score_table
from fedboost.model.unknown_categories import UNKNOWN_MAX, checked_categories
from fedboost.sdk.caller_warnings import warn_of_unknown
from fedboost.sdk.tables import TableLike, rows_of


class Model:
    """A party's shard of a model."""

    def __init__(self, shard: Artefact) -> None:
        self._shard, self._kind = shard, kinds.kind_of(shard.facts)
        self.facts = self._kind.summary(shard.facts)  # as `fedboost model show` has them
        self.id: str = self.facts["model"]
        self.columns: tuple[str, ...] = tuple(self.facts["columns"])
        self.is_whole: bool = self.facts["whole"]

    def __repr__(self) -> str:
        what = "whole" if self.is_whole else f"the shard of {self.facts['party']}"
        return f"Model({self.id!r}, {self.facts['protocol']}, {what})"

    def importance(self) -> list[ImportanceShare]:
        """Return gain and splits by column, greatest first; one sum for each other party."""
        return self._kind.importance(self._shard)

    def tree_lines(self, trees: int = 1) -> list[str]:
        """Return the first trees as text, as far as this party knows them."""
        return self._kind.tree_lines(self._shard, trees)

    def predict(self, rows: TableLike, *, unknown_max: float = UNKNOWN_MAX) -> NDArray[np.float64]:
        """Return probabilities or means, by the objective: float64 (n,), or (n, classes) for
        several classes.

        `rows` is a table with the model's columns by name, or an array or sparse matrix with the
        columns in the model's order; NaN is a missing value. A category that the model does not
        know is read as missing, with a warning; raise DataError if in a column the share of such
        values is above `unknown_max`. Raise ConfigError if the model is not
        whole: then its parties predict together, with `fedboost model predict`.
        """
        self._check_whole()
        frame = self._frame_of_rows(rows)
        warn_of_unknown(checked_categories(self._shard.facts, frame, unknown_max))
        predictions = self._kind.predict_alone(self._shard, frame)
        return predictions[:, 0] if predictions.shape[1] == 1 else predictions

    def predict_table(
        self, table: str | Path, out: str | Path, *, unknown_max: float = UNKNOWN_MAX
    ) -> int:
        """Score a file of any size, or a file that declares a table (.yaml); return the number of
        rows.

        Rows are read and written in batches: ids, by the columns of the training, and predictions
        go to `out`: Parquet, csv, Feather or JSON lines, by its ending. The errors are those of
        `predict`; a DataError names missing columns.
        """
        self._check_whole()
        source = source_at(str(table))
        scored = score_table(self._shard, source, Path(out), unknown_max=unknown_max)
        warn_of_unknown(scored.unknown)
        return scored.rows

    def _check_whole(self) -> None:
        if not self.is_whole:
            raise ConfigError(
                f"this is only the shard of {self.facts['party']}: its parties predict together",
                todo=f"fedboost model predict {self.id} --data …",
                model=self.id,
            )

    def _frame_of_rows(self, given: TableLike) -> Frame:
        rows = rows_of(given)
        if not rows.is_named and not self._is_hashed:
            if len(rows.names) != len(self.columns):
                raise DataError(
                    f"the rows have {len(rows.names)} columns, the model {len(self.columns)}",
                    todo="give the columns that it was trained on",
                )
            rows = rows.renamed(self.columns)
        names = rows.names if self._is_hashed else self.columns
        categories = self._shard.facts["categories"]
        return rows.frame(names, [name for name in names if name in categories])

    @property
    def _is_hashed(self) -> bool:
        """Return True for columns of sparse tables; networks take any number of them."""
        return self._kind.is_hashed(self._shard.facts)


def load_model(folder: str | Path) -> Model:
    """Return the model in a folder that `PartyClient.fetch_model` wrote, or in a store's folder.

    Raise ConfigError if there is none, DataError if its files were changed.
    """
    return Model(shards.load_shard(Path(folder)))
