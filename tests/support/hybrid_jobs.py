"""Jobs of hybridtree on random tables, and the trees of one table that they must come to."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_array

from fedboost.core import hybrid, local, objectives
from fedboost.core.early_stopping import EarlyStopping
from fedboost.core.gradient_bits import BITS_ENCRYPTED
from fedboost.core.hybrid import HybridParams
from fedboost.core.metrics import METRICS
from fedboost.core.objectives import Summary
from fedboost.core.partition import left_child, right_child
from fedboost.core.rules import Rules
from fedboost.core.tree import Split, Tree
from fedboost.data.holdout import validation_rows_by_id
from fedboost.flow import Artefact
from fedboost.ground.ids import EncodedIds
from fedboost.model import vertical, words
from fedboost.model.hybrid import NO_BOTTOM
from fedboost.runtime.config.policy import Policy
from tests.support import pooled_hybrid
from tests.support.federated import GUEST, HOSTS, PLAIN, Room, frame_of, now, room_for
from tests.support.pooled_hybrid import HostColumns, HybridTree, Subtrees
from tests.support.secureboost_jobs import SEED, coded, labels, named

RATE = 0.5  # a power of two, so that values with it and without are equally exact
GAP_MAX = 1e-9  # of numbers where there is another rate


@dataclass(frozen=True)
class Job:
    """A guest's table, hosts that have other columns of some of its rows, and the settings."""

    columns: dict[str, NDArray[np.float32]]  # (its rows, columns) by party, guest first
    rows: dict[str, NDArray[np.int32]]  # by host: which of the guest's it has, ascending
    y: NDArray[np.float64]
    weight: NDArray[np.float64] | None
    held: float | None
    params: dict[str, Any]
    ids: Sequence[bytes]
    categories: int = 0  # of each party's last column, whose values are codes; 0: numbers
    sparse: tuple[str, ...] = ()  # the parties whose tables are
    least: int = 1  # rows of a group of every host's

    @property
    def out(self) -> NDArray[np.bool_]:
        """The rows held out."""
        return validation_rows_by_id(EncodedIds.of(self.ids), self.held or 0.0, SEED)

    @property
    def own(self) -> HybridParams:
        """The settings that a table in one place knows."""
        known = {k: v for k, v in self.params.items() if k in HybridParams.model_fields}
        return HybridParams(**{"precision_bits": BITS_ENCRYPTED, **known})

    def part(self, chosen: NDArray[np.bool_]) -> tuple[local.TrainingTable, list[HostColumns]]:
        """The chosen rows, and what each host has of them."""
        place = np.cumsum(chosen) - 1
        weight = None if self.weight is None else self.weight[chosen]
        values = np.asfortranarray(self.columns[GUEST][chosen])
        table = local.TrainingTable(values, self.y[chosen], weight, self.categorical(GUEST))
        parts = []
        for host, rows in self.rows.items():
            mine = chosen[rows]
            own = np.asfortranarray(self.columns[host][mine])
            at, kinds = place[rows[mine]].astype(np.int32), self.categorical(host)
            parts.append(HostColumns(own, at, kinds, self.least))
        return table, parts

    def categorical(self, party: str) -> tuple[int, ...]:
        """A party's columns of categories."""
        width = self.columns[party].shape[1]
        return (width - 1,) if self.categories and width else ()

    def room(self, **more: Any) -> Room:
        """The job before it begins, as the alignment leaves it."""
        frames = {}
        for party, values in self.columns.items():
            guest = party == GUEST
            ids = self.ids if guest else [self.ids[row] for row in self.rows[party]]
            frame = frame_of(ids, values, self.y if guest else None)
            texts = tuple(f"{party} {code}" for code in range(self.categories))
            frames[party] = replace(
                frame,
                values=csc_array(frame.values) if party in self.sparse else frame.values,
                weight=self.weight.copy() if guest and self.weight is not None else None,
                categories={frame.columns[c]: texts for c in self.categorical(party)},
            )
        held = {f"with_{host}": rows.astype(np.int64) for host, rows in self.rows.items()}
        pairs = Artefact(arrays={"rows": np.arange(len(self.ids)), **held})
        artefacts = {GUEST: {"align-pairs": pairs}}
        more = {"limits": Policy(group_rows_min=self.least, gradient_bits_max=64), **more}
        return room_for(
            "hybridtree", frames, self.params, held=self.held, artefacts=artefacts, **more
        )


