"""Record of an objective: the only place with the differences between objectives."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fedboost.core.metrics import Predicts
from fedboost.core.objectives.labels import LabelRule
from fedboost.core.objectives.links import LinkFunction
from fedboost.core.objectives.settings import ObjectiveSettings
from fedboost.ground.arrays import Floats
from fedboost.ground.errors import DataError

if TYPE_CHECKING:
    from fedboost.core.objectives.summary import Summary

Gradients = tuple[Floats, Floats]


@dataclass(frozen=True)
class Objective(ABC):
    """A loss; margins are float64 (n, n_outputs), labels and weights float64 (n,)."""

    base_margin: Floats = field(repr=False)  # every row's first margin; float64 (n_outputs,)

    @property
    def n_outputs(self) -> int:
        """Margins per row."""
        return len(self.base_margin)

    @abstractmethod
    def gradients(self, margin: Floats, y: Floats, weight: Floats) -> Gradients:
        """Return the weighted loss's derivatives by the margin; float64 (n, k) each."""

    @abstractmethod
    def bounds(self, summary: Summary) -> tuple[float, float]:
        """Return (g_bound, h_bound): |g| ≤ g_bound, 0 ≤ h ≤ h_bound for such rows at any margin."""


@dataclass(frozen=True)
class StepRule:
    """Limit of a leaf's move of a margin: max_delta_step."""

    usual: float = 0.0  # the default; 0 is no limit
    most: float = math.inf
    effect: str = ""  # of a step on predictions, in an error: a text that formats `step`


def _no_content(params: Mapping[str, Any], outputs: int) -> dict[str, str]:
    return {}


@dataclass(frozen=True)
class XgboostForm:
    """Facts about the objective of the same name in XGBoost."""

    section: str = ""  # of the objective in a model file; empty: none
    # Content of the section, by the model's parameters and number of outputs.
    content: Callable[[Mapping[str, Any], int], dict[str, str]] = _no_content
    estimates_base_alike: bool = True  # base_score from the labels, if a job names none


@dataclass(frozen=True)
class ObjectiveRecord:
    """Record of all facts about an objective."""

    name: str  # XGBoost's
    predicts: Predicts
    # The loss from parameters and labels: derivatives, base score, bounds of gradients.
    start: Callable[[ObjectiveSettings, Summary], Objective]
    link: LinkFunction
    labels: LabelRule
    # Measured if a job names none. The last one is XGBoost's default if we have that.
    metrics: tuple[str, ...]
    xgboost: XgboostForm = XgboostForm()  # the partner in tests, and the export of models
    settings: tuple[str, ...] = ()  # parameters that no other objective takes
    steps: StepRule = StepRule()
    has_median_leaves: bool = False  # medians of residuals instead of the Newton step
    hessians_are_weights: bool = False  # of rows, in every round alike
    instead: str = ""  # the objective to use instead of medians

    @property
    def classifies(self) -> bool:
        """Return whether labels are classes."""
        return self.predicts in ("chance", "classes")

    @property
    def has_chances(self) -> bool:
        """Return whether a prediction is the chance of label 1, which ranks rows."""
        return self.predicts == "chance"

    @property
    def has_many_classes(self) -> bool:
        """Return whether there are num_class outputs; otherwise there is one."""
        return self.predicts == "classes"


def positive_mean(params: ObjectiveSettings, summary: Summary) -> float:
    """Return the base score of amounts: the weighted mean. A DataError if it is 0."""
    if params.base_score is not None:
        return params.base_score
    if summary.mean <= 0.0:
        raise DataError(
            f"all labels with a weight above 0 are 0; {params.objective} needs some",
            todo="check the label column and the rows chosen",
        )
    return summary.mean
