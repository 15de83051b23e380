"""Rows of the ledger, their companions, and the hashes that chain them."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from google.protobuf.message import Message

from fedboost.flow import DisclosureInfo
from fedboost.ground import wire
from fedboost.ground.errors import DataError
from fedboost.ground.formats import LEDGER_FORMAT
from fedboost.messages.exchange_pb2 import Envelope
from fedboost.messages.reveals import REVEALS

Direction: TypeAlias = Literal["out", "in"]

# Hash before the first row.
GENESIS = hashlib.sha256(f"fedboost ledger {LEDGER_FORMAT}".encode()).hexdigest()
SALT_BYTES = 16
TEXT_CHARS_MAX = 2000  # of one column; a peer cannot fill the disk with a name


@dataclass(frozen=True, kw_only=True)
class DisclosureRow:
    """Content of one payload and its receiver."""

    direction: Direction
    job: str
    attempt: int = 0  # 0: the job has ended
    stage: str = ""
    step: str  # that gave it
    number: int = 0  # of that step in its stage and attempt, as the coordinator counts
    part: int = 0  # of a stream; 0 of a whole message
    kind: str  # the message's type
    peer: str
    bytes: int  # of the payload
    values: int  # number of numbers, ids or ciphertexts in it
    rows: int | None = None  # rows that it describes; None here and below: unknown or none
    groups: int | None = None  # number of groups that it describes one by one
    smallest_group: int | None = None  # rows in the smallest of them
    epsilon: float | None = None  # of its noise, a value
    protection: str  # a word: "paillier-2048 blinded", "curve25519", "plain"
    reveals: str  # the message's own sentence on its content
    sha256: str  # of the payload, in hex
    salt: str  # its sender's, in hex: without it a payload cannot be guessed from a row's hash


@dataclass(frozen=True)
class Row:
    """One row of the ledger, in the order of its columns."""

    n: int  # from 1
    at: str  # UTC, ISO 8601
    direction: str
    job: str
    attempt: int
    stage: str
    step: str
    number: int
    part: int
    kind: str
    peer: str
    bytes: int
    values: int
    rows: int | None
    groups: int | None
    smallest_group: int | None
    epsilon: float | None
    protection: str
    reveals: str
    sha256: str
    salt: str
    previous: str
    hash: str

    @property
    def sentence(self) -> str:
        """Return the row as a sentence: receiver, size, rows, content and protection."""
        way = f"Sent to {self.peer}" if self.direction == "out" else f"Received from {self.peer}"
        facts = [f"{self.bytes:,} bytes"]
        if self.rows is not None:
            facts.append(f"about {self.rows:,} rows")
        if self.groups is not None:
            facts.append(f"{self.groups:,} groups")
        if self.smallest_group is not None:
            facts.append(f"the smallest of {self.smallest_group:,} rows")
        if self.epsilon is not None:
            facts.append(f"epsilon {self.epsilon:g} a value")
        return f"{way} ({', '.join(facts)}): {self.reveals} Protected: {self.protection}"


@dataclass(frozen=True)
class Amount:
    """All rows of one kind of message, in one direction, with one peer, in one job."""

    direction: str
    peer: str
    kind: str
    messages: int
    bytes: int
    values: int
    job: str
    last: str  # UTC, ISO 8601: the newest of them

    @property
    def of(self) -> tuple[str, str, str, str]:
        """Return the common key of its rows."""
        return self.job, self.direction, self.peer, self.kind

    def plus(self, later: Amount) -> Amount:
        """Return the sum with later rows of the same."""
        messages, size = self.messages + later.messages, self.bytes + later.bytes
        values = self.values + later.values
        return replace(self, messages=messages, bytes=size, values=values, last=later.last)


@dataclass(frozen=True)
class Head:
    """End of the chain: the number of rows, and the last one's hash."""

    n: int
    hash: str


@dataclass(frozen=True)
class KeptHead:
    """A head signed by a party, as received; see `heads` for its text."""

    job: str
    party: str
    text: bytes
    signature: bytes


@dataclass(frozen=True)
class Gap:
    """A row that this party has signed and its ledger lacks: its store was restored."""

    hash: str
    n: int
    job: str
    peer: str  # keeper of the signature
    found: str  # UTC, ISO 8601
    seen: str = ""  # when the owner said so; empty: not yet


def row_hash(row: Row) -> str:
    """Return SHA-256, in hex, over every column of the row but its own hash."""
    return chain_hash(row.previous, content_hash(row))


def content_hash(row: Row) -> str:
    """Return SHA-256, in hex, over the row's content, names of columns included.

    Without the salt and the content, the hash reveals nothing about the row.
    """
    content = {key: value for key, value in vars(row).items() if key not in ("previous", "hash")}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def chain_hash(previous: str, content: str) -> str:
    """Return the hash of a row from the previous row's hash and the content's hash."""
    return hashlib.sha256(f"{previous} {content}".encode()).hexdigest()


def broken_chain_error(n: int, what: str) -> DataError:
    """Return the error that names the first broken row of a chain."""
    return DataError(
        f"the ledger is broken: row {n} {what}",
        todo="do not trust rows from here on; compare with the peers' ledgers",
        row=n,
    )


def check_row(disclosure: DisclosureRow) -> None:
    """Refuse a row that the store would change, which would break the chain."""
    assert disclosure.direction in ("out", "in")
    assert len(disclosure.sha256) == 64
    assert len(disclosure.salt) == 2 * SALT_BYTES
    assert all(value >= 0 for value in vars(disclosure).values() if isinstance(value, int))
    for text in (value for value in vars(disclosure).values() if isinstance(value, str)):
        if len(text) > TEXT_CHARS_MAX or "\0" in text:
            raise DataError(f"a ledger's text has at most {TEXT_CHARS_MAX} characters and no NUL")


@dataclass(frozen=True)
class Noted:
    """A message as recorded by the ledger."""

    envelope: Envelope
    message: Message
    about: DisclosureInfo  # knowledge of the step that sent it; empty for a received message


def disclosure_row(direction: str, noted: Noted) -> DisclosureRow:
    """Return the ledger's row for a message that leaves ("out") or arrives ("in")."""
    envelope, about = noted.envelope, noted.about
    reveals, protection = REVEALS[envelope.kind]
    return DisclosureRow(
        direction="out" if direction == "out" else "in",
        job=envelope.job,
        attempt=envelope.attempt,
        stage=envelope.stage,
        step=envelope.step,
        number=envelope.number,
        part=envelope.part,
        kind=envelope.kind,
        peer=envelope.receiver if direction == "out" else envelope.sender,
        bytes=envelope.payload_bytes,
        values=wire.count_values(noted.message),
        rows=wire.count_rows(noted.message) if about.rows is None else about.rows,
        groups=about.groups,
        smallest_group=about.smallest_group,
        epsilon=None if about.epsilon is None else float(about.epsilon),
        protection=protection,
        reveals=reveals,
        sha256=envelope.payload_sha256.hex(),
        salt=envelope.salt.hex(),
    )
