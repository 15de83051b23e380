"""Time and work of a job's earlier attempts, from its journal."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Self

from fedboost.messages.job_pb2 import Event
from fedboost.runtime.store.store import JobState


@dataclass
class EarlierAttempts:
    """Time and work of earlier attempts, without work that did not reach the journal."""

    seconds: float = 0.0  # of work
    waited: float = 0.0  # seconds, for people's approval
    exchanges: int = 0
    stages: dict[str, float] = field(default_factory=lambda: defaultdict(float))  # seconds of work
    cpu_seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))  # by party

    @classmethod
    def of(cls, events: Iterable[Event]) -> Self:
        """Return the totals of a journal. Its events must not be condensed."""
        spent, state, since = cls(), "", 0.0
        for event in events:
            what = event.WhichOneof("what")
            took, since = event.at - since, event.at
            if what == "state":
                spent.waited += took * (state == JobState.WAITING)
                state = event.state.state
            elif state == JobState.RUNNING:
                spent.seconds += took
                if what in ("step", "round", "stage"):
                    spent.stages[getattr(event, what).stage] += took
            if what == "step":
                spent.exchanges += event.step.exchanges
                for cost in event.step.costs:
                    spent.cpu_seconds[cost.party] += cost.cpu_seconds
        return spent
