"""The ring, the opening, the check."""

from fedboost.flow import EVERYBODY, GUEST, HOST, Run, Step
from fedboost.messages.protocol.align_pb2 import (
    BlindedSet,
    CommonDigests,
    CommonSet,
    FullSet,
    RowsDigest,
)

FLOW = (
    blind_ids := Step("blind_ids", EVERYBODY, gives=BlindedSet),
    pass_on := Step(
        "pass_on",
        EVERYBODY,
        takes=BlindedSet,
        gives=BlindedSet,
        after=("blind_ids", "pass_on"),
        one_sender=True,
    ),
    close_ring := Step(
        "close_ring",
        EVERYBODY,
        takes=BlindedSet,
        gives=FullSet,
        after=("blind_ids", "pass_on"),
        one_sender=True,
    ),
    intersect := Step("intersect", GUEST, takes=FullSet, gives=CommonSet),
    unblind := Step("unblind", HOST, takes=CommonSet, gives=CommonSet, one_sender=True),
    name_rows := Step("name_rows", GUEST, takes=CommonSet, gives=CommonDigests, one_sender=True),
    keep_rows := Step("keep_rows", HOST, takes=CommonDigests, gives=RowsDigest),
    compare_rows := Step("compare_rows", GUEST, takes=RowsDigest),
)


async def walk(run: Run) -> None:
    """Every set passes every party; what all share is opened host by host."""
    hosts = run.table.hosts
    await run(blind_ids)
    for _ in hosts[1:]:
        await run(pass_on)
    await run(close_ring)
    await run(intersect)
    for host in reversed(hosts):
        await run(unblind, at=host)
    await run(name_rows)
    await run(keep_rows)
    await run(compare_rows)
