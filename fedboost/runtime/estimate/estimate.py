"""What a job will take before it runs: its walk's counts times this machine's prices.

counts of primitives × seconds of each ─► processor seconds by party ─► time, by who waits for whom
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from fedboost import protocols
from fedboost.core import forest
from fedboost.core.params import BoostingParams, TreeParams
from fedboost.crypto.lattice.parameters import BY_NAME
from fedboost.flow import Protocol, Role
from fedboost.ground.errors import ConfigError
from fedboost.ground.settings import parse
from fedboost.runtime.estimate import prices as priced
from fedboost.runtime.estimate.cipher_tally import (
    ADD,
    ADD_FEW,
    ANSWER,
    OPERATIONS,
    PACK,
    RUN,
    SUBTRACT,
)
from fedboost.runtime.estimate.cipher_tally import START as TABLES
from fedboost.runtime.estimate.phases import ALONE, SHARED, Phase, primitives
from fedboost.runtime.estimate.prices import FSYNC, READ_CELL, READ_ROW, Prices
from fedboost.runtime.estimate.scenes import Scene, Setting
from fedboost.runtime.estimate.stages import Stage
from fedboost.runtime.process.memory import LARGE_ROWS

START = "begin"  # the stage of what comes before any protocol
# Of a row and of each of its cells, as measured: while a table is read, and once it is. Of large
# tables ids and cells lie in files, and then their bins.
ID_BYTES, CELL_BYTES, LARGE_ROW_BYTES = 120.0, 9.0, 16.0
KEPT_ID_BYTES, KEPT_CELL_BYTES = 45.0, 4.0
FILE_ID_BYTES, BIN_BYTES = 33.0, 1.0

AWAY = frozenset({ADD, ADD_FEW})  # what workers on Dask do for a host
AWAY_OF_RINGS = AWAY | {SUBTRACT, RUN, PACK, ANSWER}

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True)
class Placement:
    """Where parties run: all on one machine, or each on one like it with links between them."""

    cores: int
    apart: bool = False
    bytes_per_s: float | None = None  # of a party's link, each way; None: as fast as it computes
    latency_s: float = 0.0  # one way
    workers: Mapping[str, int] = field(default_factory=dict)  # threads that add up for a party


@dataclass(frozen=True)
class Took:
    """A phase with all its repetitions."""

    stage: str
    name: str
    seconds: float
    cpu_seconds: Mapping[str, float]  # by party
    repeats: bool  # in every round


@dataclass
class Estimate:
    """What a job is expected to take; the keys of `said` are those of a result."""

    name: str
    protocol: str
    rows: dict[str, int]
    seconds: dict[str, float]
    cpu_seconds: dict[str, float]
    memory_peak_bytes: dict[str, int]
    disk_peak_bytes: dict[str, int]  # of files of large tables
    bytes: dict[str, int]
    encryption: dict[str, str]  # `scheme` and `because`, if no policy denies it
    answers: str  # how hosts' encrypted sums come; empty where there is one way
    steps: dict[tuple[str, str], float]  # seconds by stage and step, in the order they begin
    assumed: list[str] = field(default_factory=list)

    def said(self) -> dict[str, Any]:
        """As `--json` prints it."""
        steps = [{"stage": s, "step": n, "seconds": spent} for (s, n), spent in self.steps.items()]
        return {**vars(self), "steps": steps}


def estimate(
    setting: Setting, place: Placement, prices: Prices, say: Callable[[str], None] | None = None
) -> Estimate:
    """Return what a job takes on machines like this one; a ConfigError where it trains nothing."""
    scene, stages = setting.scene, setting.stages
    spec = scene.spec
    for stranger in sorted(set(place.workers) - set(spec.parties.hosts)):
        raise ConfigError(
            f"{stranger} is no host of the job", todo="workers add up for hosts alone"
        )
    protocol = protocols.named(spec.protocol)
    params = parse(protocol.params, spec.params, section="params")
    phases = [_begin(scene), *(phase for stage in stages for phase in stage.phases)]
    clock = _Clock(prices.of([*primitives(phases), FSYNC, *priced.DAEMONS], say), place, scene)
    took = [clock.took(phase) for phase in phases]
    sent = _added(("->".join(link), n * p.times) for p in phases for link, n, _ in p.sent())
    return Estimate(
        name=spec.name,
        protocol=spec.protocol,
        rows={"aligned": scene.common, "train": round(scene.training)},
        seconds=_seconds(took, protocol, params),
        cpu_seconds=_added(item for entry in took for item in entry.cpu_seconds.items()),
        memory_peak_bytes={
            party: round(clock.memory(party, stages))
            for party in spec.parties.table().of(tuple(Role))
        },
        disk_peak_bytes={
            party: round(file_bytes(party, rows, scene.columns[party], stages))
            for party, rows in scene.rows.items()
        },
        bytes={link: round(n_bytes) for link, n_bytes in sent.items()},
        encryption=dict(setting.encryption),
        answers=next((stage.answers for stage in reversed(stages) if stage.answers), ""),
        steps=_added(((entry.stage, entry.name), entry.seconds) for entry in took),
        assumed=[
            *setting.assumed,
            *map(_uncounted, place.workers),
            *(sentence for stage in stages for sentence in stage.assumed),
        ],
    )


def held_bytes(party: str, rows: int, columns: int, stages: Sequence[Stage]) -> float:
    """Return the most bytes that a party holds of its table and of a job's stages in memory."""
    is_large = rows >= LARGE_ROWS
    read = LARGE_ROW_BYTES if is_large else ID_BYTES + CELL_BYTES * columns
    kept, most = KEPT_ID_BYTES + KEPT_CELL_BYTES * columns, [rows * read]
    for stage in stages:
        goes = protocols.named(stage.name).bins_values  # instead of the table
        held = stage.memory.get(party, 0.0) + (0.0 if goes else rows * kept)
        if is_large:
            in_files = FILE_ID_BYTES + (BIN_BYTES if goes else KEPT_CELL_BYTES) * columns
            held -= rows * in_files + stage.rows.get(party, 0.0)
        most.append(held)
    return max(most)


