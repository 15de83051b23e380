"""What boosted networks refuse: before anything has left, or before anybody draws a network."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csc_array

from fedboost.aggregation import lookup
from fedboost.core.column_readings import Scale
from fedboost.core.fixed_point import bits_for_rows
from fedboost.flow import AGGREGATOR, GUEST, HOST
from fedboost.ground.errors import (
    ConfigError,
    DataError,
    JobError,
    ProtocolError,
)
from fedboost.ground.settings import parse_settings
from fedboost.protocols.gbun import columns
from fedboost.protocols.gbun.boosting import Scaling
from fedboost.protocols.gbun.params import GbunJobParams, check_table, policy_demands
from tests.support.federated import GUEST as GUEST_NAME
from tests.support.federated import HOSTS, Room, changing, now
from tests.support.gbun_jobs import made, pooled
from tests.support.secureboost_jobs import CLASSES
from tests.unit.protocols.test_federboost_horizontal_refusals import stopped

TELCO = HOSTS[0]
F32, LARGEST = np.float32, np.finfo(np.float32).max


def params_of(**said):
    return parse_settings(GbunJobParams, said)


def table(**how):
    """The table of one party."""
    return made(**how).frames()[TELCO]


def refusal(frame, kind, held=True, role=HOST, **said):
    """What is said against the table."""
    with pytest.raises(kind) as refused:
        check_table(role, params_of(**said), frame, held)
    return refused.value


# What a job may say


BAD_PARAMS: dict[str, tuple[dict[str, Any], str]] = {
    "medians": ({"objective": "reg:absoluteerror"}, "reg:absoluteerror moves by medians"),
    "trees": ({"max_depth": 3}, "max_depth"),
    "one output": ({"outputs": 1}, "outputs"),
    "too many": ({"outputs": 1025}, "outputs"),
    "colluders": ({"colluders": -1}, "colluders"),
    "dropout": ({"dropout": "perhaps"}, "dropout"),
    "metric": ({"eval_metric": "map", "objective": "reg:squarederror"}, "eval_metric map"),
}


@pytest.mark.parametrize(("said", "text"), BAD_PARAMS.values(), ids=BAD_PARAMS)
def test_a_job_that_cannot_be_meant_is_refused(said, text):
    with pytest.raises(ConfigError) as refused:
        params_of(**said)
    assert text in " ".join(refused.value.lines())


# What a party says of its own table


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_a_good_table_is_not_refused_and_an_aggregator_has_none(sparse):
    for role in (GUEST, HOST):
        check_table(role, params_of(), table(weighted=True, sparse=sparse), held_out=False)
    check_table(AGGREGATOR, params_of(early_stopping_rounds=2), table(), held_out=False)


@pytest.mark.parametrize("role", [GUEST, HOST])
def test_a_table_without_a_label_is_refused_at_every_party(role):
    error = refusal(replace(table(), label=None), DataError, role=role)
    assert error.what == "the table has no label"


def test_early_stopping_without_rows_held_out_is_refused():
    error = refusal(table(), ConfigError, held=False, early_stopping_rounds=2)
    assert error.what == "early_stopping_rounds needs validation rows and there are none"


def test_early_stopping_where_no_party_has_rows_enough_to_hold_any_out_is_refused():
    job = made({"early_stopping_rounds": 2}, held=0.001)
    assert not job.out.any()
    error, steps = stopped(job.room(), ConfigError)
    assert error.what == "early_stopping_rounds needs validation rows and there are none"
    assert "sum_outputs" not in steps


def test_categories_are_refused_by_the_column():
    frame = table()
    values = np.asfortranarray(np.abs(np.nan_to_num(np.round(frame.values))) % 2)
    frame = replace(frame, values=values, categories={"f2": ("north", "south")})
    error = refusal(frame, DataError)
    assert error.what == "networks read numbers, not categories"
    assert error.where == {"column": "f2"}
    assert "north" not in " ".join(error.lines())


@pytest.mark.parametrize("name", ["age", "f", "f01", "f-1", "f1234567890", "F1", "f1 "])
def test_sparse_columns_without_a_number_are_refused_by_name(name):
    frame = table(sparse=True)
    error = refusal(replace(frame, columns=(*frame.columns[:-1], name)), DataError)
    assert error.what == "a sparse column is hashed by its number and has none in its name"
    assert error.where == {"column": name}


LABELS: dict[str, tuple[dict[str, Any], float, str]] = {
    "no class": ({}, 2.0, "are not one of the whole numbers 0 to 1"),
    "half a class": (CLASSES, 0.5, "are not one of the whole numbers 0 to 2"),
    "negative count": ({"objective": "count:poisson"}, -1.0, "are negative"),
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


# What parties find out from the first words and sums


def room_with(job, change, parties=(TELCO,)):
    """The room of a job in which these parties have another table."""
    room = job.room()
    others = {p: replace(room.contexts[p], frame=change(job.frames()[p])) for p in parties}
    return Room(room.protocol, {**room.contexts, **others})


def test_a_sparse_table_beside_dense_ones_is_refused_before_a_key_is_offered():
    def sparse(frame):
        return replace(frame, values=csc_array(np.nan_to_num(frame.values)))

    error, steps = stopped(room_with(made(), sparse), DataError)
    assert error.what == "the table is sparse and that of bank is dense"
    assert error.where["party"] == TELCO
    assert steps == {"show_inputs"}


def test_a_dense_table_beside_sparse_ones_is_refused_too():
    def dense(frame):
        return replace(frame, values=np.asfortranarray(frame.values.toarray()))

    error, _ = stopped(room_with(made(sparse=True), dense), DataError)
    assert error.what == "the table is dense and that of bank is sparse"


@pytest.mark.parametrize(
    ("names", "column"),
    [(("f0", "f1", "f2", "f3"), "f4"), (("f0", "f1", "f2", "f3", "g"), "f4")],
    ids=["lacking", "others"],
)
def test_columns_that_differ_are_refused_by_name_before_a_key_is_offered(names, column):
    def renamed(frame):
        return replace(frame, values=frame.values[:, : len(names)], columns=names)

    error, steps = stopped(room_with(made(), renamed), DataError)
    assert error.what == "the table has not the same columns as that of bank"
    assert error.where["column"] == column
    assert steps == {"show_inputs"}


def test_a_guest_that_names_a_column_twice_is_refused():
    room = made().room(alter=changing("Inputs", lambda said: said.names.append("f1")))
    error, steps = stopped(room, DataError)
    assert error.what == "the table has not the same columns as that of bank"
    assert steps == {"show_inputs"}


def test_no_training_row_anywhere_is_refused():
    job = made(sizes=(1, 1, 1), held=0.9)
    assert job.out.all()
    error, steps = stopped(job.room(), DataError)
    assert error.what == "no party has rows to train on"
    assert "sum_columns" not in steps


@pytest.mark.parametrize("objective", [{}, CLASSES], ids=["binary", "classes"])
def test_one_class_at_all_parties_is_refused_before_anybody_draws_a_network(objective):
    job = made(objective)
    alike = room_with(job, lambda f: replace(f, label=np.zeros(f.n_rows)), job.parties)
    error, steps = stopped(alike, DataError)
    assert error.what.startswith("all labels of all parties are the same class")
    assert steps.isdisjoint({"show_reach", "sum_outputs"})


def test_equations_without_a_solution_end_the_job_with_what_to_do():
    job = made({"reg_lambda": 0.0, "outputs": 32}, columns=1)
    error, steps = stopped(job.room(), JobError)
    assert error.what == "the 32 equations of a round have no single solution"
    assert error.todo == "raise reg_lambda, or lower outputs"
    assert "measure" not in steps
    with pytest.raises(JobError, match="no single solution"):
        pooled(job)


def test_columns_that_are_too_large_to_be_summed_are_named():
    grown = columns.exceeded_powers(np.array([[1.0, np.inf]], np.float32)).reshape(2, -1)
    with pytest.raises(DataError, match="values are too large") as refused:
        columns.value_bounds(grown, ("a", "b"))
    assert refused.value.where == {"column": "b"}
    fits = columns.exceeded_powers(np.array([[1.0, np.finfo(np.float32).max]], np.float32))
    assert columns.value_bounds(fits.reshape(2, -1), ("a", "b")).tolist() == [1.0, 2.0**128]


# Columns as integers

COLUMNS = {
    "of all sizes": lambda draw, n: np.sign(draw.normal(size=n)) * 10.0 ** draw.uniform(-18, 18, n),
    "neighbours": lambda draw, n: np.where(draw.random(n) < 0.3, np.nextafter(F32(9), F32(10)), 9),
    "neighbours of the largest": lambda draw, n: np.where(
        draw.random(n) < 0.5, LARGEST, np.nextafter(LARGEST, F32(0))
    ),
    "subnormal": lambda draw, n: draw.normal(size=n) * 1e-44,
    "a moment of a day": lambda draw, n: 1.7e9 + draw.uniform(0, 86_400, n),
    "missing": lambda draw, n: np.where(draw.random(n) < 0.9, np.nan, draw.normal(size=n)),
    "one value": lambda draw, n: np.where(np.arange(n) == 2, 5.0, np.nan),
    "none": lambda draw, n: np.full(n, np.nan),
    "a constant": lambda draw, n: np.full(n, 0.1),
}


@pytest.mark.parametrize("rows", [3, 100, 5_000])
@pytest.mark.parametrize("column", COLUMNS)
def test_columns_are_standardised_as_in_one_place_however_they_are_dealt(column, rows):
    draw = np.random.default_rng(rows)
    values = COLUMNS[column](draw, rows).astype(np.float32)[:, None]
    parts = [values[own] for own in np.array_split(np.arange(rows), [rows // 4, rows // 4, -1])]
    exceeded = np.sum([columns.exceeded_powers(own) for own in parts], axis=0)
    bound = columns.value_bounds(exceeded.reshape(1, -1), ("x",))
    total = np.sum([columns.value_sums(own, bound, rows) for own in parts], axis=0)
    found = columns.standard_scale(total, bound, rows)
    scale = Scale.from_values(values)
    np.testing.assert_allclose(found.deviation, scale.deviation, rtol=1e-12, atol=0)
    np.testing.assert_allclose(found.mean, scale.mean, rtol=1e-12, atol=1e-12 * scale.deviation[0])


@pytest.mark.parametrize("rows", [1, 2, 511, 512, 1 << 16, (1 << 30) + 1])
def test_sums_of_columns_are_exact_and_fit_for_any_number_of_rows(rows):
    bits, own = bits_for_rows(rows), min(rows, 1 << 10)
    least = np.ldexp(1.0, -bits) if bits < 24 else np.ldexp(1.0, -23)
    values = np.where(np.arange(own) % 2, 1.0 - least, -1.0).astype(np.float32)[:, None]
    count, first, above, below = columns.value_sums(values, np.ones(1), rows).tolist()
    whole = [int(np.rint(np.float64(v) * 2.0**bits)) for v in values.ravel()]
    assert (count, first) == (own, sum(whole))
    assert (above << bits) + below == sum(q * q for q in whole)
    assert max(abs(first), above) * (rows / own) <= 2**62
    assert below < 2**bits


def test_sums_that_nobodys_columns_can_have_are_no_scale_of_none():
    """Whoever adds up may lie; what comes is a number, and the model is nobody's secret."""
    lies = np.array([3, 1 << 40, 0, 1], np.int64)
    assert columns.standard_scale(lies, np.ones(1), 240).deviation.tolist() == [1.0]


