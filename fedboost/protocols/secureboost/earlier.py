"""The earlier model that a job with `warm_start` continues, and each party's part in it.

Its margins come from the stage `predict`, its nodes and splits from the party's own shard. A table
may have changed since, so columns are found again by their names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fedboost.core import forest
from fedboost.core.binning import BinCodes, Binning
from fedboost.core.objectives import Objective
from fedboost.flow import GUEST, MODEL, Artefact, StageContext
from fedboost.ground.arrays import Floats
from fedboost.ground.errors import ConfigError, PeerError
from fedboost.model import columns, rounds, vertical
from fedboost.model.vertical import GuestNode, OwnSplit
from fedboost.protocols.secureboost import plan
from fedboost.protocols.secureboost.params import SecureBoostParams

SHARED_SETTINGS = (
    "objective",
    "num_class",
    "multi_output",
)  # settings that old and new trees must share


@dataclass(frozen=True)
class Start:
    """Start of a guest's training: the base margin, or the end of an earlier model."""

    margin: Floats  # (rows, outputs)
    base_margin: Floats  # (outputs,) before any tree
    rounds: int = 0  # of the earlier model
    forest: list[int] = field(default_factory=list)  # trees of each of them, for each class
    nodes: list[GuestNode] = field(default_factory=list)
    history: list[dict[str, dict[str, float]]] = field(default_factory=list)  # one a round


def check_model(params: SecureBoostParams, facts: Mapping[str, Any]) -> None:
    """Refuse, by a ConfigError, a model that a job with these params cannot continue."""
    if facts["protocol"] != "secureboost":
        raise ConfigError(
            f"warm_start names a model of {facts['protocol']}, secureboost continues its own only",
            todo="fedboost model list",
        )
    for column, texts in facts["categories"].items():
        if len(texts) > params.max_bin:
            raise ConfigError(
                f"max_bin is {params.max_bin}, the model to continue knows {len(texts)} categories",
                column=column,
                todo=f"set max_bin to at least {len(texts)}",
            )
    trained = facts.get("params", {})  # a host does not know them
    for name in SHARED_SETTINGS if facts["role"] == GUEST else ():
        if getattr(params, name) != trained[name]:
            raise ConfigError(
                f"{name} is {getattr(params, name)}, that of the model to continue {trained[name]}",
                todo=f"set {name} as the model has it, or leave warm_start out",
            )


def settled_params(context: StageContext[SecureBoostParams]) -> SecureBoostParams:
    """Return the job's params, with the base score of the model that the job continues."""
    params = context.params
    if params.warm_start is None:
        return params
    score = context.artefacts[MODEL].facts["params"]["base_score"]
    return params.model_copy(update={"base_score": score})


def training_start(context: StageContext[SecureBoostParams], objective: Objective) -> Start:
    """Return the start of the guest: the model that it continues, or the base margin."""
    if context.params.warm_start is None:
        base = objective.base_margin
        return Start(np.tile(base, (context.data.n_rows, 1)), base)
    model = context.artefacts[MODEL]
    sizes: list[int] = model.facts["forest"]
    indices = columns.column_indices(model.facts, context.data)
    nodes = [
        node if node.split is None else replace(node, split=_renumbered(node.split, indices))
        for node in vertical.arrays_to_nodes(model.arrays)
    ]
    return Start(
        margin=context.artefacts["predict"].arrays["prediction"].astype(np.float64),
        base_margin=np.array(model.facts["base_margin"], np.float64),
        rounds=len(sizes),
        forest=list(sizes),
        nodes=nodes,
        history=list(model.facts["history"][: len(sizes)]),  # early stopping has dropped later ones
    )


def known_codes(context: StageContext[SecureBoostParams]) -> dict[int, BinCodes]:
    """Return the categories with bins fixed by the earlier model, by categorical column."""
    if context.params.warm_start is None:
        return {}
    return columns.known_codes(context.artefacts[MODEL].facts, context.data)


def category_lists(context: StageContext[SecureBoostParams], cuts: Binning) -> dict[str, list[str]]:
    """Return the categories that the party's shard has to remember, the earlier model's first."""
    before = None if context.params.warm_start is None else context.artefacts[MODEL].facts
    return columns.categories(context.data, cuts, before)


def check_first_tree(context: StageContext[SecureBoostParams], first_tree: int) -> None:
    """Refuse, by a PeerError, a number of earlier trees that the named model cannot have."""
    model = context.artefacts.get(MODEL)
    if model is None:
        if first_tree:
            raise PeerError(f"the guest begins at tree {first_tree}, the job continues no model")
        return
    if first_tree not in rounds.trees_after_rounds(model.facts):
        raise PeerError(
            f"the guest begins at tree {first_tree}, expected whole rounds of the model "
            f"and at most its {model.facts['trees']} trees"
        )


def rounds_before(context: StageContext[SecureBoostParams], first_tree: int) -> int:
    """Return how many rounds of the model to continue come before tree `first_tree`."""
    return len(_kept_rounds(context, first_tree))


def host_shard(
    context: StageContext[SecureBoostParams],
    cuts: Binning,
    first_tree: int,
    last_tree: int,
    splits: list[OwnSplit],
) -> Artefact:
    """Return a host's shard: its splits of the `first_tree` earlier trees, then those of this job.

    `last_tree` is the first of the last trees that the host took part in. A host does not hear of
    trees that other parties grow, so `trees` and `forest` cover all rounds the model can have.
    """
    params = context.params
    kept = []
    if MODEL in context.artefacts:
        model = context.artefacts[MODEL]
        indices = columns.column_indices(model.facts, context.data)
        earlier = vertical.arrays_to_splits(model.arrays)
        kept = [_renumbered(split, indices) for split in earlier if split.tree < first_tree]
    following, unheard, _ = plan.next_tree_batch(
        params, context.table, context.party, last_tree - first_tree
    )
    facts = {
        "columns": list(context.data.columns),
        "categories": category_lists(context, cuts),
        "trees": first_tree + unheard,
        "trees_per_round": params.trees_per_round,
        "forest": [
            *_kept_rounds(context, first_tree),
            *forest.trees_each_round(params)[:following].tolist(),
        ],
    }
    return Artefact(facts, vertical.splits_to_arrays([*kept, *splits]))


def _renumbered(split: OwnSplit, indices: list[int]) -> OwnSplit:
    """Return the split with its column numbered as in the job's table."""
    return replace(split, feature=indices[split.feature])


def _kept_rounds(context: StageContext[SecureBoostParams], first_tree: int) -> list[int]:
    """Return the trees for each class in each of the earlier rounds that the guest kept."""
    if MODEL not in context.artefacts:
        return []
    facts = context.artefacts[MODEL].facts
    kept = int(np.count_nonzero(rounds.trees_after_rounds(facts) <= first_tree))
    sizes: list[int] = facts["forest"]
    return sizes[:kept]
