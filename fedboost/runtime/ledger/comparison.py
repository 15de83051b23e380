"""Comparison of two ledgers: a party's rows of one job as a signed file, and the differences.

The file has two lines: JSON, and the party's signature under it. Rows that are not for its reader
(of other jobs, or about other peers) are hashes of their content, so the chain can still be
followed.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from pydantic import AwareDatetime, Base64Bytes, ValidationError

from fedboost.ground.errors import DataError, PeerError
from fedboost.ground.settings import Settings
from fedboost.job import Name
from fedboost.runtime.ledger import signed_heads
from fedboost.runtime.ledger.ledger import Ledger
from fedboost.runtime.ledger.rows import GENESIS, KeptHead, Row, chain_hash, content_hash, row_hash
from fedboost.runtime.ledger.signed_heads import Check, PairDigest, Statement

EXPORT_BYTES_MAX = 1 << 30  # about a million rows

SAID_ALIKE = ("step", "kind", "bytes", "sha256", "salt")  # by both rows about one payload

# Of a payload: attempt, stage, number, part, direction.
PayloadPlace: TypeAlias = tuple[int, str, int, int, str]


@dataclass(frozen=True)
class Hidden:
    """A row hidden from the reader, except for its place in the chain."""

    n: int
    content: str  # the hash of its content


@dataclass(frozen=True)
class Stood:
    """A statement in its signed form."""

    party: Name
    text: Base64Bytes
    signature: Base64Bytes


class Export(Settings):
    """A party's rows of one job, in the chain from behind row `start` on."""

    what: Literal["fedboost ledger export 1"] = "fedboost ledger export 1"
    party: Name
    job: str
    reader: Name | None  # the only peer whose rows are shown; None: all rows of the job
    at: AwareDatetime
    start: int
    start_hash: str
    rows: list[Row | Hidden]
    heads: list[Stood]

    def hashes(self) -> dict[int, str]:
        """Return each row's hash by its number; raise PeerError if the rows are no chain."""
        hashes = {self.start: self.start_hash}
        for n, row in enumerate(self.rows, self.start + 1):
            previous = hashes[n - 1]
            if isinstance(row, Hidden):
                hashes[n] = chain_hash(previous, row.content)
            else:
                hashes[n] = row_hash(row)
            fits = isinstance(row, Hidden) or (row.previous, row.hash) == (previous, hashes[n])
            if row.n != n or not fits:
                raise PeerError(f"row {n} of {self.party}'s ledger does not fit its chain")
        return hashes

    def shown(self) -> list[Row]:
        """Return the rows that are not hidden."""
        return [row for row in self.rows if isinstance(row, Row)]

    def statements(self, party: str) -> list[Statement]:
        """Return a party's statements in the job, as kept by this one."""
        return [
            signed_heads.read_statement(party, head.text)
            for head in self.heads
            if head.party == party
        ]


@dataclass(frozen=True)
class Difference:
    """A difference between two ledgers, in words."""

    text: str
    is_settled: bool = True  # False: of a payload in transit when its attempt ended


def export_rows(
    ledger: Ledger, party: str, job: str, reader: str | None, sign: Callable[[bytes], bytes]
) -> bytes:
    """Return the file of a party's rows of a job; with a `reader` only those about that peer."""
    rows, kept = ledger.rows(job), ledger.kept(job)
    _check_known(job, rows, kept)
    stated = [
        head.n
        for head in (signed_heads.read_statement(k.party, k.text) for k in kept if k.party == party)
    ]
    first = min([*(row.n for row in rows[:1]), *(n + 1 for n in stated)], default=1)
    last = max([*(row.n for row in rows[-1:]), *stated], default=0)
    chain = ledger.rows(first=max(1, first - 1), last=last)
    before = [row for row in chain if row.n < first]
    written = Export(
        party=party,
        job=job,
        reader=reader,
        at=ledger.now(),
        start=first - 1,
        start_hash=before[0].hash if before else GENESIS,
        rows=[_visible_to_reader(row, job, reader) for row in chain if row.n >= first],
        heads=[
            Stood(head.party, head.text, head.signature)
            for head in kept
            if reader is None or head.party in (party, reader)
        ],
    )
    text = json.dumps(written.model_dump(mode="json"), sort_keys=True).encode()
    return text + b"\n" + base64.b64encode(sign(text)) + b"\n"


