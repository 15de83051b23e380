"""fedboost from Python: what a notebook or a program of one's own imports.

Modules:
    assembly    the tables of a fit as parties have them
    background  one event loop for blocking calls
    boosters    what XGBoost's users ask of fitted trees
    callbacks   callbacks of `fit`, and loggers
    client      jobs at a coordinator
    cluster     daemons on this machine
    disclosure  what crossed between parties in a fit
    federated   estimators whose `fit` is a job
    fitted      what a fitted estimator shows
    holdout     validation rows that a program chooses
    horizontal  estimators over parties with the same columns
    jobs        status, events and metrics of a job
    keeping     saves and loads estimators
    labels      labels, weights and class names
    models      one shard of a model
    networks    estimators of boosted networks
    outputs     predictions and scores
    parameters  parameters in scikit-learn's manner
    party       an owner's client of the own party
    places      addresses and certificates
    progress    progress in notebooks and terminals
    refusals    errors that are ValueErrors too
    seats       who has which table
    simulation  runs a job in this process
    tables      tables of numpy, scipy, pandas, polars or Arrow
    trees       estimators of trees, by protocol and label
"""

import logging

from fedboost.sdk.client import AsyncClient, AsyncJob, Client, Job
from fedboost.sdk.cluster import Cluster
from fedboost.sdk.models import Model, load_model
from fedboost.sdk.networks import GBUNClassifier, GBUNRegressor
from fedboost.sdk.party import PartyClient
from fedboost.sdk.tables import DeclaredTable
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
    "DeclaredTable",
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
