"""Columns of a tree that a test chooses, in place of drawn ones."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from fedboost.core.params import TreeParams
from fedboost.core.partition import layer_of
from fedboost.core.sampling import TreeColumns


@dataclass(frozen=True)
class LayeredColumns(TreeColumns):
    """Columns of which each layer may use some, `layers` from the root down, beside its draws."""

    layers: Sequence[np.ndarray] = field(default_factory=list)

    def usable_masks(self, nodes):
        drawn = super().usable_masks(nodes)
        if not self.layers:
            return drawn
        own = [np.isin(self.all, self.layers[layer_of(node)]) for node in nodes]
        allowed = np.array(own, np.bool_).reshape(len(nodes), len(self.all))
        return allowed if drawn is None else allowed & drawn


def chosen(columns, layers=()):
    """These columns, int32 rising."""
    return LayeredColumns(TreeParams(), 0, {0: columns}, layers)
