"""An observer who reads single rows out of what left a host, by whatever a guest has put in.

It knows the numbers of each row that went to the host, the nodes that the rows were in, the sums
and divisions that came back, and from all of them which rows must be on which side. Whose candidate
a sum is it is told for free, by the host's true bins, as far as these leave no doubt: so it reads
no less than a guest that finds that out. Of the host's meter and account it knows nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fedboost.core.partition import left_child, right_child
from fedboost.crypto import plain
from fedboost.crypto.api import Ciphertexts
from fedboost.crypto.packing import GhLayout
from fedboost.encrypted.scheme import keys
from fedboost.ground import wire
from fedboost.ground.arrays import Bits
from fedboost.ground.errors import FedboostError, PeerError
from fedboost.ground.workers import Serial
from fedboost.protocols.hybridtree import host as hybridtree_host
from fedboost.protocols.secureboost import host as secureboost_host
from tests.support.observer import Left, Observer
from tests.support.row_decoding import leverage, members

Node = NDArray[np.int64]  # the rows that are in it, ascending
STAGES = ("secureboost", "hybridtree")


@dataclass(frozen=True, eq=False)
class HostTable:
    """A host's rows as they are in one attempt: the truth, by which readings are judged."""

    job: str
    before: int  # how many messages had left and come when it began
    params: Any
    ids: tuple[bytes, ...]
    bins: NDArray[np.int64]  # (rows, columns)
    n_bins: NDArray[np.int64]  # (columns,)
    learnt: Bits  # (rows,) those that are not held out

    def shares(self, column: int) -> NDArray[np.float64]:
        """The share of rows in each bin."""
        counts = np.bincount(self.bins[:, column], minlength=int(self.n_bins[column]))
        shares: NDArray[np.float64] = counts / max(1, len(self.bins))
        return shares


@dataclass
class Known:
    """Which bins of each row are still possible, by column bool (rows, bins)."""

    table: HostTable
    possible: list[NDArray[np.bool_]] = field(default_factory=list)

    def __post_init__(self) -> None:
        rows = len(self.table.bins)
        self.possible = [np.ones((rows, n), np.bool_) for n in self.table.n_bins.tolist()]

    def narrow(self, cuts: list[tuple[int, int]], rows: Node, goes_right: NDArray[Any]) -> None:
        """Rows are on one side of a cut: 1 right of it, 0 left, −1 unknown.

        Of several cuts that it may be, of one column, the widest side counts; of several columns
        none.
        """
        columns = {column for column, _ in cuts}
        if len(columns) != 1:
            return
        [column] = columns
        places = [place for _, place in cuts]
        self.possible[column][rows[goes_right == 0], max(places) + 1 :] = False
        self.possible[column][rows[goes_right == 1], : min(places) + 1] = False

    def placed(self, column: int) -> NDArray[np.float64]:
        """Return how far each row is placed: bits that are known of its bin over those that it
        takes, and no more than 1.

        The account counts bits over the entropy H of the column's bins. To know the bin of one row
        takes log2 of 1 over the share of rows in it, which is H on average. A row of a rare bin
        takes more, and is one row all the same; in tables of few rows it would be counted as
        several.
        """
        shares = self.table.shares(column)
        held = shares[shares > 0.0]
        entropy = float(-(held * np.log2(held)).sum())
        if not entropy:
            return np.zeros(len(self.table.bins))
        left = np.where(self.possible[column], shares, 0.0).sum(axis=1)
        assert (left > 0.0).all(), "a reading is wrong"
        truth = self.possible[column][np.arange(len(left)), self.table.bins[:, column]]
        assert truth.all(), "a reading is wrong"
        shown: NDArray[np.float64] = np.clip(-np.log2(left) / entropy, 0.0, 1.0)
        return shown


