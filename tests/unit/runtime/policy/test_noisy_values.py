"""Values that were told with noise: a further one of an id is noticed, the same one is not."""

import sqlite3
from contextlib import closing

import numpy as np
import pytest

from fedboost.crypto.noise import NO_CODE
from fedboost.flow import Charge, DisclosureInfo, NoisyValues, Spent
from fedboost.runtime.policy import noisy_values
from fedboost.runtime.store.store import Store

IDS = np.arange(10, 16, dtype=np.uint64)
CODES = np.array([[1, 7], [2, 7], [3, 7], [4, 7], [5, 7], [6, 7]], np.uint8)


@pytest.fixture
def store(tmp_path):
    with Store(tmp_path / "telco", "party telco") as opened:
        yield opened


def values(ids=IDS, codes=CODES, columns=("a", "b"), noise="one"):
    return NoisyValues(noise, 0.5, columns, np.asarray(ids, np.uint64), np.asarray(codes, np.uint8))


def noted(store, *every):
    """What each of these adds, in a transaction of its own."""
    found = []
    for each in every:
        with store.transaction() as sql:
            found.append(dict(noisy_values.record_values(sql, each)))
    return found


def test_the_first_values_are_one_of_each_id_and_the_same_again_are_none(store):
    some = values(IDS[2:4], CODES[2:4])
    first, *again = noted(store, values(), values(), some)
    assert first == {"a": 1, "b": 1}
    assert again == [{"a": 0, "b": 0}] * 2


def test_another_value_of_one_id_is_noticed_in_its_column_whatever_stands_beside_it(store):
    other = CODES.copy()
    other[4, 0] = 99
    expected = [{"a": 1, "b": 1}, {"a": 1, "b": 0}, {"a": 0, "b": 0}, {"a": 0, "b": 0}]
    assert noted(store, values(), values(IDS[::-1], other[::-1]), values(), values()) == expected


def test_second_values_of_several_ids_are_one_more_of_each_and_a_third_is_another(store):
    def with_other(row, code):
        other = CODES.copy()
        other[row, 0] = code
        return values(codes=other)

    counts = noted(store, values(), with_other(0, 90), with_other(1, 90), with_other(0, 91))
    assert [count["a"] for count in counts] == [1, 1, 0, 1]


def test_new_ids_have_their_first_value(store):
    more = values(IDS + np.uint64(100), CODES)
    assert noted(store, values(), more) == [{"a": 1, "b": 1}, {"a": 0, "b": 0}]


def test_columns_are_known_by_their_names(store):
    last = values(codes=CODES[:, 1:], columns=("b",))
    first = values(codes=CODES[:, :1], columns=("a",))
    assert noted(store, last, values(), first) == [{"b": 1}, {"a": 1, "b": 0}, {"a": 0}]


def test_other_noise_has_values_of_its_own(store):
    assert noted(store, values(), values(noise="two")) == [{"a": 1, "b": 1}] * 2


def test_nobody_is_nothing(store):
    nobody = values(IDS[:0], CODES[:0])
    assert noted(store, nobody, values(), nobody) == [
        {"a": 0, "b": 0}, {"a": 1, "b": 1}, {"a": 0, "b": 0},
    ]  # fmt: skip


def test_counts_are_those_of_a_naive_reader_however_values_come(store, monkeypatch):
    monkeypatch.setattr(noisy_values, "BLOCK_ROWS", 4)
    draw, before = np.random.default_rng(3), 0
    told: dict[int, set[int]] = {}
    for _ in range(30):
        rows = draw.permutation(9)[: draw.integers(1, 9)]
        codes = draw.integers(0, 4, (len(rows), 1))
        for row, code in zip(rows.tolist(), codes[:, 0].tolist(), strict=True):
            told.setdefault(row, set()).add(code)
        most = max(map(len, told.values()))
        [found] = noted(store, values(rows, codes, ("a",)))
        assert found == {"a": most - before}
        before = most


def test_only_what_is_new_is_kept(store):
    other = CODES.copy()
    other[4, 0] = 99
    noted(store, values(), values(), values(codes=other))
    with store.transaction() as sql:
        kept = sql.execute("SELECT ids, codes FROM noisy_values ORDER BY rowid").fetchall()
    assert [len(ids) // 8 for ids, _ in kept] == [6, 1]
    assert list(kept[1][1]) == [99, NO_CODE]


def test_nothing_that_was_noted_is_taken_back(store):
    noted(store, values())
    with (
        closing(sqlite3.connect(store.database)) as connection,
        pytest.raises(sqlite3.IntegrityError, match="values that were told stay"),
    ):
        connection.execute("DELETE FROM noisy_values")


def test_a_message_is_charged_for_further_values_but_not_twice(store):
    paid = tuple(Charge(Spent.EPSILON, 0.5, name) for name in ("a", "b"))
    other = CODES.copy()
    other[0] = 200
    with store.transaction() as sql:
        assert noisy_values.charges_of_new_values(sql, DisclosureInfo(charges=paid)) == []
        assert (
            noisy_values.charges_of_new_values(sql, DisclosureInfo(charges=paid, noisy=values()))
            == []
        )
        assert noisy_values.charges_of_new_values(sql, DisclosureInfo(noisy=values())) == []
        charges = noisy_values.charges_of_new_values(sql, DisclosureInfo(noisy=values(codes=other)))
    assert charges == list(paid)


def test_values_print_nothing():
    assert repr(values()) == "NoisyValues(6 rows, hidden)"
