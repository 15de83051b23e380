"""A process that stood still knows it, for a while."""

import asyncio

from fedboost.runtime.process import pulse as module
from fedboost.runtime.process.pulse import Pulse


def test_a_gap_between_two_beats_is_known_for_a_while(monkeypatch):
    at = [100.0]
    monkeypatch.setattr(module, "monotonic_s", lambda: at[0])
    pulse = Pulse(every_s=1.0)
    at[0] += 1.5
    assert pulse.stood_still_s(within_s=10.0) == 0.0, "a beat may come late"
    at[0] += 8.0
    assert pulse.stood_still_s(within_s=10.0) == 8.0, "nobody has beaten since"
    for _ in range(10):
        at[0] += 1.0
        assert pulse.stood_still_s(within_s=10.0) == 8.0
    at[0] += 1.0
    assert pulse.stood_still_s(within_s=10.0) == 0.0


def test_an_event_loop_that_runs_beats(monkeypatch):
    at = [0.0]
    monkeypatch.setattr(module, "monotonic_s", lambda: at[0])

    async def run():
        pulse = Pulse(every_s=0.001)
        beating = asyncio.create_task(pulse.beat_until_cancelled())
        for _ in range(5):
            at[0] += 0.0015
            await asyncio.sleep(0.01)
        stood = pulse.stood_still_s(within_s=1.0)
        beating.cancel()
        return stood

    assert asyncio.run(run()) == 0.0
