"""Predictions of a table by a model that its party holds whole, batch after batch, into a file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from fedboost.data.predictions import as_numbers, unknown_note, with_predictions
from fedboost.data.reading import locate_errors
from fedboost.data.row_batches import RowBatches
from fedboost.data.selection import Selection
from fedboost.data.sources import SourceSpec
from fedboost.data.table_files import check_ending, write_tables
from fedboost.flow import Artefact
from fedboost.ground.settings import parse_settings
from fedboost.model import kinds
from fedboost.model.unknown_categories import UNKNOWN_MAX, UnknownCategories

ReportProgress = Callable[[int, int], None]  # rows done, and all rows


@dataclass(frozen=True)
class ScoredTable:
    """What a file of predictions holds."""

    rows: int
    unknown: UnknownCategories


def score_table(
    shard: Artefact,
    source: SourceSpec,
    out: Path,
    *,
    unknown_max: float = UNKNOWN_MAX,
    tell: ReportProgress | None = None,
    party: str = "",
) -> ScoredTable:
    """Write ids and predictions of all rows, in their order; return what was written.

    Memory does not grow with the rows except for 8 bytes a row while ids are compared, unless
    `read_batches` reads the table as one batch. A ConfigError or DataError names the party and the
    file if the table does not fit the model, or has more unknown categories than `unknown_max`
    allows; an older output file then stays as it was. The ending of `out` decides the format, as
    `write_tables` says.
    """
    check_ending(out)
    kind, unknown = kinds.kind_of(shard.facts), UnknownCategories(shard.facts)
    with locate_errors(party=party, file=source.name):
        table = RowBatches.of(source, selection_of(shard.facts))

        def scored() -> Iterator[pa.Table]:
            """Yield the ids and predictions of each batch; count its unknown categories."""
            done = 0
            for frame, ids in table.frames(kind.batch_rows(shard.facts)):
                unknown.add(frame)
                prediction = kind.predict_alone(shard, frame)
                yield with_predictions(as_numbers(ids, table.numbers), prediction)
                done += frame.n_rows
                if tell is not None:
                    tell(done, table.rows)

        def note() -> dict[str, str]:
            unknown.check(unknown_max)
            return unknown_note(unknown.shares)

        return ScoredTable(write_tables(out, scored(), note), unknown)


def selection_of(facts: dict[str, Any]) -> Selection:
    """Return the selection of the model's columns and the ids of its training."""
    categorical = [name for name in facts["columns"] if name in facts["categories"]]
    wanted = {"id": facts["id"], "columns": facts["columns"], "categorical": categorical}
    return parse_settings(Selection, wanted)
