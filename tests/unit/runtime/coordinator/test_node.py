"""The coordinator's journal, without a network."""

from fedboost.messages.job_pb2 import Event, LinkBytes, StateChanged, StepCost, StepDone
from fedboost.runtime.coordinator.journals import condensed


def step(number, name, seconds, sent):
    cost = StepCost(party="bank", seconds=seconds, cpu_seconds=2 * seconds)
    cost.sent.append(LinkBytes(peer="telco", bytes=sent, messages=1))
    done = StepDone(stage="secureboost", step=name, seconds=seconds, costs=[cost])
    return Event(number=number, at=number, step=done)


def test_a_condensed_journal_keeps_every_sum_and_the_order_of_the_rest():
    events = [
        Event(number=1, state=StateChanged(state="running")),
        step(2, "open_layer", 1.0, 10),
        step(3, "choose_splits", 0.5, 1),
        step(4, "open_layer", 2.0, 30),
        Event(number=5, state=StateChanged(state="finished")),
    ]
    kept = condensed(events)
    assert [event.number for event in kept] == [1, 2, 3, 5]
    opened = kept[1].step
    assert (opened.calls, opened.seconds) == (2, 3.0)
    assert (opened.costs[0].seconds, opened.costs[0].cpu_seconds) == (3.0, 6.0)
    assert (opened.costs[0].sent[0].bytes, opened.costs[0].sent[0].messages) == (40, 2)
    assert condensed(kept) == kept


def test_the_journal_of_a_thousand_trees_fits_a_control_message():
    events = [step(n, f"step_{n % 12}", 0.001, n) for n in range(60_000)]
    assert sum(event.ByteSize() for event in condensed(events)) < 4096
