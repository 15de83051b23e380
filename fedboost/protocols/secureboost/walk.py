"""The table of steps, and the order in which they come."""

from fedboost.flow import GUEST, HOST, Run, Step
from fedboost.messages.protocol.secureboost_pb2 import (
    CandidateSums,
    EncryptedGradients,
    EncryptionKey,
    Frontier,
    RowDivisions,
    WonSplits,
)

FLOW = (
    share_key := Step("share_key", GUEST, gives=EncryptionKey),
    accept_key := Step("accept_key", HOST, takes=EncryptionKey),
    encrypt_gradients := Step(
        "encrypt_gradients",
        GUEST,
        gives=EncryptedGradients,
        after=("share_key", "close_tree"),
        streams=True,
    ),
    receive_gradients := Step(
        "receive_gradients", HOST, takes=EncryptedGradients, after=("accept_key", "divide_rows")
    ),
    open_layer := Step(
        "open_layer", GUEST, gives=Frontier, after=("encrypt_gradients", "grow_nodes")
    ),
    sum_candidates := Step(
        "sum_candidates",
        HOST,
        takes=Frontier,
        gives=CandidateSums,
        after=("receive_gradients", "divide_rows"),
    ),
    choose_splits := Step("choose_splits", GUEST, takes=CandidateSums, gives=WonSplits),
    divide_rows := Step("divide_rows", HOST, takes=WonSplits, gives=RowDivisions),
    grow_nodes := Step("grow_nodes", GUEST, takes=RowDivisions),
    close_tree := Step("close_tree", GUEST),
    close_model := Step("close_model", GUEST, after=("share_key", "close_tree")),
)


async def walk(run: Run) -> None:
    """Tree after tree, layer after layer."""
    await run(share_key)
    await run(accept_key)
    for _ in run.rounds("tree", run.params.n_estimators):
        await run(encrypt_gradients)
        await run(receive_gradients)
        for _ in run.rounds("layer", run.params.max_depth):
            await run(open_layer)
            await run(sum_candidates)
            await run(choose_splits)
            await run(divide_rows)
            await run(grow_nodes)
        await run(close_tree)
    await run(close_model)
