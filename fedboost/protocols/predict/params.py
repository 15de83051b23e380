"""Settings of a prediction."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedboost.model import kinds
from fedboost.model.batches import ScoringParams


class PredictParams(ScoringParams):
    """Which model, how many rows at once, and the form of the result."""


def check_model(_: PredictParams, facts: Mapping[str, Any]) -> None:
    """Refuse, by a ConfigError, a model that needs no questions, or another protocol."""
    kinds.kind_of(facts).check_scored_by("predict", facts)
