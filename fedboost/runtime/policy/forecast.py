"""Joint forecast of all parties for a job between organisations, with accepted alternatives found
by trying: changes of the job that make its sums reveal less.

In a trial on one machine no job is refused; each party reports the verdict of its policy with
default limits. Nothing here changes a job: its author reads the words and decides.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Annotated, Any

from pydantic import Field

from fedboost.ground.errors import ConfigError
from fedboost.ground.settings import Settings, parse_settings
from fedboost.job import Name
from fedboost.runtime.config.policy import Policy, PredictPolicy

Change = dict[str, Any]  # params that replace those in the job's file
Fits = Callable[[Settings], bool]  # whether a job with these params would be allowed

DEPTHS = ("max_depth", "host_depth", "guest_depth")  # each mode has some of them
RATES = tuple(tenth / 10 for tenth in range(9, 0, -1))  # of columns
NAMED_MAX = 3  # a longer list is not readable


def sufficient_changes(kind: type[Settings], raw: Mapping[str, Any], fits: Fits) -> list[Change]:
    """Return changes of params `raw`, each of them sufficient alone; empty if none is.

    Each changes one setting if that is sufficient, otherwise fewer rounds of shallower trees.
    """
    job = _Job(kind, raw, fits)
    ways = (
        _most_rounds(job),
        *(_deepest_trees(job, name) for name in DEPTHS),
        _most_trees(job),
        _most_columns(job),
    )
    changes = [change for change in ways if change]
    if not changes:
        changes = [change for change in (_depth_and_rounds(job, name) for name in DEPTHS) if change]
    return changes[:NAMED_MAX]


def change_in_words(change: Change, before: Mapping[str, Any]) -> str:
    """Return a change in words: ``max_depth: 4``, ``forest.colsample_bytree: 0.5``."""
    return " and ".join(f"{key}: {value}" for key, value in _changed_settings(change, before))


def greatest_fitting(most: int, fits: Callable[[int], bool]) -> int:
    """Return the greatest number up to `most` that fits, if all below one do; 0 if none does."""
    least = 0
    while least < most:
        middle = (least + most + 1) // 2
        least, most = (middle, most) if fits(middle) else (least, middle - 1)
    return least


class _Job:
    """A job's params, and whether others would do."""

    def __init__(self, kind: type[Settings], raw: Mapping[str, Any], fits: Fits) -> None:
        self.kind, self.raw, self._fits = kind, raw, fits
        self.params: Any = parse_settings(kind, raw)

    def is_allowed(self, change: Change) -> bool:
        """Return whether the job with this change is one, and allowed."""
        try:
            return self._fits(parse_settings(self.kind, {**self.raw, **change}))
        except ConfigError:  # a setting of another mode
            return False

    def smaller_values(self, name: str) -> Iterator[int]:
        """Return smaller values of a setting, the greatest first."""
        return iter(range(getattr(self.params, name, 1) - 1, 0, -1))


def _most_rounds(job: _Job, more: Change | None = None) -> Change:
    """Find the most rounds that would do: more rounds never tell less."""
    base, most = more or {}, job.params.n_estimators - (not more)
    fitting = greatest_fitting(
        most, lambda rounds: job.is_allowed({**base, "n_estimators": rounds})
    )
    return {**base, "n_estimators": fitting} if fitting else {}


def _deepest_trees(job: _Job, name: str) -> Change:
    return next(
        ({name: depth} for depth in job.smaller_values(name) if job.is_allowed({name: depth})), {}
    )


def _depth_and_rounds(job: _Job, name: str) -> Change:
    """Return the deepest trees, with a number of them, that would be accepted."""
    changes = (_most_rounds(job, {name: depth}) for depth in job.smaller_values(name))
    return next((change for change in changes if change), {})


def _most_columns(job: _Job) -> Change:
    """Find the most columns for each tree that would do."""
    forest = job.raw.get("forest")
    for rate in RATES:
        change: Change = {"colsample_bytree": rate}
        if forest is not None:
            change = {"forest": {**forest, **change}}
        if rate < job.params.column_rate and job.is_allowed(change):
            return change
    return {}


