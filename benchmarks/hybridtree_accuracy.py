"""HybridTree and what it is compared with: trained on some rows, judged by others."""

from __future__ import annotations

import math
import multiprocessing
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from statistics import mean
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import harness, hybridtree_data, plots
from benchmarks.hybridtree_data import Dealing, Dealt, Parties
from benchmarks.plots import Picture
from benchmarks.rows import Row, grouped, of
from fedboost.core import binning, local, metrics, objectives
from fedboost.core.binning import Binning
from fedboost.core.local import TrainingTable, Watched
from fedboost.core.objectives import Summary
from fedboost.core.params import TreeParams
from fedboost.core.rules import Rules
from fedboost.report.charts import Line

Likely = NDArray[np.float64]  # (n,) probabilities of class 1
Scores = dict[str, float]

SCORED, UNSCORED = "HybridTree, scored", "HybridTree, unscored"
SAMPLED = "HybridTree, scored, GOSS"
GOSS: dict[str, Any] = {"goss": {"top_rate": 0.2, "other_rate": 0.1}}
HYBRID: dict[str, dict[str, Any]] = {
    SCORED: {"split": "scored"},
    SAMPLED: {"split": "scored", **GOSS},
    UNSCORED: {"split": "unscored"},
}
ALL_XGBOOST, ALL_LOCAL = "ALL-IN, XGBoost", "ALL-IN, core/local"
ALL_IN = (ALL_XGBOOST, ALL_LOCAL)
SOLO, TFL = "SOLO", "TFL"
VOTE = "vote"  # of the models of several label holders, whose mean stands under the plain name
# SecureBoost with one host, judged by all test rows: where the host lacks a row its columns are
# missing, or the guest takes its own model; or judged by the host's rows alone. And a model with
# every host, each test row scored by those of its hosts.
MISSING, FALLING_BACK = "one host, else missing", "one host, else SOLO"
OWN_ROWS, EACH = "one host, its rows", "a model per host"
HOST_DEPTH = 2
SHAPE: dict[str, Any] = {"learning_rate": 0.1, "reg_lambda": 1.0}
MAX_BIN = 32
METRICS: tuple[metrics.MetricName, ...] = ("accuracy", "auc")


MAIN, HOLDERS, OVERLAP = "Table 1", "Table 3", "Table 6"
DEPTH, VERTICAL, GUEST_SIZE = "Table 9", "Table 10", "Table 12"
SCALE, SKEW = "Figure 6", "Figure 8"
VARIED = "adult"  # whose guest has fewer rows and columns, as in the paper
FIGURED_HOSTS = 5
# Appendix C.4 draws from [0, n/20] rows of others for each of five hosts, and from [0, d] columns
# to drop: these are the means.
SHARED_ROWS, DROPPED = 5 / 40, 0.5


@dataclass(frozen=True)
class Experiment:
    """One row of one of the paper's tables, or one point of its figures."""

    table: str
    data: str
    dealing: Dealing = field(default_factory=Dealing)
    value: float | str | None = None  # of what the table varies
    depth: int = 7
    trees: int = 50
    train_rows: int = 1 << 62  # at most
    test_rows: int = 1 << 62
    label_holders: int = 1
    sampled: bool = False  # whether HybridTree is trained with GOSS as well

    def dealt(self) -> Dealt:
        """The rows and columns of everybody."""
        pooled = hybridtree_data.load(self.data).sample(self.train_rows, self.test_rows)
        return hybridtree_data.deal(pooled, self.dealing)

    @property
    def params(self) -> TreeParams:
        """Of everything but HybridTree and XGBoost."""
        return TreeParams(n_estimators=self.trees, max_depth=self.depth, max_bin=MAX_BIN, **SHAPE)

    def hybrid(self, system: str) -> dict[str, Any]:
        """The parameters of a job of HybridTree, whose trees have as many layers in all."""
        return {
            **SHAPE, "n_estimators": self.trees, "max_bin": MAX_BIN, **HYBRID[system],
            "guest_depth": self.depth - HOST_DEPTH, "host_depth": HOST_DEPTH,
            "encryption": {"scheme": "plain"}, "eval_metric": ["error"],
        }  # fmt: skip