# Sums as integers


@pytest.mark.parametrize("most", [1e-300, 1e-9, 1.0, 3.7, 1e12, 1e200])
def test_sums_of_all_parties_fit_and_are_rounded_once_at_each(most):
    scaling = Scaling(most)
    own = np.array([most, -most, most / 3, 0.0])
    coded = scaling.encode(own)
    assert coded.dtype == np.int64
    assert np.abs(coded).max() + 2**7 < 2**62  # beside the roundings of 128 parties
    np.testing.assert_allclose(scaling.decode(coded), own, rtol=0, atol=scaling.unit / 2)
    assert scaling.unit <= most * 2.0**-53


async def test_there_is_nothing_to_train_with_before_rows_are_counted():
    room = await made().room().until("count_rows")
    state = room.state(GUEST_NAME)
    with pytest.raises(ProtocolError, match="everybody's rows to train with"):
        assert state.training


@pytest.mark.parametrize("rows", [0, -1, 10**6])
async def test_a_sum_over_more_rows_than_there_are_or_none_is_refused(rows):
    room = await made(held=None).room().until("sum_outputs")
    training = room.state(TELCO).training
    total = training.outputs()
    assert total[-1] == 70
    total[-1] = rows
    with pytest.raises(JobError, match=f"{rows} rows are said to be left to train on, of 240"):
        training.normalise(total)


