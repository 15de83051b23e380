"""What each optimisation of SecureBoost+ saves, over real daemons, and what its modes cost."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np

from benchmarks import boosting, harness, plots, tables
from benchmarks.boosting import AFFINE, BINARY, DEPTH, MULTI, OFF, PAILLIER, ROUNDS, SWITCHES
from benchmarks.harness import Cost
from benchmarks.plots import Group, Picture
from benchmarks.question import Part, Question
from benchmarks.rows import Row, grouped, of
from benchmarks.tables import Table
from fedboost.report.charts import Bar

GOSS: dict[str, Any] = {"goss": {"top_rate": 0.2, "other_rate": 0.1}}
ALL: dict[str, Any] = {**dict.fromkeys(SWITCHES, True), **GOSS}
MIX: dict[str, Any] = {"mode": "mix", "trees_per_party": 1}
LAYERED: dict[str, Any] = {"mode": "layered", "host_depth": 3, "guest_depth": 2}
CYCLE = 2  # rounds in which each party of a mix has had its turn
ALONE: dict[str, dict[str, Any]] = {
    **{switch: {**OFF, switch: True} for switch in SWITCHES},
    "goss": {**OFF, **GOSS},
}
VARIANTS: dict[str, dict[str, Any]] = {
    **{"baseline": OFF, **ALONE, "all": ALL},
    **{"mix": {**ALL, **MIX}, "layered": {**ALL, **LAYERED}},
}
TOGETHER = tuple(variant for variant in VARIANTS if variant not in ALONE)
MODES: dict[str, dict[str, Any]] = {"default": {}, "goss": GOSS, "mix": MIX, "layered": LAYERED}
XGBOOST = "XGBoost, pooled"
ONE, SEVERAL = "one tree a class", "multi-output"
CLASSES: dict[str, dict[str, Any]] = {ONE: {}, SEVERAL: {"multi_output": True}}
PATIENCE = 4  # times the rounds of one tree a class: then a multi-output model is given up


@dataclass(frozen=True)
class Plan:
    """How much of the whole a run does."""

    rows_max: Mapping[str, int]  # of a data set, where encrypted jobs are timed; absent: all
    host_columns: Mapping[str, int]  # of a data set at most, there; absent: all
    alone_columns: Mapping[str, int]  # the same where each switch is timed alone
    accuracy_rows: int | None  # of a table trained in plain; None: all
    accuracy_rounds: int
    rounds: int  # timed ones
    slow_rounds: int  # timed ones with most switches off
    multi_trees: int  # timed multi-output trees
    multi_target: int  # rounds of one tree a class, whose accuracy multi-output is to reach
    alone: bool  # whether each switch is timed alone, too
    depth: int  # of timed trees
    schemes: tuple[str, ...]

    def timed_rounds(self, variant: str) -> int:
        """Rounds of a variant's timed job; those of a mix are whole cycles."""
        return self.rounds if variant in ("all", "mix", "layered") else self.slow_rounds

    def sample(self, name: str) -> Table:
        """The rows that encrypted jobs are timed on, with all columns."""
        return tables.load(name).sample(self.rows_max.get(name))

    def timed_table(self, name: str) -> Table:
        """The rows and columns that encrypted jobs are timed on."""
        return boosting.fewer_columns(self.sample(name), self.host_columns.get(name))

    def switch_tables(self, name: str) -> list[tuple[str, Table, tuple[str, ...]]]:
        """What is timed together: a name, a table, variants, the baseline first."""
        if not self.alone:
            return [("together", self.timed_table(name), TOGETHER)]
        if name not in self.alone_columns:
            return [("together", self.timed_table(name), tuple(VARIANTS))]
        few = boosting.fewer_columns(self.sample(name), self.alone_columns[name])
        return [
            ("together", self.timed_table(name), TOGETHER),
            ("alone", few, ("baseline", *ALONE)),
        ]


