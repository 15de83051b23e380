"""Hosts that release no sum of few people: the trees of one table that keeps to the same groups."""

import pytest

from tests.support.federated import now
from tests.support.secureboost_jobs import (
    CLASSES,
    SAMPLES,
    VECTORS,
    assert_naive,
    assert_pooled,
    flat,
    grown_naively,
    made,
)

TABLES = {
    "numbers": {"missing": 0.0},
    "missing": {"missing": 0.3},
    "categories": {"categories": 6, "missing": 0.2},
    "all present categories": {"categories": 5, "missing": 0.0},
    "zeros": {"zero": 0.7},
}
LAYERED = {"mode": "layered", "host_depth": 2, "guest_depth": 1}


@pytest.mark.parametrize("least", [2, 8, 20, 100])
@pytest.mark.parametrize("how", TABLES.values(), ids=TABLES)
def test_trees_are_the_pooled_ones_with_the_same_groups(how, least):
    assert_pooled(made({}, rows=240, least=least, seed=least, **how))


@pytest.mark.parametrize("sample", SAMPLES)
def test_groups_count_the_rows_that_a_tree_learns_from(sample):
    assert_pooled(made(SAMPLES[sample], rows=300, least=10, categories=4))


@pytest.mark.parametrize("said", [CLASSES, VECTORS], ids=["classes", "vectors"])
def test_several_outputs_keep_to_the_same_groups(said):
    assert_pooled(made(said, rows=240, least=12, categories=4))


@pytest.mark.parametrize("said", [LAYERED, {"mode": "mix"}], ids=["layered", "mix"])
def test_other_modes_keep_to_them(said):
    assert_naive(made(said, rows=240, least=12, categories=4))


def test_a_forest_keeps_to_them_tree_by_tree():
    said = {"forest": {"n_trees": 3, "subsample": 0.5, "colsample_bytree": 0.7}}
    assert_pooled(made(said, rows=300, least=9))


@pytest.mark.parametrize(
    "off", ["gh_packing", "cipher_compressing", "histogram_subtraction", "sparse_histograms"]
)
def test_every_switch_may_be_off(off):
    assert_pooled(made({off: False}, rows=200, least=10, categories=5))


def test_a_minimum_changes_the_trees_of_few_rows():
    trees = {
        least: flat(grown_naively(made({}, rows=240, least=least)).rounds).rounds
        for least in (1, 40)
    }
    shapes = {least: [tree.feature.tolist() for (tree,) in own] for least, own in trees.items()}
    assert shapes[1] != shapes[40]


def test_a_host_whose_nodes_are_all_too_small_offers_nothing_and_the_job_ends_well():
    job = made({}, rows=120, least=1000)
    shards = now(job.room().walk())
    assert all(not len(shards[host].arrays["tree"]) for host in list(job.widths)[1:])
