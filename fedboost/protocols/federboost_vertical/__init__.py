"""Vertical boosting without cryptography: hosts send the noisy bucket of each value.

    guest ◄─ BucketIds ── hosts      once a job
    guest: trains alone
    guest ── OwnSplits ─► hosts      once a job

Trees need only the order of values, and buckets are a coarse order. The guest learns a noisy
bucket of every row and column; a host learns which of its own buckets divide the trees. FederBoost
(Tian et al.), section 4, Protocol 2. A job with `reuse` trains again on an earlier disclosure, and
hosts send nothing more.

Modules:
    buckets        bucket numbers in few bits
    guest          the guest's steps: collects buckets and trains
    host           a host's steps: tells buckets, keeps its splits
    joined         the guest's columns and the buckets as one table
    params         its settings
    walk           order of the steps
    xgboost_trees  trees that XGBoost grows of the same bins
"""

from fedboost.flow import GUEST, HOST, DisclosureReuse, PolicyFacts, Protocol, TableUse
from fedboost.protocols.federboost_vertical.params import (
    SETTLED,
    FederBoostVerticalParams,
    check_table,
    policy_demands,
)
from fedboost.protocols.federboost_vertical.walk import FLOW, walk

PROTOCOL = Protocol(
    name="federboost-vertical",
    params=FederBoostVerticalParams,
    flow=FLOW,
    walk=walk,
    modules={GUEST: f"{__name__}.guest", HOST: f"{__name__}.host"},
    before=("align",),
    leaves="model",
    tables=TableUse(
        labelled=(GUEST,),
        bins=lambda params, role: params.buckets if role is HOST else params.max_bin,
        check=check_table,
    ),
    policy=PolicyFacts(asks=policy_demands),
    reuse=DisclosureReuse(named_by=lambda params: params.reuse, settled=SETTLED),
)
