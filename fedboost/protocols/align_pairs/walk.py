"""Order of an alignment in pairs: the method; both sets twice, or samples and parts; the check."""

from fedboost.flow import GUEST, HOST, UNBOUNDED, CheckpointPolicy, Run, Step
from fedboost.messages.protocol.align_pairs_pb2 import CommonDigests, GuestSet, HostSet, ReturnedSet
from fedboost.messages.protocol.align_pb2 import RowsDigest
from fedboost.messages.protocol.oblivious_pb2 import (
    Choice,
    Greeting,
    Named,
    Part,
    SampleCount,
    Start,
    Tags,
)
from fedboost.oblivious.method import ECDH, OPRF, PART, SAMPLE, SAMPLES

FLOW = (
    choose_method := Step("choose_method", GUEST),
    # Both sets twice: with ecdh all ids, with oprf a sample.
    blind_ids := Step(
        "blind_ids",
        GUEST,
        gives=GuestSet,
        after=("choose_method", "start_transfers", "count_common"),
    ),
    offer_ids := Step("offer_ids", HOST, gives=HostSet, after=(None, "hear_start", "hear_count")),
    blind_again := Step("blind_again", HOST, takes=GuestSet, gives=ReturnedSet),
    blind_theirs := Step("blind_theirs", GUEST, takes=HostSet),
    # With ecdh.
    meet := Step("meet", GUEST, takes=ReturnedSet, gives=CommonDigests),
    keep_rows := Step("keep_rows", HOST, takes=CommonDigests, gives=RowsDigest),
    # With oprf.
    greet := Step("greet", HOST, gives=Greeting, after=(None,)),
    start_transfers := Step(
        "start_transfers", GUEST, takes=Greeting, gives=Start, after=("choose_method",)
    ),
    hear_start := Step("hear_start", HOST, takes=Start, after=("greet",)),
    count_common := Step(
        "count_common", GUEST, takes=ReturnedSet, gives=SampleCount, after=("blind_theirs",)
    ),
    hear_count := Step("hear_count", HOST, takes=SampleCount, after=("blind_again",)),
    choose_seeds := Step("choose_seeds", HOST, gives=Choice, after=("hear_start", "hear_count")),
    open_transfers := Step(
        "open_transfers", GUEST, takes=Choice, after=("start_transfers", "count_common")
    ),
    ask_parts := Step(
        "ask_parts", GUEST, gives=Part, after=("open_transfers", "match_tags"), streams=True
    ),
    answer_with_tags := Step(
        "answer_with_tags",
        HOST,
        takes=Part,
        gives=Tags,
        after=("choose_seeds", "keep_named"),
        streams=True,
    ),
    match_tags := Step(
        "match_tags", GUEST, takes=Tags, gives=Named, after=("ask_parts",), streams=True
    ),
    keep_named := Step("keep_named", HOST, takes=Named, after=("answer_with_tags",)),
    tell_rows := Step("tell_rows", HOST, gives=RowsDigest, after=("choose_seeds", "keep_named")),
    # Both.
    compare_rows := Step(
        "compare_rows", GUEST, takes=RowsDigest, after=("meet", "open_transfers", "match_tags")
    ),
)


async def walk(run: Run) -> None:
    """Align by the method that size and job determine; the guest ends the loop of the other."""
    await run(choose_method)
    for _ in run.rounds(ECDH, 1, keeps=CheckpointPolicy.NOTHING):
        await run(blind_ids, offer_ids)
        await run(blind_again, blind_theirs)
        await run(meet)
        await run(keep_rows)
    for _ in run.rounds(OPRF, 1, keeps=CheckpointPolicy.NOTHING):
        await match_parts(run)
    await run(compare_rows)


async def match_parts(run: Run) -> None:
    """Take samples until enough ids are in common or too few; then match parts, some at once."""
    await run(greet, start_transfers, hear_start)
    for _ in run.rounds(SAMPLE, SAMPLES, keeps=CheckpointPolicy.NOTHING):
        await run(blind_ids, offer_ids, blind_again, blind_theirs, count_common, hear_count)
    await run(choose_seeds, open_transfers)
    for _ in run.rounds(PART, UNBOUNDED, keeps=CheckpointPolicy.NOW_AND_THEN):
        await run(ask_parts, answer_with_tags, match_tags, keep_named)
    await run(tell_rows)
