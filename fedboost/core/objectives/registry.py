"""The list of all objectives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from fedboost.core.metrics import METRICS
from fedboost.core.objectives import (
    absolute_error,
    gamma,
    logistic,
    poisson,
    pseudo_huber,
    softmax,
    squared_error,
    tweedie,
)
from fedboost.core.objectives.pseudo_huber import PseudoHuberParams
from fedboost.core.objectives.record import ObjectiveRecord
from fedboost.ground.errors import ConfigError
from fedboost.ground.settings import NameIn

OBJECTIVES: Mapping[str, ObjectiveRecord] = {
    record.name: record
    for record in (
        logistic.LOGISTIC_RECORD,
        softmax.SOFTMAX_RECORD,
        squared_error.SQUARED_ERROR_RECORD,
        absolute_error.ABSOLUTE_ERROR_RECORD,
        poisson.POISSON_RECORD,
        tweedie.TWEEDIE_RECORD,
        gamma.GAMMA_RECORD,
        pseudo_huber.PSEUDO_HUBER_RECORD,
    )
}
ObjectiveName = Annotated[str, NameIn("objective", OBJECTIVES)]


class ObjectiveParams(PseudoHuberParams):
    """Settings of single objectives."""


def objective_record(objective: str) -> ObjectiveRecord:
    """Return an objective's record; a ConfigError for an unknown one."""
    if objective not in OBJECTIVES:
        raise ConfigError(
            f"this version of fedboost does not know the objective {objective[:64]!r}",
            todo=f"update fedboost, or use one of {', '.join(OBJECTIVES)}",
        )
    return OBJECTIVES[objective]


def metrics_of(objective: str) -> tuple[str, ...]:
    """Return the metrics of an objective, its default first."""
    record = objective_record(objective)
    default = record.metrics[-1]
    fitting = [name for name, metric in METRICS.items() if record.predicts in metric.predicts]
    return (default, *(name for name in fitting if name != default))


def class_objective(count: int) -> str:
    """Return the name of the objective for so many classes."""
    return logistic.LOGISTIC_RECORD.name if count == 2 else softmax.SOFTMAX_RECORD.name


def own_settings(*, of_classes: bool) -> list[str]:
    """Return the parameters of single objectives, either for classes or for numbers."""
    fitting = [record for record in OBJECTIVES.values() if record.classifies == of_classes]
    return [name for record in fitting for name in record.settings]


def number_objective() -> str:
    """Return the name of the objective for numbers of any kind."""
    return squared_error.SQUARED_ERROR_RECORD.name
