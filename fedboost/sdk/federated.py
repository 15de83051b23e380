"""Estimators whose `fit` is a job, with the parties' own code, sessions and policies in this
process.

    model = SecureBoostClassifier(n_estimators=20).fit({"bank": X1, "telco": X2}, y)
    model.predict_proba({"bank": new1, "telco": new2})

A single table is dealt to simulated parties, as searches and pipelines expect.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self, TypeAlias, Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedboost import protocols
from fedboost.core.params import BoostingParams
from fedboost.data.frame import Frame
from fedboost.data.predictions import prediction_values
from fedboost.data.sheet import Sheet
from fedboost.flow import AGGREGATOR, Artefact, RowsUsed
from fedboost.ground.arrays import Floats
from fedboost.ground.settings import parse_settings
from fedboost.job import JobSpec
from fedboost.messages.job_pb2 import Event
from fedboost.model import kinds
from fedboost.model.unknown_categories import UNKNOWN_MAX, checked_categories
from fedboost.model.xgboost_json import import_xgboost
from fedboost.sdk import (
    assembly,
    callbacks,
    disclosure,
    eval_sets,
    labels,
    seats,
    simulation,
    xgboost_parameters,
)
from fedboost.sdk.assembly import Assembled, Taught
from fedboost.sdk.callbacks import FitOptions, RoundCallbacks
from fedboost.sdk.caller_warnings import silenced, warn_caller, warn_of_unknown
from fedboost.sdk.eval_sets import Parts
from fedboost.sdk.fitted import Score
from fedboost.sdk.party_tables import PartyTables, RowsLike
from fedboost.sdk.progress import watching
from fedboost.sdk.refusals import InvalidParameterError, InvalidTableError, as_value_errors
from fedboost.sdk.seats import PartyRows, Seats
from fedboost.sdk.tables import rows_of

LabelsLike: TypeAlias = Any  # array-like, or arrays by party, or the name of a column
Scores: TypeAlias = Floats | dict[str, Floats]
EvalSet: TypeAlias = Any  # (X, y) or (X, y, weights), or a list of such sets


ROWS_ALONE = 8192  # of all parties; blinding their ids is about as fast as starting processes


class Federated(PartyTables):
    """The base of all estimators: builds a job's parts from tables, and reads its outcome."""

    _measures_rounds: ClassVar[bool] = True  # whether XGBoost can hold the model, by rounds
    classes_: NDArray[Any]

    def fit(
        self,
        X: RowsLike,
        y: LabelsLike,
        sample_weight: ArrayLike | Mapping[str, ArrayLike] | None = None,
        eval_set: EvalSet = None,
        **options: Unpack[FitOptions],
    ) -> Self:
        """Train a model in its own job.

        X: tables by party, the guest's first, or one table that is dealt to simulated parties. y: a
        label for each row of the guest, or the name of a column of its table; for horizontal
        protocols by party. `eval_set` (X, y) or (X, y, weights) is measured every round and decides
        on early stopping; of a list of such sets the last one does. `options` are `verbose`,
        `callbacks` and `xgb_model`, see `FitOptions`.
        Raise ConfigError for an invalid parameter and DataError for invalid rows or labels, both of
        them ValueErrors, and any error that ended the job.
        """
        callbacks.check_options(options)
        xgb_model = options.get("xgb_model")
        earlier = None if xgb_model is None else self._earlier_shards(xgb_model)
        self._delete_fitted()
        is_silent = options.get("verbose", True) is False or self.get_params().get("verbosity") == 0
        with silenced(is_silent), as_value_errors():
            xgboost_parameters.check(self.get_params())
            xgboost_parameters.check_metric(self.get_params().get("eval_metric"))
            hooks = callbacks.chosen_callbacks(options, self.get_params().get("callbacks"))
            train = self._labelled_tables(X, y, sample_weight, learns=True)
            seats.check_categories(train.seats, self.get_params().get("categorical") or ())
            seats.check_missing(train.seats, self.get_params().get("missing"))
            self._keep_columns(train.seats)
            held: Taught | None = None
            others: dict[str, Taught] = {}
            if eval_set is not None:
                with as_value_errors(argument="eval_set"):
                    given = eval_sets.eval_parts(eval_set, options.get("sample_weight_eval_set"))
                    held, others = self._validation_sets(given, (X, y, sample_weight))
            rounds = RoundCallbacks(self, hooks, self._split_names)
            for hook in rounds.hooks:
                hook.before_training(self)
            params = self._train_job(self._assembled(train, held), train, rounds, earlier)
            self._measured = {
                name: self._metrics_by_round(taught, params) for name, taught in others.items()
            }
            for warning in self.result_.get("warnings", ()):
                warn_caller(warning)
        for hook in rounds.hooks:
            hook.after_training(self)
        return self

    def _earlier_shards(self, earlier: Any) -> Mapping[str, Artefact]:
        """Return the shards of a model that this one continues."""
        if isinstance(earlier, str | Path):
            with as_value_errors():
                earlier = self._loaded(Path(earlier))
        if not isinstance(earlier, Federated):
            raise InvalidParameterError(
                f"xgb_model is of the type {type(earlier).__name__}",
                todo="give a fitted estimator of fedboost, or the file that its save_model wrote",
            )
        earlier._check_fitted()
        if "warm_start" not in self._protocol().params.model_fields:
            raise InvalidParameterError(
                f"{self._protocol().name} continues no model", todo="leave xgb_model out"
            )
        return earlier.shards_

    def _loaded(self, path: Path) -> Federated:
        """Return the estimator that `save_model` wrote into a file, or `save` into a folder."""
        raise NotImplementedError

    # The job

    def _assembled(self, train: Taught, held: Taught | None) -> Assembled:
        if held is None:
            if not self._is_horizontal and not train.seats[train.guest].ids:
                seats.check_indices(train.seats)
            return assembly.from_training(train)
        if self._is_horizontal:
            return assembly.from_rows(train, held)
        if not train.seats[train.guest].ids:
            seats.check_indices(train.seats)
            seats.check_indices(held.seats)
        return assembly.from_columns(
            train, held, exact=self._protocol().tables.rows is RowsUsed.COMMON
        )

    def _train_job(
        self,
        assembled: Assembled,
        train: Taught,
        rounds: RoundCallbacks,
        earlier: Mapping[str, Artefact] | None,
    ) -> BoostingParams:
        """Run the job; return its checked parameters."""
        protocol = self._protocol()
        params = self._job_params(protocol.params, **self._learned_settings())
        if earlier is not None:
            params["warm_start"] = earlier[next(iter(train.seats))].facts["job"]
        checked = parse_settings(protocol.params, params, section="params")
        assert isinstance(checked, BoostingParams)
        patience = rounds.stopping_rounds(checked.metrics[-1])
        if patience is not None:
            params["early_stopping_rounds"] = patience
        guest, *hosts = train.seats
        parties: dict[str, Any] = {"guest": guest, "hosts": hosts}
        if AGGREGATOR in protocol.modules:
            parties["aggregator"] = seats.ADDS_UP
        spec = {
            "name": type(self).__name__,
            "protocol": protocol.name,
            "parties": parties,
            "data": assembled.data,
            "validation": assembled.validation or self.get_params()["validation"],
            "params": params,
        }
        ended = self._job(parse_settings(JobSpec, spec), assembled.sheets, rounds, model=earlier)
        self.journal_, self.result_, self.shards_ = ended.journal, ended.result, ended.shards
        self.disclosure_ = disclosure.disclosure_of_job(self._job_journal(), ended.sent)
        self.n_features_in_ = sum(map(len, self.columns_.values()))
        return checked

    def _validation_sets(
        self, given: Sequence[Parts], trained: Parts
    ) -> tuple[Taught, dict[str, Taught]]:
        """Return the job's rows to validate on, and those to measure afterwards by their names.

        A job measures the rows of the training anyway. Name the measured parts as XGBoost does.
        """
        if self.get_params()["validation"] is not None:
            raise InvalidParameterError(
                "eval_set and validation both say which rows to validate on",
                todo="use either eval_set or validation",
            )
        names, others = {}, {}
        for number, parts in enumerate(given[:-1]):
            name = f"validation_{number}"
            if "train" not in names and all(map(operator.is_, parts, trained)):
                names["train"] = name
                continue
            if not self._measures_rounds:
                eval_sets.one_set(list(given), type(self).__name__)
            others[name] = self._labelled_tables(*parts, learns=False)
            names[name] = name
            if not self._is_horizontal:
                tables = others[name].seats
                seats.check_partners(seats.partner_rows(tables, self.guest_), self.guest_)
        if others:
            import_xgboost("explain")
        self._split_names = {**names, "validation": f"validation_{len(given) - 1}"}
        return self._labelled_tables(*given[-1], learns=False), others

    def _metrics_by_round(self, taught: Taught, params: BoostingParams) -> dict[str, list[float]]:
        """Return the metrics of labelled rows after each round of the history."""
        margins = self._scores_by_party(taught.seats, eval_sets.margins_by_round)
        facts = self.shards_[self.guest_].facts
        return eval_sets.metrics_by_round(margins, taught, facts, params)

    def _delete_fitted(self) -> None:
        """Delete the attributes of an earlier fit, so that a failed fit leaves none."""
        hidden = ("_split_names", "_measured")
        for name in [name for name in vars(self) if name.endswith("_") or name in hidden]:
            delattr(self, name)

    def _job(
        self,
        spec: JobSpec,
        sheets: Mapping[str, Sheet],
        rounds: RoundCallbacks | None = None,
        model: Mapping[str, Artefact] | None = None,
    ) -> simulation.Ended:
        with watching(self.get_params()["verbose"] or False, spec.name) as shown:

            def take_event(event: Event) -> None:
                shown(event)
                if rounds is not None:
                    rounds(event)

            workers = self._workers(spec, sheets)
            return simulation.run(spec, sheets, take_event, workers=workers, model=model)

    def _workers(self, spec: JobSpec, sheets: Mapping[str, Sheet]) -> int | None:
        """Return as many processes as asked for; none where starting them takes longer."""
        count = self.get_params()["n_jobs"]
        if count is None:
            protocol = protocols.load_protocol(spec.protocol)
            params = parse_settings(protocol.params, spec.params, section="params")
            is_heavy = protocol.policy.asks(params).key_bits is not None
            is_large = sum(sheet.n_rows for sheet in sheets.values()) > ROWS_ALONE
            return None if is_heavy or is_large else 1
        if isinstance(count, bool) or not isinstance(count, int | np.integer) or count == 0:
            raise InvalidParameterError(
                f"n_jobs is {count!r}, expected a whole number or None",
                todo="give the number of processes, or None for one for each core",
            )
        return int(count) if count > 0 else None

    def _learned_settings(self) -> dict[str, Any]:
        """Return the job settings that follow from the labels."""
        return {}

    def _learn_labels(self, y: NDArray[Any], weight: Floats | None) -> None:
        """Learn the possible labels from all training rows, (n,), and their weights."""

    def _job_labels(self, y: NDArray[Any]) -> Floats:
        """Return labels as the job learns them, float64 (n,)."""
        raise NotImplementedError

    # Labels

    def _labelled_tables(self, X: RowsLike, y: LabelsLike, weight: Any, *, learns: bool) -> Taught:
        """Return tables with labels; `learns`: training tables, which define the classes."""
        if isinstance(y, str) and not seats.are_by_party(X):
            whole, y = seats.without_labels(PartyRows(rows_of(X)), y)
            X = whole.rows
        tables = self._tables_by_party(X, learns=learns)
        guest = next(iter(tables))
        if isinstance(y, Mapping):
            raise InvalidTableError(
                "y holds labels by party, but only the guest has labels here",
                todo=f"give only the labels of {guest}, or set layout='horizontal' if the "
                "protocol has it",
            )
        tables[guest], values, weights = self._read_labels(tables[guest], y, weight, learns=learns)
        return Taught(
            tables, {guest: self._job_labels(values)}, {} if weights is None else {guest: weights}
        )

    def _read_labels(
        self, table: PartyRows, y: LabelsLike, weight: Any, *, learns: bool
    ) -> tuple[PartyRows, NDArray[Any], Floats | None]:
        """Return a party's features, and a label and perhaps a weight of each row.

        `y` may name a column of the table, which is then no feature.
        """
        if isinstance(y, str):
            table, y = seats.without_labels(table, y)
        labels.check_order(y, table.rows.index, "y")
        labels.check_order(weight, table.rows.index, "sample_weight")
        values = labels.label_column(y, table.rows.n_rows, type(self).__name__)
        weights = labels.checked_weights(weight, len(values))
        if learns:
            self._learn_labels(values, weights)
        return table, values, weights

    # Predictions

    def _predicted(
        self, X: RowsLike, score: Score | None = None, unknown_max: float = UNKNOWN_MAX
    ) -> Scores:
        """Return probabilities or means, float64 (rows of the guest, outputs), or the values of
        another `score`; by party if every party has labels and X holds their tables.

        Warn of categories that the model does not know; raise InvalidTableError above
        `unknown_max`.
        """
        self._check_fitted()
        with as_value_errors():
            return self._scores_of_tables(
                self._tables_by_party(X, learns=False), score, unknown_max
            )

    def _scores_by_party(self, tables: Seats, score: Score) -> dict[str, Any]:
        """Return a score of the rows of each party with labels."""
        return {self.guest_: self._scores_of_tables(tables, score, UNKNOWN_MAX)}

    def _scores_of_tables(self, tables: Seats, score: Score | None, unknown_max: float) -> Any:
        guest = self.guest_
        partners = seats.partner_rows(tables, guest)
        facts = self.shards_[guest].facts
        kind = kinds.kind_of(facts)
        if kind.needs_job(facts):
            if score is not None:
                raise InvalidParameterError(
                    "only the hosts together know this model's leaf values",
                    todo="call predict without options, or train with split='scored'",
                )
            return self._asked(tables, unknown_max)
        if kind.scores_common:
            seats.check_partners(partners, guest)
        held = {host: np.flatnonzero(rows >= 0) for host, rows in partners.items()}
        scored = {guest: tables[guest]}
        scored |= {h: tables[h].take(rows[rows >= 0]) for h, rows in partners.items()}
        frames = {
            party: self._frame_for_shard(seat, party, unknown_max) for party, seat in scored.items()
        }
        return (score or kind.predict)(self.shards_, guest, frames, held)

    def _asked(self, tables: Seats, unknown_max: float = UNKNOWN_MAX) -> Floats:
        """Return the predictions of a job: leaf values are encrypted at hosts, which can only
        decrypt them together.
        """
        facts = self.shards_[self.guest_].facts
        given = assembly.from_training(Taught(tables, {}, {}))
        kind = kinds.kind_of(facts)
        spec = {
            "name": "prediction",
            "protocol": kind.scored_by,
            "parties": {"guest": self.guest_, "hosts": facts["hosts"]},
            "data": given.data,
            "params": {
                "model": facts["job"],
                "unknown_max": unknown_max,
                **kind.scoring_params(facts),
            },
        }
        ended = self._job(parse_settings(JobSpec, spec), given.sheets, model=self.shards_)
        for warning in ended.result.get("warnings", ()):
            warn_caller(warning)
        assert ended.predictions is not None
        return prediction_values(ended.predictions, len(facts["base_margin"]))

    def _frame_for_shard(self, seat: PartyRows, party: str, unknown_max: float) -> Frame:
        """Return a table in the form that a party's shard of the model reads; warn of unknown
        categories, and refuse more of them than `unknown_max`.
        """
        facts = self.shards_[party].facts
        # Networks hash the columns of a sparse table by their numbers, whichever it has.
        is_hashed = kinds.kind_of(facts).is_hashed(facts)
        names = seat.rows.names if is_hashed else facts["columns"]
        with as_value_errors(party=party):
            frame = seat.rows.frame(names, list(facts["categories"]))
            unknown = checked_categories(facts, frame, unknown_max)
        warn_of_unknown(unknown, party if len(self.shards_) > 1 else "")
        return frame

    def _columns(self) -> list[tuple[str, str]]:
        if self._is_horizontal:
            return [("", name) for name in self.columns_[self.guest_]]
        return [(party, name) for party, names in self.columns_.items() for name in names]
