"""HybridTree beside all else that hybrid data allows: accuracy, time, bytes, shared rules."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from benchmarks import (
    boosting,
    harness,
    hybridtree_accuracy,
    hybridtree_data,
    hybridtree_rules,
    plots,
)
from benchmarks.boosting import PAILLIER, PLAIN, SCHEMES
from benchmarks.harness import Cost, JobRun
from benchmarks.hybridtree_accuracy import (
    GOSS,
    HYBRID,
    MAX_BIN,
    SAMPLED,
    SCORED,
    SHAPE,
    UNSCORED,
    Experiment,
)
from benchmarks.hybridtree_data import DATA, LABEL, Dealing
from benchmarks.plots import Group, Picture
from benchmarks.question import Part, Question
from benchmarks.room import Params
from benchmarks.rows import Row, grouped, of
from fedboost.core import local
from fedboost.data.sources import SourceSpec
from fedboost.data.split import write_tables
from fedboost.ground.settings import parse_settings
from fedboost.job import JobSpec
from fedboost.report.charts import Bar
from fedboost.runtime.cluster.local import DATASET

NODE_LEVEL, PLUS = "SecureBoost, all switches off", "SecureBoost+"
PLUS_SAMPLED = "SecureBoost+, GOSS"
SECUREBOOST = "SecureBoost"  # whose predictions no switch changes
SWITCHES: dict[str, dict[str, Any]] = {NODE_LEVEL: boosting.OFF, PLUS: {}, PLUS_SAMPLED: GOSS}
SYSTEMS = (NODE_LEVEL, PLUS, PLUS_SAMPLED, *HYBRID)
PREDICTIONS = ("predict", "predict-hybrid")
ONE, MANY, PAIR = "one host", "five hosts", "one of five hosts"
HOSTS = {ONE: 1, MANY: 5, PAIR: 5}
TIMED: dict[str, Sequence[str]] = {ONE: SYSTEMS, MANY: tuple(HYBRID), PAIR: (NODE_LEVEL, PLUS)}
PREDICTED: dict[str, Sequence[str]] = {
    ONE: (SECUREBOOST, SCORED, UNSCORED),
    MANY: (SCORED, UNSCORED),
}
WITHOUT = frozenset({SECUREBOOST, SCORED})  # predict without ciphertexts: so does a plain model
COLOURS = {NODE_LEVEL: 6, PLUS: 3, PLUS_SAMPLED: 3, SCORED: 1, SAMPLED: 1, UNSCORED: 2}


@dataclass(frozen=True)
class Plan:
    """How much of the whole a run does."""

    accuracy: hybridtree_accuracy.Plan = field(default_factory=hybridtree_accuracy.Plan)
    timed_rows: Mapping[str, int] = field(  # of a data set, where encrypted trees are timed
        default_factory=lambda: {"adult": 1 << 62, "covtype": 20_000}
    )
    settings: tuple[str, ...] = (ONE, MANY, PAIR)  # whose hosts are timed
    systems: tuple[str, ...] = SYSTEMS  # that are timed
    fast_trees: int = 4  # timed ones, the first of which warms up
    slow_trees: int = 2  # the same with all switches off
    predicted_rows: int = 2000
    predicted_trees: int = 50
    repeats: int = 3  # of a prediction
    depth: int = 7  # of timed trees
    rule_rows: int = hybridtree_rules.ROWS_MAX  # of a data set at most, whose rules are counted
    rule_trees: int = hybridtree_rules.TREES


QUICK = Plan(
    hybridtree_accuracy.QUICK, {"adult": 80, "covtype": 60}, (ONE,),
    systems=(NODE_LEVEL, PLUS, SCORED), fast_trees=1, slow_trees=1,
    predicted_rows=60, predicted_trees=1, repeats=1, depth=4, rule_rows=500, rule_trees=3,
)  # fmt: skip


def protocol_of(system: str) -> str:
    """The one that trains it."""
    return "hybridtree" if system in HYBRID else "secureboost"


def params(system: str, trees: int, scheme: str, depth: int = 7) -> dict[str, Any]:
    """The parameters of a job; trees have so many layers in all."""
    if system in HYBRID:
        own = Experiment("", "", trees=trees, depth=depth).hybrid(system)
    else:
        own = {**SHAPE, "max_bin": MAX_BIN, "max_depth": depth, "n_estimators": trees}
        own |= {"eval_metric": ["error"], **SWITCHES[system]}
    return {**own, "encryption": SCHEMES[scheme]}


@dataclass(frozen=True)
class Cluster:
    """Whose daemons run, and on which files."""

    name: str
    tables: Mapping[str, pa.Table]  # by party, the guest's first

    @classmethod
    def of(cls, name: str, setting: str, rows: int) -> Cluster:
        """A data set's parties; so many rows of the guest's at most."""
        pooled = hybridtree_data.load(name).sample(rows, 1)
        found = hybridtree_data.files(pooled, Dealing(HOSTS[setting]))
        return cls(name, dict(list(found.items())[:2]) if setting == PAIR else found)

    def job(self, protocol: str, given: Params) -> JobSpec:
        """A job of all parties."""
        guest, *hosts = self.tables
        data: dict[str, dict[str, Any]] = {party: {"dataset": DATASET} for party in self.tables}
        if protocol not in PREDICTIONS:
            data[guest]["label"] = LABEL
            for party, own in self.tables.items():
                data[party]["categorical"] = hybridtree_data.texts(own)
        parties = {"guest": guest, "hosts": hosts}
        raw = {"name": self.name, "protocol": protocol, "parties": parties, "data": data}
        return parse_settings(JobSpec, {**raw, "params": dict(given)})

    @contextmanager
    def daemons(self, first: str, given: Params) -> Iterator[Callable[[str, Params], JobRun]]:
        """Runs jobs by protocol and parameters; the first one's come before."""

        def deal(folder: Path) -> dict[str, SourceSpec]:
            paths = write_tables(dict(self.tables), folder, folder / "none")
            return {party: SourceSpec(path=str(path)) for party, path in paths.items()}

        with harness.daemons(self.job(first, given), deal) as run:
            yield lambda protocol, own: run(self.job(protocol, own))

    def facts(self) -> Row:
        """What the data is."""
        guest, *hosts = self.tables.values()
        columns = [guest.num_columns - 2, hosts[0].num_columns - 1]  # id and label
        rows = {"rows": guest.num_rows, "host_rows": sum(own.num_rows for own in hosts)}
        return {**rows, "hosts": len(hosts), "columns": columns}


