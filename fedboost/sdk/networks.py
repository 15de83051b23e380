"""Boosted networks as estimators for one process, in the manner of scikit-learn, which they do not
need: `clone`, cross-validation and searches find all that they ask for.

    model = GBUNClassifier(outputs=64, n_estimators=200).fit(x, y)
    model.predict_proba(x_new)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Self, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csc_array, issparse

from fedboost.core import gbun, metrics, objectives
from fedboost.core.gbun import GbunParams, Trained
from fedboost.core.local import Table
from fedboost.core.params import CLASSIFYING
from fedboost.errors import ConfigError, DataError
from fedboost.settings import parse

__all__ = ["GBUNClassifier", "GBUNRegressor"]

Floats = NDArray[np.float64]
Rows: TypeAlias = Any  # array-like (n, columns), or any of scipy's sparse matrices
EvalSet: TypeAlias = tuple[Rows, ArrayLike] | tuple[Rows, ArrayLike, ArrayLike | None]


class _Estimator:
    """What both have in common; parameters are a job's, looked at when it comes to `fit`."""

    _estimator_type: ClassVar[str]
    _absent: ClassVar[frozenset[str]]  # settings that follow from the labels
    _own: ClassVar[dict[str, Any]]  # defaults that differ from a job's

    def __init__(self, **params: Any) -> None:
        """Keeps the parameters; a ConfigError for one that there is not."""
        self._params: dict[str, Any] = {}
        self.set_params(**params)

    @classmethod
    def _defaults(cls) -> dict[str, Any]:
        known = GbunParams.model_fields.items()
        found = {name: one.default for name, one in known if name not in cls._absent}
        return {**found, **cls._own}

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """All parameters by name; `deep` makes no difference, as none of them is an estimator."""
        return {**self._defaults(), **self._params}

    def set_params(self, **params: Any) -> Self:
        """Other values for some parameters; a ConfigError names one that there is not."""
        known = self._defaults()
        for name in params:
            if name not in known:
                raise ConfigError(
                    f"{type(self).__name__} has no parameter {name[:64]!r}",
                    todo=f"there are {', '.join(known)}",
                )
        self._params |= params
        return self

    def __repr__(self) -> str:
        said = ", ".join(f"{name}={value!r}" for name, value in self._params.items())
        return f"{type(self).__name__}({said})"

    def __sklearn_tags__(self) -> Any:
        """What scikit-learn asks before it does anything; nobody else calls this."""
        from sklearn.utils import ClassifierTags, InputTags, RegressorTags, Tags, TargetTags

        classifies = self._estimator_type == "classifier"
        return Tags(
            estimator_type=self._estimator_type,
            target_tags=TargetTags(required=True),
            classifier_tags=ClassifierTags() if classifies else None,
            regressor_tags=None if classifies else RegressorTags(),
            input_tags=InputTags(sparse=True, allow_nan=True),
        )

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "trained_")

    @property
    def history_(self) -> Sequence[dict[str, dict[str, float]]]:
        """The metrics of every round: {"train": {"auc": 0.8}, "validation": …}."""
        return self._trained.history

    @property
    def best_round_(self) -> int:
        """The round that predictions end with, from 0; the last one without early stopping."""
        return self._trained.best_round

    @property
    def _trained(self) -> Trained:
        found: Trained | None = getattr(self, "trained_", None)
        if found is None:
            raise DataError(f"this {type(self).__name__} is not fitted", todo="call fit first")
        return found

    def _train(self, params: dict[str, Any], table: Table, held: Table | None) -> None:
        said = {**self.get_params(), **params}
        own = parse(GbunParams, {k: v for k, v in said.items() if v is not None})
        self.n_features_in_ = int(table.values.shape[1])
        self.trained_ = gbun.train(table, own, held)

    def _prediction(self, rows: Rows) -> Floats:
        trained, values = self._trained, _values(rows)
        if values.shape[1] != self.n_features_in_:
            raise DataError(
                f"the rows have {values.shape[1]} columns, those of the training had "
                f"{self.n_features_in_}"
            )
        if isinstance(values, csc_array) and trained.scale is not None:
            values = np.asfortranarray(values.toarray())
        elif trained.scale is None and not isinstance(values, csc_array):
            values = csc_array(np.nan_to_num(values))
        return trained.predict(values)


