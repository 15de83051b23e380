"""Estimators of boosted networks: trained on one table here, or on tables by party in a job.

model = GBUNClassifier(outputs=64, n_estimators=200).fit(x, y)
model = GBUNClassifier(outputs=64).fit({"north": x1, "south": x2}, {"north": y1, "south": y2})
"""

from __future__ import annotations

from typing import Any, ClassVar, Self, Unpack

import numpy as np

from fedboost.core import gbun
from fedboost.core.gbun import GbunParams, TrainedNetworks
from fedboost.core.local import TrainingTable
from fedboost.ground.settings import parse_settings
from fedboost.model import networks
from fedboost.protocols.gbun.params import GbunJobParams
from fedboost.sdk import eval_sets, seats
from fedboost.sdk.callbacks import FitOptions, check_options
from fedboost.sdk.disclosure import Disclosure
from fedboost.sdk.federated import EvalSet, LabelsLike
from fedboost.sdk.horizontal import Horizontal
from fedboost.sdk.outputs import Classifier, Regressor
from fedboost.sdk.party_tables import RowsLike
from fedboost.sdk.refusals import InvalidParameterError, InvalidTableError, as_value_errors
from fedboost.sdk.trees import NUMBER_DEFAULTS, OF_CLASSES

__all__ = ["GBUNClassifier", "GBUNRegressor"]

ONE_TABLE = "table"  # name of the model's party if all rows are in one table


class _Gbun(Horizontal):
    """Base of GBUN's estimators. A single table needs no federation: it is trained on directly, and
    no messages are sent.
    """

    _protocol_name = "gbun"
    _measures_rounds = False
    _absent_is_missing = False

    trained_: TrainedNetworks  # of a single table

    def fit(
        self,
        X: RowsLike,
        y: LabelsLike,
        sample_weight: Any = None,
        eval_set: EvalSet = None,
        **options: Unpack[FitOptions],
    ) -> Self:
        """Train on (n, columns) numbers and n labels; NaN is a missing value.

        `eval_set` (X, y) or (X, y, weights) is measured every round and decides on early stopping.
        Tables and labels by party train in a job. Raise ConfigError for an invalid parameter,
        DataError for invalid rows or labels, both of them ValueErrors.
        """
        if seats.are_by_party(X):
            return super().fit(X, y, sample_weight, eval_set, **options)
        check_options(options)
        self._delete_fitted()
        with as_value_errors():
            for name in options:
                raise InvalidParameterError(
                    f"{name} needs tables by party: no job runs for a single table",
                    todo="leave it out",
                )
            if self.get_params()["validation"] is not None:
                raise InvalidParameterError(
                    "validation holds out rows of tables by party", todo="give eval_set"
                )
            table = self._training_table(X, y, sample_weight, learns=True)
            held = None
            if eval_set is not None:
                parts = eval_sets.one_set(eval_set, type(self).__name__)
                held = self._training_table(*parts, learns=False)
            self._train_networks(table, held)
        return self

    @property
    def feature_importances_(self) -> Any:
        """Raise AttributeError: networks have no importance of single columns."""
        raise AttributeError("feature_importances_: networks have no importance of single columns")

    def _training_table(
        self, X: RowsLike, y: LabelsLike, weight: Any, *, learns: bool
    ) -> TrainingTable:
        table = seats.single_table(X, None)
        table, values, weights = self._read_labels(table, y, weight, learns=learns)
        if learns:
            self._set_names(table)
            self._keep_columns({ONE_TABLE: table})
        else:
            table = self._same_columns(table)
        if table.rows.categorical:
            raise InvalidTableError(
                "networks read numbers, not categories",
                todo="write them as columns of 0 and 1",
                column=table.rows.categorical[0],
            )
        frame = table.rows.frame(table.rows.names, ())
        return TrainingTable(frame.values, self._job_labels(values), weights)

    def _train_networks(self, table: TrainingTable, held: TrainingTable | None) -> None:
        params = parse_settings(
            GbunParams, self._job_params(GbunParams, **self._learned_settings())
        )
        self.trained_ = gbun.train(table, params, held)
        is_sparse = not isinstance(table.values, np.ndarray)
        hashed = is_sparse and self.trained_.reading.cuts is None
        names = () if hashed else self.columns_[ONE_TABLE]
        shard = networks.make_shard(self.trained_, names, is_sparse=is_sparse)
        self.shards_ = {ONE_TABLE: shard}
        self.disclosure_ = Disclosure()
        self.n_features_in_ = int(table.values.shape[1])


class GBUNClassifier(_Gbun, Classifier):
    """Boosted networks for classes of any labels; two of them are binary:logistic, more
    multi:softprob.

    After `fit`: `classes_` in the order of `predict_proba`'s columns, `history_`, `best_round_`.
    """

    _models = (GbunJobParams,)
    _absent = OF_CLASSES


class GBUNRegressor(_Gbun, Regressor):
    """Boosted networks for numbers, by one of a job's objectives for them."""

    _models = (GbunJobParams,)
    _absent = frozenset({"num_class", "scale_pos_weight"})
    _own: ClassVar[dict[str, Any]] = NUMBER_DEFAULTS
