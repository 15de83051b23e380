"""What a party can say of a model from its own shard: facts, importance, trees as text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedboost.core.partition import ROOT, left_child, right_child
from fedboost.flow import GUEST, Artefact
from fedboost.model import networks, vertical, whole
from fedboost.model.export import left_categories, owner_name, short
from fedboost.model.vertical import LEAF, GuestNode, OwnSplit


@dataclass(frozen=True)
class Share:
    """What the trees owe to one column, or to all columns of another party."""

    party: str
    column: str  # empty: another party's, which has not told their names
    splits: int
    gain: float | None  # summed; None at a host, which does not know it


def facts(stored: dict[str, Any]) -> dict[str, Any]:
    """The model's facts in a few words, from those of a shard: what `model list` shows."""
    history, trees = stored.get("history") or [], stored["trees"]
    is_networks = stored.get("kind") == networks.NETWORKS
    rounds = stored["rounds"] if is_networks else len(stored["forest"])
    return {
        "model": stored["job"],
        "name": stored["name"],
        "protocol": stored["protocol"],
        "party": stored["party"],
        "role": stored["role"],
        "guest": stored["guest"],
        "hosts": stored["hosts"],
        "rounds": rounds,
        "trees": trees,
        "objective": stored.get("objective", ""),
        "metrics": history[rounds - 1] if 0 < rounds <= len(history) else {},
        "created": stored.get("created", ""),
        "columns": stored["columns"],
        "whole": whole.is_whole(stored),
        **({"outputs": stored["outputs"]} if is_networks else {}),
    }


def importance(shard: Artefact) -> list[Share]:
    """Gain and splits, greatest first: own columns by name, everybody else's as one sum.

    Of a whole model every column is the party's own. Networks owe nothing to single columns: none.
    """
    if shard.facts.get("kind") == networks.NETWORKS:
        return []
    shard = whole.as_guests(shard) if whole.is_whole(shard.facts) else shard
    columns = shard.facts["columns"]
    if shard.facts["role"] != GUEST:
        counts = np.bincount(shard.arrays["feature"].astype(np.int64), minlength=len(columns))
        shares = [
            Share(shard.facts["party"], name, int(count), None)
            for name, count in zip(columns, counts, strict=True)
            if count
        ]
        return sorted(shares, key=lambda share: -share.splits)
    summed: dict[tuple[str, str], tuple[float, int]] = {}
    for node in vertical.arrays_to_nodes(shard.arrays):
        if node.owner == LEAF:
            continue
        column = "" if node.split is None else columns[node.split.feature]
        key = (owner_name(shard, node.owner), column)
        gain, count = summed.get(key, (0.0, 0))
        summed[key] = (gain + node.gain, count + 1)
    shares = [Share(*key, splits=count, gain=gain) for key, (gain, count) in summed.items()]
    return sorted(shares, key=lambda share: -(share.gain or 0.0))


def tree_lines(shard: Artefact, trees: int) -> list[str]:
    """The first `trees` trees as text: a guest's whole, of a host's shard its own splits.

    Of a whole model everything, whoever asks; of networks, which of them each round has, and how
    large their outputs' weights are.
    """
    if shard.facts.get("kind") == networks.NETWORKS:
        return [
            f"round {number}: network {one.network.number}, weights from "
            f"{one.weights.min():.4g} to {one.weights.max():.4g}"
            for number, one in enumerate(networks.rounds(shard)[:trees])
        ]
    shard = whole.as_guests(shard) if whole.is_whole(shard.facts) else shard
    if shard.facts["role"] == GUEST:
        nodes = vertical.arrays_to_nodes(shard.arrays)
        lines = []
        for number in range(min(trees, shard.facts["trees"])):
            tree = {node.node: node for node in nodes if node.tree == number}
            lines += [f"tree {number}", *_below(shard, tree, ROOT, "  ")]
        return lines
    own = [s for s in vertical.arrays_to_splits(shard.arrays) if s.tree < trees]
    return [f"tree {s.tree}, node {s.node}: {_question(shard, s)}" for s in own]


def _below(shard: Artefact, tree: dict[int, GuestNode], at: int, indent: str) -> Iterator[str]:
    node = tree[at]
    if node.owner == LEAF:
        values = ", ".join(f"{value:.6g}" for value in node.value.tolist())
        yield f"{indent}leaf {values} (cover {node.cover:.4g})"
        return
    own = node.split
    asked = _question(shard, own) if own else f"{owner_name(shard, node.owner)}'s split"
    yield f"{indent}{asked} (gain {node.gain:.4g}, cover {node.cover:.4g})"
    for word, child in (("yes", left_child(at)), ("no", right_child(at))):
        lines = _below(shard, tree, child, indent + "  ")
        first = next(lines)
        yield f"{indent}  {word}: {first.lstrip()}"
        yield from lines


def _question(shard: Artefact, split: OwnSplit) -> str:
    column = shard.facts["columns"][split.feature]
    missing = "yes" if split.missing_left else "no"
    if split.left_bins:
        held = ", ".join(repr(text) for text in left_categories(split, shard))
        return f"{column} in {{{held}}}, missing: {missing}"
    if not np.isfinite(split.threshold):
        return f"{column} is present" + (" or missing" if split.missing_left else "")
    return f"{column} < {short(split.threshold)}, missing: {missing}"
