"""The encrypted jobs of the HybridTree benchmark: trees, and predictions, on daemons."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from benchmarks import harness, hybridtree_data, plus_jobs
from benchmarks.federboost_jobs import Params
from benchmarks.harness import JobRun, say
from benchmarks.hybridtree_accuracy import (
    GOSS,
    HYBRID,
    MAX_BIN,
    SCORED,
    SHAPE,
    UNSCORED,
    Experiment,
)
from benchmarks.hybridtree_data import LABEL, Dealing
from benchmarks.hybridtree_plan import MANY, ONE, PAIR, Plan
from benchmarks.plus_tables import Row
from benchmarks.tree_cost import Cost
from fedboost.core import local
from fedboost.data.sources import SourceSpec
from fedboost.data.split import write_tables
from fedboost.ground.settings import parse
from fedboost.job import JobSpec
from fedboost.runtime.cluster.local import DATASET

NODE_LEVEL, PLUS = "SecureBoost, all switches off", "SecureBoost+"
PLUS_SAMPLED = "SecureBoost+, GOSS"
SECUREBOOST = "SecureBoost"  # whose predictions no switch changes
SWITCHES: dict[str, dict[str, Any]] = {NODE_LEVEL: plus_jobs.OFF, PLUS: {}, PLUS_SAMPLED: GOSS}
SYSTEMS = (NODE_LEVEL, PLUS, PLUS_SAMPLED, *HYBRID)
SCHEME, KEY_BITS = "paillier", 2048
PREDICTIONS = ("predict", "predict-hybrid")
HOSTS = {ONE: 1, MANY: 5, PAIR: 5}
TIMED: dict[str, Sequence[str]] = {ONE: SYSTEMS, MANY: tuple(HYBRID), PAIR: (NODE_LEVEL, PLUS)}
PREDICTED: dict[str, Sequence[str]] = {
    ONE: (SECUREBOOST, SCORED, UNSCORED),
    MANY: (SCORED, UNSCORED),
}
PLAIN = frozenset({SECUREBOOST, SCORED})  # predict without ciphertexts: so does a plain model


def encrypted(scheme: str) -> dict[str, Any]:
    """How gradients are hidden."""
    return {"scheme": scheme, "key_bits": KEY_BITS}


def protocol_of(system: str) -> str:
    """The one that trains it."""
    return "hybridtree" if system in HYBRID else "secureboost"


def params(system: str, data: str, trees: int, scheme: str) -> dict[str, Any]:
    """The parameters of a job; trees have seven layers in all."""
    if system in HYBRID:
        own = Experiment("", data, trees=trees).hybrid(system)
    else:
        own = {**SHAPE, "max_bin": MAX_BIN, "max_depth": 7, "n_estimators": trees}
        own |= {"eval_metric": ["error"], **SWITCHES[system]}
    return {**own, "encryption": encrypted(scheme)}


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
        if setting == PAIR:
            found = dict(list(found.items())[:2])
        return cls(name, found)

    def job(self, protocol: str, given: Params) -> JobSpec:
        """A job of all parties."""
        guest, *hosts = self.tables
        data: dict[str, dict[str, Any]] = {party: {"dataset": DATASET} for party in self.tables}
        if protocol not in PREDICTIONS:
            data[guest]["label"] = LABEL
            for party, own in self.tables.items():
                data[party]["categorical"] = hybridtree_data.texts(own)
        return parse(
            JobSpec,
            {
                "name": self.name,
                "protocol": protocol,
                "parties": {"guest": guest, "hosts": hosts},
                "data": data,
                "params": dict(given),
            },
        )

    def facts(self) -> Row:
        """What the data is."""
        guest, *hosts = self.tables.values()
        return {
            "data": self.name,
            "rows": guest.num_rows,
            "hosts": len(hosts),
            "host_rows": sum(own.num_rows for own in hosts),
            "columns": [guest.num_columns - 2, hosts[0].num_columns - 1],  # id and label
        }


Run = Callable[[str, Params], JobRun]


@contextmanager
def daemons(parties: Cluster, first: str, given: Params) -> Iterator[Run]:
    """Runs jobs by protocol and parameters, one after the other; the first one's come before."""
    with tempfile.TemporaryDirectory() as folder:
        paths = write_tables(dict(parties.tables), Path(folder) / "data", Path(folder) / "none")
        sources = {party: SourceSpec(path=str(path)) for party, path in paths.items()}
        spec = parties.job(first, given)
        with harness.daemons(spec, sources, Path(folder) / "cluster") as run:
            yield lambda protocol, own: run(parties.job(protocol, own))


