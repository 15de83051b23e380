"""Jobs of hybridtree whose hosts cut by themselves, and what numpy's floats make of their cuts."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csc_array

from fedboost.core import binning, hybrid, objectives, sampling
from fedboost.core.categories import NO_THRESHOLD, set_members
from fedboost.core.fixed_point import widest_encoding
from fedboost.core.objectives import Summary
from fedboost.core.partition import left_child, right_child
from fedboost.core.rules import Rules
from fedboost.core.sampling import TreeColumns
from fedboost.crypto.secrets import Secrets
from fedboost.data.holdout import validation_rows_by_id
from fedboost.encrypted.number.leaf_answers import Precision
from fedboost.flow import Artefact, CheckpointPolicy
from fedboost.ground.ids import EncodedIds
from fedboost.model.hybrid import NO_BOTTOM
from fedboost.protocols.hybridtree import guest as training
from fedboost.runtime.config.policy import Policy
from tests.support.contexts import altered
from tests.support.federated import GUEST, HOSTS, PLAIN, Room, frame_of, now, room_for
from tests.support.secureboost_jobs import SEED, coded, labels, named

OUTERMOST = ("round", "batch")  # what the outermost loops count
FLOAT_GAP = 1e-11  # of a margin by the order in which floats are added


@dataclass(frozen=True)
class Job:
    """A guest's table, hosts that have other columns of some of its rows, and the settings."""

    columns: dict[str, Any]  # float32 (its rows, columns) by party, guest first
    rows: dict[str, Any]  # by host: which of the guest's rows it has, ascending
    y: Any
    weight: Any
    held: float
    params: dict[str, Any]
    categories: int = 0  # of each party's last column, whose values are codes; 0: numbers
    sparse: tuple[str, ...] = ()  # the parties whose tables are
    least: int = 3  # rows on either side of a cut, says every host's policy

    @property
    def ids(self):
        return named(len(self.y))

    @property
    def out(self):
        """The rows held out."""
        return validation_rows_by_id(EncodedIds.of(self.ids), self.held, SEED)

    def frames(self):
        """Every party's table."""
        made = {}
        for party, values in self.columns.items():
            own = range(len(self.y)) if party == GUEST else self.rows[party]
            frame = frame_of([self.ids[row] for row in own], values)
            texts = tuple(f"{party} {code}" for code in range(self.categories))
            coded_column = {frame.columns[-1]: texts} if texts else {}
            made[party] = replace(
                frame,
                values=csc_array(frame.values) if party in self.sparse else frame.values,
                label=self.y.copy() if party == GUEST else None,
                weight=None if party != GUEST or self.weight is None else self.weight.copy(),
                categories=coded_column,
            )
        return made

    @property
    def pairs(self):
        """What the alignment leaves."""
        held = {f"with_{host}": rows.astype(np.int64) for host, rows in self.rows.items()}
        whole = Artefact(arrays={"rows": np.arange(len(self.y)), **held})
        return {GUEST: {"align-pairs": whole}, **{host: {} for host in self.rows}}

    def room(self, **more: Any) -> Room:
        """The job before it begins."""
        own = {
            "artefacts": self.pairs,
            "limits": Policy(group_rows_min=self.least, gradient_bits_max=64),
            **more,
        }
        return room_for("hybridtree", self.frames(), self.params, held=self.held, **own)

    def scoring(self, shards, **more: Any) -> Room:
        """A prediction of the same rows with the model that it left."""
        params = {"model": "job-1", "split": self.params["split"], **more}
        pairs, hosts = self.pairs, list(self.rows)
        kept = {p: replace(s, facts={**s.facts, "hosts": hosts}) for p, s in shards.items()}
        both = {party: {**pairs[party], "model": kept[party]} for party in self.columns}
        frames = {party: replace(f, label=None, weight=None) for party, f in self.frames().items()}
        return room_for("predict-hybrid", frames, params, artefacts=both)


