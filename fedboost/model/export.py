"""A party's own shard as one readable JSON file, and a host's part of a release read back.

    {"format": "fedboost-shard", "version": 1,
     "job": the model's id, "name", "protocol", "party", "role", "guest", "hosts", …
     "columns": the party's columns in the model,
     "nodes": [                                        a guest: every node of every tree
       {"tree": 0, "node": 0, "owner": "bank", "column": "age", "threshold": 41.5,
        "missing": "left", "gain": 9.5, "cover": 120.0},
       {"tree": 0, "node": 1, "owner": "telco", "gain": 2.25, "cover": 70.0},
       {"tree": 0, "node": 2, "leaf": [-0.25], "cover": 50.0}, …]}
     "splits": [                                       a host: its own splits, nothing else
       {"tree": 0, "node": 1, "column": "calls", "threshold": 3.0, "missing": "right"},
       {"tree": 0, "node": 6, "column": "city", "categories": ["B", "F"], "missing": "left"}, …]}

     "networks": [                                     a model of networks: each of its rounds
       {"network": 0, "mean": [0.5, …], "deviation": [1.5, …], "weights": [[0.01], …]}, …],
     "column_mean": [35.5, …], "column_deviation": […]  of dense rows, in the order of "columns"}

     "below": [                                      trees of two parts: a guest's view of hosts'
       {"host": "telco", "tree": 0, "node": 31, "under": 17, "gain": 1.5, "cover": 30.0},
       {"host": "telco", "tree": 0, "node": 63, "leaf": [0.02], "cover": 12.0}, …]

Below leaf `under` of the guest's part a host knows its subtree's root by `node`; a row's value is
the guest's leaf plus the mean over its hosts of theirs. Unscored splits and leaves are not seen.

For trees that every party holds whole ("whole": true) each party's file is like a guest's: nodes
have no owner, and every split has its column.

The children of node i are 2i+1 (left) and 2i+2 (right). Values below `threshold`, a 32-bit float,
go left, missing ones to the side `missing`; a threshold of null sends all present values to the
left. In a column with `categories` the categories of a split go left; the file's own `categories`
list the known ones, and others count as missing. A row's margins are `base_margin` plus
the leaf it reaches in each tree. Round r has `trees_per_round` times forest[r] trees; if
`trees_per_round` is k > 1, the first forest[r] of them add only to margin 0, and so on.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from pydantic import Field

from fedboost.core import categories
from fedboost.core.params import MAX_BIN, MAX_DEPTH, NUM_CLASS_MAX, ROUNDS_MAX
from fedboost.flow import Artefact
from fedboost.ground.errors import DataError
from fedboost.ground.formats import EXPORT_VERSION
from fedboost.ground.settings import Settings
from fedboost.model import vertical
from fedboost.model.unknown_categories import RARE
from fedboost.model.vertical import LEAF, OwnSplit

EXPORT_KIND = "fedboost-shard"
SHARD_BYTES_MAX = 1 << 28  # ten thousand full trees of depth 6 take a third of it
SHARD_COLUMNS_MAX = 1 << 20
TREES_MAX = ROUNDS_MAX * NUM_CLASS_MAX


class HostSplit(Settings):
    """One split in a host's file."""

    tree: int = Field(ge=0, lt=TREES_MAX)
    node: int = Field(ge=0, lt=1 << (MAX_DEPTH + 1))
    column: str
    threshold: float | None = Field(None, allow_inf_nan=False)
    categories: list[str] = Field(default_factory=list, max_length=MAX_BIN)
    missing: Literal["left", "right"]


class HostShard(Settings):
    """A host's file, as another party reads it from a release."""

    format: Literal["fedboost-shard"]
    version: Literal[1]
    job: str
    name: str = ""
    protocol: str
    party: str
    role: Literal["host"]
    guest: str
    hosts: list[str]
    id: list[str] = Field(default_factory=list)
    ids: dict[str, list[str]] = Field(default_factory=dict)
    created: str = ""
    trees: int = Field(ge=0)
    columns: list[str] = Field(max_length=SHARD_COLUMNS_MAX)
    categories: dict[str, list[str]] = Field(default_factory=dict)
    splits: list[HostSplit]


def facts_of(shard: Artefact) -> dict[str, Any]:
    """Return the facts of a shard, without the format of its files and categories without a bin."""
    return {name: value for name, value in shard.facts.items() if name not in ("format", RARE)}


