"""Limits of a party's own policy that protocols read and keep to themselves.

The runtime's `Policy` has all of them, with their meaning.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol


class PredictLimits(Protocol):
    """Limits of predictions."""

    @property
    def exact(self) -> Collection[str]:
        """Return the guests that get answers without noise."""


class PeerLimits(Protocol):
    """Limits that a party sets for its peers."""

    @property
    def aggregation_noise(self) -> float:
        """Return σ, in rows, of our noise on sums of a job without its lost parties."""

    @property
    def aggregation_parties_min(self) -> int:
        """Return the least number of contributors of a sum."""

    @property
    def gradient_bits_max(self) -> int:
        """Return the most bits that a guest may declare for a gradient."""

    @property
    def group_rows_min(self) -> int:
        """Return the least number of rows between released cuts."""

    @property
    def holdout_rows_min(self) -> int:
        """Return the least number of labelled rows of a metric."""

    @property
    def ids_padded_to(self) -> int | None:
        """Return the size of a set of ids that peers see; None for its true size."""

    @property
    def intersection_min(self) -> int:
        """Return the least number of ids in common that are opened."""

    @property
    def own_rows_min(self) -> int:
        """Return the least number of our rows in a sum."""

    @property
    def peer_ids_max(self) -> int:
        """Return how many ids a peer may bring to alignments in a day."""

    @property
    def predict(self) -> PredictLimits:
        """Return the limits of predictions."""

    def judge_peer_ids(self, peer: str, ids: int) -> None:
        """Raise a PolicyError if `peer` brings too many ids."""
