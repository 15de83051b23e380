"""Reports of parties about one stage, as one."""

from __future__ import annotations

from fedboost.messages.job_pb2 import StatusReport


def add_report(known: StatusReport, told: StatusReport) -> None:
    """Adds what a party told to what is known and outlasts the round."""
    known.counts.extend(told.counts)
    known.best.extend(told.best)
    known.curves.extend(told.curves)
    known.importance.extend(told.importance)
    known.privacy.extend(told.privacy)
    known.released.extend(told.released)
    known.ids.extend(told.ids)
    known.alignment = told.alignment or known.alignment
    known.answers = told.answers or known.answers
