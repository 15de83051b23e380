"""What a party can say of a model from its own shard: facts, importance, trees as text."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedboost.core.categories import BY_CATEGORY, NO_THRESHOLD
from fedboost.core.tree import DTYPES, Tree
from fedboost.errors import ConfigError
from fedboost.flow import GUEST, Artefact
from fedboost.model import branches, conditions, hybrid, meta_rules, networks, vertical, whole
from fedboost.model.export import owner_name
from fedboost.model.vertical import LEAF, OwnSplit


@dataclass(frozen=True)
class ImportanceShare:
    """What the trees owe to one column, or to all columns of another party."""

    party: str
    column: str  # empty: another party's, which has not told their names
    splits: int
    gain: float | None  # summed; None at a host, which does not know it


@dataclass(frozen=True)
class SharedRule:
    """A split rule and the trees, numbered from 0, of which it is a leaf."""

    rule: list[str]  # a condition each, in words
    columns: list[str]
    trees: list[int]
    share: float  # of all trees


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


def importance(shard: Artefact) -> list[ImportanceShare]:
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
            ImportanceShare(shard.facts["party"], name, int(count), None)
            for name, count in zip(columns, counts, strict=True)
            if count
        ]
        return sorted(shares, key=lambda share: -share.splits)
    summed: dict[tuple[str, str], tuple[float, int]] = {}
    for node in [*vertical.arrays_to_nodes(shard.arrays), *hybrid.seen_below(shard)]:
        if node.owner == LEAF:
            continue
        column = "" if node.split is None else columns[node.split.feature]
        key = (owner_name(shard, node.owner), column)
        gain, count = summed.get(key, (0.0, 0))
        summed[key] = (gain + node.gain, count + 1)
    shares = [
        ImportanceShare(*key, splits=count, gain=gain) for key, (gain, count) in summed.items()
    ]
    return sorted(shares, key=lambda share: -(share.gain or 0.0))


def tree_lines(shard: Artefact, trees: int, first: int = 0) -> list[str]:
    """So many trees from `first` on as text: a guest's whole, of a host's shard its own splits.

    Of a whole model everything, whoever asks; of networks, which of them each round has, and how
    large their outputs' weights are.
    """
    if shard.facts.get("kind") == networks.NETWORKS:
        return [
            f"round {number}: network {one.network.number}, weights from "
            f"{one.weights.min():.4g} to {one.weights.max():.4g}"
            for number, one in enumerate(networks.rounds(shard)[first : first + trees], first)
        ]
    if shard.facts["role"] == GUEST or whole.is_whole(shard.facts):
        lines = []
        for number in range(first, min(first + trees, shard.facts["trees"])):
            lines += [f"tree {number}", *branches.lines(branches.of_shard(shard, number).root)]
            lines += _of_hosts(shard, number)
        return lines
    own = [s for s in vertical.arrays_to_splits(shard.arrays) if first <= s.tree < first + trees]
    return [f"tree {s.tree}, node {s.node}: {_question(shard, s)}" for s in own]


def shared_rules(
    shard: Artefact, names: Collection[str] | None = None
) -> tuple[list[SharedRule], int]:
    """Split rules that are whole here, those of most trees first, and how many leaves have others.

    With `names` only the rules that ask for one of these columns. Of a whole model every rule is
    known, of a guest's shard those below its own splits alone. A ConfigError where the model is
    made of networks or has no column of such a name.
    """
    if shard.facts.get("kind") == networks.NETWORKS:
        raise ConfigError("the model is made of networks, which have no split rules")
    if hybrid.is_hybrid(shard.facts):
        raise ConfigError(
            "every rule of a hybridtree model ends at a host, so that none is whole here",
            todo="count the rules of a model trained on pooled data",
        )
    shard = whole.as_guests(shard) if whole.is_whole(shard.facts) else shard
    assert shard.facts["role"] == GUEST
    columns: list[str] = shard.facts["columns"]
    unknown = sorted(set(names or ()) - set(columns))
    if unknown:
        raise ConfigError(
            f"{shard.facts['party']} has no such column in the model",
            todo=f"fedboost model show {shard.facts['job']} --json lists them",
            column=unknown[0],
        )
    trees = _trees(shard)
    found = meta_rules.found(trees)
    known = [one for one in found if all(column < len(columns) for column, _ in one.rule)]
    chosen = range(len(columns)) if names is None else {columns.index(name) for name in names}
    listed = [
        SharedRule(
            [_condition(shard, *asked) for asked in one.rule],
            [columns[column] for column, _ in one.rule],
            list(one.trees),
            len(one.trees) / len(trees),
        )
        for one in known
        if one.asks(chosen)
    ]
    return listed, len(found) - len(known)


def _trees(shard: Artefact) -> list[Tree]:
    """A guest's trees, in which each split of another party asks for a column of its own."""
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
    return conditions.in_words(name, condition, shard.facts["categories"].get(name, ()))


def _of_hosts(shard: Artefact, number: int) -> Iterator[str]:
    """What each host has grown below a tree of two parts."""
    if not hybrid.is_hybrid(shard.facts):
        return
    _, below = hybrid.from_arrays(shard.arrays)
    for host, name in enumerate(shard.facts["hosts"], start=1):
        own = [one for one in below if (one.host, one.node.tree) == (host, number)]
        under = sum(one.under != hybrid.NO_NODE for one in own)
        if shard.facts["split"] == "unscored":
            yield f"  {name}: below {under} bottom nodes, unseen"
            continue
        splits = [one.node.gain for one in own if one.node.owner != LEAF]
        yield (
            f"  {name}: {len(splits)} splits below {under} bottom nodes "
            f"(gain {sum(splits):.4g} in all)"
        )


def _question(shard: Artefact, split: OwnSplit) -> str:
    column = shard.facts["columns"][split.feature]
    asks = branches.question(split, column, shard.facts["categories"].get(column, ()))
    return branches.with_missing(asks, "yes" if split.missing_left else "no")
