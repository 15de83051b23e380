"""Secureboost jobs on random tables, and the trees of one table that they must come to."""

import itertools
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa

from fedboost.core import binning, local, monotone, objectives, sampling
from fedboost.core.gradient_bits import BITS_ENCRYPTED
from fedboost.core.growing_trees import leaf_gradients
from fedboost.core.growth import GrowingTree
from fedboost.core.objectives import Summary
from fedboost.core.params import TreeParams
from fedboost.core.rules import Rules
from fedboost.core.sampling import TreeColumns
from fedboost.data.holdout import canonical_order, validation_rows
from fedboost.data.ids import encode_ids
from fedboost.ground.ids import EncodedIds
from fedboost.runtime.config.policy import Policy
from tests.equivalence.test_secureboost_pooled import assert_same_trees
from tests.support.columns import LayeredColumns
from tests.support.federated import (
    GUEST,
    HOSTS,
    PLAIN,
    frame_of,
    now,
    room_for,
)
from tests.support.raw_values import model_values

CLASSES: dict[str, Any] = {"objective": "multi:softprob", "num_class": 3}
VECTORS: dict[str, Any] = {**CLASSES, "multi_output": True}
SWITCHES = ("gh_packing", "cipher_compressing", "histogram_subtraction", "sparse_histograms")
SEED = 7  # of the held-out rows

SAMPLES: dict[str, dict[str, Any]] = {
    "goss": {"goss": {"top_rate": 0.2, "other_rate": 0.3}},
    "rows": {"subsample": 0.6},
    "columns": {"colsample_bytree": 0.5},
    "both": {"subsample": 0.7, "colsample_bytree": 0.6, "seed": 5},
    "layers": {"colsample_bylevel": 0.5, "max_depth": 4},
    "leaves": {"max_leaves": 5, "grow_policy": "lossguide", "max_depth": 4},
    "nodes": {"colsample_bytree": 0.8, "colsample_bylevel": 0.7, "colsample_bynode": 0.5},
}


@dataclass(frozen=True)
class Job:
    """One table cut into parties' columns, and what the job says about it."""

    columns: dict[str, np.ndarray]  # float32 (rows, columns) by party, guest first
    y: np.ndarray
    weight: np.ndarray | None
    held: float | None
    params: dict[str, Any]
    ids: EncodedIds
    categories: int = 0  # of each party's last column, whose values are codes; 0: numbers
    least: int = 1  # rows of a group of every host's

    @property
    def group_rows_min(self):
        """By column of the pooled table; nobody bounds the guest's own."""
        own = {party: 1 if party == GUEST else self.least for party in self.widths}
        return tuple(own[party] for party, width in self.widths.items() for _ in range(width))

    @property
    def monotone(self):
        """By column of the pooled table; the guest's alone have a direction."""
        said = self.params.get("monotone_constraints", {})
        own = [said.get(f"c{c}", 0) for c in range(self.widths[GUEST])]
        return (*own, *[0] * (self.values.shape[1] - len(own))) if said else ()

    @property
    def out(self):
        return validation_rows(self.ids, self.held or 0.0, SEED)

    @property
    def widths(self):
        return {party: values.shape[1] for party, values in self.columns.items()}

    @property
    def values(self):
        return np.asfortranarray(np.concatenate(list(self.columns.values()), axis=1))

    @property
    def categorical(self):
        """The columns of categories in the pooled table."""
        ends = np.cumsum(list(self.widths.values())) - 1
        return tuple(ends.tolist()) if self.categories else ()

    @property
    def own(self):
        """The settings that a table in one place knows."""
        known = {k: v for k, v in self.params.items() if k in TreeParams.model_fields}
        return TreeParams(**{"precision_bits": BITS_ENCRYPTED, **known})

    def part(self, rows):
        weight = None if self.weight is None else self.weight[rows]
        values = np.asfortranarray(self.values[rows])
        least = self.group_rows_min
        return local.TrainingTable(
            *(values, self.y[rows], weight, self.categorical),
            group_rows_min=least,
            monotone=self.monotone,
        )

    def room(self, limits=None):
        frames = {}
        for party, values in self.columns.items():
            frame = frame_of(self.ids, values, self.y if party == GUEST else None)
            weight = self.weight if party == GUEST else None
            texts = tuple(f"{party} {code}" for code in range(self.categories))
            frames[party] = replace(
                frame,
                weight=None if weight is None else weight.copy(),
                categories={frame.columns[-1]: texts} if texts else {},
            )
        own = limits or Policy(group_rows_min=self.least, gradient_bits_max=64)
        return room_for("secureboost", frames, self.params, held=self.held, limits=own)


