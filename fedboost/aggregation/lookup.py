"""Search for the cut points of all parties' columns, by counting values under masks once a job.

parties ─── values below each probe ───► aggregator ─── Total ───► parties    ≤ 32 times

A protocol adds both steps to its table and both functions to its role modules, and decides what
follows the search. FederBoost (Tian et al.), Protocol 3.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from fedboost.aggregation import party as adding
from fedboost.aggregation.measures import PooledCounts
from fedboost.aggregation.statistic import Statistic
from fedboost.aggregation.sums import add_up
from fedboost.core.quantiles import SEARCH_ROUNDS_MAX, Ranked, Search
from fedboost.flow import EVERYBODY, CheckpointPolicy, Out, Run, Step
from fedboost.messages.job_pb2 import StatusReport
from fedboost.messages.protocol.aggregation_pb2 import Masked, Total

QUANTILES = "quantiles"  # the loop of the search


class Looks(adding.Adds, Protocol):
    """A party's state that has a side in the search."""

    counts: PooledCounts
    ranked: Ranked  # the own columns that are searched
    search: Search


narrow = Step("narrow", EVERYBODY, takes=Total, after=("count_below",))


def count_below_after(*before: str) -> Step:
    """Return the step that counts, behind these steps of the protocol."""
    return Step("count_below", EVERYBODY, gives=Masked, after=(*before, "narrow"), streams=True)


async def find_cuts(run: Run, count: Step) -> None:
    """Walk the search until a party's answer ends it."""
    for _ in run.rounds(QUANTILES, SEARCH_ROUNDS_MAX, keeps=CheckpointPolicy.NOTHING):
        await run(count, add_up, narrow)


def count_below(party: Looks) -> Iterator[Out]:
    """Send the number of our values below each probe of the search."""
    below = party.ranked.count_below(party.search.next_probes())
    yield from adding.vector_parts(party, below, Statistic("count_below"))


def take_counts(party: Looks, got: Iterator[Total]) -> None:
    """Take the search a step on."""
    party.search.take(party.sums.total_before_rounds(got, party.counts.train))


def search_end() -> Out:
    """Return the answer that ends the search."""
    return Out(told=StatusReport(ends=QUANTILES))
