"""What each optimisation of SecureBoost+ saves, over real daemons, and what its modes cost.

python -m benchmarks.secureboost_plus [--quick] [--json F] [--markdown F] [--data NAME]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any, Self

import numpy as np

from benchmarks import harness, plus_counts, plus_jobs, tables
from benchmarks.harness import JobRun, Report, Shown, say
from benchmarks.plus_counts import Shape
from benchmarks.plus_jobs import BINARY, DATA, MODES, ROUNDS, VARIANTS, Plan
from benchmarks.tables import HOST, Table
from fedboost.crypto.packing import GhLayout

CLASSES: dict[str, dict[str, Any]] = {
    "one tree a class": {},
    "multi-output": {"multi_output": True},
}
PATIENCE = 4  # times the rounds of one tree a class: then a multi-output model is given up
INTRO = """# SecureBoost+: what each optimisation saves

Written by `python -m benchmarks.secureboost_plus --markdown F`; run it again to refresh it. One
guest, one host and a coordinator are daemons of their own on one machine, on loopback with mTLS.

`cut_all` is the share of the baseline's wall time for a tree (all switches off) that is saved with
all switches on, GOSS among them; `cut_mix` and `cut_layered` are shares of what is then left. Times
are medians of rounds after the first, of a mix of whole cycles after the first, in which every
party has its turn. `auc_gap` is
|training AUC − that of XGBoost's `hist` on the pooled rows with the same settings|, with scheme
`plain`, which grows the same trees. `multi_output_time` is the time to build a multi-output model
of the training accuracy that one tree per class ends with, divided by the time in which one tree
per class gets there first: an encrypted round's median, times rounds counted with `plain`.

