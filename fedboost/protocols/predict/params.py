"""What a job may say about a prediction."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field

from fedboost.errors import ConfigError
from fedboost.model import hybrid, whole
from fedboost.model.shards import MODEL_ID
from fedboost.settings import Settings


class PredictParams(Settings):
    """Which model, how many rows at once, and what comes out."""

    model: str = Field(pattern=f"^{MODEL_ID.pattern}$")  # the id of the job that trained it
    batch_rows: int = Field(1 << 18, ge=1, le=1 << 22)  # bounds memory and the largest message
    output_margin: bool = False  # leave the sums of leaves, not probabilities or means of them


def fits(params: PredictParams, facts: Mapping[str, Any]) -> None:
    """Refuses, by a ConfigError, a model that asks nobody for anything, or in another way."""
    if hybrid.is_hybrid(facts):
        raise ConfigError(
            "the model's trees have two parts, which are scored in an exchange of their own",
            todo="protocol: predict-hybrid",
        )
    if whole.is_whole(facts):
        raise ConfigError(
            "every party holds the model whole, and predicts with it alone, without a job",
            todo=f"fedboost model predict {params.model} --config PARTY.yaml --data PARTY=… "
            "--out P.parquet",
        )
