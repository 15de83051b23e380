"""What a party's own table makes one doubt: columns that give the label away, lose their values
or never vary, ids that do not match.

Nothing here refuses a job. The table's owner reads all of a warning in the log; others read its
`kind`, unless the owner's policy tells figures.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedboost.core.metrics import GIVES_AWAY, ranks_alone
from fedboost.data.features import merging_note, shown
from fedboost.data.frame import Frame
from fedboost.data.id_differences import likely_cause
from fedboost.ground.ids import EncodedIds

MATCHED_MIN = 0.9  # of a party's ids; of fewer it looks for a cause
CLASS_ROWS_MIN = 10  # of fewer rows, a column ranks the labels so well by chance
ROWS_MAX = 20_000  # of which a column is ranked; more take time and say the same
CATEGORIES_MAX = 100  # more of them rank any labels


@dataclass(frozen=True)
class TableWarning:
    """One doubt: `text` with names and figures of the table, `kind` without."""

    text: str
    kind: str

    @property
    def quiet(self) -> str:
        """Return what others may read."""
        return f"{self.kind}; its owner reads more in the party's log"


def of_frame(party: str, frame: Frame) -> tuple[TableWarning, ...]:
    """Return what a table makes one doubt before anything is trained on it."""
    return (*_giving_away(party, frame), *_merged(party, frame), *_constant(party, frame))


def of_alignment(party: str, ids: EncodedIds, rows: NDArray[np.int64]) -> Iterator[TableWarning]:
    """Yield a warning where fewer of a table's ids than MATCHED_MIN have matched, with the likely
    cause; `rows` are those that did.
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


def of_groups(party: str, most: int | None, max_bin: int | None) -> Iterator[TableWarning]:
    """Yield a warning where a job asks for more bins than the owner lets it tell groups apart."""
    if most is not None and max_bin is not None and most < max_bin:
        what = (
            f"{party} lets jobs tell {most} groups of a column's values apart, so max_bin "
            f"{max_bin} divides its columns no further"
        )
        yield TableWarning(f"{what}; the owner can raise bins_max of the data set", what)


def of_thresholds(party: str, inside: int) -> Iterator[TableWarning]:
    """Yield a warning where thresholds of a model lie inside groups of the table to predict."""
    if inside:
        what = f"{party}: the model divides inside groups of the table's values, so scores are near"
        yield TableWarning(
            f"{what}: {inside} of its thresholds; train on this table, or raise bins_max", what
        )


def _merged(party: str, frame: Frame) -> Iterator[TableWarning]:
    if frame.merged:
        yield TableWarning(
            f"{party}: {merging_note(shown(frame.merged))}",
            f"{party}: different whole numbers of a column become the same 32-bit float",
        )


def _constant(party: str, frame: Frame) -> Iterator[TableWarning]:
    """Yield a warning where no column of a dense table without a label can divide rows."""
    if frame.label is not None or not isinstance(frame.values, np.ndarray):
        return
    if all(len(np.unique(column)) < 2 for column in frame.values.T):
        what = f"{party}: every column is constant or missing, so it adds nothing to the model"
        yield TableWarning(f"{what}; check how the table was made", what)


def _giving_away(party: str, frame: Frame) -> Iterator[TableWarning]:
    """Yield a warning of columns that rank a binary label alone; a sparse table is passed over."""
    if frame.label is None or not isinstance(frame.values, np.ndarray):
        return
    rows = np.linspace(0, frame.n_rows - 1, min(frame.n_rows, ROWS_MAX)).astype(np.int64)
    label = frame.label[rows]
    classes, counts = np.unique(label, return_counts=True)
    if len(classes) != 2 or counts.min() < CLASS_ROWS_MIN:
        return
    named = []
    for place, name in enumerate(frame.columns):
        values = frame.values[rows, place].astype(np.float64)
        if name in frame.categories:
            if len(frame.categories[name]) > CATEGORIES_MAX:
                continue
            values = _means(values, label)
        if ranks_alone(label, values):
            named.append(name)
    if named:
        yield TableWarning(
            f"{party}: each of these columns alone ranks the labels almost perfectly (AUC beyond "
            f"{0.5 + GIVES_AWAY:g}): {shown(named)}; name in 'ignore' what nobody knows yet when "
            "the model predicts",
            f"{party}: a column alone ranks the labels almost perfectly",
        )


def _means(codes: NDArray[np.float64], label: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return for each row the mean label of its category, float64 (n,); NaN where missing."""
    known = ~np.isnan(codes)
    places = codes[known].astype(np.int64)
    means = np.full(len(codes), np.nan)
    counts = np.bincount(places)
    means[known] = (np.bincount(places, label[known]) / np.maximum(counts, 1))[places]
    return means
