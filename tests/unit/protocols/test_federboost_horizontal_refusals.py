"""What horizontal FederBoost refuses: before anything has left, or before anybody searches."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csc_array

from fedboost.aggregation import measures
from fedboost.core.objectives import Summary
from fedboost.core.params import TreeParams
from fedboost.flow import AGGREGATOR, GUEST, HOST
from fedboost.ground.errors import ConfigError, DataError, JobError, PeerError
from fedboost.ground.settings import parse_settings
from fedboost.protocols.federboost_horizontal.checks import check_table
from fedboost.protocols.federboost_horizontal.params import DOMAIN_MAX, FederBoostHorizontalParams
from tests.support.federated import GUEST as GUEST_NAME
from tests.support.federated import HOSTS, Room, changing, now
from tests.support.horizontal_jobs import STEPS, made
from tests.support.secureboost_jobs import CLASSES

TELCO = HOSTS[0]
TOWNS = ["town 0", "town 1", "town 2", "town 3"]


def params_of(**said):
    return parse_settings(FederBoostHorizontalParams, said)


def table(**how):
    """The table of one party."""
    return made(categories=4, steps=True, **how).frames()[TELCO]


def refusal(frame, kind, held=True, role=HOST, **said):
    """What is said against the table."""
    said.setdefault("domains", {"c0": list(STEPS), "c3": TOWNS})
    with pytest.raises(kind) as refused:
        check_table(role, params_of(**said), frame, held)
    return refused.value


def without_categories(frame):
    """The same codes as numbers."""
    return replace(frame, categories={})


# What a job may say


BAD_PARAMS: dict[str, tuple[dict[str, Any], str]] = {
    "medians": ({"objective": "reg:absoluteerror"}, "takes medians of leaves"),
    "mixed": ({"domains": {"a": ["x", 1.0]}}, "domains of a mix texts and numbers"),
    "twice": ({"domains": {"a": ["x", "y", "x"]}}, "domains of a name a category twice"),
    "falling": ({"domains": {"a": [2.0, 1.0]}}, "domains of a do not rise"),
    "equal": ({"domains": {"a": [1.0, 1.0]}}, "domains of a do not rise"),
    "too near": ({"domains": {"a": [1.0, 1.0 + 1e-12]}}, "do not rise, read as 32-bit floats"),
    "zeros": ({"domains": {"a": [-0.0, 0.0]}}, "domains of a do not rise"),
    "beyond": ({"domains": {"a": [0.0, 1e300]}}, "do not rise, read as 32-bit floats"),
    "not a number": ({"domains": {"a": [0.0, float("nan")]}}, "domains.a"),
    "none": ({"domains": {"a": []}}, "domains.a"),
    "a bool": ({"domains": {"a": [True]}}, "domains.a"),
    "too many": (
        {"domains": {"a": [*range(33)]}},
        "domains of a have 33 values, max_bin is 32",
    ),
    "far too many": ({"domains": {"a": [*range(DOMAIN_MAX + 1)]}}, "domains.a"),
    "tolerance": ({"quantile_tolerance": -1}, "quantile_tolerance"),
    "job id": ({"reuse": "../x"}, "reuse"),
    "reuse and domains": ({"reuse": "x", "domains": {}}, "domains was settled by the job in reuse"),
    "reuse and bins": ({"reuse": "x", "max_bin": 8}, "max_bin was settled by the job in reuse"),
    "colluders": ({"colluders": -1}, "colluders"),
    "dropout": ({"dropout": "perhaps"}, "dropout"),
    "sums that repeat": (
        {"dropout": "continue", "objective": "reg:squarederror"},
        "shows what a lost party added where sums repeat",
    ),
}


@pytest.mark.parametrize(("said", "text"), BAD_PARAMS.values(), ids=BAD_PARAMS)
def test_a_job_that_cannot_be_meant_is_refused(said, text):
    with pytest.raises(ConfigError) as refused:
        params_of(**said)
    assert text in " ".join(refused.value.lines())


def test_domains_may_fill_all_bins_and_no_more():
    known = params_of(domains={"a": [*range(255)], "b": ["x"]}, max_bin=255).domains
    assert [len(values) for values in known.values()] == [255, 1]


# What a party says of its own table


def test_a_good_table_is_not_refused_and_an_aggregator_has_none():
    said = params_of(domains={"c0": list(STEPS), "c3": TOWNS})
    for role in (GUEST, HOST):
        check_table(role, said, table(weighted=True), held_out=False)
    check_table(AGGREGATOR, params_of(early_stopping_rounds=2), table(), held_out=False)


@pytest.mark.parametrize("role", [GUEST, HOST])
def test_a_table_without_a_label_is_refused_at_every_party(role):
    error = refusal(replace(table(), label=None), DataError, role=role)
    assert error.what == "the table has no label"


def test_early_stopping_without_rows_held_out_is_refused():
    error = refusal(table(), ConfigError, held=False, early_stopping_rounds=2)
    assert error.what == "early_stopping_rounds needs validation rows and there are none"


LABELS: dict[str, tuple[dict[str, Any], float, str]] = {
    "no class": ({}, 2.0, "are not one of the whole numbers 0 to 1"),
    "half a class": (CLASSES, 0.5, "are not one of the whole numbers 0 to 2"),
    "negative count": ({"objective": "count:poisson"}, -1.0, "are negative"),
    "infinite": ({"objective": "reg:squarederror"}, np.inf, "missing or infinite"),
}


@pytest.mark.parametrize(("said", "value", "text"), LABELS.values(), ids=LABELS)
def test_labels_that_the_objective_cannot_use_are_counted(said, value, text):
    frame = table()
    label = np.zeros(frame.n_rows)
    label[[3, 8]] = value
    error = refusal(replace(frame, label=label), DataError, **said)
    assert error.what.startswith(f"2 of {frame.n_rows} labels")
    assert text in error.what


def test_negative_weights_are_counted():
    frame = table(weighted=True)
    weight = frame.weight.copy()
    weight[:3] = -1.0
    error = refusal(replace(frame, weight=weight), DataError)
    assert error.what.startswith(f"3 of {frame.n_rows} weights are negative")


def test_a_domain_of_a_column_that_is_not_there_is_refused():
    domains = {"c0": list(STEPS), "c3": TOWNS, "c9": [1.0]}
    error = refusal(table(), ConfigError, domains=domains)
    assert error.what == "domains names a column that the table does not have"
    assert error.where == {"column": "c9"}


def test_categories_need_a_domain():
    error = refusal(table(), ConfigError, domains={"c0": list(STEPS)})
    assert error.what.startswith("a categorical column needs its categories from the job")
    assert error.where == {"column": "c3"}
    assert error.todo == "domains: {c3: [first, second, …]}"
    numbers = {"c0": list(STEPS), "c3": [0.0, 1.0, 2.0, 3.0]}
    assert refusal(table(), ConfigError, domains=numbers).what == error.what


def test_categories_of_an_earlier_job_need_none():
    check_table(HOST, params_of(reuse="job-1"), table(), held_out=False)


def test_a_domain_of_texts_for_a_column_of_numbers_is_refused():
    error = refusal(without_categories(table()), ConfigError)
    assert error.what == "domains names categories of a column that holds numbers"
    assert error.where == {"column": "c3"}


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_numbers_outside_their_domain_are_counted_and_not_shown(sparse):
    frame = made(steps=True, missing=0.0).frames()[TELCO]
    values = frame.values.copy(order="F")
    values[:, 0] = np.where(values[:, 0] < 0, -1.0, values[:, 0])
    values[[2, 5, 7], 0] = 0.3125
    frame = replace(frame, values=csc_array(values) if sparse else values)
    error = refusal(frame, DataError, domains={"c0": list(STEPS)})
    assert error.what == f"3 of {frame.n_rows} values are not in the column's domain"
    assert error.where == {"column": "c0"}
    assert "0.31" not in " ".join(error.lines())


def test_zeros_that_a_sparse_table_does_not_store_are_values_like_others():
    frame = made(steps=True, missing=0.0, zero=0.7, sparse=True).frames()[TELCO]
    zeros = frame.n_rows - np.diff(frame.values.indptr)[0]
    error = refusal(frame, DataError, domains={"c0": [-1.0, -0.5, 0.5, 1.0]})
    assert error.what.startswith(f"{zeros} of {frame.n_rows} values")


def test_categories_outside_their_domain_are_counted_and_not_shown():
    frame = table()
    codes = frame.values[:, 3]
    lost = frame.categories["c3"].index("town 2")
    domains = {"c0": list(STEPS), "c3": ["town 0", "town 1", "town 3"]}
    error = refusal(frame, DataError, domains=domains)
    assert error.what.startswith(f"{np.count_nonzero(codes == lost)} of {frame.n_rows} values")
    assert "town" not in " ".join(error.lines())


def test_missing_cells_are_in_every_domain():
    frame = table(missing=0.5)
    values = frame.values.copy(order="F")
    values[:, 0] = np.nan
    check_table(
        HOST, params_of(domains={"c0": [7.0], "c3": TOWNS}), replace(frame, values=values), True
    )


# What parties find out from the first words and sums


def room_with(job, change, parties=(TELCO,), contexts=None):
    """The room of a job in which these parties have another table."""
    room = job.room()
    contexts = contexts or room.contexts
    others = {p: replace(contexts[p], frame=change(job.frames()[p])) for p in parties}
    return Room(room.protocol, {**contexts, **others})


def stopped(room, kind):
    """What ended the walk, and the steps that had given something until then."""
    with pytest.raises(kind) as refused:
        now(room.walk())
    return refused.value, {posted.envelope.step for posted in room.posted}


def named(*names):
    """A function that gives a table's columns other names, and leaves out those without one."""

    def change(frame):
        return replace(frame, values=frame.values[:, : len(names)], columns=names)

    return change


