"""Ranking labels from row groupings alone: rows that share nodes are alike, and a few are known.

A host that is told which rows divide together needs no column of its own for it (SECURITY.md,
section 2, item 2).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array
from scipy.sparse.linalg import LinearOperator, eigsh

from fedboost.audit.findings import LABELS_KNOWN
from fedboost.core import metrics
from fedboost.errors import DataError

Bits = NDArray[np.bool_]
Floats = NDArray[np.float64]
Groupings = NDArray[np.int16]  # (rows, trees) the node of each row, −1 where the host has none

DRAWS = 10  # of which rows those are
AXES = 8  # along which rows differ most by the nodes that they share
RIDGE = 100.0  # so strong for as few labels: nearly the difference of their means
SEED = 11


def label_aucs(groupings: Groupings, positive: Bits, *, draws: int = DRAWS) -> Floats:
    """Return how well the labels of the other rows are ranked, AUC of each draw, float64 (draws,).

    positive bool (rows,). A DataError where there are too few rows of either class to know half of
    `LABELS_KNOWN` each and have others left.
    """
    half, ones, zeros = LABELS_KNOWN // 2, np.flatnonzero(positive), np.flatnonzero(~positive)
    if min(len(ones), len(zeros)) <= half:
        raise DataError(
            f"of {len(positive)} rows {len(ones)} have the label: too few on one side to know "
            f"{half} and rank others",
            todo="audit a job with more rows of both labels",
        )
    axes = likeness(groupings)
    draw, found = np.random.default_rng(SEED), []
    for _ in range(draws):
        known = np.concatenate([draw.choice(own, half, replace=False) for own in (ones, zeros)])
        score = _ranked(axes, known, positive[known])
        rest = np.ones(len(positive), np.bool_)
        rest[known] = False
        found.append(metrics.evaluate("auc", positive[rest].astype(np.float64), score[rest]))
    return np.array(found)


def likeness(groupings: Groupings) -> Floats:
    """Rows along the axes on which they differ most by shared nodes, float64 (rows, at most AXES).

    The leading eigenvectors of the chance to come from one row to another by a node drawn among
    those that it stands in, behind the constant one; each times its eigenvalue.
    """
    shared = _shared(groupings)
    n_rows = shared.shape[0]
    size = np.asarray(shared.sum(axis=0)).ravel()
    scaled = shared @ csr_array(
        (1.0 / np.sqrt(size), (np.arange(len(size)), np.arange(len(size)))), shape=(len(size),) * 2
    )
    degree = np.maximum(1.0, np.asarray(shared.sum(axis=1)).ravel())
    scaled = csr_array(scaled.multiply(1.0 / np.sqrt(degree)[:, None]))
    across = csr_array(scaled.T)
    count = min(AXES + 1, n_rows - 1)
    walk = LinearOperator(
        (n_rows, n_rows), matvec=lambda x: scaled @ (across @ x), dtype=np.float64
    )
    start = np.random.default_rng(SEED).random(n_rows)
    value, vector = eigsh(walk, k=count, v0=start)
    order = np.argsort(-value)[1:]
    axes: Floats = vector[:, order] * value[order] / np.sqrt(degree)[:, None]
    spread = axes.std(axis=0)
    return axes[:, spread > 0] * (value[order] / np.where(spread > 0, spread, 1.0))[spread > 0]


def _shared(groupings: Groupings) -> csr_array:
    """1 where a row stands in a node of a tree; (rows, nodes of all trees)."""
    row, tree = np.nonzero(groupings >= 0)
    stride = int(groupings.max(initial=0)) + 1
    _, node = np.unique(tree * stride + groupings[row, tree], return_inverse=True)
    shape = (len(groupings), int(node.max(initial=-1)) + 1)
    return csr_array(coo_array((np.ones(len(row)), (row, node)), shape=shape))


def _ranked(axes: Floats, known: NDArray[np.int64], positive: Bits) -> Floats:
    """A score for each row, by ridge regression on the known ones."""
    own = axes[known]
    centre = own.mean(axis=0)
    own, target = own - centre, np.where(positive, 1.0, -1.0)
    weight = np.linalg.solve(own.T @ own + RIDGE * np.eye(own.shape[1]), own.T @ target)
    score: Floats = (axes - centre) @ weight
    return score