def named(rows):
    """So many ids, in canonical order."""
    return EncodedIds.of([b"%06d" % i for i in range(rows)])


def labels(objective, pull, draw):
    """Labels of every kind that depend on a column sum float64 (n,)."""
    if objective == "multi:softprob":
        return np.digitize(pull, np.quantile(pull, [0.3, 0.7])).astype(np.float64)
    if objective == "count:poisson":
        return draw.poisson(np.exp(np.clip(pull / 2, -3, 2))).astype(np.float64)
    if objective == "reg:tweedie":
        amount = np.round(np.exp(np.clip(pull / 2, -3, 2)), 2)
        return np.where(draw.random(len(pull)) < 0.4, 0.0, amount)
    if objective == "reg:gamma":
        return np.round(np.exp(np.clip(pull / 2, -3, 2)), 2) + 0.01
    return (pull > 0).astype(np.float64) if objective == "binary:logistic" else np.round(pull, 2)


def coded(column, categories, draw):
    """Numbers as codes of categories, whose order says nothing about the numbers'."""
    place = np.clip(np.round(2 * column + categories / 2), 0, categories - 1)
    shuffled = np.append(draw.permutation(categories), np.nan)
    return shuffled[np.where(np.isnan(place), categories, place).astype(np.int64)]


def made(params, widths=(2, 3, 2), rows=120, seed=1, **how):
    """A job on random columns, with ties; `how`: held, weighted, the shares missing
    and zero, how many categories each party's last column has, and the least rows of a group.
    """
    draw = np.random.default_rng(seed)
    columns = {}
    for party, width in zip((GUEST, *HOSTS), widths, strict=False):
        values = np.round(draw.normal(size=(rows, width)), 1).astype(np.float32)
        values[draw.random(values.shape) < how.get("zero", 0.0)] = 0.0
        values[draw.random(values.shape) < how.get("missing", 0.1)] = np.nan
        columns[party] = values
    whole = np.concatenate(list(columns.values()), axis=1)
    pull = np.nansum(whole, axis=1) + draw.normal(size=rows)
    for values in columns.values() if how.get("categories") else ():
        values[:, -1] = coded(values[:, -1], how["categories"], draw)
    y = labels(params.get("objective", "binary:logistic"), pull, draw)
    weight = np.round(draw.uniform(0.2, 3.0, rows), 2) if how.get("weighted") else None
    said = {**PLAIN, "n_estimators": 3, "max_bin": 8, **params}
    if said.get("mode") != "layered":
        said.setdefault("max_depth", 3)
    held, categories = how.get("held", 0.25), how.get("categories", 0)
    return Job(columns, y, weight, held, said, named(rows), categories, how.get("least", 1))


def flat(rounds):
    """Trees one after the other, as `assert_same_trees` takes them."""
    trees = tuple((tree,) for trees in rounds for tree in trees)
    return SimpleNamespace(rounds=trees, best_round=len(trees) - 1)


def assert_pooled(job):
    """The federated model is the pooled one: trees, margins of all rows, metrics of all rounds."""
    check = job.part(job.out) if job.out.any() else None
    trained = local.train(job.part(~job.out), job.own, check, tuple(job.widths.values()))
    margin = np.tile(trained.base_margin, (len(job.y), 1))
    for trees in trained.rounds:
        read = model_values(trained.binning, job.values)
        local.add_to_margin(margin, [tree.predict(read) for tree in trees])
    room = job.room()
    shards = now(room.walk())
    assert_same_trees(shards, flat(trained.rounds[: trained.best_round + 1]), job.widths)
    guest = room.state(GUEST)
    assert guest.margin.tobytes() == margin.tobytes()
    assert repr(guest.history) == repr(trained.history)  # NaN equals NaN
    return SimpleNamespace(trained=trained, shards=shards, room=room)


