"""The host of the random adversary's schedules: its people, its jobs, and what its owner allows."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from fedboost.data.ids import encode_ids

GUESTS, HOST = ("bank", "rival", "agent"), "telco"
ROWS, COLUMNS = 40, ("x", "z")
IDS = [f"p{row:02d}" for row in range(ROWS)]
KNOWN = encode_ids([pa.chunked_array([pa.array(IDS)])], ["id"])
EPSILON = 1.0
PLAIN = {"encryption": {"scheme": "plain"}}
TREES: dict[str, Any] = {"n_estimators": 2, "max_depth": 2, "max_bin": 4, **PLAIN}
HYBRID: dict[str, Any] = {
    "n_estimators": 2,
    "guest_depth": 1,
    "host_depth": 1,
    "max_bin": 4,
    **PLAIN,
}


@dataclass
class Limits:
    """What the host's owner allows, drawn by a schedule."""

    approve: str
    disclosure_max: float
    apart: tuple[str, ...]
    epsilon_row_max: float
    rows_per_day: int
    alignments_per_day: int
    intersection_min: int
    placed_max: float
    peer_ids_max: int
    group_rows_min: int

    @classmethod
    def drawn(cls, draw: random.Random) -> Limits:
        """Tight ones and wide ones."""
        return cls(
            approve=draw.choice(("always", "never")),
            disclosure_max=draw.choice((0.4, 0.8, 2.0, 10.0)),
            apart=draw.choice(((), (), GUESTS[:1])),
            epsilon_row_max=draw.choice((2.0, 2.0, 4.0, 20.0)),
            rows_per_day=draw.choice((ROWS // 2, ROWS, 2 * ROWS, 3 * ROWS)),
            alignments_per_day=draw.choice((2, 6, 100, 100)),
            intersection_min=draw.choice((1, 1, 1, 1, ROWS - 2)),
            placed_max=draw.choice((1.0, 1.0, 1.0, 0.6)),
            peer_ids_max=draw.choice((3 * ROWS, 10_000, 10_000, 10_000)),
            group_rows_min=draw.choice((1, 1, 1, 3, 5)),
        )
