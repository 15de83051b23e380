"""A table's columns in the order in which the model knows them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedboost.errors import DataError
from fedboost.flow import MODEL, Artefact, Seat
from fedboost.model import shards


def model_of(seat: Seat) -> Artefact:
    """The party's own shard of the model."""
    return seat.artefacts[MODEL]


def model_values(seat: Seat) -> NDArray[np.float32]:
    """float32 (rows, the model's columns of this party); a DataError names what is absent."""
    frame = seat.frame
    assert frame is not None
    try:
        places = shards.places(model_of(seat).facts, frame.columns)
    except DataError as error:
        raise error.at(party=seat.party) from None
    return np.asfortranarray(frame.values[:, places])
