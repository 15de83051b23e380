"""Combines the reports of parties about one stage."""

from __future__ import annotations

from fedboost.messages.job_pb2 import StatusReport


def add_report(known: StatusReport, told: StatusReport) -> None:
    """Add a party's report to the known facts that outlast a round."""
    known.counts.extend(told.counts)
    known.best.extend(told.best)
    known.curves.extend(told.curves)
    known.importance.extend(told.importance)
    known.privacy.extend(told.privacy)
    known.released.extend(told.released)
    known.ids.extend(told.ids)
    known.alignment = told.alignment or known.alignment
    known.answers = told.answers or known.answers
