"""Purity of nodes: how much a node says about the labels of its rows."""

from __future__ import annotations

from typing import Self

import numpy as np
from numpy.typing import NDArray

from fedboost.core import objectives


class PurityLimit:
    """Classes of the training rows, and the limit of a node's purity."""

    def __init__(self, kinds: NDArray[np.int64], most: float) -> None:
        """kinds int64 (n,): each row's class from 0, −1 outside the training rows."""
        self._kinds, self._most = kinds, most
        self._totals = np.bincount(kinds[kinds >= 0])

    @classmethod
    def from_labels(
        cls,
        objective: str,
        y: NDArray[np.float64],
        training: NDArray[np.bool_],
        most: float,
    ) -> Self:
        """Return the limit of labels float64 (n,); bool (n,) is a mask of the training rows.

        Labels that are numbers have two classes: above the mean of all, and the others.
        """
        known = y[training]
        if not objectives.objective_record(objective).classifies:
            known = (known > known.mean()).astype(np.float64)
        kinds = np.full(len(y), -1, np.int64)
        kinds[training] = np.unique(known, return_inverse=True)[1]
        return cls(kinds, most)

    def is_exceeded(self, rows: NDArray[np.int32]) -> bool:
        """Return whether a node with these rows is purer than the limit."""
        return self.of(rows) > self._most

    def of(self, rows: NDArray[np.int32]) -> float:
        """Return the share of the most frequent class in a node, as if all classes were equally
        frequent in the table; 1 / classes for all rows together.

        With two classes, a share of p means that the node changes the odds of a row's label by at
        most p / (1 − p). Laplace's rule of succession, one more row of every class, keeps a few
        rows of a frequent class from counting as pure.
        """
        kinds = self._kinds[rows]
        counts = np.bincount(kinds[kinds >= 0], minlength=len(self._totals))
        shares = (counts + 1) / (self._totals + 1)
        return float(shares.max() / shares.sum())
