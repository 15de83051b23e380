"""A host of a prediction: answers with the directions of rows at its nodes.

It answers only for rows that its own splits above a node, in the same tree, lead to the node. For a
model of noisy buckets the answers have the noise of training if id, value and table are the same:
other values, and values of another table, get other noise and are charged ε. The owner's policy may
allow the guest exact answers (`predict.exact`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedboost.core.partition import parent, right_child
from fedboost.data.frame import FrameValues, values_at
from fedboost.flow import (
    MODEL,
    Artefact,
    Charge,
    DisclosureInfo,
    NoisyValues,
    Out,
    Place,
    Spent,
    StageContext,
)
from fedboost.ground import wire
from fedboost.ground.arrays import Indices
from fedboost.ground.errors import ConfigError, PeerError
from fedboost.ground.mapped import free_pages
from fedboost.messages.job_pb2 import StatusReport
from fedboost.messages.protocol.predict_pb2 import Directions, Questions
from fedboost.model import columns, telling, vertical
from fedboost.model.answered import AnsweredRows
from fedboost.model.telling import TELLING
from fedboost.protocols.predict.params import PredictParams

NO_SPLIT = -1  # no further split of ours above a node


@dataclass
class Host:
    """State of a host between steps."""

    context: StageContext[PredictParams]
    arrays: Mapping[str, NDArray[np.generic]]  # of the shard
    values: FrameValues  # of the columns that `feature` indexes
    noisy: NoisyValues | None  # the noise in `values`; None: they are exact
    place: dict[tuple[int, int], int]  # (tree, node) -> index in the shard
    above: Indices  # (splits, most): our splits above each in its tree, then NO_SPLIT
    right: NDArray[np.bool_]  # (splits, most): whether the path goes right there
    answered: AnsweredRows
    is_charged: bool = False  # whether an answer of this attempt reported the noisy values


def begin(context: StageContext[PredictParams]) -> Host:
    """Read the host's shard, and its columns with the noise that the guest may see them with."""
    arrays, values, noisy, names = _noisy_shard(context)
    place = vertical.positions(arrays)
    above = _splits_above(vertical.node_keys(arrays), place)
    answered = AnsweredRows.of(arrays, names, values)
    return Host(context, arrays, values, noisy, place, *above, answered)


def direct_rows(host: Host, got: Questions) -> Out:
    """Answer one bit for each row of a question: right or left."""
    trees = wire.unpack(got.trees, "i4", (None,), "the trees asked about").tolist()
    nodes = wire.unpack(got.nodes, "i4", (len(trees),), "the nodes asked about").tolist()
    counts = wire.unpack(got.counts, "i4", (len(trees),), "the rows of each node").astype(np.int64)
    if (counts < 0).any():
        raise PeerError("the guest asked about a negative number of rows")
    rows = wire.unpack(got.rows, "i4", (int(counts.sum()),), "the rows asked about").astype(
        np.int64
    )
    if len(rows) and not 0 <= rows.min() <= rows.max() < host.values.shape[0]:
        raise PeerError("the guest asked about rows that are not in the aligned table")
    try:
        shard = [host.place[key] for key in zip(trees, nodes, strict=True)]
    except KeyError:
        raise PeerError("the guest asked about nodes that are not ours") from None
    split = np.repeat(np.array(shard, np.int64), counts)
    check_paths(host, rows, split)
    right = _goes_right(host, rows, split)
    free_pages(host.values)
    starts = np.cumsum([0, *counts.tolist()])
    for place, first, stop in zip(shard, starts.tolist(), starts[1:].tolist(), strict=False):
        host.answered.note(place, rows[first:stop], right[first:stop])
    charges = (Charge(Spent.ROWS, host.values.shape[0]), *host.answered.charges())
    # The first answer is charged for the values of all rows: later questions may be about any.
    noisy, epsilon = host.noisy, None if host.noisy is None else host.noisy.epsilon
    told = None if host.is_charged else noisy
    host.is_charged = True
    about = DisclosureInfo(len(np.unique(rows)), epsilon=epsilon, charges=charges, noisy=told)
    return Out(send=Directions(goes_right=wire.pack_bits(right)), about=about)


