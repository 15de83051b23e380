"""Tables by party: as given, or one table dealt to simulated parties.

Rows of several parties are matched by position, or by ids.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from scipy.sparse import issparse

from fedboost.data.ids import encode_ids, shared_ids
from fedboost.data.loading import absent_column
from fedboost.ground.arrays import Indices
from fedboost.ground.ids import EncodedIds
from fedboost.runtime.cluster.local import COORDINATOR, USER
from fedboost.runtime.transport.identity import NAME_PATTERN
from fedboost.sdk.refusals import InvalidParameterError, InvalidTableError
from fedboost.sdk.row_table import RowTable
from fedboost.sdk.tables import rows_of

# Number of parties that share a single table, or their names, or the columns of each.
SharingParties: TypeAlias = int | Sequence[str] | Mapping[str, Sequence[str] | None]
IdNames: TypeAlias = str | Sequence[str]

PARTIES_MAX = 65  # a guest and a job's hosts
ADDS_UP = "aggregator"  # name of the party that adds up masked vectors and has no data
TAKEN = (COORDINATOR, USER, ADDS_UP)


@dataclass(frozen=True)
class PartyRows:
    """A party's rows: its features, and the ids of its rows (empty: positions)."""

    rows: RowTable
    ids: tuple[pa.ChunkedArray, ...] = ()

    @property
    def id_tokens(self) -> EncodedIds:
        """The rows' ids as parties compare them; a DataError where some have none, or share one."""
        if not self.ids:
            indices = pa.chunked_array([np.arange(1, self.rows.n_rows + 1)])
            return encode_ids([indices], ["id"])
        encoded = encode_ids(self.ids, ["id"] * len(self.ids))
        rows, shared = shared_ids(encoded)
        if rows:
            raise InvalidTableError(
                f"{rows} of {len(encoded)} rows share their id with another row ({shared} ids)",
                todo="leave one row per id, or name more columns in ids",
            )
        return encoded

    def take(self, rows: Indices) -> PartyRows:
        """Return the rows numbered `rows`, int64 (k,), in that order."""
        chosen = pa.array(rows)
        return PartyRows(self.rows.take(rows), tuple(cells.take(chosen) for cells in self.ids))


def without_labels(table: PartyRows, y: str) -> tuple[PartyRows, NDArray[Any]]:
    """Return the table without its column `y`, and that column, the labels (rows,)."""
    values = table.rows.column(y).to_numpy()
    return PartyRows(table.rows.without([y]), table.ids), values


Seats: TypeAlias = dict[str, PartyRows]  # by party; the guest first


def are_by_party(X: Any) -> bool:
    """Return True if these are tables by party; some of scipy's sparse ones are dicts, too."""
    return isinstance(X, Mapping) and not issparse(X)


def from_tables(tables: Mapping[str, Any], ids: IdNames | Mapping[str, IdNames] | None) -> Seats:
    """Return the parties' tables of `fit`, with the columns `ids` set apart.

    A level of a pandas index counts as a column of its name (`index` where it has none).
    """
    check_names(list(tables))
    seats: Seats = {}
    for party, table in tables.items():
        rows = rows_of(table, f"the table of {party}")
        wanted = ids.get(party) if isinstance(ids, Mapping) else ids
        names = id_names(wanted)
        try:
            cells = tuple(rows.id_cells(name) for name in names)
        except InvalidTableError as error:
            raise error.at(party=party) from None
        seats[party] = PartyRows(
            rows.without([name for name in names if name in rows.names]), cells
        )
    if isinstance(ids, Mapping) and set(ids) != set(tables):
        raise InvalidParameterError(
            f"ids names columns for {', '.join(ids)}; the tables are of {', '.join(tables)}",
            todo="name the id columns of each party",
        )
    return seats


def id_names(ids: object) -> list[str]:
    """Return the names of id columns; an InvalidParameterError where they are no names."""
    names = [ids] if isinstance(ids, str) else ids or []
    if not isinstance(names, Sequence) or not all(isinstance(name, str) for name in names):
        raise InvalidParameterError(
            f"ids is {ids!r}, expected names of columns",
            todo="give a column's name, a list of names, or these by party",
        )
    if len(set(names)) < len(names):
        raise InvalidParameterError(f"ids is {ids!r}", todo="name each column once")
    return list(names)


