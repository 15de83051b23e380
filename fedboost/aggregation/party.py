"""What every party of a sum does, whatever the protocol: a role module takes these as its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol

import numpy as np

from fedboost import wire
from fedboost.aggregation.contributor import Contributor, Vector
from fedboost.aggregation.counts import Floats
from fedboost.aggregation.statistic import Statistic
from fedboost.core import objectives
from fedboost.flow import About, Charge, Out, Seat, Spent
from fedboost.messages.protocol.aggregation_pb2 import (
    DealtShares,
    MaskKeys,
    Standing,
    Survivors,
)


class Adds(Protocol):
    """A party's state that has a side in sums."""

    sums: Contributor

    @property
    def sums_of_round(self) -> int:
        """Return how many sums a round may need, each with fresh keys."""


def tell_standing(me: Adds) -> Out:
    """Send where our record of the sums stands."""
    return Out(send=me.sums.stand())


def compare_standings(me: Adds, got: Mapping[str, Standing]) -> Out:
    """Check that the others' records are ours: sums go on, or the model ends, only among equals."""
    me.sums.meet(got)
    return Out()


def offer_keys(me: Adds) -> Out:
    """Our mask key for the whole stage."""
    return Out(send=me.sums.offer())


def hear_keys(me: Adds, got: Mapping[str, MaskKeys]) -> Out:
    """Everybody's mask keys: from here on there are sums."""
    me.sums.hear(got)
    return Out()


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
    """Sign who is left, as we were told."""
    return Out(send=me.sums.sign(present))


def reveal_shares(me: Adds, got: Mapping[str, Survivors]) -> Out:
    """Our shares for the aggregator, never both of anybody."""
    return Out(send=me.sums.reveal(got))


def bytes_max(_: Adds, __: str) -> int:
    """As long as our own vectors, which the totals are checked against."""
    return wire.MESSAGE_BYTES_MAX


# Not steps


def given(me: Adds, vector: Vector, what: Statistic) -> Iterator[Out]:
    """Send a step's vector, part by part; the first one is charged with all of it."""
    rows = me.sums.rows
    charges = (Charge(Spent.TOTALS, len(vector) / max(1, rows)),)
    about = About(rows, charges=charges if len(vector) else ())
    for masked in me.sums.give(vector, what):
        yield Out(send=masked, about=about)
        about = About(rows)


def labels(seat: Seat) -> tuple[Floats, Floats, Floats]:
    """Return labels, weights, and weights with scale_pos_weight of all our rows; float64 (n,)."""
    frame = seat.frame
    assert frame is not None
    assert frame.label is not None
    weight = np.ones(frame.n_rows) if frame.weight is None else frame.weight
    factor = seat.params.scale_pos_weight
    return frame.label, weight, objectives.scaled(weight, frame.label, factor)