@dataclass(frozen=True)
class Plan:
    """How much of the whole a run does."""

    train_rows: int = 100_000  # of a data set at most
    test_rows: int = 40_000
    trees: int = 50
    seeds: tuple[int, ...] = (0, 1, 2)  # of Table 1: other columns, other hosts
    hosts: tuple[int, ...] = (FIGURED_HOSTS, 25)  # of Table 1
    scale: tuple[int, ...] = (10, 15, 20)  # hosts of Figure 6
    skews: tuple[float, ...] = (0.1, 0.5, 1.0, 10.0)
    depths: tuple[int, ...] = (4, 6, 8)
    shares: tuple[float, ...] = (0.2, 0.5, 0.8)  # of the guest's rows, then of its columns
    holders: int = 5
    others: bool = True  # whether tables beside the first are measured, too

    def experiments(self, data: str) -> Iterator[Experiment]:
        """All on one data set."""
        plain = Experiment(
            *(MAIN, data), trees=self.trees, train_rows=self.train_rows, test_rows=self.test_rows
        )
        yield from (
            replace(plain, dealing=Dealing(hosts, seed), sampled=True)
            for hosts in self.hosts
            for seed in self.seeds
        )
        if not self.others:
            return
        yield replace(plain, table=HOLDERS, label_holders=self.holders)
        for depth in self.depths:
            yield replace(plain, table=DEPTH, depth=depth, value=depth)
        for table, value, dealing in self._dealings(data):
            yield replace(plain, table=table, value=value, dealing=dealing)

    def _dealings(self, data: str) -> Iterator[tuple[str, float, Dealing]]:
        """By table, and by what it varies, how rows and columns are dealt."""
        yield OVERLAP, DROPPED, Dealing(overlap=SHARED_ROWS, drop_columns=DROPPED)
        yield VERTICAL, 1, Dealing(hosts=1)
        shares = self.shares if data == VARIED else ()
        yield from ((GUEST_SIZE, share, Dealing(guest_rows=share)) for share in shares)
        yield from ((GUEST_SIZE, share, Dealing(guest_columns=share)) for share in shares)
        yield from ((SCALE, hosts, Dealing(hosts=hosts)) for hosts in self.scale)
        yield from (
            (SKEW, skew, Dealing(skew=skew, skewed_test=skewed))
            for skew in self.skews
            for skewed in (True, False)
        )


QUICK = Plan(200, 100, 2, (0,), (FIGURED_HOSTS,), others=False)


def measure(name: str, plan: Plan) -> list[Row]:
    """All experiments on one data set, as many at once as there are cores."""
    experiments = list(plan.experiments(name))
    with ProcessPoolExecutor(harness.cores(), multiprocessing.get_context("spawn")) as pool:
        return list(pool.map(measured, experiments))


def measured(one: Experiment) -> Row:
    """The scores of all systems on the test rows."""
    dealt = one.dealt()
    found = several_holders(one, dealt) if one.label_holders > 1 else one_holder(one, dealt)
    return {
        **{name: getattr(one, name) for name in ("table", "value", "depth", "trees")},
        "dealing": asdict(one.dealing),
        "label_holders": one.label_holders,
        "rows": {"train": dealt.train.guest.n_rows, "test": dealt.test.guest.n_rows},
        "guest_columns": list(dealt.train.guest.columns),
        "host_columns": {name: list(own.columns) for name, own in dealt.train.hosts.items()},
        "host_rows": {name: own.n_rows for name, own in dealt.train.hosts.items()},
        "majority": float(max(dealt.test.y.mean(), 1.0 - dealt.test.y.mean())),
        "scores": found,
    }


def score(y: Likely, likely: Likely) -> Scores:
    """Of the test rows."""
    return {str(name): metrics.evaluate(name, y, likely) for name in METRICS}


