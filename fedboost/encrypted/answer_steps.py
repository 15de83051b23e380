"""What every host does whose leaf values go under masks: a role module takes these as its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from fedboost.encrypted.leaf_answers import MaskingHost
from fedboost.flow import Out
from fedboost.messages.protocol.encrypted_pb2 import AnswerKey, SharedRows


class HasMasks(Protocol):
    """A host's state that has a side in masks."""

    @property
    def answering(self) -> MaskingHost:
        """The masks; a ProtocolError where there are none."""

    @property
    def n_rows(self) -> int:
        """Our rows."""


def offer_answer_key(host: HasMasks) -> Out:
    """The public half of our key for masks, to the other hosts."""
    return Out(send=host.answering.offer())


def hear_answer_keys(host: HasMasks, got: Mapping[str, AnswerKey]) -> Out:
    """The other hosts' keys."""
    host.answering.hear(got)
    return Out()


def learn_shared(host: HasMasks, got: SharedRows) -> Out:
    """Note which of our rows the other hosts have as well."""
    host.answering.learn(got, host.n_rows)
    return Out()


def shared_bytes_max(host: HasMasks) -> int:
    """Return how large `SharedRows` can be: a bit for each other host and row."""
    return len(host.answering.others) * host.n_rows // 8 + 1024
