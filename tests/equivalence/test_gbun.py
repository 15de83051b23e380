"""Boosted networks over rows of many parties are those of one table, to 1e-6 of a margin."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csc_array

from fedboost.model import networks
from tests.support.federated import GUEST, HOSTS, now
from tests.support.gbun_jobs import assert_pooled, made, uplink, with_params
from tests.support.horizontal_jobs import AGGREGATOR, assert_same_shards
from tests.support.secureboost_jobs import CLASSES

TELCO = HOSTS[0]
OBJECTIVES: dict[str, dict[str, Any]] = {
    "binary": {},
    "imbalance": {"scale_pos_weight": 2.5},
    "classes": CLASSES,
    "numbers": {"objective": "reg:squarederror"},
    "counts": {"objective": "count:poisson"},
    "amounts": {"objective": "reg:tweedie"},
    "positive": {"objective": "reg:gamma"},
    "far errors": {"objective": "reg:pseudohubererror", "huber_slope": 0.5},
}
CONTINUE: dict[str, Any] = {"dropout": "continue", "colluders": 0}
MODES: dict[str, dict[str, Any]] = {"wait": {}, "continue": CONTINUE}
SPARSE: dict[str, Any] = {"sparse": True, "zero": 0.8, "missing": 0.0, "columns": 30}
SIZES: dict[str, tuple[int, ...]] = {
    "three": (80, 80, 80),
    "uneven": (10, 200, 30),
    "skewed": (300, 4, 1),
    "eight": (30, 31, 29, 40, 8, 50, 22, 30),
    "thirty-two": (8,) * 32,
}


# Whatever the job asks for


@pytest.mark.some(2)
@pytest.mark.parametrize("weighted", [False, True], ids=["", "weighted"])
@pytest.mark.parametrize("rows", [{}, SPARSE], ids=["dense", "sparse"])
@pytest.mark.parametrize("objective", OBJECTIVES.values(), ids=OBJECTIVES)
def test_every_objective_learns_the_pooled_model(objective, rows, weighted):
    assert_pooled(made(objective, weighted=weighted, **rows))


@pytest.mark.some(2)
@pytest.mark.parametrize("mode", MODES.values(), ids=MODES)
@pytest.mark.parametrize("reg_lambda", [0.1, 10.0])
@pytest.mark.parametrize("outputs", [2, 32])
def test_every_size_and_lambda_learns_the_pooled_model(outputs, reg_lambda, mode):
    said = {"outputs": outputs, "reg_lambda": reg_lambda, "n_estimators": 8, "seed": 3}
    assert_pooled(made({**said, **mode}, weighted=True))


@pytest.mark.some(1, of="models of many")
def test_a_hundred_rounds_stay_together():
    assert_pooled(made({"n_estimators": 100, "reg_lambda": 0.1, "outputs": 16}))


@pytest.mark.parametrize("mode", MODES.values(), ids=MODES)
def test_rounds_end_where_the_pooled_ones_end(mode):
    said = {"n_estimators": 60, "early_stopping_rounds": 3, "learning_rate": 1.0, **mode}
    done = assert_pooled(made({**said, "eval_metric": ["auc", "logloss"]}))
    assert done.trained.best_round + 4 == len(done.trained.history) < 60


FORMS = ("rank", "bins", "auto")


@pytest.mark.some(2)
@pytest.mark.parametrize("mode", MODES.values(), ids=MODES)
@pytest.mark.parametrize("rows", [{}, SPARSE], ids=["dense", "sparse"])
@pytest.mark.parametrize("objective", [{}, CLASSES], ids=["binary", "classes"])
@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_columns_learns_the_pooled_model(form, objective, rows, mode):
    said = {"columns": form, "sharpness": 3.0, "outputs": 16, "weights_per_output": 3}
    done = assert_pooled(made({**said, **objective, **mode}, weighted=True, **rows))
    is_sparse_auto = form == "auto" and bool(rows)  # auto takes sparse rows as they are
    assert done.shards[GUEST].facts["reading"] == ("standard" if is_sparse_auto else form)
    assert (calls_of(done.room, "count_below") > 0) == (not is_sparse_auto)


@pytest.mark.parametrize("form", FORMS)
def test_two_hundred_and_fifty_six_bins_are_looked_up_as_few_are(form):
    said = {"columns": form, "max_bin": 256, "quantile_tolerance": 0}
    done = assert_pooled(made(said, missing=0.3))
    assert done.trained.reading.cuts is not None
    assert done.trained.reading.cuts.width.max() > 32


@pytest.mark.parametrize("form", FORMS)
def test_columns_that_nobody_can_cut_are_no_harm(form):
    job = made({"columns": form, "quantile_tolerance": None, "max_bin": 32}, (40, 50, 30))
    shard = next(iter(now(job.room().walk()).values()))
    assert np.isfinite(networks.margins(shard, job.frame)).all()
    assert shard.facts["reading"] == ("standard" if form == "auto" else form)


@pytest.mark.parametrize("form", FORMS)
def test_a_rounds_bytes_do_not_depend_on_how_columns_are_read(form):
    assert rounds_bytes(made({"columns": form})) == rounds_bytes(made(columns=15))


def calls_of(room, step):
    """How often a step of ours has sent something."""
    return sum(posted.envelope.step == step for posted in room.posted)


# Whatever the table is


@pytest.mark.parametrize("missing", [0.0, 0.5])
def test_missing_values_become_the_mean_of_everybodys(missing):
    job = made(missing=missing)
    assert np.isnan(job.values).any() == bool(missing)
    assert_pooled(job)


@pytest.mark.parametrize("of", ["one party", "everybody"])
@pytest.mark.parametrize("value", [np.nan, 0.0, 1.1, -3e4], ids=str)
def test_a_column_without_anything_to_tell_does_no_harm(value, of):
    job = made()
    job.values[job.spans[TELCO] if of == "one party" else slice(None), 1] = value
    assert_pooled(job)


@pytest.mark.parametrize("value", [1.1, 1.2, 1.3, 258.7, 260.1, -1.9])
def test_a_column_that_only_rows_held_out_tell_apart_is_constant_for_everybody(value):
    job = made({"outputs": 32}, sizes=(300, 200, 300))
    job.values[:, 1] = np.where(job.out, 2 * value, value)
    done = assert_pooled(job)
    assert done.shards[GUEST].arrays["column_deviation"][1] == 1.0


@pytest.mark.parametrize("scale", [1e-12, 1e12])
def test_columns_of_any_size_are_standardised_alike(scale):
    job = made()
    job.values[:, 2] *= np.float32(scale)
    job.values[:, 3] += np.float32(300.0)
    assert_pooled(job)


def test_columns_stand_in_the_guests_order_whoever_has_them_how():
    job = made()
    room, frames, order = job.room(), job.frames(), [2, 0, 3, 1, 4]
    turned = replace(
        frames[TELCO],
        values=np.asfortranarray(frames[TELCO].values[:, order]),
        columns=tuple(frames[TELCO].columns[place] for place in order),
    )
    room.contexts[TELCO] = replace(room.contexts[TELCO], frame=turned)
    assert_pooled(job, type(room)(room.protocol, room.contexts))


def test_sparse_columns_need_not_be_as_many_with_everybody():
    """They are hashed by their numbers: a party's file may end before another's does."""
    job = made(**{**SPARSE, "columns": 12})
    job.values[job.spans[TELCO], 9:] = 0.0
    room, frame = job.room(), job.frames()[TELCO]
    shorter = replace(frame, values=frame.values[:, :9], columns=frame.columns[:9])
    room.contexts[TELCO] = replace(room.contexts[TELCO], frame=shorter)
    assert_pooled(job, type(room)(room.protocol, room.contexts))


# Wherever the rows lie


@pytest.mark.some(2)
@pytest.mark.parametrize("rows", [{}, SPARSE], ids=["dense", "sparse"])
@pytest.mark.parametrize("objective", [{}, CLASSES], ids=["binary", "classes"])
@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
def test_any_number_of_rows_at_a_party_comes_to_the_pooled_model(sizes, objective, rows):
    assert_pooled(made(objective, sizes, weighted=True, **rows))


@pytest.mark.parametrize("objective", [{}, CLASSES], ids=["binary", "classes"])
def test_parties_with_one_class_only_learn_the_pooled_model(objective):
    job = made(objective, (60, 90, 90), sorted=True)
    assert len(set(job.y[job.spans[GUEST]])) == 1
    assert_pooled(job)


@pytest.mark.some(2)
@pytest.mark.parametrize("rows", [{}, SPARSE], ids=["dense", "sparse"])
@pytest.mark.parametrize("mode", MODES.values(), ids=MODES)
@pytest.mark.parametrize(("held", "counts"), [(0.3, [1, 0]), (0.6, [0, 1])])
def test_a_party_without_rows_of_a_part_takes_part(held, counts, mode, rows):
    done = assert_pooled(made(mode, (100, 1, 90), held=held, **rows))
    seen = done.room.state(TELCO).training.watched
    assert [len(seen[part].y) for part in ("train", "validation")] == counts


@pytest.mark.parametrize("mode", MODES.values(), ids=MODES)
@pytest.mark.parametrize("aggregator", [AGGREGATOR, GUEST, TELCO])
def test_whoever_adds_up_the_model_is_the_same(aggregator, mode):
    job = made({**CLASSES, **mode}, weighted=True)
    assert_pooled(job, job.room(aggregator=aggregator))


@pytest.mark.parametrize("colluders", [0, 2])
def test_a_job_that_could_lose_hosts_ends_with_the_model_of_one_that_could_not(colluders):
    job = made({}, (30,) * 8 if colluders else (90, 80, 70), weighted=True)
    waits = now(job.room().walk())
    room = job.room({"dropout": "continue", "colluders": colluders})
    goes_on = now(room.walk())
    for shard in (waits[GUEST], goes_on[GUEST]):
        for name in ("dropout", "colluders"):
            shard.facts["params"].pop(name, None)
    assert_same_shards({"waits": waits[GUEST], "goes on": goes_on[GUEST]})
    steps = {posted.envelope.step for posted in room.posted}
    assert {"deal_shares", "reveal_whole", "open_total"} <= steps


# What travels


def rounds_bytes(job):
    """A party's bytes of one round: what two more rounds cost, halved; the aggregator is apart."""
    spent = []
    for rounds in (1, 3):
        loss = "logloss" if job.own.n_outputs == 1 else "mlogloss"
        own = with_params(job, n_estimators=rounds, eval_metric=[loss])
        room = own.room(aggregator=AGGREGATOR)
        now(room.walk())
        spent.append(sum(uplink(room, TELCO).values()))
    assert (spent[1] - spent[0]) % 2 == 0
    return (spent[1] - spent[0]) // 2


