"""The attacks: labels from how rows are grouped, members from their loss, cells from sums."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array
from scipy.sparse.linalg import LinearOperator, eigsh

from fedboost.audit import linear
from fedboost.audit.findings import (
    CLUSTERS,
    LABELS_KNOWN,
    LINKINGS,
    MEMBERS,
    SUMS,
    Finding,
    Linking,
)
from fedboost.audit.linear import Coefficients, Solver
from fedboost.audit.releases import KnownReleases, cell_counts
from fedboost.core import metrics
from fedboost.core.metrics import PROBABILITY_MIN, one_column
from fedboost.ground.arrays import Bits, Floats
from fedboost.ground.errors import DataError

Groupings = NDArray[np.int16]  # (rows, trees) the node of each row, −1 where the host has none

DRAWS = 10  # random choices of the known rows
AXES = 8  # along which rows differ most by the nodes that they share
RIDGE = 100.0  # so strong for as few labels: nearly the difference of their means
GROUPING_SEED = 11


def label_aucs(groupings: Groupings, positive: Bits, *, draws: int = DRAWS) -> Floats:
    """Return how well the labels of the other rows are ranked, AUC of each draw, float64 (draws,).

    positive bool (rows,). A DataError where there are too few rows of either class to know half of
    `LABELS_KNOWN` each and have others left.
    """
    half, ones, zeros = LABELS_KNOWN // 2, np.flatnonzero(positive), np.flatnonzero(~positive)
    if min(len(ones), len(zeros)) <= half:
        raise DataError(
            f"{len(ones)} of {len(positive)} rows have the label: too few on one side to know "
            f"{half} and rank others",
            todo="audit a job with more rows of both labels",
        )
    axes = similarity_axes(groupings)
    draw, aucs = np.random.default_rng(GROUPING_SEED), []
    for _ in range(draws):
        known = np.concatenate(
            [draw.choice(class_rows, half, replace=False) for class_rows in (ones, zeros)]
        )
        score = _ridge_scores(axes, known, positive[known])
        rest = np.ones(len(positive), np.bool_)
        rest[known] = False
        aucs.append(metrics.evaluate("auc", positive[rest].astype(np.float64), score[rest]))
    return np.array(aucs)


def similarity_axes(groupings: Groupings) -> Floats:
    """Return rows along the axes of largest difference in shared nodes, float64 (rows, at most
    AXES).

    The axes are the leading eigenvectors, after the constant one, of a walk between rows that share
    a randomly drawn node; each is scaled by its eigenvalue.
    """
    shared = _node_membership(groupings)
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
    start = np.random.default_rng(GROUPING_SEED).random(n_rows)
    value, vector = eigsh(walk, k=count, v0=start)
    order = np.argsort(-value)[1:]
    axes: Floats = vector[:, order] * value[order] / np.sqrt(degree)[:, None]
    spread = axes.std(axis=0)
    return axes[:, spread > 0] * (value[order] / np.where(spread > 0, spread, 1.0))[spread > 0]


def _node_membership(groupings: Groupings) -> csr_array:
    """Return 1 for each node of a tree that holds a row; (rows, nodes of all trees)."""
    row, tree = np.nonzero(groupings >= 0)
    stride = int(groupings.max(initial=0)) + 1
    _, node = np.unique(tree * stride + groupings[row, tree], return_inverse=True)
    shape = (len(groupings), int(node.max(initial=-1)) + 1)
    return csr_array(coo_array((np.ones(len(row)), (row, node)), shape=shape))


def _ridge_scores(axes: Floats, known: NDArray[np.int64], positive: Bits) -> Floats:
    """Return a score for each row, by ridge regression on the known rows."""
    known_axes = axes[known]
    centre = known_axes.mean(axis=0)
    known_axes, target = known_axes - centre, np.where(positive, 1.0, -1.0)
    weight = np.linalg.solve(
        known_axes.T @ known_axes + RIDGE * np.eye(known_axes.shape[1]), known_axes.T @ target
    )
    return (axes - centre) @ weight


def row_losses(y: Floats, prediction: Floats, *, classes: bool) -> Floats:
    """Return the loss of each row, float64 (rows,).

    y float64 (rows,); prediction (rows,) or (rows, outputs). With `classes` predictions are
    probabilities and the loss is −log p of the row's own class; without, the loss is the distance
    from y.
    """
    predicted = one_column(prediction)
    if not classes:
        return np.abs(y - predicted)
    if predicted.ndim == 1:
        predicted = np.where(y > 0.5, predicted, 1.0 - predicted)
    else:
        predicted = predicted[np.arange(len(y)), y.astype(np.intp)]
    return -np.log(np.maximum(predicted, PROBABILITY_MIN))


def member_auc(loss: Floats, is_training: Bits) -> float:
    """Return the AUC of telling training rows, bool (rows,), from the others by a small loss.

    Raise DataError if all rows are of one kind.
    """
    return metrics.evaluate("auc", is_training.astype(np.float64), -loss)


COLUMNS_DRAWN = 4  # of a table, drawn
TARGETS = 3  # bins, or groups of them, of each column
TREES_ALONE = 5  # that are attacked one by one with linking across neighbours
SUMS_ALONE = 60  # of each column that are attacked one by one without linking
COMMON = 0.5  # a bin with a larger share of the rows is no secret worth naming
AUDIT_SEED = 5


@dataclass(frozen=True)
class AttackPlan:
    """The extent of an audit's attacks."""

    linkings: tuple[Linking, ...] = LINKINGS
    columns: int = COLUMNS_DRAWN
    solve: Solver = (
        linear.nearest_solution
    )  # or linear.corner, which takes minutes where this takes seconds


