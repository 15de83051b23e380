"""A host of a prediction with trees of two parts: its leaves, or their values under masks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedboost.crypto.api import Ciphertexts
from fedboost.crypto.schemes import SCHEMES
from fedboost.data.frame import Values
from fedboost.encrypted import leaf_values
from fedboost.encrypted.answer_steps import (
    hear_answer_keys,
    learn_shared,
    offer_answer_key,
    shared_bytes_max,
)
from fedboost.encrypted.leaf_answers import MaskingHost, Precision, answered
from fedboost.encrypted.leaf_values import LeafValues
from fedboost.encrypted.packed import HostKey
from fedboost.errors import PeerError, ProtocolError
from fedboost.flow import MODEL, About, Artefact, Charge, Out, Place, Seat, Spent
from fedboost.messages.job_pb2 import Told
from fedboost.messages.protocol.predict_hybrid_pb2 import BottomPlaces, LeafPlaces
from fedboost.model import columns, hybrid, rounds
from fedboost.model.hybrid import NO_NODE
from fedboost.protocols.predict_hybrid.places import (
    read_slots,
    write_leaves,
)
from fedboost.slot import Slot

__all__ = (
    "answer_rows", "begin", "bytes_max", "find_leaves", "finish", "hear_answer_keys",
    "learn_shared", "offer_answer_key", "restore", "snapshot",
)  # fmt: skip

Places = NDArray[np.int64]


@dataclass
class Host:
    """What a host remembers between steps."""

    seat: Seat
    model: Artefact
    values: Values
    scored: int = 0  # rows of finished batches
    batches: int = 0
    answering = Slot[MaskingHost]("masks of a model with unscored splits")
    keys = Slot[HostKey]("a key of a model with unscored splits")
    leaves = Slot[list[LeafValues]]("leaf values of a model with unscored splits")  # by tree

    @property
    def is_scored(self) -> bool:
        """Whether the guest has chosen our splits."""
        return bool(self.model.facts["split"] == "scored")

    @property
    def n_rows(self) -> int:
        """Our rows."""
        return self.values.shape[0]


def begin(seat: Seat) -> Host:
    """Reads the host's shard."""
    me = Host(seat, seat.artefacts[MODEL], columns.of_seat(seat))
    facts = me.model.facts
    if not me.is_scored:
        me.answering = MaskingHost(seat)
        said = facts["encryption"]
        scheme = SCHEMES[said["scheme"]]
        octets = me.model.arrays[hybrid.KEY].tobytes()
        key = scheme.load_public(octets, said["key_bits"], seat.workers)
        packing = Precision(**facts["precision"]).layout(key.plaintext_bits)
        me.keys = HostKey.of(key, packing, me.n_rows)
        me.leaves = leaf_values.from_arrays(me.model.arrays, facts["trees"])
    return me


def find_leaves(me: Host, got: BottomPlaces) -> Out:
    """The leaf of each row in each tree."""
    if not me.is_scored:
        raise ProtocolError("the model's splits are unscored: hosts name no leaves")
    rows, at = _batch(me, got)
    leaves = _leaves(me, rows, at)
    message = LeafPlaces(leaves=write_leaves(leaves, at, me.model.facts))
    return Out(send=message, about=_about(me, at))


def answer_rows(me: Host, got: BottomPlaces) -> Out:
    """The encrypted sum of each row's leaf values, class by class where classes have trees."""
    if me.is_scored:
        raise ProtocolError("the model's splits are scored: hosts have no values of leaves")
    number, facts = me.batches, me.model.facts
    rows, at = _batch(me, got)
    leaves, each = _leaves(me, rows, at), facts["trees_per_round"]
    classes = np.maximum(rounds.classes(facts), 0)
    starts = np.cumsum([0, *(len(one.nodes) for one in me.leaves)])
    held, cells = [], []
    for tree, one in enumerate(me.leaves[: at.shape[1]]):
        (there,) = np.nonzero(at[:, tree] != NO_NODE)
        held.append(starts[tree] + one.places(leaves[there, tree]))
        cells.append(there * each + classes[tree])
    values = Ciphertexts.concat([one.values for one in me.leaves])
    cell = np.concatenate(cells).astype(np.int32)[:, None]
    sums = me.keys.key.segment_sum(values, np.concatenate(held), cell, len(at) * each)
    packing = Precision(**facts["precision"]).layout(me.keys.key.plaintext_bits)
    masks = me.answering.masks(number, rows, packing, each)
    return Out(send=answered(me.keys, sums, masks), about=_about(me, at))


def snapshot(me: Host, _: Place) -> Artefact:
    """How far we are."""
    return Artefact({"scored": me.scored, "batches": me.batches})


def restore(me: Host, kept: Artefact) -> Told:
    """Carries on behind the last finished batch."""
    me.scored, me.batches = kept.facts["scored"], kept.facts["batches"]
    return Told()


def finish(_: Host) -> Artefact:
    """Nothing stays with a host."""
    return Artefact()


def bytes_max(me: Host, step: str) -> int:
    """Every row at a bottom node of every tree, and of all others what they share."""
    if step == "learn_shared" and not me.is_scored:
        return shared_bytes_max(me)
    rows = min(me.seat.params.batch_rows, me.n_rows)
    return int(4 * rows * me.model.facts["trees"] + 1024)


def _batch(me: Host, got: BottomPlaces) -> tuple[slice, Places]:
    """Which of our rows come, each once and in order, and where they stand."""
    rows = slice(me.scored, me.scored + got.rows)
    if got.first_row != me.scored or rows.stop > me.n_rows:
        raise PeerError(
            f"the guest places {got.rows} rows from row {got.first_row} on, expected row "
            f"{me.scored} of {me.n_rows}"
        )
    trees = got.slots.shape[1] if len(got.slots.shape) == 2 else 0
    if not 0 < trees <= me.model.facts["trees"]:
        raise PeerError(f"the guest asks for {trees} trees of {me.model.facts['trees']}")
    at = read_slots(got.slots, (got.rows, trees), me.model.facts)
    me.scored, me.batches = rows.stop, me.batches + 1
    return rows, at


def _about(me: Host, at: Places) -> About:
    """Who is behind the leaves of rows that stand at these bottom nodes."""
    return About(len(at), charges=(Charge(Spent.ROWS, me.n_rows),))


def _leaves(me: Host, rows: slice, at: Places) -> Places:
    """The leaves below the bottom nodes `at`, int64 (rows, trees)."""
    arrays = me.model.arrays
    found = [
        hybrid.descend(arrays, tree, me.values, rows, at[:, tree]) for tree in range(at.shape[1])
    ]
    return np.stack(found, axis=1)
