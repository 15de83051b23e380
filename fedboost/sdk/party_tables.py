"""Tables of an estimator's parties: as given, or one table dealt to simulated parties."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar, TypeAlias

import numpy as np

from fedboost import protocols
from fedboost.flow import Protocol, RowsUsed
from fedboost.ground.settings import Settings
from fedboost.sdk import seats, xgboost_parameters
from fedboost.sdk.fitted import Fitted
from fedboost.sdk.refusals import InvalidParameterError, InvalidTableError
from fedboost.sdk.seats import PartyRows, Seats

RowsLike: TypeAlias = Any  # a table, or tables by party


class PartyTables(Fitted):
    """The base of estimators that read tables of several parties."""

    _protocol_name: ClassVar[str]
    _absent_is_missing: ClassVar[bool] = True  # in sparse tables; False: they are 0

    parties_: tuple[str, ...]  # parties of the training, the guest first
    columns_: dict[str, tuple[str, ...]]  # of each; where all have the same ones, the guest's

    def _protocol(self) -> Protocol[Settings]:
        return protocols.load_protocol(self._protocol_name)

    @property
    def _is_horizontal(self) -> bool:
        return self._protocol().tables.rows is RowsUsed.OWN

    def _keep_columns(self, train: Seats) -> None:
        """Store the parties of the training, with their columns."""
        self.parties_ = tuple(train)
        self.guest_ = self.parties_[0]
        columns = {party: tuple(seat.rows.names) for party, seat in train.items()}
        self.columns_ = {self.guest_: columns[self.guest_]} if self._is_horizontal else columns

    def _tables_by_party(self, X: RowsLike, *, learns: bool) -> Seats:
        """Return each party's table, guest first."""
        params = self.get_params()
        if seats.are_by_party(X):
            xgboost_parameters.categories_by_type(params.get("feature_types"), ())
            if len(X) < 2 and learns:
                raise InvalidTableError(
                    f"X holds the tables of {len(X)} parties, and a federation needs two",
                    todo="give a table for each of at least two parties",
                )
            tables = self._guest_first(seats.from_tables(X, params.get("ids")))
            self._check_parties(tables, learns=learns)
        else:
            tables = self._dealt_columns(X, learns=learns)
        return {party: self._with_declarations(seat, party) for party, seat in tables.items()}

    def _with_declarations(self, seat: PartyRows, party: str) -> PartyRows:
        params = self.get_params()
        if self._absent_is_missing:
            seat = replace(seat, rows=seat.rows.with_absent_missing())
        declared = seats.with_categories(seat, params.get("categorical") or ())
        return seats.with_missing(declared, params.get("missing"), party)

    def _dealt_columns(self, X: RowsLike, *, learns: bool) -> Seats:
        """Return a single table's columns, dealt to simulated parties."""
        table = self._single_table(X)
        if learns:
            dealt = seats.dealt_columns(table.rows.names, self.get_params()["parties"])
            self._set_names(table)
            return self._guest_first(
                {party: PartyRows(table.rows.select(names)) for party, names in dealt.items()}
            )
        table = self._same_columns(table)
        return {p: PartyRows(table.rows.select(names)) for p, names in self.columns_.items()}

    def _single_table(self, X: RowsLike) -> PartyRows:
        """Return one table of all parties, with the categories of `feature_types`."""
        params = self.get_params()
        table = seats.single_table(X, params.get("ids"))
        types, names = params.get("feature_types"), table.rows.names
        kinds = xgboost_parameters.categories_by_type(types, names)
        return seats.with_categories(table, kinds)

    def _set_names(self, table: PartyRows) -> None:
        """Store the caller's names for the columns of a single table."""
        vars(self).pop("feature_names_in_", None)
        if table.rows.is_named:
            self.feature_names_in_ = np.array(table.rows.names, object)

    def _same_columns(self, table: PartyRows) -> PartyRows:
        """Return a table for prediction with the columns of the training, found by name or by
        position.
        """
        names = [name for part in self.columns_.values() for name in part]
        known = getattr(self, "feature_names_in_", None)
        trained = names if known is None else known.tolist()
        if table.rows.is_named and known is not None:
            return PartyRows(table.rows.select(trained))
        if len(table.rows.names) != len(names):
            raise InvalidTableError(
                f"X has {len(table.rows.names)} features, but {type(self).__name__} is expecting "
                f"{len(names)} features as input",
                todo="give the columns that fit had",
            )
        if table.rows.sparse is None:
            trained = trained if known is not None else [f"f{k}" for k in range(len(trained))]
            return PartyRows(table.rows.renamed(trained))
        return table

    def _guest_first(self, tables: Seats) -> Seats:
        guest = self.get_params().get("guest")
        if guest is None:
            return tables
        if guest not in tables:
            raise InvalidParameterError(
                f"guest is {guest!r}, and the parties are {', '.join(tables)}",
                todo="name one of these parties",
            )
        return {guest: tables[guest]} | tables

    def _check_parties(self, tables: Seats, *, learns: bool) -> None:
        if learns:
            if self._is_horizontal:
                self._set_names(next(iter(tables.values())))
            else:
                names = [f"{party}.{n}" for party, seat in tables.items() for n in seat.rows.names]
                self.feature_names_in_ = np.array(names, object)
            return
        if not self._is_horizontal and set(tables) != set(self.parties_):
            raise InvalidTableError(
                f"X holds tables of {', '.join(tables)}; the model's parties are "
                f"{', '.join(self.parties_)}",
                todo="give a table for each of the model's parties",
            )
