"""Trees whose sums have left a host, made up: columns of random bins, rows divided at random."""

import numpy as np

from fedboost.audit.releases import KnownReleases, ReleasedTree, cell_counts


def made(rows, trees, *, depth=5, bins=32, columns=1, seed=1):
    """All sums of all cells of the opened nodes have left; the last layer is closed.

    `depth` is that of the leaves, so 2**depth − 1 nodes are opened and 2**(depth − 1) say
    something of their own.
    """
    draw = np.random.default_rng(seed)
    cells = draw.integers(0, bins, (rows, columns)).astype(np.uint8)
    opened = np.arange((1 << depth) - 1, dtype=np.int32)
    finest = np.tile(np.arange(bins + 1, dtype=np.uint8), (len(opened), columns, 1))
    used = np.arange(columns, dtype=np.int32)
    found = []
    for _ in range(trees):
        at = draw.integers(len(opened), 2 * len(opened) + 1, rows).astype(np.int16)
        found.append(ReleasedTree(at, opened, used, finest))
    return KnownReleases(cells, 2, found)


def coarsened(given, least):
    """The same trees with the least groups of neighbouring bins that hold so many rows.

    As the rule has it (SECURITY.md, D7): a node's and its sibling's are unions of their parent's.
    """
    trees = []
    for tree in given.trees:
        groups, place = tree.groups.copy(), {n: k for k, n in enumerate(tree.nodes.tolist())}
        everything = np.arange(int(tree.at.max()) + 2, dtype=np.int32)
        whole = ReleasedTree(tree.at, everything, tree.columns, tree.groups)
        for used, column in enumerate(tree.columns.tolist()):
            held = cell_counts(whole, given.cells[:, column], groups.shape[2])
            for node in tree.nodes.tolist():
                other = node + 1 if node % 2 else node - 1
                if node and other in place and other < node:
                    groups[place[node], used] = groups[place[other], used]
                    continue
                above = groups[place[(node - 1) // 2 if node else 0], used]
                groups[place[node], used] = _merged(
                    above, held[[node, other] if node else [0]], least
                )
        trees.append(ReleasedTree(tree.at, tree.nodes, tree.columns, groups))
    return KnownReleases(given.cells, given.values, trees)


def _merged(above, held, least):
    """Cells from the left until there are enough rows in each node; the rest joins the last."""
    number, found, so_far = 0, np.zeros(len(above), np.uint8), np.zeros(len(held), np.int64)
    for group in np.unique(above):
        inside = above == group
        found[inside] = number
        so_far = so_far + held[:, inside].sum(axis=1)
        if (so_far >= least).all():
            number, so_far = number + 1, np.zeros(len(held), np.int64)
    found[found == number] = max(0, number - 1)
    return found