def made(params: Mapping[str, Any], widths: Sequence[int] = (2, 3, 2), **how: Any) -> Job:
    """A job on random columns, with ties; `how`: rows, seed, held, weighted, the shares missing
    and zero, categories, sparse, the least rows of a group, and which rows each host has: a share,
    or a list for each.
    """
    draw, rows = np.random.default_rng(how.get("seed", 1)), how.get("rows", 120)
    shares = how.get("shares", 0.6)
    columns, held, pull = {}, {}, draw.normal(size=rows)
    for place, (party, width) in enumerate(zip((GUEST, *HOSTS), widths, strict=False)):
        own = np.arange(rows)
        if party != GUEST:
            drawn = isinstance(shares, float)
            own = (
                own[draw.random(rows) < shares] if drawn else np.array(shares[place - 1], np.int64)
            )
            held[party] = own.astype(np.int32)
        values = np.round(draw.normal(size=(len(own), width)), 1).astype(np.float32)
        values[draw.random(values.shape) < how.get("zero", 0.0)] = 0.0
        values[draw.random(values.shape) < how.get("missing", 0.1)] = np.nan
        pull[own] += np.nansum(values, axis=1)
        if how.get("categories") and width:
            values[:, -1] = coded(values[:, -1], how["categories"], draw)
        columns[party] = values
    y = labels(params.get("objective", "binary:logistic"), pull, draw)
    weight = np.round(draw.uniform(0.2, 3.0, rows), 2) if how.get("weighted") else None
    said = {**PLAIN, "n_estimators": 3, "max_bin": 8, "learning_rate": RATE}
    said |= {"guest_depth": 2, "host_depth": 2, "min_child_weight": 0.3, **params}
    about = (how.get("categories", 0), how.get("sparse", ()), how.get("least", 1))
    return Job(columns, held, y, weight, how.get("held", 0.25), said, named(rows), *about)


# The same job in one place


@dataclass(frozen=True)
class Twin:
    """The pooled trees up to the best round, and how the rounds went."""

    trees: list[HybridTree]  # class after class, round after round
    margin: NDArray[np.float64]  # of all rows, after the last round that was grown
    history: list[dict[str, dict[str, float]]]


def twin_of(job: Job) -> Twin:
    """What a table in one place comes to: trees, margins of all rows, metrics of all rounds."""
    params, out = job.own, job.out
    table, parts = job.part(~out)
    trained = pooled_hybrid.train(table, parts, params)
    summary = Summary.of(params, table.y, table.weights)
    fixed = hybrid.encoding(params, objectives.start_objective(params, summary), summary)
    rules = [Rules(params, own, fixed) for own in trained.binnings]
    whole, held = job.part(np.ones(len(out), np.bool_))
    every = [whole.values, *(part.values for part in held)]
    bins = [own.transform(values) for own, values in zip(trained.binnings, every, strict=True)]
    margin = np.tile(trained.base_margin, (len(out), 1))
    seen = {"train": np.flatnonzero(~out).astype(np.int32)}
    if out.any():
        seen["validation"] = np.flatnonzero(out).astype(np.int32)
    stopping = EarlyStopping(
        params.early_stopping_rounds, METRICS[params.metrics[-1]].bigger_is_better
    )
    history: list[dict[str, dict[str, float]]] = []
    for trees in trained.trees:
        added = [
            params.learning_rate * pooled_hybrid.predict(one, rules, bins, held) for one in trees
        ]
        local.add_to_margin(margin, added)
        history.append(words.measure_parts(params, margin, whole.y, whole.weights, seen))
        if params.early_stopping_rounds is not None:
            stopping = stopping.after(history[-1]["validation"][params.metrics[-1]])
            if stopping.stop:
                break
    best = len(history) - 1 if stopping.best is None else stopping.best_round
    kept = [tree for trees in trained.trees[: best + 1] for tree in trees]
    return Twin(kept, margin, history)


# Model and twin side by side


def of_tree(arrays: Mapping[str, Any], tree: int, prefix: str = "") -> dict[int, dict[str, Any]]:
    """The nodes of one tree by their numbers, each with its values by name."""
    names = [name for name in arrays if name.startswith("below_") == bool(prefix)]
    (indices,) = np.nonzero(arrays[f"{prefix}tree"] == tree)
    return {
        int(arrays[f"{prefix}node"][i]): {n.removeprefix(prefix): arrays[n][i] for n in names}
        for i in indices
    }


def by_host(nodes: Mapping[str, Any], tree: int, host: int) -> dict[int, dict[str, Any]]:
    """What the guest's shard says of a host's nodes below one tree, by that host's numbers."""
    (own,) = np.nonzero(nodes["below_host"] == host)
    below = {name: array[own] for name, array in nodes.items() if name.startswith("below_")}
    return of_tree(below, tree, "below_")


