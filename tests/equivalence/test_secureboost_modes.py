"""Does every mode and objective of secureboost grow the trees that one table would?"""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedboost.core import local
from fedboost.model import vertical
from tests.support.federated import GUEST, HOSTS, now
from tests.support.secureboost_jobs import (
    CLASSES,
    SAMPLES,
    VECTORS,
    assert_naive,
    assert_pooled,
    made,
    owners,
)

# Objectives, samples, weights: mode default


@pytest.mark.parametrize("widths", [(2, 3), (2, 3, 2), (1, 2, 2, 2)], ids=str)
@pytest.mark.parametrize("objective", [CLASSES, VECTORS], ids=["trees", "vectors"])
def test_classes_grow_the_pooled_trees(objective, widths):
    job = made({**objective, "eval_metric": ["merror", "mlogloss"]}, widths)
    done = assert_pooled(job)
    assert owners(done.trained.rounds, job.widths) == set(job.widths)
    leaves = done.shards[GUEST].arrays["value"].shape[1]
    assert leaves == (3 if job.own.multi_output else 1)
    assert done.shards[GUEST].facts["trees_per_round"] == (1 if job.own.multi_output else 3)


@pytest.mark.parametrize(
    "objective", ["reg:absoluteerror", "count:poisson", "reg:tweedie", "reg:squarederror"]
)
@pytest.mark.parametrize("weighted", [False, True], ids=["", "weighted"])
def test_every_objective_grows_the_pooled_trees(objective, weighted):
    assert_pooled(made({"objective": objective, "n_estimators": 4}, weighted=weighted))


@pytest.mark.parametrize("objective", [{}, CLASSES, VECTORS, {"objective": "reg:absoluteerror"}])
@pytest.mark.parametrize("sample", SAMPLES.values(), ids=SAMPLES)
def test_samples_are_the_pooled_ones(sample, objective):
    weighted = objective == {}
    job = made({**objective, **sample, "n_estimators": 2}, (3, 3, 4), weighted=weighted)
    done = assert_pooled(job)
    if "goss" in sample or "subsample" in sample:
        of_step = [p for p in done.room.posted if p.envelope.step == "encrypt_gradients"]
        sent = [p.message for p in of_step if p.envelope.part == 0]
        assert all(message.HasField("taking_part") for message in sent)
        assert all(0 < message.rows.count < (~job.out).sum() for message in sent)


@pytest.mark.parametrize(
    "params", [{"scale_pos_weight": 4.0}, {"reg_alpha": 0.5, "gamma": 0.2}, CLASSES], ids=repr
)
@pytest.mark.parametrize("held", [None, 0.3])
def test_weights_count_as_on_one_table(params, held):
    job = made(params, (2, 2, 1), weighted=True, held=held)
    assert_pooled(job)
    without = local.train(job.part(~job.out), job.own, None, tuple(job.widths.values()))
    plain = replace(job, weight=None).part(~job.out)
    assert local.train(plain, job.own).history != without.history


@pytest.mark.parametrize(
    "more",
    [{}, {"max_depth": 5}, CLASSES, {"objective": "reg:squarederror", "max_delta_step": 0.4}],
    ids=repr,
)
@pytest.mark.parametrize("how", [{}, {"least": 8, "rows": 240}, {"missing": 0.4}], ids=repr)
def test_monotone_constraints_are_the_pooled_ones(how, more):
    job = made({**more, **ORDERED}, (3, 3, 2), **how)
    done = assert_pooled(job)
    free = local.train(
        replace(job, params={**job.params, "monotone_constraints": {}}).part(~job.out), job.own
    )
    assert owners(done.trained.rounds, job.widths) >= {GUEST, HOSTS[0]}
    assert free.history != done.trained.history


def test_rows_of_weight_zero_are_as_good_as_absent():
    job = made({}, weighted=True)
    job.weight[::3] = 0.0
    assert_pooled(job)
    assert_pooled(replace(job, params={**job.params, "objective": "reg:absoluteerror"}))


def test_early_stopping_counts_rounds_and_keeps_whole_ones():
    params = {"n_estimators": 30, "early_stopping_rounds": 2, "learning_rate": 1.0}
    done = assert_pooled(made({**CLASSES, **params}, held=0.4))
    best = done.trained.best_round + 1
    assert best < len(done.trained.rounds) < 30
    assert done.shards[GUEST].facts["trees"] == 3 * best
    assert len(done.shards[GUEST].facts["history"]) == len(done.trained.rounds)


# Modes mix and layered


FEW_LEAVES = {"max_leaves": 5, "grow_policy": "lossguide"}
ORDERED = {"monotone_constraints": {"c0": 1, "c1": -1}}
MORE: dict[str, dict[str, Any]] = {
    "binary": {},
    "classes": CLASSES,
    "vectors": VECTORS,
    "goss": SAMPLES["goss"],
    "samples": SAMPLES["both"],
    "columns of nodes": SAMPLES["nodes"],
    "few leaves": FEW_LEAVES,
    "monotone": {**ORDERED, "reg_alpha": 0.1},
    "few monotone leaves of nodes": {**ORDERED, **FEW_LEAVES, **SAMPLES["nodes"]},
    "few medians": {"objective": "reg:absoluteerror", **FEW_LEAVES},
    "classes with goss": {**CLASSES, **SAMPLES["goss"]},
    "medians": {"objective": "reg:absoluteerror"},
}