def made(params: Mapping[str, Any], widths: Sequence[int] = (2, 3, 2), **how: Any) -> Job:
    """A job on random columns; `how`: rows, seed, held, weighted, the shares missing and zero,
    categories, sparse, least, and `shares`: of the guest's rows each host has so many, or these.
    """
    draw, rows = np.random.default_rng(how.get("seed", 1)), how.get("rows", 100)
    shares = how.get("shares", [0.6] * (len(widths) - 1))
    columns, held, pull = {}, {}, draw.normal(size=rows)
    for place, (party, width) in enumerate(zip((GUEST, *HOSTS), widths, strict=False)):
        own = np.arange(rows)
        if place:
            share = shares[place - 1]
            own = (
                own[draw.random(rows) < share]
                if isinstance(share, float)
                else np.array(share, np.int64)
            )
            held[party] = own.astype(np.int64)
        values = np.round(draw.normal(size=(len(own), width)), 1).astype(np.float32)
        values[draw.random(values.shape) < how.get("zero", 0.0)] = 0.0
        values[draw.random(values.shape) < how.get("missing", 0.1)] = np.nan
        pull[own] += np.nansum(values, axis=1)
        if how.get("categories"):
            values[:, -1] = coded(values[:, -1], how["categories"], draw)
        columns[party] = values
    y = labels(params.get("objective", "binary:logistic"), pull, draw)
    weight = np.round(draw.uniform(0.2, 3.0, rows), 2) if how.get("weighted") else None
    said = {**PLAIN, "n_estimators": 3, "max_bin": 8, "guest_depth": 2, "host_depth": 2}
    said |= {"split": "unscored", **params}
    more = {name: how[name] for name in ("categories", "sparse", "least") if name in how}
    return Job(columns, held, y, weight, how.get("held", 0.25), said, **more)


@contextmanager
def noting_rounds() -> Iterator[list[Any]]:
    """The guest's margins at the end of every round, as they come."""
    noted: list[Any] = []
    close_round = training.close_round

    def noting(state):
        noted.append(state.margin.copy())
        return close_round(state)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "close_round", noting)
        yield noted


def reseeded(room: Room, *, attempt: bytes = b"", job: bytes = b"") -> Room:
    """The same room in another attempt, or in another job."""
    contexts = {}
    for name, context in room.contexts.items():
        own, ours = (Secrets(hashlib.sha256(s + name.encode()).digest()) for s in (attempt, job))
        contexts[name] = altered(
            context,
            secrets={
                "attempt": own if attempt else context.secrets.attempt,
                "job": ours if job else context.secrets.job,
            },
            attempt={"digest": hashlib.sha256(context.attempt.digest + attempt + job).digest()},
        )
    return Room(room.protocol, contexts, room.wait_s, room.alter)


class Resumed(Room):
    """A room of a later attempt, whose outermost loop has done so many rounds."""

    done = 0

    def rounds(
        self, name: str, most: int, *, keeps: CheckpointPolicy | None = None
    ) -> Iterator[int]:
        """Without those."""
        yield from super().rounds(name, most - (self.done if name in OUTERMOST else 0), keeps=keeps)

    async def carry_on(self, kept: Mapping[str, Artefact], done: int) -> dict[str, Artefact]:
        """The rest of the stage behind so many rounds; gives what every party is left with."""
        self.done = done
        await self.open(kept)
        await self.protocol.walk(self)
        return {name: await session.close() for name, session in self.sessions.items()}


async def broken_off(room: Room, step: str, times: int) -> dict[str, Artefact]:
    """What every party has kept when a step, the first of a round, would come the n-th time."""
    await room.until(step, times)
    return await room.snapshots()


def later(room: Room, attempt: bytes = b"2") -> Resumed:
    """The same room at its next attempt."""
    own = reseeded(room, attempt=attempt)
    return Resumed(own.protocol, own.contexts, own.wait_s)


def trained(job: Job, room: Room | None = None) -> SimpleNamespace:
    """The job's room at its end, its shards, and the margins after each round."""
    room = room or job.room()
    with noting_rounds() as margins:
        shards = now(room.walk())
    return SimpleNamespace(room=room, shards=shards, margins=margins)


# What a host has cut, read from its shard alone


def standing(shards, host: str, tree: int, bottom):
    """By which number the host knows the bottom node of each row, given by the guest's heap ids."""
    arrays = shards[GUEST].arrays
    number = [party for party in shards if party != GUEST].index(host) + 1
    own = (arrays["below_host"] == number) & (arrays["below_tree"] == tree)
    known = {
        int(under): int(node)
        for under, node in zip(arrays["below_under"][own], arrays["below_node"][own], strict=True)
        if under != NO_BOTTOM
    }
    return np.array([known.get(int(node), NO_BOTTOM) for node in bottom], np.int64)


