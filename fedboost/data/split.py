"""Split of one pooled table into parties' tables for experiments: vertical, horizontal, hybrid.

Hybrid follows HybridTree's experiments (section 5 and appendix C of the paper, which calls our
guest *host*): the guest has the label and its columns for all rows, the other columns go to the
hosts, some rows to each. The paper draws the amounts of overlap and of dropped columns at random
per party; here the plan sets them, so that they can be varied.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet
from numpy.typing import NDArray
from pydantic import Field, model_validator

from fedboost.data.columns import typed_column
from fedboost.data.ids import encode_ids, shared_ids
from fedboost.data.loading import ROW_INDEX, absent_column
from fedboost.ground.disk import lock_opened
from fedboost.ground.errors import ConfigError, DataError
from fedboost.ground.settings import Settings

ID = "id"  # the id column of every party's table
PARTY_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")  # also the name of the party's file
SKEW_CLASSES_MAX = 1000  # a label with more values has no classes

SplitRows = NDArray[np.int64]


class PartyColumns(Settings):
    """A party of the split, and its columns; None: the columns that the layout gives it."""

    name: str = Field(pattern=f"^{PARTY_NAME.pattern}$")
    columns: list[str] | None = None


class SplitPlan(Settings):
    """Rules to split a pooled table; the first party is the guest, except in `horizontal`."""

    layout: Literal["vertical", "horizontal", "hybrid"]
    parties: list[PartyColumns] = Field(min_length=2)
    label: str = "y"
    id: str | None = None  # absent: the column `id`, or row numbers from 1 if there is none
    seed: int = Field(0, ge=0)
    skew: float | None = Field(None, gt=0.0)  # Dirichlet concentration per class; absent: even
    overlap: float = Field(0.0, ge=0.0, le=1.0)  # hybrid: share of rows that two hosts hold
    drop_columns: float = Field(0.0, ge=0.0, lt=1.0)  # hybrid: share of its columns a host lacks

    @model_validator(mode="after")
    def _fits_layout(self) -> Self:
        names = Counter(party.name for party in self.parties)
        twice = [name for name, count in names.items() if count > 1]
        if twice:
            raise ValueError(f"party {twice[0]!r} is named twice")
        if self.skew is not None and self.layout == "vertical":
            raise ValueError("'skew' splits rows; in a vertical layout every party has all rows")
        if self.layout != "hybrid" and (self.overlap or self.drop_columns):
            raise ValueError("'overlap' and 'drop_columns' belong to the hybrid layout")
        if self.overlap and len(self.parties) < 3:
            raise ValueError("'overlap' needs at least two hosts")
        if self.layout == "horizontal" and any(p.columns is not None for p in self.parties):
            raise ValueError("a horizontal layout gives every party all columns: name none")
        return self


@dataclass(frozen=True, eq=False)
class PartyShare:
    """One party's part: rows (int64 (k,), ascending), its columns, and whether it has labels."""

    party: str
    rows: SplitRows
    columns: tuple[str, ...]
    has_label: bool


def split_table(table: pa.Table, plan: SplitPlan) -> dict[str, pa.Table]:
    """Return each party's table: `id`, the label if it gets it, its columns; rows in pooled order.

    Text columns become numbers if all their cells are numbers. The same plan splits the same way
    (with the same release of numpy). DataError if the pooled table lacks a column or its ids are
    not unique; ConfigError if a party would get no rows or a host no columns.
    """
    ids = _id_column(table, plan.id)
    if plan.label not in table.column_names:
        raise absent_column("label", plan.label, table.column_names)
    other = {plan.id or ID, plan.label}
    names = [n for n in table.column_names if n not in other and not ROW_INDEX.fullmatch(n)]
    if ID in (plan.label, *names):
        raise ConfigError(
            f"column {ID!r} is taken: the parties' id column has this name",
            todo=f"rename it, or use it as the id: --id {ID}",
        )
    _check_columns(names, plan)
    label = table.column(plan.label)
    deal = {
        "vertical": _split_vertically,
        "horizontal": _split_horizontally,
        "hybrid": _split_hybrid,
    }[plan.layout]
    shares = deal(names, label, plan)
    columns = {name: typed_column(table.column(name)) for name in names}
    columns |= {ID: ids, plan.label: typed_column(label)}
    return {share.party: _table_of_share(columns, share, plan.label) for share in shares}


