"""Labels from row groupings, and members from losses: what a guest learns of itself."""

import numpy as np
import pytest

from fedboost.audit import attacks
from fedboost.audit.attacks import GuestView
from fedboost.audit.findings import CLUSTERS, MEMBERS
from fedboost.ground.errors import DataError


def groupings(positive, trees, told, seed=4):
    """Rows in eight nodes a tree; `told`: how much a node says of its rows' labels."""
    draw = np.random.default_rng(seed)
    found = []
    for _ in range(trees):
        pull = told * positive + draw.normal(size=len(positive))
        found.append(np.digitize(pull, np.quantile(pull, np.arange(1, 8) / 8)) + 7)
    return np.stack(found, axis=1).astype(np.int16)


@pytest.fixture(scope="module")
def positive():
    return np.random.default_rng(2).random(1500) < 0.3


def test_rows_that_share_nodes_by_label_are_ranked_by_it(positive):
    aucs = attacks.label_aucs(groupings(positive, 20, 1.0), positive)
    assert len(aucs) == attacks.DRAWS
    assert aucs.mean() > 0.85


def test_rows_that_share_nodes_by_lot_are_not(positive):
    aucs = attacks.label_aucs(groupings(positive, 20, 0.0), positive)
    assert aucs.mean() == pytest.approx(0.5, abs=0.06)


def test_trees_of_which_a_host_knows_no_rows_say_nothing(positive):
    seen = groupings(positive, 12, 1.0)
    hidden = np.where(np.arange(12) < 6, seen, -1).astype(np.int16)
    kept = attacks.label_aucs(seen[:, :6], positive)
    assert attacks.label_aucs(hidden, positive).mean() == pytest.approx(kept.mean(), abs=0.02)


def test_too_few_labels_of_one_side_are_refused(positive):
    rare = np.arange(len(positive)) < 5
    with pytest.raises(DataError, match=r"5 of .* rows have the label"):
        attacks.label_aucs(groupings(positive, 3, 1.0), rare)


def test_losses_are_those_of_a_rows_own_class():
    y = np.array([1.0, 0.0])
    binary = attacks.row_losses(y, np.array([[0.8], [0.4]]), classes=True)
    np.testing.assert_allclose(binary, -np.log([0.8, 0.6]))
    several = attacks.row_losses(y, np.array([[0.1, 0.9], [0.7, 0.3]]), classes=True)
    np.testing.assert_allclose(several, -np.log([0.9, 0.7]))
    assert attacks.row_losses(y, np.array([3.0, 1.0]), classes=False).tolist() == [2.0, 1.0]


def test_an_overfitted_model_tells_who_was_learnt_from(positive):
    draw = np.random.default_rng(8)
    training = draw.random(1500) < 0.6
    loss = draw.random(1500) + ~training
    found = attacks.attack_guest([], loss, training)
    assert [(one.attack, one.value) for one in found] == [(MEMBERS, 1.0)]
    assert attacks.attack_guest([], draw.random(1500), training)[0].value == pytest.approx(
        0.5, abs=0.05
    )


def test_what_cannot_be_tried_is_left_out(positive):
    everybody = np.ones(1500, np.bool_)
    views = [
        GuestView("telco", groupings(positive, 5, 1.0), positive),
        GuestView("shop", groupings(positive, 5, 1.0), np.zeros(1500, np.bool_)),
    ]
    told = []
    found = attacks.attack_guest(views, np.zeros(1500), everybody, lambda *done: told.append(done))
    assert [(one.attack, one.about) for one in found] == [(CLUSTERS, "telco")]
    assert "telco that knew 20 labels" in found[0].sentence()
    assert told[-1] == (3, 3)