def read_export(file: bytes, check: Check) -> Export:
    """Return the rows that a party has exported; raise DataError for any other file.

    Raise PeerError if the named party has not signed it, or if its rows are no chain.
    """
    text, _, rest = file.partition(b"\n")
    try:
        if len(file) > EXPORT_BYTES_MAX:
            raise ValueError
        export = Export.model_validate_json(text)
        signature = base64.b64decode(rest.strip(), validate=True)
    except (ValidationError, binascii.Error, ValueError):
        raise DataError(
            "the file is not an exported ledger", todo="write one with fedboost ledger export"
        ) from None
    check(export.party, text, signature, export.at)
    for head in export.heads:
        check(
            head.party,
            head.text,
            head.signature,
            signed_heads.read_statement(head.party, head.text).at,
        )
    hashes = export.hashes()
    if _contradicted_heads(export.statements(export.party), hashes, f"{export.party}'s"):
        raise PeerError(f"{export.party}'s ledger does not fit the heads that it signed")
    return export


def compare_ledgers(ledger: Ledger, party: str, theirs: Export) -> list[Difference]:
    """Return the differences between a party's ledger and a peer's export of a job.

    First compare both parties' signed heads with the chains, then each payload between them.
    """
    rows = ledger.rows(theirs.job)
    _check_known(theirs.job, rows, ledger.kept(theirs.job))
    between_us = [row for row in rows if row.peer == theirs.party]
    their_rows = [row for row in theirs.shown() if row.peer == party]
    stated = [
        signed_heads.read_statement(kept.party, kept.text) for kept in ledger.kept(theirs.job)
    ]
    # The file cannot contain rows signed after it.
    kept = [head for head in stated if head.party == theirs.party and head.at <= theirs.at]
    differences = _contradicted_heads(kept, theirs.hashes(), f"{theirs.party}'s")
    given = theirs.statements(party)
    mine = {head.n: row.hash for head in given for row in ledger.rows(first=head.n, last=head.n)}
    differences += _contradicted_heads(given, mine, "our")
    settled = _last_signed_rows([*stated, *given, *theirs.statements(theirs.party)])
    here = {_place_of_payload(row, row.direction): row for row in between_us}
    there = {
        _place_of_payload(row, "in" if row.direction == "out" else "out"): row for row in their_rows
    }
    for place in sorted(here.keys() | there.keys()):
        we, they = here.get(place), there.get(place)
        if we is not None and they is not None:
            differences += _differences_of_rows(we, they, theirs.party)
        elif we is not None:
            is_settled = we.direction == "in" or we.n <= settled.get((we.attempt, party), 0)
            differences.append(Difference(_only_here_text(we, theirs.party), is_settled))
        elif they is not None:
            end = settled.get((they.attempt, theirs.party), 0)
            is_settled = they.direction == "in" or they.n <= end
            differences.append(Difference(_only_there_text(they, theirs.party), is_settled))
    return differences


def contradicted_rows(ledger: Ledger, party: str, job: str) -> list[Difference]:
    """Return the rows of a party in a job that contradict the statements signed at each commit."""
    return [
        Difference(
            f"{_moment_text(head)}: {head.party} signed that {theirs.entries} payloads passed "
            f"between us; this ledger has {mine.entries}, or others"
        )
        for _, head, mine, theirs in _signed_commits(ledger, party, job)
        if mine != theirs
    ]


def rows_signed_alike(ledger: Ledger, party: str, job: str) -> dict[str, set[int]]:
    """Return, by peer, the numbers of a job's rows that the peer has signed alike at a commit."""
    known: dict[str, set[int]] = {}
    for rows, head, mine, theirs in _signed_commits(ledger, party, job):
        if mine == theirs:
            known.setdefault(head.party, set()).update(
                row.n for row in rows if row.peer == head.party
            )
    return known