class GBUNClassifier(_Estimator):
    """Boosted networks for classes of any labels; two of them are binary:logistic, more
    multi:softprob.

    After `fit`: `classes_` in the order of `predict_proba`'s columns, `history_`, `best_round_`.
    """

    _estimator_type = "classifier"
    _absent = frozenset({"objective", "num_class"})
    _own: ClassVar[dict[str, Any]] = {}

    def fit(
        self,
        X: Rows,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        eval_set: EvalSet | None = None,
    ) -> Self:
        """Trains on (n, columns) numbers and n labels; NaN is a missing value.

        `eval_set` (X, y) or (X, y, weights) is measured every round and decides on early stopping.
        A ConfigError says which parameter cannot be, a DataError what rows or labels.
        """
        labels = _column(y)
        self.classes_, places = np.unique(labels, return_inverse=True)
        table = _table(X, places.astype(np.float64), sample_weight)
        held = None
        if eval_set is not None:
            held = _table(eval_set[0], self._places(eval_set[1]), _weights_of(eval_set))
        count = len(self.classes_)
        if count < 2:
            raise DataError(
                f"all {len(labels)} labels are the same class, so there is nothing to learn"
            )
        own: dict[str, Any] = {"objective": "binary:logistic"}
        if count > 2:
            own = {"objective": "multi:softprob", "num_class": count}
        self._train(own, table, held)
        return self

    def predict_proba(self, X: Rows) -> Floats:
        """float64 (n, classes), in the order of `classes_`."""
        found = self._prediction(X)
        return np.hstack([1.0 - found, found]) if found.shape[1] == 1 else found

    def predict(self, X: Rows) -> NDArray[Any]:
        """(n,) the likeliest label of each row."""
        found: NDArray[Any] = self.classes_[self.predict_proba(X).argmax(axis=1)]
        return found

    def score(self, X: Rows, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """The share of rows whose label is predicted, by weight."""
        hit = (self.predict(X) == _column(y)).astype(np.float64)
        weight = None if sample_weight is None else _numbers(sample_weight)
        return float(np.average(hit, weights=weight))

    def _places(self, y: ArrayLike) -> Floats:
        labels = _column(y)
        unknown = int(np.count_nonzero(~np.isin(labels, self.classes_)))
        if unknown:
            raise DataError(f"{unknown} of {len(labels)} labels of eval_set are of no class of y")
        return np.searchsorted(self.classes_, labels).astype(np.float64)


class GBUNRegressor(_Estimator):
    """Boosted networks for numbers: reg:squarederror, count:poisson or reg:tweedie."""

    _estimator_type = "regressor"
    _absent = frozenset({"num_class", "scale_pos_weight"})
    _own: ClassVar[dict[str, Any]] = {"objective": "reg:squarederror"}

    def fit(
        self,
        X: Rows,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        eval_set: EvalSet | None = None,
    ) -> Self:
        """Trains on (n, columns) numbers and n labels; as GBUNClassifier's."""
        if self.get_params()["objective"] in CLASSIFYING:
            raise ConfigError(
                "GBUNRegressor learns numbers, not classes", todo="use GBUNClassifier for them"
            )
        held = None
        if eval_set is not None:
            held = _table(eval_set[0], _numbers(eval_set[1]), _weights_of(eval_set))
        self._train({}, _table(X, _numbers(y), sample_weight), held)
        return self

    def predict(self, X: Rows) -> Floats:
        """float64 (n,) the mean of each row's label."""
        found: Floats = self._prediction(X)[:, 0]
        return found

    def score(self, X: Rows, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """R²: 1 − squared errors by those of the mean; nan where all labels are the same."""
        labels, predicted = _numbers(y), self.predict(X)
        weight = np.ones(len(labels)) if sample_weight is None else _numbers(sample_weight)
        mean = objectives.weighted_mean(labels, weight)
        spread = float((weight * (labels - mean) ** 2).sum())
        error = metrics.evaluate("rmse", labels, predicted, weight) ** 2 * float(weight.sum())
        return 1.0 - error / spread if spread else float("nan")


def _values(rows: Rows) -> NDArray[np.float32] | csc_array:
    """float32 (n, columns), dense in Fortran order or sparse in canonical form."""
    if issparse(rows):
        sparse = csc_array(rows, dtype=np.float32, copy=True)
        sparse.sum_duplicates()
        sparse.eliminate_zeros()
        _check_finite(sparse.data)
        return sparse
    try:
        with np.errstate(over="ignore"):
            dense = np.asfortranarray(rows, dtype=np.float32)
    except (TypeError, ValueError):
        raise DataError(
            "networks read numbers, and X holds something else",
            todo="write categories as columns of 0 and 1, missing values as NaN",
        ) from None
    if dense.ndim != 2:
        raise DataError(f"X has {dense.ndim} dimensions, expected rows and columns")
    _check_finite(dense)
    return dense


def _check_finite(values: NDArray[np.float32]) -> None:
    bad = int(np.count_nonzero(np.isinf(values)))
    if bad:
        raise DataError(f"{bad} values of X are infinite, or too large for 32-bit floats")


def _table(rows: Rows, y: Floats, weight: ArrayLike | None) -> Table:
    values = _values(rows)
    if values.shape[0] != len(y):
        raise DataError(f"X has {values.shape[0]} rows and y {len(y)} labels")
    return Table(values, y, None if weight is None else _numbers(weight))


def _weights_of(given: EvalSet) -> ArrayLike | None:
    return given[2] if len(given) == 3 else None


def _column(y: ArrayLike) -> NDArray[Any]:
    found = np.asarray(y)
    return found.ravel() if found.ndim == 2 and found.shape[1] == 1 else found


def _numbers(y: ArrayLike) -> Floats:
    try:
        return _column(y).astype(np.float64)
    except (TypeError, ValueError):
        raise DataError("labels and weights are numbers, and something else came") from None
