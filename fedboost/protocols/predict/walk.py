"""Order of a prediction: batch after batch, layer after layer."""

from fedboost.flow import GUEST, HOST, UNBOUNDED, Run, Step
from fedboost.messages.protocol.predict_pb2 import Directions, Questions

LAYERS_MAX = 14  # of the deepest tree

FLOW = (
    ask_hosts := Step(
        "ask_hosts", GUEST, gives=Questions, after=(None, "follow_answers", "close_batch")
    ),
    direct_rows := Step(
        "direct_rows", HOST, takes=Questions, gives=Directions, after=(None, "direct_rows")
    ),
    follow_answers := Step("follow_answers", GUEST, takes=Directions),
    close_batch := Step("close_batch", GUEST),
)


async def walk(run: Run) -> None:
    """Move rows down one layer of host nodes at a time, all trees together."""
    for _ in run.rounds("batch", UNBOUNDED):
        for _ in run.rounds("layer", LAYERS_MAX):
            await run(ask_hosts)
            await run(direct_rows)
            await run(follow_answers)
        await run(close_batch)
