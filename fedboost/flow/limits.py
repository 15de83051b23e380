"""What protocols read of a party's own policy: the limits that they keep to themselves.

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
    """What a party allows its peers."""

    @property
    def aggregation_noise(self) -> float:
        """Return σ, in rows, of what we add to sums of a job that goes on without lost parties."""

    @property
    def aggregation_parties_min(self) -> int:
        """Return how many contributors a sum has at least."""

    @property
    def gradient_bits_max(self) -> int:
        """Return the most bits that a guest may declare for a gradient."""

    @property
    def group_rows_min(self) -> int:
        """Return how many rows lie between released cuts at least."""

    @property
    def holdout_rows_min(self) -> int:
        """Return how many labelled rows a metric is of at least."""

    @property
    def ids_padded_to(self) -> int | None:
        """Return what peers see of the size of a set of ids; None for its own."""

    @property
    def intersection_min(self) -> int:
        """Return how many ids in common are opened at least."""

    @property
    def own_rows_min(self) -> int:
        """Return how many of our rows a sum is of at least."""

    @property
    def peer_ids_max(self) -> int:
        """Return how many ids a peer may bring to alignments in a day."""

    @property
    def predict(self) -> PredictLimits:
        """Return the limits of predictions."""

    def judge_peer_ids(self, peer: str, ids: int) -> None:
        """Raise a PolicyError where `peer` brings too many ids."""
