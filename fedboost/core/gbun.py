"""Gradient boosting of untrained networks: each round a random network, and the weights of its
outputs that fit the gradients best.

rows ─► network ─► z ─► normalised ─► softmax p ─► weights w ─► added to the margins
                   Σz, Σz² ─┘                PᵀHP, PᵀG ─┘

Only the two sums below the line need all rows; parties that add them up train the same model as on
one table. GBUN (Zhang et al.), Algorithm 1 with the minus sign once: the weights are w = −(PᵀHP +
λI)⁻¹ PᵀG.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cache
from typing import Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator
from threadpoolctl import ThreadpoolController

from fedboost.core import metrics, objectives
from fedboost.core.binning import FeatureValues
from fedboost.core.column_readings import ColumnParams, ColumnReading
from fedboost.core.early_stopping import EarlyStopping
from fedboost.core.local import History, TrainingTable
from fedboost.core.metrics import METRICS
from fedboost.core.networks import Inputs, Network
from fedboost.core.objectives import Objective, Summary
from fedboost.core.params import BoostingParams
from fedboost.ground.arrays import Floats
from fedboost.ground.errors import DataError, JobError

OUTPUTS_MAX = 1024  # a round solves a system of so many equations for each class
CONDITION_MIN = 1e-10  # reciprocal; less may come from rounding
OUTPUT_SPREAD_MIN = 1e-12  # least square of a deviation, in squares of the mean


class GbunParams(BoostingParams, ColumnParams):
    """Settings of boosted networks."""

    outputs: int = Field(128, ge=2, le=OUTPUTS_MAX)  # of a network, for all classes alike
    reg_lambda: float = Field(0.1, ge=0.0)  # added to the equations of a round's weights
    sharpness: float = Field(1.0, gt=0.0, le=100.0)  # factor on normalised outputs; 1 as in GBUN

    @model_validator(mode="after")
    def _steps_are_newtons(self) -> Self:
        # Sums would hold only the gradients' signs, so steps would be one unit of the label at any
        # scale; and a median to start from is not a sum.
        if self.record.has_median_leaves:
            raise ValueError(
                f"{self.objective} moves by medians, which sums do not give: "
                f"use {self.record.instead}"
            )
        return self


@dataclass(frozen=True)
class Normal:
    """Mean and deviation of a network's outputs over all training rows, which normalise them."""

    mean: Floats = field(repr=False)  # (outputs,)
    deviation: Floats = field(repr=False)  # (outputs,), divided by the sharpness

    @classmethod
    def from_sums(cls, rows: int, total: Floats, squares: Floats, sharpness: float) -> Normal:
        """Return the mean and deviation from the sums of z and z² over so many rows.

        A constant output has deviation 1 before the division by the sharpness. The paper's
        deviation with n/(n−1) once.
        """
        mean = total / max(rows, 1)
        spread = np.maximum(squares / max(rows, 1) - mean**2, 0.0) * (rows / max(rows - 1, 1))
        constant = spread <= OUTPUT_SPREAD_MIN * np.maximum(mean**2, 1e-300)  # may be rounding
        return cls(mean, np.where(constant, 1.0, np.sqrt(spread)) / sharpness)


@dataclass(frozen=True)
class Round:
    """One round of a model: its network, the normalisation of its outputs, and their weights."""

    network: Network
    normal: Normal
    weights: NDArray[np.float32] = field(repr=False)  # (outputs, classes), learning_rate included

    def added(self, inputs: Inputs) -> Floats:
        """Return the round's part of the margins of rows, float64 (n, classes)."""
        margin = np.empty((inputs.n_rows, self.weights.shape[1]))
        weights = self.weights.astype(np.float64)
        with one_thread():
            for rows in inputs.blocks(self.network.outputs):
                margin[rows] = (
                    output_shares(inputs.forward(rows, self.network), self.normal) @ weights
                )
        return margin


@cache
def _blas_controller() -> ThreadpoolController:
    # SciPy has a second matrix library, which the controller finds only once it is loaded.
    importlib.import_module("scipy.linalg")
    return ThreadpoolController()


def one_thread() -> AbstractContextManager[object]:
    """Hold the matrix library to one thread: a block is too small to share, and its threads would
    cost ten times the time they save. So results do not depend on the number of cores, either.
    """
    held: AbstractContextManager[object] = _blas_controller().limit(limits=1, user_api="blas")
    return held


def output_sums(inputs: Inputs, network: Network) -> tuple[Floats, Floats]:
    """Return the sums of z and of z² over the rows, float64 (outputs,) each."""
    total, squares = np.zeros(network.outputs), np.zeros(network.outputs)
    with one_thread():
        for rows in inputs.blocks(network.outputs):
            z = inputs.forward(rows, network)
            total += z.sum(axis=0)
            squares += (z**2).sum(axis=0)
    return total, squares


def normal_equations(
    inputs: Inputs, network: Network, normal: Normal, gradients: tuple[Floats, Floats]
) -> tuple[Floats, Floats]:
    """Return PᵀHP, float64 (classes, outputs, outputs) with valid lower triangles, and PᵀG,
    (classes, outputs); gradients float64 (n, classes) of the rows.
    """
    from scipy.linalg import blas

    g, h = gradients
    size = network.outputs
    squares, pull = np.zeros((g.shape[1], size, size)), np.zeros((g.shape[1], size))
    with one_thread():
        for rows in inputs.blocks(size):
            p = output_shares(inputs.forward(rows, network), normal)
            pull += g[rows].T @ p
            for k in range(g.shape[1]):
                # Half of a symmetric product: transposed rows lie as BLAS likes them.
                root = np.sqrt(h[rows, k])[:, None] * p
                squares[k] += blas.dsyrk(1.0, root.T, lower=1)
    return squares, pull


