"""Tables of a fit in the form of a job's parties: sources, their settings in the job, and ids."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedboost.data.sheet import Sheet
from fedboost.ground.arrays import Floats, Indices
from fedboost.runtime.cluster.local import DATASET
from fedboost.sdk import holdout, seats
from fedboost.sdk.refusals import InvalidTableError
from fedboost.sdk.seats import PartyRows, Seats


@dataclass(frozen=True)
class Taught:
    """Tables and the labels of their rows: the guest's alone, or every party's."""

    seats: Seats  # guest first
    y: dict[str, Floats]  # by party, (rows,) numbers to learn
    weight: dict[str, Floats]  # of some of these parties, (rows,)

    @property
    def guest(self) -> str:
        """The first party."""
        return next(iter(self.seats))


@dataclass(frozen=True)
class Assembled:
    """The parts of a job that come from its parties' tables."""

    sheets: dict[str, Sheet]
    data: dict[str, dict[str, Any]]  # the job's `data`
    validation: dict[str, Any] | None  # the job's, where rows to validate on were given


def from_training(train: Taught) -> Assembled:
    """Return tables without further rows: ids unchanged, or numbers from 1."""
    sheets, data = {}, {}
    for party, seat in train.seats.items():
        sheets[party], data[party] = _sheet_and_settings(
            seat, train.y.get(party), train.weight.get(party)
        )
    return Assembled(sheets, data, None)


def from_columns(train: Taught, held: Taught, *, exact: bool) -> Assembled:
    """Return parties with different columns of the same rows, with validation rows.

    `exact`: the job holds out a number of the rows in common, rather than each id by its hash.
    """
    guest, hosts = train.guest, [party for party in train.seats if party != train.guest]
    named = {party: _stacked_ids(train.seats[party], held.seats[party]) for party in train.seats}
    first = train.seats[guest].rows.n_rows
    train_ids, held_ids = named[guest][:first], named[guest][first:]
    if len(set(named[guest])) < len(named[guest]):
        raise InvalidTableError(
            "rows to validate on have ids of rows to train on",
            todo="give each row either to X or to eval_set",
        )
    others = dict.fromkeys(token for host in hosts for token in named[host])
    extra = [token for token in others if token not in set(named[guest])]
    common = [set(named[host]) for host in hosts]
    both = [
        sum(all(token in there for there in common) for token in part)
        for part in (train_ids, held_ids)
    ]
    fraction = (
        holdout.fraction_of([(both[0], both[1])]) if exact else _held_share(train_ids, held_ids)
    )
    free, out = holdout.new_ids(len(train_ids) + len(extra), len(held_ids), fraction)
    number = dict(zip([*train_ids, *extra], free.tolist(), strict=True))
    number |= dict(zip(held_ids, out.tolist(), strict=True))
    sheets, data = {}, {}
    for party in train.seats:
        kept = _first_of_each(named[party])
        seat = seats.stacked_rows(train.seats[party], held.seats[party]).take(kept)
        ids = np.array([number[named[party][row]] for row in kept.tolist()], np.int64)
        label = _stacked(train.y, held.y, party)
        sheets[party], data[party] = _sheet_and_settings(
            seat, label, _weights(train, held, party), ids
        )
    return Assembled(sheets, data, {"fraction": fraction, "seed": holdout.SEED})


def from_rows(train: Taught, held: Taught) -> Assembled:
    """Return parties with different rows of the same columns, with validation rows."""
    parties = list(train.seats)
    counts = [
        (train.seats[p].rows.n_rows, held.seats[p].rows.n_rows if p in held.seats else 0)
        for p in parties
    ]
    fraction = holdout.fraction_of(counts)
    sheets, data = {}, {}
    for party, (n_train, n_held) in zip(parties, counts, strict=True):
        ids = np.concatenate(holdout.new_ids(n_train, n_held, fraction))
        seat = train.seats[party]
        if n_held:
            seat = seats.stacked_rows(seat, held.seats[party])
        label = _stacked(train.y, held.y, party)
        sheets[party], data[party] = _sheet_and_settings(
            seat, label, _weights(train, held, party), ids
        )
    return Assembled(sheets, data, {"fraction": fraction, "seed": holdout.SEED})


def _sheet_and_settings(
    seat: PartyRows, label: Floats | None, weight: Floats | None, numbers: Indices | None = None
) -> tuple[Sheet, dict[str, Any]]:
    """Return a party's table with ids, label and weights beside its features, and its settings in
    the job.

    `numbers` replace the party's own ids.
    """
    beside: dict[str, Any] = {}
    if numbers is None and seat.ids:
        beside |= {f"id_{place}": cells for place, cells in enumerate(seat.ids)}
    else:
        beside["id"] = np.arange(1, seat.rows.n_rows + 1) if numbers is None else numbers
    ids = list(beside)
    beside |= {} if label is None else {"y": label}
    beside |= {} if weight is None else {"weight": weight}
    sheet, called = seat.rows.as_sheet(**beside)
    facts: dict[str, Any] = {
        "dataset": DATASET,
        "id": [called[name] for name in ids],
        "columns": list(seat.rows.names),
        "categorical": list(seat.rows.categorical),
    }
    facts |= {} if seat.rows.missing is None else {"missing": seat.rows.missing}
    facts |= {} if label is None else {"label": called["y"]}
    facts |= {} if weight is None else {"weight": called["weight"]}
    return sheet, facts


def _stacked_ids(upper: PartyRows, lower: PartyRows) -> list[Hashable]:
    """Return a name for each row of two tables: ids, or places, which differ between the tables."""
    if upper.ids:
        return [*upper.id_tokens, *lower.id_tokens]
    indices = [(0, row) for row in range(upper.rows.n_rows)]
    return [*indices, *((1, row) for row in range(lower.rows.n_rows))]


def _first_of_each(named: Sequence[Hashable]) -> Indices:
    """Return the first row of each token: a host may have given the same table twice."""
    place: dict[Hashable, int] = {}
    for row, token in enumerate(named):
        place.setdefault(token, row)
    return np.array(list(place.values()), np.int64)


def _stacked(upper: Mapping[str, Floats], lower: Mapping[str, Floats], party: str) -> Floats | None:
    parts = [part[party] for part in (upper, lower) if party in part]
    return np.concatenate(parts) if parts else None


def _weights(train: Taught, held: Taught, party: str) -> Floats | None:
    """Return weights of a party's rows: 1 if one of two tables has none, None if both have none."""
    if party not in train.y or not (train.weight or held.weight):
        return None
    parts = [
        part.weight.get(party, np.ones(part.seats[party].rows.n_rows))
        for part in (train, held)
        if party in part.seats
    ]
    return np.concatenate(parts)


def _held_share(train: Sequence[object], held: Sequence[object]) -> float:
    if not held:
        raise InvalidTableError("eval_set has no rows", todo="give rows, or leave eval_set out")
    return len(held) / (len(train) + len(held))
