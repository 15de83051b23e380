"""What a job may say about a prediction with trees of two parts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from fedboost.ground.errors import ConfigError
from fedboost.ground.settings import Settings
from fedboost.model import kinds
from fedboost.model.shards import MODEL_ID


class PredictHybridParams(Settings):
    """Which model, how many rows at once, and what comes out."""

    # Of the job that trained it: its id, its name or latest.
    model: str = Field(pattern=f"^{MODEL_ID.pattern}$")
    split: Literal["scored", "unscored"]  # as the model was trained
    batch_rows: int = Field(1 << 18, ge=1, le=1 << 22)  # bounds memory and the largest message
    output_margin: bool = False  # leave the sums of leaves, not probabilities or means of them


def fits(params: PredictHybridParams, facts: Mapping[str, Any]) -> None:
    """Refuses, by a ConfigError, a model of other trees, or trained with other splits."""
    kinds.of(facts).check_scored_by("predict-hybrid", facts)
    if facts["split"] != params.split:
        raise ConfigError(
            f"the model was trained with split: {facts['split']}, the job says {params.split}",
            todo=f"split: {facts['split']}",
        )
