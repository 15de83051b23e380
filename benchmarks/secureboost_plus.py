"""What each optimisation of SecureBoost+ saves, over real daemons, and what its modes cost.

python -m benchmarks.secureboost_plus [--quick] [--json F] [--record F] [--data NAME]
[--part accuracy|time] [--plots FOLDER] [--from F]
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks import harness, plus_counts, plus_jobs, plus_plots, plus_tables, tables
from benchmarks.harness import say
from benchmarks.parts import Parted
from benchmarks.plus_counts import Shape
from benchmarks.plus_jobs import BINARY, CLASSES, DATA, MODES, PATIENCE, ROUNDS, VARIANTS, Plan
from benchmarks.plus_tables import Row
from benchmarks.tables import HOST, Table
from benchmarks.tree_cost import Cost
from fedboost.crypto.packing import GhLayout


@dataclass(frozen=True)
class Timed:
    """One job to be timed."""

    rounds: int
    params: Mapping[str, Any]

    @property
    def cycle(self) -> int:
        """Rounds in which every party has its turn."""
        return plus_jobs.CYCLE if self.params.get("mode") == "mix" else 1


def train(table: Table, scheme: str, jobs: Mapping[str, Timed]) -> dict[str, Cost]:
    """What a tree of each job takes, on the same daemons."""
    costs = {}
    with plus_jobs.daemons(table, scheme) as run:
        for name, job in jobs.items():
            size = f"{len(table.y)} rows, {len(plus_jobs.parts(table)[HOST])} host columns"
            say.print(f"[bold]{table.name}[/]: {size}, {job.rounds} rounds, {scheme}, {name}")
            costs[name] = Cost.of(run(job.rounds, job.params), job.cycle)
    return costs


def measure_switches(name: str, plan: Plan) -> list[Row]:
    """Times baseline, switches and modes on one data set."""
    rows = []
    for part, table, variants in plan.switch_tables(name):
        for scheme in plan.schemes:
            jobs = {v: Timed(plan.timed_rounds(v), VARIANTS[v]) for v in variants}
            rows += [
                {"what": "switches", **_facts(table), "part": part, "scheme": scheme,
                 "variant": variant, "rounds": jobs[variant].rounds, **asdict(cost)}
                for variant, cost in train(table, scheme, jobs).items()
            ]  # fmt: skip
    return rows


def measure_operations(name: str, plan: Plan) -> list[Row]:
    """Operations of a tree, as the equations say and as counted, before and after."""
    table = plan.timed_table(name)
    bits = plus_jobs.KEY_BITS["paillier"] - 1
    kept = int((~table.held_out(**plus_jobs.VALIDATION)).sum())
    columns = len(plus_jobs.parts(table)[HOST])
    fixed = 62 - (kept - 1).bit_length()
    capacity = GhLayout(min(53, fixed), kept, bits).lanes[0].capacity
    shape = Shape(kept, columns, plus_jobs.SHAPE["max_bin"], plus_jobs.DEPTH, capacity)
    equations = {
        "baseline": ("8 to 10", plus_counts.baseline(shape), plus_jobs.OFF),
        "all but GOSS": ("13 to 15", plus_counts.plus(shape), {}),
    }
    rows = []
    for variant, (numbers, predicted, params) in equations.items():
        with plus_counts.counting(bits) as done:
            plus_jobs.plain(table, plan.rounds, params)
        counted = done.per_tree(plan.rounds)
        rows.append(
            {"what": "operations", **_facts(table), "variant": variant, "equations": numbers,
             "shape": asdict(shape), "predicted": predicted.named(), "counted": counted.named()}
        )  # fmt: skip
    return rows


def measure_auc(name: str, plan: Plan) -> list[Row]:
    """AUC of every mode beside XGBoost's."""
    table = plan.accuracy_table(name)
    facts = {"what": "auc", **_facts(table)}
    rows = [{**facts, "mode": plus_tables.XGBOOST, **_xgboost(table, ROUNDS)}]
    for mode, switches in MODES.items():
        found = plus_jobs.plain(table, ROUNDS, switches).result["metrics"]
        rows.append({**facts, "mode": mode, **{part: found[part]["auc"] for part in found}})
    return rows


