"""Order of the steps: round after round, each layer in one exchange."""

from fedboost.encrypted.checks.steps import CHECK_STEPS
from fedboost.encrypted.scheme import keys
from fedboost.flow import GUEST, HOST, Run, Step
from fedboost.messages.protocol.encrypted_pb2 import (
    CandidateSums,
    EncryptedGradients,
    EncryptionKey,
    Nonce,
    RowDivisions,
    WonSplits,
)
from fedboost.messages.protocol.secureboost_pb2 import Frontier
from fedboost.protocols.secureboost import plan

FLOW = (
    # With a scheme that derives public polynomials.
    offer_nonce := Step("offer_nonce", HOST, gives=Nonce),
    hear_nonces := Step("hear_nonces", GUEST, takes=Nonce),
    share_key := Step("share_key", GUEST, gives=EncryptionKey, after=(None, "hear_nonces")),
    accept_key := Step("accept_key", HOST, takes=EncryptionKey, after=(None, "offer_nonce")),
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
    # If the job checks gradients.
    *CHECK_STEPS,
    # A layer.
    open_layer := Step(
        "open_layer",
        GUEST,
        gives=Frontier,
        after=("encrypt_gradients", "open_sums", "grow_nodes"),
    ),
    sum_candidates := Step(
        "sum_candidates",
        HOST,
        takes=Frontier,
        gives=CandidateSums,
        after=("receive_gradients", "check_sums", "divide_rows"),
        streams=True,
    ),
    choose_splits := Step("choose_splits", GUEST, takes=CandidateSums, gives=WonSplits),
    divide_rows := Step("divide_rows", HOST, takes=WonSplits, gives=RowDivisions),
    grow_nodes := Step("grow_nodes", GUEST, takes=RowDivisions),
    grow_alone := Step("grow_alone", GUEST, after=("start_round", "grow_nodes", "close_trees")),
    # Right after the start if an attempt takes up trees with all their layers.
    close_trees := Step("close_trees", GUEST, after=("grow_nodes", "grow_alone", "start_round")),
    close_round := Step("close_round", GUEST),
    close_model := Step("close_model", GUEST, after=("share_key", "close_round")),
)


async def walk(run: Run) -> None:
    """Grow round after round, class after class, layer after layer of its trees."""
    if keys.takes_nonces(run.params):
        await run(offer_nonce, hear_nonces)
    await run(share_key, accept_key)
    classes = run.params.trees_per_round
    sends: tuple[Step, ...] = (encrypt_gradients, receive_gradients)
    if run.params.gradient_check:
        sends += CHECK_STEPS
    for round_ in run.rounds(plan.loop_name(run.params), run.params.n_estimators):
        hosts = plan.of_round(run.params, run.table, round_)
        begin: tuple[Step, ...] = (start_round,)
        for number in run.rounds("class", classes):
            has_begun = await run.loop(
                "layer",
                hosts.host_layers,
                *(open_layer, sum_candidates, choose_splits, divide_rows, grow_nodes),
                # Every attempt has another key, so gradients come first.
                first=(*begin, *sends),
                among=hosts.hosts,
            )
            begin = () if has_begun else begin
            alone = (grow_alone,) if hosts.guest_layers else ()
            closing = (close_round,) if number + 1 == classes else ()
            await run(*begin, *alone, close_trees, *closing)
            begin = ()
    await run(close_model)