def owners(rounds, widths):
    """Which parties own a split of these trees, by name."""
    ends = np.cumsum(list(widths.values()))
    used = {f for trees in rounds for tree in trees for f in tree.feature.tolist() if f >= 0}
    return {list(widths)[int(np.searchsorted(ends, f, side="right"))] for f in used}


def usable(job, number, columns):
    """The columns a tree of round `number` may use: the naive way."""
    said, parts = job.params, dict(zip(job.widths, columns.parts.items(), strict=True))
    mode, layers = said.get("mode", "default"), []
    if mode == "mix":
        turns = [party for party in job.widths for _ in range(said.get("trees_per_party", 1))]
        party = next(itertools.islice(itertools.cycle(turns), number, None))
        parts = {party: parts[party]}
    if mode == "layered":
        mine = parts[GUEST][1]
        theirs = np.setdiff1d(columns.all, mine)
        layers = [theirs] * said.get("host_depth", 3) + [mine] * said.get("guest_depth", 2)
    return LayeredColumns(columns.params, columns.tree, dict(parts.values()), layers)


def grown_naively(job):
    """Rounds, margins and history of a table in one place, whose trees see what parties would."""
    table, params = job.part(~job.out), job.own
    summary = Summary.of(params, table.y, table.weights)
    objective = objectives.start_objective(params, summary)
    fixed = objectives.encoding(params, objective, summary)
    cuts = binning.fit(table.values, params.max_bin, job.categorical)
    least = np.array(job.group_rows_min, np.int32)
    rules = Rules(params, cuts, fixed, least, directions=monotone.directions(job.monotone))
    watched = {"train": local.Watched.of(table, rules.binning, objective)}
    if job.out.any():
        watched["validation"] = local.Watched.of(job.part(job.out), rules.binning, objective)
    seen = watched["train"]
    rounds: list[tuple[Any, ...]] = []
    history = []
    for number in range(params.n_estimators):
        g, h = objective.gradients(seen.margin, seen.y, seen.weight)
        sample = sampling.round_sample(params, g, number, number)
        rows, factor = sample.rows, sample.factor[:, None]
        gh = np.zeros((len(g), 2 * g.shape[1]), np.int64)
        gh[rows] = fixed.encode(g[rows] * factor, h[rows] * factor, sample.fractions)
        trees: list[Any] = []
        exact = leaf_gradients(rules, (g, h), sample)
        for mine, leaves in zip(np.split(gh, len(exact), axis=1), exact, strict=True):
            own = np.ascontiguousarray(mine)
            for inside in sample.trees:
                index = sum(map(len, rounds)) + len(trees)
                drawn = TreeColumns.draw_columns(params, index, tuple(job.widths.values()))
                columns = usable(job, number, drawn)
                depth = len(columns.layers) or None
                growing = GrowingTree(rules, seen.bins, own, inside, columns, depth)
                growing.leaf_gradients = leaves
                tree = local.grow_tree(growing)
                renews = params.record.has_median_leaves
                tree = local.with_median_leaves(tree, rules, seen, inside) if renews else tree
                trees.append(replace(tree, value=tree.value / len(sample.trees)))
        rounds.append(tuple(trees))
        for part in watched.values():
            part.advance(trees, rules.binning.missing)
        history.append({name: part.measure(params) for name, part in watched.items()})
    margin = np.empty((len(job.y), params.n_outputs))
    margin[~job.out] = seen.margin
    if job.out.any():
        margin[job.out] = watched["validation"].margin
    return SimpleNamespace(rounds=rounds, history=history, margin=margin)


def assert_naive(job):
    """The federated model is the naive one; gives both, and the room."""
    twin = grown_naively(job)
    room = job.room()
    shards = now(room.walk())
    assert_same_trees(shards, flat(twin.rounds), job.widths)
    guest = room.state(GUEST)
    assert guest.margin.tobytes() == twin.margin.tobytes()
    assert repr(guest.history) == repr(twin.history)
    return SimpleNamespace(twin=twin, shards=shards, room=room)


def in_canonical_order(job):
    """The same job as all parties keep its rows after the alignment."""
    ids = encode_ids([pa.chunked_array([np.arange(len(job.y))])], ["id"])
    order = canonical_order(ids)
    return replace(
        job,
        columns={party: values[order] for party, values in job.columns.items()},
        y=job.y[order],
        weight=None if job.weight is None else job.weight[order],
        ids=ids.take(order),
    )
