"""Vertical FederBoost with XGBoost's trees: as good as ours on the same buckets, and marked."""

import sys

import numpy as np
import pytest

from fedboost.core import categories
from fedboost.core.binning import Binning
from fedboost.core.fixed_point import FixedPoint
from fedboost.core.params import TreeParams
from fedboost.core.rules import Rules
from fedboost.flow import GUEST as GUEST_ROLE
from fedboost.ground.errors import ConfigError
from fedboost.ground.settings import parse_settings
from fedboost.protocols.federboost_vertical import params as settings
from fedboost.protocols.federboost_vertical import xgboost_trees
from fedboost.protocols.federboost_vertical.params import FederBoostVerticalParams
from tests.support.federated import GUEST, now
from tests.support.federboost_jobs import frames_of, open_job, room_of

SMALL = {"n_estimators": 4, "max_depth": 3}
KINDS = {
    "plain": {},
    "sampled": {"goss": {}},
    "leaves": {"max_leaves": 5, "grow_policy": "lossguide"},
    "directed": {"monotone_constraints": {"c0": 1}},
    "counts": {"objective": "count:poisson"},
    "medians": {"objective": "reg:absoluteerror"},
    "classes": {"objective": "multi:softprob", "num_class": 3},
    "forest": {"forest": {"n_trees": 2, "subsample": 0.5}},
}


def trained(trainer, how, **more):
    """The guest's training and everybody's shards."""
    job = open_job({**SMALL, **how, "trainer": trainer}, rows=300, **more)
    room = room_of(job)
    shards = now(room.walk())
    return room.state(GUEST).training, shards


@pytest.mark.parametrize("kind", KINDS)
def test_trees_of_numbers_are_our_own_but_for_ties(kind):
    (own, _), (other, shards) = (trained(name, KINDS[kind]) for name in ("own", "xgboost"))
    metric = own.history[-1]["train"]
    assert other.history[-1]["train"] == pytest.approx(metric, rel=0.02)
    # Of equal gains another may win, in one tree and then in those behind it.
    first = own.rounds[0], other.rounds[0]
    bins, rows = own.watched["train"].bins, own.watched["train"].margin
    alike = []
    for one, two in zip(*first, strict=True):
        added = np.zeros((2, len(rows), 1))
        for tree, into in zip((one, two), added, strict=True):
            tree.add_to_margin(into, bins, 8)
        alike.append(np.mean(np.isclose(added[0], added[1], rtol=1e-4, atol=1e-5)))
    assert np.mean(alike) > 0.9
    assert shards[GUEST].facts["params"]["trainer"] == "xgboost"


def test_trees_of_categories_are_as_good_as_our_own():
    more = {"categories": 5}
    (own, _), (other, _) = (trained(name, {}, **more) for name in ("own", "xgboost"))
    assert any(tree.left_bins.any() for trees in other.rounds for tree in trees)
    losses = [training.history[-1]["train"]["logloss"] for training in (own, other)]
    assert losses[1] == pytest.approx(losses[0], abs=0.02)


@pytest.mark.parametrize(
    ("raw", "word"),
    [
        ({"objective": "multi:softprob", "num_class": 3, "multi_output": True}, "multi_output"),
        *(({name: 0.5}, "sampling of columns") for name in
          ("colsample_bytree", "colsample_bylevel", "colsample_bynode")),
        ({"forest": {"colsample_bytree": 0.5}}, "sampling of columns"),
    ],
)  # fmt: skip
def test_what_xgboost_does_otherwise_is_refused(raw, word):
    assert parse_settings(FederBoostVerticalParams, raw).trainer == "own"
    with pytest.raises(ConfigError, match=word):
        parse_settings(FederBoostVerticalParams, {**raw, "trainer": "xgboost"})


def test_a_guest_without_xgboost_refuses_before_hosts_send_anything(monkeypatch):
    monkeypatch.setitem(sys.modules, "xgboost", None)
    job = open_job({**SMALL, "trainer": "xgboost"})
    with pytest.raises(ConfigError, match=r"pip install -e '\.\[xgboost\]'"):
        settings.check_table(
            GUEST_ROLE,
            parse_settings(FederBoostVerticalParams, job.params),
            frames_of(job)[GUEST],
            False,
        )


def test_a_split_that_sends_all_present_rows_right_exchanges_its_sides():
    cuts = Binning(4, (np.arange(1, 4, dtype=np.float32), np.empty(0, np.float32)),
                   {1: np.arange(3, dtype=np.int32)})  # fmt: skip
    rules = Rules(TreeParams(), cuts, FixedPoint(20, 1.0, 1.0))
    made = {
        "split_indices": [0, 0, 1, 1],
        "split_conditions": [-0.5, 2.0, 0.0, 0.0],
        "default_left": [1, 0, 1, 1],
        "loss_changes": [1.0] * 4,
    }
    sets = {2: [0, 1, 2], 3: [1]}
    found = [xgboost_trees._read_split(made, i, sets, rules) for i in range(4)]
    assert [(split.bin, split.missing_left, turned) for split, turned in found] == [
        (3, False, True),
        (1, False, False),
        (categories.BY_CATEGORY, False, True),
        (categories.BY_CATEGORY, True, False),
    ]
    assert [categories.set_members(split.left_bins) for split, _ in found[2:]] == [
        [0, 1, 2],
        [0, 2],
    ]
    assert found[0][0].threshold == np.inf
