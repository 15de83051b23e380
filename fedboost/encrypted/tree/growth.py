"""The nodes of a growing tree's rows, as guest and hosts both keep them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import field
from typing import Self

import numpy as np
from numpy.typing import NDArray

from fedboost.core import sampling
from fedboost.core.params import TreeParams
from fedboost.core.partition import Partition
from fedboost.core.sampling import Sample
from fedboost.flow import DisclosureInfo, StageContext
from fedboost.ground import wire
from fedboost.ground.errors import PeerError
from fedboost.ground.state import state_class
from fedboost.messages.array_pb2 import Array
from fedboost.messages.protocol import encrypted_pb2 as pb

Division = tuple[int, NDArray[np.bool_]]  # a node, and which of its rows (ascending) go right


@state_class
class Growth:
    """The rows of one tree's nodes: of all rows, and of the training rows among them."""

    is_training: NDArray[np.bool_]  # (n,)
    everyone: Partition
    training: Partition
    layers: int = 0  # divided so far, even into nothing
    last_divided: list[Division] = field(default_factory=list)  # the layer above

    @classmethod
    def begun(cls, is_training: NDArray[np.bool_], at: NDArray[np.int32] | None = None) -> Self:
        """Return the rows in their first nodes: `at` is each row's node, −1 for none; without it
        all rows stand in the root.
        """
        everyone = _standing(np.ones(len(is_training), np.bool_), at)
        training = _standing(is_training, at)
        return cls(is_training=is_training, everyone=everyone, training=training)

    def divide(self, divisions: Sequence[Division]) -> list[Division]:
        """Move the rows of a layer's divided nodes into their children; return how the training
        rows among them divide.
        """
        of_training = []
        for node, goes_right in divisions:
            of_training.append((node, goes_right[self.is_training[self.everyone.rows(node)]]))
            self.training.divide(*of_training[-1])
            self.everyone.divide(node, goes_right)
        self.last_divided = list(divisions)
        self.layers += 1
        return of_training


def read_divisions(
    nodes: Array, goes_right: Array, expected: Sequence[int], rows: Sequence[int], sender: str
) -> dict[int, NDArray[np.bool_]]:
    """Return the divisions in a message, of exactly the `expected` nodes with so many `rows`
    each.
    """
    got = wire.unpack(nodes, "i4", (len(expected),), f"the nodes that {sender} divides")
    if got.tolist() != list(expected):
        raise PeerError(f"{sender} divides other nodes than it should")
    bits = wire.unpack_bits(goes_right, sum(rows), f"the rows that {sender} divides")
    parts = np.split(bits, np.cumsum(rows)[:-1]) if rows else []
    return dict(zip(expected, parts, strict=True))


def about_divisions(divisions: Iterable[NDArray[np.bool_]]) -> DisclosureInfo:
    """Return the rows behind a message of divisions: those of the children that they make."""
    sides = [(int(np.count_nonzero(bits)), len(bits)) for bits in divisions]
    return DisclosureInfo.from_group_sizes(
        size for right, rows in sides for size in (right, rows - right)
    )


def about_leaves(growth: Growth) -> DisclosureInfo:
    """Return the rows behind a message of leaves: all rows, by their leaf."""
    everyone = growth.everyone
    return DisclosureInfo.from_group_sizes(len(everyone.rows(leaf)) for leaf in everyone.leaves())


def write_sample(part: pb.EncryptedGradients, sample: Sample, n_rows: int) -> None:
    """Write the training rows that take part, of `n_rows`, and their trees, unless all take part in
    all.
    """
    if len(sample.rows) < n_rows:
        taking_part = np.zeros(n_rows, np.bool_)
        taking_part[sample.rows] = True
        part.taking_part.CopyFrom(wire.pack_bits(taking_part))
    if len(sample.trees) > 1:
        inside = np.stack([np.isin(sample.rows, rows) for rows in sample.trees])
        part.trees.CopyFrom(wire.pack_bits(inside.ravel()))


def read_sample(part: pb.EncryptedGradients, n_rows: int, n_trees: int) -> list[NDArray[np.bool_]]:
    """Return the training rows that each tree learns from, bool (n_rows,) each.

    With several trees, each tree has at least one row, and each row at least one tree.
    """
    taking_part = np.ones(n_rows, np.bool_)
    if part.HasField("taking_part"):
        taking_part = wire.unpack_bits(part.taking_part, n_rows, "the rows that take part")
    (rows,) = np.nonzero(taking_part)
    inside = np.ones((n_trees, len(rows)), np.bool_)
    if part.HasField("trees") != (n_trees > 1):
        says = "does not say" if n_trees > 1 else "says"
        raise PeerError(
            f"the guest {says} which tree each row belongs to; growing trees: {n_trees}"
        )
    if n_trees > 1:
        what = "the rows of each tree"
        inside = wire.unpack_bits(part.trees, n_trees * len(rows), what).reshape(n_trees, -1)
        if not inside.any(axis=0).all() or not inside.any(axis=1).all():
            raise PeerError("the guest sent a tree without rows, or rows without a tree")
    samples = np.zeros((n_trees, n_rows), np.bool_)
    samples[:, rows] = inside
    return list(samples)


def check_sample(
    samples: Sequence[NDArray[np.bool_]],
    params: TreeParams,
    this: int,
    *,
    before: int = 0,
    party: int = 0,
) -> None:
    """Refuse, by a PeerError, rows of a round's trees that the job does not draw.

    Trees of chosen rows would reveal more than trees of drawn ones: two that differ by one row
    reveal its bins. `this` is the round of the job, `before` counts the rounds of the model that it
    continues, `party` owns the rows, as in `sampling.round_sample`. Only the guest can know the
    rows that `goss` keeps, so there only their count is checked.
    """
    if params.goss is not None:
        most = sum(sampling.goss_counts(len(samples[0]), *params.goss.rates))
        if any(np.count_nonzero(sample) != most for sample in samples):
            raise PeerError(f"the guest chose another number of rows than goss does, {most}")
        return
    drawn = sampling.tree_rows(params, len(samples[0]), before + this, this, party)
    for sample, rows in zip(samples, drawn, strict=True):
        expected = np.zeros(len(sample), np.bool_)
        expected[rows] = True
        if not np.array_equal(sample, expected):
            raise PeerError("the guest chose other rows for a tree than the job's seed draws")


def check_draws(context: StageContext[TreeParams], before: int = 0, party: int = 0) -> None:
    """Refuse, by a PolicyError, a job whose trees hardly tell a host's rows apart; `before` and
    `party` as in `check_sample`.
    """
    alike = np.ones((1, int(np.count_nonzero(~context.validation))), np.bool_)
    least, key = context.limits.group_rows_min, "policy.group_rows_min"
    sampling.check_draws(context.params, alike, least, key, before=before, party=party)


def _standing(chosen: NDArray[np.bool_], at: NDArray[np.int32] | None) -> Partition:
    """Return the partition of the chosen rows into their nodes."""
    if at is None:
        return Partition.at_root(np.flatnonzero(chosen).astype(np.int32))
    (rows,) = np.nonzero(chosen & (at >= 0))
    return Partition.from_nodes(rows.astype(np.int32), at[rows], np.unique(at[at >= 0]).tolist())
