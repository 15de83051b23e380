"""Scores new rows with a model whose splits lie with several parties.

    guest ── Questions ──► hosts  ┐  once a layer, all trees and rows of a batch together:
    guest ◄─ Directions ── hosts  ┘  directions of these rows at your nodes

The guest learns one bit for each row and host node on the row's path; a host learns which rows are
scored and which of them reach its nodes. The predictions stay with the guest. It is also a stage of
a training that continues an earlier model: the scores are its first margins.

Modules:
    guest   the guest's steps: asks for the directions of rows
    host    a host's steps: answers for its own nodes
    params  its settings
    walk    order of the steps
"""

from fedboost.flow import GUEST, HOST, ModelUse, Protocol
from fedboost.protocols.predict.params import PredictParams, check_model
from fedboost.protocols.predict.walk import FLOW, walk

PROTOCOL = Protocol(
    name="predict",
    params=PredictParams,
    flow=FLOW,
    walk=walk,
    modules={GUEST: f"{__name__}.guest", HOST: f"{__name__}.host"},
    before=("align",),
    leaves="predictions",
    model=ModelUse(named_by=lambda params: params.model, fits=check_model),
)
