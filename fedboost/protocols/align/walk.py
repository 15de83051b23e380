"""Order of an alignment: the method; the ring and the opening, or samples and parts; the check."""

from fedboost.flow import EVERYBODY, GUEST, HOST, UNBOUNDED, CheckpointPolicy, Run, Step
from fedboost.messages.protocol.align_pb2 import (
    BlindedSet,
    CommonDigests,
    CommonSet,
    FullSet,
    Hint,
    PairKey,
    RowsDigest,
)
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
    # The ring: with ecdh of all ids, with oprf of a sample.
    blind_ids := Step(
        "blind_ids",
        EVERYBODY,
        gives=BlindedSet,
        after=(
            None,
            "choose_method",
            "start_transfers",
            "hear_start",
            "count_common",
            "hear_count",
        ),
    ),
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
    # With ecdh.
    intersect := Step("intersect", GUEST, takes=FullSet, gives=CommonSet),
    unblind := Step("unblind", HOST, takes=CommonSet, gives=CommonSet, one_sender=True),
    name_rows := Step("name_rows", GUEST, takes=CommonSet, gives=CommonDigests, one_sender=True),
    keep_rows := Step("keep_rows", HOST, takes=CommonDigests, gives=RowsDigest),
    # With oprf.
    offer_pair_key := Step("offer_pair_key", HOST, gives=PairKey, after=(None,)),
    greet := Step("greet", HOST, gives=Greeting, after=(None, "offer_pair_key")),
    start_transfers := Step(
        "start_transfers", GUEST, takes=Greeting, gives=Start, after=("choose_method",)
    ),
    hear_pair_keys := Step("hear_pair_keys", HOST, takes=PairKey),
    hear_start := Step("hear_start", HOST, takes=Start, after=("greet", "hear_pair_keys")),
    count_common := Step(
        "count_common", GUEST, takes=FullSet, gives=SampleCount, after=("close_ring",)
    ),
    hear_count := Step("hear_count", HOST, takes=SampleCount, after=("close_ring",)),
    choose_seeds := Step("choose_seeds", HOST, gives=Choice, after=("hear_start", "hear_count")),
    open_transfers := Step(
        "open_transfers", GUEST, takes=Choice, after=("start_transfers", "count_common")
    ),
    ask_parts := Step(
        "ask_parts",
        GUEST,
        gives=Part,
        after=("open_transfers", "match_tags", "match_hints"),
        streams=True,
    ),
    answer_with_tags := Step(
        "answer_with_tags",
        HOST,
        takes=Part,
        gives=Tags,
        after=("choose_seeds", "keep_named"),
        streams=True,
    ),
    answer_with_hints := Step(
        "answer_with_hints",
        HOST,
        takes=Part,
        gives=Hint,
        after=("choose_seeds", "keep_named"),
        streams=True,
    ),
    match_tags := Step(
        "match_tags", GUEST, takes=Tags, gives=Named, after=("ask_parts",), streams=True
    ),
    match_hints := Step(
        "match_hints", GUEST, takes=Hint, gives=Named, after=("ask_parts",), streams=True
    ),
    keep_named := Step(
        "keep_named", HOST, takes=Named, after=("answer_with_tags", "answer_with_hints")
    ),
    tell_rows := Step("tell_rows", HOST, gives=RowsDigest, after=("choose_seeds", "keep_named")),
    # Both.
    compare_rows := Step(
        "compare_rows",
        GUEST,
        takes=RowsDigest,
        after=("name_rows", "open_transfers", "match_tags", "match_hints"),
    ),
)


async def walk(run: Run) -> None:
    """Align by the method that size and job determine; the guest ends the loop of the other."""
    await run(choose_method)
    for _ in run.rounds(ECDH, 1, keeps=CheckpointPolicy.NOTHING):
        await open_on_curve(run)
    for _ in run.rounds(OPRF, 1, keeps=CheckpointPolicy.NOTHING):
        await match_parts(run)
    await run(compare_rows)


async def go_round(run: Run) -> None:
    """Pass every set round all parties."""
    await run(blind_ids)
    for _ in run.table.hosts[1:]:
        await run(pass_on)
    await run(close_ring)


async def open_on_curve(run: Run) -> None:
    """Open the common points, host by host."""
    await go_round(run)
    await run(intersect)
    for host in reversed(run.table.hosts):
        await run(unblind, at=host)
    await run(name_rows)
    await run(keep_rows)


async def match_parts(run: Run) -> None:
    """Take samples until enough ids are in common or too few; then match parts, some at once."""
    several = len(run.table.hosts) > 1
    keys = (offer_pair_key, hear_pair_keys) if several else ()
    await run(*keys[:1], greet, *keys[1:], start_transfers, hear_start)
    for _ in run.rounds(SAMPLE, SAMPLES, keeps=CheckpointPolicy.NOTHING):
        await go_round(run)
        await run(count_common, hear_count)
    await run(choose_seeds, open_transfers)
    answer, match = (answer_with_hints, match_hints) if several else (answer_with_tags, match_tags)
    for _ in run.rounds(PART, UNBOUNDED, keeps=CheckpointPolicy.NOW_AND_THEN):
        await run(ask_parts, answer, match, keep_named)
    await run(tell_rows)
