"""A host of a prediction with trees of two parts: its leaves, or their values under masks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedboost.crypto.api import Ciphertexts
from fedboost.crypto.schemes import KEYED_SCHEMES
from fedboost.data.frame import FrameValues
from fedboost.encrypted.number import leaf_values
from fedboost.encrypted.number.leaf_answers import (
    MaskingHost,
    Precision,
    hear_answer_keys,
    learn_shared,
    offer_answer_key,
    released_answers,
    shared_bytes_max,
)
from fedboost.encrypted.number.leaf_values import LeafValues
from fedboost.encrypted.number.packed import HostKey
from fedboost.flow import MODEL, Artefact, Charge, DisclosureInfo, Out, Place, Spent, StageContext
from fedboost.ground.arrays import Indices
from fedboost.ground.errors import PeerError, ProtocolError
from fedboost.ground.mapped import free_pages
from fedboost.ground.slot import Slot
from fedboost.messages.job_pb2 import StatusReport
from fedboost.messages.protocol.predict_hybrid_pb2 import BottomPlaces, LeafPlaces
from fedboost.model import columns, hybrid, rounds
from fedboost.model.answered import AnsweredRows
from fedboost.model.hybrid import NO_BOTTOM
from fedboost.protocols.predict_hybrid.indices import read_slots, write_leaves
from fedboost.protocols.predict_hybrid.params import PredictHybridParams

__all__ = (
    "answer_rows", "begin", "bytes_max", "find_leaves", "finish", "hear_answer_keys",
    "learn_shared", "offer_answer_key", "restore", "snapshot",
)  # fmt: skip


@dataclass
class Host:
    """State of a host between steps."""

    context: StageContext[PredictHybridParams]
    model: Artefact
    values: FrameValues
    answered: AnsweredRows
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
        """Number of our rows."""
        return self.values.shape[0]


def begin(context: StageContext[PredictHybridParams]) -> Host:
    """Return a host with its shard."""
    model, values = context.artefacts[MODEL], columns.values_of_seat(context)
    facts = model.facts
    host = Host(context, model, values, AnsweredRows.of(model.arrays, facts["columns"], values))
    if not host.is_scored:
        host.answering = MaskingHost(context)
        encryption = facts["encryption"]
        scheme = KEYED_SCHEMES[encryption["scheme"]]
        data = host.model.arrays[hybrid.SHARD_KEY].tobytes()
        key = scheme.load_public(data, encryption["key_bits"], context.services.workers)
        packing = Precision(**facts["precision"]).layout(key.plaintext_bits)
        host.keys = HostKey.of(key, packing, host.n_rows)
        host.leaves = leaf_values.from_arrays(host.model.arrays, facts["trees"])
    return host


def find_leaves(host: Host, got: BottomPlaces) -> Out:
    """Send the leaf of each row in each tree."""
    if not host.is_scored:
        raise ProtocolError("the model's splits are unscored: hosts name no leaves")
    rows, at = _read_batch(host, got)
    leaves = _reached_leaves(host, rows, at)
    message = LeafPlaces(leaves=write_leaves(leaves, at, host.model.facts))
    return Out(send=message, about=_disclosure(host, at))


def answer_rows(host: Host, got: BottomPlaces) -> Out:
    """Send the encrypted sum of each row's leaf values, by class if classes have trees."""
    if host.is_scored:
        raise ProtocolError("the model's splits are scored: hosts have no values of leaves")
    number, facts = host.batches, host.model.facts
    rows, at = _read_batch(host, got)
    leaves, each = _reached_leaves(host, rows, at), facts["trees_per_round"]
    classes = np.maximum(rounds.classes(facts), 0)
    starts = np.cumsum([0, *(len(tree_leaves.nodes) for tree_leaves in host.leaves)])
    held, cells = [], []
    for tree, tree_leaves in enumerate(host.leaves[: at.shape[1]]):
        (there,) = np.nonzero(at[:, tree] != NO_BOTTOM)
        held.append(starts[tree] + tree_leaves.indices(leaves[there, tree]))
        cells.append(there * each + classes[tree])
    values = Ciphertexts.concat([tree_leaves.values for tree_leaves in host.leaves])
    cell = np.concatenate(cells).astype(np.int32)[:, None]
    sums = host.keys.key.segment_sum(values, np.concatenate(held), cell, len(at) * each)
    packing = Precision(**facts["precision"]).layout(host.keys.key.plaintext_bits)
    masks = host.answering.masks(number, rows, packing, each)
    return Out(send=released_answers(host.keys, sums, masks), about=_disclosure(host, at))


def snapshot(host: Host, _: Place) -> Artefact:
    """Return the number of finished rows and batches."""
    return Artefact({"scored": host.scored, "batches": host.batches})


def restore(host: Host, kept: Artefact) -> StatusReport:
    """Continue behind the last finished batch."""
    host.scored, host.batches = kept.facts["scored"], kept.facts["batches"]
    return StatusReport()


def finish(_: Host) -> Artefact:
    """Leave nothing at a host."""
    return Artefact()


def bytes_max(host: Host, step: str) -> int:
    """Return the size of all rows at the bottom nodes of all trees, or of all shared rows."""
    if step == "learn_shared" and not host.is_scored:
        return shared_bytes_max(host)
    rows = min(host.context.params.batch_rows, host.n_rows)
    return int(4 * rows * host.model.facts["trees"] + 1024)


def _read_batch(host: Host, got: BottomPlaces) -> tuple[slice, Indices]:
    """Return the slice of our rows in the batch, each once and in order, and their nodes."""
    rows = slice(host.scored, host.scored + got.rows)
    if got.first_row != host.scored or rows.stop > host.n_rows:
        raise PeerError(
            f"the guest places {got.rows} rows from row {got.first_row} on, expected row "
            f"{host.scored} of {host.n_rows}"
        )
    trees = got.slots.shape[1] if len(got.slots.shape) == 2 else 0
    if not 0 < trees <= host.model.facts["trees"]:
        raise PeerError(f"the guest asks for {trees} trees of {host.model.facts['trees']}")
    at = read_slots(got.slots, (got.rows, trees), host.model.facts)
    host.scored, host.batches = rows.stop, host.batches + 1
    return rows, at


def _disclosure(host: Host, at: Indices) -> DisclosureInfo:
    """Return the disclosure of the leaves of rows at these bottom nodes."""
    charges = (Charge(Spent.ROWS, host.n_rows), *host.answered.charges())
    return DisclosureInfo(len(at), charges=charges)


def _reached_leaves(host: Host, rows: slice, at: Indices) -> Indices:
    """Return the leaves below the bottom nodes `at`, int64 (rows, trees)."""
    arrays = host.model.arrays
    by_tree = [
        hybrid.descend(arrays, tree, host.values, rows, at[:, tree], host.answered.note)
        for tree in range(at.shape[1])
    ]
    free_pages(host.values)
    return np.stack(by_tree, axis=1)