def heap_ids(nodes: Mapping[int, Mapping[str, Any]]) -> dict[int, int]:
    """By a host's number of a node: its heap id, had the guest grown it."""
    found = {}
    for node, about in sorted(nodes.items()):
        if about["under"] != NO_BOTTOM:
            found[node] = int(about["under"])
        else:
            above = found[(node - 1) // 2]
            found[node] = left_child(above) if node % 2 else right_child(above)
    return found


@dataclass(frozen=True)
class Close:
    """How equal numbers must be: to the bit where learning_rate is a power of two."""

    rate: float

    def __call__(self, found: Any, expected: Any) -> None:
        """Refuses numbers that differ; arrays or scalars."""
        if math.frexp(self.rate)[0] == 0.5:
            assert np.asarray(found).tobytes() == np.asarray(expected).tobytes()
        else:
            np.testing.assert_allclose(found, expected, rtol=GAP_MAX, atol=GAP_MAX)


def assert_same_split(split: Mapping[str, Any], own: Any) -> None:
    """A split of a shard divides as one of the twin's."""
    assert split["feature"] == own.column
    assert split["threshold"].tobytes() == np.float32(own.threshold).tobytes()
    assert bool(split["missing_left"]) == own.missing_left
    assert split["left_bins"].tobytes().rstrip(b"\0") == own.left_bins.rstrip(b"\0")


def assert_same_top(nodes: Mapping[int, Mapping[str, Any]], tree: Tree, close: Close) -> None:
    """The guest's part of a tree is the twin's."""
    assert sorted(nodes) == tree.node.tolist()
    for place, node in enumerate(tree.node.tolist()):
        about, leaf = nodes[node], bool(tree.is_leaf[place])
        assert (about["owner"] == vertical.LEAF) == leaf
        close(about["gain"], tree.gain[place])
        close(about["cover"], tree.cover[place])
        close(about["value"], close.rate * tree.value[place])
        if not leaf:
            rule = (int(tree.feature[place]), int(tree.bin[place]), tree.threshold[place])
            held = tree.left_bins[place].tobytes()
            lost = bool(tree.missing_left[place])
            assert_same_split(about, Split(*rule, lost, 0.0, held))


def assert_same_below(
    nodes: Mapping[int, Mapping[str, Any]],
    splits: Mapping[int, Mapping[str, Any]],
    expected: Subtrees,
    close: Close,
) -> None:
    """A host's subtrees are the twin's; `splits` is the host's own shard of them."""
    heap = heap_ids(nodes)
    inner = {node for node, about in nodes.items() if about["owner"] != vertical.LEAF}
    assert inner == set(splits)
    assert {heap[node] for node in inner} == set(expected.splits)
    assert {heap[node] for node in set(nodes) - inner} == set(expected.values)
    for node, about in nodes.items():
        if node in inner:
            own = expected.splits[heap[node]]
            close(about["gain"], own.gain)
            assert not about["value"].any()
            assert_same_split(splits[node], own)
        else:
            close(about["value"], close.rate * expected.values[heap[node]])


def assert_same_model(shards: Mapping[str, Artefact], twin: Twin, rate: float) -> None:
    """The shards of guest and hosts make up the twin's trees."""
    guest, hosts, close = shards[GUEST].arrays, list(shards)[1:], Close(rate)
    numbers = range(len(twin.trees))
    assert shards[GUEST].facts["trees"] == len(twin.trees)
    assert set(guest["tree"].tolist()) == set(numbers)
    assert set(guest["below_tree"].tolist()) <= set(numbers)
    for number, tree in enumerate(twin.trees):
        assert_same_top(of_tree(guest, number), tree.top, close)
        for k, (host, subtrees) in enumerate(zip(hosts, tree.hosts, strict=True), start=1):
            own = of_tree(shards[host].arrays, number)
            assert_same_below(by_host(guest, number, k), own, subtrees, close)


def assert_same_rounds(guest: Any, twin: Twin, rate: float) -> None:
    """The guest's margins and metrics are the twin's."""
    close = Close(rate)
    close(guest.margin, twin.margin)
    assert len(guest.history) == len(twin.history)
    for found, expected in zip(guest.history, twin.history, strict=True):
        assert {p: list(one) for p, one in found.items()} == {
            p: list(one) for p, one in expected.items()
        }
        for part, values in expected.items():
            close(list(found[part].values()), list(values.values()))


def assert_pooled(job: Job, **more: Any) -> SimpleNamespace:
    """The federated model is the pooled one: trees, margins of all rows, metrics of all rounds."""
    twin, room, rate = twin_of(job), job.room(**more), job.own.learning_rate
    shards = now(room.walk())
    assert_same_model(shards, twin, rate)
    assert_same_rounds(room.state(GUEST), twin, rate)
    return SimpleNamespace(twin=twin, shards=shards, room=room)


def n_splits(twin: Twin) -> list[int]:
    """How many splits the guest and each host have, of all trees."""
    own = [sum(int((~tree.top.is_leaf).sum()) for tree in twin.trees)]
    hosts = len(twin.trees[0].hosts)
    return own + [sum(len(tree.hosts[k].splits) for tree in twin.trees) for k in range(hosts)]
