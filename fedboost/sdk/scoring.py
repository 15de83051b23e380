"""What a model predicts where all its shards lie in one process: its trees walked, nobody asked.

Every owner's splits are here, so that a conversation would tell nobody anything; the margins are
added up in the order of training, and have the same bits as those of a prediction job.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_array, hstack

from fedboost.core import objectives
from fedboost.data.frame import Frame, Values
from fedboost.flow import Artefact
from fedboost.model import columns, hybrid, rounds, vertical, whole
from fedboost.model.batches import CELLS_MAX
from fedboost.model.hybrid import NO_NODE, Tops
from fedboost.model.vertical import GUEST, LEAF

Floats = NDArray[np.float64]
Places = NDArray[np.int64]
Frames = Mapping[str, Frame]  # by party
Shards = Mapping[str, Artefact]  # by party


def predict(shards: Shards, guest: str, frames: Frames, held: Mapping[str, Places]) -> Floats:
    """Probabilities or means, float64 (rows of the guest, outputs).

    `held`: of each host the rows of the guest that it has, int64 ascending; its frame has these
    rows in this order. Of a vertical model every host has all. A DataError where a table lacks a
    column of the model.
    """
    facts = shards[guest].facts
    walk = _hybrid if hybrid.is_hybrid(facts) else _vertical
    return objectives.transform(facts["objective"], walk(shards, guest, frames, held))


def predict_whole(shard: Artefact, frame: Frame) -> Floats:
    """Predict with a model that every party holds whole."""
    return whole.predict(shard, frame)


def _vertical(shards: Shards, guest: str, frames: Frames, _: Mapping[str, Places]) -> Floats:
    hosts = {name: shards[name] for name in shards[guest].facts["hosts"]}
    joined = vertical.join(shards[guest], hosts)
    arrays = dict(joined.arrays)
    inner = arrays["owner"] != LEAF
    arrays["owner"] = np.where(inner, GUEST, LEAF).astype(np.int16)
    used, places = np.unique(arrays["feature"][inner].astype(np.int64), return_inverse=True)
    arrays["feature"] = arrays["feature"].astype(np.int32)
    arrays["feature"][inner] = places
    values = _side_by_side(shards, frames, [joined.columns[place] for place in used.tolist()])
    outputs = rounds.classes(joined.facts)
    margin = np.tile(np.array(joined.facts["base_margin"], np.float64), (values.shape[0], 1))
    value = arrays["value"].astype(np.float64)
    for rows in _batches(values.shape[0], len(joined.shape.roots)):
        at = np.tile(joined.shape.roots, (rows.stop - rows.start, 1))
        vertical.descend_own(arrays, joined.shape, values, at, rows.start)
        for tree, output in enumerate(outputs.tolist()):
            margin[rows, _outputs(output)] += value[at[:, tree]]
    return margin


def _side_by_side(shards: Shards, frames: Frames, used: Sequence[tuple[str, str]]) -> Values:
    """Columns of several parties as one table, float32; sparse where one of them is."""
    n_rows = next(iter(frames.values())).n_rows
    read = {party: columns.values(shards[party].facts, frames[party]) for party, _ in used}
    parts = [read[party][:, [shards[party].facts["columns"].index(name)]] for party, name in used]
    if not parts:
        return np.empty((n_rows, 0), np.float32, order="F")
    if not any(isinstance(part, csc_array) for part in parts):
        return np.asfortranarray(np.hstack(parts))
    stacked = csc_array(hstack([csc_array(part) for part in parts]))
    stacked.sort_indices()
    return stacked


def _hybrid(shards: Shards, guest: str, frames: Frames, held: Mapping[str, Places]) -> Floats:
    """Predict as the steps of predict-hybrid do for scored splits: own leaves, and the mean of the
    hosts'.
    """
    model = shards[guest]
    tops = Tops.of(model)
    known, divided = tops.numbers(model), tops.numbers(model, divided=True)
    values = {party: columns.values(shards[party].facts, frames[party]) for party in frames}
    n_rows, outputs = frames[guest].n_rows, rounds.classes(model.facts)
    margin = np.tile(np.array(model.facts["base_margin"], np.float64), (n_rows, 1))
    value = tops.arrays["value"].astype(np.float64)
    for rows in _batches(n_rows, len(outputs)):
        at = tops.bottom(values[guest], rows)
        added, holders = np.zeros((*at.shape, value.shape[1])), np.zeros(len(at), np.int64)
        for number, host in enumerate(model.facts["hosts"]):
            first, stop = np.searchsorted(held[host], [rows.start, rows.stop]).tolist()
            inside = held[host][first:stop] - rows.start
            holders[inside] += 1
            bottom = known[number][at[inside]], divided[number][at[inside]]
            own = slice(first, stop)
            added[inside] += _of_host(model, shards[host], number, (values[host], own), bottom)
        mean = np.maximum(holders, 1)[:, None]
        for tree, output in enumerate(outputs.tolist()):
            margin[rows, _outputs(output)] += value[at[:, tree]] + added[:, tree] / mean
    return margin


def _of_host(
    model: Artefact,
    shard: Artefact,
    number: int,
    table: tuple[Values, slice],
    bottom: tuple[Places, Places],
) -> Floats:
    """Return what a host's leaves add to some of its rows, float64 (rows, trees, outputs of a
    leaf).

    `bottom` are the nodes at which the rows stand, int64 (rows, trees), by the host's numbers:
    those that it knows, and those of them that it has divided.
    """
    at, divided = bottom
    values, rows = table
    added = np.zeros((*at.shape, model.arrays["value"].shape[1]))
    for tree, (nodes, worth) in hybrid.leaf_values(model, number + 1).items():
        below = hybrid.descend(shard.arrays, tree, values, rows, divided[:, tree])
        reached = np.where(divided[:, tree] == NO_NODE, at[:, tree], below)
        (there,) = np.nonzero(reached != NO_NODE)
        added[there, tree] = worth[np.searchsorted(nodes, reached[there])]
    return added


def _batches(n_rows: int, trees: int) -> list[slice]:
    most = max(1, CELLS_MAX // max(1, trees))
    return [slice(first, min(first + most, n_rows)) for first in range(0, n_rows, most)]


def _outputs(output: int) -> slice:
    return slice(None) if output == rounds.ALL else slice(output, output + 1)
