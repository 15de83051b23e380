"""Unscored jobs that are broken off and carried on, and whole ones from files."""

import numpy as np
import pytest

from fedboost.encrypted.number.leaf_answers import Precision
from fedboost.flow import Artefact
from fedboost.ground.errors import ConfigError, PeerError
from fedboost.ground.settings import parse_settings
from fedboost.ground.workers import Serial
from fedboost.model.hybrid import SHARD_KEY
from fedboost.protocols.hybridtree import guest as training
from fedboost.protocols.hybridtree import host
from fedboost.protocols.hybridtree.params import HybridTreeParams
from fedboost.runtime.cluster.local import open_cluster
from tests.support.federated import GUEST, HOSTS, now, run_job
from tests.support.hybrid_tables import spec, tables
from tests.support.hybrid_unscored import broken_off, later, made, trained
from tests.support.whole_jobs import breaking, resumed, written

PAILLIER = {"encryption": {"scheme": "paillier"}}
CLASSES = {"objective": "multi:softprob", "num_class": 3}


def assert_same_shards(one, other):
    """Every party's shard is the same, bit by bit."""
    for party, shard in one.items():
        assert shard.facts == other[party].facts
        assert shard.arrays.keys() == other[party].arrays.keys()
        for name, array in shard.arrays.items():
            assert array.tobytes() == other[party].arrays[name].tobytes(), name


@pytest.mark.parametrize("rounds", [1, 3])
@pytest.mark.parametrize("params", [{}, {**CLASSES, "subsample": 0.8}], ids=["one", "classes"])
def test_a_job_carried_on_in_the_middle_comes_to_the_model_of_one_that_was_not(params, rounds):
    job = made({"n_estimators": 4, **params})
    whole = trained(job)
    room = job.room()
    kept = now(broken_off(room, "start_round", rounds + 1))
    again = later(room)
    shards = now(again.carry_on(kept, rounds))
    assert_same_shards(whole.shards, shards)
    assert again.state(GUEST).margin.tobytes() == whole.margins[-1].tobytes()


def test_a_job_carried_on_stays_with_its_key():
    job = made({**PAILLIER, "n_estimators": 2}, rows=40, least=2)
    room = job.room()
    kept = now(broken_off(room, "start_round", 2))
    shards = now(later(room).carry_on(kept, 1))
    own = kept[HOSTS[0]].state(host.CHECKPOINT)
    private, public = kept[GUEST].state(training.CHECKPOINT).key, own.key
    assert private == shards[GUEST].arrays[SHARD_KEY].tobytes()
    assert all(shards[party].arrays[SHARD_KEY].tobytes() == public for party in job.rows)
    assert private != public
    values = shards[HOSTS[0]].arrays["leaf_value"]
    first = np.concatenate([tree.values.data for tree in own.leaves])
    assert values[: len(first)].tobytes() == first.tobytes()


def keyless(kept):
    """The same checkpoints, but that the guest has lost its key."""
    own = kept[GUEST].state(training.CHECKPOINT)
    own.key = b""
    return {**kept, GUEST: Artefact.from_state(own)}


def test_a_guest_that_changes_its_key_under_kept_leaf_values_is_refused():
    room = made({**PAILLIER, "n_estimators": 2}, rows=40, least=2).room()
    kept = now(broken_off(room, "start_round", 2))
    with pytest.raises(PeerError, match="the guest changed the key of our leaf values"):
        now(later(room).carry_on(keyless(kept), 1))


def test_an_attempt_before_the_first_tree_may_have_another_key():
    room = made({**PAILLIER, "n_estimators": 1}, rows=40, least=2).room()
    kept = now(broken_off(room, "start_round", 1))
    shards = now(later(room).carry_on(keyless(kept), 0))
    assert len(shards[HOSTS[0]].arrays["leaf_value"]) > 1


# Whole jobs, from files


def test_a_whole_unscored_job_learns(tmp_path):
    done = run_job(tmp_path, tables(), spec(eval_metric=["auc"], n_estimators=10))
    assert done.state == "finished", done.error.lines()
    assert done.result["metrics"]["train"]["auc"] > 0.75
    assert done.result["trees"] == 10
    assert set(done.shards) == {GUEST, *HOSTS[:2]}
    kinds = {row.kind.rpartition(".")[2] for row in done.ledgers[HOSTS[0]]}
    assert {"AnswerKey", "LeafAnswers"} <= kinds
    assert not {"CandidateSums", "RowDivisions"} & kinds


async def test_a_whole_job_that_paused_goes_on_behind_its_last_round(tmp_path, monkeypatch):
    """Each round is closed once, and but the one that broke off none is grown again."""
    closed = breaking(monkeypatch, training, "close_round", 3, lambda state: state.trees_closed)
    sources = written(tmp_path, tables())
    async with open_cluster(tmp_path / "cluster", spec(), sources, Serial()) as made_:
        journal = await resumed(made_, spec())
    assert journal.status.state == "finished"
    assert closed == [1, 2, 3, 3, 4]


# What is refused before it begins


@pytest.mark.parametrize(
    ("params", "says"),
    [
        ({"goss": {"top_rate": 0.2, "other_rate": 0.1}}, "goss"),
        ({"gamma": 0.0}, "gamma"),
        ({"reg_alpha": 0.5}, "reg_alpha"),
        ({"max_delta_step": 0.5}, "max_delta_step"),
        ({"min_child_weight": 1.0}, "min_child_weight"),
        ({"objective": "reg:absoluteerror"}, "medians"),
        ({"encryption": {"scheme": "iterative-affine"}, "allow_insecure": True}, "multiplies"),
    ],
)
def test_what_needs_sums_that_nobody_sees_is_refused(params, says):
    with pytest.raises(ConfigError, match=says):
        parse_settings(HybridTreeParams, {"split": "unscored", **params})


def precision(n_rows, n_hosts=3, **params):
    return Precision.of(HybridTreeParams(split="unscored", **params), n_hosts, n_rows)


def test_a_job_too_large_for_its_sums_is_refused_and_told_what_would_fit():
    with pytest.raises(ConfigError, match="do not fit") as caught:
        precision(1 << 40, n_estimators=1000)
    assert "fewer rounds" in caught.value.todo


@pytest.mark.some(2)
@pytest.mark.parametrize("rounds", [1, 100, 10_000])
@pytest.mark.parametrize("hosts", [1, 2, 7])
@pytest.mark.parametrize("rows", [10, 10**4, 10**6])
def test_sums_of_a_job_fit_its_answers_and_factors_tell_leaves_apart(rows, hosts, rounds):
    found = precision(rows, hosts, n_estimators=rounds)
    packing = found.layout(682)  # of a plaintext of okamoto-uchiyama with 2048 bits
    most = packing.factors([1], 0.0)[0] * (1 << found.value_bits)
    assert hosts * rounds * int(most) < 1 << 62
    assert packing.factors([rows], 1.0)[0] >= 1 << 7
    assert 12 <= found.value_bits <= 26
    if rows == 10**4 and rounds < 10_000:
        assert found.value_bits >= 24


def test_a_job_that_asks_for_few_bits_of_a_gradient_gets_them():
    assert precision(1000, precision_bits=8).value_bits == 8
    assert precision(1000, precision_bits=20).value_bits == 20
