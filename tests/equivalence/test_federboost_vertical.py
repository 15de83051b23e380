"""Vertical FederBoost: without noise it grows the trees of one table."""

from dataclasses import replace
from typing import Any

import pytest

from fedboost.core import local
from fedboost.core.params import TreeParams
from tests.equivalence.test_secureboost_pooled import assert_same_trees
from tests.federated import GUEST, now, room_for
from tests.secureboost_jobs import CLASSES, VECTORS, flat, made

OPEN: dict[str, Any] = {"epsilon": None, "buckets": 8, "max_bin": 8}  # no noise, same bins
OBJECTIVES: dict[str, dict[str, Any]] = {
    "binary": {},
    "classes": CLASSES,
    "vectors": VECTORS,
    "medians": {"objective": "reg:absoluteerror"},
    "amounts": {"objective": "reg:tweedie"},
}


def federated(params, widths=(2, 3, 2), rows=200, **how):
    """A job on random columns, and the room in which vertical FederBoost trains it."""
    job = made({**params, "max_bin": 8}, widths, rows, **how)
    said = {k: v for k, v in job.params.items() if k != "encryption"}
    return replace(job, params={**said, **OPEN, **params}), None


def room_of(job):
    """As `Job.room`, of the other protocol."""
    frames = {party: seat.frame for party, seat in replace(job, params={}).room().seats.items()}
    return room_for("federboost-vertical", frames, job.params, held=job.held)


def pooled(job):
    """What one table trains under the same settings."""
    known = {k: v for k, v in job.params.items() if k in TreeParams.model_fields}
    check = job.part(job.out) if job.out.any() else None
    widths = tuple(job.widths.values())
    return local.train(job.part(~job.out), TreeParams(**known), check, widths)


def assert_pooled(job):
    """The federated model is the pooled one; gives the shards and the room."""
    trained, room = pooled(job), room_of(job)
    shards = now(room.walk())
    assert_same_trees(shards, flat(trained.rounds[: trained.best_round + 1]), job.widths)
    assert repr(room.state(GUEST).training.history) == repr(trained.history)
    return shards, room, trained


@pytest.mark.parametrize("widths", [(2, 3), (2, 3, 2), (1, 2, 2, 2)], ids=str)
@pytest.mark.parametrize("objective", OBJECTIVES.values(), ids=OBJECTIVES)
def test_buckets_without_noise_grow_the_pooled_trees(objective, widths):
    job, _ = federated({**objective, "n_estimators": 4}, widths)
    shards, _, trained = assert_pooled(job)
    assert shards[GUEST].facts["trees"] == sum(map(len, trained.rounds))