def _most_trees(job: _Job) -> Change:
    """Find the most trees in the forest of a round that would do."""
    forest = job.params.forest
    if forest is None or forest.dynamic is not None:
        return {}
    changes: Iterator[Change] = (
        {"forest": {**job.raw["forest"], "n_trees": trees}}
        for trees in range(forest.n_trees - 1, 0, -1)
    )
    return next((change for change in changes if job.is_allowed(change)), {})


def _changed_settings(change: Change, before: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield each setting that differs, under a name with dots."""
    for key, value in change.items():
        if isinstance(value, dict):
            old = before.get(key, {})
            yield from ((f"{key}.{k}", v) for k, v in value.items() if old.get(k) != v)
        else:
            yield key, value


OPTIONS_MAX = 27  # combinations of parties' changes that are compared
WHO = ("approvers", "coordinators", "peers", "datasets", "protocols", "roles")  # no limits

Cost = Callable[[Change], tuple[float, str]]  # cost of a change: to compare, and in words


class Forecast(Settings):
    """Verdict of one party's policy."""

    party: Name
    place: int = 0  # of the check that refuses, among all in their order
    refused_by: str | None = None  # the key of the policy
    jobs_left: int | None = None  # such jobs that would be accepted after this one; None: any
    # Each is sufficient at this party.
    changes: Annotated[tuple[dict[str, Any], ...], Field(strict=False)] = ()
    placed: float | None = None  # the share of a host's rows that an attack could have placed
    metric: str | None = None  # of a model of the party's own rows and columns
    alone: float | None = None
    failed: bool = False  # no verdict: something went wrong here

    def encode(self) -> bytes:
        """Return it as JSON."""
        return self.model_dump_json().encode()


def with_default_limits(policy: Policy) -> Policy:
    """Return a policy with the same allowed names and the default for each limit."""
    return Policy(
        approve="never",
        predict=PredictPolicy(peers=policy.predict.peers),
        **{key: getattr(policy, key) for key in WHO},
    )


def joint_verdict(forecasts: Sequence[Forecast], before: Change, cost: Cost) -> dict[str, Any]:
    """Return whether all would accept the job with params `before`, and accepted changes."""
    refusing = sorted((f for f in forecasts if f.refused_by), key=attrgetter("place"))
    if not refusing:
        left = [f.jobs_left for f in forecasts if f.jobs_left is not None]
        return {
            "accepted": True,
            "refused_by": None,
            "jobs_left": min(left, default=None),
            "change": None,
            "cost": None,
        }
    priced = [(*cost(change), change) for change in _common_changes([f.changes for f in refusing])]
    priced.sort(key=lambda option: (len(option[2]), option[0]))  # one setting rather than two
    _, price, change = priced[0] if priced else (0.0, None, None)
    first = refusing[0]
    key = (first.refused_by or "").removeprefix("policy.")
    return {
        "accepted": False,
        "refused_by": f"{first.party}: {key}",
        "jobs_left": 0,
        "change": None if change is None else change_in_words(change, before),
        "cost": price,
    }


def _common_changes(by_party: Sequence[tuple[Change, ...]]) -> list[Change]:
    """Return changes accepted by each party: of two values for one setting, the smaller."""
    options: list[Change] = []
    for some in itertools.islice(itertools.product(*by_party), OPTIONS_MAX):
        merged: Change = {}
        for change in some:
            merged = _smaller_change(merged, change)
        if merged not in options:
            options.append(merged)
    return sorted(options, key=len)[: 2 * NAMED_MAX]


def _smaller_change(left: Change, right: Change) -> Change:
    return {**left, **right, **dict(_merged_settings(left, right))}


def _merged_settings(left: Change, right: Change) -> Iterator[tuple[str, Any]]:
    for key in left.keys() & right.keys():
        first, second = left[key], right[key]
        if isinstance(first, dict) and isinstance(second, dict):
            yield key, _smaller_change(first, second)
        elif isinstance(first, int | float) and isinstance(second, int | float):
            yield key, min(first, second)
