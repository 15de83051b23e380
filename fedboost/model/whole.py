"""Models that every party holds whole: their shard, their predictions, and their trees.

If all parties have the same columns, a model's splits belong to no party. A job leaves the same
shard at each of them, except for `party` and `role`, and each uses it without the others.

    facts    "whole": true, "kind": "trees" (or "networks"), "objective", "params", "base_margin",
             "columns", "categories", "trees", "trees_per_round", "forest", "history"
    arrays   every array of `core.tree.Tree`, tree after tree, and `sizes`, the nodes of each
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedboost.core.categories import BY_CATEGORY, NO_THRESHOLD
from fedboost.core.local import Trained, add_to_margin
from fedboost.core.tree import DTYPES, LEAF, Tree
from fedboost.data.frame import Frame, FrameValues
from fedboost.flow import GUEST, Artefact
from fedboost.ground.arrays import Floats
from fedboost.ground.errors import DataError
from fedboost.model import columns, rounds, vertical
from fedboost.model.batches import row_batches

TREES_KIND = "trees"  # the `kind` that this module makes and reads

ArraysByName = Mapping[str, NDArray[np.generic]]


def make_shard(
    trained: Trained, names: Sequence[str], categories: Mapping[str, Sequence[str]]
) -> Artefact:
    """Return a job's shard for every party: the trees up to the best round, and their history.

    `names` are the columns in the trees' order, `categories` the texts of each categorical column
    by the trees' indices, as `columns.categories` lists them.
    """
    params = trained.params
    kept = trained.rounds[: trained.best_round + 1]
    sizes = [len(trees) // params.trees_per_round for trees in kept]
    grown = [tree for trees in kept for tree in trees]
    facts = {
        "whole": True,
        "kind": TREES_KIND,
        "objective": params.objective,
        "params": params.model_dump(mode="json"),
        "base_margin": trained.base_margin.tolist(),
        "columns": list(names),
        "categories": {name: list(texts) for name, texts in categories.items()},
        "trees": len(grown),
        "trees_per_round": params.trees_per_round,
        "forest": sizes,
        "history": trained.history,
    }
    arrays = {name: np.concatenate([getattr(tree, name) for tree in grown]) for name in DTYPES}
    arrays["sizes"] = np.array([tree.n_nodes for tree in grown], np.int32)
    return Artefact(facts, arrays)


def load_trees(model: Artefact) -> tuple[Tree, ...]:
    """Return the trees of a shard, in the order of training; a DataError if it is damaged."""
    facts, arrays = model.facts, model.arrays
    if facts.get("kind") != TREES_KIND:
        raise DataError(f"the model is made of {facts.get('kind')}, expected {TREES_KIND}")
    _check_lengths(arrays)
    _check_counts(facts, arrays)
    _check_content(facts, arrays)
    ends = np.cumsum(arrays["sizes"].astype(np.int64)).tolist()
    return tuple(
        Tree.from_arrays({name: arrays[name][start:end] for name in DTYPES})
        for start, end in zip([0, *ends[:-1]], ends, strict=True)
    )


def margins(model: Artefact, frame: Frame) -> Floats:
    """Return the margins of a table, float64 (n, outputs); its columns are found by their names.

    The sums have the same bits as those of the training. Categories that the model does not know
    count as missing. A DataError if the model is damaged, or names a column that the table lacks,
    or that has categories in one of them and numbers in the other.
    """
    forest = load_trees(model)
    values, forest = _used_columns(columns.model_values(model.facts, frame), forest)
    ends = rounds.trees_after_rounds(model.facts).tolist()
    margin = np.tile(np.array(model.facts["base_margin"], np.float64), (frame.n_rows, 1))
    for rows, cells in batches(values):
        for start, end in zip([0, *ends[:-1]], ends, strict=True):
            add_to_margin(margin[rows], [tree.predict(cells) for tree in forest[start:end]])
    return margin


def as_guest_shard(model: Artefact) -> Artefact:
    """Return the same trees as the shard of a guest that owns every split, for functions of
    `vertical`.

    Errors as in `load_trees`.
    """
    load_trees(model)
    arrays = dict(model.arrays)
    sizes = arrays.pop("sizes").astype(np.int64)
    owner = np.where(arrays.pop("left") == LEAF, vertical.LEAF, vertical.GUEST)
    arrays["owner"] = owner.astype(np.int16)
    arrays["tree"] = np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)
    del arrays["bin"]
    role = {"role": str(GUEST), "guest": model.facts["party"], "hosts": []}
    return Artefact({**model.facts, **role}, arrays)


def as_joined(model: Artefact) -> vertical.Whole:
    """Return the same as `vertical.join_shards` of all shards; one shard is enough.

    Its columns belong to no party. Errors as in `load_trees`.
    """
    joined = vertical.join_shards(as_guest_shard(model), {})
    return replace(joined, columns=[("", name) for name in model.facts["columns"]])


def batches(values: FrameValues) -> Iterator[tuple[slice, NDArray[np.float32]]]:
    """Yield rows in batches: their slice, and their cells one row after the other, dense."""
    by_row = values.tocsr() if not isinstance(values, np.ndarray) else None
    for rows in row_batches(*values.shape):
        yield rows, np.ascontiguousarray(values[rows]) if by_row is None else by_row[rows].toarray()


def _used_columns(
    values: FrameValues, trees: Sequence[Tree]
) -> tuple[FrameValues, tuple[Tree, ...]]:
    """Return the columns that trees split on, and the trees with those columns' numbers."""
    split_on = np.concatenate([tree.feature[~tree.is_leaf] for tree in trees])
    chosen = np.unique(split_on).astype(np.int64)
    place = np.full(values.shape[1] + 1, LEAF, np.int32)  # the last one is for leaves
    place[chosen] = np.arange(len(chosen))
    return values[:, chosen], tuple(replace(tree, feature=place[tree.feature]) for tree in trees)