def write_tables(tables: dict[str, pa.Table], out: Path, pooled: Path) -> dict[str, Path]:
    """Write every table to ``out/PARTY.parquet``, no file half-written; return the paths.

    Files of an earlier split are replaced once all are written; a ConfigError if one of them is
    `pooled` itself or the folder cannot be written.
    """
    paths = {party: out / f"{party}.parquet" for party in tables}
    if pooled.resolve() in {path.resolve() for path in paths.values()}:
        raise ConfigError("the pooled file would be overwritten", todo="choose another --out")
    parts = {party: out / f".{party}.parquet.{os.getpid()}.part" for party in tables}
    try:
        out.mkdir(parents=True, exist_ok=True)
        with _only_writer(out):
            for party, table in tables.items():
                pa.parquet.write_table(table, parts[party], compression="zstd")
            for party, path in paths.items():
                parts[party].replace(path)
    except OSError as error:
        raise ConfigError(
            f"cannot write into the folder: {error.strerror or 'input/output error'}",
            folder=str(out),
            todo="choose another --out",
        ) from None
    finally:
        for part in parts.values():
            part.unlink(missing_ok=True)
    return paths


@contextmanager
def _only_writer(folder: Path) -> Iterator[None]:
    """Hold the folder's lock; a ConfigError if another split writes there: files could mix."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        if not lock_opened(handle):
            raise ConfigError(
                "another split is writing into the folder",
                folder=str(folder),
                todo="wait until it ends, or choose another --out",
            )
        yield
    finally:
        os.close(handle)


def _id_column(table: pa.Table, name: str | None) -> pa.ChunkedArray:
    """Return the checked pooled ids, whole numbers in text as int64; or row numbers."""
    if name is None and ID not in table.column_names:
        return pa.chunked_array([np.arange(1, table.num_rows + 1)])
    name = name or ID
    if name not in table.column_names:
        raise absent_column("id", name, table.column_names)
    column = table.column(name)
    rows, shared = shared_ids(encode_ids([column], [name]))
    if rows:
        raise DataError(
            f"{rows} of {table.num_rows} rows share their id with another row ({shared} ids)",
            column=name,
            todo="leave one row per id, or name another --id",
        )
    return typed_column(column, fractions=False)


def _check_columns(names: Sequence[str], plan: SplitPlan) -> None:
    owner: dict[str, str] = {}
    for party in plan.parties:
        for name in party.columns or ():
            if name in (plan.label, plan.id or ID):
                raise ConfigError(
                    f"column {name!r} is the label or the id, which the layout assigns",
                    party=party.name,
                    todo="leave it out of the party's columns",
                )
            if name not in names:
                raise absent_column("feature", name, names).at(party=party.name)
            if name in owner and (plan.layout == "vertical" or owner[name] == party.name):
                raise ConfigError(
                    f"column {name!r} belongs to {owner[name]} already",
                    party=party.name,
                    todo="give each column to one party, once",
                )
            owner[name] = party.name


def _split_vertically(
    names: Sequence[str], label: pa.ChunkedArray, plan: SplitPlan
) -> list[PartyShare]:
    """Give all rows to every party; one party without named columns gets the other columns."""
    taken = {name for party in plan.parties for name in party.columns or ()}
    unnamed = [party.name for party in plan.parties if party.columns is None]
    if len(unnamed) > 1:
        raise ConfigError(
            f"{len(unnamed)} parties are named without columns: {', '.join(unnamed)}",
            todo="only one can get the remaining columns; write --party NAME=COLUMN,…",
        )
    rest = [name for name in names if name not in taken]
    rows = np.arange(len(label))
    shares = []
    for place, party in enumerate(plan.parties):
        columns = rest if party.columns is None else party.columns
        if place and not columns:
            raise _no_columns(party.name)
        shares.append(PartyShare(party.name, rows, tuple(columns), has_label=place == 0))
    return shares


def _split_horizontally(
    names: Sequence[str], label: pa.ChunkedArray, plan: SplitPlan
) -> list[PartyShare]:
    """Give each row to one party, with all columns and the label."""
    rng = np.random.default_rng(plan.seed)
    dealt = _deal_rows(label, len(plan.parties), plan.skew, rng)
    return [
        PartyShare(party.name, _require_rows(rows, party.name), tuple(names), has_label=True)
        for party, rows in zip(plan.parties, dealt, strict=True)
    ]


def _split_hybrid(
    names: Sequence[str], label: pa.ChunkedArray, plan: SplitPlan
) -> list[PartyShare]:
    """Give the guest its columns of all rows, and each host its columns of some rows."""
    rng = np.random.default_rng(plan.seed)
    guest, *hosts = plan.parties
    guest_columns = _guest_columns(names, plan, rng)
    rest = [name for name in names if name not in guest_columns]
    shares = [PartyShare(guest.name, np.arange(len(label)), tuple(guest_columns), has_label=True)]
    dealt = _deal_rows(label, len(hosts), plan.skew, rng)
    if plan.overlap:
        dealt = _share_rows(dealt, plan.overlap, rng)
    for host, rows in zip(hosts, dealt, strict=True):
        columns = rest if host.columns is None else host.columns
        if not columns:
            raise _no_columns(host.name)
        kept = _drop_columns(columns, plan.drop_columns, rng)
        shares.append(
            PartyShare(host.name, _require_rows(rows, host.name), tuple(kept), has_label=False)
        )
    return shares


def _guest_columns(names: Sequence[str], plan: SplitPlan, rng: np.random.Generator) -> list[str]:
    """Return the guest's columns: the plan's, else the columns that no host names, or some of them.

    Appendix C.1 draws their number between none and all; here at least 1 column is drawn, and at
    least 1 is left for the hosts without named columns.
    """
    guest, *hosts = plan.parties
    if guest.columns is not None:
        return guest.columns
    asked = {name for host in hosts for name in host.columns or ()}
    free = [name for name in names if name not in asked]
    if all(host.columns is not None for host in hosts):
        return free
    if len(free) < 2:
        raise _no_columns(next(host.name for host in hosts if host.columns is None))
    count = int(rng.integers(1, len(free)))
    drawn = set(rng.choice(len(free), size=count, replace=False).tolist())
    return [name for place, name in enumerate(free) if place in drawn]


def _deal_rows(
    label: pa.ChunkedArray, n_parties: int, skew: float | None, rng: np.random.Generator
) -> list[SplitRows]:
    """Give each row to one party: evenly, or by Dirichlet(skew) shares per class (C.3)."""
    if skew is None:
        return [np.sort(part) for part in np.array_split(rng.permutation(len(label)), n_parties)]
    codes = pc.dictionary_encode(label.combine_chunks(), null_encoding="encode").indices.to_numpy()
    n_classes = int(codes.max()) + 1
    if n_classes > SKEW_CLASSES_MAX:
        raise ConfigError(
            f"the label has {n_classes} different values, too many for classes",
            todo="leave 'skew' out",
        )
    parts: list[list[SplitRows]] = [[] for _ in range(n_parties)]
    for code in range(n_classes):
        rows = rng.permutation(np.flatnonzero(codes == code))
        shares = rng.dirichlet(np.full(n_parties, skew))
        ends = np.rint(np.cumsum(shares)[:-1] * len(rows)).astype(np.int64)
        for part, dealt in zip(parts, np.split(rows, ends), strict=True):
            part.append(dealt)
    return [np.sort(np.concatenate(part)) for part in parts]


def _share_rows(
    dealt: list[SplitRows], overlap: float, rng: np.random.Generator
) -> list[SplitRows]:
    """Give the share `overlap` of all rows to one more host each, drawn evenly."""
    n_hosts = len(dealt)
    rows = np.concatenate(dealt)
    holders = np.repeat(np.arange(n_hosts), [len(part) for part in dealt])
    chosen = rng.choice(len(rows), size=round(overlap * len(rows)), replace=False)
    second = (holders[chosen] + rng.integers(1, n_hosts, size=len(chosen))) % n_hosts
    return [
        np.sort(np.concatenate([part, rows[chosen[second == host]]]))
        for host, part in enumerate(dealt)
    ]


def _drop_columns(columns: Sequence[str], share: float, rng: np.random.Generator) -> list[str]:
    """Return the columns without a random share of them; at least one stays."""
    count = min(round(share * len(columns)), len(columns) - 1)
    dropped = set(rng.choice(len(columns), size=count, replace=False).tolist())
    return [name for place, name in enumerate(columns) if place not in dropped]


def _table_of_share(columns: dict[str, pa.ChunkedArray], share: PartyShare, label: str) -> pa.Table:
    names = [ID, *([label] if share.has_label else []), *share.columns]
    return pa.table({name: columns[name] for name in names}).take(share.rows)


def _require_rows(rows: SplitRows, party: str) -> SplitRows:
    if len(rows):
        return rows
    raise ConfigError(
        "this party would get no rows",
        party=party,
        todo="name fewer parties, raise 'skew', or choose another seed",
    )


def _no_columns(party: str) -> ConfigError:
    return ConfigError(
        "this party would get no columns", party=party, todo="write --party NAME=COLUMN,…"
    )
