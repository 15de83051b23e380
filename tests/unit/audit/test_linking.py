"""Which sums belong together is told from exact sums alone, whatever order they come in."""

import numpy as np

from tests.support.linking import chains, matched
from tests.support.released import made

N_BINS, VALUES = 12, 2


def sums_of(tree, cells, gh):
    """Candidate sums of each opened node: of the rows up to each bin, each node in an order of its
    own; and those orders.
    """
    draw, found, orders = np.random.default_rng(9), {}, {}
    below = {node: [node] for node in range(2 * len(tree.nodes) + 1)}
    for node in sorted(below, reverse=True):
        if node:
            below[(node - 1) // 2] += below[node]
    for node in tree.nodes.tolist():
        inside = np.isin(tree.at, below[node])
        own = [gh[inside & (cells <= cut)].sum(axis=0) for cut in range(N_BINS - 1)]
        orders[node] = draw.permutation(N_BINS - 1)
        found[node] = np.array(own)[orders[node]]
    return found, orders


def layered(found):
    depths = {node: (node + 1).bit_length() - 1 for node in found}
    most = max(depths.values()) + 1
    return [{n: own for n, own in found.items() if depths[n] == d} for d in range(most)]


def test_exact_sums_of_parent_and_children_give_the_secret_order_away():
    given = made(3000, 1, depth=4, bins=N_BINS)
    tree, cells = given.trees[0], given.cells[:, 0]
    gh = np.random.default_rng(3).integers(-(1 << 52), 1 << 52, (3000, VALUES))
    found, orders = sums_of(tree, cells, gh)
    linked = chains(layered(found))
    for place, chain in enumerate(linked):
        cut = orders[0][place]
        assert set(chain) == set(tree.nodes.tolist())
        assert all(orders[node][at] == cut for node, at in chain.items())


def test_coarse_sums_that_add_up_by_chance_are_not_followed():
    given = made(500, 1, depth=3, bins=N_BINS)
    gh = np.ones((500, VALUES), np.int64)  # every sum is a count
    found, orders = sums_of(given.trees[0], given.cells[:, 0], gh)
    linked = chains(layered(found))
    whole = [c for c in linked if len(c) == len(found)]
    assert len(whole) < len(linked) == N_BINS - 1
    assert len(orders[0]) == N_BINS - 1


def test_nothing_adds_up_in_sums_of_other_rows():
    draw = np.random.default_rng(1)
    above, left, right = (draw.integers(0, 1 << 52, (20, 2)) for _ in range(3))
    assert matched(above, left, right) == []
    assert matched(left + right, left, right) == [(k, k, k) for k in range(20)]
    assert chains([]) == []
