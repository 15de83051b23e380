"""The groups of a column's values that jobs may tell apart (`bins_max` of a declared table).

The first job on a table fixes them over all of its rows; they are the same for every later job,
peer and protocol. A table is coarsened before a protocol sees it:

    numbers      from one cut point to the next      become the cut point below them
    dates        as numbers: days                    and so month and weekday of these
    categories   beyond the most frequent ones       become missing

All jobs together therefore reveal at most which of `bins_max` groups a value is in. Only the owner
decides about rows, cut points and missing values; the first job settles whether a column holds
numbers or categories. Cut points have few digits: they are no row's value.
"""

from __future__ import annotations

import json
import math
import sqlite3
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fedboost.core import binning
from fedboost.core.binning import Cuts
from fedboost.data import conversions
from fedboost.data.frame import Frame
from fedboost.data.sources import SourceSpec
from fedboost.ground.errors import DataError
from fedboost.ground.mapped import free_pages
from fedboost.runtime.policy.same_tables import SAME, Owned
from fedboost.runtime.store.store import Store

NO_CUTS = np.empty(0, np.float32)
DIGITS_MOST = 9  # of a float32


@dataclass(frozen=True, eq=False)
class NumberGroups:
    """Groups of a column of numbers, at most `most`.

    float32 `cuts` (groups − 1,) rise and lie between the groups; each of `values` (groups,)
    replaces all values of its group.
    """

    most: int
    cuts: Cuts
    values: Cuts

    @classmethod
    def fixed(
        cls, distinct: Cuts, counts: NDArray[np.int64], most: int, kept: Cuts = NO_CUTS
    ) -> Self:
        """Return groups of `distinct` values, rising float32, with `counts` rows each.

        Cut points that were `kept` before stay; if there are too many, some of them do.
        """
        if len(kept) >= most:
            rows = np.bincount(np.searchsorted(kept, distinct, side="right"), counts, len(kept) + 1)
            cuts = kept[binning.bin_ends(rows.astype(np.int64), most)]
        elif len(kept):
            cuts = _halve_largest_groups(kept, distinct, counts, most)
        else:
            ends = binning.bin_ends(counts, most)
            cuts = _shortest_between(distinct[ends], distinct[ends + 1])
            if len(distinct) <= most:  # each value is a group
                return cls(most, cuts, distinct if len(distinct) else np.zeros(1, np.float32))
        values = np.concatenate([_value_below(cuts, distinct), cuts])
        if np.float32(0) in distinct:  # a sparse table stores no zeros
            values[np.searchsorted(cuts, np.float32(0), side="right")] = 0.0
        return cls(most, cuts, values)

    @classmethod
    def read(cls, most: int, cuts: Sequence[float], values: Sequence[float]) -> Self:
        """Return the groups that `facts` wrote."""
        return cls(most, np.array(cuts, np.float32), np.array(values, np.float32))

    def facts(self) -> dict[str, Any]:
        """Return the groups as JSON, without loss."""
        return {"most": self.most, "cuts": self.cuts.tolist(), "values": self.values.tolist()}

    def apply(self, frame: Frame, column: int) -> None:
        """Replace each of a column's numbers by the value of its group; missing values stay."""
        values = frame.values
        if isinstance(values, np.ndarray):
            self.coarsen(values[:, column])
            free_pages(values)
        else:
            begin, end = values.indptr[column : column + 2]
            self.coarsen(values.data[begin:end])

    def coarsen(self, numbers: Cuts) -> None:
        """Replace each of some numbers, float32 (n,), by the value of its group."""
        binning.coarsen(numbers, self.cuts, self.values)


@dataclass(frozen=True)
class CategoryGroups:
    """The categories of a column that jobs may see, `most` at most; the others are missing."""

    most: int
    texts: tuple[str, ...]

    @classmethod
    def of_column(cls, frame: Frame, column: int, most: int, kept: Sequence[str] = ()) -> Self:
        """Return the `kept` categories, then the most frequent others, `most` at most."""
        texts, codes = _texts_and_codes(frame, column)
        counts = np.bincount(codes[~np.isnan(codes)].astype(np.int64), minlength=len(texts))
        frequent = [texts[code] for code in np.argsort(-counts, kind="stable").tolist()]
        return cls(most, (*kept, *(text for text in frequent if text not in {*kept}))[:most])

    @classmethod
    def read(cls, most: int, texts: Sequence[str]) -> Self:
        """Return the groups that `facts` wrote."""
        return cls(most, tuple(texts))

    def facts(self) -> dict[str, Any]:
        """Return the groups as JSON."""
        return {"most": self.most, "texts": list(self.texts)}

    def apply(self, frame: Frame, column: int) -> None:
        """Make the categories that jobs may not see missing in a column."""
        texts, codes = _texts_and_codes(frame, column)
        hidden = [code for code, text in enumerate(texts) if text not in {*self.texts}]
        if hidden:
            codes[np.isin(codes, hidden)] = np.nan


