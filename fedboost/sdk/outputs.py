"""Outputs of estimators: classes with probabilities, or numbers; and their scores."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedboost.core import metrics, objectives
from fedboost.ground.arrays import Floats
from fedboost.model.unknown_categories import UNKNOWN_MAX
from fedboost.sdk import keeping, labels, model_files, xgboost_parameters
from fedboost.sdk.boosters import Boosted, IterationRange
from fedboost.sdk.federated import Federated, LabelsLike
from fedboost.sdk.labels import Classes
from fedboost.sdk.party_tables import RowsLike
from fedboost.sdk.refusals import InvalidParameterError, as_value_errors

One = TypeVar("One")
# What XGBoost calls the learning of classes; the labels decide between two and more.
CLASS_OBJECTIVES = (objectives.class_objective(2), objectives.class_objective(3), "multi:softmax")


class Estimator(Federated, Boosted):
    """The base of classifiers and regressors once they are fitted."""

    def save(self, folder: str | Path) -> Path:
        """Write the fitted estimator into a folder, as JSON and plain arrays; return its path.

        The folder holds every party's shard: the whole model, which only a simulation has.
        """
        self._check_fitted()
        with as_value_errors():
            keeping.save_estimator(self, Path(folder))
        return Path(folder)

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """Read what `save` wrote; a ConfigError where it is something else, or of another class."""
        with as_value_errors():
            return keeping.load_estimator(cls, Path(folder))

    def _loaded(self, path: Path) -> Self:
        load = model_files.load_from_file if path.is_file() else keeping.load_estimator
        return load(type(self), path)

    def save_model(self, fname: str | Path) -> None:
        """Write the fitted estimator, with every party's shard, into one file that XGBoost reads as
        a `Booster`: JSON where its name ends in .json, otherwise UBJSON.

        A ConfigError where XGBoost cannot hold the model; `save` writes any model.
        """
        try:
            booster = self.get_booster()
        except InvalidParameterError as error:
            raise InvalidParameterError(error.what, todo="write a folder with save") from None
        with as_value_errors():
            model_files.save_in_file(self, booster, Path(fname))

    def load_model(self, fname: str | Path) -> None:
        """Become the estimator that `save_model` wrote into the file `fname`, or `save` into a
        folder; an error that is a TypeError where it is of another class.
        """
        with as_value_errors():
            loaded = self._loaded(Path(fname))
        self._delete_fitted()
        vars(self).update(vars(loaded))


class Classifier(Estimator):
    """Classes of any labels; two of them are binary:logistic, more multi:softprob."""

    _estimator_type = "classifier"

    def predict_proba(
        self,
        X: RowsLike,
        *,
        iteration_range: IterationRange | None = None,
        unknown_max: float = UNKNOWN_MAX,
    ) -> Any:
        """Return probabilities, float64 (n, classes), in the order of `classes_`; by party like
        `predict`.

        With `iteration_range` (first, end) use only those rounds, in float32, added up like
        XGBoost. Categories that the model does not know count as missing, with a warning; raise
        InvalidTableError if their share of a column's values is above `unknown_max`.
        """
        if iteration_range is None:
            return _map_parties(self._predicted(X, unknown_max=unknown_max), _probabilities)
        scores = self._scores_as_asked(X, False, False, iteration_range, unknown_max)
        return _map_parties(scores, _probabilities)

    def predict(
        self,
        X: RowsLike,
        *,
        output_margin: bool = False,
        pred_contribs: bool = False,
        iteration_range: IterationRange | None = None,
        unknown_max: float = UNKNOWN_MAX,
    ) -> Any:
        """Return the likeliest label of each row of the guest, (n,).

        If every party has labels and X holds tables by party, return the labels by party. With
        `output_margin` return the sums of the trees instead, (n,) or, for several classes, (n,
        classes); with `pred_contribs` each column's contribution to them, float32 (n, columns + 1),
        the last one the bias (TreeSHAP), for several classes (n, classes, columns + 1).
        `iteration_range` (first, end) uses only those rounds, added up like XGBoost; `unknown_max`
        is as in `predict_proba`. The errors are those of `get_booster`.
        """
        if output_margin or pred_contribs:
            scores = self._scores_as_asked(
                X, output_margin, pred_contribs, iteration_range, unknown_max
            )
            return _map_parties(scores, _without_single_axis)
        chances = self.predict_proba(X, iteration_range=iteration_range, unknown_max=unknown_max)
        return _map_parties(chances, lambda chances: self.classes_[chances.argmax(axis=1)])

    def score(self, X: RowsLike, y: LabelsLike, sample_weight: Any = None) -> float:
        """Return the share of rows with the right prediction, by weight."""
        predicted, known, weight = _concatenated(self.predict(X), y, sample_weight)
        return float(np.average((predicted == known).astype(np.float64), weights=weight))

    def _learn_labels(self, y: NDArray[Any], weight: Floats | None) -> None:
        self._check_objective()
        classes = Classes.of(y)
        classes.check_weight(y, weight)
        self.classes_ = classes.values

    def _job_labels(self, y: NDArray[Any]) -> Floats:
        return Classes(self.classes_).indices(y)

    def _learned_settings(self) -> dict[str, Any]:
        return Classes(self.classes_).settings

    def _check_objective(self) -> None:
        """Refuse objectives for numbers, and those that no protocol has."""
        name, objective = type(self).__name__, self.get_params().get("objective")
        xgboost_parameters.check_objective(objective, name)
        if objective not in (None, *CLASS_OBJECTIVES):
            is_number = objective in objectives.OBJECTIVES
            other = name.replace("Classifier", "Regressor")
            raise InvalidParameterError(
                f"objective is {objective!r}, and {name} learns classes",
                todo=f"use {other} for it" if is_number else "leave it out: labels decide it",
            )

    @property
    def n_classes_(self) -> int:
        """The number of classes."""
        self._check_fitted()
        return len(self.classes_)


class Regressor(Estimator):
    """Estimator of numbers, by one of a job's objectives for them."""

    _estimator_type = "regressor"

    def predict(
        self,
        X: RowsLike,
        *,
        output_margin: bool = False,
        pred_contribs: bool = False,
        iteration_range: IterationRange | None = None,
        unknown_max: float = UNKNOWN_MAX,
    ) -> Any:
        """Return the mean of the label of each row of the guest, float64 (n,).

        If every party has labels and X holds tables by party, return the means by party. The
        options are those of a classifier's `predict`.
        """
        if output_margin or pred_contribs or iteration_range is not None:
            scores = self._scores_as_asked(
                X, output_margin, pred_contribs, iteration_range, unknown_max
            )
            return _map_parties(scores, _without_single_axis)
        return _map_parties(self._predicted(X, unknown_max=unknown_max), _without_single_axis)

    def score(self, X: RowsLike, y: LabelsLike, sample_weight: Any = None) -> float:
        """Return R²: 1 − squared errors of the predictions / squared errors of the mean; nan for
        equal labels.
        """
        predicted, known, weight = _concatenated(self.predict(X), y, sample_weight)
        with as_value_errors():
            truth = labels.finite_numbers(known)
        weight = np.ones(len(truth)) if weight is None else weight
        mean = objectives.weighted_mean(truth, weight)
        spread = float((weight * (truth - mean) ** 2).sum())
        error = metrics.evaluate("rmse", truth, predicted, weight) ** 2 * float(weight.sum())
        return 1.0 - error / spread if spread else float("nan")

    def _learn_labels(self, y: NDArray[Any], weight: Floats | None) -> None:
        xgboost_parameters.check_objective(self.get_params()["objective"], type(self).__name__)
        with as_value_errors():
            record = objectives.objective_record(
                self.get_params()["objective"] or objectives.number_objective()
            )
        if record.classifies:
            name = type(self).__name__
            raise InvalidParameterError(
                f"{name} learns numbers, not classes",
                todo=f"use {name.replace('Regressor', 'Classifier')} for them",
            )

    def _job_labels(self, y: NDArray[Any]) -> Floats:
        return labels.finite_numbers(y)


