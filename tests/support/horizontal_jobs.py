"""Horizontal FederBoost jobs on random tables, and what one table with all rows comes to."""

from dataclasses import dataclass, field, replace
from functools import cached_property
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
from scipy.sparse import csc_array

from fedboost.core import local, metrics, objectives
from fedboost.core.early_stopping import EarlyStopping
from fedboost.core.metrics import METRICS
from fedboost.core.params import TreeParams
from fedboost.core.tallies import Tally
from fedboost.core.tree import DTYPES
from fedboost.data.frame import Frame
from fedboost.data.holdout import validation_rows
from fedboost.data.ids import encode_ids
from fedboost.ground.settings import parse_settings
from fedboost.job import JobSpec
from fedboost.model import whole
from fedboost.runtime.cluster.local import DATASET
from tests.support.federated import GUEST, HOSTS, SMALL, now, room_for
from tests.support.rankings import resolution
from tests.support.secureboost_jobs import SEED, coded, labels

PROTOCOL = "federboost-horizontal"
AGGREGATOR = "sum"
EXACT_GAP_MAX = 1e-9  # of metrics that are means or counts: half a unit a row
# Ranks by which a cut point may miss its own: an exact search is half of a small job's work, and
# `test_cut_points_are_those_of_a_search_over_all_rows` is about it.
TOLERANCE = 10
STEPS = (-1.0, -0.5, 0.0, 0.5, 1.0)  # the values of a discrete column of numbers


@dataclass(frozen=True)
class Job:
    """One table whose rows lie with parties, one after the other, and what the job says."""

    sizes: tuple[int, ...]  # rows of each party, guest first
    values: np.ndarray  # float32 (rows, columns); of a category its place in the job's list
    y: np.ndarray
    weight: np.ndarray | None
    held: float | None
    params: dict[str, Any]
    lists: dict[str, tuple[str, ...]] = field(default_factory=dict)  # of categorical columns
    is_sparse: bool = False
    own_rows_min: int = 1  # of every party's policy

    @property
    def parties(self):
        return parties(len(self.sizes))

    @property
    def names(self):
        return tuple(f"c{i}" for i in range(self.values.shape[1]))

    @cached_property
    def spans(self):
        """The rows of each party."""
        ends = np.cumsum(self.sizes).tolist()
        own = zip(self.parties, self.sizes, ends, strict=True)
        return {party: slice(end - size, end) for party, size, end in own}

    @cached_property
    def ids(self):
        return encode_ids([pa.chunked_array([np.arange(len(self.y))])], ["id"])

    @cached_property
    def out(self):
        """The rows held out, which each party chooses among its own."""
        own = [validation_rows(self.ids[s], self.held or 0.0, SEED) for s in self.spans.values()]
        return np.concatenate(own)

    @property
    def own(self):
        """The settings that a table in one place knows."""
        known = {k: v for k, v in self.params.items() if k in TreeParams.model_fields}
        return TreeParams(**known)

    def part(self, rows):
        """Some rows, bool (n,), as one table, party after party."""
        groups = tuple(int(rows[span].sum()) for span in self.spans.values())
        order = getattr(self.own, "monotone_constraints", {})  # networks have none
        return local.TrainingTable(
            values=self.dealt(rows),
            y=self.y[rows],
            weight=None if self.weight is None else self.weight[rows],
            categorical=tuple(self.names.index(name) for name in self.lists),
            row_groups=groups,
            own_rows_min=(self.own_rows_min,) * len(groups),
            monotone=tuple(order.get(name, 0) for name in self.names),
        )

    def dealt(self, rows):
        own = np.asfortranarray(self.values[rows])
        return csc_array(own) if self.is_sparse else own

    def frames(self):
        """The parties' tables; each counts only the categories that it has, in its own way."""
        found = {}
        for party, span in self.spans.items():
            values, texts = self.values[span].copy(order="F"), {}
            for name, known in self.lists.items():
                column = values[:, self.names.index(name)]
                here = np.unique(column[~np.isnan(column)]).astype(np.int64)[::-1]
                code = np.full(len(known) + 1, np.nan)
                code[here] = np.arange(len(here))
                column[:] = code[np.where(np.isnan(column), len(known), column).astype(np.int64)]
                texts[name] = tuple(known[place] for place in here.tolist())
            found[party] = Frame(
                ids=self.ids[span],
                values=csc_array(values) if self.is_sparse else values,
                columns=self.names,
                label=self.y[span].copy(),
                id_columns=("id",),
                weight=None if self.weight is None else self.weight[span].copy(),
                categories=texts,
            )
        return found

    def room(self, params=None, **more):
        """A room to train in, perhaps under further settings; the guest adds up unless told
        otherwise.
        """
        limits = SMALL.model_copy(update={"own_rows_min": self.own_rows_min})
        contexts = {"held": self.held, "aggregator": GUEST, "limits": limits, **more}
        return room_for(PROTOCOL, self.frames(), {**self.params, **(params or {})}, **contexts)


