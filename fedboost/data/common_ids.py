"""Ids that several tables have in common, counted before a job aligns them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np

from fedboost.data.ids import encode_ids
from fedboost.data.reading import read_sheet
from fedboost.data.sources import SourceSpec
from fedboost.data.survey import TableSurvey
from fedboost.ground.errors import ConfigError, DataError
from fedboost.ground.ids import HashTable


@dataclass(frozen=True)
class CommonIds:
    """Number of ids that every table has, and their share of each table's different ids."""

    count: int
    shares: tuple[float, ...]


def common_ids(sources: Sequence[SourceSpec], surveys: Sequence[TableSurvey]) -> CommonIds | None:
    """Return the ids that the surveyed tables share; None if not all of them have readable ids."""
    try:
        different = [*map(_id_hashes, sources, surveys)]
    except (ConfigError, DataError, KeyError):  # which the table's own problems name
        return None
    count = len(reduce(np.intersect1d, different))
    return CommonIds(count, tuple(count / max(len(hashes), 1) for hashes in different))


def _id_hashes(source: SourceSpec, surveyed: TableSurvey) -> HashTable:
    """Return the hashes of a table's different ids: those declared, or else those found."""
    found = [surveyed.id] if surveyed.id is not None else []
    names = source.id if "id" in source.model_fields_set else found
    if not names:
        raise KeyError("no id column")
    sheet = read_sheet(source, needs=lambda _: names)
    ids = encode_ids([sheet.column(name) for name in names], names, source.id_format)
    return np.unique(ids.hashes())
