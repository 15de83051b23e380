"""The tables of a job as an estimate sees them: read, where they are at hand, or as said."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from fedboost import protocols
from fedboost.core.params import BoostingParams
from fedboost.data.frame import Frame
from fedboost.data.loading import load_with_ids
from fedboost.data.sources import SourceSpec
from fedboost.errors import ConfigError, FedboostError
from fedboost.flow import GUEST, Role, RowsUsed
from fedboost.job import JobSpec
from fedboost.runtime.estimate.samples import Scene, TableSample, made, of_frames
from fedboost.runtime.estimate.stages import Stage, rehearse
from fedboost.settings import parse

MEETS: dict[RowsUsed, Literal["none", "pairs", "all"]] = {
    RowsUsed.OWN: "none",
    RowsUsed.GUESTS: "pairs",
    RowsUsed.COMMON: "all",
}
MADE_UP = (
    "every column has as many bins as it may, and no missing values",
    "trees grow as wide as those on numbers at random",
)


@dataclass(frozen=True)
class Said:
    """What somebody says of tables that are not at hand."""

    rows: Mapping[str, int]
    columns: Mapping[str, int]


@dataclass
class Setting:
    """A job and its tables, and what is assumed of them."""

    spec: JobSpec
    scene: Scene
    sample: TableSample | None  # None: nothing of them is at hand
    assumed: list[str] = field(default_factory=list)

    @cached_property
    def stages(self) -> list[Stage]:
        """Return what the job's stages take, rehearsed once; a ConfigError for a job that cannot
        be.
        """
        params = parse(protocols.named(self.spec.protocol).params, self.spec.params,
                       section="params")  # fmt: skip
        if self.sample is not None:
            try:
                return rehearse(self.spec, params, self.sample)
            except ConfigError:
                raise
            except FedboostError as error:  # tables of which the job itself would be refused
                self.assumed.append(f"the tables are made up: {error.what}")
        self.assumed += MADE_UP
        rows_apart = protocols.named(self.spec.protocol).rows is RowsUsed.OWN
        if not isinstance(params, BoostingParams):
            raise ConfigError(
                f"a job of {self.spec.protocol} cannot be estimated",
                todo="estimate one that trains",
            )
        return rehearse(self.spec, params, made(self.scene, params, rows_apart=rows_apart))


def from_tables(spec: JobSpec, sources: Mapping[str, SourceSpec]) -> Setting:
    """Describe tables at hand: rows in common, bins, and trees as they grow on some of the rows."""
    table = spec.parties.table()
    frames = {
        party: _read(spec, party, sources[party], table.role_of(party))
        for party in spec.parties.with_data
    }
    rows = {party: frame.n_rows for party, frame in frames.items()}
    columns = {party: len(frame.columns) for party, frame in frames.items()}
    common, shared = _in_common(spec, frames)
    scene = _scene(spec, rows, columns, common=common, shared=shared)
    return Setting(spec, scene, of_frames(scene, frames))


def from_words(spec: JobSpec, said: Said) -> Setting:
    """Describe tables that nobody has here; what is not said is assumed, and said to be."""
    protocol = protocols.named(spec.protocol)
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
    scene = _scene(spec, said.rows, said.columns, common=common, shared=shared)
    assumed = (
        [] if protocol.rows is RowsUsed.OWN else ["all ids of the smaller table are in common"]
    )
    return Setting(spec, scene, None, assumed)


def _scene(
    spec: JobSpec,
    rows: Mapping[str, int],
    columns: Mapping[str, int],
    *,
    common: int,
    shared: Mapping[str, int],
) -> Scene:
    held, table, protocol = spec.validation, spec.parties.table(), protocols.named(spec.protocol)
    share = 0.0
    if held is not None:
        share = held.fraction if held.fraction is not None else 1.0 / (held.folds or 1)
    return Scene(
        guest=table.guest,
        hosts=table.hosts,
        rows=dict(rows),
        columns=dict(columns),
        common=common,
        shared=dict(shared),
        held_out=share,
        meet=MEETS[protocol.rows],
    )


def _read(spec: JobSpec, party: str, source: SourceSpec, role: Role | None) -> Frame:
    protocol = protocols.named(spec.protocol)
    labelled = role in protocol.labelled
    frame, _ = load_with_ids(
        source,
        spec.data[party],
        party=party,
        needs_label=labelled,
        needs_features=role is not GUEST or protocol.rows is RowsUsed.OWN,
        guest_label=None if labelled else spec.data[spec.parties.table().guest].label,
    )
    return frame


def _in_common(spec: JobSpec, frames: Mapping[str, Frame]) -> tuple[int, dict[str, int]]:
    """The guest's rows that a job is about, and how many of them each host has."""
    protocol, table = protocols.named(spec.protocol), spec.parties.table()
    ids = {party: set(frame.ids) for party, frame in frames.items()}
    own = ids[table.guest]
    shared = {host: len(own & ids[host]) for host in table.hosts}
    if protocol.rows is not RowsUsed.COMMON:
        return len(own), shared
    return len(set.intersection(*ids.values())), shared