def parties(count):
    """So many names, guest first."""
    more = tuple(f"p{number}" for number in range(len(HOSTS) + 1, count))
    return (GUEST, *HOSTS, *more)[:count]


def made(params=None, sizes=(90, 70, 80), columns=4, seed=1, **how):
    """A job on random columns, with ties; `how`: held, weighted, sparse, the shares missing and
    zero, `categories` of the last column, `own_rows_min` of everybody's policy, `steps`: whether
    the first one is discrete, and `sorted`: whether rows lie with parties by their labels.
    """
    draw, rows = np.random.default_rng(seed), sum(sizes)
    values = np.round(draw.normal(size=(rows, columns)), 1).astype(np.float32)
    values[draw.random(values.shape) < how.get("zero", 0.0)] = 0.0
    values[draw.random(values.shape) < how.get("missing", 0.1)] = np.nan
    said: dict[str, Any] = {"n_estimators": 3, "max_depth": 3, "max_bin": 8}
    said |= {"quantile_tolerance": TOLERANCE, **(params or {})}
    pull = np.nansum(values, axis=1) + draw.normal(size=rows)
    domains: dict[str, Any] = {}
    lists = {}
    if how.get("steps"):
        values[:, 0] = np.clip(np.round(values[:, 0] * 2) / 2, STEPS[0], STEPS[-1])
        domains["c0"] = list(STEPS)
    if how.get("categories"):
        last = f"c{columns - 1}"
        values[:, -1] = coded(values[:, -1], how["categories"], draw)
        lists[last] = tuple(f"town {code}" for code in range(how["categories"]))
        domains[last] = list(lists[last])
    if domains:
        said["domains"] = domains
    y = labels(said.get("objective", "binary:logistic"), pull, draw)
    weight = np.round(draw.uniform(0.2, 3.0, rows), 2) if how.get("weighted") else None
    order = np.argsort(y, kind="stable") if how.get("sorted") else np.arange(rows)
    return Job(
        sizes=tuple(sizes),
        values=values[order],
        y=y[order],
        weight=None if weight is None else weight[order],
        held=how.get("held", 0.25),
        params=said,
        lists=lists,
        is_sparse=how.get("sparse", False),
        own_rows_min=how.get("own_rows_min", 1),
    )


def pooled(job, state=None):
    """What `core.local` trains on all rows, without early stopping; on a party's cut points and
    summary, where its `state` is given.
    """
    params = job.own.model_copy(update={"early_stopping_rounds": None})
    check = job.part(job.out) if job.out.any() else None
    if state is None:
        return local.train(job.part(~job.out), params, check)
    cuts = state.training.rules.binning
    return local.train(job.part(~job.out), params, check, cuts=cuts, summary=state.summary)


def measured(job, trained, counts):
    """The metrics of all rounds as tallies of all rows, and how far they are from the exact ones.

    Gives the history, and the margins of all rows after each round.
    """
    params, out = trained.params, job.out
    history, margins = [], []
    margin = np.tile(trained.base_margin, (len(job.y), 1))
    bins = trained.binning.transform(job.dealt(np.ones(len(job.y), np.bool_)))
    weight = np.ones(len(job.y)) if job.weight is None else job.weight
    for trees in trained.rounds:
        own = [tree.value[tree.leaf_of_bins(bins, trained.binning.missing)] for tree in trees]
        local.add_to_margin(margin, own)
        margins.append(margin.copy())
        prediction = objectives.transform(params.objective, margin)
        found = {}
        for part, rows in (("train", ~out), ("validation", out)):
            if part not in counts.parts:
                continue
            bounds = counts.parts[part], counts.weight_bound, counts.label_bound
            tally = Tally(params, *bounds, trained.base_margin)
            seen = job.y[rows], prediction[rows], weight[rows]
            total = tally.of(*seen)
            found[part] = tally.read_metrics(total)
            room = {name: EXACT_GAP_MAX for name in params.metrics}
            room |= {name: gap + EXACT_GAP_MAX for name, gap in resolution(tally, total).items()}
            for name in params.metrics:
                gap = abs(found[part][name] - metrics.evaluate(name, *seen, params))
                assert gap <= room[name], (part, name)
        history.append(found)
    return history, margins


