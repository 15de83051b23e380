"""Signed ends of ledgers: every party states its own at each commit, and is checked against it.

A statement names the last row of a party's ledger and, for each peer, a digest over the messages
between the two since the previous statement. The coordinator delivers it with the next commit: it
cannot write one, since parties sign, nor guess a payload from one, since every payload has a salt
that only its two ends know.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, Protocol, TypeAlias

from pydantic import AwareDatetime, Field, ValidationError

from fedboost import flow
from fedboost.flow import Place, Signer
from fedboost.ground.errors import DataError, PeerError, PolicyError
from fedboost.ground.settings import Settings
from fedboost.ground.wire import COUNT_MAX
from fedboost.job import Name
from fedboost.messages.exchange_pb2 import RecallReply
from fedboost.messages.party_pb2 import SignedHead
from fedboost.runtime.jobs.manifest import canonical_json
from fedboost.runtime.jobs.signed import SignedJob
from fedboost.runtime.ledger.ledger import Ledger
from fedboost.runtime.ledger.rows import TEXT_CHARS_MAX, Head, KeptHead, Row, broken_chain_error

TEXT_BYTES_MAX = 1 << 17  # a statement of a party with a thousand peers
END_OF_JOB = "end"  # name of a job's end in statements; it is not a stage

Entry: TypeAlias = tuple[str, str, int, str, int, int, str, str, int, str, str]
# Raise PeerError unless a party signed a text at that time: party, text, signature, time.
Check: TypeAlias = Callable[[str, bytes, bytes, datetime], object]


class PairDigest(Settings):
    """Digest of the messages between two parties since their last statements; both must compute the
    same.
    """

    entries: int = Field(ge=0, le=COUNT_MAX)
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")


class Statement(Settings):
    """End of a party's ledger at a kept round, or at the end of a job."""

    what: Literal["fedboost ledger head 1"] = "fedboost ledger head 1"
    party: Name
    job: str = Field(max_length=TEXT_CHARS_MAX)
    attempt: int
    stage: str = Field(max_length=TEXT_CHARS_MAX)
    round: int
    within: tuple[int, ...] = ()  # the rest of the place inside a round
    at: AwareDatetime
    n: int = Field(ge=0, le=COUNT_MAX)
    hash: str = Field(pattern=r"^[0-9a-f]{64}$")
    # Without peers that may lack messages, in jobs that continue without lost hosts.
    pairs: dict[str, PairDigest]

    @property
    def moment(self) -> tuple[str, int, str, Place]:
        """Return the attempt, stage and place of the statement."""
        return self.job, self.attempt, self.stage, (self.round, *self.within)

    def encode(self) -> bytes:
        """Return the signed text: JSON with sorted keys and no spaces."""
        return canonical_json(self.model_dump(mode="json"))


def read_statement(party: str, text: bytes) -> Statement:
    """Return the statement in a text signed by a party; raise PeerError if it is invalid."""
    if len(text) > TEXT_BYTES_MAX:
        raise PeerError(f"{party} signed a head of {len(text)} bytes, too many for one")
    try:
        return Statement.model_validate_json(text)
    except ValidationError:
        raise PeerError(
            f"the text that {party} signed is not a statement of a ledger's end"
        ) from None


def shared_fields(party: str, row: Row) -> Entry:
    """Return the fields that both parties' rows about the same payload must share."""
    ends = (party, row.peer) if row.direction == "out" else (row.peer, party)
    place = (row.attempt, row.stage, row.number, row.part)
    return (*ends, *place, row.step, row.kind, row.bytes, row.sha256, row.salt)


def verify_ledger(ledger: Ledger, party: str, check: Check) -> Head:
    """Return the head of a party's ledger after checking its chain, and every signed head in it.

    Raise DataError for the first changed row or head.
    """
    signed: dict[int, str] = {}
    for kept in ledger.kept():
        try:
            statement = read_statement(kept.party, kept.text)
            if (statement.party, statement.job) != (kept.party, kept.job):
                raise PeerError("it is about another party or job")
            check(kept.party, kept.text, kept.signature, statement.at)
        except PeerError as error:
            raise DataError(
                f"the ledger is broken: a head of {kept.party[:64]} in it was changed",
                todo="compare with the peers' ledgers",
                private=error.what,
                job=kept.job,
            ) from None
        if kept.party == party and signed.setdefault(statement.n, statement.hash) != statement.hash:
            raise broken_chain_error(statement.n, "was signed by this party with two hashes")
    return ledger.verify(signed)


