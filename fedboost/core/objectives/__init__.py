"""Objectives: first prediction, gradients within bounds fixed from the labels, predictions.

All facts about an objective are one record in a separate module, listed in `registry`. Settings,
trainers, reports, exports and the reference read the record. So a new objective is a new module
here, its line in `registry`, and its metric if it has a new one.

`start_objective` fixes an objective from a summary of the job's labels. All its gradients stay
within `bounds`, so that sums can be integers. Losses with unbounded gradients are cut at a bound
that only predictions far outside the labels' range can reach.

Modules:
    absolute_error  reg:absoluteerror
    averages        weighted means and medians, the same for every order of rows
    gamma           reg:gamma
    labels          valid labels, and the errors about others
    links           margins as predictions
    logistic        binary:logistic
    poisson         count:poisson
    pseudo_huber    reg:pseudohubererror
    record          fields of an objective's record
    registry        the list of all objectives
    settings        settings that objectives read
    softmax         multi:softprob
    squared_error   reg:squarederror
    summary         summary of labels and weights, the start of an objective
    tweedie         reg:tweedie
"""

from __future__ import annotations

from fedboost.core.fixed_point import FixedPoint, encoding_for_rows
from fedboost.core.objectives.averages import median, scale_weights, weighted_mean
from fedboost.core.objectives.record import Gradients, Objective, ObjectiveRecord
from fedboost.core.objectives.registry import (
    OBJECTIVES,
    ObjectiveName,
    ObjectiveParams,
    class_objective,
    metrics_of,
    number_objective,
    objective_record,
    own_settings,
)
from fedboost.core.objectives.settings import EncodingSettings, ObjectiveSettings
from fedboost.core.objectives.summary import Summary, check_labels
from fedboost.ground.arrays import Floats
from fedboost.ground.errors import DataError

__all__ = [
    "OBJECTIVES",
    "Gradients",
    "Objective",
    "ObjectiveName",
    "ObjectiveParams",
    "ObjectiveRecord",
    "Summary",
    "check_labels",
    "class_objective",
    "encoding",
    "median",
    "metrics_of",
    "number_objective",
    "objective_record",
    "own_settings",
    "scale_weights",
    "start_objective",
    "transform",
    "weighted_mean",
]


def start_objective(params: ObjectiveSettings, summary: Summary) -> Objective:
    """Return the objective of a job, with base score and bounds fixed from the training labels.

    A DataError names the reason if there is nothing to learn from these rows.
    """
    if summary.weight_sum <= 0.0:
        raise DataError(f"all {summary.rows} weights are 0", todo="give some rows a weight above 0")
    return objective_record(params.objective).start(params, summary)


def encoding(params: EncodingSettings, objective: Objective, summary: Summary) -> FixedPoint:
    """Return the encoding of gradients: bounds as declared, multiplied by the factor of `goss`."""
    g_bound, h_bound = objective.bounds(summary)
    factor = 1.0 if params.goss is None else params.goss.factor
    return encoding_for_rows(
        summary.rows, params.precision_bits, factor * g_bound, factor * h_bound
    )


def transform(objective: str, margin: Floats) -> Floats:
    """Return predictions (n, k) of margins (n, k): probabilities, means, or the margins."""
    return objective_record(objective).link.predict(margin)
