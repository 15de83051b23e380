"""Hybridtree grows, bit for bit, the trees that core.hybrid grows on the pooled table."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedboost.model.hybrid import NO_BOTTOM
from tests.support.contexts import altered
from tests.support.federated import GUEST, HOSTS, now, with_seed
from tests.support.hybrid_jobs import (
    assert_pooled,
    assert_same_model,
    by_host,
    made,
    n_splits,
    twin_of,
)
from tests.support.secureboost_jobs import CLASSES, SAMPLES, VECTORS

OBJECTIVES: dict[str, dict[str, Any]] = {
    "binary": {},
    "classes": CLASSES,
    "vectors": VECTORS,
    "numbers": {"objective": "reg:squarederror"},
    "counts": {"objective": "count:poisson"},
    "amounts": {"objective": "reg:tweedie"},
    "positive": {"objective": "reg:gamma"},
    "far errors": {"objective": "reg:pseudohubererror", "huber_slope": 0.5},
}


@pytest.mark.parametrize("params", OBJECTIVES.values(), ids=OBJECTIVES)
@pytest.mark.parametrize("hosts", [1, 2, 3, 4])
def test_hybridtree_grows_the_pooled_trees(hosts, params):
    widths = (2, *range(1, hosts + 1))  # hosts have different columns
    done = assert_pooled(made(params, widths, rows=200, seed=hosts, weighted=hosts % 2 == 0))
    assert all(n_splits(done.twin))


KINDS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "scale_pos_weight": ({"scale_pos_weight": 3.0}, {"weighted": True}),
    "much missing": ({}, {"missing": 0.5}),
    "nothing missing": ({}, {"missing": 0.0}),
    "categories": ({}, {"categories": 6}),
    "more categories than bins": ({"max_bin": 4, **CLASSES}, {"categories": 9}),
    "goss": (SAMPLES["goss"], {}),
    "goss of vectors": ({**SAMPLES["goss"], **VECTORS}, {"weighted": True}),
    "rows": (SAMPLES["rows"], {}),
    "columns": (SAMPLES["columns"], {"widths": (4, 5, 3)}),
    "rows and columns": ({**SAMPLES["both"], **CLASSES}, {"widths": (4, 5, 3)}),
    "columns of layers": ({"colsample_bylevel": 0.5}, {"widths": (4, 5, 3), "categories": 4}),
    "groups of columns": ({"colsample_bylevel": 0.4}, {"widths": (4, 5, 3), "least": 9}),
    "regularised": ({"reg_alpha": 0.5, "gamma": 0.2, "reg_lambda": 0.1}, {}),
    "capped steps": ({"max_delta_step": 0.2}, {}),
    "capped steps of vectors": ({"max_delta_step": 0.2, "reg_alpha": 0.5, **VECTORS}, {}),
    "no lambda": ({"reg_lambda": 0.0, "min_child_weight": 0.0}, {}),
    "few bits": ({"precision_bits": 12}, {}),
    "deep guest": ({"guest_depth": 4, "host_depth": 1}, {}),
    "deep hosts": ({"guest_depth": 1, "host_depth": 4}, {}),
    "depth said twice": ({"guest_depth": 1, "host_depth": 2, "max_depth": 3}, {}),
    "no rows held out": ({}, {"held": None}),
    "groups": ({}, {"least": 9, "rows": 240}),
    "groups of categories": ({}, {"least": 9, "rows": 240, "categories": 6, "missing": 0.3}),
    "deep groups": ({"guest_depth": 1, "host_depth": 4}, {"least": 5, "rows": 300}),
    "base_score": ({"base_score": 0.3, "seed": 11, **SAMPLES["rows"]}, {}),
}


@pytest.mark.parametrize(("params", "how"), KINDS.values(), ids=KINDS)
def test_every_kind_of_job_grows_the_pooled_trees(params, how):
    assert all(n_splits(assert_pooled(made(params, **{"rows": 160, **how})).twin))


@pytest.mark.parametrize("params", [{}, CLASSES], ids=["", "classes"])
def test_with_another_rate_only_the_last_bits_differ(params):
    """Of leaf values with and without learning_rate, which no power of two multiplies."""
    assert_pooled(made({"learning_rate": 0.3, "n_estimators": 5, **params}, rows=200, missing=0.0))


# Sparse tables


@pytest.mark.parametrize("parties", [(GUEST,), HOSTS[:1], (GUEST, *HOSTS[:2])], ids=str)
@pytest.mark.parametrize(
    "params",
    [{}, VECTORS, SAMPLES["goss"], {"sparse_histograms": False}],
    ids=["", "vectors", "goss", "zeros added"],
)
def test_sparse_tables_grow_the_pooled_trees(params, parties):
    job = made(params, (2, 3, 3), rows=200, zero=0.8, sparse=parties)
    assert sum(n_splits(assert_pooled(job).twin)[1:]) > 3


# Which rows a host has


def test_rows_that_nobody_has_end_in_the_guests_leaves():
    job = made({"n_estimators": 1}, rows=160, shares=0.3)
    found = assert_pooled(job).room.state(GUEST).margin
    without = twin_of(replace(job, columns={GUEST: job.columns[GUEST]}, rows={})).margin
    held = np.unique(np.concatenate(list(job.rows.values())))
    alone = np.setdiff1d(np.arange(160), held)
    assert len(alone) > 40
    assert found[alone].tobytes() == without[alone].tobytes()
    assert (found[held] != without[held]).mean() > 0.9


OWN_ROWS = {
    "a host with all rows": [range(160), range(0, 160, 3)],
    "hosts with the same rows": [range(20, 90), range(20, 90)],
    "hosts that share no rows": [range(80), range(80, 160)],
    "a host with one row": [range(120), [7]],
    "hosts with few rows": [[3, 4, 90], range(40, 46)],
    "everybody has all": [range(160), range(160)],
}


@pytest.mark.parametrize("shares", OWN_ROWS.values(), ids=OWN_ROWS)
@pytest.mark.parametrize("params", [{}, CLASSES, SAMPLES["rows"]], ids=["", "classes", "rows"])
def test_hosts_may_have_any_rows(shares, params):
    job = made({"min_child_weight": 0.0, **params}, rows=160, shares=shares)
    assert not job.out[7]
    assert_pooled(job)


@pytest.mark.parametrize("others", [[], [range(120)]], ids=["alone", "beside another"])
def test_a_host_with_one_row_draws_it_in_every_tree(others):
    job = made({**SAMPLES["rows"], "n_estimators": 6}, rows=160, shares=[*others, [7]],
               widths=(2,) * (2 + len(others)))  # fmt: skip
    done = assert_pooled(job)
    host = 1 + len(others)
    trees = [bool(by_host(done.shards[GUEST].arrays, n, host)) for n in range(6)]
    assert all(trees)


def test_bottom_nodes_where_a_host_only_has_rows_to_validate_stay_as_the_guest_left_them():
    job = made({"guest_depth": 4, "host_depth": 1, "min_child_weight": 0.0}, rows=160)
    (held_out,) = np.nonzero(job.out)
    rows = np.append(held_out, np.flatnonzero(~job.out)[:4])
    done = assert_pooled(made(job.params, rows=160, shares=[range(160), np.sort(rows)]))
    arrays = done.shards[GUEST].arrays
    bottom = arrays["below_host"][arrays["below_under"] != NO_BOTTOM].tolist()
    assert bottom.count(1) > bottom.count(2) > 0


def test_a_guest_without_columns_leaves_all_layers_to_the_hosts():
    for params in ({}, VECTORS, {"n_estimators": 2, **CLASSES}):
        done = assert_pooled(made(params, (0, 3, 2), rows=160))
        guest, *hosts = n_splits(done.twin)
        assert guest == 0
        assert all(hosts)


@pytest.mark.parametrize("params", [{"gamma": 1e6}, {"min_child_weight": 1e3}])
def test_a_job_in_which_nothing_is_worth_a_split_grows_bare_leaves(params):
    done = assert_pooled(made(params))
    assert n_splits(done.twin) == [0, 0, 0]
    sent = {p.envelope.step for p in done.room.posted}
    assert "sum_candidates" in sent


def test_a_host_that_has_nothing_to_open_waits_while_another_grows():
    """Its layer has no nodes, and the other's go on."""
    job = made({"host_depth": 3, "min_child_weight": 2.0}, rows=160, shares=[range(160), [7, 8]])
    done = assert_pooled(job)
    assert n_splits(done.twin)[1] > 3
    assert n_splits(done.twin)[2] == 0