def trees(name: str, plan: Plan) -> Iterator[Row]:
    """What a tree takes by system, in each setting; and on the union of all tables."""
    for setting in plan.settings:
        parties = Cluster.of(name, setting, plan.timed_rows[name])
        with parties.daemons(protocol_of(PLUS), params(PLUS, 1, PAILLIER)) as run:
            for system in filter(plan.systems.__contains__, TIMED[setting]):
                count = plan.slow_trees if system == NODE_LEVEL else plan.fast_trees
                done = run(protocol_of(system), params(system, count, PAILLIER, plan.depth))
                named = {"setting": setting, "system": system, "trees": count}
                spent = {**asdict(Cost.of(done)), "party_cpu_s": done.by_party()}
                yield {**parties.facts(), **named, **spent}
    pooled = hybridtree_data.load(name).sample(plan.timed_rows[name], 1)
    table = hybridtree_data.deal(pooled, Dealing(1)).train.whole()
    one = Experiment("", name, trees=10)
    for _ in range(2):  # compiled functions are loaded the first time
        started = time.perf_counter()
        local.train(table, one.params)
        seconds = (time.perf_counter() - started) / one.trees
    yield {"what": "pooled", "rows": len(table.y), "wall_s": seconds}


def predictions(name: str, plan: Plan) -> Iterator[Row]:
    """What the prediction of all rows takes, by system.

    Models of systems that predict without ciphertexts are trained without any.
    """
    for setting in [one for one in plan.settings if one in PREDICTED]:
        parties = Cluster.of(name, setting, plan.predicted_rows)
        with parties.daemons(protocol_of(SCORED), params(SCORED, 1, PLAIN)) as run:
            for system in PREDICTED[setting]:
                trained = PLUS if system == SECUREBOOST else system
                scheme = PLAIN if system in WITHOUT else PAILLIER
                given = params(trained, plan.predicted_trees, scheme, plan.depth)
                model = run(protocol_of(system), given)
                found = [predicted(run, system, model) for _ in range(plan.repeats)]
                named = {"setting": setting, "system": system, "trees": plan.predicted_trees}
                seconds = [one["seconds"] for one in found]
                yield {**parties.facts(), **named, **found[-1], "seconds": seconds}