FULL = Plan(
    rows_max={"give_credit": 30_000, "covtype": 5000}, host_columns={"sensorless_2k": 8},
    alone_columns={"epsilon_5k": 8}, accuracy_rows=None, accuracy_rounds=ROUNDS, rounds=6,
    slow_rounds=2, multi_trees=4, multi_target=ROUNDS, alone=True, depth=DEPTH,
    schemes=(PAILLIER, AFFINE),
)  # fmt: skip
QUICK = Plan(
    rows_max=dict.fromkeys((*BINARY, *MULTI), 120),
    host_columns=dict.fromkeys((*BINARY, *MULTI), 1),
    alone_columns={}, accuracy_rows=400, accuracy_rounds=2, rounds=4, slow_rounds=1,
    multi_trees=1, multi_target=1, alone=False, depth=1, schemes=(PAILLIER,),
)  # fmt: skip


def switches(name: str, plan: Plan) -> Iterator[Row]:
    """Time baseline, switches and modes."""
    for part, table, variants in plan.switch_tables(name):
        for scheme in plan.schemes:
            with boosting.daemons(table, scheme) as train:
                for variant in variants:
                    rounds, cycle = plan.timed_rounds(variant), CYCLE if variant == "mix" else 1
                    depth = {} if variant == "layered" else {"max_depth": plan.depth}
                    run = train(rounds, scheme, {**VARIANTS[variant], **depth})
                    named = {"part": part, "scheme": scheme, "variant": variant, "rounds": rounds}
                    yield {**boosting.size(table), **named, **asdict(Cost.of(run, cycle))}


def auc(name: str, plan: Plan) -> Iterator[Row]:
    """AUC of every mode beside XGBoost's."""
    table = tables.load(name).sample(plan.accuracy_rows)
    yield {**boosting.size(table), "mode": XGBOOST, **_xgboost(table, plan.accuracy_rounds)}
    for mode, own in MODES.items():
        found = boosting.here(table, plan.accuracy_rounds, own).result["metrics"]
        scores = {part: found[part]["auc"] for part in found}
        yield {**boosting.size(table), "mode": mode, **scores}


def curves(name: str, plan: Plan) -> Iterator[Row]:
    """Accuracy round by round of multi-output trees and of one tree a class, and XGBoost's."""
    table = plan.sample(name)
    for kind, params in CLASSES.items():
        rounds = plan.multi_target * (PATIENCE if params else 1)
        found = [one["metrics"] for one in boosting.here(table, rounds, params).rounds]
        scores = {part: [one[f"{part}.accuracy"] for one in found] for part in PARTS}
        yield {**boosting.size(table), "kind": kind, **scores}
    pooled = _xgboost(table, plan.multi_target)
    yield {**boosting.size(table), "kind": XGBOOST, **{part: [s] for part, s in pooled.items()}}


def multi(name: str, plan: Plan) -> Iterator[Row]:
    """Time multi-output trees beside those of one class, compressing off and on."""
    table = plan.timed_table(name)
    for scheme in plan.schemes:
        with boosting.daemons(table, scheme) as train:
            for kind, params in CLASSES.items():
                for compress in (False, True):
                    rounds = plan.multi_trees if params else 1
                    own = {**params, "cipher_compressing": compress, "max_depth": plan.depth}
                    run = train(rounds, scheme, own)
                    named = {"scheme": scheme, "kind": kind, "compressing": compress}
                    facts = {**boosting.size(table), "classes": table.classes, **named}
                    yield {**facts, **asdict(Cost.of(run))}


PARTS = ("train", "validation")


def _xgboost(table: Table, rounds: int) -> dict[str, float]:
    held = table.held_out(**boosting.VALIDATION)
    params = {**boosting.SHAPE, "max_depth": DEPTH, "n_estimators": rounds}
    return tables.xgboost_scores(table, held, params, harness.cores())


# Figures


def figures(rows: Sequence[Row]) -> dict[str, float]:
    """INTERFACE.md's figures; those that the rows do not give are absent."""
    found: dict[str, float] = {}
    for group in grouped(of(rows, "switches"), "data", "part", "scheme"):
        if (group[0]["part"], group[0]["scheme"]) == ("together", PAILLIER):
            wall = {row["variant"]: row["wall_s"] for row in group}
            for name, whole in (("all", "baseline"), ("mix", "all"), ("layered", "all")):
                found[f"cut_{name}.{group[0]['data']}"] = 1.0 - wall[name] / wall[whole]
    for group in grouped(of(rows, "multi"), "data", "scheme", "compressing"):
        met = Reached.of(group[0]["data"], rows)
        if group[0]["scheme"] == PAILLIER and met is not None:
            one, several = (met.seconds(row) for row in group)
            if one is not None and several is not None:
                name = "multi_output_time" + "_compressed" * group[0]["compressing"]
                found[f"{name}.{group[0]['data']}"] = several / one
    for group in grouped(of(rows, "auc"), "data"):
        pooled = next(row for row in group if row["mode"] == XGBOOST)
        for row in group:
            if row is not pooled:
                gap = abs(row["train"] - pooled["train"])
                found[f"auc_gap.{row['mode']}.{row['data']}"] = gap
    return found


