"""The offers of hosts for open nodes, which the guest reads, scores and chooses from.

`candidates` defines the arrangement of a node's sums, and a choice among them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fedboost.core import categories, split
from fedboost.core.categories import Divisions
from fedboost.core.rules import Rules
from fedboost.encrypted.cells.candidates import Shape
from fedboost.encrypted.cells.shapes import shapes_of
from fedboost.encrypted.scheme.ciphers import GuestRows, NodeBounds
from fedboost.ground import wire
from fedboost.ground.arrays import Floats, Indices, Sums
from fedboost.ground.errors import PeerError
from fedboost.messages.protocol import encrypted_pb2 as pb

# Copies of announced sums in memory at once, as they are read and scored; and of their bytes, as
# these are gathered and decrypted.
SUM_COPIES, CIPHERTEXT_COPIES = 3, 2
HOST_COLUMNS_MAX = 1 << 20  # columns of one host, as wide as a table may be: bounds its answer


class Offers:
    """A host's sums for a layer's open nodes, as their parts arrive."""

    def __init__(
        self, rows: GuestRows, nodes: Sequence[NodeBounds], most: int, host: str, bytes_max: int
    ) -> None:
        """Begin with these nodes, in their order; `most` bounds the sums of one, `bytes_max` the
        memory that all of them take.
        """
        self._rows, self._nodes, self._most, self._host = rows, nodes, most, host
        self._bytes_max = bytes_max
        self._shapes: list[Shape] = []  # of the nodes whose sums are arriving
        self._held = bytearray()
        self._due = 0  # ciphertexts that these sums still lack
        self._room = 0  # bytes that these take
        self._read: list[tuple[Sums, Shape]] = []

    def add(self, part: pb.CandidateSums) -> None:
        """Append the next part; decrypt the sums that it announced once all of them
        have arrived.
        """
        if part.HasField("candidates") == (self._due > 0):
            raise PeerError(f"{self._host} sent sums of other nodes than it announced")
        if not self._due:
            left = len(self._nodes) - len(self._read)
            self._shapes = shapes_of(part, left, self._most, self._host)
            counts, first = [shape.n_sums for shape in self._shapes], len(self._read)
            self._check_room(counts, 0)
            self._due = self._rows.count(counts)
            self._room = self._rows.n_bytes(counts, self._nodes[first : first + len(counts)])
            self._check_room(counts, self._room)
        count = part.packages.count
        if count > self._due or (self._due and not count):
            raise PeerError(f"{self._host} sent {count} packages, its counts need {self._due}")
        if len(self._held) + len(part.packages.data) > self._room:
            raise PeerError(f"{self._host} sent more than the {self._room} bytes of its packages")
        self._held += part.packages.data
        self._due -= count
        if not self._due:
            self._decrypt()

    def _check_room(self, counts: Sequence[int], ciphertexts: int) -> None:
        """Refuse announced sums that would take more memory than there is, before any is kept."""
        sums = SUM_COPIES * sum(counts) + sum(shape.n_sums for _, shape in self._read)
        wide = len(self._nodes[0].most) if self._nodes else 0
        needed = 8 * wide * sums + CIPHERTEXT_COPIES * ciphertexts
        if needed > self._bytes_max:
            raise PeerError(
                f"{self._host} announced sums that take {needed} bytes; there is memory for "
                f"{self._bytes_max}"
            )

    def whole(self) -> list[tuple[Sums, Shape]]:
        """Return an array (sums, 2·outputs) of each open node, and its arrangement."""
        if self._due or len(self._read) != len(self._nodes):
            raise PeerError(
                f"{self._host} sent sums of {len(self._read)} nodes, {len(self._nodes)} are open"
            )
        return self._read

    def _decrypt(self) -> None:
        counts = [shape.n_sums for shape in self._shapes]
        first = len(self._read)
        nodes = self._nodes[first : first + len(counts)]
        sums = self._rows.read(bytes(self._held), counts, nodes)
        split_up = np.split(sums, np.cumsum(counts)[:-1]) if counts else []
        self._read += zip(split_up, self._shapes, strict=True)
        self._held.clear()


def read_offers(
    got: Iterator[Mapping[str, pb.CandidateSums]], coming: Mapping[str, Offers]
) -> dict[str, list[tuple[Sums, Shape]]]:
    """Return the sums of each host's offers; `coming` has the offers by host."""
    for parts in got:
        strangers = sorted(set(parts) - set(coming))
        if strangers:
            raise PeerError(f"{', '.join(strangers)} offered splits, expected {', '.join(coming)}")
        for host, part in parts.items():
            coming[host].add(part)
    return {host: offer.whole() for host, offer in coming.items()}


@dataclass(frozen=True)
class Best:
    """The greatest gain in an offer, and every choice that has it."""

    gain: float
    choices: list[Indices]  # each has the indices of its sums
    left: Sums  # (choices, 2·outputs) the sums that each sends left

    @property
    def parts(self) -> Indices:
        """Number of sums that make each choice; int64 (choices,)."""
        return np.array([len(choice) for choice in self.choices], np.int64)


def best_of(
    rules: Rules, total: Sums, sums: Sums, shape: Shape, bounds: Floats | None = None
) -> Best | None:
    """Return the best choice of an offer int64 (sums, 2·outputs) for a node with `total` int64
    (2·outputs,) and `bounds` (2,) of its weights (core.monotone); None without one.

    Noise may move a sum of hessians beyond 0 or the node's own; it then counts as that bound.
    """
    grouped = [
        categories.divisions(
            sums[first : first + count],
            sums[first + count] if missing else None,
            *(rules.params, rules.fixed),
        )
        for first, count, missing in shape.columns()
    ]
    left = np.concatenate([sums[: shape.candidates], *(divisions.left for divisions in grouped)])
    possible = left.copy()
    possible[:, 1::2] = np.clip(left[:, 1::2], 0, total[1::2])
    gain = rules.candidate_gains(possible, total, bounds)
    best = split.best_candidate(gain, rules.params)
    if best < 0:
        return None
    tied = np.flatnonzero(gain == gain[best])
    choices = [_indices_of_candidate(int(place), grouped, shape) for place in tied]
    return Best(float(gain[best]), choices, left[tied])


def _indices_of_candidate(place: int, grouped: Sequence[Divisions], shape: Shape) -> Indices:
    """Return the indices of one candidate's sums; `place` counts thresholds first, then column by
    column.
    """
    if place < shape.candidates:
        return np.array([place])
    starts = np.cumsum([shape.candidates, *(len(divisions) for divisions in grouped)])
    column = int(np.searchsorted(starts, place, side="right")) - 1
    divisions, number = grouped[column], place - int(starts[column])
    first, count, _ = shape.columns()[column]
    absent = [first + count] if divisions.missing_left[number] else []
    return np.append(first + divisions.bins(number), absent).astype(np.int64)


def write_choices(chosen: Mapping[int, Sequence[Indices]]) -> pb.WonSplits:
    """Return the message of the tied choices of each won node."""
    flat = [choice.astype(np.int32) for choices in chosen.values() for choice in choices]
    message = pb.WonSplits(
        nodes=wire.pack(np.array(list(chosen), np.int32)),
        tied=wire.pack(np.array([len(choices) for choices in chosen.values()], np.int32)),
        candidates=wire.pack(np.concatenate([np.empty(0, np.int32), *flat])),
    )
    sizes = np.array([len(choice) for choice in flat], np.int32)
    if (sizes != 1).any():
        message.sizes.CopyFrom(wire.pack(sizes))
    return message