@dataclass(frozen=True)
class AttackTarget:
    """Rows of one column's cells, which an attacker looks for."""

    column: int
    cells: Bits


@dataclass(frozen=True)
class GuestView:
    """One host's view of row groups, as the guest knows it."""

    about: str  # the host's name
    groupings: Groupings
    positive: Bits  # (rows,) the label, as far as it has two sides


def draw_targets(
    releases: KnownReleases, columns: int, seed: int = AUDIT_SEED
) -> list[AttackTarget]:
    """Return groups of columns with released sums, drawn from a seed."""
    draw = np.random.default_rng(seed)
    using = [c for c in range(releases.cells.shape[1]) if releases.trees_using(c)]
    findings = []
    for column in sorted(draw.permutation(using)[:columns].tolist()):
        number = releases.trees_using(column)[0]
        tree = releases.trees[number]
        place = tree.place_of(column)
        assert place is not None
        first = tree.groups[np.argmax(releases.cut_nodes(number, column)), place]
        rows = np.bincount(first[releases.cells[:, column]], minlength=int(first.max()) + 1)
        fit = np.flatnonzero((rows > 0) & (rows <= COMMON * releases.n_rows))
        chosen = np.sort(draw.permutation(fit)[:TARGETS])
        findings += [AttackTarget(column, first == group) for group in chosen.tolist()]
    return findings


