"""Gradient boosting of untrained networks over rows of many parties.

    guest ─── Inputs ─────► hosts                  once a job
    parties ─ Masked ─► aggregator ─ Total ─► parties
        rows, labels, columns, reach               once each
        values below the probes of a bisection     where columns are cut, at most 32 times
        Σz, Σz² of a network's outputs, rows       every round: 2 · outputs + 1
        PᵀHP, PᵀG                                  every round: outputs² / 2 for each class
        metrics                                    every round

Only the sums before the rounds may grow with the columns. A round's network comes from the job's
seed and never travels; the messages of a round depend only on the numbers of outputs and classes.
All parties solve the same equations and end with the whole model. GBUN (Zhang et al.), "Distributed
learning"; see `core.gbun` and `fedboost.aggregation`.

Modules:
    boosting  a party's rounds of networks
    columns   means and deviations of all parties' columns
    params    its settings
    party     steps of guest and hosts
    walk      order of the steps
"""

from fedboost.flow import (
    AGGREGATOR,
    EVERYBODY,
    GUEST,
    HOST,
    PolicyFacts,
    Protocol,
    RowsUsed,
    TableUse,
)
from fedboost.protocols.gbun.params import GbunJobParams, check_table, policy_demands
from fedboost.protocols.gbun.walk import FLOW, walk

PROTOCOL = Protocol(
    name="gbun",
    params=GbunJobParams,
    flow=FLOW,
    walk=walk,
    modules={
        GUEST: f"{__name__}.party",
        HOST: f"{__name__}.party",
        AGGREGATOR: "fedboost.aggregation.aggregator",
    },
    leaves="model",
    tables=TableUse(
        labelled=EVERYBODY,
        rows=RowsUsed.OWN,
        bins=lambda params, _: params.max_bin,
        check=check_table,
    ),
    policy=PolicyFacts(asks=policy_demands),
)
