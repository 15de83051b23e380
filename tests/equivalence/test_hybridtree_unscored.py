"""Are unscored trees what floats make of the hosts' own cuts, whatever the job says?"""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from tests.support.federated import GUEST, HOSTS
from tests.support.hybrid_unscored import assert_naive, cuts, made, reseeded, trained

CLASSES = {"objective": "multi:softprob", "num_class": 3}
GAP_MAX = 1e-4  # what the fixed point may cost a margin of these small jobs


@pytest.mark.parametrize(
    "params",
    [
        {},
        {**CLASSES},
        {**CLASSES, "multi_output": True, "subsample": 0.7},
        {"objective": "reg:squarederror"},
        {"objective": "count:poisson"},
        {"objective": "reg:tweedie"},
        {"subsample": 0.6},
        {"colsample_bytree": 0.5},
        {"guest_depth": 1, "host_depth": 4},
        {"guest_depth": 4, "host_depth": 1, "reg_lambda": 0.0},
        {"scale_pos_weight": 4.0, "reg_lambda": 2.5, "learning_rate": 1.0},
        {"precision_bits": 20},
    ],
    ids=str,
)
def test_unscored_trees_are_the_naive_ones(params):
    done = assert_naive(made(params))
    assert done.gap < GAP_MAX
    assert len(done.margins) == 3
    assert all(len(cuts(done.shards, host, 0)) > 1 for host in HOSTS[:2])


@pytest.mark.parametrize(
    ("widths", "how"),
    [
        ((2, 3), {"shares": [1.0]}),
        ((2, 3), {"shares": [0.4]}),
        ((2, 1, 4, 2), {"shares": [0.9, 0.5, 0.3]}),
        ((1, 2, 2, 2, 2), {"shares": [0.8, 0.8, 0.8, 0.1]}),
        ((2, 2, 2), {"shares": [range(50), range(50, 80)]}),  # no row has two hosts
        ((2, 2, 2), {"weighted": True, "held": 0.0}),
        ((2, 2, 2), {"categories": 5, "missing": 0.3}),
        ((2, 2, 2), {"missing": 0.6}),
        ((2, 4, 4), {"sparse": (HOSTS[0],), "zero": 0.7}),
        ((3, 4, 4), {"sparse": (GUEST, *HOSTS[:2]), "zero": 0.7, "missing": 0.0}),
        ((2, 2, 2), {"rows": 40, "least": 1}),
        ((2, 2, 2), {"rows": 100, "least": 8}),
        ((2, 2, 2), {"rows": 60, "least": 60}),  # nothing can be cut
    ],
    ids=str,
)
def test_whatever_the_tables_are_unscored_trees_are_the_naive_ones(widths, how):
    done = assert_naive(made({}, widths, **how))
    assert done.gap < GAP_MAX
    cut = any(cuts(done.shards, host, 0) for host in HOSTS[: len(widths) - 1])
    assert cut == (how.get("least") != 60)


@pytest.mark.some(2, of="trees under real keys")
@pytest.mark.parametrize("scheme", ["paillier", "okamoto-uchiyama"])
@pytest.mark.parametrize("classes", [{}, {**CLASSES, "multi_output": True}], ids=["one", "vector"])
def test_under_real_keys_unscored_trees_are_the_naive_ones(scheme, classes):
    params = {"encryption": {"scheme": scheme}, "n_estimators": 2, **classes}
    done = assert_naive(made(params, rows=40, least=2))
    assert done.gap < GAP_MAX


def test_a_host_adds_to_a_squared_error_what_hessians_would_have_it_add():
    """Of every tree and leaf −ΣG / (ΣH + λ), without a word about h."""
    job = made({"objective": "reg:squarederror", "reg_lambda": 0.7})
    seen = 0
    for tree, (host, rows) in itertools.product(assert_naive(job).trees, job.rows.items()):
        for leaf in np.unique(tree.leaves[host]):
            own = rows[tree.leaves[host] == leaf]
            some = own[tree.learns[own]]
            by_counts = tree.counted[some].sum(axis=0) / (len(some) + 0.7)
            by_hessians = tree.g[some].sum(axis=0) / (tree.h[some].sum(axis=0) + 0.7)
            assert np.allclose(by_counts, by_hessians, rtol=0, atol=1e-12)
            seen += len(some) > 0
    assert seen > 30


def test_hosts_with_nothing_to_say_add_what_hessians_would_have_them_add():
    """Rows are scaled by (n_b + λ) / (H_b + λ) below each bottom node b."""
    job = made({"objective": "count:poisson", "n_estimators": 2}, shares=[1.0, 0.5], least=60)
    tree = assert_naive(job).trees[-1]
    assert np.array_equal(tree.leaves[HOSTS[0]], tree.starts[HOSTS[0]])  # nothing could be cut
    for bottom in np.unique(tree.bottom):
        some = tree.learns & (tree.bottom == bottom)
        by_counts = tree.counted[some].sum() / (some.sum() + 1.0)
        by_hessians = tree.g[some].sum() / (tree.h[some].sum() + 1.0)
        assert by_counts == pytest.approx(by_hessians, abs=1e-12)
    assert len(np.unique(tree.h[tree.learns])) > 1