@pytest.mark.parametrize("rows", [{}, SPARSE], ids=["dense", "sparse"])
@pytest.mark.parametrize(("outputs", "objective"), [(16, CLASSES), (32, {}), (64, CLASSES)])
def test_a_round_costs_a_party_what_the_paper_says_and_a_tenth_at_most(outputs, objective, rows):
    job = made({"outputs": outputs, **objective}, **rows)
    c, k = job.own.n_outputs, outputs
    paper = 8 * (2 * k + 1 + c * k * (k + 1) // 2 + c * k)
    assert paper <= rounds_bytes(job) <= 1.1 * paper


@pytest.mark.parametrize("columns", [10**4, pytest.param(10**6, marks=pytest.mark.full)])
def test_a_million_sparse_columns_cost_as_much_as_a_hundred(columns):
    """Of the whole job, not of a round alone."""
    rows = made({"outputs": 16, "n_estimators": 2}, (20, 20, 20), 100, sparse=True, missing=0.0)
    spent = []
    for width in (100, columns):
        room = rows.room()
        for party, context in room.contexts.items():
            frame = context.frame
            if frame is not None:
                indices = np.linspace(0, width - 1, 100).astype(np.int64)
                own = frame.values.tocoo()
                entries = (own.data, (own.coords[0], indices[own.coords[1]]))
                values = csc_array(entries, shape=(frame.values.shape[0], width))
                names = tuple(f"f{i}" for i in range(width))
                room.contexts[party] = replace(
                    context, frame=replace(frame, values=values, columns=names)
                )
        room = type(room)(room.protocol, room.contexts)
        left = now(room.walk())
        spent.append(uplink(room, TELCO))
        assert left[GUEST].facts["columns"] == []
    assert spent[0] == spent[1]
