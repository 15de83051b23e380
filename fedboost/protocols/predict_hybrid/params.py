"""Settings of a prediction with trees of two parts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from fedboost.ground.errors import ConfigError
from fedboost.model import kinds
from fedboost.model.batches import ScoringParams


class PredictHybridParams(ScoringParams):
    """Which model, how many rows at once, and the form of the result."""

    split: Literal["scored", "unscored"]  # as the model was trained


def check_model(params: PredictHybridParams, facts: Mapping[str, Any]) -> None:
    """Refuse, by a ConfigError, a model of other trees, or trained with other splits."""
    kinds.kind_of(facts).check_scored_by("predict-hybrid", facts)
    if facts["split"] != params.split:
        raise ConfigError(
            f"the model was trained with split: {facts['split']}, the job says {params.split}",
            todo=f"split: {facts['split']}",
        )