iterative-affine (1024 bits) is broken and below every policy's minimum; it is timed, with leave,
because the paper does so."""


@dataclass(frozen=True)
class Cost:
    """What one round takes."""

    wall_s: float  # median of cycles, their mean each; the first cycle warms up
    cpu_s: float  # of both parties, mean
    sent: float  # bytes on the data plane, mean
    load: list[float]  # average before

    @classmethod
    def of(cls, run: JobRun, cycle: int = 1) -> Self:
        """Of a job's rounds, `cycle` of which give every party its turn.

        The key's making and sharing, done once, is left out.
        """
        seconds = [one["seconds"] for one in run.rounds]
        counted = seconds[cycle:] or seconds
        cycles = [counted[i : i + cycle] for i in range(0, len(counted), cycle)]
        own = [step for step in run.steps if step.stage == "secureboost"]
        own = [step for step in own if step.step != "share_key"]
        rounds = len(run.rounds)
        return cls(
            wall_s=median(sum(each) / len(each) for each in cycles),
            cpu_s=sum(sum(step.cpu_seconds.values()) for step in own) / rounds,
            sent=sum(sum(step.bytes.values()) for step in own) / rounds,
            load=run.load_before,
        )


def cut(cost: Cost, of: Cost) -> float:
    """Share of the wall time saved."""
    return 1.0 - cost.wall_s / of.wall_s


def train(table: Table, rounds: int, scheme: str, variant: str, params: Mapping[str, Any]) -> Cost:
    """A timed job, with its name said."""
    say.print(f"[bold]{table.name}[/]: {len(table.y)} rows, {rounds} rounds, {scheme}, {variant}")
    cycle = plus_jobs.CYCLE if params.get("mode") == "mix" else 1
    return Cost.of(plus_jobs.timed(table, rounds, scheme, params), cycle)


def measure_switches(name: str, plan: Plan, report: Report) -> list[Shown]:
    """Times baseline, switches and modes on one data set; fills rows and figures."""
    table = plan.timed_table(name)
    shown = []
    for scheme in plan.schemes:
        costs = {
            variant: train(table, plan.timed_rounds(variant), scheme, variant, params)
            for variant, params in VARIANTS.items()
            if plan.alone or variant not in plus_jobs.ALONE
        }
        report.rows += [
            {"data": name, "rows": len(table.y), "scheme": scheme, "variant": variant,
             "rounds": plan.timed_rounds(variant), **asdict(cost)}
            for variant, cost in costs.items()
        ]  # fmt: skip
        if scheme == "paillier":
            report.figures |= cuts(name, costs)
        shown.append(_times(f"{name}, {scheme}: {len(table.y)} rows, one tree", costs))
    return [*shown, measure_counts(table, plan, report)]


def cuts(name: str, costs: Mapping[str, Cost]) -> dict[str, float]:
    """The figures of one data set."""
    return {
        f"cut_all.{name}": cut(costs["all"], costs["baseline"]),
        f"cut_mix.{name}": cut(costs["mix"], costs["all"]),
        f"cut_layered.{name}": cut(costs["layered"], costs["all"]),
    }


def _times(title: str, costs: Mapping[str, Cost]) -> Shown:
    rows = [
        (
            *(variant, f"{cost.wall_s:.2f}", f"{cost.cpu_s:.2f}", f"{cost.sent:,.0f}"),
            *(f"{cut(cost, costs['baseline']):.1%}", f"{cut(cost, costs['all']):.1%}"),
            ", ".join(map(str, cost.load)),
        )
        for variant, cost in costs.items()
    ]
    heads = ("variant", "wall s", "CPU s", "bytes", "saved of baseline", "of all", "load average")
    return Shown(title, heads, rows)


def measure_counts(table: Table, plan: Plan, report: Report) -> Shown:
    """Operations of a tree, as the equations say and as counted, before and after."""
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
        report.rows.append(
            {"data": table.name, "variant": variant, "shape": asdict(shape),
             "predicted": asdict(predicted), "counted": asdict(counted)}
        )  # fmt: skip
        for what in ("additions", "encryptions", "decryptions", "ciphertexts"):
            one, other = getattr(predicted, what), getattr(counted, what)
            rows.append((variant, what, numbers, f"{one:,.0f}", f"{other:,.0f}",
                         f"{other / one:.2f}"))  # fmt: skip
    note = (
        f"Of one tree; n = {kept}, m = {columns}, b = {shape.bins}, h = {shape.depth}, c = "
        f"{capacity}. The equations take full trees with all bins filled and 2^h nodes; a job "
        "opens 2^h − 1 at most, lists a missing value's candidates twice, and starts each sum "
        "from a first term."
    )
    heads = ("variant", "operations", "equations", "predicted", "counted", "counted ÷ predicted")
    return Shown(f"{table.name}: operations", heads, rows, note)


def measure_auc(name: str, plan: Plan, report: Report) -> Shown:
    """AUC of every mode beside XGBoost's."""
    table = plan.accuracy_table(name)
    held = table.held_out(**plus_jobs.VALIDATION)
    params = {**plus_jobs.SHAPE, "max_depth": plus_jobs.DEPTH, "n_estimators": ROUNDS}
    pooled = tables.xgboost_auc(table, held, params, harness.cores())
    rows = [("XGBoost, pooled", f"{pooled['train']:.5f}", f"{pooled['validation']:.5f}", "")]
    for mode, switches in MODES.items():
        found = plus_jobs.plain(table, ROUNDS, switches).result["metrics"]
        auc = {part: found[part]["auc"] for part in pooled}
        gap = auc["train"] - pooled["train"]
        report.figures[f"auc_gap.{mode}.{name}"] = abs(gap)
        report.rows.append(
            {"data": name, "mode": mode, "rows": len(table.y), "auc": auc, "xgboost": pooled}
        )
        rows.append((mode, f"{auc['train']:.5f}", f"{auc['validation']:.5f}", f"{gap:+.5f}"))
    heads = ("mode", "train", "validation", "train gap")
    return Shown(f"{name}: AUC after {ROUNDS} trees, {len(table.y)} rows", heads, rows)


