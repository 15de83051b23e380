"""Rules of an objective's labels, and the errors about wrong ones."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from fedboost.ground.arrays import Floats
from fedboost.ground.errors import DataError

CLASSES_SHOWN = 10  # in an error
ROWS_MIN = 2  # labels of fewer rows are not shown in errors


class LabelRule(ABC):
    """Rule that decides valid labels; all labels are finite."""

    @property
    @abstractmethod
    def is_signed(self) -> bool:
        """Return whether labels may lie on both sides of 0."""

    @abstractmethod
    def check(self, objective: str, y: Floats, classes: int, learn: bool) -> None:
        """Check labels (n,); a DataError names the count of rows at fault, and a remedy.

        Rows to `learn` from must show more than one class, if labels are classes.
        """

    @abstractmethod
    def sample(self, pull: Floats, classes: int) -> Floats:
        """Return labels (n,) that pass the check and rise with `pull` (n,), for rehearsals."""


class ClassLabels(LabelRule):
    """Classes, numbered from 0."""

    @property
    def is_signed(self) -> bool:
        """See LabelRule."""
        return False

    def check(self, objective: str, y: Floats, classes: int, learn: bool) -> None:
        """See LabelRule."""
        n = len(y)
        bad = int(np.count_nonzero(~((y >= 0.0) & (y < classes) & (y == np.floor(y)))))
        if bad:
            raise DataError(
                f"{bad} of {n} labels are not one of the whole numbers 0 to {classes - 1}",
                todo=_classes_remedy(y, classes, objective),
                kind=f"labels are not the classes that {objective} needs",
            )
        if learn and bool(np.all(y == y[0])):
            raise DataError(
                f"all {n} labels are the same class, so there is nothing to learn",
                todo="check the label column and the rows chosen",
            )

    def sample(self, pull: Floats, classes: int) -> Floats:
        """See LabelRule; about equally many of each class."""
        ranks = np.argsort(np.argsort(pull))
        return (ranks * classes // len(pull)).astype(np.float64)


@dataclass(frozen=True)
class NumberLabels(LabelRule):
    """Numbers, of any sign unless the rule names the wrong ones."""

    wrong: str = ""  # words for wrong labels in an error; empty: all numbers are right
    needed: str = ""  # words for right ones
    instead: str = ""  # an objective that takes all numbers
    zero_is_wrong: bool = False
    are_counts: bool = False  # usually whole numbers

    @property
    def is_signed(self) -> bool:
        """See LabelRule."""
        return not self.wrong

    def check(self, objective: str, y: Floats, classes: int, learn: bool) -> None:
        """See LabelRule."""
        if not self.wrong:
            return
        bad = int(np.count_nonzero(y <= 0.0 if self.zero_is_wrong else y < 0.0))
        if bad:
            raise DataError(
                f"{bad} of {len(y)} labels are {self.wrong}; {objective} needs {self.needed}",
                todo=f"check the label column, or use {self.instead}",
            )

    def sample(self, pull: Floats, classes: int) -> Floats:
        """See LabelRule."""
        return np.floor(np.exp(pull)) if self.are_counts else np.exp(pull)


def _classes_remedy(y: Floats, classes: int, name: str) -> str:
    """Return advice about labels (n,) that are not numbered from 0."""
    values, counts = np.unique(y, return_counts=True)
    if len(values) != classes or classes > CLASSES_SHOWN or counts.min() < ROWS_MIN:
        return f"number the classes from 0, list label_values, or use another objective than {name}"
    listed = ", ".join(f"{value:g}" for value in values)
    second = ", of two the positive one last" if len(values) == 2 else ""
    return f"name the classes in their order{second}, beside the label: label_values: [{listed}]"


CLASSES = ClassLabels()
NUMBERS = NumberLabels()
AMOUNTS = NumberLabels("negative", "0 or more", instead="reg:squarederror")
COUNTS = NumberLabels("negative", "0 or more", instead="reg:squarederror", are_counts=True)
POSITIVE = NumberLabels("0 or less", "more than 0", instead="reg:tweedie", zero_is_wrong=True)