ColumnGroups: TypeAlias = NumberGroups | CategoryGroups


class ValueGroups:
    """The groups of the columns of one store's tables; thread-safe."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def coarsen_frame(
        self,
        frame: Frame,
        table: Owned,
        source: SourceSpec,
        thresholds: Mapping[str, Cuts] | None = None,
    ) -> Frame:
        """Return a frame with its values replaced by those of their groups, in the same memory.

        Columns that no job has used get their groups now. For a table to predict, they take the cut
        points of our column of that name that has all `thresholds` of the model, or else the
        thresholds.
        """
        kept, made = self._stored_groups(table), {}
        derived = {
            name for of_date in map(conversions.parts_of_date, source.dates) for name in of_date
        }
        for column, name in enumerate(frame.columns):
            most, before = source.groups_of(name), kept.get(name)
            if most is not None and name not in derived:
                cuts = (thresholds or {}).get(name, NO_CUTS)
                groups = self._column_groups(frame, column, most, before, cuts)
                if groups is not before:
                    made[name] = groups
        if made:
            kept = self._store_groups(table, made)
        bounded = {name: kept[name] for name in kept if source.groups_of(name) is not None}
        return _coarsened_frame(frame, bounded, source.dates) if bounded else frame

    def _column_groups(
        self, frame: Frame, column: int, most: int, before: ColumnGroups | None, thresholds: Cuts
    ) -> ColumnGroups:
        """Return a column's groups: `before` if it fits the owner's settings, or new groups."""
        name = frame.columns[column]
        kind = CategoryGroups if name in frame.categories else NumberGroups
        if before is not None and not isinstance(before, kind):
            words = ("numbers", "categories")
            settled, asked = words if isinstance(before, NumberGroups) else reversed(words)
            raise DataError(
                f"the first job on the table read the column {name!r} as {settled}, this one as "
                f"{asked}: together they would tell more of its values than bins_max allows",
                column=name,
                todo="name the columns in 'categorical' that the first job named",
                kind="the job reads a column otherwise than the first job on the table",
            )
        if name in frame.categories:
            texts = before.texts if isinstance(before, CategoryGroups) else ()
            has_all = len(texts) == most or {*frame.categories[name]} <= {*texts}
            if before is not None and texts and before.most == most and has_all:
                return before
            return CategoryGroups.of_column(frame, column, most, texts)
        if isinstance(before, NumberGroups):
            if before.most == most:
                return before
            cuts = before.cuts
        else:
            cuts = self._model_cuts(name, thresholds, most)
        distinct, counts = binning.distinct_values(frame.values, column)
        free_pages(frame.values)
        return NumberGroups.fixed(distinct, counts, most, cuts)

    def _model_cuts(self, name: str, thresholds: Cuts, most: int) -> Cuts:
        """Return cut points of a column of that name with all `thresholds`, or the thresholds."""
        if not len(thresholds):
            return NO_CUTS
        with self._store.transaction() as sql:
            rows = sql.execute("SELECT groups FROM value_groups WHERE about = ?", (name,))
            known = [_parse_groups(text) for (text,) in rows]
        cuts = [groups.cuts for groups in known if isinstance(groups, NumberGroups)]
        fits = [some for some in cuts if len(some) < most and np.isin(thresholds, some).all()]
        return fits[-1] if fits else np.unique(thresholds)

    def _stored_groups(self, table: Owned) -> dict[str, ColumnGroups]:
        with self._store.transaction() as sql:
            return _groups_of_table(sql, table)

    def _store_groups(
        self, table: Owned, made: Mapping[str, ColumnGroups]
    ) -> dict[str, ColumnGroups]:
        """Keep new groups unless another job kept some meanwhile; return all groups."""
        with self._store.transaction() as sql:
            known = _groups_of_table(sql, table)
            for name, groups in made.items():
                other = known.get(name)
                if isinstance(other, NumberGroups) and other.most == groups.most:
                    continue
                known[name] = groups
                sql.execute(
                    "INSERT INTO value_groups (dataset, source, about, groups) VALUES (?, ?, ?, ?)",
                    (table.dataset, table.source, name, json.dumps(groups.facts())),
                )
        return known


def _groups_of_table(sql: sqlite3.Connection, table: Owned) -> dict[str, ColumnGroups]:
    text = f"SELECT about, groups FROM value_groups WHERE {SAME} ORDER BY rowid"  # noqa: S608  ours
    return {name: _parse_groups(groups) for name, groups in sql.execute(text, vars(table))}


def _parse_groups(text: str) -> ColumnGroups:
    facts = json.loads(text)
    return (NumberGroups if "cuts" in facts else CategoryGroups).read(**facts)


def _texts_and_codes(frame: Frame, column: int) -> tuple[tuple[str, ...], Cuts]:
    """Return the texts of a categorical column, and the code of each row, float32 (n,)."""
    assert isinstance(frame.values, np.ndarray)
    return frame.categories[frame.columns[column]], frame.values[:, column]


def _coarsened_frame(
    frame: Frame, by_name: Mapping[str, ColumnGroups], dates: Sequence[str]
) -> Frame:
    values, cuts = frame.values, {}
    frame.allow_changes()
    for column, name in enumerate(frame.columns):
        groups = by_name.get(name)
        if groups is not None:
            groups.apply(frame, column)
        if isinstance(groups, NumberGroups):
            cuts[column] = groups.cuts
    place = {name: column for column, name in enumerate(frame.columns)}
    for date in dates:
        for part, of_days in conversions.parts_of_date(date).items():
            if part not in place or (date in place and date not in by_name):
                continue
            if date not in place:
                raise DataError(
                    f"the column {part!r} says more of {date!r} than its groups do",
                    column=part,
                    todo=f"name {date!r} in the job's columns, too, or leave {part!r} out",
                    kind="a job reads a part of a date without the date",
                )
            assert isinstance(values, np.ndarray)
            values[:, place[part]] = of_days(values[:, place[date]])
    if not isinstance(values, np.ndarray):
        values.eliminate_zeros()
    return replace(frame, values=values, group_cuts=cuts)


def _halve_largest_groups(cuts: Cuts, distinct: Cuts, counts: NDArray[np.int64], most: int) -> Cuts:
    """Return more cut points: the group with most rows is halved until there are enough groups."""
    while len(cuts) + 1 < most:
        place = np.searchsorted(cuts, distinct, side="right")
        rows = np.bincount(place, counts, len(cuts) + 1)
        rows[np.bincount(place, minlength=len(cuts) + 1) < 2] = 0
        if not rows.any():
            return cuts
        (inside,) = np.nonzero(place == np.argmax(rows))
        below = np.cumsum(counts[inside])
        half = np.searchsorted(below, below[-1] / 2) + 1
        above = inside[min(max(1, half), len(inside) - 1)]
        cuts = np.sort(
            np.append(cuts, _shortest_between(distinct[above - 1 : above], distinct[above:][:1]))
        )
    return cuts


def _value_below(cuts: Cuts, distinct: Cuts) -> Cuts:
    """Return a number with few digits below all cut points, float32 (1,)."""
    if not len(cuts):
        return np.zeros(1, np.float32)
    least = np.nextafter(cuts[:1], np.float32(-np.inf))
    if len(distinct):
        least = np.minimum(least, distinct[:1])
    return _shortest_between(least - (cuts[:1] - least), least)


def _shortest_between(low: Cuts, high: Cuts) -> Cuts:
    """Return the float32 number with the fewest digits in (low, high], for each pair."""
    cuts = binning.cut_between(low, high)
    for place, (below, above) in enumerate(zip(low.tolist(), high.tolist(), strict=True)):
        scale = math.floor(math.log10(max(abs(below), abs(above), sys.float_info.min)))
        for digits in range(DIGITS_MOST):
            step = 10.0 ** (scale - digits)
            short = np.float32(math.floor(above / step) * step)
            if below < short <= above:
                cuts[place] = short
                break
    return cuts
