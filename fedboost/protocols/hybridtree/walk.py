"""Order of the steps: each round the guest's layers, then the hosts' layers below them."""

from fedboost.encrypted.checks.steps import CHECK_STEPS
from fedboost.encrypted.scheme import keys
from fedboost.flow import GUEST, HOST, CheckpointPolicy, Run, Step
from fedboost.messages.protocol.encrypted_pb2 import (
    AnswerKey,
    CandidateSums,
    EncryptionKey,
    LeafAnswers,
    Nonce,
    RowDivisions,
    SharedRows,
)
from fedboost.messages.protocol.hybridtree_pb2 import BottomRows, ChosenSplits

FLOW = (
    # With a scheme that derives public polynomials.
    offer_nonce := Step("offer_nonce", HOST, gives=Nonce),
    hear_nonces := Step("hear_nonces", GUEST, takes=Nonce),
    share_key := Step("share_key", GUEST, gives=EncryptionKey, after=(None, "hear_nonces")),
    accept_key := Step("accept_key", HOST, takes=EncryptionKey, after=(None, "offer_nonce")),
    # With unscored splits and several hosts: masks among a row's hosts.
    offer_answer_key := Step("offer_answer_key", HOST, gives=AnswerKey),
    hear_answer_keys := Step("hear_answer_keys", HOST, takes=AnswerKey),
    share_rows := Step("share_rows", GUEST, gives=SharedRows),
    learn_shared := Step("learn_shared", HOST, takes=SharedRows),
    # A tree.
    start_round := Step("start_round", GUEST, after=("share_key", "share_rows", "close_round")),
    grow_top := Step("grow_top", GUEST, after=("start_round", "close_tree")),
    encrypt_gradients := Step("encrypt_gradients", GUEST, gives=BottomRows, streams=True),
    receive_gradients := Step(
        "receive_gradients",
        HOST,
        takes=BottomRows,
        after=("accept_key", "learn_shared", "divide_rows", "answer_rows"),
    ),
    # Scored, if the job checks gradients.
    *CHECK_STEPS,
    # Scored: once for each of the hosts' layers.
    sum_candidates := Step(
        "sum_candidates",
        HOST,
        gives=CandidateSums,
        after=("receive_gradients", "check_sums", "divide_rows"),
        streams=True,
    ),
    choose_splits := Step(
        "choose_splits",
        GUEST,
        takes=CandidateSums,
        gives=ChosenSplits,
        after=("encrypt_gradients", "open_sums", "grow_nodes"),
    ),
    divide_rows := Step("divide_rows", HOST, takes=ChosenSplits, gives=RowDivisions),
    grow_nodes := Step("grow_nodes", GUEST, takes=RowDivisions),
    # Unscored: once.
    answer_rows := Step("answer_rows", HOST, gives=LeafAnswers, after=("receive_gradients",)),
    add_values := Step("add_values", GUEST, takes=LeafAnswers, after=("encrypt_gradients",)),
    # Right after its beginning if an attempt takes up a tree with all its layers.
    close_tree := Step("close_tree", GUEST, after=("grow_nodes", "add_values", "grow_top")),
    close_round := Step("close_round", GUEST, after=("close_tree", "start_round")),
    close_model := Step("close_model", GUEST, after=("share_key", "share_rows", "close_round")),
)


async def walk(run: Run) -> None:
    """Grow tree after tree: the guest's layers alone, then the hosts' layers below them."""
    if keys.takes_nonces(run.params):
        await run(offer_nonce, hear_nonces)
    await run(share_key, accept_key)
    if run.params.split == "unscored" and len(run.table.hosts) > 1:
        await run(offer_answer_key, share_rows, hear_answer_keys, learn_shared)
    for _ in run.rounds("round", run.params.n_estimators):
        await run(start_round)
        if run.params.split == "unscored":
            await grow_unscored(run)
        else:
            await grow_scored(run)
    await run(close_model)


async def grow_unscored(run: Run) -> None:
    """Grow the trees of a round; each host cuts its layers alone."""
    several = run.params.trees_per_round > 1
    keeps = CheckpointPolicy.NOW_AND_THEN if several else CheckpointPolicy.NOTHING
    for _ in run.rounds("class", run.params.trees_per_round, keeps=keeps):
        await run(grow_top, encrypt_gradients, receive_gradients, answer_rows, add_values)
        await run(close_tree)
    await run(close_round)


async def grow_scored(run: Run) -> None:
    """Grow the trees of a round, with the hosts' layers one after the other."""
    classes = run.params.trees_per_round
    for number in run.rounds("class", classes):
        await run(grow_top)
        first: tuple[Step, ...] = (encrypt_gradients, receive_gradients)
        if run.params.gradient_check:
            first += CHECK_STEPS
        for _ in run.rounds("layer", run.params.host_depth, keeps=CheckpointPolicy.NOW_AND_THEN):
            await run(*first, sum_candidates, choose_splits, divide_rows, grow_nodes)
            first = ()  # once per attempt, since each has another key
        closing = (close_round,) if number + 1 == classes else ()
        await run(close_tree, *closing)