@dataclass
class Trees:
    """What an attempt is about as messages say it: numbers of rows, and where rows are."""

    table: HostTable
    layout: GhLayout | None = None
    taking_part: Node = field(default_factory=lambda: np.empty(0, np.int64))
    numbers: NDArray[np.int64] = field(default_factory=lambda: np.zeros((0, 2), np.int64))  # (n, 2)
    filled: int = 0
    nodes: dict[int, Node] = field(default_factory=dict)
    opened: list[int] = field(default_factory=list)


class RowReader:
    """Reads what the observer has kept of one host's jobs."""

    def __init__(self, observer: Observer, host: str) -> None:
        self._observer, self._host = observer, host
        self._tables: list[HostTable] = []
        self.fewest_left_out: float = inf  # training rows that a tree with sums has left out

    def patches(self, patched: pytest.MonkeyPatch) -> None:
        """Takes down the host's rows whenever a stage of its begins."""
        for module in (secureboost_host, hybridtree_host):
            patched.setattr(module, "begin", self._taking_down(module.begin))

    def _taking_down(self, begin: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def begun(context: Any) -> Any:
            host = begin(context)
            if context.party == self._host:
                bins, n_bins = np.asarray(host.bins), host.binning.n_bins.astype(np.int64)
                ids = tuple(context.data.ids)
                before = len(self._observer.left)
                self._tables.append(
                    HostTable(
                        *(context.job, before, context.params, ids),
                        *(bins.astype(np.int64), n_bins, ~context.validation),
                    )
                )
            return host

        return begun

    # Values

    def placed(self) -> dict[str, dict[int, float]]:
        """Of each job the rows placed in each column, by the rows that it learns from; 1 at most.

        Of an id that several attempts are about the better reading counts.
        """
        by_id: dict[tuple[str, int], dict[bytes, float]] = {}
        learnt: dict[str, int] = {}
        for known in self.known():
            job = known.table.job
            learnt[job] = max(learnt.get(job, 1), int(np.count_nonzero(known.table.learnt)))
            for column in range(len(known.possible)):
                best = by_id.setdefault((job, column), {})
                for one, share in zip(known.table.ids, known.placed(column), strict=True):
                    best[one] = max(best.get(one, 0.0), float(share))
        found: dict[str, dict[int, float]] = {}
        for (job, column), best in by_id.items():
            found.setdefault(job, {})[column] = min(1.0, sum(best.values()) / learnt[job])
        return found

    def known(self) -> list[Known]:
        """Return what is known of the rows of each attempt; attempts about the same rows and bins
        of one job are read together.
        """
        found: dict[Any, Known] = {}
        trees: dict[tuple[str, int], Trees] = {}
        for table, one in self._messages():
            key = table.job, table.ids, table.bins.tobytes()
            known = found.setdefault(key, Known(table))
            attempt = one.envelope.job, one.envelope.attempt
            state = trees.get(attempt)
            if state is None or state.table is not table:
                state = trees[attempt] = self._begun(trees, table)
            if one.is_taken:
                with suppress(FedboostError):  # the host refuses it, too
                    _hear(state, one.message)
            elif type(one.message).__name__ == "CandidateSums":
                _read_sums(state, one.message, known)
                self._note_left_out(state)
            elif type(one.message).__name__ == "RowDivisions":
                _read_divisions(state, one.message, known, one.envelope.stage)
        return [*found.values()]

    def _note_left_out(self, state: Trees) -> None:
        count = int(np.count_nonzero(state.table.learnt)) - len(state.taking_part)
        if state.layout is not None and count:
            self.fewest_left_out = min(count, self.fewest_left_out)

    @staticmethod
    def _begun(trees: Mapping[tuple[str, int], Trees], table: HostTable) -> Trees:
        """An attempt's trees; where an earlier one has left some about the same rows, in these."""
        for (job, _), before in reversed([*trees.items()]):
            if job == table.job and before.table.ids == table.ids:
                return Trees(table, nodes=dict(before.nodes))
        return Trees(table)

    def _messages(self) -> Iterator[tuple[HostTable, Left]]:
        """What the host took in and gave while it trained, as its steps did, with its rows then."""
        places = {id(one): place for place, one in enumerate(self._observer.left)}
        for one in self._observer.in_turn(self._host):
            if one.envelope.stage in STAGES:
                place = places[id(one)]
                tables = [
                    table
                    for table in self._tables
                    if table.job == one.envelope.job and table.before <= place
                ]
                if tables:  # else a message that came before its stage
                    yield tables[-1], one

    # Rows

    def held_out(self) -> dict[str, int]:
        """Of each job the rows held out that its guest can score: where it knows their sides or
        leaves.
        """
        found: dict[str, int] = {}
        for table, one in self._messages():
            name = type(one.message).__name__
            divides = name == "RowDivisions" and _nodes(one.message.nodes)
            if not one.is_taken and (divides or name == "LeafAnswers"):
                count = len(table.ids) - int(np.count_nonzero(table.learnt))
                found[table.job] = max(count, found.get(table.job, 0))
        return {job: count for job, count in found.items() if count}

    def row_sets(self) -> list[frozenset[bytes]]:
        """The sets of rows that sums, sides or leaves of any job that are kept are about."""
        found: dict[frozenset[bytes], None] = {}
        for table, one in self._messages():
            told = type(one.message).__name__ in ("CandidateSums", "RowDivisions", "LeafAnswers")
            if not one.is_taken and told:
                learnt = np.flatnonzero(table.learnt).tolist()
                found[frozenset(table.ids[row] for row in learnt)] = None
        return [*found]

    def fewest_told(self) -> float:
        """Return about how many rows the combination of sums of all jobs is that is about the
        fewest; many where there are no sums.
        """
        sets = [some for some in self.row_sets() if some]
        people = sorted(frozenset().union(*sets))
        if not sets:
            return inf
        columns = [np.array([person in some for person in people]) for some in sets]
        return float(1.0 / leverage(columns).max())


def _hear(state: Trees, message: Any) -> None:
    """A message to the host: numbers, nodes, divisions of others."""
    name = type(message).__name__
    if name == "EncryptionKey":
        params, rows = state.table.params, int(np.count_nonzero(state.table.learnt))
        if getattr(params, "split", "scored") == "scored":
            bits = plain.PLAINTEXT_BITS
            state.layout = keys.gh_layout(params, message.value_bits, rows, bits)
    elif name == "EncryptedGradients":
        _fill(state, message)
    elif name == "BottomRows":
        _fill(state, message.gradients)
        if message.HasField("at") and _is_first(message.gradients):
            at = np.array(_nodes(message.at))
            state.nodes = {int(n): np.flatnonzero(at == n) for n in np.unique(at) if n >= 0}
            state.opened = _nodes(message.open)
    elif name == "ChosenSplits":
        state.opened = _nodes(message.open)
    elif name == "Frontier":
        _follow(state, message)


def _is_first(gradients: Any) -> bool:
    return not gradients.first_row


def _fill(state: Trees, part: Any) -> None:
    """Numbers of the rows that take part, as they are in the clear."""
    if state.layout is None:
        return
    (training,) = np.nonzero(state.table.learnt)
    if _is_first(part):
        state.taking_part = training
        if part.HasField("taking_part"):
            chosen = wire.unpack_bits(part.taking_part, len(training), "rows")
            state.taking_part = training[chosen]
        state.numbers = np.zeros((len(state.table.bins), 2), np.int64)
        state.filled = 0
    data, width, shift = part.rows.data, plain.PLAIN_WIDTH, state.layout.h_bits
    if state.filled + len(data) // width > len(state.taking_part):
        raise PeerError("gradients of more rows than take part")
    for start in range(0, len(data), width):
        number = int.from_bytes(data[start : start + width], "big")
        if number >> 8 * width - 1:
            number -= 1 << 8 * width
        hessian = number & (1 << shift) - 1
        row = state.taking_part[state.filled]
        state.numbers[row] = (number - hessian) >> shift, hessian
        state.filled += 1


def _follow(state: Trees, message: Any) -> None:
    """How the rows of the layer above have divided."""
    state.opened = _nodes(message.open)
    if state.opened == [0]:
        state.nodes = {0: np.arange(len(state.table.bins))}
        return
    divided = _nodes(message.divided)
    known = [state.nodes.get(node, np.empty(0, np.int64)) for node in divided]
    bits = wire.unpack_bits(message.goes_right, sum(map(len, known)), "divisions")
    _divide(state, divided, bits)


def _divide(state: Trees, nodes: list[int], bits: Bits) -> None:
    for node in nodes:
        rows = state.nodes.get(node, np.empty(0, np.int64))
        goes_right, bits = bits[: len(rows)], bits[len(rows) :]
        state.nodes[left_child(node)] = rows[~goes_right]
        state.nodes[right_child(node)] = rows[goes_right]


def _read_sums(state: Trees, message: Any, known: Known) -> None:
    """Reads which rows must be left of each candidate, and whose candidate it is."""
    if state.layout is None or not message.HasField("candidates"):
        return
    counts = wire.unpack(message.candidates, "i4", (None,), "candidates").tolist()
    nodes, state.opened = state.opened[: len(counts)], state.opened[len(counts) :]
    if not nodes:
        return
    key = plain.generate(0, Serial())
    packages = Ciphertexts.received(
        message.packages.data, message.packages.count, plain.PLAIN_WIDTH
    )
    sums = key.decrypt(packages, state.layout, counts)
    learns = np.zeros(len(state.table.bins), np.bool_)
    learns[state.taking_part] = True
    for node, of_node in zip(nodes, np.split(sums, np.cumsum(counts)[:-1]), strict=True):
        rows = state.nodes.get(node, np.empty(0, np.int64))
        rows = rows[learns[rows]]
        numbers = state.numbers[rows]
        cuts = _cuts(state.table)
        lefts = np.array([state.table.bins[rows, column] <= place for column, place in cuts])
        true = lefts.astype(np.int64) @ numbers
        sides = members(numbers, of_node)
        for total, is_left in zip(of_node, sides, strict=True):
            possible = np.flatnonzero((true == total).all(axis=1)).tolist()
            goes_right = np.where(is_left < 0, -1, 1 - is_left)
            known.narrow([cuts[place] for place in possible], rows, goes_right)


def _read_divisions(state: Trees, message: Any, known: Known, stage: str) -> None:
    """Reads the side of every row of won nodes."""
    nodes = _nodes(message.nodes)
    inside = [state.nodes.get(node, np.empty(0, np.int64)) for node in nodes]
    bits = wire.unpack_bits(message.goes_right, sum(map(len, inside)), "divisions")
    cuts = _cuts(state.table)
    ends = np.cumsum([len(rows) for rows in inside])[:-1]
    sides = np.split(bits, ends) if nodes else []
    for rows, goes_right in zip(inside, sides, strict=True):
        fitting = [
            (column, place)
            for column, place in cuts
            if np.array_equal(state.table.bins[rows, column] > place, goes_right)
        ]
        known.narrow(fitting, rows, goes_right.astype(np.int8))
    if stage == "hybridtree":  # of secureboost the guest says how all nodes divide
        _divide(state, nodes, bits)


def _cuts(table: HostTable) -> list[tuple[int, int]]:
    """All cuts: a column, and the last bin on their left."""
    n_bins = table.n_bins.tolist()
    return [(column, place) for column, n in enumerate(n_bins) for place in range(n - 1)]


def _nodes(array: Any) -> list[int]:
    return [int(node) for node in wire.unpack(array, "i4", (None,), "nodes").tolist()]
