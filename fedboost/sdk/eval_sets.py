"""Sets of rows that `fit` measures: a job measures the last one, the fitted model the others."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fedboost.core import metrics, objectives
from fedboost.core.params import BoostingParams
from fedboost.data.frame import Frame
from fedboost.flow import Artefact
from fedboost.ground.arrays import Indices
from fedboost.ground.errors import DataError
from fedboost.model import contributions
from fedboost.sdk.assembly import Taught
from fedboost.sdk.boosters import column_values, joined_model
from fedboost.sdk.refusals import InvalidTableError

Parts: TypeAlias = tuple[Any, Any, Any]  # rows, labels, and weights or None


def eval_parts(given: Any, weights: Sequence[Any] | None = None) -> list[Parts]:
    """Return the parts of each set of an `eval_set`; refuse any other value.

    `weights` are XGBoost's `sample_weight_eval_set`.
    """
    sets = given if isinstance(given, list) and given else [given]
    if weights is not None and len(weights) != len(sets):
        raise InvalidTableError(
            f"sample_weight_eval_set has {len(weights)} entries and eval_set {len(sets)}",
            todo="give weights for each set, or None",
        )
    parts = []
    for number, one in enumerate(sets):
        if not isinstance(one, tuple) or not 2 <= len(one) <= 3:
            size = f" with {len(one)} entries" if isinstance(one, list | tuple) else ""
            raise InvalidTableError(
                f"eval_set is of the type {type(one).__name__}{size}, expected rows and labels",
                todo="give (X, y) or (X, y, weights), or a list of such tuples",
            )
        weight = one[2] if len(one) == 3 else None
        if weights is not None and weights[number] is not None:
            weight = weights[number]
        parts.append((one[0], one[1], weight))
    return parts


def one_set(given: Any, model: str) -> Parts:
    """Return the parts of the only set of an `eval_set`; refuse several ones, as `model` cannot
    measure them.
    """
    parts = eval_parts(given)
    if len(parts) > 1:
        raise InvalidTableError(
            f"eval_set has {len(parts)} sets, and the rounds of {model} can be measured on one",
            todo="give one set, and score predictions of the others after fit",
        )
    return parts[0]


def margins_by_round(
    shards: Mapping[str, Artefact],
    guest: str,
    frames: Mapping[str, Frame],
    held: Mapping[str, Indices],
) -> Iterator[NDArray[np.float32]]:
    """Yield the margins after each round, (n, outputs), added up like XGBoost; see `Score`."""
    model = joined_model(shards, guest)
    booster = contributions.booster(model)
    tables = [*contributions.matrices(model, column_values(model, frames))]
    for number in range(booster.num_boosted_rounds()):
        margins = []
        for table in tables:
            this_round = (number, number + 1)
            margin = booster.predict(table, output_margin=True, iteration_range=this_round)
            table.set_base_margin(margin)
            margins.append(margin.reshape(len(margin), -1))
        yield np.concatenate(margins)


def metrics_by_round(
    by_party: Mapping[str, Iterator[NDArray[np.float32]]],
    taught: Taught,
    facts: Mapping[str, Any],
    params: BoostingParams,
) -> dict[str, list[float]]:
    """Return the job's metrics after each round, nan where these rows do not define one
    and after the best round, whose later trees are not kept.

    `by_party` are the margins after each round of the labelled rows of `taught`; `facts` are the
    guest's of the model.
    """
    truth = np.concatenate([taught.y[party] for party in by_party])
    weight = np.concatenate(
        [taught.weight.get(party, np.ones(len(taught.y[party]))) for party in by_party]
    )
    measured: dict[str, list[float]] = {name: [] for name in params.metrics}
    for margins in zip(*by_party.values(), strict=True):
        prediction = objectives.transform(
            facts["objective"], np.concatenate(margins).astype(np.float64)
        )
        for name, values in measured.items():
            try:
                values.append(metrics.evaluate(name, truth, prediction, weight, params))
            except DataError:
                values.append(math.nan)
    rounds = len(facts["history"])
    return {
        name: [*values, *[math.nan] * (rounds - len(values))] for name, values in measured.items()
    }
