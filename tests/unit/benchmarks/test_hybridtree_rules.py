"""The figures of shared rules: on a table whose rule everybody knows, and what is counted."""

import json

import numpy as np
import pytest

from benchmarks import hybridtree_rules as measuring
from benchmarks import tables
from fedboost.core import binning, local
from fedboost.core.params import TreeParams
from fedboost.model import conditions
from fedboost.model.conditions import Condition

SMALL = TreeParams(n_estimators=6, max_depth=2, learning_rate=0.1)


def closed_accounts(rows=3000):
    """Label 1 wherever the host's column `closed` is 1; elsewhere the guest's columns decide."""
    draw = np.random.default_rng(2)
    values = draw.normal(size=(rows, 4)).astype(np.float32)
    values[:, 3] = draw.random(rows) < 0.3
    y = (values[:, 3] == 1) | (values[:, 0] + draw.normal(size=rows) > 1.5)
    names = ("amount", "hour", "age", "closed")
    return tables.Table("toy", np.arange(rows), y.astype(np.int64), values, names)


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(tables, "load", lambda name: closed_accounts())


def test_a_true_meta_rule_is_in_every_tree(small):
    row = measuring.measured("toy", SMALL, 10**6)
    assert (row["rows"], row["columns"], row["trees"]) == (3000, 4, 6)
    for what in ("leaf", "coarse", "determined", "held"):
        assert row[what] == row["hosts"][what]
        rule = "closed >= 0.5 (or missing)"
        assert row[what] == {"share": 1.0, "repeated": 1.0, "rule": rule}
    assert json.loads(json.dumps(row)) == row


def test_a_coarse_reading_never_shares_less(small):
    row = measuring.measured("toy", SMALL.model_copy(update={"max_depth": 5}), 800)
    assert row["rows"] == 800
    assert row["coarse"]["share"] >= row["leaf"]["share"]
    assert row["determined"]["share"] >= row["leaf"]["share"]
    assert 0.0 <= row["held_leaves"] <= 1.0


def test_columns_of_the_host_are_the_papers_or_the_second_half():
    assert measuring.host_columns("other", ("a", "b", "c")) == {1, 2}
    host = tables.HOST_COLUMNS["give_credit"]
    assert measuring.host_columns("give_credit", ("x", *host)) == set(range(1, len(host) + 1))


def test_words_name_categories_by_the_bins_that_trees_have():
    # Two bins for three categories: the most frequent ones have them.
    values = np.array([[0], [2], [2], [1], [1]], np.float32)
    table = local.TrainingTable(values, np.zeros(5), categorical=(0,))
    data = measuring.Loaded(table, ("job",), {0: ["a", "b", "c"]})
    rule = ((0, Condition(categories=0b10, missing=False)),)
    assert data.words(rule, binning.fit(values, 2, (0,))) == "job in {'c'}"


def test_rows_told_are_those_that_satisfy_the_rule():
    toy = closed_accounts(500)
    table = local.TrainingTable(toy.values, toy.y.astype(np.float64))
    trained = local.train(table, SMALL)
    trees = [tree for (tree,) in trained.rounds]
    gains = measuring.gains_of(trained, trees, table)
    assert set(gains) == {one.rule for one in conditions.find_rules(trees, inner=True)}
    for rule, (rows, _) in gains.items():
        own = np.ones(500, np.bool_)
        for column, asked in rule:
            values = toy.values[:, column]
            own &= values >= asked.low
            own &= asked.high is None or values < asked.high
        assert rows == own.sum()
