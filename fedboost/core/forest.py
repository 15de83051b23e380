"""Forests per round: the number of trees of a round, and their share of the rows.

FedGBF grows `n_trees` in every round; Dynamic FedGBF begins with many trees on few rows and ends
with few trees on many (Han et al., section 3.3). The paper swaps the headings of equations 6 and 7
and loses a bracket; read as here, for round b of B and θ = π(b−1) / (2·speed·(B−1)),

    falling   V_min + (V_max − V_min)·cos θ, and V_min once θ has passed π/2
    rising    V_min + (V_max − V_min)·sin θ, and V_max once θ has passed π/2

they give the Σα = 22.705 and ΣαN = 93.68 over 100 rounds that its Table 2 implies through equations
9 to 11, with the number of trees rounded up.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedboost.core.params import TreeParams
from fedboost.ground.arrays import Floats

TreeCounts = NDArray[np.int64]


def trees_each_round(params: TreeParams) -> TreeCounts:
    """Return the trees of each round, for each class with separate trees; int64 (n_estimators,)."""
    forest, rounds = params.forest, params.n_estimators
    if forest is None:
        return np.ones(rounds, np.int64)
    if forest.dynamic is None:
        return np.full(rounds, forest.n_trees, np.int64)
    first, last = forest.dynamic.n_trees
    return np.ceil(values_each_round(first, last, forest.dynamic.speed.n_trees, rounds)).astype(
        np.int64
    )


def most_trees(params: TreeParams) -> int:
    """Return the number of trees of the largest round, for each such class."""
    return 1 if params.forest is None else int(trees_each_round(params).max())


def row_rates(params: TreeParams) -> Floats:
    """Return the share of the rows that each tree of a round sees, float64 (n_estimators,)."""
    forest, rounds = params.forest, params.n_estimators
    if forest is None:
        return np.full(rounds, params.subsample)
    if forest.dynamic is None:
        return np.full(rounds, forest.subsample)
    first, last = forest.dynamic.subsample
    return values_each_round(first, last, forest.dynamic.speed.subsample, rounds)


def first_tree_numbers(params: TreeParams) -> TreeCounts:
    """Return the number of the first tree of each round, and the number after the last tree.

    int64 (n_estimators + 1,), counted over rounds and classes from 0.
    """
    return np.concatenate(([0], np.cumsum(trees_each_round(params) * params.trees_per_round)))


def values_each_round(first: float, last: float, speed: float, rounds: int) -> Floats:
    """Return a value that moves from `first` to `last` over the rounds; float64 (rounds,).

    It arrives after the share `speed` of the rounds and stays there.
    """
    angle = np.pi * np.arange(rounds) / (2.0 * speed * max(rounds - 1, 1))
    way = np.cos(angle) if first > last else np.sin(angle)
    least, most = min(first, last), max(first, last)
    return np.where(angle < np.pi / 2, least + (most - least) * way, last)
