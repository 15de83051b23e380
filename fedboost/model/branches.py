"""Trees of a model as a party knows them: the known questions of splits, and the leaves.

A guest knows every node and the questions of its own splits; a host knows only its own splits. With
a whole model, or all owners' parts together, everything is known.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedboost.core.categories import set_members
from fedboost.core.partition import ROOT, left_child, right_child
from fedboost.flow import GUEST, Artefact
from fedboost.ground.errors import ConfigError
from fedboost.model import rounds, vertical
from fedboost.model.export import shortest_float
from fedboost.model.vertical import LEAF, OwnSplit, Whole

NODES = (
    *("tree", "node", "owner", "feature", "threshold", "missing_left", "left_bins"),
    *("value", "gain", "cover"),
)  # arrays with an entry for each node
PRESENT, OR_MISSING = " is present", " or missing"


@dataclass(frozen=True)
class Branch:
    """A node and all below it. Unknown facts are empty, or None."""

    party: str = ""  # owner of the split; empty also for a whole model's splits
    asks: str = ""  # question of a split, without its party; empty if its owner has not told it
    missing_left: bool | None = None  # whether rows without a value answer yes
    gain: float | None = None
    cover: float | None = None  # hessian sum of the training rows
    value: tuple[float, ...] = ()  # of a leaf, one for each output
    note: str = ""  # further facts about a leaf
    below: tuple[Branch, ...] = ()  # for rows that answer yes, and for the others

    @cached_property
    def depth(self) -> int:
        """Number of layers below the node."""
        return 1 + max(branch.depth for branch in self.below) if self.below else 0

    @cached_property
    def leaves(self) -> tuple[Branch, ...]:
        """Leaves below the node, or the node itself."""
        return tuple(leaf for branch in self.below for leaf in branch.leaves) or (self,)


@dataclass(frozen=True)
class Picture:
    """A tree with its place in the model."""

    tree: int
    title: str  # the tree's number, round and class
    root: Branch
    parties: tuple[str, ...]  # the guest first; none of a model that all hold whole
    seen_by: str  # the party that knows it; empty: everything is known


def picture_of_shard(shard: Artefact, tree: int) -> Picture:
    """Return a tree of the model, counted from 0, as the owner of a shard knows it."""
    facts = shard.facts
    parties = (facts["guest"], *facts["hosts"])
    title, seen_by = title_of(facts, tree), facts["party"]
    if facts["role"] != GUEST:
        return Picture(tree, title, _of_host(shard, tree), parties, seen_by)
    named = [(facts["party"], name) for name in facts["columns"]]
    texts = [facts["categories"].get(name, ()) for name in facts["columns"]]
    root = _of_nodes(shard.arrays, tree, named, texts, (facts["party"], *facts["hosts"]))
    return Picture(tree, title, root, parties, seen_by)


def picture_of_whole(model: Whole, tree: int) -> Picture:
    """Return a tree, counted from 0, of a model that is known as a whole; see `check_tree`."""
    facts = model.facts
    check_tree(facts, tree)
    root = _of_nodes(model.arrays, tree, model.columns, model.texts, None)
    is_shared = any(party for party, _ in model.columns)
    parties = (facts["guest"], *facts["hosts"]) if is_shared else ()
    return Picture(tree, title_of(facts, tree), root, parties, "")


def check_tree(facts: Mapping[str, Any], tree: int) -> None:
    """Raise a ConfigError unless the model has a tree of that number."""
    if not 0 <= tree < facts["trees"]:
        raise ConfigError(
            f"the model has {facts['trees']} trees, counted from 0, and no tree {tree}",
            todo=f"name one up to {facts['trees'] - 1}" if facts["trees"] else "",
            model=facts["job"],
        )


def title_of(facts: Mapping[str, Any], tree: int) -> str:
    """Return ``tree 3 of round 2, for class 1``; trees and classes count from 0, rounds from 1."""
    if "forest" not in facts:
        return f"tree {tree}"  # a host's file, which has no rounds
    ends = rounds.trees_after_rounds(facts)
    title = f"tree {tree} of round {int(np.searchsorted(ends, tree, side='right')) + 1}"
    output = int(rounds.classes(facts)[tree])
    return title if output == rounds.ALL else f"{title}, for class {output}"


def question(split: OwnSplit, column: str, texts: Sequence[str]) -> str:
    """Return ``age < 41.5``, ``city in {'B', 'F'}`` or ``age is present``; yes goes left."""
    if split.left_bins:
        held = ", ".join(repr(texts[place]) for place in set_members(split.left_bins))
        return f"{column} in {{{held}}}"
    if not np.isfinite(split.threshold):
        return column + PRESENT + (OR_MISSING if split.missing_left else "")
    return f"{column} < {shortest_float(split.threshold)}"


def with_missing(asks: str, answer: str) -> str:
    """Return the question with the answer of rows without a value, unless it includes that."""
    says_it = asks.endswith((PRESENT, PRESENT + OR_MISSING))
    return asks if says_it else f"{asks}, missing: {answer}"


def _of_nodes(
    arrays: Mapping[str, NDArray[np.generic]],
    tree: int,
    columns: Sequence[tuple[str, str]],
    texts: Sequence[Sequence[str]],
    owners: Sequence[str] | None,
) -> Branch:
    """Return one tree out of flat arrays that hold every node.

    `owners` are parties by number, if only the first one's splits are known; None: all are known.
    """
    (indices,) = np.nonzero(arrays["tree"] == tree)
    of_tree = {name: arrays[name][indices] for name in NODES}
    splits = vertical.arrays_to_splits(of_tree)
    place = {split.node: i for i, split in enumerate(splits)}

    def branch(node: int) -> Branch:
        """Return a node and all below it."""
        i = place[node]
        split, owner = splits[i], int(of_tree["owner"][i])
        gain, cover = float(of_tree["gain"][i]), float(of_tree["cover"][i])
        if owner == LEAF:
            values = of_tree["value"][i].astype(np.float64).tolist()
            return Branch(cover=cover, value=tuple(values))
        below = (branch(left_child(node)), branch(right_child(node)))
        if owners is not None and owner != vertical.GUEST:
            return Branch(owners[owner], gain=gain, cover=cover, below=below)
        party, column = columns[split.feature]
        asks = question(split, column, texts[split.feature])
        return Branch(party, asks, split.missing_left, gain, cover, below=below)

    return branch(ROOT)


def _of_host(shard: Artefact, tree: int) -> Branch:
    """Return a host's own splits as a branch, with unknown nodes between them."""
    facts = shard.facts
    splits = {s.node: s for s in vertical.arrays_to_splits(shard.arrays) if s.tree == tree}
    above = {(node + 1 >> up) - 1 for node in splits for up in range((node + 1).bit_length())}

    def branch(node: int) -> Branch:
        """Return the known part of a node and all below it."""
        if node not in above:
            return Branch(note="not known here")
        below = (branch(left_child(node)), branch(right_child(node)))
        split = splits.get(node)
        if split is None:
            return Branch(below=below)
        column = facts["columns"][split.feature]
        asks = question(split, column, facts["categories"].get(column, ()))
        return Branch(facts["party"], asks, split.missing_left, below=below)

    return branch(ROOT)


def with_notes(branch: Branch, node: int, notes: Mapping[int, str]) -> Branch:
    """Return the branch below a node, with notes at the leaves, by their numbers."""
    children = zip(branch.below, (left_child(node), right_child(node)), strict=False)
    below = tuple(with_notes(child, number, notes) for child, number in children)
    return replace(branch, below=below, note="" if below else notes.get(node, ""))


def text_lines(branch: Branch, indent: str = "  ") -> Iterator[str]:
    """Yield the tree as text, a line for each node, indented below its split."""
    if not branch.below:
        values = ", ".join(f"{value:.6g}" for value in branch.value)
        yield f"{indent}leaf {values} (cover {branch.cover:.4g})"
        return
    missing = "yes" if branch.missing_left else "no"
    text = with_missing(branch.asks, missing) if branch.asks else f"{branch.party}'s split"
    yield f"{indent}{text} (gain {branch.gain:.4g}, cover {branch.cover:.4g})"
    for word, child in zip(("yes", "no"), branch.below, strict=True):
        of_child = text_lines(child, indent + "  ")
        yield f"{indent}  {word}: {next(of_child).lstrip()}"
        yield from of_child
