"""Trees of two parts: upper layers of one label holder, and below them layers of many hosts.

    guest ── EncryptionKey ──────────► hosts      once a job
    guest ── BottomRows (in parts) ──► hosts      once a tree: gradients, and bottom nodes of rows
    guest ◄─ CandidateSums ─────────── hosts  ┐
    guest ── ChosenSplits ───────────► hosts  │   once for each of the hosts' layers
    guest ◄─ RowDivisions ──────────── hosts  ┘

The guest is the party with the labels, which HybridTree's paper calls *host*; its *guests* are our
hosts (Li et al., 2023, Algorithm 1). Hosts have other columns of some of the guest's rows, and may
overlap. The guest grows the upper layers on its own columns and leaves to each host the rows that
this one has, with gradients as its own leaf leaves them; a row's value is the guest's leaf plus the
mean of its hosts' leaves. The guest learns the same of each host as with `secureboost`, but only
for these layers; a host learns which of its rows share a bottom node.

Modules:
    guest        the guest's steps: labels, key, upper layers
    guest_state  state of the guest between steps
    host         a host's steps: lower layers
    params       its settings
    streams      gradients for several hosts at once
    unscored     lower layers that a host cuts at random
    view         the guest's view of one host
    walk         order of the steps
"""

from fedboost.encrypted.scheme.params import policy_demands
from fedboost.flow import GUEST, HOST, PolicyFacts, Protocol, RowsUsed, TableUse
from fedboost.protocols.hybridtree.params import HybridTreeParams, check_table, releases
from fedboost.protocols.hybridtree.walk import FLOW, walk

PROTOCOL = Protocol(
    name="hybridtree",
    params=HybridTreeParams,
    flow=FLOW,
    walk=walk,
    modules={GUEST: f"{__name__}.guest", HOST: f"{__name__}.host"},
    before=("align-pairs",),
    leaves="model",
    several_guests=True,
    tables=TableUse(
        labelled=(GUEST,),
        rows=RowsUsed.GUESTS,
        bins=lambda params, _: params.max_bin,
        check=check_table,
    ),
    policy=PolicyFacts(asks=policy_demands, releases=releases),
)
