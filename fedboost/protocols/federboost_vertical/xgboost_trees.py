"""Trees that XGBoost grows from our bins and gradients, read back as ours.

Objectives, samples, metrics and medians of leaves stay ours, so all of them work. XGBoost adds up
32-bit gradients in an order that depends on its threads: trees are of equal quality, not the same.
"""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np

from fedboost.core import categories
from fedboost.core.bins import Dense
from fedboost.core.growth import GrowingTree
from fedboost.core.partition import ROOT, left_child, right_child
from fedboost.core.rules import Rules
from fedboost.core.tree import Node, Split, Tree, tree_of_nodes
from fedboost.model.xgboost_json import import_xgboost

BINS_MOST = 256  # so every bin is one of XGBoost's as well


class XgboostTrees:
    """XGBoost with the rows to learn from."""

    def __init__(self, rules: Rules, bins: Dense) -> None:
        """Give XGBoost the bins of the rows, (n, columns), as in `rules`."""
        self._rules, xgboost = rules, import_xgboost("xgboost")
        values = bins.astype(np.float32)
        values[bins == rules.binning.missing] = np.nan
        threads = {"nthread": 1 if rules.threads is None else rules.threads.count}
        types = ["c" if by_category else "q" for by_category in rules.binning.is_categorical]
        how = {"max_bin": BINS_MOST, "feature_types": types, "enable_categorical": True, **threads}
        # Cut points of a row for each bin, so that XGBoost need not search the rows for any.
        n_bins = rules.binning.n_bins
        each = np.arange(n_bins.max())[:, None] % n_bins
        cuts = xgboost.QuantileDMatrix(each.astype(np.float32), **how)
        self._rows = xgboost.QuantileDMatrix(values, ref=cuts, **how)
        # One for all trees: it keeps its preparation of the rows.
        self._booster = xgboost.Booster({**_settings(rules), **threads}, [self._rows])
        self._trees = 0

    def grow_tree(self, growing: GrowingTree) -> Tree:
        """Return the tree that XGBoost grows from the gradients of a planted tree."""
        fixed, gh = self._rules.fixed, growing.gh
        if len(growing.rows) < len(gh):  # rows without a gradient add nothing
            gh = np.zeros_like(gh)
            gh[growing.rows] = growing.gh[growing.rows]
        gradients = {"grad": fixed.decode_g(gh[:, 0]), "hess": fixed.decode_h(gh[:, 1])}
        self._booster.boost(self._rows, self._trees, **gradients)
        last = self._booster[self._trees : self._trees + 1]
        self._trees += 1
        made = json.loads(bytes(last.save_raw("json")))["learner"]["gradient_booster"]["model"]
        return _read_tree(made["trees"][0], self._rules)


def _settings(rules: Rules) -> dict[str, Any]:
    params = rules.params
    settings: dict[str, Any] = {
        "tree_method": "hist",
        "max_bin": BINS_MOST,
        "base_score": 0.0,
        "max_cat_to_onehot": 1,
        "max_cat_threshold": BINS_MOST,
        "max_delta_step": params.step_max,
        "verbosity": 0,
    }
    same = ("max_depth", "max_leaves", "grow_policy", "learning_rate", "reg_lambda", "reg_alpha")
    settings |= {name: getattr(params, name) for name in (*same, "gamma", "min_child_weight")}
    if rules.directions is not None:
        settings["monotone_constraints"] = tuple(rules.directions.tolist())
    return settings


def _read_tree(made: dict[str, Any], rules: Rules) -> Tree:
    """Return a tree of XGBoost's JSON as ours."""
    sets = {
        node: made["categories"][start : start + size]
        for node, start, size in zip(
            made["categories_nodes"],
            made["categories_segments"],
            made["categories_sizes"],
            strict=True,
        )
    }
    nodes: dict[int, Node] = {}
    waiting = [(ROOT, 0)]  # heap id, number in the arrays
    while waiting:
        node, i = waiting.pop()
        left, right, cover = (
            made[key][i] for key in ("left_children", "right_children", "sum_hessian")
        )
        if left < 0:
            nodes[node] = Node(np.array([made["split_conditions"][i]]), cover)
            continue
        split, is_turned = _read_split(made, i, sets, rules)
        nodes[node] = Node(np.zeros(1), cover, split)
        sides = (right, left) if is_turned else (left, right)
        waiting += zip((left_child(node), right_child(node)), sides, strict=True)
    return tree_of_nodes(nodes)


def _read_split(
    made: dict[str, Any], i: int, sets: dict[int, list[int]], rules: Rules
) -> tuple[Split, bool]:
    """Return a node's split, and whether its sides change: present rows never all go right."""
    column, gain = made["split_indices"][i], made["loss_changes"][i]
    on_left, n_bins = bool(made["default_left"][i]), int(rules.binning.n_bins[column])
    if i in sets:
        held = np.setdiff1d(np.arange(n_bins), sets[i])
        turned = not len(held)
        held = np.arange(n_bins) if turned else held
        rule: tuple[int, np.float32] = categories.BY_CATEGORY, categories.NO_THRESHOLD
        return Split(column, *rule, on_left ^ turned, gain, categories.as_set(held)), turned
    last = min(math.ceil(made["split_conditions"][i]) - 1, n_bins - 1)
    turned = last < 0
    last = n_bins - 1 if turned else last
    return Split(
        column, last, rules.binning.threshold(column, last), on_left ^ turned, gain
    ), turned
