"""A job whose tables are given beside it, as for clusters of our own: its `data` is filled in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedboost import protocols
from fedboost.data.sources import SourceSpec
from fedboost.errors import ConfigError
from fedboost.job import JobSpec, Parties
from fedboost.runtime.cluster.local import DATASET
from fedboost.runtime.jobs.submitted import check
from fedboost.settings import parse


def complete(raw: object, sources: Mapping[str, SourceSpec], **where: str) -> JobSpec:
    """The job with `data:` filled in from `--data`: data set, and the label `y` of each guest."""
    if not isinstance(raw, dict):
        raise ConfigError("expected keys and values", todo="see configs/job-credit.yaml", **where)
    job = dict(raw)
    stated = job.get("data")
    data: dict[str, Any] = dict(stated) if isinstance(stated, dict) else {}
    parties = job.get("parties")
    labelled = _check_named(parties, sources, where)
    name = str(job.get("protocol"))
    scores = name in protocols.names() and protocols.named(name).leaves == "predictions"
    for party in sources:
        entry = data.get(party) or {}
        if not isinstance(entry, dict):
            continue  # refused below, by its key
        entry = dict(entry)
        entry["dataset"] = DATASET
        if party in labelled and not scores:
            entry.setdefault("label", "y")
        data[party] = entry
    job["data"] = data
    spec = parse(JobSpec, job, **where)
    check(spec, **where)
    return spec


def _check_named(
    parties: object, sources: Mapping[str, SourceSpec], where: dict[str, str]
) -> set[str]:
    """Refuses tables of strangers and parties without a table; ill-typed parties come later.

    Gives the guests.
    """
    try:
        named = parse(Parties, parties, **where)
    except ConfigError:
        return set()
    everybody = set(named.with_data)
    for party in sorted(set(sources) - everybody):
        todo = "name it among the job's hosts, or leave its --data out"
        raise ConfigError(f"--data names {party}, which has no part in the job", todo=todo, **where)
    for party in sorted(everybody - set(sources)):
        raise ConfigError(f"--data is missing for {party}", todo=f"--data {party}=FILE", **where)
    return everybody - set(named.hosts)
