"""Predictions of several models become one: exact numbers, missing rows, and what cannot be."""

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest

from fedboost.core.objectives import OBJECTIVES, of_classes
from fedboost.data.predictions import OBJECTIVE, parted, predictions_tables
from fedboost.ground.errors import ConfigError, DataError
from fedboost.model.bag import By, Kind, bagged, check_alike

SECRET = "anna-4711"  # an id, which no error may show


def part(name, ids, values, objective="", **more):
    """What the file of a model's predictions holds; ids of one column, or a table."""
    table = ids if isinstance(ids, pa.Table) else pa.table({"id": ids})
    scores = np.array(values, dtype=float)
    scores = scores[:, None] if scores.ndim == 1 else scores
    written = predictions_tables(table, np.arange(len(scores)), scores, objective)
    return parted(pa.concat_tables(written), name)


def test_the_mean_is_over_the_models_that_scored_a_row():
    parts = [
        part("a", ["x", "y", "z"], [0.25, 0.5, 1.0]),
        part("b", ["y", "w"], [0.75, 0.125]),
        part("c", ["w", "z", "y"], [0.375, 0.5, 1.0]),
    ]
    assert bagged(parts, "mean").to_pydict() == {
        "id": ["x", "y", "z", "w"],
        "prediction": [0.25, 0.75, 0.75, 0.25],
        "models": [1, 3, 2, 2],
    }


def test_a_model_votes_for_the_class_by_half_or_more():
    parts = [
        part("a", ["x", "y", "z"], [0.5, 0.9, 0.0]),
        part("b", ["y", "x", "w"], [0.49999, 0.51, 1.0]),
    ]
    found = bagged(parts, "vote").to_pydict()
    assert found["prediction"] == [1.0, 0.5, 0.0, 1.0]
    assert found["models"] == [2, 2, 1, 1]


def test_of_several_classes_each_has_the_share_of_votes_for_it_and_the_first_of_equals_wins():
    parts = [
        part("a", [1, 2], [[0.2, 0.5, 0.3], [0.4, 0.4, 0.2]], "multi:softprob"),
        part("b", [2, 1], [[0.1, 0.1, 0.8], [0.3, 0.6, 0.1]], "multi:softprob"),
        part("c", [2], [[0.4, 0.2, 0.4]], "multi:softprob"),
    ]
    found = bagged(parts, "vote")
    assert found.column_names == ["id", "prediction_0", "prediction_1", "prediction_2", "models"]
    shares = np.stack([found.column(f"prediction_{k}").to_numpy() for k in range(3)], axis=1)
    assert shares.tolist() == [[0.0, 1.0, 0.0], [2 / 3, 0.0, 1 / 3]]
    mean = bagged(parts, "mean")
    expected = [(0.5 + 0.6) / 2, (0.4 + 0.1 + 0.2) / 3]
    assert mean["prediction_1"].to_pylist() == pytest.approx(expected, abs=1e-16)


def test_a_bag_is_what_one_reads_off_row_by_row():
    draw = np.random.default_rng(11)
    parts = []
    seen: dict[tuple[int, str], list[float]] = {}
    for name in "abcde":
        rows = draw.permutation(60)[: draw.integers(1, 60)]
        ids = pa.table({"day": rows % 7, "key": [f"p{row}" for row in rows]})
        values = draw.random(len(rows))
        parts.append(part(name, ids, values))
        for row, value in zip(rows.tolist(), values.tolist(), strict=True):
            seen.setdefault((row % 7, f"p{row}"), []).append(value)
    rules: dict[By, Callable[[float], float]] = {
        "mean": lambda value: value,
        "vote": lambda value: float(value >= 0.5),
    }
    for by, one in rules.items():
        found = bagged(parts, by)
        assert list(zip(*(found[k].to_pylist() for k in ("day", "key")), strict=True)) == list(seen)
        assert found["models"].to_pylist() == [len(values) for values in seen.values()]
        naive = [sum(map(one, values)) / len(values) for values in seen.values()]
        assert found["prediction"].to_pylist() == pytest.approx(naive, abs=1e-15)


