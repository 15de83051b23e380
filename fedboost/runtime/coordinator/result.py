"""The result of a finished job: reports and costs of its parties."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from fedboost.messages import party_pb2
from fedboost.messages.job_pb2 import Released, StatusReport
from fedboost.runtime.coordinator.walk import JobWalk


def noise_by_host(told: StatusReport) -> dict[str, dict[str, float | None]]:
    """Return the noise budget each host has spent; None means no bound."""
    return {
        host.party: {
            "epsilon_element": host.epsilon_element if host.noise else None,
            "epsilon_row": host.epsilon_row if host.noise else None,
            "moved": host.moved,
        }
        for host in told.privacy
    }


def id_counts(told: StatusReport) -> dict[str, dict[str, int]]:
    """Return the number of ids of each party, padding included, and the number of matches."""
    return {party.party: {"brought": party.brought, "matched": party.matched} for party in told.ids}


def released_by_host(told: StatusReport) -> dict[str, dict[str, float | None]]:
    """Return the share of values that each host's sums reveal to the guest; None means no limit."""
    return {
        host.party: {
            "planned": host.planned,
            "counted": host.counted,
            "before": host.before,
            "warn": host.warn if host.warn < math.inf else None,
            "max": host.max if host.max < math.inf else None,
            "placed": host.placed.counted,
            "placed_planned": host.placed.planned,
            "placed_before": host.placed.before,
            "placed_max": host.placed.max if host.placed.max < 1.0 else None,
        }
        for host in told.released
    }


def replace_by_counted(told: StatusReport, ended: Sequence[Released]) -> None:
    """Replace planned figures of released sums by those counted at the end."""
    parties = {host.party for host in ended}
    others = [host for host in told.released if host.party not in parties]
    told.ClearField("released")
    told.released.extend([*others, *ended])


NOT_ROWS = ("rounds", "trees", "earlier_rounds")  # other counts in a guest's report


def result_of(
    walk: JobWalk, seconds: float, shares: Mapping[str, party_pb2.FinishReply]
) -> dict[str, Any]:
    """Return the result of a walk whose last attempt worked for so many seconds.

    `shares` are the parties' parts of this attempt; costs of earlier attempts are added.
    """
    metrics: dict[str, dict[str, float]] = {}
    for metric in walk.told.best:
        metrics.setdefault(metric.split, {})[metric.name] = metric.value
    counts = {count.name: count.count for count in walk.told.counts}
    rounds = sorted(walk.round_seconds)
    earlier = walk.earlier
    timed: dict[str, float] = {"total": seconds + earlier.seconds}
    for stage, took in walk.stage_seconds.items():
        timed[walk.protocols[stage].timing_name] = took
    if rounds and walk.protocol.leaves == "model":
        a_round = max(1.0, counts.get("trees", 0) / max(1, counts.get("rounds", 0)))
        timed["per_tree"] = rounds[len(rounds) // 2] / a_round
        if not counts.get("trees"):  # rounds without trees
            timed["per_round"] = timed["per_tree"]
    if walk.waited or earlier.waited:
        timed["waited"] = walk.waited + earlier.waited
    return {
        "job": walk.id,
        "name": walk.terms.spec.name,
        "state": "finished",
        "protocol": walk.terms.spec.protocol,
        **({"encryption": said} if (said := walk.terms.encryption) else {}),
        "rows": {name: count for name, count in counts.items() if name not in NOT_ROWS},
        **({"ids": id_counts(walk.told)} if walk.told.ids else {}),
        **({"alignment": walk.told.alignment} if walk.told.alignment else {}),
        **({"answers": walk.told.answers} if walk.told.answers else {}),
        "metrics": metrics,
        "trees": counts.get("trees", 0),
        **({"privacy": noise_by_host(walk.told)} if walk.told.privacy else {}),
        **({"released": released_by_host(walk.told)} if walk.told.released else {}),
        **({"rounds": counts["rounds"]} if counts.get("rounds") != counts.get("trees") else {}),
        **({"lost": walk.lost} if walk.lost else {}),
        **({"warnings": list(walk.warned)} if walk.warned else {}),
        **({"earlier_rounds": before} if (before := counts.get("earlier_rounds")) else {}),
        "seconds": timed,
        "cpu_seconds": {p: r.cpu_seconds + earlier.cpu_seconds[p] for p, r in shares.items()},
        "memory_peak_bytes": {p: reply.memory_peak_bytes for p, reply in shares.items()},
        "bytes": {
            f"{party}->{link.peer}": link.bytes
            for party, reply in shares.items()
            for link in reply.sent
        },
        "exchanges": walk.exchanges + earlier.exchanges,
        "model": shares[walk.table.guest].model,
        "report": f"fedboost job report {walk.id}",
    }
