"""Horizontal FederBoost: what it costs in accuracy and time, a half of `federboost`."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from statistics import mean, median
from typing import Any

import numpy as np

from benchmarks import harness, links, room, tables
from benchmarks.harness import Around, JobRun
from benchmarks.room import Params, Trained
from benchmarks.rows import Row, grouped, of
from benchmarks.tables import GUEST, Table
from fedboost.aggregation.contributor import CHECK_WORDS
from fedboost.aggregation.measures import PooledCounts
from fedboost.core import binning, local, objectives
from fedboost.core.local import Watched
from fedboost.core.objectives import Summary
from fedboost.core.params import TreeParams
from fedboost.core.rules import Rules
from fedboost.crypto.masking import MASK_KEY_BYTES, Pair, add_stream
from fedboost.ground.settings import parse_settings
from fedboost.protocols.federboost_horizontal.boosting import TreeBoosting

UTILITY = ("give_credit", "default_credit", "susy_30k")  # of Figure 5
FAR = ("give_credit", "susy_30k")  # those of the paper's Figure 6 that are trained on daemons, too
COMPARED = "susy_30k"  # cut to the rows and columns of Table 2
HELD = 1 / 3  # of the rows, for testing
BUCKETS = 24  # where the paper's AUC is best: 26 of the first data set, 24 of the second
EXACT = 0  # the tolerance of the paper's own search
PARTIES = 3
APART = "aggregator"  # the party that adds up and has no data, where the guest does not
ONE_PROCESS, DAEMONS = "one process", "daemons"
OF_XGBOOST = ("n_estimators", "max_depth", "learning_rate", "reg_lambda")
TREES: dict[str, dict[str, Any]] = {  # section 6 of the paper
    "give_credit": {"n_estimators": 20, "max_depth": 3},
    "default_credit": {"n_estimators": 20, "max_depth": 3},
    "susy_30k": {"n_estimators": 60, "max_depth": 4},
    "covtype": {"n_estimators": 32, "max_depth": 4},
}
SHARED: dict[str, Any] = {"learning_rate": 0.3, "reg_lambda": 1.0, "max_bin": BUCKETS}

Shares = Mapping[str, Table]  # each party's rows, the guest's first
Train = Callable[[Params], JobRun]


@dataclass(frozen=True)
class Plan:
    """How much of the whole a run does."""

    rows: int | None = None  # of a data set at most; None: all
    seeds: tuple[int, ...] = tuple(range(5))  # each a split of its own
    buckets: tuple[int, ...] = tuple(range(4, 33, 4))
    aggregators: tuple[str, ...] = (GUEST, APART)  # of Table 2
    trees: int = 200  # of Table 2
    repeats: int = 5  # timed jobs of Table 2, of which the median counts, after one more
    again: int = 1  # the same by parties; 0: the first job counts
    walked: tuple[int, ...] = (2, 4, 8, 16, 32)  # parties in one process
    daemons: tuple[int, ...] = (2, 4, 8)  # parties, each a daemon
    dropouts: tuple[str, ...] = ("wait", "continue")  # on the wide area
    wan_trees: tuple[int, int] = (2, 12)  # of two jobs there; their difference is a tree's cost


QUICK = Plan(
    rows=3000, seeds=(0,), buckets=(BUCKETS,), aggregators=(GUEST,), trees=4, repeats=0, again=0,
    walked=(2,), daemons=(2,), dropouts=(), wan_trees=(1, 2),
)  # fmt: skip


def params(name: str, **more: Any) -> dict[str, Any]:
    """The paper's trees for a data set, with the metric that takes least time, and `more`."""
    return {**SHARED, **TREES[name], "eval_metric": ["error"], **more}


def xgboost_params(given: Params) -> dict[str, Any]:
    """What XGBoost is told of the same; its own bins are its default's."""
    return {name: given[name] for name in OF_XGBOOST}


@contextmanager
def daemons(
    shares: Shares, aggregator: str = GUEST, around: Around = nullcontext
) -> Iterator[Train]:
    """Trains with such parameters, job after job, on daemons of their own; nothing is held out."""

    def spec(given: Params) -> Any:
        names = list(shares)
        return harness.job("federboost-horizontal", names, given, names, aggregator)

    first = spec(params(shares[GUEST].name))
    with harness.daemons(first, lambda at: tables.deal_rows(shares, at), around) as run:
        yield lambda given: run(spec(given))


