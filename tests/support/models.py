"""Models made by hand, and the naive way through their trees."""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedboost.core.categories import NO_THRESHOLD, as_set, set_members
from fedboost.core.partition import ROOT, left_child, right_child
from fedboost.flow import Artefact
from fedboost.ground.settings import parse_settings
from fedboost.model import export, kinds, vertical
from fedboost.model.kinds.kind import ImportanceShare, SharedRule
from fedboost.model.vertical import GUEST, LEAF, GuestNode, OwnSplit, Whole

MODEL = "credit-0a1b2c3d"
PARTIES = ("bank", "telco", "shop")
COLUMNS = {
    "bank": ["age", "income", "branch"],
    "telco": ["calls", "age", "odd [a<b]", "city"],
    "shop": ["spent"],
}
CATEGORIES = {"branch": ["north", "south", "west"], "city": [f"city {i}" for i in range(12)]}
BASE = {"multi:softprob": 0.3, "binary:logistic": -1.25}
GRID = np.arange(-3, 4).astype(np.float32)  # values fall on thresholds now and then


def described(facts: dict[str, Any]) -> dict[str, Any]:
    return kinds.kind_of(facts).summary(facts)


def own_shard(shard: Artefact) -> str:
    return kinds.kind_of(shard.facts).exported(shard)


def importance(shard: Artefact) -> list[ImportanceShare]:
    return kinds.kind_of(shard.facts).importance(shard)


def tree_lines(shard: Artefact, trees: int) -> list[str]:
    return kinds.kind_of(shard.facts).tree_lines(shard, trees)


def shared_rules(
    shard: Artefact, names: Sequence[str] | None = None
) -> tuple[list[SharedRule], int]:
    return kinds.kind_of(shard.facts).shared_rules(shard, names)


