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
        logistic.RECORD,
        softmax.RECORD,
        squared_error.RECORD,
        absolute_error.RECORD,
        poisson.RECORD,
        tweedie.RECORD,
        gamma.RECORD,
        pseudo_huber.RECORD,
    )
}
ObjectiveName = Annotated[str, NameIn("objective", OBJECTIVES)]


class ObjectiveParams(PseudoHuberParams):
    """Settings of single objectives."""


def named(objective: str) -> ObjectiveRecord:
    """Return an objective's record; a ConfigError for an unknown one."""
    if objective not in OBJECTIVES:
        raise ConfigError(
            f"this version of fedboost does not know the objective {objective[:64]!r}",
            todo=f"update fedboost, or use one of {', '.join(OBJECTIVES)}",
        )
    return OBJECTIVES[objective]


def metrics_of(objective: str) -> tuple[str, ...]:
    """Return the metrics of an objective, its default first."""
    record = named(objective)
    default = record.metrics[-1]
    fitting = [name for name, metric in METRICS.items() if record.predicts in metric.predicts]
    return (default, *(name for name in fitting if name != default))


def of_classes(count: int) -> str:
    """Return the name of the objective for so many classes."""
    return logistic.RECORD.name if count == 2 else softmax.RECORD.name


def own_settings(*, of_classes: bool) -> list[str]:
    """Return the parameters of single objectives, either for classes or for numbers."""
    fitting = [record for record in OBJECTIVES.values() if record.classifies == of_classes]
    return [name for record in fitting for name in record.settings]


def of_numbers() -> str:
    """Return the name of the objective for numbers of any kind."""
    return squared_error.RECORD.name
