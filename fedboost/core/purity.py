"""How much it says about a row's label that the row stands in a node."""

from __future__ import annotations

from typing import Self

import numpy as np
from numpy.typing import NDArray

from fedboost.core import objectives


class PurityLimit:
    """The classes of the rows to learn from, and how pure a node of them may be."""

    def __init__(self, kinds: NDArray[np.int64], most: float) -> None:
        """kinds int64 (n,): each row's class from 0, −1 for rows that are not to learn from."""
        self._kinds, self._most = kinds, most
        self._totals = np.bincount(kinds[kinds >= 0])

    @classmethod
    def of_labels(
        cls,
        objective: str,
        y: NDArray[np.float64],
        training: NDArray[np.bool_],
        most: float,
    ) -> Self:
        """Make the limit of labels float64 (n,), where bool (n,) says which are to learn from.

        Labels that are numbers have two classes: above the mean of all, and the others.
        """
        known = y[training]
        if not objectives.named(objective).classifies:
            known = (known > known.mean()).astype(np.float64)
        kinds = np.full(len(y), -1, np.int64)
        kinds[training] = np.unique(known, return_inverse=True)[1]
        return cls(kinds, most)

    def is_exceeded(self, rows: NDArray[np.int32]) -> bool:
        """Return whether a node with these rows is purer than it may be."""
        return self.of(rows) > self._most

    def of(self, rows: NDArray[np.int32]) -> float:
        """The share of the most frequent class in a node, were all classes equally frequent in the
        table; of all rows 1 / classes.

        Of two classes, p says that standing in the node changes the odds of a row's label by at
        most p / (1 − p). Laplace's rule of succession, one more row of every class, keeps a few
        rows of a frequent class from counting as pure.
        """
        kinds = self._kinds[rows]
        counts = np.bincount(kinds[kinds >= 0], minlength=len(self._totals))
        shares = (counts + 1) / (self._totals + 1)
        return float(shares.max() / shares.sum())
