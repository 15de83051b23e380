"""Categories of a table to predict that no training row had; the model reads them as missing.

A training row's category that got no bin of its own is known: training read it as missing, too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedboost.data.frame import BATCH_ROWS, Frame
from fedboost.ground.errors import DataError

UNKNOWN_MAX = 0.2  # share of a column's values; a few new categories are usual, a spelling is all
RARE = "rare_categories"  # a shard's fact: by column, categories of training rows without a bin
KIND = "a column has categories that the model does not know"
TEXTS_MAX = 1000  # unknown categories of a column that are compared with known ones


@dataclass
class UnknownCategories:
    """Values of a table's categorical columns: all of them, and those of unknown categories."""

    facts: Mapping[str, Any]  # of the party's shard
    values: Counter[str] = field(default_factory=Counter)
    unknown: Counter[str] = field(default_factory=Counter)
    texts: dict[str, set[str]] = field(default_factory=dict)  # unknown ones, TEXTS_MAX at most

    def add(self, frame: Frame) -> None:
        """Count the values of a table, or of some of its rows."""
        for column in frame.categorical:
            name = frame.columns[column]
            if name not in self.facts["categories"]:
                continue
            texts, counts = frame.categories[name], category_counts(frame, column)
            known = {*known_categories(self.facts)[name]}
            strange = [code for code, text in enumerate(texts) if text not in known]
            unlisted = frame.unlisted.get(name, 0)
            self.values[name] += int(counts.sum()) + unlisted
            self.unknown[name] += int(counts[strange].sum()) + unlisted
            some = self.texts.setdefault(name, set())
            some |= {texts[code] for code in strange[: TEXTS_MAX - len(some)] if counts[code]}

    @property
    def shares(self) -> dict[str, float]:
        """Return the share of unknown categories in the values of each column that has any."""
        return {name: n / self.values[name] for name, n in self.unknown.items() if n}

    def listed(self) -> str:
        """Return those columns with their counts, the greatest share first."""
        names = sorted(self.shares, key=lambda name: -self.shares[name])
        return ", ".join(f"{n} ({self.unknown[n]} of {self.values[n]} values)" for n in names)

    def warning(self, party: str = "") -> str:
        """Return the sentence for the table's owner; empty where every category is known."""
        whose = f"{party}: " if party else ""
        return f"{whose}{KIND}, and reads as missing: {self.listed()}" if self.shares else ""

    def check(self, most: float) -> None:
        """Refuse, by a DataError, a column with a greater share of unknown categories."""
        over = {name: share for name, share in self.shares.items() if share > most}
        if not over:
            return
        worst = max(over, key=lambda name: over[name])
        cause = likely_cause(self.texts[worst], self.facts["categories"][worst])
        raise DataError(
            f"{self.unknown[worst]} of {self.values[worst]} values are categories that the model "
            f"does not know; unknown_max allows {100 * most:g} %",
            column=worst,
            todo=f"{cause}; or raise unknown_max, and the model reads them as missing",
            kind="more values than unknown_max allows are categories that the model does not know",
        )


def checked_categories(facts: Mapping[str, Any], frame: Frame, most: float) -> UnknownCategories:
    """Return a table's categories that a shard with these `facts` does not know.

    Raise DataError where their share of a column's values is above `most`.
    """
    unknown = UnknownCategories(facts)
    unknown.add(frame)
    unknown.check(most)
    return unknown


@dataclass
class TrainingCategories:
    """Categories of the rows that a party trains on, by column."""

    hidden: dict[str, set[str]] = field(default_factory=dict)  # by the owner's groups, from jobs
    trained: dict[str, set[str]] = field(default_factory=dict)  # hidden ones included

    def train(self, frame: Frame) -> None:
        """Take the categories of the rows to train on."""
        self.trained = {
            name: texts | self.hidden.get(name, set())
            for name, texts in present_categories(frame).items()
        }

    def rare(
        self, binned: Mapping[str, Sequence[str]], earlier: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return the fact `RARE` of a model whose bins are of `binned` categories; empty if none.

        `earlier` are the facts of the model that it continues.
        """
        before: Mapping[str, Sequence[str]] = earlier.get(RARE, {})
        rare = {
            name: sorted({*self.trained.get(name, ()), *before.get(name, ())} - {*texts})
            for name, texts in binned.items()
        }
        rare = {name: texts for name, texts in rare.items() if texts}
        return {RARE: rare} if rare else {}


def known_categories(facts: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return by column the categories of a model's training rows, those with a bin first."""
    rare: Mapping[str, list[str]] = facts.get(RARE, {})
    return {name: [*texts, *rare.get(name, ())] for name, texts in facts["categories"].items()}


def category_counts(frame: Frame, column: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return how many rows have each category of a column, int64 (categories,)."""
    assert isinstance(frame.values, np.ndarray)
    codes = frame.values[:, column]
    counts = np.zeros(len(frame.categories[frame.columns[column]]), np.int64)
    for begin in range(0, len(codes), BATCH_ROWS):
        some = codes[begin : begin + BATCH_ROWS]
        present = some[~np.isnan(some)].astype(np.int64)
        counts += np.bincount(present, minlength=len(counts))
    return counts


def present_categories(frame: Frame, columns: Sequence[int] | None = None) -> dict[str, set[str]]:
    """Return the categories that rows have, by column: all that are categorical, or `columns`."""
    return {
        frame.columns[column]: {
            frame.categories[frame.columns[column]][code]
            for code in np.flatnonzero(category_counts(frame, column)).tolist()
        }
        for column in (frame.categorical if columns is None else columns)
    }


def likely_cause(unknown: Collection[str], known: Collection[str]) -> str:
    """Return what sets the spelling of unknown categories apart, as an advice."""
    if not unknown:
        return "write categories as the training table did"
    if {text.casefold() for text in unknown} <= {text.casefold() for text in known}:
        return "write capital letters as the training table did"
    if {text.lstrip("0") for text in unknown} <= {text.lstrip("0") for text in known}:
        return "write leading zeros as the training table did"
    if {*unknown} <= {"0", "1"} and {*known} <= {"true", "false"}:
        return "write true and false, not 1 and 0, as the training table did"
    if {*unknown} <= {"true", "false"} and {*known} <= {"0", "1"}:
        return "write 1 and 0, not true and false, as the training table did"
    return "write categories as the training table did"
