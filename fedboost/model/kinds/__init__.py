"""Kinds of models: one `ModelKind` for each, found by the facts of a shard.

A new kind is a module beside these and an entry in `MODEL_KINDS`.

Modules:
    hybrid    trees with a guest's and hosts' parts
    kind      the interface of a kind
    networks  networks that every party holds whole
    vertical  trees whose splits belong to several parties
    whole     trees that every party holds whole
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedboost.ground.errors import DataError
from fedboost.model.hybrid import HYBRID_KIND as HYBRID
from fedboost.model.kinds.hybrid import HybridModel
from fedboost.model.kinds.kind import ModelKind
from fedboost.model.kinds.networks import NetworkModel
from fedboost.model.kinds.vertical import VerticalModel
from fedboost.model.kinds.whole import WholeModel
from fedboost.model.networks import NETWORKS
from fedboost.model.whole import TREES_KIND

# By the `kind` of a shard's facts; the oldest have none.
MODEL_KINDS: dict[str, ModelKind] = {
    "": VerticalModel(),
    HYBRID: HybridModel(),
    TREES_KIND: WholeModel(),
    NETWORKS: NetworkModel(),
}


def kind_of(facts: Mapping[str, Any]) -> ModelKind:
    """Return the kind of the model of a shard; a DataError for an unknown one."""
    name = facts.get("kind", "")
    if name not in MODEL_KINDS:
        raise DataError(
            f"the model is made of {str(name)[:64]}, which this version of fedboost does not know",
            todo="update fedboost",
        )
    return MODEL_KINDS[name]
