"""The privacy benchmark: jobs on real rows, attacks with the gradients that they had, tables."""

from typing import Any

import numpy as np
import pytest

from benchmarks import privacy, privacy_jobs, privacy_totals
from benchmarks.privacy_jobs import DEFAULTS, DIVISIONS, PROGRAMME, Plan, Variant
from benchmarks.privacy_totals import APART
from fedboost.audit.findings import CLUSTERS, SUMS


@pytest.fixture(autouse=True)
def short(monkeypatch):
    """Three trees in place of 25."""
    monkeypatch.setitem(privacy_jobs.SHAPE, "n_estimators", 3)


PLAN = Plan(1500, (DEFAULTS, "no minimum", "noise 1"), (DEFAULTS,), 2, 2, ("neighbours", "all"))


@pytest.fixture(scope="module")
def rows():
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(privacy_jobs.SHAPE, "n_estimators", 3)
        name = "default_credit"
        return privacy_jobs.measure_sums(name, PLAN) + privacy_jobs.measure_labels(name, PLAN)


def test_every_variant_is_trained_attacked_and_shown(rows):
    sums = [row for row in rows if row["what"] == SUMS]
    assert [row["variant"] for row in sums] == list(PLAN.sums)
    for row in sums:
        linkings = [one["linking"] for one in row["found"]]
        programme = [] if row["variant"] == "noise 1" else [PROGRAMME, DIVISIONS]
        assert linkings == ["neighbours", "all", *programme]
        assert all(0 <= one["value"] <= 1 and 0 < one["chance"] < 1 for one in row["found"])
        assert 0 < row["ratio"] <= 2 * 3 * 16 / row["rows"]
        assert 0.6 < row["auc"]["train"] <= 1
    (labels,) = (row for row in rows if row["what"] == CLUSTERS)
    assert 0.4 < labels["found"][0]["value"] < 1
    first, second = privacy.shown(rows)
    assert [line[0] for line in first.rows] == list(PLAN.sums)
    assert "×)" in first.rows[0][2]
    assert second.title == "default_credit: labels from row groupings, AUC"


def test_the_figures_are_of_the_defaults(rows):
    found = privacy.figures(rows)
    (own,) = (row for row in rows if row["variant"] == DEFAULTS and row["what"] == SUMS)
    by_linking = {one["linking"]: one["value"] / one["chance"] for one in own["found"]}
    assert found["ratio.default_credit"] == own["ratio"]
    assert found["linking_gain.default_credit"] == by_linking[PROGRAMME]
    assert found["nearest_gain.default_credit"] == by_linking["neighbours"]
    assert {"auc_cost.default_credit", "groupings_auc.default_credit"} <= set(found)


def test_sums_under_masks_tell_of_single_rows_unless_each_party_has_a_minimum():
    rows = privacy_jobs.measure_totals("default_credit", PLAN)
    assert [row["least"] for row in rows] == [1, 5, 20]
    free, *limited = (row["told"] for row in rows)
    assert free["sums of one row"] > free["sums"] / 10
    assert free[APART] == 0  # all columns see the same rows
    assert all(told["sums of few rows"] == 0 for told in limited)
    (shown,) = privacy.shown(rows)
    assert [line[0] for line in shown.rows] == [row["variant"] for row in rows]
    found = privacy.figures(rows)
    assert found["sums_of_one.5.default_credit"] == 0
    assert found["sums_of_one.1.default_credit"] == free["sums of one row"] / free["sums"]


def test_two_columns_that_differ_by_one_row_alone_are_found(monkeypatch):
    none: Any = None  # of what `layers` would read

    def layers(tree, done, values, gradients, least):
        seen = np.zeros((3, 2, 1, 2), np.int64)  # nodes, columns, cells, values
        seen[:, 0] = seen[:, 1] = gradients[:20].sum(axis=0)
        seen[1, 1] += gradients[30]  # one row more
        seen[2, 1] += gradients[30] + gradients[31] - gradients[0]  # and one exchanged
        yield seen

    monkeypatch.setattr(privacy_totals, "layers", layers)
    told = privacy_totals.of_few(none, none, np.zeros((40, 2), np.float32), 5)
    assert (told["nodes"], told[APART]) == (3, 1)


def test_the_attack_has_the_gradients_that_each_tree_was_grown_from():
    table = privacy_jobs.loaded("default_credit", PLAN)
    done = privacy_jobs.trained(table, Variant(least=1))
    assert len(done.room.gradients) == 3
    first = done.room.gradients[0]
    assert first.shape == (int((~table.held_out(0.3, 7)).sum()), 2)
    # Before the first tree all margins are one, so a label has one gradient, rounded either way.
    assert len(np.unique(first[:, 0])) == 4
    assert np.abs(first).max() <= 1.0
