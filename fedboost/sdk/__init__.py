"""fedboost from Python: what a notebook or a program of one's own imports."""

from fedboost.sdk.client import AsyncClient, AsyncJob, Client, Job
from fedboost.sdk.networks import GBUNClassifier, GBUNRegressor
from fedboost.sdk.party import Party

__all__ = [
    "AsyncClient",
    "AsyncJob",
    "Client",
    "GBUNClassifier",
    "GBUNRegressor",
    "Job",
    "Party",
]
