"""The steps of a sum and how a walk calls them; protocols put them into their own tables.

A protocol's step that gives `Masked` is a generator over `Contributor.masked_parts`; its step that
takes `Total` passes the messages to `Contributor.total`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from fedboost.flow import AGGREGATOR, EVERYBODY, Run, Step
from fedboost.ground.settings import Settings
from fedboost.messages.protocol.aggregation_pb2 import (
    DealtShares,
    Gathered,
    Masked,
    MaskKeys,
    RevealedShares,
    Standing,
    Survivors,
    Total,
)


class Aggregation(Settings):
    """Settings of a job's sums."""

    dropout: Literal["wait", "continue"] = "wait"  # effect of a lost host on the job
    colluders: int = Field(1, ge=0, le=63)  # parties that may help the aggregator to pry


# The aggregator's.
BETWEEN = (None, "stand_by", "add_up", "add_or_close", "open_whole", "open_total")
stand_by = Step("stand_by", AGGREGATOR, after=BETWEEN)
add_up = Step("add_up", AGGREGATOR, takes=Masked, gives=Total, after=BETWEEN, streams=True)
gather = Step("gather", AGGREGATOR, takes=Masked, gives=Gathered, after=BETWEEN)
open_whole = Step("open_whole", AGGREGATOR, takes=RevealedShares, gives=Total, after=("gather",),
                  streams=True)  # fmt: skip
# The same for a sum that may lack a party: with the vectors that arrived.
add_or_close = Step("add_or_close", AGGREGATOR, takes=Masked, gives=Total, after=BETWEEN,
                    streams=True, tolerates=True)  # fmt: skip
keep_masked = Step("keep_masked", AGGREGATOR, takes=Masked, after=BETWEEN, tolerates=True)
open_total = Step("open_total", AGGREGATOR, takes=RevealedShares, gives=Total,
                  after=("keep_masked", "gather"), streams=True, tolerates=True)  # fmt: skip

ADDING = (stand_by, add_up, gather, open_whole, add_or_close, keep_masked, open_total)

# A party's steps with `dropout: continue`: shares of fresh keys, survivors, opening of a sum.
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
    """Return the step that offers keys for the next sums, after these steps of the protocol."""
    return Step("offer_fresh_keys", EVERYBODY, gives=MaskKeys, after=(*after, "hold_shares"))


def sign_survivors(*after: str) -> Step:
    """Return the step that signs the survivors, after the protocol's steps that give a fresh
    vector.
    """
    return Step("sign_survivors", EVERYBODY, gives=Survivors, after=after, hears=EVERYBODY)


def reveal_whole(*after: str) -> Step:
    """Return the step that opens a sum with all vectors, after the same steps."""
    return Step("reveal_whole", EVERYBODY, takes=Gathered, gives=RevealedShares, after=after)


async def compare_records(run: Run, tell: Step, *, spares: bool = False) -> None:
    """Exchange and compare records among the remaining parties; none is dropped before it has sent
    its own.
    """
    if not spares:
        await run(tell, compare_standings)
        return
    await run(tell, spares=True)
    await run(compare_standings, spares=True)


async def exchange_keys(run: Run, offer: Step) -> tuple[str, ...]:
    """Exchange fresh keys and shares among the remaining parties; return the remaining hosts."""
    await run(offer, spares=True)
    await run(deal_shares, spares=True)
    present = run.present
    await run(hold_shares, spares=True)
    return present


@dataclass(frozen=True)
class FreshSum:
    """The steps of a sum that may go on without a party that is lost."""

    give: Step
    reveal: Step
    sign: Step
    read: Step

    @property
    def steps(self) -> tuple[Step, ...]:
        """Return the steps of a sum without a lost party."""
        return self.give, gather, self.reveal, open_whole, self.read

    async def walk(self, run: Run, keyed: tuple[str, ...], behind: Step | None = None) -> None:
        """Open the sum over the remaining parties; `keyed` are the hosts that exchanged keys.

        `behind` is the step before which a party was lost, after parties sent vectors.
        """
        if behind in (None, self.give):
            await run(self.give, spares=True)
            if run.present == keyed:
                await run(gather, self.reveal, spares=True)
                behind = open_whole
        if behind is not open_whole:
            await run(keep_masked, self.sign, spares=True)
            await run(reveal_shares, spares=True)
        await run(open_total, self.read, spares=True)


@dataclass(frozen=True)
class WholeSum:
    """Steps of a sum that is opened over all members of the last one, or stays closed."""

    give: Step
    read: Step

    @property
    def steps(self) -> tuple[Step, ...]:
        """Return the steps of a sum without a lost party."""
        return self.give, add_up, self.read

    async def walk(self, run: Run, behind: Step | None = None) -> None:
        """Open it, or say that it stays closed."""
        if behind in (None, self.give):
            await run(self.give, spares=True)
        await run(add_or_close, self.read, spares=True)
