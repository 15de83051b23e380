"""What a vector under masks says, as every contributor describes it for itself."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Statistic:
    """A sum's name, place and schema; masks cancel only between equal ones.

    `fresh` numbers the statistics that have not been added up before in any form: only these may
    be opened when a party is missing that was there at the last sum. `unit` is the most that one
    row adds to a word, in size; None where noise would make nothing of the sum.
    """

    name: str  # the step's
    place: tuple[int, ...] = ()  # of the sum in its job: round, layer
    schema: Mapping[str, Any] = field(default_factory=dict)  # JSON: columns, nodes, bounds, units
    fresh: int | None = None
    unit: int | NDArray[np.int64] | None = field(default=None, compare=False)

    def digest(self, words: int) -> bytes:
        """32 bytes that no other statistic, and no vector of another length, has."""
        said = [self.name, *self.place], words, self.fresh, self.schema
        return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).digest()
