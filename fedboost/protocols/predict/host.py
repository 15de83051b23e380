"""A host of a prediction: says where rows go at its own nodes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedboost import wire
from fedboost.data.frame import Values, values_at
from fedboost.errors import PeerError
from fedboost.flow import MODEL, About, Artefact, Charge, Out, Place, Seat, Spent
from fedboost.messages.job_pb2 import Told
from fedboost.messages.protocol.predict_pb2 import Directions, Questions
from fedboost.model import columns, vertical


@dataclass
class Host:
    """What a host remembers between steps."""

    seat: Seat
    model: Artefact
    values: Values
    place: dict[tuple[int, int], int]  # (tree, node) -> place in the shard


def begin(seat: Seat) -> Host:
    """Reads the host's shard."""
    model = seat.artefacts[MODEL]
    keys = zip(model.arrays["tree"].tolist(), model.arrays["node"].tolist(), strict=True)
    return Host(seat, model, columns.of_seat(seat), {key: i for i, key in enumerate(keys)})


def direct_rows(me: Host, got: Questions) -> Out:
    """One bit for each row asked about: right or left."""
    trees = wire.unpack(got.trees, "i4", (None,), "the trees asked about").tolist()
    nodes = wire.unpack(got.nodes, "i4", (len(trees),), "the nodes asked about").tolist()
    counts = wire.unpack(got.counts, "i4", (len(trees),), "the rows of each node").astype(np.int64)
    if (counts < 0).any():
        raise PeerError("the guest asked about a negative number of rows")
    rows = wire.unpack(got.rows, "i4", (int(counts.sum()),), "the rows asked about").astype(
        np.int64
    )
    if len(rows) and not 0 <= rows.min() <= rows.max() < me.values.shape[0]:
        raise PeerError("the guest asked about rows that are not in the aligned table")
    try:
        shard = [me.place[key] for key in zip(trees, nodes, strict=True)]
    except KeyError:
        raise PeerError("the guest asked about nodes that are not ours") from None
    split = np.repeat(np.array(shard, np.int64), counts)
    arrays = me.model.arrays
    values = values_at(me.values, rows, arrays["feature"][split].astype(np.int64))
    right = vertical.goes_right(values, arrays, split)
    charges = (Charge(Spent.ROWS, me.values.shape[0]),)
    about = About(len(np.unique(rows)), charges=charges)
    return Out(send=Directions(goes_right=wire.pack_bits(right)), about=about)


def snapshot(_: Host, __: Place) -> Artefact:
    """Nothing: a host answers and forgets."""
    return Artefact()


def restore(_: Host, __: Artefact) -> Told:
    """Nothing to carry on."""
    return Told()


def finish(_: Host) -> Artefact:
    """Nothing stays with a host."""
    return Artefact()


def bytes_max(me: Host, _: str) -> int:
    """Every row of a batch at one node of every tree of the model."""
    rows = min(me.seat.params.batch_rows, me.values.shape[0])
    return int(4 * rows * me.model.facts["trees"] + 12 * len(me.place) + 1024)
