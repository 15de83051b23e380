"""What every party of a sum does, whatever the protocol: a role module takes these as its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from fedboost.aggregation.contributor import Contributor
from fedboost.flow import Out
from fedboost.messages.protocol.aggregation_pb2 import DealtShares, MaskKeys, Survivors


class Adds(Protocol):
    """A party's state that has a side in sums."""

    sums: Contributor

    @property
    def sums_of_round(self) -> int:
        """How many sums a round may need, each with fresh keys."""


def offer_keys(me: Adds) -> Out:
    """Our mask key for the whole stage."""
    return Out(send=me.sums.offer())


def offer_fresh_keys(me: Adds) -> Out:
    """Mask keys for each of the next sums."""
    return Out(send=me.sums.offer_fresh(me.sums_of_round))


def deal_shares(me: Adds, got: Mapping[str, MaskKeys]) -> Out:
    """To each of the others its shares of what could open our vectors."""
    return Out(send=me.sums.fresh.deal(got))


def hold_shares(me: Adds, got: Mapping[str, DealtShares], present: tuple[str, ...]) -> Out:
    """Keeps the others' shares."""
    me.sums.hold(got, present)
    return Out()


def sign_survivors(me: Adds, present: tuple[str, ...]) -> Out:
    """Who is left, as we were told, under our signature."""
    return Out(send=me.sums.sign(present))


def reveal_shares(me: Adds, got: Mapping[str, Survivors]) -> Out:
    """Our shares for the aggregator, never both of anybody."""
    return Out(send=me.sums.reveal(got))
