"""Horizontal FederBoost grows the trees of one table, wherever its rows lie."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fedboost.core.quantiles import Ranked, Search
from fedboost.ground.errors import ConfigError
from tests.equivalence.test_secureboost_categories import by_category
from tests.equivalence.test_secureboost_forests import KINDS as FORESTS
from tests.support.federated import GUEST, HOSTS, now
from tests.support.horizontal_jobs import (
    AGGREGATOR,
    assert_pooled,
    assert_same_shards,
    assert_same_trees,
    made,
    pooled,
    with_params,
)
from tests.support.secureboost_jobs import CLASSES, SAMPLES, VECTORS

OBJECTIVES: dict[str, dict[str, Any]] = {
    "binary": {},
    "imbalance": {"scale_pos_weight": 2.5},
    "classes": CLASSES,
    "vectors": VECTORS,
    "numbers": {"objective": "reg:squarederror"},
    "counts": {"objective": "count:poisson"},
    "amounts": {"objective": "reg:tweedie"},
    "positive": {"objective": "reg:gamma"},
    "far errors": {"objective": "reg:pseudohubererror", "huber_slope": 0.5},
}
CONTINUE: dict[str, Any] = {"dropout": "continue", "colluders": 0}
MODES: dict[str, dict[str, Any]] = {"wait": {}, "continue": CONTINUE}
TELCO = HOSTS[0]


# Whatever the job asks for


@pytest.mark.parametrize("weighted", [False, True], ids=["", "weighted"])
@pytest.mark.parametrize("objective", OBJECTIVES.values(), ids=OBJECTIVES)
def test_every_objective_grows_the_pooled_trees(objective, weighted):
    done = assert_pooled(made(objective, weighted=weighted))
    assert sum(tree.n_nodes for trees in done.trained.rounds for tree in trees) > 20


@pytest.mark.some(2)
@pytest.mark.parametrize("mode", MODES.values(), ids=MODES)
@pytest.mark.parametrize("depth", range(1, 7))
def test_every_depth_grows_the_pooled_trees(depth, mode):
    done = assert_pooled(made({"max_depth": depth, **mode}))
    leaves = [tree.is_leaf.sum() for trees in done.trained.rounds for tree in trees]
    assert 2 ** (depth - 1) < max(leaves) <= 2**depth or depth > 4


PRUNED: dict[str, dict[str, Any]] = {
    "gamma": {"gamma": 3.0},
    "alpha": {"reg_alpha": 4.0},
    "lambda": {"reg_lambda": 20.0},
    "weight of a child": {"min_child_weight": 12.0},
    "monotone": {"monotone_constraints": {"c0": 1, "c1": -1, "c2": 1}},
    "all": {"gamma": 0.5, "reg_alpha": 1.0, "reg_lambda": 0.0, "min_child_weight": 5.0},
    "stumps that are leaves": {"gamma": 1e6},
}


@pytest.mark.some(2)
@pytest.mark.parametrize("mode", MODES.values(), ids=MODES)
@pytest.mark.parametrize("params", PRUNED.values(), ids=PRUNED)
def test_trees_that_end_early_are_the_pooled_ones(params, mode):
    done = assert_pooled(made({"max_depth": 5, **params, **mode}, weighted=True))
    full = assert_pooled(made({"max_depth": 5}, weighted=True))
    sizes = [one.shards[GUEST].arrays["sizes"].sum() for one in (done, full)]
    assert sizes[0] < sizes[1]


@pytest.mark.parametrize("objective", [{}, CLASSES, VECTORS], ids=["binary", "classes", "vectors"])
@pytest.mark.parametrize("sample", SAMPLES.values(), ids=SAMPLES)
def test_samples_are_those_of_the_parties_own_rows(sample, objective):
    done = assert_pooled(made({**sample, **objective}, weighted=True))
    whole = assert_pooled(made(objective, weighted=True))
    values = [one.shards[GUEST].arrays["value"].tobytes() for one in (done, whole)]
    assert values[0] != values[1]


@pytest.mark.some(2)
@pytest.mark.parametrize("mode", MODES.values(), ids=MODES)
@pytest.mark.parametrize("objective", [{}, CLASSES, VECTORS], ids=["binary", "classes", "vectors"])
@pytest.mark.parametrize("kind", FORESTS.values(), ids=FORESTS)
def test_forests_are_those_of_one_table(kind, objective, mode):
    done = assert_pooled(made({**kind, **objective, **mode, "n_estimators": 4}))
    facts = done.shards[GUEST].facts
    assert sum(facts["forest"]) * facts["trees_per_round"] == facts["trees"]


# Whatever the table is


@pytest.mark.parametrize("missing", [0.0, 0.5])
def test_missing_values_go_where_they_go_in_one_table(missing):
    done = assert_pooled(made(missing=missing))
    lost = done.shards[GUEST].arrays["missing_left"]
    assert bool(lost.any()) == (missing > 0)


@pytest.mark.parametrize("mode", MODES.values(), ids=MODES)
@pytest.mark.parametrize("zero", [0.5, 0.95])
def test_sparse_tables_come_to_the_same_model_as_dense_ones(zero, mode):
    sparse = assert_pooled(made(mode, zero=zero, sparse=True, weighted=True))
    dense = assert_pooled(made(mode, zero=zero, weighted=True))
    assert_same_shards({"sparse": sparse.shards[GUEST], "dense": dense.shards[GUEST]})


@pytest.mark.parametrize("missing", [0.0, 0.2], ids=["", "missing"])
@pytest.mark.parametrize("categories", [3, 8])
def test_categories_are_divided_as_in_one_table(categories, missing):
    job = made({"n_estimators": 5}, categories=categories, missing=missing)
    done = assert_pooled(job)
    assert by_category(done.trained.rounds) > 2
    assert done.shards[GUEST].facts["categories"] == {"c3": list(job.lists["c3"])}


def test_parties_that_have_only_some_of_the_categories_divide_them_alike():
    job = made({"n_estimators": 5}, categories=6)
    column = job.values[:, -1]
    for span, lost in zip(job.spans.values(), ([0], [2, 3], [5]), strict=True):
        own = column[span]
        own[np.isin(own, lost)] = np.nan
    frames = job.frames()
    assert len({frame.categories["c3"] for frame in frames.values()}) == 3
    assert by_category(assert_pooled(job).trained.rounds) > 0


def test_discrete_columns_are_cut_between_the_values_of_their_domain():
    done = assert_pooled(made(steps=True))
    binning = done.room.state(GUEST).training.rules.binning
    assert binning.cuts[0].tolist() == [-0.75, -0.25, 0.25, 0.75]
    asked = done.room.state(GUEST).search.cuts()
    assert len(asked) == 3  # nobody has searched for the first column's


def test_a_table_whose_columns_are_all_known_needs_no_search():
    job = made(steps=True, columns=1)
    done = assert_pooled(job)
    assert not any(posted.envelope.step == "count_below" for posted in done.room.posted)
    both = assert_pooled(made(steps=True, columns=2, categories=4))
    assert both.room.state(GUEST).table.searched.tolist() == []


def test_discrete_columns_of_sparse_tables_are_cut_by_their_domain_too():
    assert_pooled(made(steps=True, sparse=True, zero=0.5))


@pytest.mark.parametrize("values", [np.nan, 4.0], ids=["missing", "constant"])
@pytest.mark.parametrize("of", ["one party", "everybody"])
def test_a_column_without_anything_to_tell_does_no_harm(of, values):
    job = made()
    job.values[job.spans[TELCO] if of == "one party" else slice(None), 1] = values
    done = assert_pooled(job)
    used = done.shards[GUEST].arrays["feature"]
    assert (1 in used.tolist()) == (of == "one party")


def test_columns_stand_in_the_guests_order_whoever_has_them_how():
    job = made(categories=4, steps=True)
    room = job.room()
    frames = job.frames()
    order = [2, 0, 3, 1]
    shop = frames[HOSTS[1]]
    frames[HOSTS[1]] = replace(
        shop,
        values=np.asfortranarray(shop.values[:, order]),
        columns=tuple(shop.columns[place] for place in order),
    )
    room.contexts[HOSTS[1]] = replace(room.contexts[HOSTS[1]], frame=frames[HOSTS[1]])
    assert_pooled(job, type(room)(room.protocol, room.contexts))


# Wherever the rows lie


SIZES: dict[str, tuple[int, ...]] = {
    "three": (80, 80, 80),
    "uneven": (10, 200, 30),
    "skewed": (300, 4, 1),
    "eight": (30, 31, 29, 40, 8, 50, 22, 30),
}


@pytest.mark.parametrize("objective", [{}, CLASSES], ids=["binary", "classes"])
@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
def test_any_number_of_rows_at_a_party_comes_to_the_pooled_model(sizes, objective):
    assert_pooled(made({**objective, **SAMPLES["both"]}, sizes, weighted=True))


def test_the_same_rows_dealt_otherwise_come_to_the_same_model():
    jobs = [made(sizes=sizes, held=None) for sizes in ((80, 80, 80), (1, 237, 2), (30,) * 8)]
    shards = {job.sizes: assert_pooled(job).shards[GUEST] for job in jobs}
    assert_same_shards(shards)


@pytest.mark.some(1, of="models of many")
def test_thirty_two_parties_come_to_the_pooled_model():
    assert_pooled(made({"n_estimators": 2, **SAMPLES["rows"]}, (6,) * 32, categories=3))


def test_two_parties_come_to_the_pooled_model_where_their_policies_let_them():
    job = made(sizes=(120, 100))
    context = job.room().contexts[GUEST]
    limits = context.limits.model_copy(update={"aggregation_parties_min": 2})
    assert_pooled(job, job.room(limits=limits))


@pytest.mark.parametrize("objective", [{}, CLASSES], ids=["binary", "classes"])
def test_parties_with_one_class_only_learn_the_pooled_model(objective):
    job = made(objective, (60, 90, 90), sorted=True)
    first = job.spans[GUEST]
    assert len(set(job.y[first])) == 1
    assert_pooled(job)


@pytest.mark.parametrize("mode", MODES.values(), ids=MODES)
def test_a_party_without_validation_rows_measures_nothing_of_them(mode):
    job = made(mode, (100, 1, 90), held=0.3)
    done = assert_pooled(job)
    seen = done.room.state(TELCO).training.watched
    assert [len(seen[part].y) for part in ("train", "validation")] == [1, 0]


@pytest.mark.parametrize("sample", [{}, *SAMPLES.values(), FORESTS["moving"]], ids=str)
def test_a_party_without_training_rows_still_takes_part(sample):
    job = made({"n_estimators": 4, **sample}, (100, 1, 90), held=0.6)
    done = assert_pooled(job)
    seen = done.room.state(TELCO).training.watched
    assert [len(seen[part].y) for part in ("train", "validation")] == [0, 1]


@pytest.mark.parametrize("mode", MODES.values(), ids=MODES)
@pytest.mark.parametrize("aggregator", [AGGREGATOR, GUEST, TELCO, HOSTS[1]])
def test_whoever_adds_up_the_model_is_the_same(aggregator, mode):
    job = made({**CLASSES, **mode}, weighted=True)
    assert_pooled(job, job.room(aggregator=aggregator))


@pytest.mark.parametrize("colluders", [0, 2])
def test_a_job_that_could_lose_hosts_ends_with_the_model_of_one_that_could_not(colluders):
    job = made(SAMPLES["both"], (30,) * 8 if colluders else (90, 80, 70), weighted=True)
    waits = now(job.room().walk())
    room = job.room({"dropout": "continue", "colluders": colluders})
    goes_on = now(room.walk())
    for shard in (waits[GUEST], goes_on[GUEST]):
        for name in ("dropout", "colluders"):
            shard.facts["params"].pop(name, None)
    assert_same_shards({"waits": waits[GUEST], "goes on": goes_on[GUEST]})
    steps = {posted.envelope.step for posted in room.posted}
    assert {"deal_shares", "reveal_whole", "open_whole"} <= steps


# What everybody knows of the rows


@pytest.mark.parametrize("sizes", [(90, 80, 70), (240, 3, 2)], ids=str)
@pytest.mark.parametrize("objective", [{}, {"scale_pos_weight": 4.0}], ids=["", "imbalance"])
def test_of_binary_labels_the_sums_say_as_much_as_the_rows(objective, sizes):
    job = made(objective, sizes)
    room = job.room()
    shards = now(room.walk())
    found = room.state(GUEST)
    binning = found.training.rules.binning
    trained = pooled(job, found)
    alone = pooled(job, SimpleNamespace(training=found.training, summary=None))
    assert alone.binning is binning
    assert alone.base_margin.tobytes() == trained.base_margin.tobytes()
    assert_same_trees(shards[GUEST], alone.rounds)


@pytest.mark.some(2)
@pytest.mark.parametrize("least", [5, 12])
@pytest.mark.parametrize(
    ("params", "how"),
    [
        ({}, {}),
        (SAMPLES["both"], {"weighted": True}),
        (CLASSES, {"categories": 5}),
        (VECTORS, {"missing": 0.02}),
        ({}, {"sparse": True, "zero": 0.5}),
        ({"monotone_constraints": {"c0": 1, "c1": -1}}, {}),
        (CONTINUE, {"sizes": (90, 20, 150)}),
    ],
    ids=["plain", "sampled", "classes", "vectors", "sparse", "monotone", "few rows"],
)
def test_sums_of_own_rows_min_grow_the_trees_of_one_table(params, how, least):
    job = made(params, **{"own_rows_min": least, **how})
    found = assert_pooled(job)
    free = pooled(replace(job, own_rows_min=1), found.room.state(GUEST))
    covers, others = (
        [tree.cover.tobytes() for own in trained.rounds for tree in own]
        for trained in (found.trained, free)
    )
    assert covers != others, "no sum was of fewer rows"


@pytest.mark.parametrize("buckets", [2, 8, 31])
@pytest.mark.parametrize("tolerance", [0, 5, None])
def test_cut_points_are_those_of_a_search_over_all_rows(tolerance, buckets):
    params = {"max_bin": buckets, "quantile_tolerance": tolerance, "n_estimators": 1}
    rows = 120 * buckets if tolerance is None else 300
    job = made({**params, "max_depth": 1}, (rows, rows // 2, rows // 3))
    room = job.room()
    now(room.walk())
    ranked = Ranked.of(np.asfortranarray(job.values[~job.out]))
    search = Search(ranked.present(), buckets, tolerance)
    while not search.is_over:
        search.take(ranked.count_below(search.next_probes()))
    for party in job.parties:
        cuts = room.state(party).training.rules.binning.cuts
        assert [own.tobytes() for own in cuts] == [own.tobytes() for own in search.cuts()]
    assert sum(map(len, search.cuts())) > 0


def test_more_buckets_than_the_rows_allow_are_refused_before_anybody_searches():
    job = made({"quantile_tolerance": None, "max_bin": 4}, (150, 150, 127), held=0.25)
    assert (~job.out).sum() == 320 - 1
    room = job.room()
    with pytest.raises(ConfigError, match="max_bin is 4 and all parties have 319 training rows"):
        now(room.walk())
    assert {posted.envelope.step for posted in room.posted} <= {
        "show_columns", "tell_standing", "offer_keys", "count_rows", "add_up",
    }  # fmt: skip
    assert_pooled(with_params(job, quantile_tolerance=3))
    assert_pooled(with_params(made(sizes=(150, 152, 127)), quantile_tolerance=None, max_bin=4))