def measure_trees(name: str, plan: Plan) -> list[Row]:
    """What a tree takes by system, in each setting."""
    rows = []
    for setting in plan.settings:
        parties = Cluster.of(name, setting, plan.timed_rows[name])
        given = params(PLUS, name, 1, SCHEME)
        with daemons(parties, protocol_of(PLUS), given) as run:
            for system in TIMED[setting]:
                trees = plan.timed_trees(system == NODE_LEVEL)
                say.print(f"[bold]{name}[/], {setting}: {trees} trees, {system}")
                done = run(protocol_of(system), params(system, name, trees, SCHEME))
                rows.append(
                    {"what": "trees", **parties.facts(), "setting": setting, "system": system,
                     "trees": trees, **asdict(Cost.of(done)), "party_cpu_s": by_party(done)}
                )  # fmt: skip
    return [*rows, measure_pooled(name, plan)]


def by_party(run: JobRun) -> dict[str, float]:
    """Processor seconds of a tree by party, the making of keys included."""
    spent: dict[str, float] = {}
    for step in run.steps:
        if step.stage == run.result["protocol"]:
            for party, seconds in step.cpu_seconds.items():
                spent[party] = spent.get(party, 0.0) + seconds / len(run.trees)
    return spent


def measure_pooled(name: str, plan: Plan) -> Row:
    """Seconds of a tree on the union of all tables, without encryption."""
    pooled = hybridtree_data.load(name).sample(plan.timed_rows[name], 1)
    table = hybridtree_data.deal(pooled, Dealing(1)).train.whole()
    one = Experiment("", name, trees=10)
    local.train(table, one.params)
    started = time.perf_counter()
    local.train(table, one.params)
    spent = (time.perf_counter() - started) / one.trees
    return {"what": "pooled", "data": name, "rows": len(table.y), "wall_s": spent}


def measure_predictions(name: str, plan: Plan) -> list[Row]:
    """What the prediction of all rows takes, by system.

    Models of systems that predict without ciphertexts are trained without any.
    """
    rows = []
    for setting in [one for one in plan.settings if one in PREDICTED]:
        parties = Cluster.of(name, setting, plan.predicted_rows)
        first = params(SCORED, name, 1, "plain")
        with daemons(parties, protocol_of(SCORED), first) as run:
            for system in PREDICTED[setting]:
                say.print(f"[bold]{name}[/], {setting}: prediction, {system}")
                scheme = "plain" if system in PLAIN else SCHEME
                model = run(
                    protocol_of(system),
                    params(PLUS if system == SECUREBOOST else system, name, plan.trees, scheme),
                )
                found = [_predicted(run, system, model) for _ in range(plan.repeats)]
                rows.append(
                    {"what": "predictions", **parties.facts(), "setting": setting,
                     "system": system, "trees": plan.trees,
                     "seconds": [one["seconds"]["predict"] for one in found],
                     "sent": found[-1]["sent"], "exchanges": found[-1]["exchanges"],
                     "load": harness.load_average()}
                )  # fmt: skip
    return rows


def _predicted(run: Run, system: str, model: JobRun) -> dict[str, Any]:
    """The result of a prediction; bytes and exchanges are those of its own stage."""
    plain, hybrid = PREDICTIONS
    protocol = hybrid if system in HYBRID else plain
    given = {"model": model.result["job"]}
    if system in HYBRID:
        given["split"] = HYBRID[system]["split"]
    done = run(protocol, given)
    own = [step for step in done.steps if step.stage == protocol and step.bytes]
    return {
        **done.result,
        "sent": sum(sum(step.bytes.values()) for step in own),
        "exchanges": sum(step.calls for step in own),
    }
