"""Candidates for defaults: what jobs reach, how many a budget allows, and what attacks then find.

A whole budget is attacked as one long job, with as many trees as all its jobs have together.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.privacy import Plan, Trained, Variant, as_rows, trained
from benchmarks.rows import Row, Shown, grouped, number
from benchmarks.tables import GUEST, HOST, Table
from fedboost import flow, protocols
from fedboost.audit import attacks, transcript
from fedboost.audit.attacks import AttackPlan
from fedboost.audit.findings import Linking
from fedboost.ground.settings import parse_settings
from fedboost.protocols.secureboost.params import SecureBoostParams
from fedboost.runtime.config.policy import Policy

BUDGETS = "budgets"
LIMIT = Policy().disclosure_max
COLUMNS = 2  # that are attacked
ATTACK_MAX = 2e8  # leaves by rows: beyond, an attack takes an hour
DEFAULT = SecureBoostParams()
GOSS: dict[str, Any] = {"goss": {"top_rate": 0.3, "other_rate": 0.2}}


def candidate(depth: int, trees: int) -> dict[str, Any]:
    """Return the settings of a job."""
    return {"max_depth": depth, "n_estimators": trees}


OWN = candidate(DEFAULT.max_depth, DEFAULT.n_estimators)
CANDIDATES: dict[str, Mapping[str, Any]] = {
    f"default: {DEFAULT.n_estimators} trees of depth {DEFAULT.max_depth}": OWN,
    "default, half the columns": OWN | {"colsample_bytree": 0.5},
    "default, GOSS": OWN | GOSS,
    "25 of depth 4": candidate(4, 25),
    "25 of depth 5": candidate(5, 25),
    "100 of depth 6": candidate(6, 100),
}
LINKINGS: tuple[Linking, ...] = ("neighbours", "all")


def iterations(planned: float, counted: float, limit: float) -> int:
    """Return how many such jobs a budget allows, one after the other."""
    return 0 if planned > limit else 1 + int((limit - planned) / counted + 1e-9)


def measure(name: str, plan: Plan) -> Iterator[Row]:
    """Each candidate, and what a whole budget of default jobs tells."""
    table = plan.table(name)
    rows = []
    for variant, params in CANDIDATES.items():
        if params["n_estimators"] <= plan.trees or plan.rows is None:
            rows.append(_measured(table, variant, params))
    yield from rows
    if plan.rows is None and rows[0]["iterations"] > 1:
        whole = OWN | {"n_estimators": OWN["n_estimators"] * rows[0]["iterations"]}
        if _can_be_attacked(whole, rows[0]["rows"]):
            said = f"all {rows[0]['iterations']} default jobs"
            yield _measured(table, said, whole) | {"iterations": None}


def _measured(table: Table, variant: str, params: Mapping[str, Any]) -> Row:
    done = trained(table, Variant(params))
    row = {"what": BUDGETS, "variant": variant, **_told(done, params)}
    row["iterations"] = iterations(row["planned"], row["ratio"], LIMIT)
    row["attacks"] = _attacked(done) if _can_be_attacked(params, row["rows"]) else []
    return row


def _can_be_attacked(params: Mapping[str, Any], rows: int) -> bool:
    return bool(params["n_estimators"] * 2 ** params["max_depth"] * rows <= ATTACK_MAX)


def _told(done: Trained, params: Mapping[str, Any]) -> Row:
    """What the meter forecasts and counts, by training rows."""
    releases = transcript.known_releases(done.room.kept[HOST])
    columns = releases.cells.shape[1]
    protocol = protocols.load_protocol("secureboost")
    assert protocol.policy.releases is not None
    own = parse_settings(protocol.params, {**params, "encryption": {"scheme": "plain"}})
    planned = protocol.policy.releases(own, flow.Table(GUEST, (HOST,)), HOST, columns)
    rows = releases.n_rows
    sums = done.room.sessions[HOST].state.meter.equations
    divided = np.bincount(done.left[HOST].arrays["feature"], minlength=columns)
    counted = float((sums + divided).max()) / rows
    return {"planned": planned.ratio(rows), "ratio": counted, "rows": rows, "auc": done.auc}


def _attacked(done: Trained) -> list[Row]:
    releases = transcript.known_releases(done.room.kept[HOST])
    asked = AttackPlan(LINKINGS, COLUMNS)
    found = attacks.attack_host(releases, asked, done.room.gradients.__getitem__)
    return as_rows(found)


def shown(rows: Sequence[Row]) -> list[Shown]:
    """A table for each data set."""
    return [_shown(group) for group in grouped(rows, "data")]


def _shown(group: Sequence[Row]) -> Shown:
    lines = []
    for row in group:
        by_linking = {one["linking"]: one for one in row["attacks"]}
        cells = [
            f"{one['value']:.3f} ({one['value'] / one['chance']:.1f} ×)"
            if (one := by_linking.get(linking))
            else ""
            for linking in LINKINGS
        ]
        possible = "" if row["iterations"] is None else str(row["iterations"])
        told = (number(row["planned"], 4), number(row["ratio"], 4))
        auc = number(row["auc"]["validation"], 4)
        lines.append((row["variant"], auc, *told, possible, *cells))
    precisions = (f"precision, linking {name}" for name in LINKINGS)
    heads = ("trees", "validation AUC", "forecast", "counted", f"jobs at {LIMIT:g}", *precisions)
    title = f"{group[0]['data']}: jobs that a budget allows ({group[0]['rows']:,} training rows)"
    return Shown(title, heads, lines)