def stopped(params, history):
    """How many rounds are grown with these metrics, and the best of them, from 0."""
    last = params.metrics[-1]
    stopping = EarlyStopping(params.early_stopping_rounds, METRICS[last].bigger_is_better)
    if params.early_stopping_rounds is None:
        return len(history), len(history) - 1
    for number, found in enumerate(history):
        stopping = stopping.after(found["validation"][last])
        if stopping.stop:
            return number + 1, stopping.best_round
    return len(history), stopping.best_round


def assert_same_trees(shard, rounds):
    """The shard's trees are these, bit for bit."""
    found = whole.load_trees(shard)
    trees = [tree for own in rounds for tree in own]
    assert len(found) == len(trees)
    for number, (one, other) in enumerate(zip(found, trees, strict=True)):
        for name in DTYPES:
            assert getattr(one, name).tobytes() == getattr(other, name).tobytes(), (number, name)


def assert_same_shards(shards):
    """All parties end with the same model."""
    first, *others = shards.values()
    for other in others:
        assert repr(other.facts) == repr(first.facts)
        assert set(other.arrays) == set(first.arrays)
        for name, array in first.arrays.items():
            assert other.arrays[name].tobytes() == array.tobytes(), name


def assert_pooled(job, room=None):
    """The federated model is the one of `core.local` on all rows: trees, margins, metrics.

    Gives the shards, the room and the pooled model.
    """
    room = room or job.room()
    left = now(room.walk())
    shards = {party: left[party] for party in job.parties}
    assert_same_shards(shards)
    state = room.state(GUEST)
    trained = pooled(job, state)
    history, margins = measured(job, trained, state.counts)
    grown, best = stopped(job.own, history)
    assert_same_trees(shards[GUEST], trained.rounds[: best + 1])
    assert shards[GUEST].facts["history"] == history[:grown]
    for party, span in job.spans.items():
        watched = room.state(party).training.watched
        for part, rows in (("train", ~job.out), ("validation", job.out)):
            if part in watched:
                expected = margins[grown - 1][span][rows[span]]
                assert watched[part].margin.tobytes() == expected.tobytes(), (party, part)
    return SimpleNamespace(shards=shards, room=room, trained=trained, history=history, best=best)


def with_params(job, **params):
    """The same rows under further settings."""
    return replace(job, params={**job.params, **params})


# Whole jobs


def arrow_tables(job):
    """The parties' tables as they keep them: ids are numbers, categories texts."""
    given = {}
    for party, span in job.spans.items():
        content = {"id": np.arange(span.start, span.stop), "y": job.y[span]}
        if job.weight is not None:
            content["w"] = job.weight[span]
        for name, column in zip(job.names, job.values[span].T, strict=True):
            known = job.lists.get(name)
            codes = column.tolist()
            texts = [None if known is None or c != c else known[int(c)] for c in codes]
            content[name] = column if known is None else pa.array(texts, pa.string())
        given[party] = pa.table(content)
    return given


def spec_of(job, aggregator=GUEST, without=(), **params):
    """The job as a user would send it, perhaps with other parameters or `without` some of them."""
    guest, *hosts = job.parties
    own: dict[str, Any] = {"dataset": DATASET, "label": "y", "categorical": list(job.lists)}
    if job.weight is not None:
        own["weight"] = "w"
    said = {k: v for k, v in job.params.items() if k not in without}
    raw: dict[str, Any] = {
        "name": "credit",
        "protocol": PROTOCOL,
        "parties": {"guest": guest, "hosts": hosts, "aggregator": aggregator},
        "data": {party: dict(own) for party in job.parties},
        "params": {**said, **params},
    }
    if job.held is not None:
        raw["validation"] = {"fraction": job.held, "seed": SEED}
    return parse_settings(JobSpec, raw)


def again_of(job, reused, aggregator=GUEST, **params):
    """A job that trains again, with other parameters, on the cut points of an earlier one."""
    settled = ("max_bin", "quantile_tolerance", "domains")
    return spec_of(job, aggregator, settled, reuse=reused, **params)
