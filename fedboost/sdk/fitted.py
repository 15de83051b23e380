"""Attributes of a fitted estimator: its job's result and metrics, and the parties' messages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fedboost.core import objectives
from fedboost.data.frame import Frame
from fedboost.flow import Artefact
from fedboost.ground.arrays import Indices
from fedboost.messages.job_pb2 import JobJournal
from fedboost.model import kinds
from fedboost.model.kinds.kind import SplitTotals
from fedboost.report.page import render_page
from fedboost.sdk.disclosure import Disclosure
from fedboost.sdk.parameters import EstimatorParameters
from fedboost.sdk.refusals import InvalidParameterError, InvalidTableError, unfitted_error

Score = Callable[
    [Mapping[str, Artefact], str, Mapping[str, Frame], Mapping[str, Indices]], Any
]  # as `ModelKind.margins`
History = list[dict[str, dict[str, float]]]
IMPORTANCES: Mapping[str, Callable[[SplitTotals], float]] = {  # XGBoost's importance types
    "gain": lambda one: one.gain / one.splits,
    "weight": lambda one: float(one.splits),
    "cover": lambda one: one.cover / one.splits,
    "total_gain": lambda one: one.gain,
    "total_cover": lambda one: one.cover,
}


class Fitted(EstimatorParameters):
    """An estimator's attributes behind `fit`, for classes and for numbers."""

    _estimator_type: ClassVar[str]
    _split_names: Mapping[str, str] = {"validation": "validation_0"}  # XGBoost's, of history_'s

    _measured: Mapping[str, dict[str, list[float]]] = {}  # metrics of sets but the last, by name

    # Results of a federated `fit`.
    result_: dict[str, Any]  # the job's result, as in `fedboost job status --json`
    disclosure_: Disclosure  # messages between the parties
    guest_: str
    shards_: dict[str, Artefact]  # each party's part of the model
    n_features_in_: int
    journal_: bytes  # of the job, a JobJournal

    def __sklearn_tags__(self) -> Any:
        """Return scikit-learn's tags; only scikit-learn calls this."""
        from sklearn.utils import ClassifierTags, InputTags, RegressorTags, Tags, TargetTags

        classifies = self._estimator_type == "classifier"
        return Tags(
            estimator_type=self._estimator_type,
            target_tags=TargetTags(required=True),
            classifier_tags=ClassifierTags() if classifies else None,
            regressor_tags=None if classifies else RegressorTags(),
            input_tags=InputTags(sparse=True, allow_nan=True, categorical=True),
            non_deterministic=not self._is_deterministic(),
        )

    def _is_deterministic(self) -> bool:
        """Return True if two fits on the same rows give the same model."""
        return True

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "n_features_in_")

    def _check_fitted(self) -> None:
        if not self.__sklearn_is_fitted__():
            raise unfitted_error(type(self).__name__)

    @property
    def history_(self) -> History:
        """The metrics of every round: {"train": {"auc": 0.8}, "validation": …}."""
        self._check_fitted()
        return self.shards_[self.guest_].facts["history"]

    @property
    def evals_result_(self) -> dict[str, dict[str, list[float]]]:
        """Metrics by part and name: {"train": {"auc": [0.7, 0.8, …]}, …}."""
        by_metric: dict[str, dict[str, list[float]]] = {}
        for measured in self.history_:
            for split, metrics in measured.items():
                for name, value in metrics.items():
                    by_metric.setdefault(split, {}).setdefault(name, []).append(value)
        return by_metric

    def evals_result(self) -> dict[str, dict[str, list[float]]]:
        """Return the metrics of `eval_set` under XGBoost's names:
        {"validation_0": {"auc": [0.7, 0.8, …]}}; a DataError if there was none.

        Sets before the last are measured on the fitted model: nan after its best round.
        """
        if "validation" not in self.evals_result_:
            raise InvalidTableError(
                "no rows were validated on: the fit had no eval_set",
                todo="give eval_set, or read evals_result_, which has the training rows",
            )
        known = {**self.evals_result_, **self._measured}
        return {name: known[split] for split, name in self._split_names.items()}

    @property
    def best_round_(self) -> int:
        """The round that predictions end with, from 0; the last one without early stopping."""
        self._check_fitted()
        facts = self.shards_[self.guest_].facts
        return kinds.kind_of(facts).rounds(facts) - 1

    @property
    def best_iteration(self) -> int:
        """XGBoost's name for `best_round_`; an AttributeError without early stopping."""
        best = self.best_round_
        if self.shards_[self.guest_].facts["params"].get("early_stopping_rounds") is None:
            raise AttributeError("best_iteration exists only with early_stopping_rounds")
        return best

    @property
    def best_score(self) -> float:
        """The last metric of the held-out rows in the best round; as `best_iteration`."""
        best = self.best_iteration
        *_, values = self.evals_result_["validation"].values()
        return values[best]

    @property
    def feature_importances_(self) -> NDArray[np.float64]:
        """Each column's share of the model, float64 (n_features_in_,), by `importance_type` as in
        XGBoost: the mean gain of its splits, or another measure.

        In the order of the columns, one party's after the other's. In this process alone: parties
        do not tell one another which columns their splits ask for. An AttributeError where
        nothing is a tree, or a job's guest does not score splits.
        """
        self._check_fitted()
        kind = self.get_params().get("importance_type") or "gain"
        if kind not in IMPORTANCES:
            raise InvalidParameterError(
                f"importance_type is {kind!r}", todo=f"give one of {', '.join(IMPORTANCES)}"
            )
        totals = kinds.kind_of(self.shards_[self.guest_].facts).column_gains(
            self.shards_, self.guest_
        )
        if totals is None:
            raise AttributeError("feature_importances_: no gain of a split is known to this model")
        measure = IMPORTANCES[kind]
        value = np.array(
            [measure(totals[key]) if key in totals else 0.0 for key in self._columns()]
        )
        total = float(value.sum())
        return value / total if total else value

    @property
    def intercept_(self) -> NDArray[np.float32]:
        """The first prediction, float32 (1,); of several classes the first margin of each."""
        self._check_fitted()
        facts = self.shards_[self.guest_].facts
        margin = np.array(facts["base_margin"], np.float64)
        if len(margin) > 1:
            return (margin - margin_shift(facts)).astype(np.float32)
        return objectives.transform(facts["objective"], margin[None, :])[0].astype(np.float32)

    def get_xgb_params(self) -> dict[str, Any]:
        """Return the parameters under XGBoost's names, with `random_state` as a whole number."""
        params = self.get_params()
        if params["random_state"] is not None:
            params["random_state"] = self.seed_said()
        return params

    def get_num_boosting_rounds(self) -> int:
        """Return `n_estimators`, or its default."""
        rounds = self.get_params()["n_estimators"]
        return int(self.defaults()["n_estimators"] if rounds is None else rounds)

    def _columns(self) -> list[tuple[str, str]]:
        """Return every column, as party and name; no party if every party has it."""
        raise NotImplementedError

    def report(self, path: str | Path) -> Path:
        """Write the job's report, one self-contained HTML file; return its path."""
        self._check_fitted()
        file = Path(path)
        file.write_text(render_page(self._job_journal()), encoding="utf-8")
        return file

    def _job_journal(self) -> JobJournal:
        if not getattr(self, "journal_", b""):
            raise AttributeError(
                "there is no job to report on: all rows were in one table, and no federation "
                "was needed"
            )
        return JobJournal.FromString(self.journal_)


def margin_shift(facts: Mapping[str, Any]) -> float:
    """Return the difference between a model's estimated margins of several classes and
    XGBoost's: the first margins there add up to 0.
    """
    margin = np.array(facts["base_margin"], np.float64)
    is_estimated = len(margin) > 1 and facts.get("params", {}).get("base_score") is None
    return float(margin.mean()) if is_estimated else 0.0
