"""What a job will take before it runs: its walk's counts times this machine's prices.

counts of primitives × seconds of each ─► processor seconds by party ─► time, by who waits for whom
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from fedboost import protocols
from fedboost.core import forest
from fedboost.core.params import BoostingParams, TreeParams
from fedboost.flow import Protocol
from fedboost.runtime.estimate import price_daemons as daemons
from fedboost.runtime.estimate.counting_cipher import OPERATIONS
from fedboost.runtime.estimate.counting_cipher import START as TABLES
from fedboost.runtime.estimate.phases import ALONE, SHARED, Phase, primitives
from fedboost.runtime.estimate.prices import FSYNC, READ_CELL, READ_ROW, Prices
from fedboost.runtime.estimate.scenes import Scene, Setting
from fedboost.runtime.estimate.stages import Stage
from fedboost.settings import parse

START = "begin"  # the stage of what comes before any protocol
ID_BYTES = 120.0  # of a row in memory: its id, its places in lists and dicts
CELL_BYTES = 13.0  # of a cell while a table is read: as the file has it, as 32 bits, its bin


@dataclass(frozen=True)
class Placement:
    """Where parties run: all on one machine, or each on one like it with links between them."""

    cores: int
    apart: bool = False
    bytes_per_s: float | None = None  # of a party's link, each way; None: as fast as it computes
    latency_s: float = 0.0  # one way


@dataclass(frozen=True)
class Took:
    """A phase with all its repetitions."""

    stage: str
    name: str
    seconds: float
    cpu_seconds: Mapping[str, float]
    repeats: bool  # in every round


@dataclass
class Estimate:
    """What a job is expected to take; the keys of `said` are those of a result."""

    name: str
    protocol: str
    seconds: dict[str, float]
    cpu_seconds: dict[str, float]
    memory_peak_bytes: dict[str, float]
    bytes: dict[str, float]
    rows: dict[str, int]
    phases: list[Took]
    assumed: list[str] = field(default_factory=list)

    def said(self) -> dict[str, Any]:
        """As `--json` prints it."""
        return {
            "name": self.name,
            "protocol": self.protocol,
            "rows": self.rows,
            "seconds": self.seconds,
            "cpu_seconds": self.cpu_seconds,
            "memory_peak_bytes": {k: round(v) for k, v in self.memory_peak_bytes.items()},
            "bytes": {k: round(v) for k, v in self.bytes.items()},
            "steps": [
                {"stage": one.stage, "step": one.name, "seconds": one.seconds}
                for one in self.phases
            ],
            "assumed": self.assumed,
        }


def estimate(
    setting: Setting,
    place: Placement,
    prices: Prices,
    say: Callable[[str], None] | None = None,
) -> Estimate:
    """Return what a job takes on machines like this one; a ConfigError for one that
    trains nothing.
    """
    scene = setting.scene
    spec = scene.spec
    protocol = protocols.named(spec.protocol)
    params = parse(protocol.params, spec.params, section="params")
    stages = setting.stages
    phases = [_begin(scene), *(phase for one in stages for phase in one.phases)]
    known = prices.of([*primitives(phases), FSYNC, *daemons.NAMES], say)
    clock = _Clock(known, place, scene)
    took = [clock.took(phase) for phase in phases]
    return Estimate(
        name=spec.name,
        protocol=spec.protocol,
        seconds=_seconds(took, protocol, params),
        cpu_seconds=_by_party(took),
        memory_peak_bytes=clock.memory(stages),
        bytes=_bytes(phases),
        rows={"aligned": scene.common, "train": round(scene.training)},
        phases=_merged(took),
        assumed=[*setting.assumed, *(said for one in stages for said in one.assumed)],
    )


def _begin(scene: Scene) -> Phase:
    phase = Phase(START, "read tables", calls=2.0)
    for party in scene.parties:
        rows = float(scene.rows[party])
        phase.add(party, READ_ROW, rows)
        phase.add(party, READ_CELL, rows * scene.columns[party])
        phase.add(party, daemons.JOB, 1.0)
    return phase


@dataclass
class _Clock:
    """Prices at work."""

    prices: Mapping[str, float]
    place: Placement
    scene: Scene
    started: set[str] = field(default_factory=set)  # parties whose workers run
    loaded: set[str] = field(default_factory=set)  # those whose workers have ciphers

    def took(self, phase: Phase) -> Took:
        """A phase with its repetitions."""
        cores, price = self.place.cores, self.prices
        alone: dict[str, float] = defaultdict(float)  # seconds on one core
        once: dict[str, float] = defaultdict(float)  # of workers that begin
        shared: dict[str, float] = defaultdict(float)  # seconds of all cores together
        for party, name, count in phase.works():
            scheme, _, operation = name.rpartition(": ")
            ciphers = bool(scheme) and operation in OPERATIONS
            times = cores if operation == TABLES else 1.0
            parallel = ciphers or name == SHARED
            each = 1.0 if name in (ALONE, SHARED) else price[name] * times
            (shared if parallel else alone)[party] += count * each
            if parallel and count:
                self._note(once, party, ciphers=operation == TABLES)
        for (sender, receiver), n_bytes, count in phase.sent():
            each = (count * price[daemons.MESSAGE] + n_bytes * price[daemons.BYTE]) / 2
            alone[sender] += each
            alone[receiver] += each
        busy = {p: alone[p] + shared[p] for p in {*alone, *shared}}
        chain = max((alone[p] + shared[p] / cores for p in busy), default=0.0)
        # Of the messages that wait for one another, the other party's half.
        chain += phase.exchanges * (price[daemons.MESSAGE] / 2 + 2 * price[FSYNC])
        chain += phase.calls * (price[daemons.LEAD] + price[FSYNC])
        seconds = chain + self._network(phase)
        if not self.place.apart:
            led = phase.calls * price[daemons.LEAD]
            seconds = max(seconds, (sum(busy.values()) + led) / cores)
            spawned = sum(once.values()) / cores
        else:
            spawned = max(once.values(), default=0.0) / cores
        return Took(
            stage=phase.stage,
            name=phase.name,
            seconds=seconds * phase.times + spawned,
            cpu_seconds={p: own * phase.times + once.get(p, 0.0) for p, own in busy.items()},
            repeats=phase.round is not None,
        )

    def memory(self, stages: Sequence[Stage]) -> dict[str, float]:
        """The most that each party holds."""
        found = {}
        for party in self.scene.parties:
            rows, columns = float(self.scene.rows[party]), self.scene.columns[party]
            held = rows * (ID_BYTES + CELL_BYTES * columns)
            most = max((one.memory.get(party, 0.0) for one in stages), default=0.0)
            each = self.prices[daemons.CIPHERS if party in self.loaded else daemons.WORKER]
            workers = self.place.cores * each * (party in self.started)
            own = self.prices[daemons.MEMORY] + self.prices[daemons.KERNELS]
            found[party] = own + held + most + workers
        return found

    def _note(self, once: dict[str, float], party: str, *, ciphers: bool) -> None:
        """Note what it takes that a party shares work with its processes for the first time."""
        cores = self.place.cores
        if party not in self.started:
            self.started.add(party)
            once[party] += cores * self.prices[daemons.SPAWN]
        if ciphers:
            self.loaded.add(party)

    def _network(self, phase: Phase) -> float:
        place = self.place
        if not place.apart:
            return 0.0
        waits = (phase.exchanges + 2 * phase.calls) * place.latency_s
        if place.bytes_per_s is None:
            return waits
        ways: dict[tuple[str, str], float] = defaultdict(float)
        for (sender, receiver), n_bytes, _ in phase.sent():
            ways["up", sender] += n_bytes
            ways["down", receiver] += n_bytes
        return waits + max(ways.values(), default=0.0) / place.bytes_per_s


def _seconds(took: Sequence[Took], protocol: Protocol, params: Any) -> dict[str, float]:
    found = {"total": sum(one.seconds for one in took)}
    for one in took:
        if one.stage != START:
            key = protocols.named(one.stage).timed_as
            found[key] = found.get(key, 0.0) + one.seconds
    if isinstance(params, BoostingParams):
        own = [one for one in took if one.stage == protocol.name]
        trees = forest.starts(params)[-1] if isinstance(params, TreeParams) else params.n_estimators
        key = "per_tree" if isinstance(params, TreeParams) else "per_round"
        repeated = sum(one.seconds for one in own if one.repeats)
        found[key] = repeated / max(1.0, float(trees))
    return found


def _merged(took: Sequence[Took]) -> list[Took]:
    """Phases of the same name as one, in the order in which they begin."""
    found: dict[tuple[str, str], list[Took]] = {}
    for one in took:
        found.setdefault((one.stage, one.name), []).append(one)
    return [
        replace(own[0], seconds=sum(one.seconds for one in own), cpu_seconds=_by_party(own))
        for own in found.values()
    ]


def _by_party(took: Sequence[Took]) -> dict[str, float]:
    found: dict[str, float] = defaultdict(float)
    for one in took:
        for party, seconds in one.cpu_seconds.items():
            found[party] += seconds
    return dict(found)


def _bytes(phases: Sequence[Phase]) -> dict[str, float]:
    found: dict[str, float] = defaultdict(float)
    for phase in phases:
        for (sender, receiver), n_bytes, _ in phase.sent():
            found[f"{sender}->{receiver}"] += n_bytes * phase.times
    return dict(found)