def one_holder(one: Experiment, dealt: Dealt) -> dict[str, Any]:
    """The scores of every system; of single hosts lists, in the hosts' order.

    None stands for a host whose rows are of one class.
    """
    y = dealt.test.y
    systems = {**SYSTEMS, **({SAMPLED: sampled} if one.sampled else {})}
    likely = {name: system(one, dealt) for name, system in systems.items()}
    found: dict[str, Any] = {name: score(y, own) for name, own in likely.items()}
    hosts = list(dealt.train.hosts)
    singles = [with_one_host(one, dealt, host) for host in hosts]
    own = [dealt.test.indices[host] for host in hosts]
    held = [_only(single, rows, likely[SOLO]) for single, rows in zip(singles, own, strict=True)]
    found[MISSING] = [_score(y, single) for single in singles]
    found[FALLING_BACK] = [_score(y, single) for single in held]
    found[OWN_ROWS] = [
        None if single is None else _score(y[rows], single[rows])
        for single, rows in zip(singles, own, strict=True)
    ]
    found[EACH] = score(y, _averaged(held, own, likely[SOLO]))
    return found


def _score(y: Likely, likely: Likely | None) -> Scores | None:
    """None without probabilities, or where the rows are of one class."""
    return None if likely is None or len(np.unique(y)) < 2 else score(y, likely)


def _only(single: Likely | None, rows: NDArray[np.int64], other: Likely) -> Likely | None:
    """A host's model on the rows that it has, and another on all others."""
    if single is None:
        return None
    found = other.copy()
    found[rows] = single[rows]
    return found


def _averaged(
    singles: Sequence[Likely | None], held: Sequence[NDArray[np.int64]], other: Likely
) -> Likely:
    """The mean over the hosts that have a row; another model's where there is none."""
    total, holders = np.zeros(len(other)), np.zeros(len(other))
    for single, rows in zip(singles, held, strict=True):
        if single is not None:
            total[rows] += single[rows]
            holders[rows] += 1
    return np.where(holders > 0, total / np.maximum(holders, 1), other)


def several_holders(one: Experiment, dealt: Dealt) -> dict[str, Any]:
    """The guest's rows are dealt to as many guests; each has its own model of each system.

    Of single hosts and of guests alone a list; else models are joined on the test rows, which are
    everybody's.
    """
    y, rng = dealt.test.y, np.random.default_rng(one.dealing.seed)
    shares = np.array_split(rng.permutation(dealt.train.guest.n_rows), one.label_holders)
    own = [Dealt(dealt.train.take(np.sort(rows)), dealt.test) for rows in shares]
    found: dict[str, Any] = {name: score(y, SYSTEMS[name](one, dealt)) for name in ALL_IN}
    for name in (SCORED, UNSCORED, TFL):
        likely = np.array([SYSTEMS[name](one, share) for share in own])
        found[name] = score(y, likely.mean(axis=0))
        found[f"{name}, {VOTE}"] = score(y, (likely > 0.5).mean(axis=0))
    solo = [alone(one, share) for share in own]
    found[SOLO] = [score(y, likely) for likely in solo]
    singles = [
        (with_one_host(one, share, host), dealt.test.indices[host], other)
        for share, other in zip(own, solo, strict=True)
        for host in share.train.hosts
    ]
    found[MISSING] = [_score(y, single) for single, _, _ in singles]
    found[FALLING_BACK] = [_score(y, _only(*single)) for single in singles]
    return found


# The systems


def scored(one: Experiment, dealt: Dealt) -> Likely:
    """HybridTree whose guest scores the hosts' splits."""
    return _hybrid(one, dealt, SCORED)


def sampled(one: Experiment, dealt: Dealt) -> Likely:
    """The same with rows sampled by gradients."""
    return _hybrid(one, dealt, SAMPLED)


def unscored(one: Experiment, dealt: Dealt) -> Likely:
    """HybridTree whose hosts cut without labels."""
    return _hybrid(one, dealt, UNSCORED)