OTHERS = {
    "lacking": (("c0", "c1", "c2"), "the table lacks 1 columns that bank has", "c3"),
    "more": (("c0", "c1", "c2", "c3", "c4"), "the table has 1 columns that bank lacks", "c4"),
    "others": (("c0", "x1", "x2", "c3"), "the table lacks 2 columns that bank has", "c1"),
}


@pytest.mark.parametrize(("names", "text", "column"), OTHERS.values(), ids=OTHERS)
def test_columns_that_differ_are_refused_before_a_key_is_offered(names, text, column):
    job = made(columns=5)
    narrow = room_with(job, named("c0", "c1", "c2", "c3"), (GUEST_NAME, HOSTS[1]))
    room = room_with(job, named(*names), contexts=narrow.contexts)
    error, steps = stopped(room, DataError)
    assert error.what == text
    assert error.where["column"] == column
    assert error.where["party"] == TELCO
    assert steps == {"show_columns"}


def test_a_guest_that_calls_numbers_categories_is_refused():
    room = made().room(alter=changing("Columns", lambda said: said.categorical.append("c1")))
    error, steps = stopped(room, DataError)
    assert error.what == "a column holds categories here or at bank, and numbers at the other"
    assert error.where["column"] == "c1"
    assert steps == {"show_columns"}