def _check_lengths(arrays: ArraysByName) -> None:
    if set(arrays) != {*DTYPES, "sizes"}:
        raise DataError(f"a model of trees has {len(DTYPES) + 1} known arrays, got others")
    for name, kind in (*DTYPES.items(), ("sizes", np.int32)):
        wide = 2 if name in ("value", "left_bins") else 1
        if arrays[name].dtype != kind or arrays[name].ndim != wide:
            raise DataError(f"the array {name} of the model has an unknown type or shape")
    sizes = arrays["sizes"].astype(np.int64)
    if not len(sizes) or sizes.min() < 1:
        raise DataError("the model has no trees, or trees without nodes")
    if any(len(arrays[name]) != sizes.sum() for name in DTYPES):
        raise DataError("the model's arrays do not have an entry for each node of its trees")


def _check_counts(facts: Mapping[str, Any], arrays: ArraysByName) -> None:
    """Check that trees, outputs and columns are as many as in the facts."""
    per_round = facts["trees_per_round"]
    if not len(arrays["sizes"]) == facts["trees"] == sum(facts["forest"]) * per_round:
        raise DataError(f"the model says {facts['trees']} trees, has {len(arrays['sizes'])}")
    outputs = arrays["value"].shape[1]
    if outputs * per_round != len(facts["base_margin"]):
        raise DataError(
            f"the model has {len(facts['base_margin'])} margins and leaves of {outputs}"
        )
    feature = arrays["feature"].astype(np.int64)
    no_column = (feature < 0) | (feature >= len(facts["columns"]))
    if np.any(no_column != (arrays["left"] == LEAF)) or np.any(feature < LEAF):
        raise DataError(f"a tree splits on none of the model's {len(facts['columns'])} columns")


def _check_content(facts: Mapping[str, Any], arrays: ArraysByName) -> None:
    """Check that numbers are finite, and that only categorical columns have sets of categories."""
    numbers = [arrays[name].astype(np.float64) for name in ("value", "gain", "cover")]
    threshold = arrays["threshold"].astype(np.float32)
    if np.isnan(threshold).any() or not all(np.isfinite(array).all() for array in numbers):
        raise DataError("the model's trees hold values that are not numbers")
    inner = arrays["left"] != LEAF
    by_category = arrays["bin"][inner] == BY_CATEGORY
    listed = np.array([name in facts["categories"] for name in facts["columns"]], np.bool_)
    categories = listed[arrays["feature"][inner].astype(np.int64)]
    by_threshold = threshold[inner] == NO_THRESHOLD
    if np.any(categories != by_category) or np.any(by_threshold != by_category):
        raise DataError("the model's splits do not fit the kinds of its columns")
