"""What a party brings to a prediction: its shard of the model, and its table's values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedboost.data.frame import Values
from fedboost.errors import ConfigError, DataError
from fedboost.flow import MODEL, Artefact, Seat
from fedboost.model import columns, hybrid, whole
from fedboost.protocols.predict.params import PredictParams


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


def model_of(seat: Seat) -> Artefact:
    """The party's own shard of the model."""
    return seat.artefacts[MODEL]


def model_values(seat: Seat) -> Values:
    """float32 (rows, the model's columns of this party); a DataError names one that is wrong."""
    assert seat.frame is not None
    try:
        return columns.values(model_of(seat).facts, seat.frame)
    except DataError as error:
        raise error.at(party=seat.party) from None
