"""The guest of a prediction: has the trees' shape, asks the owners of splits where rows go."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fedboost import wire
from fedboost.core import objectives
from fedboost.data.frame import Values, values_at
from fedboost.flow import Artefact, Out, Seat
from fedboost.messages.job_pb2 import Count, Told
from fedboost.messages.protocol.predict_pb2 import Directions, Questions
from fedboost.model import rounds, vertical
from fedboost.model.vertical import Shape
from fedboost.protocols.predict.columns import model_of, model_values

CELLS_MAX = 1 << 24  # rows × trees of a batch: 128 MiB of places, 64 MiB to a host

Places = NDArray[np.int64]


@dataclass
class Guest:
    """What the guest remembers between steps."""

    seat: Seat
    model: Artefact
    shape: Shape
    values: Values
    margin: NDArray[np.float64]  # (rows, outputs) of finished batches
    first: int = 0  # row of the batch under way
    at: Places = field(default_factory=lambda: np.empty((0, 0), np.int64))  # (rows, trees) in nodes
    asked: dict[str, Places] = field(default_factory=dict)  # per host: places in `at`, flat

    @property
    def rows(self) -> slice:
        """The rows of the batch under way."""
        most = max(1, CELLS_MAX // len(self.shape.roots))
        count = min(self.seat.params.batch_rows, most)
        return slice(self.first, min(self.first + count, self.values.shape[0]))


def begin(seat: Seat) -> Guest:
    """Reads the guest's shard and puts the first batch of rows at the roots."""
    model = model_of(seat)
    values = model_values(seat)
    margin = np.tile(np.array(model.facts["base_margin"], np.float64), (values.shape[0], 1))
    me = Guest(seat, model, Shape.of(model.arrays), values, margin)
    _start_batch(me)
    return me


def ask_hosts(me: Guest) -> Out:
    """For each host the rows that stand at its nodes."""
    owner = me.model.arrays["owner"][me.at]
    me.asked = {}
    questions = {}
    for number, host in enumerate(me.seat.table.hosts, start=1):
        places = np.flatnonzero(owner == number)
        nodes = me.at.reshape(-1)[places]
        order = np.argsort(nodes, kind="stable")
        me.asked[host] = places[order]
        distinct, counts = np.unique(nodes, return_counts=True)
        rows = me.asked[host] // me.at.shape[1] + me.first
        questions[host] = Questions(
            trees=wire.pack(me.model.arrays["tree"][distinct].astype(np.int32)),
            nodes=wire.pack(me.model.arrays["node"][distinct].astype(np.int32)),
            counts=wire.pack(counts.astype(np.int32)),
            rows=wire.pack(rows.astype(np.int32)),
        )
    return Out(send=questions)


def follow_answers(me: Guest, got: Mapping[str, Directions]) -> Out:
    """Moves the rows as their owners say, then down the guest's own nodes."""
    at = me.at.reshape(-1)
    for host, places in me.asked.items():
        right = wire.unpack_bits(got[host].goes_right, len(places), f"the directions of {host}")
        nodes = at[places]
        at[places] = np.where(right, me.shape.right[nodes], me.shape.left[nodes])
    _descend(me)
    done = bool((me.model.arrays["owner"][me.at] == vertical.LEAF).all())
    return Out(told=Told(ends="layer" if done else ""))


def close_batch(me: Guest) -> Out:
    """Adds up the leaves that the batch has reached."""
    value = me.model.arrays["value"].astype(np.float64)
    # In the order of training, so that sums have the same bits.
    for tree, output in enumerate(rounds.classes(me.model.facts).tolist()):
        outputs = slice(None) if output == rounds.ALL else slice(output, output + 1)
        me.margin[me.rows, outputs] += value[me.at[:, tree]]
    me.first = me.rows.stop
    if me.first < me.values.shape[0]:
        _start_batch(me)
        return Out()
    counts = [Count(name="predicted", count=me.values.shape[0])]
    return Out(told=Told(ends="batch", counts=counts))


def snapshot(me: Guest) -> Artefact:
    """Margins of finished batches."""
    return Artefact({"first": me.first}, {"margin": me.margin})


def restore(me: Guest, kept: Artefact) -> Told:
    """Carries on behind the last finished batch."""
    me.first, me.margin = kept.facts["first"], kept.arrays["margin"].astype(np.float64)
    if me.first >= me.values.shape[0]:
        return Told(ends="batch")
    _start_batch(me)
    return Told()


def finish(me: Guest) -> Artefact:
    """The predictions float64 (rows, outputs): probabilities or means, or margins if wanted."""
    prediction = me.margin
    if not me.seat.params.output_margin:
        prediction = objectives.transform(me.model.facts["objective"], me.margin)
    return Artefact({"model": me.seat.params.model}, {"prediction": prediction})


def bytes_max(me: Guest, _: str) -> int:
    """One bit for each question."""
    return me.at.size // 8 + 1024


def _start_batch(me: Guest) -> None:
    count = me.rows.stop - me.rows.start
    me.at = np.tile(me.shape.roots, (count, 1))
    _descend(me)


def _descend(me: Guest) -> None:
    """Moves rows down the guest's own nodes until each stands at a leaf or at somebody else's."""
    arrays, at = me.model.arrays, me.at.reshape(-1)
    trees = me.at.shape[1]
    places = np.flatnonzero(arrays["owner"][at] == vertical.GUEST)
    while len(places):
        nodes = at[places]
        columns = arrays["feature"][nodes].astype(np.int64)
        values = values_at(me.values, places // trees + me.first, columns)
        right = vertical.goes_right(values, arrays, nodes)
        at[places] = np.where(right, me.shape.right[nodes], me.shape.left[nodes])
        places = places[arrays["owner"][at[places]] == vertical.GUEST]
