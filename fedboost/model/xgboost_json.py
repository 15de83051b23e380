"""Whole models as XGBoost JSON model files, which `xgboost.Booster.load_model` reads.

The file is of version 2.1, which every later XGBoost reads too. Routing is the same to the bit
(32-bit thresholds, `x < threshold` left); XGBoost keeps leaves and sums in 32-bit floats, so its
margins differ by their rounding. Categorical columns become XGBoost's: values are indices in the
model's list of categories, and unknown categories have to be given as NaN. XGBoost reads entries
that a sparse table does not store as missing, while they are 0 in our tables: give it the zeros.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedboost.core import categories, objectives
from fedboost.ground.arrays import Floats
from fedboost.ground.errors import ConfigError, install_advice
from fedboost.model import rounds
from fedboost.model.export import shortest_float
from fedboost.model.vertical import LEAF, Whole

VERSION = [2, 1, 0]
NO_PARENT = 2**31 - 1
THRESHOLD_MAX = np.finfo(np.float32).max
BASE_GAP_MAX = 1e-6  # between our base margin and that of XGBoost's base_score
# Signs that XGBoost refuses in names of columns, or does not read back.
REFUSED_SIGNS = re.compile(r"[\[\]<\x00-\x08\x0b\x0c\x0e-\x1f]")


def import_xgboost(extra: str) -> Any:
    """Return XGBoost itself; a ConfigError names the `extra` to install if it is missing."""
    try:
        import xgboost
    except ImportError:
        raise ConfigError(
            "this needs xgboost, which is not installed", todo=install_advice(extra)
        ) from None
    return xgboost


def xgboost_json(model: Whole) -> str:
    """Return the text of the model file; a tree with k outputs becomes k trees."""
    names = feature_names(model)
    base_score, rest = _base_score(model)
    trees, classes = _tree_entries(model, rest, len(names))
    ends = rounds.trees_after_rounds(model.facts) * model.arrays["value"].shape[1]
    learner = {
        "attributes": {},
        "feature_names": names,
        "feature_types": ["c" if count else "float" for count in model.categories],
        "gradient_booster": {
            "model": {
                "gbtree_model_param": {
                    "num_parallel_tree": str(max(model.facts["forest"], default=1)),
                    "num_trees": str(len(trees)),
                },
                "iteration_indptr": [0, *ends.tolist()],
                "tree_info": classes,
                "trees": trees,
            },
            "name": "gbtree",
        },
        "learner_model_param": {
            "base_score": repr(base_score),
            "boost_from_average": "1",
            "num_class": str(len(rest) if len(rest) > 1 else 0),
            "num_feature": str(len(names)),
            "num_target": "1",
        },
        "objective": _objective(model),
    }
    # XGBoost's reader takes \u00f6 for six letters.
    content = {"learner": learner, "version": VERSION}
    return json.dumps(content, allow_nan=False, ensure_ascii=False)


def feature_names(model: Whole) -> list[str]:
    """Return ``party.column`` for every column, in the order that the file expects.

    For a model that every party holds whole it is ``column``. Signs that XGBoost refuses become
    underscores; equal names get a number.
    """
    names: dict[str, None] = {}  # in order
    for party, column in model.columns:
        name = plain = REFUSED_SIGNS.sub("_", f"{party}.{column}" if party else column)
        number = 2
        while name in names:
            name, number = f"{plain}_{number}", number + 1
        names[name] = None
    return list(names)


def _objective(model: Whole) -> dict[str, Any]:
    record = objectives.objective_record(model.facts["objective"])
    said: dict[str, Any] = {"name": record.name}
    if form := record.xgboost.section:
        outputs = len(model.facts["base_margin"])
        said[form] = record.xgboost.content(model.facts["params"], outputs)
    return said


def _base_score(model: Whole) -> tuple[float, Floats]:
    """Return XGBoost's base_score, a prediction, and the rest of the base margin for the leaves.

    XGBoost before 3.1 has one score for all classes, and turns a probability near 1 into a margin
    with few correct digits. In these cases the score is that of margin 0, and the leaves of the
    first tree of each class carry the margin, as every row reaches one of them.
    """
    margin = np.array(model.facts["base_margin"], np.float64)
    name = model.facts["objective"]
    if len(margin) > 1:
        return 0.0, margin
    with np.errstate(over="ignore", divide="ignore"):
        score = np.float32(objectives.transform(name, margin[None, :])[0, 0])
        back = objectives.objective_record(name).link.margin_of_score(score)
    if np.isclose(back, margin[0], rtol=BASE_GAP_MAX, atol=BASE_GAP_MAX):
        return shortest_float(score), np.zeros(1)
    neutral = objectives.transform(name, np.zeros((1, 1)))[0, 0]
    return float(neutral), margin


def _tree_entries(
    model: Whole, rest: Floats, n_features: int
) -> tuple[list[dict[str, Any]], list[int]]:
    """Return the trees in XGBoost's order, and the class of each."""
    ends = np.append(model.shape.roots[1:], len(model.arrays["tree"]))
    width = model.arrays["value"].shape[1]  # 1 if every class has separate trees
    trees: list[dict[str, Any]] = []
    classes: list[int] = []
    margins = rounds.classes(model.facts).tolist()
    for start, stop, margin in zip(model.shape.roots, ends, margins, strict=True):
        for column in range(width):
            output = column if margin == rounds.ALL else margin
            added = 0.0 if output in classes else float(rest[output])
            trees.append(_tree_entry(model, slice(int(start), int(stop)), column, added))
            trees[-1]["id"] = len(trees) - 1
            trees[-1]["tree_param"]["num_feature"] = str(n_features)
            classes.append(output)
    return trees, classes