def _signed_commits(
    ledger: Ledger, party: str, job: str
) -> Iterator[tuple[list[Row], Statement, PairDigest, PairDigest]]:
    """Yield for each commit, and each peer that signed it, our rows since the previous commit, the
    statement, and the digests of the messages between us by us and by the peer.
    """
    rows, since = ledger.rows(job), dict[int, int]()
    _check_known(job, rows, ledger.kept(job))
    stated = [signed_heads.read_statement(kept.party, kept.text) for kept in ledger.kept(job)]
    for head in (statement for statement in stated if statement.party == party):
        attempt_rows = [
            row
            for row in rows
            if row.attempt == head.attempt and since.get(head.attempt, 0) < row.n <= head.n
        ]
        since[head.attempt] = head.n
        now = signed_heads.pair_digests(party, attempt_rows, head.pairs)
        others = [peer for peer in stated if peer.moment == head.moment and peer.party != party]
        for peer in others:
            mine, theirs = now.get(peer.party), peer.pairs.get(party)
            if mine is not None and theirs is not None:
                yield attempt_rows, peer, mine, theirs


def _check_known(job: str, rows: Sequence[Row], kept: Sequence[KeptHead]) -> None:
    """Refuse a job without rows in a ledger: an empty comparison is no agreement."""
    if not rows and not kept:
        raise DataError(
            f"the ledger knows no job {job[:80]}",
            todo="fedboost party jobs; a store that was restored from a backup lacks later jobs",
        )


def _visible_to_reader(row: Row, job: str, reader: str | None) -> Row | Hidden:
    is_for_reader = row.job == job and reader in (None, row.peer)
    return row if is_for_reader else Hidden(row.n, content_hash(row))


def _contradicted_heads(
    stated: Sequence[Statement], hashes: Mapping[int, str], whose: str
) -> list[Difference]:
    """Return the signed heads of a party that do not fit its presumed chain."""
    known = {0: GENESIS, **hashes}
    return [
        Difference(
            f"{_moment_text(head)}: row {head.n} of {whose} ledger is not the one that was signed"
        )
        for head in stated
        if known.get(head.n) != head.hash
    ]


def _last_signed_rows(stated: Sequence[Statement]) -> dict[tuple[int, str], int]:
    """Return the last row that each party has signed for in each attempt."""
    by_number: dict[tuple[int, str], int] = {}
    for statement in stated:
        by_number[statement.attempt, statement.party] = max(
            statement.n, by_number.get((statement.attempt, statement.party), 0)
        )
    return by_number


def _differences_of_rows(ours: Row, theirs: Row, peer: str) -> list[Difference]:
    """Return the differences between two rows about one payload."""
    named = [name for name in SAID_ALIKE if getattr(ours, name) != getattr(theirs, name)]
    if not named:
        return []
    way = f"sent to {peer}" if ours.direction == "out" else f"received from {peer}"
    values = (f"{name} {getattr(ours, name)} here, {getattr(theirs, name)} there" for name in named)
    return [Difference(f"{_payload_text(ours)}, {way}: {'; '.join(values)}")]


def _only_here_text(row: Row, peer: str) -> str:
    way = f"we sent it to {peer}" if row.direction == "out" else f"it came from {peer}"
    return f"{_payload_text(row)}: {way}, whose ledger has no row of it"


def _only_there_text(row: Row, peer: str) -> str:
    did = "sent it to us" if row.direction == "out" else "got it from us"
    return f"{_payload_text(row)}: {peer} says that it {did}, and our ledger has no row of it"


def _payload_text(row: Row) -> str:
    part = f" part {row.part}" if row.part else ""
    kind = row.kind.rpartition(".")[2]
    return f"{kind} of step {row.step} (attempt {row.attempt}, {row.stage} {row.number}{part})"


def _place_of_payload(row: Row, direction: str) -> PayloadPlace:
    return row.attempt, row.stage, row.number, row.part, direction


def _moment_text(statement: Statement) -> str:
    place = ".".join(str(number) for number in (statement.round, *statement.within))
    return f"attempt {statement.attempt}, {statement.stage} {place}"
