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


def offer_answer_key(me: HasMasks) -> Out:
    """The public half of our key for masks, to the other hosts."""
    return Out(send=me.answering.offer())


def hear_answer_keys(me: HasMasks, got: Mapping[str, AnswerKey]) -> Out:
    """The other hosts' keys."""
    me.answering.hear(got)
    return Out()


def learn_shared(me: HasMasks, got: SharedRows) -> Out:
    """Note which of our rows the other hosts have as well."""
    me.answering.learn(got, me.n_rows)
    return Out()


def shared_bytes_max(me: HasMasks) -> int:
    """Return how large `SharedRows` can be: a bit for each other host and row."""
    return len(me.answering.others) * me.n_rows // 8 + 1024