def utility(name: str, plan: Plan) -> Iterator[Row]:
    """AUC by buckets, beside XGBoost's."""
    table = tables.binary(name).sample(plan.rows)
    shapes: list[tuple[int, int | None]] = [(buckets, None) for buckets in plan.buckets]
    for seed in plan.seeds:
        held = table.held_out(HELD, seed)
        test, shares = table.where(held), tables.shares(table.where(~held), PARTIES)
        same = xgboost_params(params(name))
        pooled = tables.xgboost_scores(table, held, same, harness.cores())["validation"]
        for buckets, tolerance in (*shapes, (BUCKETS, EXACT)):
            given = params(name, max_bin=buckets, quantile_tolerance=tolerance)
            shards = room.train_horizontal(shares, given, GUEST).shards
            auc = room.auc(test, room.predict_whole(shards, test))
            yield {**table.size, "seed": seed, "buckets": buckets, "tolerance": tolerance,
                   "auc": auc, "xgboost": pooled}  # fmt: skip


def compared(name: str, plan: Plan) -> Iterator[Row]:
    """Table 2 on daemons, with its steps; in one process; and the floor."""
    table = tables.load(name).sample(8192).sample(plan.rows).first_columns(11)
    shares = tables.shares(table, PARTIES)
    given = params(name, n_estimators=plan.trees, max_depth=4)
    size = {**table.size, "parties": PARTIES, "trees": plan.trees}
    for aggregator in plan.aggregators:
        with daemons(shares, aggregator) as train:
            first, runs = harness.repeated(lambda: train(given), plan.repeats)
        steps = [asdict(step) for step in runs[-1].of_stage()]
        timed = {**harness.took(first, runs), **_phases_of(runs), "steps": steps}
        yield {**size, "network": DAEMONS, "by": aggregator, **timed}
    yield {**size, "network": ONE_PROCESS, "by": GUEST, **walk(shares, given, plan.repeats)}
    for _ in range(2):  # compiled functions are loaded the first time
        alone = primitives(table, shares, given)
    yield {"what": "horizontal_floor", **size, **alone}


def parties(name: str, plan: Plan) -> Iterator[Row]:
    """Seconds by the number of parties, quantiles and trees apart."""
    table, given = tables.binary(name).sample(plan.rows), params(name)
    for count in plan.walked:
        walked = walk(tables.shares(table, count), given, plan.again)
        yield {**table.size, "network": ONE_PROCESS, "parties": count, **walked}
    for count in plan.daemons if name in FAR else ():
        with daemons(tables.shares(table, count)) as train:
            first, runs = harness.repeated(lambda: train(given), plan.again)
        timed = {**harness.took(first, runs), **_phases_of(runs)}
        yield {**table.size, "network": DAEMONS, "parties": count, **timed}


def wide_area(name: str, plan: Plan) -> Iterator[Row]:
    """Seconds, exchanges and bytes of two numbers of trees, for each way to lose a party."""
    table = tables.load(name).sample(plan.rows)
    with daemons(tables.shares(table, PARTIES), around=links.shaped) as train:
        for dropout in plan.dropouts:
            shape = {"dropout": dropout, "colluders": 0 if dropout == "continue" else 1}
            for trees in plan.wan_trees:
                given = params(name, n_estimators=trees, **shape)
                run = train(given)
                yield {
                    **table.size, "parties": PARTIES, "depth": given["max_depth"],
                    "dropout": dropout, "trees": trees, **harness.took(run, [run]),
                    "exchanges": run.result["exchanges"] / 2,  # both ways of each are counted
                    "searches": run.step("count_below").calls,
                    "rounds": [one["seconds"] for one in run.rounds],
                }  # fmt: skip


def walk(shares: Shares, given: Params, repeats: int) -> Row:
    """What a stage takes in this process, after a first one if there are repeats."""
    load, found, cpu = harness.load_average(), list[Trained](), list[float]()
    for _ in range(1 + repeats):
        started = time.process_time()
        found.append(room.train_horizontal(shares, given, GUEST))
        cpu.append(time.process_time() - started)
    counted = found[1:] or found
    return {
        "seconds": [one.ended - one.began for one in counted],
        "first": found[0].ended - found[0].began,
        "cpu_s": median(cpu[1:] or cpu),
        "sent": sum(found[-1].sent.values()),
        "load": load,
        **_medians([phases(one.ends, one.began, one.ended) for one in counted]),
    }


def phases(ends: Mapping[str, float], began: float, ended: float) -> Row:
    """Seconds up to the last cut point, up to the last tree's metrics, and behind these."""
    narrowed, measured = ends["narrow"], ends["read_metrics"]
    return {"quantiles": narrowed - began, "trees": measured - narrowed, "rest": ended - measured}


def _phases_of(runs: Sequence[JobRun]) -> Row:
    """Of jobs on daemons, by the coordinator's clock."""
    found = []
    for run in runs:
        ended = run.ends[run.result["protocol"]]
        found.append(phases(run.ends, ended - run.result["seconds"]["train"], ended))
    return _medians(found)


def _medians(spent: Sequence[Row]) -> Row:
    return {"phases": {name: median(one[name] for one in spent) for name in spent[0]}}


# The floor: what training costs without its protocol. The parties' trees grow from the plain sums
# of their vectors, one party after the other in this thread: no messages, sessions or daemons.
# Masks are put on vectors of the same lengths beside.


