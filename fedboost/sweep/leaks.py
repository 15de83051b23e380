"""Joint disclosure of a sweep's jobs, as sentences for its user."""

from __future__ import annotations

import math
from collections.abc import Iterator

from fedboost import protocols
from fedboost.ground.settings import parse_settings
from fedboost.sweep.plan import Sweep


def sentences(sweep: Sweep, rows: int | None, most: float) -> list[str]:
    """Return sentences on the releases of all jobs, host by host; `rows` in common, None if
    unknown.

    `most` is the default policy limit of released sums per bin and row.
    """
    return [
        *_sentences_on_ids(sweep),
        *_sentences_on_sums(sweep, rows, most),
        *_sentences_on_values(sweep),
    ]


def _sentences_on_ids(sweep: Sweep) -> Iterator[str]:
    if sweep.aligns_rows:
        yield "The rows in common are found once, by the first job; the others use them again."


def _sentences_on_sums(sweep: Sweep, rows: int | None, most: float) -> Iterator[str]:
    protocol, table = protocols.load_protocol(sweep.base.protocol), sweep.base.parties.table()
    if protocol.policy.releases is None:
        return
    for host in table.hosts:
        each = []
        for member in sweep.members:
            params = parse_settings(protocol.params, member.spec.params, section="params")
            each.append(protocol.policy.releases(params, table, host, None).whole)
        if not sum(each):
            continue
        sentence = (
            f"{host} may release up to {sum(each):,} sums for each bin of a column to "
            f"{table.guest}, {min(each):,} to {max(each):,} in a job"
        )
        if rows is None:
            yield f"{sentence}; its policy bounds how many they are for each row in common."
            continue
        training = _training_rows(sweep, rows)
        allowed = _jobs_within(each, most * training)
        yield (
            f"{sentence}: {sum(each) / training:.2g} for each row that trains. A policy that says "
            f"nothing else allows {most:g}, " + _allowed_in_words(allowed, len(each))
        )


def _allowed_in_words(allowed: int, jobs: int) -> str:
    if allowed == jobs:
        return "so all jobs."
    return f"so {allowed} of the {jobs} jobs: ask the owner, sweep less, or make the jobs smaller."


def _jobs_within(each: list[int], budget: float) -> int:
    """Return the number of jobs, from the first one, that fit into a budget of sums."""
    spent = 0
    for place, equations in enumerate(each):
        spent += equations
        if spent > budget:
            return place
    return len(each)


def _training_rows(sweep: Sweep, rows: int) -> int:
    """Return the number of these rows that a job trains on."""
    folds, held = sweep.settings.folds, sweep.base.validation
    if folds is not None:
        return max(1, rows - math.ceil(rows / folds))
    assert held is not None
    share = held.fraction if held.fraction is not None else 1.0 / (held.folds or 1)
    return max(1, rows - round(share * rows))


def _sentences_on_values(sweep: Sweep) -> Iterator[str]:
    """Yield sentences on the values that hosts disclose, once or with every job."""
    protocol = protocols.load_protocol(sweep.base.protocol)
    if protocol.reuse is None:
        return
    params = parse_settings(protocol.params, sweep.base.params, section="params")
    epsilon = protocol.policy.asks(params).epsilon
    if epsilon is None:
        return
    what = "buckets" if math.isinf(epsilon) else f"noisy buckets (ε {epsilon:g} a value)"
    if sweep.reuses_disclosure:
        yield f"Hosts disclose their {what} once, with the first job; the others train on them."
    else:
        jobs = len(sweep.members)
        yield f"Hosts disclose their {what} anew with each of {jobs} jobs: what they tell adds up."
