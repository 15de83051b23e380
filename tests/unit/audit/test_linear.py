"""Linear programming on released sums: it works where nothing defends, and not where it should."""

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.privacy import ruled_out
from fedboost.audit import attacks, linear
from fedboost.audit.attacks import AttackPlan, AttackTarget
from fedboost.audit.findings import LINKINGS, SUMS
from fedboost.audit.releases import (
    KnownReleases,
    ReleasedTree,
    cell_counts,
    independent_nodes,
    known_nodes,
)
from tests.support.released import coarsened, made

BIN = 3


def one_bin(given):
    return AttackTarget(0, np.arange(given.trees[0].groups.shape[2]) == BIN)


def solved(given, trees, how=linear.nearest_solution):
    """Precision and chance for one bin's rows."""
    known = linear.generic_coefficients(2, given.n_rows, given.values)
    equations = linear.equations_of_bin(given, 0, one_bin(given).cells, trees, known)
    return linear.precision_of_guess(how(equations), equations.truth), equations.chance_precision


@pytest.mark.parametrize(
    ("trees", "least", "most"), [(15, 0.99, 1.0), (4, 0.1, 0.6)], ids=["many", "some"]
)
def test_more_sums_name_more_rows_of_a_bin(trees, least, most):
    # 32 numbers a tree: 0.24 and 0.06 of the rows.
    found, chance = solved(made(2000, trees), range(trees))
    assert least <= found <= most
    assert chance < 0.05


def test_the_sums_of_one_tree_of_a_large_job_say_next_to_nothing():
    given = made(20_000, 3)
    found = [solved(given, [tree])[0] for tree in range(3)]
    assert np.mean(found) < 2 / 32


def test_the_nearest_point_fits_the_sums_and_ranks_no_worse_than_a_corner():
    given = made(600, 3, depth=4)
    known = linear.generic_coefficients(2, given.n_rows, given.values)
    better = 0.0
    for bins in range(8):
        cells = np.arange(33) == bins
        equations = linear.equations_of_bin(given, 0, cells, range(3), known)
        near, corner = linear.nearest_solution(equations), linear.least_sum_solution(equations)
        for x in (near, corner):
            np.testing.assert_allclose(equations.matrix @ x, equations.sums, atol=1e-4)
            assert -1e-6 <= x.min() <= x.max() <= 1 + 1e-6
        better += linear.precision_of_guess(near, equations.truth)
        better -= linear.precision_of_guess(corner, equations.truth)
    assert better >= 0.0


def test_noise_of_the_host_hides_rows_that_exact_sums_name():
    given = made(2000, 15)
    found = {sigma: solved(replace(given, noise=sigma), range(15))[0] for sigma in (0.0, 2.0, 16.0)}
    assert found[0.0] > 0.99
    assert 0.05 < found[16.0] < found[2.0] < 0.9


def test_guesses_that_say_nothing_score_chance():
    truth = np.arange(5000) < 1000
    assert linear.precision_of_guess(np.zeros(5000), truth) == pytest.approx(0.2, abs=0.05)
    assert linear.precision_of_guess(truth.astype(float), truth) == 1.0
    assert linear.precision_of_guess(np.zeros(3), np.zeros(3, bool)) == 0.0


def test_counts_are_those_of_each_nodes_rows():
    given = made(300, 1, depth=3, bins=4)
    tree = given.trees[0]
    held = cell_counts(tree, given.cells[:, 0], 5)
    for node, own in zip(tree.nodes.tolist(), held, strict=True):
        rows = np.isin(tree.at, [d for d in range(15) if node in _path(d)])
        assert own.tolist() == np.bincount(given.cells[rows, 0], minlength=5).tolist()


