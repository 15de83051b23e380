"""The guest of a prediction with trees of two parts: its own part, and the sum over the hosts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from fedboost.crypto.api import PrivateKey
from fedboost.crypto.leaf_values import LeafLayout
from fedboost.crypto.schemes import KEYED_SCHEMES
from fedboost.encrypted.number import leaf_answers
from fedboost.encrypted.number.leaf_answers import Precision
from fedboost.flow import DisclosureInfo, Out, StageContext
from fedboost.ground.arrays import Floats, Indices
from fedboost.ground.errors import PeerError
from fedboost.ground.slot import Slot
from fedboost.messages.protocol import encrypted_pb2
from fedboost.messages.protocol.predict_hybrid_pb2 import BottomPlaces, LeafPlaces
from fedboost.model import hybrid, rounds
from fedboost.model.batches import Batches, finish, restore, snapshot
from fedboost.model.hybrid import NO_BOTTOM, Tops
from fedboost.protocols.predict_hybrid.indices import read_leaves, write_slots
from fedboost.protocols.predict_hybrid.params import PredictHybridParams

__all__ = (
    "add_values", "begin", "bytes_max", "close_batch", "finish", "follow_leaves", "place_rows",
    "restore", "share_rows", "snapshot",
)  # fmt: skip


@dataclass
class Guest(Batches):
    """State of the guest between steps."""

    tops: Tops = field(init=False)
    numbers: Indices = field(init=False)  # (hosts, nodes of tops): a host's number of a bottom node
    told: Indices = field(init=False)  # the same, without the nodes that it has not divided
    held: dict[str, Indices] = field(init=False)  # by host: its rows, in its order
    at: Indices = field(init=False)  # (rows, trees) in tops
    # (rows, trees, values of a leaf), or (rows, outputs) unscored
    added = Slot[Floats]("values of the hosts' leaves")

    def __post_init__(self) -> None:
        super().__post_init__()
        shared = self.context.artefacts["align-pairs"].arrays
        self.tops = Tops.of(self.model)
        self.numbers = self.tops.numbers(self.model)
        self.told = self.tops.numbers(self.model, divided=True)
        hosts = self.context.table.hosts
        self.held = {host: shared[f"with_{host}"].astype(np.int64) for host in hosts}
        self.start_batch()

    def place_batch(self) -> None:
        """Put the rows at the bottom nodes of all trees."""
        self.at = self.tops.bottom(self.values, self.rows)

    def indices(self, host: str) -> slice:
        """Return the slice of a host's rows that are in the batch."""
        first, stop = np.searchsorted(self.held[host], [self.rows.start, self.rows.stop])
        return slice(int(first), int(stop))

    def batch_indices(self, host: str) -> Indices:
        """Return the indices of those rows in the batch."""
        return self.held[host][self.indices(host)] - self.rows.start

    def bottom(self, host: str, numbers: Indices) -> Indices:
        """Return the bottom nodes of a host's rows by its `numbers`, int64 (its rows, trees)."""
        number = self.context.table.hosts.index(host)
        return numbers[number][self.at[self.batch_indices(host)]]


def begin(context: StageContext[PredictHybridParams]) -> Guest:
    """Read the guest's shard and put the first batch of rows at the bottom nodes."""
    return Guest(context)


def share_rows(guest: Guest) -> Out:
    """Send each host the rows that it shares with other hosts."""
    about = {host: DisclosureInfo(len(rows)) for host, rows in guest.held.items()}
    return Out(send=leaf_answers.shared_rows(guest.held, guest.values.shape[0]), about=about)


def place_rows(guest: Guest) -> Out:
    """Send each host the bottom nodes of its rows in the batch, if it has splits there."""
    sent = {}
    for host in guest.held:
        rows, at = guest.indices(host), guest.bottom(host, guest.told)
        slots = write_slots(at, guest.model.facts)
        sent[host] = BottomPlaces(first_row=rows.start, rows=len(at), slots=slots)
    return Out(send=sent)


def follow_leaves(guest: Guest, got: Mapping[str, LeafPlaces]) -> Out:
    """Add up the values of the hosts' leaves, tree by tree."""
    width = guest.model.arrays["value"].shape[1]
    added = np.zeros((*guest.at.shape, width))
    for number, host in enumerate(guest.context.table.hosts, start=1):
        inside, at = guest.batch_indices(host), guest.bottom(host, guest.numbers)
        divided = guest.bottom(host, guest.told)
        leaves = read_leaves(got[host].leaves, divided, guest.model.facts["host_depth"], host)
        leaves = np.where(divided == NO_BOTTOM, at, leaves)
        for tree, (nodes, values) in hybrid.leaf_values(guest.model, number).items():
            reached = leaves[:, tree]
            (rows,) = np.nonzero(reached != NO_BOTTOM)
            place = np.minimum(np.searchsorted(nodes, reached[rows]), len(nodes) - 1)
            if (nodes[place] != reached[rows]).any():
                raise PeerError(f"{host} names leaves that tree {tree} does not have", party=host)
            added[inside[rows], tree] += values[place]
    guest.added = added
    return Out()


def add_values(guest: Guest, got: Mapping[str, encrypted_pb2.LeafAnswers]) -> Out:
    """Decrypt the sum over all trees that a row's hosts add to it."""
    facts, key = guest.model.facts, _leaf_key(guest)
    packing = _packing(guest, key)
    each, count = facts["trees_per_round"], guest.at.shape[0]
    held = {
        host: (guest.batch_indices(host)[:, None] * each + np.arange(each)).ravel()
        for host in guest.held
    }
    total = leaf_answers.read_answers(got, key, packing, held, count * each)
    guest.added = np.asarray(total.reshape(count, -1) * facts["value_unit"], np.float64)
    return Out()


def close_batch(guest: Guest) -> Out:
    """Compute the batch's margins: our leaves plus the mean over the hosts of their leaves."""
    holders = np.zeros(guest.at.shape[0], np.int64)
    for host in guest.held:
        holders[guest.batch_indices(host)] += 1
    mean = np.maximum(holders, 1)[:, None]
    value, is_scored = guest.tops.arrays["value"].astype(np.float64), guest.added.ndim == 3
    margin = guest.margin
    # In the order of training, so that sums have the same bits.
    for tree, outputs in enumerate(rounds.outputs(guest.model.facts)):
        leaves = value[guest.at[:, tree]]
        margin[:, outputs] += leaves + guest.added[:, tree] / mean if is_scored else leaves
    if not is_scored:
        margin += guest.added / mean
    del guest.added
    return guest.next_batch()


def bytes_max(guest: Guest, step: str) -> int:
    """Return the size of a leaf for each row and tree, or of a row's answers."""
    if step == "add_values":
        key, answers = _leaf_key(guest), guest.at.shape[0] * guest.model.facts["trees_per_round"]
        return _packing(guest, key).package_count([answers]) * key.width + 1024
    return 4 * guest.at.size + 1024


def _leaf_key(guest: Guest) -> PrivateKey:
    """Return the key of the hosts' leaf values."""
    scheme = KEYED_SCHEMES[guest.model.facts["params"]["encryption"]["scheme"]]
    return scheme.load_private(
        guest.model.arrays[hybrid.SHARD_KEY].tobytes(), guest.context.services.workers
    )


def _packing(guest: Guest, key: PrivateKey) -> LeafLayout:
    """Return the layout of the hosts' answers."""
    return Precision(**guest.model.facts["precision"]).layout(key.plaintext_bits)
