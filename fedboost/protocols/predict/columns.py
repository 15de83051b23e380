"""A table's columns in the order in which the model knows them."""

from __future__ import annotations

from fedboost.data.frame import Values
from fedboost.errors import DataError
from fedboost.flow import MODEL, Artefact, Seat
from fedboost.model import vocabulary


def model_of(seat: Seat) -> Artefact:
    """The party's own shard of the model."""
    return seat.artefacts[MODEL]


def model_values(seat: Seat) -> Values:
    """float32 (rows, the model's columns of this party); a DataError names what is absent."""
    frame, facts = seat.frame, model_of(seat).facts
    assert frame is not None
    wanted: list[str] = facts["columns"]
    there = set(frame.columns)
    absent = [name for name in wanted if name not in there]
    if absent:
        raise DataError(
            f"the table lacks {len(absent)} columns of the model",
            party=seat.party,
            column=absent[0],
            todo="give the columns that the model was trained with",
        )
    return vocabulary.model_values(frame, wanted, facts["categories"])