def test_a_guest_that_names_a_column_twice_is_refused():
    room = made().room(alter=changing("Columns", lambda said: said.names.append("c1")))
    error, steps = stopped(room, PeerError)
    assert error.what == "bank names a column twice"
    assert steps == {"show_columns"}


FIRST = {"show_columns", "tell_standing", "offer_keys", "count_rows", "add_up"}
COUNTED = {*FIRST, "sum_labels"}


def test_early_stopping_is_refused_where_no_party_has_rows_enough_to_hold_any_out():
    job = made({"early_stopping_rounds": 2}, held=0.001)
    assert not job.out.any()
    error, steps = stopped(job.room(), ConfigError)
    assert error.what == "early_stopping_rounds needs validation rows and there are none"
    assert steps == FIRST


def test_no_training_row_anywhere_is_refused():
    job = made(sizes=(1, 1, 1), held=0.9)
    assert job.out.all()
    error, steps = stopped(job.room(), DataError)
    assert error.what == "no party has rows to train on"
    assert steps == FIRST


def constant(value):
    """A function that gives a table with one label for all rows."""
    return lambda frame: replace(frame, label=np.full(frame.n_rows, value))


@pytest.mark.parametrize("base_score", [None, 0.5])
@pytest.mark.parametrize("value", [0.0, 1.0])
@pytest.mark.parametrize("objective", [{}, CLASSES], ids=["binary", "classes"])
def test_one_class_at_all_parties_is_refused_before_anybody_searches(objective, value, base_score):
    job = made({**objective, "base_score": base_score}, weighted=True)
    room = room_with(job, constant(value), job.parties)
    error, steps = stopped(room, DataError)
    assert error.what.startswith("all labels of all parties are the same class")
    assert steps == COUNTED


