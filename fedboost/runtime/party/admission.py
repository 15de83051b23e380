"""What peers are sending at this moment: judged by its envelope, before a byte of it is read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from fedboost.errors import UnreachableError
from fedboost.messages.exchange_pb2 import Envelope

# Of one peer in one job. A stream has five parts under way, and a link that broke sends them twice.
MESSAGES_AT_ONCE_MAX = 32
BYTES_AT_ONCE_MAX = 1 << 29  # a message alone may be larger, as far as its step allows


@dataclass
class _Sending:
    messages: int = 0
    bytes: int = 0


class Admission:
    """One party's door. All methods belong to the event loop's thread."""

    def __init__(self) -> None:
        self._sending: dict[tuple[str, str], _Sending] = {}  # by job and sender

    @contextmanager
    def room(self, envelope: Envelope) -> Iterator[None]:
        """Inside, a message has room; refused where its sender has too much under way."""
        key, count = (envelope.job, envelope.sender), envelope.payload_bytes
        own = self._sending.setdefault(key, _Sending())
        over = own.messages and own.bytes + count > BYTES_AT_ONCE_MAX
        if over or own.messages >= MESSAGES_AT_ONCE_MAX:  # an honest one may have a bad link
            raise UnreachableError(
                f"{envelope.sender} sends more at once than there is room for: "
                f"{own.messages} messages of {own.bytes} bytes are under way",
                party=envelope.sender,
                todo="see the link between the two",
            )
        own.messages, own.bytes = own.messages + 1, own.bytes + count
        try:
            yield
        finally:
            own.messages, own.bytes = own.messages - 1, own.bytes - count
            if not own.messages:
                self._sending.pop(key, None)
