"""What a model's trees owe to each column, where all its shards lie in one process."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from fedboost.flow import Artefact
from fedboost.model import hybrid, vertical, whole
from fedboost.model.hybrid import Tops
from fedboost.model.vertical import GUEST, LEAF

Places = NDArray[np.int64]
Gains = dict[tuple[str, str], float]  # by party and column; no party: everybody's


def by_column(shards: Mapping[str, Artefact], guest: str) -> Gains | None:
    """Summed gain by party and column; None where splits were not scored, or nothing is a tree.

    Owners tell one another no names: that all are known is the luck of one process.
    """
    model = shards[guest]
    if whole.is_whole(model.facts):
        return _of_whole(model)
    gains: Gains = {}
    if hybrid.is_hybrid(model.facts):
        if model.facts["split"] == "unscored":
            return None
        arrays = Tops.of(model).arrays
        own = arrays["owner"] == GUEST
        _add(gains, guest, model, arrays["feature"][own], arrays["gain"][own])
        for number, host in enumerate(model.facts["hosts"], start=1):
            feature, gain = _below(model, shards[host], number)
            _add(gains, host, shards[host], feature, gain)
        return gains
    joined = vertical.join(model, {name: shards[name] for name in model.facts["hosts"]})
    inner = joined.arrays["owner"] != LEAF
    places = joined.arrays["feature"][inner].astype(np.int64).tolist()
    for place, gain in zip(places, joined.arrays["gain"][inner].tolist(), strict=True):
        gains[joined.columns[place]] = gains.get(joined.columns[place], 0.0) + gain
    return gains


def _of_whole(model: Artefact) -> Gains | None:
    if model.facts.get("kind") != whole.TREES:
        return None
    gains: Gains = {}
    arrays = whole.as_guests(model).arrays
    inner = arrays["owner"] == GUEST
    _add(gains, "", model, arrays["feature"][inner], arrays["gain"][inner])
    return gains


def _below(model: Artefact, shard: Artefact, number: int) -> tuple[Places, NDArray[np.generic]]:
    """The columns of a host's splits, by place, and the gains that the guest knows of them."""
    own = (model.arrays["below_host"] == number) & (model.arrays["below_owner"] != LEAF)
    trees, nodes = model.arrays["below_tree"][own], model.arrays["below_node"][own]
    keys = zip(shard.arrays["tree"].tolist(), shard.arrays["node"].tolist(), strict=True)
    place = {key: i for i, key in enumerate(keys)}
    asked = zip(trees.tolist(), nodes.tolist(), strict=True)
    found = np.array([place[key] for key in asked], np.int64)
    return shard.arrays["feature"][found].astype(np.int64), model.arrays["below_gain"][own]


def _add(
    gains: Gains,
    party: str,
    shard: Artefact,
    feature: NDArray[np.generic],
    gain: NDArray[np.generic],
) -> None:
    names = shard.facts["columns"]
    for place, one in zip(feature.astype(np.int64).tolist(), gain.tolist(), strict=True):
        key = (party, names[place])
        gains[key] = gains.get(key, 0.0) + one
