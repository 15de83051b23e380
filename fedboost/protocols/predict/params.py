"""What a job may say about a prediction."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedboost.model import kinds
from fedboost.model.batches import ScoringParams


class PredictParams(ScoringParams):
    """Which model, how many rows at once, and what comes out."""


def fits(_: PredictParams, facts: Mapping[str, Any]) -> None:
    """Refuses, by a ConfigError, a model that asks nobody for anything, or in another way."""
    kinds.of(facts).check_scored_by("predict", facts)
