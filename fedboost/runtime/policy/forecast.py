"""What a party forecasts of a job between organisations, and what the forecasts come to together.

In a trial on one machine nobody is refused anything; each party says beside it what its policy
would say, if all its limits were the defaults.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any

from pydantic import Field

from fedboost.job import Name
from fedboost.runtime.config.policy import Policy, PredictPolicy
from fedboost.runtime.policy.remedies import NAMED_MAX, Change, in_words
from fedboost.settings import Settings

OPTIONS_MAX = 27  # combinations of parties' changes that are compared
WHO = ("approvers", "coordinators", "peers", "datasets", "protocols", "roles")  # no limits

Cost = Callable[[Change], tuple[float, str]]  # what a change costs: to compare, and in words


class Forecast(Settings):
    """What one party's policy would say."""

    party: Name
    place: int = 0  # of the check that refuses, among all in their order
    refused_by: str | None = None  # the key of the policy
    jobs_left: int | None = None  # such jobs that would be accepted after this one; None: any
    changes: Annotated[
        tuple[dict[str, Any], ...], Field(strict=False)
    ] = ()  # each of which would do, at this party
    metric: str | None = None  # of a model of the party's own rows and columns
    alone: float | None = None

    def encode(self) -> bytes:
        """Return it as JSON."""
        return self.model_dump_json().encode()


def with_default_limits(policy: Policy) -> Policy:
    """Return a policy that lets in whom this one lets in, and has the default for each limit."""
    return Policy(
        approve="never",
        predict=PredictPolicy(peers=policy.predict.peers),
        **{key: getattr(policy, key) for key in WHO},
    )


def verdict(forecasts: Sequence[Forecast], before: Change, cost: Cost) -> dict[str, Any]:
    """Return whether all would accept the job whose params are `before`, and what would do."""
    refusing = sorted((one for one in forecasts if one.refused_by), key=lambda one: one.place)
    if not refusing:
        left = [one.jobs_left for one in forecasts if one.jobs_left is not None]
        return {
            "accepted": True,
            "refused_by": None,
            "jobs_left": min(left, default=None),
            "change": None,
            "cost": None,
        }
    priced = [(*cost(change), change) for change in _options([one.changes for one in refusing])]
    priced.sort(key=lambda one: (len(one[2]), one[0]))  # one setting rather than two
    _, said, change = priced[0] if priced else (0.0, None, None)
    first = refusing[0]
    key = (first.refused_by or "").removeprefix("policy.")
    return {
        "accepted": False,
        "refused_by": f"{first.party}: {key}",
        "jobs_left": 0,
        "change": None if change is None else in_words(change, before),
        "cost": said,
    }


def _options(by_party: Sequence[tuple[Change, ...]]) -> list[Change]:
    """Changes that would do at each party: of two that one setting asks for, the smaller."""
    found: list[Change] = []
    for some in itertools.islice(itertools.product(*by_party), OPTIONS_MAX):
        merged: Change = {}
        for change in some:
            merged = _smaller(merged, change)
        if merged not in found:
            found.append(merged)
    return sorted(found, key=len)[: 2 * NAMED_MAX]


def _smaller(left: Change, right: Change) -> Change:
    both = dict(_joined(left, right))
    return {**left, **right, **both}


def _joined(left: Change, right: Change) -> Iterator[tuple[str, Any]]:
    for key in left.keys() & right.keys():
        one, other = left[key], right[key]
        if isinstance(one, dict) and isinstance(other, dict):
            yield key, _smaller(one, other)
        elif isinstance(one, int | float) and isinstance(other, int | float):
            yield key, min(one, other)