def goes_right(arrays, place: int, value: float) -> bool:
    """On which side of a split a value lies."""
    if np.isnan(value):
        return not arrays["missing_left"][place]
    if arrays["threshold"][place] == NO_THRESHOLD:
        return int(value) not in set_members(arrays["left_bins"][place].tobytes())
    return bool(value >= arrays["threshold"][place])


def cuts(shards, host: str, tree: int) -> dict[int, int]:
    """By node, the place of the split in the host's arrays."""
    arrays = shards[host].arrays
    return {int(arrays["node"][i]): i for i in np.flatnonzero(arrays["tree"] == tree).tolist()}


def leaves(shards, job: Job, host: str, tree: int, at):
    """The leaf of each of the host's rows below the bottom nodes `at`, row by row."""
    arrays, own, found = shards[host].arrays, cuts(shards, host, tree), []
    for row, start in zip(job.columns[host], at.tolist(), strict=True):
        node = start
        while node in own:
            right = goes_right(arrays, own[node], row[int(arrays["feature"][own[node]])])
            node = right_child(node) if right else left_child(node)
        found.append(node)
    return np.array(found, np.int64)


# The same rounds in floats


@dataclass(frozen=True)
class Tree:
    """One tree of a naive round, for the tests that look into it."""

    top: Any
    bottom: Any  # (rows,) the guest's heap id
    learns: Any  # bool (rows,) of which the guest's layers learn
    held: dict[str, Any]  # by host: bool (its rows,) of which it learns
    g: Any  # (rows, outputs) as the guest's leaf leaves them
    h: Any
    counted: Any  # (rows, outputs) for hosts that count rows
    starts: dict[str, Any]  # by host: (its rows,) its numbers of their bottom nodes
    leaves: dict[str, Any]  # by host: (its rows,)


