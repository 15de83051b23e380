"""Messages as the ledger takes note of them."""

from __future__ import annotations

from dataclasses import dataclass

from google.protobuf.message import Message

from fedboost import wire
from fedboost.flow import DisclosureInfo
from fedboost.messages.exchange_pb2 import Envelope
from fedboost.messages.reveals import REVEALS
from fedboost.runtime.ledger.rows import DisclosureRow


@dataclass(frozen=True)
class Noted:
    """A message as the ledger takes note of it."""

    envelope: Envelope
    message: Message
    about: DisclosureInfo  # what the step that gave it knows; nothing of one that has come


def disclosure(direction: str, noted: Noted) -> DisclosureRow:
    """The ledger's row for a message that leaves ("out") or has come ("in")."""
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
