"""A trial's verdict is that of daemons whose owners have left every limit as it is by default."""

import json
from pathlib import Path
from typing import Any

import pytest

from fedboost.ground.settings import parse_settings
from fedboost.messages.job_pb2 import JobJournal
from fedboost.runtime.config.policy import Policy
from fedboost.runtime.policy.forecast import with_default_limits
from fedboost.runtime.transport import faults
from tests import tiers
from tests.e2e import world
from tests.support import small_jobs
from tests.support.whole_jobs import written

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("rehearsal")]
LATTICE = {"encryption": {"scheme": "lattice"}}
PAILLIER = {"encryption": {"scheme": "paillier", "key_bits": 2048}}
GOSS = {"top_rate": 0.3, "other_rate": 0.2}
FOREST = {"n_trees": 4, "colsample_bytree": 0.5}

# Jobs by what their tables are, in their order: later ones find what earlier ones have used.
SAME = {
    "plain": ("secureboost", {}, "allow_insecure"),
    "shown_columns": ("federboost-vertical", {"epsilon": 4.0}, "epsilon_element_max"),
    "few_held_out": ("secureboost", {**LATTICE, "held": 0.04}, "holdout_rows_min"),
    "deep": ("secureboost", {**LATTICE, "max_depth": 6}, "disclosure_max"),
    "small": ("secureboost", {**PAILLIER, "n_estimators": 2}, None),
    "again": ("secureboost", {**LATTICE, "n_estimators": 2}, "disclosure_max"),
    "goss": ("secureboost", {**LATTICE, "n_estimators": 1, "max_depth": 2, "goss": GOSS}, None),
}
SOME = {
    "forest": ("secureboost", {**LATTICE, "max_depth": 3, "forest": FOREST}, "disclosure_max"),
    "hybrid": ("hybridtree", {**LATTICE, "n_estimators": 1}, None),
    "hybrid_long": ("hybridtree", {**LATTICE, "n_estimators": 9}, "disclosure_max"),
}
OWN = {
    "exact_cuts": ("federboost-horizontal", {"quantile_tolerance": 3}, "quantile_tolerance_min"),
    "cuts": ("federboost-horizontal", {"quantile_tolerance": None, "max_bin": 8}, None),
    "goes_on": ("gbun", {"dropout": "continue"}, "aggregation_apart_min"),
    "networks": ("gbun", {}, None),
}


def job(tables: str, protocol: str, given: dict[str, Any]) -> dict[str, Any]:
    params = dict(given)
    held = params.pop("held", None)
    raw = small_jobs.raw(protocol, **params)
    raw["params"] = {key: value for key, value in raw["params"].items() if value is not None}
    if held is not None:
        raw["validation"] = {"fraction": held, "seed": 7}
    return raw


class Trial(world.WarmCluster):
    rehearses = True


def verdicts(cluster: world.WarmCluster, jobs: dict[str, Any], tables: str) -> dict[str, Any]:
    """How each job ends on daemons, one after the other."""
    with cluster:
        return {
            name: said(world.run(cluster, job(tables, protocol, params)))
            for name, (protocol, params, _) in jobs.items()
        }


def said(journal: JobJournal) -> tuple[bool, str | None]:
    """Whether a job was accepted, or would be, and by which limit of whom it was not."""
    if journal.status.state == "finished":
        found = world.result(journal).get("rehearsal")
        return (True, None) if found is None else (found["accepted"], found["refused_by"])
    error = faults.error_of_fault(journal.status.reason)
    assert "key" in error.where, error.lines()
    return False, f"{error.where.get('party')}: {error.where['key'].removeprefix('policy.')}"


@world.JOBS
@pytest.mark.parametrize(("tables", "rows", "jobs"), [
    pytest.param("secureboost", 300, SAME, id="same"),
    pytest.param("hybridtree", 800, SOME, id="some", marks=pytest.mark.full),
    pytest.param("gbun", 300, OWN, id="own", marks=pytest.mark.full),
])  # fmt: skip
def test_a_rehearsal_says_what_default_policies_do(
    tmp_path: Path, tables: str, rows: int, jobs: dict[str, Any]
) -> None:
    spec, found = small_jobs.spec(tables), {}
    sources = written(tmp_path, small_jobs.tables(tables, rows))
    if not tiers.runs(tiers.Tier.ALL):
        jobs = {name: jobs[name] for name in ("plain", "few_held_out", "small", "again")}
    for kind in (Trial, world.WarmCluster):
        cluster = kind(tmp_path / kind.__name__, spec, sources, timers=world.TIMERS, workers=1)
        if kind is world.WarmCluster:
            for party in cluster.names:
                world.edit(cluster, party, by_default)
        found[kind] = verdicts(cluster, jobs, tables)
    assert keys(found[Trial]) == {name: limit for name, (_, _, limit) in jobs.items()}
    assert accepted(found[Trial]) == accepted(found[world.WarmCluster])
    assert keys(found[Trial]) == keys(found[world.WarmCluster])


def by_default(raw: dict[str, Any]) -> None:
    """A party's file with the default for every limit."""
    policy = with_default_limits(parse_settings(Policy, raw["policy"]))
    raw["policy"] = json.loads(policy.model_dump_json(exclude_none=True, exclude_unset=True))


def accepted(found: dict[str, Any]) -> dict[str, bool]:
    return {name: ok for name, (ok, _) in found.items()}


def keys(found: dict[str, Any]) -> dict[str, str | None]:
    """The limits alone: of several parties that refuse at once either may be heard first."""
    return {name: limit and limit.split(": ")[1] for name, (_, limit) in found.items()}
