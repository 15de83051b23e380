"""What a host of secureboost sees of its rows: which of them stand together, tree after tree."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedboost.core.metrics import evaluate
from tests.support.federated import Posted, Room

Bits = NDArray[np.bool_]


@dataclass(frozen=True)
class StatusReport:
    """A division that the guest told a host: the node, and the rows on its two sides."""

    tree: int
    node: int
    left: NDArray[np.int64]
    right: NDArray[np.int64]
    open: frozenset[int]  # the nodes that are open to the host from then on


@dataclass(frozen=True)
class Sight:
    """All that a host saw of a job whose trees grow one by one."""

    told: list[StatusReport]
    nodes: NDArray[np.int64]  # (rows, trees) the last node of each row that the host knew


def of_host(room: Room, host: str, n_rows: int) -> Sight:
    """Follows the messages between guest and host."""
    told, trees = list[StatusReport](), list[NDArray[np.int64]]()
    own: Posted | None = None  # the host's last divisions, which the guest may say again
    for posted in room.posted:
        message, kind = posted.message, posted.message.DESCRIPTOR.name
        if kind == "RowDivisions" and posted.envelope.sender == host:
            own = posted
        if posted.envelope.receiver != host:
            continue
        if kind == "EncryptedGradients" and not message.first_row:
            _last(trees, own)
            trees.append(np.zeros(n_rows, np.int64))
            own = None
        if kind == "Frontier":
            opened, own = frozenset(np.frombuffer(message.open.data, np.int32).tolist()), None
            for node, left, right in _divide(trees[-1], message.divided.data, message):
                told.append(StatusReport(len(trees) - 1, node, left, right, opened))
    _last(trees, own)
    return Sight(told, np.stack(trees, axis=1))


def label_auc(nodes: NDArray[np.int64], positive: Bits, known: Sequence[int]) -> float:
    """How well a host that knows the labels of some rows ranks the others': by how often a row
    shares a node with known rows of either class, each class counted alike.
    """
    own, others = np.array(known), np.setdiff1d(np.arange(len(positive)), known)
    alike = (nodes[others, None, :] == nodes[None, own, :]).mean(axis=2)
    score = alike[:, positive[own]].mean(axis=1) - alike[:, ~positive[own]].mean(axis=1)
    return evaluate("auc", positive[others].astype(np.float64), score)


def _last(trees: list[NDArray[np.int64]], own: Posted | None) -> None:
    """What the host itself divided in a tree's last layer, which nobody says again."""
    if trees and own is not None:
        for _ in _divide(trees[-1], own.message.nodes.data, own.message):
            pass


def _divide(
    at: NDArray[np.int64], numbers: bytes, message: object
) -> Iterator[tuple[int, NDArray[np.int64], NDArray[np.int64]]]:
    """Moves the rows of the nodes with these numbers as the message's `goes_right` says."""
    data: bytes = message.goes_right.data  # type: ignore[attr-defined]
    bits, first = np.unpackbits(np.frombuffer(data, np.uint8)).astype(np.bool_), 0
    for node in np.frombuffer(numbers, np.int32).tolist():
        (rows,) = np.nonzero(at == node)
        right, first = bits[first : first + len(rows)], first + len(rows)
        at[rows] = 2 * node + 1 + right
        yield node, rows[~right], rows[right]
