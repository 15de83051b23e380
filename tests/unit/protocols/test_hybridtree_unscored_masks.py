"""What a guest sees of unscored leaf values: of shared rows sums alone, whatever they are."""

from dataclasses import replace

import numpy as np

from fedboost.core import hybrid
from fedboost.crypto.api import Ciphertexts
from fedboost.runtime.config.policy import Policy
from tests.support.federated import GUEST, HOSTS, now
from tests.support.hybrid_unscored import Naive, cuts, made, reseeded, trained

TELCO, SHOP = HOSTS[:2]


def shared_job(**params):
    """One tree of 200 rows, all with both hosts."""
    own = {"n_estimators": 1, "guest_depth": 1, **params}
    return made(own, shares=[1.0, 1.0], rows=200, held=0.0)


def seen(done):
    """By host what a guest decrypts of each of its answers, int64 (rows,): modulo 2^64."""
    me = done.room.state(GUEST)
    packing = me.precision.layout(me.key.plaintext_bits)
    found = {}
    for posted in done.room.posted:
        if posted.message.DESCRIPTOR.name == "LeafAnswers":
            rows = len(done.room.contexts[posted.envelope.sender].frame.ids)
            packages = posted.message.packages
            held = Ciphertexts.received(packages.data, packages.count, me.key.width)
            found[posted.envelope.sender] = me.key.decrypt(held, packing, [rows])[:, 0]
    return found


def values_of(job, done, host):
    """The integers that a host's leaves are worth to its rows in a job of one tree, exactly."""
    twin = Naive(job, done)
    [tree] = list(twin.trees(twin.before([], 0), 0))
    own, rows = tree.leaves[host], job.rows[host]
    at = tree.top.leaf_of_bins(twin.bins, twin.rules.binning.missing)
    g, h = twin.objective.gradients(twin.before([], 0), job.y, twin.weight)
    gh, learns = twin.fixed.encode(g, h), tree.learns
    moved = hybrid.residual_gradients(gh, tree.top.value[at], twin.fixed)
    factors = hybrid.count_factors(gh[learns], tree.top, at[learns], twin.rules)
    bits = twin.precision.value_bits
    counted = hybrid.counted_gradients(moved, factors[at], twin.rules, bits)[:, 0]
    packing, found = twin.precision.layout(2048), np.zeros(len(rows), np.int64)
    for leaf in np.unique(own):
        there = own == leaf
        [factor] = packing.factors([int(there.sum())], job.params.get("reg_lambda", 1.0))
        found[there] = factor * counted[rows[there]].sum()
    return found


def chi_square(numbers):
    """Of the 16 values of every nibble of int64 numbers; 15 degrees of freedom."""
    data = np.ascontiguousarray(numbers).view(np.uint8)
    counts = np.bincount(np.concatenate([data >> 4, data & 15]), minlength=16)
    return ((counts - counts.mean()) ** 2 / counts.mean()).sum()


CHI_SQUARE_MAX = 37.7  # 1 of 1000 uniform samples is above


def test_what_a_host_answers_for_a_shared_row_is_uniform():
    job = shared_job()
    done = trained(job)
    for host, answers in seen(done).items():
        assert len(answers) == 200
        assert chi_square(answers) < CHI_SQUARE_MAX
        assert len(np.unique(answers)) == 200  # rows of one leaf do not look alike
        bare = values_of(job, done, host)
        assert chi_square(bare) > 10 * CHI_SQUARE_MAX  # what it would be without masks
        assert len(np.unique(bare)) < 20


def test_the_sum_of_the_hosts_answers_is_that_of_their_values_exactly():
    job = shared_job()
    done = trained(job)
    total = sum(seen(done).values())
    assert np.array_equal(total, sum(values_of(job, done, host) for host in job.rows))
    assert np.abs(total).max() > 2**40


def test_masks_do_not_depend_on_values():
    """The same secrets, other labels: answers differ by the values alone."""
    job = shared_job()
    job = replace(job, columns={**job.columns, GUEST: np.zeros_like(job.columns[GUEST])})
    one, other = trained(job), trained(swapped := replace(job, y=np.roll(job.y, 3)))
    for host in job.rows:
        moved = values_of(job, one, host) - values_of(swapped, other, host)
        assert moved.any()
        assert np.array_equal(seen(one)[host] - seen(other)[host], moved)


def test_masks_are_others_in_every_tree_attempt_and_pair():
    job = made({"n_estimators": 2, "guest_depth": 1}, (1, 2, 2, 2), shares=[1.0] * 3, rows=40)
    room = job.room()
    now(room.walk())
    me = room.state(TELCO)
    packing = me.side.keys.layout
    drawn = [me.answering.masks(tree, slice(0, 40), packing) for tree in range(2)]
    again = reseeded(job.room(), attempt=b"2")
    now(again.walk())
    drawn.append(again.state(TELCO).answering.masks(0, slice(0, 40), packing))
    drawn.append(room.state(SHOP).answering.masks(0, slice(0, 40), packing))
    data = {masks.limbs.tobytes() for masks in drawn}
    assert len(data) == 4
    assert all(masks.streams == 2 for masks in drawn)
    assert "hidden" in repr(drawn[0])
    assert "Pair" not in repr(me.answering)


def test_the_values_of_rows_with_one_host_are_seen():
    """As the disclosure says; where a row has two hosts the same guest sees nothing of one."""
    job = made({"n_estimators": 1}, shares=[range(60), range(40, 100)], rows=100, held=0.0)
    done = trained(job)
    for host, alone in ((TELCO, slice(0, 40)), (SHOP, slice(20, 60))):
        answers, values = seen(done)[host], values_of(job, done, host)
        same = answers == values
        assert same[alone].all()
        assert same.sum() == 40


def test_a_single_host_answers_without_masks():
    job = made({"n_estimators": 1}, (2, 3), shares=[0.8], held=0.0)
    done = trained(job)
    assert np.array_equal(seen(done)[TELCO], values_of(job, done, TELCO))
    kinds = {posted.message.DESCRIPTOR.name for posted in done.room.posted}
    assert kinds == {"EncryptionKey", "BottomRows", "LeafAnswers"}


def test_a_leaf_that_a_host_has_cut_has_as_many_rows_as_its_policy_asks_for():
    """Twenty, where its owner says nothing."""
    least = Policy().group_rows_min
    job = made({"n_estimators": 2, "host_depth": 4}, (2, 3), shares=[1.0], least=least, rows=200)
    done = trained(job)
    twin = Naive(job, done)
    for number, tree in enumerate(twin.trees(twin.before(done.margins, 1), 1), start=1):
        own = tree.leaves[TELCO][tree.held[TELCO]]
        starts = tree.starts[TELCO][tree.held[TELCO]]
        assert cuts(done.shards, TELCO, number)
        for leaf in np.unique(own[own != starts]):
            assert (own == leaf).sum() >= least == 20
