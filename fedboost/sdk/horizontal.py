"""Estimators of which each party has other rows of the same columns, and labels of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedboost.model import kinds
from fedboost.sdk import assembly, holdout, labels, seats
from fedboost.sdk.assembly import Assembled, Taught
from fedboost.sdk.federated import Federated, Labels, Rows, Score, Scores
from fedboost.sdk.refusals import InvalidTableError, refusing
from fedboost.sdk.seats import PartyRows, Seats


class Horizontal(Federated):
    """The base of estimators whose model every party ends up with.

    `fit({"north": X1, "south": X2}, {"north": y1, "south": y2})`; predictions of tables by party
    come by party, those of a single table as one array.
    """

    _train_rows: dict[str, int]  # of each party

    def _assembled(self, train: Taught, held: Taught | None) -> Assembled:
        if not self._is_horizontal:
            return super()._assembled(train, held)
        return assembly.as_given(train) if held is None else assembly.of_rows(train, held)

    def _taught(self, X: Rows, y: Labels, weight: Any, *, learns: bool) -> Taught:
        if not self._is_horizontal:
            return super()._taught(X, y, weight, learns=learns)
        if seats.are_by_party(X):
            return self._taught_by_party(X, y, weight, learns=learns)
        whole = seats.single(X, self.get_params().get("ids"))
        if isinstance(y, str):
            y = whole.rows.column(y).to_numpy()
        own = labels.column(y, whole.rows.n_rows, type(self).__name__)
        weights = labels.weights(weight, len(own))
        if learns:
            self._learn_labels(own, weights)
        dealt = self._dealt_rows(whole, learns=learns)
        coded = self._job_labels(own)
        return Taught(
            {p: self._as_said(whole.take(rows), p) for p, rows in dealt.items()},
            {party: coded[rows] for party, rows in dealt.items()},
            {} if weights is None else {party: weights[rows] for party, rows in dealt.items()},
        )

    def _dealt_rows(self, whole: PartyRows, *, learns: bool) -> dict[str, seats.Indices]:
        """The rows of a single table by party: in turn, or in proportion to those it trains on."""
        if learns:
            names = seats.names_of(self.get_params()["parties"], horizontal=True)
            dealt = dict(zip(names, seats.dealt_rows(whole.rows.n_rows, len(names)), strict=True))
            self._set_names(whole)
            self._train_rows = {party: len(rows) for party, rows in dealt.items()}
            return dealt
        counts = holdout.dealt(list(self._train_rows.values()), whole.rows.n_rows)
        parts = np.split(np.arange(whole.rows.n_rows), np.cumsum(counts)[:-1])
        return {p: part for p, part in zip(self._train_rows, parts, strict=True) if len(part)}

    def _taught_by_party(
        self, X: Mapping[str, Any], y: Labels, weight: Any, *, learns: bool
    ) -> Taught:
        found = self._seats(X, learns=learns)
        y = dict.fromkeys(found, y) if isinstance(y, str) else y
        if not isinstance(y, Mapping):
            raise InvalidTableError(
                "X holds tables by party and y does not hold labels by party",
                todo="give y as {party: labels}, since every party has rows of its own",
            )
        own, weights = {}, {}
        for party, seat in found.items():
            given = y.get(party)
            if isinstance(given, str):
                given = seat.rows.column(given).to_numpy()
                found[party] = PartyRows(seat.rows.without([y[party]]), seat.ids)
            with refusing(party=party):
                own[party] = labels.column(given, seat.rows.n_rows, type(self).__name__)
                if weight is not None:
                    weights[party] = labels.weights(weight.get(party), seat.rows.n_rows)
        if learns:
            self._learn_labels(np.concatenate(list(own.values())), None)
            self._train_rows = {party: seat.rows.n_rows for party, seat in found.items()}
        return Taught(
            found,
            {party: self._job_labels(part) for party, part in own.items()},
            {party: part for party, part in weights.items() if part is not None},
        )

    def _predicted(self, X: Rows, score: Score | None = None) -> Scores:
        self._check_fitted()
        if not self._is_horizontal:
            return super()._predicted(X, score)
        with refusing():
            if seats.are_by_party(X):
                found: Seats = self._seats(X, learns=False)
                return {party: self._scored(seat, score) for party, seat in found.items()}
            whole = self._same_columns(seats.single(X, self.get_params().get("ids")))
            return self._scored(self._as_said(whole, self.guest_), score)

    def _scored(self, seat: PartyRows, score: Score | None) -> Any:
        guest = self.guest_
        shard, frame = self.shards_[guest], self._frame(seat, guest)
        score = score or kinds.of(shard.facts).predict
        return score({guest: shard}, guest, {guest: frame}, {})