def check_names(parties: Sequence[object]) -> None:
    """Refuse invalid names of parties, and names taken by the coordinator and others."""
    for party in parties:
        if not isinstance(party, str) or not NAME_PATTERN.fullmatch(party):
            raise InvalidParameterError(
                f"{party!r} is no party's name",
                todo="begin with a lower-case letter, go on with letters, digits and '-'",
            )
        if party in TAKEN:
            raise InvalidParameterError(
                f"no party can be called {party!r}: the name is reserved", todo="use another name"
            )


def single_table(table: Any, ids: IdNames | Mapping[str, IdNames] | None) -> PartyRows:
    """Return one table of all parties' columns or rows; `ids` are none of its features."""
    rows = rows_of(table)
    if isinstance(ids, Mapping):
        raise InvalidParameterError(
            "ids names columns by party, and X is a single table", todo="name its id columns"
        )
    names = id_names(ids)
    for name in names:
        rows.column(name)  # refuses a name that it does not know
    return PartyRows(rows.without([name for name in names if name in rows.names]))


def check_indices(seats: Seats) -> None:
    """Refuse tables with rows that cannot be matched by position.

    They must have equally many rows, and tables with a pandas index must have the same one.
    """
    first, *others = seats.items()
    indexed = [(party, seat) for party, seat in seats.items() if seat.rows.index]
    for party, seat in others:
        if seat.rows.n_rows != first[1].rows.n_rows:
            raise InvalidTableError(
                f"{party} has {seat.rows.n_rows} rows and {first[0]} {first[1].rows.n_rows}",
                todo="name the columns that match rows: ids=…",
            )
    for party, seat in indexed[1:]:
        before, same = indexed[0][1].rows.index, seat.rows.index
        if list(before.values()) != list(same.values()):
            raise InvalidTableError(
                f"the data frames of {indexed[0][0]} and {party} have different indexes",
                todo="join rows by them with ids='index', or reset them to match by position",
            )


def partner_rows(seats: Seats, guest: str) -> dict[str, Indices]:
    """Return the index of every guest row in each host's table, int64 (its rows,); −1: it has none.

    Refuses as `check_indices` does where rows have no ids.
    """
    hosts = [party for party in seats if party != guest]
    n_rows = seats[guest].rows.n_rows
    if not seats[guest].ids:
        check_indices(seats)
        return {host: np.arange(n_rows) for host in hosts}
    tokens = seats[guest].id_tokens
    return {host: seats[host].id_tokens.find(tokens) for host in hosts}


def names_of(parties: SharingParties, *, horizontal: bool) -> list[str]:
    """Return the names of the parties that share a single table, the guest's first."""
    if not isinstance(parties, int):
        names: list[str] = list(parties)
        check_names(names)
        if len(names) < 2:
            raise InvalidParameterError(
                "parties names one party, and a federation needs two",
                todo="name two parties or more",
            )
        return names
    if not 2 <= parties < PARTIES_MAX:  # True is 1
        raise InvalidParameterError(
            f"parties is {parties}, expected 2 to {PARTIES_MAX - 1}",
            todo="give a number of parties, or their names",
        )
    if horizontal:
        return [f"party-{number}" for number in range(1, parties + 1)]
    hosts = ["host"] if parties == 2 else [f"host-{number}" for number in range(1, parties)]
    return ["guest", *hosts]


def dealt_columns(names: Sequence[str], parties: SharingParties) -> dict[str, list[str]]:
    """Deal the columns of a single table: as `parties` says, or about as many each.

    The guest may be left without any; a host may not.
    """
    if isinstance(parties, Mapping):
        return _columns_as_said(names, parties)
    called = names_of(parties, horizontal=False)
    n_hosts = len(called) - 1
    if len(names) < n_hosts:
        raise InvalidTableError(
            f"X has {len(names)} columns, but {n_hosts} hosts need one each",
            todo="lower `parties`",
        )
    n_guest = len(names) // len(called)
    shares = [part.tolist() for part in np.array_split(np.arange(n_guest, len(names)), n_hosts)]
    parts = [list(range(n_guest)), *shares]
    return {party: [names[k] for k in part] for party, part in zip(called, parts, strict=True)}


