"""The disclosure meter: how many equations the sums that a host releases are, about any one bin.

The guest knows every g and h, so a sum over the rows of a bin is a linear equation on who is in it,
whatever the cipher. With enough of them about one bin a linear program finds its rows. What counts
is how many are independent: of two siblings whose parent has told the same column, one is the
parent minus the other.

    tree        root            every pair of siblings below it
    equations   2·outputs       2·outputs more, where both are told

A tree whose candidates a host offers in `layers` layers tells 2·outputs·2^(layers − 1) at most.
Coarser sums, over groups of bins, are equations too and count as much. Not counted: how the rows of
won splits divide, which the guest must know, and a host's noise, which makes equations inexact.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedboost.core import sampling
from fedboost.core.halfway import Arrays
from fedboost.core.params import TreeParams
from fedboost.core.partition import ROOT, parent, sibling
from fedboost.encrypted.grove import STRIDE
from fedboost.encrypted.offers import Offer
from fedboost.flow import Releases

Columns = NDArray[np.int32]
Counts = NDArray[np.int64]

DRAWN_TREES_MAX = 2000  # whose columns are drawn to be counted; of more trees all columns count


class Meter:
    """What one host has told: of each column the equations about any bin of it."""

    def __init__(self, equations: Counts, values: int) -> None:
        """Goes on from int64 (columns,); a sum has so many `values`."""
        self.equations = equations
        self._values = values
        self._above: dict[int, Columns] = {}  # the columns that each node of the last layer told

    @classmethod
    def of(cls, params: TreeParams, columns: int) -> Meter:
        """A meter at zero."""
        return cls(np.zeros(columns, np.int64), _values(params))

    @property
    def most(self) -> int:
        """Those about the most told column."""
        return int(self.equations.max(initial=0))

    def resumed(self, equations: NDArray[np.generic]) -> None:
        """Goes on from what a checkpoint says."""
        self.equations, self._above = equations.astype(np.int64), {}

    def halfway(self) -> Arrays:
        """What the next layer must know of the last one."""
        columns = np.arange(len(self.equations))
        told = [np.isin(columns, own) for own in self._above.values()]
        return {
            "above": np.array(list(self._above), np.int32),
            "told": np.array(told, np.bool_).reshape(len(told), len(columns)),
        }

    def take_up(self, kept: Mapping[str, NDArray[np.generic]]) -> None:
        """Goes on where `halfway` has found it, inside trees."""
        told = [np.flatnonzero(own).astype(np.int32) for own in kept["told"]]
        self._above = dict(zip(kept["above"].tolist(), told, strict=True))

    def begin_trees(self) -> None:
        """The nodes that come next have no parents."""
        self._above = {}

    def layer(self, offers: Mapping[int, Offer]) -> None:
        """Counts the sums of a layer's nodes, by their numbers; a column without any tells none."""
        told = {number: _columns(offer) for number, offer in offers.items()}
        for number, own in told.items():
            self.equations[own] += self._values
            place, node = divmod(number, STRIDE)
            if node == ROOT or not node % 2:  # a pair is looked at once, at its left node
                continue
            beside = told.get(place * STRIDE + sibling(node))
            above = self._above.get(place * STRIDE + parent(node))
            if beside is not None and above is not None:
                known = np.intersect1d(np.intersect1d(own, beside), above)
                self.equations[known] -= self._values
        self._above = told


@dataclass(frozen=True)
class Trees:
    """The trees of a job for which a host offers candidates, all of one shape."""

    rounds: Sequence[range]  # their numbers, round by round
    layers: int  # in which it offers any
    roots: int = 1  # nodes of the first of these


def bound(params: TreeParams, trees: Trees, group: int, columns: int | None) -> Releases:
    """The most that these trees tell of any of a host's `columns`; None: whatever it may have.

    Upper bounds: every node of every layer tells every column that its tree may use, no round is
    left out by early stopping. Which columns a tree may use is public (`sampling.own_columns`, of
    party number `group`), so that column sampling is counted as it will be drawn.
    """
    per_tree = trees.roots * (1 << (trees.layers - 1)) * _values(params)
    used = sum(len(own) for own in trees.rounds)
    longest = max((len(own) for own in trees.rounds), default=0)
    if columns and params.column_rate < 1.0 and used <= DRAWN_TREES_MAX:
        times = np.zeros(columns, np.int64)
        for number in (number for own in trees.rounds for number in own):
            drawn = (params.seed, number, group, columns, params.column_rate)
            times[sampling.own_columns(*drawn)] += 1
        used = int(times.max())
    return Releases(whole=per_tree * used, round=per_tree * longest)


def _values(params: TreeParams) -> int:
    """Of a sum: g and h of each output of a leaf."""
    return 2 * params.n_outputs // params.trees_per_round


def _columns(offer: Offer) -> Columns:
    """Those that an offer has sums of, int32 ascending."""
    grouped = np.array([one.column for one in offer.grouped], np.int32)
    return np.unique(np.concatenate([offer.listed.column, grouped]))
