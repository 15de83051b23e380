"""fedboost from Python: what a notebook or a program of one's own imports."""

import logging

from fedboost.sdk.client import AsyncClient, AsyncJob, Client, Job
from fedboost.sdk.cluster import Cluster
from fedboost.sdk.models import Model, load_model
from fedboost.sdk.networks import GBUNClassifier, GBUNRegressor
from fedboost.sdk.party import PartyClient
from fedboost.sdk.trees import (
    FederBoostClassifier,
    FederBoostRegressor,
    HybridTreeClassifier,
    HybridTreeRegressor,
    SecureBoostClassifier,
    SecureBoostRegressor,
)

__all__ = [
    "AsyncClient",
    "AsyncJob",
    "Client",
    "Cluster",
    "FederBoostClassifier",
    "FederBoostRegressor",
    "GBUNClassifier",
    "GBUNRegressor",
    "HybridTreeClassifier",
    "HybridTreeRegressor",
    "Job",
    "Model",
    "PartyClient",
    "SecureBoostClassifier",
    "SecureBoostRegressor",
    "load_model",
]

# What jobs warn of is in what they leave; whoever wants it logged configures logging.
logging.getLogger("fedboost").addHandler(logging.NullHandler())
