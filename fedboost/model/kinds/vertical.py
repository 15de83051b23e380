"""Trees whose splits lie with several parties: a guest knows every node, a host its own splits."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedboost.core.categories import BY_CATEGORY, NO_THRESHOLD
from fedboost.core.tree import DTYPES, Tree
from fedboost.data.frame import FrameValues
from fedboost.flow import GUEST, Artefact
from fedboost.ground.arrays import Floats, Indices
from fedboost.ground.errors import ConfigError
from fedboost.model import branches, columns, conditions, export, rounds, vertical
from fedboost.model.batches import row_batches
from fedboost.model.branches import Picture
from fedboost.model.kinds.kind import (
    Exported,
    Frames,
    Gains,
    ImportanceShare,
    ModelKind,
    Shards,
    SharedRule,
    SplitTotals,
)
from fedboost.model.vertical import GUEST as OWN
from fedboost.model.vertical import LEAF, GuestNode, OwnSplit, Whole


class VerticalModel(ModelKind):
    """Trees of the parties of one table."""

    scored_by: ClassVar[str] = "predict"

    def exported_parts(self, shard: Artefact) -> Exported:
        """Return a guest's nodes; a host's splits, with the facts of a release."""
        facts = export.facts_of(shard)
        if facts["role"] == GUEST:
            return facts, {"nodes": export.node_entries(shard)}
        known = export.HostShard.model_fields
        facts = {name: value for name, value in facts.items() if name in known}
        return facts, {"splits": export.split_entries(shard)}

    def importance(self, shard: Artefact) -> list[ImportanceShare]:
        """See `ModelKind`; a host knows no gain."""
        names = shard.facts["columns"]
        if shard.facts["role"] != GUEST:
            counts = np.bincount(shard.arrays["feature"].astype(np.int64), minlength=len(names))
            shares = [
                ImportanceShare(shard.facts["party"], name, int(count), None)
                for name, count in zip(names, counts, strict=True)
                if count
            ]
            return sorted(shares, key=lambda share: -share.splits)
        summed = vertical.gain_by_column(self.nodes(shard))
        shares = [
            ImportanceShare(
                export.owner_name(shard, owner), names[column] if column >= 0 else "", count, gain
            )
            for (owner, column), (gain, count) in summed.items()
        ]
        return sorted(shares, key=lambda share: -(share.gain or 0.0))

    def nodes(self, shard: Artefact) -> list[GuestNode]:
        """Return the nodes that a guest knows."""
        return vertical.arrays_to_nodes(shard.arrays)

    def tree_lines(self, shard: Artefact, trees: int, first: int = 0) -> list[str]:
        """Return whole trees of a guest's shard, or a host's own splits."""
        if shard.facts["role"] == GUEST:
            return self.guest_lines(shard, trees, first)
        splits = vertical.arrays_to_splits(shard.arrays)
        of_trees = [split for split in splits if first <= split.tree < first + trees]
        return [f"tree {s.tree}, node {s.node}: {_question(shard, s)}" for s in of_trees]

    def guest_lines(self, shard: Artefact, trees: int, first: int) -> list[str]:
        """Return every node of these trees as text."""
        lines = []
        for number in range(first, min(first + trees, shard.facts["trees"])):
            lines += [f"tree {number}", *branches.text_lines(self.picture(shard, number).root)]
            lines += self.lines_below(shard, number)
        return lines

    def lines_below(self, shard: Artefact, tree: int) -> Iterator[str]:
        """Yield lines about the nodes below a guest's tree."""
        yield from ()

    def shared_rules(
        self, shard: Artefact, names: Collection[str] | None = None
    ) -> tuple[list[SharedRule], int]:
        """Return the rules below the guest's own splits."""
        assert shard.facts["role"] == GUEST
        known_columns: list[str] = shard.facts["columns"]
        unknown = sorted(set(names or ()) - set(known_columns))
        if unknown:
            raise ConfigError(
                f"{shard.facts['party']} has no such column in the model",
                todo=f"fedboost model show {shard.facts['job']} --json lists them",
                column=unknown[0],
            )
        trees, count = _guest_trees(shard), len(known_columns)
        rules = conditions.find_rules(trees)
        known = [rule for rule in rules if all(column < count for column, _ in rule.rule)]
        chosen = range(count) if names is None else {known_columns.index(name) for name in names}
        listed = [
            SharedRule(
                [_condition(shard, *clause) for clause in rule.rule],
                [known_columns[column] for column, _ in rule.rule],
                list(rule.trees),
                len(rule.trees) / len(trees),
            )
            for rule in known
            if rule.has_condition_on(chosen)
        ]
        return listed, len(rules) - len(known)

    def picture(self, shard: Artefact, tree: int) -> Picture:
        """See `ModelKind`."""
        self.check_tree(shard.facts, tree)
        return branches.picture_of_shard(shard, tree)

    def join_shards(self, shard: Artefact, hosts: Shards) -> Whole:
        """See `vertical.join_shards`."""
        return vertical.join_shards(shard, hosts)

    def margins(
        self, shards: Shards, guest: str, frames: Frames, held: Mapping[str, Indices]
    ) -> Floats:
        """Return the margins of rows that every host has."""
        joined = _join_all(shards, guest)
        arrays = dict(joined.arrays)
        inner = arrays["owner"] != LEAF
        arrays["owner"] = np.where(inner, OWN, LEAF).astype(np.int16)
        used, indices = np.unique(arrays["feature"][inner].astype(np.int64), return_inverse=True)
        arrays["feature"] = arrays["feature"].astype(np.int32)
        arrays["feature"][inner] = indices
        values = _side_by_side(shards, frames, [joined.columns[place] for place in used.tolist()])
        outputs = rounds.outputs(joined.facts)
        margin = np.tile(np.array(joined.facts["base_margin"], np.float64), (values.shape[0], 1))
        value = arrays["value"].astype(np.float64)
        for rows in row_batches(values.shape[0], len(joined.shape.roots)):
            at = np.tile(joined.shape.roots, (rows.stop - rows.start, 1))
            vertical.descend_own(arrays, joined.shape, values, at, rows.start)
            for tree, output in enumerate(outputs):
                margin[rows, output] += value[at[:, tree]]
        return margin

    def column_gains(self, shards: Shards, guest: str) -> Gains | None:
        """See `ModelKind`."""
        joined, gains = _join_all(shards, guest), Gains()
        inner = joined.arrays["owner"] != LEAF
        indices = joined.arrays["feature"][inner].astype(np.int64).tolist()
        gain, cover = (joined.arrays[name][inner].tolist() for name in ("gain", "cover"))
        for place, *worth in zip(indices, gain, cover, strict=True):
            gains.setdefault(joined.columns[place], SplitTotals()).add(*worth)
        return gains