def file_bytes(party: str, rows: int, columns: int, stages: Sequence[Stage]) -> float:
    """Return the most bytes of a large table's files; none of another's."""
    if rows < LARGE_ROWS:
        return 0.0
    ids, values, bins = (
        rows * n for n in (FILE_ID_BYTES, KEPT_CELL_BYTES * columns, BIN_BYTES * columns)
    )
    trained = [ids + bins + stage.rows.get(party, 0.0) for stage in stages]
    return max(2 * ids + values, ids + values + bins, *trained)


def _uncounted(party: str) -> str:
    return f"workers of {party}: what they use, and the way to them, is not counted"


def _begin(scene: Scene) -> Phase:
    phase = Phase(START, "read tables", calls=2.0)
    for party in scene.parties:
        rows = float(scene.rows[party])
        phase.add(party, READ_ROW, rows)
        phase.add(party, READ_CELL, rows * scene.columns[party])
        phase.add(party, priced.JOB, 1.0)
    return phase


@dataclass
class _Clock:
    """Prices at work."""

    prices: Mapping[str, float]
    place: Placement
    scene: Scene
    started: set[str] = field(default_factory=set)  # parties whose workers run
    loaded: set[str] = field(default_factory=set)  # those whose workers have tables of a key

    def took(self, phase: Phase) -> Took:
        """A phase with its repetitions."""
        cores, price = self.place.cores, self.prices
        alone: dict[str, float] = defaultdict(float)  # seconds on one core
        once: dict[str, float] = {}  # of workers that begin
        shared: dict[str, float] = defaultdict(float)  # seconds of all cores together
        away: dict[str, float] = defaultdict(float)  # until workers have added up
        for party, name, count in phase.works():
            scheme, _, operation = name.rpartition(": ")
            parallel = name == SHARED or (bool(scheme) and operation in OPERATIONS)
            each = 1.0 if name in (ALONE, SHARED) else price[name]
            each *= cores if operation == TABLES else 1
            goes = AWAY_OF_RINGS if scheme in BY_NAME else AWAY
            if operation in goes and party in self.place.workers:
                away[party] += count * each / self._threads(party, scheme)
                continue
            (shared if parallel else alone)[party] += count * each
            if parallel and count and party not in self.started:
                self.started.add(party)
                once[party] = cores * price[priced.SPAWN]
            if operation == TABLES:
                self.loaded.add(party)
        for link, n_bytes, count in phase.sent():
            for party in link:
                both = count * price[priced.MESSAGE] + n_bytes * price[priced.BYTE]
                alone[party] += both / 2
        busy = {p: alone[p] + shared[p] for p in {**alone, **shared}}
        waits = [alone[p] + shared[p] / cores + away[p] for p in {**busy, **away}]
        chain = max(waits, default=0.0)
        # Of the messages that wait for one another, the other party's half.
        chain += phase.exchanges * (price[priced.MESSAGE] / 2 + 2 * price[FSYNC])
        chain += phase.calls * (price[priced.LEAD] + price[FSYNC])
        if self.place.apart:
            seconds = chain + self._network(phase)
            spawned = max(once.values(), default=0.0) / cores
        else:
            led = phase.calls * price[priced.LEAD]
            seconds = max(chain, (sum(busy.values()) + led) / cores)
            spawned = sum(once.values()) / cores
        return Took(
            stage=phase.stage,
            name=phase.name,
            seconds=seconds * phase.times + spawned,
            cpu_seconds={p: cpu_s * phase.times + once.get(p, 0.0) for p, cpu_s in busy.items()},
            repeats=phase.round is not None,
        )

    def memory(self, party: str, stages: Sequence[Stage]) -> float:
        """The most bytes that a party holds."""
        price, scene = self.prices, self.scene
        rows, columns = scene.rows.get(party, 0), scene.columns.get(party, 0)
        held = held_bytes(party, rows, columns, stages)
        each = price[priced.CIPHERS if party in self.loaded else priced.WORKER]
        workers = self.place.cores * each * (party in self.started)
        return price[priced.MEMORY] + price[priced.KERNELS] + held + workers

    def _threads(self, party: str, scheme: str) -> int:
        """Workers' threads that are of use: each of a lattice has columns of its own."""
        threads = self.place.workers[party]
        return min(threads, self.scene.columns[party]) if scheme in BY_NAME else threads

    def _network(self, phase: Phase) -> float:
        """Seconds that a phase waits for links."""
        waits = (phase.exchanges + 2 * phase.calls) * self.place.latency_s
        if self.place.bytes_per_s is None:
            return waits
        sent = [(link, n_bytes) for link, n_bytes, _ in phase.sent()]
        up, down = (_added((link[end], n_bytes) for link, n_bytes in sent) for end in (0, 1))
        ways = [*up.values(), *down.values()]
        return waits + max(ways, default=0.0) / self.place.bytes_per_s


def _seconds(took: Sequence[Took], protocol: Protocol, params: Any) -> dict[str, float]:
    stages = [phase for phase in took if phase.stage != START]
    seconds = {"total": sum(phase.seconds for phase in took)}
    seconds |= _added((protocols.named(phase.stage).timed_as, phase.seconds) for phase in stages)
    if isinstance(params, BoostingParams):
        key, times = "per_round", float(params.n_estimators)
        if isinstance(params, TreeParams):
            key, times = "per_tree", float(forest.starts(params)[-1])
        trained = [phase for phase in stages if phase.stage == protocol.name and phase.repeats]
        seconds[key] = sum(phase.seconds for phase in trained) / max(1.0, times)
    return seconds


def _added(amounts: Iterable[tuple[K, float]]) -> dict[K, float]:
    """Amounts by key, in the order in which keys appear first."""
    sums: dict[K, float] = {}
    for key, amount in amounts:
        sums[key] = sums.get(key, 0.0) + amount
    return sums
