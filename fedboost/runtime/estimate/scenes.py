"""The tables of a job as an estimate sees them: read, where they are at hand, or as said."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedboost import protocols
from fedboost.core import binning, local, objectives
from fedboost.core.grove import planted
from fedboost.core.growth import Rules
from fedboost.core.local import Watched
from fedboost.core.objectives import Summary
from fedboost.core.params import TreeParams
from fedboost.core.sampling import of_groups
from fedboost.data.frame import Frame
from fedboost.data.loading import load_with_ids
from fedboost.data.sources import SourceSpec
from fedboost.errors import ConfigError, FedboostError
from fedboost.flow import GUEST, Role, RowsUsed
from fedboost.job import JobSpec
from fedboost.needs import GrowthCounts, Scene
from fedboost.settings import parse

REHEARSED_ROUNDS = 2  # the later rounds of a job grow like these
REHEARSED_ROWS = 120_000  # more are not looked at
REHEARSED_CELLS = 30_000_000


@dataclass(frozen=True)
class Said:
    """What somebody says of tables that are not at hand."""

    rows: Mapping[str, int]
    columns: Mapping[str, int]


@dataclass
class Setting:
    """A scene, and what it rests on."""

    scene: Scene
    assumed: list[str] = field(default_factory=list)


def from_tables(spec: JobSpec, sources: Mapping[str, SourceSpec]) -> Setting:
    """Of tables at hand: rows in common, bins, and how the first trees grow, in the clear."""
    protocol = protocols.named(spec.protocol)
    table = spec.parties.table()
    params = parse(protocol.params, spec.params, section="params")
    frames = {
        party: _read(spec, party, sources[party], table.role_of(party))
        for party in spec.parties.with_data
    }
    rows = {party: frame.n_rows for party, frame in frames.items()}
    columns = {party: len(frame.columns) for party, frame in frames.items()}
    common, shared = _in_common(spec, frames)
    bins = {party: _bins(params, frame, _role(spec, party)) for party, frame in frames.items()}
    scene = _scene(spec, rows, columns, common=common, shared=shared, bins=bins)
    setting = Setting(scene)
    if isinstance(params, TreeParams):
        grown = _rehearsed(spec, params, frames)
        if grown is not None:
            scene = Scene(**{**scene.__dict__, "growth": grown})
            setting = Setting(scene)
    return setting


def from_words(spec: JobSpec, said: Said) -> Setting:
    """Of tables that nobody has here; what is not said is assumed, and said to be."""
    protocol = protocols.named(spec.protocol)
    params = parse(protocol.params, spec.params, section="params")
    strangers = sorted({*said.rows, *said.columns} - set(spec.parties.with_data))
    if strangers:
        raise ConfigError(
            f"rows or columns are said of {strangers[0]}, which has no table in the job",
            todo=f"the tables are those of {', '.join(spec.parties.with_data)}",
        )
    missing = [party for party in spec.parties.with_data if party not in said.rows]
    if missing:
        raise ConfigError(
            f"nothing says how many rows {missing[0]} has",
            todo=f"give --rows N for all, or --rows {missing[0]}=N, or --data {missing[0]}=FILE",
        )
    absent = [party for party in spec.parties.with_data if party not in said.columns]
    if absent:
        raise ConfigError(
            f"nothing says how many columns {absent[0]} has",
            todo=f"give --columns {absent[0]}=N; of other parties' tables ask their owners",
        )
    least = min(said.rows.values())
    guest = spec.parties.table().guest
    shared = {host: min(said.rows[host], said.rows[guest]) for host in spec.parties.hosts}
    common = said.rows[guest] if protocol.rows is not RowsUsed.COMMON else least
    bins = {party: (float(_max_bin(params, _role(spec, party))), 0.0) for party in said.rows}
    scene = _scene(spec, said.rows, said.columns, common=common, shared=shared, bins=bins)
    assumed = [
        "all ids of the smaller table are in common",
        "every column has as many bins as it may, and no missing values",
        f"trees grow as wide as {GrowthCounts.SURVIVE:.0%} of what each layer could have",
    ]
    return Setting(scene, assumed if protocol.rows is not RowsUsed.OWN else assumed[1:])


def _scene(
    spec: JobSpec,
    rows: Mapping[str, int],
    columns: Mapping[str, int],
    *,
    common: int,
    shared: Mapping[str, int],
    bins: Mapping[str, tuple[float, float]],
) -> Scene:
    held, table = spec.validation, spec.parties.table()
    share = 0.0
    if held is not None:
        share = held.fraction if held.fraction is not None else 1.0 / (held.folds or 1)
    return Scene(
        guest=table.guest,
        hosts=table.hosts,
        rows=dict(rows),
        columns=dict(columns),
        bins={party: own for party, (own, _) in bins.items()},
        missing={party: lacks for party, (_, lacks) in bins.items()},
        common=common,
        shared=dict(shared),
        held_out=share,
        aggregator=table.aggregator,
    )


def _read(spec: JobSpec, party: str, source: SourceSpec, role: Role | None) -> Frame:
    protocol = protocols.named(spec.protocol)
    frame, _ = load_with_ids(
        source,
        spec.data[party],
        party=party,
        needs_label=role in protocol.labelled,
        needs_features=role is not GUEST or protocol.rows is RowsUsed.OWN,
    )
    return frame


def _role(spec: JobSpec, party: str) -> Role:
    role = spec.parties.table().role_of(party)
    assert role is not None
    return role


def _in_common(spec: JobSpec, frames: Mapping[str, Frame]) -> tuple[int, dict[str, int]]:
    """The guest's rows that a job is about, and how many of them each host has."""
    protocol, table = protocols.named(spec.protocol), spec.parties.table()
    ids = {party: set(frame.ids) for party, frame in frames.items()}
    own = ids[table.guest]
    shared = {host: len(own & ids[host]) for host in table.hosts}
    if protocol.rows is not RowsUsed.COMMON:
        return len(own), shared
    return len(set.intersection(*ids.values())), shared