def predicted(run: Callable[[str, Params], JobRun], system: str, model: JobRun) -> Row:
    """What a prediction takes; bytes and exchanges are those of its own stage."""
    protocol = PREDICTIONS[system in HYBRID]
    split = {"split": HYBRID[system]["split"]} if system in HYBRID else {}
    done = run(protocol, {"model": model.result["job"], **split})
    own = [step for step in done.of_stage(protocol) if step.bytes]
    exchanges = sum(step.calls for step in own)
    seconds = done.result["seconds"]["predict"]
    return {"seconds": seconds, "sent": harness.sent(own), "exchanges": exchanges}


def rules(name: str, plan: Plan) -> Iterator[Row]:
    """Figure 3a."""
    given = hybridtree_rules.PARAMS.model_copy(update={"n_estimators": plan.rule_trees})
    yield hybridtree_rules.measured(name, given, plan.rule_rows)


def figures(rows: Sequence[Row]) -> dict[str, float]:
    """INTERFACE.md's figures, of scored splits; those that the rows do not give are absent."""
    found = hybridtree_accuracy.figures(rows)
    ratios = {
        "speedup": (NODE_LEVEL, "wall_s"),
        "bytes_saving": (NODE_LEVEL, "sent"),
        "speedup_plus": (PLUS, "wall_s"),
    }
    for group in grouped(of(rows, "trees"), "data"):
        own = {row["system"]: row for row in group if row["setting"] == ONE}
        for name, (other, what) in ratios.items():
            if other in own and SCORED in own:
                found[f"{name}.{group[0]['data']}"] = own[other][what] / own[SCORED][what]
    return found


def drawn(rows: Sequence[Row]) -> dict[str, Picture]:
    """Figures 3a, 6 and 8 of the paper; wall seconds of a tree by system: Tables 2 and 11."""
    groups = [
        Group(
            f"{own[0]['data']}, {own[0]['setting']}: {own[0]['host_rows']:,} rows of hosts",
            {row["system"]: Bar(row["wall_s"], COLOURS[row["system"]], plots.seconds(row))
             for row in own},
        )
        for own in grouped(of(rows, "trees"), "data", "setting")
    ]  # fmt: skip
    found = hybridtree_accuracy.drawn(rows)
    found["trees"] = plots.bars("Seconds to build one tree", groups)
    found["rules"] = hybridtree_rules.drawn(rows)
    return plots.known(found)


QUESTION = Question(
    *("hybridtree", __doc__ or ""),
    {
        "accuracy": Part(lambda n, plan: hybridtree_accuracy.measure(n, plan.accuracy), DATA),
        "trees": Part(trees, DATA),
        "predictions": Part(predictions, DATA),
        "rules": Part(rules, hybridtree_rules.DATA),
    },
    full=Plan(),
    quick=QUICK,
    figures=figures,
    plots=drawn,
    settings={**SHAPE, "max_bin": MAX_BIN, "layers": "5 of the guest, 2 of hosts"},
)

if __name__ == "__main__":
    QUESTION.main()
