"""The table of steps, and the order in which they come."""

from fedboost.flow import GUEST, HOST, Run, Step
from fedboost.messages.protocol.encrypted_pb2 import (
    CandidateSums,
    EncryptedGradients,
    EncryptionKey,
    RowDivisions,
    WonSplits,
)
from fedboost.messages.protocol.secureboost_pb2 import Frontier
from fedboost.protocols.secureboost import plan

FLOW = (
    share_key := Step("share_key", GUEST, gives=EncryptionKey),
    accept_key := Step("accept_key", HOST, takes=EncryptionKey),
    start_round := Step("start_round", GUEST, after=("share_key", "close_round")),
    encrypt_gradients := Step(
        "encrypt_gradients",
        GUEST,
        gives=EncryptedGradients,
        after=("start_round", "close_trees"),
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
    grow_alone := Step("grow_alone", GUEST, after=("start_round", "grow_nodes", "close_trees")),
    close_trees := Step("close_trees", GUEST, after=("grow_nodes", "grow_alone")),
    close_round := Step("close_round", GUEST),
    close_model := Step("close_model", GUEST, after=("share_key", "close_round")),
)


async def walk(run: Run) -> None:
    """Round after round, class after class, layer after layer of its trees."""
    await run(share_key)
    await run(accept_key)
    for number in run.rounds(plan.loop(run.params), run.params.n_estimators):
        hosts = plan.of_round(run.params, run.table, number)
        await run(start_round)
        for _ in run.rounds("class", run.params.trees_per_round):
            if hosts.hosts:
                await run(encrypt_gradients, among=hosts.hosts)
                await run(receive_gradients, among=hosts.hosts)
            for _ in run.rounds("layer", hosts.host_layers):
                await run(open_layer, among=hosts.hosts)
                await run(sum_candidates, among=hosts.hosts)
                await run(choose_splits, among=hosts.hosts)
                await run(divide_rows, among=hosts.hosts)
                await run(grow_nodes, among=hosts.hosts)
            if hosts.guest_layers:
                await run(grow_alone)
            await run(close_trees)
        await run(close_round)
    await run(close_model)
