"""What hosts have told of their tables, as a job's result says it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from fedboost.messages.job_pb2 import Released, StatusReport


def privacy(told: StatusReport) -> dict[str, dict[str, float | None]]:
    """Return what each host has disclosed with noise; None stands for no bound at all."""
    return {
        one.party: {
            "epsilon_element": one.epsilon_element if one.noise else None,
            "epsilon_row": one.epsilon_row if one.noise else None,
            "moved": one.moved,
        }
        for one in told.privacy
    }


def ids(told: StatusReport) -> dict[str, dict[str, int]]:
    """Return how many ids each party brought, padding included, and how many of them matched."""
    return {one.party: {"brought": one.brought, "matched": one.matched} for one in told.ids}


def released(told: StatusReport) -> dict[str, dict[str, float | None]]:
    """Return what each host's sums tell the guest; a limit of None is none."""
    return {
        one.party: {
            "planned": one.planned,
            "counted": one.counted,
            "before": one.before,
            "warn": one.warn if one.warn < math.inf else None,
            "max": one.max if one.max < math.inf else None,
        }
        for one in told.released
    }


def counted(told: StatusReport, ended: Sequence[Released]) -> None:
    """Put what sums have told in the end in place of what they could tell."""
    parties = {one.party for one in ended}
    others = [one for one in told.released if one.party not in parties]
    told.ClearField("released")
    told.released.extend([*others, *ended])
