"""Description of a masked vector, which every contributor derives for itself."""

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

    `fresh` numbers the statistics that were never added up before in any form: only these may be
    opened without a party of the last sum. `unit` is the largest absolute amount that one row adds
    to a word; None if noise would make the sum useless.
    """

    name: str  # the step's
    place: tuple[int, ...] = ()  # of the sum in its job: round, layer
    schema: Mapping[str, Any] = field(default_factory=dict)  # JSON: columns, nodes, bounds, units
    fresh: int | None = None
    unit: int | NDArray[np.int64] | None = field(default=None, compare=False)

    def digest(self, words: int) -> bytes:
        """Return a hash of 32 bytes, unique to this statistic and vector length."""
        said = [self.name, *self.place], words, self.fresh, self.schema
        return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).digest()