async def test_a_network_whose_sums_stay_closed_gives_its_round_up():
    room = await made(held=None).room().until("sum_outputs")
    training = room.state(TELCO).training
    training.normalise(None)
    assert len(training.system_sums()) == 0
    assert training.solve(training.system_sums()) is False
    assert (training.number, training.rounds) == (1, [])


async def test_equations_that_stay_closed_give_their_round_up():
    room = await made(held=None).room().until("sum_outputs")
    training = room.state(TELCO).training
    training.normalise(training.outputs())
    assert training.solve(None) is False
    assert (training.number, training.rounds) == (1, [])


# Cut points


@pytest.mark.parametrize("form", ["rank", "bins", "auto"])
@pytest.mark.parametrize("tolerance", [None, 0, 30])
def test_a_policy_is_asked_how_near_the_search_comes_to_single_rows(form, tolerance):
    said = parse_settings(GbunJobParams, {"columns": form, "quantile_tolerance": tolerance})
    assert policy_demands(said).quantile_tolerance == tolerance


def test_nothing_is_asked_where_columns_are_standardised():
    said = parse_settings(GbunJobParams, {"columns": "standard", "quantile_tolerance": 0})
    assert policy_demands(said).quantile_tolerance is None


def test_sparse_columns_that_are_cut_need_to_be_the_same_everywhere():
    job = made({"columns": "bins"}, sparse=True, missing=0.0, columns=6)
    room, frame = job.room(), job.frames()[TELCO]
    fewer = replace(frame, values=frame.values[:, :5], columns=frame.columns[:5])
    room.contexts[TELCO] = replace(room.contexts[TELCO], frame=fewer)
    with pytest.raises(DataError, match="has not the same columns"):
        now(Room(room.protocol, room.contexts).walk())


def test_counts_that_no_rows_can_have_end_the_search(monkeypatch):
    def lie(party, got):
        party.search.take(np.full(len(party.search.next_probes()), -1))

    monkeypatch.setattr(lookup, "take_counts", lie)
    with pytest.raises(JobError, match="counts of the quantile search are impossible"):
        now(made({"columns": "rank"}).room().walk())
