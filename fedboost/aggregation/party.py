"""Steps that every party of a sum takes in any protocol; role modules import them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol

import numpy as np

from fedboost.aggregation.contributor import Contributor, Vector
from fedboost.aggregation.statistic import Statistic
from fedboost.core import objectives
from fedboost.core.params import BoostingParams
from fedboost.flow import Charge, DisclosureInfo, Out, Spent, StageContext
from fedboost.ground import wire
from fedboost.ground.arrays import Floats
from fedboost.messages.protocol.aggregation_pb2 import (
    DealtShares,
    Gathered,
    MaskKeys,
    Standing,
    Survivors,
)


class Adds(Protocol):
    """A party's state that has a side in sums."""

    sums: Contributor

    @property
    def sums_ahead(self) -> int:
        """Return the number of fresh sums that need keys."""


def tell_standing(party: Adds) -> Out:
    """Send where our record of the sums stands."""
    return Out(send=party.sums.signed_standing())


def compare_standings(party: Adds, got: Mapping[str, Standing]) -> Out:
    """Check that the others' records are ours: sums go on, or the model ends, only among equals."""
    party.sums.compare_standings(got)
    return Out()


def offer_keys(party: Adds) -> Out:
    """Send our mask key for the whole stage."""
    return Out(send=party.sums.offer_key())


def hear_keys(party: Adds, got: Mapping[str, MaskKeys]) -> Out:
    """Store all parties' mask keys; sums are possible afterwards."""
    party.sums.hear(got)
    return Out()


def offer_fresh_keys(party: Adds) -> Out:
    """Mask keys for the next sums."""
    return Out(send=party.sums.offer_fresh(party.sums_ahead))


def deal_shares(party: Adds, got: Mapping[str, MaskKeys]) -> Out:
    """Send each other party its shares of the secrets that could open our vectors."""
    return Out(send=party.sums.fresh.deal_shares(got))


def hold_shares(party: Adds, got: Mapping[str, DealtShares], present: tuple[str, ...]) -> Out:
    """Store the other parties' shares."""
    party.sums.hold_shares(got, present)
    return Out()


def sign_survivors(party: Adds, present: tuple[str, ...]) -> Out:
    """Sign the list of remaining parties that we received."""
    return Out(send=party.sums.sign(present))


def reveal_shares(party: Adds, got: Mapping[str, Survivors]) -> Out:
    """Send our shares to the aggregator, never both of one party."""
    return Out(send=party.sums.reveal_shares(got))


def reveal_whole(party: Adds, got: Gathered) -> Out:
    """Send shares of self-masks alone, after every party has sent a vector."""
    return Out(send=party.sums.reveal_whole(got))


def bytes_max(_: Adds, __: str) -> int:
    """Return the limit of a message of totals, which are as long as our own vectors."""
    return wire.MESSAGE_BYTES_MAX


# Not steps


def vector_parts(party: Adds, vector: Vector, what: Statistic) -> Iterator[Out]:
    """Yield a step's vector part by part; the first part is charged with the whole vector."""
    rows = party.sums.rows
    charges = (Charge(Spent.TOTALS, len(vector) / max(1, rows)),)
    about = DisclosureInfo(rows, charges=charges if len(vector) else ())
    for masked in party.sums.masked_parts(vector, what):
        yield Out(send=masked, about=about)
        about = DisclosureInfo(rows)


def labels_and_weights(context: StageContext[BoostingParams]) -> tuple[Floats, Floats, Floats]:
    """Return labels, weights, and weights with scale_pos_weight of all our rows; float64 (n,)."""
    frame = context.frame
    assert frame is not None
    assert frame.label is not None
    weight = np.ones(frame.n_rows) if frame.weight is None else frame.weight
    factor = context.params.scale_pos_weight
    return frame.label, weight, objectives.scale_weights(weight, frame.label, factor)
