"""Estimates a job before it runs: memory, bytes, and approximate time.

counts of primitives × seconds of each ─► processor seconds by party ─► time, by order of phases
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fedboost import protocols
from fedboost.flow import Role
from fedboost.runtime.estimate import prices as priced
from fedboost.runtime.estimate.cipher_tally import KEY_TABLES as TABLES
from fedboost.runtime.estimate.cipher_tally import OPERATIONS
from fedboost.runtime.estimate.phases import ALONE, SHARED, Phase, primitives
from fedboost.runtime.estimate.prices import FSYNC, READ_CELL, READ_ROW
from fedboost.runtime.estimate.scenes import Scene
from fedboost.runtime.estimate.setting import Setting
from fedboost.runtime.estimate.stages import Stage
from fedboost.runtime.process.memory import LARGE_ROWS

BEGIN_STAGE = "begin"  # the stage before all protocols
# Measured bytes of a row and of each of its cells: while a table is read, and once it is. Ids and
# cells of large tables are in files, and later their bins are.
ID_BYTES, CELL_BYTES, LARGE_ROW_BYTES = 120.0, 9.0, 16.0
KEPT_ID_BYTES, KEPT_CELL_BYTES = 45.0, 4.0
FILE_ID_BYTES, BIN_BYTES = 33.0, 1.0

UNCERTAINTY = 2.0  # the total may be this many times shorter or longer

Pricing = Callable[[Iterable[str]], Mapping[str, float]]


@dataclass(frozen=True)
class Placement:
    """The machines of the parties: one for all, or one each, with links between them."""

    cores: int
    apart: bool = False
    bytes_per_s: float | None = None  # of a party's link, each way; None: no limit
    latency_s: float = 0.0  # one way


@dataclass
class Estimate:
    """The estimate of a job; `said` has the keys of a result."""

    name: str
    protocol: str
    rows: dict[str, int]
    seconds: dict[str, float]  # `total`, and its bounds `least` and `most`
    memory_peak_bytes: dict[str, int]
    disk_peak_bytes: dict[str, int]  # of files of large tables
    bytes: dict[str, int]
    encryption: dict[str, str]  # `scheme` and `because`, if no policy denies it
    answers: str  # the form of hosts' encrypted sums; empty if there is only one
    assumed: list[str] = field(default_factory=list)

    def said(self) -> dict[str, Any]:
        """Return the estimate as `--json` prints it."""
        return dict(vars(self))


def estimate(setting: Setting, place: Placement, price: Pricing = priced.prices_of) -> Estimate:
    """Return the estimate of a job on machines like this; a ConfigError if it trains nothing."""
    scene, stages = setting.scene, setting.stages
    spec = scene.spec
    phases = [_begin_phase(scene), *(phase for stage in stages for phase in stage.phases)]
    prices = price(primitives(phases))
    total = sum(phase.times * _phase_seconds(phase, prices, place) for phase in phases)
    busy = {
        party for phase in phases for party, name, n in phase.operations() if n and _is_shared(name)
    }
    sent: dict[str, float] = defaultdict(float)
    for phase in phases:
        for link, n_bytes, _ in phase.sent():
            sent["->".join(link)] += n_bytes * phase.times
    return Estimate(
        name=spec.name,
        protocol=spec.protocol,
        rows={"aligned": scene.common, "train": round(scene.training)},
        seconds={"total": total, "least": total / UNCERTAINTY, "most": total * UNCERTAINTY},
        memory_peak_bytes={
            party: round(
                prices[priced.DAEMON_MEMORY]
                + held_bytes(party, scene.rows.get(party, 0), scene.columns.get(party, 0), stages)
                + place.cores * prices[priced.WORKER] * (party in busy)
            )
            for party in spec.parties.table().of(tuple(Role))
        },
        disk_peak_bytes={
            party: round(file_bytes(party, rows, scene.columns[party], stages))
            for party, rows in scene.rows.items()
        },
        bytes={link: round(n_bytes) for link, n_bytes in sent.items()},
        encryption=dict(setting.encryption),
        answers=next((stage.answers for stage in reversed(stages) if stage.answers), ""),
        assumed=[*setting.assumed, *(words for stage in stages for words in stage.assumed)],
    )


def held_bytes(party: str, rows: int, columns: int, stages: Sequence[Stage]) -> float:
    """Return the most bytes of its table and of a job's stages that a party has in memory."""
    is_large = rows >= LARGE_ROWS
    read = LARGE_ROW_BYTES if is_large else ID_BYTES + CELL_BYTES * columns
    kept, most = KEPT_ID_BYTES + KEPT_CELL_BYTES * columns, [rows * read]
    for stage in stages:
        goes = protocols.load_protocol(stage.name).tables.bins_values  # bins replace the values
        held = stage.memory.get(party, 0.0) + (0.0 if goes else rows * kept)
        if is_large:
            in_files = FILE_ID_BYTES + (BIN_BYTES if goes else KEPT_CELL_BYTES) * columns
            held -= rows * in_files + stage.rows.get(party, 0.0)
        most.append(held)
    return max(most)


