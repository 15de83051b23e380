"""What a guest does otherwise than its program: numbers, winners and nodes of its own choice.

A habit is drawn for each job. It changes what the guest encrypts, which candidates it names as
winners, and which nodes it opens; everything else of the guest is as it should be.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fedboost.core import histogram, sampling, weight_checks
from fedboost.core.sampling import Sample
from fedboost.crypto.layout import Layout
from fedboost.crypto.packing import GhLayout
from fedboost.encrypted.guest.offers import Best
from fedboost.encrypted.guest.tree import GuestTree
from fedboost.encrypted.number.packed import PackedGuest

GAIN = 1e9  # of a winner that is chosen for other reasons
WEIGHT_RATIO_LOG2 = int(np.log2(weight_checks.WEIGHT_RATIO_MAX))


@dataclass(frozen=True)
class GuestHabit:
    """What a guest chooses in one job; a habit of no choices is a guest as it should be."""

    marks: str = ""  # numbers of rows: powers of two as far as a field goes, or any that fit it
    winners: str = ""  # of candidates: a random one, or the one that leaves half on its left
    drops: int = 0  # rows that trees leave out, of those that the job's seed draws
    opens: int = 0xFF  # bit node % 8: whether a node below the root is opened
    seed: int = 0

    @classmethod
    def drawn(cls, draw: random.Random) -> GuestHabit:
        """Return one in which most things are chosen."""
        return cls(
            marks=draw.choice(("", "powers", "powers", "any")),
            winners=draw.choice(("random", "random", "half")),
            drops=draw.choice((0, 0, 0, 0, 0, 0, 1, 2)),
            opens=draw.choice((0xFF, 0xFF, draw.getrandbits(8))),
            seed=draw.getrandbits(32),
        )

    def __str__(self) -> str:
        numbers = f"marks {self.marks}, " if self.marks else ""
        winners = f"winners {self.winners}, " if self.winners else ""
        winners += f"drops {self.drops}, " if self.drops else ""
        return f"{numbers}{winners}opens {self.opens:08b}, seed {self.seed}"


HONEST = GuestHabit()


class HostileGuest:
    """The habit of the guest of the job at hand."""

    def __init__(self) -> None:
        self.habit = HONEST

    def patches(self, patched: pytest.MonkeyPatch) -> None:
        """Puts the habit into the guest's program."""
        rows, check, best_of = PackedGuest.rows, Layout.check_values, GuestTree.best_of
        of_round = sampling.round_sample
        open_layer, next_open, divide = GuestTree.open_layer, GuestTree.next_open, GuestTree.divide

        def encrypted(guest: PackedGuest, tree: int, gh: Any, n_rows: int) -> Any:
            layout = guest.layouts[n_rows]
            if self.habit.marks and isinstance(layout, GhLayout):
                gh = marks_of(self.habit, layout, gh.shape, tree)
            return rows(guest, tree, gh, n_rows)

        def unchecked(layout: Layout, values: Any) -> None:
            if not self.habit.marks:
                check(layout, values)

        def sampled(*given: Any) -> Sample:
            sample = of_round(*given)
            kept = sample.rows[self.habit.drops :]
            if not self.habit.drops or not len(kept) or len(sample.trees) > 1:
                return sample
            return replace(sample, trees=(kept,), rows=kept, factor=sample.factor[-len(kept) :])

        def chosen(tree: GuestTree, node: int, sums: Any, shape: Any) -> Best | None:
            if not self.habit.winners:
                return best_of(tree, node, sums, shape)
            return self._best(node, sums[: shape.candidates])

        def some(nodes: list[int]) -> list[int]:
            return [n for n in nodes if not n or self.habit.opens >> n % 8 & 1]

        def opened(tree: GuestTree) -> list[int]:
            tree.opened = some(open_layer(tree))
            return tree.opened

        def divided(tree: GuestTree, divisions: Any, hosts: Any = ()) -> None:
            if self.habit is not HONEST:
                _believe(tree, divisions)
            divide(tree, divisions, hosts)

        patched.setattr(PackedGuest, "rows", encrypted)
        patched.setattr(Layout, "check_values", unchecked)
        patched.setattr(sampling, "round_sample", sampled)
        patched.setattr(GuestTree, "best_of", chosen)
        patched.setattr(GuestTree, "open_layer", opened)
        patched.setattr(GuestTree, "next_open", lambda tree: some(next_open(tree)))
        patched.setattr(GuestTree, "divide", divided)

    def _best(self, node: int, sums: NDArray[np.int64]) -> Best | None:
        """A winner as the habit says; some nodes have none."""
        draw = random.Random(f"{self.habit.seed}-{node}-{sums.tolist()}")
        if not len(sums) or draw.random() < 0.1:
            return None
        place = draw.randrange(len(sums))
        if self.habit.winners == "half":
            hessians = sums[:, 1]
            place = int(np.argmin(np.abs(2 * hessians - hessians.max() - hessians.min())))
        return Best(GAIN, [np.array([place])], sums[place : place + 1])


def marks_of(
    habit: GuestHabit, layout: GhLayout, shape: tuple[int, ...], tree: int
) -> NDArray[np.int64]:
    """Numbers of rows, int64 (rows, columns), of which all together a field still holds.

    "powers": 2^i for as many rows as that; "any": random ones for few, or for all rows.
    """
    draw = np.random.default_rng([habit.seed, tree])
    marks = np.zeros(shape, np.int64)
    n_rows, columns = shape
    for column in range(columns):
        order = draw.permutation(n_rows)
        if habit.marks == "powers":
            some = order[: layout.bound.bit_length() - 1]
            marks[some, column] = 1 << np.arange(len(some), dtype=np.int64)
        elif n_rows:
            some = order[: draw.choice((4, 12, n_rows))]
            most = layout.bound // max(1, len(some))
            marks[some, column] = draw.integers(0, max(1, most), len(some), endpoint=True)
    return marks


def weights_of(draw: random.Random, n_rows: int) -> list[float]:
    """Weights of rows that mark as many as a job accepts, and are 0 or tiny for the others."""
    span = WEIGHT_RATIO_LOG2
    weights = [draw.choice((0.0, 2.0**-span))] * n_rows
    for place, row in enumerate(draw.sample(range(n_rows), min(n_rows, span + 1))):
        weights[row] = 2.0**-place
    return weights


def _believe(tree: GuestTree, divisions: Any) -> None:
    """Has a guest expect whatever comes: of rows marked otherwise, no sum would fit."""
    for node in tree.chosen:
        everyone = tree.growth.everyone.rows(node)
        goes_left = everyone[~np.asarray(divisions[node]) & tree.growth.is_training[everyone]]
        left = histogram.signed_total(tree.gh, goes_left)[None]
        tree.won[node] = replace(tree.won[node], left=left, parts=np.zeros(1, np.int64))