# Rounds


@pytest.mark.parametrize("params", [{}, CLASSES, VECTORS], ids=["", "classes", "vectors"])
def test_early_stopping_keeps_the_pooled_rounds(params):
    said = {"n_estimators": 15, "early_stopping_rounds": 2, "learning_rate": 1.0, **params}
    done = assert_pooled(made(said, rows=160, held=0.4))
    assert len(done.twin.history) < 15
    kept = len(done.twin.trees) // (3 if params is CLASSES else 1)
    assert kept == len(done.twin.history) - 2
    grown = done.shards[HOSTS[0]].facts["trees"]
    assert grown > done.shards[GUEST].facts["trees"]


def test_another_attempt_has_the_same_numbers_and_another_job_others():
    job = made({}, rows=160)
    twin, known = twin_of(job), []
    rooms = [job.room(), with_seed(job.room(), b"attempt"), job.room()]
    rooms[2].contexts = {
        name: altered(context, secrets={"job": context.secrets.job.child("other")})
        for name, context in rooms[2].contexts.items()
    }
    for room in rooms:
        room.__post_init__()  # sessions with these seats
        shards = now(room.walk())
        assert_same_model(shards, twin, job.own.learning_rate)
        known.append(shards[GUEST].arrays)
    nodes = [list(zip(one["below_node"], one["below_under"], strict=True)) for one in known]
    assert nodes[0] == nodes[1] != nodes[2]
    tops = [name for name in known[0] if not name.startswith("below_")]
    assert all(known[0][name].tobytes() == one[name].tobytes() for name in tops for one in known)
