"""Both sets, both sets once more, the meeting, the check; all hosts side by side."""

from fedboost.flow import GUEST, HOST, Run, Step
from fedboost.messages.protocol.align_pairs_pb2 import (
    CommonDigests,
    GuestSet,
    HostSet,
    ReturnedSet,
)
from fedboost.messages.protocol.align_pb2 import RowsDigest

FLOW = (
    blind_ids := Step("blind_ids", GUEST, gives=GuestSet),
    offer_ids := Step("offer_ids", HOST, gives=HostSet),
    blind_again := Step("blind_again", HOST, takes=GuestSet, gives=ReturnedSet),
    blind_theirs := Step("blind_theirs", GUEST, takes=HostSet),
    meet := Step("meet", GUEST, takes=ReturnedSet, gives=CommonDigests),
    keep_rows := Step("keep_rows", HOST, takes=CommonDigests, gives=RowsDigest),
    compare_rows := Step("compare_rows", GUEST, takes=RowsDigest),
)


async def walk(run: Run) -> None:
    """Guest and hosts blind at the same time; the guest finds what each host has, and tells it."""
    await run(blind_ids, offer_ids)
    await run(blind_again, blind_theirs)
    await run(meet)
    await run(keep_rows)
    await run(compare_rows)
