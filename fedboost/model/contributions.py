"""Contributions of columns to a row's margin: TreeSHAP, computed by XGBoost on the exported model.

Lundberg, Erion and Lee, "Consistent Individualized Feature Attribution for Tree Ensembles" (2018),
with the training rows' covers as weights. The contributions of a row's columns and its bias add up
to its margin; XGBoost computes them in 32-bit floats.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedboost.data.frame import Frame, FrameValues
from fedboost.ground.errors import DataError
from fedboost.model import columns, whole
from fedboost.model.vertical import Whole
from fedboost.model.xgboost_json import feature_names, import_xgboost, xgboost_json

Contributions = NDArray[np.float32]


def contributions(model: Whole, values: FrameValues) -> Contributions:
    """Return each column's contribution to the margins, float32 (n, outputs, columns + 1).

    The last one is the bias, the same for all rows. values float32 (n, columns), as the model reads
    them. A ConfigError if xgboost is not installed; a DataError if a tree has nodes whose training
    rows weigh nothing, as contributions are then not defined.
    """
    outputs = len(model.facts["base_margin"])
    shap = predict_with_xgboost(model, values, pred_contribs=True)
    shap = shap.reshape(values.shape[0], outputs, len(model.columns) + 1)
    if not np.isfinite(shap).all():
        raise DataError(
            "the model has nodes whose training rows weigh nothing: contributions are not defined",
            todo="train with min_child_weight above 0",
            model=model.facts["job"],
        )
    return shap


def booster(model: Whole) -> Any:
    """Return the model as an `xgboost.Booster`; a ConfigError if xgboost is not installed."""
    return import_xgboost("explain").Booster(model_file=bytearray(xgboost_json(model).encode()))


def predict_with_xgboost(model: Whole, values: FrameValues, **options: Any) -> NDArray[np.float32]:
    """Return the result of `Booster.predict` with these `options`, float32 (n, …).

    values float32 (n, columns), as the model reads them.
    """
    trees = booster(model)
    return np.concatenate([trees.predict(rows, **options) for rows in matrices(model, values)])


def matrices(model: Whole, values: FrameValues) -> Iterator[Any]:
    """Yield the rows as `xgboost.DMatrix` in batches; values as in `predict_with_xgboost`."""
    xgboost, names = import_xgboost("explain"), feature_names(model)
    types = ["c" if count else "float" for count in model.categories]
    for _, cells in whole.batches(values):
        yield xgboost.DMatrix(
            cells, feature_names=names, feature_types=types, enable_categorical=True
        )


def parties(model: Whole) -> list[str]:
    """Return the parties with a table for each row, the guest first; a whole model has one."""
    guest = [model.facts["guest"]]
    return list(dict.fromkeys([*guest, *(party for party, _ in model.columns if party)]))


def party_facts(model: Whole, party: str) -> dict[str, Any]:
    """Return the `columns`, `categories` and `id` of one party's part, for `model.columns`.

    For a model that all parties hold whole they are the same for every party.
    """
    named = [
        (name, texts)
        for (owner, name), texts in zip(model.columns, model.texts, strict=True)
        if owner in ("", party)
    ]
    return {
        "columns": [name for name, _ in named],
        "categories": {name: texts for name, texts in named if texts},
        "id": model.facts.get("ids", {}).get(party, ["id"]),
    }


def rows_in_common(
    model: Whole, frames: Mapping[str, Frame]
) -> tuple[NDArray[np.int64], FrameValues]:
    """Return the rows in every party's table: their row numbers in the first one's, and their
    values.

    `frames` by party, in the order of `parties`. int64 (n,) ascending, float32 (n, columns) as the
    model reads them. A DataError if no row is in all tables, or a table does not fit the model.
    """
    (first, guest), *others = frames.items()
    indices = [frame.ids.find(guest.ids) for _, frame in others]
    rows = np.flatnonzero(np.min([np.zeros(guest.n_rows), *indices], axis=0) >= 0)
    if not len(rows):
        raise DataError(f"no row of {first} is in every table", todo="check the id columns")
    taken = [guest.take(rows)]
    taken += [frame.take(index[rows]) for (_, frame), index in zip(others, indices, strict=True)]
    return rows, side_by_side(model, dict(zip(frames, taken, strict=True)))


def side_by_side(model: Whole, frames: Mapping[str, Frame]) -> FrameValues:
    """Return the values of tables with the same rows in one order, as `rows_in_common`."""
    return columns.join_columns(
        [_read_values(model, party, frame) for party, frame in frames.items()]
    )


def _read_values(model: Whole, party: str, frame: Frame) -> FrameValues:
    try:
        return columns.model_values(party_facts(model, party), frame)
    except DataError as error:
        raise error.at(party=party) from None
