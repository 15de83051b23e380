"""A job with its tables, from files or from numbers, and the costs of its stages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from fedboost import protocols
from fedboost.core.params import BoostingParams
from fedboost.data.frame import Frame
from fedboost.data.holdout import canonical_order
from fedboost.data.loading import check_label, load_with_ids, refuse_unread_label
from fedboost.data.row_count import row_count_bound
from fedboost.data.sources import SourceSpec
from fedboost.encrypted.scheme import choice
from fedboost.flow import GUEST, RowsUsed
from fedboost.ground.errors import ConfigError, FedboostError
from fedboost.ground.settings import parse_settings
from fedboost.job import JobSpec, encryption_of
from fedboost.runtime.estimate.scenes import (
    Scene,
    TableSample,
    random_tables,
    rows_with_ids,
    thinned_rows,
)
from fedboost.runtime.estimate.stages import Stage, rehearse

MADE_UP = (
    "every column has as many bins as it may, and no missing values",
    "trees grow as wide as those on numbers at random",
)


@dataclass(frozen=True)
class StatedSizes:
    """The stated sizes of tables that are not available."""

    rows: Mapping[str, int]
    columns: Mapping[str, int]


@dataclass
class Setting:
    """A job, its tables, and the assumptions about them."""

    scene: Scene
    sample: TableSample | None  # None: no table is available
    assumed: list[str] = field(default_factory=list)
    encryption: Mapping[str, str] = field(default_factory=dict)  # its `scheme` and `because`

    @cached_property
    def stages(self) -> list[Stage]:
        """The rehearsed stages of the job; a ConfigError if it cannot be rehearsed."""
        spec = self.scene.spec
        params = parse_settings(
            protocols.load_protocol(spec.protocol).params, spec.params, section="params"
        )
        if self.sample is not None:
            try:
                return rehearse(params, self.sample)
            except ConfigError:
                raise
            except FedboostError as error:  # tables that would make the job itself fail
                self.assumed.append(f"the tables are made up: {error.what}")
        self.assumed += MADE_UP
        if not isinstance(params, BoostingParams):
            raise ConfigError(
                f"a job of {spec.protocol} cannot be estimated", todo="estimate one that trains"
            )
        return rehearse(params, random_tables(self.scene, params))


def from_tables(spec: JobSpec, sources: Mapping[str, SourceSpec]) -> Setting:
    """Return the setting of available tables: rows in common, bins, trees on some rows."""
    frames = {
        party: _read_frame(spec, party, sources[party]) for party in spec.parties.parties_with_data
    }
    rows = {party: frame.n_rows for party, frame in frames.items()}
    columns = {party: len(frame.columns) for party, frame in frames.items()}
    ids = {party: set(frame.ids) for party, frame in frames.items()}
    table, used = spec.parties.table(), protocols.load_protocol(spec.protocol).tables.rows
    spec, encryption, assumed = _settled_job(spec, row_count_bound(sources[table.guest]))
    guest_ids, every = ids[table.guest], set.intersection(*ids.values())
    shared = {host: len(guest_ids & ids[host]) for host in table.hosts}
    scene = Scene(spec, rows, columns, len(every if used is RowsUsed.COMMON else guest_ids), shared)
    used_frames = frames
    if used is not RowsUsed.OWN:
        kept = guest_ids if used is RowsUsed.GUESTS else every
        used_frames = {party: rows_with_ids(frame, kept) for party, frame in frames.items()}
    few = thinned_rows(scene, used_frames, scene.thinning())
    share = few[table.guest].n_rows / max(1, scene.learnt_rows(table.guest))
    in_order = {party: frame.take(canonical_order(frame.ids)) for party, frame in few.items()}
    return Setting(scene, TableSample(scene, in_order, share), assumed, encryption)


def from_words(spec: JobSpec, known: StatedSizes) -> Setting:
    """Return the setting of tables of stated sizes; all other facts are assumed and listed."""
    parties, used = (
        spec.parties.parties_with_data,
        protocols.load_protocol(spec.protocol).tables.rows,
    )
    for stranger in sorted({*known.rows, *known.columns} - set(parties)):
        raise ConfigError(
            f"rows or columns are said of {stranger}, which has no table in the job",
            todo=f"the tables are those of {', '.join(parties)}",
        )
    for party in parties:
        if party not in known.rows:
            raise ConfigError(
                f"nothing says how many rows {party} has",
                todo=f"give --rows N for all, or --rows {party}=N, or --data {party}=FILE",
            )
    for party in parties:
        if party not in known.columns:
            raise ConfigError(
                f"nothing says how many columns {party} has",
                todo=f"give --columns {party}=N; of other parties' tables ask their owners",
            )
    guest_rows = known.rows[spec.parties.table().guest]
    spec, encryption, assumed = _settled_job(spec, guest_rows)
    shared = {host: min(known.rows[host], guest_rows) for host in spec.parties.hosts}
    common = min(known.rows.values()) if used is RowsUsed.COMMON else guest_rows
    scene = Scene(spec, dict(known.rows), dict(known.columns), common, shared)
    apart = used is RowsUsed.OWN
    assumed += [] if apart else ["all ids of the smaller table are in common"]
    return Setting(scene, None, assumed, encryption)


def _settled_job(spec: JobSpec, rows: int) -> tuple[JobSpec, dict[str, str], list[str]]:
    """Return the job with its scheme, the scheme with the reason, and the assumptions.

    `rows` are at least those of the guest's table.
    """
    params, chosen = (
        parse_settings(protocols.load_protocol(spec.protocol).params, spec.params),
        None,
    )
    if choice.is_open(params):
        offers = {party: choice.SchemeOffer() for party in spec.parties.parties_with_data}
        offers[spec.parties.table().guest] = choice.make_offer(params, None, rows)
        chosen = choice.choose_scheme(params, offers)
        spec = spec.model_copy(update={"params": chosen.fill_scheme(spec.params)})
    assumed = [] if chosen is None else ["every party's policy allows every encryption scheme"]
    return spec, encryption_of(spec.params, chosen), assumed


def _read_frame(spec: JobSpec, party: str, source: SourceSpec) -> Frame:
    protocol, table = protocols.load_protocol(spec.protocol), spec.parties.table()
    role = table.role_of(party)
    labelled = role in protocol.tables.labelled
    check_label(spec.data[party], party, needs_label=labelled)
    if not labelled and protocol.leaves == "model":
        refuse_unread_label(spec.data[party], party)
    frame, _ = load_with_ids(
        source,
        spec.data[party],
        party=party,
        needs_features=role is not GUEST or protocol.tables.rows is RowsUsed.OWN,
        guest_label=None if labelled else spec.data[table.guest].label,
    )
    return frame
