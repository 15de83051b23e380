"""Vertical boosting under encryption: neither labels nor columns ever leave their owner.

    guest ── EncryptionKey ──────────────────────► hosts      once a job
    guest ── EncryptedGradients (in parts) ──────► hosts      once a round (and class)
    guest ── Frontier ───────────────────────────► hosts  ┐
    guest ◄─ CandidateSums ─────────────────────── hosts  │   once a layer, all trees and nodes
    guest ── WonSplits ──────────────────────────► hosts  │
    guest ◄─ RowDivisions ──────────────────────── hosts  ┘

The guest learns, for each candidate split of a host, anonymous and in a fresh secret order, the
sums of gradients and hessians on its left, and how the rows of the splits it chose divide. A host
learns which rows share a node and which of its own candidates won. SecureBoost+ (Chen et al.,
2021), sections 2 and 4; the answers of hosts are re-randomised and their headroom blinded, which
the paper leaves out. With `forest` a round has several trees on samples, grown in the exchanges
of one and averaged (FedGBF, Han et al.). A job with `warm_start` goes on behind an earlier model,
whose margins the stage `predict` has left.

Modules:
    earlier     the model that a job with `warm_start` continues
    guest       the guest's steps: labels, key, choice of splits
    host        a host's steps: encrypted sums, offers of splits
    params      its settings
    plan        the owners of the columns that each layer uses
    replay      jobs that a replay of the guest covers, names of messages
    visibility  the parts of growing trees that each host may see
    walk        order of the steps
"""

from fedboost.encrypted.scheme.params import policy_demands
from fedboost.flow import GUEST, HOST, ModelUse, PolicyFacts, Protocol, ReplaySupport, TableUse
from fedboost.protocols.secureboost import earlier, plan, replay
from fedboost.protocols.secureboost.params import SecureBoostParams, check_table
from fedboost.protocols.secureboost.walk import FLOW, walk

PROTOCOL = Protocol(
    name="secureboost",
    params=SecureBoostParams,
    flow=FLOW,
    walk=walk,
    modules={GUEST: f"{__name__}.guest", HOST: f"{__name__}.host"},
    before=("align",),
    leaves="model",
    tables=TableUse(
        labelled=(GUEST,),
        bins_values=True,
        bins=lambda params, _: params.max_bin,
        check=check_table,
    ),
    policy=PolicyFacts(asks=policy_demands, releases=plan.releases),
    round_kind=plan.of_round,
    model=ModelUse(
        named_by=lambda params: params.warm_start,
        fits=earlier.check_model,
        before={"predict": {"output_margin": True}},
    ),
    replay=ReplaySupport(lacks=replay.obstacle, place=replay.describe_message),
)