def solve_weights(squares: Floats, pull: Floats, params: GbunParams) -> NDArray[np.float32]:
    """Return the weights of a round, float32 (outputs, classes), times learning_rate.

    A JobError if the equations have no single solution. float32, so that parties whose libraries
    round the last bits differently still have the same model.
    """
    from scipy.linalg import cho_solve

    steps = []
    for square, output_pull in zip(squares, pull, strict=True):
        equations = square + params.reg_lambda * np.eye(len(square))
        with one_thread():
            factor = _cholesky_factor(equations)
            steps.append(-params.learning_rate * cho_solve((factor, True), output_pull))
    return np.stack(steps, axis=1).astype(np.float32)


def _cholesky_factor(equations: Floats) -> Floats:
    """Return the Cholesky factor of a system given by its lower triangle, float64 (outputs,
    outputs).

    A JobError for nearly equal outputs: rounding may leave a solution, but a meaningless one.
    """
    from scipy.linalg import LinAlgError, cho_factor, lapack

    try:
        factor: Floats = cho_factor(equations, lower=True, check_finite=True)[0]
    except (LinAlgError, ValueError):
        reciprocal = 0.0
    else:
        whole = np.tril(equations) + np.tril(equations, -1).T
        reciprocal = float(lapack.dpocon(factor, np.abs(whole).sum(axis=0).max(), uplo="L")[0])
    if not reciprocal > CONDITION_MIN:
        raise JobError(
            f"the {len(equations)} equations of a round have no single solution",
            todo="raise reg_lambda, or lower outputs",
        )
    return factor


def output_shares(z: Floats, normal: Normal) -> Floats:
    """Return the softmax of normalised outputs, float64 (n, outputs); overwrites `z`."""
    z -= normal.mean
    z *= 1.0 / normal.deviation
    z -= z.max(axis=1, keepdims=True)
    np.exp(z, out=z)
    z /= z.sum(axis=1, keepdims=True)
    return z


@dataclass(frozen=True)
class TrainedNetworks:
    """Boosted networks: rounds up to the last one, their history and the best round."""

    params: GbunParams
    base_margin: Floats
    reading: ColumnReading
    rounds: tuple[Round, ...]
    history: History
    best_round: int  # from 0

    def margins(self, values: FeatureValues) -> Floats:
        """Return margins float64 (n, classes) of float32 (n, columns), up to the best round."""
        inputs = self.reading.inputs(values)
        margin = np.tile(self.base_margin, (inputs.n_rows, 1))
        for network in self.rounds[: self.best_round + 1]:
            margin += network.added(inputs)
        return margin

    def predict(self, values: FeatureValues) -> Floats:
        """Return predictions float64 (n, classes): probabilities or means, by the objective."""
        return objectives.transform(self.params.objective, self.margins(values))


def train(
    table: TrainingTable, params: GbunParams, validation: TrainingTable | None = None
) -> TrainedNetworks:
    """Train boosted networks on one table; a federation over its rows gets the same model.

    A DataError names labels, values or weights that cannot be used.
    """
    if params.early_stopping_rounds is not None and validation is None:
        raise DataError(
            "early_stopping_rounds needs validation rows and there are none",
            todo="hold rows out for validation, or leave early_stopping_rounds out",
        )
    objective = objectives.start_objective(params, Summary.of(params, table.y, table.weights))
    reading = ColumnReading.from_values(table.values, params)
    parts = {"train": table} | ({} if validation is None else {"validation": validation})
    inputs = {name: reading.inputs(part.values) for name, part in parts.items()}
    margins = {name: np.tile(objective.base_margin, (len(p.y), 1)) for name, p in parts.items()}
    stopping = EarlyStopping(
        params.early_stopping_rounds, METRICS[params.metrics[-1]].bigger_is_better
    )
    rounds: list[Round] = []
    history: History = []
    while len(rounds) < params.n_estimators and not stopping.stop:
        rounds.append(
            _train_round(params, objective, table, inputs["train"], margins["train"], rounds)
        )
        for name, table_inputs in inputs.items():
            margins[name] += rounds[-1].added(table_inputs)
        history.append(_measure_parts(params, parts, margins))
        if params.early_stopping_rounds is not None:
            stopping = stopping.after(history[-1]["validation"][params.metrics[-1]])
    best = len(rounds) - 1 if stopping.best is None else stopping.best_round
    return TrainedNetworks(params, objective.base_margin, reading, tuple(rounds), history, best)


def _train_round(
    params: GbunParams,
    objective: Objective,
    table: TrainingTable,
    inputs: Inputs,
    margin: Floats,
    before: list[Round],
) -> Round:
    network = Network(len(before), params.seed, params.outputs)
    sums = output_sums(inputs, network)
    normal = Normal.from_sums(inputs.n_rows, *sums, params.sharpness)
    gradients = objective.gradients(margin, table.y, table.weights)
    return Round(
        network,
        normal,
        solve_weights(*normal_equations(inputs, network, normal, gradients), params),
    )


def _measure_parts(
    params: GbunParams, parts: Mapping[str, TrainingTable], margins: Mapping[str, Floats]
) -> dict[str, dict[str, float]]:
    predictions = {
        name: objectives.transform(params.objective, margin) for name, margin in margins.items()
    }
    return {
        name: {
            metric: metrics.evaluate(metric, part.y, predictions[name], part.weights, params)
            for metric in params.metrics
        }
        for name, part in parts.items()
    }