class Naive:
    """What a job's rounds come to from the margins before each, in floats."""

    def __init__(self, job: Job, done: SimpleNamespace) -> None:
        self.job, self.shards = job, done.shards
        self.params = params = done.room.params
        self.train = ~job.out
        weight = np.ones(len(job.y)) if job.weight is None else job.weight
        self.y, self.weight = job.y, weight
        summary = Summary.of(params, job.y[self.train], weight[self.train])
        self.objective = objectives.start_objective(params, summary)
        asked = hybrid.encoding(params, self.objective, summary)
        self.fixed = widest_encoding(asked, summary.rows) if asked.is_coarse else asked
        values = job.columns[GUEST]
        kinds = (values.shape[1] - 1,) if job.categories else ()
        cuts = binning.fit(np.asfortranarray(values[self.train]), params.max_bin, kinds)
        self.rules = Rules(params, cuts, self.fixed)
        self.bins = cuts.transform(np.asfortranarray(values))
        self.precision = Precision.of(params, len(job.rows), int(self.train.sum()))

    def before(self, margins, number):
        """The margins at the start of a round."""
        if number:
            return margins[number - 1]
        return np.tile(self.objective.base_margin, (len(self.y), 1))

    def trees(self, margin, number: int) -> Iterator[Tree]:
        """The trees of a round that begins at these margins, class after class."""
        params, train = self.params, np.flatnonzero(self.train)
        g, h = self.objective.gradients(margin[train], self.y[train], self.weight[train])
        sample = sampling.round_sample(params, g, number, number)
        taking = train[sample.rows].astype(np.int32)
        whole = np.zeros((len(margin), 2 * params.n_outputs), np.int64)
        whole[taking] = self.fixed.encode(g[sample.rows], h[sample.rows], sample.fractions)
        floats = [np.zeros((len(margin), params.n_outputs)) for _ in range(2)]
        floats[0][train], floats[1][train] = g, h
        each = params.n_outputs // params.trees_per_round
        for place, gh in enumerate(np.split(whole, params.trees_per_round, axis=1)):
            index = number * params.trees_per_round + place
            own = slice(place * each, (place + 1) * each)
            usable = TreeColumns.draw_columns(params, index, (self.bins.shape[1],))
            packed = np.ascontiguousarray(gh)
            top = hybrid.grow_top(self.rules, self.bins, packed, taking, usable, params.guest_depth)
            held = self._held(number)
            yield self._tree(index, top, taking, held, floats[0][:, own], floats[1][:, own])

    def _held(self, number: int) -> dict[str, Any]:
        """Of each host's rows those that it learns from: it draws among its own."""
        held = {}
        for party, (host, rows) in enumerate(self.job.rows.items(), start=1):
            (own,) = np.nonzero(self.train[rows])
            rate, seed = self.params.subsample, self.params.seed
            held[host] = np.zeros(len(rows), bool)
            held[host][own[sampling.round_rows(seed, number, len(own), rate, party)]] = True
        return held

    def _tree(self, index, top, taking, held, g, h) -> Tree:
        at, lam = top.leaf_of_bins(self.bins, self.rules.binning.missing), self.params.reg_lambda
        learns = np.zeros(len(g), bool)
        learns[taking] = True
        left = g + h * top.value[at]
        counted = np.zeros_like(left)
        most = hybrid.COUNTED_MAX * self.fixed.g_bound / (1 + hybrid.VALUE_MAX)
        for leaf in np.unique(at[learns]):
            rows = learns & (at == leaf)
            factor = (rows.sum() + lam) / (h[rows].sum(axis=0) + lam)
            counted[at == leaf] = np.clip(left[at == leaf] * factor, -most, most)
        bottom = top.node[at]
        starts, ends = {}, {}
        for host, rows in self.job.rows.items():
            starts[host] = standing(self.shards, host, index, bottom[rows])
            ends[host] = leaves(self.shards, self.job, host, index, starts[host])
        return Tree(top, bottom, learns, held, left, h, counted, starts, ends)

    def added(self, tree: Tree):
        """What a tree adds to the margins, float64 (rows, outputs), and by how much at most the
        hosts' integers may differ from it.

        A gradient is off by half a unit of its own encoding, the residual once more, and half a
        unit of the counted one, all times its factor; a factor s of a leaf by 2^-(bits+1).
        """
        total, gap = np.zeros_like(tree.g), np.zeros(len(tree.g))
        holders, lam = np.zeros(len(tree.g)), self.params.reg_lambda
        unit = hybrid.counted_unit(self.fixed, self.precision.value_bits)
        w = np.abs(tree.top.value).max()
        with np.errstate(invalid="ignore", divide="ignore"):
            factor = np.nanmax(np.abs(tree.counted) / np.abs(tree.g), initial=1.0)
        each = unit / 2 + factor * (self.fixed.g_unit + w * self.fixed.h_unit)
        for host, rows in self.job.rows.items():
            holders[rows] += 1
            learns = tree.held[host]
            for leaf in np.unique(tree.leaves[host][learns]):
                there = tree.leaves[host] == leaf
                some = tree.counted[rows[there & learns]]
                total[rows[there]] -= some.sum(axis=0) / (len(some) + lam)
                scale = 2.0 ** -(self.precision.fraction_bits + 1)
                gap[rows[there]] += each + scale * np.abs(some).sum(axis=0).max()
        share = np.maximum(holders, 1)
        own = tree.top.value[[tree.top.node.tolist().index(node) for node in tree.bottom]]
        rate = self.params.learning_rate
        return rate * (own + total / share[:, None]), rate * gap / share


def assert_naive(job: Job) -> SimpleNamespace:
    """Every round's margins are the naive ones within the fixed point's error; gives the job."""
    done = trained(job)
    twin, params = Naive(job, done), done.room.params
    done.twin, done.trees, done.gap = twin, [], 0.0
    for number, after in enumerate(done.margins):
        before = twin.before(done.margins, number)
        expected, gap = before.copy(), np.zeros(len(before))
        each = params.n_outputs // params.trees_per_round
        for place, tree in enumerate(twin.trees(before, number)):
            added, own = twin.added(tree)
            expected[:, place * each : (place + 1) * each] += added
            gap = np.maximum(gap, own)
            done.trees.append(tree)
        off = np.abs(after - expected).max(axis=1)
        assert (off <= gap + FLOAT_GAP).all(), (number, off.max(), gap.max())
        done.gap = max(done.gap, gap.max())
    return done