def file_bytes(party: str, rows: int, columns: int, stages: Sequence[Stage]) -> float:
    """Return the most bytes of a large table's files; 0 for a small table."""
    if rows < LARGE_ROWS:
        return 0.0
    ids, values, bins = (
        rows * n for n in (FILE_ID_BYTES, KEPT_CELL_BYTES * columns, BIN_BYTES * columns)
    )
    trained = [ids + bins + stage.rows.get(party, 0.0) for stage in stages]
    return max(2 * ids + values, ids + values + bins, *trained)


def _begin_phase(scene: Scene) -> Phase:
    phase = Phase(BEGIN_STAGE, "read tables", calls=2.0)
    for party in scene.parties:
        rows = float(scene.rows[party])
        phase.add(party, READ_ROW, rows)
        phase.add(party, READ_CELL, rows * scene.columns[party])
        phase.add(party, priced.JOB, 1.0)
    return phase


def _is_shared(name: str) -> bool:
    """Return whether all cores of a party share a primitive's work."""
    scheme, _, operation = name.rpartition(": ")
    return name == SHARED or (bool(scheme) and operation in OPERATIONS)


def _phase_seconds(phase: Phase, price: Mapping[str, float], place: Placement) -> float:
    """Return the seconds of a phase that runs once."""
    cores = place.cores
    alone: dict[str, float] = defaultdict(float)  # seconds on one core
    shared: dict[str, float] = defaultdict(float)  # seconds of all cores together
    for party, name, count in phase.operations():
        each = 1.0 if name in (ALONE, SHARED) else price[name]
        each *= cores if name.endswith(f": {TABLES}") else 1
        (shared if _is_shared(name) else alone)[party] += count * each
    for link, n_bytes, count in phase.sent():
        for party in link:
            both = count * price[priced.MESSAGE] + n_bytes * price[priced.BYTE]
            alone[party] += both / 2
    chain = max((alone[p] + shared[p] / cores for p in {**alone, **shared}), default=0.0)
    # The receiver's half of messages that wait for one another.
    chain += phase.exchanges * (price[priced.MESSAGE] / 2 + 2 * price[FSYNC])
    chain += phase.calls * (price[priced.LEAD] + price[FSYNC])
    if place.apart:
        return chain + _network(phase, place)
    busy = sum(alone.values()) + sum(shared.values()) + phase.calls * price[priced.LEAD]
    return max(chain, busy / cores)


def _network(phase: Phase, place: Placement) -> float:
    """Return the seconds that a phase waits for links."""
    waits = (phase.exchanges + 2 * phase.calls) * place.latency_s
    if place.bytes_per_s is None:
        return waits
    ways: dict[tuple[int, str], float] = defaultdict(float)  # by (0: up, 1: down), party
    for link, n_bytes, _ in phase.sent():
        for way in enumerate(link):
            ways[way] += n_bytes
    return waits + max(ways.values(), default=0.0) / place.bytes_per_s