@dataclass(frozen=True)
class Reached:
    """Rounds until a training accuracy was reached first; None where it never was."""

    target: float
    rounds: dict[str, int | None]  # by CLASSES

    @classmethod
    def of(cls, curves: Mapping[str, Sequence[float]]) -> Self:
        """The target is the accuracy of one tree a class after its last round."""
        target = curves["one tree a class"][-1]
        return cls(target, {kind: first_at_least(target, c) for kind, c in curves.items()})

    def ratio(self, costs: Mapping[str, Cost]) -> float | None:
        """Building time of multi-output trees ÷ that of one tree a class, both to the target."""
        spent = {}
        for kind, rounds in self.rounds.items():
            if rounds is None:
                return None
            spent[kind] = rounds * costs[kind].wall_s
        return spent["multi-output"] / spent["one tree a class"]


def first_at_least(target: float, curve: Sequence[float]) -> int | None:
    """The first round, from 1, that reaches the target."""
    reached = np.flatnonzero(np.asarray(curve) >= target)
    return int(reached[0]) + 1 if len(reached) else None


def measure_multi(name: str, plan: Plan, report: Report) -> Shown:
    """Multi-output trees beside one tree a class, compressing off and on."""
    table = plan.timed_table(name)
    curves = {
        kind: [
            one["train.accuracy"]
            for one in plus_jobs.plain(
                table, plan.multi_target * (PATIENCE if params else 1), params
            ).rounds
        ]
        for kind, params in CLASSES.items()
    }
    reached = Reached.of(curves)
    rows = []
    for compress, figure in ((False, "multi_output_time"), (True, "multi_output_time_compressed")):
        costs = {
            kind: train(table, plan.multi_rounds, "paillier", f"{kind}, compressing {compress}",
                        {**params, "cipher_compressing": compress})
            for kind, params in CLASSES.items()
        }  # fmt: skip
        ratio = reached.ratio(costs)
        if ratio is not None:
            report.figures[f"{figure}.{name}"] = ratio
        for kind, cost in costs.items():
            rounds = reached.rounds[kind]
            report.rows.append(
                {"data": name, "rows": len(table.y), "kind": kind, "compressing": compress,
                 "target": reached.target, "rounds_to_target": rounds, **asdict(cost)}
            )  # fmt: skip
            rows.append(
                (
                    *(kind, "on" if compress else "off", f"{cost.wall_s:.2f}", f"{cost.cpu_s:.2f}"),
                    *(f"{cost.sent:,.0f}", f"{curves[kind][plan.multi_target - 1]:.4f}"),
                    *(str(rounds), f"{rounds * cost.wall_s:.1f}" if rounds else "never"),
                )
            )
    heads = ("trees", "compressing", "round, wall s", "CPU s", "bytes",
             f"accuracy, {plan.multi_target} rounds", "rounds to target",
             "s to target")  # fmt: skip
    note = f"Target: training accuracy {reached.target:.4f}, with {len(table.y)} rows in all."
    return Shown(f"{name}: {int(table.y.max()) + 1} classes", heads, rows, note)


def settings(plan: Plan, *, quick: bool) -> dict[str, Any]:
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
        "quick": quick,
    }


def main(given: Sequence[str] | None = None) -> None:
    """Runs the benchmark as the command line says."""
    options = harness.arguments("secureboost_plus", __doc__ or "", DATA, given)
    plan = Plan.of(quick=options.quick)
    report = Report("secureboost_plus", settings(plan, quick=options.quick))
    shown: list[Shown] = []
    for name in options.data:
        if name in BINARY:
            shown += [*measure_switches(name, plan, report), measure_auc(name, plan, report)]
        else:
            shown.append(measure_multi(name, plan, report))
    report.write(options, shown, INTRO)


if __name__ == "__main__":
    main()
