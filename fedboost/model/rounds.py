"""Trees of each round of a model, and the margin that each of them adds to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

ALL = -1  # of a tree with leaf values for every margin


def trees_after_rounds(facts: Mapping[str, Any]) -> NDArray[np.int64]:
    """Return the number of trees after each round of the model, int64 (rounds,).

    `forest` lists the trees of each round for each of `trees_per_round` classes.
    """
    sizes = np.array(facts["forest"], np.int64)
    return np.cumsum(sizes * facts["trees_per_round"])


def classes(facts: Mapping[str, Any]) -> NDArray[np.int64]:
    """Return each tree's margin, int64 (trees,), or ALL; class after class in a round."""
    per_round = facts["trees_per_round"]
    if per_round == 1:
        return np.full(int(np.sum(facts["forest"])), ALL, np.int64)
    by_round = [np.repeat(np.arange(per_round), size) for size in facts["forest"]]
    return np.concatenate([np.empty(0, np.int64), *by_round])


def outputs(facts: Mapping[str, Any]) -> list[slice]:
    """Return the margins that each tree adds to, in the order of training."""
    return [slice(None) if c == ALL else slice(c, c + 1) for c in classes(facts).tolist()]
