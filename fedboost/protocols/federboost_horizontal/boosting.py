"""Rounds of trees on a party's own rows: its part of the sums, and the trees from all sums.

Every party runs this on the same sums and ends with the same trees; only margins are its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedboost.aggregation.measures import Measures, MeasuresState, PooledCounts
from fedboost.core import margins, sampling
from fedboost.core.growing_trees import GrowingTrees, plant_trees
from fedboost.core.growth import GrowingState
from fedboost.core.local import Trained, Watched
from fedboost.core.objectives import Objective, Summary
from fedboost.core.rules import Rules
from fedboost.core.tree import Tree
from fedboost.ground.arrays import Floats
from fedboost.ground.slot import Slot
from fedboost.ground.state import Growing, restore_into, state_class

Vector = NDArray[np.int64]


@state_class
class TreeBoostingState:
    """Finished rounds and their metrics."""

    rounds: Growing[tuple[Tree, ...]]
    measures: MeasuresState
    layer: int  # of the round at hand


@state_class
class TreeBoostingCheckpoint:
    """Rounds and margins so far, and the state of trees that still grow."""

    boosting: TreeBoostingState
    margins: dict[str, Floats]  # by the part of the rows
    trees: list[GrowingState]  # none between two rounds


class TreeBoosting(TreeBoostingState):
    """One party's training; `sums` and `take` in turn for each layer, then its `measures`."""

    _tree_batch = Slot[GrowingTrees]("trees that grow")

    def __init__(
        self,
        rules: Rules,
        start: tuple[Objective, Summary, PooledCounts],
        watched: Mapping[str, Watched],
        party: int,
    ) -> None:
        """`watched` holds our rows by part: "train", and "validation" if any party has some.

        `party` is our index at the table, which seeds our samples.
        """
        self.rules, self.watched = rules, watched
        self.objective, self._summary, counts = start
        self.rounds = []
        self.measures: Measures = Measures(rules.params, counts, self.objective.base_margin)
        self.layer = 0
        self._party = party
        self._forest = 1  # trees of the round, for each class

    @property
    def needs_layer(self) -> bool:
        """Whether the round at hand needs another layer."""
        return self._is_growing and not self._tree_batch.is_over

    @property
    def _is_growing(self) -> bool:
        return TreeBoosting._tree_batch.is_set(self)

    # Layers

    def sums(self) -> Vector:
        """Return our rows' share of the next layer's sums, int64; empty if trees ended early."""
        if not self._is_growing:
            self._tree_batch = self._plant_trees()
        return np.empty(0, np.int64) if self._tree_batch.is_over else self._tree_batch.sums()

    def asked(self) -> dict[str, Any]:
        """Return a description of the sums of the next layer, as JSON, without the columns.

        It has the nodes of each tree, and the values of 1 in the sums.
        """
        trees = self._tree_batch.trees if self._is_growing else []
        fixed = self.rules.fixed
        return {
            "nodes": [tree.asked for tree in trees],
            "used": [tree.columns for tree in trees],
            "units": [fixed.g_unit, fixed.h_unit],
        }

    def take(self, total: Vector | None) -> None:
        """Grow a layer from the sums of all parties; None ends the trees at their last layer."""
        if total is None:
            self._tree_batch.close()
        elif len(total):
            self._tree_batch.take(total)
        self.layer += 1

    def close_round(self) -> None:
        """Finish the round's trees, and add their values to all margins."""
        grown = [tree.tree() for tree in self._tree_batch.trees]
        trees = tuple(replace(tree, value=tree.value / self._forest) for tree in grown)
        self.rounds.append(trees)
        for part in self.watched.values():
            part.advance(trees, self.rules.binning.missing)
            margins.check_finite(self.rules.params, part.margin, len(self.rounds))
        del self._tree_batch
        self.layer = 0

    # The result

    @property
    def trained(self) -> Trained:
        """The model so far, up to its best round."""
        return Trained(
            *(self.rules.params, self.rules.binning, self.objective.base_margin),
            *(tuple(self.rounds), self.measures.history, self.measures.best_round),
        )

    @property
    def is_grown(self) -> bool:
        """Whether the trees of the round at hand are whole, and their metrics are due."""
        return len(self.rounds) > len(self.measures.history)

    def state(self) -> TreeBoostingCheckpoint:
        """Return the state for a checkpoint."""
        margins = {part: seen.margin for part, seen in self.watched.items()}
        trees = self._tree_batch.trees if self._is_growing else []
        return TreeBoostingCheckpoint(boosting=self, margins=margins, trees=[*trees])

    def load_state(self, kept: TreeBoostingCheckpoint) -> None:
        """Continue with the rounds of an earlier attempt."""
        restore_into(self, kept.boosting)
        for part, seen in self.watched.items():
            seen.margin[:] = kept.margins[part]
        if kept.trees:
            self._tree_batch = self._plant_trees()
            for tree, state in zip(self._tree_batch.trees, kept.trees, strict=True):
                tree.load_state(state)

    # Inside

    def _plant_trees(self) -> GrowingTrees:
        """Return the trees of the next round at their roots."""
        rules, rows, number = self.rules, self.watched["train"], len(self.rounds)
        gradients = self.objective.gradients(rows.margin, rows.y, rows.weight)
        sample = sampling.round_sample(rules.params, gradients[0], number, number, self._party)
        self._forest = len(sample.trees)
        groups = (rules.binning.n_columns,)
        return GrowingTrees(list(plant_trees(rules, rows.bins, gradients, sample, number, groups)))
