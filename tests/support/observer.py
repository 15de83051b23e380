"""What an observer of all that left a host adds up by itself, to hold the host's account to.

It reads bytes as they leave, in their order, what came in to which they answer, and what the
coordinator is answered. It knows the job, and how many columns, rows and values each has; of meter,
charges and account it knows nothing.

A store that is restored from a backup forgets what has left since. So what leaves belongs to an
era, and what is added up is of those that the store remembers.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from google.protobuf.message import Message

from fedboost import protocols
from fedboost.core.params import MAX_DEPTH
from fedboost.crypto import id_digests
from fedboost.crypto.intersection import POINT_BYTES
from fedboost.ground import wire
from fedboost.ground.ids import EncodedIds
from fedboost.messages.exchange_pb2 import Envelope
from fedboost.protocols.federboost_vertical import buckets
from fedboost.runtime.cluster import local
from fedboost.runtime.party.node.node import PartyNode
from fedboost.runtime.transport.identity import Peer

STRIDE = 1 << (MAX_DEPTH + 1)
ALIGNMENTS = ("align", "align-pairs")
PREDICTIONS = ("predict", "predict-hybrid")
ANSWERS = ("Directions", "LeafPlaces", "LeafAnswers")  # about rows, of a prediction
TELLING = ("CandidateSums", "RowDivisions", "BucketIds", *ANSWERS)
Nodes = set[int]


@dataclass(frozen=True)
class Left:
    """One message that has left its sender, or was taken in by its receiver for the first time."""

    envelope: Envelope
    message: Any
    is_taken: bool = False
    era: int = 0


@dataclass(frozen=True)
class Closed:
    """A party has closed an alignment: its rows in common are those from here on."""

    job: str
    attempt: int
    before: int  # how many messages had left and come by then, `Left.place` of the next
    era: int


@dataclass(frozen=True)
class Answer:
    """What the coordinator was answered about labels, once: the same again is not another."""

    job: str
    attempt: int
    values: int  # metrics, points of curves
    splits: frozenset[str]  # whose metrics
    before: int  # how many messages had left and come by then
    era: int


@dataclass
class Layers:
    """What the sums of one job have told in one attempt."""

    opened: list[int] = field(default_factory=list)  # that sums are asked for
    told: Nodes = field(default_factory=set)  # of this layer
    above: Nodes = field(default_factory=set)


@dataclass
class Observer:
    """All messages of a cluster in one process, in the order in which they left."""

    left: list[Left] = field(default_factory=list)
    answers: dict[tuple[Any, ...], Answer] = field(default_factory=dict)
    unanswered: set[str] = field(default_factory=set)  # jobs of which a call was refused
    asked: list[tuple[str, int]] = field(default_factory=list)  # job and era of an alignment
    closed: list[Closed] = field(default_factory=list)
    deepest: dict[str, int] = field(default_factory=dict)  # layers of which sums were told, by job
    _now: int = 0
    _remembered: set[int] = field(default_factory=lambda: {0})

    def era(self, restored: frozenset[int] | None = None) -> frozenset[int]:
        """Begins another era behind those that a store remembers now, or did when it was copied;
        gives these.
        """
        before = frozenset(self._remembered) if restored is None else restored
        self._now += 1
        self._remembered = {*before, self._now}
        return before

    @property
    def kept(self) -> list[Left]:
        """What has left and come in the eras that are remembered."""
        return [one for one in self.left if one.era in self._remembered]

    def asks(self, name: str, request: Any) -> None:
        """The coordinator calls a party; nothing has been answered yet."""
        if name == "open_stage" and request.stage in ALIGNMENTS:
            self.asked.append((request.job, self._now))

    def hears(self, name: str, request: Any, reply: Any) -> None:
        """What a party answers to a call of the coordinator's."""
        if name == "close_stage" and request.stage in ALIGNMENTS:
            own = Closed(request.job, request.attempt, len(self.left), self._now)
            self.closed.append(own)
        numbers: tuple[int, ...] = ()
        told = []
        if name == "run_step":
            told = [turn.told for turn in reply.turns]
            numbers = tuple(turn.number for turn in request.turns)
        elif name == "open_stage":
            told = [reply.told]
        values = sum(map(_values, told))
        if values:
            said = b"".join(one.SerializeToString(deterministic=True) for one in told)
            key = request.job, request.attempt, request.stage, numbers, said, self._now
            splits = frozenset().union(*map(_splits, told))
            self.answers[key] = Answer(
                *(request.job, request.attempt, values, splits, len(self.left), self._now)
            )

    def refused(self, name: str, request: Any) -> None:
        """A call of the coordinator's ended in an error, which says nothing of labels."""
        if name in ("run_step", "open_stage"):
            self.unanswered.add(request.job)

    @contextmanager
    def watching(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        """Sees what leaves, before it arrives, and what is taken in, before it is answered."""
        deliver, accept = local.LocalLinks.deliver, PartyNode.accept

        async def seen(links: local.LocalLinks, envelope: Envelope, payload: bytes) -> None:
            self.left.append(_read(envelope, payload, self._now, is_taken=False))
            await deliver(links, envelope, payload)

        async def taken(node: PartyNode, caller: Peer, envelope: Envelope, payload: bytes) -> bool:
            one = _read(envelope, payload, self._now, is_taken=True)
            self.left.append(one)
            is_known = True
            try:
                is_known = await accept(node, caller, envelope, payload)
            finally:
                if is_known:
                    one.envelope.receiver = ""  # nobody's: it was taken in before
            return is_known

        with monkeypatch.context() as patched:
            patched.setattr(local.LocalLinks, "deliver", seen)
            patched.setattr(PartyNode, "accept", taken)
            yield

    def sums(self, host: str, columns: int, values: int) -> dict[str, tuple[int, int]]:
        """Of each job: equations about any bin of each of `columns`, and divisions of nodes."""
        found: dict[str, tuple[int, int]] = {}
        under_way: dict[tuple[str, int], Layers] = {}
        for one in self.in_turn(host):
            e, name = one.envelope, type(one.message).__name__
            layers = under_way.setdefault((e.job, e.attempt), Layers())
            if one.is_taken and e.receiver == host:
                _asked(layers, name, one.message)
            elif one.is_taken:
                continue
            elif e.sender == host and name == "CandidateSums":
                more = columns * values * _independent(layers, one.message)
                if e.stage == "secureboost":
                    most = max((layer_of(n) for n in layers.told), default=0)
                    self.deepest[e.job] = max(most, self.deepest.get(e.job, 0))
                sums, divisions = found.get(e.job, (0, 0))
                found[e.job] = sums + more, divisions
            elif e.sender == host and name == "RowDivisions":
                sums, divisions = found.get(e.job, (0, 0))
                nodes = wire.unpack(one.message.nodes, "i4", (None,), "nodes")
                found[e.job] = sums, divisions + len(nodes)
        return found

    def in_turn(self, host: str) -> Iterator[Left]:
        """What a host took in and gave, as its steps did: what comes before its step waits for it.

        A message of the host answers those of lower numbers that had come by then; of a step that
        the coordinator has called by too high a number, no later ones.
        """
        waiting: dict[tuple[str, int, str], list[Left]] = {}
        for one in self.kept:
            e = one.envelope
            come = waiting.setdefault((e.job, e.attempt, e.stage), [])
            if one.is_taken and e.receiver == host:
                come.append(one)
            elif not one.is_taken and e.sender == host:
                answered = [own for own in come if own.envelope.number < e.number]
                yield from sorted(answered, key=lambda own: own.envelope.number)
                come[:] = [own for own in come if own.envelope.number >= e.number]
                yield one

    def answered(self, host: str) -> dict[str, int]:
        """Of each job: how many times a host has told the leaf of every row in a tree."""
        told = [one.envelope for one in self.kept if not one.is_taken]
        steps = {
            (e.job, e.attempt, e.stage, e.number)
            for e in told
            if e.sender == host and (e.stage, e.step) == ("hybridtree", "answer_rows")
        }
        return Counter(job for job, *_ in steps)

    def noise(self, host: str, epsilon: float) -> dict[str, float]:
        """Of each job the ε of a host's rows, so much for each value, of the same bytes once."""
        seen: set[tuple[str, bytes]] = set()
        found: dict[str, float] = {}
        for one in self._leaving(host, "BucketIds"):
            key = one.envelope.job, one.envelope.payload_sha256
            if key not in seen:
                seen.add(key)
                found[key[0]] = found.get(key[0], 0.0) + epsilon * _columns(one.message)
        return found

    def messages(self, host: str) -> dict[str, int]:
        """Of each job the messages with sums, sides, leaves or values that have left a host."""
        told = [one for kind in TELLING for one in self._leaving(host, kind)]
        return Counter(one.envelope.job for one in told)

    def predicted(self, host: str) -> int:
        """Different rows, told apart by job, that a host has said anything about."""
        return sum(len(rows) for rows in self.questions(host).values())

    def people(self, host: str, ids: Sequence[bytes]) -> dict[str, int]:
        """Of each job about how many of some ids a host has said anything, in all attempts."""
        common = self.ids_in_common(ids)
        found: dict[str, set[bytes]] = {}
        for (job, place), rows in self._questions(host).items():
            own = common[job, self.aligned(job, place)]
            found.setdefault(job, set()).update(own[row] for row in rows)
        return {job: len(own) for job, own in found.items()}

    def questions(self, host: str) -> dict[str, set[int]]:
        """Of each job the different rows that a host has said anything about."""
        found: dict[str, set[int]] = {}
        for (job, _), rows in self._questions(host).items():
            found.setdefault(job, set()).update(rows)
        return found

    def _questions(self, host: str) -> dict[tuple[str, int], set[int]]:
        """The same at each place among the messages at which it said so."""
        indices = {id(one): place for place, one in enumerate(self.left)}
        asked: dict[tuple[str, int], set[int]] = {}  # and not answered yet
        told: dict[tuple[str, int], set[int]] = {}
        for one in self.in_turn(host):
            e, name = one.envelope, type(one.message).__name__
            rows: Any = ()
            if one.is_taken and e.receiver == host and name == "Questions":
                rows = wire.unpack(one.message.rows, "i4", (None,), "rows").tolist()
            elif one.is_taken and e.receiver == host and name == "BottomPlaces":
                first = one.message.first_row
                rows = range(first, first + one.message.rows)
            elif not one.is_taken and e.sender == host and e.stage in PREDICTIONS:
                told[e.job, indices[id(one)]] = asked.pop((e.job, e.attempt), set())
            asked.setdefault((e.job, e.attempt), set()).update(rows)
        return told

    def predicting(self, host: str) -> dict[str, int]:
        """Of each job in which a host has answered about rows, the most it has had in common."""
        found: dict[str, int] = {}
        for place, one in enumerate(self.left):
            e = one.envelope
            answers = type(one.message).__name__ in ANSWERS and e.stage in PREDICTIONS
            if not one.is_taken and e.sender == host and answers and self._is_kept(one):
                found[e.job] = max(found.get(e.job, 0), self._rows(host, e.job, place))
        return found

    def _rows(self, host: str, job: str, place: int) -> int:
        """How many rows in common a host has named in the alignment that counted then."""
        attempt = self.aligned(job, place)
        told = [
            one.message.rows
            for one in self._leaving(host, "RowsDigest")
            if (one.envelope.job, one.envelope.attempt) == (job, attempt)
        ]
        return int(told[-1])

    def aligned(self, job: str, place: int) -> int:
        """The attempt whose alignment counts in a job behind so many messages."""
        done = [one for one in self.closed if one.job == job and one.era in self._remembered]
        return [one.attempt for one in done if one.before <= place][-1]

    def opened(self, host: str, n_ids: int) -> dict[str, int]:
        """Of each job the ids of a table of `n_ids` that a host has opened to another, or may have:
        of a pair, whoever gets its set back can open all that both have.
        """
        found: Counter[str] = Counter()
        for one in self._leaving(host, "CommonSet"):
            found[one.envelope.job] += one.message.points
        for one in self._leaving(host, "ReturnedSet"):
            found[one.envelope.job] += min(n_ids, one.message.points)
        return found

    def brought(self, host: str) -> dict[str, int]:
        """Of each job the ids of others that a host has answered about: in sets that it has
        blinded and passed on or sent back.
        """
        found: Counter[str] = Counter()
        for kind in ("ReturnedSet", "BlindedSet", "FullSet"):
            for one in self._leaving(host, kind):
                is_own = kind == "BlindedSet" and one.message.origin == host
                found[one.envelope.job] += 0 if is_own else one.message.points
        return +found

    def fewest_opened(self, host: str) -> int:
        """The fewest ids that a host has opened at once; many where it has opened none."""
        sets = [one.message.points for one in self._leaving(host, "CommonSet")]
        return min(sets, default=1 << 62)

    def strange_points(self, host: str) -> int:
        """Points that a host has unblinded and that nobody had sent it in a guest's set."""
        came: dict[tuple[str, int], set[bytes]] = {}
        for one in self.kept:
            e, name = one.envelope, type(one.message).__name__
            if one.is_taken and e.receiver == host and name == "BlindedSet":
                came.setdefault((e.job, e.attempt), set()).update(_points(one.message))
        return sum(
            len(_points(one.message) - came.get((one.envelope.job, one.envelope.attempt), set()))
            for one in self._leaving(host, "CommonSet")
        )

    def alignments(self, host: str) -> dict[str, int]:
        """Of each peer the sets of ids that a host has blinded and told it: one for each job and
        attempt.
        """
        told = {
            (e.receiver, e.job, e.attempt)
            for kind in ("BlindedSet", "HostSet")
            for e in (one.envelope for one in self._leaving(host, kind))
        }
        return Counter(peer for peer, *_ in told)

    def alignments_asked(self) -> dict[str, int]:
        """Of each job how often its alignment was opened, or tried to."""
        return Counter(job for job, era in self.asked if era in self._remembered)

    def ids_in_common(self, ids: Sequence[bytes]) -> dict[tuple[str, int], list[bytes]]:
        """Which of some ids a guest has named in each job and attempt, in canonical order."""
        found = {}
        for one in self.kept:
            e, got = one.envelope, one.message
            if not one.is_taken and type(got).__name__ == "CommonDigests":
                rows = id_digests.named_rows(EncodedIds.of(ids), got.key, got.ids, got.data)
                found[e.job, e.attempt] = sorted(ids[row] for row in rows)
        return found

    def told_twice(self, host: str, ids: Sequence[bytes]) -> int:
        """Noisy values that a host has told differently of one id and column in one job."""
        common = self.ids_in_common(ids)
        known: dict[tuple[str, bytes, int], int] = {}
        changed = 0
        for place, one in enumerate(self.left):
            job, name = one.envelope.job, type(one.message).__name__
            if one.is_taken or name != "BucketIds" or not self._is_kept(one):
                continue
            rows = common[job, self.aligned(job, place)]
            told = buckets.read_message(one.message, len(rows), host, 1 << 30).ids
            for row, values in zip(rows, told.tolist(), strict=True):
                for column, value in enumerate(values):
                    changed += known.setdefault((job, row, column), value) != value
        return changed

    def rewritten(self, party: str) -> int:
        """Places of one attempt in which a party has sent two different messages."""
        seen: dict[tuple[Any, ...], bytes] = {}
        changed = 0
        for one in self.kept:
            e = one.envelope
            if not one.is_taken and e.sender == party:
                place = e.job, e.attempt, e.stage, e.step, e.number, e.part, e.receiver
                changed += seen.setdefault(place, e.payload_sha256) != e.payload_sha256
        return changed

    def metrics(self) -> dict[str, int]:
        """Of each job the values about labels that its coordinator was answered."""
        found: Counter[str] = Counter()
        for one in self.remembered_answers():
            found[one.job] += one.values
        return found

    def remembered_answers(self) -> list[Answer]:
        """Those in the eras that are remembered."""
        return [one for one in self.answers.values() if one.era in self._remembered]

    def _leaving(self, party: str, kind: str) -> Iterator[Left]:
        """The messages of a kind that have left a party, as far as that is remembered."""
        for one in self.kept:
            is_own = not one.is_taken and one.envelope.sender == party
            if is_own and type(one.message).__name__ == kind:
                yield one

    def _is_kept(self, one: Left) -> bool:
        return one.era in self._remembered


def _read(envelope: Envelope, payload: bytes, era: int, *, is_taken: bool) -> Left:
    """A message and what it says."""
    kinds = protocols.load_protocol(envelope.stage).flow
    [kind] = {s.gives for s in kinds if s.name == envelope.step and s.gives is not None}
    message = wire.decode(kind, payload, envelope.sender)
    return Left(Envelope.FromString(envelope.SerializeToString()), message, is_taken, era)


def _asked(layers: Layers, name: str, message: Message) -> None:
    """A message to the host that asks for sums."""
    if name == "EncryptedGradients" and not message.first_row:  # type: ignore[attr-defined]
        layers.told = set()
    elif name == "BottomRows" and not message.gradients.first_row:  # type: ignore[attr-defined]
        layers.told, layers.opened = set(), _nodes(message.open)  # type: ignore[attr-defined]
    elif name in ("Frontier", "ChosenSplits"):
        layers.opened = _nodes(message.open)  # type: ignore[attr-defined]
    else:
        return
    if name != "EncryptedGradients":
        layers.above, layers.told = layers.told, set()


def layer_of(number: int) -> int:
    """In which layer of its tree a node is, from 1."""
    return (number % STRIDE + 1).bit_length()


def _points(message: Any) -> set[bytes]:
    data = message.data
    return {data[i : i + POINT_BYTES] for i in range(0, len(data), POINT_BYTES)}


def _values(told: Any) -> int:
    """Metrics, also of rounds and of the best, and the points of curves."""
    curves = [len(wire.unpack(one.x, one.x.dtype, (None,), "a curve")) for one in told.curves]
    return (
        len(told.metrics) + len(told.best) + sum(len(r.metrics) for r in told.rounds) + sum(curves)
    )


def _splits(told: Any) -> frozenset[str]:
    """Return the parts of the rows that metrics and curves are about."""
    rounds = [metric for one in told.rounds for metric in one.metrics]
    return frozenset(one.split for one in (*told.metrics, *told.best, *told.curves, *rounds))


def _nodes(array: Any) -> list[int]:
    return [int(node) for node in wire.unpack(array, "i4", (None,), "the open nodes").tolist()]


def _independent(layers: Layers, part: Any) -> int:
    """Of the nodes whose sums begin in a part, how many are not a parent less a sibling."""
    if not part.HasField("candidates"):
        return 0
    counts = wire.unpack(part.candidates, "i4", (None,), "candidates")
    nodes, layers.opened = layers.opened[: len(counts)], layers.opened[len(counts) :]
    fresh = 0
    for number, count in zip(nodes, counts.tolist(), strict=True):
        tree, node = divmod(number, STRIDE)
        beside = tree * STRIDE + (node + 1 if node % 2 else node - 1)
        parent = tree * STRIDE + (node - 1) // 2
        if count:
            known = node > 0 and beside in layers.told and parent in layers.above
            fresh += not known
            layers.told.add(number)
    return fresh


def _columns(message: Any) -> int:
    return len(wire.unpack(message.buckets, "i4", (None,), "the buckets of columns"))
