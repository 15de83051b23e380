"""fedboost from Python: what a notebook or a program of one's own imports."""

from fedboost.sdk.networks import GBUNClassifier, GBUNRegressor
from fedboost.sdk.trees import (
    FederBoostClassifier,
    FederBoostRegressor,
    HybridTreeClassifier,
    HybridTreeRegressor,
    SecureBoostClassifier,
    SecureBoostRegressor,
)

__all__ = [
    "FederBoostClassifier",
    "FederBoostRegressor",
    "GBUNClassifier",
    "GBUNRegressor",
    "HybridTreeClassifier",
    "HybridTreeRegressor",
    "SecureBoostClassifier",
    "SecureBoostRegressor",
]