@dataclass(frozen=True)
class Reached:
    """Rounds until a training accuracy was reached first; None where it never was."""

    target: float
    rounds: Mapping[str, int | None]  # of both kinds

    @classmethod
    def of(cls, data: str, rows: Sequence[Row]) -> Self | None:
        """The target is the accuracy of one tree a class after its last round; None without
        curves.
        """
        own = {row["kind"]: row["train"] for row in of(rows, "curves") if row["data"] == data}
        if not own:
            return None
        target = own[ONE][-1]
        there = {kind: np.flatnonzero(np.asarray(own[kind]) >= target) for kind in CLASSES}
        rounds = {kind: int(at[0]) + 1 if len(at) else None for kind, at in there.items()}
        return cls(target, rounds)

    def trees(self, row: Row) -> int | None:
        """Trees of a row's kind that were grown until then."""
        rounds = self.rounds[row["kind"]]
        return None if rounds is None else rounds * (row["classes"] if row["kind"] == ONE else 1)

    def seconds(self, row: Row) -> float | None:
        """Seconds until then, of one row of the part `multi`; None: never."""
        trees = self.trees(row)
        return None if trees is None else float(trees * row["wall_s"])


# Plots


def drawn(rows: Sequence[Row]) -> dict[str, Picture]:
    """Figures 7, 8 and 10 of the paper."""
    return plots.known(
        {
            "trees": plots.bars("Seconds to build one tree", _trees(rows)),
            "multi": plots.bars("Seconds to the accuracy of one tree a class", _multi(rows)),
        }
    )


def _trees(rows: Sequence[Row]) -> list[Group]:
    colours = {"baseline": 6, "all": 1, "mix": 3, "layered": 4}  # a switch alone has 2
    found = []
    for group in grouped(of(rows, "switches"), "data", "part", "scheme"):
        alone = ", each switch alone" if group[0]["part"] == "alone" else ""
        own = {
            row["variant"].replace("_", " "): Bar(
                row["wall_s"], colours.get(row["variant"], 2), plots.seconds(row)
            )
            for row in group
        }
        found.append(Group(f"{_title(group[0])}{alone}: {plots.size(group[0])}", own))
    return found


def _multi(rows: Sequence[Row]) -> list[Group]:
    found = []
    for group in grouped(of(rows, "multi"), "data", "scheme"):
        own, met = {}, Reached.of(group[0]["data"], rows)
        for row in group:
            if met is not None and (seconds := met.seconds(row)) is not None:
                words = f"{seconds:,.0f} s: {met.trees(row)} trees of {row['wall_s']:.2f} s"
                name = f"{row['kind']}{', compressed' * row['compressing']}"
                own[name] = Bar(seconds, 6 if row["kind"] == ONE else 1, words)
        if own and met is not None:
            title = f"{_title(group[0])}: training accuracy {met.target:.3f}"
            found.append(Group(f"{title}, {plots.size(group[0])}", own))
    return found


def _title(row: Row) -> str:
    return f"{row['data']}, {row['scheme']}"


QUESTION = Question(
    *("secureboost_plus", __doc__ or ""),
    {
        "switches": Part(switches, BINARY), "auc": Part(auc, BINARY),
        "curves": Part(curves, MULTI), "multi": Part(multi, MULTI),
    },
    full=FULL, quick=QUICK, figures=figures,
    plots=drawn,
    settings={**boosting.SETTINGS, "layered": LAYERED, "goss": GOSS["goss"]},
)  # fmt: skip

if __name__ == "__main__":
    QUESTION.main()
