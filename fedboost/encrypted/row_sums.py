"""Encrypted rows as whoever has them adds them up."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic

import numpy as np
from numpy.typing import NDArray

from fedboost.crypto.api import Adder, Ciphertexts, H, PublicKey, joined


class RowSums(ABC, Generic[H]):
    """Encrypted rows, or a part of them, as they are added up, and what is done with their sums."""

    @property
    @abstractmethod
    def adds(self) -> Adder[H]:
        """Return what adds up cells."""

    @abstractmethod
    def sums(self, rows: NDArray[np.integer], cells: NDArray[np.int32], n_cells: int) -> H:
        """Adds row `rows[i]` into each cell of `cells[i]`; see `api.Adder.segment_sum`."""

    def running(self, cells: H, offsets: NDArray[np.integer]) -> H:
        """Running sums within segments; see `api.Adder.prefix_sums`. `cells` may become them."""
        return self.adds.prefix_sums(cells, offsets)

    def siblings(self, parents: Sequence[H], others: Sequence[H]) -> list[H]:
        """Return the cells of each parent minus those of the other child; `parents` may become
        them.
        """
        minus = self.adds.subtract(joined(parents), joined(others))
        ends = np.cumsum([len(parent) for parent in parents]).tolist()
        return [minus[end - len(parent) : end] for end, parent in zip(ends, parents, strict=True)]


@dataclass(frozen=True)
class KeyedRows(RowSums[Ciphertexts]):
    """Rows under a key."""

    key: PublicKey
    gradients: Ciphertexts

    @property
    def adds(self) -> PublicKey:
        """The key itself."""
        return self.key

    def sums(
        self, rows: NDArray[np.integer], cells: NDArray[np.int32], n_cells: int
    ) -> Ciphertexts:
        """See `RowSums`."""
        return self.key.segment_sum(self.gradients, rows, cells, n_cells)