# Where a host cuts


def learned(job, tree, host):
    """The places, in the host's table, of the rows that learn below each of its nodes."""
    learns = np.flatnonzero(tree.held[host])
    found: dict[int, list[int]] = {}
    for row in learns.tolist():
        node, start = int(tree.leaves[host][row]), int(tree.starts[host][row])
        found.setdefault(node, []).append(row)
        while node != start:
            node = (node - 1) // 2
            found.setdefault(node, []).append(row)
    return found


def may_be_cut(bins, cuts, rows, least):
    """Whether some threshold of some column leaves enough of these rows on either side."""
    for column in range(bins.shape[1]):
        own = bins[rows, column]
        missing = own == cuts.missing
        for last, lost in itertools.product(range(int(cuts.n_bins[column])), (0, 1)):
            left = int(((own <= last) & ~missing).sum() + lost * missing.sum())
            if least <= left <= len(rows) - least:
                return True
    return False


@pytest.mark.parametrize("how", [{}, {"categories": 4}, {"missing": 0.5}], ids=str)
@pytest.mark.parametrize("least", [1, 4, 9])
def test_every_cut_leaves_enough_rows_on_either_side_and_leaves_cannot_be_cut(least, how):
    job = made({"subsample": 0.8, "host_depth": 3}, rows=330, least=least, **how)
    done = assert_naive(job)
    depth, counted, ended = done.room.params.host_depth, 0, 0
    for number, tree in enumerate(done.trees):
        for host in job.rows:
            own, rows = cuts(done.shards, host, number), learned(job, tree, host)
            me, first = done.room.state(host), 2**done.room.params.guest_depth
            for node, there in rows.items():
                if node in own:
                    sides = [len(rows.get(child, ())) for child in (2 * node + 1, 2 * node + 2)]
                    assert sum(sides) == len(there)
                    assert min(sides) >= least
                    counted += 1
                elif (node + 1).bit_length() - first.bit_length() < depth:
                    # Of categories only one order is tried.
                    bins = me.bins if not job.categories else me.bins[:, :-1]
                    assert not may_be_cut(bins, me.binning, there, least)
                    ended += 1
    assert counted > 30
    assert ended


def all_cuts(done, host):
    """What a host's shard says of its cuts."""
    names = ("tree", "node", "feature", "threshold", "missing_left", "left_bins")
    return [done.shards[host].arrays[name].tolist() for name in names]


def test_cuts_do_not_depend_on_labels():
    """A guest without a split of its own puts the same rows below the same bottom node."""
    job = made({"n_estimators": 2}, (1, 3, 2))
    columns = {**job.columns, GUEST: np.zeros_like(job.columns[GUEST])}
    one = trained(replace(job, columns=columns))
    other = trained(replace(job, columns=columns, y=np.roll(1.0 - job.y, 7)))
    for host in job.rows:
        assert all_cuts(one, host) == all_cuts(other, host)
        assert len(cuts(one.shards, host, 0)) > 1
    assert not np.array_equal(one.margins[-1], other.margins[-1])


def test_cuts_and_margins_are_the_same_in_a_later_attempt():
    job = made({**CLASSES, "n_estimators": 2})
    one = trained(job)
    again = trained(job, reseeded(job.room(), attempt=b"2"))
    for host in job.rows:
        assert all_cuts(one, host) == all_cuts(again, host)
    assert one.margins[-1].tobytes() == again.margins[-1].tobytes()


def test_cuts_differ_between_hosts_trees_nodes_and_jobs():
    """All rows and columns the same, so that equal draws would show."""
    job = made({"n_estimators": 3, "guest_depth": 1}, (1, 6, 6), shares=[1.0, 1.0], missing=0.0)
    telco, shop = job.rows
    columns = {**job.columns, GUEST: np.zeros_like(job.columns[GUEST]), shop: job.columns[telco]}
    job = replace(job, columns=columns)
    one, other = trained(job), trained(job, reseeded(job.room(), job=b"other"))
    drawn = [
        tuple((n, int(arrays["feature"][i]), float(arrays["threshold"][i])) for n, i in own.items())
        for done, host in itertools.product((one, other), job.rows)
        for arrays in [done.shards[host].arrays]
        for own in [cuts(done.shards, host, tree) for tree in range(3)]
    ]
    assert len(drawn) == 12
    assert len(set(drawn)) == 12
    features = [column for tree in drawn for _, column, _ in tree]
    assert set(features) == set(range(6))
