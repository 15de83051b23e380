"""Estimators that grow trees, one for each protocol and kind of label."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from pydantic import BaseModel

from fedboost import protocols
from fedboost.core import objectives
from fedboost.flow import Protocol
from fedboost.ground.settings import Settings
from fedboost.protocols.federboost_horizontal.checks import ROWS_PER_BIN_MIN
from fedboost.protocols.federboost_horizontal.params import FederBoostHorizontalParams
from fedboost.protocols.federboost_vertical.params import FederBoostVerticalParams
from fedboost.protocols.hybridtree.params import HybridTreeParams
from fedboost.protocols.secureboost.params import SecureBoostParams
from fedboost.sdk import xgboost_parameters
from fedboost.sdk.caller_warnings import warn_caller
from fedboost.sdk.horizontal import Horizontal
from fedboost.sdk.outputs import Classifier, Regressor
from fedboost.sdk.parameters import EstimatorParameters
from fedboost.sdk.refusals import InvalidParameterError

# Settings that name an earlier job; a simulation keeps none.
EARLIER = frozenset({"warm_start", "reuse"})
# They follow from the labels, or are settings of objectives for numbers.
OF_CLASSES = frozenset({"objective", "num_class", *objectives.own_settings(of_classes=False)})
ONLY_CLASSES = frozenset({"num_class", "multi_output", *objectives.own_settings(of_classes=True)})
TABLE_DEFAULTS: dict[str, Any] = {
    "parties": 2,  # that a single table is dealt to; or their names, or {name: columns}
    "guest": None,  # the party with the labels; None: the first
    "ids": None,  # columns that match rows of several parties; None: by position
    "categorical": None,  # columns to treat as categories, of any type
    "missing": math.nan,  # a number that means missing beside NaN, or such numbers by party
}
OF_XGBOOST = {name: one.default for name, one in xgboost_parameters.XGBOOST_PARAMETERS.items()}
NUMBER_DEFAULTS = {"objective": objectives.number_objective()}
OF_CLASS_TREES: dict[str, Any] = {
    **TABLE_DEFAULTS,
    **OF_XGBOOST,
    "objective": objectives.class_objective(2),  # of two; of more it is multi:softprob
}
OF_NUMBER_TREES: dict[str, Any] = {**TABLE_DEFAULTS, **OF_XGBOOST, **NUMBER_DEFAULTS}


class SecureBoostClassifier(Classifier):
    """SecureBoost+ on parties with other columns of the same rows; gradients travel encrypted.

    After `fit`: `classes_` in the order of `predict_proba`'s columns, `history_`, `result_`,
    `disclosure_`, `feature_importances_`.
    """

    _models = (SecureBoostParams,)
    _absent = OF_CLASSES | EARLIER
    _own: ClassVar[dict[str, Any]] = OF_CLASS_TREES
    _protocol_name = "secureboost"


class SecureBoostRegressor(Regressor):
    """SecureBoost+ for regression."""

    _models = (SecureBoostParams,)
    _absent = ONLY_CLASSES | EARLIER
    _own: ClassVar[dict[str, Any]] = OF_NUMBER_TREES
    _protocol_name = "secureboost"


class _Forest(EstimatorParameters):
    """Base of random forests: one round of `n_estimators` trees, with XGBoost's defaults for it."""

    _forest: ClassVar[dict[str, Any]] = {
        "learning_rate": 1.0,
        "subsample": 0.8,
        "colsample_bynode": 0.8,
        "reg_lambda": 1e-5,
    }

    def get_num_boosting_rounds(self) -> int:
        """Return 1: all trees grow in one round."""
        return 1

    def get_xgb_params(self) -> dict[str, Any]:
        """Return the parameters under XGBoost's names, the trees as `num_parallel_tree`."""
        params = super().get_xgb_params()  # type: ignore[misc]
        return {**params, "num_parallel_tree": self._n_trees()}

    def _n_trees(self) -> int:
        trees = self.get_params()["n_estimators"]
        return int(self.defaults()["n_estimators"] if trees is None else trees)

    def _job_params(self, model: type[BaseModel], **derived: Any) -> dict[str, Any]:
        given = self.get_params()
        for name in ("early_stopping_rounds", "num_parallel_tree", "forest"):
            if given.get(name) is not None:
                raise InvalidParameterError(
                    f"{name} is {given[name]!r}, and a random forest has one round of n_estimators "
                    "trees",
                    todo="leave it out",
                )
        return super()._job_params(model, **{**derived, "n_estimators": 1})

    def _parallel_trees(self) -> int:
        return self._n_trees()