def random_model(
    seed: int,
    objective: str = "binary:logistic",
    outputs: int = 1,
    trees: int = 4,
    per_round: int = 1,
) -> dict[str, Artefact]:
    """Shards by party of a model of random trees, some of one leaf, some splits on presence.

    `outputs` values to a leaf; `per_round` trees a round, each for a class of its own.
    """
    rng = np.random.default_rng(seed)
    nodes: list[GuestNode] = []
    splits: dict[str, list[OwnSplit]] = {party: [] for party in PARTIES}
    for tree in range(trees):
        opened = [ROOT]
        while opened:
            node = opened.pop(0)
            if node > 30 or (rng.random() < 0.25 and tree):
                value = rng.normal(0, 1, outputs)
                nodes.append(GuestNode(tree, node, LEAF, value, 0.0, float(rng.random())))
                continue
            owner = int(rng.integers(0, len(PARTIES)))
            feature = int(rng.integers(0, len(COLUMNS[PARTIES[owner]])))
            threshold = np.float32(np.inf) if rng.random() < 0.1 else rng.choice(GRID)
            missing_left = bool(rng.random() < 0.5) and bool(np.isfinite(threshold))
            held = b""
            known = CATEGORIES.get(COLUMNS[PARTIES[owner]][feature])
            if known is not None:
                some = rng.random(len(known)) < (0.6 if node else 1.0)
                some[0] |= not some.any()
                held = as_set(np.flatnonzero(some))
                threshold = NO_THRESHOLD
            own = OwnSplit(tree, node, feature, np.float32(threshold), missing_left, held)
            splits[PARTIES[owner]].append(own)
            zero = np.zeros(outputs)
            kept = own if owner == GUEST else None
            gain = float(rng.random() + 0.1)
            nodes.append(GuestNode(tree, node, owner, zero, gain, float(rng.random()), kept))
            opened += [left_child(node), right_child(node)]
    base = [BASE.get(objective, 0.75) * (k + 1) for k in range(outputs * per_round)]
    more: dict[str, Any] = {
        "objective": objective,
        "base_margin": base,
        "trees_per_round": per_round,
        "forest": [1] * (trees // per_round),
        "params": {"objective": objective, "tweedie_variance_power": 1.5, "huber_slope": 2.0},
        "history": [{"train": {"auc": 0.5 + t / 10}} for t in range(trees // per_round)],
    }
    shards = {
        "bank": Artefact(_facts("bank", trees) | more, vertical.nodes_to_arrays(nodes, outputs))
    }
    for host in PARTIES[1:]:
        rounds = {name: more[name] for name in ("trees_per_round", "forest")}
        facts = _facts(host, trees) | rounds
        shards[host] = Artefact(facts, vertical.splits_to_arrays(splits[host]))
    return shards


def _facts(party: str, trees: int) -> dict[str, Any]:
    return {
        "format": 4,
        "protocol": "secureboost",
        "job": MODEL,
        "name": "credit",
        "party": party,
        "role": "guest" if party == "bank" else "host",
        "guest": "bank",
        "hosts": list(PARTIES[1:]),
        "id": ["id"],
        "ids": {name: ["id"] for name in PARTIES},
        "created": "2026-01-31T12:00:00+00:00",
        "columns": COLUMNS[party],
        "categories": {name: CATEGORIES[name] for name in COLUMNS[party] if name in CATEGORIES},
        "trees": trees,
    }


def read_host_shard(text: bytes, **where: str) -> Artefact:
    """A host's shard from its JSON, as it is read from a release."""
    return export.host_shard(parse_settings(export.HostShard, json.loads(text), **where), **where)


def whole(shards: dict[str, Artefact]) -> Whole:
    """The model that the shards make up."""
    return vertical.join_shards(shards["bank"], {h: shards[h] for h in PARTIES[1:]})


def random_rows(seed: int, n: int, known: Sequence[int]) -> NDArray[np.float32]:
    """float32 (n, columns) of thresholds' values or so many categories; a fifth missing."""
    rng = np.random.default_rng(seed)
    columns = [rng.choice(GRID, n) if not k else rng.integers(0, k, n) for k in known]
    values = np.stack(columns, axis=1).astype(np.float32)
    values[rng.random(values.shape) < 0.2] = np.nan
    return values


def leaves(model: Whole, values: NDArray[np.float32]) -> NDArray[np.int64]:
    """Where each row ends in each tree, as place within the tree's nodes; int64 (n, trees).

    The naive way: one row, one tree, one node after the other, by heap ids.
    """
    arrays = model.arrays
    keys = list(zip(arrays["tree"].tolist(), arrays["node"].tolist(), strict=True))
    place = {key: i for i, key in enumerate(keys)}
    n_trees = len({tree for tree, _ in keys})
    found = np.empty((len(values), n_trees), np.int64)
    for i, row in enumerate(values):
        for tree in range(n_trees):
            node = ROOT
            while arrays["owner"][place[tree, node]] != LEAF:
                at = place[tree, node]
                x = row[int(arrays["feature"][at])]
                left = arrays["missing_left"][at]
                if not np.isnan(x):
                    held = set_members(arrays["left_bins"][at].tobytes())
                    left = int(x) in held if held else x < arrays["threshold"][at]
                node = left_child(node) if left else right_child(node)
            found[i, tree] = place[tree, node] - place[tree, ROOT]
    return found


def margins(model: Whole, values: NDArray[np.float32]) -> NDArray[np.float64]:
    """Every row's margins, float64 (n, outputs), leaves added in the order of the trees."""
    reached = leaves(model, values)
    total = np.tile(np.array(model.facts["base_margin"], np.float64), (len(values), 1))
    starts = np.flatnonzero(model.arrays["node"] == ROOT)
    per_round = model.facts["trees_per_round"]
    for tree, start in enumerate(starts):
        value = model.arrays["value"][start + reached[:, tree]]
        if per_round == 1:
            total += value
        else:
            total[:, tree % per_round] += value[:, 0]
    return total
