"""Order of the steps: buckets once, then the guest alone, then each host's splits."""

from fedboost.flow import GUEST, HOST, UNBOUNDED, Run, Step
from fedboost.messages.protocol.federboost_vertical_pb2 import BucketIds, OwnSplits

FLOW = (
    send_buckets := Step("send_buckets", HOST, gives=BucketIds),
    receive_buckets := Step("receive_buckets", GUEST, takes=BucketIds),
    grow_trees := Step("grow_trees", GUEST, after=(None, "receive_buckets", "grow_trees")),
    close_model := Step(
        "close_model", GUEST, gives=OwnSplits, after=(None, "receive_buckets", "grow_trees")
    ),
    keep_splits := Step("keep_splits", HOST, takes=OwnSplits, after=(None, "send_buckets")),
)


async def walk(run: Run) -> None:
    """Grow several rounds in a step, so that a small job does not wait for its coordinator."""
    if run.params.reuse is None:
        await run(send_buckets)
        await run(receive_buckets)
    for _ in run.rounds("batch", UNBOUNDED):
        await run(grow_trees)
    await run(close_model)
    await run(keep_splits)
