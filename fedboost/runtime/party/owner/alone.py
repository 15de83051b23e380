"""A model that a party trains on its own rows and columns, to compare a federation with.

No other party takes part, and nothing leaves.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedboost.core import gbun, local
from fedboost.core.gbun import GbunParams
from fedboost.core.local import TrainingTable
from fedboost.core.params import BoostingParams, TreeParams
from fedboost.data.frame import Frame
from fedboost.ground.errors import FedboostError
from fedboost.ground.settings import Settings


def metric_of(params: BoostingParams) -> str:
    """Return the name of the metric that compares models: the first of the job."""
    return params.metrics[0]


def own_model_metric(frame: Frame, held: NDArray[np.bool_], params: BoostingParams) -> float | None:
    """Return the metric of a model of this table alone, on held-out rows or else training rows.

    The settings are the job's. None if the table has no label, no column, or too few rows for a
    model.
    """
    if frame.label is None or not frame.columns:
        return None
    said = getattr(params, "monotone_constraints", {})
    order = tuple(said.get(name, 0) for name in frame.columns)
    train, validation = (_training_table(frame, rows, order) for rows in (~held, held))
    other = validation if held.any() else None
    try:
        if isinstance(params, GbunParams):
            settings = GbunParams(**_settings(GbunParams, params))
            history, best = _history_and_best(gbun.train(train, settings, other))
        else:
            own_trees = TreeParams(**{**_settings(TreeParams, params), **_total_depth(params)})
            history, best = _history_and_best(local.train(train, own_trees, other))
    except FedboostError:  # the party's columns, or its held-out rows, are too few for any model
        return None
    return history[best]["train" if other is None else "validation"][metric_of(params)]


def _history_and_best(trained: local.Trained | gbun.TrainedNetworks) -> tuple[local.History, int]:
    return trained.history, trained.best_round


def _training_table(frame: Frame, rows: NDArray[np.bool_], order: tuple[int, ...]) -> TrainingTable:
    own_rows = frame.take(np.flatnonzero(rows))
    assert own_rows.label is not None
    return TrainingTable(
        own_rows.values, own_rows.label, own_rows.weight, frame.categorical, monotone=order
    )


def _settings(kind: type[Settings], params: BoostingParams) -> dict[str, Any]:
    names = kind.model_fields.keys() & params.model_fields_set
    return {name: getattr(params, name) for name in names}


def _total_depth(params: BoostingParams) -> Mapping[str, int]:
    """Return the depth of the guest's and hosts' trees together if they are stacked."""
    parts = [getattr(params, name, None) for name in ("guest_depth", "host_depth")]
    below = getattr(params, "mode", "layered") == "layered"
    return {"max_depth": sum(depth or 0 for depth in parts)} if all(parts) and below else {}
