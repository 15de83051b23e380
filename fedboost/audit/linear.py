"""Solver that finds a bin's rows from its sums: with all gradients known, each sum is an equation.

The unknown of a row is 1 if it is in the bin and 0 if not. Relaxed to x in [0, 1], the sums give
A·x = s, the constraints of a linear programme. `nearest_solution` returns the feasible point
nearest to chance, which ranks rows better than `least_sum_solution`, the corner of the feasible set
found by linear programming. Above about one equation for six rows only one feasible point exists.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import linprog, minimize
from scipy.sparse import coo_array, csr_array

from fedboost.audit.releases import (
    KnownReleases,
    ReleasedTree,
    cell_counts,
    independent_nodes,
    known_nodes,
)
from fedboost.ground.arrays import Bits, Floats, Indices
from fedboost.ground.errors import DataError

Coefficients = Callable[[int], Floats]  # of a tree by its place: (rows, values)

STEPS_MAX = 300  # of the descent; by then the order of the rows has long settled
NOISES_OF_A_SUM = 2.0**0.5  # a bin's sum is the difference of two released sums
CURVATURE_MEMORY = 20  # of the descent's estimate of curvature


@dataclass(frozen=True)
class Equations:
    """Sums as linear equations on one set of rows."""

    matrix: csr_array  # (equations, rows), each of length 1
    sums: Floats  # (equations,)
    spread: Floats  # (equations,) the variance of their noise; 0: exact
    rows: Indices  # (rows,) indices of the rows in the table
    truth: Bits  # (rows,) whether each row is in the bin

    @property
    def chance_precision(self) -> float:
        """Return the precision of a random guess."""
        return float(self.truth.mean()) if len(self.truth) else 0.0


Solver = Callable[[Equations], Floats]  # a guess for each of the equations' rows


def generic_coefficients(seed: int, n_rows: int, values: int) -> Coefficients:
    """Return gradients that no two rows share, for a host, which never sees the guest's.

    They reveal at least as much as true gradients, which many rows share. float64 (n_rows, values):
    even indices are like gradients, of either sign; odd ones like hessians, above zero.
    """

    def coefficients_of_tree(number: int) -> Floats:
        draw = np.random.default_rng((seed, number))
        coefficients = draw.standard_normal((n_rows, values))
        coefficients[:, 1::2] = draw.uniform(0.0, 1.0, coefficients[:, 1::2].shape)
        return coefficients

    return coefficients_of_tree


def equations_of_bin(
    releases: KnownReleases,
    column: int,
    target: Bits,
    trees: Sequence[int],
    coefficients: Coefficients,
) -> Equations:
    """Return the equations of some trees' sums on the rows in the target's cells of a column.

    target bool (cells,). The equations assume an attacker that knows the target's sums in every
    node of these trees; the linking says how much knowledge that takes (see `attacks`).
    """
    cells, n_cells = releases.cells[:, column], len(target)
    parts: list[tuple[Indices, Indices, Floats]] = []
    count = 0
    inside = np.zeros(releases.n_rows, np.bool_)
    for number in trees:
        tree = releases.trees[number]
        place = tree.place_of(column)
        if place is None:
            continue
        known = known_nodes(tree.groups[:, place], cell_counts(tree, cells, n_cells), target)
        nodes = independent_nodes(tree.nodes[known].tolist())
        equation, rows = rows_in_nodes(tree, nodes)
        parts.append((equation + count, rows, coefficients(number)[rows]))
        count += len(nodes)
        inside |= tree.at >= 0
    rows = np.flatnonzero(inside)
    return _equations(parts, count, rows, target[cells], releases.noise)


def equation_of_node(
    releases: KnownReleases, truth: Bits, number: int, node: int, coefficients: Coefficients
) -> Equations:
    """Return the equation of one node's sum over its rows; `truth` bool (all rows,) marks the
    solution.
    """
    equation, rows = rows_in_nodes(releases.trees[number], [node])
    parts = [(equation, rows, coefficients(number)[rows])]
    return _equations(parts, 1, np.sort(rows), truth, releases.noise)


def rows_in_nodes(tree: ReleasedTree, nodes: Sequence[int]) -> tuple[Indices, Indices]:
    """Return the rows in or below each of some nodes, rising: indices into `nodes`, and rows."""
    if not nodes:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    wanted = np.asarray(nodes, np.int64)
    (rows,) = np.nonzero(tree.at >= 0)
    at = tree.at[rows].astype(np.int64)
    indices, values = [], []
    while len(at):
        place = np.minimum(np.searchsorted(wanted, at), len(wanted) - 1)
        hit = wanted[place] == at
        indices.append(place[hit])
        values.append(rows[hit])
        below = at > 0
        at, rows = (at[below] - 1) // 2, rows[below]
    return np.concatenate(indices), np.concatenate(values)


def nearest_solution(equations: Equations, *, steps: int = STEPS_MAX) -> Floats:
    """Return the point in [0, 1] nearest to chance that fits the sums, float64 (rows,).

    The dual of min ½‖x − p‖² s.t. A·x = s, 0 ≤ x ≤ 1 has x = clip(p + Aᵀλ) and one unknown for each
    equation; L-BFGS climbs it. Sums with noise of variance v may be missed by v·λ, in units of a
    row's variance under chance.
    """
    matrix, start = equations.matrix, equations.chance_precision
    across = csr_array(matrix.T)
    spread = equations.spread / max(start * (1.0 - start), np.finfo(np.float64).tiny)

    def dual_value(multipliers: Floats) -> tuple[float, Floats]:
        x = np.clip(start + across @ multipliers, 0.0, 1.0)
        over, moved = matrix @ x - equations.sums, x - start
        missed = spread * multipliers
        value = multipliers @ (over + 0.5 * missed) - 0.5 * (moved @ moved)
        return float(value), over + missed

    if not len(equations.sums):
        return np.full(len(equations.rows), start)
    options = {"maxiter": steps, "maxcor": CURVATURE_MEMORY, "ftol": 0.0, "gtol": 1e-9}
    minimum = minimize(
        dual_value, np.zeros(len(equations.sums)), jac=True, method="L-BFGS-B", options=options
    )
    return np.clip(start + across @ minimum.x, 0.0, 1.0)


def least_sum_solution(equations: Equations) -> Floats:
    """Return the linear programme's solution: a point in [0, 1] that fits the sums, with least Σx.

    A DataError where the solver gives up.
    """
    solved = linprog(
        np.ones(len(equations.rows)),
        A_eq=equations.matrix,
        b_eq=equations.sums,
        bounds=(0.0, 1.0),
        method="highs",
    )
    if solved.x is None:
        raise DataError(
            f"the linear programme was not solved: {solved.message}", todo="audit fewer rows"
        )
    return np.asarray(solved.x, np.float64)


SOLVERS: dict[str, Solver] = {"nearest": nearest_solution, "corner": least_sum_solution}


def precision_of_guess(guess: Floats, truth: Bits, seed: int = 0) -> float:
    """Return the share of true rows among the n rows with the largest guesses, n the number of true
    rows.

    Rows of equal guesses come in a random order, so uninformative guesses score chance. Return 0 if
    no row is true.
    """
    count = int(truth.sum())
    if not count:
        return 0.0
    lot = np.random.default_rng(seed).random(len(guess))
    named = np.lexsort((lot, -guess))[:count]
    return float(truth[named].mean())


def _equations(
    parts: Sequence[tuple[Indices, Indices, Floats]],
    count: int,
    inside: Indices,
    truth: Bits,
    noise: float,
) -> Equations:
    """Return the equations of `count` nodes, each part's (node, row, coefficients (…, values))."""
    values = parts[0][2].shape[1] if parts else 1
    column = np.full(len(truth), -1, np.int64)
    column[inside] = np.arange(len(inside))
    equation = [(node[:, None] * values + np.arange(values)).ravel() for node, _, _ in parts]
    across = [np.repeat(column[rows], values) for _, rows, _ in parts]
    number = np.concatenate([np.empty(0, np.int64), *equation])
    data = np.concatenate([np.empty(0), *(node_truth.ravel() for _, _, node_truth in parts)])
    length = np.sqrt(np.bincount(number, weights=data**2, minlength=count * values))
    data = data / np.maximum(length[number], np.finfo(np.float64).tiny)
    indices = (number, np.concatenate([np.empty(0, np.int64), *across]))
    matrix = csr_array(coo_array((data, indices), shape=(count * values, len(inside))))
    own_truth = truth[inside]
    sums = matrix @ own_truth.astype(np.float64)
    sigma = NOISES_OF_A_SUM * noise / np.maximum(length, np.finfo(np.float64).tiny)
    sums += sigma * np.random.default_rng(count).standard_normal(len(sums))
    return Equations(matrix, sums, sigma**2, inside, own_truth)
