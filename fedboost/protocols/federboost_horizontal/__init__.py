"""Horizontal boosting: every party has other rows of the same columns, and labels.

    guest ─── Columns ────► hosts                  once a job
    parties ─ Masked ─► aggregator ─ Total ─► parties
        rows and labels                            twice a job
        values below the probes of a bisection     until all quantiles are found, at most 32 times
        histograms of the open nodes               every layer
        metrics                                    every round

All parties compute the same from the same sums, so no split travels, and each ends with the whole
model. A party's part of a sum stays hidden; see `fedboost.aggregation`. FederBoost (Tian et al.),
section 5, Protocols 3–5. A job with `reuse` trains again on the cut points of an earlier one.

Modules:
    boosting  a party's rounds of trees
    checks    refusals before anything is sent
    params    its settings
    party     steps of guest and hosts
    tables    a party's table with common columns and categories
    walk      order of the steps
"""

from fedboost.flow import (
    AGGREGATOR,
    EVERYBODY,
    GUEST,
    HOST,
    DisclosureReuse,
    PolicyFacts,
    Protocol,
    RowsUsed,
    TableUse,
)
from fedboost.protocols.federboost_horizontal.checks import check_table
from fedboost.protocols.federboost_horizontal.params import (
    SETTLED,
    FederBoostHorizontalParams,
    policy_demands,
)
from fedboost.protocols.federboost_horizontal.walk import FLOW, walk

PROTOCOL = Protocol(
    name="federboost-horizontal",
    params=FederBoostHorizontalParams,
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
    reuse=DisclosureReuse(named_by=lambda params: params.reuse, settled=SETTLED),
)
