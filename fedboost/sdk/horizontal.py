"""Estimators over parties with different rows of the same columns, each with its own labels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedboost.ground.arrays import Indices
from fedboost.model import kinds
from fedboost.model.unknown_categories import UNKNOWN_MAX
from fedboost.sdk import holdout, labels, seats
from fedboost.sdk.assembly import Taught
from fedboost.sdk.federated import Federated, LabelsLike, Scores
from fedboost.sdk.fitted import Score
from fedboost.sdk.party_tables import RowsLike
from fedboost.sdk.refusals import InvalidTableError, as_value_errors
from fedboost.sdk.seats import PartyRows, Seats


class Horizontal(Federated):
    """Base of estimators that give every party the whole model.

    `fit({"north": X1, "south": X2}, {"north": y1, "south": y2})`; predictions of tables by party
    come by party, those of a single table as one array.
    """

    _train_rows: dict[str, int]  # of each party

    def _labelled_tables(self, X: RowsLike, y: LabelsLike, weight: Any, *, learns: bool) -> Taught:
        if not self._is_horizontal:
            return super()._labelled_tables(X, y, weight, learns=learns)
        if seats.are_by_party(X):
            return self._taught_by_party(X, y, weight, learns=learns)
        table = self._single_table(X)
        table, values, weights = self._read_labels(table, y, weight, learns=learns)
        dealt = self._dealt_rows(table, learns=learns)
        coded = self._job_labels(values)
        return Taught(
            {p: self._with_declarations(table.take(rows), p) for p, rows in dealt.items()},
            {party: coded[rows] for party, rows in dealt.items()},
            {} if weights is None else {party: weights[rows] for party, rows in dealt.items()},
        )

    def _dealt_rows(self, table: PartyRows, *, learns: bool) -> dict[str, Indices]:
        """Return the rows of a single table by party: in turn, or in proportion to the training
        rows.
        """
        if learns:
            names = seats.names_of(self.get_params()["parties"], horizontal=True)
            dealt = dict(zip(names, seats.dealt_rows(table.rows.n_rows, len(names)), strict=True))
            self._set_names(table)
            self._train_rows = {party: len(rows) for party, rows in dealt.items()}
            return dealt
        counts = holdout.held_counts(list(self._train_rows.values()), table.rows.n_rows)
        parts = np.split(np.arange(table.rows.n_rows), np.cumsum(counts)[:-1])
        return {p: part for p, part in zip(self._train_rows, parts, strict=True) if len(part)}

    def _taught_by_party(
        self, X: Mapping[str, Any], y: LabelsLike, weight: Any, *, learns: bool
    ) -> Taught:
        tables = self._tables_by_party(X, learns=learns)
        y = dict.fromkeys(tables, y) if isinstance(y, str) else y
        if not isinstance(y, Mapping):
            raise InvalidTableError(
                "X holds tables by party and y does not hold labels by party",
                todo="give y as {party: labels}, since every party has its own rows",
            )
        by_party, weights = {}, {}
        for party, seat in tables.items():
            given = y.get(party)
            if isinstance(given, str):
                tables[party], given = seats.without_labels(seat, given)
            with as_value_errors(party=party):
                labels.check_order(given, seat.rows.index, "y")
                by_party[party] = labels.label_column(given, seat.rows.n_rows, type(self).__name__)
                if weight is not None:
                    weights[party] = labels.checked_weights(weight.get(party), seat.rows.n_rows)
        if learns:
            self._learn_labels(np.concatenate(list(by_party.values())), None)
            self._train_rows = {party: seat.rows.n_rows for party, seat in tables.items()}
        return Taught(
            tables,
            {party: self._job_labels(part) for party, part in by_party.items()},
            {party: part for party, part in weights.items() if part is not None},
        )

    def _predicted(
        self, X: RowsLike, score: Score | None = None, unknown_max: float = UNKNOWN_MAX
    ) -> Scores:
        self._check_fitted()
        if not self._is_horizontal:
            return super()._predicted(X, score, unknown_max)
        with as_value_errors():
            if seats.are_by_party(X):
                tables = self._tables_by_party(X, learns=False)
                return {
                    party: self._score_table(seat, score, unknown_max)
                    for party, seat in tables.items()
                }
            table = self._same_columns(self._single_table(X))
            return self._score_table(
                self._with_declarations(table, self.guest_), score, unknown_max
            )

    def _scores_by_party(self, tables: Seats, score: Score) -> dict[str, Any]:
        if not self._is_horizontal:
            return super()._scores_by_party(tables, score)
        return {
            party: self._score_table(seat, score, UNKNOWN_MAX) for party, seat in tables.items()
        }

    def _score_table(self, seat: PartyRows, score: Score | None, unknown_max: float) -> Any:
        guest = self.guest_
        shard, frame = self.shards_[guest], self._frame_for_shard(seat, guest, unknown_max)
        score = score or kinds.kind_of(shard.facts).predict
        return score({guest: shard}, guest, {guest: frame}, {})
