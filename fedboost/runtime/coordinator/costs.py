"""What steps cost, added up: over the calls of a step, and over a job's journal."""

from __future__ import annotations

from fedboost.messages.job_pb2 import Event, LinkBytes, StepCost, StepDone


class Costs:
    """Adds what parties spent to one event of a step, one line a party and one a link."""

    def __init__(self, done: StepDone) -> None:
        """`done` is what is added to; it may hold costs already."""
        self.done = done
        self._parties: dict[str, StepCost] = {cost.party: cost for cost in done.costs}
        self._links: dict[tuple[str, str], LinkBytes] = {
            (cost.party, link.peer): link for cost in done.costs for link in cost.sent
        }

    def add(self, cost: StepCost) -> None:
        """One party's share of one call."""
        if cost.party not in self._parties:
            self._parties[cost.party] = self.done.costs.add(party=cost.party)
        own = self._parties[cost.party]
        own.seconds += cost.seconds
        own.cpu_seconds += cost.cpu_seconds
        for link in cost.sent:
            to = cost.party, link.peer
            if to not in self._links:
                self._links[to] = own.sent.add(peer=link.peer)
            self._links[to].bytes += link.bytes
            self._links[to].messages += link.messages


def condensed(events: list[Event]) -> list[Event]:
    """The same journal with all calls of a step as one event, where it was called first.

    A step is called once a layer: a job of a thousand trees would not fit a message otherwise.
    """
    kept: list[Event] = []
    sums: dict[tuple[str, str], Costs] = {}
    for event in events:
        if event.WhichOneof("what") != "step":
            kept.append(event)
            continue
        step = event.step
        key = step.stage, step.step
        if key not in sums:
            kept.append(Event(number=event.number, at=event.at))
            kept[-1].step.MergeFrom(StepDone(stage=step.stage, step=step.step))
            sums[key] = Costs(kept[-1].step)
        total = sums[key]
        total.done.calls += step.calls or 1
        total.done.seconds += step.seconds
        total.done.exchanges += step.exchanges
        for cost in step.costs:
            total.add(cost)
    return kept