def json_text(facts: Mapping[str, Any], entries: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """Return the JSON text of facts and lists, a line for each entry; see the module."""
    head = {"format": EXPORT_KIND, "version": EXPORT_VERSION, **facts}
    lines = [
        f" {json.dumps(name)}: {json.dumps(_json_value(value))}" for name, value in head.items()
    ]
    for name, rows in entries.items():
        listed = ",\n".join("  " + json.dumps(row, allow_nan=False) for row in rows)
        lines.append(f' "{name}": [\n{listed}\n ]')
    return "{\n" + ",\n".join(lines) + "\n}\n"


def host_shard(read: HostShard, **where: str) -> Artefact:
    """Return the shard that a host's file describes; a DataError if its splits are impossible.

    `where` goes into the error, which holds no name and no category.
    """
    place = {name: number for number, name in enumerate(read.columns)}
    unknown = sorted({split.column for split in read.splits} - set(place))
    if unknown or len(place) < len(read.columns):
        raise DataError("the shard splits on columns that it does not list once each", **where)
    most = float(np.finfo(np.float32).max)
    if any(abs(split.threshold or 0.0) > most for split in read.splits):
        raise DataError("the shard has thresholds beyond 32-bit floats", **where)
    if len({(split.tree, split.node) for split in read.splits}) < len(read.splits):
        raise DataError("the shard splits one node twice", **where)
    _check_categories(read, **where)
    splits = [
        OwnSplit(
            tree=s.tree,
            node=s.node,
            feature=place[s.column],
            threshold=_threshold(s),
            missing_left=s.missing == "left",
            left_bins=_left_bins(s, read.categories),
        )
        for s in read.splits
    ]
    facts = read.model_dump(mode="json", exclude={"format", "version", "splits"})
    return Artefact(facts, vertical.splits_to_arrays(splits))


def without_unused_columns(shard: HostShard) -> HostShard:
    """Return the splits, without unused columns and their categories."""
    used = {split.column for split in shard.splits}
    columns = [name for name in shard.columns if name in used]
    known = {name: texts for name, texts in shard.categories.items() if name in used}
    return shard.model_copy(update={"columns": columns, "categories": known})


def shortest_float(value: np.float32) -> float:
    """Return the number with the shortest text that reads back as this 32-bit float."""
    brief = float(str(value))
    return brief if np.float32(brief) == value else float(value)


def _check_categories(read: HostShard, **where: str) -> None:
    known = {name: set(texts) for name, texts in read.categories.items()}
    if set(known) - set(read.columns) or any(
        len(texts) > MAX_BIN or len(texts) != len(known[name])
        for name, texts in read.categories.items()
    ):
        raise DataError("the shard's categories are not of its columns, or not once each", **where)
    for split in read.splits:
        fits = split.column in known and split.threshold is None and split.categories
        if (split.column in known or split.categories) and not fits:
            raise DataError("a split of the shard does not fit its column's categories", **where)
        members = set(split.categories)
        if members - known.get(split.column, set()) or len(members) < len(split.categories):
            raise DataError("the shard splits on categories that it does not list once", **where)


def _left_bins(split: HostSplit, known: dict[str, list[str]]) -> bytes:
    if split.column not in known:
        return b""
    members = set(split.categories)
    indices = [i for i, text in enumerate(known[split.column]) if text in members]
    return categories.as_set(np.array(indices, np.int64))


def _threshold(split: HostSplit) -> np.float32:
    if split.categories:
        return categories.NO_THRESHOLD
    return np.float32(np.inf if split.threshold is None else split.threshold)


def split_entries(shard: Artefact) -> list[dict[str, Any]]:
    """Return a host's own splits."""
    splits = vertical.arrays_to_splits(shard.arrays)
    return [{"tree": s.tree, "node": s.node, **_split_fields(s, shard)} for s in splits]


def node_entries(shard: Artefact, *, owners: bool = True) -> list[dict[str, Any]]:
    """Return every node that a guest knows, with its owner if `owners`."""
    rows = []
    for node in vertical.arrays_to_nodes(shard.arrays):
        row: dict[str, Any] = {"tree": node.tree, "node": node.node}
        if node.owner == LEAF:
            rows.append({**row, "leaf": node.value.tolist(), "cover": node.cover})
            continue
        if owners:
            row["owner"] = owner_name(shard, node.owner)
        if node.split is not None:
            row |= _split_fields(node.split, shard)
        rows.append({**row, "gain": node.gain, "cover": node.cover})
    return rows


def owner_name(guest: Artefact, owner: int) -> str:
    """Return the party with an owner's number in a guest's shard."""
    parties: list[str] = [guest.facts["party"], *guest.facts["hosts"]]
    return parties[owner]


def left_categories(split: OwnSplit, shard: Artefact) -> list[str]:
    """Return the categories that a split sends left; none for a threshold."""
    if not split.left_bins:
        return []
    known = shard.facts["categories"][shard.facts["columns"][split.feature]]
    return [known[place] for place in categories.set_members(split.left_bins)]


def _split_fields(split: OwnSplit, shard: Artefact) -> dict[str, Any]:
    missing = "left" if split.missing_left else "right"
    column = shard.facts["columns"][split.feature]
    if split.left_bins:
        held = left_categories(split, shard)
        return {"column": column, "categories": held, "missing": missing}
    finite = bool(np.isfinite(split.threshold))
    threshold = shortest_float(split.threshold) if finite else None
    return {"column": column, "threshold": threshold, "missing": missing}


def _json_value(value: Any) -> Any:
    """Return a value with null for numbers that JSON lacks, as of unmeasured metrics."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {name: _json_value(member) for name, member in value.items()}
    if isinstance(value, list):
        return [_json_value(member) for member in value]
    return value
