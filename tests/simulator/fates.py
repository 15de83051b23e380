"""What a link can do to one call, and schedules that say when."""

import asyncio
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fedboost.runtime.cluster.local import USER
from tests.simulator.network import Fate, Replies, Trip, Wire, broken

RESET_S = 0.2  # until a broken connection is noticed
OVERTAKEN_S = 2.0  # the longest that a call waits for another to overtake it
LATE_S = 20.0  # longer than a peer may be silent, shorter than a step may take


class Lost:
    """The call does not arrive."""

    async def befall(self, wire: Wire) -> Any:
        """See `network.Fate`."""
        await asyncio.sleep(RESET_S)
        raise broken()


class ReplyLost:
    """The call arrives, the work is done, and nobody hears of it."""

    async def befall(self, wire: Wire) -> Any:
        """See `network.Fate`."""
        answer = await wire.arrive()
        while isinstance(answer, Replies) and await answer.read() is not None:
            pass
        raise broken()


class Doubled:
    """The call arrives twice at once."""

    async def befall(self, wire: Wire) -> Any:
        """See `network.Fate`."""
        wire.aside(wire.trip)
        return await wire.arrive()


class Overtaken:
    """The next call of the same caller arrives before it."""

    async def befall(self, wire: Wire) -> Any:
        """See `network.Fate`."""
        await wire.wait_for_another(OVERTAKEN_S)
        return await wire.arrive()


class Late:
    """The call takes its time."""

    async def befall(self, wire: Wire) -> Any:
        """See `network.Fate`."""
        await asyncio.sleep(LATE_S)
        return await wire.arrive()


@dataclass
class Replayed:
    """Before the call another arrives that the receiver has had before, or in another job."""

    old: Trip

    async def befall(self, wire: Wire) -> Any:
        """See `network.Fate`."""
        await wire.arrive_aside(self.old)
        return await wire.arrive()


FAULTS = ("lost", "reply lost", "doubled", "overtaken", "late", "replayed step", "replayed job")
_PLAIN: dict[str, Callable[[], Fate]] = {
    "lost": Lost,
    "reply lost": ReplyLost,
    "doubled": Doubled,
    "overtaken": Overtaken,
    "late": Late,
}


@dataclass
class Past:
    """What was on the links before: of this job and, from its own run, of another one."""

    other: list[Trip]
    own: list[Trip] = field(default_factory=list)

    def fate(self, fault: str, trip: Trip, draw: random.Random) -> Fate | None:
        """The fault that befalls a call; None where nothing of the kind was there yet."""
        if fault in _PLAIN:
            return _PLAIN[fault]()
        link = (trip.sender, trip.receiver)
        other = [t for t in self.other if (t.sender, t.receiver) == link]
        if fault == "replayed step":  # of this job, where there was one
            own = [t for t in self.own if (t.sender, t.receiver) == link]
            known = [t for t in own or other if t.pieces != trip.pieces]
        else:
            known = [t for t in other if t.what == trip.what] or other
        return Replayed(draw.choice(known)) if known else None


@dataclass
class Once:
    """One fault befalls the n-th call of a kind, and nothing else happens."""

    what: str
    fault: str
    past: Past
    sender: str = ""  # whose call; empty: anybody's
    times: int = 1
    has_happened: bool = False
    seen: int = 0

    def fate(self, trip: Trip) -> Fate | None:
        """See `network.Schedule`."""
        found = None
        if trip.what == self.what and self.sender in ("", trip.sender) and not self.has_happened:
            self.seen += 1
            if self.seen >= self.times:
                found = self.past.fate(self.fault, trip, random.Random(self.times))
                self.has_happened = found is not None
        self.past.own.append(trip)
        return found


@dataclass
class OnEach:
    """The first call of every kind meets the fault that the plan has for it."""

    plan: Mapping[str, str]  # the fault of each kind of call
    past: Past
    happened: set[str] = field(default_factory=set)  # the kinds

    def fate(self, trip: Trip) -> Fate | None:
        """See `network.Schedule`."""
        found, fault = None, self.plan.get(trip.what)
        if fault is not None and trip.what not in self.happened:
            found = self.past.fate(fault, trip, random.Random(1))
            if found is not None:
                self.happened.add(trip.what)
        self.past.own.append(trip)
        return found


def is_spared(trip: Trip) -> bool:
    """Whether faults pass a call by: before there is a job, one that goes wrong is just refused."""
    return trip.method == "Hello" or trip.sender == USER


@dataclass
class AtRandom:
    """Any call may meet any fault; everything comes from the seed."""

    seed: int
    past: Past
    rate: float
    faults: tuple[str, ...] = FAULTS
    happened: list[tuple[str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.draw = random.Random(self.seed)

    def fate(self, trip: Trip) -> Fate | None:
        """See `network.Schedule`."""
        found = None
        if not is_spared(trip) and self.draw.random() < self.rate:
            fault = self.draw.choice(self.faults)
            found = self.past.fate(fault, trip, self.draw)
            if found is not None:
                self.happened.append((fault, trip.what))
        self.past.own.append(trip)
        return found