def check_paths(host: Host, rows: Indices, split: Indices) -> None:
    """Raise a PeerError if our own splits lead a row away from the split in question."""
    for depth in range(host.above.shape[1]):
        above = host.above[split, depth]
        known = above != NO_SPLIT
        turns = _goes_right(host, rows[known], above[known])
        if (turns != host.right[split[known], depth]).any():
            raise PeerError("the guest asked about rows at nodes that they do not reach")


def snapshot(_: Host, __: Place) -> Artefact:
    """Keep nothing: a host answers and forgets."""
    return Artefact()


def restore(_: Host, __: Artefact) -> StatusReport:
    """Restore nothing."""
    return StatusReport()


def finish(_: Host) -> Artefact:
    """Leave nothing at a host."""
    return Artefact()


def bytes_max(host: Host, _: str) -> int:
    """Return the size of a question about every row of a batch in every tree of the model."""
    rows = min(host.context.params.batch_rows, host.values.shape[0])
    trees = host.context.artefacts[MODEL].facts["trees"]
    return int(4 * rows * trees + 12 * len(host.place) + 1024)


# Inside


def _noisy_shard(
    context: StageContext[PredictParams],
) -> tuple[Mapping[str, NDArray[np.generic]], FrameValues, NoisyValues | None, Sequence[str]]:
    """Return the shard's arrays, the values of its columns with noise, the noise, and their names.

    Without noise the values are exact and the noise is None.
    """
    model, frame = context.artefacts[MODEL], context.data
    names: list[str] = model.facts["columns"]
    values = columns.values_of_seat(context)
    no_splits = not len(model.arrays["feature"])
    if (
        TELLING not in model.facts
        or no_splits
        or context.table.guest in context.limits.predict.exact
    ):
        return model.arrays, values, None, names
    earlier = telling.read_telling(model.facts[TELLING])
    if frame.id_columns != earlier.id_columns:
        raise ConfigError(
            "the model's noise belongs to ids of other columns than the job's",
            todo=f"id: [{', '.join(earlier.id_columns)}]",
            party=context.party,
        )
    used = np.unique(model.arrays["feature"]).astype(np.int64)
    terms = earlier.select_columns(used.tolist())
    told = terms.tell_values(values[:, used], frame.ids, context)
    feature = np.searchsorted(used, model.arrays["feature"])
    used_names = [names[column] for column in used.tolist()]
    return {**model.arrays, "feature": feature}, terms.values(told.ids), told.noisy, used_names


def _splits_above(
    keys: Sequence[tuple[int, int]], place: Mapping[tuple[int, int], int]
) -> tuple[Indices, NDArray[np.bool_]]:
    """Return our splits above each of our nodes, nearest first, and whether its path goes right."""
    ways: list[list[tuple[int, bool]]] = []
    for tree, node in keys:
        way, below = [], node
        while below:
            above_it = parent(below)
            if (tree, above_it) in place:
                way.append((place[tree, above_it], below == right_child(above_it)))
            below = above_it
        ways.append(way)
    most = max(map(len, ways), default=0)
    above = np.full((len(keys), most), NO_SPLIT, np.int64)
    right = np.zeros((len(keys), most), np.bool_)
    for i, way in enumerate(ways):
        for depth, (split, turn) in enumerate(way):
            above[i, depth], right[i, depth] = split, turn
    return above, right


def _goes_right(host: Host, rows: Indices, split: Indices) -> NDArray[np.bool_]:
    """Return whether rows go right at our splits, all (n,)."""
    cells = values_at(host.values, rows, host.arrays["feature"][split].astype(np.int64))
    return vertical.goes_right(cells, host.arrays, split)
