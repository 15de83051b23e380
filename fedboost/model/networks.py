"""A model of boosted networks that every party holds whole: its shard, and its predictions.

    facts    as `model.whole` lists them, with "kind": "networks", "outputs", "seed", "sparse"
    arrays   "networks" numbers (rounds,), "mean", "deviation" (rounds, outputs), "weights"
             (rounds, outputs, classes); of dense rows "column_mean", "column_deviation" (columns,)

Networks are drawn anew from the seed, so none is stored.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedboost.core import gbun
from fedboost.core.gbun import Normal, Round, Scale, TrainedNetworks
from fedboost.core.networks import Network
from fedboost.data.frame import Frame
from fedboost.errors import DataError
from fedboost.flow import Artefact
from fedboost.model import columns

NETWORKS = "networks"  # the `kind` that this module makes and reads
SCALE = ("column_mean", "column_deviation")  # arrays of a model of dense rows alone
FEATURE = re.compile(r"f(0|[1-9][0-9]{0,8})")  # how sparse columns are called: by their numbers

Floats = NDArray[np.float64]


def shard(trained: TrainedNetworks, names: Sequence[str]) -> Artefact:
    """Return what a job leaves at every party: the rounds up to the best one, and how they came
    about.

    `names` are the dense columns in the order in which networks read them; none of sparse rows.
    """
    params = trained.params
    kept = trained.rounds[: trained.best_round + 1]
    facts = {
        "whole": True,
        "kind": NETWORKS,
        "objective": params.objective,
        "params": params.model_dump(mode="json"),
        "base_margin": trained.base_margin.tolist(),
        "columns": list(names),
        "categories": {},
        "sparse": trained.scale is None,
        "outputs": params.outputs,
        "seed": params.seed,
        "trees": 0,
        "rounds": len(kept),
        "history": trained.history,
    }
    arrays: dict[str, NDArray[np.generic]] = {
        "networks": np.array([a_round.network.number for a_round in kept], np.int64),
        "mean": np.array([a_round.normal.mean for a_round in kept]),
        "deviation": np.array([a_round.normal.deviation for a_round in kept]),
        "weights": np.array([a_round.weights for a_round in kept]),
    }
    if trained.scale is not None:
        arrays |= {
            "column_mean": trained.scale.mean,
            "column_deviation": trained.scale.deviation,
        }
    return Artefact(facts, arrays)


def rounds(model: Artefact) -> tuple[Round, ...]:
    """The rounds of a shard, in the order of training; a DataError where it is damaged."""
    facts, arrays = model.facts, model.arrays
    if facts.get("kind") != NETWORKS:
        raise DataError(f"the model is made of {facts.get('kind')}, expected {NETWORKS}")
    _check(facts, arrays)
    return tuple(
        Round(Network(number, facts["seed"], facts["outputs"]), Normal(mean, deviation), weights)
        for number, mean, deviation, weights in zip(
            arrays["networks"].tolist(),
            *(arrays[name].astype(np.float64) for name in ("mean", "deviation")),
            arrays["weights"].astype(np.float32),
            strict=True,
        )
    )


def margins(model: Artefact, frame: Frame) -> Floats:
    """float64 (n, outputs) of a table, whose columns are found by their names.

    A table may be sparse where the model's rows were dense and the other way round. A DataError
    where the model is damaged, or names a column that the table lacks.
    """
    kept = rounds(model)
    facts, arrays = model.facts, model.arrays
    if facts["sparse"]:
        from scipy.sparse import csc_array

        values = frame.values if frame.is_sparse else csc_array(np.nan_to_num(frame.values))
        inputs = gbun.inputs_of(values, None, feature_ids(frame))
    else:
        read = columns.values(facts, frame)
        dense = read.toarray() if not isinstance(read, np.ndarray) else read
        scales = (arrays["column_mean"], arrays["column_deviation"])
        inputs = gbun.inputs_of(dense, Scale(*(scale.astype(np.float64) for scale in scales)))
    margin = np.tile(np.array(facts["base_margin"], np.float64), (frame.n_rows, 1))
    for a_round in kept:
        margin += a_round.added(inputs)
    return margin


def feature_ids(frame: Frame) -> NDArray[np.uint32]:
    """The numbers by which a sparse table's columns are hashed, uint32 (columns,).

    A DataError names a column that is not called by its number, as svmlight's are.
    """
    matches = [FEATURE.fullmatch(name) for name in frame.columns]
    for name, match in zip(frame.columns, matches, strict=True):
        if match is None:
            raise DataError(
                "a sparse column is hashed by its number and has none in its name",
                column=name,
                todo="call it f followed by its number, as columns of svmlight files are",
            )
    return np.array([int(match[1]) for match in matches if match], np.uint32)


def _check(facts: Mapping[str, Any], arrays: Mapping[str, NDArray[np.generic]]) -> None:
    """Facts that are all there, and lengths that fit one another."""
    lacking = [name for name in ("sparse", "outputs", "rounds", "seed") if name not in facts]
    if lacking:
        raise DataError(f"the model's file does not say its {lacking[0]}")
    count, size = facts.get("rounds"), facts.get("outputs")
    classes = len(facts["base_margin"])
    shapes = {
        "networks": (count,),
        "mean": (count, size),
        "deviation": (count, size),
        "weights": (count, size, classes),
    }
    if not facts["sparse"]:
        width = (len(facts["columns"]),)
        shapes |= {"column_mean": width, "column_deviation": width}
    for name, shape in shapes.items():
        if name not in arrays or arrays[name].shape != shape:
            raise DataError(f"the model's array {name} is not there, or not of its shape {shape}")