@pytest.mark.parametrize("more", MORE.values(), ids=MORE)
@pytest.mark.parametrize("turns", [1, 2])
def test_mix_gives_each_tree_to_one_party(turns, more):
    widths = (3, 2, 3) if turns == 2 else (2, 3, 2, 3)
    rounds = turns * len(widths) + 1
    params = {"mode": "mix", "trees_per_party": turns, "n_estimators": rounds, **more}
    job = made({**params, "max_depth": 2}, widths, 90, weighted=turns == 2)
    done = assert_naive(job)
    for number, trees in enumerate(done.twin.rounds):
        party = list(job.widths)[number // turns % len(widths)]
        assert owners([trees], job.widths) <= {party}
    assert owners(done.twin.rounds, job.widths) == set(job.widths)
    assert_only_owners_worked(job, done)


SHARD = {"tree", "node", "feature", "threshold", "missing_left", "left_bins"}  # a host's, whole


def assert_only_owners_worked(job, done):
    """Hosts hear of no tree but their own, and of no leaf."""
    parties, per = list(job.widths), job.own.trees_per_round
    turns = job.params["trees_per_party"]
    mine: dict[str, set[int]] = {p: set() for p in parties}
    for tree in range(job.own.n_estimators * per):
        mine[parties[tree // per // turns % len(parties)]].add(tree)
    heard: dict[str, set[int]] = {p: set() for p in parties}
    under_way = -1
    for posted in sorted(done.room.posted, key=lambda p: p.envelope.number):
        envelope = posted.envelope
        if envelope.step == "share_key":
            continue
        if envelope.step == "encrypt_gradients":
            under_way = posted.message.tree
        host = ({envelope.sender, envelope.receiver} - {GUEST}).pop()
        assert under_way in mine[host]
        heard[host].add(under_way)
    for host in parties[1:]:
        assert heard[host] == mine[host]
        shard = done.shards[host]
        assert set(shard.arrays["tree"].tolist()) <= mine[host]
        assert set(shard.arrays) == SHARD
    assert done.shards[GUEST].arrays["value"].any()


@pytest.mark.parametrize("more", MORE.values(), ids=MORE)
@pytest.mark.parametrize(("widths", "depths"), [((2, 3), (2, 1)), ((3, 2, 2), (1, 2))], ids=str)
def test_layered_trees_have_the_hosts_above_and_the_guest_below(widths, depths, more):
    high, low = depths
    params = {"mode": "layered", "host_depth": high, "guest_depth": low, **more}
    job = made({**params, "n_estimators": 2}, widths, 100, weighted=low == 2)
    done = assert_naive(job)
    guest = done.shards[GUEST].arrays
    below = guest["node"] >= 2**high - 1
    splits = guest["owner"] != vertical.LEAF
    assert (guest["owner"][below & splits] == vertical.GUEST).all()
    assert (guest["owner"][~below & splits] > vertical.GUEST).all()
    assert (below & splits).any()
    assert (~below & splits).any()
    layers = [p for p in done.room.posted if p.envelope.step == "open_layer"]
    assert len(layers) <= high * job.own.trees_per_round * 2 * (len(widths) - 1)


def test_layered_has_default_depths():
    done = assert_naive(made({"mode": "layered", "n_estimators": 2}, rows=160))
    assert done.shards[GUEST].arrays["node"].max() >= 2**4 - 1


@pytest.mark.parametrize("mode", ["mix", "layered"])
def test_a_root_that_does_not_divide_is_a_leaf_in_every_mode(mode):
    job = made({"mode": mode, "trees_per_party": 1} if mode == "mix" else {"mode": mode})
    for more in ({"gamma": 1e9}, {"min_child_weight": 1e6}):
        done = assert_naive(replace(job, params={**job.params, **more}))
        assert all(tree.n_nodes == 1 for trees in done.twin.rounds for tree in trees)


def test_hosts_hear_of_few_splits_beyond_max_leaves():
    few = {"max_leaves": 4, "grow_policy": "lossguide", "max_depth": 5, "n_estimators": 8}
    job = made(few, (2, 4, 4), 300, held=None)
    done = assert_pooled(job)
    guest, hosts = done.shards[GUEST].arrays, [p for p in job.widths if p != GUEST]
    assert np.bincount(guest["tree"][guest["owner"] == vertical.LEAF]).max() == 4
    held = sum(len(done.shards[host].arrays["tree"]) for host in hosts)
    kept = int((guest["owner"] > vertical.GUEST).sum())
    every = now(replace(job, params={**job.params, "max_leaves": 0}).room().walk())
    assert kept < held  # later, greater ones displaced some
    assert held < sum(len(every[host].arrays["tree"]) for host in hosts) / 3