def _map_parties(values: Floats | dict[str, Floats], change: Callable[[Floats], One]) -> Any:
    if isinstance(values, dict):
        return {party: change(part) for party, part in values.items()}
    return change(values)


def _probabilities(chances: Floats) -> Floats:
    return np.hstack([1.0 - chances, chances]) if chances.shape[1] == 1 else chances


def _without_single_axis(values: NDArray[Any]) -> NDArray[Any]:
    """Return a single output without its axis."""
    return values[:, 0] if values.shape[1:] == (1,) else values


def _concatenated(
    predicted: Any, y: LabelsLike, weight: Any
) -> tuple[NDArray[Any], NDArray[Any], Floats | None]:
    """Return predictions, labels and weights, concatenated if they come by party."""
    if not isinstance(predicted, Mapping):
        return (
            predicted,
            _ravelled_values(y),
            None if weight is None else _ravelled_values(weight).astype(float),
        )
    parties = list(predicted)
    joined = np.concatenate([predicted[party] for party in parties])
    known = np.concatenate([_ravelled_values(y[party]) for party in parties])
    if weight is None:
        return joined, known, None
    weights = np.concatenate([_ravelled_values(weight[party]) for party in parties])
    return joined, known, weights.astype(np.float64)


def _ravelled_values(values: ArrayLike) -> NDArray[Any]:
    return np.asarray(values).ravel()
