"""Every kind of message, and of call, meets each of seven faults: nothing is lost.

On each change every kind meets some of them in every job that has it: in one run one fault befalls
all kinds of a job. With `--all` in one run one fault befalls one kind, too: each kind in the first
of `TOYS` that has it, in jobs that take longer two of the faults; with `--long` all in every job.
"""

from collections.abc import Iterator

import pytest

from fedboost import protocols
from fedboost.runtime.cluster.local import USER
from tests import tiers
from tests.faults.grounds import MESSAGES, ground, lines, listed
from tests.simulator.fates import FAULTS, Once, OnEach, Past
from tests.support.invariants import check
from tests.support.toys import TOYS, to_its_end
from tests.tiers import Tier

BEFORE = "Hello"  # asked before there is a job: where it is lost, none is taken in
QUICK = ("vertical", "predict", "predict-scored", "gbun")
FAULTS_EACH = 3  # that the calls of a toy meet on each change
PAUSING = ("late",)  # what pauses a job; in other weather its first attempt is its last


def calls(toy: str) -> Iterator[tuple[str, str, str]]:
    """Every kind of call in a toy's job, by who makes it."""
    for trip in ground(toy).whole.trips:
        if trip.what != BEFORE and trip.sender in ground(toy).place(MESSAGES).names:
            yield toy, "coordinator" if trip.envelope is None else "party", trip.what


def walks() -> list[tuple[str, str]]:
    """Toys and faults; some of the faults on each change, fewer in jobs that take longer."""
    known = [(toy, fault) for toy in TOYS for fault in FAULTS]
    if tiers.runs(Tier.ALL):
        return known
    return [case for case in known if case[1] in faults_of(case[0])]


def faults_of(toy: str) -> list[str]:
    """Those that a toy's calls meet on each change; a turn of the wheel for each toy."""
    first = list(TOYS).index(toy) + tiers.number("faults")
    turns = FAULTS_EACH if toy in QUICK else 1
    return [FAULTS[(first + turn * 3) % len(FAULTS)] for turn in range(turns)]


def cases() -> Iterator[tuple[str, str, str]]:
    """With `--all` each kind of call with each fault: toy, what, fault."""
    seen: set[str] = set()
    for toy, who, what in lines(MESSAGES) if tiers.runs(Tier.ALL) else ():
        is_step = who == "coordinator" and what.startswith("RunStep")
        for place, fault in enumerate(FAULTS):
            spared = toy not in QUICK and (len(seen) + place) % len(FAULTS) > 1
            if tiers.runs(Tier.LONG) or not (what in seen or is_step or spared):
                yield toy, what, fault
        seen.add(what)


@pytest.mark.some(2)
@pytest.mark.parametrize(("toy", "fault"), walks())
def test_whatever_befalls_all_messages_the_job_is_the_undisturbed_one(toy, fault):
    own = ground(toy)
    kinds = [what for name, _, what in lines(MESSAGES) if name == toy]
    schedule = OnEach(dict.fromkeys(kinds, fault), Past(list(own.earlier.trips)))
    left = own.run(schedule=schedule)
    assert schedule.happened == set(kinds)
    check(own.toy, left, own.whole)
    if fault not in PAUSING:
        assert left.attempts == 1


@pytest.mark.parametrize(("toy", "what", "fault"), list(cases()))
def test_whatever_befalls_a_message_the_job_is_the_undisturbed_one(toy, what, fault):
    own = ground(toy)
    schedule = Once(what, fault, Past(own.earlier.trips))
    left = own.run(schedule=schedule)
    assert schedule.has_happened, f"{what} never came"
    check(own.toy, left, own.whole)


@pytest.mark.parametrize("fault", tiers.sampled(FAULTS, 3))
def test_a_job_is_handed_in_once_whatever_befalls_its_submission(fault):
    own = ground("vertical")
    jobs: list[str] = []
    schedule = Once("Submit", fault, Past(own.earlier.trips), USER)

    async def work(made, job):
        await to_its_end(made, job)
        jobs.extend(one.id for one in await made.client().jobs())

    left = own.run(work, schedule=schedule)
    assert schedule.has_happened
    assert jobs == [own.earlier.job, left.job]
    check(own.toy, left, own.whole)


@pytest.mark.some(3)
@pytest.mark.parametrize("toy", TOYS)
def test_the_list_of_messages_is_what_happens(toy, request):
    listed(MESSAGES, toy, calls(toy), rewrite=request.config.getoption("--rewrite"))


# One host answers as hosts of pairs do. No toy's policy asks for a sample: `test_align_oprf` does.
ELSEWHERE = {"align.answer_with_tags", "align.match_tags", "align.count_common"}
ELSEWHERE |= {"align-pairs.count_common"}
# Gradients are checked as in secureboost; lies about it are in `test_family_mutations`.
ELSEWHERE |= {f"hybridtree.{name}" for name in ("sign_rows", "commit_sums", "show_signs")}
ELSEWHERE |= {"hybridtree.open_sums"}
# Nobody signs who is left before a host is lost, and a toy's trees are too few to be asked for at
# once: `test_lost_parties` and `test_lost_parties_gbun`.
MANY = ("sign_survivors", "reveal_shares", "open_whole")
ELSEWHERE |= {f"{name}.{step}" for name in ("federboost-horizontal", "gbun") for step in MANY}


def test_every_message_type_of_every_protocol_is_tried():
    tried = {what for _, _, what in lines(MESSAGES)} | ELSEWHERE
    for name, protocol in protocols.load_all().items():
        steps = [step.name for step in protocol.flow if step.gives is not None]
        missing = [step for step in steps if f"{name}.{step}" not in tried]
        assert name == "echo" or not missing, (name, missing)