def _columns_as_said(
    names: Sequence[str], parties: Mapping[str, Sequence[str] | None]
) -> dict[str, list[str]]:
    names_of(list(parties), horizontal=False)
    taken = [name for part in parties.values() for name in part or ()]
    rest = [name for name in names if name not in set(taken)]
    others = [party for party, part in parties.items() if part is None]
    unknown = [name for name in taken if name not in set(names)]
    if unknown:
        raise InvalidParameterError(
            f"parties names a column {unknown[0]!r} that is not in X", todo="name columns of X"
        )
    if len(set(taken)) < len(taken):
        raise InvalidParameterError(
            "parties gives a column to two parties", todo="give each column to one"
        )
    if len(others) > 1 or (rest and not others):
        raise InvalidParameterError(
            f"{len(rest)} columns of X belong to no party, {len(others)} parties ask for the rest",
            todo="name the columns of each party; one may have None, for all others",
        )
    return {party: rest if part is None else list(part) for party, part in parties.items()}


def dealt_rows(n_rows: int, count: int) -> list[Indices]:
    """Return the rows of a single table for each of `count` parties, dealt in turn."""
    if n_rows < count:
        raise InvalidTableError(
            f"X has {n_rows} rows (n_samples = {n_rows}), and {count} parties need one each",
            todo="give more rows, or lower `parties`",
        )
    return [np.arange(first, n_rows, count) for first in range(count)]


def stacked_rows(upper: PartyRows, lower: PartyRows) -> PartyRows:
    """Return the rows of both, `upper` first, without ids."""
    return PartyRows(upper.rows.with_rows_below(lower.rows))


def check_categories(seats: Seats, names: Sequence[str]) -> None:
    """Refuse names of columns that no table has."""
    known = {name: name for seat in seats.values() for name in seat.rows.names}
    for name in names:
        if name not in known:
            raise InvalidParameterError(
                f"categorical names a column {name!r} that no table has",
                todo=absent_column("categorical", name, list(known)).todo,
            )


def with_categories(seat: PartyRows, names: Sequence[str]) -> PartyRows:
    """Return a copy that also treats the named columns as categories, if the table has them."""
    kinds = [n for n in seat.rows.names if n in names or n in seat.rows.categorical]
    return replace(seat, rows=replace(seat.rows, categorical=tuple(kinds)))


def check_missing(seats: Seats, missing: object) -> None:
    """Refuse missing values for unknown parties."""
    named = missing if isinstance(missing, Mapping) else ()
    strangers = [party for party in named if party not in seats]
    if strangers:
        raise InvalidParameterError(
            f"missing names {strangers[0]!r}; the tables are of {', '.join(seats)}",
            todo="name these parties, or give one number for all",
        )


def with_missing(seat: PartyRows, missing: Any, party: str) -> PartyRows:
    """Return a copy with the estimator's `missing` number; a table's own number has priority."""
    value = missing.get(party) if isinstance(missing, Mapping) else missing
    is_number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    if value is None or (is_number and np.isnan(value)) or seat.rows.missing is not None:
        return seat
    if not is_number or not np.isfinite(value):
        raise InvalidParameterError(
            f"missing is {value!r}, expected a finite number",
            todo="give a number, NaN for none, or one of these by party",
        )
    return replace(seat, rows=replace(seat.rows, missing=float(value)))


def check_partners(partners: Mapping[str, Indices], guest: str) -> None:
    """Refuse a guest's rows that are not at every host."""
    for host, rows in partners.items():
        lacking = int(np.count_nonzero(rows < 0))
        if lacking:
            raise InvalidTableError(
                f"{lacking} of {len(rows)} rows of {guest} are missing at {host}",
                todo="predict the rows that all parties have",
            )
