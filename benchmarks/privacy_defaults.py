"""Candidates for defaults: what jobs reach, how many a budget allows, and what attacks then find.

A whole budget is attacked as one long job, with as many trees as all its jobs have together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.harness import Shown, say
from benchmarks.plus_tables import Row, grouped, number
from benchmarks.privacy_jobs import Plan, Trained, Variant, as_rows, loaded, trained
from benchmarks.tables import GUEST, HOST, Table
from fedboost import flow, protocols
from fedboost.audit import attacks, transcript
from fedboost.audit.attacks import AttackPlan
from fedboost.audit.findings import Linking
from fedboost.runtime.config.policy import Policy
from fedboost.settings import parse

BUDGETS = "budgets"
LIMITS = (Policy().disclosure_max, 0.3)
COLUMNS = 2  # that are attacked
WHOLE_MAX = 13_000_000  # trees by rows of a whole budget: beyond, an attack takes an hour
GOSS = {"goss": {"top_rate": 0.3, "other_rate": 0.2}}
HALF = {"colsample_bytree": 0.5}


def candidate(depth: int, trees: int, **more: Any) -> Mapping[str, Any]:
    """Return the settings of a job."""
    return {"max_depth": depth, "n_estimators": trees, **more}


CANDIDATES: dict[str, Mapping[str, Any]] = {
    "depth 3, 25 trees": candidate(3, 25),
    "depth 3, 15 trees": candidate(3, 15),
    "depth 3, 25 trees, half the columns": candidate(3, 25, **HALF),
    "depth 3, 25 trees, GOSS": candidate(3, 25, **GOSS),
    "depth 3, 50 trees": candidate(3, 50, learning_rate=0.2),
    "depth 4, 25 trees": candidate(4, 25),
    "depth 5, 25 trees": candidate(5, 25),
    "depth 6, 100 trees": candidate(6, 100),
}
WHOLE = ("depth 3, 25 trees", "depth 5, 25 trees")
LINKINGS: tuple[Linking, ...] = ("neighbours", "all")


def iterations(planned: float, counted: float, limit: float) -> int:
    """Return how many such jobs a budget allows, one after the other."""
    return 0 if planned > limit else 1 + int((limit - planned) / counted + 1e-9)


def measure(name: str, plan: Plan) -> list[Row]:
    """Each candidate, and what whole budgets of some tell."""
    table = loaded(name, plan)
    rows = [_measured(table, variant, params) for variant, params in CANDIDATES.items()]
    for row in [row for row in rows if row["variant"] in WHOLE]:
        for limit, jobs in zip(LIMITS, row["iterations"], strict=True):
            params = dict(CANDIDATES[row["variant"]])
            params["n_estimators"] *= jobs
            if 0 < params["n_estimators"] * row["rows"] <= WHOLE_MAX:
                said = f"{row['variant']}: all {jobs} jobs of {limit:g}"
                rows.append(_measured(table, said, params) | {"iterations": []})
    return rows


def _measured(table: Table, variant: str, params: Mapping[str, Any]) -> Row:
    done = trained(table, Variant(params))
    row = {"what": BUDGETS, "data": table.name, "variant": variant, **_told(done, params)}
    row["iterations"] = [iterations(row["planned"], row["ratio"], limit) for limit in LIMITS]
    row["found"] = _attacked(done)
    say.print(f"{table.name}: {row}")
    return row


def _told(done: Trained, params: Mapping[str, Any]) -> Row:
    """What the meter forecasts and counts, by training rows."""
    releases = transcript.releases(done.room.kept[HOST])
    columns = releases.cells.shape[1]
    protocol = protocols.named("secureboost")
    assert protocol.releases is not None
    own = parse(protocol.params, {**params, "encryption": {"scheme": "plain"}})
    planned = protocol.releases(own, flow.Table(GUEST, (HOST,)), HOST, columns)
    rows = releases.n_rows
    sums = done.room.sessions[HOST].state.meter.equations
    divided = np.bincount(done.left[HOST].arrays["feature"], minlength=columns)
    counted = float((sums + divided).max()) / rows
    return {"planned": planned.ratio(rows), "ratio": counted, "rows": rows, "auc": done.auc}


def _attacked(done: Trained) -> list[Row]:
    releases = transcript.releases(done.room.kept[HOST])
    asked = AttackPlan(LINKINGS, COLUMNS)
    found = attacks.of_host(releases, asked, done.room.gradients.__getitem__)
    return as_rows(found)


def shown(rows: Sequence[Row]) -> list[Shown]:
    """A table for each data set."""
    return [_shown(group) for group in grouped(rows, "data")]


def _shown(group: Sequence[Row]) -> Shown:
    lines = []
    for row in group:
        by_linking = {one["linking"]: one for one in row["found"]}
        cells = [
            f"{one['value']:.3f} ({one['value'] / one['chance']:.1f} ×)"
            if (one := by_linking.get(linking))
            else ""
            for linking in LINKINGS
        ]
        possible = [str(count) for count in row["iterations"]] or [""] * len(LIMITS)
        told = (number(row["planned"], 4), number(row["ratio"], 4))
        auc = number(row["auc"]["validation"], 4)
        lines.append((row["variant"], auc, *told, *possible, *cells))
    budgets = (f"jobs at {limit:g}" for limit in LIMITS)
    precisions = (f"precision, linking {name}" for name in LINKINGS)
    heads = ("job", "validation AUC", "forecast", "counted", *budgets, *precisions)
    title = f"{group[0]['data']}: jobs that budgets allow ({group[0]['rows']:,} training rows)"
    return Shown(title, heads, lines)