def test_ids_of_a_csv_meet_however_much_of_them_is_a_number():
    plain = part("a", pa.array(["7", "12"]), [0.0, 0.5])  # as text, they become numbers
    mixed = part("b", pa.array(["12", "x"], pa.large_string()), [1.0, 0.5])
    small = part("c", pa.array([12, 9], pa.int16()), [0.0, 0.5])
    assert plain.ids.schema.types == [pa.int64()]
    found = bagged([plain, mixed], "mean").to_pydict()
    assert (found["id"], found["prediction"]) == (["7", "12", "x"], [0.0, 0.75, 0.5])
    found = bagged([plain, small], "mean").to_pydict()
    assert (found["id"], found["models"]) == ([7, 12, 9], [1, 2, 1])


def test_ids_keep_the_type_that_all_files_have():
    days = pa.array([3, 5], pa.int32()).cast(pa.date32())
    found = bagged([part("a", days, [0.0, 1.0]), part("b", days, [1.0, 1.0])], "mean")
    assert found["id"].type == pa.date32()
    assert found["prediction"].to_pylist() == [0.5, 1.0]


def test_columns_of_ids_may_have_the_names_of_ours():
    ids = pa.table(
        {"prediction": ["a", "b"], "prediction_1": [1, 2], "models": [3, 4], "row": "uv"}
    )
    two = bagged([part("a", ids, [[0.5, 0.5]] * 2), part("b", ids, [[0.0, 1.0]] * 2)], "mean")
    assert two.column_names == [*ids.column_names, "prediction_0", "prediction_1_", "models_"]
    one = bagged([part("a", ids, [0.5, 0.5]), part("b", ids, [1.0, 0.0])], "vote")
    assert one.column_names == [*ids.column_names, "prediction_", "models_"]
    assert one["prediction_"].to_pylist() == [1.0, 0.5]


def test_predictions_come_apart_as_they_were_put_together():
    ids = pa.table({"prediction": ["a", "b", "c"], "prediction_0": ["d", "e", "f"]})
    values = np.array([[0.1, 0.2], [0.3, 0.4]])
    (table,) = predictions_tables(ids, np.array([2, 0]), values, "multi:softprob")
    found = parted(table, "P")
    assert found.ids.to_pydict() == {"prediction": ["a", "c"], "prediction_0": ["d", "f"]}
    assert found.values.tolist() == [[0.3, 0.4], [0.1, 0.2]]
    assert (found.name, found.objective) == ("P", "multi:softprob")
    assert parted(table.replace_schema_metadata(None), "P").objective == ""
    (unsaid,) = predictions_tables(ids, np.array([0]), values[:1])
    assert OBJECTIVE not in (unsaid.schema.metadata or {})


# Refusals


GOOD = part("a", ["x", "y"], [0.5, 0.75], "binary:logistic")


