"""What a job may say about a prediction."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field

from fedboost.ground.settings import Settings
from fedboost.model import kinds
from fedboost.model.shards import MODEL_ID


class PredictParams(Settings):
    """Which model, how many rows at once, and what comes out."""

    # Of the job that trained it: its id, its name or latest.
    model: str = Field(pattern=f"^{MODEL_ID.pattern}$")
    batch_rows: int = Field(1 << 18, ge=1, le=1 << 22)  # bounds memory and the largest message
    output_margin: bool = False  # leave the sums of leaves, not probabilities or means of them


def fits(_: PredictParams, facts: Mapping[str, Any]) -> None:
    """Refuses, by a ConfigError, a model that asks nobody for anything, or in another way."""
    kinds.of(facts).check_scored_by("predict", facts)
