"""Rows that are scored batch after batch, with any trees."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from pydantic import Field

from fedboost.core import objectives
from fedboost.data.frame import BATCH_ROWS, FrameValues
from fedboost.flow import MODEL, Artefact, Out, Place, StageContext
from fedboost.ground.arrays import Floats
from fedboost.ground.mapped import array_beside, free_pages
from fedboost.ground.settings import Settings
from fedboost.ground.state import Growing, state_class
from fedboost.messages.job_pb2 import Count, StatusReport
from fedboost.model import columns
from fedboost.model.shards import MODEL_ID
from fedboost.model.unknown_categories import UNKNOWN_MAX

BATCH_CELLS_MAX = (
    1 << 24
)  # rows × trees, or columns, of a batch: 128 MiB of indices, 64 MiB of cells


def rows_at_once(width: int) -> int:
    """Return the most rows of a batch with so many cells a row, at least one."""
    return max(1, BATCH_CELLS_MAX // max(1, width))


def batch_rows(most: int, facts: Mapping[str, Any]) -> int:
    """Return the rows of a job's batch with a model of these facts, at most `most`."""
    return min(most, rows_at_once(facts["trees"]))


def row_batches(n_rows: int, width: int) -> list[slice]:
    """Return the rows in batches of `rows_at_once` rows."""
    most = rows_at_once(width)
    return [slice(first, min(first + most, n_rows)) for first in range(0, n_rows, most)]


class ScoringParams(Settings):
    """Settings of a prediction job: its model, batch size and output."""

    # Id or name of the job that trained it, or latest.
    model: str = Field(pattern=f"^{MODEL_ID.pattern}$")
    batch_rows: int = Field(1 << 18, ge=1, le=1 << 22)  # bounds memory and the largest message
    # Share of a column's values whose category the model does not know; more end the job.
    unknown_max: float = Field(UNKNOWN_MAX, ge=0.0, le=1.0)
    output_margin: bool = False  # give the sums of leaves, not probabilities or means


@state_class
class BatchesState:
    """Finished batches in a guest's checkpoint."""

    first: int  # row of the batch under way
    margins: Growing[Floats]  # (rows, outputs) of each


@dataclass
class Batches(ABC):
    """Finished batches of a guest; a protocol's guest adds the current one."""

    context: StageContext[ScoringParams]
    model: Artefact = field(init=False)  # the guest's shard
    values: FrameValues = field(init=False)
    every: Floats = field(init=False)  # (rows, outputs) of all rows, beside their ids
    margin: Floats = field(init=False)  # of the batch under way
    margins: list[Floats] = field(default_factory=list)  # of finished ones
    first: int = 0  # row of the batch under way

    def __post_init__(self) -> None:
        self.model, self.values = (
            self.context.artefacts[MODEL],
            columns.values_of_seat(self.context),
        )
        shape = self.values.shape[0], len(self.model.facts["base_margin"])
        self.every = array_beside(self.context.data.ids.data, shape, np.float64)

    @property
    def rows(self) -> slice:
        """Rows of the current batch."""
        count = batch_rows(self.context.params.batch_rows, self.model.facts)
        return slice(self.first, min(self.first + count, self.values.shape[0]))

    def start_batch(self) -> None:
        """Begin with the rows of the next batch."""
        self.margin = self.every[self.rows]
        self.margin[:] = self.model.facts["base_margin"]
        self.place_batch()

    @abstractmethod
    def place_batch(self) -> None:
        """Put the rows of the batch at the roots."""

    def next_batch(self) -> Out:
        """Begin the batch after a finished one, or end."""
        self.margins.append(self.margin)
        self.first = self.rows.stop
        free_pages(self.values, self.every)
        if self.first < self.values.shape[0]:
            self.start_batch()
            return Out()
        return Out(told=self.final_report())

    def final_report(self) -> StatusReport:
        """Report the totals to the coordinator after the last batch."""
        counts = [Count(name="predicted", count=self.values.shape[0])]
        return StatusReport(ends="batch", counts=counts)


def snapshot(guest: Batches, _: Place) -> Artefact:
    """Return a checkpoint with the margins of finished batches."""
    return Artefact.from_state(BatchesState(first=guest.first, margins=guest.margins))


def restore(guest: Batches, kept: Artefact) -> StatusReport:
    """Resume after the last finished batch."""
    known = kept.state(BatchesState)
    guest.first, end = known.first, 0
    for margin in known.margins:
        begin, end = end, end + len(margin)
        guest.every[begin:end] = margin
        guest.margins.append(guest.every[begin:end])
    free_pages(guest.every)
    if guest.first >= guest.values.shape[0]:
        return guest.final_report()
    guest.start_batch()
    return StatusReport()


def finish(guest: Batches) -> Artefact:
    """Return predictions float64 (rows, outputs): probabilities or means, or margins if wanted."""
    prediction = guest.every
    if not guest.context.params.output_margin:
        prediction = array_beside(guest.every, guest.every.shape, np.float64)
        for begin in range(0, len(prediction), BATCH_ROWS):
            rows = slice(begin, begin + BATCH_ROWS)
            margin = guest.every[rows]
            prediction[rows] = objectives.transform(guest.model.facts["objective"], margin)
            free_pages(guest.every, prediction)
    return Artefact({"model": guest.context.params.model}, {"prediction": prediction})
