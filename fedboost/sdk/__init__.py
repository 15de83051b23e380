"""fedboost from Python, for notebooks and programs.

Modules:
    assembly    a fit's tables in the form of parties' tables
    background  one event loop for blocking calls
    boosters    XGBoost's outputs of fitted trees
    callbacks   callbacks of `fit`, and loggers
    caller_warnings  warnings to the program that called
    client      jobs at a coordinator
    cluster     daemons on this machine
    disclosure  messages between the parties of a fit
    eval_sets   rows that a fit measures
    federated   estimators whose `fit` is a job
    fitted      attributes of a fitted estimator
    holdout     validation rows chosen by a program
    horizontal  estimators over parties with the same columns
    jobs        status, events and metrics of a job
    keeping     saves and loads estimators
    labels      labels, weights and class names
    model_files  estimators in one file
    models      one shard of a model
    networks    estimators of boosted networks
    outputs     predictions and scores
    parameters  parameters in scikit-learn's manner
    party       an owner's client of the own party
    party_tables  tables of an estimator's parties
    places      addresses and certificates
    progress    progress in notebooks and terminals
    refusals    errors that are ValueErrors too
    row_table   rows of a program's table
    seats       tables by party
    simulation  runs a job in this process
    tables      tables of numpy, scipy, pandas, polars or Arrow
    trees       estimators of trees, by protocol and label
    xgboost_parameters  XGBoost's parameters that no job has
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
    SecureBoostRFClassifier,
    SecureBoostRFRegressor,
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
    "SecureBoostRFClassifier",
    "SecureBoostRFRegressor",
    "SecureBoostRegressor",
    "load_model",
]

# Warnings of a job are in its result; a program that wants them logged configures logging.
logging.getLogger("fedboost").addHandler(logging.NullHandler())
