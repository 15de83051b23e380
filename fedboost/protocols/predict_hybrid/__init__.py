"""Scores new rows with a model of hybridtree: two messages a batch, however deep the trees are.

    guest ── BottomPlaces ──► hosts     below which bottom node of each tree the rows stand
    guest ◄─ LeafPlaces ───── hosts     the leaves that they reach there

A model with unscored splits has leaf values that only its hosts hold, encrypted: then they answer
with each row's sum over all trees, under masks among its hosts (LeafAnswers). The guest learns what
its training told it of new rows, a host which rows are scored and where they stand. Rows that no
host has keep the guest's leaves. HybridTree (Li et al., 2023), section 4.2.

Modules:
    guest    the guest's steps: its part, and the sum over hosts
    host     a host's steps: its leaves, or masked values
    indices  indices of leaves and bottom nodes as bytes
    params   its settings
    walk     order of the steps
"""

from fedboost.flow import GUEST, HOST, ModelUse, Protocol, RowsUsed, TableUse
from fedboost.protocols.predict_hybrid.params import PredictHybridParams, fits
from fedboost.protocols.predict_hybrid.walk import FLOW, walk

PROTOCOL = Protocol(
    name="predict-hybrid",
    params=PredictHybridParams,
    flow=FLOW,
    walk=walk,
    modules={GUEST: f"{__name__}.guest", HOST: f"{__name__}.host"},
    before=("align-pairs",),
    leaves="predictions",
    tables=TableUse(rows=RowsUsed.GUESTS),
    model=ModelUse(named_by=lambda params: params.model, fits=fits),
)
