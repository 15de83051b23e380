"""Sums under masks without sessions: contributors, their aggregator and a hand that asks them.

Every message is encoded and decoded on its way, and may be changed there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
from google.protobuf.message import Message
from numpy.typing import NDArray

from fedboost.aggregation import aggregator
from fedboost.aggregation.aggregator import Aggregator
from fedboost.aggregation.contributor import Contributor
from fedboost.aggregation.statistic import Statistic
from fedboost.aggregation.sums import Aggregation
from fedboost.crypto.secrets import Secrets
from fedboost.flow import (
    AGGREGATOR,
    GUEST,
    HOST,
    MemoryNotebook,
    StageAttempt,
    StageContext,
    StageSecrets,
    StageServices,
    Table,
)
from fedboost.ground import wire
from fedboost.ground.workers import Serial
from fedboost.messages.array_pb2 import Array
from fedboost.messages.protocol.aggregation_pb2 import Masked, RevealedShares, Total
from fedboost.runtime.config.policy import Policy
from tests.support.federated import Hand

Vector = NDArray[np.int64]
M = TypeVar("M", bound=Message)

ADDER = "sum"
MOST = 1 << 62
WHAT = Statistic("a sum")
# When a host may be lost, in the order of a sum: before it does this, or right after `gave`.
PHASES = ("offer", "deal", "hold", "give", "gave", "sign", "reveal")


def names(count: int) -> tuple[str, ...]:
    """So many parties; the first is the guest."""
    return tuple(f"p{i:02d}" for i in range(count))


def contexts(
    count: int,
    *,
    attempt: int = 1,
    pads: Mapping[str, MemoryNotebook] | None = None,
    **settings: Any,
) -> dict[str, StageContext[Any]]:
    """Seats of contributors and of an aggregator apart, the same in every run.

    `least` is what every policy asks for; the other settings are the job's.
    """
    limits = Policy(aggregation_parties_min=settings.pop("least", 2))
    parties = names(count)
    table = Table(parties[0], parties[1:], ADDER)
    return {
        name: StageContext(
            party=name,
            role={ADDER: AGGREGATOR, parties[0]: GUEST}.get(name, HOST),
            table=table,
            job="job-1",
            params=Aggregation(**settings),
            limits=limits,
            frame=None,
            validation=np.zeros(0, np.bool_),
            artefacts={},
            attempt=StageAttempt(
                origin=hashlib.sha256(b"job-1").digest(),
                digest=hashlib.sha256(b"attempt %d" % attempt).digest(),
            ),
            secrets=StageSecrets(
                attempt=Secrets(hashlib.sha256(name.encode()).digest()).child(attempt),
                job=Secrets(hashlib.sha256(name.encode()).digest()),
                lasting=Secrets(hashlib.sha256(name.encode()).digest()).child,
            ),
            services=StageServices(Hand(name), (pads or {}).get(name, MemoryNotebook()), Serial()),
        )
        for name in (*parties, ADDER)
    }


def sent(message: M) -> M:
    """The message as its taker gets it."""
    return wire.decode(type(message), wire.encode(message), "a peer")


@dataclass
class Circle:
    """Contributors and their aggregator; `tamper` may change what travels, by receiver."""

    members: dict[str, Contributor]
    adder: Aggregator
    tamper: Callable[[str, str, Any], Any] = lambda _, __, message: message
    seen: list[Masked] = field(default_factory=list)  # what the aggregator was sent
    totals: list[Total] = field(default_factory=list)  # of the last sum

    @property
    def parties(self) -> tuple[str, ...]:
        """The contributors, guest first."""
        return tuple(self.members)

    def pass_on(self, sender: str, receiver: str, message: M) -> M:
        """One message on its way."""
        passed: M = sent(self.tamper(sender, receiver, sent(message)))
        return passed

    def to_all(self, receiver: str, given: Mapping[str, M]) -> dict[str, M]:
        """What one party gets of what the others have given to everybody."""
        return {p: self.pass_on(p, receiver, own) for p, own in given.items() if p != receiver}

    # Keys of the stage

    def meet(self) -> Circle:
        """Everybody hears where everybody stands, and everybody's keys."""
        standing = {party: one.signed_standing() for party, one in self.members.items()}
        for party, one in self.members.items():
            one.compare_standings(self.to_all(party, standing))
        offered = {party: one.offer_key() for party, one in self.members.items()}
        for party, one in self.members.items():
            one.hear(self.to_all(party, offered))
        return self

    def streams(self, vectors: Mapping[str, Vector]) -> dict[str, list[Masked]]:
        """Every party's vector, in parts."""
        return {
            party: [
                self.pass_on(party, ADDER, one)
                for one in self.members[party].masked_parts(own, WHAT)
            ]
            for party, own in vectors.items()
        }

    def add(self, vectors: Mapping[str, Vector], most: int = MOST) -> dict[str, Vector | None]:
        """One sum under the keys of the stage, as everybody reads it."""
        given = self.streams(vectors)
        self.seen += [one for own in given.values() for one in own]
        parts = (dict(zip(given, row, strict=True)) for row in zip(*given.values(), strict=True))
        return self.told([out.send for out in aggregator.add_up(self.adder, parts)], most)

    def told(
        self, totals: Sequence[Any], most: int, among: Sequence[str] = ()
    ) -> dict[str, Vector | None]:
        """What all, or those `among`, make of the aggregator's words."""
        self.totals = [sent(one) for one in totals]
        return {
            p: self.members[p].total(iter([self.pass_on(ADDER, p, t) for t in totals]), most)
            for p in among or self.members
        }

    # With `dropout: continue`

    def deal(self, sums: int, lost: Mapping[str, str] | None = None) -> tuple[str, ...]:
        """Fresh keys and shares; gives who is left. `lost` says when whom is lost."""
        when = lost or {}
        left = self.parties

        def still(phase: str) -> tuple[str, ...]:
            return tuple(p for p in left if when.get(p) != phase)

        left = still("offer")
        offered = {p: self.members[p].offer_fresh(sums) for p in left}
        dealing = still("deal")
        dealt = {p: self.members[p].fresh.deal_shares(self.to_all(p, {q: offered[q] for q in left}))
                 for p in dealing}  # fmt: skip
        left = dealing
        holding = still("hold")
        for p in holding:
            got = {q: self.pass_on(q, p, dealt[q][p]) for q in left if q != p}
            self.members[p].hold_shares(got, left)
        return holding

    def masked(
        self, vectors: Mapping[str, Vector], left: Sequence[str], fresh: int | None
    ) -> dict[str, Masked]:
        """The vectors of those that are left, as the aggregator gets them."""
        given = {}
        for p in left:
            [own] = self.members[p].masked_parts(vectors[p], replace(WHAT, fresh=fresh))
            given[p] = self.pass_on(p, ADDER, own)
        self.seen += given.values()
        return given

    def open(
        self,
        vectors: Mapping[str, Vector],
        *,
        fresh: int | None = 0,
        left: tuple[str, ...] = (),
        lost: Mapping[str, str] | None = None,
        most: int = MOST,
    ) -> tuple[dict[str, Vector | None], tuple[str, ...]]:
        """One sum that goes on without who is lost: what those left read, and who they are."""
        when = lost or {}
        left = left or self.parties
        sending = tuple(p for p in left if when.get(p) != "give")
        given = self.masked(vectors, sending, fresh)
        left = tuple(p for p in sending if when.get(p) != "gave")
        if fresh is None:
            totals = [out.send for out in aggregator.add_or_close(self.adder, given)]
            return self.told(totals, most, left), left
        aggregator.keep_masked(self.adder, given)
        signing = tuple(p for p in left if when.get(p) != "sign")
        signed = {p: self.members[p].sign(left) for p in signing}
        left = signing
        revealing = tuple(p for p in left if when.get(p) != "reveal")
        shown: dict[str, RevealedShares] = {}
        for p in revealing:
            own = self.members[p].reveal_shares(self.to_all(p, signed))
            shown[p] = self.pass_on(p, ADDER, own)
        totals = [out.send for out in aggregator.open_total(self.adder, shown)]
        return self.told(totals, most, revealing), revealing


