"""Models of boosted networks that every party holds whole: their shard, and their predictions.

    facts    as `model.whole` lists them, with "kind": "networks", "outputs", "seed", "sparse",
             "reading": how networks read columns, "max_bin", "weights_per_output"
    arrays   "networks" numbers (rounds,), "mean", "deviation" (rounds, outputs), "weights"
             (rounds, outputs, classes)
             of dense rows that are standardised "column_mean", "column_deviation" (columns,)
             of rank and bins "cuts" of all columns, "cut_counts" (columns,), "lacks" (columns,)

Networks are drawn again from the seed, so none is stored.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedboost.core.binning import Binning
from fedboost.core.column_readings import ColumnReading, CutColumns, Scale, needs_scale
from fedboost.core.gbun import Normal, Round, TrainedNetworks
from fedboost.core.networks import Network
from fedboost.data.frame import Frame
from fedboost.flow import Artefact
from fedboost.ground.arrays import Floats
from fedboost.ground.errors import DataError
from fedboost.model import columns

NETWORKS = "networks"  # the `kind` that this module makes and reads
SCALE_ARRAYS = ("column_mean", "column_deviation")  # arrays of a model of standardised rows
CUTS = ("cuts", "cut_counts", "lacks")  # arrays of a model of cut columns
FEATURE = re.compile(r"f(0|[1-9][0-9]{0,8})")  # names of sparse columns: their numbers


def make_shard(trained: TrainedNetworks, names: Sequence[str], *, is_sparse: bool) -> Artefact:
    """Return a job's shard for every party: the rounds up to the best one, and their history.

    `names` are the columns in the networks' order; none of hashed rows.
    """
    params, reading = trained.params, trained.reading
    kept = trained.rounds[: trained.best_round + 1]
    facts = {
        "whole": True,
        "kind": NETWORKS,
        "objective": params.objective,
        "params": params.model_dump(mode="json"),
        "base_margin": trained.base_margin.tolist(),
        "columns": list(names),
        "categories": {},
        "sparse": is_sparse,
        "reading": reading.form,
        "max_bin": params.max_bin,
        "weights_per_output": reading.weights_per_output,
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
    if reading.scale is not None:
        arrays |= {"column_mean": reading.scale.mean, "column_deviation": reading.scale.deviation}
    if reading.cuts is not None:
        cuts = reading.cuts.binning.cuts
        arrays |= {
            "cuts": np.concatenate([np.empty(0, np.float32), *cuts]),
            "cut_counts": np.array([len(column_cuts) for column_cuts in cuts], np.int64),
            "lacks": reading.cuts.lacks,
        }
    return Artefact(facts, arrays)


def load_rounds(model: Artefact) -> tuple[Round, ...]:
    """Return the rounds of a shard, in the order of training; a DataError if it is damaged."""
    facts, arrays = model.facts, model.arrays
    if facts.get("kind") != NETWORKS:
        raise DataError(f"the model is made of {facts.get('kind')}, expected {NETWORKS}")
    _check_shapes(facts, arrays)
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
    """Return the margins of a table, float64 (n, outputs); its columns are found by their names.

    A table may be sparse if the model's rows were dense, and the other way round. A DataError if
    the model is damaged, or names a column that the table lacks.
    """
    kept = load_rounds(model)
    facts, reading = model.facts, _reading(model)
    is_hashed = facts["sparse"] and reading.form != "bins"
    ids = feature_ids(facts["columns"] or frame.columns) if is_hashed else None
    values = (
        frame.values if not facts["columns"] and is_hashed else columns.model_values(facts, frame)
    )
    if facts["sparse"] and isinstance(values, np.ndarray):
        from scipy.sparse import csc_array

        values = csc_array(np.nan_to_num(values))
    elif not facts["sparse"] and not isinstance(values, np.ndarray):
        values = np.asfortranarray(values.toarray())
    inputs = reading.inputs(values, ids)
    margin = np.tile(np.array(facts["base_margin"], np.float64), (frame.n_rows, 1))
    for a_round in kept:
        margin += a_round.added(inputs)
    return margin


def _reading(model: Artefact) -> ColumnReading:
    """Return the model's reading of columns."""
    facts, arrays = model.facts, model.arrays
    scale = cuts = None
    if SCALE_ARRAYS[0] in arrays:
        scale = Scale(*(arrays[name].astype(np.float64) for name in SCALE_ARRAYS))
    if CUTS[0] in arrays:
        ends = np.cumsum(arrays["cut_counts"].astype(np.int64))
        column_cuts = np.split(arrays["cuts"].astype(np.float32), ends[:-1])
        lacks = arrays["lacks"].astype(np.bool_)
        cuts = CutColumns(Binning(facts["max_bin"], tuple(column_cuts)), lacks)
    return ColumnReading(facts["reading"], scale, cuts, facts["weights_per_output"])


def feature_ids(names: Sequence[str]) -> NDArray[np.uint32]:
    """Return the numbers hashed for a sparse table's columns, uint32 (columns,).

    A DataError names a column without a number in its name, as svmlight's have.
    """
    matches = [FEATURE.fullmatch(name) for name in names]
    for name, match in zip(names, matches, strict=True):
        if match is None:
            raise DataError(
                "a sparse column is hashed by its number and has none in its name",
                column=name,
                todo="call it f followed by its number, as columns of svmlight files are",
            )
    return np.array([int(match[1]) for match in matches if match], np.uint32)


def _check_shapes(facts: Mapping[str, Any], arrays: Mapping[str, NDArray[np.generic]]) -> None:
    """Check that all facts are present, and that lengths fit one another."""
    needed = ("sparse", "outputs", "rounds", "seed", "reading", "max_bin", "weights_per_output")
    lacking = [name for name in needed if name not in facts]
    if lacking:
        raise DataError(f"the model's file has no {lacking[0]}")
    count, size = facts.get("rounds"), facts.get("outputs")
    classes = len(facts["base_margin"])
    shapes = {
        "networks": (count,),
        "mean": (count, size),
        "deviation": (count, size),
        "weights": (count, size, classes),
    }
    width = (len(facts["columns"]),)
    if facts["reading"] != "standard":
        total = int(np.sum(arrays.get("cut_counts", 0)))
        shapes |= {"cut_counts": width, "cuts": (total,), "lacks": width}
    if needs_scale(facts["reading"]) and not facts["sparse"]:
        shapes |= dict.fromkeys(SCALE_ARRAYS, width)
    for name, shape in shapes.items():
        if name not in arrays or arrays[name].shape != shape:
            raise DataError(f"the model's array {name} is not there, or not of its shape {shape}")
