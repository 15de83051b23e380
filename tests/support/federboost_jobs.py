"""Vertical FederBoost jobs on random tables, and the trees of one table that they must come to."""

import itertools
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np

from fedboost.core import binning, local, monotone, objectives
from fedboost.core.binning import Binning
from fedboost.core.objectives import Summary
from fedboost.core.params import TreeParams
from fedboost.core.rules import Rules
from tests.equivalence.test_secureboost_pooled import assert_same_trees
from tests.support.federated import GUEST, job_spec, now, room_for
from tests.support.raw_values import model_values
from tests.support.secureboost_jobs import SEED, flat, made

OPEN: dict[str, Any] = {"epsilon": None, "buckets": 8, "max_bin": 8}  # no noise, same bins


def open_job(params=None, widths=(2, 3, 2), rows=200, **how):
    """A job on random columns; without noise, and with as many bins as buckets."""
    job = made({**OPEN, **(params or {})}, widths, rows, **how)
    return replace(job, params={k: v for k, v in job.params.items() if k != "encryption"})


def frames_of(job):
    """The parties' tables."""
    return {
        party: context.frame for party, context in replace(job, params={}).room().contexts.items()
    }


def room_of(job, **more):
    """The room in which the job is trained."""
    return room_for("federboost-vertical", frames_of(job), job.params, held=job.held, **more)


def own_params(job):
    """The settings that a table in one place knows."""
    return TreeParams(**{k: v for k, v in job.params.items() if k in TreeParams.model_fields})


def cuts_by_hand(job):
    """Every party's columns binned its own way, as one binning."""
    parts = []
    for party, values in job.columns.items():
        last = (values.shape[1] - 1,) if job.categories else ()
        most = job.params["max_bin"] if party == GUEST else job.params["buckets"]
        fitted = binning.fit(np.asfortranarray(values[~job.out]), most, last)
        named = job.params.get("public_cuts", {}).get(party, {})
        own = list(fitted.cuts)
        for name, cuts in named.items():
            own[int(name[1:])] = np.array(cuts, np.float32)
        parts.append(Binning(most, tuple(own), fitted.categories))
    starts = np.cumsum([0, *(part.n_columns for part in parts)]).tolist()
    codes = {
        start + c: own
        for start, part in zip(starts, parts, strict=False)
        for c, own in part.categories.items()
    }
    most = max(int(max(part.max_bin, *part.n_bins)) for part in parts)
    return Binning(most, tuple(itertools.chain(*(part.cuts for part in parts))), codes)


def twin(job):
    """What one table comes to whose columns are binned by hand."""
    params, cuts, table = own_params(job), cuts_by_hand(job), job.part(~job.out)
    summary = Summary.of(params, table.y, table.weights)
    objective = objectives.start_objective(params, summary)
    fixed = objectives.encoding(params, objective, summary)
    watched = {"train": local.Watched.of(table, cuts, objective)}
    if job.out.any():
        watched["validation"] = local.Watched.of(job.part(job.out), cuts, objective)
    rules = Rules(params, cuts, fixed, directions=monotone.directions(job.monotone))
    training = local.Training(rules, objective, watched, tuple(job.widths.values()))
    while not training.is_over:
        training.advance()
    return SimpleNamespace(
        rounds=training.rounds[: training.best_round + 1],
        history=training.history,
        margin={part: seen.margin for part, seen in watched.items()},
    )


def pooled(job):
    """What `core.local` trains on one table under the same settings."""
    check = job.part(job.out) if job.out.any() else None
    widths = tuple(job.widths.values())
    trained = local.train(job.part(~job.out), own_params(job), check, widths)
    margin = np.tile(trained.base_margin, (len(job.y), 1))
    for trees in trained.rounds:
        read = model_values(trained.binning, job.values)
        local.add_to_margin(margin, [tree.predict(read) for tree in trees])
    return SimpleNamespace(
        rounds=trained.rounds[: trained.best_round + 1],
        history=trained.history,
        margin={"train": margin[~job.out], "validation": margin[job.out]},
    )


def assert_same(job, expected, room=None):
    """The federated model is the expected one: trees, margins, metrics; gives both and the room."""
    room = room or room_of(job)
    shards = now(room.walk())
    assert_same_trees(shards, flat(expected.rounds), job.widths)
    training = room.state(GUEST).training
    assert repr(training.history) == repr(expected.history)  # NaN equals NaN
    for part, seen in training.watched.items():
        assert seen.margin.tobytes() == expected.margin[part].tobytes()
    return SimpleNamespace(shards=shards, room=room, expected=expected)


def spec_of(job, **params):
    """The job as a user would send it, perhaps with other parameters."""
    weight = {} if job.weight is None else {GUEST: {"weight": "w"}}
    return job_spec(
        "federboost-vertical",
        tuple(job.columns),
        data=weight,
        validation=None if job.held is None else {"fraction": job.held, "seed": SEED},
        params={**job.params, **params},
    )


def again_of(job, reused, **params):
    """A job that trains again, with other parameters, on what an earlier one disclosed."""
    spec = spec_of(job, reuse=reused, **params)
    told = ("buckets", "epsilon", "public_cuts")
    return spec.model_copy(
        update={"params": {k: v for k, v in spec.params.items() if k not in told}}
    )
