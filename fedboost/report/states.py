"""States of jobs, and the people who submit them, in words."""

from __future__ import annotations

from fedboost.job import VIA

_ENDED = {"failed": "failed", "cancelled": "was cancelled", "finished": "finished"}


def person_of(submitter: str) -> str:
    """Return the person who submitted a job, at a terminal or on a coordinator's page."""
    return submitter.partition(VIA)[0]


def state_in_words(state: str) -> str:
    """Return a state as a verb: `is running`, `failed`, `was cancelled`."""
    return _ENDED.get(state, f"is {state}")