def _path(node):
    found = [node]
    while found[-1]:
        found.append((found[-1] - 1) // 2)
    return found


@pytest.mark.parametrize("seed", range(20))
def test_the_kept_sums_say_all_and_do_not_follow_from_one_another(seed):
    draw = np.random.default_rng(seed)
    nodes = sorted(draw.choice(31, draw.integers(1, 20), replace=False).tolist())
    of_leaf = {n: [n in _path(leaf) for leaf in range(15, 31)] for n in range(31)}
    known = np.array([of_leaf[n] for n in nodes], float)
    kept = np.array([of_leaf[n] for n in independent_nodes(nodes)], float)
    rank = np.linalg.matrix_rank(known)
    assert rank == len(kept) == np.linalg.matrix_rank(kept)
    assert np.linalg.matrix_rank(np.concatenate([known, kept])) == rank


def test_a_sum_is_the_targets_own_where_its_groups_hold_nobody_else():
    groups = np.array([[0, 0, 1, 1, 2], [0, 1, 1, 1, 2], [0, 0, 0, 0, 0]], np.uint8)
    held = np.array([[2, 3, 4, 5, 0], [2, 0, 4, 0, 1], [0, 0, 7, 0, 0]])
    found = known_nodes(groups, held, np.array([False, False, True, False, False]))
    assert found.tolist() == [False, True, True]
    both = known_nodes(groups, held, np.array([False, False, True, True, False]))
    assert both.tolist() == [True, True, True]


def test_every_linking_is_tried_and_knowing_more_finds_more():
    found = attacks.attack_host(made(1500, 20, columns=3), AttackPlan(columns=2))
    assert [one.linking for one in found] == list(LINKINGS)
    assert {one.attack for one in found} == {SUMS}
    assert found[2].value > 0.99
    assert found[2].value > 3 * found[1].value
    assert all(0.02 < one.chance < 0.25 for one in found)
    assert "100 are right" in found[2].sentence()


def test_minimum_groups_keep_what_would_be_known_without_them():
    given = made(4000, 30, bins=16)
    bare, defended = solved(given, range(30))[0], coarsened(given, 40)
    (found,) = attacks.attack_host(defended, AttackPlan(("all",)))
    assert bare > 0.99
    assert found.value < 0.5
    assert max(one.groups.max() for one in defended.trees) > 1


def test_a_bin_that_is_never_apart_from_others_is_no_target():
    given = made(200, 2)
    merged = np.zeros_like(given.trees[0].groups)
    merged[..., -1] = 1  # of missing rows, of which there are none
    trees = [ReleasedTree(t.at, t.nodes, t.columns, merged) for t in given.trees]
    assert attacks.attack_host(KnownReleases(given.cells, 2, trees), AttackPlan()) == []
    assert KnownReleases(given.cells, 2, trees).equations_per_row() == 0.0


def test_rows_that_no_tree_learnt_from_are_not_counted():
    given = made(400, 1)
    at = given.trees[0].at.copy()
    at[:100] = -1
    tree = ReleasedTree(at, given.trees[0].nodes, given.trees[0].columns, given.trees[0].groups)
    known = linear.generic_coefficients(2, 400, 2)
    equations = linear.equations_of_bin(
        KnownReleases(given.cells, 2, [tree]), 0, one_bin(given).cells, [0], known
    )
    assert equations.rows.tolist() == list(range(100, 400))
    assert equations.matrix.shape == (32, 300)


def test_equations_are_counted_as_the_meter_counts_them():
    given = made(1000, 3, depth=3)  # seven opened nodes: the root, and three pairs
    assert given.equations_per_row() == pytest.approx(3 * 2 * 4 / 1000)
    merged = coarsened(given, 400)
    assert merged.equations_per_row() < given.equations_per_row()


def test_true_gradients_can_be_given():
    given = made(1500, 12)
    same = np.ones((1500, 2))  # of which no row has its own
    (found,) = attacks.attack_host(given, AttackPlan(("all",)), coefficients=lambda tree: same)
    assert found.value < 0.9
    assert attacks.attack_host(given, AttackPlan(("all",)))[0].value > 0.99


def test_divided_rows_alone_rule_out_and_rank_nothing():
    given = made(2000, 3)
    known = linear.generic_coefficients(2, given.n_rows, given.values)
    equations = linear.equations_of_bin(given, 0, one_bin(given).cells, range(3), known)
    guess = ruled_out(equations)
    assert not equations.truth[guess == 0.0].any()
    assert set(guess.tolist()) <= {0.0, equations.chance_precision}