def _tree_entry(model: Whole, nodes: slice, column: int, added: float) -> dict[str, Any]:
    arrays, shape, first = model.arrays, model.shape, nodes.start
    is_leaf = arrays["owner"][nodes] == LEAF
    left = np.where(is_leaf, -1, shape.left[nodes] - first)
    right = np.where(is_leaf, -1, shape.right[nodes] - first)
    n_nodes = len(left)
    parents = np.full(n_nodes, NO_PARENT, np.int64)
    inner = np.flatnonzero(~is_leaf)
    parents[left[inner]] = parents[right[inner]] = inner
    value = (arrays["value"][nodes, column].astype(np.float64) + added).astype(np.float32)
    # The largest number stands for "every present value": JSON has no infinity.
    threshold = np.minimum(arrays["threshold"][nodes].astype(np.float32), THRESHOLD_MAX)
    by_category = ~is_leaf & (threshold == categories.NO_THRESHOLD)
    return {
        "base_weights": _numbers(np.where(is_leaf, value, np.float32(0))),
        **_categories(model, nodes, np.flatnonzero(by_category)),
        "default_left": (arrays["missing_left"][nodes] & ~is_leaf).astype(int).tolist(),
        "left_children": left.tolist(),
        "loss_changes": _numbers(arrays["gain"][nodes].astype(np.float32)),
        "parents": parents.tolist(),
        "right_children": right.tolist(),
        "split_conditions": _numbers(
            np.where(is_leaf, value, np.where(by_category, np.float32(0), threshold))
        ),
        "split_indices": np.where(is_leaf, 0, arrays["feature"][nodes]).tolist(),
        "split_type": by_category.astype(int).tolist(),
        "sum_hessian": _numbers(arrays["cover"][nodes].astype(np.float32)),
        "tree_param": {"num_deleted": "0", "num_nodes": str(n_nodes), "size_leaf_vector": "1"},
    }


def _categories(model: Whole, nodes: slice, indices: NDArray[np.int64]) -> dict[str, Any]:
    """Return the categories that the splits at `indices` send right, in XGBoost's lists.

    A set may not be empty: if all categories go left, it holds the number after the last category.
    """
    right: list[list[int]] = []
    for place in indices:
        held = set(categories.set_members(model.arrays["left_bins"][nodes][place].tobytes()))
        known = model.categories[int(model.arrays["feature"][nodes][place])]
        right.append([bin_ for bin_ in range(known) if bin_ not in held] or [known])
    sizes = [len(held) for held in right]
    return {
        "categories": [bin_ for held in right for bin_ in held],
        "categories_nodes": indices.tolist(),
        "categories_segments": [sum(sizes[:i]) for i in range(len(sizes))],
        "categories_sizes": sizes,
    }


def _numbers(values: NDArray[np.float32]) -> list[float]:
    assert all(math.isfinite(value) for value in values.tolist())
    return [shortest_float(value) for value in values]