def add_gains(
    gains: Gains,
    party: str,
    shard: Artefact,
    feature: NDArray[np.generic],
    worth: tuple[NDArray[np.generic], NDArray[np.generic]],
) -> None:
    """Add splits to the totals of a party's columns.

    `feature` are column indices, `worth` the gains and covers of the splits.
    """
    names, (gain, cover) = shard.facts["columns"], worth
    places = feature.astype(np.int64).tolist()
    for place, *one in zip(places, gain.tolist(), cover.tolist(), strict=True):
        gains.setdefault((party, names[place]), SplitTotals()).add(*one)


def _join_all(shards: Shards, guest: str) -> Whole:
    hosts = {name: shards[name] for name in shards[guest].facts["hosts"]}
    return vertical.join_shards(shards[guest], hosts)


def _side_by_side(shards: Shards, frames: Frames, used: Sequence[tuple[str, str]]) -> FrameValues:
    """Return columns of several parties as one table, float32; sparse if one of them is."""
    n_rows = next(iter(frames.values())).n_rows
    read = {party: columns.model_values(shards[party].facts, frames[party]) for party, _ in used}
    parts = [read[party][:, [shards[party].facts["columns"].index(name)]] for party, name in used]
    if not parts:
        return np.empty((n_rows, 0), np.float32, order="F")
    return columns.join_columns(parts)


def _guest_trees(shard: Artefact) -> list[Tree]:
    """Return a guest's trees; each split of another party gets a separate column."""
    arrays, shape = shard.arrays, vertical.TreeShape.of(shard.arrays)
    others = arrays["owner"].astype(np.int64) > vertical.GUEST
    feature = arrays["feature"].astype(np.int32)
    feature[others] = len(shard.facts["columns"]) + np.arange(np.count_nonzero(others))
    by_category = arrays["threshold"] == NO_THRESHOLD
    made = {**arrays, "feature": feature, "bin": np.where(by_category, BY_CATEGORY, 0)}
    trees = []
    ends = [*shape.roots[1:].tolist(), len(feature)]
    for start, end in zip(shape.roots.tolist(), ends, strict=True):
        left = shape.left[start:end]
        made["left"] = np.zeros(len(feature), np.int32)
        made["left"][start:end] = np.where(left == LEAF, LEAF, left - start)
        trees.append(Tree.from_arrays({name: made[name][start:end] for name in DTYPES}))
    return trees


def _condition(shard: Artefact, column: int, condition: conditions.Condition) -> str:
    name = shard.facts["columns"][column]
    return conditions.condition_text(name, condition, shard.facts["categories"].get(name, ()))


def _question(shard: Artefact, split: OwnSplit) -> str:
    column = shard.facts["columns"][split.feature]
    asks = branches.question(split, column, shard.facts["categories"].get(column, ()))
    return branches.with_missing(asks, "yes" if split.missing_left else "no")
