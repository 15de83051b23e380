"""Estimators that grow trees, one for each protocol and kind of label."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from fedboost import protocols
from fedboost.core import objectives
from fedboost.flow import Protocol
from fedboost.ground.settings import Settings
from fedboost.protocols.federboost_horizontal.params import FederBoostHorizontalParams
from fedboost.protocols.federboost_vertical.params import FederBoostVerticalParams
from fedboost.protocols.hybridtree.params import HybridTreeParams
from fedboost.protocols.secureboost.params import SecureBoostParams
from fedboost.sdk.horizontal import Horizontal
from fedboost.sdk.outputs import Classifier, Regressor
from fedboost.sdk.refusals import InvalidParameterError

# Settings that name an earlier job; a simulation keeps none.
EARLIER = frozenset({"warm_start", "reuse"})
# They follow from the labels, or are settings of objectives for numbers.
OF_CLASSES = frozenset({"objective", "num_class", *objectives.own_settings(of_classes=False)})
ONLY_CLASSES = frozenset({"num_class", "multi_output", *objectives.own_settings(of_classes=True)})
TABLES: dict[str, Any] = {
    "parties": 2,  # that a single table is dealt to; or their names, or {name: columns}
    "guest": None,  # the party with the labels; None: the first
    "ids": None,  # columns that match rows of several parties; None: by position
    "categorical": None,  # columns to treat as categories, of any type
    "missing": math.nan,  # a number that means missing beside NaN, or such numbers by party
}
NUMBERS = {"objective": objectives.of_numbers()}


class SecureBoostClassifier(Classifier):
    """SecureBoost+ on parties with other columns of the same rows; gradients travel encrypted.

    After `fit`: `classes_` in the order of `predict_proba`'s columns, `history_`, `result_`,
    `disclosure_`, `feature_importances_`.
    """

    _models = (SecureBoostParams,)
    _absent = OF_CLASSES | EARLIER
    _own: ClassVar[dict[str, Any]] = TABLES
    _protocol_name = "secureboost"


class SecureBoostRegressor(Regressor):
    """SecureBoost+ for regression."""

    _models = (SecureBoostParams,)
    _absent = ONLY_CLASSES | EARLIER
    _own: ClassVar[dict[str, Any]] = {**TABLES, **NUMBERS}
    _protocol_name = "secureboost"


class _FederBoost(Horizontal):
    """FederBoost; `layout` names what parties share: rows ("vertical") or columns."""

    def _protocol(self) -> Protocol[Settings]:
        layout = self.get_params()["layout"]
        if layout not in ("vertical", "horizontal"):
            raise InvalidParameterError(
                f"layout is {layout!r}", todo="layout='vertical' or layout='horizontal'"
            )
        protocol = protocols.named(f"federboost-{layout}")
        for name in self.said():
            known = any(name in model.model_fields for model in self._models)
            if known and name not in protocol.params.model_fields:
                raise InvalidParameterError(
                    f"{name} is no parameter of the {layout} layout", todo="leave it out"
                )
        return protocol

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
    _own: ClassVar[dict[str, Any]] = {"layout": "vertical", **TABLES}


class FederBoostRegressor(_FederBoost, Regressor):
    """FederBoost for regression."""

    _models = (FederBoostVerticalParams, FederBoostHorizontalParams)
    _absent = ONLY_CLASSES | EARLIER
    _own: ClassVar[dict[str, Any]] = {"layout": "vertical", **TABLES, **NUMBERS}


class HybridTreeClassifier(Classifier):
    """HybridTree: each host has columns of some of the guest's rows, by `ids`.

    A single table is dealt by columns; every host has all its rows.
    """

    _models = (HybridTreeParams,)
    _absent = OF_CLASSES | EARLIER
    _own: ClassVar[dict[str, Any]] = TABLES
    _protocol_name = "hybridtree"


class HybridTreeRegressor(Regressor):
    """HybridTree for regression."""

    _models = (HybridTreeParams,)
    _absent = ONLY_CLASSES | EARLIER
    _own: ClassVar[dict[str, Any]] = {**TABLES, **NUMBERS}
    _protocol_name = "hybridtree"
