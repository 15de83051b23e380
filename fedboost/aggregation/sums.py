"""The steps of a sum and how a walk calls them; protocols put them into their own tables.

A protocol's step that gives `Masked` is a generator over `Contributor.give`; its step that takes
`Total` hands what came to `Contributor.total`.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from fedboost.flow import AGGREGATOR, EVERYBODY, Run, Step
from fedboost.messages.protocol.aggregation_pb2 import (
    DealtShares,
    Masked,
    MaskKeys,
    RevealedShares,
    Standing,
    Survivors,
    Total,
)
from fedboost.settings import Settings


class Aggregation(Settings):
    """What a job may say about its sums."""

    dropout: Literal["wait", "continue"] = "wait"  # what a lost host does to the job
    colluders: int = Field(1, ge=0, le=63)  # parties that may help the aggregator to pry


# The aggregator's.
add_up = Step("add_up", AGGREGATOR, takes=Masked, gives=Total,
              after=(None, "add_up", "open_total"), streams=True)  # fmt: skip
keep_masked = Step("keep_masked", AGGREGATOR, takes=Masked,
                   after=(None, "add_up", "open_total"), tolerates=True)  # fmt: skip
open_total = Step("open_total", AGGREGATOR, takes=RevealedShares, gives=Total,
                  after=("keep_masked",), streams=True, tolerates=True)  # fmt: skip

ADDING = (add_up, keep_masked, open_total)

# A party's, with `dropout: continue`: shares of fresh keys; who is left, and what opens a sum.
deal_shares = Step("deal_shares", EVERYBODY, takes=MaskKeys, gives=DealtShares,
                   after=("offer_fresh_keys",))  # fmt: skip
hold_shares = Step("hold_shares", EVERYBODY, takes=DealtShares, after=("deal_shares",),
                   hears=EVERYBODY)  # fmt: skip
reveal_shares = Step("reveal_shares", EVERYBODY, takes=Survivors, gives=RevealedShares,
                     after=("sign_survivors",), tolerates=True)  # fmt: skip


compare_standings = Step("compare_standings", EVERYBODY, takes=Standing,
                         after=("tell_standing",))  # fmt: skip


def tell_standing(*after: str) -> Step:
    """Return where records stand, in front of all sums and behind the last one."""
    return Step("tell_standing", EVERYBODY, gives=Standing, after=(*after, "compare_standings"))


def offer_fresh_keys(*after: str) -> Step:
    """Fresh keys for the next sums, behind these steps of the protocol."""
    return Step("offer_fresh_keys", EVERYBODY, gives=MaskKeys, after=after)


def sign_survivors(*after: str) -> Step:
    """Return who is left, behind the protocol's steps that give a vector."""
    return Step("sign_survivors", EVERYBODY, gives=Survivors, after=after, hears=EVERYBODY)


async def compare(run: Run, tell: Step, *, spares: bool = False) -> None:
    """Records, among the parties that are left; none is lost before they have told theirs."""
    if not spares:
        await run(tell, compare_standings)
        return
    await run(tell, spares=True)
    await run(compare_standings, spares=True)


async def exchange_keys(run: Run, offer: Step) -> None:
    """Fresh keys and their shares, among the parties that are left."""
    await run(offer, spares=True)
    await run(deal_shares, spares=True)
    await run(hold_shares, spares=True)


async def open_sum(run: Run, give: Step, sign: Step, read: Step) -> None:
    """One sum that goes on without a party that is lost."""
    await run(give, spares=True)
    await run(keep_masked, sign, spares=True)
    await run(reveal_shares, spares=True)
    await run(open_total, read, spares=True)