def pair_digests(party: str, rows: Iterable[Row], peers: Iterable[str]) -> dict[str, PairDigest]:
    """Return the digests of a party's rows, one for each of its peers."""
    lacking: dict[str, list[Entry]] = {peer: [] for peer in peers}
    for row in rows:
        if row.peer in lacking:
            lacking[row.peer].append(shared_fields(party, row))
    # Messages overtake one another, so both ends sort.
    texts = {peer: json.dumps(sorted(heads)) for peer, heads in lacking.items()}
    return {
        peer: PairDigest(
            entries=len(lacking[peer]), sha256=hashlib.sha256(text.encode()).hexdigest()
        )
        for peer, text in texts.items()
    }


class Attempt(Protocol):
    """An attempt at a job, as far as statements are about it."""

    attempt: int

    @property
    def signed(self) -> SignedJob:
        """The job."""

    @property
    def unsure_peers(self) -> set[str]:
        """Peers that may lack a message sent to them."""


@dataclass(frozen=True)
class SignedHeads:
    """Statements of a party, and those received from others."""

    party: str
    ledger: Ledger
    signer: Signer

    def exchange_heads(
        self, of: Attempt, stage: str, place: Place, given: Sequence[SignedHead]
    ) -> SignedHead:
        """Check the others' previous statements, then return ours for this place.

        Both are on the disk on return. Raise PeerError like `hear`.
        """
        heard = self._checked_heads(of, given)
        ours = self._signed_head(of, stage, place)
        self.ledger.keep(*heard, ours)
        return SignedHead(party=ours.party, text=ours.text, signature=ours.signature)

    def hear(self, of: Attempt, given: Sequence[SignedHead]) -> None:
        """Keep the others' statements of our last commit, and compare them with our own ledger.

        Raise PeerError for a party whose statement is missing, not its own, does not continue its
        ledger, or contradicts our ledger.
        """
        self.ledger.keep(*self._checked_heads(of, given))

    def _signed_head(self, of: Attempt, stage: str, place: Place) -> KeptHead:
        head, before = self.ledger.head(), self._last_statement(of.signed.id, self.party)
        since = before.n if before is not None and before.attempt == of.attempt else 0
        rows = self.ledger.rows(of.signed.id, first=since + 1, last=head.n)
        attempt_rows = [row for row in rows if row.attempt == of.attempt]
        sure = [peer for peer in of.signed.peers if peer not in of.unsure_peers]
        text = Statement(
            party=self.party,
            job=of.signed.id,
            attempt=of.attempt,
            stage=stage,
            round=place[0],
            within=place[1:],
            at=self.ledger.now(),
            n=head.n,
            hash=head.hash,
            pairs=pair_digests(self.party, attempt_rows, sure),
        ).encode()
        return KeptHead(of.signed.id, self.party, text, self.signer.sign(text))

    def _checked_heads(self, of: Attempt, given: Sequence[SignedHead]) -> list[KeptHead]:
        ours = self._last_statement(of.signed.id, self.party)
        due = ours if ours is not None and ours.attempt == of.attempt else None
        heads: dict[str, Statement] = {}
        kept: list[KeptHead] = []
        for signed in given:
            party = signed.party
            if party == self.party:
                continue
            if party not in of.signed.peers or party in heads or due is None:
                raise PeerError(f"an unexpected head of {party[:64]!r} was received")
            heads[party] = read_statement(party, signed.text)
            self.signer.check(party, signed.text, signed.signature)
            if heads[party].party != party or heads[party].moment != due.moment:
                raise PeerError(f"{party} signed a head of another party or moment")
            kept.append(KeptHead(of.signed.id, party, signed.text, signed.signature))
        if due is None:
            return kept
        missing = [p for p in of.signed.peers if p not in heads and self._has_stated(of, due, p)]
        if missing:
            raise PeerError(f"the coordinator brought no head of the ledger of {missing[0]}")
        try:
            self._compare(of, due, heads)
        except PeerError:
            self.ledger.keep(*kept)  # their signatures prove which party is wrong
            raise
        return kept

    def _has_stated(self, of: Attempt, due: Statement, peer: str) -> bool:
        """Return whether a peer must have made a statement at our last commit, as far as we know.

        In a job that continues without a host, a lost host makes none. A lost party gets no more
        requests, so a party that has sent us something since then was not lost.
        """
        if not of.signed.goes_on or of.signed.table.roles_of(peer) != (flow.HOST,):
            return True
        since = self.ledger.rows(of.signed.id, first=due.n + 1)
        return any(
            (row.peer, row.direction, row.attempt) == (peer, "in", of.attempt) for row in since
        )

    def _compare(self, of: Attempt, ours: Statement, heads: Mapping[str, Statement]) -> None:
        for party, now in heads.items():
            before = self._last_statement(of.signed.id, party)
            if before is not None and (
                now.n < before.n or (now.n == before.n and now.hash != before.hash)
            ):
                raise PeerError(
                    f"the ledger of {party} does not continue its earlier state: it had "
                    f"{before.n} rows and has {now.n}",
                    todo="ask its owner what happened to the store",
                )
            mine, theirs = ours.pairs.get(party), now.pairs.get(self.party)
            if mine is None or (theirs is None and of.signed.goes_on):
                continue
            if mine != theirs:
                count = 0 if theirs is None else theirs.entries
                raise PeerError(
                    f"the ledgers of {self.party} and {party} do not agree on the messages between "
                    f"them: {mine.entries} entries and {count}",
                    todo="compare them: fedboost ledger export, then fedboost ledger diff",
                )

    def _last_statement(self, job: str, party: str) -> Statement | None:
        kept = self.ledger.last_head_in_job(job, party)
        return None if kept is None else read_statement(party, kept.text)