def _hybrid(one: Experiment, dealt: Dealt, system: str) -> Likely:
    model = hybridtree_data.train(dealt.train, one.hybrid(system)).left
    return hybridtree_data.probabilities(hybridtree_data.predict(model, dealt.test))


def all_in(one: Experiment, dealt: Dealt) -> Likely:
    """The product's own trees on the union of all tables."""
    return _local(one, dealt.train.whole(), dealt.test.whole())


def all_in_xgboost(one: Experiment, dealt: Dealt) -> Likely:
    """XGBoost's histogram trees on the same, with categories as such and its own bins."""
    import xgboost

    train, test = dealt.train.whole(), dealt.test.whole()
    kinds = ["c" if c in train.categorical else "q" for c in range(train.values.shape[1])]
    given: dict[str, Any] = {
        **SHAPE, "max_depth": one.depth, "objective": "binary:logistic", "tree_method": "hist",
        "nthread": 1,
    }  # fmt: skip

    def matrix(table: TrainingTable) -> xgboost.DMatrix:
        values = np.ascontiguousarray(table.values)
        return xgboost.DMatrix(values, table.y, feature_types=kinds, enable_categorical=True)

    booster = xgboost.train(given, matrix(train), one.trees)
    return np.asarray(booster.predict(matrix(test)), np.float64)


def alone(one: Experiment, dealt: Dealt) -> Likely:
    """The guest without any host."""
    return _local(one, dealt.train.alone(), dealt.test.alone())


def with_one_host(one: Experiment, dealt: Dealt, host: str) -> Likely | None:
    """Two-party SecureBoost, which loses nothing: the trees of the rows that both have.

    On test rows that the host does not have its columns are missing. None where the shared rows
    are of one class, from which nothing can be learned.
    """
    shared = dealt.train.take(dealt.train.indices[host])
    if len(np.unique(shared.y)) < 2:
        return None
    return _local(one, shared.with_host(host), dealt.test.with_host(host))


def _local(one: Experiment, train: TrainingTable, test: TrainingTable) -> Likely:
    return metrics.one_column(local.train(train, one.params).predict(test.values))


def tree_level(one: Experiment, dealt: Dealt) -> Likely:
    """TFL: in turn every party grows a whole tree on its own rows and columns, guest first.

    Hosts are given the labels of their rows, and everybody the margins so far of its own; a tree
    adds to the rows, for training or for testing, that its party has.
    """
    params, y = one.params, dealt.train.y
    summary = Summary.of(params, y, np.ones(len(y)))
    objective = objectives.start_objective(params, summary)
    fixed = objectives.encoding(params, objective, summary)
    pairs = list(zip(_holdings(dealt.train), _holdings(dealt.test), strict=True))
    parties = [_Grower.of(params, own, held) for own, held in pairs]
    margin, tested = (
        np.tile(objective.base_margin, (len(part.y), 1)) for part in (dealt.train, dealt.test)
    )
    for number in range(params.n_estimators):
        party = parties[number % len(parties)]
        rules = Rules(params, party.cuts, fixed)
        own = party.own
        rows = Watched(own.bins(party.cuts), y[own.rows], np.ones(len(own.rows)), margin[own.rows])
        (tree,) = local.grow_round(rules, objective, rows, number, (party.cuts.n_columns,))
        margin[own.rows] += tree.value[tree.leaf_of_bins(rows.bins, party.cuts.missing)]
        bins = party.held.bins(party.cuts)
        tested[party.held.rows] += tree.value[tree.leaf_of_bins(bins, party.cuts.missing)]
    return metrics.one_column(objectives.transform(params.objective, tested))


@dataclass(frozen=True)
class _Holding:
    """What one party has of some rows."""

    rows: NDArray[np.int64]  # which they are
    values: NDArray[np.float32]
    categorical: tuple[int, ...]

    def bins(self, cuts: Binning) -> NDArray[np.uint8]:
        return cuts.transform(self.values)


def _holdings(parties: Parties) -> list[_Holding]:
    """The guest's, then each host's."""
    frames = [(np.arange(parties.guest.n_rows), parties.guest)]
    frames += [(parties.indices[host], frame) for host, frame in parties.hosts.items()]
    return [_Holding(rows, np.asarray(own.values), own.categorical) for rows, own in frames]


