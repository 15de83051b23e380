"""What sums of a horizontal job tell of one party, to all the others together.

They know their own parts of every total, so of each cell of each node they know the party's own
sum. A sum of one row is that person's gradient, and with it the label. Where one column sees a row
in a node that another column does not, and no other difference, that of their totals is as well.
`own_rows_min` is to rule out both.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.boosting import VALIDATION
from benchmarks.rows import Row
from benchmarks.tables import SEED, Table
from fedboost.core import local
from fedboost.core.local import Trained, TrainingTable
from fedboost.core.own_rows import OwnRows
from fedboost.core.params import TreeParams
from fedboost.core.partition import ROOT, left_child, right_child
from fedboost.core.tree import Split, Tree
from fedboost.ground.settings import parse_settings
from fedboost.runtime.config.policy import Policy

TOTALS = "sums under masks"
ALONE, FEW = "sums of one row", "sums of few rows"
APART = "nodes where two columns differ by one row alone"
PARTIES = 3
DEFAULT = Policy().own_rows_min
LEASTS = (1, DEFAULT, 4 * DEFAULT)  # own_rows_min, of every party

Sums = NDArray[np.int64]


def measure(table: Table, shape: Mapping[str, Any]) -> Iterator[Row]:
    """One row for each own_rows_min: what of all sums is about few rows, beside the AUC.

    `shape` is the job's parameters.
    """
    held = table.held_out(**VALIDATION)
    order = np.random.default_rng(SEED).permutation(np.flatnonzero(~held))
    shares = tuple(len(part) for part in np.array_split(order, PARTIES))
    own = {name: value for name, value in shape.items() if name in TreeParams.model_fields}
    params = parse_settings(TreeParams, {**own, "eval_metric": ["auc"]})
    validation = TrainingTable(table.values[held], table.y[held].astype(float))
    for least in LEASTS:
        training = TrainingTable(
            table.values[order],
            table.y[order].astype(float),
            row_groups=shares,
            own_rows_min=(least,) * PARTIES,
        )
        done = local.train(training, params, validation)
        told = Counter[str]()
        for trees in done.rounds:
            for tree in trees:
                told.update(of_few(tree, done, table.values[order[: shares[0]]], least))
        auc = {part: values["auc"] for part, values in done.history[-1].items()}
        yield {"what": TOTALS, "least": least, "rows": shares[0], "auc": auc, "told": dict(told)}


def of_few(tree: Tree, done: Trained, values: NDArray[np.float32], least: int) -> Counter[str]:
    """Return how many sums and nodes of a tree tell of one or few of a party's rows, float32
    (n, columns) its values.
    """
    told = Counter[str]()
    draw = np.random.default_rng(SEED)
    gradients = np.stack([np.ones(len(values), np.int64), draw.integers(1 << 40, size=len(values))])
    for sums in layers(tree, done, values, gradients.T, least):
        counts, totals = sums[..., 0], sums.sum(axis=2)
        told["sums"] += int((counts > 0).sum())
        told[ALONE] += int((counts == 1).sum())
        told[FEW] += int(((counts > 0) & (counts < DEFAULT)).sum())
        for own in totals:  # (columns, 2)
            gaps = own[:, None] - own
            one = np.abs(gaps[..., 1][gaps[..., 0] == 1])
            told["nodes"] += 1
            told[APART] += bool(np.isin(one, gradients[1]).any())
    return told


def layers(
    tree: Tree, done: Trained, values: NDArray[np.float32], gradients: Sums, least: int
) -> Iterator[Sums]:
    """The party's sums in the cells of each layer's nodes, as the others find them out; int64
    (nodes, columns, cells, 2) of gradients int64 (n, 2).
    """
    bins, rows = done.binning.transform(values), np.arange(len(values), dtype=np.int32)
    columns = np.arange(values.shape[1], dtype=np.int32)
    own = OwnRows(done.binning, bins, gradients, rows, (columns, 0), least)
    splits = {
        int(tree.node[at]): Split(
            int(tree.feature[at]), int(tree.bin[at]), tree.threshold[at],
            bool(tree.missing_left[at]), float(tree.gain[at]),
        )
        for at in np.flatnonzero(~tree.is_leaf)
    }  # fmt: skip
    nodes = [ROOT]
    for _ in range(done.params.max_depth):
        yield own.sums(nodes)
        divided = {node: splits[node] for node in nodes if node in splits}
        own.divide(divided)
        nodes = [c for node in divided for c in (left_child(node), right_child(node))]
        if not nodes:
            return
