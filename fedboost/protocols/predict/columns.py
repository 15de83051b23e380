"""What a party brings to a prediction: its shard of the model, and its table's values."""

from __future__ import annotations

from fedboost.data.frame import Values
from fedboost.errors import DataError
from fedboost.flow import MODEL, Artefact, Seat
from fedboost.model import columns


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