def attack_host(
    releases: KnownReleases,
    plan: AttackPlan,
    coefficients: Coefficients | None = None,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> list[Finding]:
    """Attack a host's own rows by its released sums, once for each linking of the plan.

    `coefficients` are the gradients behind the sums, if the auditor has them; by default generic
    ones, which reveal at least as much. `progress` receives the number of finished attacks. Return
    no findings if no cut was released.
    """
    chosen = draw_targets(releases, plan.columns)
    known = coefficients or linear.generic_coefficients(
        AUDIT_SEED, releases.n_rows, releases.values
    )
    of, done, linkings = len(chosen) * len(plan.linkings), 0, []
    for linking in plan.linkings:
        scores = []
        for target in chosen:
            scores += list(_ATTACKS[linking](releases, target, known, plan.solve))
            done += 1
            progress(done, of)
        if scores:
            value, chance = np.mean(scores, axis=0).tolist()
            worst = max(score for score, _ in scores)
            linkings.append(Finding(SUMS, linking, "precision", value, chance, worst, len(scores)))
    return linkings


def attack_guest(
    views: Sequence[GuestView],
    loss: Floats,
    is_training: Bits,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> list[Finding]:
    """Attack labels by row groups, host by host, and membership by the model's losses.

    loss float64 and is_training bool (rows,). Skip the attack on labels if one side has too few
    rows, and the attack on membership if no row was held out.
    """
    findings = []
    for done, view in enumerate(views):
        progress(done, len(views) + 1)
        try:
            aucs = label_aucs(view.groupings, view.positive)
        except DataError:
            continue
        mean, worst = float(aucs.mean()), float(aucs.max())
        findings.append(Finding(CLUSTERS, "", "auc", mean, 0.5, worst, len(aucs), view.about))
    progress(len(views), len(views) + 1)
    if is_training.any() and not is_training.all():
        auc = member_auc(loss, is_training)
        findings.append(Finding(MEMBERS, "", "auc", auc, 0.5, auc, 1))
    progress(len(views) + 1, len(views) + 1)
    return findings


def _by_single_sums(
    releases: KnownReleases, target: AttackTarget, coefficients: Coefficients, solve: Solver
) -> Iterator[tuple[float, float]]:
    """Yield precision and chance of single sums, drawn among all sums of the target's column."""
    draw, column_cells = np.random.default_rng(AUDIT_SEED), releases.cells[:, target.column]
    each: dict[int, list[tuple[int, int, Bits]]] = {}
    for number in releases.trees_using(target.column):
        tree = releases.trees[number]
        place = tree.place_of(target.column)
        assert place is not None
        held = cell_counts(tree, column_cells, len(target.cells))
        for at, node in enumerate(tree.nodes.tolist()):
            groups = tree.groups[at, place]
            rows = np.bincount(groups, weights=held[at])
            fit = np.flatnonzero((rows > 0) & (rows <= COMMON * held[at].sum()))
            listed = each.setdefault(number, [])
            listed += [(node, int(rows[group]), groups == group) for group in fit.tolist()]
    sums = [(number, *linking) for number, listed in each.items() for linking in listed]
    hits = total = by_chance = 0.0
    for chosen in draw.permutation(len(sums))[: SUMS_ALONE // TARGETS].tolist():
        number, node, count, cells = sums[chosen]
        equations = linear.equation_of_node(
            releases, cells[column_cells], number, node, coefficients
        )
        right = linear.precision_of_guess(solve(equations), equations.truth, AUDIT_SEED)
        hits, total = hits + count * right, total + count
        by_chance += count * equations.chance_precision
    if total:
        yield hits / total, by_chance / total


def _by_single_trees(
    releases: KnownReleases, target: AttackTarget, coefficients: Coefficients, solve: Solver
) -> Iterator[tuple[float, float]]:
    """Yield precision and chance of single trees, spread over the job."""
    using = releases.trees_using(target.column)
    chosen = np.unique(np.linspace(0, len(using) - 1, min(TREES_ALONE, len(using))).astype(int))
    for place in chosen.tolist():
        yield _solve_target(releases, target, [using[place]], coefficients, solve)


def _by_all_trees(
    releases: KnownReleases, target: AttackTarget, coefficients: Coefficients, solve: Solver
) -> Iterator[tuple[float, float]]:
    """Yield precision and chance of all trees together."""
    yield _solve_target(releases, target, releases.trees_using(target.column), coefficients, solve)


def _solve_target(
    releases: KnownReleases,
    target: AttackTarget,
    trees: Sequence[int],
    coefficients: Coefficients,
    solve: Solver,
) -> tuple[float, float]:
    equations = linear.equations_of_bin(releases, target.column, target.cells, trees, coefficients)
    right = linear.precision_of_guess(solve(equations), equations.truth, AUDIT_SEED)
    return right, equations.chance_precision


_ATTACKS = {"none": _by_single_sums, "neighbours": _by_single_trees, "all": _by_all_trees}
