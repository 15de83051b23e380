"""Scores new rows with a model of hybridtree: two messages a batch, for trees of any depth.

    guest ── BottomPlaces ──► hosts     bottom nodes of each tree that the rows stand below
    guest ◄─ LeafPlaces ───── hosts     the leaves that they reach there

In a model with unscored splits only the hosts hold leaf values, encrypted: then they answer with
each row's sum over all trees, under masks among its hosts (LeafAnswers). The guest learns of new
rows the same as its training told it of old ones, a host learns which rows are scored and their
bottom nodes. Rows that no host has keep the guest's leaves. HybridTree (Li et al., 2023),
section 4.2.

Modules:
    guest    the guest's steps: its part, and the sum over hosts
    host     a host's steps: its leaves, or masked values
    indices  indices of leaves and bottom nodes as bytes
    params   its settings
    walk     order of the steps
"""

from fedboost.flow import GUEST, HOST, ModelUse, Protocol, RowsUsed, TableUse
from fedboost.protocols.predict_hybrid.params import PredictHybridParams, check_model
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
    model=ModelUse(named_by=lambda params: params.model, fits=check_model),
)