def measure_curves(name: str, plan: Plan) -> list[Row]:
    """Accuracy round by round of multi-output trees and of one tree a class, and XGBoost's."""
    table = plan.sample(name)
    rows = []
    for kind, params in CLASSES.items():
        rounds = plan.multi_target * (PATIENCE if params else 1)
        rows.append({"kind": kind, **_curve(table, rounds, params)})
    pooled = _xgboost(table, plan.multi_target)
    scores: Row = {part: [score] for part, score in pooled.items()}
    rows.append({"kind": plus_tables.XGBOOST, **scores, "released": []})
    return [{"what": "curves", **_facts(table), **row} for row in rows]


def _curve(table: Table, rounds: int, params: Mapping[str, Any]) -> Row:
    """Accuracy by part, and decryptions up to then with no two sums in a package, by round."""
    released: list[float] = []
    with plus_counts.counting(plus_jobs.KEY_BITS["paillier"] - 1) as done:
        found = plus_jobs.plain(
            *(table, rounds, {**params, "cipher_compressing": False}),
            after_round=lambda: released.append(done.decryptions),
        ).rounds
    curves = {part: [one[f"{part}.accuracy"] for one in found] for part in _PARTS}
    return {**curves, "released": released}


def measure_multi(name: str, plan: Plan) -> list[Row]:
    """Times multi-output trees beside those of one class, compressing off and on."""
    table = plan.timed_table(name)
    jobs = {
        (kind, compress): Timed(
            plan.multi_trees if params else 1, {**params, "cipher_compressing": compress}
        )
        for kind, params in CLASSES.items()
        for compress in (False, True)
    }
    rows = []
    for scheme in plan.schemes:
        named = {f"{kind}, compressing {on}": job for (kind, on), job in jobs.items()}
        costs = train(table, scheme, named)
        rows += [
            {"what": "multi", **_facts(table), "scheme": scheme, "kind": kind,
             "compressing": compress, **asdict(cost)}
            for (kind, compress), cost in zip(jobs, costs.values(), strict=True)
        ]  # fmt: skip
    return rows


_PARTS = ("train", "validation")


def _facts(table: Table) -> Row:
    facts = {"data": table.name, "rows": len(table.y)}
    return {
        **facts,
        "host_columns": len(plus_jobs.parts(table)[HOST]),
        "classes": int(table.y.max()) + 1,
    }


def _xgboost(table: Table, rounds: int) -> dict[str, float]:
    held = table.held_out(**plus_jobs.VALIDATION)
    params = {**plus_jobs.SHAPE, "max_depth": plus_jobs.DEPTH, "n_estimators": rounds}
    return tables.xgboost_scores(table, held, params, harness.cores())


def measure(name: str, plan: Plan, part: str) -> list[Row]:
    """Everything of one data set and part of the benchmark, in rows as JSON can say them."""
    if name in BINARY:
        if part == "time":
            return measure_switches(name, plan)
        return [*measure_auc(name, plan), *measure_operations(name, plan)]
    return measure_multi(name, plan) if part == "time" else measure_curves(name, plan)


def settings(plan: Plan, _: bool) -> dict[str, Any]:
    """What was run, in words and numbers."""
    bits = plus_jobs.KEY_BITS
    return {
        **plus_jobs.SHAPE,
        "max_depth": plus_jobs.DEPTH,
        "n_estimators": ROUNDS,
        "schemes": [f"{scheme}, {bits[scheme]} bits" for scheme in plan.schemes],
        "layered": plus_jobs.LAYERED,
        "goss": plus_jobs.GOSS["goss"],
        "validation": f"{plus_jobs.VALIDATION['fraction']} by id, seed {plus_jobs.SEED}",
        "parties": "1 guest, 1 host",
        **{name.replace("_", " "): value for name, value in asdict(plan).items()},
    }


BENCHMARK = Parted(
    "secureboost_plus", __doc__ or "", DATA, ("accuracy", "time"),
    lambda asked: Plan.of(quick=asked.quick), settings, measure, plus_tables.figures,
    plus_tables.shown, plus_plots.write,
)  # fmt: skip


if __name__ == "__main__":
    BENCHMARK.main()
