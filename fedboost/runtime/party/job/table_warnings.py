"""Warnings about a party's table: revealing, lossy or constant columns, ids without a match.

A warning refuses no job. The table's owner reads the whole warning in the log; others read its
`kind`, unless the owner's policy tells figures.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedboost.core.metrics import GIVES_AWAY, ranks_label
from fedboost.data.features import merging_note, shown_names
from fedboost.data.frame import Frame
from fedboost.data.id_differences import likely_cause
from fedboost.ground.ids import EncodedIds
from fedboost.model.unknown_categories import KIND, UnknownCategories, category_counts

MATCHED_MIN = 0.9  # share of a party's ids; below it, look for a cause
CLASS_ROWS_MIN = 10  # in a smaller class a column ranks the labels so well by chance
RANKED_ROWS_MAX = 20_000  # rows to rank a column by; more take time and do not change the verdict
RANKED_CATEGORIES_MAX = 100  # with more of them a column ranks any labels
SHOWN = 5  # columns that a warning names


@dataclass(frozen=True)
class TableWarning:
    """One warning: `text` with names and figures of the table, `kind` without."""

    text: str
    kind: str

    @property
    def public_text(self) -> str:
        """The text that others may read."""
        return f"{self.kind}; its owner reads more in the party's log"


def frame_warnings(party: str, frame: Frame) -> tuple[TableWarning, ...]:
    """Return the warnings about a table before training."""
    return (
        *_label_column_warnings(party, frame),
        *_merged_number_warnings(party, frame),
        *_constant_column_warnings(party, frame),
    )


def alignment_warnings(
    party: str, ids: EncodedIds, rows: NDArray[np.int64]
) -> Iterator[TableWarning]:
    """Yield a warning if fewer ids than MATCHED_MIN have matched, with the likely cause.

    `rows` are the matched rows.
    """
    share = len(rows) / len(ids)
    if share >= MATCHED_MIN:
        return
    matched = np.zeros(len(ids), np.bool_)
    matched[rows] = True
    cause = likely_cause(ids, matched) or "nothing in their spelling sets them apart"
    yield TableWarning(
        f"{party}: {len(rows)} of {len(ids)} ids matched ({100 * share:.0f} %). Of the others: "
        f"{cause}",
        f"{party}: fewer than {100 * MATCHED_MIN:.0f} % of its ids matched",
    )


def group_warnings(party: str, most: int | None, max_bin: int | None) -> Iterator[TableWarning]:
    """Yield a warning if a job asks for more bins than the owner lets it tell groups apart."""
    if most is not None and max_bin is not None and most < max_bin:
        what = (
            f"{party} lets jobs tell {most} groups of a column's values apart, so max_bin "
            f"{max_bin} divides its columns no further"
        )
        yield TableWarning(f"{what}; the owner can raise bins_max of the data set", what)


def threshold_warnings(party: str, inside: int) -> Iterator[TableWarning]:
    """Yield a warning if thresholds of a model lie inside groups of the table to predict."""
    if inside:
        what = f"{party}: the model divides inside groups of the table's values, so scores are near"
        yield TableWarning(
            f"{what}: {inside} of its thresholds; train on this table, or raise bins_max", what
        )


def of_unknown(party: str, unknown: UnknownCategories) -> Iterator[TableWarning]:
    """Yield a warning where the model does not know categories of a table to predict."""
    if unknown.shares:
        yield TableWarning(unknown.warning(party), f"{party}: {KIND}")


def of_many_categories(
    party: str, frame: Frame, bins: Mapping[str, int | None]
) -> Iterator[TableWarning]:
    """Yield a warning of columns with more categories than training keeps apart, `bins` of each."""
    found = []
    for column in frame.categorical:
        name = frame.columns[column]
        most, counts = bins[name], np.sort(category_counts(frame, column))[::-1]
        if most is not None and np.count_nonzero(counts) > most:
            share = counts[most:].sum() / counts.sum()
            found.append(f"{name} has {np.count_nonzero(counts)} and keeps {most}; the others are "
                         f"{100 * share:.3g} % of its values")  # fmt: skip
    if found:
        kind = f"{party}: a column has more categories than bins, the rarest are read as missing"
        more = f", and {len(found) - SHOWN} columns more" if len(found) > SHOWN else ""
        yield TableWarning(
            f"{kind}: {', '.join(found[:SHOWN])}{more}; group them, or raise max_bin (of a host's "
            "column its owner's bins_max, too)",
            kind,
        )


def _merged_number_warnings(party: str, frame: Frame) -> Iterator[TableWarning]:
    if frame.merged:
        yield TableWarning(
            f"{party}: {merging_note(shown_names(frame.merged))}",
            f"{party}: different whole numbers of a column become the same 32-bit float",
        )


def _constant_column_warnings(party: str, frame: Frame) -> Iterator[TableWarning]:
    """Yield a warning if no column of a dense table without a label can divide rows."""
    if frame.label is not None or not isinstance(frame.values, np.ndarray):
        return
    if all(len(np.unique(column)) < 2 for column in frame.values.T):
        what = f"{party}: every column is constant or missing, so it adds nothing to the model"
        yield TableWarning(f"{what}; check how the table was made", what)


def _label_column_warnings(party: str, frame: Frame) -> Iterator[TableWarning]:
    """Yield a warning about columns that rank a binary label alone, of a dense table."""
    if frame.label is None or not isinstance(frame.values, np.ndarray):
        return
    rows = np.linspace(0, frame.n_rows - 1, min(frame.n_rows, RANKED_ROWS_MAX)).astype(np.int64)
    label = frame.label[rows]
    classes, counts = np.unique(label, return_counts=True)
    if len(classes) != 2 or counts.min() < CLASS_ROWS_MIN:
        return
    named = []
    for place, name in enumerate(frame.columns):
        values = frame.values[rows, place].astype(np.float64)
        if name in frame.categories:
            if len(frame.categories[name]) > RANKED_CATEGORIES_MAX:
                continue
            values = _category_means(values, label)
        if ranks_label(label, values):
            named.append(name)
    gives, it = ("alone nearly gives", "it") if len(named) == 1 else ("each nearly give", "them")
    if named:
        yield TableWarning(
            f"{party}: {shown_names(named)} {gives} the answer (AUC beyond {0.5 + GIVES_AWAY:g}). "
            f"If unknown at prediction time, add {it} to 'ignore'.",
            f"{party}: a column alone nearly gives the answer",
        )


def _category_means(codes: NDArray[np.float64], label: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return for each row the mean label of its category, float64 (n,); NaN where missing."""
    known = ~np.isnan(codes)
    places = codes[known].astype(np.int64)
    means = np.full(len(codes), np.nan)
    counts = np.bincount(places)
    means[known] = (np.bincount(places, label[known]) / np.maximum(counts, 1))[places]
    return means
