"""Jobs whose hosts add noise: every mode ends, noise is what it should be, totals are true."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import csc_array

from fedboost.core.split import cover, leaf_value
from fedboost.encrypted.guest.tree import GuestTree
from fedboost.encrypted.scheme.host_noise import MOST, NoiseScale
from fedboost.ground.errors import PeerError
from fedboost.runtime.cluster import local
from tests.equivalence.test_secureboost_whole_jobs import (
    assert_same_shards,
    carried_on,
    snapshots,
)
from tests.support import hybrid_jobs, secureboost_jobs, small_jobs
from tests.support.federated import GUEST, HOSTS, Room, changing, now, run_job
from tests.support.noisy_jobs import Watched
from tests.support.secureboost_jobs import CLASSES, SAMPLES, VECTORS, made

SIGMA = 0.5
LATTICE = {"encryption": {"scheme": "lattice"}}
BARE = dict.fromkeys(secureboost_jobs.SWITCHES, False)

VARIANTS = {
    "default": ({}, {}),
    "bare": (BARE, {}),
    "mix": ({"mode": "mix"}, {}),
    "layered": ({"mode": "layered"}, {}),
    "forests": ({"forest": {"n_trees": 3, "subsample": 0.7}}, {}),
    "classes": (CLASSES, {}),
    "vectors": (VECTORS, {}),
    "categories": ({}, {"categories": 5}),
    "groups of rows": ({}, {"categories": 5, "least": 5, "missing": 0.05}),
    "goss": (SAMPLES["goss"], {}),
    "columns": (SAMPLES["columns"], {}),
    "medians": ({"objective": "reg:absoluteerror"}, {}),
    "weights": ({"objective": "count:poisson"}, {"weighted": True}),
    "nothing bounds a child": ({"min_child_weight": 0.0, "reg_lambda": 0.0, "max_depth": 4}, {}),
    "much noise": ({"host_noise": 20.0, "min_child_weight": 0.0, "reg_lambda": 0.0}, {}),
    "few bits": ({"precision_bits": 12}, {}),
    "lattice": (LATTICE, {}),
    "lattice vectors": ({**LATTICE, **VECTORS}, {"categories": 4}),
    "lattice-4096": ({"encryption": {"scheme": "lattice-4096"}, **SAMPLES["goss"]}, {}),
}


def noisy(params, how=(), widths=(2, 3)):
    return made({"host_noise": SIGMA, **params}, widths, 90, **dict(how))


def assert_true_totals(guest):
    """Every value and cover is finite, and as said of the rows that stand there."""
    assert np.isfinite(guest.margin).all()
    for node in guest.nodes:
        assert np.isfinite(node.value).all()
        assert np.isfinite(node.gain)
        assert node.cover >= 0.0


@pytest.mark.some(4)
@pytest.mark.parametrize(("params", "how"), VARIANTS.values(), ids=VARIANTS)
def test_a_job_with_noise_ends_and_its_noise_is_what_it_should_be(params, how, monkeypatch):
    room = noisy(params, how).room()
    watched = Watched.of(room, monkeypatch)
    now(room.walk())
    guest = room.state(GUEST)
    assert_true_totals(guest)
    scale = NoiseScale.of(room.params, guest.rules.fixed.bits)
    ratio = watched.in_sigmas(scale)
    assert len(ratio) > 50
    assert (watched.noise != 0).mean() > 0.99
    assert np.abs(ratio).max() <= MOST
    assert 0.8 < ratio.std() < 2.2  # √2 for columns with missing rows, 2 with these on the left
    assert abs(ratio.mean()) < 5 * ratio.std() / np.sqrt(ratio.size)


def test_without_missing_rows_the_noise_is_sigma(monkeypatch):
    room = noisy({"max_depth": 4, "n_estimators": 4}, {"missing": 0.0}, (1, 8)).room()
    watched = Watched.of(room, monkeypatch)
    now(room.walk())
    scale = NoiseScale.of(room.params, room.state(GUEST).rules.fixed.bits)
    ratio = watched.in_sigmas(scale)
    assert abs(ratio.std() - 1) < 4 / np.sqrt(2 * ratio.size)


def test_leaves_and_covers_come_from_the_rows_and_not_from_noisy_sums():
    room = noisy({"n_estimators": 1, "host_noise": 4.0}).room()
    now(room.until("close_trees"))
    guest = room.state(GUEST)
    [tree] = guest.growing.tree_batch.trees
    exact = guest.leaf_gradients(0, guest.rules.fixed)
    values = tree.leaves(exact)
    assert len(tree.won) > 1
    for node, value in values.items():
        total = tree.gh[tree.growth.training.rows(node)].sum(axis=0)
        assert tree.totals[node].tolist() == total.tolist()
        rules, whole = guest.rules, exact.gh[tree.growth.training.rows(node)].sum(axis=0)
        expected = leaf_value(whole[0::2], whole[1::2], rules.params, exact.fixed)
        assert value.tolist() == expected.tolist()
        assert float(cover(total[1::2], rules.fixed)) >= 0.0


@pytest.mark.parametrize("params", [{}, {"encryption": {"scheme": "lattice"}}], ids=str)
@pytest.mark.parametrize("how", [{}, {"categories": 4}, {"sparse": (HOSTS[0],), "zero": 0.6}])
def test_hybridtree_has_noise_in_every_sum_of_its_hosts(params, how, monkeypatch):
    said = {"host_noise": SIGMA, "min_child_weight": 0.0, "precision_bits": 12, **params}
    room = hybrid_jobs.made(said, (2, 3), **how).room()
    watched = Watched.of(room, monkeypatch)
    now(room.walk())
    guest = room.state(GUEST)
    assert np.isfinite(guest.margin).all()
    scale = NoiseScale.of(room.params, guest.rules.fixed.bits)
    assert scale.sigma[0] * 16 == scale.sigma[1]
    ratio = watched.in_sigmas(scale)
    assert (watched.noise != 0).mean() > 0.99
    assert 0.8 < ratio.std() < 2.2


def test_a_sparse_table_has_noise_in_every_sum(monkeypatch):
    room = noisy({}, {"zero": 0.7}).room()
    host = room.contexts[HOSTS[0]]
    assert host.frame is not None
    frame = replace(host.frame, values=csc_array(host.frame.values))
    contexts = {**room.contexts, HOSTS[0]: replace(host, frame=frame)}
    watched = Watched.of(Room(room.protocol, contexts), monkeypatch)
    room = watched.room
    now(room.walk())
    assert (watched.noise != 0).mean() > 0.99


# Attempts

RESUMED = {
    "trees": {"n_estimators": 4},
    "goss of classes": {**CLASSES, **SAMPLES["goss"], "n_estimators": 3},
    "vectors": {**VECTORS, "mode": "layered", "n_estimators": 3},
}


@pytest.mark.parametrize("params", RESUMED.values(), ids=RESUMED)
async def test_a_job_with_noise_that_carries_on_with_the_same_ciphertexts_is_the_same(params):
    job = made({"host_noise": SIGMA, **params}, (2, 2, 2), 80)
    whole = await job.room().walk()
    found, _ = await carried_on(job, await snapshots(job.room(), 2), 2)
    assert_same_shards(found, whole)


# How rows divide


def tree_before_division(sigma):
    """A guest, its tree with a host's split chosen, and how the host's rows divide."""
    room = made({"host_noise": sigma, "mode": "layered"}, (2, 3), 90).room()
    now(room.until("divide_rows"))
    guest = room.state(GUEST)
    [tree] = guest.growing.tree_batch.trees
    assert 0 in tree.won
    divisions = {0: np.arange(90) % 2 == 0}
    rows = tree.growth.everyone.rows(0)
    left = rows[~divisions[0]]
    sums = tree.gh[left[~room.contexts[GUEST].validation[left]]].sum(axis=0)
    return tree, divisions, sums, NoiseScale.of(room.params, guest.rules.fixed.bits).most


@pytest.mark.some(2)
@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("sigma", [0.0, SIGMA])
@pytest.mark.parametrize("column", [0, 1])
def test_a_division_may_differ_from_its_offer_by_the_noise_of_its_sums_and_no_more(
    sigma, column, parts
):
    for beyond in (-1, 0, 1):
        for sign in (-1, 1):
            tree, divisions, sums, most = tree_before_division(sigma)
            off = np.zeros_like(sums)
            off[column] = sign * (parts * most[column] + beyond)
            if not sigma and beyond < 0:
                continue
            won = replace(
                tree.won[0], left=(sums + off)[None], parts=np.array([parts], dtype=np.int64)
            )
            tree.won[0] = won
            if beyond <= 0:
                tree.divide(divisions, HOSTS)
                assert tree.totals[1].tolist() == sums.tolist()
                assert (tree.totals[2] + sums == tree.totals[0]).all()
            else:
                with pytest.raises(PeerError, match="otherwise than it offered"):
                    tree.divide(divisions, HOSTS)


def test_the_guests_own_splits_have_no_noise():
    tree, divisions, sums, _ = tree_before_division(SIGMA)
    own = replace(tree.won[0], owner=0, left=sums[None] + 1, parts=np.zeros(1, np.int64))
    tree.won[0] = own
    with pytest.raises(PeerError):
        tree.divide(divisions, HOSTS)


@pytest.mark.parametrize("sigma", [0.0, SIGMA])
def test_a_host_that_swaps_left_and_right_is_refused_with_noise_as_without(sigma):
    job = made({"host_noise": sigma, "mode": "layered", "n_estimators": 1}, (2, 3), 304, held=0.0)

    def swap(division):
        data = np.frombuffer(division.goes_right.data, np.uint8)
        division.goes_right.data = (~data).tobytes()

    room = job.room()
    room.alter = changing("RowDivisions", swap)
    with pytest.raises(PeerError, match="otherwise than it offered"):
        now(room.walk())


def test_sums_may_be_beyond_their_rows_by_the_noise_and_no_more():
    room = noisy({}).room()
    now(room.until("choose_splits"))
    guest = room.state(GUEST)
    [tree] = guest.growing.tree_batch.trees
    assert isinstance(tree, GuestTree)
    most = NoiseScale.of(room.params, guest.rules.fixed.bits).most
    rows = tree.growth.training.rows(0)
    assert tree.expected()[0].most.tolist() == (np.abs(tree.gh[rows]).sum(axis=0) + most).tolist()


# Policies


def run_under(folder, patch, sigma, **least):
    """A whole job with so much noise, whose parties' policies ask for some."""
    permissive = local.permissive_policy

    def strict(name, spec, **how):
        rules = {"host_noise_min": least.get(name, 0.0)}
        return permissive(name, spec, **how).model_copy(update=rules)

    patch.setattr(local, "permissive_policy", strict)
    spec = small_jobs.spec("secureboost", host_noise=sigma, n_estimators=1)
    return run_job(folder, small_jobs.tables("secureboost"), spec)


def test_a_host_refuses_a_job_with_less_noise_than_its_owner_wants(tmp_path, monkeypatch):
    done = run_under(tmp_path, monkeypatch, 0.25, telco=0.5)
    assert done.state == "failed"
    assert done.error.code == "policy"
    assert done.error.where["key"] == "policy.host_noise_min"
    assert done.error.where["party"] == "telco"
    assert "set host_noise: 0.5 in the job's params" in done.error.todo
    assert not any(done.ledgers.values())


def test_the_remedy_works_and_a_guest_asks_nothing_of_hosts(tmp_path, monkeypatch):
    done = run_under(tmp_path, monkeypatch, 0.5, telco=0.5, bank=60.0)
    assert done.state == "finished"
    assert set(done.shards) == set(small_jobs.PARTIES)
