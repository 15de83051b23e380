"""fedboost from Python: what a notebook or a program of one's own imports."""

from fedboost.sdk.networks import GBUNClassifier, GBUNRegressor

__all__ = ["GBUNClassifier", "GBUNRegressor"]