def circle(count: int, **settings: Any) -> Circle:
    """Contributors who have said nothing yet."""
    own = contexts(count, **settings)
    adder = aggregator.begin(own.pop(ADDER))
    return Circle({name: Contributor(context) for name, context in own.items()}, adder)


def fresh_circle(count: int, sums: int = 4, **settings: Any) -> Circle:
    """Contributors that go on without who is lost, with keys for so many sums."""
    made = circle(count, dropout="continue", **settings).meet()
    made.deal(sums)
    return made


def draws(parties: Sequence[str], words: int = 5, seed: int = 1) -> dict[str, Vector]:
    """A vector for each party, of numbers below a million in size."""
    draw = np.random.default_rng(seed)
    return {party: draw.integers(-(10**6), 10**6, words) for party in parties}


def added(vectors: Mapping[str, Vector], over: Sequence[str] = ()) -> list[int]:
    """The sum in Python's own numbers, over all or some."""
    some = [vectors[p].tolist() for p in over or vectors]
    return [sum(column) for column in zip(*some, strict=True)]


def assert_sum(
    read: Mapping[str, Vector | None], vectors: Mapping[str, Vector], over: Sequence[str] = ()
) -> None:
    """Everybody has read the exact sum, over all or some."""
    want = added(vectors, over) if len(next(iter(vectors.values()))) else []
    assert read
    assert {party: None if own is None else own.tolist() for party, own in read.items()} == (
        dict.fromkeys(read, want)
    )


def tampering(
    made: Circle,
    kind: type[Message],
    change: Callable[[Any], Any],
    sender: str | None = None,
    receiver: str | None = None,
) -> Circle:
    """The circle, with messages of a kind changed on their way; `change` gives another or None."""

    def tamper(source: str, target: str, message: Any) -> Any:
        if not isinstance(message, kind) or (sender or source) != source:
            return message
        return (change(message) or message) if (receiver or target) == target else message

    made.tamper = tamper
    return made


def rows_of(array: Array) -> NDArray[np.uint8]:
    """Bytes that travelled, in their shape."""
    return np.frombuffer(array.data, np.uint8).reshape(tuple(array.shape))


def keys_from(*numbers: int) -> Array:
    """Numbers as X25519 writes them."""
    data = b"".join(number.to_bytes(32, "little") for number in numbers)
    return wire.pack(np.frombuffer(data, np.uint8).reshape(-1, 32))