class Recalls(Protocol):
    """Way to ask a peer."""

    async def recall(self, party: str, peer: str) -> RecallReply:
        """Return the newest head of `own` that `peer` keeps."""


class Recalled:
    """Comparison of one party's ledger with its peers' memory."""

    def __init__(self, party: str, ledger: Ledger, links: Recalls, check: Check) -> None:
        self._party, self._ledger, self._links, self._check = party, ledger, links, check
        self._asked: set[str] = set()  # since this process began

    async def refuse_gaps(self, peers: Iterable[str]) -> None:
        """Raise PolicyError if a peer remembers a row that we lack, unless our owner has confirmed
        the gap.

        Raise UnreachableError if a peer does not answer.
        """
        for peer in peers:
            if peer not in self._asked:
                self._compare(peer, await self._links.recall(self._party, peer))
                self._asked.add(peer)
        gaps = [gap for gap in self._ledger.recorded_gaps() if not gap.seen]
        if gaps:
            last = max(gaps, key=lambda gap: gap.n)
            raise PolicyError(
                f"the ledger of {self._party} lacks rows that it has signed: its store was "
                "restored from a backup, and its account does not count their releases",
                todo="its owner runs: fedboost ledger restored",
                private=f"{last.peer} keeps the signature of row {last.n} in job {last.job}",
                party=self._party,
            )

    def _compare(self, peer: str, reply: RecallReply) -> None:
        if not reply.text:
            return
        try:
            signed = read_statement(self._party, reply.text)
            self._check(self._party, reply.text, reply.signature, signed.at)
            if signed.party != self._party:
                raise PeerError("it is another party's")
        except PeerError as error:
            what = f"{peer} brought a head that we have not signed"
            raise PeerError(what, private=error.what, party=peer) from None
        rows = self._ledger.rows(first=signed.n, last=signed.n)
        if signed.n and (not rows or rows[0].hash != signed.hash):
            self._ledger.note_gap(signed.n, signed.hash, signed.job, peer)
