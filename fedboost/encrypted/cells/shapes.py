"""Shapes of candidates as a host writes them in a message, and as a guest checks and reads them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedboost.core.params import MAX_BIN
from fedboost.encrypted.cells.candidates import Shape
from fedboost.ground import wire
from fedboost.ground.errors import PeerError
from fedboost.messages.protocol import encrypted_pb2 as pb


def shapes_of(message: pb.CandidateSums, most_nodes: int, most: int, host: str) -> list[Shape]:
    """Return the shapes of a host's offers for the next open nodes, at most `most_nodes` of them; a
    PeerError if they are impossible. `most` bounds the sums of one node.
    """
    what = f"the number of {host}'s candidates"
    counts = wire.unpack(message.candidates, "i4", (None,), what).tolist()
    nodes = len(counts)
    if nodes > most_nodes:
        raise PeerError(f"{host} sent candidates of {nodes} nodes, {most_nodes} are open")
    columns, grouped, missing = np.zeros(nodes, np.int64), np.empty(0, np.int32), np.empty(0, bool)
    if any(message.HasField(name) for name in ("columns", "categories", "missing")):
        what = f"the number of {host}'s categorical columns"
        columns = wire.unpack(message.columns, "i4", (nodes,), what).astype(np.int64)
        what = f"the number of {host}'s categories"
        grouped = wire.unpack(message.categories, "i4", (int(columns.sum()),), what).astype(
            np.int64
        )
        what = f"the columns of {host} with missing values"
        missing = wire.unpack_bits(message.missing, len(grouped), what)
    least = min([*counts, *columns.tolist(), 0])
    if least < 0 or not all(1 <= count <= MAX_BIN for count in grouped.tolist()):
        raise PeerError(f"{host} sent a number of candidates or categories that cannot be")
    ends = np.cumsum(columns).tolist()
    shapes = [
        Shape(count, tuple(grouped[end - n : end].tolist()), tuple(missing[end - n : end].tolist()))
        for count, n, end in zip(counts, columns.tolist(), ends, strict=True)
    ]
    largest = max((shape.n_sums for shape in shapes), default=0)
    if largest > most:
        raise PeerError(f"{host} sent {largest} candidates for one node; {most} is the most")
    return shapes


def write_shapes(shapes: Sequence[Shape]) -> pb.CandidateSums:
    """Return the message without its sums."""
    counts = np.array([shape.candidates for shape in shapes], np.int32)
    message = pb.CandidateSums(candidates=wire.pack(counts))
    if any(shape.categories for shape in shapes):
        columns = np.array([len(shape.categories) for shape in shapes], np.int32)
        grouped = np.array([n for shape in shapes for n in shape.categories], np.int32)
        missing = np.array([lacks for shape in shapes for lacks in shape.missing], np.bool_)
        message.columns.CopyFrom(wire.pack(columns))
        message.categories.CopyFrom(wire.pack(grouped))
        message.missing.CopyFrom(wire.pack_bits(missing))
    return message