@pytest.mark.parametrize(
    ("other", "says"),
    [
        (part("b", pa.table({"key": ["x"]}), [0.5]), "b does not fit the others: it has id key"),
        (part("b", pa.table({"id": ["x"], "day": [1]}), [0.5]), "it has id id, day"),
        (part("b", ["x"], [[0.5, 0.5]]), "it has outputs 2, a has outputs 1"),
        (part("b", ["x"], [0.5], "reg:squarederror"), "reg:squarederror, a has binary:logistic"),
        (part("b", pa.array([1.5]), [0.5]), "different types: double, string"),
        (part("b", pa.array([b"x"]), [0.5]), "different types: binary, string"),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_what_does_not_fit_together_is_refused(other, says):
    with pytest.raises(ConfigError) as error:
        bagged([GOOD, other], "mean")
    assert says in error.value.what


def test_whoever_does_not_say_what_it_learned_fits_all_that_has_its_shape():
    found = bagged([GOOD, part("b", ["x"], [0.0])], "vote")
    assert found["prediction"].to_pylist() == [0.5, 1.0]


def test_two_objectives_do_not_fit_beside_one_that_is_not_known():
    kinds = [
        Kind(name, said, 1, ("id",))
        for name, said in zip("abc", ("", *list(OBJECTIVES)[:2]), strict=True)
    ]
    with pytest.raises(ConfigError, match=f"c does not fit the others: it has {of_classes(3)}, b"):
        check_alike(kinds, "mean")


@pytest.mark.parametrize(
    "objective", [name for name, one in OBJECTIVES.items() if not one.classifies]
)
def test_numbers_cannot_vote(objective):
    kinds = [Kind(name, objective, 1, ("id",)) for name in "ab"]
    check_alike(kinds, "mean")
    with pytest.raises(ConfigError, match=f"a was trained with {objective}: numbers cannot vote"):
        check_alike(kinds, "vote")


@pytest.mark.parametrize(
    "values",
    [
        [0.5, 1.0001],
        [-0.0001, 0.5],
        [[0.5, 0.5], [0.5, 0.4]],
        [[1.5, -0.5], [0.5, 0.5]],
    ],
    ids=str,
)
def test_what_is_no_probability_cannot_vote_whoever_wrote_it(values):
    odd = part("b", [SECRET, "x"], values)
    with pytest.raises(DataError) as error:
        bagged(
            [part("a", ["x"], np.array(values)[:1] * 0 + 1 / np.array(values)[0].size), odd], "vote"
        )
    assert error.value.what == "1 predictions are no probabilities of classes and cannot vote"
    assert error.value.where == {"file": "b"}
    assert bagged([odd, odd], "mean").num_rows == 2


def test_an_id_that_stands_twice_in_a_file_is_refused_without_being_shown():
    twice = part("b", [SECRET, "x", SECRET, SECRET], [0.5] * 4)
    with pytest.raises(DataError) as error:
        bagged([GOOD, twice], "mean")
    assert error.value.what == "2 ids stand there more than once"
    assert SECRET not in str(error.value.lines())


def test_ids_that_are_too_large_for_numbers_are_refused_without_being_shown():
    large = part("b", pa.array([1 << 63], pa.uint64()), [0.5])
    with pytest.raises(DataError, match="too large") as error:
        bagged([part("a", [1], [0.5]), large], "mean")
    assert str(1 << 63) not in str(error.value.lines())


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ({"id": [SECRET], "score": [0.5]}, "does not end with predictions"),
        ({"prediction": [0.5]}, "does not end with predictions"),
        ({"id": [SECRET], "prediction": ["0.5"]}, "does not end with predictions"),
        ({"id": [SECRET], "prediction_1": [0.5]}, "does not end with predictions"),
        ({"id": [1], "prediction_3": [0.5]}, "does not end with predictions"),
        ({"id": [1], "age": [0.5], "prediction_1": [0.5]}, "does not end with predictions"),
        ({"id": [SECRET], "prediction": [0.5], "models": [2]}, "does not end with predictions"),
        ({"id": [SECRET, None], "prediction": [0.5, 0.5]}, "1 ids or predictions are missing"),
        ({"id": [SECRET], "prediction": pa.array([None], pa.float64())}, "1 ids or predictions"),
        ({"id": [SECRET], "prediction": [float("nan")]}, "1 predictions are no finite"),
        ({"id": [SECRET], "prediction": [float("inf")]}, "1 predictions are no finite"),
    ],
    ids=range(11),
)
def test_files_that_hold_something_else_are_refused(columns, says):
    with pytest.raises(DataError) as error:
        parted(pa.table(columns), "odd.parquet")
    assert says in error.value.what
    assert error.value.where == {"file": "odd.parquet"}
    assert SECRET not in str(error.value.lines())


def test_a_file_without_rows_adds_none():
    none = part("b", pa.array([], pa.string()), np.zeros((0, 1)))
    assert bagged([GOOD, none], "mean")["models"].to_pylist() == [1, 1]
    assert bagged([none, none], "vote").num_rows == 0