class SecureBoostRFClassifier(_Forest, SecureBoostClassifier):
    """A random forest of SecureBoost+ for classes: XGBoost's XGBRFClassifier."""

    _own: ClassVar[dict[str, Any]] = {**SecureBoostClassifier._own, **_Forest._forest}


class SecureBoostRFRegressor(_Forest, SecureBoostRegressor):
    """A random forest of SecureBoost+ for numbers: XGBoost's XGBRFRegressor."""

    _own: ClassVar[dict[str, Any]] = {**SecureBoostRegressor._own, **_Forest._forest}


class _FederBoost(Horizontal):
    """FederBoost; `layout` names what parties share: rows ("vertical") or columns."""

    def _protocol(self) -> Protocol[Settings]:
        layout = self.get_params()["layout"]
        if layout not in ("vertical", "horizontal"):
            raise InvalidParameterError(
                f"layout is {layout!r}", todo="layout='vertical' or layout='horizontal'"
            )
        protocol = protocols.load_protocol(f"federboost-{layout}")
        for name in self.said():
            known = any(name in model.model_fields for model in self._models)
            if known and name not in protocol.params.model_fields:
                raise InvalidParameterError(
                    f"{name} is no parameter of the {layout} layout", todo="leave it out"
                )
        return protocol

    def _learned_settings(self) -> dict[str, Any]:
        """Return as many bins as a small table allows, if the user has not said how many."""
        settings, said = super()._learned_settings(), self.said()
        if not self._is_horizontal or {"max_bin", "quantile_tolerance"} & set(said):
            return settings
        held_out = (said.get("validation") or {}).get("fraction", 0.0)
        rows = int(sum(self._train_rows.values()) * (1.0 - held_out))
        usual, most = self.defaults()["max_bin"], max(2, rows // ROWS_PER_BIN_MIN)
        if most >= usual:
            return settings
        warn_caller(
            f"{rows} training rows allow max_bin={most}, not {usual}: a bin needs "
            f"{ROWS_PER_BIN_MIN} rows"
        )
        return {**settings, "max_bin": most}

    def _is_deterministic(self) -> bool:
        params = self.get_params()
        return params["layout"] == "horizontal" or params["epsilon"] is None


class FederBoostClassifier(_FederBoost, Classifier):
    """FederBoost: hosts disclose bins of their columns under noise (`layout="vertical"`), or
    parties add up histograms of their rows under masks (`layout="horizontal"`).

    With `layout="horizontal"` labels come by party: `fit({"north": X1, "south": X2},
    {"north": y1, "south": y2})`.
    """

    _models = (FederBoostVerticalParams, FederBoostHorizontalParams)
    _absent = OF_CLASSES | EARLIER
    _own: ClassVar[dict[str, Any]] = {"layout": "vertical", **OF_CLASS_TREES}


class FederBoostRegressor(_FederBoost, Regressor):
    """FederBoost for regression."""

    _models = (FederBoostVerticalParams, FederBoostHorizontalParams)
    _absent = ONLY_CLASSES | EARLIER
    _own: ClassVar[dict[str, Any]] = {"layout": "vertical", **OF_NUMBER_TREES}


class HybridTreeClassifier(Classifier):
    """HybridTree: each host has columns of some of the guest's rows, by `ids`.

    A single table is dealt by columns; every host has all its rows.
    """

    _models = (HybridTreeParams,)
    _absent = OF_CLASSES | EARLIER
    _own: ClassVar[dict[str, Any]] = OF_CLASS_TREES
    _protocol_name = "hybridtree"
    _measures_rounds = False


class HybridTreeRegressor(Regressor):
    """HybridTree for regression."""

    _models = (HybridTreeParams,)
    _absent = ONLY_CLASSES | EARLIER
    _own: ClassVar[dict[str, Any]] = OF_NUMBER_TREES
    _protocol_name = "hybridtree"
    _measures_rounds = False
