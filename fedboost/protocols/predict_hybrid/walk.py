"""Order of a prediction: batch after batch, with one exchange each."""

from fedboost.flow import GUEST, HOST, UNBOUNDED, Run, Step
from fedboost.messages.protocol.encrypted_pb2 import AnswerKey, LeafAnswers, SharedRows
from fedboost.messages.protocol.predict_hybrid_pb2 import BottomPlaces, LeafPlaces

FLOW = (
    # With unscored splits and several hosts: masks among a row's hosts.
    offer_answer_key := Step("offer_answer_key", HOST, gives=AnswerKey),
    hear_answer_keys := Step("hear_answer_keys", HOST, takes=AnswerKey),
    share_rows := Step("share_rows", GUEST, gives=SharedRows),
    learn_shared := Step("learn_shared", HOST, takes=SharedRows),
    # A batch.
    place_rows := Step(
        "place_rows", GUEST, gives=BottomPlaces, after=(None, "share_rows", "close_batch")
    ),
    find_leaves := Step(
        "find_leaves", HOST, takes=BottomPlaces, gives=LeafPlaces, after=(None, "find_leaves")
    ),
    answer_rows := Step(
        "answer_rows",
        HOST,
        takes=BottomPlaces,
        gives=LeafAnswers,
        after=(None, "learn_shared", "answer_rows"),
    ),
    follow_leaves := Step("follow_leaves", GUEST, takes=LeafPlaces, after=("place_rows",)),
    add_values := Step("add_values", GUEST, takes=LeafAnswers, after=("place_rows",)),
    close_batch := Step("close_batch", GUEST, after=("follow_leaves", "add_values")),
)


async def walk(run: Run) -> None:
    """Ask for the leaves below the bottom nodes of rows, in all trees at once."""
    is_scored = run.params.split == "scored"
    if not is_scored and len(run.table.hosts) > 1:
        await run(offer_answer_key, share_rows, hear_answer_keys, learn_shared)
    for _ in run.rounds("batch", UNBOUNDED):
        if is_scored:
            await run(place_rows, find_leaves, follow_leaves)
        else:
            await run(place_rows, answer_rows, add_values)
        await run(close_batch)