def _bins(params: Any, frame: Frame, role: Role) -> tuple[float, float]:
    """Bins of a column on average, and the share of columns with missing values."""
    most = _max_bin(params, role)
    if not frame.columns or frame.is_sparse:
        return float(most), 0.0
    rows: NDArray[np.float32] = frame.values[:REHEARSED_ROWS]
    fitted = binning.fit(rows, most, frame.categorical)
    return float(fitted.n_bins.mean()), float(np.isnan(rows).any(axis=0).mean())


def _max_bin(params: Any, role: Role) -> int:
    buckets = getattr(params, "buckets", None)
    if buckets is not None and role is not GUEST:
        return int(buckets)
    return int(getattr(params, "max_bin", 32))


def _rehearsed(
    spec: JobSpec, params: TreeParams, frames: Mapping[str, Frame]
) -> GrowthCounts | None:
    """How the first trees grow on the tables as if they were one; None where they are too large,
    or no such trees grow.
    """
    if any(frame.is_sparse for frame in frames.values()):
        return None
    if protocols.named(spec.protocol).rows is RowsUsed.GUESTS:  # the guest grows its layers alone
        guest = spec.parties.table().guest
        frames = {guest: frames[guest]}
    table = _pooled(spec, frames)
    if table is None or table.values.size > REHEARSED_CELLS:
        return None
    own = {key: value for key, value in spec.params.items() if key in TreeParams.model_fields}
    upper, lower = getattr(params, "guest_depth", 0), getattr(params, "host_depth", 0)
    if protocols.named(spec.protocol).rows is RowsUsed.GUESTS:
        own["max_depth"] = upper
    elif getattr(params, "mode", "") == "layered":
        own["max_depth"] = upper + lower
    try:
        return _grown(parse(TreeParams, own | {"n_estimators": REHEARSED_ROUNDS}), table)
    except FedboostError:
        return None


def _pooled(spec: JobSpec, frames: Mapping[str, Frame]) -> local.TrainingTable | None:
    """One table of the rows to learn from; a horizontal job's rows one below the other."""
    guest = frames[spec.parties.table().guest]
    if protocols.named(spec.protocol).rows is RowsUsed.OWN:
        values = np.concatenate([frame.values for frame in frames.values()])
        label = np.concatenate([_label(frame) for frame in frames.values()])
        rows = np.arange(min(len(label), REHEARSED_ROWS))
        return local.TrainingTable(values[rows], label[rows], categorical=guest.categorical)
    ids = set.intersection(*(set(frame.ids) for frame in frames.values()))
    chosen = sorted(ids)[:REHEARSED_ROWS]
    if not chosen:
        return None
    held = spec.validation
    if held is not None:
        out = held.rows(chosen)
        chosen = [row for row, is_out in zip(chosen, out.tolist(), strict=True) if not is_out]
    parts, kinds, first = [], [], 0
    for frame in frames.values():
        place = {row: number for number, row in enumerate(frame.ids)}
        parts.append(frame.values[[place[row] for row in chosen]])
        kinds += [first + column for column in frame.categorical]
        first += len(frame.columns)
    place = {row: number for number, row in enumerate(guest.ids)}
    label = _label(guest)[[place[row] for row in chosen]]
    return local.TrainingTable(np.concatenate(parts, axis=1), label, categorical=tuple(kinds))


def _label(frame: Frame) -> NDArray[np.float64]:
    assert frame.label is not None
    return frame.label


def _grown(params: TreeParams, table: local.TrainingTable) -> GrowthCounts:
    """Layers of some rounds' trees: nodes that were open, and rows that were added up."""
    summary = Summary.of(params, table.y, table.weights)
    objective = objectives.start(params, summary)
    cuts = binning.fit(table.values, params.max_bin, table.categorical)
    fixed = objectives.encoding(params, objective, summary)
    rules, seen = Rules(params, cuts, fixed), Watched.of(table, cuts, objective)
    opened, added = np.zeros(params.max_depth), np.zeros(params.max_depth)
    groups, trees = (table.values.shape[1],), 0
    for number in range(params.n_estimators):
        g, h = objective.gradients(seen.margin, seen.y, seen.weight)
        sample = of_groups(params, g, number, seen.row_groups)
        grown = []
        for growing in planted(rules, seen.bins, (g, h), sample, number, groups):
            layer = 0
            while not growing.is_over:
                asked = growing.shape[0]
                opened[layer] += asked if layer == 0 else 2 * asked
                added[layer] += growing.rows_asked / max(1, len(growing.rows))
                growing.take(growing.sums())
                layer += 1
            grown.append(growing.tree())
            trees += 1
        seen.advance(grown, cuts.missing)
    return GrowthCounts(tuple((opened / trees).tolist()), tuple((added / trees).tolist()))