@dataclass(frozen=True)
class _Grower:
    """A party that grows trees on its `own` rows, which then add to those `held` for testing."""

    cuts: Binning
    own: _Holding
    held: _Holding

    @classmethod
    def of(cls, params: TreeParams, own: _Holding, held: _Holding) -> _Grower:
        return cls(binning.fit(own.values, params.max_bin, own.categorical), own, held)


SYSTEMS: Mapping[str, Callable[[Experiment, Dealt], Likely]] = {
    SCORED: scored,
    UNSCORED: unscored,
    SOLO: alone,
    TFL: tree_level,
    ALL_XGBOOST: all_in_xgboost,
    ALL_LOCAL: all_in,
}


# Figures and plots


def figures(rows: Sequence[Row]) -> dict[str, float]:
    """INTERFACE.md's figures of accuracy, of scored splits and five hosts; means over seeds."""
    found: dict[str, float] = {}
    for group in grouped(of(rows, "accuracy"), "data", "table"):
        own = [row for row in group if row["dealing"]["hosts"] == FIGURED_HOSTS]
        if group[0]["table"] == MAIN and own:
            found[f"accuracy_gap.{group[0]['data']}"] = mean(map(gap, own))
            found[f"gain_over_single_host.{group[0]['data']}"] = mean(map(gain, own))
    return found


def gap(row: Row) -> float:
    """The better ALL-IN, less HybridTree."""
    scores = row["scores"]
    best = max(scores[one]["accuracy"] for one in ALL_IN)
    return float(best - scores[SCORED]["accuracy"])


def gain(row: Row) -> float:
    """HybridTree, less the best that SecureBoost with a single host comes to on all test rows."""
    ways = (row["scores"][way] for way in (MISSING, FALLING_BACK))
    single = [one["accuracy"] for way in ways for one in way if one is not None]
    return float(row["scores"][SCORED]["accuracy"] - max(single))


COLOURS = {SCORED: 1, UNSCORED: 1, TFL: 3, ALL_LOCAL: 4, SOLO: 2, EACH: 3, FALLING_BACK: 2}
DASHED = (UNSCORED, FALLING_BACK, EACH)


def drawn(rows: Sequence[Row]) -> dict[str, Picture | None]:
    """Accuracy by hosts, and by the concentration of classes with test rows dealt evenly: Figures 6
    and 8 of the paper.
    """
    found: dict[str, Picture | None] = {}
    for group in grouped(of(rows, "accuracy"), "data"):
        data = group[0]["data"]
        hosts = [(float(row["value"]), row) for row in group if row["table"] == SCALE]
        plain = [row for row in group if row["table"] == MAIN and row["dealing"]["seed"] == 0]
        first = [row for row in plain if row["dealing"]["hosts"] == FIGURED_HOSTS]
        hosts = [(float(FIGURED_HOSTS), row) for row in first] + hosts
        found[f"hosts-{data}"] = _lines(f"{data}: test accuracy, by hosts", hosts, "hosts")
        even = [row for row in group if row["table"] == SKEW and not row["dealing"]["skewed_test"]]
        skewed = [(math.log10(row["value"]), row) for row in even]
        title = f"{data}: test accuracy, by log10 of β"
        found[f"skew-{data}"] = _lines(title, skewed, "log10 of β")
    return found


def _lines(title: str, points: Sequence[tuple[float, Row]], x: str) -> Picture | None:
    lines = [
        Line(system, [(at, _accuracy(row, system)) for at, row in points], colour,
             dashed=system in DASHED)
        for system, colour in COLOURS.items()
    ]  # fmt: skip
    return plots.lines(title, lines, x)


def _accuracy(row: Row, system: str) -> float:
    """Of single hosts the mean."""
    score = row["scores"][system]
    if isinstance(score, list):
        return float(mean(one["accuracy"] for one in score if one is not None))
    return float(score["accuracy"])