@dataclass
class Clock:
    """Seconds by what they were spent on."""

    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def on(self, what: str) -> Iterator[None]:
        """Counts what happens inside."""
        started = time.perf_counter()
        yield
        self.seconds[what] = self.seconds.get(what, 0.0) + time.perf_counter() - started


def tree_params(given: Params) -> TreeParams:
    """Those of a job's settings that are the trees'."""
    return parse_settings(
        TreeParams, {k: v for k, v in given.items() if k in TreeParams.model_fields}
    )


def primitives(table: Table, shares: Shares, given: Params) -> Row:
    """Seconds of the pooled trees, of all parties' primitives by kind, and the words of one
    party's vectors.
    """
    clock, lengths, own = Clock(), list[int](), tree_params(given)
    with clock.on("pooled"):
        local.train(local.TrainingTable(table.values, table.y.astype(np.float64)), own)
    with clock.on("bins and gradients"):
        planted = _planted(table, shares, own)
    while not planted[0].measures.ends:
        _grow(planted, clock, lengths)
        with clock.on("metrics"):
            total: Any = np.sum([one.measures.round_tally(one.watched) for one in planted], axis=0)
            lengths.append(len(total))
            for one in planted:
                one.measures.hear(total)
    with clock.on("masks"):
        _mask(lengths, len(shares))
    return {"alone": clock.seconds, "vectors": len(lengths), "words": sum(lengths)}


def _planted(table: Table, shares: Shares, params: TreeParams) -> list[TreeBoosting]:
    """Every party before its first tree."""
    y = table.y.astype(np.float64)
    summary = Summary.of(params, y, np.ones(len(y)))
    objective = objectives.start_objective(params, summary)
    cuts = binning.fit(table.values, params.max_bin)
    rules = Rules(params, cuts, objectives.encoding(params, objective, summary))
    present = np.count_nonzero(~np.isnan(table.values), axis=0).astype(np.int64)
    counts = PooledCounts(len(y), 0, present, weight_bound=1.0, label_bound=1.0)
    found = []
    for place, share in enumerate(shares.values()):
        own = local.TrainingTable(share.values, share.y.astype(np.float64))
        watched = {"train": Watched.of(own, cuts, objective)}
        found.append(TreeBoosting(rules, (objective, summary, counts), watched, place))
    return found


def _grow(planted: Sequence[TreeBoosting], clock: Clock, lengths: list[int]) -> None:
    """A round of trees, layer by layer."""
    while planted[0].layer == 0 or planted[0].needs_layer:
        with clock.on("histograms"):
            vectors = [one.sums() for one in planted]
        total = np.sum(vectors, axis=0)
        lengths.append(len(total))
        with clock.on("splits"):
            for one in planted:
                one.take(total)
    with clock.on("margins"):
        for one in planted:
            one.close_round()


def _mask(lengths: Sequence[int], parties: int) -> None:
    """Every party's masks on vectors of these lengths."""
    pair = Pair(bytes(MASK_KEY_BYTES), bytes(MASK_KEY_BYTES))
    for number, length in enumerate(lengths):
        words = np.zeros(length + CHECK_WORDS, np.uint64)
        for stream in range(parties * (parties - 1)):
            add_stream(words, pair.stream_key(b"%d %d" % (number, stream)), 1)


# Figures


def gap(group: Sequence[Row]) -> float:
    """Mean AUC of some jobs above XGBoost's on the same splits."""
    return float(mean(row["auc"] - row["xgboost"] for row in group))


def by_buckets(rows: Sequence[Row]) -> list[list[Row]]:
    """Jobs with the default tolerance, by data set and buckets."""
    near = [row for row in of(rows, "horizontal_utility") if row["tolerance"] != EXACT]
    return list(grouped(near, "data", "buckets"))


def figures(rows: Sequence[Row]) -> dict[str, float]:
    """INTERFACE.md's, and what a tree takes on the wide area; absent where not measured."""
    found: dict[str, float] = {}
    for row in of(rows, "horizontal_200"):
        if (row["network"], row["by"]) == (DAEMONS, GUEST):
            found["horizontal_200_seconds"] = median(row["seconds"])
    for group in by_buckets(rows):
        if group[0]["buckets"] == BUCKETS:
            found[f"auc_gap.horizontal.{group[0]['data']}"] = abs(gap(group))
    for group in grouped(of(rows, "horizontal_wan"), "dropout"):
        fewer, *_, more = sorted(group, key=lambda row: int(row["trees"]))
        for what in ("exchanges", "sent"):
            slope = (more[what] - fewer[what]) / (more["trees"] - fewer["trees"])
            found[f"wan_tree.{what}.{group[0]['dropout']}"] = slope
        found[f"wan_tree.seconds.{group[0]['dropout']}"] = median(more["rounds"])
    return found