def test_one_class_in_all_rows_with_a_weight_is_refused():
    job = made(weighted=True)
    light = replace(job, weight=np.where(job.y == 1.0, job.weight, 0.0))
    error, _ = stopped(light.room(), DataError)
    assert error.what.startswith("all labels of all parties are the same class")


@pytest.mark.parametrize("objective", ["count:poisson", "reg:tweedie"])
def test_labels_that_are_all_zero_are_refused_where_the_objective_needs_more(objective):
    job = made({"objective": objective})
    error, steps = stopped(room_with(job, constant(0.0), job.parties), DataError)
    assert error.what == f"all labels with a weight above 0 are 0; {objective} needs some"
    assert steps == COUNTED


def test_labels_that_are_all_alike_are_learned_where_they_are_numbers():
    job = made({"objective": "reg:squarederror"})
    for value in (0.0, 7.5):
        shards = now(room_with(job, constant(value), job.parties).walk())
        assert shards[GUEST_NAME].facts["base_margin"] == [value]
        assert not shards[GUEST_NAME].arrays["value"].any()


def test_weights_that_are_all_zero_are_refused():
    job = made(weighted=True)
    room = room_with(job, lambda f: replace(f, weight=np.zeros(f.n_rows)), job.parties)
    error, steps = stopped(room, DataError)
    assert error.what == f"all {(~job.out).sum()} weights are 0"
    assert steps == COUNTED


@pytest.mark.parametrize("what", ["label", "weight"])
def test_labels_and_weights_beyond_the_largest_bound_are_refused(what):
    job = made({"objective": "reg:squarederror"}, weighted=True)
    huge = {what: np.full(job.sizes[1], 2.0**63 * 1.5)}
    error, steps = stopped(room_with(job, lambda f: replace(f, **huge)), JobError)
    assert error.what == f"a {what} is above 2^63"
    assert steps == FIRST


@pytest.mark.parametrize("size", [2.0**63, 2.0**-60, 1e-300])
def test_labels_up_to_the_largest_bound_are_learned(size):
    job = made({"objective": "reg:squarederror"})
    small = replace(job, y=job.y * (size / np.abs(job.y).max()))
    shards = now(small.room().walk())
    tops = np.abs(shards[GUEST_NAME].arrays["value"]).max()
    assert 0 < tops <= 2 * size or size < 2.0**-64


# Sums of labels


@pytest.mark.parametrize("params", [{}, {"scale_pos_weight": 3.0}, CLASSES], ids=str)
def test_the_summary_of_the_sums_is_within_a_unit_of_that_of_the_rows(params):
    job = made(params, weighted=True, held=None)
    own = TreeParams(**params)
    exact = Summary.of(own, job.y, job.weight)
    room = job.room()
    now(room.walk())
    found = room.state(GUEST_NAME).summary
    assert found.rows == exact.rows
    assert found.weight_sum == pytest.approx(exact.weight_sum, rel=1e-12)
    assert found.mean == pytest.approx(exact.mean, rel=1e-12)
    assert found.shares == pytest.approx(exact.shares, rel=1e-12)
    assert found.low <= exact.low <= exact.high <= found.high
    assert exact.weight_max <= found.weight_max <= 2 * exact.weight_max
    assert np.log2([found.weight_max, found.high]).tolist() == [
        int(np.log2(one)) for one in (found.weight_max, found.high)
    ]


def test_nobodys_largest_label_is_told_but_the_power_of_two_above_all_of_them():
    ends, one = measures.EXPONENTS, np.arange(1, dtype=np.int32)
    shares = [
        measures.counts_of_rows(np.zeros(1, np.int64), np.array(label), np.ones(1), {"train": one})
        for label in ([3.0], [-5.0], [0.5])
    ]
    found = measures.read_counts(np.sum(shares, axis=0), 1)
    assert (found.label_bound, found.weight_bound) == (8.0, 1.0)
    assert all(len(share) == 2 + 1 + 2 * len(ends) for share in shares)


async def test_a_tree_whose_first_sum_stays_closed_after_all_have_signed_for_it_is_refused(
    monkeypatch,
):
    params = {"n_estimators": 1, "max_bin": 4, "dropout": "continue", "colluders": 0}
    room = await made(held=None).room(params).until("split_nodes")
    me = room.state(HOSTS[0])
    monkeypatch.setattr(me.sums, "total", lambda *_: None)
    with pytest.raises(PeerError, match="stays closed though all remaining parties signed it"):
        room.protocol.module(HOST).split_nodes(me, iter(()))
